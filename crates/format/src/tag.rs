//! The kind of a record, as its encoded key says it: a byte after the slot.
//!
//! No other crate writes these bytes. The byte of a tag is what the list below says.

use crate::{DecodeError, Key};

/// Where a tag stands in an encoded key: the slot comes first.
const AT: usize = 2;

/// The kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Tag {
    /// Attachments of entries.
    Attachment = b'A',
    /// The superblock.
    Superblock = b'B',
    /// Counters of slots.
    Counter = b'C',
    /// Decisions of transactions.
    Decision = b'D',
    /// Entries of directories.
    Entry = b'E',
    /// File data to be deleted.
    Garbage = b'G',
    /// Content heads of directories.
    Head = b'H',
    /// Lists of parts of directories.
    Parts = b'J',
    /// Notes about parts of directories.
    PartNote = b'j',
    /// Files without a name.
    Orphan = b'K',
    /// Rename lists.
    RenameList = b'L',
    /// What must not be forgotten of slots that were given or got.
    HandOver = b'M',
    /// Contents of new directories, owed to other servers.
    Owed = b'O',
    /// Prepared parts of transactions.
    Prepared = b'P',
    /// Reply records.
    Reply = b'R',
    /// Sessions.
    Session = b'S',
    /// Content touches of directories.
    Touch = b'T',
    /// Identities.
    Identity = b'U',
    /// The invalidation log.
    Invalidation = b'V',
    /// Lines of directories' lists.
    Line = b'n',
    /// Leases of localised directories.
    Local = b'Z',
}

impl Tag {
    /// All of them, in the order of their bytes.
    pub const ALL: [Tag; 21] = [
        Tag::Attachment,
        Tag::Superblock,
        Tag::Counter,
        Tag::Decision,
        Tag::Entry,
        Tag::Garbage,
        Tag::Head,
        Tag::Parts,
        Tag::Orphan,
        Tag::RenameList,
        Tag::HandOver,
        Tag::Owed,
        Tag::Prepared,
        Tag::Reply,
        Tag::Session,
        Tag::Touch,
        Tag::Identity,
        Tag::Invalidation,
        Tag::Local,
        Tag::PartNote,
        Tag::Line,
    ];

    /// Its byte in keys.
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// Whether an encoded key is of this kind.
    pub fn is_of(self, key: &[u8]) -> bool {
        key.get(AT) == Some(&self.byte())
    }

    /// Of a byte. An unknown one is damage, or of a newer format.
    pub(crate) fn from_byte(byte: u8) -> Result<Tag, DecodeError> {
        OF_BYTE[usize::from(byte)].ok_or(DecodeError::Tag { of: "Key", tag: byte })
    }
}

/// The tag of each byte: keys are decoded often.
const OF_BYTE: [Option<Tag>; 256] = {
    let mut table = [None; 256];
    let mut n = 0;
    while n < Tag::ALL.len() {
        table[Tag::ALL[n].byte() as usize] = Some(Tag::ALL[n]);
        n += 1;
    }
    table
};

impl Key {
    /// The kind of its record.
    pub fn tag(&self) -> Tag {
        match self {
            Key::Attachment { .. } => Tag::Attachment,
            Key::Superblock => Tag::Superblock,
            Key::Counter(_) => Tag::Counter,
            Key::Decision(_) => Tag::Decision,
            Key::Entry { .. } => Tag::Entry,
            Key::Garbage(..) => Tag::Garbage,
            Key::Head(_) => Tag::Head,
            Key::Parts(_) => Tag::Parts,
            Key::PartNote(_) => Tag::PartNote,
            Key::Orphan(..) => Tag::Orphan,
            Key::RenameList { .. } => Tag::RenameList,
            Key::HandOver => Tag::HandOver,
            Key::Owed(_) => Tag::Owed,
            Key::Prepared(..) => Tag::Prepared,
            Key::Reply(..) => Tag::Reply,
            Key::Session(_) => Tag::Session,
            Key::Touch(_) => Tag::Touch,
            Key::Identity(_) => Tag::Identity,
            Key::Invalidation(_) => Tag::Invalidation,
            Key::Local(_) => Tag::Local,
            Key::Line { .. } => Tag::Line,
        }
    }

    /// The kind of the record under an encoded key, or of the keys that begin so. `None`: they are too short,
    /// or no kind is known.
    pub fn tag_of(key: &[u8]) -> Option<Tag> {
        Tag::from_byte(*key.get(AT)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tag_is_found_again() {
        for tag in Tag::ALL {
            let key = [0, 1, tag.byte(), 9];
            assert_eq!(Key::tag_of(&key), Some(tag));
            assert!(
                Tag::ALL
                    .into_iter()
                    .all(|other| other.is_of(&key) == (other == tag))
            );
        }
        assert!(Tag::ALL.is_sorted_by_key(|tag| tag.byte()));
        assert_eq!((Key::tag_of(&[0, 1]), Key::tag_of(&[0, 1, b'?'])), (None, None));
    }
}
