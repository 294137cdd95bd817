//! Records in memory, in front of RocksDB: what operations read again and again would cost a search of every
//! memtable and table there.
//!
//! Two kinds of reads are kept: whole buckets (the entries of a name's hash, also if there are none) and
//! single records with short keys (heads). Both as bytes with their checksums, so that what comes from here
//! is checked as what comes from the device is.
//!
//! Invariant: what is kept is what the database has, applied batches included. There is one writer,
//! [`crate::RocksStore`], and it tells of each key it writes before the next read.

use crate::read::{BUCKET_PREFIX, Row, decode, decode_row, is_successor};
use foldhash::fast::RandomState;
use pando_format::{Key, KeyRange, Record};
use pando_store::StoreError;
use quick_cache::Weighter;
use quick_cache::unsync::{Cache, DefaultLifecycle};
use std::collections::BTreeMap;

/// About what one that is kept costs beyond its bytes: its place in the cache, and its allocation.
const OVERHEAD: usize = 96;

/// Bytes by which a cache of so many bytes guesses how many there will be.
const TYPICAL: usize = 256;

/// A bucket, or a record, by the bytes of its key. All keys have the same length here; what is shorter is
/// filled up.
type Place = (u8, [u8; BUCKET_PREFIX]);

/// The rows of a bucket or of a key, in key order. Of each: how long what its key has beyond its place is,
/// and its value; then both. They are one allocation, and what keys have in common is kept once: the same
/// memory holds more.
struct Rows(Box<[u8]>);

/// Bytes in front of a row: two for what its key has beyond its place, four for its value.
const LENGTHS: usize = 6;

impl Rows {
    fn new<'a>(rows: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) -> Rows {
        let sizes = rows
            .clone()
            .map(|(rest, value)| LENGTHS + rest.len() + value.len());
        let mut bytes = Vec::with_capacity(sizes.sum());
        for (rest, value) in rows {
            bytes.extend((rest.len() as u16).to_le_bytes());
            bytes.extend((value.len() as u32).to_le_bytes());
            bytes.extend_from_slice(rest);
            bytes.extend_from_slice(value);
        }
        Rows(bytes.into_boxed_slice())
    }

    /// What keys have beyond their place, and values.
    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut left = &*self.0;
        std::iter::from_fn(move || {
            let (&[a, b, c, d, e, f], more) = left.split_first_chunk::<LENGTHS>()?;
            let (rest, more) = more.split_at(usize::from(u16::from_le_bytes([a, b])));
            let (value, more) = more.split_at(u32::from_le_bytes([c, d, e, f]) as usize);
            left = more;
            Some((rest, value))
        })
    }

    /// The same, with another value of a key.
    fn with(&self, key: &[u8], value: Option<&[u8]>) -> Rows {
        let key = rest(key);
        let others = self.iter().filter(|(k, _)| *k != key);
        let mut rows: Vec<(&[u8], &[u8])> = others.chain(value.map(|v| (key, v))).collect();
        rows.sort_unstable();
        Rows::new(rows.into_iter())
    }

    /// The value of a key, if it is there.
    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let key = rest(key);
        self.iter().find(|(k, _)| *k == key).map(|(_, value)| value)
    }
}

/// What a key has beyond its place.
fn rest(key: &[u8]) -> &[u8] {
    key.get(BUCKET_PREFIX..).unwrap_or_default()
}

struct Bytes;

impl Weighter<Place, Rows> for Bytes {
    fn weight(&self, _: &Place, rows: &Rows) -> u64 {
        (rows.0.len() + OVERHEAD) as u64
    }
}

/// Reads of buckets from the device that are known of at a time.
const READS: usize = 4096;

/// They.
pub(crate) struct Records {
    kept: Option<Cache<Place, Rows, Bytes, RandomState>>,
    /// Buckets that are being read from the device, each with the number of the read, and in which nothing
    /// was written since it began.
    reads: BTreeMap<Place, u64>,
    begun: u64,
}

fn place(prefix: &[u8]) -> Option<Place> {
    let mut bytes = [0; BUCKET_PREFIX];
    bytes.get_mut(..prefix.len())?.copy_from_slice(prefix);
    Some((prefix.len() as u8, bytes))
}

/// Where a key is kept, if it is: by itself or in its bucket.
fn around(key: &[u8]) -> Option<Place> {
    place(&key[..key.len().min(BUCKET_PREFIX)])
}

/// Where a single record is kept. Of those with longer keys whole buckets are.
fn of_key(key: &Key, bytes: &[u8]) -> Option<Place> {
    if matches!(key, Key::Head(_)) {
        place(bytes)
    } else {
        None
    }
}

/// Where a range is kept, if it is a whole bucket.
fn of_range(range: &KeyRange) -> Option<Place> {
    let whole = range.start.len() == BUCKET_PREFIX && is_successor(&range.end, &range.start);
    if whole { place(&range.start) } else { None }
}

impl Records {
    /// None, and room for so many bytes of them; 0: nothing is kept.
    pub(crate) fn new(bytes: usize) -> Records {
        let new = || {
            // Seeded at random: who chooses names cannot choose where they lie.
            let hasher = RandomState::default();
            let lifecycle = DefaultLifecycle::default();
            Cache::with(bytes / TYPICAL + 1, bytes as u64, Bytes, hasher, lifecycle)
        };
        let kept = (bytes > 0).then(new);
        Records {
            kept,
            reads: BTreeMap::new(),
            begun: 0,
        }
    }

    /// A record, if it is known whether it is there.
    pub(crate) fn get(&self, key: &Key, bytes: &[u8]) -> Option<Result<Option<Record>, StoreError>> {
        let value = self.kept.as_ref()?.get(&of_key(key, bytes)?)?.get(bytes);
        Some(value.map(|value| decode(bytes, value)).transpose())
    }

    /// The records of a bucket, if they are known.
    pub(crate) fn list(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Option<Result<Vec<(Key, Record)>, StoreError>> {
        let kept = self.kept.as_ref()?.get(&of_range(range)?)?;
        // Room for most names.
        let mut key = Vec::with_capacity(2 * BUCKET_PREFIX);
        key.extend_from_slice(&range.start);
        let rows = kept.iter().take(limit).map(|(rest, value)| {
            key.truncate(BUCKET_PREFIX);
            key.extend_from_slice(rest);
            decode_row(&key, value)
        });
        Some(rows.collect())
    }

    /// Whether a key is there, if that is known.
    pub(crate) fn has(&self, key: &[u8]) -> Option<bool> {
        let rows = self.kept.as_ref()?.peek(&around(key)?)?;
        Some(rows.get(key).is_some())
    }

    /// Whether it is worth telling what is in a range.
    pub(crate) fn keeps_range(&self, range: &KeyRange) -> bool {
        self.kept.is_some() && of_range(range).is_some()
    }

    /// A record was read, or found to be absent.
    pub(crate) fn was_read(&mut self, key: &Key, bytes: &[u8], value: Option<&[u8]>) {
        if let (Some(kept), Some(place)) = (&mut self.kept, of_key(key, bytes)) {
            kept.insert(place, Rows::new(value.map(|v| (rest(bytes), v)).into_iter()));
        }
    }

    /// A bucket was read to its end.
    pub(crate) fn was_listed(&mut self, range: &KeyRange, rows: Vec<Row>) {
        if let (Some(kept), Some(place)) = (&mut self.kept, of_range(range)) {
            let all = rows.iter().map(|(key, value)| (rest(key), &**value));
            kept.insert(place, Rows::new(all));
        }
    }

    /// A bucket begins to be read from the device. Returns the number of the read.
    pub(crate) fn begins(&mut self, range: &KeyRange) -> u64 {
        self.begun += 1;
        if self.reads.len() >= READS {
            // Some may never end.
            self.reads.clear();
        }
        if let (Some(_), Some(place)) = (&self.kept, of_range(range)) {
            self.reads.insert(place, self.begun);
        }
        self.begun
    }

    /// It was read to its end. What was written meanwhile may be missing: then nothing is kept.
    pub(crate) fn ended(&mut self, range: &KeyRange, read: u64, rows: Vec<Row>) {
        let Some(place) = of_range(range) else { return };
        if self.reads.get(&place) == Some(&read) {
            self.reads.remove(&place);
            self.was_listed(range, rows);
        }
    }

    /// Something is written under a key.
    fn overtakes(&mut self, place: &Place) {
        if !self.reads.is_empty() {
            self.reads.remove(place);
        }
    }

    /// A record was written, or deleted.
    pub(crate) fn was_written(&mut self, key: &[u8], value: Option<&[u8]>) {
        let Some(place) = around(key) else { return };
        self.overtakes(&place);
        let Some(kept) = &mut self.kept else { return };
        let Some(rows) = kept.peek(&place).map(|rows| rows.with(key, value)) else {
            return;
        };
        kept.insert(place, rows);
    }

    /// A record was written, of a key whose bucket was empty.
    pub(crate) fn is_alone(&mut self, key: &[u8], value: &[u8]) {
        let Some(place) = around(key) else { return };
        self.overtakes(&place);
        if let Some(kept) = &mut self.kept {
            kept.insert(place, Rows::new(std::iter::once((rest(key), value))));
        }
    }

    /// Bytes of them, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, Cache::weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_format::{CounterRecord, NameHash, Scan};
    use pando_types::{DirId, Name, Slot};

    fn entry(dir: u128, name: &[u8]) -> Key {
        Key::Entry {
            part: DirId(dir).into(),
            hash: NameHash(5),
            name: Name::new(name).expect("a name"),
        }
    }

    /// Of no kind that an entry has: what a record says is not looked at here.
    fn value(key: &[u8], n: u64) -> Vec<u8> {
        Record::Counter(CounterRecord {
            reserved: n,
            epoch: 1,
        })
        .encode(key)
    }

    #[test]
    fn what_is_written_during_a_read_is_not_forgotten_after_it() {
        let range = Scan::Bucket(DirId(1).into(), NameHash(5)).range();
        let (a, b) = (entry(1, b"a").encode(), entry(1, b"b").encode());
        let row = |key: &[u8], n| -> Row { (key.into(), value(key, n).into()) };
        let mut records = Records::new(1 << 20);
        let read = records.begins(&range);
        records.ended(&range, read, vec![row(&a, 1)]);
        assert!(records.has(&a) == Some(true) && records.has(&b) == Some(false));
        // Another one, of a bucket that is not kept any more.
        let mut records = Records::new(1 << 20);
        let read = records.begins(&range);
        records.was_written(&b, Some(&value(&b, 2)));
        records.ended(&range, read, vec![row(&a, 1)]);
        assert_eq!(records.has(&a), None, "it may be old");
        let (old, new) = (records.begins(&range), records.begins(&range));
        records.ended(&range, old, vec![row(&a, 1)]);
        assert_eq!(records.has(&a), None, "the newer one counts");
        records.ended(&range, new, vec![row(&a, 1), row(&b, 2)]);
        assert_eq!(records.has(&b), Some(true));
        let read = records.begins(&range);
        records.is_alone(&b, &value(&b, 3));
        records.ended(&range, read, Vec::new());
        assert_eq!(records.has(&b), Some(true));
    }

    #[test]
    fn buckets_follow_what_is_written() {
        let mut records = Records::new(1 << 20);
        let bucket = Scan::Bucket(DirId(7).into(), NameHash(5)).range();
        let (a, b) = (entry(7, b"a").encode(), entry(7, b"b").encode());
        assert!(records.list(&bucket, 9).is_none() && records.has(&a).is_none());
        // What was never read is not known by being written.
        records.was_written(&a, Some(&value(&a, 1)));
        assert!(records.list(&bucket, 9).is_none());
        records.was_listed(&bucket, Vec::new());
        assert_eq!(
            (records.list(&bucket, 9), records.has(&a)),
            (Some(Ok(vec![])), Some(false))
        );
        records.was_written(&b, Some(&value(&b, 2)));
        records.was_written(&a, Some(&value(&a, 3)));
        records.was_written(&b, Some(&value(&b, 4)));
        let reserved = |records: &Records, limit| -> Vec<u64> {
            let listed = records.list(&bucket, limit).expect("known").expect("whole");
            let of = |(_, r)| match r {
                Record::Counter(c) => c.reserved,
                other => panic!("{other:?}"),
            };
            listed.into_iter().map(of).collect()
        };
        assert_eq!(reserved(&records, 9), [3, 4]);
        assert_eq!(reserved(&records, 1), [3]);
        records.was_written(&a, None);
        assert_eq!(reserved(&records, 9), [4]);
        assert_eq!((records.has(&a), records.has(&b)), (Some(false), Some(true)));
    }

    #[test]
    fn the_first_of_a_bucket_is_all_of_it() {
        let mut records = Records::new(1 << 20);
        let bucket = Scan::Bucket(DirId(7).into(), NameHash(5)).range();
        let (a, b) = (entry(7, b"a").encode(), entry(7, b"b").encode());
        records.is_alone(&b, &value(&b, 2));
        records.was_written(&a, Some(&value(&a, 1)));
        let listed = records.list(&bucket, 9).expect("known").expect("whole");
        let keys: Vec<Vec<u8>> = listed.iter().map(|(key, _)| key.encode()).collect();
        assert_eq!(keys, [a, b]);
    }

    #[test]
    fn only_whole_buckets_and_heads() {
        let mut records = Records::new(1 << 20);
        let bucket = Scan::Bucket(DirId(7).into(), NameHash(5)).range();
        for other in [
            Scan::Entries(DirId(7).into()).range(),
            bucket.after(&entry(7, b"a")),
            Scan::Slot(Slot(7)).range(),
        ] {
            assert!(!records.keeps_range(&other));
            records.was_listed(&other, Vec::new());
            assert!(records.list(&other, 9).is_none());
        }
        let (head, counter) = (Key::Head(DirId(7).into()), Key::Counter(Slot(7)));
        for (key, kept) in [(&head, true), (&counter, false), (&entry(7, b"a"), false)] {
            let bytes = key.encode();
            records.was_read(key, &bytes, None);
            assert_eq!(records.get(key, &bytes), kept.then_some(Ok(None)));
            records.was_written(&bytes, Some(&value(&bytes, 8)));
            let found = records.get(key, &bytes).map(|r| r.map(|r| r.is_some()));
            assert_eq!(found, kept.then_some(Ok(true)));
        }
        // What comes from here is checked as what comes from the device is.
        let bytes = head.encode();
        records.was_written(&bytes, Some(b"damaged"));
        assert!(matches!(
            records.get(&head, &bytes),
            Some(Err(StoreError::Corrupt { .. }))
        ));
    }

    #[test]
    fn bounded() {
        let mut records = Records::new(64 << 10);
        for dir in 0..10_000 {
            let bucket = Scan::Bucket(DirId(dir).into(), NameHash(5)).range();
            let key = entry(dir, b"a").encode();
            records.was_listed(&bucket, vec![(key.clone().into(), value(&key, 1).into())]);
        }
        assert!(
            records.bytes() > 32 << 10 && records.bytes() <= 64 << 10,
            "{}",
            records.bytes()
        );
        let mut none = Records::new(0);
        let bucket = Scan::Bucket(DirId(1).into(), NameHash(5)).range();
        none.was_listed(&bucket, Vec::new());
        assert!(!none.keeps_range(&bucket) && none.list(&bucket, 9).is_none() && none.bytes() == 0);
    }
}
