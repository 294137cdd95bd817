//! `pando bench mkdir`: what a mkdir takes against an empty request and a sync of the device.

use super::Wait;
use super::lines::{Aim, aims_table, median, round};
use super::own::{OwnCluster, counts};
use crate::args::{Args, Choices, Mode};
use crate::connect::{Connection, Paths};
use crate::text;
use anyhow::{Context, Result, bail};
use pando_types::{Birth, Cred, Name, Part, Perm, ServerId};
use pando_wire::{Op, Request, Statement};
use rustix::fs::fdatasync;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Latency of mkdir, of an empty request on the same connection, and of an fdatasync of a few bytes more on
/// the same device, each in turn, in both durabilities; on servers of its own, each a process, in a temporary
/// folder.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: 0 also if an aim is missed: that is printed.\n\nExample:\n  pando bench mkdir --rounds 2000 --json"
)]
pub struct MkdirArgs {
    /// How often each is measured.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(3..=1_000_000))]
    pub rounds: u64,
    /// Servers.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=64))]
    pub servers: u16,
    /// How the client waits for answers.
    #[arg(long, value_enum, default_value_t = Wait::Blocking)]
    pub waiting: Wait,
    /// Where to make the temporary folder. [default: the system's]
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
}

/// Bytes that a sync writes: about what a mkdir adds to a log.
const LOGGED: usize = 512;

/// How often each is done before it is the next one's turn: long enough that what follows a mkdir is met by
/// others.
const TURN: u64 = 200;
/// Time for what still goes on when no transaction is left.
const SETTLED: Duration = Duration::from_millis(1);

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Null,
    /// An empty request that is answered after a sync of the server's own log.
    Durable,
    Fdatasync,
    /// A directory whose content is on its parent's server, or is on another one.
    Mkdir {
        wide: bool,
    },
}

const TASKS: [(Task, &str); 5] = [
    (Task::Null, "null"),
    (Task::Durable, "null, durable"),
    (Task::Fdatasync, "fdatasync"),
    (Task::Mkdir { wide: false }, "mkdir, one server"),
    (Task::Mkdir { wide: true }, "mkdir, two servers"),
];

/// How long one of them takes, in microseconds.
#[derive(Clone, Copy)]
struct Took {
    median: f64,
    /// What is made of several syncs is compared by this: means add up, also where others use the device.
    mean: f64,
}

impl Took {
    fn of(all: &[f64]) -> Took {
        Took {
            median: median(all),
            mean: all.iter().sum::<f64>() / all.len() as f64,
        }
    }
}

/// What was found in one durability.
struct Measured {
    durability: Mode,
    tasks: [Took; 5],
    /// Messages between servers, for each mkdir on two of them.
    messages: f64,
}

pub fn run(args: &Args, bench: &MkdirArgs) -> Result<ExitCode> {
    if args.dir.is_some() && std::env::var_os("PANDO_DIR").is_none() {
        bail!(
            "this benchmark has servers of its own: --dir means nothing here; --at says where they keep their data"
        );
    }
    let both = [measure(bench, Mode::Sync)?, measure(bench, Mode::Async)?];
    let aims: Vec<Aim> = both.iter().flat_map(aims).collect();
    if args.json {
        println!("{}", to_json(bench, &both, &aims));
    } else {
        print!("{}", table(&both, &aims));
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(bench: &MkdirArgs, durability: Mode) -> Result<Measured> {
    let at = bench.at.clone().unwrap_or_else(std::env::temp_dir);
    let choices = Choices {
        durability,
        ..Choices::default()
    };
    let cluster = OwnCluster::start(&at, bench.servers, &choices, Duration::ZERO)?;
    let conn = cluster.connect(bench.waiting, Paths::default())?;
    let above = super::join::base(&conn, b"/made")?;
    let mut subject = Subject {
        home: conn.client.map().owner(Part::whole(above.id).slot()),
        // On the servers' device, and not where they write.
        log: tempfile::tempfile_in(cluster.parts().0.path)?,
        conn,
        above,
        operator: cluster.operator()?,
        servers: cluster.parts().1,
        number: 0,
    };
    let mut times = [const { Vec::new() }; 5];
    let (mut wide, mut messages) = (0, 0);
    // The first turn learns what all others know.
    for turn in 0..=bench.rounds.div_ceil(TURN) {
        for ((task, _), times) in TASKS.iter().zip(&mut times) {
            let before = cluster.peer_calls(&subject.operator)?;
            for _ in 0..TURN {
                let took = subject.time(*task)?;
                if turn > 0 {
                    times.push(took);
                }
            }
            subject.settle()?;
            if *task == (Task::Mkdir { wide: true }) {
                wide += TURN;
                messages += cluster.peer_calls(&subject.operator)? - before;
            }
        }
    }
    Ok(Measured {
        durability,
        tasks: times.map(|all| Took::of(&all)),
        messages: messages as f64 / wide as f64,
    })
}

/// Who is asked, and what is changed.
struct Subject {
    conn: Connection,
    home: ServerId,
    above: Statement,
    log: File,
    operator: Connection,
    servers: Vec<u16>,
    /// Names that were looked at.
    number: u64,
}

impl Subject {
    fn time(&mut self, task: Task) -> Result<f64> {
        let name = match task {
            Task::Mkdir { wide } => Some(name_of(&self.conn, &self.above, wide, &mut self.number)?),
            _ => None,
        };
        let began = Instant::now();
        match (task, name) {
            (_, Some(name)) => make(&self.conn, &self.above, name)?,
            (Task::Fdatasync, _) => {
                self.log.write_all(&[b'm'; LOGGED])?;
                fdatasync(&self.log).context("cannot sync")?;
            }
            (task, _) => null(&self.conn, self.home, task == Task::Durable)?,
        }
        Ok(began.elapsed().as_secs_f64() * 1e6)
    }

    /// Waits until all participants have confirmed what was decided: with one device for all servers the next
    /// sync would wait for theirs. Stays awake meanwhile, as who works does.
    fn settle(&self) -> Result<()> {
        while counts(&self.operator, &self.servers, "deciding")?
            .iter()
            .any(|n| *n > 0)
        {}
        let began = Instant::now();
        while began.elapsed() < SETTLED {
            null(&self.conn, self.home, false)?;
        }
        Ok(())
    }
}

fn null(conn: &Connection, server: ServerId, durable: bool) -> Result<()> {
    conn.run(conn.client.admin(server, Request::Null(durable)))
        .context("a server does not answer")?;
    Ok(())
}

/// A name of a directory whose content is on the server of `above`, or is not.
fn name_of(conn: &Connection, above: &Statement, wide: bool, number: &mut u64) -> Result<Name> {
    let map = conn.client.map();
    loop {
        *number += 1;
        let name = Name::new(format!("d{number}").as_bytes())?;
        let birth = Birth {
            parent: above.id,
            name: name.clone(),
            version: 0,
        };
        let there = map.owner(Part::whole(map.widths().dir_id(&birth)).slot());
        if (there != map.owner(Part::whole(above.id).slot())) == wide {
            return Ok(name);
        }
    }
}

fn make(conn: &Connection, above: &Statement, name: Name) -> Result<()> {
    let op = Op::Mkdir {
        dir: above.clone(),
        name,
        mode: Perm::new(0o755).into(),
    };
    conn.run(conn.client.op(&Cred::root(), op))
        .context("cannot make a directory")?;
    Ok(())
}

/// What was asked of it.
fn aims(m: &Measured) -> Vec<Aim> {
    let [null, _, fdatasync, mkdirs @ ..] = m.tasks;
    let widths = ["one server", "two servers"];
    let each = widths.iter().zip(mkdirs);
    each.map(|(width, mkdir)| match m.durability {
        Mode::Sync => {
            let budget = 2.0 * null.mean + 2.5 * fdatasync.mean;
            let what = format!("sync, {width}: mkdir / (2 null + 2.5 fdatasync), means");
            Aim::most(what, mkdir.mean / budget, 1.0)
        }
        Mode::Async => {
            let what = format!("async, {width}: mkdir / null, medians");
            Aim::most(what, mkdir.median / null.median, 4.0)
        }
    })
    .collect()
}

fn to_json(bench: &MkdirArgs, both: &[Measured], aims: &[Aim]) -> Value {
    let lines = both.iter().flat_map(|m| {
        TASKS.iter().zip(m.tasks).map(|((_, name), took)| {
            json!({
                "durability": m.durability.word(), "op": name, "p50_us": round(took.median), "mean_us": round(took.mean),
            })
        })
    });
    json!({
        "bench": "mkdir", "commit": option_env!("PANDO_COMMIT").unwrap_or("unknown"),
        "params": { "rounds": bench.rounds, "servers": bench.servers, "waiting": bench.waiting.name() },
        "results": lines.collect::<Vec<_>>(), "aims": aims.iter().map(Aim::json).collect::<Vec<_>>(),
        "server_messages": both
            .iter()
            .map(|m| (m.durability.word().to_owned(), round(m.messages)))
            .collect::<serde_json::Map<_, _>>(),
    })
}

fn table(both: &[Measured], aims: &[Aim]) -> String {
    let mut rows = Vec::new();
    for m in both {
        for ((_, name), took) in TASKS.iter().zip(m.tasks) {
            rows.push(vec![
                format!("{} {name}", m.durability.word()),
                format!("{:.1}", took.median),
                format!("{:.1}", took.mean),
            ]);
        }
    }
    format!(
        "{}\n{}\nMessages between servers for a mkdir on two of them: {}\n",
        text::table(&["", "p50 us", "mean us"], &rows),
        aims_table(aims),
        both.iter()
            .map(|m| format!("{} {:.2}", m.durability.word(), m.messages))
            .collect::<Vec<_>>()
            .join(", ")
    )
}
