//! The lock and the state by which others see a process that stands by.

use crate::args::{Args, Command};
use crate::cluster_dir::{ClusterDir, numbered};
use crate::process::{self, RunLock};
use crate::restart;
use crate::server_options::ServerOptions;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a process that stands by may take to say so after its start.
const START_PATIENCE: Duration = Duration::from_secs(15);
/// How long it may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// The name of such a process's lock and log.
pub fn name(number: u16) -> String {
    format!("standby-{number}")
}

fn page(dir: &ClusterDir, number: u16) -> PathBuf {
    dir.run().join(format!("{}.json", name(number)))
}

/// The state that a running standby tells. It goes with its process, or when that is a server.
pub struct Post {
    /// Its number among those of the folder.
    pub number: u16,
    page: PathBuf,
    said: Value,
    _lock: RunLock,
}

impl Post {
    /// The lowest number that is free.
    pub fn take(dir: &ClusterDir) -> Result<Post> {
        for number in 0..=u16::MAX {
            if let Some(lock) = process::take_lock(dir, &name(number))? {
                return Ok(Post {
                    number,
                    page: page(dir, number),
                    said: Value::Null,
                    _lock: lock,
                });
            }
        }
        bail!("too many processes stand by in {}", dir.path.display())
    }

    /// Says what it does, where that has changed.
    pub fn say(&mut self, servers: &[u16], state: &str) {
        let now =
            json!({ "standby": self.number, "pid": std::process::id(), "for": servers, "state": state });
        if now == self.said {
            return;
        }
        let new = self.page.with_extension("json.new");
        let write =
            || std::fs::write(&new, format!("{now}\n")).and_then(|()| std::fs::rename(&new, &self.page));
        if let Err(e) = write() {
            tracing::warn!("`pando status` shows an old state: {}: {e}", self.page.display());
        }
        if now["state"] != self.said["state"] {
            println!("standby {}: {state}", self.number);
        }
        self.said = now;
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.page);
    }
}

/// Those that run from a folder, each as it says of itself.
pub fn all(dir: &ClusterDir) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for number in numbered(&dir.run(), "standby-", ".lock")? {
        let Some(pid) = process::running(dir, &name(number)) else {
            continue;
        };
        let pid = pid.as_raw_nonzero().get();
        let text = std::fs::read_to_string(page(dir, number)).unwrap_or_default();
        let said: Option<Value> = serde_json::from_str(&text).ok();
        // A state that an earlier process left says nothing of this one.
        let said = said.filter(|s| s["pid"] == pid);
        found.push(said.unwrap_or_else(
            || json!({ "standby": number, "pid": pid, "for": [], "state": "has just started" }),
        ));
    }
    Ok(found)
}

/// The same for people.
pub fn shown(standby: &Value) -> String {
    let servers: Vec<String> = standby["for"]
        .as_array()
        .into_iter()
        .flatten()
        .map(Value::to_string)
        .collect();
    let of = match servers.len() {
        0 => String::new(),
        1 => format!(" for server {}", servers.concat()),
        _ => format!(" for servers {}", servers.join(", ")),
    };
    format!(
        "Standby {} (process {}){of}: {}",
        standby["standby"],
        standby["pid"],
        standby["state"].as_str().unwrap_or("-")
    )
}

/// Starts as many as are missing, and waits until they stand by. Returns how many that were.
pub fn start(dir: &ClusterDir, wanted: u16) -> Result<usize> {
    let mut missing = usize::from(wanted).saturating_sub(all(dir)?.len());
    let (mut started, mut number) = (0, 0);
    while missing > 0 {
        if process::running(dir, &name(number)).is_none() {
            let options = ["--standby", "--for=any"].map(str::to_owned);
            start_one(
                dir,
                number,
                &[&options, ServerOptions::load(dir)?.typed().as_slice()].concat(),
            )?;
            missing -= 1;
            started += 1;
        }
        number += 1;
    }
    Ok(started)
}

fn start_one(dir: &ClusterDir, number: u16, options: &[String]) -> Result<()> {
    let arguments = [&["server".to_owned()], options].concat();
    let (mut child, log) = process::start(dir, &name(number), &arguments)?;
    let deadline = Instant::now() + START_PATIENCE;
    while process::running(dir, &name(number)).is_none() {
        if child.try_wait()?.is_some() {
            bail!(
                "standby {number} ended at once; its log {} says:\n  {}",
                log.display(),
                process::tail(&log)
            );
        }
        if Instant::now() > deadline {
            bail!("standby {number} does not start; its log is {}", log.display());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Starts all that run from a folder again, each as it was started: by another program perhaps.
pub fn restart(dir: &ClusterDir) -> Result<usize> {
    let mut done = 0;
    for number in numbered(&dir.run(), "standby-", ".lock")? {
        let Some(pid) = process::running(dir, &name(number)) else {
            continue;
        };
        let line = process::command_line(pid).unwrap_or_default();
        let Some(Args {
            command: Command::Server(server),
            verbose,
            ..
        }) = Args::of_line(&line)
        else {
            continue;
        };
        let mut options = restart::to_options(&server, verbose)?;
        options.extend(["--standby".to_owned(), format!("--for={}", server.watched)]);
        options.extend(server.address.as_ref().map(|a| format!("--address={a}")));
        process::stop(dir, &name(number), STOP_PATIENCE)?;
        start_one(dir, number, &options).context("a standby was stopped and does not start again")?;
        done += 1;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_runs_is_shown_with_what_it_watches() {
        let folder = tempfile::tempdir().unwrap();
        let dir = ClusterDir {
            path: folder.path().to_owned(),
            key: None,
        };
        assert!(all(&dir).unwrap().is_empty());
        let mut post = Post::take(&dir).unwrap();
        assert_eq!(all(&dir).unwrap()[0]["state"], "has just started");
        post.say(&[1, 2], "watches");
        let found = all(&dir).unwrap();
        let pid = std::process::id();
        assert_eq!(
            shown(&found[0]),
            format!("Standby 0 (process {pid}) for servers 1, 2: watches")
        );
        let second = Post::take(&dir).unwrap();
        assert_eq!((second.number, all(&dir).unwrap().len()), (1, 2));
        drop((post, second));
        assert!(all(&dir).unwrap().is_empty());
    }
}
