//! Coordination of servers that run on one machine and share the cluster's folder. Nothing runs for it.
//!
//! - The map is `cluster.json` itself: there is one truth.
//! - A member has `run/member-N`: its number, and until when it is one. Its process holds a lock on that file
//!   as long as it lives, so that one that was killed is seen gone at once; one that is stopped is when its
//!   time is over.
//! - Whoever reads or writes any of this holds `run/coord.lock`, which also counts memberships, so that
//!   numbers rise.
//!
//! Times are of CLOCK_MONOTONIC: it is one clock for all processes of a machine, and the one by which servers
//! measure how long they are members. (CLOCK_BOOTTIME goes on while a machine sleeps, and servers' own clocks
//! do not: when it wakes, others would see a member gone that takes itself for one.) A time of another boot
//! is over.
//!
//! All this is done on a thread of its own. It takes microseconds, but a process that syncs a new map holds
//! the lock as long as the device takes, and an event loop should not wait for that.

use crate::file::{Folder, away, open};
use crate::promise::{Promise, promise};
use pando_cluster::{ClusterMap, Coord, CoordError, Membership, View, may_replace};
use pando_env::LocalFuture;
use pando_types::{FsId, MapEpoch, ServerId};
use rustix::fs::{FlockOperation, flock};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a sign of life is good for.
const LEASE: Duration = Duration::from_secs(2);

/// Coordination in a cluster's folder.
pub struct DirCoord {
    /// Nothing only while it is dropped.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    lease: Duration,
}

enum Job {
    Attend(ServerId, Promise<View>),
    Leave(ServerId, Promise<()>),
    View(Promise<View>),
    Replace(MapEpoch, ClusterMap, Promise<()>),
}

impl DirCoord {
    /// Coordination of a filesystem in the cluster's folder.
    pub fn open(path: &Path, fs: FsId) -> io::Result<DirCoord> {
        DirCoord::with_lease(path, fs, LEASE)
    }

    /// The same with another length of leases. All processes of a cluster must have the same.
    pub fn with_lease(path: &Path, fs: FsId, lease: Duration) -> io::Result<DirCoord> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?
            .trim()
            .to_owned();
        let (jobs, queue) = channel();
        let keeper = Keeper {
            folder: Folder {
                path: path.to_owned(),
                fs,
            },
            boot,
            lease,
            mine: BTreeMap::new(),
        };
        let thread = std::thread::Builder::new()
            .name("coordination".into())
            .spawn(move || keeper.serve(&queue))?;
        Ok(DirCoord {
            jobs: Some(jobs),
            thread: Some(thread),
            lease,
        })
    }

    fn ask<T: 'static>(&self, job: impl FnOnce(Promise<T>) -> Job) -> LocalFuture<Result<T, CoordError>> {
        let (promise, answer) = promise();
        // A thread that has ended drops the promise, which is an answer too.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job(promise));
        }
        answer
    }
}

impl Drop for DirCoord {
    fn drop(&mut self) {
        drop(self.jobs.take());
        // When this returns its locks are free.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Coord for DirCoord {
    fn lease(&self) -> Duration {
        self.lease
    }

    fn attend(&self, me: ServerId) -> LocalFuture<Result<View, CoordError>> {
        self.ask(|promise| Job::Attend(me, promise))
    }

    fn leave(&self, me: ServerId) -> LocalFuture<Result<(), CoordError>> {
        self.ask(|promise| Job::Leave(me, promise))
    }

    fn view(&self) -> LocalFuture<Result<View, CoordError>> {
        self.ask(Job::View)
    }

    fn replace(&self, from: MapEpoch, to: ClusterMap) -> LocalFuture<Result<(), CoordError>> {
        self.ask(|promise| Job::Replace(from, to, promise))
    }
}

/// What stands in `run/member-N`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mark {
    number: u64,
    /// On CLOCK_MONOTONIC, in nanoseconds.
    until: u64,
    boot: String,
}

/// All of a file in one write of this length, so that what was there before is gone.
const MARK_BYTES: usize = 128;

impl Mark {
    fn to_text(&self) -> String {
        let text = format!(
            "membership {} until {} boot {}",
            self.number, self.until, self.boot
        );
        format!("{text:<width$}\n", width = MARK_BYTES - 1)
    }

    fn parse(text: &str) -> Option<Mark> {
        match text.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            ["membership", number, "until", until, "boot", boot] => Some(Mark {
                number: number.parse().ok()?,
                until: until.parse().ok()?,
                boot: boot.to_owned(),
            }),
            _ => None,
        }
    }
}

/// A server that this process is, with its lock.
struct Mine {
    file: File,
    number: u64,
    until: u64,
}

struct Keeper {
    folder: Folder,
    boot: String,
    lease: Duration,
    mine: BTreeMap<ServerId, Mine>,
}

fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.max(0) as u64 * 1_000_000_000 + now.tv_nsec.max(0) as u64
}

impl Keeper {
    fn serve(mut self, queue: &Receiver<Job>) {
        while let Ok(job) = queue.recv() {
            match job {
                Job::Attend(me, promise) => promise.keep(self.attend(me)),
                Job::Leave(me, promise) => promise.keep(self.leave(me)),
                Job::View(promise) => promise.keep(self.locked_to_look().and_then(|_lock| self.look())),
                Job::Replace(from, to, promise) => promise.keep(self.replace(from, &to)),
            }
        }
    }

    /// The lock on everything here, of whoever only looks. Who looks need not be allowed to change anything.
    fn locked_to_look(&self) -> Result<File, CoordError> {
        let path = self.folder.lock_file();
        match File::open(&path) {
            Ok(file) => match flock(&file, FlockOperation::LockShared) {
                Ok(()) => Ok(file),
                Err(e) => Err(away(&path, &e.into())),
            },
            // Nobody has been a member yet.
            Err(_) => self.folder.lock(),
        }
    }

    fn member_file(&self, server: ServerId) -> PathBuf {
        self.folder.run().join(format!("member-{server}"))
    }

    fn attend(&mut self, me: ServerId) -> Result<View, CoordError> {
        let lock = self.folder.lock()?;
        // Who cannot know the map is no member.
        self.folder.read()?;
        // A file that somebody took away is nobody's sign of life: what it said may have been seen gone.
        let there = self.mark(me)?.map(|m| m.number);
        let now = monotonic();
        let until = now.saturating_add(self.lease.as_nanos() as u64);
        let path = self.member_file(me);
        let member = match self.mine.remove(&me) {
            Some(mine) if mine.until > now && there == Some(mine.number) => Mine { until, ..mine },
            // Its time was over: it may have been seen gone.
            before => {
                drop(before);
                let file = open(&path).map_err(|e| away(&path, &e))?;
                if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                    return Err(CoordError::Away(format!(
                        "another process of this machine is server {me}: it holds {}",
                        path.display()
                    )));
                }
                let number = self.next_number(&lock)?;
                Mine { file, number, until }
            }
        };
        let mark = Mark {
            number: member.number,
            until,
            boot: self.boot.clone(),
        };
        member
            .file
            .write_all_at(mark.to_text().as_bytes(), 0)
            .map_err(|e| away(&path, &e))?;
        self.mine.insert(me, member);
        self.look()
    }

    /// Numbers rise for ever: each is synced before anybody has it.
    fn next_number(&self, lock: &File) -> Result<u64, CoordError> {
        let path = self.folder.lock_file();
        let mut text = String::new();
        let mut reader = lock;
        reader.read_to_string(&mut text).map_err(|e| away(&path, &e))?;
        let last: u64 = if text.is_empty() {
            0
        } else {
            text.trim().parse().map_err(|_| {
                CoordError::Away(format!(
                    "{} is damaged; stop all servers of this cluster, delete it, and start them again",
                    path.display()
                ))
            })?
        };
        let next = last.saturating_add(1);
        lock.write_all_at(format!("{next:020}\n").as_bytes(), 0)
            .and_then(|()| lock.sync_data())
            .map_err(|e| away(&path, &e))?;
        Ok(next)
    }

    fn leave(&mut self, me: ServerId) -> Result<(), CoordError> {
        let _lock = self.folder.lock()?;
        let path = self.member_file(me);
        if self.mine.remove(&me).is_some() {
            std::fs::remove_file(&path).map_err(|e| away(&path, &e))?;
        }
        Ok(())
    }

    /// What is there. REQUIRES: the lock is held.
    fn look(&self) -> Result<View, CoordError> {
        let (_, map) = self.folder.read()?;
        let mut members = BTreeMap::new();
        let now = monotonic();
        for server in self.marked()? {
            if let Some(mark) = self.mark(server)?
                && mark.boot == self.boot
                && mark.until > now
                && self.is_held(server)?
            {
                members.insert(server, Membership(mark.number));
            }
        }
        Ok(View { map, members })
    }

    /// The servers that have a mark. One that is about to join is not in the map yet.
    fn marked(&self) -> Result<Vec<ServerId>, CoordError> {
        let run = self.folder.run();
        let mut found = Vec::new();
        let entries = match std::fs::read_dir(&run) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
            Err(e) => return Err(away(&run, &e)),
        };
        for entry in entries {
            let name = entry.map_err(|e| away(&run, &e))?.file_name();
            let number = name.to_str().and_then(|n| n.strip_prefix("member-"));
            found.extend(number.and_then(|n| n.parse().ok()).map(ServerId));
        }
        Ok(found)
    }

    fn mark(&self, server: ServerId) -> Result<Option<Mark>, CoordError> {
        let path = self.member_file(server);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(away(&path, &e)),
        };
        let mark = Mark::parse(&text);
        // Its process ended between making the file and writing it; one that was written is never cut.
        if mark.is_none() && !text.is_empty() {
            let why = "is damaged; stop that server, delete the file, and start it again";
            return Err(CoordError::Away(format!("{} {why}", path.display())));
        }
        Ok(mark)
    }

    /// Whether a process lives that wrote a mark. REQUIRES: the lock is held, so that nobody takes this for
    /// the member.
    fn is_held(&self, server: ServerId) -> Result<bool, CoordError> {
        let path = self.member_file(server);
        let file = File::open(&path).map_err(|e| away(&path, &e))?;
        Ok(flock(&file, FlockOperation::NonBlockingLockShared).is_err())
    }

    fn replace(&self, from: MapEpoch, to: &ClusterMap) -> Result<(), CoordError> {
        let _lock = self.folder.lock()?;
        let (file, map) = self.folder.read()?;
        may_replace(&map, from, to)?;
        self.folder.write(&file.with_map(to))
    }
}
