//! Stores with columns: an index of briefs, and rows beside it.

use crate::common::{data_key, file, file_batch, file_key, file_prefix, options, raw, superblock};
use pando_format::{Key, KeyRange, Left, Mutation, Record, Scan, Target};
use pando_store::conformance::block_on;
use pando_store::{Batch, Durability, Store, StoreError};
use pando_store_rocks::{RocksOptions, RocksStore, Schema, Watched};
use pando_types::{DirId, Part};
use rocksdb::DB;
use std::path::{Path, PathBuf};

const FILES: u64 = 3000;

fn part() -> Part {
    Part::whole(DirId(10 << 64))
}

fn open(path: &Path) -> RocksStore {
    // Rows go to files early, and are read from there.
    let options = RocksOptions {
        wal_bytes: 64 << 10,
        ..options(Durability::Async)
    };
    RocksStore::open(path, options).expect("open").0
}

fn made(path: &Path, schema: Schema) -> RocksStore {
    RocksStore::create_as(path, superblock(), schema).expect("create");
    let store = open(path);
    for n in 1..=FILES {
        store.apply(&file_batch(n)).expect("apply");
    }
    store
}

fn entries(store: &RocksStore) -> Result<Vec<(Key, Record)>, StoreError> {
    block_on(store.list(&Scan::Entries(part()), usize::MAX).wait())
}

fn everything() -> Scan {
    Scan::Keys(KeyRange {
        start: vec![0],
        end: vec![0xFF, 0xFF, 0xFF],
    })
}

/// Blob files, the largest first.
fn blobs(path: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(path.join("db")).expect("listed");
    let all = all.map(|e| e.expect("an entry").path());
    let mut all: Vec<PathBuf> = all
        .filter(|p| p.extension().is_some_and(|e| e == "blob"))
        .collect();
    all.sort_by_key(|p| std::cmp::Reverse(std::fs::metadata(p).map_or(0, |m| m.len())));
    all
}

fn behind(path: &Path, change: impl FnOnce(&DB)) {
    let db = raw(path);
    change(&db);
    drop(db);
}

#[test]
fn a_store_stays_what_it_was_made_as() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| dir.path().join(name);
    let create = |name: &str, schema| RocksStore::create_as(&at(name), superblock(), schema);
    create("columns", Schema::Columns).expect("create");
    create("whole", Schema::Whole).expect("create");
    assert_eq!(open(&at("columns")).schema(), Schema::Columns);
    assert_eq!(open(&at("whole")).schema(), Schema::Whole);
    for (name, wanted, word) in [
        ("columns", Schema::Whole, "of kind column"),
        ("whole", Schema::Columns, "of kind rocksdb"),
    ] {
        let refused = create(name, wanted).expect_err("it is another").to_string();
        assert!(
            refused.contains(word) && refused.contains("pando join"),
            "{refused}"
        );
    }
    let again = create("columns", Schema::Columns);
    assert!(
        matches!(&again, Err(StoreError::Device(why)) if why.contains("already")),
        "{again:?}"
    );
    // Its making was interrupted.
    std::fs::create_dir(at("begun")).expect("made");
    std::fs::copy(at("columns").join("columns"), at("begun").join("columns")).expect("copied");
    create("begun", Schema::Columns).expect("gone on with");
    assert_eq!(open(&at("begun")).schema(), Schema::Columns);
    // Somebody took the mark away.
    std::fs::remove_file(at("columns").join("columns")).expect("removed");
    assert_eq!(open(&at("columns")).schema(), Schema::Columns);
    assert!(at("columns").join("columns").exists());
    // Or it is all that is left.
    std::fs::copy(at("begun").join("columns"), at("whole").join("columns")).expect("copied");
    let failed = RocksStore::open(&at("whole"), options(Durability::Sync)).map(drop);
    assert!(matches!(failed, Err(StoreError::Corrupt { .. })), "{failed:?}");
}

#[test]
fn bundles_are_the_same_for_all_kinds() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| dir.path().join(name);
    let exported = |store: &RocksStore| {
        let (bundle, rest) =
            block_on(store.export(&Scan::Slot(part().slot()), 1 << 30).wait()).expect("read");
        assert_eq!(rest, None);
        bundle
    };
    let (columns, whole) = (
        made(&at("columns"), Schema::Columns),
        made(&at("whole"), Schema::Whole),
    );
    let bundle = exported(&columns);
    assert!(bundle == exported(&whole));
    for (from, schema) in [("of-columns", Schema::Columns), ("of-whole", Schema::Whole)] {
        RocksStore::create_as(&at(from), superblock(), schema).expect("create");
        let store = open(&at(from));
        store.ingest(&bundle).expect("ingest");
        assert!(exported(&store) == bundle);
        assert_eq!(entries(&store).expect("read").len() as u64, FILES);
        store.delete_range(&Scan::Slot(part().slot())).expect("deleted");
        assert_eq!(entries(&store), Ok(Vec::new()));
        assert_eq!(store.compact(), Ok(()));
        assert!(store.stats().table_bytes < 64 << 10, "{:?}", store.stats());
    }
    let picture = block_on(columns.picture()).expect("taken");
    for n in 1..=FILES {
        let mutations = [file_key(n), data_key(n)].map(|key| Mutation::Delete { key });
        columns.apply(&Batch::of(mutations.into())).expect("apply");
    }
    let (then, _) = block_on(picture.export(&Scan::Slot(part().slot()), 1 << 30)).expect("read");
    assert!(then == bundle, "rows that were removed are in it");
    assert_eq!(entries(&columns), Ok(Vec::new()));
}

#[test]
fn names_are_read_without_rows() {
    let dir = tempfile::tempdir().expect("temporary directory");
    drop(made(dir.path(), Schema::Columns));
    drop(open(dir.path()));
    let store = open(dir.path());
    let away = dir.path().join("away");
    std::fs::create_dir(&away).expect("made");
    for blob in blobs(dir.path()) {
        std::fs::rename(&blob, away.join(blob.file_name().expect("a name"))).expect("moved");
    }
    let names = block_on(store.names(&Scan::Entries(part()), usize::MAX).wait()).expect("read");
    assert_eq!(names.len() as u64, FILES);
    for (n, (key, record)) in (1..).zip(&names) {
        let (Record::Entry(told), Record::Entry(is)) = (record, file(n)) else {
            panic!("{record:?}")
        };
        assert_eq!(
            (key, told.target.identity()),
            (&file_key(n), is.target.identity())
        );
        assert!(matches!(&told.target, Target::Inode(i) if i.uid == 1 && i.size == 0));
    }
    let failed = entries(&store);
    assert!(failed.is_err(), "{failed:?}");
}

#[test]
fn rows_that_were_read_from_files_are_kept() {
    let dir = tempfile::tempdir().expect("temporary directory");
    drop(made(dir.path(), Schema::Columns));
    drop(open(dir.path()));
    let store = open(dir.path());
    let bucket = |n: u64| match file_key(n) {
        Key::Entry { part, hash, .. } => Scan::Bucket(part, hash),
        other => panic!("{other:?}"),
    };
    let look = |n| block_on(store.list(&bucket(n), 9).wait()).expect("read");
    assert_eq!(look(500).len(), 2);
    let (before, again) = (store.stats(), look(501));
    assert_eq!(again, [500, 501].map(|n| (file_key(n), file(n))));
    let after = store.stats();
    assert_eq!(
        (
            after.misses - before.misses,
            after.record_hits - before.record_hits
        ),
        (0, 1)
    );
    // A row that is written while a bucket is read is seen after that.
    let reading = store.list(&bucket(700), 9);
    let (key, record) = (file_key(700), file(9_000_000));
    let update = Mutation::Update { key, record };
    store.apply(&Batch::of(vec![update])).expect("apply");
    block_on(reading.wait()).expect("read");
    assert_eq!(look(700)[0].1, file(9_000_000));
}

#[test]
fn compactions_leave_rows_alone_until_they_are_asked() {
    let dir = tempfile::tempdir().expect("temporary directory");
    RocksStore::create_as(dir.path(), superblock(), Schema::Columns).expect("create");
    let options = RocksOptions {
        wal_bytes: 64 << 10,
        watched: Watched::PastTheCache,
        ..options(Durability::Async)
    };
    let store = match RocksStore::open(dir.path(), options) {
        Ok((store, _)) => store,
        // Not every file system can be read past the kernel's cache.
        Err(why) => return println!("SKIPPED: {why}"),
    };
    for round in 0..4 {
        // Some of the first stay, in all files: so do those files.
        for n in (1..=FILES).filter(|n| round == 0 || n % 5 > 0) {
            let (key, record) = (file_key(n * 7 % (FILES + 1)), file(n + round));
            let update = Mutation::Update { key, record };
            store.apply(&Batch::of(vec![update])).expect("apply");
        }
    }
    let full = store.stats().table_bytes;
    let counted = store.compactions().expect("it is watched").bytes;
    store.compact().expect("compact");
    assert!(store.compactions().expect("it is watched").bytes > counted);
    let rest = store.stats().table_bytes;
    assert!(rest < full / 4 * 3, "{rest} of {full}");
    assert_eq!(entries(&store).expect("read").len() as u64, FILES);
}

#[test]
fn a_row_without_a_brief_is_not_there_and_a_brief_without_its_row_is_damage() {
    let dir = tempfile::tempdir().expect("temporary directory");
    drop(made(dir.path(), Schema::Columns));
    let key = |n: u64| file_key(n).encode();
    behind(dir.path(), |db| {
        let rows = db.cf_handle("rows").expect("rows");
        db.put_cf(rows, key(FILES + 1), file(1).encode(&key(FILES + 1)))
            .expect("put");
    });
    let store = open(dir.path());
    assert_eq!(file_prefix(&store), FILES);
    assert_eq!(block_on(store.get(&file_key(FILES + 1)).wait()), Ok(None));
    drop(store);
    // Missing, of another time, and damaged; and a brief that is damaged.
    behind(dir.path(), |db| {
        let rows = db.cf_handle("rows").expect("rows");
        db.delete_cf(rows, key(10)).expect("delete");
        db.put_cf(rows, key(20), file(7).encode(&key(20))).expect("put");
        let mut row = db.get_cf(rows, key(30)).expect("get").expect("there");
        row[9] ^= 1;
        db.put_cf(rows, key(30), row).expect("put");
        let mut brief = db.get(key(40)).expect("get").expect("there");
        brief[9] ^= 1;
        db.put(key(40), brief).expect("put");
        db.delete_cf(rows, data_key(50).encode()).expect("delete");
    });
    let store = open(dir.path());
    for damaged in [
        file_key(10),
        file_key(20),
        file_key(30),
        file_key(40),
        data_key(50),
    ] {
        let failed = block_on(store.get(&damaged).wait());
        assert!(
            matches!(failed, Err(StoreError::Corrupt { .. })),
            "{damaged:?}: {failed:?}"
        );
    }
    assert!(matches!(entries(&store), Err(StoreError::Corrupt { .. })));
    let remains = block_on(store.remains(&everything()).wait()).expect("told");
    let told = |key: Key| {
        let of = remains.found.iter().find(|r| r.key == key);
        of.map(|r| r.left.clone())
    };
    for lost in [file_key(10), file_key(20), file_key(30), data_key(50)] {
        assert_eq!(told(lost.clone()), Some(Left::Nothing), "{lost:?}");
    }
    assert_eq!(told(file_key(40)), Some(Left::Whole(file(40))));
    assert_eq!(remains.found.len(), 5, "{:?}", remains.found);
    drop(store);
    let salvaged = RocksStore::salvage(dir.path()).expect("made anew");
    let found = salvaged.remains.expect("damage").found;
    assert_eq!(found.len(), 4, "{found:?}");
    let store = open(dir.path());
    assert_eq!(store.schema(), Schema::Columns);
    assert_eq!(entries(&store).expect("read").len() as u64, FILES - 3);
    assert_eq!(block_on(store.get(&file_key(40)).wait()), Ok(Some(file(40))));
}

/// One bit of a blob file: at most the row there is lost, and it is named.
#[test]
fn a_flipped_bit_in_a_row_costs_that_row() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let store = made(dir.path(), Schema::Columns);
    store.compact().expect("compact");
    drop(store);
    drop(open(dir.path()));
    let blob = blobs(dir.path()).remove(0);
    let mut bytes = std::fs::read(&blob).expect("read");
    let at = bytes.len() / 2;
    bytes[at] ^= 4;
    std::fs::write(&blob, bytes).expect("written");
    let store = open(dir.path());
    let why = store.compact().expect_err("a row is damaged").to_string();
    assert!(why.contains("pando fsck --repair"), "{why}");
    drop(store);
    let salvaged = RocksStore::salvage(dir.path()).expect("made anew");
    let remains = salvaged.remains.expect("damage");
    let name = blob.file_name().expect("a name").to_string_lossy().into_owned();
    assert_eq!((remains.found.len(), remains.tables), (1, vec![name.clone()]));
    assert!(salvaged.kept.expect("a folder").join(name).is_file());
    let store = open(dir.path());
    assert_eq!(store.compact(), Ok(()));
    let all = block_on(store.list(&everything(), usize::MAX).wait()).expect("all of it can be read");
    // Its superblock and its counter, and two for each file but for one.
    assert_eq!(all.len() as u64, 2 + 2 * FILES - 1);
}
