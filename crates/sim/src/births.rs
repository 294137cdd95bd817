//! Births counted: what mkdir costs where a name is made and renamed away again and again, and what happens
//! when there are no more IDs. No faults, one client, the judge watching.

use crate::cluster::Cluster;
use crate::knowledge::Knowledge;
use crate::settings::Settings;
use crate::trace::Print;
use crate::workload::Workload;
use crate::world::{Death, Life, MS, Role, SEC, Sim};
use pando_client::Client;
use pando_cluster::DirectoryUpdates;
use pando_env::Env;
use pando_format::Key;
use pando_types::{Birth, Cred, DirId, Errno, Ino, Name, Perm, ServerId};
use pando_wire::{Answer, Op, Outcome, RenameMode, Statement};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// One program on a cluster.
pub(crate) struct Program {
    workload: Rc<Workload>,
    life: Rc<Life>,
    pub client: Rc<Client>,
    pub root: Statement,
}

/// What one mkdir took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cost {
    /// Versions from 0 on that belong to living directories: each was an attempt before there were rename
    /// lists.
    taken: u64,
    /// Attempts that found the ID taken.
    collisions: u64,
    /// Distributed transactions, committed and aborted.
    transactions: (u64, u64),
}

impl Program {
    pub async fn op(&self, op: Op) -> Outcome {
        let (mut own, cred) = (Knowledge::new(8), Cred::root());
        let done = self.workload.op(&self.life, &self.client, &cred, &mut own, op);
        done.await.expect("nobody else asks")
    }

    async fn mkdir(&self, name: &str) -> Outcome {
        let op = Op::Mkdir {
            dir: self.root.clone(),
            name: named(name),
            mode: Perm::new(0o755).into(),
        };
        self.op(op).await
    }

    async fn rmdir(&self, name: &str) -> Outcome {
        let op = Op::Rmdir {
            dir: self.root.clone(),
            name: named(name),
        };
        self.op(op).await
    }

    async fn rename(&self, from: &str, to: &str) -> Outcome {
        let op = Op::Rename {
            src: self.root.clone(),
            src_name: named(from),
            dst: self.root.clone(),
            dst_name: named(to),
            mode: RenameMode::Replace,
            held: false,
        };
        self.op(op).await
    }

    /// Makes a file.
    pub async fn make_file(&self, dir: &Statement, name: &str) {
        let op = Op::Create {
            dir: dir.clone(),
            name: named(name),
            mode: Perm::new(0o644).into(),
            exclusive: true,
            want: 0,
        };
        self.op(op).await.expect("created");
    }

    /// Waits until what is told after answers was told.
    pub async fn settle(&self) {
        self.life.sleep(std::time::Duration::from_millis(100)).await;
    }

    pub async fn wait(&self, time: std::time::Duration) {
        self.life.sleep(time).await;
    }

    /// A server is killed, and serves again when this is over.
    pub async fn restart(&self, server: ServerId) {
        let cluster = self.workload.cluster();
        let index = cluster.servers.iter().position(|s| s.id == server);
        let index = index.expect("it is one of them");
        cluster.kill(index, Death::Kill, Some(10 * MS));
        self.settle().await;
        while !cluster.all_serve() {
            self.settle().await;
        }
    }

    /// The cluster.
    pub fn cluster(&self) -> &Rc<Cluster> {
        self.workload.cluster()
    }

    /// The block store, as the program's machine reaches it.
    pub fn blocks(&self) -> pando_data::MemBlocks {
        self.workload.cluster().blocks.clone()
    }

    /// What a server has under a key, whichever does.
    pub fn stored(&self, key: &Key) -> Option<pando_format::Record> {
        let judge = self.workload.cluster().judge();
        judge.with_model(|_, tree| tree.get(key).cloned())
    }

    /// Another client begins something, on a machine of its own. True when that is done.
    pub fn beside<F>(&self, number: u16, task: impl FnOnce(Rc<Client>) -> F + 'static) -> Rc<Cell<bool>>
    where
        F: Future<Output = ()> + 'static,
    {
        let node = self.workload.cluster().sim.machine(Role::Client(number));
        self.workload.aside(node, |_, _, client| task(client))
    }

    /// Waits until that is so.
    pub async fn until(&self, over: &Cell<bool>) {
        for _ in 0..1000 {
            if over.get() {
                return;
            }
            self.settle().await;
        }
        panic!("it does not end");
    }

    /// The server of a slot.
    pub fn server_of(&self, slot: pando_types::Slot) -> ServerId {
        self.workload.cluster().map().owner(slot)
    }

    /// Compares the records of all servers with the model.
    pub fn walk(&self) {
        self.workload.cluster().judge().full_walk();
    }

    /// Removed files whose data are still there.
    pub fn garbage(&self) -> usize {
        let servers = &self.workload.cluster().servers;
        let records = servers.iter().flat_map(|s| s.device.disk.dump());
        records.filter(|(key, _)| matches!(key, Key::Garbage(..))).count()
    }

    /// Notes of this file that it has no name.
    pub fn orphans(&self, file: Ino) -> usize {
        let servers = &self.workload.cluster().servers;
        let records = servers.iter().flat_map(|s| s.device.disk.dump());
        records
            .filter(|(key, _)| matches!(key, Key::Orphan(_, ino, _) if *ino == file))
            .count()
    }

    pub fn counted(&self, of: &str) -> u64 {
        self.workload.cluster().stats().get(of).copied().unwrap_or(0)
    }

    /// How many versions of a name in the root are taken, from 0 on.
    fn taken(&self, name: &str) -> u64 {
        let widths = self.workload.cluster().map().widths();
        let lives = |version: &u32| {
            let birth = Birth {
                parent: DirId::ROOT,
                name: named(name),
                version: *version,
            };
            let head = Key::Head(widths.dir_id(&birth).into());
            let judge = self.workload.cluster().judge();
            judge.with_model(|_, tree| tree.get(&head).is_some())
        };
        (0..).take_while(lives).count() as u64
    }

    async fn counted_mkdir(&self, name: &str) -> Cost {
        let now = || ["collisions", "commits", "aborts"].map(|of| self.counted(of));
        let (taken, before) = (self.taken(name), now());
        let made = self.mkdir(name).await;
        assert!(made.is_ok(), "{made:?}");
        let after = now();
        Cost {
            taken,
            collisions: after[0] - before[0],
            transactions: (after[1] - before[1], after[2] - before[2]),
        }
    }
}

pub(crate) fn named(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// Runs one program on a cluster with IDs of so many bits, and gives what it returns.
pub(crate) fn on_a_cluster<T: 'static, F>(id_bits: u8, program: impl FnOnce(Program) -> F + 'static) -> T
where
    F: Future<Output = T> + 'static,
{
    on_a_cluster_with(DirectoryUpdates::ParentFirst, id_bits, program)
}

/// The same, with directories of two servers changed in this way.
pub(crate) fn on_a_cluster_with<T: 'static, F>(
    updates: DirectoryUpdates,
    id_bits: u8,
    program: impl FnOnce(Program) -> F + 'static,
) -> T
where
    F: Future<Output = T> + 'static,
{
    let change = |settings: &mut Settings| {
        settings.updates = updates;
        settings.id_bits = id_bits;
    };
    on_a_cluster_of(change, program)
}

/// The same, with other settings.
pub(crate) fn on_a_cluster_of<T: 'static, F>(
    change: impl FnOnce(&mut Settings),
    program: impl FnOnce(Program) -> F + 'static,
) -> T
where
    F: Future<Output = T> + 'static,
{
    let sim = Sim::new(11, Print::No);
    let mut settings = Settings {
        name_bits: 55,
        servers: 4,
        clients: 1,
        keyed: false,
        cache_bytes: 1 << 20,
        ..Settings::of(&mut sim.stream(6))
    };
    change(&mut settings);
    // What the program was told of the root at first is to stay good (H13).
    settings.limits.invalidations = 1_000;
    let cluster = Cluster::format(&sim, settings).expect("a cluster");
    let workload = Workload::new(&cluster);
    // Nothing is given up on the way.
    workload.strict.set(true);
    workload.keeps.set(true);
    for index in 0..cluster.servers.len() {
        cluster.set_downtime(index, Some(10 * MS));
        cluster.start(index);
    }
    assert!(sim.run_until(10 * SEC, || cluster.all_serve()));
    let result: Rc<RefCell<Option<T>>> = Rc::default();
    let out = result.clone();
    let over = workload.aside(sim.machine(Role::Client(0)), |w, life, client| {
        let above = Op::Lookup {
            dir: Statement::above_root(),
            name: Name::root(),
        };
        let (workload, l, c) = (w.clone(), life.clone(), client.clone());
        let looked = async move {
            let mut own = Knowledge::new(8);
            let looked = w.op(&life, &client, &Cred::root(), &mut own, above).await;
            match looked {
                Some(Ok(Answer::Entry(entry))) => entry.dir.expect("the root is a directory"),
                other => panic!("{other:?}"),
            }
        };
        // The program is made when the root is known, and must outlive what it starts.
        let start = move |root| {
            program(Program {
                workload,
                life: l,
                client: c,
                root,
            })
        };
        async move {
            let returned = start(looked.await).await;
            *out.borrow_mut() = Some(returned);
        }
    });
    sim.run_until(3_000 * SEC, || over.get());
    assert_eq!(sim.violation(), None);
    let returned = result.borrow_mut().take();
    sim.tear_down();
    returned.expect("the program ends")
}

/// `mkdir stage; mv stage final_i`, fifty times: each mkdir is one attempt, whatever was made before. Without
/// rename lists the last took fifty.
#[test]
fn mkdir_of_a_name_that_was_renamed_away_is_one_attempt() {
    const TIMES: u64 = 50;
    let costs = on_a_cluster(128, |p| async move {
        let mut costs = Vec::new();
        for n in 0..TIMES {
            costs.push(p.counted_mkdir("stage").await);
            let moved = p.rename("stage", &format!("final_{n}")).await;
            assert!(moved.is_ok(), "{moved:?}");
        }
        costs
    });
    for (n, cost) in costs.iter().enumerate() {
        assert_eq!((cost.taken, cost.collisions), (n as u64, 0));
        // None if the new directory falls to the server of its parent.
        assert!(cost.transactions.0 <= 1 && cost.transactions.1 == 0, "{cost:?}");
    }
    let before: u64 = costs.iter().map(|c| c.taken + 1).sum();
    println!("{TIMES} mkdirs: {before} attempts without rename lists, {TIMES} with them");
    assert_eq!(before, TIMES * (TIMES + 1) / 2);
}

/// The smallest version comes back when its directory is gone, wherever it went.
#[test]
fn a_version_is_free_when_its_directory_is_gone() {
    let (taken, version) = on_a_cluster(128, |p| async move {
        for n in 0..3 {
            p.mkdir("stage").await.expect("made");
            p.rename("stage", &format!("final_{n}")).await.expect("moved");
        }
        p.rename("final_1", "elsewhere").await.expect("moved again");
        p.rmdir("elsewhere").await.expect("removed");
        let taken = p.taken("stage");
        p.mkdir("stage").await.expect("made");
        let versions = p.taken("stage");
        (taken, versions)
    });
    assert_eq!((taken, version), (1, 3));
}

/// Of 254 IDs most are taken in the end; then mkdir says so, and nothing hangs. When directories go it works
/// again.
#[test]
fn when_ids_run_out_mkdir_says_so() {
    let (made, again) = on_a_cluster(8, |p| async move {
        let mut made = 0;
        let refused = loop {
            match p.mkdir(&format!("d{made}")).await {
                Ok(_) => made += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(refused, Errno::TooManyLinks);
        for n in 0..made / 2 {
            p.rmdir(&format!("d{n}")).await.expect("removed");
        }
        (made, p.mkdir("again").await.is_ok())
    });
    assert!(made > 128 && made < 254, "{made}");
    assert!(again);
}
