//! On whose behalf: user and group come with each request, supplementary groups from `/proc`.
//!
//! A mount asks much that no one user asks for (attributes, where something is now), as the superuser. An
//! identity that may not act for that one asks as the user whose call it is; and of a program's groups it
//! says those that it may say.

use foldhash::HashMap;
use pando_types::{Cred, Users};
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long groups once read are believed. A process changes its groups together with its user (login, su),
/// and the user is part of the key; a thread number is not used again so soon.
const BELIEVED: Duration = Duration::from_secs(1);
/// More callers than this within a second start afresh.
const REMEMBERED: usize = 1024;

type Caller = (u32, u32, u32);

pub(crate) struct Creds {
    /// Whom the mount may act for.
    users: Users,
    groups: Mutex<HashMap<Caller, (Instant, Vec<u32>)>>,
}

impl Creds {
    pub fn new(users: Users) -> Creds {
        let groups = Mutex::default();
        Creds { users, groups }
    }

    /// As whom what no one user asks for is asked for while this request is served. `None`: as always.
    pub fn acts(&self, req: &fuser::Request) -> Option<Cred> {
        match self.users {
            Users::Any => None,
            Users::Only { .. } => Some(self.of(req)).filter(|cred| self.users.are_some_with(cred)),
        }
    }

    /// The identity of a request. `pid` is the calling thread; 0 is the kernel's own.
    pub fn of(&self, req: &fuser::Request) -> Cred {
        let (uid, gid, pid) = (req.uid(), req.gid(), req.pid());
        // The superuser needs no groups.
        let groups = if uid == 0 || pid == 0 {
            Vec::new()
        } else {
            self.groups(uid, gid, pid)
        };
        self.users.narrow(Cred { uid, gid, groups })
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
