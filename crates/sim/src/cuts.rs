//! Backups at random moments, under load and faults: an operator takes a cut through all servers, reads it,
//! and makes a new filesystem of it, of another number of servers. It must be the very tree of the instant at
//! which all held still, which the model is asked for just then; and it must give no number that the old one
//! gave.

use crate::cluster::Cluster;
use crate::compare;
use crate::tree::Tree;
use crate::violation::Kind;
use crate::workload::Workload;
use crate::world::{Death, Life, MS, Role, SEC};
use pando_client::{Client, ClientConfig, Cut};
use pando_cluster::{ClusterMap, Plan, ServerInfo};
use pando_env::Env;
use pando_env::rng::Rng;
use pando_format::{Key, KeyRange, Record};
use pando_model::Model;
use pando_server::{Restore, restored};
use pando_store::{Bundle, Disk, Durability, MemStore, NoFaults, Store};
use pando_types::{BootEpoch, FsId, MapEpoch, PeerId, ServerId, Term};
use pando_wire::{CutAnswer, CutId, CutRequest, Request, Response};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// Tries until a cut must have been taken when nothing is wrong any more.
const TRIES: u32 = 40;

struct Operator {
    cluster: Rc<Cluster>,
    client: Rc<Client>,
    life: Rc<Life>,
    rng: RefCell<Rng>,
}

/// A cut that all servers have pictures of, and the tree at that instant.
struct Taken {
    id: CutId,
    map: Rc<ClusterMap>,
    expected: Model,
}

impl Operator {
    fn new(cluster: &Rc<Cluster>, life: &Rc<Life>, rng: Rng) -> Operator {
        let mut config = ClientConfig::new((*cluster.map()).clone());
        config.give_up = Duration::from_secs(2);
        let client = Client::new(life.world(), config);
        life.set_receiver(client.clone());
        Operator {
            cluster: cluster.clone(),
            client,
            life: life.clone(),
            rng: RefCell::new(rng),
        }
    }
}

/// Begins, if the seed says so.
pub fn begin(cluster: &Rc<Cluster>, workload: &Rc<Workload>) {
    if !cluster.settings.cuts {
        return;
    }
    let sim = &cluster.sim;
    let node = sim.machine(Role::Client(3100));
    sim.net.borrow_mut().identify(node, PeerId::Operator);
    let life = sim.start(node);
    let operator = Operator::new(cluster, &life, sim.stream(17));
    let workload = workload.clone();
    life.spawn(Box::pin(async move {
        while workload.goes_on() {
            operator.pause(2 * SEC).await;
            operator.one().await;
        }
        operator.life.die(Death::Stop);
    }));
}

/// When everything is healed a cut comes about.
pub async fn at_last(cluster: &Rc<Cluster>, life: &Rc<Life>, client: &Rc<Client>) {
    if !cluster.settings.cuts {
        return;
    }
    let operator = Operator {
        cluster: cluster.clone(),
        client: client.clone(),
        life: life.clone(),
        rng: RefCell::new(cluster.sim.stream(18)),
    };
    for _ in 0..TRIES {
        if operator.one().await {
            return;
        }
        operator.pause(2 * SEC).await;
    }
    cluster
        .sim
        .fail(Kind::NoProgress, "everything is healed, and no cut can be taken");
}

impl Operator {
    fn below(&self, n: u64) -> u64 {
        self.rng.borrow_mut().below(n)
    }

    async fn pause(&self, most: u64) {
        let time = self.below(most.max(1));
        self.life.sleep(Duration::from_nanos(time)).await;
    }

    fn model(&self) -> Model {
        self.cluster.judge().with_model(|model, _| model.clone())
    }

    /// A cut from beginning to end. False: it came to nothing.
    async fn one(&self) -> bool {
        let taken = match self.below(2) {
            0 => self.take().await,
            _ => self.take_slowly().await,
        };
        let Some(taken) = taken else { return false };
        self.cluster.judge().cut_taken();
        let records = self.read(&taken).await;
        for server in &taken.map.servers {
            // Sometimes it is forgotten.
            if self.below(4) > 0 {
                self.ask(server.id, CutRequest::End(taken.id)).await;
            }
        }
        let Some(records) = records else { return false };
        if let Err(why) = self.restore(&taken, records).await {
            let text = format!("a cut is not the tree of its moment: {why}");
            self.cluster.sim.fail(Kind::WrongResult, text);
        }
        true
    }

    async fn take(&self) -> Option<Taken> {
        let mut expected = None;
        let cut = Cut::take(&self.client, || expected = Some(self.model()))
            .await
            .ok()?;
        Some(Taken {
            id: cut.id,
            map: cut.map.clone(),
            expected: expected?,
        })
    }

    /// One server after the other, with pauses, in another order: what must not matter.
    async fn take_slowly(&self) -> Option<Taken> {
        let map = self.client.newest_map().await;
        let (id, epoch) = (CutId(u128::from(self.life.random()) + 1), map.epoch);
        let mut servers: Vec<ServerId> = map.servers.iter().map(|s| s.id).collect();
        let most = self.cluster.settings.limits.cut_hold.as_nanos() as u64 / (4 * servers.len() as u64);
        let mut all = true;
        for server in &servers {
            let hold = CutRequest::Hold { cut: id, map: epoch };
            all &= self.ask(*server, hold).await == Some(CutAnswer::Held);
            self.pause(most).await;
        }
        let expected = self.model();
        let turn = self.below(servers.len() as u64) as usize;
        servers.rotate_left(turn);
        for server in &servers {
            all = all
                && matches!(
                    self.ask(*server, CutRequest::Take(id)).await,
                    Some(CutAnswer::Taken(_))
                );
            self.pause(most).await;
        }
        if !all {
            for server in servers {
                self.ask(server, CutRequest::End(id)).await;
            }
            return None;
        }
        Some(Taken { id, map, expected })
    }

    async fn ask(&self, server: ServerId, request: CutRequest) -> Option<CutAnswer> {
        match self.client.admin(server, Request::Cut(request)).await {
            Ok(Response::Cut(Ok(answer))) => Some(answer),
            _ => None,
        }
    }

    /// All records of the pictures.
    async fn read(&self, taken: &Taken) -> Option<Vec<(Key, Record)>> {
        let mut all = Vec::new();
        for server in &taken.map.servers {
            let mut rest = Some(KeyRange {
                start: Vec::new(),
                end: vec![0xFF, 0xFF, 0xFF],
            });
            while let Some(range) = rest {
                let (cut, bytes) = (taken.id, 1 + self.below(20_000) as u32);
                let read = CutRequest::Read { cut, range, bytes };
                let Some(CutAnswer::Records(bundle, left)) = self.ask(server.id, read).await else {
                    return None;
                };
                let records = Bundle(bundle.0).decode().ok()?;
                let kept = records
                    .into_iter()
                    .filter(|(key, _)| restored(key, server.id, &taken.map));
                all.extend(kept);
                rest = left;
                self.pause(5 * MS).await;
            }
        }
        Some(all)
    }

    /// Makes a filesystem of it, and looks at it.
    async fn restore(&self, taken: &Taken, records: Vec<(Key, Record)>) -> Result<(), String> {
        let servers: Vec<ServerInfo> = (0..1 + self.below(4) as u16)
            .map(|n| ServerInfo {
                id: ServerId(n),
                address: format!("r{n}:1"),
                metrics: String::new(),
            })
            .collect();
        let map = ClusterMap {
            fs: FsId(taken.map.fs.0 ^ 1),
            epoch: MapEpoch(taken.map.epoch.0 + 1),
            term: Term(taken.map.term.0 + 1),
            slots: ClusterMap::spread(&servers),
            coordinator: ServerId(0),
            keeper: ServerId(0),
            plan: Plan::default(),
            servers,
            ..(*taken.map).clone()
        };
        let disks: BTreeMap<ServerId, Disk> = map.servers.iter().map(|s| (s.id, Disk::new())).collect();
        let stores = disks.iter().map(|(id, disk)| {
            let store = MemStore::open(disk, Durability::Sync, Rc::new(NoFaults));
            (*id, Rc::new(store) as Rc<dyn Store>)
        });
        let mut restore = Restore::new(map.clone(), stores.collect());
        for (key, record) in records {
            restore.add(key, record).map_err(|e| e.to_string())?;
        }
        restore.finish(BootEpoch(100)).await.map_err(|e| e.to_string())?;
        let dumps = disks.iter().map(|(id, disk)| (*id, disk.dump())).collect();
        let tree = Tree::build(&map, dumps, BTreeSet::new())?;
        tree.check_all()?;
        compare::whole_tree(&taken.expected, &tree, &map)?;
        self.gives_new_numbers(&disks)
    }

    /// Whatever the old filesystem has given since, the new one gives other numbers (H155).
    fn gives_new_numbers(&self, disks: &BTreeMap<ServerId, Disk>) -> Result<(), String> {
        let given = self.cluster.servers.iter().flat_map(|s| counters(&s.device.disk));
        let newest = given.map(|(_, epoch)| epoch).max().unwrap_or(1);
        let old = disks
            .values()
            .flat_map(counters)
            .find(|(_, epoch)| *epoch <= newest);
        match old {
            Some((key, epoch)) => Err(format!(
                "{key:?} goes on in epoch {epoch}, and there were numbers of epoch {newest}"
            )),
            None => Ok(()),
        }
    }
}

fn counters(disk: &Disk) -> Vec<(Key, u16)> {
    let counters = disk.dump().into_iter().filter_map(|(key, record)| match record {
        Record::Counter(counter) => Some((key, counter.epoch)),
        _ => None,
    });
    counters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_cluster::Placement;
    use pando_format::{AccessRecord, Entry, Head, OwedRecord, PartNote, PartRecord, Target, Touch};
    use pando_types::{DirId, Generation, Ids, Name, Part, Slot, TxId};

    /// What nobody has put in order, or is not whole, is refused, and never a panic.
    #[test]
    fn what_is_not_of_one_moment_is_refused() {
        let sim = crate::world::Sim::new(1, crate::trace::Print::No);
        let settings = crate::settings::Settings {
            servers: 1,
            spares: 0,
            ..crate::settings::Settings::of(&mut sim.stream(6))
        };
        let cluster = Cluster::format(&sim, settings).expect("a cluster");
        let (map, id) = ((*cluster.map()).clone(), cluster.servers[0].id);
        let fresh = || {
            let disk = Disk::new();
            let store: Rc<dyn Store> = Rc::new(MemStore::open(&disk, Durability::Sync, Rc::new(NoFaults)));
            (disk, store)
        };
        let disk = &cluster.servers[0].device.disk;
        let whole = disk.dump();
        let restore = |records: Vec<(Key, Record)>| {
            let (disk, store) = fresh();
            let mut restore = Restore::new(map.clone(), [(id, store)].into());
            let added = records.into_iter().try_for_each(|(k, r)| restore.add(k, r));
            let mut done = Box::pin(async move {
                added.map_err(|e| e.to_string())?;
                restore.finish(BootEpoch(9)).await.map_err(|e| e.to_string())
            });
            let waker = std::task::Waker::noop();
            match done.as_mut().poll(&mut std::task::Context::from_waker(waker)) {
                std::task::Poll::Ready(result) => result.map(|counts| (counts, disk)),
                std::task::Poll::Pending => Err("it waits".into()),
            }
        };
        let (counts, copy) = restore(whole.clone()).unwrap();
        assert_eq!((counts.dirs, counts.names), (1, 1));
        let in_tree = |disk: &Disk| -> Vec<(Key, Record)> {
            let all = disk.dump().into_iter();
            all.filter(|(k, _)| !matches!(k, Key::Superblock | Key::Counter(_)))
                .collect()
        };
        assert_eq!(in_tree(&copy), in_tree(disk));
        let without = |gone: &Key| whole.iter().filter(|(k, _)| k != gone).cloned().collect();
        let root = Key::Head(pando_types::DirId::ROOT.into());
        assert!(restore(without(&root)).is_err(), "no root");
        assert!(restore(Vec::new()).is_err(), "nothing");
        let touch = whole.iter().find(|(k, _)| matches!(k, Key::Touch(_))).unwrap();
        assert!(
            restore(vec![(root.clone(), touch.1.clone())]).is_err(),
            "another kind"
        );
        sim.tear_down();
    }

    /// A copy that was under way comes along as nothing. Content that is owed to a directory born in another
    /// part than 0 is paid.
    #[test]
    fn parts_of_directories_come_along() {
        let sim = crate::world::Sim::new(1, crate::trace::Print::No);
        let settings = crate::settings::Settings {
            servers: 1,
            spares: 0,
            ..crate::settings::Settings::of(&mut sim.stream(6))
        };
        let cluster = Cluster::format(&sim, settings).expect("a cluster");
        let map = ClusterMap {
            placement: Placement::Split(8),
            ids: Ids::Placed,
            ..(*cluster.map()).clone()
        };
        let mut records = cluster.servers[0].device.disk.dump();
        let root = records.iter().find_map(|(_, record)| match record {
            Record::Head(head) => Some(head.clone()),
            _ => None,
        });
        let root = root.expect("a root");
        let part = Part::new(DirId::ROOT, 2048).expect("a part");
        let generation = Generation::new(1, part.slot(), 5);
        let (dir, name) = (
            DirId::placed(generation, Slot(9)),
            Name::new(b"d").expect("a name"),
        );
        let head = Head {
            generation,
            parent: DirId::ROOT,
            parent_generation: root.generation,
            name: name.clone(),
            ..root.clone()
        };
        let access = records.iter().find_map(|(_, record)| match record {
            Record::Entry(entry) => match &entry.target {
                Target::Dir(access) => Some(access.clone()),
                _ => None,
            },
            _ => None,
        });
        let access = AccessRecord {
            id: dir,
            generation,
            ..access.expect("the root's")
        };
        let copy = TxId {
            coordinator: ServerId(77),
            boot: BootEpoch(3),
            number: 1,
        };
        let note = Key::PartNote(Part::new(DirId::ROOT, 1024).expect("a part"));
        let owed = OwedRecord {
            dir,
            head: head.clone(),
            touch: Touch::default(),
        };
        let its = PartRecord {
            generation: root.generation,
            salt: root.salt,
            depth: 1,
        };
        let hash = map.widths().name(root.salt, &name);
        records.extend([
            (Key::Head(part), Record::Part(its)),
            (
                Key::Entry { part, hash, name },
                Record::Entry(Entry {
                    ordinal: 5,
                    target: Target::Dir(access),
                }),
            ),
            (note.clone(), Record::PartNote(PartNote::Coming(copy))),
            (Key::Owed(copy), Record::Owed(owed)),
        ]);
        let (id, disk) = (cluster.servers[0].id, Disk::new());
        let store: Rc<dyn Store> = Rc::new(MemStore::open(&disk, Durability::Sync, Rc::new(NoFaults)));
        let mut restore = Restore::new(map, [(id, store)].into());
        for (key, record) in records {
            restore.add(key, record).expect("it belongs together");
        }
        let mut done = Box::pin(restore.finish(BootEpoch(9)));
        let waker = std::task::Waker::noop();
        let done = done.as_mut().poll(&mut std::task::Context::from_waker(waker));
        let std::task::Poll::Ready(Ok(counts)) = done else {
            panic!("{done:?}")
        };
        assert_eq!((counts.dirs, counts.owed), (2, 1));
        let after: BTreeMap<Key, Record> = disk.dump().into_iter().collect();
        assert_eq!(after.get(&Key::Head(dir.into())), Some(&Record::Head(head)));
        let Some(Record::PartNote(PartNote::Coming(copy))) = after.get(&note) else {
            panic!("no note")
        };
        // Whoever has the slot says of itself that it knows nothing of this.
        assert_eq!((copy.coordinator, copy.boot), (id, BootEpoch(0)));
        sim.tear_down();
    }
}
