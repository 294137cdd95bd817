//! Two servers on threads of this process, and a device.

use super::meter::{Meter, Samples, Shared, take};
use crate::args::{Choices, Mode};
use crate::bench::inside::{How, Inside};
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::store_kinds::{StoreKind, StoreOptions};
use crate::{addresses, format};
use anyhow::{Context, Result, bail};
use pando_format::{Key, Mutation, Record, SessionRecord};
use pando_net::Waiting;
use pando_server::Limits;
use pando_store::{Batch, Level};
use pando_types::{ServerId, SessionId, Timestamp};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Batches that share a sync, when the device is measured.
const GROUPS: [u64; 4] = [1, 8, 64, 256];

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
        let file = format::make(
            &dir,
            addresses::on_loopback(0, 2, choices.auth.mode())?,
            None,
            &choices,
        )?;
        let mut pair = Pair {
            dir,
            samples: Vec::new(),
            stop: Arc::default(),
            threads: Vec::new(),
            _folder: folder,
        };
        let (tell, told) = channel();
        for server in &file.servers {
            let (dir, id) = (pair.dir.clone(), ServerId(server.id));
            let (samples, stop, tell) = (Shared::default(), pair.stop.clone(), tell.clone());
            pair.samples.push(samples.clone());
            let run = move || serve(&dir, id, samples, &stop, || tell.send(()).unwrap_or(()));
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
    samples: Shared,
    stop: &AtomicBool,
    ready: impl FnOnce(),
) -> Result<()> {
    let how = How {
        waiting: Waiting::Blocking,
        cache_bytes: StoreOptions::default().cache_bytes,
        secrets: std::convert::identity,
        // Each message by itself: where there are many servers not much goes to one of them.
        limits: Limits {
            owed_after: Duration::ZERO,
            ..Limits::default()
        },
    };
    let inside = Inside::open(dir, id, &how)?;
    let meter = Meter::new(inside.server.clone(), inside.map.clone(), samples);
    inside.listen(meter)?;
    let reactor = &inside.reactor;
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
    StoreKind::NEW.create(&path, crate::bench::store::superblock())?;
    let (opened, _) = StoreKind::NEW.open(&path, &StoreOptions::default())?;
    let store = opened.store();
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
