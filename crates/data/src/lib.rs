//! File data by (inode, generation, block number): where the bytes of files above the inline limit are.
//!
//! Metadata is published after the data it speaks of was stored. A block that was never written reads as zeros.

pub mod conformance;
mod dir;
mod mem;

pub use dir::DirBlocks;
pub use mem::{BlockCall, MemBlocks};

use pando_types::{Generation, Ino};
use std::future::Future;
use std::pin::Pin;
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
}

/// A store of file data.
///
/// Writes and cuts are seen at once by every reader of the same store; only [`Blocks::sync`] makes them survive a
/// power failure.
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

    /// Cuts a block to `len` bytes (0: removes it). What is cut reads as zeros afterwards.
    fn truncate(&self, file: FileKey, block: u64, len: u32) -> LocalFuture<Result<(), BlockError>>;

    /// Makes everything written to, cut from or removed from these blocks survive a power failure. A block that is
    /// not there is no error.
    fn sync(&self, file: FileKey, blocks: Vec<u64>) -> LocalFuture<Result<(), BlockError>>;

    /// Removes blocks `from..to` of a file. Idempotent; a file that is not there is no error. `to` may be
    /// `u64::MAX`: all that follow. Whoever deletes a file asks for `0..u64::MAX`, never for a range computed from
    /// its size: a writer that crashed before it published, or a truncate, may have left blocks past the end.
    fn remove(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<(), BlockError>>;
}
