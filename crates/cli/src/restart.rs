//! `pando restart`: the servers of this folder, one after the other, while all work goes on.
//!
//! None is stopped before every other one serves and follows its coordinator, so that never more than one is
//! away. The coordinator comes last: only then is there an election.

use crate::args::{Args, Command, ServerArgs};
use crate::cluster_dir::ClusterDir;
use crate::connect::Connection;
use crate::{coordination, process, standby, status, up};
use anyhow::{Context, Result, bail};
use pando_cluster::ClusterFile;
use pando_env::LocalFuture;
use pando_env::sync::join_all;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a server may take to end in an orderly way; then it is killed, which loses nothing.
const STOP_PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks at who is ready.
const LOOK: Duration = Duration::from_millis(50);

/// Restart the servers of this machine one after the other, while all work goes on: after an upgrade, for
/// example.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Each server is started with the options it was started with, by the program that runs this command. With servers on several\nmachines say it on each, one after the other.\n\nExamples:\n  pando restart\n  pando restart --server 2 --json"
)]
pub struct RestartArgs {
    /// Only this one; may be repeated. [default: all that run from this folder]
    #[arg(long = "server", value_name = "N")]
    pub servers: Vec<u16>,
}

/// Restarts. `args.wait` is how long it may take each time until all servers are ready.
pub fn run(args: &Args, restart: &RestartArgs) -> Result<()> {
    let dir = ClusterDir::of(args)?;
    dir.load()?;
    let _turn = process::wait_for_lock(&dir, "restart")?;
    let file = coordination::current(&dir)?;
    let patience = Duration::from_secs(args.wait);
    let mut ids = chosen(&dir, &file, &restart.servers)?;
    let mut done = Vec::new();
    await_all(&dir, &file, patience)?;
    while let Some(id) = next(&dir, &file, &mut ids)? {
        let began = Instant::now();
        let options = options_of(&dir, id)?;
        // Who restarts need not know the keys of the bucket; keys that are said count.
        let running = process::running(&dir, &format!("server-{id}"));
        let keys = running.map_or_else(Vec::new, |pid| process::environment(pid, "AWS_"));
        process::stop(&dir, &format!("server-{id}"), STOP_PATIENCE)?;
        up::start_servers_with(&dir, &file, &[id], &options, &keys)?;
        let states = await_all(&dir, &file, patience)?;
        let seconds = began.elapsed().as_secs_f64();
        let boot = states
            .iter()
            .find(|s| s["server"] == id)
            .map(|s| s["boot"].clone());
        if !args.json {
            println!("server {id} was restarted, {seconds:.1} s until all were ready");
        }
        done.push(json!({ "server": id, "boot": boot, "seconds": seconds }));
    }
    // They stand by for what runs here, by the same program.
    let standbys = if restart.servers.is_empty() {
        standby::restart(&dir)?
    } else {
        0
    };
    if args.json {
        println!("{}", json!({ "restarted": done, "standbys": standbys }));
    } else if standbys > 0 {
        println!("{standbys} standbys were restarted");
    }
    Ok(())
}

/// Does something with the store of a server of this folder while that does not run, and starts it again
/// whatever comes of it.
pub fn while_stopped<T>(
    args: &Args,
    dir: &ClusterDir,
    id: u16,
    work: impl FnOnce(PathBuf) -> Result<T>,
) -> Result<T> {
    let _turn = process::wait_for_lock(dir, "restart")?;
    let file = coordination::current(dir)?;
    let name = format!("server-{id}");
    let options = options_of(dir, id)?;
    let store = options.iter().find_map(|o| o.strip_prefix("--store="));
    let store = store.map_or_else(|| dir.store(id), PathBuf::from);
    let running = process::running(dir, &name);
    let keys = running.map_or_else(Vec::new, |pid| process::environment(pid, "AWS_"));
    process::stop(dir, &name, STOP_PATIENCE)?;
    let done = work(store);
    up::start_servers_with(dir, &file, &[id], &options, &keys)?;
    await_all(dir, &file, Duration::from_secs(args.wait))?;
    done
}

/// Which servers are to be restarted.
fn chosen(dir: &ClusterDir, file: &ClusterFile, wanted: &[u16]) -> Result<Vec<u16>> {
    let runs = |id: &u16| process::running(dir, &format!("server-{id}")).is_some();
    let known: Vec<u16> = file.servers.iter().map(|s| s.id).collect();
    if let Some(id) = wanted.iter().find(|id| !known.contains(id)) {
        bail!("there is no server {id}; `pando status` shows those that there are");
    }
    if let Some(id) = wanted.iter().find(|id| !runs(id)) {
        bail!(
            "server {id} does not run from this folder: say this where it runs, or start it with `pando up`"
        );
    }
    let all = known
        .into_iter()
        .filter(|id| runs(id) && (wanted.is_empty() || wanted.contains(id)));
    let all: Vec<u16> = all.collect();
    if all.is_empty() {
        bail!(
            "no server runs from {}: `pando up` starts those of this machine",
            dir.path.display()
        );
    }
    Ok(all)
}

/// Takes out the one whose turn it is: the coordinator's is the last.
fn next(dir: &ClusterDir, file: &ClusterFile, ids: &mut Vec<u16>) -> Result<Option<u16>> {
    if ids.is_empty() {
        return Ok(None);
    }
    let coord = coordination::open(dir, file)?;
    let view = coordination::wait(coord.view(), Instant::now() + coordination::PATIENCE)
        .context("nobody says which server coordinates; restart servers when coordination is back")?;
    let others = |id: &u16| *id != view.map.coordinator.0;
    Ok(Some(ids.remove(ids.iter().position(others).unwrap_or(0))))
}

/// Waits until every server of the map serves and follows its coordinator.
fn await_all(dir: &ClusterDir, file: &ClusterFile, patience: Duration) -> Result<Vec<Value>> {
    let deadline = Instant::now() + patience;
    let conn = Connection::operate(dir, file.clone(), status::PATIENCE)?;
    loop {
        let questions: Vec<LocalFuture<Option<Value>>> = file
            .servers
            .iter()
            .map(|s| -> LocalFuture<Option<Value>> {
                Box::pin(status::ask(conn.client.clone(), conn.reactor.clone(), s.id))
            })
            .collect();
        let answers = conn.run(join_all(questions));
        let late = file
            .servers
            .iter()
            .zip(&answers)
            .find_map(|(s, answer)| match answer {
                None => Some((s.id, "does not answer")),
                // An older program says nothing of it.
                Some(state) if state["ready"] == false => Some((s.id, "does not follow the coordinator yet")),
                Some(_) => None,
            });
        let Some((id, why)) = late else {
            return Ok(answers.into_iter().flatten().collect());
        };
        if Instant::now() > deadline {
            bail!(
                "server {id} {why}{}; no other server is restarted until it does. `pando status` shows more, its log is {}",
                conn.because(),
                process::log_path(dir, &format!("server-{id}")).display()
            );
        }
        std::thread::sleep(LOOK);
    }
}

/// The options that a running server was started with.
fn options_of(dir: &ClusterDir, id: u16) -> Result<Vec<String>> {
    let pid = process::running(dir, &format!("server-{id}"));
    let line = pid.and_then(process::command_line).unwrap_or_default();
    match Args::of_line(&line) {
        Some(Args {
            command: Command::Server(server),
            verbose,
            ..
        }) if !server.with_parent => to_options(&server, verbose),
        _ => bail!(
            "server {id} was not started in a way that this program could repeat; restart it by hand, then say --server for the others"
        ),
    }
}

/// The options of a server, but for which one it is.
pub fn to_options(server: &ServerArgs, verbose: u8) -> Result<Vec<String>> {
    use clap::ValueEnum;
    let mut options = vec![
        format!("--cache-mib={}", server.cache_mib),
        format!("--record-mib={}", server.record_mib),
        format!("--reserve-mib={}", server.reserve_mib),
        format!("--identity-mib={}", server.identity_mib),
    ];
    if let Some(store) = &server.store {
        let store = store.to_str().context("the path of a store is not UTF-8")?;
        options.push(format!("--store={store}"));
    }
    if let Some(waiting) = server.waiting.to_possible_value() {
        options.push(format!("--waiting={}", waiting.get_name()));
    }
    if server.log_json {
        options.push("--log-json".into());
    }
    if !server.delay.is_zero() {
        options.push(format!("--delay={}us", server.delay.as_micros()));
    }
    options.extend((0..verbose).map(|_| "-v".to_owned()));
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn parsed(line: &[&str]) -> (ServerArgs, u8) {
        let line: Vec<OsString> = line.iter().map(OsString::from).collect();
        match Args::of_line(&line) {
            Some(Args {
                command: Command::Server(server),
                verbose,
                ..
            }) => (server, verbose),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_are_kept() {
        let line = [
            "pando",
            "--dir",
            "/d",
            "server",
            "--id",
            "3",
            "--store",
            "/s p",
            "--cache-mib",
            "7",
            "--waiting",
            "polling",
            "--reserve-mib",
            "9",
            "--identity-mib",
            "77",
            "--log-json",
            "--delay",
            "1500us",
            "-vv",
        ];
        let (server, verbose) = parsed(&line);
        let options = to_options(&server, verbose).unwrap();
        let words: Vec<&str> = options.iter().map(String::as_str).collect();
        let (again, verbose_again) = parsed(&[&["pando", "server", "--id", "3"], words.as_slice()].concat());
        assert_eq!(
            format!("{server:?}{verbose}"),
            format!("{again:?}{verbose_again}")
        );
    }
}
