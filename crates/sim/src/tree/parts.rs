//! Directories that are split: which records count, and whether their parts tile the hash space.
//!
//! A record whose part is not there, or does not have its hash, is set aside: it is on its way to a part that
//! is copied, or was given away and is to be deleted. A note must say so.

use super::{Broken, Dirty, Tree};
use pando_format::{Key, PartNote, Record, Touch};
use pando_types::{DirId, DirStat, Division, FileKind, Part, Tile, Tiling, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// The part of an entry or an attachment.
fn part_of(key: &Key) -> Option<Part> {
    match key {
        Key::Entry { part, .. } | Key::Attachment { part, .. } if !part.dir.is_homes() => Some(*part),
        _ => None,
    }
}

impl Tree {
    /// An entry of a part comes.
    pub(super) fn count_more(&mut self, part: Part, kind: FileKind) {
        let part = self.counted_in(part);
        let (entries, subdirs) = self.counts.entry(part).or_default();
        *entries += 1;
        *subdirs += u64::from(kind == FileKind::Directory);
    }

    /// An entry of a part goes.
    pub(super) fn count_less(&mut self, part: Part, kind: FileKind) {
        let part = self.counted_in(part);
        if let Some((entries, subdirs)) = self.counts.get_mut(&part) {
            *entries -= 1;
            *subdirs -= u64::from(kind == FileKind::Directory);
            if *entries == 0 {
                self.counts.remove(&part);
            }
        }
    }

    /// The part whose touch counts the entries of this one.
    fn counted_in(&self, part: Part) -> Part {
        match self.division {
            Division::OneByOne => Part::whole(part.dir),
            Division::Whole | Division::Halves => part,
        }
    }

    /// The head of another part than 0 goes.
    pub(super) fn dies(&mut self, part: Part) {
        if let Some(live) = self.live.get_mut(&part.dir) {
            live.remove(&part.start());
            if live.is_empty() {
                self.live.remove(&part.dir);
            }
        }
    }

    /// The hashes that a part has, if it is there.
    pub fn tile(&self, part: Part) -> Option<Tile> {
        let head = self.records.get(&Key::Head(part))?.part_head(part)?;
        Some(head.tile)
    }

    /// Whether a record counts.
    pub(super) fn counts(&self, key: &Key) -> bool {
        let (Some(part), Key::Entry { hash, .. } | Key::Attachment { hash, .. }) = (part_of(key), key) else {
            return true;
        };
        if self.division == Division::OneByOne {
            return part == self.division.part(part.dir, hash.upper());
        }
        match self.tile(part) {
            Some(tile) => tile.has(hash.upper()),
            // A directory without a head is found out.
            None => part.start() == 0,
        }
    }

    /// The part of a directory that has a hash.
    pub fn part_with(&self, dir: DirId, upper: u16) -> Part {
        if self.division == Division::OneByOne {
            return self.division.part(dir, upper);
        }
        let mut at = Tile::WHOLE;
        while let (Some(half), Some(kept)) = (at.half(), at.kept()) {
            let given = Part::new(dir, half.start).is_some_and(|p| self.records.contains_key(&Key::Head(p)));
            if !given {
                break;
            }
            at = if half.has(upper) { half } else { kept };
        }
        Part::new(dir, at.start).unwrap_or(Part::whole(dir))
    }

    /// A part has become there, deeper, or has gone.
    pub(super) fn resettle(&mut self, part: Part, dirty: &mut Dirty) {
        let of_part = |key: &&Key| part_of(key) == Some(part);
        let out: Vec<Key> = self
            .records
            .keys()
            .filter(of_part)
            .filter(|key| !self.counts(key))
            .cloned()
            .collect();
        let back: Vec<Key> = self
            .aside
            .keys()
            .filter(of_part)
            .filter(|key| self.counts(key))
            .cloned()
            .collect();
        for key in out {
            if let Some(record) = self.records.get(&key).cloned() {
                self.take(&key, dirty);
                self.aside.insert(key, record);
            }
        }
        for key in back {
            if let Some(record) = self.aside.remove(&key) {
                self.put(key, record, dirty);
            }
        }
        dirty.dirs.insert(part.dir);
    }

    /// Counts and times of a directory: sums, and the latest of each time. A modification time that was set
    /// is that of all parts that nothing has changed in since (H306).
    pub(super) fn joined(&self, dir: DirId) -> DirStat {
        let parts = self.live_parts(dir).into_iter();
        let touches: Vec<Touch> = parts
            .filter_map(|part| match self.records.get(&Key::Touch(part)) {
                Some(Record::Touch(touch)) => Some(*touch),
                _ => None,
            })
            .collect();
        let changed: Vec<Touch> = touches.iter().filter(|t| !t.explicit).copied().collect();
        let dated = if changed.is_empty() { &touches } else { &changed };
        let latest = |of: &[Touch], time: fn(&DirStat) -> Timestamp| {
            of.iter().map(|t| time(&t.stat)).max().unwrap_or_default()
        };
        DirStat {
            entries: touches.iter().map(|t| t.stat.entries).sum(),
            subdirs: touches.iter().map(|t| t.stat.subdirs).sum(),
            atime: latest(&touches, |s| s.atime),
            mtime: latest(dated, |s| s.mtime),
            ctime: latest(&touches, |s| s.ctime),
        }
    }

    /// The parts of a directory that have heads.
    fn live_parts(&self, dir: DirId) -> Vec<Part> {
        let starts = self.live.get(&dir).into_iter().flatten();
        let others = starts.filter_map(|start| Part::new(dir, *start));
        std::iter::once(Part::whole(dir)).chain(others).collect()
    }

    /// The parts of a directory tile the hash space, are those of its list, and count what they have; what is
    /// set aside is noted (H302, H305).
    pub(super) fn check_parts(&self, dir: DirId) -> Result<(), Broken> {
        let listed: Vec<u16> = match self.records.get(&Key::Parts(dir)) {
            Some(Record::Parts(parts)) => parts.starts.clone(),
            _ => Vec::new(),
        };
        let live: Vec<u16> = self.live.get(&dir).into_iter().flatten().copied().collect();
        if listed != live {
            return Err(format!(
                "{dir:?} has the parts {live:?}, and {listed:?} in its list"
            ));
        }
        let Some(tiling) = Tiling::of(listed) else {
            return Err(format!(
                "the parts {live:?} of {dir:?} do not tile the hash space"
            ));
        };
        let Some(head) = self.head(dir) else {
            return match live.is_empty() {
                true => self.check_aside(dir),
                false => Err(format!("{dir:?} has parts and no head")),
            };
        };
        for tile in tiling.tiles() {
            let Some(part) = Part::new(dir, tile.start) else {
                return Err(format!("{dir:?} has a part beyond its hash space"));
            };
            if self.tile(part) != Some(tile) {
                return Err(format!("{part} has {:?}, not {tile:?}", self.tile(part)));
            }
            if let Some(Record::Part(p)) = self.records.get(&Key::Head(part))
                && (p.generation, p.salt) != (head.generation, head.salt)
            {
                return Err(format!("{part} is of another directory than its head: {p:?}"));
            }
            let Some(Record::Touch(touch)) = self.records.get(&Key::Touch(part)) else {
                return Err(format!("{part} has a head and no touch"));
            };
            let count = self.counts.get(&part).copied().unwrap_or_default();
            if (touch.stat.entries, touch.stat.subdirs) != count {
                return Err(format!(
                    "{part} counts {} entries and {} subdirectories, but has {} and {}",
                    touch.stat.entries, touch.stat.subdirs, count.0, count.1
                ));
            }
        }
        self.check_aside(dir)
    }

    fn check_aside(&self, dir: DirId) -> Result<(), Broken> {
        let parts: BTreeSet<Part> = self.aside.keys().filter_map(part_of).collect();
        for part in parts.into_iter().filter(|part| part.dir == dir) {
            let note = match self.records.get(&Key::PartNote(part)) {
                Some(Record::PartNote(note)) => Some(note),
                _ => None,
            };
            let noted = match (self.tile(part), note) {
                (Some(_), Some(PartNote::Debris)) | (None, Some(PartNote::Coming(_))) => true,
                (_, Some(PartNote::Debris | PartNote::Coming(_)) | None) => false,
            };
            if !noted {
                return Err(format!(
                    "{part} has left something behind, which its note ({note:?}) does not say"
                ));
            }
        }
        Ok(())
    }

    /// Notes about parts.
    pub fn part_notes(&self) -> usize {
        self.records
            .keys()
            .filter(|k| matches!(k, Key::PartNote(_)))
            .count()
    }

    /// All records that are set aside.
    pub(super) fn aside(&self) -> &BTreeMap<Key, Record> {
        &self.aside
    }
}
