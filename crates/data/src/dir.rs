//! Blocks as files in a directory of an existing filesystem.
//!
//! `ROOT/xx/INO-GENERATION/BLOCK.1` ([`crate::names`]): 1 is the form of the file, with a checksum for each
//! page ([`crate::pages`]). Programs before wrote the bare bytes as `BLOCK`; such a block is read as it is,
//! and is brought into the new form by the first write to it. The futures do their work at the first poll: a
//! caller that must not wait runs them where waiting is allowed.

use crate::floor::{Floor, Reservation};
use crate::pages::{self, PageError};
use crate::{BlockError, Blocks, FileKey, Listing, LocalFuture, StoredBlock, StoredFile, names};
use pando_types::Timestamp;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A range of at most so many blocks is removed name by name, a longer one by listing what is there.
const REMOVE_BY_NAME: u64 = 64;

/// A writer creates a file's directory again if a remover takes the empty one away in between. Each lost race
/// is a removal that somebody asked for, so only something else that is wrong with the path ever comes to
/// this limit.
const CREATE_ATTEMPTS: u32 = 10_000;

/// What names of blocks end with, by their form.
const PAGED: &str = ".1";
/// A block that is being brought into the new form.
const UNFINISHED: &str = ".1.new";

/// Blocks in a directory. The permissions of that directory decide who can mount with file data; what is
/// created inside is its creator's alone.
#[derive(Clone, Debug)]
pub struct DirBlocks {
    root: PathBuf,
    /// A file in it without which it is not what it was.
    mark: Option<PathBuf>,
    floor: Arc<Floor>,
}

/// A block's file.
enum Form {
    /// With checksums.
    Paged(File),
    /// Its bare bytes, as programs before wrote it.
    Bare(File),
}

impl DirBlocks {
    /// The blocks under `root`, which must exist: a data filesystem that is not mounted must be noticed, and
    /// not be taken for an empty one.
    pub fn open(root: impl Into<PathBuf>) -> Result<DirBlocks, BlockError> {
        let root = root.into();
        match fs::metadata(&root) {
            Ok(m) if m.is_dir() => Ok(DirBlocks {
                floor: Arc::new(Floor::of(&root)),
                root,
                mark: None,
            }),
            Ok(_) => Err(BlockError::Device(format!(
                "{} is not a directory",
                root.display()
            ))),
            Err(e) => Err(device(&root, &e)),
        }
    }

    /// From now on, where nothing is, it is made sure that this file is: else the disk was unmounted
    /// meanwhile.
    pub fn marked_by(mut self, name: &str) -> DirBlocks {
        self.mark = Some(self.root.join(name));
        self
    }

    /// Nothing is found of this file. Is this still the store?
    fn sure(&self, file: FileKey) -> Result<(), BlockError> {
        match &self.mark {
            Some(mark) if !self.fan_out(file).exists() && !mark.exists() => Err(BlockError::Device(format!(
                "{} is not there any more: was the disk with the blocks unmounted? It must be mounted again",
                mark.display()
            ))),
            _ => Ok(()),
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

    /// Whether nothing was ever written to it.
    pub fn is_empty(&self) -> Result<bool, BlockError> {
        let parts: Vec<String> = (0..=u8::MAX).map(names::part_name).collect();
        let is_part = |e: &fs::DirEntry| {
            e.file_name()
                .to_str()
                .is_some_and(|n| parts.iter().any(|p| p == n))
        };
        Ok(!list(&self.root)?.iter().any(is_part))
    }

    fn fan_out(&self, file: FileKey) -> PathBuf {
        self.root.join(names::part_name(names::part(file)))
    }

    fn dir(&self, file: FileKey) -> PathBuf {
        self.fan_out(file).join(names::file_name(file))
    }

    fn path(&self, file: FileKey, block: u64, form: &str) -> PathBuf {
        self.dir(file).join(format!("{block}{form}"))
    }

    /// Opens a block that is there, and says under which name.
    fn find(
        &self,
        file: FileKey,
        block: u64,
        options: &OpenOptions,
    ) -> Result<Option<(Form, PathBuf)>, BlockError> {
        // The third look: it may have been brought into the new form between the first two.
        for form in [PAGED, "", PAGED] {
            let path = self.path(file, block, form);
            match options.open(&path) {
                Ok(f) if form == PAGED => return Ok(Some((Form::Paged(f), path))),
                Ok(f) => return Ok(Some((Form::Bare(f), path))),
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(device(&path, &e)),
            }
        }
        Ok(None)
    }

    fn read_now(&self, file: FileKey, block: u64, offset: u32, len: u32) -> Result<Vec<u8>, BlockError> {
        match self.find(file, block, OpenOptions::new().read(true))? {
            None => self.sure(file).map(|()| Vec::new()),
            Some((Form::Paged(f), path)) => {
                pages::read(&f, u64::from(offset), len as usize).map_err(|e| failed(&path, e))
            }
            Some((Form::Bare(f), path)) => {
                let mut data = vec![0; len as usize];
                let filled =
                    pages::read_full(&f, &mut data, u64::from(offset)).map_err(|e| device(&path, &e))?;
                data.truncate(filled);
                Ok(data)
            }
        }
    }

    fn open_for_write(&self, path: &Path, file: FileKey, options: &OpenOptions) -> Result<File, BlockError> {
        let mut attempts = 0;
        loop {
            match options.open(path) {
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
        // The root is never made here: see `open`. A new fan-out directory is durable at once, which happens
        // 256 times in a filesystem's life; the file's own directory is made durable by `sync`.
        self.sure(file)?;
        if make(&self.fan_out(file))? {
            sync_path(&self.root)?;
        }
        make(&self.dir(file)).map(|_| ())
    }

    fn write_now(&self, file: FileKey, block: u64, offset: u32, data: &[u8]) -> Result<(), BlockError> {
        let mut open = OpenOptions::new();
        open.read(true).write(true);
        let found = self.find(file, block, &open)?;
        let grows = match &found {
            Some((Form::Paged(f), _)) => !pages::holds(f, u64::from(offset) + data.len() as u64),
            Some((Form::Bare(_), _)) | None => true,
        };
        // Held until it is written: others who write meanwhile do not count on the same space.
        let _reserved = match grows {
            true => Some(self.reserve_room(data.len() as u64)?),
            false => None,
        };
        let (f, path) = match found {
            Some((Form::Paged(f), path)) => (f, path),
            Some((Form::Bare(bare), _)) => self.convert(&bare, file, block)?,
            None => {
                let path = self.path(file, block, PAGED);
                open.create(true).truncate(false).mode(0o600);
                (self.open_for_write(&path, file, &open)?, path)
            }
        };
        pages::write(&f, u64::from(offset), data).map_err(|e| failed(&path, e))
    }

    /// Bytes that blocks may take: what is free, without what servers need for their stores.
    fn room_now(&self) -> Result<u64, BlockError> {
        let space = rustix::fs::statvfs(&self.root).map_err(|e| device(&self.root, &e.into()))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        Ok(free.saturating_sub(self.floor.bytes()))
    }

    /// Reserves space for a write of `len` bytes. Fails if it is not there.
    fn reserve_room(&self, len: u64) -> Result<Reservation<'_>, BlockError> {
        // Counted first: of two that look at once, each sees the other.
        let reservation = self.floor.reserve(len);
        if self.room_now()? < reservation.all() {
            return Err(BlockError::NoSpace);
        }
        Ok(reservation)
    }

    /// Brings a block into the new form. The old one goes when the new one is safe.
    fn convert(&self, bare: &File, file: FileKey, block: u64) -> Result<(File, PathBuf), BlockError> {
        let (old, unfinished) = (self.path(file, block, ""), self.path(file, block, UNFINISHED));
        let path = self.path(file, block, PAGED);
        let mut open = OpenOptions::new();
        open.read(true).write(true);
        let done = || -> Result<File, PageError> {
            // Two may come to it at once: the second finds it done.
            rustix::fs::flock(bare, rustix::fs::FlockOperation::LockExclusive).map_err(io::Error::from)?;
            match open.open(&path) {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                other => return Ok(other?),
            }
            let mut data = vec![0; bare.metadata()?.len() as usize];
            let filled = pages::read_full(bare, &mut data, 0)?;
            data.truncate(filled);
            let mut create = open.clone();
            let f = create.create(true).truncate(true).mode(0o600).open(&unfinished)?;
            pages::write(&f, 0, &data)?;
            f.sync_all()?;
            fs::rename(&unfinished, &path)?;
            File::open(self.dir(file))?.sync_all()?;
            absent_is_fine(fs::remove_file(&old))?;
            Ok(f)
        };
        match done() {
            Ok(f) => Ok((f, path)),
            Err(e) => Err(failed(&path, e)),
        }
    }

    fn truncate_now(&self, file: FileKey, block: u64, len: u32) -> Result<(), BlockError> {
        if len == 0 {
            return self.unlink(file, block);
        }
        match self.find(file, block, OpenOptions::new().read(true).write(true))? {
            None => Ok(()),
            Some((Form::Paged(f), path)) => pages::truncate(&f, u64::from(len)).map_err(|e| failed(&path, e)),
            Some((Form::Bare(f), path)) => {
                let cut = f.metadata().and_then(|m| match m.len() > u64::from(len) {
                    true => f.set_len(u64::from(len)),
                    false => Ok(()),
                });
                cut.map_err(|e| device(&path, &e))
            }
        }
    }

    fn unlink(&self, file: FileKey, block: u64) -> Result<(), BlockError> {
        for form in [UNFINISHED, "", PAGED] {
            let path = self.path(file, block, form);
            absent_is_fine(fs::remove_file(&path)).map_err(|e| device(&path, &e))?;
        }
        Ok(())
    }

    fn sync_now(&self, file: FileKey, blocks: &[u64]) -> Result<(), BlockError> {
        for block in blocks {
            if let Some((Form::Paged(f) | Form::Bare(f), path)) =
                self.find(file, *block, OpenOptions::new().read(true))?
            {
                f.sync_data().map_err(|e| device(&path, &e))?;
            }
        }
        // A block's name and its directory's name must survive too (H104).
        sync_path(&self.dir(file))?;
        sync_path(&self.fan_out(file))
    }

    fn present_now(&self, file: FileKey, from: u64, to: u64) -> Result<Vec<u64>, BlockError> {
        self.sure(file)?;
        if to.saturating_sub(from) <= REMOVE_BY_NAME {
            let mut found = Vec::new();
            for n in from..to {
                if self.find(file, n, OpenOptions::new().read(true))?.is_some() {
                    found.push(n);
                }
            }
            return Ok(found);
        }
        let entries = list(&self.dir(file))?;
        let numbers = entries.iter().filter_map(number_of);
        let found: BTreeSet<u64> = numbers.filter(|n| (from..to).contains(n)).collect();
        Ok(found.into_iter().collect())
    }

    fn stored_now(&self, file: FileKey, from: u64, to: u64) -> Result<Vec<StoredBlock>, BlockError> {
        let mut found = Vec::new();
        for number in self.present_now(file, from, to)? {
            let Some((form, path)) = self.find(file, number, OpenOptions::new().read(true))? else {
                continue;
            };
            let length = |f: &File| f.metadata().map(|m| m.len()).map_err(|e| device(&path, &e));
            let bytes = match form {
                Form::Paged(f) => pages::data_len(length(&f)?),
                Form::Bare(f) => length(&f)?,
            };
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            found.push(StoredBlock { number, bytes });
        }
        Ok(found)
    }

    fn remove_now(&self, file: FileKey, from: u64, to: u64) -> Result<(), BlockError> {
        self.sure(file)?;
        let dir = self.dir(file);
        if to.saturating_sub(from) <= REMOVE_BY_NAME {
            for block in from..to {
                self.unlink(file, block)?;
            }
        } else {
            for entry in list(&dir)? {
                if number_of(&entry).is_some_and(|n| n >= from && n < to) {
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

    fn files_now(&self, part: u8) -> Result<Vec<StoredFile>, BlockError> {
        let mut found = Vec::new();
        for dir in list(&self.root.join(names::part_name(part)))? {
            let Some(file) = dir.file_name().to_str().and_then(names::parse_file) else {
                continue;
            };
            // What goes away while it is looked at is not there.
            let Some(mut stored) = modified(&dir)?.map(|(_, newest)| StoredFile::new(file, newest)) else {
                continue;
            };
            for entry in list(&dir.path())? {
                if number_of(&entry).is_some()
                    && let Some((bytes, time)) = modified(&entry)?
                {
                    stored.add(bytes, time);
                }
            }
            found.push(stored);
        }
        Ok(found)
    }
}

/// What is in a directory; nothing, if there is none.
fn list(dir: &Path) -> Result<Vec<fs::DirEntry>, BlockError> {
    match fs::read_dir(dir).and_then(|entries| entries.collect()) {
        Ok(entries) => Ok(entries),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(device(dir, &e)),
    }
}

/// The block that a directory entry is a form of.
fn number_of(entry: &fs::DirEntry) -> Option<u64> {
    let name = entry.file_name();
    let name = name.to_str()?;
    let number = name.split_once('.').map_or(name, |(number, _)| number);
    number.parse().ok()
}

/// Size and time of the last change.
fn modified(entry: &fs::DirEntry) -> Result<Option<(u64, Timestamp)>, BlockError> {
    use std::os::unix::fs::MetadataExt;
    match entry.metadata() {
        Ok(m) => Ok(Some((
            m.len(),
            Timestamp {
                secs: m.mtime(),
                nanos: m.mtime_nsec() as u32,
            },
        ))),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(device(&entry.path(), &e)),
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

fn failed(path: &Path, e: PageError) -> BlockError {
    match e {
        PageError::Io(e) => device(path, &e),
        PageError::Damaged(at) => BlockError::Damaged(format!("{} at byte {at}", path.display())),
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

    fn write_shared(
        &self,
        file: FileKey,
        block: u64,
        offset: u32,
        data: Arc<Vec<u8>>,
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

    fn present(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<Vec<u64>, BlockError>> {
        let this = self.clone();
        Box::pin(async move { this.present_now(file, from, to) })
    }

    fn stored(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<Vec<StoredBlock>, BlockError>> {
        let this = self.clone();
        Box::pin(async move { this.stored_now(file, from, to) })
    }

    fn remove(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<(), BlockError>> {
        let this = self.clone();
        Box::pin(async move { this.remove_now(file, from, to) })
    }

    fn room(&self) -> LocalFuture<Result<Option<u64>, BlockError>> {
        let this = self.clone();
        Box::pin(async move { this.room_now().map(Some) })
    }
}

impl Listing for DirBlocks {
    fn files(&self, part: u8) -> LocalFuture<Result<Vec<StoredFile>, BlockError>> {
        let this = self.clone();
        Box::pin(async move { this.files_now(part) })
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

    /// Blocks of the program before are read, cut, and kept through a first write, also one that was
    /// interrupted.
    #[test]
    fn bare_blocks() {
        let tmp = tempfile::tempdir().unwrap();
        let b = DirBlocks::create(tmp.path()).unwrap();
        fs::create_dir_all(b.dir(FILE)).unwrap();
        let old = |n: u64, data: &[u8]| fs::write(b.dir(FILE).join(n.to_string()), data).unwrap();
        let read = |n, len| now(b.read(FILE, n, 0, len)).unwrap();
        old(0, b"0123456789");
        old(1, b"abcdef");
        fs::write(b.dir(FILE).join("0.1.new"), b"left of a crash").unwrap();
        assert_eq!(read(0, 99), b"0123456789");
        now(b.truncate(FILE, 0, 8)).unwrap();
        now(b.write(FILE, 0, 2, b"XY".to_vec())).unwrap();
        assert_eq!(read(0, 99), b"01XY4567");
        assert!(!b.dir(FILE).join("0").exists() && !b.dir(FILE).join("0.1.new").exists());
        now(b.sync(FILE, vec![0, 1])).unwrap();
        // The new form was there, and the old one had not gone yet.
        old(0, b"old");
        assert_eq!(read(0, 99), b"01XY4567");
        now(b.remove(FILE, 0, 1)).unwrap();
        assert_eq!(read(0, 99), b"");
        now(b.remove(FILE, 0, u64::MAX)).unwrap();
        assert!(!b.dir(FILE).exists());
    }

    #[test]
    fn a_flipped_bit_is_an_error_that_names_the_block() {
        let tmp = tempfile::tempdir().unwrap();
        let b = DirBlocks::create(tmp.path()).unwrap();
        now(b.write(FILE, 3, 0, vec![5; 5000])).unwrap();
        let path = b.path(FILE, 3, PAGED);
        let mut bytes = fs::read(&path).unwrap();
        for at in [4096, 4096 + 4999] {
            bytes[at] ^= 1;
            fs::write(&path, &bytes).unwrap();
            let Err(BlockError::Damaged(what)) = now(b.read(FILE, 3, 0, 5000)) else {
                panic!("byte {at} was not missed");
            };
            assert!(what.contains("3.1 at byte"), "{what}");
            bytes[at] ^= 1;
        }
    }
}
