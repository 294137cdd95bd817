//! The processes that serve mounts: which there are, and waiting for their end.

use super::start::{lock_name, ours};
use crate::args::{Args, Command};
use crate::cluster_dir::ClusterDir;
use crate::process::{self, RunLock};
use anyhow::{Result, bail};
use rustix::process::Pid;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a process whose mount is gone may take to publish what was written, and to end.
pub const END_PATIENCE: Duration = Duration::from_secs(30);

/// For how long waiting says nothing.
const QUIET: Duration = Duration::from_secs(1);

/// Between two looks.
const TICK: Duration = Duration::from_millis(5);

/// A process that serves a mount.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Which.
    pub pid: Pid,
    /// The folder of its cluster.
    pub dir: ClusterDir,
    /// Tells it from a later process of the same number.
    started: u64,
}

impl Serving {
    /// Whether it runs. A process that has ended and that nobody has asked for its exit code does not.
    pub fn runs(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Waits for its end, and says so if that takes long. False: it runs still.
    pub fn wait(&self, patience: Duration) -> bool {
        let mut waiting = Waiting::new(patience);
        while self.runs() {
            if !waiting.goes_on(self.pid) {
                return false;
            }
            std::thread::sleep(TICK);
        }
        true
    }
}

/// The processes that serve a mount at this place, of whichever cluster, as far as this process may know: in
/// its own mount namespace only, for elsewhere the same path is another place.
pub fn at(mountpoint: &Path) -> Vec<Serving> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let namespace = fs::read_link("/proc/self/ns/mnt").ok();
    let of = |entry: fs::DirEntry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let line = process::command_line(pid)?;
        // Looked for before the line is parsed: most processes are others.
        if !line.iter().any(|w| w == "mount") {
            return None;
        }
        let args = Args::of_line(&line)?;
        let Command::Mount(mount) = &args.command else {
            return None;
        };
        let from = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let is_it = mount.foreground && from.join(&mount.mountpoint) == mountpoint;
        let here = fs::read_link(entry.path().join("ns/mnt")).ok() == namespace;
        (is_it && here).then_some(Serving {
            pid,
            dir: ClusterDir::of(&args).ok()?,
            started: started(pid)?,
        })
    };
    processes.flatten().filter_map(of).collect()
}

/// Waits until nothing is mounted at this place any more, and no process of an earlier mount runs. A mount
/// whose process has ended is taken away. False: the cluster is mounted there, by a process that serves it.
pub fn is_free(dir: &ClusterDir, mountpoint: &Path) -> Result<bool> {
    let lock = lock_name(mountpoint);
    let mut waiting = Waiting::new(END_PATIENCE);
    loop {
        let holder = process::running(dir, &lock);
        match (ours(mountpoint), holder) {
            // Nothing there answers any more.
            (Some(mount), _) if mount.is_dead() => pando_fuse::unmount(mountpoint, true)?,
            (Some(_), Some(_)) => return Ok(false),
            // A process that is being killed lets go of its lock before its mount is dead.
            (Some(_), None) if waiting.begun.elapsed() < QUIET => {}
            (Some(mount), None) => bail!(
                "another filesystem ({}) is mounted at {}; unmount it, or choose another place",
                mount.source.display(),
                mountpoint.display()
            ),
            (None, None) => return Ok(true),
            (None, Some(pid)) if !waiting.goes_on(pid) => bail!("{}", still_runs(dir, mountpoint, pid)),
            (None, Some(_)) => {}
        }
        std::thread::sleep(TICK);
    }
}

/// Takes the lock of a mount, for the process that is to serve it. Waits for one that is ending.
pub fn take_lock(dir: &ClusterDir, mountpoint: &Path) -> Result<RunLock> {
    let name = lock_name(mountpoint);
    loop {
        if !is_free(dir, mountpoint)? {
            let by = process::running(dir, &name).map_or(String::new(), |pid| format!(", by process {pid}"));
            bail!("{} is mounted already{by}", mountpoint.display());
        }
        if let Some(lock) = process::take_lock(dir, &name)? {
            return Ok(lock);
        }
    }
}

/// The message about a mount that was unmounted, and whose process does not end.
pub fn still_runs(dir: &ClusterDir, mountpoint: &Path, pid: Pid) -> String {
    format!(
        "nothing is mounted at {} any more, but the process of its last mount ({pid}) runs still: files are open there, or what was \
         written is not published yet. Its log is {}. It ends by itself; killed, it loses what is not published",
        mountpoint.display(),
        process::log_path(dir, &lock_name(mountpoint)).display()
    )
}

/// Waiting for the process of a mount, which says so if it takes long.
struct Waiting {
    begun: Instant,
    patience: Duration,
    said: bool,
}

impl Waiting {
    fn new(patience: Duration) -> Waiting {
        Waiting {
            begun: Instant::now(),
            patience,
            said: false,
        }
    }

    /// False: it was waited for long enough.
    fn goes_on(&mut self, pid: Pid) -> bool {
        let waited = self.begun.elapsed();
        if !self.said && waited >= QUIET && self.patience > QUIET {
            self.said = true;
            eprintln!(
                "pando: waiting for the process of the last mount ({pid}), which publishes what was written"
            );
        }
        waited < self.patience
    }
}

/// When a process began, in the kernel's ticks. `None`: it does not run.
fn started(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything, but nothing behind it contains a parenthesis.
    let (_, behind) = text.rsplit_once(") ")?;
    let words: Vec<&str> = behind.split(' ').collect();
    if matches!(words.first(), Some(&("Z" | "X"))) {
        return None;
    }
    words.get(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_end_of_a_process_is_seen_before_it_is_asked_for() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let serving = Serving {
            pid,
            dir: ClusterDir {
                path: "/nowhere".into(),
                key: None,
            },
            started: started(pid).unwrap(),
        };
        assert!(serving.runs());
        assert!(!serving.wait(Duration::from_millis(20)), "it waits for words");
        drop(child.stdin.take());
        assert!(serving.wait(Duration::from_secs(10)), "it has ended");
        assert!(!serving.runs());
        child.wait().unwrap();
        let me = Pid::from_raw(std::process::id().cast_signed()).unwrap();
        assert!(started(me).is_some());
    }
}
