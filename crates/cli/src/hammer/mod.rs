//! `pando hammer`: proves durability. Many tasks change their own directories and write down every operation
//! before it is sent and after it was acknowledged; `verify` reads that log and compares it with what is
//! there. Kill servers, pull plugs in between: what was acknowledged must be there, once. `opposed` does the
//! same for renames of directories that many clients share.

mod log;
mod opposed;
mod probe;
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
    /// Show that each server goes on: in a directory of each, one operation of each kind after the other, and
    /// a line `P SERVER KIND MILLISECONDS` (since 1970) for each that was done, until standard input is
    /// closed.
    Probe {
        /// Name of the run: the directory it works in.
        #[arg(long)]
        name: String,
    },
    /// Compare the filesystem with a log.
    Verify {
        /// The log of a run.
        log: PathBuf,
        /// Acknowledged operations may be lost from the end, consistently: after a power failure in `async`.
        #[arg(long)]
        allow_lost_tail: bool,
    },
    /// Move subtrees into each other, with several clients at once; then look whether everything is there,
    /// once.
    #[command(
        after_help = "Exit status: 0 if everything is there.\n\nExample:\n  pando hammer opposed --name o1 --rounds 1000000 && pando fsck"
    )]
    Opposed(opposed::Opposed),
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
        Hammer::Opposed(how) => opposed::run(args, how),
        Hammer::Probe { name } => probe::run(args, name, &*run::end_of_input()?),
        Hammer::Verify { log, allow_lost_tail } => verify::run(args, log, *allow_lost_tail),
    }
}
