//! What is in directories, known without asking: where all that changes is changed here.
//!
//! A server tells with each change of a directory's names from what to what it took the directory's change
//! attribute ([`pando_wire::ChangeInfo`]). So who knew what was in it, and makes every change itself, goes on
//! knowing: the next change must begin where the last one ended. A directory that was made here is known to
//! be empty. What others change shows at the next answer, and then nothing is known any more. Between two
//! answers it does not show: so whatever is known is as old as the request was whose answer confirmed it
//! last, and is told only to who may be told what is that old (a mount's timeout).
//!
//! What a mount has been told it does not deny: a name that an answer shows, and that is not among those that
//! are known, ends that. And what was changed here is not taken back by an answer that was asked for before
//! that was heard of, which may be of before it.
//!
//! All clients of a mount share one [`Contents`], as the programs on it share what they may expect.

#[cfg(test)]
mod tests;

use pando_types::{DirId, DirStat, Errno, FileKind, Generation, Mono, Name, Timestamp};
use pando_wire::{Answer, ChangeInfo, EntryView, Op, Outcome, RenameMode, Statement, UNCHANGED};
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
/// Of so many groups of directories it is remembered when a change was last heard of.
const GROUPS: usize = 1 << 10;

/// A directory, wherever it is.
pub(crate) type Dir = (DirId, Generation);

fn key(dir: &Statement) -> Dir {
    (dir.id, dir.generation)
}

/// What is known of the contents of directories, shared by the clients of a mount.
#[derive(Clone, Debug, Default)]
pub struct Contents(Arc<Mutex<State>>);

/// When a message was sent, the first try of the same request, and when its answer came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub first: Mono,
    pub sent: Mono,
    pub heard: Mono,
}

#[derive(Debug)]
struct State {
    of: BTreeMap<Dir, Known>,
    names: usize,
    /// Changes that were heard of, or may have been made.
    changes: u64,
    /// When of each group of directories.
    changed: Vec<Mono>,
}

impl Default for State {
    fn default() -> State {
        State {
            of: BTreeMap::new(),
            names: 0,
            changes: 0,
            changed: vec![Mono(0); GROUPS],
        }
    }
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
    /// No later than it took effect.
    sent: Mono,
    heard: Mono,
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

    fn confirm(&mut self, sent: Mono) {
        self.confirmed = self.confirmed.max(sent);
    }

    /// It was looked at, and is as it was: with everything in it that was heard of before.
    fn looked(&mut self, sent: Mono) {
        self.awaiting.retain(|_, link| link.heard >= sent);
        self.confirm(sent);
    }

    /// A change was made here; `apply` says what it does, if that can be said. Returns whether it is still
    /// known what is there.
    fn changed(&mut self, before: u64, link: Link, apply: impl Fn(&mut T, &Delta) -> bool) -> bool {
        let now = link.heard;
        self.awaiting.insert(before, link);
        while let Some(link) = self.awaiting.remove(&self.count) {
            if !apply(&mut self.what, &link.delta) {
                return false;
            }
            self.count = link.after;
            self.confirm(link.sent);
        }
        // Where the one before does not come, it was made by others.
        let late = |l: &Link| now.since(l.heard) > PATIENCE;
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
        match op {
            Op::Create { name, .. } => {
                matches!(answer, Answer::Opened { created: true, .. }).then(|| come(name, 0))
            }
            Op::Symlink { name, .. } | Op::Mknod { name, .. } => {
                matches!(answer, Answer::Entry(_)).then(|| come(name, 0))
            }
            Op::Mkdir { name, .. } => matches!(answer, Answer::Entry(_)).then(|| come(name, 1)),
            Op::Unlink { name, .. } => matches!(answer, Answer::Removed(_)).then(|| gone(name, 0)),
            Op::Rmdir { name, .. } => matches!(answer, Answer::Removed(_)).then(|| gone(name, 1)),
            Op::Rename {
                src_name,
                dst_name,
                mode: RenameMode::Replace | RenameMode::NoReplace,
                ..
            } => {
                let Answer::Renamed { other, .. } = answer else {
                    return None;
                };
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
            Op::Rename {
                mode: RenameMode::Exchange,
                ..
            }
            | Op::UnlinkMany { .. }
            | Op::Bulk { .. }
            | Op::Link { .. }
            | Op::Tmpfile { .. }
            | Op::SetAttr { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::SetAcl { .. }
            | Op::Publish { .. }
            | Op::Accessed { .. }
            | Op::Release { .. }
            | Op::Lookup { .. }
            | Op::Reopen { .. }
            | Op::DirStat { .. }
            | Op::ReadLink { .. }
            | Op::Open { .. }
            | Op::ReadDir { .. }
            | Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::Home { .. }
            | Op::StatFs
            | Op::Sync => None,
        }
    }
}

/// Counts and times after a change. False: who knows. (A time that was set by hand is replaced by the next
/// change, and one that is later may have been set so.)
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

    /// `stat`: what it was, unless that may be of before a change made here.
    fn looked(&mut self, stat: Option<&DirStat>, count: u64, sent: Mono) {
        if let Some(names) = self.names.as_mut().filter(|n| n.count == count) {
            names.looked(sent);
        }
        match (&mut self.stat, stat) {
            (Some(known), _) if known.count == count => known.looked(sent),
            (_, Some(stat)) => self.stat = Some(As::new(count, sent, *stat)),
            (_, None) => {}
        }
    }

    /// A name is there.
    fn shows(&self, name: &Name) -> bool {
        self.names.as_ref().is_none_or(|names| {
            let mut awaited = names.awaiting.values();
            names.what.contains(name) || awaited.any(|link| link.delta.come.as_ref() == Some(name))
        })
    }
}

fn group(dir: Dir) -> usize {
    (dir.0.0 as usize ^ dir.1.0 as usize) % GROUPS
}

/// The names that an operation means, and where.
fn meant(op: &Op) -> [Option<(Dir, &Name)>; 2] {
    match op {
        Op::Lookup { dir, name }
        | Op::Open { dir, name, .. }
        | Op::Create { dir, name, .. }
        | Op::Symlink { dir, name, .. }
        | Op::Mknod { dir, name, .. }
        | Op::Mkdir { dir, name, .. }
        | Op::Rmdir { dir, name }
        | Op::Unlink { dir, name, .. } => [Some((key(dir), name)), None],
        Op::Rename {
            src,
            src_name,
            dst,
            dst_name,
            ..
        } => [Some((key(src), src_name)), Some((key(dst), dst_name))],
        Op::Link { dst, dst_name, .. } => [Some((key(dst), dst_name)), None],
        Op::ReadLink { .. }
        | Op::SetAttr { .. }
        | Op::GetXattr { .. }
        | Op::ListXattr { .. }
        | Op::SetXattr { .. }
        | Op::RemoveXattr { .. }
        | Op::SetAcl { .. }
        | Op::Publish { .. }
        | Op::Accessed { .. }
        | Op::UnlinkMany { .. }
        | Op::Bulk { .. }
        | Op::Reopen { .. }
        | Op::DirStat { .. }
        | Op::ReadDir { .. }
        | Op::Tmpfile { .. }
        | Op::Home { .. }
        | Op::Release { .. }
        | Op::StatFs
        | Op::Sync => [None, None],
    }
}

impl State {
    /// A change in a directory was heard of.
    fn change(&mut self, dir: Dir, heard: Mono) {
        self.changes += 1;
        if let Some(at) = self.changed.get_mut(group(dir)) {
            *at = heard.max(*at);
        }
    }

    /// Whether what was asked for then is of after all changes that were heard of.
    fn is_newer(&self, dir: Dir, sent: Mono) -> bool {
        self.changed.get(group(dir)).is_some_and(|at| sent > *at)
    }

    /// A name was shown. If it is not among those that are known, others have been there.
    fn show(&mut self, dir: Dir, name: &Name) {
        if self.of.get(&dir).is_some_and(|known| !known.shows(name)) {
            self.forget(dir);
        }
    }

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

    /// Changes made on this mount that were heard of until now.
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// An operation was answered.
    pub(crate) fn hear(&self, op: &Op, outcome: &Outcome, change: Option<ChangeInfo>, times: Times) {
        let mut state = self.state();
        match outcome {
            Ok(answer) if op.mutates() => return state.made(op, answer, change, times),
            Ok(Answer::DirStat(stat)) => return state.look(op, Some(stat), change, times),
            Err(Errno::NotFound) if !op.mutates() => return state.look(op, None, change, times),
            Ok(Answer::Entries { entries, .. } | Answer::Part { entries, .. }) => {
                if let [Some(dir), _] = op.statements() {
                    entries.iter().for_each(|e| state.show(key(dir), &e.name));
                }
            }
            _ => {}
        }
        // Of a refused change, too: that the name is there is why, perhaps.
        let meant = meant(op).into_iter().flatten();
        meant.for_each(|(dir, name)| state.show(dir, name));
    }

    /// Whether an operation has taken effect is not known, or will not be.
    pub(crate) fn doubt(&self, dirs: &[Dir], now: Mono) {
        let mut state = self.state();
        for dir in dirs {
            state.change(*dir, now);
            state.forget(*dir);
        }
    }

    /// What an operation would put in doubt.
    pub(crate) fn at_stake(op: &Op) -> Vec<Dir> {
        let dirs = op.statements().into_iter().flatten();
        dirs.filter(|_| op.mutates()).map(key).collect()
    }
}

impl State {
    fn look(&mut self, op: &Op, stat: Option<&DirStat>, change: Option<ChangeInfo>, times: Times) {
        let ([Some(dir), _], Some(change)) = (op.statements(), change) else {
            return;
        };
        let dir = key(dir);
        let stat = stat.filter(|_| self.is_newer(dir, times.sent));
        if stat.is_some() && !self.of.contains_key(&dir) {
            self.make_room(times.sent);
            self.of.insert(dir, Known::default());
        }
        self.with(dir, |known| known.looked(stat, change.after, times.sent));
    }

    fn made(&mut self, op: &Op, answer: &Answer, change: Option<ChangeInfo>, times: Times) {
        match op {
            // Nothing of what is in its directory.
            Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::SetAcl { .. }
            | Op::Publish { .. }
            | Op::Accessed { .. }
            | Op::Release { .. }
            | Op::Tmpfile { .. } => return self.changes += 1,
            Op::Create { dir, name, .. } => {
                if matches!(answer, Answer::Opened { created: false, .. }) {
                    return self.show(key(dir), name);
                }
            }
            // Times of a directory are its own.
            Op::SetAttr { .. } => {
                if let Answer::Entry(view) = answer {
                    self.changes += 1;
                    if let Some(dir) = &view.dir {
                        self.change(key(dir), times.heard);
                        self.with(key(dir), |known| known.stat = None);
                    }
                    return;
                }
            }
            Op::Rmdir { .. } => {
                if let Answer::Removed(EntryView { dir: Some(dir), .. }) = answer {
                    self.forget(key(dir));
                }
            }
            Op::Mkdir { .. } => {
                if let Answer::Entry(view) = answer
                    && let Some(dir) = &view.dir
                {
                    self.born(key(dir), view.attr.ctime, times);
                }
            }
            Op::Symlink { .. }
            | Op::Mknod { .. }
            | Op::Unlink { .. }
            | Op::UnlinkMany { .. }
            | Op::Bulk { .. }
            | Op::Rename { .. }
            | Op::Link { .. } => {}
            // They change nothing.
            Op::Lookup { .. }
            | Op::Reopen { .. }
            | Op::DirStat { .. }
            | Op::ReadLink { .. }
            | Op::Open { .. }
            | Op::ReadDir { .. }
            | Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::Home { .. }
            | Op::StatFs
            | Op::Sync => {}
        }
        let delta = change.and_then(|c| Some((c, Delta::of(op, answer, c.time)?)));
        let dirs = op.statements().into_iter().flatten();
        dirs.for_each(|dir| self.change(key(dir), times.heard));
        match (op.statements(), delta) {
            ([Some(dir), _], Some((change, delta))) => {
                self.make_room(times.heard);
                let link = Link {
                    after: change.after,
                    // A try that was repeated may have been executed long ago, and answered now.
                    sent: times.first,
                    heard: times.heard,
                    delta,
                };
                self.with(key(dir), |known| known.changed(change.before, &link));
            }
            (dirs, _) => dirs.into_iter().flatten().for_each(|dir| self.forget(key(dir))),
        }
    }

    /// A directory was made here. Who else has been there shows at the first change; what was done here
    /// already, if this is heard late, was heard of.
    fn born(&mut self, dir: Dir, born: Timestamp, times: Times) {
        if self.of.contains_key(&dir) || !self.is_newer(dir, times.first) {
            return;
        }
        self.make_room(times.heard);
        let stat = DirStat::born(born);
        let known = Known {
            stat: Some(As::new(UNCHANGED, times.first, stat)),
            names: Some(As::new(UNCHANGED, times.first, BTreeSet::new())),
        };
        self.of.insert(dir, known);
    }
}
