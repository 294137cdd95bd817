//! What `pando up` was told about servers of a folder: whatever starts one there says it again.

use crate::args::{UpArgs, Wait};
use crate::cluster_dir::ClusterDir;
use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Options of `pando server`. What was never said has the server's own default.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default, deny_unknown_fields)]
pub struct ServerOptions {
    /// Memory for cached records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_mib: Option<usize>,
    /// How to wait for work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// How often blocks that belong to no file are removed, in milliseconds; 0: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gc_every_ms: Option<u64>,
    /// How old they are at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gc_grace_ms: Option<u64>,
    /// How many processes stand by for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standbys: Option<u16>,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn path(dir: &ClusterDir) -> PathBuf {
    dir.path.join("servers.json")
}

impl ServerOptions {
    /// Those of a folder.
    pub fn load(dir: &ClusterDir) -> Result<ServerOptions> {
        let path = path(dir);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let options: Result<ServerOptions, _> = serde_json::from_str(&text);
                options.with_context(|| {
                    format!(
                        "{} is damaged; remove it, then say `pando up` with the options that servers are to have",
                        path.display()
                    )
                })
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(ServerOptions::default()),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Remembers what `up` says now beside what it said before. Whether servers are to be started otherwise.
    pub fn remember(dir: &ClusterDir, up: &UpArgs) -> Result<bool> {
        let before = ServerOptions::load(dir)?;
        let word = |w: Wait| w.to_possible_value().map(|v| v.get_name().to_owned());
        let now = ServerOptions {
            record_mib: up.record_mib.or(before.record_mib),
            waiting: up.waiting.and_then(word).or(before.waiting.clone()),
            gc_every_ms: up.gc_every.map(millis).or(before.gc_every_ms),
            gc_grace_ms: up.gc_grace.map(millis).or(before.gc_grace_ms),
            standbys: up.standbys.or(before.standbys),
        };
        if now == before {
            return Ok(false);
        }
        let (path, new) = (path(dir), dir.path.join("servers.json.new"));
        std::fs::write(&new, format!("{}\n", serde_json::to_string_pretty(&now)?))
            .and_then(|()| std::fs::rename(&new, &path))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(now.typed() != before.typed())
    }

    /// As they are typed.
    pub fn typed(&self) -> Vec<String> {
        let record = self.record_mib.map(|mib| format!("--record-mib={mib}"));
        let waiting = self.waiting.as_ref().map(|word| format!("--waiting={word}"));
        let every = self.gc_every_ms.map(|ms| format!("--gc-every={ms}ms"));
        let grace = self.gc_grace_ms.map(|ms| format!("--gc-grace={ms}ms"));
        [record, waiting, every, grace].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use std::ffi::OsString;

    fn up(options: &[&str]) -> UpArgs {
        let line: Vec<OsString> = ["pando", "up"]
            .iter()
            .chain(options)
            .map(OsString::from)
            .collect();
        match Args::of_line(&line) {
            Some(Args {
                command: Command::Up(up),
                ..
            }) => up,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_said_once_is_said_again() {
        let folder = tempfile::tempdir().unwrap();
        let dir = ClusterDir {
            path: folder.path().to_owned(),
            key: None,
        };
        let typed = || ServerOptions::load(&dir).unwrap().typed();
        assert!(!ServerOptions::remember(&dir, &up(&[])).unwrap() && typed().is_empty());
        assert!(ServerOptions::remember(&dir, &up(&["--record-mib", "0"])).unwrap());
        assert!(ServerOptions::remember(&dir, &up(&["--waiting", "polling"])).unwrap());
        assert!(!ServerOptions::remember(&dir, &up(&[])).unwrap());
        assert!(ServerOptions::remember(&dir, &up(&["--gc-every", "2h"])).unwrap());
        assert!(ServerOptions::remember(&dir, &up(&["--gc-grace", "1.5s"])).unwrap());
        assert_eq!(
            typed(),
            [
                "--record-mib=0",
                "--waiting=polling",
                "--gc-every=7200000ms",
                "--gc-grace=1500ms"
            ]
        );
        // A server takes them.
        let line = [
            vec!["pando".to_owned(), "server".into(), "--id=3".into()],
            typed(),
        ]
        .concat();
        let line: Vec<OsString> = line.iter().map(OsString::from).collect();
        assert!(Args::of_line(&line).is_some());
        assert!(!ServerOptions::remember(&dir, &up(&["--standbys", "2"])).unwrap());
        ServerOptions::remember(&dir, &up(&[])).unwrap();
        assert_eq!(ServerOptions::load(&dir).unwrap().standbys, Some(2));
        std::fs::write(path(&dir), "{").unwrap();
        assert!(ServerOptions::load(&dir).is_err());
    }
}
