//! File data by (inode, generation, block number): where the bytes of files above the inline limit are.
//!
//! Metadata is published after the data it speaks of was stored. A block that was never written reads as
//! zeros.

pub mod conformance;
mod dir;
mod floor;
mod mem;
pub mod names;
mod pages;
pub mod sealed;
mod wait;

pub use dir::DirBlocks;
pub use floor::Stores;
pub use mem::{BlockCall, MemBlocks};
pub use wait::wait;

use pando_types::{Generation, Ino, Timestamp};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use thiserror::Error;

/// A future of the single-threaded world.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Whose block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileKey {
    /// The file.
    pub ino: Ino,
    /// Its incarnation: a reused number never shows old bytes (H97).
    pub generation: Generation,
}

/// Why data was not read or stored.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BlockError {
    /// The block store has no room.
    #[error("no space left in the block store")]
    NoSpace,
    /// It failed.
    #[error("block store: {0}")]
    Device(String),
    /// The bytes of a block are not those that were written.
    #[error(
        "a block of file data is damaged: {0}; restore it from a backup, or remove or overwrite the file"
    )]
    Damaged(String),
    /// Who we are is not enough, or not right.
    #[error(
        "the block store refuses us: {0}; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, and what this key may do"
    )]
    Denied(String),
    /// There is no such store.
    #[error("{0}; check the name, and make it first, or start with the data that belong to this filesystem")]
    Missing(String),
    /// It does not answer.
    #[error(
        "the block store cannot be reached: {0}; check the network, AWS_ENDPOINT_URL and whether the service runs"
    )]
    Unreachable(String),
    /// A removal has begun and goes on; ask again whether it is done.
    #[error("the blocks are being removed")]
    Later,
}

/// A store of file data.
///
/// Writes and cuts are seen at once by every reader of the same store; only [`Blocks::sync`] makes them
/// survive a power failure.
pub trait Blocks {
    /// Reads up to `len` bytes at `offset` within a block; shorter, or empty, where nothing was written.
    fn read(
        &self,
        file: FileKey,
        block: u64,
        offset: u32,
        len: u32,
    ) -> LocalFuture<Result<Vec<u8>, BlockError>>;

    /// Writes at `offset` within a block, filling a gap before it with zeros.
    fn write(
        &self,
        file: FileKey,
        block: u64,
        offset: u32,
        data: Vec<u8>,
    ) -> LocalFuture<Result<(), BlockError>>;

    /// The same for bytes that are needed again if it fails.
    fn write_shared(
        &self,
        file: FileKey,
        block: u64,
        offset: u32,
        data: Arc<Vec<u8>>,
    ) -> LocalFuture<Result<(), BlockError>> {
        self.write(file, block, offset, data.to_vec())
    }

    /// Cuts a block to `len` bytes (0: removes it). What is cut reads as zeros afterwards.
    fn truncate(&self, file: FileKey, block: u64, len: u32) -> LocalFuture<Result<(), BlockError>>;

    /// Makes everything written to, cut from or removed from these blocks survive a power failure. A block
    /// that is not there is no error.
    fn sync(&self, file: FileKey, blocks: Vec<u64>) -> LocalFuture<Result<(), BlockError>>;

    /// The numbers of the blocks of `from..to` that are stored, in order. `to` may be `u64::MAX`.
    fn present(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<Vec<u64>, BlockError>>;

    /// The same, and how many bytes there are of each.
    fn stored(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<Vec<StoredBlock>, BlockError>>;

    /// Removes blocks `from..to` of a file. Idempotent; a file that is not there is no error. `to` may be
    /// `u64::MAX`: all that follow. Whoever deletes a file asks for `0..u64::MAX`, never for a range computed
    /// from its size: a writer that crashed before it published, or a truncate, may have left blocks past the
    /// end.
    fn remove(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<(), BlockError>>;

    /// How many bytes more it has room for now. `None`: it does not know, and takes what it is given.
    fn room(&self) -> LocalFuture<Result<Option<u64>, BlockError>>;
}

/// What a store has of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredBlock {
    /// Its number in the file.
    pub number: u64,
    /// How many bytes of it there are, from its beginning. What was never written between others counts.
    pub bytes: u32,
}

/// What a store has of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredFile {
    /// The file.
    pub file: FileKey,
    /// How many blocks.
    pub blocks: u64,
    /// How much space, about.
    pub bytes: u64,
    /// When the last of them was written, by the store's clock.
    pub newest: Timestamp,
}

impl StoredFile {
    /// Nothing yet.
    pub fn new(file: FileKey, newest: Timestamp) -> StoredFile {
        StoredFile {
            file,
            blocks: 0,
            bytes: 0,
            newest,
        }
    }

    /// One block more.
    pub fn add(&mut self, bytes: u64, written: Timestamp) {
        self.blocks += 1;
        self.bytes += bytes;
        self.newest = self.newest.max(written);
    }
}

/// A store that can say what it has.
pub trait Listing {
    /// The files of one of the 256 parts ([`names::part`]).
    fn files(&self, part: u8) -> LocalFuture<Result<Vec<StoredFile>, BlockError>>;
}
