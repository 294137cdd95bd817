//! Change attributes of directories (`pando_wire::ChangeInfo`): counted in memory, told with the answers of
//! changes and looks.
//!
//! The rule (H179): from when a change of a directory's names or counts may take effect, no answer tells a
//! count from before it. What another server decides takes effect when that does: so from the vote for it
//! until it is carried out nothing is told of the directory, and then it has a new count.

use crate::MetaServer;
use crate::pipeline::{Asked, Basis};
use pando_format::{Batch, Key, Mutation, PreparedRecord, Record};
use pando_types::{BootEpoch, Division, Errno, Part, ServerId, Slot, Timestamp, TxId, plant};
use pando_wire::traits::Counts;
use pando_wire::{Answer, ChangeInfo, Outcome, UNCHANGED};
use std::collections::{BTreeMap, BTreeSet};

/// Directories whose counts are remembered. Beyond it all are forgotten, and those who knew one ask again.
const DIRECTORIES: usize = 1 << 16;

pub(crate) struct Changes {
    /// The last that was given. Never twice the same on one server, nor as those of another server or boot.
    last: u64,
    of: BTreeMap<Part, u64>,
    /// What prepared parts may change at any time.
    prepared: BTreeMap<(Slot, TxId), BTreeSet<Part>>,
    /// The same by directory: by how many.
    undecided: BTreeMap<Part, u32>,
}

impl Changes {
    pub fn new(server: ServerId, boot: BootEpoch) -> Changes {
        let seed = (u64::from(server.0) << 48) ^ boot.0;
        Changes {
            last: scattered(seed),
            of: BTreeMap::new(),
            prepared: BTreeMap::new(),
            undecided: BTreeMap::new(),
        }
    }

    fn next(&mut self) -> u64 {
        self.last = match self.last.wrapping_add(1) {
            UNCHANGED => UNCHANGED + 1,
            next => next,
        };
        self.last
    }

    fn set(&mut self, dir: Part, count: u64) {
        if self.of.len() >= DIRECTORIES && !self.of.contains_key(&dir) {
            self.of.clear();
        }
        self.of.insert(dir, count);
    }

    /// A directory's count, if it is remembered and may be told.
    fn known(&self, dir: Part) -> Option<u64> {
        let told = !self.undecided.contains_key(&dir) || plant!(H180);
        self.of.get(&dir).copied().filter(|_| told)
    }

    /// A directory's count: one that nobody knows yet, if it is not remembered.
    fn known_from_now_on(&mut self, dir: Part) -> Option<u64> {
        if !self.of.contains_key(&dir) {
            let count = self.next();
            self.set(dir, count);
        }
        self.known(dir)
    }

    /// Slots have come or gone: others have counted, or will.
    pub fn forget(&mut self) {
        if !plant!(H179) {
            self.of.clear();
        }
    }

    /// A batch was applied.
    pub fn count(&mut self, batch: &Batch) {
        for m in &batch.mutations {
            match m {
                Mutation::Touch { part, .. }
                | Mutation::Update {
                    key: Key::Touch(part),
                    ..
                } => {
                    let count = self.next();
                    self.set(*part, count);
                }
                Mutation::Insert {
                    key: Key::Head(part), ..
                } => self.set(*part, UNCHANGED),
                Mutation::Delete { key: Key::Head(part) } => {
                    self.of.remove(part);
                }
                Mutation::Insert {
                    key: Key::Prepared(slot, tx),
                    record: Record::Prepared(part),
                } => self.prepare(*slot, *tx, part),
                Mutation::Delete {
                    key: Key::Prepared(slot, tx),
                } => self.settle(*slot, *tx),
                _ => {}
            }
        }
    }

    /// It may be decided from now on.
    pub fn prepare(&mut self, slot: Slot, tx: TxId, part: &PreparedRecord) {
        let touched = part.mutations.iter().filter_map(|m| match m {
            Mutation::Touch { part, .. }
            | Mutation::Update {
                key: Key::Touch(part),
                ..
            } => Some(*part),
            _ => None,
        });
        let dirs: BTreeSet<Part> = touched.collect();
        self.settle(slot, tx);
        for dir in &dirs {
            *self.undecided.entry(*dir).or_default() += 1;
        }
        if !dirs.is_empty() {
            self.prepared.insert((slot, tx), dirs);
        }
    }

    /// It is carried out, or will not be. (Then it could have been told on; it happens seldom.)
    fn settle(&mut self, slot: Slot, tx: TxId) {
        for dir in self.prepared.remove(&(slot, tx)).unwrap_or_default() {
            if let Some(by) = self.undecided.get_mut(&dir) {
                *by -= 1;
                if *by == 0 {
                    self.undecided.remove(&dir);
                }
            }
            let count = self.next();
            self.set(dir, count);
        }
    }
}

/// SplitMix64's finalizer: starts of different boots are far from each other.
fn scattered(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl MetaServer {
    /// Whether all that changes a directory is at the server that has its names: where directories may be
    /// split a count of one part would be taken for the directory's (H307).
    fn counts(&self) -> bool {
        let placement = self.map().placement;
        placement.by_key() && (placement.division() == Division::Whole || plant!(H307))
    }

    /// The count of the directory in which an operation is about to change names.
    pub(crate) fn count_before_change(&self, asked: &Asked<'_>) -> Option<u64> {
        let dir = asked.op.changes_names_in().filter(|_| self.counts())?;
        self.facts.changes.borrow_mut().known_from_now_on(dir.into())
    }

    /// It has changed them.
    pub(crate) fn tell_change(&self, asked: &Asked<'_>, before: Option<u64>, time: Timestamp) {
        let (Some(dir), Some(before)) = (asked.op.changes_names_in(), before) else {
            return;
        };
        let after = self
            .facts
            .changes
            .borrow()
            .known(dir.into())
            .filter(|after| *after != before);
        let told = after.map(|after| ChangeInfo { before, after, time });
        asked.change.set(told);
    }

    /// The count of the directory that an operation is about to look at.
    pub(crate) fn count_before_look(&self, asked: &Asked<'_>) -> Option<u64> {
        let shown = asked.basis == Basis::Shown && self.counts();
        let dir = asked.op.looks_at().filter(|_| shown)?;
        let mut changes = self.facts.changes.borrow_mut();
        match asked.op.traits().counts {
            Counts::Content => changes.known_from_now_on(dir.into()),
            // What nobody knows does not become known by a look at one name.
            Counts::Name | Counts::Names | Counts::Nothing => changes.known(dir.into()),
        }
    }

    /// It has seen what there is, or that a name is not there. REQUIRES: nothing is waited for from here to
    /// when it takes effect.
    pub(crate) fn tell_look(&self, asked: &Asked<'_>, before: Option<u64>, seen: &Outcome, time: Timestamp) {
        let (Some(dir), Some(before)) = (asked.op.looks_at(), before) else {
            return;
        };
        let says = matches!(seen, Ok(Answer::DirStat(_)) | Err(Errno::NotFound));
        let same = self.facts.changes.borrow().known(dir.into()) == Some(before);
        let told = (says && same).then_some(ChangeInfo {
            before,
            after: before,
            time,
        });
        asked.change.set(told);
    }
}
