//! `pando bench`: figures. Ratios within one run are what they are good for: against `echo` and `null`, the ceilings, or
//! against the same run with one thing changed.

pub mod calibrate;
mod cost;
mod echo;
mod figure;
mod inside;
mod join;
mod lines;
mod mdtest;
mod meter;
mod mkdir;
mod null;
mod oracle;
mod own;
mod posix;
mod resolve;
mod store;

use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party, Paths};
use crate::text;
use anyhow::{Context, Result};
use clap::Subcommand;
use meter::Measured;
use pando_net::{Options, Waiting};
use serde_json::{Map, Value, json};
use std::process::ExitCode;
use std::time::Duration;

/// Benchmarks.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    Echo(echo::EchoArgs),
    Null(null::NullArgs),
    Store(store::StoreArgs),
    Mdtest(mdtest::MdtestArgs),
    Posix(posix::PosixArgs),
    Resolve(resolve::ResolveArgs),
    Oracle(oracle::OracleArgs),
    Figure(figure::FigureArgs),
    Cost(cost::CostArgs),
    Join(join::JoinArgs),
    Mkdir(mkdir::MkdirArgs),
    Calibrate(calibrate::CalibrateArgs),
}

/// What a benchmark gives.
pub struct Figures {
    /// Which.
    pub bench: &'static str,
    /// The filesystem's profile, if there is one.
    pub profile: Option<String>,
    /// How it was asked.
    pub params: Value,
    /// One line per operation.
    pub results: Vec<Measured>,
}

pub fn run(args: &Args, command: &BenchCommand) -> Result<ExitCode> {
    let figures = match command {
        BenchCommand::Echo(a) => echo::run(a),
        BenchCommand::Null(a) => null::run(args, a),
        BenchCommand::Store(a) => store::run(a),
        BenchCommand::Mdtest(a) => mdtest::run(args, a),
        BenchCommand::Posix(a) => match posix::run(a)? {
            Some(figures) => Ok(figures),
            None => return Ok(ExitCode::SUCCESS),
        },
        BenchCommand::Resolve(a) => resolve::run(args, a),
        BenchCommand::Oracle(a) => return oracle::run(args, a),
        BenchCommand::Figure(a) => return figure::run(args, a),
        BenchCommand::Cost(a) => return cost::run(args, a),
        BenchCommand::Join(a) => return join::run(args, a),
        BenchCommand::Mkdir(a) => return mkdir::run(args, a),
        BenchCommand::Calibrate(a) => return calibrate::run(args, a),
    }?;
    let errors: u64 = figures.results.iter().map(|r| r.errors).sum();
    if args.json {
        println!("{}", json(&figures));
    } else {
        print!("{}", table(&figures));
    }
    if let Some(first) = figures.results.iter().find_map(|r| r.first_error.as_ref()) {
        eprintln!("pando: {errors} operations failed; the first: {first}");
    }
    Ok(if errors == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn json(figures: &Figures) -> Value {
    let round = |x: f64| (x * 100.0).round() / 100.0;
    let results: Vec<Value> = figures
        .results
        .iter()
        .map(|r| {
            let mut object = Map::new();
            object.insert("op".into(), r.op.clone().into());
            object.insert("ops".into(), r.ops.into());
            object.insert("ops_per_s".into(), round(r.ops_per_s).into());
            object.insert("p50_us".into(), round(r.p50_us).into());
            object.insert("p99_us".into(), round(r.p99_us).into());
            object.insert("p999_us".into(), round(r.p999_us).into());
            object.insert("round_trips".into(), r.round_trips.map(round).into());
            if r.errors > 0 {
                object.insert("errors".into(), r.errors.into());
            }
            Value::Object(object)
        })
        .collect();
    json!({
        "bench": figures.bench, "commit": option_env!("PANDO_COMMIT").unwrap_or("unknown"),
        "profile": figures.profile, "params": figures.params, "results": results,
    })
}

fn table(figures: &Figures) -> String {
    let rows: Vec<Vec<String>> = figures
        .results
        .iter()
        .map(|r| {
            vec![
                r.op.clone(),
                r.ops.to_string(),
                format!("{:.0}", r.ops_per_s),
                format!("{:.1}", r.p50_us),
                format!("{:.1}", r.p99_us),
                format!("{:.1}", r.p999_us),
                r.round_trips.map_or("-".into(), |t| format!("{t:.2}")),
            ]
        })
        .collect();
    text::table(
        &[
            "op",
            "ops",
            "ops/s",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "round trips/op",
        ],
        &rows,
    )
}

/// How clients wait for answers.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Always sleep.
    Blocking,
    /// Spin while it pays.
    Adaptive,
    /// Never sleep.
    Polling,
}

impl Wait {
    fn waiting(self) -> Waiting {
        match self {
            Wait::Blocking => Waiting::Blocking,
            Wait::Adaptive => Waiting::default(),
            Wait::Polling => Waiting::Polling,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Wait::Blocking => "blocking",
            Wait::Adaptive => "adaptive",
            Wait::Polling => "polling",
        }
    }
}

/// Runs `work` on so many threads at once, each with its number.
fn on_threads<T: Send>(threads: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..threads.max(1))
            .map(|i| scope.spawn(move || work(i)))
            .collect();
        all.into_iter()
            .map(|t| match t.join() {
                Ok(result) => result,
                Err(_) => anyhow::bail!("a client of the benchmark failed"),
            })
            .collect()
    })
}

/// A client of the running cluster, connected to every server.
fn connect(dir: &ClusterDir, waiting: Wait, paths: Paths) -> Result<Connection> {
    connect_over(dir, waiting, paths, Duration::ZERO)
}

/// The same, with what servers answer arriving so much later.
fn connect_over(dir: &ClusterDir, waiting: Wait, paths: Paths, delay: Duration) -> Result<Connection> {
    let options = Options {
        waiting: waiting.waiting(),
        delay,
        ..Options::default()
    };
    let conn = Connection::open_with(dir, Party::Client, options, Duration::from_secs(5), paths)?;
    for server in conn.client.map().servers.iter().map(|s| s.id) {
        let answer = conn.run(conn.client.admin(server, pando_wire::Request::Null(false)));
        answer.with_context(|| {
            format!(
                "server {server} does not answer{}; `pando up` starts it",
                conn.because()
            )
        })?;
    }
    Ok(conn)
}
