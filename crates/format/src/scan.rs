//! Which records are read, exported or deleted together: said by what they are ([`Scan`]), and as a range of
//! bytes ([`KeyRange`]).

use crate::codec::{Blob, DecodeError, Reader};
use crate::key::put_entry;
use crate::{Key, LOCAL_SLOT, NameHash, Tag};
use pando_types::{DirId, Name, Part, SessionId, Slot};

/// What a store lists, exports or deletes. A store of another kind than an ordered map of keys can keep what
/// belongs together as it likes; an ordered one asks for the [`Scan::range`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scan {
    /// All of a slot.
    Slot(Slot),
    /// All entries of a part of a directory.
    Entries(Part),
    /// The entries of a part from a bucket on.
    EntriesFrom(Part, NameHash),
    /// The entries of a part from the bucket `first` to the bucket `last`, both included.
    Buckets {
        /// The part.
        part: Part,
        /// Its first bucket in.
        first: NameHash,
        /// Its last bucket in.
        last: NameHash,
    },
    /// The attachments of the entries of a part from the bucket `first` to the bucket `last`, both included.
    AllAttachments {
        /// The part.
        part: Part,
        /// Its first bucket in.
        first: NameHash,
        /// Its last bucket in.
        last: NameHash,
    },
    /// What is to be done about parts in a slot.
    PartNotes(Slot),
    /// The lines of a directory's list from a bucket on.
    LinesFrom(DirId, NameHash),
    /// The entries of one bucket.
    Bucket(Part, NameHash),
    /// The attachments of one entry.
    Attachments(Part, NameHash, Name),
    /// The rename lists of births in a directory.
    RenameLists(DirId),
    /// All decisions of a store.
    Decisions,
    /// All contents of new directories that a store owes to others.
    AllOwed,
    /// All prepared parts of a store, together: so recovery reads little, and nothing else's damage.
    AllPrepared,
    /// The prepared parts of a store for one slot.
    Prepared(Slot),
    /// All file data to be deleted in a slot.
    Garbage(Slot),
    /// All files without a name of a slot.
    Orphans(Slot),
    /// A session's reply records in a slot.
    Replies(Slot, SessionId),
    /// All reply records of a slot.
    AllReplies(Slot),
    /// All sessions of a store.
    Sessions,
    /// The invalidation log.
    Invalidations,
    /// All identities.
    Identities,
    /// All records whose encoded keys are in a range, in that order: what operators, `fsck` and backups ask
    /// for, and messages carry.
    Keys(KeyRange),
    /// What of a scan comes after a key.
    After(Box<Scan>, Key),
    /// What of a scan an export left. The bytes say where it goes on, and are the store's; an ordered one
    /// says the first key, and of [`Scan::Keys`] every store does.
    Rest(Box<Scan>, Vec<u8>),
}

impl Scan {
    /// The keys of an ordered store that are in it.
    pub fn range(&self) -> KeyRange {
        match self {
            Scan::Slot(slot) => KeyRange::prefix(slot.0.to_be_bytes().to_vec()),
            Scan::Entries(part) => KeyRange::tagged(part.slot(), Tag::Entry, &part.dir.0.to_be_bytes()),
            Scan::EntriesFrom(part, first) => entries_from(*part, *first),
            Scan::Buckets { part, first, last } => KeyRange {
                start: entries_from(*part, *first).start,
                end: bucket(*part, *last).end,
            },
            Scan::AllAttachments { part, first, last } => KeyRange {
                start: buckets(Tag::Attachment, *part, *first).start,
                end: buckets(Tag::Attachment, *part, *last).end,
            },
            Scan::PartNotes(slot) => KeyRange::tagged(*slot, Tag::PartNote, &[]),
            Scan::LinesFrom(dir, first) => {
                let slot = Part::whole(*dir).slot();
                let mut range = KeyRange::tagged(slot, Tag::Line, &dir.0.to_be_bytes());
                range.start.extend_from_slice(&first.0.to_be_bytes()[1..]);
                range
            }
            Scan::Bucket(part, hash) => bucket(*part, *hash),
            Scan::Attachments(part, hash, name) => {
                let mut p = Vec::with_capacity(16 + 7 + name.as_bytes().len() + 1);
                put_entry(&mut p, part.dir, *hash, name);
                p.push(0);
                KeyRange::tagged(part.slot(), Tag::Attachment, &p)
            }
            Scan::RenameLists(parent) => {
                let slot = Part::whole(*parent).slot();
                KeyRange::tagged(slot, Tag::RenameList, &parent.0.to_be_bytes())
            }
            Scan::Decisions => KeyRange::tagged(LOCAL_SLOT, Tag::Decision, &[]),
            Scan::AllOwed => KeyRange::tagged(LOCAL_SLOT, Tag::Owed, &[]),
            Scan::AllPrepared => KeyRange::tagged(LOCAL_SLOT, Tag::Prepared, &[]),
            Scan::Prepared(slot) => KeyRange::tagged(LOCAL_SLOT, Tag::Prepared, &slot.0.to_be_bytes()),
            Scan::Garbage(slot) => KeyRange::tagged(*slot, Tag::Garbage, &[]),
            Scan::Orphans(slot) => KeyRange::tagged(*slot, Tag::Orphan, &[]),
            Scan::Replies(slot, session) => KeyRange::tagged(*slot, Tag::Reply, &session.0.to_be_bytes()),
            Scan::AllReplies(slot) => KeyRange::tagged(*slot, Tag::Reply, &[]),
            Scan::Sessions => KeyRange::tagged(LOCAL_SLOT, Tag::Session, &[]),
            Scan::Invalidations => KeyRange::tagged(LOCAL_SLOT, Tag::Invalidation, &[]),
            Scan::Identities => KeyRange::tagged(LOCAL_SLOT, Tag::Identity, &[]),
            Scan::Keys(range) => range.clone(),
            Scan::After(of, key) => of.range().after(key),
            Scan::Rest(of, start) => KeyRange {
                start: start.clone(),
                end: of.range().end,
            },
        }
    }

    /// Everything after `key` that is still in this scan. REQUIRES: `key` is in it.
    pub fn after(self, key: Key) -> Scan {
        Scan::After(Box::new(self.whole()), key)
    }

    /// What is left of it from a position of a store on: see [`Scan::Rest`].
    pub fn rest(&self, position: Vec<u8>) -> Scan {
        Scan::Rest(Box::new(self.clone().whole()), position)
    }

    /// The scan that this is a later part of, or itself.
    fn whole(self) -> Scan {
        match self {
            Scan::After(of, _) | Scan::Rest(of, _) => *of,
            whole => whole,
        }
    }
}

fn entries_from(part: Part, first: NameHash) -> KeyRange {
    let mut range = Scan::Entries(part).range();
    range.start.extend_from_slice(&first.0.to_be_bytes()[1..]);
    range
}

fn bucket(part: Part, hash: NameHash) -> KeyRange {
    buckets(Tag::Entry, part, hash)
}

fn buckets(tag: Tag, part: Part, hash: NameHash) -> KeyRange {
    let mut p = [0; 16 + 7];
    p[..16].copy_from_slice(&part.dir.0.to_be_bytes());
    p[16..].copy_from_slice(&hash.0.to_be_bytes()[1..]);
    KeyRange::tagged(part.slot(), tag, &p)
}

/// A half-open range of encoded keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KeyRange {
    /// First key in.
    pub start: Vec<u8>,
    /// First key out.
    pub end: Vec<u8>,
}

impl KeyRange {
    fn prefix(prefix: Vec<u8>) -> KeyRange {
        let mut end = prefix.clone();
        // The successor of a prefix. That of the local slot alone has none; no tag is 0xFF.
        if end == LOCAL_SLOT.0.to_be_bytes() {
            end.push(0xFE);
        }
        while let Some(last) = end.pop() {
            if last < 0xFF {
                end.push(last + 1);
                break;
            }
        }
        KeyRange { start: prefix, end }
    }

    /// All keys of a kind in a slot that go on with `rest`.
    pub fn tagged(slot: Slot, tag: Tag, rest: &[u8]) -> KeyRange {
        let mut p = Vec::with_capacity(3 + rest.len());
        p.extend_from_slice(&slot.0.to_be_bytes());
        p.push(tag.byte());
        p.extend_from_slice(rest);
        KeyRange::prefix(p)
    }

    /// Everything after `key` that is still in this range.
    pub fn after(&self, key: &Key) -> KeyRange {
        let mut start = key.encode();
        start.push(0);
        KeyRange {
            start,
            end: self.end.clone(),
        }
    }

    /// Whether `key` (encoded) falls into this range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && key < self.end.as_slice()
    }
}

impl crate::Codec for KeyRange {
    fn put(&self, out: &mut Vec<u8>) {
        Blob(self.start.clone()).put(out);
        Blob(self.end.clone()).put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let start = Blob::take(r)?.0;
        let end = Blob::take(r)?.0;
        Ok(KeyRange { start, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::{BootEpoch, ServerId, TxId};

    const PART: Part = Part::whole(DirId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff));
    const HASH: NameHash = NameHash(0x12_3456_789a_bcde);

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    fn named() -> Name {
        Name::new(b"ab").expect("a name")
    }

    /// Bytes that messages and ordered stores have always had.
    #[test]
    fn ranges_of_scans() {
        let dir = "00112233445566778899aabbccddeeff";
        let next = "00112233445566778899aabbccddef";
        let e = |hash: &str| format!("00f345{dir}{hash}");
        let (first, last) = (NameHash(5), HASH);
        let key = Key::Prepared(
            Slot(7),
            TxId {
                coordinator: ServerId(1),
                boot: BootEpoch(2),
                number: 3,
            },
        );
        let after = format!("ffff500007{:04x}{:016x}{:016x}00", 1, 2, 3);
        let all = [
            (Scan::Slot(Slot(0xF3)), "00f3".into(), "00f4".into()),
            (Scan::Slot(LOCAL_SLOT), "ffff".into(), "ffffff".into()),
            (Scan::Entries(PART), e(""), format!("00f345{next}")),
            (
                Scan::EntriesFrom(PART, HASH),
                e("123456789abcde"),
                format!("00f345{next}"),
            ),
            (
                Scan::Buckets {
                    part: PART,
                    first,
                    last,
                },
                e("00000000000005"),
                e("123456789abcdf"),
            ),
            (Scan::Bucket(PART, HASH), e("123456789abcde"), e("123456789abcdf")),
            (
                Scan::Attachments(PART, HASH, named()),
                format!("00f341{dir}123456789abcde616200"),
                format!("00f341{dir}123456789abcde616201"),
            ),
            (
                Scan::RenameLists(PART.dir),
                format!("00f34c{dir}"),
                format!("00f34c{next}"),
            ),
            (Scan::Decisions, "ffff44".into(), "ffff45".into()),
            (Scan::AllOwed, "ffff4f".into(), "ffff50".into()),
            (Scan::AllPrepared, "ffff50".into(), "ffff51".into()),
            (Scan::Prepared(Slot(7)), "ffff500007".into(), "ffff500008".into()),
            (Scan::Garbage(Slot(7)), "000747".into(), "000748".into()),
            (Scan::Orphans(Slot(7)), "00074b".into(), "00074c".into()),
            (
                Scan::Replies(Slot(7), SessionId(1)),
                format!("000752{:032x}", 1),
                format!("000752{:032x}", 2),
            ),
            (Scan::AllReplies(Slot(7)), "000752".into(), "000753".into()),
            (Scan::Sessions, "ffff53".into(), "ffff54".into()),
            (Scan::Invalidations, "ffff56".into(), "ffff57".into()),
            (Scan::Identities, "ffff55".into(), "ffff56".into()),
            (Scan::AllPrepared.after(key.clone()), after, "ffff51".into()),
            (
                Scan::AllPrepared.after(key).rest(vec![9]),
                "09".into(),
                "ffff51".into(),
            ),
        ];
        for (scan, start, end) in all {
            let range = scan.range();
            assert_eq!((hex(&range.start), hex(&range.end)), (start, end), "{scan:?}");
            assert_eq!(Scan::Keys(range.clone()).range(), range);
        }
    }
}
