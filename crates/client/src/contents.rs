//! What is in directories, known without asking: where all that changes is changed here.
//!
//! A server tells with each change of a directory's names from what to what it took the directory's change attribute
//! ([`pando_wire::ChangeInfo`]). So who knew what was in it, and makes every change itself, goes on knowing: the next change must begin where
//! the last one ended. A directory that was made here is known to be empty. What others change shows at the next answer, and then nothing
//! is known any more. Between two answers it does not show: so whatever is known is as old as the request was whose answer confirmed it
//! last, and is told only to who may be told what is that old (a mount's timeout).
//!
//! All clients of a mount share one [`Contents`], as the programs on it share what they may expect.

#[cfg(test)]
mod tests;

use pando_types::{DirId, DirStat, Errno, FileKind, Generation, Mono, Name, Timestamp};
use pando_wire::{Answer, ChangeInfo, Op, Outcome, RenameMode, Statement, UNCHANGED};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Directories, and names in all of them, that are kept in mind: some 30 MB.
const DIRECTORIES: usize = 1 << 14;
const NAMES: usize = 1 << 18;
/// After how long without a confirmation it makes room.
const LONG: Duration = Duration::from_secs(30);
/// Changes of one directory whose predecessor is awaited, and how long.
const AWAITED: usize = 64;
const PATIENCE: Duration = Duration::from_secs(1);

/// A directory, wherever it is.
pub(crate) type Dir = (DirId, Generation);

fn key(dir: &Statement) -> Dir {
    (dir.id, dir.generation)
}

/// What is known of the contents of directories, shared by the clients of a mount.
#[derive(Clone, Debug, Default)]
pub struct Contents(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    of: BTreeMap<Dir, Known>,
    names: usize,
}

#[derive(Debug, Default)]
struct Known {
    /// Counts and times.
    stat: Option<As<DirStat>>,
    /// All names that there are.
    names: Option<As<BTreeSet<Name>>>,
}

/// Something that was true when the directory's change attribute was this, as it was at that time.
#[derive(Debug)]
struct As<T> {
    count: u64,
    confirmed: Mono,
    what: T,
    /// Changes made here whose answers came before that of the one before them, by where they began.
    awaiting: BTreeMap<u64, Link>,
}

/// One change made here.
#[derive(Clone, Debug)]
struct Link {
    after: u64,
    sent: Mono,
    delta: Delta,
}

impl<T> As<T> {
    fn new(count: u64, confirmed: Mono, what: T) -> As<T> {
        As {
            count,
            confirmed,
            what,
            awaiting: BTreeMap::new(),
        }
    }

    /// It was looked at, and is as it was.
    fn confirm(&mut self, sent: Mono) {
        self.confirmed = self.confirmed.max(sent);
    }

    /// A change was made here; `apply` says what it does, if that can be said. Returns whether it is still known what is there.
    fn changed(&mut self, before: u64, link: Link, apply: impl Fn(&mut T, &Delta) -> bool) -> bool {
        let now = link.sent;
        self.awaiting.insert(before, link);
        while let Some(link) = self.awaiting.remove(&self.count) {
            if !apply(&mut self.what, &link.delta) {
                return false;
            }
            self.count = link.after;
            self.confirm(link.sent);
        }
        // Where the one before does not come, it was made by others.
        let late = |l: &Link| now.since(l.sent) > PATIENCE;
        self.awaiting.len() <= AWAITED && !self.awaiting.values().any(late)
    }

    /// What is there, and how long ago that was true for certain.
    fn now(&self, now: Mono) -> Option<(&T, Duration)> {
        // What is awaited is in it, perhaps.
        self.awaiting
            .is_empty()
            .then(|| (&self.what, now.since(self.confirmed)))
    }
}

#[derive(Clone, Debug, Default)]
struct Delta {
    gone: Option<Name>,
    come: Option<Name>,
    entries: i64,
    subdirs: i64,
    time: Timestamp,
}

impl Delta {
    /// What an operation did to the names of its directory. `None`: who knows.
    fn of(op: &Op, answer: &Answer, time: Timestamp) -> Option<Delta> {
        let come = |name: &Name, subdirs| Delta {
            come: Some(name.clone()),
            entries: 1,
            subdirs,
            time,
            ..Delta::default()
        };
        let gone = |name: &Name, subdirs: i64| Delta {
            gone: Some(name.clone()),
            entries: -1,
            subdirs: -subdirs,
            time,
            ..Delta::default()
        };
        match (op, answer) {
            (Op::Create { name, .. }, Answer::Opened { created: true, .. })
            | (Op::Symlink { name, .. } | Op::Mknod { name, .. }, Answer::Entry(_)) => Some(come(name, 0)),
            (Op::Mkdir { name, .. }, Answer::Entry(_)) => Some(come(name, 1)),
            (Op::Unlink { name, .. }, Answer::Removed(_)) => Some(gone(name, 0)),
            (Op::Rmdir { name, .. }, Answer::Removed(_)) => Some(gone(name, 1)),
            (
                Op::Rename {
                    src_name,
                    dst_name,
                    mode,
                    ..
                },
                Answer::Renamed { other, .. },
            ) if *mode != RenameMode::Exchange => {
                let replaced = other
                    .as_ref()
                    .map(|o| i64::from(o.attr.kind == FileKind::Directory));
                Some(Delta {
                    gone: Some(src_name.clone()),
                    come: Some(dst_name.clone()),
                    entries: -i64::from(replaced.is_some()),
                    subdirs: -replaced.unwrap_or(0),
                    time,
                })
            }
            _ => None,
        }
    }
}

/// Counts and times after a change. False: who knows. (A time that was set by hand is replaced by the next change, and one that is later
/// may have been set so.)
fn recount(stat: &mut DirStat, delta: &Delta) -> bool {
    let entries = stat.entries.checked_add_signed(delta.entries);
    let subdirs = stat.subdirs.checked_add_signed(delta.subdirs);
    let (Some(entries), Some(subdirs), true) = (entries, subdirs, stat.mtime <= delta.time) else {
        return false;
    };
    *stat = DirStat {
        entries,
        subdirs,
        mtime: delta.time,
        ctime: stat.ctime.max(delta.time),
        ..*stat
    };
    true
}

fn rename(names: &mut BTreeSet<Name>, delta: &Delta) -> bool {
    if let Some(gone) = &delta.gone {
        names.remove(gone);
    }
    names.extend(delta.come.clone());
    true
}

impl Known {
    fn names(&self) -> usize {
        self.names.as_ref().map_or(0, |n| n.what.len())
    }

    fn changed(&mut self, before: u64, link: &Link) {
        if let Some(stat) = &mut self.stat
            && !stat.changed(before, link.clone(), recount)
        {
            self.stat = None;
        }
        if let Some(names) = &mut self.names
            && !names.changed(before, link.clone(), rename)
        {
            self.names = None;
        }
    }

    fn looked(&mut self, stat: Option<&DirStat>, count: u64, sent: Mono) {
        if let Some(names) = self.names.as_mut().filter(|n| n.count == count) {
            names.confirm(sent);
        }
        match (&mut self.stat, stat) {
            (Some(known), _) if known.count == count => known.confirm(sent),
            // An answer that others have overtaken is put right by the next.
            (_, Some(stat)) => self.stat = Some(As::new(count, sent, *stat)),
            (_, None) => {}
        }
    }
}

impl State {
    /// Room for one more directory and one more name: what was not confirmed for long goes first.
    fn make_room(&mut self, now: Mono) {
        if self.of.len() < DIRECTORIES && self.names < NAMES {
            return;
        }
        for all in [false, true] {
            self.of.retain(|_, known| {
                let stat = known.stat.as_ref().map_or(Mono(0), |s| s.confirmed);
                let names = known.names.as_ref().map_or(Mono(0), |n| n.confirmed);
                !all && now.since(stat.max(names)) < LONG
            });
            self.names = self.of.values().map(Known::names).sum();
            if self.of.len() < DIRECTORIES / 2 && self.names < NAMES / 2 {
                return;
            }
        }
    }

    fn forget(&mut self, dir: Dir) {
        if let Some(known) = self.of.remove(&dir) {
            self.names -= known.names();
        }
    }

    /// Changes what is known of a directory.
    fn with(&mut self, dir: Dir, f: impl FnOnce(&mut Known)) {
        if let Some(known) = self.of.get_mut(&dir) {
            self.names -= known.names();
            f(known);
            self.names += known.names();
            if known.stat.is_none() && known.names.is_none() {
                self.of.remove(&dir);
            }
        }
    }
}

impl Contents {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a name is not there, as of no longer ago than `within`. False: it is, or who knows.
    pub fn lacks(&self, dir: &Statement, name: &Name, now: Mono, within: Duration) -> bool {
        let state = self.state();
        let names = state.of.get(&key(dir)).and_then(|k| k.names.as_ref());
        let known = names.and_then(|n| n.now(now));
        known.is_some_and(|(names, age)| age < within && !names.contains(name))
    }

    /// Counts and times of a directory, and how old that is: less than `within`.
    pub fn stat(&self, dir: &Statement, now: Mono, within: Duration) -> Option<(DirStat, Duration)> {
        let state = self.state();
        let stat = state.of.get(&key(dir))?.stat.as_ref()?;
        stat.now(now)
            .filter(|(_, age)| *age < within)
            .map(|(s, age)| (*s, age))
    }

    /// An operation was answered, by this try sent at that time, the first of its tries being sent at `first`.
    pub(crate) fn hear(
        &self,
        op: &Op,
        outcome: &Outcome,
        change: Option<ChangeInfo>,
        (first, sent): (Mono, Mono),
    ) {
        match (outcome, change) {
            (Ok(Answer::DirStat(stat)), Some(c)) if op.looks_at().is_some() => {
                self.look(op, Some(stat), c, sent)
            }
            (Err(Errno::NotFound), Some(c)) if op.looks_at().is_some() => self.look(op, None, c, sent),
            (Ok(answer), change) if op.mutates() => self.made(op, answer, change, (first, sent)),
            _ => {}
        }
    }

    fn look(&self, op: &Op, stat: Option<&DirStat>, change: ChangeInfo, sent: Mono) {
        let [Some(dir), _] = op.statements() else { return };
        let mut state = self.state();
        if stat.is_some() && !state.of.contains_key(&key(dir)) {
            state.make_room(sent);
            state.of.insert(key(dir), Known::default());
        }
        state.with(key(dir), |known| known.looked(stat, change.after, sent));
    }

    fn made(&self, op: &Op, answer: &Answer, change: Option<ChangeInfo>, (first, sent): (Mono, Mono)) {
        let mut state = self.state();
        match (op, answer) {
            // Nothing of what is in its directory.
            (
                Op::SetXattr { .. }
                | Op::RemoveXattr { .. }
                | Op::SetAcl { .. }
                | Op::Publish { .. }
                | Op::Accessed { .. }
                | Op::Release { .. }
                | Op::Tmpfile { .. },
                _,
            )
            | (Op::Create { .. }, Answer::Opened { created: false, .. }) => return,
            // Times of a directory are its own.
            (Op::SetAttr { .. }, Answer::Entry(view)) => {
                if let Some(dir) = &view.dir {
                    state.with(key(dir), |known| known.stat = None);
                }
                return;
            }
            (Op::Rmdir { .. }, Answer::Removed(view)) => {
                if let Some(dir) = &view.dir {
                    state.forget(key(dir));
                }
            }
            (Op::Mkdir { .. }, Answer::Entry(view)) => {
                if let Some(dir) = view.dir.as_ref().filter(|d| !state.of.contains_key(&key(d))) {
                    state.make_room(sent);
                    let born = view.attr.ctime;
                    let stat = DirStat {
                        entries: 0,
                        subdirs: 0,
                        atime: born,
                        mtime: born,
                        ctime: born,
                    };
                    // Who else has been there since an earlier try made it shows at the first change.
                    let known = Known {
                        stat: Some(As::new(UNCHANGED, first, stat)),
                        names: Some(As::new(UNCHANGED, first, BTreeSet::new())),
                    };
                    state.of.insert(key(dir), known);
                }
            }
            _ => {}
        }
        let delta = change.and_then(|c| Some((c, Delta::of(op, answer, c.time)?)));
        match (op.statements(), delta) {
            ([Some(dir), _], Some((change, delta))) => {
                state.make_room(sent);
                let link = Link {
                    after: change.after,
                    sent,
                    delta,
                };
                state.with(key(dir), |known| known.changed(change.before, &link));
            }
            (dirs, _) => dirs.into_iter().flatten().for_each(|dir| state.forget(key(dir))),
        }
    }

    /// Whether an operation has taken effect is not known, or will not be.
    pub(crate) fn doubt(&self, dirs: &[Dir]) {
        let mut state = self.state();
        dirs.iter().for_each(|dir| state.forget(*dir));
    }

    /// What an operation would put in doubt.
    pub(crate) fn at_stake(op: &Op) -> Vec<Dir> {
        let dirs = op.statements().into_iter().flatten();
        dirs.filter(|_| op.mutates()).map(key).collect()
    }
}
