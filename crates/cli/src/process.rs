//! Processes of a cluster on this machine: locks that say who runs, starting in the background, stopping.

use crate::cluster_dir::ClusterDir;
use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Logs of commands go to stderr: warnings, or more if asked for.
pub fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    // What is wrong with ZooKeeper is said once a while (`pando-coord`), not at each try to reach it.
    let level = match verbose {
        0 => "warn,zookeeper_client=error",
        _ => level,
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("PANDO_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    // A server sets up its own, earlier.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
}

/// Held while a process runs; the file contains its pid. The kernel lets go of it however the process ends.
pub struct RunLock(#[allow(dead_code)] File);

/// The lock file of a server or mount.
pub fn lock_path(dir: &ClusterDir, name: &str) -> PathBuf {
    dir.run().join(format!("{name}.lock"))
}

/// Where a process writes what it has to say.
pub fn log_path(dir: &ClusterDir, name: &str) -> PathBuf {
    dir.run().join(format!("{name}.log"))
}

/// How long a process may take to write its number into the lock that it has, or another to look who has it.
const MOMENT: Duration = Duration::from_millis(200);

/// Takes the lock of `name`. `None`: another process has it.
pub fn take_lock(dir: &ClusterDir, name: &str) -> Result<Option<RunLock>> {
    let deadline = Instant::now() + MOMENT;
    loop {
        let taken = lock(dir, name, FlockOperation::NonBlockingLockExclusive)?;
        // Somebody who only looks who runs has the lock, too, for a moment.
        if taken.is_some() || running(dir, name).is_some() || Instant::now() > deadline {
            return Ok(taken);
        }
    }
}

/// Takes the lock of `name`, and if another process has it says so and waits.
pub fn wait_for_lock(dir: &ClusterDir, name: &str) -> Result<RunLock> {
    if let Some(lock) = take_lock(dir, name)? {
        return Ok(lock);
    }
    eprintln!(
        "pando: waiting for another `pando {name}` in {}",
        dir.path.display()
    );
    let taken = lock(dir, name, FlockOperation::LockExclusive)?;
    taken.with_context(|| format!("cannot lock {}", lock_path(dir, name).display()))
}

fn lock(dir: &ClusterDir, name: &str, how: FlockOperation) -> Result<Option<RunLock>> {
    dir.make_run()?;
    let path = lock_path(dir, name);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    if flock(&file, how).is_err() {
        return Ok(None);
    }
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Some(RunLock(file)))
}

/// The pid of the process that holds the lock of `name`, if one does.
pub fn running(dir: &ClusterDir, name: &str) -> Option<Pid> {
    let deadline = Instant::now() + MOMENT;
    loop {
        let mut file = File::open(lock_path(dir, name)).ok()?;
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return None;
        }
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        // A process that has just taken it writes its number next.
        if let Some(line) = text.strip_suffix('\n') {
            return Pid::from_raw(line.parse().ok()?);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The command line of a process.
pub fn command_line(pid: Pid) -> Option<Vec<OsString>> {
    let text = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).ok()?;
    let words = text.strip_suffix(b"\0")?.split(|b| *b == 0);
    Some(words.map(|w| OsStr::from_bytes(w).to_owned()).collect())
}

/// Starts this program again in the background, in a session of its own, logging to a file.
pub fn start(dir: &ClusterDir, name: &str, arguments: &[String]) -> Result<(Child, PathBuf)> {
    start_with(dir, name, arguments, &[])
}

/// Variables of a process's environment.
pub type Environment = Vec<(OsString, OsString)>;

/// The variables of a running process whose names begin so.
pub fn environment(pid: Pid, prefix: &str) -> Environment {
    let text = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    let pair = |line: &[u8]| {
        let equals = line.iter().position(|b| *b == b'=')?;
        let (name, value) = (&line[..equals], &line[equals + 1..]);
        let text = |b: &[u8]| OsStr::from_bytes(b).to_owned();
        name.starts_with(prefix.as_bytes())
            .then(|| (text(name), text(value)))
    };
    text.split(|b| *b == 0).filter_map(pair).collect()
}

/// The same with these variables besides its own, which count where both have one.
pub fn start_with(
    dir: &ClusterDir,
    name: &str,
    arguments: &[String],
    environment: &[(OsString, OsString)],
) -> Result<(Child, PathBuf)> {
    dir.make_run()?;
    let log = log_path(dir, name);
    let out = OpenOptions::new().create(true).append(true).open(&log)?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new("setsid");
    command.arg(&program).arg("--dir").arg(&dir.path);
    if let Some(key) = &dir.key {
        command.arg("--key").arg(key);
    }
    command.args(arguments);
    command.envs(
        environment
            .iter()
            .filter(|(name, _)| std::env::var_os(name).is_none())
            .map(|(name, value)| (name, value)),
    );
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .current_dir("/");
    let child = command
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    Ok((child, log))
}

/// The last lines of a log, for error messages.
pub fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n  ")
}

/// Asks a process to stop, waits, and ends it if it does not.
pub fn stop(dir: &ClusterDir, name: &str, patience: Duration) -> Result<bool> {
    let Some(pid) = running(dir, name) else {
        return Ok(false);
    };
    let _ = kill_process(pid, Signal::TERM);
    let deadline = Instant::now() + patience;
    while running(dir, name).is_some() {
        if Instant::now() > deadline {
            let _ = kill_process(pid, Signal::KILL);
            std::thread::sleep(Duration::from_millis(200));
            if running(dir, name).is_some() {
                bail!("{name} (process {pid}) does not stop");
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(true)
}

/// Waits for a process that is about to end by itself.
pub fn wait_end(dir: &ClusterDir, name: &str, patience: Duration) {
    let deadline = Instant::now() + patience;
    while running(dir, name).is_some() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
}
