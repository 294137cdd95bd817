//! Prints what this store does on this machine: `cargo run --release --example measure -- DIR [RECORDS]`.

use pando_format::{
    Batch, Entry, FORMAT_VERSION, HashWidths, InodeRecord, Key, KeyRange, Layout, Marks, Mutation, Record,
    Superblock, Target, Touch, TouchDelta,
};
use pando_store::conformance::block_on;
use pando_store::{Durability, Level, Store};
use pando_store_rocks::{RocksOptions, RocksStore};
use pando_types::{BootEpoch, DirId, FileKind, FsId, Generation, Ino, Name, Perm, ServerId, Timestamp};
use std::path::PathBuf;
use std::time::Instant;

const PER_DIR: u64 = 1000;

fn dir(n: u64) -> DirId {
    DirId(u128::from(n / PER_DIR).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835) + 2)
}

fn key(n: u64) -> Key {
    let name = Name::new(format!("file-{n:09}").as_bytes()).expect("name");
    Key::Entry {
        dir: dir(n),
        hash: HashWidths::FULL.name(7, &name),
        name,
    }
}

/// What a create writes.
fn create(n: u64) -> Batch {
    let t = Timestamp {
        secs: n as i64,
        nanos: 5,
    };
    let inode = InodeRecord {
        ino: Ino(n),
        generation: Generation(n),
        kind: FileKind::Regular,
        perm: Perm::new(0o644),
        uid: 1000,
        gid: 1000,
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
    let record = Record::Entry(Entry {
        ordinal: 0,
        target: Target::Inode(inode),
    });
    let mut mutations = vec![Mutation::Insert { key: key(n), record }];
    if n.is_multiple_of(PER_DIR) {
        mutations.push(Mutation::Insert {
            key: Key::Touch(dir(n)),
            record: Record::Touch(Touch::default()),
        });
    }
    mutations.push(Mutation::Touch {
        dir: dir(n),
        delta: TouchDelta {
            entries: 1,
            subdirs: 0,
            time: t,
        },
    });
    Batch::of(mutations)
}

fn rate(what: &str, n: u64, start: Instant) {
    let s = start.elapsed().as_secs_f64();
    println!(
        "{what:<44} {:>10.0}/s  {:>8.2} us",
        n as f64 / s,
        s * 1e6 / n as f64
    );
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let path = PathBuf::from(arguments.next().expect("DIR"));
    let count: u64 = arguments
        .next()
        .map_or(2_000_000, |n| n.to_string_lossy().parse().expect("RECORDS"));
    let superblock = Superblock {
        format: FORMAT_VERSION,
        fs: FsId(1),
        server: ServerId(1),
        boot: BootEpoch(1),
        name_bits: 55,
        id_bits: 128,
        clean: true,
    };
    RocksStore::create(&path, superblock).expect("create");
    let open = |durability| {
        let start = Instant::now();
        let store = RocksStore::open(
            &path,
            RocksOptions {
                durability,
                ..RocksOptions::default()
            },
        )
        .expect("open")
        .0;
        println!("open: {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
        store
    };

    let store = open(Durability::Async);
    let start = Instant::now();
    let mut slowest = 0.0f64;
    for n in 0..count {
        let one = Instant::now();
        store.apply(&create(n)).expect("apply");
        slowest = slowest.max(one.elapsed().as_secs_f64());
    }
    rate("creates, async", count, start);
    println!("slowest create: {:.1} ms; {:?}", slowest * 1e3, store.stats());
    drop(store);

    let store = open(Durability::Sync);
    for (what, depth) in [
        ("creates, sync, one at a time", 1),
        ("creates, sync, 32 at a time", 32),
    ] {
        let start = Instant::now();
        let n = 4000 * depth.min(8);
        for i in 0..n / depth {
            for j in 0..depth {
                store
                    .apply(&create(count * depth * 2 + i * depth + j + PER_DIR * 77))
                    .map_or_else(|e| panic!("{e}"), drop);
            }
            block_on(store.wait(store.applied(), Level::Durable)).expect("wait");
        }
        rate(what, n, start);
    }
    for pass in ["gets, cold", "gets, warm"] {
        let start = Instant::now();
        let n = count.min(200_000);
        for i in 0..n {
            let found = block_on(store.get(&key(i * 7919 % (count / 10))).wait()).expect("get");
            assert!(found.is_some());
        }
        rate(pass, n, start);
    }
    for pass in ["absent names, cold", "absent names, warm"] {
        let start = Instant::now();
        for i in 0..100_000 {
            let Key::Entry { dir, hash, .. } = key(i * 7919 % count) else {
                continue;
            };
            let absent = pando_format::NameHash(hash.0 ^ 1);
            assert_eq!(
                block_on(store.list(&KeyRange::bucket(dir, absent), 9).wait()).map(|l| l.len()),
                Ok(0)
            );
        }
        rate(pass, 100_000, start);
    }
    let start = Instant::now();
    let mut entries = 0;
    for d in 0..(count / PER_DIR).min(500) {
        entries += block_on(
            store
                .list(&KeyRange::entries(dir(d * PER_DIR)), usize::MAX)
                .wait(),
        )
        .map_or(0, |l| l.len());
    }
    rate("entries listed, directories of 1,000", entries as u64, start);
    println!("{:?}", store.stats());
}
