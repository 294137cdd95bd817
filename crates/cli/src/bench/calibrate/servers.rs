//! Two servers on threads of this process, and a device.

use super::meter::{Meter, Samples, Shared, take};
use crate::args::{Choices, Mode};
use crate::cluster_dir::{self, ClusterDir};
use crate::connect::{Connection, Party, open_blocks};
use crate::format;
use anyhow::{Context, Result, bail};
use pando_auth::Introduction;
use pando_cluster::MemCoord;
use pando_format::{FORMAT_VERSION, Key, Mutation, Record, SessionRecord, Superblock};
use pando_net::{Options, Reactor, Waiting};
use pando_server::{Executed, Limits, MetaServer, Observer, ServerConfig};
use pando_store::{Batch, Durability, Level, Store};
use pando_store_rocks::{RocksOptions, RocksStore};
use pando_types::{BootEpoch, FsId, ServerId, SessionId, Timestamp};
use pando_wire::Role;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Batches that share a sync, when the device is measured.
const GROUPS: [u64; 4] = [1, 8, 64, 256];

struct Nobody;

impl Observer for Nobody {
    fn executed(&self, _: &Executed<'_>) {}
    fn fatal(&self, why: &str) {
        tracing::error!("the benchmark's server stops: {why}");
    }
}

/// Them.
pub struct Pair {
    dir: ClusterDir,
    samples: Vec<Shared>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
    /// Removed last.
    _folder: TempDir,
}

impl Pair {
    /// Makes and starts them in a folder below `at`.
    pub fn start(at: &Path, durability: Mode) -> Result<Pair> {
        let folder = tempfile::Builder::new()
            .prefix("pando-calibrate-")
            .tempdir_in(at)
            .with_context(|| format!("cannot make a folder in {}", at.display()))?;
        let dir = ClusterDir {
            path: folder.path().join("cluster"),
            key: None,
        };
        let choices = Choices {
            durability,
            ..Choices::default()
        };
        let file = format::make(&dir, format::on_loopback(2)?, None, &choices)?;
        let mut pair = Pair {
            dir,
            samples: Vec::new(),
            stop: Arc::default(),
            threads: Vec::new(),
            _folder: folder,
        };
        let (tell, told) = channel();
        for server in &file.servers {
            let (dir, id, address) = (pair.dir.clone(), ServerId(server.id), server.address.clone());
            let (samples, stop, tell) = (Shared::default(), pair.stop.clone(), tell.clone());
            pair.samples.push(samples.clone());
            let run = move || serve(&dir, id, &address, samples, &stop, || tell.send(()).unwrap_or(()));
            let thread = std::thread::Builder::new().name("pando-calibrate".into());
            pair.threads.push(thread.spawn(run)?);
        }
        drop(tell);
        for _ in &file.servers {
            if told.recv().is_err() {
                pair.stop()?;
                bail!("a server of the benchmark did not start");
            }
        }
        Ok(pair)
    }

    /// A client.
    pub fn connect(&self) -> Result<Connection> {
        let patience = Duration::from_secs(10);
        Connection::open(&self.dir, Party::Client, Waiting::Blocking, patience)
    }

    /// What both servers measured since this was asked last.
    pub fn take(&self) -> Samples {
        let mut all = Samples::default();
        for samples in &self.samples {
            all.add(take(samples));
        }
        all
    }

    fn stop(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(result) => result?,
                Err(_) => bail!("a server of the benchmark failed"),
            }
        }
        Ok(())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Err(e) = self.stop() {
            tracing::warn!(error = %e, "a server of the benchmark did not end well");
        }
    }
}

fn serve(
    dir: &ClusterDir,
    id: ServerId,
    address: &str,
    samples: Shared,
    stop: &AtomicBool,
    ready: impl FnOnce(),
) -> Result<()> {
    let file = dir.load()?;
    let map = file.map(&dir.path)?;
    let durability = match cluster_dir::mode(&file)? {
        Mode::Sync => Durability::Sync,
        Mode::Async => Durability::Async,
    };
    let rocks = RocksOptions {
        durability,
        ..RocksOptions::default()
    };
    let (store, _) = RocksStore::open(&dir.store(id.0), rocks)?;
    let secrets = dir.secrets(map.fs)?;
    let introduction = Introduction {
        fs: map.fs,
        role: Role::Server(id),
        key: Some(secrets.cluster_key()),
    };
    let options = Options {
        waiting: Waiting::Blocking,
        ..Options::default()
    };
    let reactor = Reactor::new(options, introduction)?;
    reactor.set_map(&map);
    let blocks = open_blocks(&map.blocks)?;
    let config = ServerConfig {
        id,
        map: map.clone(),
        secrets,
        limits: Limits::default(),
    };
    let (store, coord) = (Rc::new(store), Rc::new(MemCoord::fixed(map.clone())));
    let start = MetaServer::start(config, reactor.clone(), store, blocks, Rc::new(Nobody), coord);
    let server = reactor.block_on(start)?;
    reactor.set_node(Meter::new(server.clone(), map, samples));
    reactor.listen(address, server.boot(), server.clone())?;
    ready();
    while !stop.load(Ordering::SeqCst) {
        reactor.turn(Some(Duration::from_millis(20)));
    }
    reactor.shutdown();
    Ok(())
}

/// How long a sync takes that so many batches share, on the device of this folder.
pub fn syncs(at: &Path, operations: u64) -> Result<Vec<(u64, f64)>> {
    let folder = tempfile::Builder::new()
        .prefix("pando-calibrate-")
        .tempdir_in(at)
        .with_context(|| format!("cannot make a folder in {}", at.display()))?;
    let path = folder.path().join("store");
    let superblock = Superblock {
        format: FORMAT_VERSION,
        fs: FsId(1),
        server: ServerId(0),
        boot: BootEpoch(0),
        name_bits: 55,
        id_bits: 128,
        clean: true,
    };
    RocksStore::create(&path, superblock)?;
    let (store, _) = RocksStore::open(&path, RocksOptions::default())?;
    let batch = |n: u64| {
        let record = Record::Session(SessionRecord {
            opened: Timestamp::default(),
            ended: None,
        });
        let key = Key::Session(SessionId(u128::from(n)));
        Batch::of(vec![Mutation::Update { key, record }])
    };
    let mut all = Vec::new();
    for group in GROUPS {
        let mut times = Vec::new();
        for round in 0..(operations / 10).clamp(20, 300) {
            let mut last = store.applied();
            for n in 0..group {
                last = store.apply(&batch(round * group + n))?;
            }
            let began = Instant::now();
            crate::bench::store::wait(store.wait(last, Level::Synced))?;
            times.push(began.elapsed().as_secs_f64() * 1e6);
        }
        // The lower quarter: the rest waits for others who use this machine.
        times.sort_by(f64::total_cmp);
        let quarter = times.get(times.len() / 4).copied();
        all.push((group, quarter.unwrap_or_default()));
    }
    // A device is not faster when it has more to do; what looks like it is chance.
    for i in 1..all.len() {
        all[i].1 = all[i].1.max(all[i - 1].1);
    }
    Ok(all)
}
