//! Births, renames and ends of a few directories, exhaustively: every order of mkdir, rmdir and rename over
//! two parents and two names, with transactions that are decided here and applied there later, or abort. The
//! operations are the production functions; `world` stands for the servers (InfiniFS §3.3.1, H2-H5, H7).

mod operate;
mod world;

use operate::{Spot, What};
use pando_format::codec::Codec;
use pando_format::{HashWidths, Head, Key, Record, Target};
use pando_types::{Birth, DirId, Name};
use pando_wire::RenameMode;
use stateright::{Checker, Model, Property};
use std::collections::{BTreeMap, BTreeSet};
use world::{Setup, World};

/// One step.
#[derive(Clone, PartialEq, Debug)]
enum Action {
    Begin(What),
    Decide(usize),
    Deliver(usize),
    Abort(usize),
    DeleteLate(Vec<u8>),
}

/// A setup, with bugs planted in it.
#[derive(Clone)]
struct Births {
    setup: Setup,
    #[cfg(feature = "plant")]
    plants: Vec<&'static str>,
}

fn spots(setup: &Setup) -> Vec<Spot> {
    let root = (0..setup.names.len()).map(|name| Spot { below: false, name });
    let below = (0..setup.below).map(|name| Spot { below: true, name });
    root.chain(below).collect()
}

impl Model for Births {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (n, txn) in world.txns.iter().enumerate() {
            if txn.decided {
                actions.push(Action::Deliver(n));
            } else {
                actions.extend([Action::Decide(n), Action::Abort(n)]);
            }
        }
        actions.extend(world.late.iter().cloned().map(Action::DeleteLate));
        if world.txns.len() >= self.setup.at_once || world.broken.is_some() {
            return;
        }
        let room = world.directories() < self.setup.most;
        let spots = spots(&self.setup);
        for (n, spot) in spots.iter().copied().enumerate() {
            if room {
                actions.push(Action::Begin(What::Mkdir(spot)));
            }
            actions.push(Action::Begin(What::Rmdir(spot)));
            for (m, to) in spots.iter().copied().enumerate().filter(|(m, _)| *m != n) {
                actions.push(Action::Begin(What::Rename(spot, to, RenameMode::Replace)));
                if n < m {
                    actions.push(Action::Begin(What::Rename(spot, to, RenameMode::Exchange)));
                }
            }
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        // Bugs are planted on a thread; the checker has several.
        #[cfg(feature = "plant")]
        pando_types::plant::set(&self.plants);
        match action {
            Action::Begin(what) => world.begin(&self.setup, &what),
            Action::Decide(n) => Some(world.decide(n)),
            Action::Deliver(n) => Some(world.deliver(n)),
            Action::Abort(n) => Some(world.abort(n)),
            Action::DeleteLate(key) => Some(world.delete_late(&key)),
        }
    }

    fn properties(&self) -> Vec<Property<Births>> {
        vec![
            Property::always("nothing is broken, every operation ends", |_, w: &World| {
                w.broken.is_none()
            }),
            Property::always("one content for each directory", |m: &Births, w| {
                one_content(&m.setup, w)
            }),
            Property::always("rename lists are the heads that say so", |_, w| lists_agree(w)),
            Property::sometimes("a version is used for a renamed name", |_, w| {
                heads(w).values().any(|h| h.birth.version > 0)
            }),
            Property::sometimes("a list outlives its birth parent", |_, w| {
                heads(w)
                    .values()
                    .any(|h| h.listed && !heads(w).contains_key(&h.birth.parent))
            }),
        ]
    }
}

fn tree(world: &World) -> Vec<(Key, Record)> {
    let decode = |(k, v): (&Vec<u8>, &Vec<u8>)| Some((Key::decode(k).ok()?, Record::from_bytes(v).ok()?));
    world.view().iter().filter_map(decode).collect()
}

fn heads(world: &World) -> BTreeMap<DirId, Head> {
    let head = |(key, record)| match (key, record) {
        (Key::Head(part), Record::Head(head)) => Some((part.dir, head)),
        _ => None,
    };
    tree(world).into_iter().filter_map(head).collect()
}

/// Every directory has one name and one content, of one incarnation, whose ID is the hash of its birth.
fn one_content(setup: &Setup, world: &World) -> bool {
    let heads = heads(world);
    let mut named = BTreeSet::new();
    let mut generations = BTreeSet::new();
    for (key, record) in tree(world) {
        let (Key::Entry { part, name, .. }, Record::Entry(entry)) = (key, record) else {
            continue;
        };
        let Target::Dir(access) = entry.target else {
            return false;
        };
        let sound = heads.get(&access.id).is_some_and(|head| {
            head.generation == access.generation
                && (head.parent, &head.name) == (part.dir, &name)
                && setup.widths.dir_id(&head.birth) == access.id
                && (head.listed || (head.birth.parent, &head.birth.name) == (part.dir, &name))
        });
        if !sound || !named.insert(access.id) || !generations.insert(access.generation) {
            return false;
        }
    }
    named.insert(DirId::ROOT);
    heads.keys().eq(named.iter())
}

fn lists_agree(world: &World) -> bool {
    let mut said: BTreeMap<(DirId, Name), BTreeSet<u32>> = BTreeMap::new();
    for head in heads(world).into_values().filter(|h| h.listed) {
        let birth = (head.birth.parent, head.birth.name);
        said.entry(birth).or_default().insert(head.birth.version);
    }
    let mut lists = BTreeMap::new();
    for (key, record) in tree(world) {
        if let (Key::RenameList { parent, name }, Record::RenameList(list)) = (key, record) {
            lists.insert((parent, name), list.versions().collect::<BTreeSet<_>>());
        }
    }
    lists == said
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn births(most: usize, at_once: usize) -> Births {
    Births {
        setup: Setup {
            widths: HashWidths::FULL,
            names: vec![name("a"), name("b")],
            below: 1,
            most,
            at_once,
        },
        #[cfg(feature = "plant")]
        plants: Vec::new(),
    }
}

fn check(model: Births) -> impl Checker<Births> {
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker
}

#[test]
fn three_directories_one_transaction_at_a_time() {
    check(births(3, 1)).assert_properties();
}

#[test]
fn two_directories_two_transactions_at_a_time() {
    check(births(2, 2)).assert_properties();
}

/// Two names whose first IDs in the root are the same.
#[test]
fn births_that_collide() {
    let widths = HashWidths {
        id_bits: 8,
        ..HashWidths::FULL
    };
    let id = |name: &Name| {
        widths.dir_id(&Birth {
            parent: DirId::ROOT,
            name: name.clone(),
            version: 0,
        })
    };
    let first = name("a");
    let second = (0..)
        .map(|n| name(&format!("b{n}")))
        .find(|n| id(n) == id(&first))
        .expect("of many names one collides");
    let mut model = births(2, 1);
    model.setup.widths = widths;
    model.setup.below = 2;
    model.setup.names = vec![first, second];
    check(model).assert_properties();
}

#[cfg(feature = "plant")]
#[test]
fn a_counterexample_for_each_rule_taken_out() {
    for plant in ["H2", "H3", "H4", "H5"] {
        let mut model = births(3, 1);
        model.plants = vec![plant];
        let checker = model
            .checker()
            .threads(2)
            .finish_when(stateright::HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let found = checker.discoveries();
        let (rule, path) = found
            .iter()
            .find(|(name, _)| !name.starts_with("a "))
            .unwrap_or_else(|| panic!("{plant} is not found in {} states", checker.unique_state_count()));
        println!("{plant}: not {rule:?} after {:?}", path.clone().into_actions());
    }
}
