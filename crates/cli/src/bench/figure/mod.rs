//! `pando bench figure`: figures of the papers, drawn again.

mod infinifs_11;
mod infinifs_15;
mod lines;

use super::Wait;
use crate::args::{Args, Choices, Mode};
use crate::text;
use anyhow::{Result, bail};
use lines::Drawn;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measures what a figure of a paper shows, on servers of its own in a temporary folder.
///
/// What is compared takes turns, so that all see the same machine, and is told as ratios to the paper's baseline, beside what
/// the paper says in words.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando bench figure infinifs-15 --rtt 1ms\n  pando bench figure infinifs-11 --clients 8 --seconds 2\n  pando bench figure infinifs-15 --rounds 50 --json"
)]
pub struct FigureArgs {
    /// Which.
    #[arg(value_enum)]
    pub figure: Which,
    /// Metadata servers.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub servers: u16,
    /// How often each is measured.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: u32,
    /// Clients that measure throughput together, each a thread.
    #[arg(long, default_value_t = 4)]
    pub clients: usize,
    /// Seconds of each measurement of throughput.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// An emulated round trip between all processes, such as 1ms.
    #[arg(long, value_name = "TIME", value_parser = text::duration, default_value = "0s")]
    pub rtt: Duration,
    /// Durability of the servers.
    #[arg(long, value_enum, default_value_t = Mode::Sync)]
    pub durability: Mode,
    /// How clients wait for answers.
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub waiting: Wait,
    /// Where to make the temporary folder. [default: the system's]
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
}

impl FigureArgs {
    fn at(&self) -> PathBuf {
        self.at.clone().unwrap_or_else(std::env::temp_dir)
    }

    fn span(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.01, 3600.0))
    }

    fn choices(&self) -> Choices {
        Choices {
            durability: self.durability,
            ..Choices::default()
        }
    }
}

/// The figures there are.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// What speculative resolution, the cache and decoupling each contribute (FAST'22, figure 11).
    #[value(name = "infinifs-11")]
    Infinifs11,
    /// Path resolution while more and more directories of a path of depth 24 were renamed (FAST'22, figure 15).
    #[value(name = "infinifs-15")]
    Infinifs15,
}

pub fn run(args: &Args, bench: &FigureArgs) -> Result<ExitCode> {
    if args.dir.is_some() && std::env::var_os("PANDO_DIR").is_none() {
        bail!(
            "a figure has servers of its own: --dir means nothing here; --at says where they keep their data"
        );
    }
    let drawn: Drawn = match bench.figure {
        Which::Infinifs11 => infinifs_11::draw(bench),
        Which::Infinifs15 => infinifs_15::draw(bench),
    }?;
    if args.json {
        println!("{}", drawn.json());
    } else {
        print!("{}", drawn.text());
    }
    Ok(ExitCode::SUCCESS)
}
