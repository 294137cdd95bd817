//! The store behind a metadata server: records by key with atomic batches and a log position. What is read
//! together is said by a [`Scan`], so that a store may keep it otherwise than in an ordered map of encoded
//! keys.
//!
//! A store knows records and batches, nothing of servers, slots' owners or operations. Every implementation
//! passes the suite in `conformance`. One task applies at a time (the server's event loop), so `apply` needs
//! no locking inside.
//!
//! Positions ([`Lsn`]) count the batches of one opening. What a store holds when it was opened is synced
//! before `open` returns: a reopened store may serve what a killed predecessor wrote and never synced, and
//! what was served must not be lost afterwards (rule 8).

mod bundle;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod disk;
mod mem;

pub use bundle::RawRecord;
pub use disk::{Disk, DiskFaults, NoFaults};
pub use mem::MemStore;
pub use pando_format::{Batch, Key, KeyRange, Mutation, Record, Remains, ReplyWrite, Scan};

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use thiserror::Error;

/// A future of the single-threaded world that servers and clients live in.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// A position in a store's log: the number of batches applied since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lsn(pub u64);

/// What `durable` means on this store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Durable when fdatasync returned; grouped.
    Sync,
    /// Durable when the kernel has the log record; synced every 5 s or 256 KiB.
    Async,
}

/// How safe a position must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// By the store's [`Durability`]: what replies wait for.
    Durable,
    /// On the device in either mode: what votes, decisions and confirmations wait for (H38, H40).
    Synced,
}

/// A read that a memory hit completes at once, while a disk miss does not block the event loop.
pub enum Read<T> {
    /// Here it is.
    Ready(Result<T, StoreError>),
    /// It will come.
    Pending(LocalFuture<Result<T, StoreError>>),
}

impl<T> Read<T> {
    /// Waits if need be.
    pub async fn wait(self) -> Result<T, StoreError> {
        match self {
            Read::Ready(r) => r,
            Read::Pending(f) => f.await,
        }
    }
}

/// Free space, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Size of the device or quota.
    pub total: u64,
    /// What is left of it.
    pub available: u64,
    /// Which device: stores on one say the same. 0: not known.
    pub device: u64,
}

/// Counts since the store was opened. What a store has nothing of is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Batches applied.
    pub batches: u64,
    /// Bytes of them in the log.
    pub wal_bytes: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Reads completed inline, from memory.
    pub hits: u64,
    /// Of them, those answered by records that are kept decoded or encoded in front of everything else.
    pub record_hits: u64,
    /// Reads that went to the device.
    pub misses: u64,
    /// Bytes in table files.
    pub table_bytes: u64,
    /// Bytes of caches of blocks in use.
    pub cache_bytes: u64,
    /// Bytes of records in front of them, about.
    pub record_bytes: u64,
    /// Bytes waiting for compaction: when this grows without end, the device is too slow.
    pub compaction_debt_bytes: u64,
}

/// Records of a scan, opaque: written by `export`, understood by `ingest` of any store of the same format.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bundle(pub Vec<u8>);

/// A part of a scan, and what is left of it: of an ordered store [`Scan::Rest`] with the first key.
pub type Exported = (Bundle, Option<Scan>);

/// Why a store did not do what was asked.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum StoreError {
    /// A write or sync failed before. Nothing more is written; the server must stop (H103).
    #[error(
        "the store stopped after a failed write ({0}); the server must be restarted once the device is sound"
    )]
    Poisoned(String),
    /// RocksDB found a table to be damaged while it wrote or rewrote. Nothing more is written; what can be
    /// read is served no more either.
    #[error(
        "a table of the store is damaged ({0}): `pando fsck --repair` where the server runs, or `pando server --id N --salvage` while it does not run, makes the store anew of what is left"
    )]
    DamagedTable(String),
    /// A record does not decode or its checksum does not match. It is reported, never served.
    #[error(
        "damaged record at key {key}: {why}; `pando fsck` says what it is, `pando fsck --repair` repairs what can be repaired"
    )]
    Corrupt {
        /// The key in hexadecimal.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// The store was written by a newer version.
    #[error("the store has format {found}, this program understands up to {known}; use a newer pando")]
    NewerFormat {
        /// In the superblock.
        found: u32,
        /// [`pando_format::FORMAT_VERSION`].
        known: u32,
    },
    /// Another process has the store open.
    #[error("the store at {0} is open in another process; stop that server first")]
    Locked(PathBuf),
    /// It was made as another kind, which it stays.
    #[error(
        "the store at {path} is of kind {is}, and stays that. For one of kind {wanted} let a new server join (`pando join --store-kind {wanted}`), then drain this one"
    )]
    OtherKind {
        /// Its folder.
        path: PathBuf,
        /// What it is.
        is: &'static str,
        /// What was asked for.
        wanted: &'static str,
    },
    /// The device failed a read, or the store could not be opened.
    #[error("store: {0}")]
    Device(String),
}

impl StoreError {
    /// The record under `key` (encoded) is damaged.
    pub fn corrupt(key: &[u8], why: impl std::fmt::Display) -> StoreError {
        let key = key.iter().map(|b| format!("{b:02x}")).collect();
        StoreError::Corrupt {
            key,
            why: why.to_string(),
        }
    }
}

/// Records by key, with a log.
pub trait Store {
    /// The record under `key`.
    fn get(&self, key: &Key) -> Read<Option<Record>>;

    /// Up to `limit` records of a scan, in key order.
    fn list(&self, scan: &Scan, limit: usize) -> Read<Vec<(Key, Record)>>;

    /// The same for those who want names alone: of an entry its ordinal counts, and the identity and kind of
    /// its target. The rest may be any value, so that a store need not read it.
    fn names(&self, scan: &Scan, limit: usize) -> Read<Vec<(Key, Record)>> {
        self.list(scan, limit)
    }

    /// Applies a batch atomically; later reads see it at once. It is not durable yet: see [`Store::wait`].
    /// `Insert` of a present key, a touch of an absent directory and a count below zero are broken invariants
    /// and panic; so is `Insert` of the head of a directory in which there is something, which need not be
    /// noticed. `Update` of an absent key creates it, `Delete` of an absent key does nothing.
    fn apply(&self, batch: &Batch) -> Result<Lsn, StoreError>;

    /// Hint: the record `key` with this version is obsolete. The store may drop it, at any time or never.
    /// Afterwards an older record, or after reopening this record, may be visible under the key. The version
    /// of a reply is its sequence; other records have none.
    fn obsolete(&self, key: &Key, version: u64);

    /// Position of the last applied batch.
    fn applied(&self) -> Lsn;

    /// Position up to which everything is safe at `level`.
    fn safe(&self, level: Level) -> Lsn;

    /// Errs once something could not be written or synced: nothing is any more (H103). Who writes or waits
    /// hears so anyway.
    fn check(&self) -> Result<(), StoreError>;

    /// Which of the two it keeps.
    fn durability(&self) -> Durability;

    /// Completes when everything up to `lsn` is safe at `level`. Concurrent waiters share one sync.
    /// REQUIRES: this opening of the store has given out `lsn`. Dropping the future is harmless.
    fn wait(&self, lsn: Lsn, level: Level) -> LocalFuture<Result<(), StoreError>>;

    /// The first records of a scan, until they have so many bytes, and at least one; and what of the scan is
    /// left. What is written meanwhile may or may not be among them.
    fn export(&self, scan: &Scan, bytes: usize) -> Read<Exported>;

    /// Writes the records of a bundle, in the place of those that are there.
    fn ingest(&self, bundle: &Bundle) -> Result<Lsn, StoreError>;

    /// Deletes all records of a scan.
    fn delete_range(&self, scan: &Scan) -> Result<Lsn, StoreError>;

    /// What is left of a scan that cannot be read, because a part of the store is damaged; of what can be
    /// read, nothing.
    fn remains(&self, scan: &Scan) -> Read<Remains> {
        let _ = scan;
        Read::Ready(Ok(Remains::default()))
    }

    /// Everything as it is at one instant between now and when this completes, whatever is written
    /// afterwards.
    fn picture(&self) -> LocalFuture<Result<Rc<dyn Picture>, StoreError>>;

    /// Free space now.
    fn space(&self) -> Space;

    /// About how many records it has.
    fn records(&self) -> u64;

    /// What it has counted.
    fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// A store as it was at one instant. Keeping it costs the space of what was replaced or deleted since.
pub trait Picture {
    /// As [`Store::export`].
    fn export(&self, scan: &Scan, bytes: usize) -> LocalFuture<Result<Exported, StoreError>>;
}
