//! Bulk insertion (IndexFS §II-D): leases of localised directories, and the tables that are inserted.
//!
//! A lease is a record beside the directory's head, and a bit in the head says that there may be one. Whoever
//! comes into the directory looks at it (`namespace`), is told to come again, and is noted: the lease is not
//! renewed any more. Time decides only when a lease ends, never whether a batch may be inserted: what is
//! inserted names the lease, and there is one as long as its record is there (H55).

mod bases;
mod insert;
mod lease;
pub(crate) mod validate;

use pando_types::{DirId, Mono};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Numbers for what is made: with the lease, and each time when more are asked for.
const NUMBERS: (u64, u64) = (4096, 65_536);

/// What is known of a lease besides its record.
struct Known {
    until: Mono,
    /// Somebody else came: it is not renewed any more.
    wanted: bool,
    /// It is being ended.
    ending: bool,
}

/// What this room knows.
#[derive(Default)]
pub(crate) struct State {
    leases: RefCell<BTreeMap<DirId, Known>>,
    /// Whether a table is being examined: one after the other.
    examining: Cell<bool>,
    counts: Cell<Counts>,
}

/// What was done since the server started.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Leases of directories.
    pub leases: u64,
    /// Batches inserted.
    pub batches: u64,
    /// Entries that they brought.
    pub entries: u64,
    /// Tables that were refused.
    pub refused: u64,
}

impl State {
    fn count(&self, f: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        f(&mut counts);
        self.counts.set(counts);
    }

    /// So far.
    pub fn counts(&self) -> Counts {
        self.counts.get()
    }
}
