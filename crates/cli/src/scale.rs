//! `pando sim scale`: how much so many servers do, in virtual time (`pando_scale`), with what a message takes
//! measured here (`pando bench calibrate`).

use crate::args::{Args, Mode};
use crate::bench::calibrate::{self, Calibration};
use crate::text;
use anyhow::Result;
use pando_scale::{Crowd, DEPTH, Measured, PARENTS, Phase, Setup};
use pando_store::Durability;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Shares of linear that the project aims at, and from how many servers on they count: with one there is no
/// mkdir that concerns two.
const AIMS: [(Phase, u16, f64); 4] = [
    (Phase::Create, 1, 0.9),
    (Phase::Stat, 1, 0.9),
    (Phase::Mkdir, 2, 0.8),
    (Phase::MkdirWide, 2, 0.8),
];
/// How busy every server is to be, or the clients are too few to say anything.
const BUSY: f64 = 0.9;

/// Measures how throughput rises with the number of servers: the servers and clients of production in virtual
/// time, each server with one processor, which takes for each message what was measured on this machine.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: 0, also if an aim is missed: that is printed.\n\nExamples:\n  pando sim scale --servers 1,2,4,8,16,32 --clients 2048\n  pando bench calibrate --out costs.json && pando sim scale --calibration costs.json --json"
)]
pub struct ScaleArgs {
    /// Numbers of servers.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub servers: Vec<u16>,
    #[command(flatten)]
    pub crowd: CrowdArgs,
}

/// What clients and servers are like in virtual time.
#[derive(clap::Args, Clone, Debug)]
pub struct CrowdArgs {
    /// Clients, each with one operation at a time.
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub clients: u32,
    /// Operations of each kind that are counted, for each server.
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub ops: u64,
    /// Everything that is random follows from it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Round trip of the network; the paper's takes about 60us.
    #[arg(long, value_name = "TIME", value_parser = text::duration, default_value = "60us")]
    pub network: Duration,
    /// What messages take, as `pando bench calibrate --out` wrote it. [default: measured now]
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
}

impl CrowdArgs {
    /// From the file, or measured now.
    pub fn calibration(&self, how: &calibrate::How) -> Result<Calibration> {
        match &self.calibration {
            Some(path) => Calibration::read(path),
            None => calibrate::measure(how),
        }
    }

    /// So many servers with these costs.
    pub fn setup(&self, servers: u16, durability: Mode, calibration: &Calibration) -> Setup {
        Setup {
            seed: self.seed,
            durability: match durability {
                Mode::Sync => Durability::Sync,
                Mode::Async => Durability::Async,
            },
            ..Setup::new(servers, self.clients, Rc::new(calibration.costs(self.network)))
        }
    }

    /// As results say it.
    pub fn params(&self) -> Value {
        json!({
            "clients": self.clients, "ops_per_server": self.ops, "seed": self.seed, "depth": DEPTH,
            "parents_per_client": PARENTS, "rtt_us": self.network.as_micros() as u64,
        })
    }
}

/// One number of servers.
pub struct Point {
    pub servers: u16,
    pub phases: Vec<Measured>,
    /// What it took here.
    pub wall: Duration,
}

impl Point {
    fn of(&self, phase: Phase) -> Option<&Measured> {
        self.phases.iter().find(|m| m.phase == phase)
    }
}

/// All phases with so many servers.
pub fn measure(setup: &Setup, ops: u64) -> Result<Point> {
    let began = Instant::now();
    let problem = |e: String| anyhow::anyhow!("{} servers: {e}", setup.servers);
    let crowd = Crowd::start(setup).map_err(problem)?;
    let ops = ops * u64::from(setup.servers);
    let mut phases = Vec::new();
    for (phase, ops) in [
        (Phase::Mkdir, ops),
        (Phase::MkdirWide, ops / 2),
        (Phase::Create, ops),
        (Phase::Stat, ops),
        // Clients that have nothing left would make the others look slow.
        (Phase::Delete, ops / 2),
    ] {
        if phase == Phase::MkdirWide && setup.servers == 1 {
            continue;
        }
        phases.push(crowd.run(phase, ops).map_err(problem)?);
    }
    crowd.prepare(Phase::Delete, u64::MAX).map_err(problem)?;
    phases.push(crowd.run(Phase::Rmdir, ops / 2).map_err(problem)?);
    Ok(Point {
        servers: setup.servers,
        phases,
        wall: began.elapsed(),
    })
}

/// Throughput against that of the first number of servers from `from` on, and what it would be if it rose
/// with them.
pub fn to_linear(points: &[Point], point: &Point, phase: Phase, from: u16) -> Option<f64> {
    let base = points.iter().find(|p| p.servers >= from)?;
    let (rate, base_rate) = (point.of(phase)?.rate(), base.of(phase)?.rate());
    let more = f64::from(point.servers) / f64::from(base.servers);
    (point.servers >= from).then_some(rate / base_rate / more)
}

/// Every number of servers, with progress on stderr.
pub fn sweep(servers: &[u16], crowd: &CrowdArgs, how: &calibrate::How) -> Result<(Calibration, Vec<Point>)> {
    let calibration = crowd.calibration(how)?;
    let mut numbers = servers.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    let mut points = Vec::new();
    for servers in numbers {
        eprintln!("{servers} servers, {} clients", crowd.clients);
        points.push(measure(
            &crowd.setup(servers, how.durability, &calibration),
            crowd.ops,
        )?);
    }
    Ok((calibration, points))
}

pub fn run(args: &Args, scale: &ScaleArgs, how: &calibrate::How) -> Result<ExitCode> {
    let (calibration, points) = sweep(&scale.servers, &scale.crowd, how)?;
    let misses = misses(&points);
    if args.json {
        println!("{}", to_json(scale, how, &calibration, &points, &misses));
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "commit {}, calibration of commit {} ({})\n",
        option_env!("PANDO_COMMIT").unwrap_or("unknown"),
        calibration.commit,
        calibration.params
    );
    print!("{}", calibrate::table(&calibration));
    println!("\n{}", table(&points));
    println!("busy: share of the time that each server's processor worked");
    for point in &points {
        for m in &point.phases {
            let busy: Vec<String> = m.busy.iter().map(|b| format!("{:.0}", b * 100.0)).collect();
            println!("{:>3} {:<7} {} %", point.servers, m.phase.name(), busy.join(" "));
        }
    }
    match misses.as_slice() {
        [] => println!("\nall aims are met"),
        all => println!("\nmissed: {}", all.join("\n        ")),
    }
    Ok(ExitCode::SUCCESS)
}

/// What is not as it is to be.
fn misses(points: &[Point]) -> Vec<String> {
    let mut all = Vec::new();
    for point in points {
        for (phase, from, aim) in AIMS {
            if let Some(share) = to_linear(points, point, phase, from)
                && share < aim
            {
                all.push(format!(
                    "{} with {} servers is {share:.2} of linear from {from} on, not {aim}",
                    phase.name(),
                    point.servers
                ));
            }
        }
        for m in &point.phases {
            if m.least_busy() < BUSY {
                all.push(format!(
                    "{} with {} servers: one is busy only {:.0} % of the time",
                    m.phase.name(),
                    point.servers,
                    m.least_busy() * 100.0
                ));
            }
        }
    }
    all
}

fn shares(points: &[Point], point: &Point, phase: Phase) -> [Option<f64>; 2] {
    [1, 2].map(|from| to_linear(points, point, phase, from))
}

fn table(points: &[Point]) -> String {
    let share = |s: Option<f64>| s.map_or("-".into(), |s| format!("{s:.2}"));
    let rows: Vec<Vec<String>> = points
        .iter()
        .flat_map(|p| p.phases.iter().map(move |m| (p, m)))
        .map(|(p, m)| {
            let [from_one, from_two] = shares(points, p, m.phase);
            vec![
                p.servers.to_string(),
                m.phase.name().into(),
                m.ops.to_string(),
                format!("{:.0}", m.rate()),
                share(from_one),
                share(from_two),
                format!("{:.0}", m.least_busy() * 100.0),
                format!("{:.1}", m.cpu_us),
                format!("{:.0}", m.p50_us),
                format!("{:.0}", m.p99_us),
                format!("{:.2}", m.round_trips),
                format!("{:.2}", m.between),
                format!("{:.1}", m.unknown * 100.0),
            ]
        })
        .collect();
    let head = [
        "servers",
        "op",
        "ops",
        "ops/s",
        "of linear",
        "from 2 on",
        "least busy %",
        "cpu us/op",
        "p50 us",
        "p99 us",
        "round trips",
        "between",
        "uncalibrated %",
    ];
    text::table(&head, &rows)
}

fn to_json(
    scale: &ScaleArgs,
    how: &calibrate::How,
    calibration: &Calibration,
    points: &[Point],
    misses: &[String],
) -> Value {
    let round = |x: f64| (x * 1000.0).round() / 1000.0;
    let lines: Vec<Value> = points
        .iter()
        .flat_map(|p| p.phases.iter().map(move |m| (p, m)))
        .map(|(p, m)| {
            let [from_one, from_two] = shares(points, p, m.phase).map(|s| s.map(round));
            json!({
                "servers": p.servers, "op": m.phase.name(), "ops": m.ops, "ops_per_s": round(m.rate()),
                "of_linear": from_one, "of_linear_from_2": from_two, "mean_us": round(m.mean_us),
                "p50_us": round(m.p50_us), "p99_us": round(m.p99_us), "round_trips": round(m.round_trips),
                "between_servers": round(m.between), "cpu_us": round(m.cpu_us), "uncalibrated": round(m.unknown),
                "least_busy": round(m.least_busy()), "busy": m.busy.iter().map(|b| round(*b)).collect::<Vec<_>>(),
            })
        })
        .collect();
    let wall: f64 = points.iter().map(|p| p.wall.as_secs_f64()).sum();
    json!({
        "bench": "scale", "commit": option_env!("PANDO_COMMIT").unwrap_or("unknown"),
        "params": { "crowd": scale.crowd.params(), "durability": how.durability.word() },
        "calibration": calibration.json(), "results": lines, "missed": misses, "wall_s": round(wall),
    })
}
