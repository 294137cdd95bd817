//! How the entries of a directory are divided over slots.

use crate::{DirId, Part};

/// How the entries of a directory are divided over slots.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Division {
    /// All of a directory is in one slot.
    #[default]
    Whole,
    /// A directory is whole at first; then parts are halved while it grows (IndexFS §II-A). Which part has a
    /// name, records say.
    Halves,
    /// Each entry is in the slot that its hash says; list, counts and times are in the directory's (AsyncFS
    /// §3.3).
    OneByOne,
}

impl Division {
    /// Whether the slot of a directory has a list of its names, apart from their entries.
    pub fn has_list(self, dir: DirId) -> bool {
        match self {
            Division::OneByOne => !dir.is_homes() && dir != DirId::ABOVE_ROOT,
            Division::Whole | Division::Halves => false,
        }
    }

    /// The part that has a name whose hash has these upper 12 bits, where nothing but the hash decides that.
    pub fn part(self, dir: DirId, upper: u16) -> Part {
        match self.has_list(dir) {
            true => Part::new(dir, upper).unwrap_or(Part::whole(dir)),
            false => Part::whole(dir),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Slot;

    #[test]
    fn only_ordinary_directories_are_divided() {
        let dir = DirId(7 << 64 | 9);
        assert_eq!(Division::OneByOne.part(dir, 4000).start(), 4000);
        assert_eq!(Division::Halves.part(dir, 4000), Part::whole(dir));
        assert_eq!(Division::Whole.part(dir, 4000), Part::whole(dir));
        for other in [DirId::ABOVE_ROOT, DirId::homes(Slot(3))] {
            assert_eq!(Division::OneByOne.part(other, 4000), Part::whole(other));
        }
    }
}
