//! The metadata server: sessions, locks, transactions. Async functions over [`pando_env::Env`]; it knows
//! nothing of sockets, threads or RocksDB, and the POSIX rules are not here but in `pando-namespace`.
//!
//! A request's way: `dispatch` (whose message, which boot) → `operate` (whose slot, which lane) → `execute`
//! (locks, records, decision) → `commit` (one batch, or two-phase commit) → wait until durable → answer. Most
//! looks, and most changes of files, are executed in `dispatch` (`pipeline::fast`).

mod account;
mod admission;
mod bulk;
mod care;
mod config;
mod facts;
mod mounts;
mod office;
mod pipeline;
mod slots;
mod txn;

pub use care::housekeeping::Removed;
pub use care::repair::changes_of;
pub use config::{Executed, Limits, Observer, ServerConfig};
pub use mounts::filelocks::FileLockBounds;
pub use slots::mkfs::{format_store, superblock};
pub use slots::moving::MoveStats;
pub use slots::recovery::StartError;
pub use slots::restore::{Raise, Restore, RestoreError, Restored, restored};

use account::Notes;
use admission::sessions::Asker;
use pando_cluster::ClusterMap;
use pando_data::Blocks;
use pando_env::{CallError, Caller, LocalFuture, Node, Peer, World};
use pando_format::Codec;
use pando_store::{Level, Lsn, Space, Store, StoreError};
use pando_types::{BootEpoch, PeerId, ServerId, SessionId, plant};
use pando_wire::{Account, Accounted, Message, PeerAnswer, PeerRequest, Refusal, Request, Response};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
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

impl From<txn::locks::Busy> for Failure {
    fn from(_: txn::locks::Busy) -> Failure {
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
    /// Leases on directories that were granted.
    pub leases: u64,
    /// Changes of directories that had to wait until leases had run out.
    pub lease_waits: u64,
    /// Messages between servers sent, each for one operation.
    pub peer_calls: u64,
    /// And those that confirm the outcomes of many.
    pub settles: u64,
}

/// One metadata server, one boot.
///
/// A shell: what all rooms may use, and the rooms. Each room owns its state. A new field belongs into a room.
pub struct MetaServer {
    me: Weak<MetaServer>,
    id: ServerId,
    boot: BootEpoch,
    map: RefCell<Rc<ClusterMap>>,
    limits: Limits,
    world: World,
    store: Rc<dyn Store>,
    blocks: Rc<dyn Blocks>,
    observer: Rc<dyn Observer>,
    caller: Caller<Accounted>,
    boots: RefCell<BTreeMap<ServerId, BootEpoch>>,
    stopped: Cell<bool>,
    /// What has taken effect at once in this turn, in that order.
    untold: RefCell<Vec<pipeline::Untold>>,
    admission: admission::State,
    facts: facts::State,
    txn: txn::State,
    office: office::State,
    slots: slots::State,
    mounts: mounts::State,
    care: care::State,
    bulk: bulk::State,
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
        self.care.stats.get()
    }

    /// Whether it stopped serving after a failure of its store.
    pub fn stopped(&self) -> bool {
        self.stopped.get()
    }

    /// Whether a session has ended here.
    pub fn has_ended(&self, session: SessionId) -> bool {
        self.admission.sessions.borrow().has_ended(session)
    }

    /// The cluster as known now.
    fn map(&self) -> Rc<ClusterMap> {
        self.map.borrow().clone()
    }

    fn count(&self, f: impl FnOnce(&mut Stats)) {
        let mut s = self.care.stats.get();
        f(&mut s);
        self.care.stats.set(s);
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
        if let Some((at, space)) = self.care.space.get()
            && now.since(at) < self.limits.space_memory
        {
            return space;
        }
        let space = self.store.space();
        self.care.space.set(Some((now, space)));
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

    /// Asks another server, learning its boot epoch on the way. `Err`: no answer; it may or may not have
    /// happened.
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
                PeerRequest::Follow { .. } | PeerRequest::Load => {}
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
