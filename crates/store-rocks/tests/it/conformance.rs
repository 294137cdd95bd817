//! `RocksStore` against the conformance suite, on this machine's file system and over power cuts.

use crate::common::Xfs;
use pando_format::codec::Blob;
use pando_format::{Batch, Key, NameHash, Record, ReplyRecord, ReplyWrite, Scan};
use pando_store::conformance::{self, Harness};
use pando_store::{
    Bundle, Durability, Exported, Level, LocalFuture, Lsn, Picture, Read, Space, Stats, Store, StoreError,
};
use pando_store_rocks::{RocksOptions, RocksStore, Schema};
use pando_types::{DirId, RequestSlot, Sequence, SessionId, Slot};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use tempfile::TempDir;

enum Place {
    Plain(TempDir),
    Power(Rc<Xfs>),
}

struct Rocks {
    place: Place,
    options: RocksOptions,
    gathers: bool,
    /// The opened store, for its counters.
    current: RefCell<Weak<RocksStore>>,
}

impl Rocks {
    fn new(place: Place, durability: Durability, gathers: bool, schema: Schema) -> Rocks {
        // Small logs, so that the suite crosses from one WAL to the next; and what is in the journal leaves
        // it.
        let options = RocksOptions {
            wal_bytes: 4 << 10,
            journal_bytes: 600,
            ..crate::common::options(durability)
        };
        let rocks = Rocks {
            place,
            options,
            gathers,
            current: RefCell::default(),
        };
        RocksStore::create_as(&rocks.path(), crate::common::superblock(), schema).expect("create");
        rocks
    }

    fn path(&self) -> PathBuf {
        match &self.place {
            Place::Plain(dir) => dir.path().join("store"),
            Place::Power(xfs) => xfs.store(),
        }
    }
}

/// One that gathers batches, and writes them when the first is waited for, as an event loop does at the end
/// of a turn.
struct Gathering(Rc<RocksStore>);

impl Store for Gathering {
    fn check(&self) -> Result<(), StoreError> {
        self.0.check()
    }
    fn get(&self, key: &Key) -> Read<Option<Record>> {
        self.0.get(key)
    }
    fn list(&self, scan: &Scan, limit: usize) -> Read<Vec<(Key, Record)>> {
        self.0.list(scan, limit)
    }
    fn names(&self, scan: &Scan, limit: usize) -> Read<Vec<(Key, Record)>> {
        self.0.names(scan, limit)
    }
    fn apply(&self, batch: &Batch) -> Result<Lsn, StoreError> {
        self.0.apply(batch)
    }
    fn obsolete(&self, key: &Key, version: u64) {
        self.0.obsolete(key, version);
    }
    fn applied(&self) -> Lsn {
        self.0.applied()
    }
    fn safe(&self, level: Level) -> Lsn {
        // The suite asks at the end of a turn. A failure is found by whoever waits.
        let _ = self.0.flush();
        self.0.safe(level)
    }
    fn durability(&self) -> Durability {
        self.0.durability()
    }
    fn wait(&self, lsn: Lsn, level: Level) -> LocalFuture<Result<(), StoreError>> {
        // In this order: what is not written yet is waited for, too.
        let wait = self.0.wait(lsn, level);
        let store = self.0.clone();
        Box::pin(async move {
            store.flush()?;
            wait.await
        })
    }
    fn export(&self, scan: &Scan, bytes: usize) -> Read<Exported> {
        self.0.export(scan, bytes)
    }
    fn ingest(&self, bundle: &Bundle) -> Result<Lsn, StoreError> {
        self.0.ingest(bundle)
    }
    fn delete_range(&self, scan: &Scan) -> Result<Lsn, StoreError> {
        self.0.delete_range(scan)
    }
    fn picture(&self) -> LocalFuture<Result<Rc<dyn Picture>, StoreError>> {
        self.0.picture()
    }
    fn space(&self) -> Space {
        self.0.space()
    }
    fn records(&self) -> u64 {
        self.0.records()
    }
    fn stats(&self) -> Stats {
        self.0.stats()
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
        if self.gathers {
            store.gather();
            return Rc::new(Gathering(store));
        }
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
        // What is in the journal has rows of its own then.
        drop(self.open());
        let key = key.encode();
        let db = crate::common::raw(&self.path());
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
        for (gathers, schema) in [
            (false, Schema::Whole),
            (true, Schema::Whole),
            (false, Schema::Columns),
            (true, Schema::Columns),
        ] {
            eprintln!("{durability:?} {gathers} {schema:?}");
            conformance::run(|| {
                let dir = tempfile::tempdir().expect("temporary directory");
                Box::new(Rocks::new(Place::Plain(dir), durability, gathers, schema))
            });
        }
    }
}

/// A new store that gathers, and where it is.
fn gathering(durability: Durability) -> (TempDir, PathBuf, RocksStore) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("store");
    RocksStore::create(&path, crate::common::superblock()).expect("create");
    let store = crate::common::open(&path, durability);
    store.gather();
    (dir, path, store)
}

/// What was gathered is told to nobody, in either durability, and seen by everybody.
#[test]
fn gathered_batches_are_not_safe_before_they_are_written() {
    for durability in [Durability::Sync, Durability::Async] {
        let (_dir, path, store) = gathering(durability);
        let lsn = (1..=9)
            .map(|n| store.apply(&crate::common::batch(n)).expect("apply"))
            .last();
        let lsn = lsn.expect("nine");
        assert!(store.safe(Level::Durable) < lsn && store.safe(Level::Synced) < lsn);
        let before = store.stats().wal_bytes;
        assert!(matches!(
            store.get(&crate::common::key(7)),
            Read::Ready(Ok(Some(_)))
        ));
        assert_eq!(store.stats().wal_bytes, before, "a get writes nothing");
        // A listing does: RocksDB is to have all of it.
        assert_eq!(crate::common::prefix(&store), 9);
        assert!(store.stats().wal_bytes > before);
        conformance::block_on(store.wait(lsn, Level::Durable)).expect("written");
        // Nothing at all is a batch, too.
        let lsn = store.apply(&Batch::default()).expect("apply");
        let wait = store.wait(lsn, Level::Synced);
        store.flush().expect("flush");
        conformance::block_on(wait).expect("synced");
        // What is dropped is not lost.
        store.apply(&crate::common::batch(10)).expect("apply");
        drop(store);
        assert_eq!(crate::common::prefix(&crate::common::open(&path, durability)), 10);
    }
}

/// Who lists what is in the journal has it written, and with it all that was applied: nothing is told to be
/// safe that is not (H187).
#[test]
fn what_is_gathered_is_written_before_the_journal_is() {
    for durability in [Durability::Sync, Durability::Async] {
        let (dir, path, store) = gathering(durability);
        let (slot, session) = (Slot(5), SessionId(1));
        let reply = |lane| ReplyWrite {
            key: Key::Reply(slot, session, RequestSlot(lane)),
            record: ReplyRecord {
                sequence: Sequence(1),
                dir: DirId(7),
                hash: NameHash(9),
                answer: Blob(vec![1, 2, 3]),
            },
        };
        let mut batch = Batch {
            reply: Some(reply(0)),
            ..Batch::default()
        };
        store.apply(&batch).expect("apply");
        store.flush().expect("flush");
        let before = store.stats().wal_bytes;
        let lsn = store.apply(&crate::common::batch(1)).expect("apply");
        let range = Scan::Replies(slot, session);
        let listed = conformance::block_on(store.list(&range, 9).wait()).expect("list");
        assert_eq!(listed.len(), 1);
        assert!(store.stats().wal_bytes > before, "it was in the journal");
        // It is written, or not said to be.
        let copy = dir.path().join("copy");
        copied(&path, &copy);
        let there = crate::common::prefix(&crate::common::open(&copy, durability));
        assert!(there == 1 || store.safe(Level::Durable) < lsn);
        drop(store);
        let store = crate::common::open(&path, durability);
        batch.reply = Some(reply(1));
        store.apply(&batch).expect("apply");
        assert_eq!(crate::common::prefix(&store), 1);
    }
}

/// What a kill -9 would leave.
fn copied(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp")
        .arg("-a")
        .arg(from)
        .arg(to)
        .status();
    assert!(status.expect("cp").success());
}

#[test]
fn conformance_suite_over_power_cuts() {
    for (durability, schema) in [
        (Durability::Sync, Schema::Whole),
        (Durability::Async, Schema::Whole),
        (Durability::Async, Schema::Columns),
    ] {
        let Some(xfs) = Xfs::new().map(Rc::new) else {
            return;
        };
        conformance::run(|| {
            let _ = std::fs::remove_dir_all(xfs.store());
            Box::new(Rocks::new(Place::Power(xfs.clone()), durability, true, schema))
        });
    }
}
