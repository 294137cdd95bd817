//! Opening, reading past the caches, and damage.

use crate::common::{batch, key, open, options, prefix, superblock};
use pando_format::codec::Blob;
use pando_format::{
    AttachmentKind, Entry, InodeRecord, Key, Layout, Marks, Mutation, NameHash, Record, Scan, Superblock,
    Target,
};
use pando_store::conformance::block_on;
use pando_store::{Batch, Durability, Lsn, Read, Store, StoreError};
use pando_store_rocks::{RocksOptions, RocksStore};
use pando_types::{DirId, FileKind, Generation, Ino, Name, Perm, Timestamp};
use std::collections::BTreeMap;

#[test]
fn one_opener_at_a_time() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("a").join("b");
    assert!(matches!(
        RocksStore::open(&path, RocksOptions::default()).map(drop),
        Err(StoreError::Device(_))
    ));
    RocksStore::create(&path, superblock()).expect("create");
    let again = RocksStore::create(&path, superblock());
    assert!(
        matches!(&again, Err(StoreError::Device(why)) if why.contains("already")),
        "{again:?}"
    );
    let (store, found) = RocksStore::open(&path, options(Durability::Sync)).expect("open");
    assert_eq!(found, superblock());
    let locked = Err(StoreError::Locked(path.clone()));
    assert_eq!(
        RocksStore::open(&path, options(Durability::Sync)).map(drop),
        locked
    );
    assert_eq!(RocksStore::create(&path, superblock()), locked);
    let space = store.space();
    assert!(space.total > 0 && space.available <= space.total);
    drop(store);
    open(&path, Durability::Async);
}

/// What was removed takes no space any more, and what is there is there, also when it is opened again.
#[test]
fn compacted() {
    let dir = tempfile::tempdir().expect("temporary directory");
    RocksStore::create(dir.path(), superblock()).expect("create");
    let store = open(dir.path(), Durability::Async);
    let apply = |batch| store.apply(&batch).expect("apply");
    for n in 0..20_000 {
        apply(batch(n));
    }
    store.compact().expect("compact");
    let full = store.stats().table_bytes;
    for n in 0..19_000 {
        apply(Batch::of(vec![Mutation::Delete { key: key(n) }]));
    }
    store.compact().expect("compact");
    let rest = store.stats().table_bytes;
    assert!(rest > 0 && rest < full / 5, "{rest} of {full}");
    drop(store);
    let store = open(dir.path(), Durability::Async);
    for n in [0, 18_999, 19_000, 19_999] {
        let found = match store.get(&key(n)) {
            Read::Ready(found) => found,
            Read::Pending(found) => block_on(found),
        };
        assert_eq!(found.expect("read").is_some(), n >= 19_000, "{n}");
    }
}

#[test]
fn superblocks() {
    let set = |value: Option<Vec<u8>>| {
        let dir = tempfile::tempdir().expect("temporary directory");
        RocksStore::create(dir.path(), superblock()).expect("create");
        let key = Key::Superblock.encode();
        let db = crate::common::raw(dir.path());
        match value {
            Some(value) => db.put(key, value).expect("put"),
            None => db.delete(key).expect("delete"),
        }
        drop(db);
        RocksStore::open(dir.path(), options(Durability::Sync)).map(drop)
    };
    let key = Key::Superblock.encode();
    let known = pando_format::FORMAT_VERSION;
    let found = known + 1;
    let newer = Superblock {
        format: found,
        ..superblock()
    };
    let refused = Err(StoreError::NewerFormat { found, known });
    assert_eq!(set(Some(Record::Superblock(newer).encode(&key))), refused);
    // A later format may have a longer superblock.
    let mut longer = Record::Superblock(newer).encode(&key);
    longer.truncate(longer.len() - 4);
    longer.push(9);
    let sum = crc(&key, &longer);
    longer.extend_from_slice(&sum);
    assert_eq!(set(Some(longer)), refused);
    let mut flipped = Record::Superblock(superblock()).encode(&key);
    flipped[9] ^= 1;
    assert!(matches!(set(Some(flipped)), Err(StoreError::Corrupt { .. })));
    assert!(matches!(set(None), Err(StoreError::Device(_))));
}

#[test]
fn a_store_is_not_made_twice() {
    let dir = tempfile::tempdir().expect("temporary directory");
    RocksStore::create(dir.path(), superblock()).expect("create");
    // Once before it was ever opened, and once when it has all that it ever has.
    for _ in 0..2 {
        let Err(StoreError::Device(why)) = RocksStore::create(dir.path(), superblock()) else {
            panic!("made twice");
        };
        assert!(why.contains("already holds a store"), "{why}");
        drop(open(dir.path(), Durability::Sync));
    }
}

fn crc(key: &[u8], body: &[u8]) -> [u8; 4] {
    let mut crc = !0u32;
    for b in key.iter().chain(body) {
        crc ^= u32::from(*b);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82F6_3B78 & 0u32.wrapping_sub(crc & 1));
        }
    }
    (!crc).to_le_bytes()
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
    Record::Entry(Entry {
        ordinal: 0,
        target: Target::Inode(inode),
    })
}

/// Ranges of every width over many tables, with and without what filters know, equal a reference.
#[test]
fn ranges_over_many_tables() {
    let dir = tempfile::tempdir().expect("temporary directory");
    RocksStore::create(dir.path(), superblock()).expect("create");
    let small = RocksOptions {
        wal_bytes: 64 << 10,
        cache_bytes: 256 << 10,
        ..options(Durability::Async)
    };
    let mut store = RocksStore::open(dir.path(), small.clone()).expect("open").0;
    let mut reference = BTreeMap::new();
    let hash = |n: u64| NameHash((n % 89) << 40 | (n % 3));
    let name = |n: u64| Name::new(format!("name{n}").as_bytes()).expect("name");
    for n in 0..6000u64 {
        let (d, hash, name) = (DirId(u128::from(n % 7) + 10), hash(n), name(n));
        let attachment = Key::Attachment {
            part: d.into(),
            hash,
            name: name.clone(),
            kind: AttachmentKind::Data,
        };
        let entry = Key::Entry {
            part: d.into(),
            hash,
            name,
        };
        let data = Record::Attachment(Blob(vec![n as u8; 50]));
        let mut mutations = vec![Mutation::Insert {
            key: entry.clone(),
            record: file(n),
        }];
        reference.insert(entry.encode(), (entry.clone(), file(n)));
        if n % 4 == 0 {
            reference.insert(attachment.encode(), (attachment.clone(), data.clone()));
            mutations.push(Mutation::Insert {
                key: attachment,
                record: data,
            });
        }
        if n % 10 == 9 {
            reference.remove(&entry.encode());
            mutations.push(Mutation::Delete { key: entry });
        }
        store.apply(&Batch::of(mutations)).expect("apply");
        if n % 1500 == 0 {
            drop(store);
            store = RocksStore::open(dir.path(), small.clone()).expect("open").0;
        }
    }
    let check = |scan: &Scan, limit: usize| {
        let range = scan.range();
        let expected: Vec<_> = reference
            .range(range.start..range.end)
            .take(limit)
            .map(|(_, r)| r.clone())
            .collect();
        assert_eq!(block_on(store.list(scan, limit).wait()), Ok(expected), "{scan:?}");
    };
    for d in 9..19 {
        let dir = DirId(d);
        check(&Scan::Entries(dir.into()), usize::MAX);
        for n in 0..200u64 {
            check(&Scan::Bucket(dir.into(), hash(n)), usize::MAX);
            check(&Scan::Bucket(dir.into(), NameHash(hash(n).0 + 7)), usize::MAX);
            check(&Scan::EntriesFrom(dir.into(), hash(n)), 3);
            check(&Scan::Attachments(dir.into(), hash(n), name(n)), usize::MAX);
            let after = Key::Entry {
                part: dir.into(),
                hash: hash(n),
                name: name(n),
            };
            check(
                &Scan::Bucket(dir.into(), hash(n)).after(after.clone()),
                usize::MAX,
            );
            check(&Scan::Entries(dir.into()).after(after.clone()), 5);
        }
    }
    assert!(store.stats().table_bytes > 0, "nothing was flushed");
}

#[test]
fn a_miss_does_not_block() {
    let dir = tempfile::tempdir().expect("temporary directory");
    RocksStore::create(dir.path(), superblock()).expect("create");
    let store = open(dir.path(), Durability::Sync);
    for n in 1..=2000 {
        store.apply(&batch(n)).expect("apply");
    }
    drop(store);
    let store = open(dir.path(), Durability::Sync);
    assert!(
        matches!(store.get(&key(1000)), Read::Pending(_)),
        "a cold read came from memory"
    );
    assert!(matches!(block_on(store.get(&key(1000)).wait()), Ok(Some(_))));
    assert!(
        matches!(store.get(&key(1000)), Read::Ready(Ok(Some(_)))),
        "a warm read did not"
    );
    assert!(matches!(
        store.list(&Scan::Sessions, usize::MAX),
        Read::Pending(_)
    ));
    assert_eq!(prefix(&store), 2000);
    assert!(matches!(
        store.list(&Scan::Sessions, usize::MAX),
        Read::Ready(Ok(_))
    ));
    store.apply(&batch(2001)).expect("apply");
    assert!(matches!(store.get(&key(2001)), Read::Ready(Ok(Some(_)))));
    let stats = store.stats();
    assert!(
        stats.hits >= 3 && stats.misses >= 2 && stats.batches == 1 && stats.wal_bytes > 0,
        "{stats:?}"
    );
    // A read whose store goes away ends, and so does a wait.
    let (read, wait) = (store.get(&key(7)), store.wait(Lsn(1), pando_store::Level::Synced));
    drop(store);
    let _ = block_on(read.wait());
    let _ = block_on(wait);
}

#[test]
fn damaged_tables_are_reported() {
    let dir = tempfile::tempdir().expect("temporary directory");
    RocksStore::create(dir.path(), superblock()).expect("create");
    let store = open(dir.path(), Durability::Sync);
    for n in 1..=2000 {
        store.apply(&batch(n)).expect("apply");
    }
    drop(store);
    drop(open(dir.path(), Durability::Sync)); // what was in the WAL is in a table now
    let tables = std::fs::read_dir(dir.path().join("db"))
        .expect("read")
        .filter_map(|e| Some(e.ok()?.path()));
    let table = tables
        .filter(|p| p.extension().is_some_and(|e| e == "sst"))
        .max_by_key(|p| p.metadata().map_or(0, |m| m.len()))
        .expect("a table");
    let mut bytes = std::fs::read(&table).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&table, bytes).expect("write");
    let store = open(dir.path(), Durability::Sync);
    let all = block_on(store.list(&Scan::Sessions, usize::MAX).wait());
    assert!(matches!(all, Err(StoreError::Corrupt { .. })), "{all:?}");
    let failed = (1..=2000)
        .filter(|n| block_on(store.get(&key(*n)).wait()).is_err())
        .count();
    assert!(failed > 0 && failed < 2000, "{failed} reads failed");
}

/// Records as programs of formats 2 and 3 wrote them: a superblock (without its checksum, which follows from
/// the format) and the entries that `crates/format` has pinned since then.
#[test]
fn stores_of_earlier_formats_are_read_as_they_are() {
    const KEY: &str = "00f34500112233445566778899aabbccddeeff123456789abcde68656c6c6f2e747874";
    const DIRECTORY: &str = "01010001ffeeddccbbaa9988776655443322110006000000000000000800000000000000ff030000000000000000\
                             00f153650000000015cd5b0702000000175a000000000000010000000000000000000000000000000000000000\
                             000000f39f7f82";
    const FILE: &str = "01010102020000000000bc0a030000000000010001a409e8030000640000000100000005000000000000000000000000\
                        00000000f153650000000015cd5b07ffffffffffffffffffc99a3b00f153650000000015cd5b070000000000000000\
                        000400000000000000f690a142";
    let bytes = |hex: &str| -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().collect();
        let pair = |p: &[u8]| u8::from_str_radix(std::str::from_utf8(p).expect("digits"), 16);
        digits.chunks(2).map(|p| pair(p).expect("hex")).collect()
    };
    let key = Key::decode(&bytes(KEY)).expect("a key");
    for format in [2_u8, 3] {
        for (value, directory) in [(DIRECTORY, true), (FILE, false)] {
            let dir = tempfile::tempdir().expect("temporary directory");
            RocksStore::create(dir.path(), superblock()).expect("create");
            let db = crate::common::raw(dir.path());
            let at = Key::Superblock.encode();
            let mut old = Record::Superblock(superblock()).encode(&at);
            old.truncate(old.len() - 4);
            old[2] = format;
            let sum = crc(&at, &old);
            old.extend_from_slice(&sum);
            db.put(&at, old).expect("put");
            db.put(bytes(KEY), bytes(value)).expect("put");
            drop(db);
            let (store, _) =
                RocksStore::open(dir.path(), options(Durability::Sync)).expect("an older store opens");
            let marks = match block_on(store.get(&key).wait()).expect("read") {
                Some(Record::Entry(Entry {
                    target: Target::Dir(d),
                    ..
                })) if directory => d.marks,
                Some(Record::Entry(Entry {
                    target: Target::Inode(i),
                    ..
                })) if !directory => i.marks,
                other => panic!("{other:?}"),
            };
            assert_eq!(marks, Marks::NONE, "what is old has nothing attached that is new");
            match block_on(store.get(&Key::Superblock).wait()).expect("read") {
                Some(Record::Superblock(sb)) => assert_eq!(sb.format, u32::from(format)),
                other => panic!("{other:?}"),
            }
        }
    }
}
