//! Entries in two columns (IndexFS §II-C): an index that compactions keep small and sorted, and rows that
//! they leave where they were written.
//!
//! The value of a file's or symlink's entry, and of whatever is attached to an entry, goes to a family of its
//! own, `rows`, whose values RocksDB puts into blob files. What merges tables of that family moves keys and
//! places, never values. In its place the family of records has a *brief*: what a listing without attributes
//! shows, and the checksum that the row ends with. Everything else, directories' entries and links among it,
//! stays whole in the family of records.
//!
//! Invariant: a brief and its row are written, replaced and deleted in one batch. A row without a brief is
//! not there. A brief without its row, or with one that ends otherwise, is damage.

use crate::families;
use crate::read::Tier;
use pando_format::codec::{Codec, Reader};
use pando_format::{DecodeError, Entry, InodeRecord, Layout, Marks, Record, Tag, Target};
use pando_store::StoreError;
use pando_types::{FileKind, Generation, Ino, Perm, Timestamp};
use rocksdb::{ColumnFamily, DB, DBPinnableSlice, ReadOptions, WriteBatch};

/// How a store keeps the values of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schema {
    /// With their keys.
    Whole,
    /// In rows beside an index of briefs.
    Columns,
}

/// First byte of a brief. Records begin with their version, which is 1.
const BRIEF: u8 = 0xB0;

/// Bytes at the end of a record: its checksum.
const SUM: usize = 4;

/// Bytes in front of what a brief says: [`BRIEF`], and the checksum of its row.
const HEAD: usize = 1 + SUM;

/// Whether a value of the family of records stands for a row.
pub(crate) fn is_brief(value: &[u8]) -> bool {
    value.first() == Some(&BRIEF)
}

fn checksum(key: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), body)
}

/// What an encoded file's entry begins with, around its ordinal: version, kind of record, kind of target.
const FILE: [u8; 3] = [1, 1, 2];
/// The encoded fields that a brief has of a file follow that: number, generation, kind, permissions, owner
/// and group.
const FIELDS: usize = 8 + 8 + 1 + 2 + 4 + 4;

/// The brief of a value that has a row of its own. Values are of this program's making: no more of them is
/// looked at than is copied, since each create comes here.
fn brief_of(key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(HEAD + 1 + FIELDS + SUM);
    out.push(BRIEF);
    out.extend_from_slice(value.last_chunk::<SUM>()?);
    if Tag::Entry.is_of(key) {
        let (&[version, record, ordinal, target], rest) = value.split_first_chunk()?;
        if [version, record, target] != FILE {
            return None;
        }
        out.push(ordinal);
        out.extend_from_slice(rest.first_chunk::<FIELDS>()?);
    } else if !Tag::Attachment.is_of(key) {
        return None;
    }
    checksum(key, &out).put(&mut out);
    Some(out)
}

/// The body of a brief, if it is whole.
fn body<'a>(key: &[u8], brief: &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let (body, sum) = brief.split_last_chunk::<SUM>().ok_or(DecodeError::Truncated)?;
    if u32::from_bytes(sum)? != checksum(key, body) {
        return Err(DecodeError::Checksum);
    }
    match body.len() {
        HEAD.. => Ok(body),
        _ => Err(DecodeError::Truncated),
    }
}

/// Whether a brief is whole by its own checksum.
pub(crate) fn is_sound(key: &[u8], brief: &[u8]) -> bool {
    is_brief(brief) && body(key, brief).is_ok()
}

/// The entry that a brief tells of, with nothing in it that a brief does not say.
pub(crate) fn entry(key: &[u8], brief: &[u8]) -> Result<Record, StoreError> {
    told(key, brief).map_err(|e| StoreError::corrupt(key, e))
}

fn told(key: &[u8], brief: &[u8]) -> Result<Record, DecodeError> {
    let mut r = Reader::new(&body(key, brief)?[HEAD..]);
    let never = Timestamp { secs: 0, nanos: 0 };
    let ordinal = u8::take(&mut r)?;
    let inode = InodeRecord {
        ino: Ino::take(&mut r)?,
        generation: Generation::take(&mut r)?,
        kind: FileKind::take(&mut r)?,
        perm: Perm::take(&mut r)?,
        uid: u32::take(&mut r)?,
        gid: u32::take(&mut r)?,
        nlink: 1,
        size: 0,
        rdev: 0,
        atime: never,
        mtime: never,
        ctime: never,
        layout: Layout::None,
        marks: Marks::NONE,
        version: 0,
        acl: None,
    };
    r.finish()?;
    Ok(Record::Entry(Entry {
        ordinal,
        target: Target::Inode(inode),
    }))
}

/// Adds a key and its value to a batch: as it is, or, in a store with rows, as a row and its brief.
pub(crate) fn put(rows: Option<&ColumnFamily>, batch: &mut WriteBatch, key: &[u8], value: &[u8]) {
    let brief = rows.and_then(|rows| Some((rows, brief_of(key, value)?)));
    match brief {
        Some((rows, brief)) => {
            batch.put_cf(rows, key, value);
            batch.put(key, brief);
        }
        None => batch.put(key, value),
    }
}

/// Adds to a batch that a key goes, with its row if it can have one.
pub(crate) fn delete(rows: Option<&ColumnFamily>, batch: &mut WriteBatch, key: &[u8]) {
    batch.delete(key);
    if let Some(rows) = rows.filter(|_| Tag::Entry.is_of(key) || Tag::Attachment.is_of(key)) {
        batch.delete_cf(rows, key);
    }
}

/// The row that a brief stands for. The brief's checksum is looked at; that of the row is its reader's.
pub(crate) fn row<'a>(
    db: &'a DB,
    key: &[u8],
    brief: &[u8],
    options: &ReadOptions,
) -> Result<DBPinnableSlice<'a>, Tier> {
    let damaged = |why: &str| Tier::Failed(StoreError::corrupt(key, why));
    let body = body(key, brief).map_err(|e| Tier::Failed(StoreError::corrupt(key, e)))?;
    let Some(rows) = families::rows(db) else {
        return Err(damaged("the store has an index and no rows"));
    };
    let row = db
        .get_pinned_cf_opt(rows, key, options)
        .map_err(|e| Tier::of(key, &e))?;
    match row {
        Some(row) if row.last_chunk::<SUM>().is_some_and(|sum| *sum == body[1..HEAD]) => Ok(row),
        Some(_) => Err(damaged("its row is not the one that the index means")),
        None => Err(damaged("the index has it, and its row is missing")),
    }
}

/// The rest of a key whose brief or row is damaged: a row that is whole, if its brief is not.
pub(crate) fn left(db: &DB, key: &[u8], brief: &[u8]) -> Option<Record> {
    if is_sound(key, brief) {
        return None;
    }
    let row = db.get_pinned_cf(families::rows(db)?, key).ok()??;
    Record::decode(key, &row).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_format::codec::Blob;
    use pando_format::{AccessRecord, AttachmentKind, Key, LinkRecord, NameHash};
    use pando_types::{DirId, Name, Realm, Slot};

    fn time(secs: i64) -> Timestamp {
        Timestamp { secs, nanos: 7 }
    }

    fn inode() -> InodeRecord {
        InodeRecord {
            ino: Ino(77),
            generation: Generation(78),
            kind: FileKind::Symlink,
            perm: Perm::new(0o640),
            uid: 1000,
            gid: 1001,
            nlink: 1,
            size: 5,
            rdev: 0,
            atime: time(1),
            mtime: time(2),
            ctime: time(3),
            layout: Layout::Target(Blob(vec![b'x'; 500])),
            marks: Marks::NONE,
            version: 9,
            acl: None,
        }
    }

    fn named() -> (DirId, NameHash, Name) {
        (DirId(5 << 64), NameHash(9), Name::new(b"name").expect("a name"))
    }

    fn key() -> Vec<u8> {
        let (dir, hash, name) = named();
        let part = dir.into();
        Key::Entry { part, hash, name }.encode()
    }

    fn of(target: Target) -> Option<Vec<u8>> {
        let record = Record::Entry(Entry { ordinal: 3, target });
        brief_of(&key(), &record.encode(&key()))
    }

    #[test]
    fn a_brief_says_what_names_need() {
        let brief = of(Target::Inode(inode())).expect("files have rows");
        assert!(is_brief(&brief) && is_sound(&key(), &brief) && brief.len() < 48);
        let Ok(Record::Entry(told)) = entry(&key(), &brief) else {
            panic!("an entry")
        };
        let Target::Inode(told_inode) = &told.target else {
            panic!("a file")
        };
        let (is, told_is) = (inode(), told_inode);
        assert_eq!(told.ordinal, 3);
        assert_eq!(
            (told_is.kind, told_is.ino, told_is.generation),
            (is.kind, is.ino, is.generation)
        );
        assert_eq!(
            (told_is.perm, told_is.uid, told_is.gid),
            (is.perm, is.uid, is.gid)
        );
        // No bit of it can flip unseen, and it stands under no other key.
        for bit in 0..8 * brief.len() {
            let mut flipped = brief.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_sound(&key(), &flipped) && entry(&key(), &flipped).is_err());
        }
        assert!(!is_sound(b"other", &brief));
        assert!((0..brief.len()).all(|n| !is_sound(&key(), &brief[..n])));
    }

    /// As `docs/format.md` has it.
    #[test]
    fn bytes_of_a_brief() {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let brief = of(Target::Inode(inode())).expect("files have rows");
        assert_eq!(
            [hex(&key()), hex(&brief)],
            [
                "07154500000000000000050000000000000000000000000000096e616d65",
                "b063b8bb0d034d000000000000004e0000000000000003a001e8030000e90300001840268d"
            ]
        );
    }

    #[test]
    fn directories_and_links_stay_whole() {
        let link = LinkRecord {
            slot: Slot(1),
            ino: Ino(2),
            generation: Generation(3),
            kind: FileKind::Regular,
        };
        let access = AccessRecord {
            id: DirId(1),
            generation: Generation(1),
            ino: Ino(1),
            perm: Perm::new(0o755),
            uid: 1,
            gid: 1,
            ctime: time(1),
            realm: Realm(0),
            salt: 7,
            version: 0,
            marks: Marks::NONE,
            seal: 0,
            acls: Default::default(),
        };
        assert_eq!(of(Target::Link(link)), None);
        assert_eq!(of(Target::Dir(access)), None);
        let counter = Key::Counter(Slot(1)).encode();
        assert_eq!(brief_of(&counter, &[1, 2, 3, 4, 5]), None);
    }

    #[test]
    fn what_is_attached_has_a_brief_that_says_nothing() {
        let (dir, hash, name) = named();
        let key = Key::Attachment {
            part: dir.into(),
            hash,
            name,
            kind: AttachmentKind::Data,
        }
        .encode();
        let value = Record::Attachment(Blob(vec![1; 4000])).encode(&key);
        let brief = brief_of(&key, &value).expect("it has a row");
        assert_eq!(brief.len(), HEAD + SUM);
        assert!(is_sound(&key, &brief) && entry(&key, &brief).is_err());
    }
}
