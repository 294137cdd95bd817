//! Counts for measurements.

use crate::{RocksStore, families};

/// Whether somebody measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watched {
    /// Nobody does.
    No,
    /// What compactions write is counted, and files of tables and rows are read and written past the kernel's
    /// cache (O_DIRECT).
    PastTheCache,
}

/// What compactions did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compactions {
    /// Bytes that those wrote that have ended.
    pub bytes: u64,
    /// There is something to do yet.
    pub under_way: bool,
}

impl RocksStore {
    /// What compactions did since it was opened, if it is [`Watched`].
    pub fn compactions(&self) -> Option<Compactions> {
        let all = self.counts.as_ref()?.get_statistics()?;
        let mut lines = all.lines();
        let bytes = lines.find_map(|line| line.strip_prefix("rocksdb.compact.write.bytes COUNT : "))?;
        let work = [
            "rocksdb.num-running-compactions",
            "rocksdb.num-running-flushes",
            "rocksdb.compaction-pending",
        ];
        Some(Compactions {
            bytes: bytes.trim().parse().ok()?,
            under_way: work.iter().any(|name| families::sum(&self.db, name) > 0),
        })
    }
}
