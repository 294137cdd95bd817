//! The coordinator's side of invalidation: the log, and telling everybody before anything changes (InfiniFS
//! §3.4, H10).
//!
//! Order of a change of a directory's name or permissions: its records are locked where they are, so that
//! nobody is told the old facts as new → the change is written to the log and synced (H16) → every server has
//! heard of it and refuses what rests on the old facts → the transaction commits. If it aborts, clients have
//! forgotten something that was still true, no more (H14).

use crate::account::Notes;
use crate::facts::heard::Heard;
use crate::{Failure, MetaServer};
use pando_auth::StatementKeys;
use pando_cluster::ClusterMap;
use pando_env::sync::{first, join_all, oneshot};
use pando_format::{Batch, Invalidation, Key, Mutation, Record, Scan};
use pando_store::{Level, Store, StoreError};
use pando_types::{BootEpoch, ServerId, Term, Watermark, plant};
use pando_wire::{PeerAnswer, PeerRequest, Refusal};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// What the log of another term says is not to be continued: another server may have kept it (H25).
fn base(term: Term) -> Watermark {
    Watermark(term.0 << 32)
}

/// The log, from the coordinator's own store.
pub(crate) async fn load(
    store: &dyn Store,
    term: Term,
    keys: &StatementKeys,
    most: usize,
) -> Result<Heard, StoreError> {
    let mut entries = Vec::new();
    let mut last = base(term);
    for (key, record) in crate::slots::recovery::all(store, Scan::Invalidations).await? {
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
    /// A term begins: what the log of another says is void, and so is what others have heard of it.
    ///
    /// Of a term that this boot did not make the log stays: an earlier boot may have told others of it, and
    /// one that starts with this map goes on with it. Numbers would be given twice, and others would take
    /// what they mean now for what they have heard (H178).
    pub(crate) fn begin_log(&self, map: &ClusterMap) {
        let mut heard = Heard::default();
        if map.coordinator == self.id {
            heard.join(base(map.term), &[], &self.facts.keys, self.limits.invalidations);
            let begins = map.term == self.office.made_term.get() || plant!(H25) || plant!(H178);
            if begins && let Err(e) = self.store.delete_range(&Scan::Invalidations) {
                self.fatal(&e);
            }
        }
        *self.facts.heard.borrow_mut() = heard;
        *self.facts.clock.borrow_mut() = Default::default();
        self.facts.leases.borrow_mut().arrived(self.world.mono());
        self.facts.leases.borrow_mut().unmark();
        self.office.unsynced.borrow_mut().clear();
        self.office.confirmed.borrow_mut().clear();
        self.office.needs_new_term.set(false);
    }

    /// Writes down and tells every server what will not be true any more; returns when all have heard it who
    /// may still act on what they heard before.
    pub(crate) async fn broadcast(&self, what: &[Invalidation], notes: &Notes) -> Result<Watermark, Failure> {
        let term = self.map().term;
        let upto = notes.syncing(self.write_down(what)).await?;
        if plant!(H10) {
            for server in self.others() {
                self.spawn(|me| {
                    Box::pin(async move { while !me.told(server, term, upto, &Notes::default()).await {} })
                });
            }
            return Ok(upto);
        }
        let mut telling: Vec<Pin<Box<dyn Future<Output = bool> + '_>>> = Vec::new();
        for server in self.others() {
            telling.push(Box::pin(self.told(server, term, upto, notes)));
        }
        if join_all(telling).await.into_iter().all(|heard| heard) {
            Ok(upto)
        } else {
            Err(Failure::Refused(Refusal::Busy))
        }
    }

    /// An entry counts, here as elsewhere, when it is synced: a number that was lost with the power is given
    /// again.
    async fn write_down(&self, what: &[Invalidation]) -> Result<Watermark, Failure> {
        let most = self.limits.invalidations;
        let (lsn, upto) = {
            let mut unsynced = self.office.unsynced.borrow_mut();
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
        let term = self.map().term;
        self.safe(lsn, Level::Synced).await?;
        if self.map().term != term {
            return Err(Failure::Refused(Refusal::Busy));
        }
        // Entries before these are synced too, whoever waits for them.
        let mut unsynced = self.office.unsynced.borrow_mut();
        let from = self.heard_upto();
        let synced: Vec<Invalidation> = unsynced.drain(..upto.0.saturating_sub(from.0) as usize).collect();
        self.hear(term, from, &synced);
        Ok(upto)
    }

    /// All servers but this one.
    pub(crate) fn others(&self) -> Vec<ServerId> {
        let map = self.map.borrow();
        map.servers
            .iter()
            .map(|s| s.id)
            .filter(|s| *s != self.id)
            .collect()
    }

    /// A boot of a server has heard the log so far.
    pub(crate) fn confirmed_by(&self, server: ServerId, boot: BootEpoch, upto: Watermark) {
        self.office.confirmed.borrow_mut().insert(server, (boot, upto));
        // Whoever waits for it looks again.
        self.office.telling.borrow_mut().remove(&server);
    }

    fn has_confirmed(&self, server: ServerId, upto: Watermark) -> bool {
        let confirmed = self.office.confirmed.borrow();
        confirmed.get(&server).is_some_and(|(_, known)| *known >= upto)
    }

    /// Tells one server the log up to an entry, with whatever else there is to be told: of those who wait for
    /// it one tells, for all. Returns when it has confirmed, or does not act on anything any more. False: it
    /// does neither, for long.
    async fn told(&self, server: ServerId, term: Term, upto: Watermark, notes: &Notes) -> bool {
        let lease = self.office.tenure.borrow().lease();
        let end = self.world.mono().after(2 * lease + self.limits.peer_timeout);
        loop {
            let now = self.world.mono();
            if self.has_confirmed(server, upto) {
                return true;
            }
            if self.map().term != term || now >= end {
                return false;
            }
            if self.office.tenure.borrow().is_fenced(server, now) {
                return true;
            }
            let turn = self.office.telling.borrow().get(&server).cloned();
            if let Some(others) = turn {
                // Dropped when the one who tells is done.
                let (wake, woken) = oneshot();
                others.borrow_mut().push(wake);
                first(woken, self.world.sleep(PAUSE)).await;
                continue;
            }
            self.office.telling.borrow_mut().insert(server, Rc::default());
            let answer = self.ask_for(server, self.untold(server, term), notes).await;
            self.office.telling.borrow_mut().remove(&server);
            match answer {
                Ok(Ok(PeerAnswer::Heard { boot, upto: heard })) if self.map().term == term => {
                    // What an earlier boot has heard is lost.
                    if self.office.tenure.borrow().boot_of(server) == Some(boot) {
                        self.confirmed_by(server, boot, heard);
                    }
                    if heard < upto {
                        self.pause(PAUSE).await;
                    }
                }
                _ => self.pause(PAUSE).await,
            }
        }
    }

    /// What a server has not confirmed.
    fn untold(&self, server: ServerId, term: Term) -> PeerRequest {
        let known = self
            .office
            .confirmed
            .borrow()
            .get(&server)
            .map(|(_, known)| *known);
        let upto = self.heard_upto();
        let (after, entries) = match known {
            Some(known) if plant!(H12) && known < upto => self.log_after(Watermark(upto.0 - 1)),
            Some(known) => self.log_after(known),
            // Nothing is told, only asked.
            None => (upto, Vec::new()),
        };
        PeerRequest::Invalidate { term, after, entries }
    }
}
