//! Blocks as files in a directory of an existing filesystem.
//!
//! `ROOT/xx/INO-GENERATION/BLOCK`: two hexadecimal digits of fan-out, so that no directory grows with the number of
//! files, then inode and generation in hexadecimal, then the block number in decimal. The futures do their work at
//! the first poll: a caller that must not wait runs them where waiting is allowed.

use crate::{BlockError, Blocks, FileKey, LocalFuture};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A range of at most so many blocks is removed name by name, a longer one by listing what is there.
const REMOVE_BY_NAME: u64 = 64;

/// A writer creates a file's directory again if a remover takes the empty one away in between. Each lost race is a
/// removal that somebody asked for, so only something else that is wrong with the path ever comes to this limit.
const CREATE_ATTEMPTS: u32 = 10_000;

/// Blocks in a directory. The permissions of that directory decide who can mount with file data; what is created
/// inside is its creator's alone.
#[derive(Clone, Debug)]
pub struct DirBlocks {
    root: PathBuf,
}

impl DirBlocks {
    /// The blocks under `root`, which must exist: a data filesystem that is not mounted must be noticed, and not be
    /// taken for an empty one.
    pub fn open(root: impl Into<PathBuf>) -> Result<DirBlocks, BlockError> {
        let root = root.into();
        match fs::metadata(&root) {
            Ok(m) if m.is_dir() => Ok(DirBlocks { root }),
            Ok(_) => Err(BlockError::Device(format!(
                "{} is not a directory",
                root.display()
            ))),
            Err(e) => Err(device(&root, &e)),
        }
    }

    /// Makes `root` if it is not there, and opens it.
    pub fn create(root: impl Into<PathBuf>) -> Result<DirBlocks, BlockError> {
        let root = root.into();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&root)
            .map_err(|e| device(&root, &e))?;
        DirBlocks::open(root)
    }

    fn fan_out(&self, file: FileKey) -> PathBuf {
        // Inode numbers are a slot above a counter: mix, so that one busy slot is spread too.
        let mixed = file.ino.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        self.root.join(format!("{mixed:02x}"))
    }

    fn dir(&self, file: FileKey) -> PathBuf {
        self.fan_out(file)
            .join(format!("{:016x}-{:016x}", file.ino.0, file.generation.0))
    }

    fn path(&self, file: FileKey, block: u64) -> PathBuf {
        self.dir(file).join(block.to_string())
    }

    fn read_now(&self, file: FileKey, block: u64, offset: u32, len: u32) -> Result<Vec<u8>, BlockError> {
        let path = self.path(file, block);
        let f = match File::open(&path) {
            Ok(f) => f,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(device(&path, &e)),
        };
        let mut data = vec![0; len as usize];
        let mut filled = 0;
        while filled < data.len() {
            match f.read_at(&mut data[filled..], u64::from(offset) + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(device(&path, &e)),
            }
        }
        data.truncate(filled);
        Ok(data)
    }

    fn open_for_write(&self, path: &Path, file: FileKey) -> Result<File, BlockError> {
        let mut attempts = 0;
        loop {
            match OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(path)
            {
                Ok(f) => return Ok(f),
                Err(e) if e.kind() == ErrorKind::NotFound && attempts < CREATE_ATTEMPTS => {
                    attempts += 1;
                    std::thread::yield_now();
                    self.make_dir(file)?;
                }
                Err(e) => return Err(device(path, &e)),
            }
        }
    }

    fn make_dir(&self, file: FileKey) -> Result<(), BlockError> {
        let make = |path: &Path| match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(device(path, &e)),
        };
        // The root is never made here: see `open`. A new fan-out directory is durable at once, which happens 256
        // times in a filesystem's life; the file's own directory is made durable by `sync`.
        if make(&self.fan_out(file))? {
            sync_path(&self.root)?;
        }
        make(&self.dir(file)).map(|_| ())
    }

    fn write_now(&self, file: FileKey, block: u64, offset: u32, data: &[u8]) -> Result<(), BlockError> {
        let path = self.path(file, block);
        let f = self.open_for_write(&path, file)?;
        f.write_all_at(data, u64::from(offset))
            .map_err(|e| device(&path, &e))
    }

    fn truncate_now(&self, file: FileKey, block: u64, len: u32) -> Result<(), BlockError> {
        let path = self.path(file, block);
        if len == 0 {
            return absent_is_fine(fs::remove_file(&path)).map_err(|e| device(&path, &e));
        }
        let f = match OpenOptions::new().write(true).open(&path) {
            Ok(f) => f,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(device(&path, &e)),
        };
        let cut = f.metadata().and_then(|m| {
            if m.len() > u64::from(len) {
                f.set_len(u64::from(len))
            } else {
                Ok(())
            }
        });
        cut.map_err(|e| device(&path, &e))
    }

    fn sync_now(&self, file: FileKey, blocks: &[u64]) -> Result<(), BlockError> {
        for block in blocks {
            let path = self.path(file, *block);
            match File::open(&path) {
                Ok(f) => f.sync_data().map_err(|e| device(&path, &e))?,
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(device(&path, &e)),
            }
        }
        // A block's name and its directory's name must survive too (H104).
        sync_path(&self.dir(file))?;
        sync_path(&self.fan_out(file))
    }

    fn remove_now(&self, file: FileKey, from: u64, to: u64) -> Result<(), BlockError> {
        let dir = self.dir(file);
        if to.saturating_sub(from) <= REMOVE_BY_NAME {
            for block in from..to {
                let path = self.path(file, block);
                absent_is_fine(fs::remove_file(&path)).map_err(|e| device(&path, &e))?;
            }
        } else {
            let entries = match fs::read_dir(&dir) {
                Ok(e) => e,
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
                Err(e) => return Err(device(&dir, &e)),
            };
            for entry in entries {
                let entry = entry.map_err(|e| device(&dir, &e))?;
                let number = entry.file_name().to_str().and_then(|n| n.parse::<u64>().ok());
                if number.is_some_and(|n| n >= from && n < to) {
                    absent_is_fine(fs::remove_file(entry.path())).map_err(|e| device(&entry.path(), &e))?;
                }
            }
        }
        match fs::remove_dir(&dir) {
            Err(e) if e.kind() != ErrorKind::NotFound && e.kind() != ErrorKind::DirectoryNotEmpty => {
                Err(device(&dir, &e))
            }
            _ => Ok(()),
        }
    }
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn sync_path(dir: &Path) -> Result<(), BlockError> {
    match File::open(dir) {
        Ok(d) => d.sync_all().map_err(|e| device(dir, &e)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(device(dir, &e)),
    }
}

fn device(path: &Path, e: &io::Error) -> BlockError {
    match e.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => BlockError::NoSpace,
        _ => BlockError::Device(format!("{}: {e}", path.display())),
    }
}

impl Blocks for DirBlocks {
    fn read(
        &self,
        file: FileKey,
        block: u64,
        offset: u32,
        len: u32,
    ) -> LocalFuture<Result<Vec<u8>, BlockError>> {
        let this = self.clone();
        Box::pin(async move { this.read_now(file, block, offset, len) })
    }

    fn write(
        &self,
        file: FileKey,
        block: u64,
        offset: u32,
        data: Vec<u8>,
    ) -> LocalFuture<Result<(), BlockError>> {
        let this = self.clone();
        Box::pin(async move { this.write_now(file, block, offset, &data) })
    }

    fn truncate(&self, file: FileKey, block: u64, len: u32) -> LocalFuture<Result<(), BlockError>> {
        let this = self.clone();
        Box::pin(async move { this.truncate_now(file, block, len) })
    }

    fn sync(&self, file: FileKey, blocks: Vec<u64>) -> LocalFuture<Result<(), BlockError>> {
        let this = self.clone();
        Box::pin(async move { this.sync_now(file, &blocks) })
    }

    fn remove(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<(), BlockError>> {
        let this = self.clone();
        Box::pin(async move { this.remove_now(file, from, to) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, now};
    use pando_types::{Generation, Ino};

    const FILE: FileKey = FileKey {
        ino: Ino(7),
        generation: Generation(1),
    };

    #[test]
    fn conforms() {
        let tmp = tempfile::tempdir().unwrap();
        let n = std::cell::Cell::new(0);
        conformance::run(|| {
            n.set(n.get() + 1);
            Box::new(DirBlocks::create(tmp.path().join(n.get().to_string())).unwrap())
        });
    }

    #[test]
    fn a_missing_root_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        assert!(matches!(
            DirBlocks::open(tmp.path().join("none")),
            Err(BlockError::Device(_))
        ));
        let b = DirBlocks::create(tmp.path().join("data")).unwrap();
        fs::remove_dir_all(tmp.path().join("data")).unwrap();
        // Unmounted under us: an error, not a new empty store.
        assert!(matches!(
            now(b.write(FILE, 0, 0, vec![1])),
            Err(BlockError::Device(_))
        ));
    }

    #[test]
    fn empty_directories_go() {
        let tmp = tempfile::tempdir().unwrap();
        let b = DirBlocks::create(tmp.path()).unwrap();
        now(b.write(FILE, 0, 0, vec![1])).unwrap();
        assert!(b.dir(FILE).exists());
        now(b.remove(FILE, 0, 1)).unwrap();
        assert!(!b.dir(FILE).exists());
    }

    #[test]
    fn writers_win_against_removers() {
        let tmp = tempfile::tempdir().unwrap();
        let b = DirBlocks::create(tmp.path()).unwrap();
        let remover = b.clone();
        std::thread::scope(|s| {
            s.spawn(move || {
                for _ in 0..2000 {
                    remover.remove_now(FILE, 0, 1).unwrap();
                }
            });
            for _ in 0..2000 {
                b.write_now(FILE, 0, 0, b"x").unwrap();
            }
        });
    }
}
