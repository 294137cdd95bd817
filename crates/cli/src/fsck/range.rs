//! Arithmetic on keys.

use pando_format::{AttachmentKind, Key, KeyRange, Tag};

/// Keys are told apart to this many bytes when a damaged range is narrowed down: slot, kind, directory, hash,
/// and the beginning of the name.
pub const PRECISION: usize = 40;

/// Whether nothing is in it.
pub fn empty(range: &KeyRange) -> bool {
    range.start >= range.end
}

/// The first key that does not begin with `prefix`; the end of all keys if there is none.
pub fn beyond(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xFF {
            end.push(last + 1);
            return end;
        }
    }
    vec![0xFF; PRECISION + 1]
}

/// One key.
pub fn just(key: &Key) -> KeyRange {
    let start = key.encode();
    let mut end = start.clone();
    end.push(0);
    KeyRange { start, end }
}

/// A key about in the middle of a range, to [`PRECISION`] bytes; none if they are too near each other.
pub fn middle(range: &KeyRange) -> Option<Vec<u8>> {
    let digit = |k: &[u8], i: usize| u32::from(k.get(i).copied().unwrap_or(0));
    let mut sum = vec![0u32; PRECISION];
    let mut carry = 0;
    for i in (0..PRECISION).rev() {
        let s = digit(&range.start, i) + digit(&range.end, i) + carry;
        sum[i] = s & 0xFF;
        carry = s >> 8;
    }
    // Halve.
    let mut out = Vec::with_capacity(PRECISION);
    for s in sum {
        let value = (carry << 8) | s;
        out.push((value >> 1) as u8);
        carry = value & 1;
    }
    while out.last() == Some(&0) {
        out.pop();
    }
    (out.as_slice() > range.start.as_slice() && out.as_slice() < range.end.as_slice()).then_some(out)
}

/// What stands under a key, in words, beside its path.
pub fn of_what(key: &Key) -> String {
    match key {
        Key::Entry { .. } => "the name and its attributes".into(),
        Key::Attachment { kind, .. } => match kind {
            AttachmentKind::Data => "the bytes of the file".into(),
            AttachmentKind::Target => "the target of the symbolic link".into(),
            AttachmentKind::Xattrs => "the extended attributes".into(),
        },
        Key::Line { .. } => "the line of the name in its directory's list".into(),
        Key::Head(_) => "the content half of the directory".into(),
        Key::Parts(_) => "the list of the parts of the directory".into(),
        Key::PartNote(_) => "the note about a part of the directory".into(),
        Key::Touch(_) => "the counts and times of the directory".into(),
        Key::Counter(slot) => format!("the counter of inode numbers of slot {slot}"),
        Key::RenameList { name, .. } => format!("the rename list of {}", crate::text::quoted(name)),
        Key::Garbage(slot, ino, _) => {
            format!("the note that data of inode {ino} of slot {slot} are to be deleted")
        }
        Key::Orphan(slot, ino, _) => {
            format!("the note that inode {ino} of slot {slot} is open without a name")
        }
        Key::Reply(slot, session, _) => format!("an answer to session {session} in slot {slot}"),
        Key::Session(session) => format!("session {session}"),
        Key::Decision(tx) | Key::Owed(tx) | Key::Prepared(_, tx) => format!("a part of transaction {tx}"),
        Key::Identity(id) => format!("identity {id}"),
        Key::Superblock => "the superblock".into(),
        Key::Invalidation(_) => "a row of the log of changes".into(),
        Key::HandOver => "the note of slots that were given or got".into(),
        Key::Local(_) => "the lease of the directory that a client has localised".into(),
    }
}

/// A range of keys in words, as far as its first key says.
pub fn describe(range: &KeyRange) -> String {
    let hex = |k: &[u8]| k.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let what = match Key::tag_of(&range.start) {
        Some(Tag::Attachment) => "attachments",
        Some(Tag::Counter) => "the counter",
        Some(Tag::Decision) => "decisions",
        Some(Tag::Entry) => "entries",
        Some(Tag::Line) => "lists of directories",
        Some(Tag::Garbage) => "garbage",
        Some(Tag::Head) => "heads of directories",
        Some(Tag::RenameList) => "rename lists",
        Some(Tag::Prepared) => "prepared transactions",
        Some(Tag::Reply) => "reply records",
        Some(Tag::Touch) => "counts of directories",
        Some(
            Tag::Superblock
            | Tag::Orphan
            | Tag::Parts
            | Tag::PartNote
            | Tag::HandOver
            | Tag::Owed
            | Tag::Session
            | Tag::Identity
            | Tag::Invalidation
            | Tag::Local,
        )
        | None => "records",
    };
    let slot = match range.start.first_chunk::<2>() {
        Some(slot) => u16::from_be_bytes(*slot).to_string(),
        None => "?".into(),
    };
    format!(
        "{what} of slot {slot}, keys {}..{}",
        hex(&range.start),
        hex(&range.end)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_converges() {
        let mut range = KeyRange {
            start: vec![0x12, 0x34, Tag::Entry.byte(), 1, 2, 3],
            end: vec![0xFF, 0xFF, 0xFF],
        };
        let mut steps = 0;
        while let Some(m) = middle(&range) {
            assert!(m > range.start && m < range.end);
            range.end = m;
            steps += 1;
            assert!(steps <= 8 * PRECISION);
        }
        assert_eq!(range.end[..6], range.start[..6]);
        assert_eq!(beyond(&[1, 0xFF]), [2]);
    }
}
