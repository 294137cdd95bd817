//! `pando bench figure`: figures of the papers, drawn again. Those about a few clients on real servers; those
//! about how a large cluster scales in virtual time, with what a message takes measured first.

mod indexfs_10;
mod indexfs_11;
mod indexfs_4;
mod indexfs_5;
mod indexfs_6;
mod indexfs_8;
mod indexfs_placement;
mod indexfs_t3;
mod infinifs_10;
mod infinifs_11;
mod infinifs_12;
mod infinifs_13;
mod infinifs_14;
mod infinifs_15;
mod infinifs_9;
mod pairs;

use super::Wait;
use super::calibrate::{Calibration, How};
use super::lines::Drawn;
use crate::args::{Args, Choices, Mode};
use crate::scale::CrowdArgs;
use crate::text;
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measures what a figure of a paper shows.
///
/// Figures 11 and 15, and 8 and 11 of IndexFS, on servers of its own in a temporary folder: what is compared
/// takes turns, so that all see the same machine, and is told as ratios to the paper's baseline. Figures 9,
/// 10, 13, 14, and those of IndexFS from 4 to 7 and `indexfs-placement`, in virtual time, on up to 32 servers
/// of one processor each (see `pando sim scale`). Figure 12 is a model of the store's levels with costs
/// measured here. Figure 10 and table III of IndexFS on stores alone, larger than their caches: these take
/// some minutes. Beside all stands what the paper says in words.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando bench figure infinifs-9\n  pando bench figure infinifs-15 --rtt 1ms\n  pando bench figure infinifs-11 --clients 8 --seconds 2\n  pando bench calibrate --out costs.json && pando bench figure infinifs-14 --calibration costs.json --json"
)]
pub struct FigureArgs {
    /// Which.
    #[arg(value_enum)]
    pub figure: Which,
    /// Metadata servers; in virtual time the most there are. [default: 4; in virtual time 32]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub servers: Option<u16>,
    /// How often each is measured.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: u32,
    /// Clients that measure throughput together. [default: 4, each a thread; in virtual time 2048]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub clients: Option<u32>,
    /// Seconds of each measurement of throughput.
    #[arg(long, default_value_t = 1.0, value_parser = crate::text::seconds)]
    pub seconds: f64,
    /// An emulated round trip between all processes, such as 1ms. [default: 0s; in virtual time 60us]
    #[arg(long, value_name = "TIME", value_parser = text::duration)]
    pub rtt: Option<Duration>,
    /// Durability of the servers. [default: sync; in virtual time async, as in the paper]
    #[arg(long, value_enum)]
    pub durability: Option<Mode>,
    /// How clients wait for answers.
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub waiting: Wait,
    /// Where to make the temporary folder. [default: the system's]
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// In virtual time: operations that are counted, for each server.
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub ops: u64,
    /// In virtual time: everything that is random follows from it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Figures of stores alone: entries of 320 bytes; larger ones are fewer.
    #[arg(long, default_value_t = 3_000_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub entries: u64,
    /// In virtual time: what messages take, as `pando bench calibrate --out` wrote it. [default: measured
    /// now]
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
}

/// A figure on real servers.
struct Real {
    servers: u16,
    rounds: u32,
    clients: usize,
    seconds: f64,
    rtt: Duration,
    durability: Mode,
    waiting: Wait,
    at: PathBuf,
    entries: u64,
}

impl Real {
    fn of(args: &FigureArgs) -> Real {
        Real {
            servers: args.servers.unwrap_or(4),
            rounds: args.rounds,
            clients: args.clients.unwrap_or(4) as usize,
            seconds: args.seconds,
            rtt: args.rtt.unwrap_or_default(),
            durability: args.durability.unwrap_or(Mode::Sync),
            waiting: args.waiting,
            at: args.at.clone().unwrap_or_else(std::env::temp_dir),
            entries: args.entries,
        }
    }

    fn span(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn choices(&self) -> Choices {
        Choices {
            durability: self.durability,
            ..Choices::default()
        }
    }
}

/// A figure in virtual time.
struct Virtual {
    most: u16,
    crowd: CrowdArgs,
    how: How,
}

impl Virtual {
    fn of(args: &FigureArgs) -> Virtual {
        Virtual {
            most: args.servers.unwrap_or(32),
            crowd: CrowdArgs {
                clients: args.clients.unwrap_or(2048),
                ops: args.ops,
                seed: args.seed,
                network: args.rtt.unwrap_or(Duration::from_micros(60)),
                calibration: args.calibration.clone(),
            },
            how: How {
                operations: 1500,
                rounds: crate::bench::calibrate::ROUNDS,
                at: args.at.clone(),
                durability: args.durability.unwrap_or(Mode::Async),
            },
        }
    }

    /// 1, 2, 4 and so on up to the most.
    fn servers(&self) -> Vec<u16> {
        let doubles = std::iter::successors(Some(1u16), |n| n.checked_mul(2));
        let mut all: Vec<u16> = doubles.take_while(|n| *n < self.most).collect();
        all.push(self.most);
        all
    }

    fn params(&self, calibration: &Calibration) -> Value {
        json!({
            "servers": self.most, "crowd": self.crowd.params(), "durability": self.how.durability.word(),
            "calibration": calibration.json(),
        })
    }
}

/// The figures there are.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Throughput of mkdir, create, stat and delete with more and more servers (FAST'22, figure 9).
    #[value(name = "infinifs-9")]
    Infinifs9,
    /// Latency of the same (FAST'22, figure 10).
    #[value(name = "infinifs-10")]
    Infinifs10,
    /// What speculative resolution, the cache and decoupling each contribute (FAST'22, figure 11).
    #[value(name = "infinifs-11")]
    Infinifs11,
    /// Throughput with up to 10^11 files: a model of the store's levels (FAST'22, figure 12).
    #[value(name = "infinifs-12")]
    Infinifs12,
    /// Stat with lazy invalidation and with leases of 1, 5 and 10 seconds, by size of the cache (FAST'22,
    /// figure 13).
    #[value(name = "infinifs-13")]
    Infinifs13,
    /// Latency and throughput of renames of files and of directories (FAST'22, figure 14).
    #[value(name = "infinifs-14")]
    Infinifs14,
    /// Path resolution while more and more directories of a path of depth 24 were renamed (FAST'22, figure
    /// 15).
    #[value(name = "infinifs-15")]
    Infinifs15,
    /// How evenly new directories are spread by the less loaded of two servers, and by one random choice
    /// (IndexFS, §II-A).
    #[value(name = "indexfs-placement")]
    IndexfsPlacement,
    /// Creates, stats and removals in one directory that all clients share, with more and more servers
    /// (IndexFS, SC'14, figure 4).
    #[value(name = "indexfs-4")]
    Indexfs4,
    /// Creates in one directory while it spreads over the servers (SC'14, figure 5).
    #[value(name = "indexfs-5")]
    Indexfs5,
    /// A mix of operations on a tree of which little is used by most, without caches and with leases of all
    /// policies, with more and more servers (SC'14, figure 6).
    #[value(name = "indexfs-6")]
    Indexfs6,
    /// Times of looks and updates of the same with the most servers (SC'14, figure 7).
    #[value(name = "indexfs-7")]
    Indexfs7,
    /// Files made, looked at and removed through Pando, and in the filesystem that its stores are on
    /// (SC'14, figure 8).
    #[value(name = "indexfs-8")]
    Indexfs8,
    /// Insertion into a store with columns and one without (IndexFS, SC'14, figure 10).
    #[value(name = "indexfs-10")]
    Indexfs10,
    /// Creates with durability by time, bulk insertion, columns and larger tables, one added to the other
    /// (SC'14, figure 11).
    #[value(name = "indexfs-11")]
    Indexfs11,
    /// Reads from both (SC'14, table III).
    #[value(name = "indexfs-t3")]
    IndexfsT3,
}

pub fn run(args: &Args, bench: &FigureArgs) -> Result<ExitCode> {
    if args.dir.is_some() && std::env::var_os("PANDO_DIR").is_none() {
        bail!(
            "a figure has servers of its own: --dir means nothing here; --at says where they keep their data"
        );
    }
    let drawn: Drawn = match bench.figure {
        Which::Infinifs9 => infinifs_9::draw(&Virtual::of(bench)),
        Which::Infinifs10 => infinifs_10::draw(&Virtual::of(bench)),
        Which::Infinifs11 => infinifs_11::draw(&Real::of(bench)),
        Which::Infinifs12 => infinifs_12::draw(&Virtual::of(bench)),
        Which::Infinifs13 => infinifs_13::draw(&Virtual::of(bench)),
        Which::Infinifs14 => infinifs_14::draw(&Virtual::of(bench)),
        Which::Infinifs15 => infinifs_15::draw(&Real::of(bench)),
        Which::IndexfsPlacement => indexfs_placement::draw(&Virtual::of(bench)),
        Which::Indexfs4 => indexfs_4::draw(&Virtual::of(bench)),
        Which::Indexfs5 => indexfs_5::draw(&Virtual::of(bench)),
        Which::Indexfs6 => indexfs_6::throughput(&Virtual::of(bench)),
        Which::Indexfs7 => indexfs_6::latency(&Virtual::of(bench)),
        Which::Indexfs10 => indexfs_10::draw(&Real::of(bench)),
        Which::Indexfs8 => indexfs_8::draw(&Real::of(bench)),
        Which::Indexfs11 => indexfs_11::draw(&Real::of(bench)),
        Which::IndexfsT3 => indexfs_t3::draw(&Real::of(bench)),
    }?;
    drawn.print(args);
    Ok(ExitCode::SUCCESS)
}
