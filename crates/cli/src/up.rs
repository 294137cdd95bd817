//! `pando up`: starts exactly what is missing of a cluster on this machine.

use crate::args::{Args, UpArgs};
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::mount::start;
use crate::server_options::ServerOptions;
use crate::{addresses, format, process, standby};
use anyhow::{Result, bail};
use pando_cluster::{ClusterFile, Coherence, Placement};
use pando_net::Waiting;
use pando_types::{AuthMode, Claims, ServerId};
use pando_wire::Request;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// How long a server may take to answer after its start.
pub const START_PATIENCE: Duration = Duration::from_secs(60);

pub fn run(args: &Args, up: &UpArgs) -> Result<()> {
    let dir = ClusterDir::of(args)?;
    let mut done = Vec::new();
    let file = if dir.exists() {
        let file = dir.load()?;
        suits(args, up, &file)?;
        file
    } else {
        let file = format::make(
            &dir,
            addresses::on_loopback(0, up.servers, up.choices.auth.mode())?,
            None,
            &up.choices,
        )?;
        done.push(format!(
            "made filesystem {} with {} servers",
            file.fs,
            file.servers.len()
        ));
        file
    };
    let (here, elsewhere): (Vec<u16>, Vec<u16>) = file
        .servers
        .iter()
        .map(|s| s.id)
        .partition(|id| dir.store(*id).exists());
    for id in &elsewhere {
        eprintln!(
            "pando: server {id} is not of this folder: there is no {}; start it where its store is",
            dir.store(*id).display()
        );
    }
    let is_new = ServerOptions::remember(&dir, up)?;
    let started = start_servers(&dir, &file, &here, &[])?;
    if is_new && started.len() < here.len() {
        eprintln!(
            "pando: servers that run already go on as they were started; `pando down`, then `pando up`, gives them --record-mib and --waiting"
        );
    }
    if !started.is_empty() {
        let started: Vec<String> = started.iter().map(u16::to_string).collect();
        done.push(format!("started server {}", started.join(", ")));
    }
    let wanted = ServerOptions::load(&dir)?.standbys.unwrap_or(0);
    match standby::start(&dir, wanted)? {
        0 => {}
        1 => done.push("started 1 standby".into()),
        n => done.push(format!("started {n} standbys")),
    }
    if file.auth_mode()? != AuthMode::None && !dir.client_key().exists() {
        let connection = Connection::open(&dir, Party::Operator, Waiting::Blocking, Duration::from_secs(10))?;
        let [a, b, c, d, ..] = format::random_key()?;
        let name = format!("local-{:08x}", u32::from_le_bytes([a, b, c, d]));
        let proof = crate::auth::Proving::of(&dir, &connection, &crate::auth::Material::default())?;
        crate::auth::make(&connection, &name, Claims::all(), proof, &dir.client_key())?;
        done.push(format!(
            "made the identity \"{name}\" for this machine ({})",
            dir.client_key().display()
        ));
    }
    let mut mounted = None;
    if let Some(mountpoint) = &up.mount {
        let mountpoint = crate::mount::place(mountpoint)?;
        if start::mount(&dir, &mountpoint, &[], true)? {
            done.push(format!("mounted {}", mountpoint.display()));
        }
        mounted = Some(mountpoint);
    }
    report(args, &dir, &file, &elsewhere, &done, mounted.as_deref())
}

/// Fails if somebody wants what this filesystem, made before, is not. Whoever says the same again gets what
/// they want.
fn suits(args: &Args, up: &UpArgs, file: &ClusterFile) -> Result<()> {
    let choices = &up.choices;
    let coherence = choices.coherence.word();
    let was = match file.profile.coherence.as_str() {
        // Before there was a choice it said none.
        "none" => Coherence::Lazy.word(),
        word => word.to_owned(),
    };
    let split = choices
        .split_entries
        .map(|entries| Placement::Split(entries).word());
    let split = split.unwrap_or_default();
    let coupled = Placement::Coupled.word();
    let wants = [
        (
            "durability",
            file.durability.clone(),
            choices.durability.word().into(),
        ),
        ("auth", file.auth.clone(), choices.auth.mode().word().into()),
        ("coord", file.coord.clone(), choices.coord.to_string()),
        ("profile", file.profile.name.clone(), choices.profile.clone()),
        ("coherence", was, coherence),
        ("without", file.profile.placement.clone(), coupled),
        ("split_entries", file.profile.placement.clone(), split),
        (
            "inline_limit",
            file.inline_limit.to_string(),
            choices.inline_limit.to_string(),
        ),
    ];
    for (option, is, wanted) in wants {
        if args.typed.contains(option) && is != wanted {
            let option = option.replace('_', "-");
            bail!(
                "the filesystem in {} was made before, with {option} {is}, and that stays: leave out --{option}, or say another \
                 --dir for a new filesystem",
                args.dir
                    .as_deref()
                    .unwrap_or(Path::new("the default folder"))
                    .display()
            );
        }
    }
    if args.typed.contains("store") {
        let dir = ClusterDir::of(args)?;
        for server in &file.servers {
            choices.store.suits(&dir.store(server.id))?;
        }
    }
    if args.typed.contains("servers") && usize::from(up.servers) != file.servers.len() {
        eprintln!(
            "pando: --servers {} is for a new filesystem; this one has {} (`pando join` adds one, `pando drain` takes one away)",
            up.servers,
            file.servers.len()
        );
    }
    Ok(())
}

/// Starts those of these servers that do not run, with these options and those that `up` was told once, and
/// waits until all of them answer. Returns those that run because of it: others may be starting them too.
pub fn start_servers(
    dir: &ClusterDir,
    file: &ClusterFile,
    ids: &[u16],
    options: &[String],
) -> Result<Vec<u16>> {
    let all = [&ServerOptions::load(dir)?.typed(), options].concat();
    start_servers_with(dir, file, ids, &all, &[])
}

/// The same with these options alone, and with these variables in their environment, where this process has
/// none of the name.
pub fn start_servers_with(
    dir: &ClusterDir,
    file: &ClusterFile,
    ids: &[u16],
    options: &[String],
    environment: &[(OsString, OsString)],
) -> Result<Vec<u16>> {
    let mut children = BTreeMap::new();
    let mut start_missing = |id: u16| -> Result<()> {
        let name = format!("server-{id}");
        if process::running(dir, &name).is_some() {
            return Ok(());
        }
        if let Some((child, log)) = children.get_mut(&id) {
            let child: &mut Child = child;
            let log: &PathBuf = log;
            return match child.try_wait() {
                Ok(Some(_)) => bail!(
                    "server {id} ended at once; its log {} says:\n  {}",
                    log.display(),
                    process::tail(log)
                ),
                _ => Ok(()),
            };
        }
        let mut arguments = ["server", "--id", &id.to_string()].map(str::to_owned).to_vec();
        arguments.extend_from_slice(options);
        let started = process::start_with(dir, &name, &arguments, environment)?;
        children.insert(id, started);
        Ok(())
    };
    for id in ids {
        start_missing(*id)?;
    }
    let connection = Connection::operate(dir, file.clone(), Duration::from_millis(500))?;
    let deadline = Instant::now() + START_PATIENCE;
    for id in ids {
        while connection
            .run(connection.client.admin(ServerId(*id), Request::Null(false)))
            .is_err()
        {
            // A server that was dying when we looked first is started now.
            start_missing(*id)?;
            if Instant::now() > deadline {
                bail!(
                    "server {id} does not answer{}; its log is {}",
                    connection.because(),
                    process::log_path(dir, &format!("server-{id}")).display()
                );
            }
        }
    }
    let is_ours = |(id, (child, _)): (&u16, &(Child, PathBuf))| {
        let runs = process::running(dir, &format!("server-{id}"));
        runs.is_some_and(|pid| u32::try_from(pid.as_raw_nonzero().get()) == Ok(child.id()))
            .then_some(*id)
    };
    Ok(children.iter().filter_map(is_ours).collect())
}

fn report(
    args: &Args,
    dir: &ClusterDir,
    file: &ClusterFile,
    elsewhere: &[u16],
    done: &[String],
    mounted: Option<&Path>,
) -> Result<()> {
    if args.json {
        let all = serde_json::json!({
            "dir": dir.path, "fs": file.fs, "servers": file.servers, "durability": file.durability,
            "elsewhere": elsewhere, "mount": mounted, "done": done,
        });
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(());
    }
    for line in done {
        println!("{line}");
    }
    let n = file.servers.len();
    let run = match elsewhere.len() {
        0 => format!("{n} metadata servers run"),
        away => format!("{} of {n} metadata servers run here", n - away),
    };
    println!("Filesystem {}: {run}, durability {}.", file.fs, file.durability);
    println!("Cluster folder: {}", dir.path.display());
    let option = if args.dir.is_some() {
        format!(" --dir {}", dir.path.display())
    } else {
        String::new()
    };
    println!("\nThree things to try:");
    match mounted {
        Some(mnt) => {
            println!(
                "  cp -r /usr/include {}/ && ls {0}/include | wc -l",
                mnt.display()
            );
            println!("  pando{option} status");
            println!(
                "  kill -9 a `pando server` while you copy, then `pando{option} up` again: nothing is lost"
            );
        }
        None => {
            println!("  pando{option} mkdir /hello");
            println!("  pando{option} put README.md /hello/ && pando{option} ls -l /hello");
            println!("  pando{option} status");
        }
    }
    Ok(())
}
