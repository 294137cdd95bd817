//! The journal of touches and replies, as RocksDB has it.

use pando_format::codec::Blob;
use pando_format::{Batch, Key, Mutation, NameHash, Record, ReplyRecord, ReplyWrite, Scan, Superblock};
use pando_store::conformance::block_on;
use pando_store::{Durability, Level, Store, StoreError};
use pando_store_rocks::{RocksOptions, RocksStore};
use pando_types::{BootEpoch, DirId, RequestSlot, Sequence, SessionId, Slot};
use rocksdb::IteratorMode;
use std::collections::BTreeMap;
use std::path::Path;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// All rows of a closed store, those of the journal in its family among them.
fn rows(path: &Path) -> Rows {
    let db = crate::common::raw(path);
    let records = db.iterator(IteratorMode::Start);
    let journal = db
        .cf_handle("journal")
        .map(|f| db.iterator_cf(f, IteratorMode::Start));
    let all = records.chain(journal.into_iter().flatten());
    all.map(|row| row.map(|(k, v)| (k.into_vec(), v.into_vec())).expect("row"))
        .collect()
}

/// Changes a row of the journal.
fn change(path: &Path, key: &[u8], value: Option<&[u8]>) {
    let db = crate::common::raw(path);
    let family = db.cf_handle("journal").expect("a journal");
    match value {
        Some(value) => db.put_cf(family, key, value).expect("put"),
        None => db.delete_cf(family, key).expect("delete"),
    }
}

fn key(lane: u16) -> Key {
    Key::Reply(Slot(1), SessionId(7), RequestSlot(lane))
}

fn reply(lane: u16, sequence: u64) -> Batch {
    let record = ReplyRecord {
        sequence: Sequence(sequence),
        dir: DirId(7),
        hash: NameHash(9),
        answer: Blob(vec![5; 30]),
    };
    Batch {
        mutations: Vec::new(),
        reply: Some(ReplyWrite {
            key: key(lane),
            record,
        }),
    }
}

fn answer(store: &RocksStore, lane: u16, sequence: u64) {
    store.apply(&reply(lane, sequence)).expect("apply");
}

fn found(store: &RocksStore, lane: u16) -> Option<u64> {
    match block_on(store.get(&key(lane)).wait()).expect("get") {
        Some(Record::Reply(r)) => Some(r.sequence.0),
        None => None,
        other => panic!("{other:?}"),
    }
}

fn in_journal(rows: &Rows) -> Vec<&[u8]> {
    let all = rows.keys().filter(|key| key.starts_with(&[0xFF; 3]));
    all.map(Vec::as_slice).collect()
}

fn own(rows: &Rows) -> usize {
    (0..100)
        .filter(|lane| rows.contains_key(&key(*lane).encode()))
        .count()
}

fn with(journal_bytes: usize) -> RocksOptions {
    RocksOptions {
        journal_bytes,
        ..crate::common::options(Durability::Async)
    }
}

#[test]
fn what_is_void_has_rows_of_its_own() {
    let dir = tempfile::tempdir().expect("temporary directory");
    RocksStore::create(dir.path(), crate::common::superblock()).expect("create");
    let (store, _) = RocksStore::open(dir.path(), with(1000)).expect("open");
    for lane in 0..50 {
        answer(&store, lane, 3);
        answer(&store, 99, u64::from(lane));
    }
    drop(store);
    let there = rows(dir.path());
    let (own, rest) = (own(&there), in_journal(&there).len());
    assert!((30..50).contains(&own), "{own}");
    assert!(
        (5..20).contains(&rest),
        "places of void rows are taken again: {rest}"
    );
    // And nothing of them counts any more.
    let (store, _) = RocksStore::open(dir.path(), with(1000)).expect("open");
    (0..50).for_each(|lane| assert_eq!(found(&store, lane), Some(3)));
    assert_eq!(found(&store, 99), Some(49));
    answer(&store, 0, 4);
    drop(store);
    let (store, _) = RocksStore::open(dir.path(), with(1000)).expect("open");
    assert_eq!((found(&store, 0), found(&store, 1)), (Some(4), Some(3)));
}

#[test]
fn all_places_are_taken_again() {
    let dir = tempfile::tempdir().expect("temporary directory");
    RocksStore::create(dir.path(), crate::common::superblock()).expect("create");
    let (store, _) = RocksStore::open(dir.path(), with(1 << 30)).expect("open");
    answer(&store, 7, 1);
    store.obsolete(&key(7), 1);
    answer(&store, 8, 1);
    for n in 0..10_000 {
        answer(&store, (n % 5) as u16, n);
    }
    drop(store);
    let there = rows(dir.path());
    assert_eq!(in_journal(&there).len(), 4096);
    let own: Vec<u16> = (0..9)
        .filter(|lane| there.contains_key(&key(*lane).encode()))
        .collect();
    assert_eq!(
        own,
        [8],
        "what is written again and again, or obsolete, is never written by itself"
    );
    let (store, _) = RocksStore::open(dir.path(), with(1 << 30)).expect("open");
    store.compact().expect("compact");
    drop(store);
    assert_eq!(in_journal(&rows(dir.path())).len(), 1, "void rows are dropped");
    let (store, _) = RocksStore::open(dir.path(), with(1 << 30)).expect("open");
    let sequences = [0, 1, 2, 3, 4, 7, 8].map(|lane| found(&store, lane));
    let last = [9995, 9996, 9997, 9998, 9999].map(Some);
    assert_eq!(sequences[..5], last);
    assert_eq!(sequences[5..], [None, Some(1)]);
    answer(&store, 8, 2);
    store.compact().expect("compact");
    store.compact().expect("compact");
    drop(store);
    let (store, _) = RocksStore::open(dir.path(), with(1 << 30)).expect("open");
    assert_eq!(found(&store, 8), Some(2));
}

#[test]
fn a_range_is_written_out_and_deleted_for_good() {
    let dir = tempfile::tempdir().expect("temporary directory");
    RocksStore::create(dir.path(), crate::common::superblock()).expect("create");
    let (store, _) = RocksStore::open(dir.path(), with(1 << 20)).expect("open");
    (0..9).for_each(|lane| answer(&store, lane, 1));
    let range = Scan::Replies(Slot(1), SessionId(7));
    let listed = block_on(store.list(&range, 99).wait()).expect("list");
    assert_eq!(listed.len(), 9);
    // Deleted by name after it was written out; changed; and left.
    let delete = Mutation::Delete { key: key(3) };
    store.apply(&Batch::of(vec![delete])).expect("apply");
    answer(&store, 4, 2);
    let expected = [Some(1), None, Some(2), Some(1)];
    assert_eq!([2, 3, 4, 5].map(|lane| found(&store, lane)), expected);
    drop(store);
    let (store, _) = RocksStore::open(dir.path(), with(1 << 20)).expect("open");
    assert_eq!([2, 3, 4, 5].map(|lane| found(&store, lane)), expected);
    store.delete_range(&range).expect("delete");
    drop(store);
    let (store, _) = RocksStore::open(dir.path(), with(1 << 20)).expect("open");
    assert_eq!(block_on(store.list(&range, 99).wait()).expect("list"), []);
}

fn older(format: u32) -> Superblock {
    Superblock {
        format,
        ..crate::common::superblock()
    }
}

/// A program that knows no journal may open a store of format 5.
#[test]
fn older_stores_have_none() {
    let dir = tempfile::tempdir().expect("temporary directory");
    RocksStore::create(dir.path(), older(5)).expect("create");
    let (store, _) = RocksStore::open(dir.path(), with(1 << 20)).expect("open");
    answer(&store, 1, 1);
    // A server that starts makes it one of this format, which is seen when it is opened again.
    let record = Record::Superblock(Superblock {
        boot: BootEpoch(1),
        ..crate::common::superblock()
    });
    let key = Key::Superblock;
    let lsn = store
        .apply(&Batch::of(vec![Mutation::Update { key, record }]))
        .expect("apply");
    block_on(store.wait(lsn, Level::Synced)).expect("synced");
    answer(&store, 1, 2);
    drop(store);
    let there = rows(dir.path());
    assert_eq!((own(&there), in_journal(&there).len()), (1, 0));
    let (store, _) = RocksStore::open(dir.path(), with(1 << 20)).expect("open");
    answer(&store, 1, 3);
    answer(&store, 2, 3);
    drop(store);
    let there = rows(dir.path());
    assert_eq!((own(&there), in_journal(&there).len()), (1, 2));
    let (store, _) = RocksStore::open(dir.path(), with(1 << 20)).expect("open");
    assert_eq!([found(&store, 1), found(&store, 2)], [Some(3), Some(3)]);
}

/// Format 6 had the rows of the journal among those of records.
#[test]
fn a_journal_among_records_is_read_once() {
    let dir = tempfile::tempdir().expect("temporary directory");
    RocksStore::create(dir.path(), crate::common::superblock()).expect("create");
    let (store, _) = RocksStore::open(dir.path(), with(1 << 20)).expect("open");
    (0..5).for_each(|lane| answer(&store, lane, 1));
    answer(&store, 3, 2);
    drop(store);
    let before = rows(dir.path());
    assert_eq!((own(&before), in_journal(&before).len()), (0, 6));
    // As the program before this one would have left it.
    let mut db = crate::common::raw(dir.path());
    db.drop_cf("journal").expect("drop");
    let journal = before.iter().filter(|(key, _)| key.starts_with(&[0xFF; 3]));
    journal.for_each(|(key, value)| db.put(key, value).expect("put"));
    let key = Key::Superblock.encode();
    let superblock = Record::Superblock(older(6)).encode(&key);
    db.put(&key, superblock).expect("put");
    drop(db);
    for _ in 0..2 {
        let (store, superblock) = RocksStore::open(dir.path(), with(1 << 20)).expect("open");
        assert_eq!(superblock.format, 6);
        assert_eq!([2, 3].map(|lane| found(&store, lane)), [Some(1), Some(2)]);
        drop(store);
        let there = rows(dir.path());
        assert_eq!((own(&there), in_journal(&there).len()), (5, 0));
    }
}

#[test]
fn damage_is_not_guessed_at() {
    let dir = tempfile::tempdir().expect("temporary directory");
    RocksStore::create(dir.path(), crate::common::superblock()).expect("create");
    let (store, _) = RocksStore::open(dir.path(), with(1 << 20)).expect("open");
    (0..3).for_each(|lane| answer(&store, lane, 1));
    drop(store);
    let there = rows(dir.path());
    let places = in_journal(&there);
    assert_eq!(places.len(), 3);
    let open = || RocksStore::open(dir.path(), with(1 << 20)).map(drop);
    for place in &places[..2] {
        let whole = &there[*place];
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            change(dir.path(), place, Some(&flipped));
            assert!(matches!(open(), Err(StoreError::Corrupt { .. })), "{at}");
        }
        change(dir.path(), place, Some(&whole[..whole.len() - 5]));
        assert!(matches!(open(), Err(StoreError::Corrupt { .. })));
        change(dir.path(), place, None);
        let missing = matches!(open(), Err(StoreError::Corrupt { .. }));
        // Nothing says that there was an older one than those that are there, but that they say from which on
        // they count.
        assert!(missing);
        change(dir.path(), place, Some(whole));
    }
    open().expect("as it was");
    let (store, _) = RocksStore::open(dir.path(), with(1 << 20)).expect("open");
    (0..3).for_each(|lane| assert_eq!(found(&store, lane), Some(1)));
}
