//! The metadata server: sessions, locks, transactions. Async functions over [`pando_env::Env`]; it knows nothing of
//! sockets, threads or RocksDB, and the POSIX rules are not here but in `pando-namespace`.
//!
//! A request's way: `dispatch` (whose message, which boot) → `operate` (whose slot, which lane) → `execute` (locks,
//! records, decision) → `commit` (one batch, or two-phase commit) → wait until durable → answer. Most looks, and
//! most changes of files, are executed in `dispatch` (`at_once`).

mod account;
mod admin;
mod changes;
mod claims;
mod coherence;
mod config;
mod content;
mod coordinator;
mod cut;
mod filelocks;
mod follow;
mod graph;
mod heard;
mod holds;
mod housekeeping;
mod identities;
mod lease;
mod locks;
mod mkfs;
mod moving;
mod numbers;
mod office;
mod operate;
mod orphans;
mod outcomes;
mod owed;
mod participant;
mod pipeline;
mod private;
mod probe;
mod recovery;
mod repair;
mod restore;
mod sessions;
mod statements;
mod txn;

pub use config::{Executed, Limits, Observer, ServerConfig};
pub use filelocks::FileLockBounds;
pub use housekeeping::Removed;
pub use mkfs::{format_store, superblock};
pub use moving::MoveStats;
pub use recovery::StartError;
pub use repair::changes_of;
pub use restore::{Raise, Restore, RestoreError, Restored, restored};

use account::Notes;
use locks::Locks;
use numbers::Numbers;
use pando_cluster::{ClusterMap, Coord};
use pando_data::Blocks;
use pando_env::sync::Sender;
use pando_env::{CallError, Caller, LocalFuture, Node, Peer, World};
use pando_format::{Codec, Invalidation};
use pando_store::{Level, Lsn, Space, Store, StoreError};
use pando_types::{
    BootEpoch, IdentityId, MapEpoch, Mono, Name, PeerId, ServerId, SessionId, Term, TxId, Watermark, plant,
};
use pando_wire::{
    Account, Accounted, Message, PeerAnswer, PeerRequest, Refusal, Request, Response, Statement,
};
use sessions::{Asker, Sessions};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Why a request has no outcome.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was not executed; the asker is told why.
    Refused(Refusal),
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(e: StoreError) -> Failure {
        Failure::Store(e)
    }
}

impl From<locks::Busy> for Failure {
    fn from(_: locks::Busy) -> Failure {
        Failure::Refused(Refusal::Busy)
    }
}

/// Counts for metrics and tests.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    /// Operations executed.
    pub operations: u64,
    /// Of them, answered from a reply record or a lane.
    pub replayed: u64,
    /// Distributed transactions committed.
    pub commits: u64,
    /// Distributed transactions aborted.
    pub aborts: u64,
    /// Directory IDs that turned out to be taken when a directory was to be made under them.
    pub collisions: u64,
    /// Prepared parts taken over from an earlier boot.
    pub in_doubt: u64,
    /// Requests refused as busy.
    pub busy: u64,
    /// Requests refused because of a statement that this filesystem did not make.
    pub forged: u64,
    /// Requests refused because of a statement that is not true any more.
    pub outdated: u64,
    /// Changes of directories that every server was told of before.
    pub announced: u64,
    /// Messages between servers sent, each for one operation.
    pub peer_calls: u64,
    /// And those that confirm the outcomes of many.
    pub settles: u64,
}

/// What a coordinator remembers of its transactions.
#[derive(Default)]
pub(crate) struct Coordinated {
    next: u64,
    /// Not decided.
    active: BTreeSet<u64>,
    /// Committed and not confirmed by all.
    decided: BTreeMap<TxId, Decided>,
}

/// Those who are woken, by being dropped, when one who tells for all is done.
type Waiting = Rc<RefCell<Vec<Sender<()>>>>;

/// A commit on its way to its participants.
pub(crate) struct Decided {
    /// Position of the decision: before that is synced nobody hears of it.
    lsn: Lsn,
    /// Who has not confirmed. Nobody from the beginning: it is no transaction, but what is owed.
    waiting: BTreeSet<ServerId>,
}

/// One metadata server, one boot.
pub struct MetaServer {
    me: Weak<MetaServer>,
    id: ServerId,
    boot: BootEpoch,
    map: RefCell<Rc<ClusterMap>>,
    secrets: pando_auth::Secrets,
    keys: pando_auth::StatementKeys,
    limits: Limits,
    world: World,
    store: Rc<dyn Store>,
    blocks: Rc<dyn Blocks>,
    observer: Rc<dyn Observer>,
    locks: Locks,
    numbers: Numbers,
    sessions: RefCell<Sessions>,
    /// Which of them have which files open.
    holds: RefCell<holds::Holds>,
    /// Locks of programs on files in slots of this server.
    file_locks: RefCell<filelocks::FileLocks>,
    heard: RefCell<heard::Heard>,
    /// With leases: what time it is.
    clock: RefCell<lease::Clock>,
    /// On the coordinator: which directory is in which, as far as moves need to know.
    graph: RefCell<graph::Graph>,
    /// On the coordinator: entries of the log that are not synced yet.
    unsynced: RefCell<VecDeque<Invalidation>>,
    /// On the coordinator: how far others have heard the log, and by which boot.
    confirmed: RefCell<BTreeMap<ServerId, (BootEpoch, Watermark)>>,
    /// On the coordinator: who is being told what it has missed, and who waits for that.
    telling: RefCell<BTreeMap<ServerId, Waiting>>,
    /// Epoch of the map under which this boot last got a slot or the office of coordinator.
    gained: Cell<MapEpoch>,
    /// And lost a slot.
    lost: Cell<MapEpoch>,
    coord: Rc<dyn Coord>,
    office: RefCell<office::Office>,
    /// With leases: what was changed in this term before this start is not known; another must begin.
    needs_new_term: Cell<bool>,
    /// The latest term that this boot began.
    made_term: Cell<Term>,
    /// What coordination last said: who is there, and why it cannot be asked.
    members: RefCell<BTreeSet<ServerId>>,
    coord_trouble: RefCell<Option<String>>,
    /// What became of directories, in numbers.
    changes: RefCell<changes::Changes>,
    private: RefCell<private::Private>,
    /// What the program around the server has to say with its status.
    said: RefCell<BTreeMap<&'static str, admin::Saying>>,
    /// What housekeeping found to be left of removed files, by the first slot of each part.
    removed: RefCell<BTreeMap<u16, Removed>>,
    moving: RefCell<moving::Moving>,
    identities: RefCell<identities::Identities>,
    /// The cut that there is here, if any.
    cuts: cut::Cuts,
    /// Requests of each identity that are being served.
    in_flight: RefCell<BTreeMap<IdentityId, claims::InFlight>>,
    caller: Caller<Accounted>,
    boots: RefCell<BTreeMap<ServerId, BootEpoch>>,
    coordinated: RefCell<Coordinated>,
    /// Outcomes of which each server is to be told once more.
    outcomes: RefCell<BTreeMap<ServerId, outcomes::Unconfirmed>>,
    /// Content of new directories that is owed to others.
    debts: RefCell<owed::Debts>,
    /// What has taken effect at once in this turn, in that order.
    untold: RefCell<Vec<pipeline::Untold>>,
    parts: RefCell<participant::TxParts>,
    space: Cell<Option<(Mono, Space)>>,
    stopped: Cell<bool>,
    damage_logged: Cell<Option<Mono>>,
    /// A guess that found something: what those that find nothing are made to take as long as (H99).
    decoy: RefCell<Option<(Statement, Name)>>,
    stats: Cell<Stats>,
}

impl MetaServer {
    /// Its number.
    pub fn id(&self) -> ServerId {
        self.id
    }

    /// Its boot.
    pub fn boot(&self) -> BootEpoch {
        self.boot
    }

    /// Counts so far.
    pub fn stats(&self) -> Stats {
        self.stats.get()
    }

    /// Whether it stopped serving after a failure of its store.
    pub fn stopped(&self) -> bool {
        self.stopped.get()
    }

    /// Whether a session has ended here.
    pub fn has_ended(&self, session: SessionId) -> bool {
        self.sessions.borrow().has_ended(session)
    }

    /// The cluster as known now.
    fn map(&self) -> Rc<ClusterMap> {
        self.map.borrow().clone()
    }

    fn count(&self, f: impl FnOnce(&mut Stats)) {
        let mut s = self.stats.get();
        f(&mut s);
        self.stats.set(s);
    }

    fn owner(&self, slot: pando_types::Slot) -> ServerId {
        // Records of the store itself never leave it.
        if slot == pando_format::LOCAL_SLOT {
            self.id
        } else {
            self.map().owner(slot)
        }
    }

    /// The server that has a record.
    fn home(&self, key: &pando_format::Key) -> ServerId {
        if key.slot() == pando_format::LOCAL_SLOT {
            self.id
        } else {
            self.map().home(key)
        }
    }

    fn spawn(&self, task: impl FnOnce(Rc<MetaServer>) -> LocalFuture<()>) {
        if let Some(me) = self.me.upgrade() {
            self.world.spawn(task(me));
        }
    }

    /// The store failed: nothing is served from here on, and whoever runs the server is told (H103).
    fn fatal(&self, e: &StoreError) {
        if plant!(H103) {
            return;
        }
        if !self.stopped.replace(true) {
            tracing::error!(server = self.id.0, error = %e, "stopping");
            self.observer.fatal(&e.to_string());
        }
    }

    /// Waits until a position is safe. A failure stops the server.
    async fn safe(&self, lsn: Lsn, level: Level) -> Result<(), Failure> {
        if self.store.safe(level) >= lsn {
            return Ok(());
        }
        Ok(self.store.wait(lsn, level).await?)
    }

    /// Free space, measured a moment ago at most.
    fn room(&self) -> Space {
        let now = self.world.mono();
        if let Some((at, space)) = self.space.get()
            && now.since(at) < self.limits.space_memory
        {
            return space;
        }
        let space = self.store.space();
        self.space.set(Some((now, space)));
        space
    }

    /// Whether growing operations must be refused: ENOSPC is predicted, never met.
    fn low_on_space(&self) -> bool {
        let space = self.room();
        space.available < self.limits.reserve(space.total)
    }

    fn send(&self, to: Peer, message: &Message) {
        if !self.stopped.get() {
            self.world.send(to, message.to_bytes());
        }
    }

    fn answer(&self, mut askers: Vec<Asker>, result: Result<Response, Refusal>) {
        // Mostly the only one.
        let last = askers.pop();
        for asker in askers {
            self.answer_with(asker, result.clone(), None);
        }
        if let Some(asker) = last {
            self.answer_with(asker, result, None);
        }
    }

    fn answer_with(&self, (peer, id): Asker, result: Result<Response, Refusal>, account: Option<Account>) {
        self.send(peer, &Message::Reply { id, result, account });
    }

    /// Asks another server, learning its boot epoch on the way. `Err`: no answer; it may or may not have happened.
    async fn ask(
        &self,
        to: ServerId,
        request: PeerRequest,
    ) -> Result<Result<PeerAnswer, Refusal>, CallError> {
        self.ask_for(to, request, &Notes::default()).await
    }

    /// The same, on behalf of a request that may want to know.
    async fn ask_for(
        &self,
        to: ServerId,
        request: PeerRequest,
        notes: &Notes,
    ) -> Result<Result<PeerAnswer, Refusal>, CallError> {
        for _ in 0..3 {
            let boot = self.boots.borrow().get(&to).copied().unwrap_or_default();
            let encode = |id| {
                Message::Request {
                    id,
                    boot,
                    request: Request::Peer(request.clone()),
                    explain: notes.wanted(),
                }
                .to_bytes()
            };
            self.count(|s| match request {
                // Following goes on whatever is asked for.
                PeerRequest::Follow { .. } => {}
                PeerRequest::Settle { .. } => s.settles += 1,
                _ => s.peer_calls += 1,
            });
            let under_way = notes.sent(to, &request);
            let answer = self
                .caller
                .call(Peer::Server(to), self.limits.peer_timeout, encode)
                .await;
            notes.answered(under_way, &answer);
            match answer?.0 {
                Ok(Response::Peer(answer)) => return Ok(Ok(answer)),
                Err(Refusal::WrongBoot(now)) => {
                    self.boots.borrow_mut().insert(to, now);
                }
                Err(refusal) => return Ok(Err(refusal)),
                Ok(_) => return Ok(Err(Refusal::Invalid)),
            }
        }
        Ok(Err(Refusal::NotReady))
    }

    fn peer_wait(&self) -> LocalFuture<()> {
        self.hurry_debts();
        // Shorter than the coordinator waits, so that it hears "busy" rather than nothing.
        self.world.sleep(self.limits.peer_timeout.mul_f32(0.7))
    }

    fn lock_wait(&self) -> LocalFuture<()> {
        self.hurry_debts();
        self.world.sleep(self.limits.lock_wait)
    }

    /// Of who does not wait: over at once.
    fn no_wait(&self) -> LocalFuture<()> {
        Box::pin(std::future::ready(()))
    }

    async fn pause(&self, d: Duration) {
        self.world.sleep(d).await;
    }
}

impl Node for MetaServer {
    fn receive(&self, from: Peer, message: Vec<u8>) {
        if self.stopped.get() {
            return;
        }
        match Message::from_bytes(&message) {
            Err(e) => self.world.close(from, &format!("undecodable message: {e}")),
            // Only servers are asked anything; whoever else answers makes up votes and locks (H100).
            Ok(Message::Reply { .. })
                if !matches!(self.world.who(from), Some(PeerId::Server(_))) && !plant!(G35) =>
            {
                self.world
                    .close(from, "a reply to a question that only servers are asked");
            }
            Ok(Message::Reply { id, result, account }) => {
                // Late or doubled replies match nothing.
                self.caller.complete(id, (result, account));
            }
            Ok(Message::Request {
                id,
                boot,
                request,
                explain,
            }) => {
                // Whoever is gone needs no answer.
                if let Some(who) = self.world.who(from) {
                    self.dispatch((from, id), who, boot, (request, message.len()), explain);
                }
            }
        }
    }

    fn disconnected(&self, peer: Peer) {
        self.caller.disconnected(peer);
    }

    fn denied(&self, server: ServerId) {
        self.caller.denied(Peer::Server(server));
    }
}
