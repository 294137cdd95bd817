//! Rows that are written again and again: touches of directories, and replies. What a turn writes of them
//! goes into one row of the journal, which is one insertion into the memtable, and not into rows of their
//! own.
//!
//! Its rows are in a family of their own (`families`), each in a place of its own, and have numbers. Each
//! says from which number on rows still count: those before are void, whether or not others have been written
//! in their places.
//!
//! A store of an older format has no such family, and nothing is added to its journal. Stores of format 6
//! have rows at the end of the key space of records, which go when it is opened.
//!
//! Invariant (H188): what the newest row that counts says of a key is what the key has; what no row that
//! counts speaks of has what its own row says. So before a row is void, what it is the newest to speak of
//! gets a row of its own, in the same batch or in an earlier one. Whoever reads a range has its rows written
//! first ([`Journal::write_out`]), and whoever writes rows past the journal has it emptied
//! ([`Journal::settle`]).

use crate::gather::Written;
use crate::read::{is_successor, raw_rows};
use crate::{columns, families};
use foldhash::fast::RandomState;
use pando_format::codec::Reader;
use pando_format::{Codec, DecodeError, Key, KeyRange, LOCAL_SLOT, Record, Tag};
use pando_store::StoreError;
use pando_types::Sequence;
use rocksdb::{ColumnFamily, DB, WriteBatch};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Before the number of a row's place. No tag is 0xFF.
const PREFIX: [u8; 3] = [0xFF, 0xFF, 0xFF];

/// Rows that there are at most.
const PLACES: u16 = 4096;

/// What is said of damage.
const SAFE: &str = "without it nobody knows which requests were answered";

/// Version of the encoding.
const VERSION: u8 = 1;

/// What stands for the length of a value where there is none.
const DELETED: u32 = u32::MAX;

/// Bytes of the longest key of its kinds.
const LONGEST: usize = 2 + 1 + 16 + 2;

/// A key of one of its kinds.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kept {
    len: u8,
    bytes: [u8; LONGEST],
}

impl Kept {
    fn new(key: &[u8]) -> Option<Kept> {
        let of_its_kinds = Tag::Reply.is_of(key) || Tag::Touch.is_of(key);
        let of_its_kinds = of_its_kinds && !key.starts_with(&LOCAL_SLOT.0.to_be_bytes());
        let mut bytes = [0; LONGEST];
        bytes
            .get_mut(..key.len())
            .filter(|_| of_its_kinds)?
            .copy_from_slice(key);
        let len = key.len() as u8;
        Some(Kept { len, bytes })
    }

    fn key(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn group(&self) -> Group {
        [self.bytes[0], self.bytes[1], self.bytes[2]]
    }
}

/// The keys of one kind in a slot, by what they begin with.
type Group = [u8; 3];

/// What a key in the journal has.
enum Value {
    Is(Vec<u8>),
    /// Its own row says the same.
    Written(Vec<u8>),
    /// It has no row of its own either.
    Deleted,
    /// Nobody asks for it any more: it gets no row of its own only because the journal's is void.
    Obsolete(Vec<u8>),
}

/// A row that counts.
struct Row {
    place: u16,
    bytes: usize,
    keys: Vec<Kept>,
}

/// The journal, and what is in it.
pub(crate) struct Journal {
    /// Bytes of rows that count, at most, but that the newest does whatever it is.
    most: usize,
    /// What rows that count speak of, and the number of the newest that does.
    latest: RefCell<HashMap<Kept, (u64, Value), RandomState>>,
    /// How many of them are in each group, if any are.
    groups: RefCell<HashMap<Group, usize, RandomState>>,
    /// Those that count, the oldest first.
    rows: RefCell<VecDeque<Row>>,
    bytes: Cell<usize>,
    /// Places of void rows. The lowest is taken first: what is there does not grow with their number.
    free: RefCell<BTreeSet<u16>>,
    /// All places below were used.
    places: Cell<u16>,
    /// Number of the next row.
    next: Cell<u64>,
}

/// The only group that a range can have something of, if there is one.
fn group_of(range: &KeyRange) -> Option<Group> {
    let group: Group = *range.start.first_chunk()?;
    (range.end.starts_with(&group) || is_successor(&range.end, &group)).then_some(group)
}

fn key_of(place: u16) -> [u8; 5] {
    let [a, b] = place.to_be_bytes();
    [PREFIX[0], PREFIX[1], PREFIX[2], a, b]
}

/// All rows.
fn places() -> KeyRange {
    let mut end = PREFIX.to_vec();
    end.extend_from_slice(&[0xFF; 3]);
    KeyRange {
        start: PREFIX.to_vec(),
        end,
    }
}

impl Journal {
    /// An empty one.
    pub(crate) fn new(most: usize) -> Journal {
        Journal {
            most,
            latest: RefCell::default(),
            groups: RefCell::default(),
            rows: RefCell::default(),
            bytes: Cell::new(0),
            free: RefCell::default(),
            places: Cell::new(0),
            next: Cell::new(0),
        }
    }

    /// What a program that ended left in the journal, and what is to be written for it before anything else
    /// is.
    pub(crate) fn open(db: &DB, most: usize) -> Result<(Journal, WriteBatch), StoreError> {
        let journal = Journal::new(most);
        let family = families::journal(db);
        let mut rows = BTreeMap::new();
        let mut from = 0;
        let mut batch = WriteBatch::default();
        for (key, value) in raw_rows(db, family, &places())? {
            let row = decode(&key, &value)
                .map_err(|e| StoreError::corrupt(&key, format_args!("{e}, in the journal ({SAFE})")))?;
            from = from.max(row.from);
            match family {
                Some(_) => journal.was_used(row.place),
                None => batch.delete(&key),
            }
            rows.insert(row.number, (key, row.entries));
        }
        let Some(last) = rows.keys().next_back().copied() else {
            return Ok((journal, batch));
        };
        let count: BTreeMap<_, _> = rows.split_off(&from);
        // Each is written with all before it, or not at all.
        if count.len() as u64 != last - from + 1 {
            let (key, _) = count.values().next().cloned().unwrap_or_default();
            let why = format_args!("rows of the journal after this one are missing ({SAFE})");
            return Err(StoreError::corrupt(&key, why));
        }
        for (number, (_, entries)) in count {
            for (kept, value) in entries {
                journal.enter(kept, number, value);
            }
        }
        journal.next.set(last.saturating_add(1));
        journal.settle(family, &mut batch);
        Ok((journal, batch))
    }

    /// What rows say that are left of a damaged journal, and whether none that counts is missing. Those that
    /// are damaged are passed over.
    pub(crate) fn left(rows: &BTreeMap<Vec<u8>, Vec<u8>>) -> (WriteBatch, bool) {
        let journal = Journal::new(0);
        let whole = rows.iter().filter_map(|(key, value)| decode(key, value).ok());
        let mut rows: BTreeMap<u64, Decoded> = whole.map(|row| (row.number, row)).collect();
        let from = rows.values().map(|row| row.from).max().unwrap_or(0);
        let count = rows.split_off(&from);
        let last = count.keys().next_back().copied();
        let complete = last.is_some_and(|last| count.len() as u64 == last - from + 1);
        for (number, row) in count {
            for (kept, value) in row.entries {
                journal.enter(kept, number, value);
            }
        }
        let mut batch = WriteBatch::default();
        journal.settle(None, &mut batch);
        (batch, complete)
    }

    /// There is a row in a place, which is void once another is written.
    fn was_used(&self, place: u16) {
        let places = self.places.get().max(place + 1);
        self.free.borrow_mut().extend(self.places.replace(places)..places);
    }

    /// What a key has, if the journal knows: a value, or that it has none.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        match &self.latest.borrow().get(&Kept::new(key)?)?.1 {
            Value::Is(value) | Value::Written(value) | Value::Obsolete(value) => Some(Some(value.clone())),
            Value::Deleted => Some(None),
        }
    }

    /// A row says this of a key.
    fn enter(&self, kept: Kept, number: u64, value: Option<Vec<u8>>) {
        let value = value.map_or(Value::Deleted, Value::Is);
        if self.latest.borrow_mut().insert(kept, (number, value)).is_none() {
            *self.groups.borrow_mut().entry(kept.group()).or_default() += 1;
        }
    }

    /// No row that counts speaks of a key any more.
    fn leave(&self, kept: &Kept) -> Option<Value> {
        let (_, value) = self.latest.borrow_mut().remove(kept)?;
        let mut groups = self.groups.borrow_mut();
        if let Some(n) = groups.get_mut(&kept.group()) {
            *n -= 1;
            if *n == 0 {
                groups.remove(&kept.group());
            }
        }
        Some(value)
    }

    /// Whether it knows something of a range, or might.
    pub(crate) fn touches(&self, range: &KeyRange) -> bool {
        match group_of(range) {
            Some(group) => self.groups.borrow().contains_key(&group),
            None => range.start < range.end && !self.latest.borrow().is_empty(),
        }
    }

    /// Adds to a batch the rows of what is in a range, and says whether there is anything.
    pub(crate) fn write_out(&self, range: &KeyRange, batch: &mut WriteBatch) -> bool {
        let mut any = false;
        for (kept, (_, value)) in self.latest.borrow_mut().iter_mut() {
            if let Value::Is(bytes) | Value::Obsolete(bytes) = value
                && range.contains(kept.key())
            {
                batch.put(kept.key(), &*bytes);
                *value = Value::Written(std::mem::take(bytes));
                any = true;
            }
        }
        any
    }

    /// A reply that nobody asks for any more: see `Store::obsolete`.
    pub(crate) fn obsolete(&self, key: &[u8], sequence: Sequence) {
        if let Some(kept) = Kept::new(key)
            && let Some((_, value)) = self.latest.borrow_mut().get_mut(&kept)
            && let Value::Is(encoded) = value
            && Record::sequence_of_reply(encoded) == Some(sequence)
        {
            *value = Value::Obsolete(std::mem::take(encoded));
        }
    }

    /// Adds rows to a batch: those of its kinds as one, if there is a family for it, and what becomes of the
    /// oldest ones for it.
    pub(crate) fn write(&self, rows: Written, db: &DB, batch: &mut WriteBatch) {
        let (family, of_rows) = (families::journal(db), families::rows(db));
        let mut here = Vec::new();
        for (key, value) in rows {
            let kept = family.and_then(|_| Kept::new(&key));
            if value.is_none() {
                columns::delete(of_rows, batch, &key);
            }
            match (kept, value) {
                (Some(kept), Some(value)) => here.push((kept, Some(value))),
                // Else no row speaks of it.
                (Some(kept), None) if self.latest.borrow().contains_key(&kept) => here.push((kept, None)),
                (None, Some(value)) => columns::put(of_rows, batch, &key, &value),
                (_, None) => {}
            }
        }
        if let Some(family) = family.filter(|_| !here.is_empty()) {
            self.add(here, family, batch);
        }
    }

    fn add(&self, here: Vec<(Kept, Option<Vec<u8>>)>, family: &ColumnFamily, batch: &mut WriteBatch) {
        let number = self.next.get();
        let size = here.iter().map(|(kept, value)| size_of(kept, value.as_deref()));
        let bytes = size.sum();
        let mut entries = Vec::with_capacity(bytes);
        let mut keys = Vec::with_capacity(here.len());
        for (kept, value) in here {
            put(&mut entries, kept.key(), value.as_deref());
            keys.push(kept);
            self.enter(kept, number, value);
        }
        self.next.set(number + 1);
        self.bytes.set(self.bytes.get() + bytes);
        while self.is_too_long() {
            self.void_oldest(batch);
        }
        self.put(
            number,
            Row {
                place: self.place(),
                bytes,
                keys,
            },
            &entries,
            family,
            batch,
        );
    }

    /// A place for a row.
    fn place(&self) -> u16 {
        self.free.borrow_mut().pop_first().unwrap_or_else(|| {
            let place = self.places.get();
            self.places.set(place + 1);
            place
        })
    }

    /// Writes a row. All before those that count are void with it.
    fn put(&self, number: u64, row: Row, entries: &[u8], family: &ColumnFamily, batch: &mut WriteBatch) {
        let key = key_of(row.place);
        let mut rows = self.rows.borrow_mut();
        rows.push_back(row);
        let oldest = number + 1 - rows.len() as u64;
        batch.put_cf(family, key, encode(&key, number, oldest, entries));
    }

    /// Whether something is to go before one more row comes.
    fn is_too_long(&self) -> bool {
        let rows = self.rows.borrow().len();
        rows > 0 && (self.bytes.get() > self.most || rows >= usize::from(PLACES))
    }

    /// What the oldest row is the newest to speak of gets rows of its own.
    fn void_oldest(&self, batch: &mut WriteBatch) {
        // The one that is about to come has its number already.
        let number = self.next.get() - 1 - self.rows.borrow().len() as u64;
        let Some(row) = self.rows.borrow_mut().pop_front() else {
            return;
        };
        self.free.borrow_mut().insert(row.place);
        self.bytes.set(self.bytes.get() - row.bytes);
        for kept in row.keys {
            let newest = self.latest.borrow().get(&kept).map(|(newest, _)| *newest);
            if newest != Some(number) {
                continue;
            }
            if let Some(Value::Is(value)) = self.leave(&kept) {
                batch.put(kept.key(), value);
            }
        }
    }

    /// Adds to a batch the rows of all that is in the journal, which is empty then.
    pub(crate) fn settle(&self, family: Option<&ColumnFamily>, batch: &mut WriteBatch) {
        let latest = self.latest.take();
        self.groups.take();
        if latest.is_empty() {
            return;
        }
        for (kept, (_, value)) in latest {
            match value {
                Value::Is(value) => batch.put(kept.key(), value),
                // Only after a replay it may have one.
                Value::Deleted => batch.delete(kept.key()),
                Value::Written(_) | Value::Obsolete(_) => {}
            }
        }
        let void = self.rows.take();
        self.free.borrow_mut().extend(void.iter().map(|row| row.place));
        self.bytes.set(0);
        let Some(family) = family else { return };
        let number = self.next.get();
        self.next.set(number + 1);
        let empty = Row {
            place: self.place(),
            bytes: 0,
            keys: Vec::new(),
        };
        self.put(number, empty, &[], family, batch);
    }

    /// Adds to a batch that void rows go.
    pub(crate) fn clear(&self, family: Option<&ColumnFamily>, batch: &mut WriteBatch) {
        if let Some(family) = family {
            let free = self.free.borrow();
            free.iter()
                .for_each(|place| batch.delete_cf(family, key_of(*place)));
        }
    }
}

/// A row, decoded.
struct Decoded {
    place: u16,
    number: u64,
    from: u64,
    entries: Vec<(Kept, Option<Vec<u8>>)>,
}

/// Bytes of an entry.
fn size_of(kept: &Kept, value: Option<&[u8]>) -> usize {
    2 + 4 + usize::from(kept.len) + value.map_or(0, <[u8]>::len)
}

fn put(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    (key.len() as u16).put(out);
    value.map_or(DELETED, |v| v.len() as u32).put(out);
    out.extend_from_slice(key);
    out.extend_from_slice(value.unwrap_or_default());
}

fn encode(key: &[u8], number: u64, from: u64, entries: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + 8 + 8 + entries.len() + 4);
    VERSION.put(&mut out);
    number.put(&mut out);
    from.put(&mut out);
    out.extend_from_slice(entries);
    checksum(key, &out).put(&mut out);
    out
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), value)
}

fn decode(key: &[u8], value: &[u8]) -> Result<Decoded, DecodeError> {
    let Some((body, sum)) = value.split_last_chunk::<4>() else {
        return Err(DecodeError::Invalid("row of the journal"));
    };
    if u32::from_bytes(sum)? != checksum(key, body) {
        return Err(DecodeError::Checksum);
    }
    let mut r = Reader::new(body);
    if u8::take(&mut r)? != VERSION {
        return Err(DecodeError::Invalid("version of the journal"));
    }
    let (number, from) = (u64::take(&mut r)?, u64::take(&mut r)?);
    let place = match key {
        [0xFF, 0xFF, 0xFF, a, b] => u16::from_be_bytes([*a, *b]),
        _ => PLACES,
    };
    if place >= PLACES {
        return Err(DecodeError::Invalid("place in the journal"));
    }
    if from > number || number - from >= u64::from(PLACES) {
        return Err(DecodeError::Invalid("number of a row of the journal"));
    }
    let mut entries = Vec::new();
    while r.remaining() > 0 {
        let (k, v) = (u16::take(&mut r)? as usize, u32::take(&mut r)?);
        let key = r.bytes(k)?;
        Key::decode(key)?;
        let kept = Kept::new(key).ok_or(DecodeError::Invalid("key in the journal"))?;
        let value = match v {
            DELETED => None,
            len => Some(r.bytes(len as usize)?.to_vec()),
        };
        entries.push((kept, value));
    }
    Ok(Decoded {
        place,
        number,
        from,
        entries,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::{DirId, RequestSlot, SessionId, Slot};

    /// A touch and a reply, one of them deleted.
    fn row() -> (Vec<u8>, Vec<u8>) {
        let touch = Key::Touch(DirId(0x0001_0203_0405_0607_0809_0A0B_0C0D_0E0F).into()).encode();
        let reply = Key::Reply(Slot(5), SessionId(0x77), RequestSlot(3)).encode();
        let mut entries = Vec::new();
        put(&mut entries, &touch, Some(&[0xAA, 0xBB]));
        put(&mut entries, &reply, None);
        let key = key_of(0x0102).to_vec();
        let value = encode(&key, 9, 7, &entries);
        (key, value)
    }

    /// If this fails, stores of programs before this one cannot be opened after kill -9: `docs/format.md`.
    #[test]
    fn bytes_of_a_row() {
        let (key, value) = row();
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        assert_eq!(hex(&key), "ffffff0102");
        let pinned = concat!(
            "0109000000000000000700000000000000",
            "1300020000000e2c54000102030405060708090a0b0c0d0e0faabb",
            "1500ffffffff000552000000000000000000000000000000770003",
            "b5f36321"
        );
        assert_eq!(hex(&value), pinned);
        let row = decode(&key, &value).expect("a row");
        assert_eq!((row.place, row.number, row.from), (0x0102, 9, 7));
        let values: Vec<Option<Vec<u8>>> = row.entries.into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [Some(vec![0xAA, 0xBB]), None]);
    }

    #[test]
    fn damage_of_a_row_is_noticed() {
        let (key, value) = row();
        for bit in 0..value.len() * 8 {
            let mut damaged = value.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&key, &damaged).is_err(), "bit {bit}");
        }
        assert!((0..value.len()).all(|end| decode(&key, &value[..end]).is_err()));
        assert!(decode(&key_of(0x0103), &value).is_err(), "in another place");
    }
}
