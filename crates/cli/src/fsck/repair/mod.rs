//! `pando fsck --repair`: what was found is put right, while the filesystem is in use, where it is known what is right. Each repair is
//! a transaction of its own, and takes place only if everything it rests on is still as it was found.

mod edit;
mod layout;
mod plan;
#[cfg(test)]
mod tests;

use super::collect::{Collector, Unread};
use super::finding::{Finding, Kind};
use super::{FsckArgs, Outcome, check};
use crate::connect::Connection;
use crate::progress::Progress;
use edit::{Records, Source};
use pando_client::Client;
use pando_env::{Env, LocalFuture};
use pando_format::{Entry, Key, KeyRange, Record, Target};
use pando_types::{Cred, DirId, Errno, Generation, Ino, Name, Perm, Slot};
use pando_wire::{Repaired, Request, Response};
use plan::{Plan, Planner, Repair};
use std::rc::Rc;

/// Looks and repairs in turns: some damage is seen only when other damage is mended.
const PASSES: u32 = 12;
/// Where goes what nobody has a name for.
const LOST: &str = "/lost+found";

/// What was done.
#[derive(Default)]
pub struct Done {
    /// Repairs, in words; with `--dry-run`, those that would be first.
    pub repairs: Vec<String>,
    /// What cannot be repaired, and why.
    pub left: Vec<(&'static str, String, &'static str)>,
    /// Repairs that came to nothing, because something was changed meanwhile or a server did not answer.
    pub failed: Vec<String>,
}

/// Repairs until nothing more can be done. What is found then.
pub async fn run(
    conn: &Connection,
    args: &FsckArgs,
    progress: &Rc<Progress>,
) -> Result<(Outcome, Done), Unread> {
    let mut done = Done::default();
    let mut outcome = check(conn, args, progress).await?;
    for _ in 0..PASSES {
        let before = done.repairs.len();
        done.left.clear();
        done.failed.clear();
        let problems = outcome.findings.iter().filter(|f| !f.kind.is_note());
        for finding in in_order(problems.collect()) {
            one(conn, args, finding, &mut done).await?;
        }
        if args.dry_run || done.repairs.len() == before {
            break;
        }
        outcome = check(conn, args, progress).await?;
    }
    Ok((outcome, done))
}

/// What others rest on comes first.
fn in_order(mut findings: Vec<&Finding>) -> Vec<&Finding> {
    let rank = |kind: Kind| match kind {
        Kind::Counts | Kind::NoTouch | Kind::Counter => 0,
        Kind::TwoNames | Kind::NoContent | Kind::Hash | Kind::Position | Kind::Layout => 1,
        Kind::Halves | Kind::Unlisted | Kind::Links | Kind::Attachment => 2,
        Kind::Listed | Kind::NoHead | Kind::NoName => 3,
        _ => 4,
    };
    findings.sort_by_key(|f| rank(f.kind));
    findings
}

async fn one(conn: &Connection, args: &FsckArgs, finding: &Finding, done: &mut Done) -> Result<(), Unread> {
    let name = finding.kind.name();
    let what = format!("{name}: {}", finding.detail);
    let mut planner = planner(conn).await?;
    let mut plan = planner.plan(finding).await?;
    if matches!(plan, Plan::NeedsLostFound) {
        if args.dry_run {
            done.repairs
                .push(format!("{what}: would be moved to {LOST}, which would be made"));
            return Ok(());
        }
        if let Err(e) = make_lost_found(&conn.client).await {
            done.failed.push(format!("{what}: {LOST} cannot be made: {e}"));
            return Ok(());
        }
        planner = self::planner(conn).await?;
        plan = planner.plan(finding).await?;
    }
    match plan {
        Plan::Repair(repairs) => {
            for repair in repairs {
                if args.dry_run {
                    done.repairs.push(format!("{what}: would be: {}", repair.does));
                    continue;
                }
                match ask(conn, &repair).await {
                    Ok(()) => done.repairs.push(format!("{what}: {}", repair.does)),
                    Err(why) => done.failed.push(format!("{what}: {why}")),
                }
            }
        }
        Plan::Later(why) => tracing::info!("{what}: not now: {why}"),
        Plan::NeedsLostFound => done.failed.push(format!("{what}: {LOST} is no directory")),
        Plan::Not(why) => done.left.push((name, finding.detail.clone(), why)),
    }
    Ok(())
}

async fn ask(conn: &Connection, repair: &Repair) -> Result<(), String> {
    let map = conn.client.map();
    let server = repair.slot.map_or(map.coordinator, |slot| map.owner(slot));
    match conn
        .client
        .admin(server, Request::Repair(repair.request.clone()))
        .await
    {
        Ok(Response::Repair(Repaired::Done)) => Ok(()),
        Ok(Response::Repair(Repaired::Changed)) => Err("it was changed meanwhile; say it again".into()),
        Ok(Response::Repair(Repaired::Wrong)) => Err("the server refuses this repair".into()),
        Ok(_) => Err(format!("server {server} does not understand repairs")),
        Err(e) => Err(format!("server {server}: {e}")),
    }
}

/// The records of a running cluster.
struct Live {
    client: Rc<Client>,
}

impl Source for Live {
    fn read(&self, range: KeyRange) -> LocalFuture<Result<Vec<(Key, Record)>, Unread>> {
        let client = self.client.clone();
        Box::pin(async move {
            let slot = range
                .start
                .first_chunk::<2>()
                .map_or(0, |s| u16::from_be_bytes(*s));
            let server = client.map().owner(Slot(slot));
            let mut all = Vec::new();
            let mut damaged = false;
            Collector::new(client)
                .stream(server, range, &mut |k, r| all.push((k, r)), &mut |_| {
                    damaged = true
                })
                .await?;
            // What stands beside damage is not all there is.
            match damaged {
                true => Err(Unread::Damaged),
                false => Ok(all),
            }
        })
    }

    fn names_of(
        &self,
        (slot, ino, generation): (Slot, Ino, Generation),
    ) -> LocalFuture<Result<Vec<(Key, Entry)>, Unread>> {
        let client = self.client.clone();
        Box::pin(async move {
            let map = client.map();
            let mut all = Vec::new();
            for server in map.servers.iter().map(|s| s.id) {
                let everything = KeyRange {
                    start: vec![0],
                    end: vec![0xFF, 0xFF],
                };
                let mut damaged = false;
                Collector::new(client.clone())
                    .stream(
                        server,
                        everything,
                        &mut |key, record| {
                            if let Record::Entry(entry) = record
                                && let Target::Link(link) = &entry.target
                                && (link.slot, link.ino, link.generation) == (slot, ino, generation)
                                && map.owner(key.slot()) == server
                            {
                                all.push((key, entry));
                            }
                        },
                        &mut |_| damaged = true,
                    )
                    .await?;
                if damaged {
                    return Err(Unread::Damaged);
                }
            }
            Ok(all)
        })
    }
}

async fn planner(conn: &Connection) -> Result<Planner<Live>, Unread> {
    let map = conn.client.map();
    let client = conn.client.clone();
    let mut planner = Planner {
        records: Records {
            source: Live { client },
            map,
        },
        lost: None,
        now: conn.reactor.now(),
    };
    planner.lost = lost_found(&planner.records).await?;
    Ok(planner)
}

/// `/lost+found`, if it is a directory.
async fn lost_found<S: Source>(records: &Records<S>) -> Result<Option<DirId>, Unread> {
    let Some(root) = records.head(DirId::ROOT).await? else {
        return Ok(None);
    };
    let Ok(name) = Name::new(&LOST.as_bytes()[1..]) else {
        return Ok(None);
    };
    let hash = records.map.widths().name(root.salt, &name);
    let key = Key::Entry {
        dir: DirId::ROOT,
        hash,
        name,
    };
    Ok(match records.get(&key).await? {
        Some(Record::Entry(Entry {
            target: Target::Dir(access),
            ..
        })) => Some(access.id),
        _ => None,
    })
}

async fn make_lost_found(client: &Rc<Client>) -> Result<(), Errno> {
    match client
        .mkdir(&Cred::root(), LOST.as_bytes(), Perm::new(0o700))
        .await
    {
        Ok(_) | Err(Errno::Exists) => Ok(()),
        Err(e) => Err(e),
    }
}

/// What was done, for people.
pub fn tell(args: &FsckArgs, done: &Done) {
    done.repairs.iter().for_each(|line| println!("{line}"));
    for (kind, detail, why) in &done.left {
        println!("NOT REPAIRABLE {kind}: {detail}: {why}");
    }
    done.failed.iter().for_each(|line| println!("FAILED {line}"));
    let word = match args.dry_run {
        true => "would be made (and perhaps others after them); nothing was changed",
        false => "made",
    };
    println!(
        "{} repairs {word}; {} problems are not repairable, {} repairs failed.",
        done.repairs.len(),
        done.left.len(),
        done.failed.len()
    );
}

/// The same for scripts.
pub fn json(args: &FsckArgs, done: &Done) -> serde_json::Value {
    let left = done
        .left
        .iter()
        .map(|(kind, detail, why)| serde_json::json!({ "kind": kind, "detail": detail, "why": why }));
    serde_json::json!({
        "dry_run": args.dry_run, "repairs": done.repairs, "not_repairable": left.collect::<Vec<_>>(), "failed": done.failed,
    })
}
