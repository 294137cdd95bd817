//! `pando bench store`.

use super::Figures;
use super::meter::{Measured, Meter};
use anyhow::{Context, Result};
use pando_format::codec::Blob;
use pando_format::{
    AccessRecord, Batch, Entry, FORMAT_VERSION, HashWidths, Head, InodeRecord, Key, Layout, Marks, Mutation,
    NameHash, Record, ReplyRecord, ReplyWrite, Superblock, Target, Touch, TouchDelta,
};
use pando_store::{Durability, Level, Lsn, Read, Store, StoreError};
use pando_store_rocks::{RocksOptions, RocksStore};
use pando_types::{
    Birth, BootEpoch, DirId, DirStat, FileKind, FsId, Generation, Ino, Name, Perm, Realm, RequestSlot,
    Sequence, ServerId, SessionId, Timestamp,
};
use serde_json::json;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Instant;

/// Bytes of an answer in a reply record.
const ANSWER: usize = 170;
const TIME: Timestamp = Timestamp {
    secs: 1_700_000_000,
    nanos: 5,
};

/// The store alone: the batches that operations write and the records they read, on RocksDB in a temporary folder.
///
/// Needs no cluster.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando bench store\n  pando bench store --sync --depth 16 --at /data/tmp --json"
)]
pub struct StoreArgs {
    /// Operations of each kind.
    #[arg(short = 'n', default_value_t = 100_000)]
    pub items: u64,
    /// Entries of one directory.
    #[arg(long, default_value_t = 1000)]
    pub per_directory: u64,
    /// Wait until each group of operations is synced, as durability `sync` does.
    #[arg(long)]
    pub sync: bool,
    /// Operations that share a sync.
    #[arg(long, default_value_t = 1)]
    pub depth: u64,
    /// Where to make the temporary folder. [default: the system's]
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
}

/// A store that is filled and read as by a server.
pub(super) struct Bench<'a> {
    args: &'a StoreArgs,
    store: RocksStore,
    sequence: u64,
}

pub fn run(args: &StoreArgs) -> Result<Figures> {
    let at = args.at.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new()
        .prefix("pando-bench-store-")
        .tempdir_in(&at)
        .with_context(|| format!("cannot make a folder in {}", at.display()))?;
    let mut bench = Bench::open(args, folder.path(), RocksOptions::default().cache_bytes)?;
    bench.parents()?;
    let results = vec![
        bench.writes("create", Bench::create)?,
        bench.reads("stat")?,
        bench.writes("remove", Bench::remove)?,
        bench.writes("mkdir", Bench::mkdir)?,
    ];
    let params = json!({
        "items": args.items, "per_directory": args.per_directory, "sync": args.sync, "depth": args.depth,
    });
    Ok(Figures {
        bench: "store",
        profile: Some("pando".into()),
        params,
        results,
    })
}

/// A directory's number as an ID that is spread like a hash.
fn dir(n: u64) -> DirId {
    DirId(u128::from(n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835) | 2)
}

fn delta(dir: DirId, entries: i32, subdirs: i32) -> Mutation {
    Mutation::Touch {
        dir,
        delta: TouchDelta {
            entries,
            subdirs,
            time: TIME,
        },
    }
}

fn head(id: DirId, parent: DirId, name: &Name) -> [Mutation; 2] {
    let head = Head {
        generation: Generation(1),
        ino: Ino(1),
        birth: Birth {
            parent,
            name: name.clone(),
            version: 0,
        },
        parent,
        parent_generation: Generation(1),
        name: name.clone(),
        realm: Realm(0),
        salt: 7,
        split: 0,
        seal: 0,
        listed: false,
    };
    let touch = Touch {
        stat: DirStat::default(),
        explicit: false,
    };
    [
        Mutation::Insert {
            key: Key::Head(id),
            record: Record::Head(head),
        },
        Mutation::Insert {
            key: Key::Touch(id),
            record: Record::Touch(touch),
        },
    ]
}

/// Drives a future of the store on this thread.
pub(super) fn wait<T>(mut future: Pin<Box<dyn Future<Output = T>>>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn read<T>(read: Read<T>) -> Result<T, StoreError> {
    match read {
        Read::Ready(result) => result,
        Read::Pending(future) => wait(future),
    }
}

impl<'a> Bench<'a> {
    /// An empty one in a folder.
    pub(super) fn open(args: &'a StoreArgs, folder: &Path, cache_bytes: usize) -> Result<Bench<'a>> {
        let path = folder.join("store");
        RocksStore::create(
            &path,
            Superblock {
                format: FORMAT_VERSION,
                fs: FsId(1),
                server: ServerId(0),
                boot: BootEpoch(0),
                name_bits: 55,
                id_bits: 128,
                clean: true,
            },
        )?;
        let durability = if args.sync {
            Durability::Sync
        } else {
            Durability::Async
        };
        let options = RocksOptions {
            durability,
            cache_bytes,
            ..RocksOptions::default()
        };
        let (store, _) = RocksStore::open(&path, options)?;
        Ok(Bench {
            args,
            store,
            sequence: 0,
        })
    }

    /// Files with these numbers, after their directories.
    pub(super) fn fill(&mut self, files: Range<u64>) -> Result<()> {
        if files.start == 0 {
            self.parents()?;
        }
        let mut last = self.store.applied();
        for n in files {
            let batch = self.create(n)?;
            last = self.store.apply(&batch)?;
        }
        Ok(wait(self.store.wait(last, Level::Synced))?)
    }

    /// Bytes in table files.
    pub(super) fn table_bytes(&self) -> u64 {
        self.store.stats().table_bytes
    }

    /// Whether a file is there, or one of another kind that never was.
    pub(super) fn look(&self, kind: &str, n: u64) -> Result<bool> {
        let (dir, hash, name) = self.place(kind, n)?;
        Ok(read(self.store.get(&Key::Entry { dir, hash, name }))?.is_some())
    }

    fn place(&self, kind: &str, n: u64) -> Result<(DirId, NameHash, Name)> {
        let name = Name::new(format!("{kind}.mdtest.0.{n}").as_bytes())?;
        let dir = dir(n / self.args.per_directory.max(1));
        Ok((dir, HashWidths::FULL.name(7, &name), name))
    }

    fn parents(&mut self) -> Result<()> {
        let name = Name::new(b"parent")?;
        for n in 0..=self.args.items / self.args.per_directory.max(1) {
            self.store
                .apply(&Batch::of(head(dir(n), DirId::ROOT, &name).into()))?;
        }
        Ok(())
    }

    fn batch(&mut self, in_dir: DirId, hash: NameHash, mutations: Vec<Mutation>) -> Batch {
        self.sequence += 1;
        let key = Key::Reply(
            in_dir.slot(),
            SessionId(1),
            RequestSlot((self.sequence % 64) as u16),
        );
        let record = ReplyRecord {
            sequence: Sequence(self.sequence),
            dir: in_dir,
            hash,
            answer: Blob(vec![1; ANSWER]),
        };
        Batch {
            mutations,
            reply: Some(ReplyWrite { key, record }),
        }
    }

    fn create(&mut self, n: u64) -> Result<Batch> {
        let (dir, hash, name) = self.place("file", n)?;
        let inode = InodeRecord {
            ino: Ino(n + 2),
            generation: Generation(n + 2),
            kind: FileKind::Regular,
            perm: Perm::new(0o644),
            uid: 1000,
            gid: 1000,
            nlink: 1,
            size: 0,
            rdev: 0,
            atime: TIME,
            mtime: TIME,
            ctime: TIME,
            layout: Layout::None,
            marks: Marks::NONE,
            version: 0,
            acl: None,
        };
        let record = Record::Entry(Entry {
            ordinal: 3,
            target: Target::Inode(inode),
        });
        let key = Key::Entry { dir, hash, name };
        Ok(self.batch(
            dir,
            hash,
            vec![delta(dir, 1, 0), Mutation::Insert { key, record }],
        ))
    }

    fn remove(&mut self, n: u64) -> Result<Batch> {
        let (dir, hash, name) = self.place("file", n)?;
        let key = Key::Entry { dir, hash, name };
        Ok(self.batch(dir, hash, vec![Mutation::Delete { key }, delta(dir, -1, 0)]))
    }

    /// Both halves, as when they are on one server.
    fn mkdir(&mut self, n: u64) -> Result<Batch> {
        let (parent, hash, name) = self.place("dir", n)?;
        let id = dir(n + (1 << 40));
        let access = AccessRecord {
            id,
            generation: Generation(1),
            ino: Ino(1),
            perm: Perm::new(0o755),
            uid: 1000,
            gid: 1000,
            ctime: TIME,
            realm: Realm(0),
            salt: 7,
            version: 0,
            marks: Marks::NONE,
            seal: 0,
            acls: Default::default(),
        };
        let record = Record::Entry(Entry {
            ordinal: 3,
            target: Target::Dir(access),
        });
        let [head, touch] = head(id, parent, &name);
        let key = Key::Entry {
            dir: parent,
            hash,
            name,
        };
        let mutations = vec![delta(parent, 1, 1), Mutation::Insert { key, record }, head, touch];
        Ok(self.batch(parent, hash, mutations))
    }

    fn writes(&mut self, op: &str, make: fn(&mut Self, u64) -> Result<Batch>) -> Result<Measured> {
        let mut meter = Meter::new()?;
        let depth = self.args.depth.max(1);
        let mut group: Vec<Instant> = Vec::new();
        let mut last = Lsn(0);
        for n in 0..self.args.items {
            let batch = make(self, n)?;
            let began = Instant::now();
            last = self.store.apply(&batch)?;
            if self.args.sync {
                group.push(began);
                if group.len() as u64 == depth || n + 1 == self.args.items {
                    wait(self.store.wait(last, Level::Durable))?;
                    group.drain(..).for_each(|began| meter.record(began.elapsed()));
                }
            } else {
                meter.record(began.elapsed());
            }
        }
        meter.end(0);
        // The next kind begins with everything of this one on the device.
        wait(self.store.wait(last, Level::Synced))?;
        Meter::sum(op, vec![meter], false)
    }

    fn reads(&mut self, op: &str) -> Result<Measured> {
        let mut meter = Meter::new()?;
        for n in 0..self.args.items {
            // Not in the order in which they were made.
            let n = n.wrapping_mul(2_654_435_761) % self.args.items.max(1);
            let (dir, hash, name) = self.place("file", n)?;
            let began = Instant::now();
            let head = read(self.store.get(&Key::Head(dir)))?;
            let entry = read(self.store.get(&Key::Entry { dir, hash, name }))?;
            meter.record(began.elapsed());
            if head.is_none() || entry.is_none() {
                meter.failed(|| format!("item {n} is not there"));
            }
        }
        meter.end(0);
        Meter::sum(op, vec![meter], false)
    }
}
