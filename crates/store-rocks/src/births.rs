//! What is not in directories that came into being while this store was open: whoever makes a file first
//! looks for its name, nearly always in vain, and RocksDB would search every memtable and table for it.
//!
//! Invariant: of a directory in here every bucket that has ever had anything is in the filter. A directory
//! comes in when its head is inserted, and has no entries then: a head is removed only of an empty directory,
//! nothing is inserted where there is no head, and a slot that comes here is cleared before. What is written
//! to it from then on is noted before the next read. Records that come otherwise (with slots that move here)
//! end this for all directories, as does a filter that is full.

use crate::read::{BUCKET_PREFIX, successor};
use pando_format::{KeyRange, Tag};
use pando_types::{DirId, Part, Slot};
use std::collections::BTreeSet;

/// Bits of the filter for each bucket that it has room for: one in some hundred that are not there seems to
/// be.
const BITS: usize = 12;

/// Bits that are looked at for each.
const PROBES: u32 = 6;

/// Bits of a block: the probes of one bucket are all in one, which is one line of the processor's cache.
const BLOCK: usize = 512;

/// Parts that are known at most.
const PARTS: usize = 256 * 1024;

/// They.
pub(crate) struct Births {
    parts: BTreeSet<Part>,
    blocks: Vec<[u64; BLOCK / 64]>,
    noted: usize,
    room: usize,
}

impl Births {
    /// None so far, and room for so many buckets; 0: none are noted.
    pub(crate) fn new(room: usize) -> Births {
        Births {
            parts: BTreeSet::new(),
            blocks: Vec::new(),
            noted: 0,
            room,
        }
    }

    /// A part of a directory comes into being. REQUIRES: nothing is in it.
    pub(crate) fn born(&mut self, part: Part) {
        if self.room == 0 {
            return;
        }
        if self.parts.len() >= PARTS {
            self.forget();
        }
        if self.blocks.is_empty() {
            self.blocks = vec![[0; BLOCK / 64]; self.room.div_ceil(BLOCK / BITS)];
        }
        self.parts.insert(part);
    }

    /// A part is gone.
    pub(crate) fn gone(&mut self, part: Part) {
        self.parts.remove(&part);
    }

    /// Something was written under a key.
    pub(crate) fn noted(&mut self, key: &[u8]) {
        if !part_of(key).is_some_and(|part| self.parts.contains(&part)) {
            return;
        }
        if self.noted >= self.room {
            return self.forget();
        }
        self.noted += 1;
        let (block, bits) = self.place(key);
        if let Some(block) = self.blocks.get_mut(block) {
            bits.for_each(|bit| block[bit / 64] |= 1 << (bit % 64));
        }
    }

    /// Whether nothing is in a range, which is one of those within a bucket. False: not known.
    pub(crate) fn is_empty(&self, range: &KeyRange) -> bool {
        let key = &range.start;
        if !part_of(key).is_some_and(|part| self.parts.contains(&part)) {
            return false;
        }
        let Some(prefix) = key.get(..BUCKET_PREFIX) else {
            return false;
        };
        if range.end > successor(prefix) {
            return false;
        }
        self.has_nothing(prefix)
    }

    /// Whether nothing is in the bucket of an entry. False: not known.
    pub(crate) fn is_first(&self, key: &[u8]) -> bool {
        let Some(prefix) = key.get(..BUCKET_PREFIX).filter(|p| Tag::Entry.is_of(p)) else {
            return false;
        };
        part_of(key).is_some_and(|part| self.parts.contains(&part)) && self.has_nothing(prefix)
    }

    /// Of a directory in here.
    fn has_nothing(&self, prefix: &[u8]) -> bool {
        let (block, mut bits) = self.place(prefix);
        let block = self.blocks.get(block);
        block.is_some_and(|block| !bits.all(|bit| block[bit / 64] & (1 << (bit % 64)) != 0))
    }

    /// Nothing is known any more.
    pub(crate) fn forget(&mut self) {
        self.parts.clear();
        self.noted = 0;
        self.blocks.fill([0; BLOCK / 64]);
    }

    /// The block of a bucket, and its bits there. A bucket's prefix ends with two hashes already, of the
    /// directory's birth and of the name: what is left to do is to mix them.
    fn place(&self, key: &[u8]) -> (usize, impl Iterator<Item = usize> + use<>) {
        let prefix = &key[..key.len().min(BUCKET_PREFIX)];
        let mix = |h: u64, chunk: &[u8]| {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            let h = (h ^ u64::from_le_bytes(bytes)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            h ^ (h >> 29)
        };
        let hash = prefix.chunks(8).fold(prefix.len() as u64, mix);
        let hash = mix(hash, &[1]);
        let block = ((hash >> 32) as usize) % self.blocks.len().max(1);
        let (start, step) = (hash as usize, (hash >> 16) as usize | 1);
        let bits = (0..PROBES as usize).map(move |i| start.wrapping_add(i.wrapping_mul(step)) % BLOCK);
        (block, bits)
    }
}

/// The part of a directory in which a key has a bucket: that of an entry, or of what is attached to one.
fn part_of(key: &[u8]) -> Option<Part> {
    if !Tag::Entry.is_of(key) && !Tag::Attachment.is_of(key) {
        return None;
    }
    let slot = Slot(u16::from_be_bytes(key.get(..2)?.try_into().ok()?));
    let dir = DirId(u128::from_be_bytes(key.get(3..19)?.try_into().ok()?));
    Part::at(dir, slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_format::{AttachmentKind, Key, NameHash, Scan};
    use pando_types::Name;

    fn bucket(dir: DirId, n: u64) -> KeyRange {
        Scan::Bucket(dir.into(), NameHash(n)).range()
    }

    fn entry(dir: DirId, n: u64) -> Vec<u8> {
        let name = Name::new(format!("f{n}").as_bytes()).expect("a name");
        let hash = NameHash(n);
        Key::Entry {
            part: dir.into(),
            hash,
            name,
        }
        .encode()
    }

    #[test]
    fn what_was_written_is_never_said_to_be_absent() {
        let (dir, other) = (DirId(7 << 64), DirId(8 << 64));
        let mut births = Births::new(10_000);
        births.born(dir.into());
        for n in 0..5_000 {
            births.noted(&entry(dir, n * 977));
            births.noted(&entry(other, n * 977));
        }
        assert!((0..5_000).all(|n| !births.is_empty(&bucket(dir, n * 977))));
        let known = (0..5_000).filter(|n| births.is_empty(&bucket(dir, n * 977 + 1)));
        let known = known.count();
        assert!(known > 4_900, "{known} of 5000");
        // The same is known by keys.
        assert!((0..5_000).all(|n| {
            let (there, absent) = (n * 977, n * 977 + 1);
            let first = births.is_first(&entry(dir, absent)) == births.is_empty(&bucket(dir, absent));
            first && !births.is_first(&entry(dir, there)) && !births.is_first(&entry(other, absent))
        }));
        // Nothing is known of a directory that was there before, and of more than a bucket.
        assert!((0..5_000).all(|n| !births.is_empty(&bucket(other, n * 977 + 1))));
        assert!(!births.is_empty(&Scan::EntriesFrom(dir.into(), NameHash(1)).range()));
        births.gone(dir.into());
        assert!(!births.is_empty(&bucket(dir, 1)));
    }

    #[test]
    fn what_is_attached_has_a_bucket_of_its_own() {
        let (dir, hash) = (DirId(7 << 64), NameHash(5));
        let name = Name::new(b"f").expect("a name");
        let attached = Scan::Attachments(dir.into(), hash, name.clone()).range();
        let mut births = Births::new(100);
        births.born(dir.into());
        births.noted(&entry(dir, 5));
        assert!(births.is_empty(&attached));
        let kind = AttachmentKind::Xattrs;
        let key = Key::Attachment {
            part: dir.into(),
            hash,
            name,
            kind,
        }
        .encode();
        births.noted(&key);
        assert!(!births.is_empty(&attached));
    }

    #[test]
    fn a_full_one_knows_nothing_and_begins_again() {
        let dir = DirId(7 << 64);
        let mut births = Births::new(100);
        births.born(dir.into());
        assert!(births.is_empty(&bucket(dir, 5)));
        for n in 0..=100 {
            births.noted(&entry(dir, n));
        }
        assert!(!births.is_empty(&bucket(dir, 5_000)));
        births.born(DirId(9 << 64).into());
        assert!(births.is_empty(&bucket(DirId(9 << 64), 5)));
        let mut none = Births::new(0);
        none.born(dir.into());
        assert!(!none.is_empty(&bucket(dir, 5)));
    }
}
