//! Files that are opened together with the look at their names.
//!
//! Of a program that opens a file whose name it may not believe any more the kernel asks twice: LOOKUP, and
//! OPEN of what that has found. A thread that has opened what it looked up will do so again. For it LOOKUP
//! opens the file for reading, in one message, and OPEN takes what was answered.
//!
//! - The kernel is told not to believe such a name, so that each call asks for it anew. What an OPEN takes
//!   its own call has looked up, and not an earlier one (`stat`): it shows what others closed before it
//!   began. What gets at a file without its name (`/proc/self/fd` of what was opened with O_PATH) can lack by
//!   [`SOON`] what another mount has changed.
//! - A server has checked the permission of the same user to read. Whoever opens for anything else is asked
//!   for.
//! - What was opened in vain is closed with the next message to the server, or soon. The thread then only
//!   looks for a while, ever longer.

use crate::core::{Core, Shown};
use crate::driver::Cluster;
use crate::open::{FileSlot, FileState};
use foldhash::HashMap;
use pando_client::file::{Opened, Place};
use pando_types::{Access, Cred, Errno, FileKind, Ino, Name};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Between the answer to LOOKUP and OPEN.
const SOON: Duration = Duration::from_millis(5);
/// A file that is not taken within this time is closed.
const KEPT: Duration = Duration::from_secs(1);
/// Threads that are remembered. Beyond them all are forgotten.
const THREADS: usize = 1024;
/// So many looks in turn are followed by an OPEN before the next is foreseen.
const USUAL: u32 = 2;
/// After the n-th file that was opened in vain 2^n looks are only that, at most with this n.
const SHY: u32 = 10;

/// A file that a LOOKUP has opened.
pub(crate) struct Ahead {
    /// For whom, for reading.
    pub cred: Cred,
    pub place: Place,
    pub opened: Opened,
}

/// What a LOOKUP has found, and no OPEN has taken yet.
struct Found {
    ino: Ino,
    /// It was the second in turn of its name.
    twice: bool,
    ahead: Option<Box<Ahead>>,
    at: Instant,
}

/// What usually follows a look.
#[derive(Default)]
struct Habit {
    /// Looks in turn that an OPEN has followed.
    followed: u32,
    /// Files that were opened in vain.
    vain: u32,
    /// Looks until one is foreseen again.
    rest: u32,
}

/// A thread of a program.
#[derive(Default)]
struct Thread {
    /// Of names that are looked up for the first time.
    once: Habit,
    /// Of a name that was looked up just before, too: who does not believe names asks for it in `stat`, and
    /// again in `open`.
    twice: Habit,
    /// The name of the file that it has found last, if for the first time in turn.
    looked: Option<(Ino, Name)>,
    found: Option<Found>,
}

/// A look at a name.
pub(crate) struct Look {
    parent: Ino,
    name: Name,
    /// It is the second in turn.
    twice: bool,
    /// An OPEN will follow.
    pub opens: bool,
}

#[derive(Default)]
struct Threads {
    by: HashMap<u32, Thread>,
    /// Somebody comes by and closes what is not taken.
    swept: bool,
}

/// What threads do with what they look up.
#[derive(Default)]
pub(crate) struct Foreseen(Mutex<Threads>);

impl Habit {
    fn followed(&mut self, opened: bool) {
        self.followed = self.followed.saturating_add(1);
        if opened {
            self.vain = self.vain.saturating_sub(1);
        }
    }

    fn not_followed(&mut self, opened: bool) {
        self.followed = 0;
        if opened {
            self.vain = (self.vain + 1).min(SHY);
            self.rest = 1 << self.vain;
        }
    }

    /// Another look: whether an OPEN will follow.
    fn foresees(&mut self) -> bool {
        let rests = self.rest > 0;
        self.rest = self.rest.saturating_sub(1);
        !rests && self.followed >= USUAL
    }
}

impl Thread {
    fn habit(&mut self, twice: bool) -> &mut Habit {
        match twice {
            true => &mut self.twice,
            false => &mut self.once,
        }
    }
}

impl Foreseen {
    fn lock(&self) -> MutexGuard<'_, Threads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread looks a name up.
    pub fn looks(&self, pid: u32, parent: Ino, name: &Name) -> Look {
        let mut look = Look {
            parent,
            name: name.clone(),
            twice: false,
            opens: false,
        };
        if pid == 0 {
            return look;
        }
        let mut forgotten = HashMap::default();
        let mut threads = self.lock();
        if threads.by.len() >= THREADS && !threads.by.contains_key(&pid) {
            forgotten = std::mem::take(&mut threads.by);
        }
        let thread = threads.by.entry(pid).or_default();
        let before = thread.found.take();
        if let Some(found) = &before {
            let opened = found.ahead.is_some();
            thread.habit(found.twice).not_followed(opened);
        }
        look.twice = (thread.looked.as_ref()).is_some_and(|(p, n)| *p == parent && n == name);
        look.opens = thread.habit(look.twice).foresees();
        drop(threads);
        // Files that are closed so are told of when nobody waits for the lock.
        drop((before, forgotten));
        look
    }

    /// It has found this regular file, and opened it or not. Returns whether somebody must be sent to sweep.
    pub fn found(&self, pid: u32, look: Look, ino: Ino, ahead: Option<Ahead>) -> bool {
        let mut threads = self.lock();
        let Some(thread) = threads.by.get_mut(&pid) else {
            return false;
        };
        let kept = ahead.is_some();
        thread.found = Some(Found {
            ino,
            twice: look.twice,
            ahead: ahead.map(Box::new),
            at: Instant::now(),
        });
        thread.looked = (!look.twice).then_some((look.parent, look.name));
        kept && !std::mem::replace(&mut threads.swept, true)
    }

    /// A thread opens a file. `reader`: the user, if it is to be read and nothing else. Returns it if it was
    /// opened for that user by the look right before.
    pub fn opens(&self, pid: u32, ino: Ino, reader: Option<&Cred>) -> Option<Ahead> {
        let mut threads = self.lock();
        let thread = threads.by.get_mut(&pid)?;
        let found = thread.found.take_if(|found| found.ino == ino)?;
        let habit = thread.habit(found.twice);
        let opened = found.ahead.is_some();
        match reader {
            Some(_) => habit.followed(opened),
            None => habit.not_followed(opened),
        }
        drop(threads);
        let fresh = found.at.elapsed() < SOON;
        (found.ahead.map(|ahead| *ahead)).filter(|ahead| fresh && reader == Some(&ahead.cred))
    }

    /// Closes what was not taken. Returns whether something is kept still.
    pub fn sweep(&self) -> bool {
        let mut closed = Vec::new();
        let mut threads = self.lock();
        let mut kept = false;
        for found in threads.by.values_mut().filter_map(|thread| thread.found.as_mut()) {
            if found.at.elapsed() < KEPT {
                kept |= found.ahead.is_some();
            } else {
                closed.extend(found.ahead.take());
            }
        }
        threads.swept = kept;
        drop(threads);
        drop(closed);
        kept
    }
}

impl<C: Cluster> Core<C> {
    /// Looks a name up, and opens the file if its thread will.
    pub fn look_ahead(
        &self,
        d: &C::Driver,
        cred: &Cred,
        pid: u32,
        parent: Ino,
        name: &Name,
    ) -> Result<Shown, Errno> {
        let look = self.foreseen.looks(pid, parent, name);
        if look.opens
            && let Some((shown, ahead)) = self.open_ahead(d, cred, parent, name)?
        {
            if self.foreseen.found(pid, look, Ino(shown.attr.ino.0), Some(ahead)) {
                self.send_to_sweep();
            }
            return Ok(shown);
        }
        let shown = self.step(d, cred, pid, parent, name)?;
        if shown.attr.kind == fuser::FileType::RegularFile {
            self.foreseen.found(pid, look, Ino(shown.attr.ino.0), None);
        }
        Ok(shown)
    }

    /// Opens what a name stands for, for reading. `None`: it can only be looked at.
    fn open_ahead(
        &self,
        d: &C::Driver,
        cred: &Cred,
        parent: Ino,
        name: &Name,
    ) -> Result<Option<(Shown, Ahead)>, Errno> {
        if self.lacks(d, parent, name) || !self.may_be_closed_file(parent, name) {
            return Ok(None);
        }
        let opened = self.open_named(d, cred, parent, name, Access::READ);
        let (place, opened) = match opened {
            Ok(found) if found.1.entry.attr.kind == FileKind::Regular => found,
            Err(Errno::NotFound) => return Err(Errno::NotFound),
            Ok(_) | Err(_) => return Ok(None),
        };
        let view = &opened.entry;
        let slot = self.nodes().file(view.attr.ino);
        if slot.is_some_and(|slot| !is_closed_at(&slot, view.version)) {
            return Ok(None);
        }
        let shown = Shown {
            anew: true,
            ..self.admit(parent, name, view, &view.attr)?
        };
        let cred = cred.clone();
        Ok(Some((shown, Ahead { cred, place, opened })))
    }

    /// Whether a name may stand for a regular file that is not open here.
    fn may_be_closed_file(&self, parent: Ino, name: &Name) -> bool {
        let known = {
            let nodes = self.nodes();
            let node = nodes.by_name(parent, name).and_then(|ino| nodes.get(ino));
            node.map(|node| node.file.clone())
        };
        match known {
            None => true,
            Some(None) => false,
            Some(Some(slot)) => is_closed_at(&slot, u64::MAX),
        }
    }

    /// Whether what a look has opened is what OPEN of this node would find. REQUIRES: the file's lock is
    /// held.
    pub fn is_still(&self, ahead: &Ahead, ino: Ino, state: &FileState) -> bool {
        let entry = &ahead.opened.entry;
        let nodes = self.nodes();
        state.open.is_none()
            && state.version <= entry.version
            && nodes.get(ino).is_some_and(|node| {
                let same = node.generation == entry.attr.generation;
                same && !node.gone && node.attr.ctime <= entry.attr.ctime
            })
    }
}

/// Whether a file is not open here, and was not closed here with a newer version of its content.
fn is_closed_at(slot: &FileSlot, version: u64) -> bool {
    let state = slot.try_read();
    state.is_some_and(|state| state.open.is_none() && state.version <= version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: &str) -> Name {
        Name::new(n.as_bytes()).unwrap()
    }

    /// Looks a name up that is found without opening it.
    fn look(foreseen: &Foreseen, n: u64) -> bool {
        let look = foreseen.looks(7, Ino(1), &name(&n.to_string()));
        let opens = look.opens;
        foreseen.found(7, look, Ino(n), None);
        opens
    }

    #[test]
    fn who_opens_what_it_looks_up_will_do_so_again() {
        let foreseen = Foreseen::default();
        let user = Cred::root();
        for n in 2..4 {
            assert!(!look(&foreseen, n));
            assert!(foreseen.opens(7, Ino(n), Some(&user)).is_none());
        }
        assert!(look(&foreseen, 4));
        // Not another thread, nor one that is not known.
        assert!(!foreseen.looks(8, Ino(1), &name("4")).opens);
        assert!(!foreseen.looks(0, Ino(1), &name("4")).opens);
        // Who only looked, or opens for something else, is to show it once more.
        assert!(!look(&foreseen, 5));
        for n in 6..8 {
            assert!(!look(&foreseen, n));
            foreseen.opens(7, Ino(n), Some(&user));
        }
        assert!(look(&foreseen, 8));
        foreseen.opens(7, Ino(8), None);
        assert!(!look(&foreseen, 9));
    }

    #[test]
    fn who_looks_twice_opens_after_the_second() {
        let foreseen = Foreseen::default();
        for n in 2..6 {
            assert!(!look(&foreseen, n));
            assert_eq!(look(&foreseen, n), n >= 4);
            foreseen.opens(7, Ino(n), Some(&Cred::root()));
        }
        // The third look is the first of another two.
        assert!(!look(&foreseen, 9));
        assert!(look(&foreseen, 9));
        assert!(!look(&foreseen, 9));
    }

    #[test]
    fn who_was_wrong_waits_longer_each_time() {
        let mut habit = Habit::default();
        let mut waits = Vec::new();
        for _ in 0..3 {
            let mut looks = 0;
            while !habit.foresees() {
                habit.followed(false);
                looks += 1;
            }
            waits.push(looks);
            habit.not_followed(true);
        }
        assert_eq!(waits, [2, 2, 4]);
        // And less when it was right.
        (0..20).for_each(|_| habit.followed(true));
        assert_eq!(habit.vain, 0);
    }

    #[test]
    fn threads_are_bounded() {
        let foreseen = Foreseen::default();
        for pid in 1..=THREADS as u32 + 5 {
            foreseen.looks(pid, Ino(1), &name("f"));
        }
        assert!(foreseen.lock().by.len() <= THREADS);
        assert!(!foreseen.sweep());
    }
}
