//! `pando gc`: blocks that belong to no file, while the filesystem is in use.
//!
//! Why nothing is removed that anybody needs:
//!
//! - A file has its record before its first block is written, under the same number and generation, which are
//!   never given again. So blocks without a record had one, and it is gone for good; or was never safe, and
//!   is lost.
//! - All of a file's blocks are left alone while there is any record of it, whatever that says of its size: a
//!   program may have written what it has not published yet. What was removed while open has a record until
//!   it is closed.
//! - A record on its way from one server to another is in a prepared part, which counts.
//! - One look at all servers is no instant: a file that is renamed may be ahead of it, and then behind. So
//!   there are several, up the slots and down in turns. A rename that the first misses went down; it is
//!   missed again only if the file went up again just when the second passed, and so on. And what was written
//!   within the grace period is not looked at.
//! - A record that cannot be read, a server that is away, and slots on the move end it: nothing is removed
//!   then.

mod look;
pub mod regular;

use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::fsck::Unread;
use crate::progress::{Progress, Unit};
use crate::text;
use anyhow::{Context, Result, bail};
use look::{Known, look};
use pando_blocks::Store;
use pando_data::{Blocks, Listing, StoredFile};
use pando_env::Env;
use pando_net::Waiting;
use pando_types::Timestamp;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;

/// Looks at all servers for who speaks of a file, up and down in turns. What every one has missed is removed.
const LOOKS: usize = 8;

/// Remove blocks of file data that belong to no file, while the filesystem is in use.
///
/// Servers remove the blocks of removed files by themselves, also after a crash. What is left are blocks of
/// files that were lost with their server's last seconds, and of writers that died before they said what they
/// wrote. The server that coordinates does the same once a day (`pando server --gc-every`).
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: 0 done, 1 some could not be removed, 2 could not look (a server is away, a record is damaged).\n\nExamples:\n  pando gc --dry-run\n  pando gc --grace 24h --json"
)]
pub struct GcArgs {
    /// Only say what would be removed.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// What was written within this time is left alone. It must be longer than clocks differ.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = text::duration)]
    pub grace: Duration,
}

/// What came of it.
#[derive(Default)]
struct Found {
    /// Files that have blocks.
    stored: u64,
    /// Of these, written too lately.
    young: u64,
    unreferenced: Vec<StoredFile>,
    failed: Vec<(StoredFile, String)>,
}

pub fn run(args: &Args, gc: &GcArgs) -> ExitCode {
    let patience = Duration::from_secs(args.wait.min(10));
    let looked = ClusterDir::of(args).and_then(|dir| collect(&dir, patience, gc, Duration::ZERO));
    match looked {
        Ok(found) => {
            report(args, gc, &found);
            match found.failed.is_empty() {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            }
        }
        Err(e) => {
            if args.json {
                println!("{}", json!({ "looked": false, "error": format!("{e:#}") }));
            } else {
                eprintln!("pando: {e:#}; nothing was removed");
            }
            ExitCode::from(2)
        }
    }
}

/// `patience`: how long a server is waited for. `pause`: how long to rest after each slot; 0: this is all
/// there is to do.
fn collect(dir: &ClusterDir, patience: Duration, gc: &GcArgs, pause: Duration) -> Result<Found> {
    let waiting = match pause.is_zero() {
        true => Waiting::default(),
        false => Waiting::Blocking,
    };
    let conn = Connection::open(dir, Party::Operator, waiting, patience)?;
    conn.run(at_rest(&conn))?;
    let epoch = conn.client.map().epoch;
    let mut found = Found::default();
    let mut known = Known::new();
    let oldest_young = before(conn.reactor.now(), gc.grace);
    each_file(&conn.blocks, |stored| {
        found.stored += 1;
        if stored.newest >= oldest_young {
            found.young += 1;
        } else {
            known.insert(stored.file, stored);
        }
    })?;
    // One look can miss a file that is renamed at the wrong moments; in each of so many hardly any is.
    for upwards in [true, false].into_iter().cycle().take(LOOKS) {
        if known.is_empty() {
            return Ok(found);
        }
        conn.run(look(&conn, upwards, &mut known, pause))
            .map_err(|why| match why {
                Unread::Away(server) => anyhow::anyhow!(
                    "server {server} does not answer{}; `pando up` starts what is missing on this machine",
                    conn.because()
                ),
                Unread::Damaged => anyhow::anyhow!(
                    "a record cannot be read, so it is not known which files there are; see `pando fsck`"
                ),
            })?;
    }
    conn.run(at_rest(&conn))?;
    if conn.client.map().epoch != epoch {
        bail!("servers joined, left or moved slots meanwhile; say it again");
    }
    // As they are now: what somebody wrote meanwhile is not old.
    each_file(&conn.blocks, |stored| {
        if known.contains_key(&stored.file) && stored.newest < oldest_young {
            found.unreferenced.push(stored);
        }
    })?;
    if !gc.dry_run {
        let progress = Progress::new("removing", Unit::Items, found.unreferenced.len() as u64);
        for stored in &found.unreferenced {
            if let Err(e) = conn.run(conn.blocks.remove(stored.file, 0, u64::MAX)) {
                found.failed.push((*stored, e.to_string()));
            }
            progress.add(1);
        }
        progress.finish();
    }
    Ok(found)
}

/// Fails while slots change hands: their records may be on neither server that is asked.
async fn at_rest(conn: &Connection) -> Result<()> {
    match conn.client.newest_map().await.to_move() {
        0 => Ok(()),
        moving => bail!("{moving} slots are on the move; say it again when `pando map` shows none"),
    }
}

fn each_file(store: &Store, mut each: impl FnMut(StoredFile)) -> Result<()> {
    for part in 0..=u8::MAX {
        let files = pando_data::wait(store.files(part)).context("cannot list the block store")?;
        files.into_iter().for_each(&mut each);
    }
    Ok(())
}

fn before(now: Timestamp, grace: Duration) -> Timestamp {
    let nanos = i128::try_from(grace.as_nanos()).unwrap_or(i128::MAX / 2);
    Timestamp::from_nanos(now.as_nanos().saturating_sub(nanos))
}

fn report(args: &Args, gc: &GcArgs, found: &Found) {
    let sum = |part: fn(&StoredFile) -> u64| found.unreferenced.iter().map(part).sum::<u64>();
    let (blocks, bytes) = (sum(|f| f.blocks), sum(|f| f.bytes));
    if args.json {
        let file = |f: &StoredFile| {
            json!({
                "ino": f.file.ino.0, "generation": f.file.generation.0, "blocks": f.blocks, "bytes": f.bytes,
                "written": f.newest.secs,
            })
        };
        let failed = |(f, why): &(StoredFile, String)| {
            let mut value = file(f);
            value["error"] = why.as_str().into();
            value
        };
        let all = json!({
            "looked": true, "dry_run": gc.dry_run, "grace_s": gc.grace.as_secs_f64(),
            "files_with_blocks": found.stored, "too_young": found.young,
            "blocks": blocks, "bytes": bytes,
            "unreferenced": found.unreferenced.iter().map(file).collect::<Vec<Value>>(),
            "failed": found.failed.iter().map(failed).collect::<Vec<Value>>(),
        });
        println!("{all:#}");
        return;
    }
    for f in &found.unreferenced {
        println!(
            "inode {} generation {}: {} blocks, {}",
            f.file.ino,
            f.file.generation.0,
            f.blocks,
            text::human(f.bytes)
        );
    }
    for (f, why) in &found.failed {
        eprintln!("pando: inode {}: {why}", f.file.ino);
    }
    let did = match gc.dry_run {
        true => "would be removed",
        false => "were removed",
    };
    println!(
        "{} files have blocks, {} of them too young to look at; {} blocks ({}) of {} that are no files {did}.",
        found.stored,
        found.young,
        blocks,
        text::human(bytes),
        found.unreferenced.len()
    );
    if !found.failed.is_empty() {
        eprintln!("pando: {} could not be removed; say it again", found.failed.len());
    }
}
