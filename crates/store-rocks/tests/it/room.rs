//! Space of deleted rows comes back without a hand when the device is short of it.

use pando_format::codec::Blob;
use pando_format::{AttachmentKind, Key, Mutation, NameHash, Record};
use pando_store::conformance::block_on;
use pando_store::{Batch, Durability, Level, Store};
use pando_store_rocks::{RocksStore, Schema};
use pando_types::{DirId, Name};
use std::path::Path;
use std::time::{Duration, Instant};

const ROWS: u64 = 2000;
const BYTES: usize = 8 << 10;

fn key(n: u64) -> Key {
    Key::Attachment {
        part: DirId(u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)).into(),
        hash: NameHash(n),
        name: Name::new(format!("{n}").as_bytes()).expect("a name"),
        kind: AttachmentKind::Data,
    }
}

/// Bytes that do not compress.
fn content(n: u64) -> Blob {
    let mut x = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    Blob((0..BYTES).map(|_| next()).collect())
}

fn fill(store: &RocksStore, rows: std::ops::Range<u64>) {
    for n in rows {
        let record = Record::Attachment(content(n));
        let mutations = vec![Mutation::Insert { key: key(n), record }];
        store.apply(&Batch::of(mutations)).expect("apply");
    }
}

fn clear(store: &RocksStore, rows: std::ops::Range<u64>) {
    let lsn = rows.map(|n| {
        let mutations = vec![Mutation::Delete { key: key(n) }];
        store.apply(&Batch::of(mutations)).expect("apply")
    });
    let lsn = lsn.last().expect("rows");
    block_on(store.wait(lsn, Level::Synced)).expect("synced");
}

/// Looks as a server does, until tables are no larger than that.
fn until(store: &RocksStore, low: bool, bytes: u64) -> bool {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(if low { 20 } else { 1 }) {
        store.make_room(low, Instant::now()).expect("make room");
        if store.stats().table_bytes <= bytes {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

fn there(store: &RocksStore, n: u64) -> bool {
    block_on(store.get(&key(n)).wait()).expect("read").is_some()
}

fn store(path: &Path, durability: Durability, schema: Schema) -> RocksStore {
    RocksStore::create_as(path, crate::common::superblock(), schema).expect("create");
    crate::common::open(path, durability)
}

#[test]
fn what_was_deleted_gives_its_space_back_when_that_is_short() {
    for schema in [Schema::Whole, Schema::Columns] {
        gives_back(schema);
    }
}

fn gives_back(schema: Schema) {
    let tmp = tempfile::tempdir().expect("tempdir");
    let s = store(tmp.path(), Durability::Async, schema);
    fill(&s, 0..ROWS);
    clear(&s, 0..ROWS / 2);
    let all = s.stats().table_bytes;
    assert!(all > ROWS / 3 * BYTES as u64, "{all}");
    // With room RocksDB is left alone.
    assert!(!until(&s, false, all / 2));
    assert!(
        until(&s, true, ROWS / 2 * BYTES as u64 * 11 / 10),
        "{:?}",
        s.stats()
    );
    for n in [0, ROWS / 2 - 1, ROWS / 2, ROWS - 1] {
        assert_eq!(there(&s, n), n >= ROWS / 2, "{n}");
    }
    // What is written while tables are rewritten is there too, and after kill -9.
    clear(&s, ROWS / 2..ROWS);
    let mut n = ROWS;
    while !until_once(&s) {
        fill(&s, n..n + 1);
        n += 1;
    }
    drop(s);
    let s = crate::common::open(tmp.path(), Durability::Async);
    assert!((ROWS..n).all(|n| there(&s, n)) && !there(&s, ROWS - 1));
}

/// One look; whether tables are small.
fn until_once(s: &RocksStore) -> bool {
    s.make_room(true, Instant::now()).expect("make room");
    std::thread::sleep(Duration::from_millis(5));
    s.stats().table_bytes < 4 << 20
}

#[test]
fn a_store_is_closed_while_tables_are_rewritten() {
    for schema in [Schema::Whole, Schema::Columns] {
        closed_meanwhile(schema);
    }
}

fn closed_meanwhile(schema: Schema) {
    let tmp = tempfile::tempdir().expect("tempdir");
    let s = store(tmp.path(), Durability::Sync, schema);
    fill(&s, 0..ROWS);
    clear(&s, 0..ROWS);
    s.make_room(true, Instant::now()).expect("make room");
    fill(&s, ROWS..ROWS + 1);
    drop(s);
    let s = crate::common::open(tmp.path(), Durability::Sync);
    assert!(there(&s, ROWS) && !there(&s, 0));
    // What was deleted before a start counts too.
    assert!(until(&s, true, 1 << 20), "{:?}", s.stats());
}
