//! `pando status`: one line per server, within a second whatever servers are down, and within three if
//! coordination is away.

use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::Connection;
use crate::grow::waits::{self, Wait};
use crate::{coordination, process, standby, text};
use anyhow::Result;
use pando_cluster::{ClusterFile, ClusterMap, CoordError, Server, View};
use pando_env::sync::{Either, first, join_all};
use pando_env::{Env, LocalFuture};
use pando_types::{ServerId, Timestamp};
use pando_wire::{Request, Response};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// Who has not answered by then counts as down.
pub const PATIENCE: Duration = Duration::from_millis(900);

pub fn run(args: &Args) -> Result<ExitCode> {
    let dir = ClusterDir::of(args)?;
    let copy = dir.load()?;
    let coord = coordination::open(&dir, &copy)?;
    // Which servers there are is not for an old copy to say.
    let found = coordination::wait(coord.view(), Instant::now() + PATIENCE);
    let file = match &found {
        Ok(view) => copy.with_map(&view.map),
        Err(_) => newest_of_servers(&dir, copy)?,
    };
    // Short tries, so that a server that is being restarted is found.
    let conn = Connection::operate(&dir, file, PATIENCE)?;
    let questions: Vec<LocalFuture<Option<Value>>> = conn
        .file
        .servers
        .iter()
        .map(|s| -> LocalFuture<Option<Value>> {
            Box::pin(ask(conn.client.clone(), conn.reactor.clone(), s.id))
        })
        .collect();
    let answers = conn.run(join_all(questions));
    let mut servers = Vec::new();
    for (server, answer) in conn.file.servers.iter().zip(answers) {
        servers.push(merge(&dir, &conn, server, answer));
    }
    let map = conn.file.map(&dir.path)?;
    let waits = waits::waits(&map, &servers);
    let down = servers.iter().filter(|s| s["up"] != true).count();
    let standbys = standby::all(&dir)?;
    if args.json {
        let all = json!({
            "dir": dir.path, "fs": conn.file.fs, "profile": conn.file.profile.name, "durability": conn.file.durability,
            "epoch": conn.file.epoch, "down": down, "servers": servers,
            "removed_files": sum(&servers, "removed_files"), "removed_bytes": sum(&servers, "removed_bytes"),
            "standbys": standbys,
            "coordination": coordination::to_json(&conn.file, &found), "plan": waits::to_json(&map, &waits),
        });
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        show(&dir, &conn, &servers, down, &found);
        standbys.iter().for_each(|s| println!("{}", standby::shown(s)));
        show_plan(&map, &waits);
    }
    Ok(if down == 0 && found.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What all servers that are up say together.
fn sum(servers: &[Value], field: &str) -> u64 {
    servers.iter().filter_map(|s| s[field].as_u64()).sum()
}

/// Removed files whose data are there yet.
fn removed(server: &Value) -> String {
    match (server["removed_files"].as_u64(), server["removed_bytes"].as_u64()) {
        (Some(files), Some(bytes)) if files > 0 => format!("{files} ({})", text::human(bytes)),
        (Some(_), _) => "0".into(),
        (None, _) => "-".into(),
    }
}

/// What became of blocks that are nobody's.
fn collected(server: &Value, gc: &Value) -> String {
    let time = |field: &str| {
        let secs = gc[field].as_i64()?;
        Some(text::time(Timestamp { secs, nanos: 0 }, false))
    };
    let n = |field: &str| gc[field].as_u64().unwrap_or(0);
    let last = match time("last") {
        Some(at) => format!("last {at} ({} blocks, {})", n("blocks"), text::human(n("bytes"))),
        None => "not yet done".into(),
    };
    let next = time("next").unwrap_or_default();
    let failed = gc["error"]
        .as_str()
        .map_or(String::new(), |why| format!("; {why}"));
    format!(
        "Server {server} removes blocks that belong to no file every {}: {last}, next {next}{failed}",
        duration(n("every_s"))
    )
}

/// The newest map that a server tells in time.
fn newest_of_servers(dir: &ClusterDir, copy: ClusterFile) -> Result<ClusterFile> {
    let conn = Connection::operate(dir, copy.clone(), PATIENCE)?;
    let client = conn.client.clone();
    let looked: LocalFuture<()> = Box::pin(async move { drop(client.newest_map().await) });
    conn.run(first(looked, conn.reactor.sleep(PATIENCE)));
    Ok(copy.with_map(&conn.client.map()))
}

/// What a server says of itself, if it does in time.
pub async fn ask(
    client: std::rc::Rc<pando_client::Client>,
    reactor: std::rc::Rc<pando_net::Reactor>,
    server: u16,
) -> Option<Value> {
    let answer: LocalFuture<_> =
        Box::pin(async move { client.admin(ServerId(server), Request::Status).await });
    match first(answer, reactor.sleep(PATIENCE)).await {
        Either::Left(Ok(Response::Status(text))) => serde_json::from_str(&text).ok(),
        _ => None,
    }
}

/// What the server says with what is known here.
fn merge(dir: &ClusterDir, conn: &Connection, server: &Server, answer: Option<Value>) -> Value {
    let mut all = json!({ "server": server.id, "address": server.address, "up": answer.is_some() });
    let pid = process::running(dir, &format!("server-{}", server.id));
    if let Some(pid) = pid {
        all["pid"] = pid.as_raw_nonzero().get().into();
    }
    match answer {
        Some(Value::Object(said)) => {
            if let Some(up) = uptime(dir, server.id).filter(|_| pid.is_some()) {
                all["uptime_s"] = up.into();
            }
            if let Value::Object(all) = &mut all {
                all.extend(said);
            }
        }
        _ => {
            let why = match (conn.reactor.peer_error(ServerId(server.id)), pid) {
                (Some(why), _) => why,
                (None, Some(_)) => "the process runs and does not answer".into(),
                (None, None) => "no answer".into(),
            };
            all["error"] = why.into();
        }
    }
    all
}

/// How long a server of this machine runs: it wrote its lock when it started.
fn uptime(dir: &ClusterDir, id: u16) -> Option<u64> {
    let lock = process::lock_path(dir, &format!("server-{id}"));
    let began = std::fs::metadata(lock).ok()?.modified().ok()?;
    Some(SystemTime::now().duration_since(began).ok()?.as_secs())
}

fn duration(secs: u64) -> String {
    match secs {
        0..60 => format!("{secs}s"),
        60..3600 => format!("{}m{:02}s", secs / 60, secs % 60),
        3600..86_400 => format!("{}h{:02}m", secs / 3600, secs / 60 % 60),
        _ => format!("{}d{:02}h", secs / 86_400, secs / 3600 % 24),
    }
}

/// What is under way, and what it waits for.
fn show_plan(map: &ClusterMap, waits: &[Wait]) {
    let Some(text) = waits::under_way(map) else {
        return;
    };
    println!(
        "{text} `pando map` shows which; `pando drain N --cancel`, `pando join --cancel` or `pando rebalance --cancel` puts it back."
    );
    for wait in waits {
        println!("  {}", wait.text());
    }
}

fn show_splits(servers: &[Value]) {
    let splits: u64 = servers.iter().filter_map(|s| s["splits"]["given"].as_u64()).sum();
    if splits > 0 {
        let pause = servers
            .iter()
            .filter_map(|s| s["splits"]["longest_pause_us"].as_u64())
            .max();
        println!(
            "Directories were split {splits} times since these servers started; nobody waited longer than {} ms.",
            pause.unwrap_or(0).div_ceil(1000)
        );
    }
}

fn show_leases(servers: &[Value]) {
    let total = |field: &str| -> u64 {
        let of = |s: &Value| s["leases"][field].as_u64();
        servers.iter().filter_map(of).sum()
    };
    if total("granted") > 0 {
        println!(
            "{} leases on directories were granted since these servers started; {} changes waited for some to run out.",
            total("granted"),
            total("waits")
        );
    }
}

fn show(
    dir: &ClusterDir,
    conn: &Connection,
    servers: &[Value],
    down: usize,
    found: &Result<View, CoordError>,
) {
    let (file, n) = (&conn.file, servers.len());
    println!(
        "Filesystem {} in {}: {} of {n} servers up, profile {}, durability {}",
        file.fs,
        dir.path.display(),
        n - down,
        file.profile.name,
        file.durability
    );
    println!("{}", coordination::to_text(file, found));
    let number = |s: &Value, field: &str| match s[field].as_u64() {
        Some(n) => n.to_string(),
        None => "-".into(),
    };
    let rows: Vec<Vec<String>> = servers
        .iter()
        .map(|s| {
            let in_doubt = s["prepared"].as_u64().zip(s["deciding"].as_u64());
            let space = match (s["space_available"].as_u64(), s["space_total"].as_u64()) {
                (Some(free), Some(total)) => {
                    let low = if s["low_on_space"] == true { " LOW" } else { "" };
                    format!("{}/{}{low}", text::human(free), text::human(total))
                }
                _ => "-".into(),
            };
            vec![
                number(s, "server"),
                if s["up"] == true { "up" } else { "DOWN" }.into(),
                s["address"].as_str().unwrap_or("-").into(),
                s["store"].as_str().unwrap_or("-").into(),
                number(s, "pid"),
                number(s, "boot"),
                s["uptime_s"].as_u64().map_or("-".into(), duration),
                number(s, "sessions"),
                number(s, "locks_held"),
                in_doubt.map_or("-".into(), |(p, d)| (p + d).to_string()),
                number(s, "operations"),
                number(s, "records"),
                space,
                removed(s),
            ]
        })
        .collect();
    let head = [
        "server", "state", "address", "store", "pid", "boot", "uptime", "sessions", "locks", "in-doubt",
        "ops", "records", "free", "removed",
    ];
    print!("{}", text::table(&head, &rows));
    let waiting = sum(servers, "removed_files");
    if waiting > 0 {
        let bytes = text::human(sum(servers, "removed_bytes"));
        println!("{waiting} removed files ({bytes} bytes) wait for the deletion of their data");
    }
    show_splits(servers);
    show_leases(servers);
    for s in servers.iter().filter(|s| s["gc"].is_object()) {
        println!("{}", collected(&s["server"], &s["gc"]));
    }
    for s in servers {
        if let Some(why) = s["error"].as_str() {
            println!("server {}: {why}", s["server"]);
        }
    }
    if down > 0 {
        println!(
            "`pando up` starts what is missing on this machine; logs are in {}",
            dir.run().display()
        );
    }
}
