//! On whose behalf: user and group come with each request, supplementary groups from `/proc`.

use foldhash::HashMap;
use pando_types::Cred;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long groups once read are believed. A process changes its groups together with its user (login, su), and the
/// user is part of the key; a thread number is not used again so soon.
const BELIEVED: Duration = Duration::from_secs(1);
/// More callers than this within a second start afresh.
const REMEMBERED: usize = 1024;

type Caller = (u32, u32, u32);

#[derive(Default)]
pub(crate) struct Creds {
    groups: Mutex<HashMap<Caller, (Instant, Vec<u32>)>>,
}

impl Creds {
    /// The identity of a request. `pid` is the calling thread; 0 is the kernel's own.
    pub fn of(&self, req: &fuser::Request) -> Cred {
        let (uid, gid, pid) = (req.uid(), req.gid(), req.pid());
        // The superuser needs no groups.
        let groups = if uid == 0 || pid == 0 {
            Vec::new()
        } else {
            self.groups(uid, gid, pid)
        };
        Cred { uid, gid, groups }
    }

    fn groups(&self, uid: u32, gid: u32, pid: u32) -> Vec<u32> {
        let key = (pid, uid, gid);
        {
            let known = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, groups)) = known.get(&key)
                && at.elapsed() < BELIEVED
            {
                return groups.clone();
            }
        }
        // A caller that is gone needs no answer any more; no groups is the safe side.
        let groups = fs::read(format!("/proc/{pid}/status"))
            .map(|s| parse(&s))
            .unwrap_or_default();
        let mut known = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(key, (Instant::now(), groups.clone()));
        groups
    }
}

fn parse(status: &[u8]) -> Vec<u32> {
    let line = status
        .split(|b| *b == b'\n')
        .find_map(|l| l.strip_prefix(b"Groups:"));
    let text = line.and_then(|l| std::str::from_utf8(l).ok()).unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|g| g.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_status_file() {
        assert_eq!(
            parse(b"Name:\tx\nGroups:\t4 24 1000 \nNStgid:\t1\n"),
            [4, 24, 1000]
        );
        assert_eq!(parse(b"Groups:\t \n"), [0; 0]);
        assert_eq!(parse(b"Name:\tGroups: 3\n"), [0; 0]);
    }
}
