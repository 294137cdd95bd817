//! `pando fsck`: every invariant, across all servers, while the filesystem is in use.
//!
//! What is being changed looks wrong for a moment: two halves of one change are read at different times. So
//! nothing is reported that was seen once. Whatever looks wrong is read again after a pause, several times,
//! and reported only if it looks wrong in the same way every time.

mod check;
mod collect;
mod finding;
mod numbers;
mod parts;
mod range;
mod repair;
mod report;
pub mod salvage;
#[cfg(test)]
pub(crate) mod tests;

use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::progress::{Progress, Unit};
use anyhow::Result;
use check::{BlockFile, Checker, Counts};
pub use collect::{Collector, Unread};
pub use finding::Finding;
use finding::{Kind, Subject};
use pando_data::{BlockError, Blocks};
use pando_env::Env;
use pando_format::{Key, KeyRange, Record};
use pando_net::Waiting;
use pando_types::{SLOTS, Timestamp};
pub use report::texts;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

/// Check every invariant across all servers, while the filesystem is in use.
///
/// Change nothing, unless told to repair.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: 0 clean, 1 problems found, 2 could not check (a server is away).\n\nExamples:\n  pando fsck\n  pando fsck --data --json > report.json\n  pando fsck --repair --dry-run"
)]
pub struct FsckArgs {
    /// Look for the data of large files too. A file without any is legal (it reads as zeros), and is noted.
    #[arg(long)]
    pub data: bool,
    /// Put right what can be put right without guessing; what has no name any more goes to /lost+found.
    #[arg(long)]
    pub repair: bool,
    /// Only say what would be repaired.
    #[arg(short = 'n', long, requires = "repair")]
    pub dry_run: bool,
    /// How often what looks wrong is looked at again before it is reported.
    #[arg(long, default_value_t = 5)]
    pub looks: u32,
    /// Pause before each such look, in milliseconds.
    #[arg(long, default_value_t = 300)]
    pub pause_ms: u64,
}

/// What came of it.
pub struct Outcome {
    /// Problems and notes.
    pub findings: Vec<Finding>,
    /// Sums.
    pub counts: Counts,
    /// Things that looked wrong at first.
    pub suspected: usize,
    /// Why the data of files could not be looked for, if that was asked for.
    pub without_data: Option<String>,
}

/// The sum of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No problem.
    Clean,
    /// Some.
    Problems,
    /// Something could not be looked at, so nothing can be said.
    Unchecked,
}

pub fn run(args: &Args, fsck: &FsckArgs) -> ExitCode {
    let could_not = |why: String| {
        if args.json {
            println!("{}", serde_json::json!({ "checked": false, "error": why }));
        } else {
            eprintln!("pando: {why}");
        }
        ExitCode::from(2)
    };
    let opened = ClusterDir::of(args).and_then(|dir| {
        Connection::open(
            &dir,
            Party::Operator,
            Waiting::default(),
            Duration::from_secs(args.wait.min(10)),
        )
    });
    let conn = match opened {
        Ok(conn) => conn,
        Err(e) => return could_not(format!("{e:#}")),
    };
    if !conn.client.map().placement.by_key() {
        return could_not(
            "this filesystem was made without decoupling, an experiment that is not checked".into(),
        );
    }
    let moving = conn.run(conn.client.newest_map()).to_move();
    if moving > 0 {
        return could_not(format!(
            "{moving} slots are on the move; check again when `pando map` shows none"
        ));
    }
    let progress = Rc::new(Progress::new(
        "checking",
        Unit::Items,
        conn.client.map().servers.len() as u64 * u64::from(SLOTS),
    ));
    let first = conn.run(check(&conn, fsck, &progress));
    let (result, done) = match (fsck.repair, first) {
        (true, Ok(outcome)) => {
            let mut done = repair::Done::default();
            let is_damaged = outcome.findings.iter().any(|f| f.kind == Kind::Corrupt);
            // What stands in the way of everything else comes first.
            if is_damaged && !fsck.dry_run {
                salvage::all(args, &conn, &outcome.findings, &mut done);
            }
            let known = (done.repairs.is_empty()).then_some(outcome);
            let result = conn.run(repair::run(&conn, fsck, &progress, known, &mut done));
            (result, Some(done))
        }
        (true, Err(e)) => (Err(e), Some(repair::Done::default())),
        (false, first) => (first, None),
    };
    progress.finish();
    let why = match result {
        Ok(outcome) => {
            return match report::print(args, &conn, &outcome, done.map(|done| (fsck, done))) {
                Ok(Verdict::Clean) => ExitCode::SUCCESS,
                Ok(Verdict::Problems) => ExitCode::FAILURE,
                Ok(Verdict::Unchecked) => ExitCode::from(2),
                Err(e) => could_not(format!("{e:#}")),
            };
        }
        Err(Unread::Away(server)) => {
            let because = conn.because();
            format!(
                "server {server} does not answer{because}, so the filesystem cannot be checked; `pando up` starts what is missing on this machine"
            )
        }
        Err(Unread::Damaged) => "a range cannot be read".into(),
    };
    // What was repaired before that stays repaired.
    match done {
        Some(done) if args.json => {
            let all =
                serde_json::json!({ "checked": false, "error": why, "repair": repair::json(fsck, &done) });
            println!("{all}");
            ExitCode::from(2)
        }
        Some(done) => {
            repair::tell(fsck, &done);
            could_not(why)
        }
        None => could_not(why),
    }
}

async fn check(conn: &Connection, args: &FsckArgs, progress: &Rc<Progress>) -> Result<Outcome, Unread> {
    let collector = Collector::new(conn.client.clone());
    let map = conn.client.map();
    let checker = Rc::new(RefCell::new(Checker::new(map.clone())));
    if args.data {
        checker.borrow_mut().block_files = Some(Vec::new());
    }
    let began = conn.reactor.now();
    checker.borrow_mut().began = Some(began);
    let mut findings = collector.everything(checker.clone(), progress.clone()).await?;
    let (counts, files) = {
        let mut checker = checker.borrow_mut();
        findings.append(&mut checker.finish());
        for (server, key, tx) in checker.pending() {
            let what = match key {
                Key::Decision(_) => "committed, and not confirmed by all participants",
                Key::Owed(_) => {
                    "a new directory, whose content is not confirmed by the server that is to have it"
                }
                _ => "prepared, and its outcome is not known here",
            };
            let detail = format!(
                "transaction {tx} is {what}; server {} coordinates it",
                tx.coordinator
            );
            findings.push(Finding::new(
                Kind::InDoubt,
                Subject::Record(*server, key.encode()),
                detail,
            ));
        }
        (checker.counts(), checker.block_files.take())
    };
    // Megabytes that are not needed for a second look.
    drop(checker);
    let suspected = findings.len();
    progress.say(format!("{suspected} to look at again"));
    for _ in 0..args.looks {
        if findings.is_empty() {
            break;
        }
        conn.reactor.sleep(Duration::from_millis(args.pause_ms)).await;
        findings = look_again(&collector, &map, began, findings).await?;
    }
    let mut without_data = None;
    if let Some(files) = files {
        match look_for_data(conn, files).await {
            Ok(empty) => findings.extend(empty),
            Err(e) => without_data = Some(e.to_string()),
        }
    }
    findings.sort_by_key(Finding::identity);
    Ok(Outcome {
        findings,
        counts,
        suspected,
        without_data,
    })
}

/// Those of the findings that are still true.
async fn look_again(
    collector: &Collector,
    map: &Rc<pando_cluster::ClusterMap>,
    began: Timestamp,
    findings: Vec<Finding>,
) -> Result<Vec<Finding>, Unread> {
    let mut checker = Checker::new(map.clone());
    checker.began = Some(began);
    let records = collector.again(&findings).await?;
    for (_, key, record) in &records {
        if let Key::Head(part) = key {
            checker.head(*part, record);
        }
    }
    for (server, key, record) in &records {
        checker.feed(*server, key, record);
    }
    let fresh = checker.finish();
    let wrong: BTreeSet<(Kind, Subject)> = fresh.iter().map(Finding::identity).collect();
    let mut kept: Vec<Finding> = Vec::new();
    for mut finding in findings {
        let still = match &finding.subject {
            Subject::Range(server, start, end) => {
                let range = KeyRange {
                    start: start.clone(),
                    end: end.clone(),
                };
                collector.unreadable(*server, &range).await?
            }
            Subject::Record(server, key) if matches!(finding.kind, Kind::Lost | Kind::Older) => {
                match Key::decode(key) {
                    Ok(key) => collector.unreadable(*server, &range::just(&key)).await?,
                    Err(_) => true,
                }
            }
            Subject::Record(server, key) => match Key::decode(key) {
                Ok(key) => collector.one(*server, &key).await?.is_some(),
                Err(_) => true,
            },
            Subject::Counter(slot, largest) => {
                match collector.one(map.owner(*slot), &Key::Counter(*slot)).await? {
                    Some(Record::Counter(c)) => c.reserved <= *largest,
                    _ => true,
                }
            }
            Subject::Slot(server, slot) if finding.kind == Kind::Foreign => {
                collector.holds(*server, *slot).await?.is_some()
            }
            Subject::Slot(..) => true,
            // It was changing, so its counts could not be compared: they may be wrong now.
            Subject::Dir(_) | Subject::Part(_) if finding.kind == Kind::Moving => {
                let is_now = |kind: &Kind| wrong.contains(&(*kind, finding.subject.clone()));
                let now = Kind::COMPARED.into_iter().find(is_now);
                finding.kind = now.unwrap_or(finding.kind);
                now.is_some()
            }
            // Wrong before, and now changing: not known until it keeps still.
            Subject::Dir(_) | Subject::Part(_) if Kind::COMPARED.contains(&finding.kind) => {
                let subject = finding.subject.clone();
                if wrong.contains(&(Kind::Moving, subject)) {
                    finding.kind = Kind::Moving;
                    true
                } else {
                    wrong.contains(&finding.identity())
                }
            }
            // Names that came or went since the first look began are not looked at again.
            Subject::Ino(_) if matches!(finding.kind, Kind::Links | Kind::Moving) => {
                let now = [Kind::Moving, Kind::Links].map(|kind| (kind, finding.subject.clone()));
                let now = now.into_iter().find(|now| wrong.contains(now));
                finding.kind = now.as_ref().map_or(finding.kind, |(kind, _)| *kind);
                now.is_some()
            }
            _ => wrong.contains(&finding.identity()),
        };
        if !still {
            continue;
        }
        // What it says now, not what it said then.
        if let Some(now) = fresh.iter().find(|f| f.identity() == finding.identity()) {
            finding.detail.clone_from(&now.detail);
            for place in &now.places {
                if !finding.places.contains(place) {
                    finding.places.push(*place);
                }
            }
        }
        if !kept.iter().any(|k| k.identity() == finding.identity()) {
            kept.push(finding);
        }
    }
    Ok(kept)
}

/// Files that should have blocks and have none, or damaged ones. Fails if that cannot be known, because the
/// block store cannot be asked.
async fn look_for_data(conn: &Connection, files: Vec<BlockFile>) -> Result<Vec<Finding>, BlockError> {
    conn.blocks.check().await?;
    let mut findings = Vec::new();
    for file in files {
        let BlockFile {
            place,
            key,
            size,
            block_size,
            stored,
        } = file;
        let ino = key.ino;
        let blocks = size.div_ceil(u64::from(block_size.max(1)));
        // Of a file with holes those that are there are few of many.
        let there = match stored < size {
            true => conn.blocks.present(key, 0, blocks).await?,
            false => Vec::new(),
        };
        let mut any = stored == 0;
        let mut damaged = None;
        let whole = if stored < size { 0..0 } else { 0..blocks };
        for block in whole.chain(there) {
            match conn.blocks.read(key, block, 0, 1).await {
                Ok(data) if data.is_empty() => {}
                Ok(_) => {
                    any = true;
                    break;
                }
                Err(e @ BlockError::Damaged(_)) => {
                    damaged = Some(e.to_string());
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        let detail = match damaged {
            Some(e) => format!("inode {ino}: {e}"),
            None if any => continue,
            None => format!("inode {ino} has {stored} bytes and no block: all of it reads as zeros"),
        };
        findings.push(Finding::new(Kind::NoData, Subject::Bucket(place), detail));
    }
    // Blocks of a folder that went away meanwhile look as if they had never been written.
    conn.blocks.check().await?;
    Ok(findings)
}

/// The encoded form of a key, for scripts.
fn key_hex(key: &[u8]) -> String {
    key.iter().map(|b| format!("{b:02x}")).collect()
}
