//! A world of one server: virtual time, no loss, and a record of all that was sent.

use super::frames::FS;
use pando_cluster::{ClusterMap, Placement, ServerInfo};
use pando_env::sync::{Sender, oneshot};
use pando_env::{Env, Executor, LocalFuture, Peer, TaskOwner};
use pando_types::{AuthMode, IdentityId, MapEpoch, Mono, PeerId, ServerId, Term, Timestamp};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// What is done at once: a server that takes more steps without time passing spins.
const STEPS: u32 = 200_000;

/// The only server.
pub(crate) const ME: ServerId = ServerId(0);
/// Who says what an input says.
pub(crate) const CLIENT: Peer = Peer::Connection(1);
/// Somebody with the cluster's secret.
pub(crate) const OPERATOR: Peer = Peer::Connection(2);

/// The world.
pub(crate) struct Bench {
    executor: Executor,
    now: Cell<Mono>,
    numbers: Cell<u64>,
    timers: RefCell<BTreeMap<(Mono, u64), Sender<()>>>,
    /// What the server sent, to whom.
    pub(crate) sent: RefCell<Vec<(Peer, Vec<u8>)>>,
    /// Whom it hung up on.
    pub(crate) closed: RefCell<Vec<Peer>>,
}

impl Bench {
    pub(crate) fn new() -> Rc<Bench> {
        Rc::new(Bench {
            executor: Executor::new(|| {}),
            now: Cell::new(Mono(1_000_000_000)),
            numbers: Cell::new(1),
            timers: RefCell::default(),
            sent: RefCell::default(),
            closed: RefCell::default(),
        })
    }

    fn number(&self) -> u64 {
        let n = self.numbers.get();
        self.numbers.set(n + 1);
        n
    }

    /// Runs all that can run now.
    pub(crate) fn run(&self) {
        let mut steps = 0;
        while self.executor.run_one(|_| 0) {
            steps += 1;
            assert!(steps < STEPS, "the server spins");
        }
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, d: Duration) {
        self.run();
        let until = self.now.get().after(d);
        loop {
            let next = self.timers.borrow().first_key_value().map(|(k, _)| *k);
            let Some(due) = next.filter(|(at, _)| *at <= until) else {
                break;
            };
            self.now.set(self.now.get().max(due.0));
            let timer = self.timers.borrow_mut().remove(&due);
            if let Some(timer) = timer {
                timer.send(());
            }
            self.run();
        }
        self.now.set(until);
    }

    /// Ends the process: all its tasks and timers go.
    pub(crate) fn kill(&self) {
        self.executor.kill(TaskOwner(0));
        let timers = self.timers.take();
        drop(timers);
    }
}

impl Env for Bench {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(1_700_000_000_000_000_000 + i128::from(self.now.get().0))
    }

    fn mono(&self) -> Mono {
        self.now.get()
    }

    fn random(&self) -> u64 {
        self.number().wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn sleep(&self, d: Duration) -> LocalFuture<()> {
        let (sender, receiver) = oneshot();
        let due = (self.now.get().after(d), self.number());
        self.timers.borrow_mut().insert(due, sender);
        Box::pin(async move {
            receiver.await;
        })
    }

    fn spawn(&self, task: LocalFuture<()>) {
        self.executor.spawn(TaskOwner(0), task);
    }

    fn send(&self, to: Peer, message: Vec<u8>) {
        self.sent.borrow_mut().push((to, message));
    }

    fn close(&self, peer: Peer, why: &str) {
        assert!(!why.is_empty());
        self.closed.borrow_mut().push(peer);
    }

    fn who(&self, peer: Peer) -> Option<PeerId> {
        match peer {
            CLIENT => Some(PeerId::Client(IdentityId::ANYONE)),
            OPERATOR => Some(PeerId::Operator),
            _ => None,
        }
    }

    fn expel(&self, identity: IdentityId, why: &str) {
        panic!("nobody is known by name here, but {identity} has to go: {why}");
    }
}

thread_local! {
    /// Making it takes as long as running a short input.
    static MAP: ClusterMap = make_map();
}

/// The map of this filesystem: one server, small limits.
pub(crate) fn small_map() -> ClusterMap {
    MAP.with(ClusterMap::clone)
}

fn make_map() -> ClusterMap {
    let servers = vec![ServerInfo {
        id: ME,
        address: "host:1".into(),
        metrics: "host:2".into(),
    }];
    ClusterMap {
        fs: FS,
        epoch: MapEpoch(1),
        slots: ClusterMap::spread(&servers),
        servers,
        coordinator: ME,
        keeper: ME,
        term: Term(1),
        inline_limit: 64,
        block_size: 512,
        blocks: "file:/nowhere".into(),
        // So narrow that names and directories collide.
        name_bits: 3,
        id_bits: 12,
        auth: AuthMode::None,
        coherence: pando_cluster::Coherence::Lazy,
        placement: Placement::Directory,
        ids: pando_types::Ids::Predicted,
        updates: pando_cluster::DirectoryUpdates::ParentFirst,
        plan: pando_cluster::Plan::default(),
    }
}
