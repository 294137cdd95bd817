//! The coordinator's side of invalidation: the log, and telling everybody before anything changes (InfiniFS §3.4, H10).
//!
//! Order of a change of a directory's name or permissions: its records are locked where they are, so that nobody is
//! told the old facts as new → the change is written to the log and synced (H16) → every server has heard of it and
//! refuses what rests on the old facts → the transaction commits. If it aborts, clients have forgotten something that
//! was still true, no more (H14).

use crate::account::Notes;
use crate::heard::Heard;
use crate::{Failure, MetaServer};
use pando_auth::StatementKeys;
use pando_cluster::Coherence;
use pando_env::sync::join_all;
use pando_format::{Batch, Invalidation, Key, KeyRange, Mutation, Record};
use pando_store::{Level, Store, StoreError};
use pando_types::{MapEpoch, ServerId, Watermark, plant};
use pando_wire::{PeerAnswer, PeerRequest, Refusal};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// How often a server is asked before the change is put off.
const TRIES: u32 = 4;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// What the log of another epoch of the map says is not to be continued: it may have been kept by another server.
fn base(epoch: MapEpoch) -> Watermark {
    Watermark(epoch.0 << 32)
}

/// The log, from the coordinator's own store.
pub(crate) async fn load(
    store: &dyn Store,
    epoch: MapEpoch,
    keys: &StatementKeys,
    most: usize,
) -> Result<Heard, StoreError> {
    let mut entries = Vec::new();
    let mut last = base(epoch);
    for (key, record) in crate::recovery::all(store, KeyRange::invalidations()).await? {
        let (Key::Invalidation(at), Record::Invalidation(entry)) = (key, record) else {
            continue;
        };
        if at > last && !plant!(H16) {
            last = at;
            entries.push(entry);
        }
    }
    let mut heard = Heard::default();
    heard.join(Watermark(last.0 - entries.len() as u64), &entries, keys, most);
    Ok(heard)
}

impl MetaServer {
    /// Whether changes of directories' names and permissions are coordinated here.
    pub(crate) fn coordinates(&self) -> bool {
        self.map.rename_server == self.id
    }

    /// What a server that has started must know.
    pub(crate) async fn show_log(&self) -> Result<PeerAnswer, Failure> {
        if !self.coordinates() {
            return Err(Failure::Refused(Refusal::Invalid));
        }
        Ok(self.show())
    }

    /// Writes down and tells every server what will not be true any more; returns when all have heard it. A server that
    /// does not answer holds it up: the caller tries again later.
    pub(crate) async fn broadcast(&self, what: &[Invalidation], notes: &Notes) -> Result<Watermark, Failure> {
        let upto = notes.syncing(self.write_down(what)).await?;
        if plant!(H10) {
            for server in self.others() {
                self.spawn(|me| {
                    Box::pin(async move { while !me.told(server, upto, &Notes::default()).await {} })
                });
            }
            return Ok(upto);
        }
        let mut telling: Vec<Pin<Box<dyn Future<Output = bool> + '_>>> = Vec::new();
        for server in self.others() {
            telling.push(Box::pin(self.told(server, upto, notes)));
        }
        if join_all(telling).await.into_iter().all(|heard| heard) {
            Ok(upto)
        } else {
            Err(Failure::Refused(Refusal::Busy))
        }
    }

    /// An entry counts, here as elsewhere, when it is synced: a number that was lost with the power is given again.
    async fn write_down(&self, what: &[Invalidation]) -> Result<Watermark, Failure> {
        let most = self.limits.invalidations;
        let (lsn, upto) = {
            let mut unsynced = self.unsynced.borrow_mut();
            let last = self.heard_upto().0 + unsynced.len() as u64;
            unsynced.extend(what);
            let mut mutations = Vec::new();
            for (at, entry) in (last + 1..).zip(what) {
                mutations.push(Mutation::Insert {
                    key: Key::Invalidation(Watermark(at)),
                    record: Record::Invalidation(*entry),
                });
                // What nobody remembers any more.
                mutations.push(Mutation::Delete {
                    key: Key::Invalidation(Watermark(at.saturating_sub(most as u64))),
                });
            }
            let lsn = self.store.apply(&Batch::of(mutations))?;
            (lsn, Watermark(last + what.len() as u64))
        };
        self.safe(lsn, Level::Synced).await?;
        // Entries before these are synced too, whoever waits for them.
        let mut unsynced = self.unsynced.borrow_mut();
        let from = self.heard_upto();
        let synced: Vec<Invalidation> = unsynced.drain(..upto.0.saturating_sub(from.0) as usize).collect();
        self.hear(from, &synced);
        Ok(upto)
    }

    /// Who has not heard all of the log hears it now: what was announced and then put off is told too, or servers would
    /// know of each other's statements less and less.
    pub(crate) fn tell_who_is_behind(&self) {
        // With leases nobody is told anything.
        if !self.coordinates() || self.map.coherence != Coherence::Lazy {
            return;
        }
        let upto = self.heard_upto();
        for server in self.others() {
            let behind = self
                .confirmed
                .borrow()
                .get(&server)
                .is_none_or(|known| *known < upto);
            if behind && self.telling.borrow_mut().insert(server) {
                self.spawn(|me| {
                    Box::pin(async move {
                        me.told(server, upto, &Notes::default()).await;
                        me.telling.borrow_mut().remove(&server);
                    })
                });
            }
        }
    }

    fn others(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.map.servers.iter().map(|s| s.id).filter(|s| *s != self.id)
    }

    /// Tells one server the log up to an entry. False: it did not confirm.
    async fn told(&self, server: ServerId, upto: Watermark, notes: &Notes) -> bool {
        for _ in 0..TRIES {
            let known = self.confirmed.borrow().get(&server).copied();
            let Some(request) = self.untold(known, upto) else {
                return true;
            };
            match self.ask_for(server, request, notes).await {
                Ok(Ok(PeerAnswer::Heard(heard))) => {
                    self.confirmed.borrow_mut().insert(server, heard);
                    if heard == Watermark(0) {
                        // It has not fetched the log yet.
                        self.pause(PAUSE).await;
                    }
                }
                Ok(_) | Err(_) => self.pause(PAUSE).await,
            }
        }
        false
    }

    /// What a server that has confirmed so much must still hear. `None`: nothing.
    fn untold(&self, known: Option<Watermark>, upto: Watermark) -> Option<PeerRequest> {
        let heard = self.heard.borrow();
        let after = match known {
            Some(known) if known >= upto => return None,
            Some(_) if plant!(H12) => Watermark(upto.0 - 1),
            Some(known) => known.max(heard.floor()),
            // Nothing is told, only asked.
            None => upto,
        };
        let skip = after.0 - heard.floor().0.min(after.0);
        let entries = heard.entries().skip(skip as usize);
        Some(PeerRequest::Invalidate {
            after,
            entries: entries.take(upto.0.saturating_sub(after.0) as usize).collect(),
        })
    }

    /// Fetches the log from the coordinator; until then this server serves nobody (H15).
    pub(crate) async fn join(self: Rc<Self>) {
        while !self.stopped.get() && !self.heard.borrow().joined() {
            match self.ask(self.map.rename_server, PeerRequest::Join).await {
                Ok(Ok(PeerAnswer::Log { floor, entries })) => {
                    let most = self.limits.invalidations;
                    self.heard.borrow_mut().join(floor, &entries, &self.keys, most);
                }
                _ => self.pause(PAUSE).await,
            }
        }
    }
}
