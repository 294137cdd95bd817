//! `pando bench store`.

mod records;

use super::Figures;
use super::meter::{Measured, Meter};
use crate::store_kinds::{StoreKind, StoreOptions};
use anyhow::{Context, Result};
use pando_env::rng::mix;
use pando_format::{Batch, FORMAT_VERSION, HashWidths, Key, NameHash, Scan, Superblock};
use pando_net::process_cpu;
use pando_store::{Durability, Level, Lsn, Read, Stats, Store, StoreError};
use pando_types::{BootEpoch, DirId, FsId, Name, ServerId, Slot};
use records::{dir, head};
use serde_json::json;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

/// As a server asks for a bucket: it has at most 256 entries.
const BUCKET: usize = 257;
/// A prime greater than there will be items: its multiples come to each of them once, in an order that is
/// none.
const STRIDE: u64 = 2_654_435_761;

/// The store alone: what operations write and read, on RocksDB in a temporary folder.
///
/// `create`, `remove` and `mkdir` are the batches that servers commit, the answer's record included; what a
/// server reads before is read before, and not timed. `create-with-reads` is all that a create asks of the
/// store. `stat` reads as servers do, a directory's head and a name's bucket, through the cache of records;
/// `stat-rocksdb` reads the same without that cache, from the tables of a store that was opened again. All go
/// uniformly at random over the files there are. Needs no cluster.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando bench store\n  pando bench store --files 1000000 --record-mib 32 --json\n  pando bench store --sync --depth 16 --at /data/tmp --json"
)]
pub struct StoreArgs {
    /// Operations of each kind.
    #[arg(short = 'n', default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub items: u64,
    /// Files that are there before.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub files: u64,
    /// Entries of one directory.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub per_directory: u64,
    /// Wait until each group of operations is synced, as durability `sync` does.
    #[arg(long)]
    pub sync: bool,
    /// Operations that share a sync.
    #[arg(long, default_value_t = 1)]
    pub depth: u64,
    /// Memory for cached records, in MiB. 0: none.
    #[arg(long, default_value_t = crate::store_kinds::RECORD_MIB)]
    pub record_mib: usize,
    /// Memory for cached blocks, in MiB.
    #[arg(long, default_value_t = crate::store_kinds::CACHE_MIB)]
    pub cache_mib: usize,
    /// Kind of the store.
    #[arg(long, value_enum, value_name = "KIND", default_value_t = StoreKind::NEW)]
    pub store: StoreKind,
    /// Where to make the temporary folder. [default: the system's]
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
}

/// A store that is filled and read as by a server.
pub(super) struct Bench<'a> {
    args: &'a StoreArgs,
    store: Rc<dyn Store>,
    path: PathBuf,
    sequence: u64,
    /// Where each lane's last reply is.
    replied: [Option<Slot>; records::LANES],
}

/// Whether what is read before a change is timed with it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    Apart,
    Timed,
}

pub fn run(args: &StoreArgs) -> Result<Figures> {
    let at = args.at.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new()
        .prefix("pando-bench-store-")
        .tempdir_in(&at)
        .with_context(|| format!("cannot make a folder in {}", at.display()))?;
    let mut bench = Bench::open(args, folder.path(), args.cache_mib << 20)?;
    bench.fill(0..args.files)?;
    let (files, n) = (args.files, args.items);
    let all = files + 2 * n;
    let mut results = vec![
        bench.writes("create", "file", files..files + n, Bench::create, Reads::Apart)?,
        bench.writes(
            "create-with-reads",
            "file",
            files + n..all,
            Bench::create,
            Reads::Timed,
        )?,
        bench.reads("stat", all)?,
    ];
    bench = bench.again(0)?;
    results.push(bench.reads("stat-rocksdb", all)?);
    bench = bench.again(args.record_mib << 20)?;
    results.push(bench.writes("remove", "file", files..files + n, Bench::remove, Reads::Apart)?);
    results.push(bench.writes("mkdir", "dir", files..files + n, Bench::mkdir, Reads::Apart)?);
    let params = json!({
        "items": n, "files": files, "per_directory": args.per_directory, "sync": args.sync, "depth": args.depth,
        "record_mib": args.record_mib, "cache_mib": args.cache_mib,
    });
    Ok(Figures {
        bench: "store",
        profile: Some("pando".into()),
        params,
        results,
    })
}

/// Of a store that belongs to no cluster.
pub(super) fn superblock() -> Superblock {
    Superblock {
        format: FORMAT_VERSION,
        fs: FsId(1),
        server: ServerId(0),
        boot: BootEpoch(0),
        name_bits: 55,
        id_bits: 128,
        clean: true,
    }
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

fn options(args: &StoreArgs, cache_bytes: usize, record_bytes: usize) -> StoreOptions {
    let durability = if args.sync {
        Durability::Sync
    } else {
        Durability::Async
    };
    StoreOptions {
        durability,
        cache_bytes,
        record_bytes,
        ..StoreOptions::default()
    }
}

impl<'a> Bench<'a> {
    /// One with nothing but directories, in a folder.
    pub(super) fn open(args: &'a StoreArgs, folder: &Path, cache_bytes: usize) -> Result<Bench<'a>> {
        let path = folder.join("store");
        args.store.create(&path, superblock())?;
        let (opened, _) = args
            .store
            .open(&path, &options(args, cache_bytes, args.record_mib << 20))?;
        let bench = Bench {
            args,
            store: opened.store(),
            path,
            sequence: 0,
            replied: [None; records::LANES],
        };
        let name = Name::new(b"parent")?;
        for n in 0..bench.directories() {
            let batch = Batch::of(head(dir(n), DirId::ROOT, &name).into());
            bench.store.apply(&batch)?;
        }
        Ok(bench)
    }

    /// The same store opened again.
    fn again(self, record_bytes: usize) -> Result<Bench<'a>> {
        let Bench {
            args,
            store,
            path,
            sequence,
            replied,
        } = self;
        wait(store.wait(store.applied(), Level::Synced))?;
        drop(store);
        let (opened, _) = args
            .store
            .open(&path, &options(args, args.cache_mib << 20, record_bytes))?;
        Ok(Bench {
            args,
            store: opened.store(),
            path,
            sequence,
            replied,
        })
    }

    /// Files with these numbers.
    pub(super) fn fill(&mut self, files: Range<u64>) -> Result<()> {
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
        Ok(read(self.store.get(&Key::Entry {
            part: dir.into(),
            hash,
            name,
        }))?
        .is_some())
    }

    /// Those that are filled; without files there from before, those of what is made.
    fn directories(&self) -> u64 {
        let files = match self.args.files {
            0 => 2 * self.args.items,
            files => files,
        };
        files.div_ceil(self.args.per_directory.max(1))
    }

    /// Where something is: what comes to files of before, in any directory.
    fn place(&self, kind: &str, n: u64) -> Result<(DirId, NameHash, Name)> {
        let name = Name::new(format!("{kind}.mdtest.0.{n}").as_bytes())?;
        let number = match self.args.files {
            files if files > 0 && n >= files => mix(n) % self.directories(),
            _ => n / self.args.per_directory.max(1),
        };
        Ok((dir(number), HashWidths::FULL.name(7, &name), name))
    }

    /// As every change of a name begins.
    fn read_to_change(&self, dir: DirId, hash: NameHash) -> Result<()> {
        read(self.store.get(&Key::Touch(dir.into())))?;
        self.read_name(dir, hash).map(|_| ())
    }

    /// As every look at a name begins. Whether the name is there.
    fn read_name(&self, dir: DirId, hash: NameHash) -> Result<bool> {
        let head = read(self.store.get(&Key::Head(dir.into())))?;
        let bucket = read(self.store.list(&Scan::Bucket(dir.into(), hash), BUCKET))?;
        Ok(head.is_some() && !bucket.is_empty())
    }

    fn writes(
        &mut self,
        op: &str,
        kind: &str,
        items: Range<u64>,
        make: fn(&mut Self, u64) -> Result<Batch>,
        reads: Reads,
    ) -> Result<Measured> {
        let (mut meter, before, mut busy) = (Meter::new()?, self.store.stats(), Duration::ZERO);
        let count = items.end - items.start;
        let group = if self.args.sync { self.args.depth.max(1) } else { 1 };
        let (mut done, mut cpu) = (0, Duration::ZERO);
        while done < count {
            // All that is not the store's work comes first.
            let mut batches = Vec::new();
            for i in done..count.min(done + group) {
                let n = items.start + i * STRIDE % count;
                let batch = make(self, n)?;
                let (dir, hash, _) = self.place(kind, n)?;
                if reads == Reads::Apart {
                    self.read_to_change(dir, hash)?;
                }
                batches.push((batch, dir, hash));
            }
            done += batches.len() as u64;
            let (cpu_began, began) = (process_cpu(), Instant::now());
            let (mut starts, mut last) = (Vec::new(), Lsn(0));
            for (batch, dir, hash) in &batches {
                starts.push(Instant::now());
                if reads == Reads::Timed {
                    self.read_to_change(*dir, *hash)?;
                }
                last = self.store.apply(batch)?;
            }
            if self.args.sync {
                wait(self.store.wait(last, Level::Durable))?;
            }
            let ended = Instant::now();
            busy += ended - began;
            cpu += process_cpu().saturating_sub(cpu_began);
            starts.into_iter().for_each(|at| meter.record(ended - at));
        }
        meter.end(0);
        let after = self.store.stats();
        // The next kind begins with everything of this one on the device.
        wait(self.store.wait(self.store.applied(), Level::Synced))?;
        let mut measured = told(
            self.args.store,
            Meter::sum(op, vec![meter], false)?,
            busy,
            [&before, &after],
        );
        let bytes = (after.wal_bytes - before.wal_bytes) as f64 / count as f64;
        measured
            .more
            .insert("log_bytes_per_op".into(), json!(bytes.round()));
        // What RocksDB does beside it in the same time is in it.
        let cpu = (cpu.as_secs_f64() * 1e8 / count as f64).round() / 100.0;
        measured
            .more
            .insert("cpu_us_per_op".into(), json!({ "store": cpu }));
        Ok(measured)
    }

    /// Uniformly at random, of so many files; as many as operations before, untimed, so that caches have what
    /// they would have.
    fn reads(&mut self, op: &str, files: u64) -> Result<Measured> {
        let mut meter = Meter::new()?;
        let (mut before, mut busy) = (self.store.stats(), Duration::ZERO);
        for i in 0..2 * self.args.items {
            if i == self.args.items {
                before = self.store.stats();
            }
            let n = mix(i) % files;
            let (dir, hash, _) = self.place("file", n)?;
            let began = Instant::now();
            let found = self.read_name(dir, hash)?;
            let took = began.elapsed();
            if !found {
                meter.failed(|| format!("item {n} is not there"));
            }
            if i >= self.args.items {
                meter.record(took);
                busy += took;
            }
        }
        meter.end(0);
        let after = self.store.stats();
        let measured = Meter::sum(op, vec![meter], false)?;
        Ok(told(self.args.store, measured, busy, [&before, &after]))
    }
}

/// With the rate that the store's own time gives, and what it counted.
fn told(kind: StoreKind, measured: Measured, busy: Duration, [before, after]: [&Stats; 2]) -> Measured {
    let (ops, reads) = (
        measured.ops.max(1) as f64,
        after.hits + after.misses - before.hits - before.misses,
    );
    let round = |x: f64| (x * 1e4).round() / 1e4;
    let mut more = measured.more;
    more.insert("store".into(), kind.word().into());
    if reads > 0 {
        let hits = (after.record_hits - before.record_hits) as f64 / reads as f64;
        more.insert("record_hit_rate".into(), round(hits).into());
        let disk = (after.misses - before.misses) as f64 / ops;
        more.insert("disk_reads_per_op".into(), round(disk).into());
    }
    Measured {
        ops_per_s: ops / busy.as_secs_f64().max(1e-9),
        more,
        ..measured
    }
}
