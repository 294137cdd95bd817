//! Parts of directories: what of a directory's entries one slot has.
//!
//! The hash space of a directory is laid on the ring of all slots, beginning at the directory's first one. A
//! part is named by where in the hash space it begins, in 1/4096 of it; so its slot follows from its name. A
//! directory that is not split is its part 0.

use crate::{DirId, SLOTS, Slot};
use std::fmt;

/// A part of a directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Part {
    /// The directory.
    pub dir: DirId,
    /// Upper 12 bits of the first hash that it may have. Less than [`SLOTS`].
    start: u16,
}

impl Part {
    /// Part 0: a directory that is not split.
    pub const fn whole(dir: DirId) -> Part {
        Part { dir, start: 0 }
    }

    /// The part of a directory that a slot has, which must be one of the ring's.
    pub fn at(dir: DirId, slot: Slot) -> Option<Part> {
        (slot.0 < SLOTS).then(|| Part {
            dir,
            start: (slot.0 + SLOTS - dir.first_slot().0) % SLOTS,
        })
    }

    /// The part that begins at these upper 12 bits of a hash. `None`: there are no such.
    pub const fn new(dir: DirId, start: u16) -> Option<Part> {
        if start < SLOTS {
            Some(Part { dir, start })
        } else {
            None
        }
    }

    /// Upper 12 bits of the first hash that it may have.
    pub const fn start(self) -> u16 {
        self.start
    }

    /// The slot of its records.
    pub fn slot(self) -> Slot {
        Slot((self.dir.first_slot().0 + self.start) % SLOTS)
    }
}

impl From<DirId> for Part {
    fn from(dir: DirId) -> Part {
        Part::whole(dir)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.start {
            0 => write!(f, "{}", self.dir),
            start => write!(f, "{} (part {start})", self.dir),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_one_part_of_a_directory() {
        for dir in [DirId::ROOT, DirId(0xfedc << 64 | 7), DirId::homes(Slot(4095))] {
            assert_eq!(Part::at(dir, dir.first_slot()), Some(Part::whole(dir)));
            let mut starts: Vec<u16> = (0..SLOTS)
                .filter_map(|n| {
                    let part = Part::at(dir, Slot(n))?;
                    assert_eq!(part.slot(), Slot(n));
                    Some(part.start())
                })
                .collect();
            starts.sort_unstable();
            assert!(starts.into_iter().eq(0..SLOTS));
            assert_eq!(Part::at(dir, Slot(SLOTS)), None);
        }
    }
}
