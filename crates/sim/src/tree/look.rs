//! Looking at the tree.

use super::{Broken, Place, Tree};
use pando_format::{Entry, Head, Key, NameHash, Record, Touch};
use pando_types::{DirId, DirStat, Name, Part, ServerId, TxId};
use pando_wire::Statement;
use std::collections::BTreeSet;

impl Tree {
    /// Whether the file is at the home that a statement shows.
    pub fn is_at_home(&self, home: &Statement) -> bool {
        self.homes
            .contains_key(&(Part::whole(home.id).slot(), home.ino, home.generation))
    }

    /// The way up from `dir` ends at the root.
    pub(super) fn check_path(&self, dir: DirId) -> Result<(), Broken> {
        let mut at = dir;
        let mut seen = BTreeSet::new();
        while at != DirId::ROOT {
            if !seen.insert(at) {
                return Err(format!("a loop: {dir:?} is its own ancestor, by {seen:?}"));
            }
            match self.head(at) {
                Some(head) => at = head.parent,
                None if at == dir => return Ok(()),
                None => {
                    return Err(format!(
                        "{dir:?} is not connected to the root: {at:?} does not exist"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Live directories.
    pub fn directories(&self) -> usize {
        self.names.len()
    }

    /// A directory's head.
    pub fn head(&self, dir: DirId) -> Option<&Head> {
        match self.records.get(&Key::Head(dir.into())) {
            Some(Record::Head(h)) => Some(h),
            _ => None,
        }
    }

    /// Counts and times of a directory.
    pub fn stat(&self, dir: DirId) -> Option<DirStat> {
        self.touch(dir)?;
        Some(self.joined(dir))
    }

    /// The touch of its part 0.
    pub fn touch(&self, dir: DirId) -> Option<&Touch> {
        match self.records.get(&Key::Touch(dir.into())) {
            Some(Record::Touch(t)) => Some(t),
            _ => None,
        }
    }

    /// The entries of a directory.
    pub fn entries_of(&self, dir: DirId) -> impl Iterator<Item = (&Key, &Record)> {
        let of = move |key: &Key| matches!(key, Key::Entry { part, .. } if part.dir == dir);
        let part = Part::whole(dir);
        let first = Name::new(b"\x01").map(|name| Key::Entry {
            part,
            hash: NameHash(0),
            name,
        });
        let from = first.unwrap_or(Key::Head(part));
        self.records.range(from..).take_while(move |(key, _)| of(key))
    }

    /// An entry.
    pub fn entry(&self, place: &Place) -> Option<&Entry> {
        let (dir, hash, name) = place;
        match self.records.get(&Key::Entry {
            part: match dir.is_homes() {
                true => (*dir).into(),
                false => self.part_with(*dir, hash.upper()),
            },
            hash: *hash,
            name: name.clone(),
        }) {
            Some(Record::Entry(e)) => Some(e),
            _ => None,
        }
    }

    /// A record of the tree.
    pub fn get(&self, key: &Key) -> Option<&Record> {
        self.records.get(key)
    }

    /// All records of the tree, in key order.
    pub fn records(&self) -> impl Iterator<Item = (&Key, &Record)> {
        self.records.iter()
    }

    /// Transactions that are known to be committed and confirmed.
    pub fn finished(&self) -> &BTreeSet<TxId> {
        &self.finished
    }

    /// Transactions that are prepared somewhere, and decisions not yet forgotten.
    pub fn in_flight(&self, left: impl Fn(ServerId) -> bool) -> (usize, usize) {
        let decided = self.decided.values().filter(|server| !left(**server)).count();
        let owed = self.owed.keys().filter(|tx| !left(tx.coordinator)).count();
        (self.parts.len(), decided + owed)
    }
}
