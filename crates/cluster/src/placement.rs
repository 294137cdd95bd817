//! Where the entries of a directory are, and its counts and times.

use pando_format::codec::{DecodeError, Reader};
use pando_format::{Codec, codec_enum};
use pando_types::{Ids, Part, SLOTS, Slot};

/// Which slot has what of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// All of a directory is in one slot (InfiniFS §3.2, "decoupled").
    Directory,
    /// Its counts and times are on another server, as if they were part of something else. An experiment.
    Coupled,
}

codec_enum!(Placement { 1 => Directory, 0 => Coupled });

/// This bit of a placement's byte says that IDs are placed: maps from before there was a choice mean what
/// they meant.
const PLACED: u8 = 0x80;

/// Writes both, in one byte.
pub(crate) fn put_placing(placement: Placement, ids: Ids, out: &mut Vec<u8>) {
    let at = out.len();
    placement.put(out);
    if let (Ids::Placed, Some(tag)) = (ids, out.get_mut(at)) {
        *tag |= PLACED;
    }
}

/// Reads both.
pub(crate) fn take_placing(r: &mut Reader<'_>) -> Result<(Placement, Ids), DecodeError> {
    let tag = u8::take(r)?;
    let ids = match tag & PLACED {
        0 => Ids::Predicted,
        _ => Ids::Placed,
    };
    Ok((Placement::from_bytes(&[tag & !PLACED])?, ids))
}

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

    /// Whether a key's slot alone says which server has its record. If not, slots cannot move, and the count
    /// of changes of a directory is not known where its names are.
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
    fn ids_are_in_the_byte_of_the_placement() {
        for (placement, _) in WORDS {
            let mut bytes = Vec::new();
            put_placing(placement, Ids::Predicted, &mut bytes);
            assert_eq!(bytes, placement.to_bytes());
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
