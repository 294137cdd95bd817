//! In which parts of split directories names are: hints.
//!
//! Empty at first, and never trusted by a server. A server that does not have a name says so, and how often
//! its part was halved; so each answer brings the client nearer, and after at most 12 it asks the right one
//! (H64).

use pando_format::NameHash;
use pando_types::{DirId, Division, Generation, Name, Part, Tile, Tiling};
use pando_wire::{Op, Statement};
use std::collections::{BTreeMap, BTreeSet};

/// Split directories that are remembered.
const DIRECTORIES: usize = 4096;

/// A directory, and which of those that had its ID.
type Incarnation = (DirId, Generation);

/// What is known of split directories. The one that was used longest ago goes first.
#[derive(Default)]
pub(crate) struct Parts {
    clock: u64,
    known: BTreeMap<Incarnation, (u64, Tiling)>,
    order: BTreeSet<(u64, Incarnation)>,
}

impl Parts {
    /// The part that has a name whose hash has these upper 12 bits, as far as is known.
    pub fn find(&mut self, dir: Incarnation, upper: u16) -> u16 {
        let Some((used, tiling)) = self.known.get_mut(&dir) else {
            return 0;
        };
        let start = tiling.find(upper).start;
        self.order.remove(&(*used, dir));
        self.clock += 1;
        *used = self.clock;
        self.order.insert((self.clock, dir));
        start
    }

    /// A server says what a part has; or that it is not there, so that all that was known is wrong.
    pub fn learn(&mut self, dir: Incarnation, start: u16, depth: Option<u8>) {
        let Some(depth) = depth else {
            if let Some((used, _)) = self.known.remove(&dir) {
                self.order.remove(&(used, dir));
            }
            return;
        };
        self.clock += 1;
        let at = self.clock;
        let (used, tiling) = self.known.entry(dir).or_insert_with(|| (at, Tiling::default()));
        tiling.learn(Tile { start, depth });
        self.order.remove(&(*used, dir));
        *used = at;
        self.order.insert((at, dir));
        if self.known.len() > DIRECTORIES
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.known.remove(&oldest);
        }
    }

    /// How many directories are known to be split.
    #[cfg(test)]
    fn len(&self) -> usize {
        assert_eq!(self.known.len(), self.order.len());
        self.known.len()
    }
}

impl crate::Client {
    /// In which parts the names of an operation are taken to be.
    pub(crate) fn parts_of(&self, op: &Op) -> [u16; 2] {
        let map = self.map();
        match map.placement.division() {
            Division::Whole => return [0, 0],
            Division::OneByOne => return op.parts_by_hash(map.widths()),
            Division::Halves => {}
        }
        let mut parts = self.parts.borrow_mut();
        let mut find = |dir: Option<&Statement>, hash: Option<NameHash>| match (dir, hash) {
            (Some(dir), Some(hash)) => parts.find((dir.id, dir.generation), hash.upper()),
            _ => 0,
        };
        let ([first, second], [one, other]) = (op.statements(), op.hashes(map.widths()));
        [find(first, one), find(second, other)]
    }

    /// Whether a directory may be in parts that are not known here, or not any more.
    pub(crate) fn may_be_divided(&self, dir: &Statement) -> bool {
        match self.map().placement.division() {
            Division::Whole | Division::OneByOne => false,
            Division::Halves => {
                let known = &self.parts.borrow().known;
                !dir.id.is_homes() && !known.contains_key(&(dir.id, dir.generation))
            }
        }
    }

    /// In which part of its directory a name is taken to be: a hint.
    pub fn part_with(&self, dir: &Statement, name: &Name) -> Part {
        Part::new(dir.id, self.part_of(dir, name)).unwrap_or(Part::whole(dir.id))
    }

    /// In which part a name is taken to be.
    pub(crate) fn part_of(&self, dir: &Statement, name: &Name) -> u16 {
        let map = self.map();
        if dir.id.is_homes() {
            return 0;
        }
        let upper = || map.widths().name(dir.salt, name).upper();
        match map.placement.division() {
            Division::Whole => 0,
            Division::OneByOne => Division::OneByOne.part(dir.id, upper()).start(),
            Division::Halves => self.parts.borrow_mut().find((dir.id, dir.generation), upper()),
        }
    }

    /// Names of a directory with the same number can be removed together: they are in one part, or where
    /// entries are placed one by one on one server.
    pub(crate) fn group_of(&self, dir: &Statement, name: &Name) -> u16 {
        let map = self.map();
        match map.placement.division() {
            Division::Whole | Division::Halves => self.part_of(dir, name),
            Division::OneByOne => map.owner(self.part_with(dir, name).slot()).0,
        }
    }

    /// Forgets in which parts names are: servers say it again.
    pub fn forget_parts(&self) {
        *self.parts.borrow_mut() = Parts::default();
    }

    /// A server does not have a name of an operation.
    pub(crate) fn not_in_part(&self, op: &Op, second: bool, start: u16, depth: Option<u8>) {
        let subjects = op.subjects();
        if let Some(subject) = subjects[usize::from(second)] {
            let dir = subject.dir();
            let dir = (dir.id, dir.generation);
            self.parts.borrow_mut().learn(dir, start, depth);
            self.count(|s| s.redirects += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(n: u128) -> Incarnation {
        (DirId(n << 64 | 9), Generation(1))
    }

    #[test]
    fn hints_lead_to_a_part_and_are_forgotten_when_they_are_wrong() {
        let mut parts = Parts::default();
        assert_eq!(parts.find(dir(1), 4000), 0);
        parts.learn(dir(1), 0, Some(1));
        assert_eq!((parts.find(dir(1), 4000), parts.find(dir(1), 5)), (2048, 0));
        parts.learn(dir(1), 2048, Some(2));
        assert_eq!((parts.find(dir(1), 4000), parts.find(dir(1), 2050)), (3072, 2048));
        assert_eq!(parts.find(dir(2), 4000), 0);
        parts.learn(dir(1), 3072, None);
        assert_eq!((parts.find(dir(1), 4000), parts.len()), (0, 0));
    }

    #[test]
    fn the_directory_that_was_used_longest_ago_goes_first() {
        let mut parts = Parts::default();
        for n in 0..=DIRECTORIES as u128 {
            parts.learn(dir(n), 0, Some(1));
            parts.find(dir(0), 1);
        }
        assert_eq!(parts.len(), DIRECTORIES);
        assert_eq!((parts.find(dir(0), 4000), parts.find(dir(1), 4000)), (2048, 0));
    }
}
