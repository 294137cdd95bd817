//! `MemStore` against the conformance suite, and its faults.

use pando_format::{CounterRecord, Key, Mutation, Record, Scan};
use pando_store::conformance::{self, Harness, block_on};
use pando_store::{
    Batch, Disk, DiskFaults, Durability, Level, LocalFuture, Lsn, MemStore, NoFaults, Read, Store, StoreError,
};
use pando_types::Slot;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

#[derive(Default)]
struct Faults {
    syncs: Cell<u64>,
    /// Polls that a sync, or a read, takes.
    slow: Cell<u32>,
    fail_sync: Cell<bool>,
    fail_write: Cell<bool>,
    synced: RefCell<Vec<Lsn>>,
}

/// Pending for `n` polls, waking each time.
fn steps(n: u32) -> impl Future<Output = ()> {
    let mut left = n;
    std::future::poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

impl DiskFaults for Faults {
    fn read_delay(&self) -> Option<(LocalFuture<()>, LocalFuture<()>)> {
        let n = self.slow.get();
        let part = || Box::pin(steps(n)) as LocalFuture<()>;
        (n > 0).then(|| (part(), part()))
    }
    fn sync(&self) -> LocalFuture<Result<(), String>> {
        self.syncs.set(self.syncs.get() + 1);
        let (n, fail) = (self.slow.get(), self.fail_sync.get());
        Box::pin(async move {
            steps(n).await;
            if fail { Err("EIO".into()) } else { Ok(()) }
        })
    }
    fn write(&self, _: &Batch) -> Result<(), String> {
        if self.fail_write.get() {
            Err("ENOSPC".into())
        } else {
            Ok(())
        }
    }
    fn synced(&self, lsn: Lsn) {
        self.synced.borrow_mut().push(lsn);
    }
}

struct Mem {
    disk: Disk,
    durability: Durability,
    faults: Rc<Faults>,
    keep: usize,
}

impl Harness for Mem {
    fn durability(&self) -> Durability {
        self.durability
    }
    fn open(&mut self) -> Rc<dyn Store> {
        Rc::new(MemStore::open(&self.disk, self.durability, self.faults.clone()))
    }
    fn kill(&mut self) {}
    fn power_cut(&mut self) -> bool {
        self.keep = (self.keep + 3) % 7;
        self.disk.power_loss(self.keep);
        true
    }
    fn corrupt(&mut self, key: &Key) -> bool {
        self.disk.corrupt(key)
    }
    fn syncs(&self, _: &Rc<dyn Store>) -> u64 {
        self.faults.syncs.get()
    }
}

#[test]
fn conformance_suite() {
    for durability in [Durability::Sync, Durability::Async] {
        for slow in [0, 1, 5] {
            conformance::run(|| {
                let faults = Rc::new(Faults::default());
                faults.slow.set(slow);
                Box::new(Mem {
                    disk: Disk::new(),
                    durability,
                    faults,
                    keep: 0,
                })
            });
        }
    }
}

fn put(n: u64) -> Batch {
    let record = Record::Counter(CounterRecord {
        reserved: n,
        epoch: 0,
    });
    Batch::of(vec![Mutation::Update {
        key: Key::Counter(Slot(1)),
        record,
    }])
}

fn value(s: &MemStore) -> Option<u64> {
    match block_on(s.get(&Key::Counter(Slot(1))).wait()) {
        Ok(Some(Record::Counter(c))) => Some(c.reserved),
        Ok(None) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn power_loss_keeps_a_prefix() {
    for (keep, survived, found) in [(0, 2, 2), (1, 3, 3), (2, 4, 4), (9, 5, 5)] {
        let disk = Disk::new();
        let s = MemStore::open(&disk, Durability::Sync, Rc::new(NoFaults));
        for n in 1..=5 {
            s.apply(&put(n)).expect("apply");
            if n == 2 {
                block_on(s.wait(Lsn(2), Level::Durable)).expect("sync");
            }
        }
        assert_eq!(disk.unsynced(), 3);
        assert_eq!(disk.power_loss(keep), Lsn(survived));
        assert!(
            matches!(s.apply(&put(9)), Err(StoreError::Poisoned(_))),
            "the machine is off"
        );
        assert_eq!(
            value(&MemStore::open(&disk, Durability::Sync, Rc::new(NoFaults))),
            Some(found)
        );
    }
}

#[test]
fn a_sync_covers_what_was_applied_when_it_began() {
    let faults = Rc::new(Faults::default());
    faults.slow.set(1);
    let s = MemStore::open(&Disk::new(), Durability::Sync, faults.clone());
    let one = s.apply(&put(1)).expect("apply");
    let mut wait = s.wait(one, Level::Durable);
    assert!(
        wait.as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    let two = s.apply(&put(2)).expect("apply");
    block_on(wait).expect("sync");
    assert_eq!(s.safe(Level::Synced), one);
    block_on(s.wait(two, Level::Durable)).expect("sync");
    assert_eq!(*faults.synced.borrow(), [one, two]);
    assert_eq!(faults.syncs.get(), 2);
}

#[test]
fn a_failure_is_for_ever() {
    for write in [true, false] {
        let (disk, faults) = (Disk::new(), Rc::new(Faults::default()));
        let s = MemStore::open(&disk, Durability::Sync, faults.clone());
        let lsn = s.apply(&put(1)).expect("apply");
        if write {
            faults.fail_write.set(true);
            assert!(matches!(s.apply(&put(2)), Err(StoreError::Poisoned(_))));
        } else {
            faults.fail_sync.set(true);
            assert!(matches!(
                block_on(s.wait(lsn, Level::Durable)),
                Err(StoreError::Poisoned(_))
            ));
        }
        faults.fail_write.set(false);
        faults.fail_sync.set(false);
        let syncs = faults.syncs.get();
        // H103: nothing is tried again, however healthy the device says it is.
        assert!(matches!(
            block_on(s.wait(lsn, Level::Durable)),
            Err(StoreError::Poisoned(_))
        ));
        assert!(matches!(s.apply(&put(3)), Err(StoreError::Poisoned(_))));
        assert!(matches!(
            s.get(&Key::Counter(Slot(1))),
            Read::Ready(Err(StoreError::Poisoned(_)))
        ));
        assert!(matches!(
            s.list(&Scan::Sessions, 1),
            Read::Ready(Err(StoreError::Poisoned(_)))
        ));
        assert_eq!(faults.syncs.get(), syncs);
        assert_eq!(
            value(&MemStore::open(&disk, Durability::Sync, Rc::new(NoFaults))),
            Some(1)
        );
    }
}

#[test]
fn a_slow_read_sees_what_is_there_when_it_ends() {
    let faults = Rc::new(Faults::default());
    let s = MemStore::open(&Disk::new(), Durability::Sync, faults.clone());
    faults.slow.set(2);
    let Read::Pending(read) = s.get(&Key::Counter(Slot(1))) else {
        panic!("not delayed")
    };
    s.apply(&put(1)).expect("apply");
    assert!(matches!(block_on(read), Ok(Some(_))));
}
