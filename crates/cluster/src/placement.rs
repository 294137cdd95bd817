//! Where the entries of a directory are, and its counts and times.

use pando_format::Codec;
use pando_format::codec::{DecodeError, Reader};
use pando_types::{Division, Ids, Part, SLOTS, Slot};

/// Which slot has what of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// All of a directory is in one slot (InfiniFS §3.2, "decoupled").
    Directory,
    /// Its counts and times are on another server, as if they were part of something else. An experiment.
    Coupled,
    /// A directory is in one slot until it has so many entries. Then it is split, and split again, over slots
    /// of all servers (IndexFS §II-A).
    Split(u32),
    /// Each entry of a directory is in a slot that its name's hash says (AsyncFS §3.3).
    Entry,
}

/// This bit of a placement's byte says that IDs are placed: maps from before there was a choice mean what
/// they meant.
const PLACED: u8 = 0x80;

/// Writes both, in one byte, and how large a directory is that is split.
pub(crate) fn put_placing(placement: Placement, ids: Ids, out: &mut Vec<u8>) {
    let placed = match ids {
        Ids::Predicted => 0,
        Ids::Placed => PLACED,
    };
    match placement {
        Placement::Coupled => out.push(placed),
        Placement::Directory => out.push(1 | placed),
        Placement::Split(entries) => {
            out.push(2 | placed);
            entries.put(out);
        }
        Placement::Entry => out.push(3 | placed),
    }
}

/// Reads both.
pub(crate) fn take_placing(r: &mut Reader<'_>) -> Result<(Placement, Ids), DecodeError> {
    let tag = u8::take(r)?;
    let ids = match tag & PLACED {
        0 => Ids::Predicted,
        _ => Ids::Placed,
    };
    let placement = match tag & !PLACED {
        0 => Placement::Coupled,
        1 => Placement::Directory,
        2 => Placement::Split(u32::take(r)?),
        3 => Placement::Entry,
        tag => return Err(DecodeError::Tag { of: "Placement", tag }),
    };
    Ok((placement, ids))
}

const DIRECTORY: &str = "per-directory";
const COUPLED: &str = "per-directory-without-decoupling";
const ENTRY: &str = "per-entry";
/// Before the number of entries.
const SPLIT: &str = "per-directory-split=";

/// Of which sizes directories may be split.
pub const SPLIT_ENTRIES: std::ops::RangeInclusive<u32> = 2..=1_000_000_000;

impl Placement {
    /// The placement of a word, if there is one.
    pub fn of_word(word: &str) -> Option<Placement> {
        if let Some(entries) = word.strip_prefix(SPLIT) {
            let entries = entries.parse().ok().filter(|n| SPLIT_ENTRIES.contains(n))?;
            return Some(Placement::Split(entries));
        }
        match word {
            DIRECTORY => Some(Placement::Directory),
            COUPLED => Some(Placement::Coupled),
            ENTRY => Some(Placement::Entry),
            _ => None,
        }
    }

    /// All words, for a message.
    pub fn words() -> String {
        format!("{DIRECTORY}, {COUPLED}, {SPLIT}ENTRIES, {ENTRY}")
    }

    /// The word in `cluster.json`.
    pub fn word(self) -> String {
        match self {
            Placement::Directory => DIRECTORY.into(),
            Placement::Coupled => COUPLED.into(),
            Placement::Split(entries) => format!("{SPLIT}{entries}"),
            Placement::Entry => ENTRY.into(),
        }
    }

    /// How the entries of directories are divided over slots.
    pub fn division(self) -> Division {
        match self {
            Placement::Directory | Placement::Coupled => Division::Whole,
            Placement::Split(_) => Division::Halves,
            Placement::Entry => Division::OneByOne,
        }
    }

    /// Whether directories may be split.
    pub fn splits(self) -> bool {
        self.division() == Division::Halves
    }

    /// The slot whose server has the counts and times of a part.
    pub fn touch_slot(self, part: Part) -> Slot {
        match self {
            Placement::Directory | Placement::Split(_) | Placement::Entry => part.slot(),
            // Half of all slots further on: with more than one server never the same one.
            Placement::Coupled => Slot(part.slot().0 ^ (SLOTS / 2)),
        }
    }

    /// Whether a key's slot alone says which server has its record. If not, slots cannot move, and the count
    /// of changes of a directory is not known where its names are.
    pub fn by_key(self) -> bool {
        match self {
            Placement::Directory | Placement::Split(_) | Placement::Entry => true,
            Placement::Coupled => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::DirId;

    const ALL: [Placement; 4] = [
        Placement::Directory,
        Placement::Coupled,
        Placement::Split(2_000),
        Placement::Entry,
    ];

    #[test]
    fn every_placement_has_a_word_of_its_own() {
        for placement in ALL {
            assert_eq!(Placement::of_word(&placement.word()), Some(placement));
        }
        assert_eq!(Placement::Split(2_000).word(), "per-directory-split=2000");
        for word in [
            "per-file",
            "per-directory-split=",
            "per-directory-split=1",
            "per-directory-split=-5",
        ] {
            assert_eq!(Placement::of_word(word), None, "{word}");
        }
    }

    #[test]
    fn ids_are_in_the_byte_of_the_placement() {
        for placement in ALL {
            let mut bytes = Vec::new();
            put_placing(placement, Ids::Predicted, &mut bytes);
            put_placing(placement, Ids::Placed, &mut bytes);
            let mut r = Reader::new(&bytes);
            assert_eq!(take_placing(&mut r), Ok((placement, Ids::Predicted)));
            assert_eq!(take_placing(&mut r), Ok((placement, Ids::Placed)));
            assert_eq!(r.finish(), Ok(()));
        }
    }

    #[test]
    fn counts_are_in_another_slot_if_they_are_coupled() {
        let root = Part::whole(DirId::ROOT);
        assert_eq!(Placement::Directory.touch_slot(root), root.slot());
        assert_ne!(Placement::Coupled.touch_slot(root), root.slot());
        assert!(Placement::Coupled.touch_slot(root).0 < SLOTS);
    }
}
