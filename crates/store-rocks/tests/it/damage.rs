//! One flipped byte in a table: what is left of a store, and a store made anew of that.

use crate::common::{open, superblock};
use pando_format::{
    Entry, InodeRecord, Key, KeyRange, Layout, Left, Marks, Mutation, NameHash, Record, Scan, Target,
};
use pando_store::conformance::block_on;
use pando_store::{Batch, Durability, Store, StoreError};
use pando_store_rocks::RocksStore;
use pando_types::{DirId, FileKind, Generation, Ino, Name, Perm, Timestamp};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Model = BTreeMap<Key, Record>;

fn key(n: u64) -> Key {
    Key::Entry {
        part: DirId(u128::from(n % 3) + 10).into(),
        hash: NameHash(((n % 89) << 40) | (n % 3)),
        name: Name::new(format!("name{n}").as_bytes()).expect("name"),
    }
}

fn file(n: u64) -> Record {
    let t = Timestamp { secs: 1, nanos: 1 };
    let inode = InodeRecord {
        ino: Ino(n),
        generation: Generation(n),
        kind: FileKind::Regular,
        perm: Perm::new(0o644),
        uid: 1,
        gid: 1,
        nlink: 1,
        size: 0,
        rdev: 0,
        atime: t,
        mtime: t,
        ctime: t,
        layout: Layout::None,
        marks: Marks::NONE,
        version: 0,
        acl: None,
    };
    let target = Target::Inode(inode);
    Record::Entry(Entry { ordinal: 0, target })
}

/// Tables on two levels: some records of the lower one are replaced and deleted in the upper one.
fn make(path: &Path) -> Model {
    RocksStore::create(path, superblock()).expect("create");
    let mut model = Model::new();
    let mut change = |store: &RocksStore, n: u64, record: Option<Record>| {
        let key = key(n);
        let mutation = match record {
            Some(record) => {
                model.insert(key.clone(), record.clone());
                Mutation::Update { key, record }
            }
            None => {
                model.remove(&key);
                Mutation::Delete { key }
            }
        };
        store.apply(&Batch::of(vec![mutation])).expect("apply");
    };
    let store = open(path, Durability::Async);
    (0..2500).for_each(|n| change(&store, n, Some(file(n))));
    store.compact().expect("compact");
    for n in 0..2800 {
        match n {
            2500.. => change(&store, n, Some(file(n))),
            _ if n % 7 == 0 => change(&store, n, None),
            _ if n % 5 == 0 => change(&store, n, Some(file(n + 100_000))),
            _ => {}
        }
    }
    drop(store);
    // What the log has becomes a table.
    drop(open(path, Durability::Async));
    model
}

fn tables(path: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(path.join("db")).expect("listed");
    let all = all.map(|e| e.expect("entry").path());
    let mut all: Vec<PathBuf> = all
        .filter(|p| p.extension().is_some_and(|e| e == "sst"))
        .collect();
    all.sort_by_key(|p| std::cmp::Reverse(std::fs::metadata(p).map_or(0, |m| m.len())));
    all
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join("db")).expect("made");
    for entry in std::fs::read_dir(from.join("db")).expect("listed") {
        let entry = entry.expect("entry");
        std::fs::copy(entry.path(), to.join("db").join(entry.file_name())).expect("copied");
    }
}

/// One bit of a table is flipped at this share of its length.
fn flip(table: &Path, share: f64, bit: u32) {
    let mut bytes = std::fs::read(table).expect("read");
    let at = (bytes.len() as f64 * share) as usize;
    bytes[at] ^= 1 << bit;
    std::fs::write(table, bytes).expect("written");
}

fn all_entries() -> Scan {
    Scan::Keys(KeyRange {
        start: vec![0],
        end: vec![0xFF],
    })
}

#[test]
fn nothing_readable_is_lost_and_nothing_old_comes_back() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let sound = dir.path().join("sound");
    let model = make(&sound);
    let salvaged = RocksStore::salvage(&sound).expect("looked at");
    assert_eq!(salvaged.remains, None, "a sound store is left alone");
    let mut lost_of_all = 0;
    for seed in 0..48u64 {
        let path = dir.path().join(format!("flipped-{seed}"));
        copy(&sound, &path);
        let tables = tables(&path);
        let table = &tables[(seed % 2) as usize];
        // Data come first in a file; indexes and filters are behind them.
        let share = 0.02 + 0.6 * (seed as f64 * 0.618_034).fract();
        flip(table, share, (seed % 8) as u32);
        let what = format!("seed {seed}: {table:?} at {share}");
        let salvaged = RocksStore::salvage(&path).unwrap_or_else(|e| panic!("{what}: {e}"));
        let remains = salvaged.remains.unwrap_or_else(|| panic!("{what}: not seen"));
        let store = open(&path, Durability::Async);
        let listed = block_on(store.list(&all_entries(), usize::MAX).wait());
        let listed: Model = listed.expect("all of it can be read").into_iter().collect();
        let left = |key: &Key| remains.found.iter().find(|r| r.key == *key).map(|r| &r.left);
        for (key, record) in &listed {
            let older = matches!(left(key), Some(Left::Older(_)));
            assert!(
                model.get(key) == Some(record) || older,
                "{what}: {key:?} came back: {:?}",
                left(key)
            );
        }
        let lost: Vec<&Key> = model.keys().filter(|k| !listed.contains_key(k)).collect();
        lost_of_all += lost.len();
        for key in &lost {
            assert!(
                left(key).is_some() || remains.more || !remains.found.is_empty(),
                "{what}: {key:?} is lost and nothing is said"
            );
        }
        assert!(lost.len() < 200, "{what}: {} are lost", lost.len());
        eprintln!(
            "{what}: {} lost, {} named, more: {}",
            lost.len(),
            remains.found.len(),
            remains.more
        );
        store.compact().expect("nothing in it is damaged");
        drop(store);
        assert_eq!(
            RocksStore::salvage(&path).expect("looked at").remains,
            None,
            "{what}"
        );
        let kept = salvaged.kept.expect("damaged tables are kept");
        assert!(
            kept.join(table.file_name().expect("a name")).is_file(),
            "{what}: {kept:?}"
        );
        std::fs::remove_dir_all(&path).expect("removed");
    }
    assert!(lost_of_all > 0, "no flip hit a record");
}

#[test]
fn what_is_left_can_be_asked_for_while_a_store_is_open() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let model = make(dir.path());
    flip(&tables(dir.path())[0], 0.3, 3);
    let store = open(dir.path(), Durability::Async);
    let failed = block_on(store.list(&all_entries(), usize::MAX).wait());
    assert!(matches!(failed, Err(StoreError::Corrupt { .. })), "{failed:?}");
    let remains = block_on(store.remains(&all_entries()).wait()).expect("told");
    assert_eq!((remains.tables.len(), &remains.rest), (1, &None));
    let whole = remains
        .found
        .iter()
        .filter(|r| matches!(r.left, Left::Whole(_)))
        .count();
    assert!(whole > 10, "{whole} of {}", remains.found.len());
    for remnant in &remains.found {
        match &remnant.left {
            Left::Whole(record) => assert_eq!(model.get(&remnant.key), Some(record)),
            Left::Older(_) | Left::Nothing => {}
        }
    }
    // Rewriting fails, and says why.
    let why = store.compact().expect_err("a table is damaged").to_string();
    assert!(
        why.contains(".sst") && why.contains("pando fsck --repair") && !why.contains("failed write"),
        "{why}"
    );
}

#[test]
fn it_can_be_interrupted() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let model = make(dir.path());
    let at = |name: &str| dir.path().join(name);
    // A new database that was not complete is made again.
    std::fs::create_dir(at("db.new")).expect("made");
    std::fs::write(at("db.new").join("000009.sst"), "half").expect("written");
    flip(&tables(dir.path())[0], 0.3, 3);
    let salvaged = RocksStore::salvage(dir.path()).expect("made anew");
    assert!(salvaged.records > 1000);
    // One that was complete takes its place when the store is opened.
    std::fs::rename(at("db"), at("db.new")).expect("renamed");
    std::fs::create_dir(at("db.old")).expect("made");
    let store = open(dir.path(), Durability::Async);
    let listed = block_on(store.list(&all_entries(), usize::MAX).wait()).expect("read");
    assert!(listed.len() > model.len() - 200);
}
