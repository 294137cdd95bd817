//! Stores for tests, on any directory or on a file system whose power can be cut.
#![allow(dead_code)] // each test file uses its part

use pando_format::codec::Blob;
use pando_format::{
    AttachmentKind, CounterRecord, Entry, FORMAT_VERSION, InodeRecord, Key, Layout, Marks, Mutation,
    NameHash, Record, Scan, Superblock, Target,
};
use pando_store::conformance::block_on;
use pando_store::{Batch, Durability, Store};
use pando_store_rocks::{RocksOptions, RocksStore};
use pando_types::{
    BootEpoch, DirId, FileKind, FsId, Generation, Ino, Name, Part, Perm, ServerId, SessionId, Slot, Timestamp,
};
use rocksdb::DB;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

pub fn superblock() -> Superblock {
    Superblock {
        format: FORMAT_VERSION,
        fs: FsId(1),
        server: ServerId(2),
        boot: BootEpoch(0),
        name_bits: 55,
        id_bits: 128,
        clean: true,
    }
}

pub fn options(durability: Durability) -> RocksOptions {
    RocksOptions {
        durability,
        cache_bytes: 8 << 20,
        ..RocksOptions::default()
    }
}

pub fn open(path: &Path, durability: Durability) -> RocksStore {
    RocksStore::open(path, options(durability)).expect("open").0
}

/// What RocksDB has of a closed store: the default family, and the journal's if there is one.
pub fn raw(path: &Path) -> DB {
    let (options, path) = (rocksdb::Options::default(), path.join("db"));
    let families = DB::list_cf(&options, &path).expect("families");
    DB::open_cf(&options, path, families).expect("open")
}

pub fn key(n: u64) -> Key {
    Key::Session(SessionId(u128::from(n)))
}

/// Batch `n` inserts key `n` and sets a counter, so that a hole or half a batch is seen.
pub fn batch(n: u64) -> Batch {
    let opened = pando_types::Timestamp {
        secs: n as i64,
        nanos: 0,
    };
    let record = Record::Session(pando_format::SessionRecord { opened, ended: None });
    let counter = Record::Counter(CounterRecord {
        reserved: n,
        epoch: 0,
    });
    Batch::of(vec![
        Mutation::Insert { key: key(n), record },
        Mutation::Update {
            key: Key::Counter(Slot(1)),
            record: counter,
        },
    ])
}

/// How many of the batches 1, 2, 3… a store has; panics unless it has exactly the first n.
pub fn prefix(store: &dyn Store) -> u64 {
    let counter = block_on(store.get(&Key::Counter(Slot(1))).wait()).expect("counter");
    let n = match counter {
        Some(Record::Counter(c)) => c.reserved,
        None => 0,
        other => panic!("{other:?}"),
    };
    let all = block_on(store.list(&pando_format::Scan::Sessions, usize::MAX).wait()).expect("list");
    let found: Vec<Key> = all.into_iter().map(|(k, _)| k).collect();
    assert_eq!(
        found,
        (1..=n).map(key).collect::<Vec<_>>(),
        "the batches are not a prefix"
    );
    n
}

/// The entry `n` of a directory.
pub fn file_key(n: u64) -> Key {
    Key::Entry {
        part: DirId(10 << 64).into(),
        hash: NameHash(n / 2),
        name: Name::new(format!("name{n:09}").as_bytes()).expect("a name"),
    }
}

/// What is attached to it.
pub fn data_key(n: u64) -> Key {
    match file_key(n) {
        Key::Entry { part, hash, name } => Key::Attachment {
            part,
            hash,
            name,
            kind: AttachmentKind::Data,
        },
        other => panic!("{other:?}"),
    }
}

/// A file with this number of `mark`.
pub fn file(mark: u64) -> Record {
    let t = Timestamp { secs: 1, nanos: 1 };
    let inode = InodeRecord {
        ino: Ino(mark),
        generation: Generation(mark),
        kind: FileKind::Regular,
        perm: Perm::new(0o644),
        uid: 1,
        gid: 1,
        nlink: 1,
        size: mark,
        rdev: 0,
        atime: t,
        mtime: t,
        ctime: t,
        layout: Layout::Inline,
        marks: Marks::NONE,
        version: 0,
        acl: None,
    };
    let target = Target::Inode(inode);
    Record::Entry(Entry { ordinal: 0, target })
}

/// Batch `n` inserts the file `n` with its data, and sets the counter as [`batch`] does.
pub fn file_batch(n: u64) -> Batch {
    let insert = |key, record| Mutation::Insert { key, record };
    let Batch { mutations, .. } = batch(n);
    let counter = mutations.into_iter().nth(1).expect("a counter");
    Batch::of(vec![
        insert(file_key(n), file(n)),
        insert(data_key(n), Record::Attachment(Blob(vec![n as u8; 300]))),
        counter,
    ])
}

/// As [`prefix`], of [`file_batch`].
pub fn file_prefix(store: &dyn Store) -> u64 {
    let counter = block_on(store.get(&Key::Counter(Slot(1))).wait()).expect("counter");
    let n = match counter {
        Some(Record::Counter(c)) => c.reserved,
        None => 0,
        other => panic!("{other:?}"),
    };
    let part = Part::whole(DirId(10 << 64));
    let all = block_on(store.list(&Scan::Entries(part), usize::MAX).wait()).expect("list");
    let made: Vec<(Key, Record)> = (1..=n).map(|n| (file_key(n), file(n))).collect();
    assert_eq!(all, made, "the batches are not a prefix");
    for n in 1..=n {
        let data = block_on(store.get(&data_key(n)).wait()).expect("data");
        assert_eq!(data, Some(Record::Attachment(Blob(vec![n as u8; 300]))));
    }
    n
}

/// An XFS on a loop device. What is not synced when its power is cut is gone.
pub struct Xfs {
    dir: TempDir,
    /// Attached once and for all mounts: `mount -o loop` may pick a device that another test is just giving
    /// up.
    device: String,
}

impl Xfs {
    /// `None`, with the reason printed, where this cannot be done.
    pub fn new() -> Option<Xfs> {
        Xfs::try_new()
            .inspect_err(|why| pando_testing::skip(format_args!("no power cuts here: {why}")))
            .ok()
    }

    fn try_new() -> Result<Xfs, String> {
        let dir = tempfile::tempdir().expect("temporary directory");
        let image = dir.path().join("image");
        let file = std::fs::File::create(&image).expect("image");
        file.set_len(512 << 20).expect("sparse image");
        run("mkfs.xfs", &["-q".into(), image.clone().into()])?;
        let device = run("losetup", &["--find".into(), "--show".into(), image.into()])?
            .trim()
            .into();
        let xfs = Xfs { dir, device };
        std::fs::create_dir(xfs.mount_point()).expect("mkdir");
        xfs.mount()?;
        Ok(xfs)
    }

    fn mount_point(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn mount(&self) -> Result<String, String> {
        run("mount", &[self.device.clone().into(), self.mount_point().into()])
    }

    /// Where a store goes: below directories that are new themselves.
    pub fn store(&self) -> PathBuf {
        self.mount_point().join("new").join("store")
    }

    /// Cuts the power, under whoever is writing.
    pub fn cut(&self) {
        let shutdown = [
            "-x".into(),
            "-c".into(),
            "shutdown".into(),
            self.mount_point().into(),
        ];
        run("xfs_io", &shutdown).expect("shutdown");
    }

    /// Comes back. REQUIRES: nobody has a file open.
    pub fn restart(&self) {
        run("umount", &[self.mount_point().into()]).expect("umount");
        self.mount().expect("mount");
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        let _ = run("umount", &[self.mount_point().into()]);
        let _ = run("losetup", &["--detach".into(), self.device.clone().into()]);
    }
}

/// What a program printed, or why it failed.
fn run(program: &str, arguments: &[OsString]) -> Result<String, String> {
    let out = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    match out {
        Ok(out) if out.status.success() => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        Ok(out) => Err(format!(
            "{program}: {}",
            String::from_utf8_lossy(&out.stderr).trim()
        )),
        Err(e) => Err(format!("{program}: {e}")),
    }
}
