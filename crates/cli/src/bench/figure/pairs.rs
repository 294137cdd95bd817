//! Stores full of entries of one size, for figures about how stores keep them. Files are read and written
//! past the kernel's cache, and caches are smaller than what is in the store.

use crate::bench::store::{superblock, wait};
use crate::store_kinds::{Opened, StoreKind, StoreOptions, Watched};
use anyhow::{Context, Result, ensure};
use pando_env::rng::mix;
use pando_format::codec::Blob;
use pando_format::{Batch, Entry, InodeRecord, Key, Layout, Marks, Mutation, NameHash, Record, Scan, Target};
use pando_store::{Durability, Level, Read};
use pando_types::{DirId, FileKind, Generation, Ino, Name, Perm, Timestamp};
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Entries of one batch, as a turn of a server writes several together.
const TOGETHER: u64 = 16;
/// A prime greater than there will be entries: its multiples come to each of them once, in an order that is
/// none.
const STRIDE: u64 = 2_654_435_761;
/// Where values come from: bytes that do not compress.
const NOISE: usize = 1 << 20;
/// Cache of blocks while entries are inserted: next to nothing.
const LITTLE: usize = 8 << 20;
/// Compactions have come to their end when none was under way for so long.
const STILL: Duration = Duration::from_millis(300);
/// And are not waited for any longer than that.
const PATIENCE: Duration = Duration::from_secs(60);
/// A bucket, and one more.
const BUCKET: usize = 257;

/// The order in which entries are inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Sequential,
    Random,
}

impl Order {
    pub(super) const BOTH: [Order; 2] = [Order::Sequential, Order::Random];

    pub(super) fn word(self) -> &'static str {
        match self {
            Order::Sequential => "sequential",
            Order::Random => "random",
        }
    }
}

/// Time and bytes of an insertion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inserted {
    /// Entries per second, until the last one was synced.
    pub(super) rate: f64,
    /// Bytes that compactions wrote, until they had nothing to do, for each byte of entries.
    pub(super) compacted: f64,
}

/// A store of one kind.
pub(super) struct Pairs {
    opened: Opened,
    folder: TempDir,
    count: u64,
    /// Bytes of a record.
    size: usize,
    noise: Vec<u8>,
}

fn options(cache_bytes: usize, record_bytes: usize) -> StoreOptions {
    StoreOptions {
        durability: Durability::Async,
        cache_bytes,
        record_bytes,
        watched: Watched::PastTheCache,
        ..StoreOptions::default()
    }
}

/// Entry `n`, in the order of keys.
fn key(n: u64) -> Result<Key> {
    Ok(Key::Entry {
        part: DirId(5 << 64).into(),
        hash: NameHash(n << 20),
        name: Name::new(format!("{n:010}").as_bytes())?,
    })
}

fn record(n: u64, target: Vec<u8>) -> Record {
    let time = Timestamp { secs: 1, nanos: 1 };
    let inode = InodeRecord {
        ino: Ino(n),
        generation: Generation(n),
        kind: FileKind::Symlink,
        perm: Perm::new(0o777),
        uid: 1000,
        gid: 1000,
        nlink: 1,
        size: target.len() as u64,
        rdev: 0,
        atime: time,
        mtime: time,
        ctime: time,
        layout: Layout::Target(Blob(target)),
        marks: Marks::NONE,
        version: 0,
        acl: None,
    };
    Record::Entry(Entry {
        ordinal: 0,
        target: Target::Inode(inode),
    })
}

impl Pairs {
    /// An empty one in a folder of its own, whose entries will have so many bytes.
    pub(super) fn new(kind: StoreKind, at: &Path, size: usize) -> Result<Pairs> {
        let folder = tempfile::Builder::new()
            .prefix("pando-bench-pairs-")
            .tempdir_in(at)
            .with_context(|| format!("cannot make a folder in {}", at.display()))?;
        let path = folder.path().join("store");
        kind.create(&path, superblock())?;
        let (opened, _) = kind
            .open(&path, &options(LITTLE, 0))
            .context("the folder must be on a device that can be read past the kernel's cache")?;
        let noise = (0..NOISE as u64 / 8).flat_map(|n| mix(n).to_le_bytes());
        Ok(Pairs {
            opened,
            folder,
            count: 0,
            size,
            noise: noise.collect(),
        })
    }

    fn mutation(&self, n: u64) -> Result<Mutation> {
        let key = key(n)?;
        let bare = record(n, Vec::new()).encode(&key.encode()).len();
        let len = self.size.saturating_sub(bare);
        let at = mix(n) as usize % (NOISE - len);
        let record = record(n, self.noise[at..at + len].to_vec());
        Ok(Mutation::Update { key, record })
    }

    /// Inserts so many entries.
    pub(super) fn insert(&mut self, count: u64, order: Order) -> Result<Inserted> {
        let store = self.opened.store();
        let began = Instant::now();
        let mut next = 0;
        while next < count {
            let last = count.min(next + TOGETHER);
            let numbers = (next..last).map(|i| match order {
                Order::Sequential => i,
                Order::Random => i * STRIDE % count,
            });
            let mutations = numbers.map(|n| self.mutation(n)).collect::<Result<_>>()?;
            store.apply(&Batch::of(mutations))?;
            next = last;
        }
        wait(store.wait(store.applied(), Level::Synced))?;
        let took = began.elapsed();
        self.count = count;
        let bytes = count as f64 * self.size as f64;
        Ok(Inserted {
            rate: count as f64 / took.as_secs_f64(),
            compacted: self.still()? as f64 / bytes,
        })
    }

    /// Waits until compactions have nothing to do. What they wrote.
    fn still(&self) -> Result<u64> {
        let began = Instant::now();
        let done = || self.opened.compactions().context("compactions are not counted");
        let (mut last, mut since) = (done()?, began);
        while since.elapsed() < STILL && began.elapsed() < PATIENCE {
            std::thread::sleep(STILL / 10);
            let now = done()?;
            if now != last || now.under_way {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(last.bytes)
    }

    /// The same store opened again, with memory for a fifth of what is in it: three parts of eight for
    /// blocks, the rest for records, as servers have it.
    pub(super) fn again(self) -> Result<Pairs> {
        let Pairs {
            opened,
            folder,
            count,
            size,
            noise,
        } = self;
        let kind = opened.kind();
        drop(opened);
        let memory = usize::try_from(count)? * size / 5;
        let options = options(memory * 3 / 8, memory * 5 / 8);
        let (opened, _) = kind.open(&folder.path().join("store"), &options)?;
        Ok(Pairs {
            opened,
            folder,
            count,
            size,
            noise,
        })
    }

    /// Reads per second of entries at random, of the first ones of all: this share of them. First as many
    /// again for which nobody looks at the clock.
    pub(super) fn read(&self, share: f64, reads: u64) -> Result<f64> {
        let among = ((self.count as f64 * share) as u64).max(1);
        let store = self.opened.store();
        let mut began = Instant::now();
        for i in 0..2 * reads {
            if i == reads {
                began = Instant::now();
            }
            let n = mix(i ^ 0x5EED) % among;
            let Key::Entry { part, hash, .. } = key(n)? else {
                continue;
            };
            let found = match store.list(&Scan::Bucket(part, hash), BUCKET) {
                Read::Ready(found) => found,
                Read::Pending(found) => wait(found),
            };
            ensure!(found?.len() == 1, "entry {n} is not there");
        }
        Ok(reads as f64 / began.elapsed().as_secs_f64())
    }
}
