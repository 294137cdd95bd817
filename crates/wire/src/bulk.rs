//! Bulk insertion (IndexFS §II-D): a client localises an empty directory, makes what is below it by itself,
//! and inserts it as a table of records that it has put into the block store.

use pando_format::{NumberRun, codec_enum};
use pando_types::{Generation, Ino, Timestamp};

/// What is asked of a directory's server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bulk {
    /// The write lease of the directory, which must be empty.
    Localize,
    /// That the lease goes on.
    Renew {
        /// Which lease.
        lease: Generation,
        /// Numbers in the place of those that are left.
        more: bool,
    },
    /// The table of a batch is stored.
    Insert {
        /// By which lease.
        lease: Generation,
        /// Which batch: 0, 1, 2…
        batch: u64,
        /// Length of the table.
        bytes: u32,
        /// [`pando_format::table_sum`] of it.
        sum: [u8; 32],
    },
    /// The lease ends.
    Return {
        /// Which lease.
        lease: Generation,
    },
}

impl Bulk {
    /// The lease it is by; nothing if there is none yet.
    pub fn lease(&self) -> Option<Generation> {
        match self {
            Bulk::Localize => None,
            Bulk::Renew { lease, .. } | Bulk::Insert { lease, .. } | Bulk::Return { lease } => Some(*lease),
        }
    }
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bulked {
    /// The directory is the asker's.
    Localized {
        /// By this lease, whose number is also the generation of its table.
        lease: Generation,
        /// Inode number of the table.
        table: Ino,
        /// For so many milliseconds, counted from before it was asked for.
        millis: u32,
        /// The server's calendar time.
        now: Timestamp,
        /// Numbers for what is made.
        numbers: NumberRun,
    },
    /// The lease goes on.
    Renewed {
        /// For so many milliseconds, counted from before it was asked for. 0: no longer, because others wait
        /// for the directory.
        millis: u32,
        /// The server's calendar time.
        now: Timestamp,
        /// More numbers, if they were asked for.
        numbers: Option<NumberRun>,
    },
    /// The batch is in the tree, and synced.
    Inserted {
        /// Entries that it brought.
        entries: u64,
    },
    /// The lease is over.
    Returned,
}

codec_enum!(Bulk {
    1 => Localize, 2 => Renew { lease, more }, 3 => Insert { lease, batch, bytes, sum }, 4 => Return { lease }
});
codec_enum!(Bulked {
    1 => Localized { lease, table, millis, now, numbers }, 2 => Renewed { millis, now, numbers },
    3 => Inserted { entries }, 4 => Returned
});
