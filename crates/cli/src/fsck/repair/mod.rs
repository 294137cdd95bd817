//! `pando fsck --repair`: what was found is put right, while the filesystem is in use, where it is known what
//! is right. Each repair is a transaction of its own, and takes place only if everything it rests on is still
//! as it was found.

mod edit;
mod layout;
mod links;
mod lists;
mod parts;
mod plan;
mod stray;
#[cfg(test)]
mod tests;

use super::collect::{Collector, Unread};
use super::finding::{Finding, Kind};
use super::{FsckArgs, Outcome, check};
use crate::connect::Connection;
use crate::progress::Progress;
use edit::{Each, Records, Source, Swept};
use pando_client::Client;
use pando_env::{Env, LocalFuture};
use pando_format::{AccessRecord, Entry, Key, KeyRange, Record, Target};
use pando_types::{Access, Cred, DirId, Errno, FileKind, Name, Perm, Slot};
use pando_wire::{Op, Repaired, Request, Response};
use plan::{Lost, Plan, Planner, Repair};
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
    /// What is lost for good, by path as far as that is known.
    pub lost: Vec<String>,
}

/// Repairs until nothing more can be done, from what was found, if that is known. What is found then; what
/// was done is noted in any case.
pub async fn run(
    conn: &Connection,
    args: &FsckArgs,
    progress: &Rc<Progress>,
    known: Option<Outcome>,
    done: &mut Done,
) -> Result<Outcome, Unread> {
    let mut outcome = match known {
        Some(outcome) => outcome,
        None => check(conn, args, progress).await?,
    };
    // What could not be made anew stays so.
    let failed = std::mem::take(&mut done.failed);
    for _ in 0..PASSES {
        let before = done.repairs.len();
        done.left.clear();
        done.failed.clone_from(&failed);
        let problems = outcome.findings.iter().filter(|f| !f.kind.is_note());
        let in_doubt = outcome.findings.iter().any(|f| f.kind == Kind::InDoubt);
        for finding in in_order(problems.collect()) {
            let mut leave = |why| done.left.push((finding.kind.name(), finding.detail.clone(), why));
            // It may have taken effect at the file and not at the name, or the other way round.
            if in_doubt && finding.kind == Kind::Links {
                leave("names cannot be counted while a transaction is in doubt: that comes first");
                continue;
            }
            match one(conn, args, finding, done).await {
                Ok(()) => {}
                Err(Unread::Damaged) => {
                    let why = "what it rests on cannot be read";
                    done.left.push((finding.kind.name(), finding.detail.clone(), why));
                }
                Err(away) => return Err(away),
            }
        }
        if args.dry_run || done.repairs.len() == before {
            break;
        }
        outcome = check(conn, args, progress).await?;
    }
    Ok(outcome)
}

/// What others rest on comes first.
fn in_order(mut findings: Vec<&Finding>) -> Vec<&Finding> {
    let rank = |kind: Kind| match kind {
        Kind::Part | Kind::PartList => 0,
        Kind::Counts | Kind::NoTouch | Kind::Counter => 1,
        Kind::TwoNames | Kind::NoContent | Kind::Hash | Kind::Position | Kind::Layout => 2,
        Kind::Halves | Kind::Unlisted | Kind::Links => 3,
        Kind::Attachment | Kind::Listed | Kind::NoHead | Kind::NoName => 4,
        // Whether there is another record of it is known when all others are right.
        Kind::LeftBehind | Kind::PartNote => 5,
        // It follows from the entries.
        Kind::List => 7,
        _ => 6,
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
    if let Plan::NeedsFile(file, kind) = &plan {
        if args.dry_run {
            done.repairs
                .push(format!("{what}: would be moved to {LOST}/{file}"));
            return Ok(());
        }
        if let Err(e) = make_file(&conn.client, file, *kind).await {
            done.failed
                .push(format!("{what}: {LOST}/{file} cannot be made: {e}"));
            return Ok(());
        }
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
        Plan::NeedsFile(file, _) => done.failed.push(format!("{what}: {LOST}/{file} is not there")),
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

    fn sweep<'a>(&'a self, each: &'a mut Each<'_>) -> Swept<'a> {
        Box::pin(async move {
            for server in self.client.map().servers.iter().map(|s| s.id) {
                let everything = KeyRange {
                    start: vec![0],
                    end: vec![0xFF, 0xFF],
                };
                let mut damaged = false;
                Collector::new(self.client.clone())
                    .stream(
                        server,
                        everything,
                        &mut |key, record| each(server, key, record),
                        &mut |_| damaged = true,
                    )
                    .await?;
                if damaged {
                    return Err(Unread::Damaged);
                }
            }
            Ok(())
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
        lost: Lost::Missing,
        now: conn.reactor.now(),
    };
    planner.lost = lost_found(&planner.records).await?;
    Ok(planner)
}

/// Whether nobody but root gets at what is put there: whose it was may not be known.
fn is_roots(access: &AccessRecord) -> bool {
    access.uid == 0 && access.perm.bits() & 0o077 == 0 && access.acls == Default::default()
}

/// `/lost+found`, if it is there.
async fn lost_found<S: Source>(records: &Records<S>) -> Result<Lost, Unread> {
    let Some(root) = records.head(DirId::ROOT).await? else {
        return Ok(Lost::Missing);
    };
    let Ok(name) = Name::new(&LOST.as_bytes()[1..]) else {
        return Ok(Lost::Missing);
    };
    let hash = records.map.widths().name(root.salt, &name);
    let key = records.key(DirId::ROOT, hash, name).await?;
    Ok(match records.get(&key).await? {
        Some(Record::Entry(Entry {
            target: Target::Dir(access),
            ..
        })) if is_roots(&access) => Lost::At(access.id),
        Some(_) => Lost::Another,
        None => Lost::Missing,
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

/// A file to be filled: numbers are given by servers alone.
async fn make_file(client: &Rc<Client>, name: &Name, kind: FileKind) -> Result<(), Errno> {
    let path = format!("{LOST}/{name}");
    let (root, path) = (Cred::root(), path.as_bytes());
    if kind == FileKind::Symlink {
        return client.symlink(&root, stray::NOWHERE, path).await.map(drop);
    }
    let (dir, name) = client.parent_of(&root, path).await?;
    let op = Op::Create {
        dir,
        name,
        mode: Perm::new(0o600).into(),
        exclusive: true,
        want: Access::WRITE.0,
    };
    client.op(&root, op).await.map(drop)
}

/// What was done, for people.
pub fn tell(args: &FsckArgs, done: &Done) {
    done.repairs.iter().for_each(|line| println!("{line}"));
    done.lost.iter().for_each(|line| println!("LOST {line}"));
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
        "dry_run": args.dry_run, "repairs": done.repairs, "lost": done.lost, "not_repairable": left.collect::<Vec<_>>(), "failed": done.failed,
    })
}
