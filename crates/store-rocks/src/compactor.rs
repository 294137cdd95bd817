//! The thread that asks RocksDB to rewrite tables, a round at a time.

use crate::pressure::Round;
use crate::{clean, families, files, tables};
use rocksdb::{CompactOptions, DB, FlushOptions};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A round reads about so many bytes of tables at most.
const ROUND: u64 = 2 << 30;

/// What the thread is told, and tells.
#[derive(Debug)]
pub(crate) struct Compactor {
    /// The store's folder.
    path: PathBuf,
    state: Mutex<State>,
    due: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// A round was asked for and has not ended.
    asked: bool,
    ended: Option<Round>,
    stop: bool,
}

impl Compactor {
    pub fn new(path: PathBuf) -> Compactor {
        Compactor {
            path,
            state: Mutex::default(),
            due: Condvar::new(),
        }
    }

    /// Asks for a round. REQUIRES: none runs.
    pub fn ask(&self) {
        self.lock().asked = true;
        self.due.notify_all();
    }

    /// Whether one runs.
    pub fn runs(&self) -> bool {
        self.lock().asked
    }

    /// What came of the last one, once.
    pub fn ended(&self) -> Option<Round> {
        self.lock().ended.take()
    }

    /// Ends the thread, and what RocksDB does for it.
    pub fn stop(&self, db: &DB) {
        let mut state = self.lock();
        state.stop = true;
        let runs = state.asked;
        drop(state);
        self.due.notify_all();
        if runs {
            db.cancel_all_background_work(false);
        }
    }

    /// What the thread runs.
    pub fn serve(&self, db: &DB) {
        loop {
            let mut state = self.lock();
            while !state.asked && !state.stop {
                state = self.due.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.stop {
                return;
            }
            drop(state);
            let round = self.round(db);
            let mut state = self.lock();
            state.asked = false;
            state.ended = Some(round);
        }
    }

    fn round(&self, db: &DB) -> Round {
        let began = Instant::now();
        let (mut first, mut last, mut more) = (None, 0, false);
        let (mut tried, mut read) = (BTreeSet::new(), 0);
        // An error is RocksDB's, which writes nothing from then on; the next write tells.
        let mut whole = FlushOptions::default();
        whole.set_wait(true);
        let flushed = families::flush(db, &whole);
        let rows = clean::bytes(db).all;
        while let (Ok(()), Ok(all)) = (&flushed, tables::all(db)) {
            last = all.iter().map(|t| t.bytes).sum();
            first.get_or_insert(last);
            let room = files::space(&self.path).available;
            let Some(piece) = tables::next(&all, &tried, room) else {
                break;
            };
            more = read >= ROUND;
            if more || self.lock().stop {
                break;
            }
            read += piece.bytes;
            let mut options = CompactOptions::default();
            options.set_exclusive_manual_compaction(false);
            db.compact_range_opt(Some(&piece.start), Some(&piece.end), &options);
            tried.insert(piece.table);
        }
        // Rows take more than the tables that their briefs are in.
        if flushed.is_ok() && !self.lock().stop {
            // As above.
            let _ = clean::some(db, files::space(&self.path).available);
        }
        let rows = rows.saturating_sub(clean::bytes(db).all);
        Round {
            freed: first.unwrap_or(last).saturating_sub(last) + rows,
            more,
            took: began.elapsed(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
