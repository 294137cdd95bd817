//! `pando bench`: figures. Ratios within one run are what they are good for: against `echo` and `null`, the
//! ceilings, or against the same run with one thing changed.

pub mod calibrate;
mod cost;
mod counted;
mod echo;
mod figure;
mod inside;
mod join;
mod lines;
mod list;
mod mdtest;
mod meter;
mod mix;
mod mkdir;
mod null;
mod oracle;
mod own;
mod posix;
mod resolve;
mod spent;
mod store;

use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party, Paths};
use crate::crew::Crew;
use crate::text;
use anyhow::{Context, Result};
use clap::Subcommand;
use meter::Measured;
use pando_net::{Options, Waiting};
use pando_types::Errno;
use serde_json::{Map, Value, json};
use spent::Spent;
use std::cell::Cell;
use std::ops::Range;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

/// Benchmarks.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    Echo(echo::EchoArgs),
    Null(null::NullArgs),
    Store(store::StoreArgs),
    Mdtest(mdtest::MdtestArgs),
    Mix(mix::MixArgs),
    List(list::ListArgs),
    Posix(posix::PosixArgs),
    Resolve(resolve::ResolveArgs),
    Oracle(oracle::OracleArgs),
    Figure(figure::FigureArgs),
    Cost(cost::CostArgs),
    Join(join::JoinArgs),
    Mkdir(mkdir::MkdirArgs),
    Calibrate(calibrate::CalibrateArgs),
    Counted(counted::CountedArgs),
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
        BenchCommand::Mix(a) => mix::run(args, a),
        BenchCommand::List(a) => list::run(args, a),
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
        BenchCommand::Counted(a) => return counted::run(args, a),
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
            if let Some(spent) = &r.spent {
                object.extend(spent_json(spent));
            }
            object.extend(r.more.clone());
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

/// What nobody knows is left out.
fn spent_json(spent: &Spent) -> Map<String, Value> {
    let round = |x: Option<f64>| x.map(|x| (x * 1e4).round() / 1e4);
    let mut all = Map::new();
    if spent.client_us.is_some() {
        let cpu = json!({ "client": round(spent.client_us), "servers": round(spent.servers_us) });
        all.insert("cpu_us_per_op".into(), cpu);
    }
    let others = [
        ("record_hit_rate", spent.record_hits),
        ("uncached_reads_per_op", spent.uncached_reads),
        ("disk_reads_per_op", spent.disk_reads),
        ("log_bytes_per_op", spent.log_bytes),
        ("ops_per_sync", spent.per_sync),
    ];
    let known = others
        .into_iter()
        .filter_map(|(name, x)| Some((name.into(), round(x)?.into())));
    all.extend(known);
    all
}

/// A column of what was spent: nobody sees it unless it says something.
type Column = (&'static str, fn(&Spent) -> Option<String>);

const COLUMNS: [Column; 5] = [
    ("client cpu us", |s| s.client_us.map(|t| format!("{t:.1}"))),
    ("servers cpu us", |s| s.servers_us.map(|t| format!("{t:.1}"))),
    ("records hit", |s| {
        s.record_hits.map(|h| format!("{:.1} %", h * 100.0))
    }),
    ("other reads/op", |s| s.uncached_reads.map(|n| format!("{n:.2}"))),
    ("ops/sync", |s| s.per_sync.map(|n| format!("{n:.1}"))),
];

/// What some benchmarks tell scripts is a column for people, too.
const MORE: [(&str, &str); 3] = [
    ("percent", "share %"),
    ("client_growth_kib", "client grew KiB"),
    ("servers_growth_kib", "servers grew KiB"),
];

fn table(figures: &Figures) -> String {
    let results = &figures.results;
    let cell = |r: &Measured, column: &Column| r.spent.as_ref().and_then(column.1);
    let columns: Vec<&Column> = COLUMNS
        .iter()
        .filter(|c| results.iter().any(|r| cell(r, c).is_some()))
        .collect();
    let more: Vec<_> = MORE
        .iter()
        .filter(|(key, _)| results.iter().any(|r| r.more.contains_key(*key)))
        .collect();
    let rows: Vec<Vec<String>> = results
        .iter()
        .map(|r| {
            let mut row = vec![
                r.op.clone(),
                r.ops.to_string(),
                format!("{:.0}", r.ops_per_s),
                format!("{:.1}", r.p50_us),
                format!("{:.1}", r.p99_us),
                format!("{:.1}", r.p999_us),
                r.round_trips.map_or("-".into(), |t| format!("{t:.2}")),
            ];
            row.extend(columns.iter().map(|c| cell(r, c).unwrap_or("-".into())));
            let told = |key: &str| r.more.get(key).filter(|v| !v.is_null()).map(Value::to_string);
            row.extend(more.iter().map(|(key, _)| told(key).unwrap_or("-".into())));
            row
        })
        .collect();
    let mut head = vec![
        "op",
        "ops",
        "ops/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "round trips/op",
    ];
    head.extend(columns.iter().map(|c| c.0));
    head.extend(more.iter().map(|(_, name)| *name));
    text::table(&head, &rows)
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

/// Does `work` for each of these numbers, so many at a time; what has not begun when one fails is left out.
fn crowd<W: Future<Output = Result<(), Errno>> + 'static>(
    conn: &Connection,
    depth: usize,
    items: Range<u64>,
    work: impl Fn(u64) -> W + 'static,
) -> Result<(), Errno> {
    let (next, failed) = (Rc::new(Cell::new(items.start)), Rc::new(Cell::new(None)));
    let work = Rc::new(work);
    let crew = Crew::new(conn.reactor.clone(), depth);
    for _ in 0..depth.max(1) {
        let (next, failed, work) = (next.clone(), failed.clone(), work.clone());
        crew.add(async move {
            while failed.get().is_none() && next.get() < items.end {
                let item = next.replace(next.get() + 1);
                if let Err(e) = work(item).await {
                    failed.set(Some(e));
                }
            }
        });
    }
    conn.run(crew.finished());
    failed.get().map_or(Ok(()), Err)
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
