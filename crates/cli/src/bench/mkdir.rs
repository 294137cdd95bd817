//! `pando bench mkdir`: what a mkdir takes against an empty request and a sync of the device.

use super::Wait;
use super::lines::{Aim, aims_table, median, round};
use super::own::OwnCluster;
use crate::args::{Args, Choices, Mode};
use crate::connect::{Connection, Paths};
use crate::text;
use anyhow::{Context, Result, bail};
use pando_types::{Birth, Cred, Name, Perm, ServerId};
use pando_wire::{Op, Request, Statement};
use rustix::fs::fdatasync;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Latency of mkdir, of an empty request on the same connection, and of an fdatasync of a few bytes more on the same device,
/// each in turn, in both durabilities; on servers of its own, each a process, in a temporary folder.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: 0 also if an aim is missed: that is printed.\n\nExample:\n  pando bench mkdir --rounds 2000 --json"
)]
pub struct MkdirArgs {
    /// How often each is measured.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(3..=1_000_000))]
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

/// What takes how long, in microseconds, of each try.
#[derive(Default)]
struct Times {
    null: Vec<f64>,
    fdatasync: Vec<f64>,
    /// Of directories whose content is on their parent's server, and of those whose content is on another one.
    mkdir: [Vec<f64>; 2],
}

/// Medians.
struct Middle {
    durability: Mode,
    null: f64,
    fdatasync: f64,
    mkdir: [f64; 2],
}

const WIDTHS: [&str; 2] = ["one server", "two servers"];

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

fn measure(bench: &MkdirArgs, durability: Mode) -> Result<Middle> {
    let at = bench.at.clone().unwrap_or_else(std::env::temp_dir);
    let choices = Choices {
        durability,
        ..Choices::default()
    };
    let cluster = OwnCluster::start(&at, bench.servers, &choices, Duration::ZERO)?;
    let conn = cluster.connect(bench.waiting, Paths::default())?;
    let above = super::join::base(&conn, b"/made")?;
    let home = conn.client.map().owner(above.id.slot());
    // On the servers' device, and not where they write.
    let mut log = tempfile::tempfile_in(cluster.parts().0.path)?;
    let mut times = Times::default();
    let mut number = 0;
    // The first ones learn what all others know.
    for round in 0..bench.rounds + 3 {
        let null = timed(|| null(&conn, home))?;
        let sync = timed(|| write_and_sync(&mut log))?;
        let mut mkdir = [0.0; 2];
        for (wide, took) in mkdir.iter_mut().enumerate() {
            let name = name_of(&conn, &above, wide == 1, &mut number)?;
            *took = timed(|| make(&conn, &above, &name))?;
        }
        if round >= 3 {
            times.null.push(null);
            times.fdatasync.push(sync);
            for (all, took) in times.mkdir.iter_mut().zip(mkdir) {
                all.push(took);
            }
        }
    }
    Ok(Middle {
        durability,
        null: median(&times.null),
        fdatasync: median(&times.fdatasync),
        mkdir: times.mkdir.map(|all| median(&all)),
    })
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_secs_f64() * 1e6)
}

fn null(conn: &Connection, server: ServerId) -> Result<()> {
    conn.run(conn.client.admin(server, Request::Null(false)))
        .context("a server does not answer")?;
    Ok(())
}

fn write_and_sync(log: &mut File) -> Result<()> {
    log.write_all(&[b'm'; LOGGED])?;
    fdatasync(&*log).context("cannot sync")
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
        let there = map.owner(map.widths().dir_id(&birth).slot());
        if (there != map.owner(above.id.slot())) == wide {
            return Ok(name);
        }
    }
}

fn make(conn: &Connection, above: &Statement, name: &Name) -> Result<()> {
    let op = Op::Mkdir {
        dir: above.clone(),
        name: name.clone(),
        perm: Perm::new(0o755),
    };
    conn.run(conn.client.op(&Cred::root(), op))
        .context("cannot make a directory")?;
    Ok(())
}

/// What was asked of it.
fn aims(m: &Middle) -> Vec<Aim> {
    let each = WIDTHS.iter().zip(m.mkdir);
    each.map(|(width, mkdir)| match m.durability {
        Mode::Sync => {
            let budget = 2.0 * m.null + 2.5 * m.fdatasync;
            Aim::most(
                format!("sync, {width}: mkdir / (2 null + 2.5 fdatasync)"),
                mkdir / budget,
                1.0,
            )
        }
        Mode::Async => Aim::most(format!("async, {width}: mkdir / null"), mkdir / m.null, 4.0),
    })
    .collect()
}

fn to_json(bench: &MkdirArgs, both: &[Middle], aims: &[Aim]) -> Value {
    let lines = both.iter().map(|m| {
        json!({
            "durability": m.durability.word(), "null_us": round(m.null), "fdatasync_us": round(m.fdatasync),
            "mkdir_one_server_us": round(m.mkdir[0]), "mkdir_two_servers_us": round(m.mkdir[1]),
        })
    });
    json!({
        "bench": "mkdir", "commit": option_env!("PANDO_COMMIT").unwrap_or("unknown"),
        "params": { "rounds": bench.rounds, "servers": bench.servers, "waiting": bench.waiting.name() },
        "results": lines.collect::<Vec<_>>(), "aims": aims.iter().map(Aim::json).collect::<Vec<_>>(),
    })
}

fn table(both: &[Middle], aims: &[Aim]) -> String {
    let rows: Vec<Vec<String>> = both
        .iter()
        .map(|m| {
            let all = [m.null, m.fdatasync, m.mkdir[0], m.mkdir[1]];
            let numbers = all.iter().map(|us| format!("{us:.1}"));
            std::iter::once(m.durability.word().to_owned())
                .chain(numbers)
                .collect()
        })
        .collect();
    let head = [
        "p50 in us",
        "null",
        "fdatasync",
        "mkdir, one server",
        "mkdir, two servers",
    ];
    format!("{}\n{}", text::table(&head, &rows), aims_table(aims))
}
