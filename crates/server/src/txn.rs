//! The locks and records of one attempt at an operation, here and on other servers.

use crate::account::Notes;
use crate::locks::{Holder, Unit, in_order, unit_of};
use crate::{Failure, MetaServer};
use pando_format::{Key, KeyRange, Mutation, Record};
use pando_namespace::Snapshot;
use pando_store::StoreError;
use pando_types::{ServerId, TxId};
use pando_wire::{LockWant, PeerAnswer, PeerRequest, Refusal, Task};
use std::collections::{BTreeMap, BTreeSet};

/// Gives up a holder's locks when it goes out of scope, however that comes.
pub(crate) struct Held<'a> {
    server: &'a MetaServer,
    pub holder: Holder,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.server.locks.release(self.holder);
    }
}

impl MetaServer {
    pub(crate) fn hold(&self) -> Held<'_> {
        Held {
            server: self,
            holder: self.locks.holder(),
        }
    }
}

/// One attempt. Dropped undecided, it aborts: local locks go, participants are told.
pub(crate) struct Txn<'a> {
    server: &'a MetaServer,
    held: Held<'a>,
    tx: Option<TxId>,
    /// Servers that were sent a lock or prepare request.
    pub remote: BTreeSet<ServerId>,
    /// The last lock in the global order that was asked for.
    last: Option<(ServerId, Unit)>,
    /// Whether it waits for locks that are taken.
    patient: bool,
    settled: bool,
    /// Of the operation it is for.
    pub notes: &'a Notes,
}

impl<'a> Txn<'a> {
    pub fn new(server: &'a MetaServer, patient: bool, notes: &'a Notes) -> Txn<'a> {
        Txn {
            server,
            held: server.hold(),
            tx: None,
            remote: BTreeSet::new(),
            last: None,
            patient,
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
            let mut c = server.coordinated.borrow_mut();
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

    /// Whether these can be locked without breaking the global order (server, unit).
    pub fn extends(&self, wants: &[LockWant]) -> bool {
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

    /// Locks and reads, server by server in ascending order.
    pub async fn read(&mut self, snapshot: &mut Snapshot, wants: Vec<LockWant>) -> Result<(), Failure> {
        let server = self.server;
        let mut by_owner: BTreeMap<ServerId, Vec<LockWant>> = BTreeMap::new();
        for want in wants {
            self.last = self.last.take().max(self.ordered(&want));
            by_owner.entry(server.home_of(&want)).or_default().push(want);
        }
        for (owner, wants) in by_owner {
            let records = if owner == server.id {
                let units = in_order(wants.iter().filter_map(unit_of));
                let timer = || match self.patient {
                    true => server.lock_wait(),
                    false => Box::pin(std::future::ready(())),
                };
                let acquire = server.locks.acquire(self.held.holder, units, timer);
                self.notes.locking(acquire).await?;
                server.read_records(&wants).await?
            } else {
                let tx = self.id();
                self.remote.insert(owner);
                let request = PeerRequest::Lock {
                    tx,
                    low: server.low_watermark(),
                    wants: wants.clone(),
                };
                match server.ask_for(owner, request, self.notes).await {
                    Ok(Ok(PeerAnswer::Locked(records))) => records,
                    Ok(Err(Refusal::SessionUnknown)) => {
                        return Err(Failure::Refused(Refusal::SessionUnknown));
                    }
                    _ => return Err(Failure::Refused(Refusal::Busy)),
                }
            };
            snapshot.add_all(wants, records);
        }
        Ok(())
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
    /// The server that has what is changed.
    pub(crate) fn home_of_change(&self, m: &Mutation) -> ServerId {
        match m {
            Mutation::Insert { key, .. } | Mutation::Update { key, .. } | Mutation::Delete { key } => {
                self.home(key)
            }
            Mutation::Touch { dir, .. } => self.home(&Key::Touch(*dir)),
        }
    }

    /// The server that has what is wanted.
    pub(crate) fn home_of(&self, want: &LockWant) -> ServerId {
        match want {
            LockWant::Key(key, _) | LockWant::Attachments(key) => self.home(key),
            LockWant::Bucket(dir, _, _) => self.owner(dir.slot()),
        }
    }

    /// The records of wants whose slots are here.
    pub(crate) async fn read_records(&self, wants: &[LockWant]) -> Result<Vec<(Key, Record)>, StoreError> {
        let mut records = Vec::new();
        for want in wants {
            match want {
                LockWant::Key(key, _) => {
                    if let Some(record) = self.store.get(key).wait().await? {
                        records.push((key.clone(), record));
                    }
                }
                LockWant::Bucket(dir, hash, _) => {
                    // A bucket has at most 256 ordinals.
                    records.extend(
                        self.store
                            .list(&KeyRange::bucket(*dir, *hash), 257)
                            .wait()
                            .await?,
                    );
                }
                LockWant::Attachments(Key::Entry { dir, hash, name }) => {
                    records.extend(
                        self.store
                            .list(&KeyRange::attachments(*dir, *hash, name), 16)
                            .wait()
                            .await?,
                    );
                }
                LockWant::Attachments(_) => {}
            }
        }
        Ok(records)
    }
}
