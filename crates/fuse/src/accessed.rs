//! When files were read: relatime.
//!
//! The kernel leaves atimes to the filesystem. A read that makes one due is noted here, shown at once on this
//! mount, and told to the server of the file a second later, by a thread for which nobody waits. What is lost
//! with the mount is an atime.

use crate::core::Core;
use crate::driver::{Cluster, Driver};
use crate::join::all;
use foldhash::HashMap;
use pando_client::file::{OpenFile, Ops, Place};
use pando_types::{Attr, Errno, Generation, Ino, Timestamp};
use pando_wire::{Answer, Handle, Object, Op, Outcome};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a read is kept before it is told: what is removed or read again meanwhile costs nothing.
const AFTER: Duration = Duration::from_secs(1);
/// Files told at the same time.
const AT_ONCE: usize = 64;
/// Files that are noted; beyond that reads leave no trace.
const MOST: usize = 65_536;
const DAY: i128 = 24 * 60 * 60 * 1_000_000_000;

/// A file that was read.
#[derive(Clone)]
struct Read {
    generation: Generation,
    place: Place,
    proof: Handle,
    at: Instant,
    /// By this machine's clock, as it is shown until the server has it.
    shown: Timestamp,
    /// The server is being told.
    telling: bool,
}

/// Reads that no server has heard of.
pub(crate) struct Accesses {
    on: bool,
    noted: Mutex<Noted>,
    wake: Condvar,
}

#[derive(Default)]
struct Noted {
    reads: HashMap<Ino, Read>,
    over: bool,
}

/// Whether a read now would move this atime (Linux, `relatime_need_update`).
fn is_due(atime: Timestamp, attr: &Attr, now: Timestamp) -> bool {
    atime <= attr.mtime || atime <= attr.ctime || now.as_nanos() - atime.as_nanos() >= DAY
}

impl Accesses {
    /// `on`: atimes follow reads.
    pub fn new(on: bool) -> Accesses {
        Accesses {
            on,
            noted: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An open file was read.
    pub fn read(&self, file: &OpenFile, now: Timestamp) {
        let attr = file.attr();
        if !self.on || file.is_removed() || !is_due(attr.atime, &attr, now) {
            return;
        }
        let mut noted = self.lock();
        let room = noted.reads.len() < MOST;
        let known = noted
            .reads
            .get(&attr.ino)
            .filter(|r| r.generation == attr.generation);
        if known.is_some_and(|r| !is_due(r.shown, &attr, now)) || known.is_none() && !room {
            return;
        }
        let read = Read {
            generation: attr.generation,
            place: file.location().get(),
            proof: file.proof(),
            at: Instant::now(),
            shown: now,
            telling: false,
        };
        noted.reads.insert(attr.ino, read);
        drop(noted);
        self.wake.notify_one();
    }

    /// Attributes as this mount shows them.
    pub fn show(&self, mut attr: Attr) -> Attr {
        if self.on
            && let Some(read) = self.lock().reads.get(&attr.ino)
            && read.generation == attr.generation
            && is_due(attr.atime, &attr, read.shown)
            && attr.ctime <= read.shown
        {
            attr.atime = attr.atime.max(read.shown);
        }
        attr
    }

    /// Its atime is set otherwise.
    pub fn forget(&self, ino: Ino) {
        self.lock().reads.remove(&ino);
    }

    /// What is to be told now.
    fn due(&self, after: Duration) -> Vec<(Ino, Read)> {
        let mut noted = self.lock();
        let due = noted
            .reads
            .iter_mut()
            .filter(|(_, r)| !r.telling && r.at.elapsed() >= after)
            .take(AT_ONCE);
        due.map(|(ino, read)| {
            read.telling = true;
            (*ino, read.clone())
        })
        .collect()
    }

    /// It was told, or cannot be.
    fn told(&self, ino: Ino, read: &Read) {
        let mut noted = self.lock();
        if noted.reads.get(&ino).is_some_and(|r| r.at == read.at) {
            noted.reads.remove(&ino);
        }
    }

    /// Ends the thread that tells.
    pub fn stop(&self) {
        self.lock().over = true;
        self.wake.notify_all();
    }

    /// Waits until there is something to tell, and then a while. False: it is over.
    fn wait(&self) -> bool {
        let mut noted = self.lock();
        while noted.reads.is_empty() && !noted.over {
            noted = self.wake.wait(noted).unwrap_or_else(PoisonError::into_inner);
        }
        let until = Instant::now() + AFTER;
        while !noted.over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = self.wake.wait_timeout(noted, left);
            noted = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}

impl<C: Cluster> Core<C> {
    /// Tells the servers of reads of so long ago, and longer.
    pub fn tell_accesses(&self, d: &C::Driver, after: Duration) {
        loop {
            let due = self.accesses.due(after);
            if due.is_empty() {
                return;
            }
            let own = d.ops().own();
            let told: Vec<Pin<Box<dyn Future<Output = Outcome> + '_>>> = due
                .iter()
                .map(|(ino, read)| {
                    let op = accessed(*ino, read, read.place.clone());
                    Box::pin(d.ops().op(&own, op)) as _
                })
                .collect();
            let outcomes = d.run(all(told));
            for ((ino, read), outcome) in due.iter().zip(outcomes) {
                let outcome = match outcome {
                    // It is called otherwise by now.
                    Err(Errno::Stale | Errno::NotFound) => {
                        self.in_place(d, *ino, |place| self.op(d, &own, accessed(*ino, read, place)))
                    }
                    outcome => outcome,
                };
                if let Ok(Answer::Entry(view)) = outcome {
                    self.nodes().learn(*ino, &view, Instant::now());
                    let file = self.nodes().file(*ino);
                    if let Some(file) = file
                        && let Some(f) = &mut file.write().open
                    {
                        f.learn(&view);
                    }
                }
                self.accesses.told(*ino, read);
            }
        }
    }
}

fn accessed(ino: Ino, read: &Read, Place { dir, name }: Place) -> Op {
    Op::Accessed {
        object: Object {
            dir,
            name,
            ino,
            generation: read.generation,
        },
        proof: read.proof,
        ago: u64::try_from(read.at.elapsed().as_nanos()).unwrap_or(u64::MAX),
    }
}

/// Starts the thread that tells, as long as the mount is there.
pub(crate) fn start<C: Cluster>(core: &Arc<Core<C>>) -> std::io::Result<()> {
    if !core.accesses.on {
        return Ok(());
    }
    let (accesses, core) = (core.accesses.clone(), Arc::downgrade(core));
    let tell = move || {
        while accesses.wait() {
            let Some(core) = core.upgrade() else { return };
            let _ = core.with(|d| {
                core.tell_accesses(d, AFTER);
                Ok(())
            });
        }
    };
    std::thread::Builder::new()
        .name("pando-atime".into())
        .spawn(tell)
        .map(drop)
}
