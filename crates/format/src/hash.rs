//! Name positions: where an entry stands in its directory's order, for keys and readdir cookies (H64–H68).

use pando_types::{Birth, DirId, Name};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// 55 bits of keyed hash of a name: the bucket an entry falls into.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NameHash(pub u64);

/// A readdir cookie: 55 bits of bucket above an 8-bit ordinal, fixed for the entry's life. 0 is the start, 1
/// is `.`, 2 is `..`, the maximum is the end; no entry ever stands there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position(pub u64);

impl NameHash {
    /// Bits that say which part of a split directory has the bucket.
    const UPPER: u32 = 12;

    /// The upper 12 bits: which 4,096th of the hash space this is in.
    pub const fn upper(self) -> u16 {
        (self.0 >> (55 - Self::UPPER)) as u16
    }

    /// The first bucket with these upper 12 bits.
    pub const fn first_of(upper: u16) -> NameHash {
        NameHash((upper as u64) << (55 - Self::UPPER))
    }

    /// The last bucket of so many 4,096ths from `upper` on. REQUIRES: there are so many, and one at least.
    pub const fn last_of(upper: u16, width: u16) -> NameHash {
        NameHash(((upper as u64 + width as u64) << (55 - Self::UPPER)) - 1)
    }

    /// The largest bucket.
    pub const MAX: NameHash = NameHash((1 << 55) - 1);
}

impl Position {
    /// Before every entry.
    pub const START: Position = Position(0);
    /// The cookie after `.`.
    pub const DOT: Position = Position(1);
    /// The cookie after `..`; every entry is greater.
    pub const DOT_DOT: Position = Position(2);
    /// After every entry.
    pub const END: Position = Position((1 << 63) - 1);

    /// Of an entry with this ordinal within its bucket.
    pub fn new(hash: NameHash, ordinal: u8) -> Position {
        Position((hash.0 << 8) | u64::from(ordinal))
    }

    /// The last one in a bucket.
    pub fn last_of(hash: NameHash) -> Position {
        Position::new(hash, u8::MAX)
    }

    /// The one that comes next; of the last one itself.
    pub fn next(self) -> Position {
        Position((self.0 + 1).min(Position::END.0))
    }

    /// The bucket.
    pub fn bucket(self) -> NameHash {
        NameHash((self.0 >> 8) & NameHash::MAX.0)
    }

    /// Whether an entry may stand here.
    pub fn is_entry(self) -> bool {
        self > Position::DOT_DOT && self < Position::END
    }
}

/// How many bits of the hashes a filesystem uses. Full in production; tests shorten them so that collisions
/// are common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashWidths {
    /// Bits of name hash, 1–55.
    pub name_bits: u8,
    /// Bits of directory ID, 8–128.
    pub id_bits: u8,
}

impl HashWidths {
    /// What production uses.
    pub const FULL: HashWidths = HashWidths {
        name_bits: 55,
        id_bits: 128,
    };

    /// The bucket of `name` in a directory with this salt. Keyed, so that nobody can aim at one bucket (H68).
    pub fn name(self, salt: u64, name: &Name) -> NameHash {
        let mut h = SipHasher24::new_with_keys(salt, 0x7061_6e64_6f5f_6e61);
        h.write(name.as_bytes());
        // Shortened hashes keep the high bits, so that buckets are spread over the whole position space.
        let h55 = h.finish() >> 9;
        let drop = 55 - u32::from(self.name_bits.clamp(1, 55));
        NameHash((h55 >> drop) << drop)
    }

    /// The ID of a directory born as `birth` (InfiniFS §3.3.1): predictable by whoever knows the triple.
    pub fn dir_id(self, birth: &Birth) -> DirId {
        let mut h = blake3::Hasher::new_derive_key("pando directory id v1");
        h.update(&birth.parent.0.to_le_bytes());
        h.update(&birth.version.to_le_bytes());
        h.update(birth.name.as_bytes());
        let mut b = [0; 16];
        b.copy_from_slice(&h.finalize().as_bytes()[..16]);
        let id = u128::from_le_bytes(b) >> (128 - u32::from(self.id_bits.clamp(8, 128)));
        // 0 and 1 are fixed IDs.
        DirId(if id < 2 { id + 2 } else { id })
    }
}
