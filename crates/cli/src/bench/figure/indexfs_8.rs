//! Figure 8 of IndexFS: files made, looked at and removed through Pando, and by system calls in the
//! filesystem that its stores are on.

use super::Real;
use super::indexfs_11::{create, file_name, new_dir};
use crate::args::{Choices, Mode};
use crate::bench::lines::{Claim, Drawn, Line, round};
use crate::bench::own::OwnCluster;
use crate::bench::{crowd, on_threads};
use crate::connect::{Connection, Paths};
use anyhow::{Context, Result};
use pando_types::{Cred, Errno};
use pando_wire::{Op, Statement};
use serde_json::json;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Instant;

/// Operations of a client at a time; without Pando there are so many threads for each client.
const DEPTH: usize = 4;
/// Where tmpfs is.
const MEMORY: &str = "/dev/shm";

/// The operations on each file.
const PHASES: [&str; 3] = ["create", "stat", "remove"];

/// Rates of the three.
type Rates = [f64; PHASES.len()];

/// How the filesystem itself is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direct {
    /// As programs do.
    Plain,
    /// Files that are made, and their directories, are synced each time.
    Synced,
}

/// Where stores are.
struct Medium {
    at: PathBuf,
    filesystem: String,
}

fn media(bench: &Real) -> Result<Vec<Medium>> {
    let mut all = Vec::new();
    for at in [PathBuf::from(MEMORY), bench.at.clone()] {
        if at.is_dir() {
            let filesystem = filesystem_of(&at)?;
            all.push(Medium { at, filesystem });
        }
    }
    Ok(all)
}

/// By the number that statfs gives; those that people have.
fn filesystem_of(path: &Path) -> Result<String> {
    let stat = rustix::fs::statfs(path).with_context(|| format!("{} cannot be looked at", path.display()))?;
    Ok(match stat.f_type as u64 {
        0x0102_1994 => "tmpfs".into(),
        0xef53 => "ext4".into(),
        0x5846_5342 => "xfs".into(),
        0x9123_683e => "btrfs".into(),
        other => format!("type {other:#x}"),
    })
}

fn sync_dir(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Takes part in each phase: all threads begin one together, also those that failed in one before.
fn together(start: &Barrier, mut work: impl FnMut(usize) -> Result<()>) -> Result<Rates> {
    let (mut times, mut failed) = (Rates::default(), None);
    for (phase, time) in times.iter_mut().enumerate() {
        start.wait();
        let began = Instant::now();
        if failed.is_none() {
            failed = work(phase).err();
        }
        *time = began.elapsed().as_secs_f64();
    }
    failed.map_or(Ok(times), Err)
}

/// One phase of a thread, on files in its directory.
fn directly(dir: &Path, phase: usize, items: u64, how: Direct) -> std::io::Result<()> {
    for n in 0..items {
        let path = dir.join(format!("file-{n}"));
        match phase {
            0 => {
                let file = File::create_new(&path)?;
                if how == Direct::Synced {
                    file.sync_all()?;
                    sync_dir(dir)?;
                }
            }
            1 => {
                std::fs::metadata(&path)?;
            }
            _ => {
                std::fs::remove_file(&path)?;
                if how == Direct::Synced {
                    sync_dir(dir)?;
                }
            }
        }
    }
    Ok(())
}

/// Without Pando.
fn direct(bench: &Real, medium: &Medium, how: Direct, items: u64) -> Result<Rates> {
    let folder = tempfile::Builder::new()
        .prefix("pando-direct-")
        .tempdir_in(&medium.at)?;
    let threads = bench.clients * DEPTH;
    let each = (items / threads as u64).max(1);
    let start = Barrier::new(threads);
    let times = on_threads(threads, |n| {
        let dir = folder.path().join(format!("of-{n}"));
        let made = std::fs::create_dir(&dir);
        let times = together(&start, |phase| {
            if made.is_err() {
                return Ok(());
            }
            directly(&dir, phase, each, how)
                .with_context(|| format!("cannot {} files in {}", PHASES[phase], dir.display()))
        });
        made.with_context(|| format!("cannot make {}", dir.display()))?;
        times
    })?;
    Ok(rates(&times, each))
}

fn rates(times: &[Rates], each: u64) -> Rates {
    let of = |phase: usize| times.iter().map(|t| each as f64 / t[phase].max(1e-9)).sum();
    std::array::from_fn(of)
}

fn op(dir: &Statement, phase: usize, n: u64) -> Result<Op, Errno> {
    let (name, dir) = (file_name(n)?, dir.clone());
    Ok(match phase {
        0 => create(&dir, n)?,
        1 => Op::Lookup { dir, name },
        _ => Op::Unlink {
            dir,
            name,
            held: false,
        },
    })
}

fn phase(conn: &Connection, dir: &Statement, phase: usize, items: u64) -> Result<()> {
    let (client, dir) = (conn.client.clone(), dir.clone());
    let work = move |n| {
        let (client, dir) = (client.clone(), dir.clone());
        async move { client.op(&Cred::root(), op(&dir, phase, n)?).await.map(|_| ()) }
    };
    crowd(conn, DEPTH, 0..items, work).with_context(|| format!("cannot {} files", PHASES[phase]))
}

/// Through Pando, with its stores there.
fn layered(bench: &Real, medium: &Medium, durability: Mode, items: u64) -> Result<Rates> {
    let choices = Choices {
        profile: "indexfs".into(),
        durability,
        ..Choices::default()
    };
    let cluster = OwnCluster::start(&medium.at, bench.servers, &choices, bench.rtt)?;
    let each = (items / bench.clients as u64).max(1);
    let start = Barrier::new(bench.clients);
    let times = on_threads(bench.clients, |client| {
        let ready = cluster.connect(bench.waiting, Paths::default()).and_then(|conn| {
            let made = conn.run(new_dir(&conn, &format!("of-{client}")));
            Ok((made.context("cannot make a directory")?, conn))
        });
        let times = together(&start, |number| match &ready {
            Ok((dir, conn)) => phase(conn, dir, number, each),
            Err(_) => Ok(()),
        });
        ready?;
        times
    })?;
    Ok(rates(&times, each))
}

/// Rates in one place.
struct Compared {
    filesystem: String,
    plain: Rates,
    synced: Rates,
    with_async: Rates,
    with_sync: Rates,
}

pub fn draw(bench: &Real) -> Result<Drawn> {
    // About as long as the other figures measure, at some 10,000 a second.
    let items = (bench.seconds * 10_000.0) as u64;
    let mut all = Vec::new();
    for medium in media(bench)? {
        eprintln!("{} in {}", medium.filesystem, medium.at.display());
        all.push(Compared {
            plain: direct(bench, &medium, Direct::Plain, items)?,
            // A device syncs some thousand times a second at most.
            synced: direct(bench, &medium, Direct::Synced, items / 5)?,
            with_async: layered(bench, &medium, Mode::Async, items)?,
            with_sync: layered(bench, &medium, Mode::Sync, items)?,
            filesystem: medium.filesystem,
        });
    }
    Ok(Drawn {
        bench: "figure",
        figure: Some("indexfs-8"),
        params: json!({
            "servers": bench.servers, "clients": bench.clients, "depth": DEPTH, "items": items,
            "rtt_us": bench.rtt.as_micros() as u64, "waiting": bench.waiting.name(),
        }),
        lines: all.iter().flat_map(lines).collect(),
        claims: claims(&all),
    })
}

fn lines(one: &Compared) -> Vec<Line> {
    let line = |n: usize| {
        vec![
            ("stores on", json!(one.filesystem)),
            ("operation", json!(PHASES[n])),
            ("direct/s", json!(one.plain[n].round())),
            ("pando async/s", json!(one.with_async[n].round())),
            ("times", round(one.with_async[n] / one.plain[n])),
            ("direct synced/s", json!(one.synced[n].round())),
            ("pando sync/s", json!(one.with_sync[n].round())),
            ("times synced", round(one.with_sync[n] / one.synced[n])),
            ("paper", json!("1.5 to 100 times, on Lustre, HDFS, PanFS")),
        ]
    };
    (0..PHASES.len()).map(line).collect()
}

fn claims(all: &[Compared]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for one in all {
        claims.push(Claim {
            about: "Creates that are durable when they are answered, to the filesystem below",
            paper: "50 % to two orders of magnitude more than the distributed filesystem below",
            here: format!(
                "{}: {:.2} times, and {:.2} times where nobody syncs",
                one.filesystem,
                one.with_sync[0] / one.synced[0],
                one.with_async[0] / one.plain[0]
            ),
        });
    }
    claims.push(Claim {
        about: "What is below",
        paper: "Lustre, HDFS and PanFS, each with a network before it",
        here: "the kernel's own filesystems, called without a network: one process looks, \
               the other asks a server"
            .into(),
    });
    claims
}
