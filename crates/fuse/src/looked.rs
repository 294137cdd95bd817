//! With timeout 0 the kernel asks twice of whoever looks at a file: LOOKUP, and then GETATTR of what that has
//! found. The second is answered from the first, if it is the next thing that the same thread asks, soon.
//!
//! What `stat` returns is then as of when it began, which is what it promises. A look of its own that happens
//! to be the next thing (`fstat` of a directory, or of what was opened with O_PATH) can lack by [`SOON`] what
//! another mount has changed; if anything was changed on this one meanwhile, it is asked for. Files that are
//! open here are never shown so: the kernel goes by their size.

use crate::core::Shown;
use crate::open::FileSlot;
use foldhash::HashMap;
use pando_types::Ino;
use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between the answer to the first and the second.
const SOON: Duration = Duration::from_millis(1);
/// Threads that have looked and asked nothing since. Beyond them all are forgotten.
const THREADS: usize = 1024;

/// What a LOOKUP has found.
struct Found {
    shown: Shown,
    /// Of a regular file, with the version of its content when it was last closed here.
    slot: Option<(Arc<FileSlot>, u64)>,
    /// [Changes](pando_client::Contents::changes) on this mount before it was asked for.
    changes: u64,
    at: Instant,
}

/// What each thread has just found.
#[derive(Default)]
pub(crate) struct Looked(Mutex<HashMap<u32, Found>>);

thread_local! {
    /// What the thread that asks this thread had found right before.
    static BEFORE: Cell<Option<Found>> = const { Cell::new(None) };
}

impl Looked {
    /// A thread asks something, and is served by this thread.
    pub fn asks(&self, pid: u32) {
        let found = match pid {
            0 => None,
            pid => self.lock().remove(&pid),
        };
        BEFORE.set(found);
    }

    /// It has found this, asking after so many changes.
    pub fn found(&self, pid: u32, shown: &Shown, slot: Option<Arc<FileSlot>>, changes: u64) {
        let slot = match slot {
            None => None,
            Some(slot) => {
                let state = slot.read();
                if state.open.is_some() {
                    return;
                }
                let version = state.version;
                drop(state);
                Some((slot, version))
            }
        };
        if pid == 0 {
            return;
        }
        let mut by = self.lock();
        if by.len() >= THREADS {
            by.clear();
        }
        let found = Found {
            shown: shown.clone(),
            slot,
            changes,
            at: Instant::now(),
        };
        by.insert(pid, found);
    }

    /// What the thread that asks had found right before, if it was this and can be told once more.
    pub fn just_now(&self, ino: Ino, changes: u64) -> Option<Shown> {
        let found = BEFORE.take().filter(|found| found.changes == changes)?;
        let unchanged = found.slot.is_none_or(|(slot, version)| {
            let state = slot.read();
            state.open.is_none() && state.version == version
        });
        let same = found.shown.attr.ino.0 == ino.0;
        (same && unchanged && found.at.elapsed() < SOON).then_some(found.shown)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
