//! `pando bench join`: what it costs that a server joins.

mod fill;
mod load;

use super::Wait;
use super::lines::{Aim, aims_table, round};
use super::meter::Measured;
use super::own::{OwnCluster, counts};
use crate::args::{Args, Choices, Mode};
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::grow::Operator;
use crate::progress::{Progress, Unit};
use crate::text;
use anyhow::{Result, bail};
use fill::Amount;
pub(super) use fill::base;
use load::{Crowd, Shift};
use pando_cluster::ClusterMap;
use pando_net::Waiting;
use pando_types::{ServerId, Slot};
use pando_wire::ClusterRequest;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How clients wait: one that polled would take a core that servers want.
const WAIT: Wait = Wait::Blocking;
/// Between two looks at how far a join is.
const LOOK: Duration = Duration::from_millis(5);
/// Whoever is not done by then is not going to be.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Time for what the files and earlier joins left behind: ended sessions, tables that are merged, slots that
/// are swept.
const REST: Duration = Duration::from_secs(5);
/// Time for those who work before it counts.
const WARM_UP: Duration = Duration::from_secs(1);

/// A server joins a cluster full of files, which gives it its share of them: how many entries a second move,
/// and what those notice who work meanwhile. On servers of its own, each a process, in a temporary folder.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: 0 if no operation failed, also if an aim is missed: that is printed.\n\nExamples:\n  pando bench join\n  pando bench join --files 1000000 --load --json"
)]
pub struct JoinArgs {
    /// Files that are there.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub files: u64,
    /// Files of one directory. A directory is moved whole.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub per_directory: u64,
    /// Servers before.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=63))]
    pub servers: u16,
    /// The server is drained and another one joins, while clients create, stat and unlink files.
    #[arg(long)]
    pub load: bool,
    /// These clients, each a thread.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub clients: u16,
    /// Operations in flight, per client.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub depth: u16,
    /// Seconds for which they work before the server joins.
    #[arg(long, default_value_t = 5.0, value_parser = crate::text::seconds)]
    pub seconds: f64,
    /// Durability of the servers.
    #[arg(long, value_enum, default_value_t = Mode::Async)]
    pub durability: Mode,
    /// Where to make the temporary folder. [default: the system's]
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
}

/// A join.
struct Joined {
    id: ServerId,
    /// Files in the directories that moved.
    entries: u64,
    /// Records of all kinds that were sent for that.
    records: u64,
    slots: usize,
    /// From the first record to the last slot.
    seconds: f64,
    /// From the request, with the start of the server.
    in_all: f64,
    /// Longest time for which slots were nobody's.
    longest_pause_ms: f64,
}

impl Joined {
    fn rate(&self) -> f64 {
        self.entries as f64 / self.seconds.max(1e-9)
    }

    fn json(&self) -> Value {
        json!({
            "entries": self.entries, "records": self.records, "slots": self.slots, "seconds": round(self.seconds),
            "seconds_in_all": round(self.in_all), "entries_per_s": round(self.rate()),
            "longest_pause_ms": round(self.longest_pause_ms),
        })
    }
}

/// Who works meanwhile, before and during.
type Foreground = [Measured; 2];

pub fn run(args: &Args, bench: &JoinArgs) -> Result<ExitCode> {
    if args.dir.is_some() && std::env::var_os("PANDO_DIR").is_none() {
        bail!(
            "this benchmark has servers of its own: --dir means nothing here; --at says where they keep their data"
        );
    }
    if !(0.1..=3600.0).contains(&bench.seconds) {
        bail!("--seconds {}: say 0.1 to 3600", bench.seconds);
    }
    let at = bench.at.clone().unwrap_or_else(std::env::temp_dir);
    let choices = Choices {
        durability: bench.durability,
        ..Choices::default()
    };
    let mut cluster = OwnCluster::start(&at, bench.servers, &choices, Duration::ZERO)?;
    let amount = Amount {
        files: bench.files,
        per_directory: bench.per_directory,
    };
    let began = Instant::now();
    let files = fill::fill(&cluster, amount)?;
    let filled = began.elapsed().as_secs_f64();
    let grower = cluster.grower()?;
    std::thread::sleep(REST);
    let idle = join(&mut cluster, &grower, &files)?;
    let mut loaded = None;
    if bench.load {
        drain(&mut cluster, &grower, idle.id)?;
        std::thread::sleep(REST);
        loaded = Some(join_under_load(&mut cluster, &grower, &files, bench)?);
    }
    let aims = aims(&idle, loaded.as_ref());
    let foreground = || loaded.iter().flat_map(|(_, foreground)| foreground);
    let errors: u64 = foreground().map(|m| m.errors).sum();
    let first_error = foreground().find_map(|m| m.first_error.clone());
    if args.json {
        let json = to_json(bench, filled, &idle, loaded.as_ref(), &aims);
        println!("{json}");
    } else {
        print!("{}", table(bench, filled, &idle, loaded.as_ref(), &aims));
    }
    if let Some(first) = first_error {
        eprintln!("pando: {errors} operations failed; the first: {first}");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// One more server joins, and this returns when it has its share.
fn join(cluster: &mut OwnCluster, grower: &Operator, files: &[(Slot, u64)]) -> Result<Joined> {
    let (dir, sources) = cluster.parts();
    let operator = cluster.operator()?;
    let before = counts(&operator, &sources, "records_sent")?;
    let over = AtomicBool::new(false);
    // The thread that asks is the new server's parent, so it is another one that looks when the first record
    // goes.
    let (began, first, ended, joined) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| first_sent(&dir, &sources, &before, &over));
        let began = Instant::now();
        let joined = cluster
            .join(grower)
            .and_then(|id| Ok((id, moved(grower, |map| map.server(id).is_some())?)));
        let ended = Instant::now();
        over.store(true, Ordering::SeqCst);
        (began, looking.join(), ended, joined)
    });
    let Ok(first) = first else {
        bail!("who watched the join failed");
    };
    let (id, map) = joined?;
    let sent = counts(&operator, &sources, "records_sent")?;
    let pauses = counts(&operator, &sources, "longest_pause_us")?;
    let moved = files.iter().filter(|(slot, _)| map.owner(*slot) == id);
    Ok(Joined {
        id,
        entries: moved.map(|(_, n)| n).sum(),
        records: sent.iter().sum::<u64>() - before.iter().sum::<u64>(),
        slots: map.slots.iter().filter(|owner| **owner == id).count(),
        seconds: ended.duration_since(first?.unwrap_or(began)).as_secs_f64(),
        in_all: ended.duration_since(began).as_secs_f64(),
        longest_pause_ms: pauses.iter().copied().max().unwrap_or(0) as f64 / 1000.0,
    })
}

/// When the first record was sent.
fn first_sent(dir: &ClusterDir, from: &[u16], before: &[u64], over: &AtomicBool) -> Result<Option<Instant>> {
    let operator = Connection::open(dir, Party::Operator, Waiting::Blocking, PATIENCE)?;
    while !over.load(Ordering::SeqCst) {
        let looked = Instant::now();
        if counts(&operator, from, "records_sent")? != before {
            return Ok(Some(looked));
        }
        std::thread::sleep(LOOK);
    }
    Ok(None)
}

/// Waits until nothing is left to move, and something is true of the map.
fn moved(grower: &Operator, is_done: impl Fn(&ClusterMap) -> bool) -> Result<Rc<ClusterMap>> {
    let deadline = Instant::now() + PATIENCE;
    let progress = Progress::new("moving slots", Unit::Items, grower.newest().to_move());
    let mut left = grower.newest().to_move();
    while Instant::now() < deadline {
        let map = grower.newest();
        let now = map.to_move();
        if now == 0 && is_done(&map) {
            progress.finish();
            return Ok(map);
        }
        progress.add(left.saturating_sub(now));
        left = now;
        std::thread::sleep(LOOK);
    }
    bail!("{left} slots have not moved in {} s", PATIENCE.as_secs())
}

fn drain(cluster: &mut OwnCluster, grower: &Operator, id: ServerId) -> Result<()> {
    grower.ask(ClusterRequest::Drain(id))?;
    moved(grower, |map| map.server(id).is_none())?;
    cluster.stop(id)
}

fn join_under_load(
    cluster: &mut OwnCluster,
    grower: &Operator,
    files: &[(Slot, u64)],
    bench: &JoinArgs,
) -> Result<(Joined, Foreground)> {
    let crowd = Crowd {
        clients: bench.clients.into(),
        depth: bench.depth.into(),
    };
    let shift = Arc::new(Shift::default());
    let place = cluster.parts().0;
    std::thread::scope(|scope| {
        let working = scope.spawn(|| load::work(&place, crowd, &shift));
        shift.wait_ready(crowd);
        std::thread::sleep(WARM_UP);
        shift.enter(load::BEFORE);
        std::thread::sleep(Duration::from_secs_f64(bench.seconds));
        shift.enter(load::DURING);
        let joined = join(cluster, grower, files);
        shift.enter(load::STOP);
        match working.join() {
            Ok(worked) => Ok((joined?, worked?)),
            Err(_) => bail!("a client of the benchmark failed"),
        }
    })
}

/// What was asked of it.
fn aims(idle: &Joined, loaded: Option<&(Joined, Foreground)>) -> Vec<Aim> {
    let mut aims = vec![Aim::least("entries/s", idle.rate(), 200_000.0)];
    if let Some((joined, [before, during])) = loaded {
        aims.push(Aim::least("entries/s under load", joined.rate(), 50_000.0));
        let slower = during.p99_us / before.p99_us;
        aims.push(Aim::most("p99 of the foreground during / before", slower, 10.0));
    }
    aims
}

fn to_json(
    bench: &JoinArgs,
    filled: f64,
    idle: &Joined,
    loaded: Option<&(Joined, Foreground)>,
    aims: &[Aim],
) -> Value {
    let foreground = |m: &Measured| {
        json!({
            "op": m.op, "ops": m.ops, "ops_per_s": round(m.ops_per_s), "p50_us": round(m.p50_us), "p99_us": round(m.p99_us),
            "errors": m.errors,
        })
    };
    let loaded = loaded.map(|(joined, [before, during])| {
        json!({
            "join": joined.json(), "before": foreground(before), "during": foreground(during),
            "p50_ratio": round(during.p50_us / before.p50_us), "p99_ratio": round(during.p99_us / before.p99_us),
        })
    });
    json!({
        "bench": "join", "commit": option_env!("PANDO_COMMIT").unwrap_or("unknown"),
        "params": {
            "files": bench.files, "per_directory": bench.per_directory, "servers": bench.servers, "clients": bench.clients,
            "depth": bench.depth, "seconds": bench.seconds, "durability": bench.durability.word(),
        },
        "fill_seconds": round(filled), "idle": idle.json(), "loaded": loaded,
        "aims": aims.iter().map(Aim::json).collect::<Vec<_>>(),
    })
}

fn table(
    bench: &JoinArgs,
    filled: f64,
    idle: &Joined,
    loaded: Option<&(Joined, Foreground)>,
    aims: &[Aim],
) -> String {
    let join = |name: &str, j: &Joined| {
        vec![
            name.to_owned(),
            j.entries.to_string(),
            j.records.to_string(),
            j.slots.to_string(),
            format!("{:.2}", j.seconds),
            format!("{:.2}", j.in_all),
            format!("{:.0}", j.rate()),
            format!("{:.1}", j.longest_pause_ms),
        ]
    };
    let mut joins = vec![join("idle", idle)];
    let mut foregrounds = Vec::new();
    if let Some((joined, foreground)) = loaded {
        joins.push(join("under load", joined));
        for m in foreground {
            foregrounds.push(vec![
                m.op.clone(),
                m.ops.to_string(),
                format!("{:.0}", m.ops_per_s),
                format!("{:.1}", m.p50_us),
                format!("{:.1}", m.p99_us),
                m.errors.to_string(),
            ]);
        }
    }
    let mut out = format!("{} files were made in {filled:.1} s.\n\n", bench.files);
    out += &text::table(
        &[
            "join",
            "entries",
            "records",
            "slots",
            "seconds",
            "with the start",
            "entries/s",
            "longest pause so far, ms",
        ],
        &joins,
    );
    if !foregrounds.is_empty() {
        out.push('\n');
        out += &text::table(&["", "ops", "ops/s", "p50 us", "p99 us", "errors"], &foregrounds);
    }
    out.push('\n');
    out + &aims_table(aims)
}
