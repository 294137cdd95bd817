//! `pando explain`: one operation, done and told message by message.

mod perform;
mod show;
mod words;

use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::fs::absolute;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use pando_client::explain::Explained;
use pando_env::sync::join_all;
use pando_net::Options;
use pando_types::Errno;
use perform::Plan;
use std::ffi::OsString;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

/// Do one operation and show what it took: the directories on the way, each message, and the servers it
/// concerned.
///
/// THE OPERATION IS REALLY DONE, as the user who asks. Those listed first change nothing. chmod, chown and
/// truncate set what is there already, unless TO says what else; close opens a file, writes its first byte
/// once more, if it has one, and closes it.
///
/// Who answers is found out before, and the session is registered, as it is for any program that runs for
/// longer; of the directories on the way nothing is known, unless `--warm` says so.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando explain stat /home/me/notes.txt\n  pando explain mkdir /home/me/new --warm\n  \
                  pando explain rename /a/b /c/b --json | jq .round_trips\n  pando explain stat /a/b/c --resolution sequential"
)]
pub struct ExplainArgs {
    /// Which.
    #[arg(value_enum, value_name = "OP")]
    pub op: Operation,
    /// On what.
    pub path: OsString,
    /// The new path (rename), where it leads (symlink), octal bits (chmod), UID[:GID] (chown), bytes
    /// (truncate).
    pub to: Option<OsString>,
    /// With the directories on the way known already.
    #[arg(long)]
    pub warm: bool,
    /// With what a new program has to do first: learn which boots of the servers answer, and register its
    /// session.
    #[arg(long)]
    pub first: bool,
}

/// What can be explained.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Attributes; of a directory those of both halves.
    Stat,
    /// The same, of a directory only.
    Statdir,
    /// All names in a directory, with attributes.
    Readdir,
    /// Where a symbolic link leads.
    Readlink,
    /// Open a file for reading, and its data if it is small.
    Open,
    /// Open a file, write its first byte once more, close it: each shown apart.
    Close,
    /// Set permission bits.
    Chmod,
    /// Set owner and group, by number.
    Chown,
    /// Set the times to now.
    Touch,
    /// Open a file, set its size, close it: each shown apart.
    Truncate,
    /// Create a file that is not there.
    Create,
    /// Create a directory.
    Mkdir,
    /// Create a symbolic link.
    Symlink,
    /// Rename, replacing what is there.
    Rename,
    /// Remove a file or a symbolic link.
    Unlink,
    /// Remove an empty directory.
    Rmdir,
}

impl Operation {
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or(String::new(), |v| v.get_name().to_owned())
    }

    fn changes(self) -> bool {
        use Operation::*;
        !matches!(self, Stat | Statdir | Readdir | Readlink | Open)
    }
}

/// A part of an operation, and what it took.
struct Step {
    name: String,
    explained: Explained,
}

/// What came of it.
struct Told {
    op: Operation,
    path: Vec<u8>,
    to: Option<Vec<u8>>,
    steps: Vec<Step>,
    outcome: Result<(), Errno>,
}

pub fn run(args: &Args, explain: &ExplainArgs) -> Result<ExitCode> {
    let dir = ClusterDir::of(args)?;
    let patience = Duration::from_secs(args.wait);
    let conn = Connection::open_with(&dir, Party::Client, Options::default(), patience, args.paths)?;
    let path = absolute(&explain.path);
    let plan = Plan::new(explain, conn.my_cred())?;
    if !explain.first {
        greet(&conn, explain.op.changes());
    }
    conn.run(plan.prepare(&conn, &path))
        .with_context(|| format!("cannot look at {} first", crate::text::printable(&path)))?;
    let (steps, outcome) = conn.run(plan.perform(&conn, &path));
    let told = Told {
        op: explain.op,
        path,
        to: explain.to.as_ref().map(|to| plan.shown(to)),
        steps,
        outcome,
    };
    if args.json {
        println!("{}", show::json(&conn, &told));
    } else {
        print!("{}", show::text(&conn, &told));
    }
    if let (Err(Errno::Unreachable | Errno::Access), Some(trouble)) = (told.outcome, conn.trouble()) {
        bail!("{trouble}");
    }
    Ok(match told.outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

/// All servers at once; one that is away may not be concerned at all.
fn greet(conn: &Connection, changes: bool) {
    let map = conn.client.map();
    let mut greetings: Vec<Pin<Box<dyn Future<Output = bool> + '_>>> = Vec::new();
    for server in map.servers.iter().map(|s| s.id) {
        greetings.push(Box::pin(conn.client.greet(server, changes)));
    }
    conn.run(join_all(greetings));
}
