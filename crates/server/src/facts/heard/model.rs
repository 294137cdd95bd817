//! The log of invalidations, exhaustively: a coordinator that writes entries and tells them over a network
//! that loses, doubles and reorders, servers that start again, aborted changes, a log that is cut, and a
//! statement that is told, shown to any server and renewed (H10-H16). What servers know is the production
//! type; the model stands for who talks to whom.
//!
//! What must hold: a server never takes a statement for true that is not.

use super::{Heard, Newest};
use pando_auth::{Secret, StatementKeys};
use pando_format::{FactChange, Invalidation};
use pando_types::{DirId, FsId, Generation, Watermark};
use pando_wire::{Said, Scope, Statement};
use stateright::{Checker, Model, Property};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

const SERVERS: usize = 2;
const DIRS: usize = 3;
/// The first of them are on the way that is told.
const WAY: usize = 2;
/// Entries remembered: fewer than are made.
const MOST: usize = 2;

const TRUE: &str = "no server takes for true what is not";
const COMMITS: &str = "a change commits";
const FORGOTTEN: &str = "a statement is older than a server remembers";

/// What a server knows, as a state.
struct Knows(Heard);

impl Knows {
    fn key(&self) -> impl PartialEq + Hash + std::fmt::Debug {
        let h = &self.0;
        let entry = |e: &Invalidation| (e.id, e.generation, e.change == FactChange::Moved);
        let tag = |(tag, n): (&u64, &Newest)| (*tag, n.moved, n.access);
        (
            (h.joined, h.upto, h.floor),
            h.entries.iter().map(entry).collect::<Vec<_>>(),
            h.by_tag.iter().map(tag).collect::<Vec<_>>(),
        )
    }
}

impl Clone for Knows {
    fn clone(&self) -> Knows {
        let h = &self.0;
        Knows(Heard {
            joined: h.joined,
            upto: h.upto,
            floor: h.floor,
            entries: h.entries.clone(),
            by_tag: h.by_tag.clone(),
        })
    }
}

impl PartialEq for Knows {
    fn eq(&self, other: &Knows) -> bool {
        self.key() == other.key()
    }
}

impl Hash for Knows {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl std::fmt::Debug for Knows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.key().fmt(f)
    }
}

/// On its way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Packet {
    /// To a server: entries after a watermark, by the directories they are of.
    Entries(usize, u64, Vec<usize>),
    /// To a server in this incarnation: the whole log.
    Log(usize, u8, u64, Vec<usize>),
    /// To the coordinator: how far a server has heard.
    Heard(usize, u64),
}

/// A change of a directory under way: the watermark that everybody must have heard. Its records are locked.
type Change = Option<u64>;

#[derive(Clone, PartialEq, Hash, Debug)]
struct World {
    /// The coordinator's log from the beginning, and what it remembers of it.
    log: Vec<usize>,
    knows: Knows,
    servers: [Knows; SERVERS],
    boots: [u8; SERVERS],
    confirmed: [u64; SERVERS],
    changing: [Change; DIRS],
    /// How often each directory has changed.
    truth: [u8; DIRS],
    packets: BTreeSet<Packet>,
    /// A client's statement of the way through the first: as of when, and what it says.
    told: Option<(u64, [u8; DIRS])>,
    restarts: u8,
    /// What went wrong.
    broken: bool,
}

#[derive(Clone, PartialEq, Debug)]
enum Action {
    /// A change of a directory is written down.
    Write(usize),
    /// The coordinator tells a server some of its log.
    Tell(usize, u64, u64),
    Commit(usize),
    Abort(usize),
    /// A server that has started asks for the log; the answer is on its way.
    Join(usize),
    Deliver(Packet),
    Lose(Packet),
    Restart(usize),
    /// The coordinator starts again and reads its log.
    Reload,
    /// A client looks the way up at a server.
    Lookup(usize),
    /// It shows what it was told to a server, which renews it.
    Show(usize),
}

/// A rule that is taken out.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Without {
    /// Everybody has heard before it commits (H10).
    Waiting,
    /// A statement is as old as what it rests on, whatever else was found good (H11).
    OwnAge,
    /// A server serves after it has fetched the log (H15).
    Joining,
    /// A restarted coordinator goes on where its log ends (H16).
    ReadingBack,
    /// Rules in the production type.
    #[cfg(feature = "plant")]
    Planted(&'static str),
}

#[derive(Clone)]
struct Log {
    changes: usize,
    restarts: u8,
    /// Messages on their way at once.
    flight: usize,
    without: Option<Without>,
}

thread_local! {
    /// Each of the checker's threads has its own.
    static KEYS: Rc<StatementKeys> = Rc::new(StatementKeys::new(FsId(1), &Secret::new([1; 32]), &[]));
}

fn keys() -> Rc<StatementKeys> {
    KEYS.with(Rc::clone)
}

fn dir(n: usize) -> DirId {
    DirId(10 + n as u128)
}

fn entry(n: usize) -> Invalidation {
    Invalidation {
        id: dir(n),
        generation: Generation(1),
        change: FactChange::Access,
    }
}

fn entries(of: &[usize]) -> Vec<Invalidation> {
    of.iter().map(|n| entry(*n)).collect()
}

impl Log {
    fn lacks(&self, rule: Without) -> bool {
        self.without == Some(rule)
    }

    fn plant(&self) {
        #[cfg(feature = "plant")]
        match self.without {
            Some(Without::Planted(name)) => pando_types::plant::set(&[name]),
            _ => pando_types::plant::set(&[]),
        }
    }

    fn statement(&self, at: u64) -> Statement {
        Statement::from(Said {
            scope: Scope::Way,
            way: (0..WAY).map(|n| keys().tag(dir(n), Generation(1))).collect(),
            at: Watermark(at),
            ..Said::above_root()
        })
    }

    /// What the coordinator remembers, from its floor on.
    fn remembered(&self, world: &World) -> (u64, Vec<usize>) {
        let floor = world.knows.0.floor().0;
        (floor, world.log[floor as usize..].to_vec())
    }

    fn deliver(&self, world: &mut World, packet: Packet) {
        match packet {
            Packet::Entries(s, after, of) => {
                let heard = &mut world.servers[s].0;
                heard.hear(Watermark(after), &entries(&of), &keys(), MOST);
                if heard.joined() {
                    let upto = heard.upto().0;
                    world.packets.insert(Packet::Heard(s, upto));
                }
            }
            Packet::Log(s, boot, floor, of) => {
                if world.boots[s] == boot && !world.servers[s].0.joined() {
                    world.servers[s]
                        .0
                        .join(Watermark(floor), &entries(&of), &keys(), MOST);
                }
            }
            Packet::Heard(s, upto) => world.confirmed[s] = upto,
        }
    }
}

impl Model for Log {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let joined = || {
            let mut heard = Heard::default();
            heard.join(Watermark(0), &[], &keys(), MOST);
            Knows(heard)
        };
        vec![World {
            log: Vec::new(),
            knows: joined(),
            servers: [joined(), joined()],
            boots: [0; SERVERS],
            confirmed: [0; SERVERS],
            changing: [None; DIRS],
            truth: [0; DIRS],
            packets: BTreeSet::new(),
            told: None,
            restarts: 0,
            broken: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken {
            return;
        }
        let last = world.log.len() as u64;
        for n in 0..DIRS {
            match world.changing[n] {
                None if world.log.len() < self.changes => actions.push(Action::Write(n)),
                None => {}
                Some(upto) => {
                    let heard = world.confirmed.iter().all(|c| *c >= upto);
                    if heard || self.lacks(Without::Waiting) {
                        actions.push(Action::Commit(n));
                    }
                    actions.push(Action::Abort(n));
                }
            }
        }
        let room = world.packets.len() < self.flight;
        for s in 0..SERVERS {
            let knows = &world.servers[s].0;
            if room {
                // Any stretch of what it remembers.
                for after in world.knows.0.floor().0..last {
                    actions.extend((after + 1..=last).map(|upto| Action::Tell(s, after, upto)));
                }
                if !knows.joined() {
                    actions.push(Action::Join(s));
                }
            }
            if world.restarts < self.restarts {
                actions.push(Action::Restart(s));
            }
            if knows.joined() || self.lacks(Without::Joining) {
                // Of what is being changed nobody is told.
                if world.told.is_none() && world.changing == [None; DIRS] {
                    actions.push(Action::Lookup(s));
                }
                if world.told.is_some() {
                    actions.push(Action::Show(s));
                }
            }
        }
        if world.restarts < self.restarts && last > 0 {
            actions.push(Action::Reload);
        }
        for packet in &world.packets {
            actions.extend([Action::Deliver(packet.clone()), Action::Lose(packet.clone())]);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        // Bugs are planted on a thread; the checker has several.
        self.plant();
        let mut world = world.clone();
        match action {
            Action::Write(n) => {
                let after = world.knows.0.upto();
                world.log.push(n);
                world.knows.0.hear(after, &[entry(n)], &keys(), MOST);
                world.changing[n] = Some(world.knows.0.upto().0);
            }
            Action::Tell(s, after, upto) => {
                let of = world.log[after as usize..upto as usize].to_vec();
                world.packets.insert(Packet::Entries(s, after, of));
            }
            Action::Commit(n) => {
                world.changing[n] = None;
                world.truth[n] += 1;
            }
            Action::Abort(n) => world.changing[n] = None,
            Action::Join(s) => {
                let (floor, of) = self.remembered(&world);
                world.packets.insert(Packet::Log(s, world.boots[s], floor, of));
            }
            // Delivered, it stays: it may come again. That it is lost is a step of its own.
            Action::Deliver(packet) => self.deliver(&mut world, packet),
            Action::Lose(packet) => {
                world.packets.remove(&packet);
            }
            Action::Restart(s) => {
                world.restarts += 1;
                world.boots[s] += 1;
                world.servers[s] = Knows(Heard::default());
            }
            Action::Reload => {
                world.restarts += 1;
                // A change that was not decided is forgotten, the log is not.
                world.changing = [None; DIRS];
                let (mut floor, mut of) = self.remembered(&world);
                if self.lacks(Without::ReadingBack) {
                    (floor, of) = (0, Vec::new());
                    world.log.clear();
                }
                let mut heard = Heard::default();
                heard.join(Watermark(floor), &entries(&of), &keys(), MOST);
                world.knows = Knows(heard);
                world.confirmed = [0; SERVERS];
            }
            Action::Lookup(s) => world.told = Some((world.servers[s].0.upto().0, world.truth)),
            Action::Show(s) => {
                let (at, says) = world.told?;
                let heard = &world.servers[s].0;
                match heard.outdated(&self.statement(at)) {
                    Some(_) => {
                        world.told = None;
                        if self.lacks(Without::OwnAge) {
                            // What was found good makes the rest look as new.
                            world.told = Some((heard.upto().0, says));
                        }
                    }
                    None => {
                        world.broken = says[..WAY] != world.truth[..WAY];
                        world.told = Some((at.max(heard.upto().0), says));
                    }
                }
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Log>> {
        vec![
            Property::always(TRUE, |_, w: &World| !w.broken),
            Property::sometimes(COMMITS, |_, w: &World| w.truth != [0; DIRS]),
            Property::sometimes(FORGOTTEN, |m: &Log, w: &World| {
                w.told
                    .is_some_and(|(at, _)| w.servers.iter().any(|s| at < s.0.floor().0))
                    && m.without.is_none()
            }),
        ]
    }
}

fn model(changes: usize, restarts: u8, flight: usize) -> Log {
    Log {
        changes,
        restarts,
        flight,
        without: None,
    }
}

#[test]
fn no_statement_outlives_its_truth() {
    for (changes, restarts, flight) in [(1, 1, 2), (2, 1, 1), (3, 0, 1)] {
        let checker = model(changes, restarts, flight)
            .checker()
            .threads(2)
            .spawn_bfs()
            .join();
        println!("{} states", checker.unique_state_count());
        checker.assert_no_discovery(TRUE);
        checker.assert_any_discovery(COMMITS);
        if changes > MOST {
            checker.assert_any_discovery(FORGOTTEN);
        }
    }
}

fn counterexample(without: Without, changes: usize, restarts: u8) {
    let model = Log {
        without: Some(without),
        ..model(changes, restarts, 2)
    };
    let checker = model
        .checker()
        .threads(2)
        .finish_when(stateright::HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let path = checker.discovery(TRUE).unwrap_or_else(|| {
        panic!(
            "{without:?} is not found in {} states",
            checker.unique_state_count()
        )
    });
    // debug: a test.
    println!("{without:?}: {:?}", path.into_actions());
}

#[test]
fn a_counterexample_for_each_rule_taken_out() {
    counterexample(Without::Waiting, 1, 0);
    counterexample(Without::OwnAge, 1, 0);
    counterexample(Without::Joining, 1, 1);
    counterexample(Without::ReadingBack, 2, 1);
}

#[cfg(feature = "plant")]
#[test]
fn a_counterexample_for_each_planted_rule() {
    counterexample(Without::Planted("H12"), 2, 0);
    counterexample(Without::Planted("H13"), 3, 0);
    counterexample(Without::Planted("H19"), 1, 0);
}
