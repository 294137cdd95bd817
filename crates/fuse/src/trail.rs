//! Threads whose last call ended in ESTALE, because what they had walked to was gone.
//!
//! The kernel walks the path of such a call once more, asks for every name on it, and makes the call again; a
//! second ESTALE reaches the program. So what the second walk finds is pinned as soon as it is found, and is
//! there when the call comes; and a call that comes to nothing once more gets the error that it would get
//! where nothing is remembered.

use crate::core::Shown;
use foldhash::HashMap;
use pando_types::{Ino, Name};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The kernel goes on walking so soon after an answer: whatever comes later is another call.
const SOON: Duration = Duration::from_millis(300);
/// A pin is used within this time, or not at all.
const PINNED: Duration = Duration::from_secs(1);
/// A walk looks the same file up so often: once more if it is another than the kernel knew. Later looks are
/// for other calls.
const LOOKS: u32 = 2;
/// Threads that are remembered. Beyond them one that comes anew is not.
const THREADS: usize = 1024;

/// The subject of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// Attributes, which an answer to LOOKUP has, too.
    Attributes,
    /// Anything else.
    Other,
}

/// A thread whose call ended so.
struct Step {
    call: Call,
    /// The names of the thing that is gone.
    names: Vec<Name>,
    /// When the thread was answered last.
    at: Instant,
    found: Option<Found>,
    /// How often something was pinned.
    pinned: u32,
}

/// The find of a second walk.
struct Found {
    shown: Shown,
    /// Handle that keeps it there.
    pin: Option<u64>,
    at: Instant,
}

/// The threads that are walking again.
#[derive(Default)]
pub(crate) struct Trail {
    threads: Mutex<HashMap<u32, Step>>,
    /// How many there are: nearly always none.
    count: AtomicUsize,
}

impl Trail {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Step>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counted(&self, threads: &HashMap<u32, Step>) {
        self.count.store(threads.len(), Relaxed);
    }

    /// Whether nobody walks again.
    pub fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// A thread's call ends in ESTALE. Returns what was pinned for it and is to be closed.
    pub fn ended(&self, pid: u32, call: Call, names: Vec<Name>) -> Option<u64> {
        if pid == 0 {
            return None;
        }
        let mut threads = self.lock();
        if threads.len() >= THREADS && !threads.contains_key(&pid) {
            return None;
        }
        let step = Step {
            call,
            names,
            at: Instant::now(),
            found: None,
            pinned: 0,
        };
        let before = threads.insert(pid, step);
        self.counted(&threads);
        before.and_then(Step::pin)
    }

    /// Whether the call that a thread makes is the one that just ended in ESTALE.
    pub fn again(&self, pid: u32) -> bool {
        let is_it = |step: &Step| {
            // A look that has found something may have been answered by that.
            let looked = step.call == Call::Attributes && step.found.is_some();
            !looked && step.at.elapsed() < SOON
        };
        !self.is_empty() && self.lock().get(&pid).is_some_and(is_it)
    }

    /// Whether what a thread looks up is what its call is about.
    pub fn seeks(&self, pid: u32, name: &Name) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut threads = self.lock();
        let Some(step) = threads.get_mut(&pid).filter(|step| step.at.elapsed() < SOON) else {
            return false;
        };
        step.at = Instant::now();
        step.pinned < LOOKS && step.names.contains(name)
    }

    /// It found this. Returns what was pinned before and is to be closed.
    pub fn found(&self, pid: u32, shown: &Shown, pin: Option<u64>) -> Option<u64> {
        let mut threads = self.lock();
        let Some(step) = threads.get_mut(&pid) else {
            return pin;
        };
        step.at = Instant::now();
        step.pinned += u32::from(pin.is_some());
        let found = Found {
            shown: shown.clone(),
            pin,
            at: Instant::now(),
        };
        step.found.replace(found).and_then(|f| f.pin)
    }

    /// The attributes that a thread's walk has found just now, if they are of this node.
    pub fn just_found(&self, pid: u32, ino: Ino) -> Option<Shown> {
        if self.is_empty() {
            return None;
        }
        let threads = self.lock();
        let step = threads.get(&pid).filter(|step| step.at.elapsed() < SOON)?;
        let found = step.found.as_ref()?;
        (found.shown.attr.ino.0 == ino.0).then(|| found.shown.clone())
    }

    /// A thread's call ended otherwise; `on`: if it was by node. A look at attributes, or at another node,
    /// may be on the way to the call. Returns what is to be closed.
    pub fn settled(&self, pid: u32, call: Call, on: Option<Ino>) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        let mut threads = self.lock();
        let step = threads.get(&pid)?;
        let about = |ino: Ino| step.found.as_ref().is_some_and(|f| f.shown.attr.ino.0 == ino.0);
        // The kernel looks at attributes on the way to any call, so that what is pinned may be wanted yet.
        let on_the_way = call == Call::Attributes && (step.call == Call::Other || step.pinned > 0);
        if on_the_way || !on.is_none_or(about) {
            return None;
        }
        let step = threads.remove(&pid);
        self.counted(&threads);
        step.and_then(Step::pin)
    }

    /// Forgets threads that did not come back. Returns what is to be closed.
    pub fn expire(&self) -> Vec<u64> {
        let mut threads = self.lock();
        let mut pins = Vec::new();
        threads.retain(|_, step| {
            let at = step.found.as_ref().map_or(step.at, |f| f.at.max(step.at));
            let stays = at.elapsed() < PINNED;
            if !stays {
                pins.extend(step.found.as_ref().and_then(|f| f.pin));
            }
            stays
        });
        self.counted(&threads);
        pins
    }
}

impl Step {
    fn pin(self) -> Option<u64> {
        self.found.and_then(|f| f.pin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::{Attr, FileKind, Generation, Perm, Timestamp};

    fn name(n: &str) -> Name {
        Name::new(n.as_bytes()).unwrap()
    }

    fn shown(ino: u64) -> Shown {
        let time = Timestamp::default();
        Shown::new(&Attr {
            ino: Ino(ino),
            generation: Generation(1),
            kind: FileKind::Regular,
            perm: Perm::new(0o644),
            uid: 0,
            gid: 0,
            nlink: 1,
            size: 0,
            allocated: 0,
            rdev: 0,
            atime: time,
            mtime: time,
            ctime: time,
        })
    }

    #[test]
    fn what_a_second_walk_finds_is_known_to_its_thread_until_the_call_is_done() {
        let trail = Trail::default();
        assert!(trail.is_empty() && !trail.again(7));
        assert_eq!(trail.ended(7, Call::Other, vec![name("f")]), None);
        assert!(trail.again(7) && !trail.again(8));
        // Other names on the way are not what it is about, nor are other threads.
        assert!(!trail.seeks(7, &name("d")));
        assert!(!trail.seeks(8, &name("f")));
        assert!(trail.seeks(7, &name("f")));
        assert_eq!(trail.found(7, &shown(20), Some(1)), None);
        // The kernel asks again when it finds another file than it knew.
        assert_eq!(trail.found(7, &shown(21), Some(2)), Some(1));
        assert!(trail.just_found(7, Ino(20)).is_none() && trail.just_found(7, Ino(21)).is_some());
        // A look at a directory on the way ends nothing.
        assert_eq!(trail.settled(7, Call::Other, Some(Ino(1))), None);
        assert_eq!(trail.settled(7, Call::Attributes, Some(Ino(21))), None);
        assert_eq!(trail.settled(7, Call::Other, Some(Ino(21))), Some(2));
        assert!(trail.is_empty());
    }

    #[test]
    fn attributes_on_the_way_to_a_call_leave_the_pin_to_it() {
        let trail = Trail::default();
        trail.ended(7, Call::Attributes, vec![name("f")]);
        for (ino, pin) in [(20, 1), (21, 2)] {
            assert!(trail.seeks(7, &name("f")));
            assert_eq!(
                trail.found(7, &shown(ino), Some(pin)),
                (pin > 1).then_some(pin - 1)
            );
        }
        assert_eq!(trail.settled(7, Call::Attributes, Some(Ino(21))), None);
        // A program that looks again and again pins no more.
        assert!(!trail.seeks(7, &name("f")));
        assert_eq!(trail.settled(7, Call::Other, Some(Ino(21))), Some(2));
        // Of what is not pinned nothing is left.
        trail.ended(7, Call::Attributes, vec![name("d")]);
        assert_eq!(trail.found(7, &shown(22), None), None);
        assert_eq!(trail.settled(7, Call::Attributes, Some(Ino(22))), None);
        assert!(trail.is_empty());
    }

    #[test]
    fn pins_of_threads_that_do_not_come_back_are_given_back() {
        let trail = Trail::default();
        trail.ended(7, Call::Other, vec![name("f")]);
        assert_eq!(trail.found(7, &shown(20), Some(1)), None);
        assert_eq!(trail.expire(), Vec::<u64>::new());
        // Nor are those of one that has gone on meanwhile.
        assert_eq!(trail.ended(7, Call::Other, vec![name("g")]), Some(1));
        assert_eq!(trail.found(7, &shown(20), Some(2)), None);
        std::thread::sleep(PINNED + Duration::from_millis(10));
        assert!(!trail.again(7));
        assert_eq!(trail.expire(), vec![2]);
        assert!(trail.is_empty());
        assert_eq!(trail.found(7, &shown(20), Some(3)), Some(3));
        assert_eq!(trail.ended(0, Call::Other, Vec::new()), None);
        assert!(trail.is_empty());
    }

    #[test]
    fn threads_are_bounded() {
        let trail = Trail::default();
        for pid in 1..=THREADS as u32 + 5 {
            trail.ended(pid, Call::Attributes, Vec::new());
        }
        assert!(trail.again(1) && !trail.again(THREADS as u32 + 5));
    }
}
