//! Where the entries of a directory are, and its counts and times.

use pando_format::codec_enum;
use pando_types::{Part, SLOTS, Slot};

/// Which slot has what of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// All of a directory is in one slot (InfiniFS §3.2, "decoupled").
    Directory,
    /// Its counts and times are on another server, as if they were part of something else. An experiment.
    Coupled,
}

codec_enum!(Placement { 1 => Directory, 0 => Coupled });

/// All placements with their words in `cluster.json`.
const WORDS: [(Placement, &str); 2] = [
    (Placement::Directory, "per-directory"),
    (Placement::Coupled, "per-directory-without-decoupling"),
];

impl Placement {
    /// The placement of a word, if there is one.
    pub fn of_word(word: &str) -> Option<Placement> {
        let found = WORDS.iter().find(|(_, w)| *w == word);
        found.map(|(placement, _)| *placement)
    }

    /// All words, for a message.
    pub fn words() -> String {
        WORDS.map(|(_, word)| word).join(", ")
    }

    /// The word in `cluster.json`.
    pub fn word(self) -> &'static str {
        let found = WORDS.iter().find(|(placement, _)| *placement == self);
        found.map_or("", |(_, word)| word)
    }

    /// The slot whose server has the counts and times of a part.
    pub fn touch_slot(self, part: Part) -> Slot {
        match self {
            Placement::Directory => part.slot(),
            // Half of all slots further on: with more than one server never the same one.
            Placement::Coupled => Slot(part.slot().0 ^ (SLOTS / 2)),
        }
    }

    /// Whether a key's slot alone says which server has its record. If not, slots cannot move, and the count of changes of a directory
    /// is not known where its names are.
    pub fn by_key(self) -> bool {
        match self {
            Placement::Directory => true,
            Placement::Coupled => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::DirId;

    #[test]
    fn every_placement_has_a_word_of_its_own() {
        for (placement, word) in WORDS {
            assert_eq!(
                (placement.word(), Placement::of_word(word)),
                (word, Some(placement))
            );
        }
        assert_eq!(Placement::of_word("per-file"), None);
    }

    #[test]
    fn counts_are_in_another_slot_if_they_are_coupled() {
        let root = Part::whole(DirId::ROOT);
        assert_eq!(Placement::Directory.touch_slot(root), root.slot());
        assert_ne!(Placement::Coupled.touch_slot(root), root.slot());
        assert!(Placement::Coupled.touch_slot(root).0 < SLOTS);
    }
}
