//! What operators ask: the map, raw records, status.

use crate::{Failure, MetaServer};
use pando_format::codec::Blob;
use pando_format::{Batch, Codec, KeyRange, Scan};
use pando_store::{Level, StoreError};
use pando_types::Errno;
use pando_wire::Response;
use std::rc::Rc;

/// Most records of one scan answer, and most bytes, so that it fits a frame.
const SCAN_RECORDS: usize = 4096;
const SCAN_BYTES: usize = 1 << 20;

/// Gives a value in JSON, as it is now.
pub(crate) type Saying = Rc<dyn Fn() -> String>;

impl MetaServer {
    pub(crate) fn show_map(&self) -> Response {
        Response::Map(Blob(self.map().to_bytes()))
    }

    /// The empty request through the whole stack; durable: with one grouped sync.
    pub(crate) async fn null(&self, durable: bool) -> Result<Response, Failure> {
        if durable {
            let lsn = self.store.apply(&Batch::default())?;
            self.safe(lsn, Level::Synced).await?;
        }
        Ok(Response::Ok)
    }

    /// Raw records, for `fsck`. Shows only what is durable.
    pub(crate) async fn scan(&self, range: KeyRange, limit: u32) -> Result<Response, Failure> {
        let listed = self
            .store
            .list(&Scan::Keys(range), (limit as usize).clamp(1, SCAN_RECORDS));
        let mut records = match listed.wait().await {
            // The range is told to be damaged, which is not the same as a server that cannot answer yet.
            Err(e @ StoreError::Corrupt { .. }) => {
                self.report(&e);
                return Ok(Err(Errno::Io).into());
            }
            other => other?,
        };
        self.safe(self.store.applied(), Level::Durable).await?;
        let mut bytes = 0;
        let fit = records.iter().take_while(|(k, r)| {
            bytes += k.encode().len() + r.to_bytes().len();
            bytes <= SCAN_BYTES
        });
        let fit = fit.count().max(1);
        records.truncate(fit);
        Ok(Response::Records(records))
    }

    /// What is left of a range that cannot be read.
    pub(crate) async fn remains(&self, range: KeyRange) -> Result<Response, Failure> {
        let remains = match self.store.remains(&Scan::Keys(range)).wait().await {
            Err(e @ StoreError::Corrupt { .. }) => {
                self.report(&e);
                return Ok(Err(Errno::Io).into());
            }
            other => other?,
        };
        self.safe(self.store.applied(), Level::Durable).await?;
        Ok(Response::Remains(remains))
    }

    /// With its status the server says `field` too, a value in JSON.
    pub fn say(&self, field: &'static str, value: impl Fn() -> String + 'static) {
        self.care.said.borrow_mut().insert(field, Rc::new(value));
    }

    /// State and counts as JSON.
    pub(crate) fn status(&self) -> String {
        let mut all = self.own_status();
        for (field, value) in &*self.care.said.borrow() {
            all.pop();
            all.push_str(&format!(",\"{field}\":{}}}", value()));
        }
        all
    }

    fn own_status(&self) -> String {
        let s = self.stats();
        let (moved, split) = (self.move_stats(), self.split_stats());
        let (space, removed) = (self.room(), self.removed());
        let parts = self.txn.parts.borrow().live.len();
        let (open, awaited) = self.mounts.holds.borrow().counts();
        let (file_locks, file_lock_waits) = self.mounts.file_locks.borrow().counts();
        let bulk = self.bulk.counts();
        let deciding = self.txn.coordinated.borrow().decided.len();
        format!(
            concat!(
                "{{\"server\":{},\"boot\":{},\"ready\":{},\"map_epoch\":{},\"sessions\":{},\"locks_held\":{},\"lock_waits\":{},",
                "\"prepared\":{},\"deciding\":{},\"operations\":{},\"replayed\":{},\"commits\":{},\"aborts\":{},",
                "\"busy\":{},\"peer_calls\":{},\"in_doubt_at_start\":{},\"space_total\":{},\"space_available\":{},",
                "\"low_on_space\":{},\"announced\":{},\"outdated\":{},\"forged\":{},\"heard\":{},",
                "\"to_move\":{},\"records_sent\":{},\"slots_given\":{},\"slots_taken\":{},",
                "\"copies_broken_off\":{},\"longest_pause_us\":{},\"longest_hold_us\":{},\"files_open\":{},\"keepers_awaited\":{},\"file_locks\":{},\"file_lock_waits\":{},",
                "\"removed_files\":{},\"removed_bytes\":{},\"removed_held\":{},",
                "\"localised\":{},\"batches\":{},\"inserted\":{},\"tables_refused\":{},",
                "\"handing_over\":{},\"stuck\":{},\"records\":{},",
                "\"splits\":{{\"given\":{},\"taken\":{},\"records_sent\":{},\"broken_off\":{},\"longest_pause_us\":{},",
                "\"records_swept\":{}}},",
                "\"leases\":{{\"granted\":{},\"waits\":{},\"directories\":{}}}}}"
            ),
            self.id,
            self.boot,
            self.may_act(),
            self.map().epoch,
            self.admission.sessions.borrow().len(),
            self.txn.locks.held(),
            self.txn.locks.waits(),
            parts,
            deciding,
            s.operations,
            s.replayed,
            s.commits,
            s.aborts,
            s.busy,
            s.peer_calls,
            s.in_doubt,
            space.total,
            space.available,
            self.low_on_space(),
            s.announced,
            s.outdated,
            s.forged,
            self.heard_upto(),
            self.map().moves_from(self.id).count(),
            moved.sent,
            moved.given,
            moved.taken,
            moved.broken_off,
            moved.longest_pause,
            self.slots.cuts.longest().as_micros(),
            open,
            awaited,
            file_locks,
            file_lock_waits,
            removed.files,
            removed.bytes,
            removed.held,
            bulk.leases,
            bulk.batches,
            bulk.entries,
            bulk.refused,
            self.handing_over(),
            self.stuck_slots(),
            self.store.records(),
            split.given,
            split.taken,
            split.sent,
            split.broken_off,
            split.longest_pause,
            split.swept,
            s.leases,
            s.lease_waits,
            self.leased_directories(),
        )
    }
}
