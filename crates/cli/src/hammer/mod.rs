//! `pando hammer`: proves durability. Many tasks change their own directories and write down every operation before
//! it is sent and after it was acknowledged; `verify` reads that log and compares it with what is there. Kill servers,
//! pull plugs in between: what was acknowledged must be there, once.

mod log;
mod run;
mod verify;

use crate::args::Args;
use anyhow::Result;
use std::path::PathBuf;

/// What to do.
#[derive(clap::Subcommand, Debug)]
pub enum Hammer {
    /// Change things and log them to standard output until the time is up.
    Run {
        /// Operations in flight: each task has one.
        #[arg(long, default_value_t = 64)]
        tasks: u32,
        /// How long.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// Name of the run: the directory it works in.
        #[arg(long)]
        name: String,
        /// End earlier, when standard input is closed.
        #[arg(long)]
        until_eof: bool,
    },
    /// Compare the filesystem with a log.
    Verify {
        /// The log of a run.
        log: PathBuf,
        /// Acknowledged operations may be lost from the end, consistently: after a power failure in `async`.
        #[arg(long)]
        allow_lost_tail: bool,
    },
}

/// Runs the command.
pub fn run(args: &Args, hammer: &Hammer) -> Result<()> {
    match hammer {
        Hammer::Run {
            tasks,
            seconds,
            name,
            until_eof,
        } => {
            let end = if *until_eof {
                run::end_of_input()?
            } else {
                Default::default()
            };
            run::run(args, *tasks, *seconds, name, end)
        }
        Hammer::Verify { log, allow_lost_tail } => verify::run(args, log, *allow_lost_tail),
    }
}
