//! The locks and records of one attempt at an operation, here and on other servers.

use crate::account::Notes;
use crate::txn::locks::{Holder, Unit, in_order, unit_of};
use crate::{Failure, MetaServer};
use pando_env::LocalFuture;
use pando_env::sync::join_all;
use pando_format::{Key, Mutation, Record, Scan};
use pando_namespace::Snapshot;
use pando_store::{Read, StoreError};
use pando_types::{ServerId, TxId};
use pando_wire::{FileAt, Holders, LockWant, PeerAnswer, PeerRequest, Refusal, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::{Pin, pin};

/// So many buckets of one directory are looked for together.
const TOGETHER: usize = 3;

/// What was read.
pub(crate) type Records = Vec<(Key, Record)>;

/// Why it was not.
pub(crate) enum Unread {
    /// The device must be waited for.
    Coming(LocalFuture<Result<Records, StoreError>>),
    /// It failed.
    Failed(StoreError),
}

impl From<StoreError> for Unread {
    fn from(e: StoreError) -> Unread {
        Unread::Failed(e)
    }
}

/// The same, and who has which of the files among it open.
type Lent = (Records, Vec<(FileAt, Holders)>);

/// Gives up a holder's locks when it goes out of scope, however that comes.
pub(crate) struct Held<'a> {
    server: &'a MetaServer,
    pub holder: Holder,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.server.txn.locks.release(self.holder);
    }
}

impl MetaServer {
    pub(crate) fn hold(&self) -> Held<'_> {
        Held {
            server: self,
            holder: self.txn.locks.holder(),
        }
    }
}

/// What came of asking for locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Got {
    /// All of them, with the records.
    All,
    /// Somebody has one of them, and this attempt does not wait.
    Taken,
}

/// One attempt. Dropped undecided, it aborts: local locks go, participants are told.
///
/// One that waits takes its locks in the global order, server by server. One that does not may take them in
/// any order, on all servers at once, and more of them later: as long as it holds something it waits for
/// nobody, so nobody can wait for it in a circle. It is to be given up when a lock is taken.
pub(crate) struct Txn<'a> {
    server: &'a MetaServer,
    held: Held<'a>,
    tx: Option<TxId>,
    /// Servers that were sent a lock or prepare request.
    pub remote: BTreeSet<ServerId>,
    /// The last lock in the global order that was asked for.
    last: Option<(ServerId, Unit)>,
    /// Whether it waits for locks that are taken.
    waits: bool,
    settled: bool,
    /// Of the operation it is for.
    pub notes: &'a Notes,
}

impl<'a> Txn<'a> {
    pub fn new(server: &'a MetaServer, waits: bool, notes: &'a Notes) -> Txn<'a> {
        Txn {
            server,
            held: server.hold(),
            tx: None,
            remote: BTreeSet::new(),
            last: None,
            waits,
            settled: false,
            notes,
        }
    }

    /// Who holds the local locks.
    pub fn holder(&self) -> Holder {
        self.held.holder
    }

    /// The transaction's name; it has one from the first message to another server on.
    pub fn id(&mut self) -> TxId {
        let server = self.server;
        *self.tx.get_or_insert_with(|| {
            let mut c = server.txn.coordinated.borrow_mut();
            c.next += 1;
            let number = c.next;
            c.active.insert(number);
            TxId {
                coordinator: server.id,
                boot: server.boot,
                number,
            }
        })
    }

    /// Whether these can be locked without breaking the global order (server, unit), which binds who waits.
    pub fn extends(&self, wants: &[LockWant]) -> bool {
        if !self.waits {
            return true;
        }
        let first = wants.iter().filter_map(|w| self.ordered(w)).min();
        match (first, &self.last) {
            (Some(first), Some(last)) => first > *last,
            _ => true,
        }
    }

    fn ordered(&self, want: &LockWant) -> Option<(ServerId, Unit)> {
        let (unit, _) = unit_of(want)?;
        Some((self.server.home_of(want), unit))
    }

    /// Locks and reads.
    pub async fn read(&mut self, snapshot: &mut Snapshot, wants: Vec<LockWant>) -> Result<Got, Failure> {
        let server = self.server;
        if !self.waits && wants.iter().all(|want| server.home_of(want) == server.id) {
            return pin!(self.read_here(snapshot, wants)).await;
        }
        let mut by_owner: BTreeMap<ServerId, Vec<LockWant>> = BTreeMap::new();
        for want in wants {
            self.last = self.last.take().max(self.ordered(&want));
            by_owner.entry(server.home_of(&want)).or_default().push(want);
        }
        if !self.waits {
            return Box::pin(self.read_at_once(snapshot, by_owner)).await;
        }
        for (owner, wants) in by_owner {
            let (records, held) = if owner == server.id {
                let units = in_order(wants.iter().filter_map(unit_of));
                let acquire = server
                    .txn
                    .locks
                    .acquire(self.held.holder, units, || server.lock_wait());
                Box::pin(self.notes.locking(acquire)).await?;
                pin!(server.read_held(&wants)).await?
            } else {
                let request = self.request(owner, &wants);
                match Box::pin(server.lent_by(owner, request, self.notes)).await? {
                    Some(lent) => lent,
                    None => return Err(Failure::Refused(Refusal::Busy)),
                }
            };
            snapshot.add_all(wants, records);
            snapshot.add_held(held);
        }
        Ok(Got::All)
    }

    /// Without waiting for anybody, all of it from this server: what nearly every attempt does.
    async fn read_here(&self, snapshot: &mut Snapshot, wants: Vec<LockWant>) -> Result<Got, Failure> {
        let units = in_order(wants.iter().filter_map(unit_of));
        if self.server.txn.locks.try_all(self.held.holder, &units).is_err() {
            return Ok(Got::Taken);
        }
        let (records, held) = pin!(self.server.read_held(&wants)).await?;
        snapshot.add_all(wants, records);
        snapshot.add_held(held);
        Ok(Got::All)
    }

    /// Without waiting for anybody, from all servers at once.
    async fn read_at_once(
        &mut self,
        snapshot: &mut Snapshot,
        mut by_owner: BTreeMap<ServerId, Vec<LockWant>>,
    ) -> Result<Got, Failure> {
        let server = self.server;
        let here = by_owner.remove(&server.id).unwrap_or_default();
        let units = in_order(here.iter().filter_map(unit_of));
        if server.txn.locks.try_all(self.held.holder, &units).is_err() {
            return Ok(Got::Taken);
        }
        type Reading<'f> = Pin<Box<dyn Future<Output = Result<Option<Lent>, Failure>> + 'f>>;
        let mut reading: Vec<Reading<'_>> = Vec::new();
        for (owner, wants) in &by_owner {
            let request = self.request(*owner, wants);
            reading.push(Box::pin(server.lent_by(*owner, request, self.notes)));
        }
        reading.push(Box::pin(async { Ok(Some(server.read_held(&here).await?)) }));
        let read = join_all(reading).await;
        let wants = by_owner.into_values().chain([here]);
        let mut got = Got::All;
        for (wants, records) in wants.zip(read) {
            match records? {
                Some((records, held)) => {
                    snapshot.add_all(wants, records);
                    snapshot.add_held(held);
                }
                None => got = Got::Taken,
            }
        }
        Ok(got)
    }

    /// Asks another server for locks; not sent yet.
    fn request(&mut self, owner: ServerId, wants: &[LockWant]) -> PeerRequest {
        let tx = self.id();
        let locked = !self.remote.insert(owner);
        PeerRequest::Lock {
            tx,
            low: self.server.low_watermark(),
            locked,
            wants: wants.to_vec(),
            wait: self.waits,
        }
    }

    /// The outcome is decided: dropping no longer aborts, and only gives up the local locks.
    pub fn settle(&mut self) {
        self.settled = true;
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        if let Some(tx) = self.tx.filter(|_| !self.settled) {
            let remote = std::mem::take(&mut self.remote);
            self.notes.later(remote.iter().copied(), Task::Release);
            self.server.abort(tx, remote);
        }
    }
}

impl MetaServer {
    /// The records of another server, under locks. `None`: it is busy.
    async fn lent_by(
        &self,
        owner: ServerId,
        request: PeerRequest,
        notes: &Notes,
    ) -> Result<Option<Lent>, Failure> {
        match self.ask_for(owner, request, notes).await {
            Ok(Ok(PeerAnswer::Locked { records, held })) => Ok(Some((records, held))),
            Ok(Err(Refusal::Busy)) => Ok(None),
            Ok(Err(Refusal::SessionUnknown)) => Err(Failure::Refused(Refusal::SessionUnknown)),
            _ => Err(Failure::Refused(Refusal::Busy)),
        }
    }

    /// The server that has what is changed.
    pub(crate) fn home_of_change(&self, m: &Mutation) -> ServerId {
        match m {
            Mutation::Insert { key, .. } | Mutation::Update { key, .. } | Mutation::Delete { key } => {
                self.home(key)
            }
            Mutation::Touch { part, .. } => self.home(&Key::Touch(*part)),
        }
    }

    /// The server that has what is wanted.
    pub(crate) fn home_of(&self, want: &LockWant) -> ServerId {
        match want {
            LockWant::Key(key, _) | LockWant::Attachments(key) => self.home(key),
            LockWant::Bucket(dir, _, _) => self.owner(dir.slot()),
        }
    }

    /// The records of wants whose slots are here, and who has the files among them open. REQUIRES: they are
    /// locked.
    async fn read_held(&self, wants: &[LockWant]) -> Result<Lent, StoreError> {
        let records = pin!(self.read_records(wants)).await?;
        let held = self.held_among(&records);
        Ok((records, held))
    }

    /// The records of wants whose slots are here.
    pub(crate) async fn read_records(&self, wants: &[LockWant]) -> Result<Records, StoreError> {
        let mut records = Vec::new();
        let mut left = wants;
        while let Some((want, more)) = left.split_first() {
            let together = many_buckets(left);
            if together > 0 {
                let (buckets, more) = left.split_at(together);
                self.read_buckets(buckets, &mut records).await?;
                left = more;
                continue;
            }
            left = more;
            match self.read_one(want, &mut records) {
                Ok(()) => {}
                Err(Unread::Coming(found)) => records.extend(found.await?),
                Err(Unread::Failed(e)) => return Err(e),
            }
        }
        Ok(records)
    }

    /// The records of one want, if they are in memory. What is has no place in a task that way, and is not
    /// moved there and back.
    pub(crate) fn read_one(&self, want: &LockWant, records: &mut Records) -> Result<(), Unread> {
        let range = match want {
            LockWant::Key(key, _) => {
                if let Key::Local(part) = key {
                    self.came_into(*part);
                }
                match self.store.get(key) {
                    Read::Ready(found) => records.extend(found?.map(|record| (key.clone(), record))),
                    Read::Pending(found) => {
                        let key = key.clone();
                        let found = async move { Ok(found.await?.map(|r| (key, r)).into_iter().collect()) };
                        return Err(Unread::Coming(Box::pin(found)));
                    }
                }
                return Ok(());
            }
            // A bucket has at most 256 ordinals.
            LockWant::Bucket(dir, hash, _) => (Scan::Bucket(*dir, *hash), 257),
            LockWant::Attachments(Key::Entry { part, hash, name }) => {
                (Scan::Attachments(*part, *hash, name.clone()), 16)
            }
            LockWant::Attachments(_) => return Ok(()),
        };
        match self.store.list(&range.0, range.1) {
            Read::Ready(found) => records.extend(found?),
            Read::Pending(found) => return Err(Unread::Coming(found)),
        }
        Ok(())
    }

    /// Buckets of one directory, in order: those that stand close together are read in one go, with what is
    /// between them.
    async fn read_buckets(&self, wants: &[LockWant], records: &mut Records) -> Result<(), StoreError> {
        let mut left = wants;
        while let (Some(LockWant::Bucket(dir, first, _)), Some(LockWant::Bucket(_, last, _))) =
            (left.first(), left.last())
        {
            let scan = Scan::Buckets {
                part: *dir,
                first: *first,
                last: *last,
            };
            let limit = left.len() * 2;
            let found = self.store.list(&scan, limit).wait().await?;
            // The last bucket may go on beyond what was read.
            let end = match found.last() {
                Some((Key::Entry { hash, .. }, _)) if found.len() == limit => Some(*hash),
                _ => None,
            };
            let before = |want: &LockWant, end| matches!(want, LockWant::Bucket(_, hash, _) if *hash < end);
            let read = left
                .iter()
                .take_while(|want| end.is_none_or(|end| before(want, end)))
                .count();
            let (known, rest) = left.split_at(read);
            let mut known = known.iter().peekable();
            for (key, record) in found {
                let Key::Entry { hash: at, .. } = key else {
                    continue;
                };
                while known.next_if(|want| before(want, at)).is_some() {}
                if matches!(known.peek(), Some(LockWant::Bucket(_, hash, _)) if *hash == at) {
                    records.push((key, record));
                }
            }
            left = rest;
            if read * 8 < limit {
                // They are far apart.
                break;
            }
        }
        for want in left {
            if let LockWant::Bucket(dir, hash, _) = want {
                let bucket = Scan::Bucket(*dir, *hash);
                records.extend(self.store.list(&bucket, 257).wait().await?);
            }
        }
        Ok(())
    }
}

/// How many wants from here on are buckets of one directory, in order, if they are so many that reading them
/// together pays.
fn many_buckets(wants: &[LockWant]) -> usize {
    let Some(LockWant::Bucket(dir, first, _)) = wants.first() else {
        return 0;
    };
    let mut last = *first;
    let more = wants.iter().skip(1).take_while(|want| match want {
        LockWant::Bucket(d, hash, _) if d == dir && *hash > last => {
            last = *hash;
            true
        }
        _ => false,
    });
    match more.count() + 1 {
        few if few < TOGETHER => 0,
        many => many,
    }
}
