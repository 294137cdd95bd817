//! `RocksStore` against the conformance suite, on this machine's file system and over power cuts.

mod common;

use common::Xfs;
use pando_format::Key;
use pando_store::conformance::{self, Harness};
use pando_store::{Durability, Store};
use pando_store_rocks::{RocksOptions, RocksStore};
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use tempfile::TempDir;

enum Place {
    Plain(TempDir),
    Power(Rc<Xfs>),
}

struct Rocks {
    place: Place,
    options: RocksOptions,
    /// The opened store, for its counters.
    current: RefCell<Weak<RocksStore>>,
}

impl Rocks {
    fn new(place: Place, durability: Durability) -> Rocks {
        // Small logs, so that the suite crosses from one WAL to the next.
        let options = RocksOptions {
            wal_bytes: 4 << 10,
            ..common::options(durability)
        };
        let rocks = Rocks {
            place,
            options,
            current: RefCell::default(),
        };
        RocksStore::create(&rocks.path(), common::superblock()).expect("create");
        rocks
    }

    fn path(&self) -> PathBuf {
        match &self.place {
            Place::Plain(dir) => dir.path().join("store"),
            Place::Power(xfs) => xfs.store(),
        }
    }
}

impl Harness for Rocks {
    fn durability(&self) -> Durability {
        self.options.durability
    }
    fn open(&mut self) -> Rc<dyn Store> {
        let store = Rc::new(
            RocksStore::open(&self.path(), self.options.clone())
                .expect("open")
                .0,
        );
        *self.current.borrow_mut() = Rc::downgrade(&store);
        store
    }
    fn kill(&mut self) {
        // The suite has dropped the store, which syncs and flushes nothing; `crash.rs` kills real processes.
    }
    fn power_cut(&mut self) -> bool {
        match &self.place {
            Place::Plain(_) => false,
            Place::Power(xfs) => {
                xfs.cut();
                xfs.restart();
                true
            }
        }
    }
    fn corrupt(&mut self, key: &Key) -> bool {
        let key = key.encode();
        let db = rocksdb::DB::open_default(self.path().join("db")).expect("open");
        let mut value = db.get(&key).expect("get").expect("present");
        let middle = value.len() / 2;
        value[middle] ^= 0x10;
        db.put(key, value).expect("put");
        true
    }
    fn syncs(&self, _: &Rc<dyn Store>) -> u64 {
        self.current.borrow().upgrade().map_or(0, |s| s.stats().syncs)
    }
}

#[test]
fn conformance_suite() {
    for durability in [Durability::Sync, Durability::Async] {
        conformance::run(|| {
            let dir = tempfile::tempdir().expect("temporary directory");
            Box::new(Rocks::new(Place::Plain(dir), durability))
        });
    }
}

#[test]
fn conformance_suite_over_power_cuts() {
    for durability in [Durability::Sync, Durability::Async] {
        let Some(xfs) = Xfs::new().map(Rc::new) else {
            return;
        };
        conformance::run(|| {
            let _ = std::fs::remove_dir_all(xfs.store());
            Box::new(Rocks::new(Place::Power(xfs.clone()), durability))
        });
    }
}
