//! Reads, from memory only or from wherever the data is. Whatever fails a checksum, RocksDB's or the record's
//! own, is an error and never a value. Of a store with columns what is read is whole: briefs and their rows
//! are joined here.

use crate::{columns, families};
use pando_format::{Key, KeyRange, Record, Scan, Tag};
use pando_store::{Bundle, Exported, StoreError};
use rocksdb::{ColumnFamily, DB, DBPinnableSlice, DBRawIterator, Error, ErrorKind, ReadOptions, Snapshot};
use serde::Deserialize;
use serde::de::value::{Error as NameError, StrDeserializer};
use std::cell::OnceCell;
use std::sync::Arc;

/// Bytes of the keys of one bucket of a directory that are equal: slot, tag, directory and hash. Filters know
/// these prefixes, so that looking for a name in a directory of many tables reads nothing when it is absent.
pub(crate) const BUCKET_PREFIX: usize = 2 + 1 + 16 + 7;

/// A key and its value, encoded.
pub(crate) type Row = (Box<[u8]>, Box<[u8]>);

/// Why memory alone did not answer.
pub(crate) enum Tier {
    /// The device must be asked.
    NotInMemory,
    /// It failed.
    Failed(StoreError),
}

impl From<StoreError> for Tier {
    fn from(e: StoreError) -> Tier {
        Tier::Failed(e)
    }
}

impl Tier {
    /// What an error of RocksDB means for the read of a key.
    pub(crate) fn of(key: &[u8], e: &Error) -> Tier {
        if e.kind() == ErrorKind::Incomplete {
            Tier::NotInMemory
        } else {
            Tier::Failed(device(key, e))
        }
    }
}

/// Where and as of when rows are read.
pub(crate) struct View<'a> {
    db: &'a DB,
    at: Option<&'a Snapshot<'a>>,
    options: fn() -> ReadOptions,
}

impl View<'_> {
    fn options(&self) -> ReadOptions {
        let mut options = (self.options)();
        if let Some(snapshot) = self.at {
            options.set_snapshot(snapshot);
        }
        options
    }
}

/// Runs a read that may wait for the device. In a store with columns it takes several steps, which must see
/// one state: others write meanwhile.
fn still<T>(db: &DB, read: impl FnOnce(&View<'_>) -> T) -> T {
    let snapshot = families::rows(db).map(|_| db.snapshot());
    read(&View {
        db,
        at: snapshot.as_ref(),
        options: ReadOptions::default,
    })
}

/// Reads that never touch the device: memtables and block cache.
pub(crate) struct Memory {
    db: Arc<DB>,
    options: ReadOptions,
}

impl Memory {
    pub(crate) fn new(db: Arc<DB>) -> Memory {
        Memory {
            db,
            options: memory_only(),
        }
    }

    fn view(&self) -> View<'_> {
        View {
            db: &self.db,
            at: None,
            options: memory_only,
        }
    }

    pub(crate) fn raw(&self, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>, Tier> {
        raw(&self.db, key, &self.options)
    }

    /// Whether there is a key, whatever it has.
    pub(crate) fn has(&self, key: &[u8]) -> Result<bool, Tier> {
        let found = self.db.get_pinned_opt(key, &self.options);
        Ok(found.map_err(|e| Tier::of(key, &e))?.is_some())
    }

    pub(crate) fn list(&self, range: &KeyRange, limit: usize) -> Result<Vec<(Key, Record)>, Tier> {
        let view = self.view();
        scan_records(&view, view.options(), range, limit)
    }

    /// The same, encoded.
    pub(crate) fn rows(&self, range: &KeyRange, limit: usize) -> Result<Vec<Row>, Tier> {
        scan_rows(&self.view(), range, limit)
    }

    /// The same of what a brief says.
    pub(crate) fn names(&self, range: &KeyRange, limit: usize) -> Result<Vec<(Key, Record)>, Tier> {
        scan_names(&self.view(), range, limit)
    }
}

fn raw<'a>(db: &'a DB, key: &[u8], options: &ReadOptions) -> Result<Option<DBPinnableSlice<'a>>, Tier> {
    let value = db.get_pinned_opt(key, options).map_err(|e| Tier::of(key, &e))?;
    match value {
        Some(brief) if columns::is_brief(&brief) => columns::row(db, key, &brief, options).map(Some),
        value => Ok(value),
    }
}

/// A value that was read, if there is one.
pub(crate) fn decoded(key: &[u8], value: Option<&[u8]>) -> Result<Option<Record>, Tier> {
    let record = value.map(|value| decode(key, value));
    record.transpose().map_err(Tier::Failed)
}

/// Rows that were read.
pub(crate) fn records(rows: &[Row]) -> Result<Vec<(Key, Record)>, Tier> {
    let all = rows.iter().map(|(key, value)| decode_row(key, value));
    all.collect::<Result<_, _>>().map_err(Tier::Failed)
}

/// A key and its record.
pub(crate) fn decode_row(key: &[u8], value: &[u8]) -> Result<(Key, Record), StoreError> {
    let record = decode(key, value)?;
    Ok((Key::decode(key).map_err(|e| StoreError::corrupt(key, e))?, record))
}

/// Options of a read that fails with `Incomplete` rather than wait for the device.
fn memory_only() -> ReadOptions {
    let mut options = ReadOptions::default();
    // The crate exports `set_read_tier` but not the enum it takes. Its name can be had by inference alone,
    // and a value of it from the name of the variant.
    match Deserialize::deserialize(StrDeserializer::<NameError>::new("BlockCache")) {
        Ok(tier) => options.set_read_tier(tier),
        Err(e) => unreachable!("rocksdb 0.21 has ReadTier::BlockCache: {e}"),
    }
    options
}

pub(crate) fn get(db: &DB, key: &[u8]) -> Result<Option<Record>, StoreError> {
    still(db, |view| {
        let value = raw(db, key, &view.options()).map_err(failed)?;
        value.map(|value| decode(key, &value)).transpose()
    })
}

pub(crate) fn list(db: &DB, range: &KeyRange, limit: usize) -> Result<Vec<(Key, Record)>, StoreError> {
    still(db, |view| {
        let mut options = view.options();
        options.fill_cache(!is_later_page(range));
        scan_records(view, options, range, limit).map_err(failed)
    })
}

/// The same, encoded.
pub(crate) fn rows(db: &DB, range: &KeyRange, limit: usize) -> Result<Vec<Row>, StoreError> {
    still(db, |view| scan_rows(view, range, limit).map_err(failed))
}

/// The same of what a brief says.
pub(crate) fn names(db: &DB, range: &KeyRange, limit: usize) -> Result<Vec<(Key, Record)>, StoreError> {
    still(db, |view| scan_names(view, range, limit).map_err(failed))
}

/// Whether a range is what is left of a directory from some bucket on. Whoever lists a large one reads it
/// once, and leaves the cache to what is used again; small ones are read whole with their first page.
fn is_later_page(range: &KeyRange) -> bool {
    let bucket = range.start.get(BUCKET_PREFIX - 7..BUCKET_PREFIX);
    let later = bucket.is_some_and(|bucket| bucket.iter().any(|b| *b != 0));
    later && Tag::Entry.is_of(&range.start) && !within_bucket(range)
}

/// Records looked at between two looks at how many bytes they are.
const EXPORTED: usize = 64;

pub(crate) fn export(db: &DB, scan: &Scan, bytes: usize) -> Result<Exported, StoreError> {
    still(db, |view| export_from(view, scan, bytes))
}

/// The same of what was there when a snapshot was made.
pub(crate) fn export_at(
    db: &DB,
    snapshot: &Snapshot<'_>,
    scan: &Scan,
    bytes: usize,
) -> Result<Exported, StoreError> {
    let view = View {
        db,
        at: Some(snapshot),
        options: ReadOptions::default,
    };
    export_from(&view, scan, bytes)
}

fn export_from(view: &View<'_>, what: &Scan, bytes: usize) -> Result<Exported, StoreError> {
    let mut range = what.range();
    let (mut out, mut size) = (Vec::new(), 0);
    loop {
        let mut options = view.options();
        options.fill_cache(false);
        let before = out.len();
        scan(view, options, &range, EXPORTED, |key, value| {
            // What is damaged here must not travel.
            decode(key, value)?;
            size += key.len() + value.len();
            out.push((key.to_vec(), value.to_vec()));
            Ok(())
        })
        .map_err(failed)?;
        if out.len() < before + EXPORTED {
            return Ok((Bundle::of(out), None));
        }
        if let Some((last, _)) = out.last() {
            range.start.clone_from(last);
            range.start.push(0);
        }
        if size >= bytes {
            return Ok((Bundle::of(out), Some(what.rest(range.start))));
        }
    }
}

/// The encoded keys of a range.
pub(crate) fn keys(db: &DB, range: &KeyRange) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    let mut out = Vec::new();
    let iterator = |options| db.raw_iterator_opt(options);
    scan_with(iterator, options, range, usize::MAX, |key, _| {
        out.push(key.to_vec());
        Ok(())
    })
    .map_err(failed)?;
    Ok(out)
}

/// All rows of a range, as they are, of a family or else of that of records.
pub(crate) fn raw_rows(
    db: &DB,
    family: Option<&ColumnFamily>,
    range: &KeyRange,
) -> Result<Vec<Row>, StoreError> {
    let mut out = Vec::new();
    let iterator = |options| match family {
        Some(family) => db.raw_iterator_cf_opt(family, options),
        None => db.raw_iterator_opt(options),
    };
    scan_with(
        iterator,
        ReadOptions::default(),
        range,
        usize::MAX,
        |key, value| {
            out.push((key.into(), value.into()));
            Ok(())
        },
    )
    .map_err(failed)?;
    Ok(out)
}

fn scan_records(
    view: &View<'_>,
    options: ReadOptions,
    range: &KeyRange,
    limit: usize,
) -> Result<Vec<(Key, Record)>, Tier> {
    let mut out = Vec::new();
    scan(view, options, range, limit, |key, value| {
        out.push(decode_row(key, value)?);
        Ok(())
    })?;
    Ok(out)
}

fn scan_rows(view: &View<'_>, range: &KeyRange, limit: usize) -> Result<Vec<Row>, Tier> {
    let mut out = Vec::new();
    scan(view, view.options(), range, limit, |key, value| {
        out.push((key.into(), value.into()));
        Ok(())
    })?;
    Ok(out)
}

/// Of entries that have a brief, what that says; everything else as it is.
fn scan_names(view: &View<'_>, range: &KeyRange, limit: usize) -> Result<Vec<(Key, Record)>, Tier> {
    let mut out = Vec::new();
    let mut options = view.options();
    options.fill_cache(!is_later_page(range));
    let iterator = |options| view.db.raw_iterator_opt(options);
    scan_with(iterator, options, range, limit, |key, value| {
        let named = if !columns::is_brief(value) {
            decode_row(key, value)?
        } else if Tag::Entry.is_of(key) {
            let named = Key::decode(key).map_err(|e| StoreError::corrupt(key, e))?;
            (named, columns::entry(key, value)?)
        } else {
            decode_row(key, &columns::row(view.db, key, value, &view.options())?)?
        };
        out.push(named);
        Ok(())
    })?;
    Ok(out)
}

/// Calls `each` with all that is in a range, rows in the place of their briefs.
fn scan(
    view: &View<'_>,
    options: ReadOptions,
    range: &KeyRange,
    limit: usize,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Tier>,
) -> Result<(), Tier> {
    let of_rows = OnceCell::new();
    let iterator = |options| view.db.raw_iterator_opt(options);
    scan_with(iterator, options, range, limit, |key, value| {
        if columns::is_brief(value) {
            let options = of_rows.get_or_init(|| view.options());
            each(key, &columns::row(view.db, key, value, options)?)
        } else {
            each(key, value)
        }
    })
}

fn scan_with<'a>(
    iterator: impl Fn(ReadOptions) -> DBRawIterator<'a>,
    mut options: ReadOptions,
    range: &KeyRange,
    limit: usize,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Tier>,
) -> Result<(), Tier> {
    if range.start >= range.end {
        return Ok(());
    }
    if within_bucket(range) {
        options.set_prefix_same_as_start(true);
    } else {
        options.set_total_order_seek(true);
    }
    // Also keeps the iterator from reading a block beyond the range just to see that it has ended.
    options.set_iterate_upper_bound(range.end.clone());
    let mut iterator = iterator(options);
    iterator.seek(&range.start);
    for _ in 0..limit {
        let Some((key, value)) = iterator.item() else {
            break;
        };
        each(key, value)?;
        iterator.next();
    }
    // An iterator also stops being valid when it failed.
    iterator.status().map_err(|e| Tier::of(&range.start, &e))
}

/// The first key beyond all that begin so.
pub(crate) fn successor(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xFF {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// The same, compared: nothing is made for it.
pub(crate) fn is_successor(end: &[u8], prefix: &[u8]) -> bool {
    let tail = prefix.iter().rev().take_while(|b| **b == 0xFF).count();
    match prefix[..prefix.len() - tail].split_last() {
        Some((last, rest)) => end.split_last() == Some((&(last + 1), rest)),
        None => end.is_empty(),
    }
}

/// Whether all keys of a range share a bucket's prefix.
fn within_bucket(range: &KeyRange) -> bool {
    let Some(prefix) = range.start.get(..BUCKET_PREFIX) else {
        return false;
    };
    range.end <= successor(prefix)
}

pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<Record, StoreError> {
    Record::decode(key, value).map_err(|e| StoreError::corrupt(key, e))
}

fn device(key: &[u8], e: &Error) -> StoreError {
    match e.kind() {
        ErrorKind::Corruption => StoreError::corrupt(key, e),
        _ => StoreError::Device(e.to_string()),
    }
}

/// A read of everything is never incomplete.
pub(crate) fn failed(t: Tier) -> StoreError {
    match t {
        Tier::Failed(e) => e,
        Tier::NotInMemory => StoreError::Device("incomplete read".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_format::NameHash;
    use pando_types::{DirId, Name, Part, Slot};

    #[test]
    fn later_pages_of_a_directory() {
        let dir = DirId(7 << 64);
        assert!(is_later_page(&Scan::EntriesFrom(dir.into(), NameHash(5)).range()));
        assert!(!is_later_page(
            &Scan::EntriesFrom(dir.into(), NameHash(0)).range()
        ));
        assert!(!is_later_page(&Scan::Entries(dir.into()).range()));
        assert!(!is_later_page(&Scan::Bucket(dir.into(), NameHash(5)).range()));
        assert!(!is_later_page(&Scan::Slot(Part::whole(dir).slot()).range()));
    }

    #[test]
    fn successors_by_comparison() {
        let prefixes: [&[u8]; 6] = [b"", b"a", b"ab", b"a\xFF", b"a\xFF\xFF", b"\xFF\xFF"];
        for prefix in prefixes {
            for other in prefixes {
                let end = successor(other);
                assert_eq!(
                    is_successor(&end, prefix),
                    end == successor(prefix),
                    "{other:?} {prefix:?}"
                );
            }
            assert!(!is_successor(b"x", prefix));
        }
    }

    #[test]
    fn ranges_within_a_bucket() {
        let (dir, name) = (DirId(77), Name::root());
        for hash in [NameHash(0), NameHash(0xFF), NameHash(5), NameHash::MAX] {
            assert!(within_bucket(&Scan::Bucket(dir.into(), hash).range()));
            assert!(within_bucket(
                &Scan::Attachments(dir.into(), hash, name.clone()).range()
            ));
            assert!(within_bucket(&Scan::Bucket(dir.into(), hash).range().after(
                &Key::Entry {
                    part: dir.into(),
                    hash,
                    name: name.clone()
                }
            )));
        }
        for wide in [
            Scan::Entries(dir.into()).range(),
            Scan::EntriesFrom(dir.into(), NameHash(5)).range(),
            Scan::Slot(Slot(1)).range(),
        ] {
            assert!(!within_bucket(&wide));
        }
    }
}
