//! `pando bench mix`: operations at random, in the shares that production systems have them.

mod worker;
mod workload;

use super::meter::{Measured, Meter};
use super::spent::{Phases, Watch};
use super::{Figures, Wait, connect, on_threads};
use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, my_cred};
use crate::crew::Crew;
use crate::fs::{absolute, below};
use anyhow::{Context, Result};
use pando_types::Perm;
use serde_json::{Map, json};
use std::cell::RefCell;
use std::ffi::OsString;
use std::rc::Rc;
use std::time::{Duration, Instant};
use worker::Worker;
use workload::{KINDS, WHOLE, WORKLOADS, Workload};

/// The mixes of operations of Alibaba, Baidu and Spotify (table 5 of HMFS), each operation drawn at random by
/// its share.
///
/// Every client first makes -n files of its own, in directories of --per-directory, and then works on them,
/// each file as likely as any other. Directories are open: a stat is one look at a name. `rename` moves a
/// file to a directory at random, `list` reads the names of a whole directory, `others` changes the
/// permissions of a file, `mkdir` makes empty directories and `rmdir` removes those. Where there is nothing
/// to remove one is made instead, and counted as what it was. Needs a running cluster; what was made is
/// removed.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando bench mix\n  pando bench mix --workload alibaba -n 500000 --clients 2 --depth 16 --seconds 20 --json"
)]
pub struct MixArgs {
    /// Whose.
    #[arg(long, value_enum, default_value_t = Whose::All)]
    pub workload: Whose,
    /// Files of each client.
    #[arg(short = 'n', default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub files: u64,
    /// Files of each directory, at first.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub per_directory: u64,
    /// Clients, each a thread with a session of its own.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub clients: u64,
    /// Requests in flight, per client.
    #[arg(long, default_value_t = 1)]
    pub depth: usize,
    /// Seconds of each workload.
    #[arg(long, default_value_t = 5.0, value_parser = crate::text::seconds)]
    pub seconds: f64,
    /// The directory in which it happens.
    #[arg(short = 'd', value_name = "PATH", default_value = "/pando-mix")]
    pub base: OsString,
    /// How clients wait for answers.
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub waiting: Wait,
}

/// Which workloads.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// Pangu, in Alibaba Cloud.
    Alibaba,
    /// CFS, in Baidu AI Cloud.
    Baidu,
    /// HDFS, at Spotify.
    Spotify,
    /// One after the other.
    All,
}

impl Whose {
    fn which(self) -> Vec<Workload> {
        match self {
            Whose::Alibaba => vec![WORKLOADS[0]],
            Whose::Baidu => vec![WORKLOADS[1]],
            Whose::Spotify => vec![WORKLOADS[2]],
            Whose::All => WORKLOADS.to_vec(),
        }
    }
}

/// One client's part of one workload: everything, and each kind.
struct Part {
    all: Meter,
    kinds: Vec<Meter>,
}

impl Part {
    fn new() -> Result<Part> {
        let kinds = KINDS.iter().map(|_| Meter::new()).collect::<Result<_>>()?;
        Ok(Part {
            all: Meter::new()?,
            kinds,
        })
    }
}

pub fn run(args: &Args, bench: &MixArgs) -> Result<Figures> {
    let dir = ClusterDir::of(args)?;
    let file = dir.load()?;
    let workloads = bench.workload.which();
    let base = absolute(&bench.base);
    let first = connect(&dir, bench.waiting, args.paths)?;
    first
        .run(first.client.mkdir_all(&my_cred(), &base, Perm::new(0o755)))
        .with_context(|| format!("cannot make {}", crate::text::printable(&base)))?;
    let watch = Watch::of(&dir, &file);
    let phases = Phases::new(&watch, bench.clients as usize);
    let parts = on_threads(bench.clients as usize, |number| {
        let ready = connect(&dir, bench.waiting, args.paths).and_then(|conn| {
            let root = below(&base, format!("client.{number}").as_bytes());
            let worker = Worker::prepare(&conn, root, number as u64, bench.files, bench.per_directory)?;
            Ok((conn, worker))
        });
        let part = |workload: &Workload| match &ready {
            Ok((conn, worker)) => work(conn, worker, workload, bench),
            Err(e) => {
                let mut part = Part::new()?;
                part.all.failed(|| format!("{e:#}"));
                Ok(part)
            }
        };
        let parts: Vec<Result<Part>> = workloads.iter().map(|w| phases.part(|| part(w))).collect();
        if let Ok((conn, worker)) = &ready {
            worker.remove(conn).context("cannot remove what was made")?;
        }
        parts.into_iter().collect::<Result<Vec<Part>>>()
    })?;
    // Who else works there keeps it.
    let _ = first.run(first.client.rmdir(&my_cred(), &base));
    let mut by_workload: Vec<Vec<Part>> = workloads.iter().map(|_| Vec::new()).collect();
    for client in parts {
        for (workload, part) in by_workload.iter_mut().zip(client) {
            workload.push(part);
        }
    }
    let mut results = Vec::new();
    for (n, (workload, parts)) in workloads.iter().zip(by_workload).enumerate() {
        results.extend(lines(workload, parts, &phases, n)?);
    }
    Ok(Figures {
        bench: "mix",
        profile: Some(file.profile.name),
        params: json!({
            "n": bench.files, "per_directory": bench.per_directory, "clients": bench.clients, "depth": bench.depth,
            "seconds": bench.seconds, "waiting": bench.waiting.name(), "servers": file.servers.len(),
            "durability": file.durability, "record_mib": watch.record_mib(),
        }),
        results,
    })
}

/// One workload: all of it, and then each kind that was done.
fn lines(workload: &Workload, parts: Vec<Part>, phases: &Phases<'_>, n: usize) -> Result<Vec<Measured>> {
    let mut all = Vec::new();
    let mut by_kind: Vec<Vec<Meter>> = KINDS.iter().map(|_| Vec::new()).collect();
    for part in parts {
        all.push(part.all);
        for (kind, meter) in by_kind.iter_mut().zip(part.kinds) {
            kind.push(meter);
        }
    }
    let mut total = Meter::sum(workload.name, all, true)?;
    total.spent = phases.spent(n, total.ops);
    total.more = Map::from_iter([
        ("workload".to_owned(), workload.name.into()),
        ("kind".to_owned(), "all".into()),
    ]);
    let mut results = vec![total];
    for (kind, meters) in KINDS.into_iter().zip(by_kind) {
        let op = format!("{}-{}", workload.name, kind.name());
        let mut measured = Meter::sum(op, meters, false)?;
        measured.more = Map::from_iter([
            ("workload".to_owned(), workload.name.into()),
            ("kind".to_owned(), kind.name().into()),
            ("percent".to_owned(), workload.percent(kind).into()),
        ]);
        // Failures are counted once, with all.
        (measured.errors, measured.first_error) = (0, None);
        if measured.ops > 0 {
            results.push(measured);
        }
    }
    Ok(results)
}

fn work(conn: &Connection, worker: &Rc<Worker>, workload: &Workload, bench: &MixArgs) -> Result<Part> {
    let part = Rc::new(RefCell::new(Part::new()?));
    let depth = bench.depth.max(1);
    let crew = Crew::new(conn.reactor.clone(), depth);
    let before = conn.client.stats().round_trips;
    let end = Instant::now() + Duration::from_secs_f64(bench.seconds);
    for _ in 0..depth {
        let (worker, part, workload) = (worker.clone(), part.clone(), *workload);
        crew.add(async move {
            loop {
                let began = Instant::now();
                if began >= end {
                    break;
                }
                let wanted = workload.kind(worker.draw(WHOLE as usize) as u64);
                let (kind, done) = worker.act(wanted).await;
                let took = began.elapsed();
                let mut part = part.borrow_mut();
                match done {
                    Ok(()) => {
                        part.all.record(took);
                        let which = KINDS.iter().position(|k| *k == kind);
                        if let Some(meter) = which.and_then(|n| part.kinds.get_mut(n)) {
                            meter.record(took);
                        }
                    }
                    Err(e) => part.all.failed(|| format!("{}: {e}", kind.name())),
                }
            }
        });
    }
    conn.run(crew.finished());
    let mut done = part.replace(Part::new()?);
    done.all.end(conn.client.stats().round_trips - before);
    done.kinds.iter_mut().for_each(|meter| meter.end(0));
    Ok(done)
}
