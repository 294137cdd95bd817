//! Figure 11: what each of the three ideas contributes. Files and directories are made at a depth of 10, by
//! one client for the latency, of finding the directory and of making something in it, and by several for the
//! throughput. The bars accumulate.

use super::Real;
use crate::args::{Choices, Without};
use crate::bench::lines::{Claim, Drawn, Line, NOT_IN_TEXT, median, round};
use crate::bench::on_threads;
use crate::bench::own::OwnCluster;
use crate::connect::{Connection, Paths, ResolutionArg};
use anyhow::{Context, Result};
use pando_client::{CACHE_BYTES, Client};
use pando_types::{Access, Cred, Errno, Perm};
use pando_wire::Op;
use serde_json::json;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Components of the path of what is made.
const DEPTH: usize = 10;
/// Directories in which several clients make things.
const LEAVES: u64 = 16;
/// How often throughput is measured; the middle counts.
const REPEATS: u64 = 3;
/// Time for what goes on after an answer, such as telling participants what was decided.
const SETTLED: Duration = Duration::from_millis(300);

/// A bar.
struct Bar {
    name: &'static str,
    decoupled: bool,
    paths: Paths,
    /// What the paper's prose says, of files and of directories.
    paper: [&'static str; 2],
}

const fn paths(resolution: ResolutionArg, cache_bytes: usize) -> Paths {
    Paths {
        resolution,
        cache_bytes,
    }
}

const BARS: [Bar; 4] = [
    Bar {
        name: "Baseline",
        decoupled: false,
        paths: paths(ResolutionArg::Sequential, 0),
        paper: ["resolution 72 %, about 9 RTTs; the rest about 3 RTTs"; 2],
    },
    Bar {
        name: "+Speculating",
        decoupled: false,
        paths: paths(ResolutionArg::Speculative, 0),
        paper: ["resolution down to 26 % of Baseline; throughput nearly the same"; 2],
    },
    Bar {
        name: "+Cache",
        decoupled: false,
        paths: paths(ResolutionArg::Speculative, CACHE_BYTES),
        paper: ["resolution less than one RTT; more than 1M ops/s"; 2],
    },
    Bar {
        name: "+Decoupling",
        decoupled: true,
        paths: paths(ResolutionArg::Speculative, CACHE_BYTES),
        paper: ["nearly one RTT in all; 3.3M ops/s", "the same as before"],
    },
];

/// What is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::File, Kind::Directory];

    fn operation(self) -> &'static str {
        match self {
            Kind::File => "create",
            Kind::Directory => "mkdir",
        }
    }
}

/// One operation in one bar.
#[derive(Default)]
struct Part {
    resolve_us: Vec<f64>,
    make_us: Vec<f64>,
    resolve_trips: u64,
    make_trips: u64,
    server_messages: f64,
    throughput: Vec<f64>,
}

impl Part {
    fn latency(&self) -> f64 {
        median(&self.resolve_us) + median(&self.make_us)
    }

    fn each(&self, sum: u64) -> f64 {
        sum as f64 / self.make_us.len().max(1) as f64
    }
}

fn above() -> Vec<u8> {
    (0..DEPTH - 2)
        .flat_map(|n| format!("/level-{n}").into_bytes())
        .collect()
}

fn path(leaf: u64, name: &str) -> Vec<u8> {
    [&above()[..], format!("/leaf-{leaf}/{name}").as_bytes()].concat()
}

/// The directory is found, then something is made in it; when it was found.
async fn make(client: &Client, kind: Kind, path: &[u8]) -> Result<(Instant, u64), Errno> {
    let cred = Cred::root();
    let (dir, name) = client.parent_of(&cred, path).await?;
    let found = (Instant::now(), client.stats().round_trips);
    let op = match kind {
        Kind::File => Op::Create {
            dir,
            name,
            mode: Perm::new(0o644).into(),
            exclusive: true,
            want: Access::WRITE.0,
        },
        Kind::Directory => Op::Mkdir {
            dir,
            name,
            mode: Perm::new(0o755).into(),
        },
    };
    client.op(&cred, op).await?;
    Ok(found)
}

/// One by one, timed.
fn measure(conn: &Connection, kind: Kind, path: &[u8], part: &mut Part) -> Result<()> {
    let (began, before) = (Instant::now(), conn.client.stats().round_trips);
    let (found, between) = conn
        .run(make(&conn.client, kind, path))
        .context("cannot make what is measured")?;
    part.make_us.push(found.elapsed().as_secs_f64() * 1e6);
    part.resolve_us.push((found - began).as_secs_f64() * 1e6);
    part.resolve_trips += between - before;
    part.make_trips += conn.client.stats().round_trips - between;
    Ok(())
}

/// By several clients at once, for a while: so many a second.
fn throughput(bench: &Real, cluster: &OwnCluster, bar: &Bar, kind: Kind, repeat: u64) -> Result<f64> {
    let start = Barrier::new(bench.clients);
    let made = on_threads(bench.clients, |client| {
        let conn = cluster.connect(bench.waiting, bar.paths);
        // All come here, also those that could not connect: the others wait for them.
        start.wait();
        let conn = conn?;
        let (began, mut made) = (Instant::now(), 0);
        while began.elapsed() < bench.span() {
            let name = format!("{}-{}-{repeat}-{client}-{made}", bar.name, kind.operation());
            let path = path((made + client as u64) % LEAVES, &name);
            conn.run(make(&conn.client, kind, &path))
                .context("cannot make what is measured")?;
            made += 1;
        }
        Ok(made as f64 / began.elapsed().as_secs_f64())
    })?;
    Ok(made.iter().sum())
}

pub fn draw(bench: &Real) -> Result<Drawn> {
    let start = |without| {
        let choices = Choices {
            without,
            profile: "infinifs".into(),
            ..bench.choices()
        };
        OwnCluster::start(&bench.at, bench.servers, &choices, bench.rtt)
    };
    let (coupled, decoupled) = (start(Some(Without::Decoupling))?, start(None)?);
    for cluster in [&coupled, &decoupled] {
        let maker = cluster.connect(bench.waiting, Paths::default())?;
        for leaf in 0..LEAVES {
            let leaf = path(leaf, "").strip_suffix(b"/").unwrap_or_default().to_vec();
            let (cred, perm) = (Cred::root(), Perm::new(0o755));
            maker
                .run(maker.client.mkdir_all(&cred, &leaf, perm))
                .context("cannot make the directories of the figure")?;
        }
    }
    let of = |bar: &Bar| if bar.decoupled { &decoupled } else { &coupled };
    let mut parts: [[Part; 2]; 4] = Default::default();
    let mut conns = Vec::new();
    for bar in &BARS {
        let conn = of(bar).connect(bench.waiting, bar.paths)?;
        // Sessions and reserved numbers are there then, and what a cache is to remember.
        for kind in Kind::ALL {
            let first = path(0, &format!("{}-{}-first", bar.name, kind.operation()));
            measure(&conn, kind, &first, &mut Part::default())?;
        }
        conns.push(conn);
    }
    for round in 0..bench.rounds {
        for ((bar, conn), parts) in BARS.iter().zip(&conns).zip(&mut parts) {
            for (kind, part) in Kind::ALL.into_iter().zip(parts) {
                let name = format!("{}-{}-{round}", bar.name, kind.operation());
                measure(conn, kind, &path(0, &name), part)?;
            }
        }
    }
    for ((bar, conn), parts) in BARS.iter().zip(&conns).zip(&mut parts) {
        for (kind, part) in Kind::ALL.into_iter().zip(parts) {
            part.server_messages = server_messages(of(bar), conn, bar, kind)?;
        }
    }
    for repeat in 0..REPEATS {
        for (bar, parts) in BARS.iter().zip(&mut parts) {
            for (kind, part) in Kind::ALL.into_iter().zip(parts) {
                part.throughput
                    .push(throughput(bench, of(bar), bar, kind, repeat)?);
            }
        }
    }
    Ok(Drawn {
        bench: "figure",
        figure: Some("infinifs-11"),
        params: json!({
            "depth": DEPTH, "servers": bench.servers, "rounds": bench.rounds, "clients": bench.clients,
            "seconds": bench.seconds, "rtt_us": bench.rtt.as_micros() as u64, "waiting": bench.waiting.name(),
            "durability": bench.durability.word(),
        }),
        lines: lines(&parts),
        claims: claims(bench, &parts),
    })
}

/// Requests that servers send each other for one operation.
fn server_messages(cluster: &OwnCluster, conn: &Connection, bar: &Bar, kind: Kind) -> Result<f64> {
    const TIMES: u64 = 10;
    let operator = cluster.operator()?;
    std::thread::sleep(SETTLED);
    let before = cluster.peer_calls(&operator)?;
    for n in 0..TIMES {
        let name = format!("{}-{}-counted-{n}", bar.name, kind.operation());
        measure(conn, kind, &path(0, &name), &mut Part::default())?;
    }
    std::thread::sleep(SETTLED);
    Ok((cluster.peer_calls(&operator)? - before) as f64 / TIMES as f64)
}

fn lines(parts: &[[Part; 2]; 4]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (k, kind) in Kind::ALL.into_iter().enumerate() {
        let baseline = &parts[0][k];
        for (bar, part) in BARS.iter().zip(parts.iter().map(|p| &p[k])) {
            lines.push(vec![
                ("operation", json!(kind.operation())),
                ("bar", json!(bar.name)),
                ("resolve trips", round(part.each(part.resolve_trips))),
                ("make trips", round(part.each(part.make_trips))),
                ("server messages", round(part.server_messages)),
                ("resolve us", round(median(&part.resolve_us))),
                ("make us", round(median(&part.make_us))),
                ("latency to baseline", round(part.latency() / baseline.latency())),
                ("ops/s", round(median(&part.throughput))),
                (
                    "ops/s to baseline",
                    round(median(&part.throughput) / median(&baseline.throughput)),
                ),
                ("paper", json!(bar.paper[k])),
            ]);
        }
    }
    lines
}

fn claims(bench: &Real, parts: &[[Part; 2]; 4]) -> Vec<Claim> {
    let resolving = |bar: usize, k: usize| median(&parts[bar][k].resolve_us);
    let ratio = |k: usize| median(&parts[3][k].throughput) / median(&parts[2][k].throughput);
    let trips = |us: f64| {
        if bench.rtt.is_zero() {
            String::new()
        } else {
            format!(", {:.1} emulated round trips", us / 1e6 / bench.rtt.as_secs_f64())
        }
    };
    let create = |bar: usize| &parts[bar][0];
    vec![
        Claim {
            about: "Baseline, create: finding the directory",
            paper: "72 % of the latency, about 9 RTTs",
            here: format!(
                "{:.0} %, {:.0} round trips",
                100.0 * resolving(0, 0) / create(0).latency(),
                create(0).each(create(0).resolve_trips)
            ),
        },
        Claim {
            about: "Baseline, create: making the file",
            paper: "28 % of the latency, about 3 RTTs",
            here: format!(
                "{:.0} %, {:.1} requests between servers{}",
                100.0 - 100.0 * resolving(0, 0) / create(0).latency(),
                create(0).server_messages,
                trips(median(&create(0).make_us))
            ),
        },
        Claim {
            about: "+Speculating: finding the directory, to Baseline",
            paper: "26 %",
            here: format!("{:.0} %", 100.0 * resolving(1, 0) / resolving(0, 0)),
        },
        Claim {
            about: "+Cache: finding the directory",
            paper: "less than one RTT",
            here: format!("{:.1} round trips", create(2).each(create(2).resolve_trips)),
        },
        Claim {
            about: "+Decoupling: latency of create",
            paper: "nearly one RTT",
            here: format!("{:.0} us{}", create(3).latency(), trips(create(3).latency())),
        },
        Claim {
            about: "+Decoupling against +Cache: throughput of create and mkdir",
            paper: "3.3M ops/s from more than 1M; mkdir remains the same",
            here: format!("{:.2} times, {:.2} times", ratio(0), ratio(1)),
        },
        Claim {
            about: "The absolute numbers",
            paper: NOT_IN_TEXT,
            here: format!(
                "{} servers and {} clients share this machine: only the ratios mean something",
                bench.servers, bench.clients
            ),
        },
    ]
}
