//! `pando bench cost`: what identities and statements cost.

use super::Wait;
use super::inside::{How, Inside};
use super::lines::median;
use super::meter::{Measured, Meter};
use crate::args::{Args, Auth, Choices, Mode};
use crate::auth::{Material, Proving, make};
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::{addresses, format, text};
use anyhow::{Context, Result, bail};
use pando_auth::Secrets;
use pando_client::file::{self, Place};
use pando_net::Waiting;
use pando_server::Limits;
use pando_types::{Access, Claims, Cred, Perm, ServerId};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::channel;
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// What modes `key` and `tls` cost, and what statements do: p50 of stat and create, against the same without.
/// Every variant is a server and a client of their own in this process, in a temporary folder; they take
/// turns of a few milliseconds, so that all see the same machine, and the ratios are those of turns that
/// followed each other.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  pando bench cost --seconds 20 --json")]
pub struct CostArgs {
    /// Seconds in all.
    #[arg(long, default_value_t = 20.0, value_parser = crate::text::seconds)]
    pub seconds: f64,
    /// Durability of the servers: `async` shows the costs beside the least else.
    #[arg(long, value_enum, default_value_t = Mode::Async)]
    pub durability: Mode,
    /// Only this way of waiting. Polling needs two cores that nobody else wants: else it measures whom the
    /// kernel lets run.
    #[arg(long, value_enum)]
    pub waiting: Option<Wait>,
}

/// Operations of one turn.
const TURN: usize = 60;
const SERVER: ServerId = ServerId(0);

const RUN: u8 = 0;
const PAUSE: u8 = 1;
const STOP: u8 = 2;

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Variant {
    name: &'static str,
    auth: Auth,
    /// Only a server of a benchmark can be without: it is made here, and no option of a real one leads there.
    statements: bool,
}

const BARE: usize = 0;
const NONE: usize = 1;
const VARIANTS: [Variant; 4] = [
    Variant {
        name: "none, no statements",
        auth: Auth::None,
        statements: false,
    },
    Variant {
        name: "none",
        auth: Auth::None,
        statements: true,
    },
    Variant {
        name: "key",
        auth: Auth::Key,
        statements: true,
    },
    Variant {
        name: "tls",
        auth: Auth::Tls,
        statements: true,
    },
];

/// What may cost how much: which, against which, the bounds when blocking and when polling.
const BOUNDS: [(&str, usize, usize, [Option<f64>; 2]); 3] = [
    ("statements", NONE, BARE, [Some(1.03), Some(1.03)]),
    ("key", 2, NONE, [Some(1.05), Some(1.10)]),
    ("tls", 3, NONE, [Some(1.30), None]),
];

const WAITS: [Wait; 2] = [Wait::Blocking, Wait::Polling];
const OPS: [&str; 2] = ["stat", "create"];

/// A server on a thread of its own that works when it is told to: one that polls would else take the others'
/// core.
struct Server {
    wish: Arc<AtomicU8>,
    thread: Thread,
    ended: Option<JoinHandle<Result<()>>>,
}

impl Server {
    fn start(dir: &ClusterDir, waiting: Waiting, variant: Variant) -> Result<Server> {
        let (tell, told) = channel();
        let wish = Arc::new(AtomicU8::new(RUN));
        let (dir, wanted) = (dir.clone(), wish.clone());
        let handle = std::thread::Builder::new()
            .name("pando-cost".into())
            .spawn(move || {
                // Whoever waits for it is gone if this fails.
                serve(&dir, waiting, variant, &wanted, || tell.send(()).unwrap_or(()))
            })?;
        let server = Server {
            wish,
            thread: handle.thread().clone(),
            ended: Some(handle),
        };
        match told.recv() {
            Ok(()) => Ok(server),
            // It ended instead, and says why.
            Err(_) => {
                server.stop()?;
                bail!("a server of the benchmark did not start")
            }
        }
    }

    fn wish(&self, wish: u8) {
        self.wish.store(wish, Ordering::SeqCst);
        self.thread.unpark();
    }

    fn stop(mut self) -> Result<()> {
        self.wish(STOP);
        match self.ended.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => bail!("a server of the benchmark failed"),
        }
    }
}

fn serve(
    dir: &ClusterDir,
    waiting: Waiting,
    variant: Variant,
    wish: &AtomicU8,
    ready: impl FnOnce(),
) -> Result<()> {
    let how = How {
        waiting,
        cache_bytes: 16 << 20,
        secrets: if variant.statements {
            std::convert::identity
        } else {
            Secrets::without_statements
        },
        limits: Limits::default(),
    };
    let inside = Inside::open(dir, SERVER, &how)?;
    inside.listen(inside.server.clone())?;
    let reactor = &inside.reactor;
    ready();
    loop {
        match wish.load(Ordering::SeqCst) {
            RUN => reactor.turn(Some(Duration::from_millis(1))),
            PAUSE => std::thread::park(),
            _ => break,
        }
    }
    reactor.shutdown();
    Ok(())
}

/// A client, its server, and what they took.
struct Lane {
    // Dropped first: its goodbye needs a server that runs.
    conn: Option<Connection>,
    server: Server,
    number: usize,
    /// Of each operation, every time.
    all: [Meter; 2],
    /// Of each operation, the p50 of each turn, in nanoseconds.
    turns: [Vec<f64>; 2],
    _folder: tempfile::TempDir,
}

impl Lane {
    fn open(variant: Variant, waiting: Waiting, durability: Mode) -> Result<Lane> {
        let folder = tempfile::tempdir()?;
        let dir = ClusterDir {
            path: folder.path().to_owned(),
            key: None,
        };
        let choices = Choices {
            durability,
            auth: variant.auth,
            ..Choices::default()
        };
        format::make(
            &dir,
            addresses::on_loopback(0, 1, choices.auth.mode())?,
            None,
            &choices,
        )?;
        let server = Server::start(&dir, waiting, variant)?;
        let patience = Duration::from_secs(10);
        if variant.auth != Auth::None {
            let operator = Connection::open(&dir, Party::Operator, Waiting::Blocking, patience)?;
            let proof = Proving::of(&dir, &operator, &Material::default())?;
            make(&operator, "bench", Claims::all(), proof, &dir.client_key())?;
        }
        let conn = Connection::open(&dir, Party::Client, waiting, patience)?;
        conn.run(conn.client.mkdir(&Cred::root(), b"/cost", Perm::new(0o755)))
            .context(variant.name)?;
        let mut lane = Lane {
            conn: Some(conn),
            server,
            number: 0,
            all: [Meter::new()?, Meter::new()?],
            turns: [Vec::new(), Vec::new()],
            _folder: folder,
        };
        // The first ones learn what all others know.
        lane.turn(false)?;
        lane.server.wish(PAUSE);
        Ok(lane)
    }

    /// Some creates, and some stats of what they made.
    fn turn(&mut self, counts: bool) -> Result<()> {
        let conn = self.conn.as_ref().context("a client was closed")?;
        let client = &conn.client;
        let cred = Cred::root();
        let path = |n: usize| format!("/cost/file.{n}").into_bytes();
        let mut taken: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
        // Whoever was away needs a moment to be back.
        conn.run(client.stat(&cred, b"/cost", true))?;
        for op in [1, 0] {
            for i in 0..TURN {
                let path = path(self.number + i);
                let began = Instant::now();
                if op == 1 {
                    conn.run(async {
                        let (dir, name) = client.parent_of(&cred, &path).await?;
                        let place = Place { dir, name };
                        file::create(&**client, &cred, &place, Perm::new(0o644), true, Access::WRITE).await
                    })?;
                } else {
                    conn.run(client.stat(&cred, &path, true))?;
                }
                let took = began.elapsed();
                taken[op].push(took.as_nanos() as f64);
                if counts {
                    self.all[op].record(took);
                }
            }
        }
        self.number += TURN;
        if counts {
            for (turns, taken) in self.turns.iter_mut().zip(&taken) {
                turns.push(median(taken));
            }
        }
        Ok(())
    }

    fn close(mut self) -> Result<()> {
        self.server.wish(RUN);
        self.conn = None;
        self.server.stop()
    }
}

/// One comparison.
struct Ratio {
    what: &'static str,
    op: &'static str,
    waiting: &'static str,
    ratio: f64,
    bound: Option<f64>,
}

pub fn run(args: &Args, bench: &CostArgs) -> Result<ExitCode> {
    let mut results = Vec::new();
    let mut ratios = Vec::new();
    let waits: Vec<Wait> = bench.waiting.map_or(WAITS.to_vec(), |w| vec![w]);
    let time = Duration::from_secs_f64(bench.seconds / waits.len() as f64);
    for wait in waits {
        let (waiting, how) = (wait.name(), wait.waiting());
        let lanes: Result<Vec<Lane>> = VARIANTS
            .iter()
            .map(|v| Lane::open(*v, how, bench.durability))
            .collect();
        let mut lanes = lanes?;
        let (end, mut round) = (Instant::now() + time, 0);
        while Instant::now() < end || round < 3 {
            for i in 0..lanes.len() {
                // Whoever comes first is not always the same.
                let n = lanes.len();
                let lane = &mut lanes[(i + round) % n];
                lane.server.wish(RUN);
                lane.turn(true)?;
                lane.server.wish(PAUSE);
            }
            round += 1;
        }
        for (o, op) in OPS.into_iter().enumerate() {
            for (what, this, that, bounds) in BOUNDS {
                let pairs = lanes[this].turns[o].iter().zip(&lanes[that].turns[o]);
                let all: Vec<f64> = pairs.map(|(a, b)| a / b).collect();
                ratios.push(Ratio {
                    what,
                    op,
                    waiting,
                    ratio: median(&all),
                    bound: WAITS.iter().position(|w| *w == wait).and_then(|w| bounds[w]),
                });
            }
        }
        for (lane, variant) in lanes.iter_mut().zip(VARIANTS) {
            for (meter, op) in lane.all.iter_mut().zip(OPS) {
                let mut meter = std::mem::replace(meter, Meter::new()?);
                meter.end(0);
                let line = format!("{op} {waiting} {}", variant.name);
                results.push(Meter::sum(line, vec![meter], false)?);
            }
        }
        for lane in lanes {
            lane.close()?;
        }
    }
    if args.json {
        println!("{}", to_json(bench, &results, &ratios));
    } else {
        print!("{}", table(&results, &ratios));
    }
    Ok(ExitCode::SUCCESS)
}

fn to_json(bench: &CostArgs, results: &[Measured], ratios: &[Ratio]) -> Value {
    let round = |x: f64| (x * 1000.0).round() / 1000.0;
    let lines = results
        .iter()
        .map(|r| json!({ "op": r.op, "ops": r.ops, "p50_us": round(r.p50_us), "p99_us": round(r.p99_us) }));
    let shares = ratios.iter().map(|r| {
        json!({
            "what": r.what, "op": r.op, "waiting": r.waiting, "ratio": round(r.ratio), "bound": r.bound,
            "within": r.bound.map(|b| r.ratio <= b),
        })
    });
    json!({
        "bench": "cost", "commit": option_env!("PANDO_COMMIT").unwrap_or("unknown"),
        "params": { "seconds": bench.seconds, "durability": bench.durability.word() },
        "results": lines.collect::<Vec<_>>(), "ratios": shares.collect::<Vec<_>>(),
    })
}

fn table(results: &[Measured], ratios: &[Ratio]) -> String {
    let lines = results.iter().map(|r| {
        vec![
            r.op.clone(),
            r.ops.to_string(),
            format!("{:.1}", r.p50_us),
            format!("{:.1}", r.p99_us),
        ]
    });
    let shares = ratios.iter().map(|r| {
        vec![
            r.what.to_owned(),
            format!("{} {}", r.op, r.waiting),
            format!("{:+.1} %", (r.ratio - 1.0) * 100.0),
            r.bound
                .map_or("-".into(), |b| format!("{:.0} %", (b - 1.0) * 100.0)),
        ]
    });
    let lines: Vec<_> = lines.collect();
    let shares: Vec<_> = shares.collect();
    format!(
        "{}\n{}",
        text::table(&["op", "ops", "p50 us", "p99 us"], &lines),
        text::table(&["what", "op", "costs", "at most"], &shares)
    )
}
