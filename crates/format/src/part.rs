//! Records of directories that are split (IndexFS §3.2, GIGA+).

use crate::{Record, codec_enum, codec_struct};
use pando_types::{Generation, Part, Tile, TxId};

/// The head of a part, as far as operations inside it need it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartHead {
    /// Incarnation of the directory.
    pub generation: Generation,
    /// Salt of the name hash.
    pub salt: u64,
    /// The hashes that the part has. What stands under it with others was given away, and counts no more.
    pub tile: Tile,
    /// Whether somebody may have localised the directory (H319).
    pub localised: bool,
}

impl Record {
    /// The same as a head of this part. `None`: it is none.
    pub fn part_head(&self, part: Part) -> Option<PartHead> {
        let start = part.start();
        match self {
            Record::Head(head) => Some(PartHead {
                generation: head.generation,
                salt: head.salt,
                tile: Tile {
                    start,
                    depth: head.depth(),
                },
                localised: head.is_localised(),
            }),
            Record::Part(head) => Some(PartHead {
                generation: head.generation,
                salt: head.salt,
                tile: Tile {
                    start,
                    depth: head.depth,
                },
                localised: false,
            }),
            _ => None,
        }
    }
}

/// Content head of another part than 0: what every operation inside it must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartRecord {
    /// Incarnation of the directory (H1).
    pub generation: Generation,
    /// Salt of the name hash.
    pub salt: u64,
    /// How often it was halved: 1 to 12.
    pub depth: u8,
}

/// The starts of all live parts but 0, ascending. There is none while a directory is whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartsRecord {
    /// Upper 12 bits of the first hash of each.
    pub starts: Vec<u16>,
}

/// What is to be done about a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartNote {
    /// It is being copied here, and is not there yet: no head stands before the decision (H305).
    Coming(TxId),
    /// What it gave away is not deleted yet (H302).
    Debris,
}

codec_struct!(PartRecord {
    generation,
    salt,
    depth
});
codec_struct!(PartsRecord { starts });
codec_enum!(PartNote { 1 => Coming(tx), 2 => Debris });
