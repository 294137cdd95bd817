//! Where file data is, as the cluster map says it: `file:FOLDER` or `s3://BUCKET/PREFIX`.
//!
//! [`Store`] is what mounts, commands and servers use. What goes wrong with it is logged here, in words:
//! programs only see EIO.

mod aside;
mod folder;
mod later;
mod mark;
mod runtime;
mod s3;
mod trouble;

pub use aside::Aside;
pub use later::{Later, Place};
pub use s3::{S3Blocks, S3Settings};

use pando_data::{BlockError, Blocks, DirBlocks, FileKey, Listing, LocalFuture, StoredBlock, StoredFile};
use pando_types::FsId;
use std::path::Path;
use std::sync::Arc;

/// What places of blocks in a folder begin with.
/// The prefix of a place that is a folder.
pub const FOLDER: &str = "file:";
/// What places of blocks in a bucket begin with.
const BUCKET: &str = "s3://";

/// Whether a place is a bucket and not a folder.
pub fn is_bucket(place: &str) -> bool {
    place.starts_with(BUCKET)
}

fn is_in(path: &str, own: Option<&Path>) -> bool {
    own.is_some_and(|own| Path::new(path).starts_with(own))
}

/// A block store. Clones use the same, on any thread.
#[derive(Clone, Debug)]
pub enum Store {
    /// One that is open.
    Open(Opened),
    /// One that is opened once bytes are needed.
    Later(Later),
}

/// A block store that is open.
#[derive(Clone, Debug)]
pub enum Opened {
    /// Files in a folder.
    Dir(DirBlocks),
    /// Objects in a bucket.
    S3(S3Blocks),
}

impl Opened {
    fn new(place: &str, block_size: u32, fs: FsId, own: Option<&Path>) -> Result<Opened, BlockError> {
        if let Some(path) = place.strip_prefix(FOLDER) {
            return Ok(Opened::Dir(folder::open(path, fs, is_in(path, own))?));
        }
        let settings = S3Settings::of_process();
        let opened = S3Blocks::open_with(place, block_size, &settings.of(fs))?;
        Ok(Opened::S3(opened))
    }

    fn blocks(&self) -> &dyn Blocks {
        match self {
            Opened::Dir(b) => b,
            Opened::S3(b) => b,
        }
    }
}

impl Store {
    /// The store of filesystem `fs` at `place`, for blocks of so many bytes. A folder must be there, and not
    /// be another filesystem's; a bucket is asked at the first use.
    pub fn open(place: &str, block_size: u32, fs: FsId) -> Result<Store, BlockError> {
        Store::open_in(place, block_size, fs, None)
    }

    /// The same by who keeps things of this filesystem, and of no other, in the folder `own`: blocks in there
    /// need no mark.
    pub fn open_in(place: &str, block_size: u32, fs: FsId, own: Option<&Path>) -> Result<Store, BlockError> {
        Ok(Store::Open(Opened::new(place, block_size, fs, own)?))
    }

    /// The same, opened when it is first used: until then nothing can fail.
    pub fn later(place: Place) -> Store {
        Store::Later(Later::new(place))
    }

    /// Makes the store of filesystem `fs` at `place`: the folder, or what shows that this part of a bucket is
    /// one.
    pub fn create(place: &str, fs: FsId, own: Option<&Path>) -> Result<(), BlockError> {
        if let Some(path) = place.strip_prefix(FOLDER) {
            return folder::create(path, fs, is_in(path, own));
        }
        let settings = S3Settings::of_process();
        pando_data::wait(S3Blocks::open_with(place, 0, &settings.of(fs))?.create())
    }

    /// Whether it can be used. A folder was looked at when it was opened.
    pub fn check(&self) -> LocalFuture<Result<(), BlockError>> {
        match self.opened() {
            Ok(Opened::S3(s)) => s.check(),
            Ok(Opened::Dir(_)) => Box::pin(std::future::ready(Ok(()))),
            Err(e) => fails(e),
        }
    }

    /// Opens it, if it is not open yet.
    pub fn is_there(&self) -> Result<(), BlockError> {
        self.opened().map(drop)
    }

    fn opened(&self) -> Result<&Opened, BlockError> {
        match self {
            Store::Open(opened) => Ok(opened),
            Store::Later(later) => later.opened(),
        }
    }

    /// Has it do something.
    fn with<T: 'static>(
        &self,
        f: impl FnOnce(&dyn Blocks) -> LocalFuture<Result<T, BlockError>>,
    ) -> LocalFuture<Result<T, BlockError>> {
        match self.opened() {
            Ok(opened) => f(opened.blocks()),
            Err(e) => fails(e),
        }
    }
}

/// An error's reason, for a sentence that says that it is the block store's.
pub fn why(e: BlockError) -> String {
    match e {
        BlockError::Device(why) => why,
        e => e.to_string(),
    }
}

fn fails<T: 'static>(e: BlockError) -> LocalFuture<Result<T, BlockError>> {
    Box::pin(std::future::ready(Err(e)))
}

/// Tells the log what failed. A program is only told that something did.
fn told<T: 'static>(
    what: &'static str,
    file: FileKey,
    result: LocalFuture<Result<T, BlockError>>,
) -> LocalFuture<Result<T, BlockError>> {
    Box::pin(async move {
        let result = result.await;
        if let Err(e) = &result {
            let (ino, generation) = (file.ino.0, file.generation.0);
            tracing::error!(ino, generation, "{what} of file data failed: {e}");
        }
        result
    })
}

impl Blocks for Store {
    fn read(
        &self,
        file: FileKey,
        block: u64,
        offset: u32,
        len: u32,
    ) -> LocalFuture<Result<Vec<u8>, BlockError>> {
        told("reading", file, self.with(|b| b.read(file, block, offset, len)))
    }

    fn write(
        &self,
        file: FileKey,
        block: u64,
        offset: u32,
        data: Vec<u8>,
    ) -> LocalFuture<Result<(), BlockError>> {
        told("writing", file, self.with(|b| b.write(file, block, offset, data)))
    }

    fn write_shared(
        &self,
        file: FileKey,
        block: u64,
        offset: u32,
        data: Arc<Vec<u8>>,
    ) -> LocalFuture<Result<(), BlockError>> {
        let written = self.with(|b| b.write_shared(file, block, offset, data));
        told("writing", file, written)
    }

    fn truncate(&self, file: FileKey, block: u64, len: u32) -> LocalFuture<Result<(), BlockError>> {
        told("cutting", file, self.with(|b| b.truncate(file, block, len)))
    }

    fn sync(&self, file: FileKey, blocks: Vec<u64>) -> LocalFuture<Result<(), BlockError>> {
        told("syncing", file, self.with(|b| b.sync(file, blocks)))
    }

    fn present(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<Vec<u64>, BlockError>> {
        told("listing", file, self.with(|b| b.present(file, from, to)))
    }

    fn stored(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<Vec<StoredBlock>, BlockError>> {
        told("listing", file, self.with(|b| b.stored(file, from, to)))
    }

    fn remove(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<(), BlockError>> {
        told("removing", file, self.with(|b| b.remove(file, from, to)))
    }

    fn room(&self) -> LocalFuture<Result<Option<u64>, BlockError>> {
        let room = self.with(|b| b.room());
        Box::pin(async move {
            let room = room.await;
            if let Err(e) = &room {
                tracing::error!("asking for the space that is free for file data failed: {e}");
            }
            room
        })
    }
}

impl Listing for Store {
    fn files(&self, part: u8) -> LocalFuture<Result<Vec<StoredFile>, BlockError>> {
        match self.opened() {
            Ok(Opened::Dir(b)) => b.files(part),
            Ok(Opened::S3(b)) => b.files(part),
            Err(e) => fails(e),
        }
    }
}
