//! `gc` without being asked: the server that coordinates does it, in a thread of its own, seldom and slowly.
//!
//! When it was done last stands in the cluster's folder, so that a start does not begin the time anew. Two
//! servers may do it at once when the office changes hands; each goes by the rules of `gc`, and to remove
//! what is gone is nothing.

use super::{GcArgs, collect};
use crate::cluster_dir::ClusterDir;
use crate::process;
use anyhow::Result;
use pando_data::StoredFile;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// It rests so long after each slot: a look at all of them takes eight seconds more.
const PAUSE: Duration = Duration::from_millis(2);
/// A server that is away is waited for so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// At least so often it looks whether it is time.
const TICK: Duration = Duration::from_secs(60);

/// When, and by what rules.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// From one time to the next; 0: never.
    pub every: Duration,
    /// What was written within this time is left alone.
    pub grace: Duration,
}

/// What is kept of the last time, in seconds since 1970.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
struct Kept {
    /// The first start that knew of this.
    since: u64,
    /// When it was tried last.
    tried: Option<u64>,
    /// When it was done last,
    done: Option<u64>,
    /// and what was removed then.
    files: u64,
    blocks: u64,
    bytes: u64,
    /// Why the last try came to nothing.
    error: Option<String>,
}

impl Kept {
    /// When it is time, of a clock that says `now`.
    fn next(&self, now: u64, every: u64) -> u64 {
        let from = self.tried.unwrap_or(self.since);
        // A clock that was put back says nothing of how long ago that was.
        if from > now {
            return now;
        }
        let wait = match self.error {
            Some(_) => (every / 10).max(1),
            None => every,
        };
        from.saturating_add(wait)
    }
}

/// What the server says of it when it is asked for its status.
#[derive(Clone, Default)]
pub struct Said(Arc<Mutex<Option<Value>>>);

impl Said {
    /// As JSON. Null: this server does not do it.
    pub fn text(&self) -> String {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.as_ref().map_or("null".into(), Value::to_string)
    }

    fn put(&self, value: Option<Value>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

/// Starts the thread. `leads`: whether this server coordinates now.
pub fn start(dir: &ClusterDir, rules: Rules, leads: Arc<AtomicBool>) -> std::io::Result<Said> {
    let said = Said::default();
    if rules.every.is_zero() {
        return Ok(said);
    }
    let regular = Regular {
        dir: dir.clone(),
        rules,
        said: said.clone(),
    };
    let tick = (rules.every / 4).clamp(Duration::from_millis(500), TICK);
    std::thread::Builder::new().name("gc".into()).spawn(move || {
        loop {
            if !leads.load(Ordering::Relaxed) {
                regular.said.put(None);
            } else if let Err(e) = regular.look() {
                tracing::warn!("blocks that are nobody's stay: {e:#}");
            }
            std::thread::sleep(tick);
        }
    })?;
    Ok(said)
}

struct Regular {
    dir: ClusterDir,
    rules: Rules,
    said: Said,
}

impl Regular {
    /// Does it if it is time.
    fn look(&self) -> Result<()> {
        let now = now();
        let mut kept = self.load();
        if kept.since == 0 {
            kept.since = now;
            self.save(&kept)?;
        }
        self.say(&kept, now);
        if now < kept.next(now, self.rules.every.as_secs()) {
            return Ok(());
        }
        let Some(_alone) = process::take_lock(&self.dir, "gc")? else {
            return Ok(());
        };
        kept.tried = Some(now);
        let args = GcArgs {
            dry_run: false,
            grace: self.rules.grace,
        };
        match collect(&self.dir, PATIENCE, &args, PAUSE) {
            Ok(found) => {
                let sum = |part: fn(&StoredFile) -> u64| found.unreferenced.iter().map(part).sum::<u64>();
                kept.done = Some(now);
                (kept.files, kept.blocks, kept.bytes) = (
                    found.unreferenced.len() as u64,
                    sum(|f| f.blocks),
                    sum(|f| f.bytes),
                );
                kept.error = found.failed.first().map(|(_, why)| why.clone());
                tracing::info!(
                    files = kept.files,
                    bytes = kept.bytes,
                    "removed blocks that are nobody's"
                );
            }
            Err(e) => kept.error = Some(format!("{e:#}")),
        }
        self.save(&kept)?;
        self.say(&kept, now);
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.dir.path.join("gc.json")
    }

    /// What cannot be read was never written: the time begins then.
    fn load(&self) -> Kept {
        let text = std::fs::read_to_string(self.path()).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn save(&self, kept: &Kept) -> Result<()> {
        let new = self.dir.path.join("gc.json.new");
        std::fs::write(&new, format!("{}\n", serde_json::to_string_pretty(kept)?))?;
        Ok(std::fs::rename(&new, self.path())?)
    }

    fn say(&self, kept: &Kept, now: u64) {
        let every = self.rules.every.as_secs();
        self.said.put(Some(json!({
            "every_s": every, "grace_s": self.rules.grace.as_secs(), "last": kept.done, "files": kept.files,
            "blocks": kept.blocks, "bytes": kept.bytes, "next": kept.next(now, every), "error": kept.error,
        })));
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_remembered() {
        let mut kept = Kept {
            since: 1000,
            ..Kept::default()
        };
        assert_eq!(kept.next(1000, 600), 1600);
        kept.tried = Some(1700);
        kept.done = Some(1700);
        assert_eq!(kept.next(1800, 600), 2300);
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<Kept>(&text).unwrap(), kept);
        // What failed is tried again sooner.
        kept.error = Some("a server is away".into());
        assert_eq!(kept.next(1800, 600), 1760);
        assert_eq!(kept.next(1800, 3), 1701);
        // The clock was put back.
        assert_eq!(kept.next(500, 600), 500);
        assert_eq!(serde_json::from_str::<Kept>("{}").unwrap(), Kept::default());
    }

    #[test]
    fn never_is_never() {
        let dir = tempfile::tempdir().unwrap();
        let dir = ClusterDir {
            path: dir.path().to_owned(),
            key: None,
        };
        let rules = Rules {
            every: Duration::ZERO,
            grace: Duration::ZERO,
        };
        let said = start(&dir, rules, Arc::default()).unwrap();
        assert_eq!(said.text(), "null");
    }
}
