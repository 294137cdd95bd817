//! `pando sim`: starts the simulator, which is a program of its own, `pando-sim`; here are only the words.

use crate::args::Args;
use crate::bench::calibrate::How;
use crate::scale::{self, ScaleArgs};
use anyhow::{Result, bail};
use clap::Subcommand;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The simulator's program.
const PROGRAM: &str = "pando-sim";

/// Runs whole clusters in virtual time under faults, judged by a reference model.
#[derive(Subcommand, Debug)]
#[command(
    after_help = "Exit status: 0 sound, 2 a wrong result, 3 no progress, 4 a panic, 5 a seed or a run that risked nothing, 6 a planted bug that was not found, 64 wrong usage.\n\nExamples:\n  pando sim run --seeds 0..1000\n  pando sim replay 17 --trace\n  pando sim plant --all          (a pando-sim built with --features plant)"
)]
pub enum SimCommand {
    /// Run seeds until one finds something.
    Run {
        /// Which: A..B (B not included), or one. [default: 0..100]
        #[arg(long, value_name = "A..B")]
        seeds: Option<String>,
        /// After them those that follow, until so many operations were checked.
        #[arg(long, value_name = "N", conflicts_with_all = ["ci", "regressions"])]
        operations: Option<u64>,
        /// Seeds that follow from the commit; how many. [default: 200]
        #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "200", conflicts_with = "seeds")]
        ci: Option<u64>,
        /// The seeds that ever failed.
        #[arg(long, conflicts_with_all = ["seeds", "ci"])]
        regressions: bool,
        /// Threads. [default: all cores]
        #[arg(long)]
        jobs: Option<u64>,
        /// Every Nth seed is run twice and must give the same trace; 0: never. [default: 20]
        #[arg(long, value_name = "N")]
        replay_every: Option<u64>,
        /// Do not stop at the first finding.
        #[arg(long)]
        keep_going: bool,
    },
    /// Run one seed twice and compare the traces.
    Replay {
        /// Which.
        seed: u64,
        /// Print every event.
        #[arg(long)]
        trace: bool,
        /// Print the last N events.
        #[arg(long, value_name = "N")]
        tail: Option<u64>,
        /// With this bug planted.
        #[arg(long, value_name = "BUG")]
        plant: Option<String>,
    },
    /// Try every attack of a hostile client that there is a check against: with the checks in place, and (a
    /// build with --features plant) without them.
    Grid {
        /// Print the table instead.
        #[arg(long)]
        table: bool,
        /// Only the cells whose manipulation contains this.
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
    },
    /// How throughput rises with the number of servers, without faults.
    Scale {
        #[command(flatten)]
        scale: Box<ScaleArgs>,
        #[command(flatten)]
        how: How,
    },
    /// Take a rule out of the code, and look for a seed that notices. Needs a build with --features plant.
    Plant {
        /// Every bug there is.
        #[arg(long)]
        all: bool,
        /// Which.
        #[arg(value_name = "BUG", required_unless_present = "all", conflicts_with = "all")]
        bugs: Vec<String>,
        /// How often each is looked for, from other seeds on; the median is told. [default: 3]
        #[arg(long, value_name = "N")]
        starts: Option<u64>,
        /// First seed.
        #[arg(long, value_name = "SEED")]
        from: Option<u64>,
        /// Seeds tried at most in each start. [default: 2000]
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
        /// Seeds tried after one has noticed, to say how many do.
        #[arg(long, value_name = "N")]
        more: Option<u64>,
        /// Threads. [default: all cores]
        #[arg(long)]
        jobs: Option<u64>,
    },
}

pub fn run(args: &Args, command: &SimCommand) -> Result<ExitCode> {
    if let SimCommand::Scale { scale, how } = command {
        return scale::run(args, scale, how);
    }
    become_program(&words(args.json, command))
}

/// Becomes the simulator: it lies beside this program, or in PATH. Returns only if it cannot.
fn become_program(words: &[String]) -> Result<ExitCode> {
    let beside = std::env::current_exe()?.with_file_name(PROGRAM);
    let program = if beside.exists() {
        beside
    } else {
        PathBuf::from(PROGRAM)
    };
    let why = Command::new(&program).args(words).exec();
    if why.kind() == io::ErrorKind::NotFound {
        bail!(
            "the simulator is a program of its own, and there is none beside this one nor in PATH: \
             `cargo build --release -p pando-sim` in the source tree makes {PROGRAM}"
        );
    }
    bail!("{} cannot be started: {why}", program.display())
}

/// The command line as the simulator's own program takes it.
fn words(json: bool, command: &SimCommand) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut option = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            words.extend([name.to_owned(), value]);
        }
    };
    let mut flags: Vec<(&str, bool)> = Vec::new();
    let mut first: Vec<String> = Vec::new();
    match command {
        SimCommand::Run {
            seeds,
            operations,
            ci,
            regressions,
            jobs,
            replay_every,
            keep_going,
        } => {
            first.push("run".into());
            option("--seeds", seeds.clone());
            option("--operations", operations.map(|n| n.to_string()));
            option("--ci", ci.map(|n| n.to_string()));
            option("--jobs", jobs.map(|n| n.to_string()));
            option("--replay-every", replay_every.map(|n| n.to_string()));
            flags.extend([
                ("--regressions", *regressions),
                ("--keep-going", *keep_going),
                ("--json", json),
            ]);
        }
        SimCommand::Replay {
            seed,
            trace,
            tail,
            plant,
        } => {
            first.extend(["replay".into(), seed.to_string()]);
            option("--tail", tail.map(|n| n.to_string()));
            option("--plant", plant.clone());
            flags.push(("--trace", *trace));
        }
        // Not the simulator's program's: it measures real servers.
        SimCommand::Scale { .. } => {}
        SimCommand::Grid { table, only } => {
            first.push("grid".into());
            option("--only", only.clone());
            flags.extend([("--table", *table), ("--json", json)]);
        }
        SimCommand::Plant {
            all,
            bugs,
            starts,
            from,
            limit,
            more,
            jobs,
        } => {
            first.push("plant".into());
            first.extend(bugs.iter().cloned());
            option("--starts", starts.map(|n| n.to_string()));
            option("--from", from.map(|n| n.to_string()));
            option("--limit", limit.map(|n| n.to_string()));
            option("--more", more.map(|n| n.to_string()));
            option("--jobs", jobs.map(|n| n.to_string()));
            flags.extend([("--all", *all), ("--json", json)]);
        }
    }
    first.append(&mut words);
    first.extend(
        flags
            .iter()
            .filter(|(_, on)| *on)
            .map(|(name, _)| (*name).to_owned()),
    );
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_simulator_gets_its_own_words() {
        let of = |line: &str| {
            let args = Args::try_parse_from(line.split(' ')).expect("a command line");
            match &args.command {
                crate::args::Command::Sim(command) => words(args.json, command).join(" "),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of("pando sim run --seeds 3..9 --json"), "run --seeds 3..9 --json");
        assert_eq!(of("pando sim run --ci"), "run --ci 200");
        assert_eq!(of("pando sim replay 7 --trace"), "replay 7 --trace");
        assert_eq!(of("pando sim plant H44 H1 --limit 5"), "plant H44 H1 --limit 5");
        assert_eq!(of("pando sim plant --all --starts 5"), "plant --starts 5 --all");
        assert_eq!(
            of("pando sim run --seeds 0..9 --operations 50000000"),
            "run --seeds 0..9 --operations 50000000"
        );
        assert_eq!(of("pando sim plant --all"), "plant --all");
        assert_eq!(of("pando sim grid --json"), "grid --json");
    }
}
