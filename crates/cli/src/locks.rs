//! `pando locks`: which files programs have locked, and who waits.

use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::Connection;
use anyhow::{Result, anyhow};
use clap::Args as ClapArgs;
use pando_env::LocalFuture;
use pando_env::sync::join_all;
use pando_types::{Errno, Hold, LockFamily, ServerId};
use pando_wire::{FileLockAnswer, FileLockRequest, LockView, Request, Response};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// Most locks that each server is asked for.
const MOST: u32 = 8192;
const PATIENCE: Duration = Duration::from_secs(3);

/// Show which files programs have locked on mounts, and who waits for a lock. Fails if a server does not
/// answer.
#[derive(ClapArgs, Debug)]
#[command(
    after_help = "`find MOUNT -inum INODE` finds the file. PIDs are those of the machine that has the mount.\n\nExamples:\n  pando \
                  locks\n  pando locks --json | jq '.locks[] | select(.waiting)'"
)]
pub struct LocksArgs {}

pub fn run(args: &Args, _options: &LocksArgs) -> Result<ExitCode> {
    let dir = ClusterDir::of(args)?;
    let conn = Connection::operate(&dir, dir.load()?, PATIENCE)?;
    let client = conn.client.clone();
    let map = conn.run(async move { client.newest_map().await });
    let questions: Vec<LocalFuture<(ServerId, Result<Response, Errno>)>> = map
        .servers
        .iter()
        .map(|server| -> LocalFuture<_> {
            let (client, id) = (conn.client.clone(), server.id);
            let request = Request::Lock(FileLockRequest::List(MOST));
            Box::pin(async move { (id, client.admin(id, request).await) })
        })
        .collect();
    let (mut locks, mut silent) = (Vec::new(), Vec::new());
    for (server, answer) in conn.run(join_all(questions)) {
        match answer {
            Ok(Response::Lock(FileLockAnswer::Locks(some))) => {
                locks.extend(some.into_iter().map(|lock| (server, lock)));
            }
            Ok(_) => silent.push((server, "it answered something else".to_owned())),
            Err(e) => silent.push((server, e.to_string())),
        }
    }
    if silent.len() == map.servers.len() {
        return Err(anyhow!("no server answers; `pando status` says why"));
    }
    if args.json {
        let all: Vec<_> = locks
            .iter()
            .map(|(server, lock)| as_json(*server, lock))
            .collect();
        let silent: Vec<_> = silent
            .iter()
            .map(|(s, why)| json!({ "server": s.0, "error": why }))
            .collect();
        println!("{}", json!({ "locks": all, "silent": silent }));
    } else {
        match (locks.is_empty(), silent.is_empty()) {
            (true, true) => println!("No file is locked."),
            (true, false) => println!("No file is locked on the servers that answer."),
            (false, _) => show(&locks),
        }
        for (server, why) in &silent {
            eprintln!("server {server}: {why}");
        }
    }
    Ok(if silent.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn family(lock: &LockView) -> &'static str {
    match lock.place.family {
        LockFamily::Posix => "posix",
        LockFamily::Flock => "flock",
        LockFamily::Append => "append",
    }
}

fn hold(lock: &LockView) -> &'static str {
    match lock.hold {
        Hold::Shared => "shared",
        Hold::Exclusive => "exclusive",
    }
}

fn as_json(server: ServerId, lock: &LockView) -> serde_json::Value {
    json!({
        "inode": lock.place.ino.0, "generation": lock.place.generation.0, "family": family(lock), "hold": hold(lock),
        "first": lock.span.first, "last": (lock.span.last != u64::MAX).then_some(lock.span.last),
        "waiting": lock.waiting, "pid": lock.pid, "mount": format!("{:032x}", lock.session.0),
        "owner": format!("{:016x}", lock.place.token), "server": server.0,
    })
}

fn show(locks: &[(ServerId, LockView)]) {
    println!(
        "{:>20}  {:6} {:9} {:8} {:>24}  {:>8}  {:16}  {:>6}",
        "INODE", "FAMILY", "HOLD", "STATE", "BYTES", "PID", "MOUNT", "SERVER"
    );
    for (server, lock) in locks {
        let last = match lock.span.last {
            u64::MAX => "end".to_owned(),
            last => last.to_string(),
        };
        let bytes = format!("{}-{last}", lock.span.first);
        let state = if lock.waiting { "waiting" } else { "held" };
        println!(
            "{:>20}  {:6} {:9} {:8} {:>24}  {:>8}  {:016x}  {:>6}",
            lock.place.ino.0,
            family(lock),
            hold(lock),
            state,
            bytes,
            lock.pid,
            lock.session.0 as u64,
            server.0,
        );
    }
}
