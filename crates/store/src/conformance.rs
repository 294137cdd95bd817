//! What every store must do, whatever it is made of. An implementation's test calls [`run`].

mod basics;
mod random;
mod safety;

use crate::{
    Batch, Bundle, Durability, Key, KeyRange, Level, Lsn, Mutation, Record, ReplyWrite, Scan, Stats, Store,
    StoreError,
};
use pando_format::codec::Blob;
use pando_format::{
    CounterRecord, Entry, LOCAL_SLOT, LinkRecord, NameHash, ReplyRecord, SessionRecord, Target, Touch,
    TouchDelta,
};
use pando_types::{
    DirId, DirStat, FileKind, Generation, Ino, Name, Part, RequestSlot, Sequence, SessionId, Slot, Timestamp,
};
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// One store under test, opened several times. The suite drops what `open` returned before it calls anything
/// else.
pub trait Harness {
    /// The mode it is opened in.
    fn durability(&self) -> Durability;
    /// Opens the store; it is empty at first, a superblock apart.
    fn open(&mut self) -> Rc<dyn Store>;
    /// Ends the process as kill -9 does.
    fn kill(&mut self);
    /// Ends the machine as a power cut does. False if it cannot.
    fn power_cut(&mut self) -> bool;
    /// Flips a bit of a record behind the closed store's back. False if it cannot.
    fn corrupt(&mut self, key: &Key) -> bool;
    /// Number of syncs since the store was opened.
    fn syncs(&self, store: &Rc<dyn Store>) -> u64;
}

type Case = fn(&mut dyn Harness);

/// Runs the whole suite, each case on a fresh store.
pub fn run(mut fresh: impl FnMut() -> Box<dyn Harness>) {
    let cases: [(&str, Case); 16] = [
        ("get and list", basics::get_and_list),
        ("names", basics::names),
        ("counts", basics::counts),
        ("delete range", basics::delete_range),
        ("reply with effect", basics::reply_with_effect),
        ("obsolete replies", basics::obsolete_replies),
        ("touches commute", basics::touches_commute),
        ("broken invariants", basics::broken_invariants),
        ("waiting", safety::waiting),
        ("grouping", safety::grouping),
        ("abandoned waits", safety::abandoned_waits),
        ("reopening", safety::reopening),
        ("export and ingest", safety::export_and_ingest),
        ("pictures", safety::pictures),
        ("damage", safety::damage),
        ("random batches", random::random_batches),
    ];
    for (name, case) in cases {
        eprintln!("store conformance: {name}");
        case(&mut *fresh());
    }
}

/// Runs a future to its end on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    #[derive(Default)]
    struct Signal(Mutex<bool>, Condvar);
    impl Wake for Signal {
        fn wake(self: Arc<Self>) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.1.notify_one();
        }
    }
    let mut future = std::pin::pin!(future);
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(signal.clone());
    loop {
        if let Poll::Ready(v) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return v;
        }
        let mut woken = signal.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !*woken {
            woken = signal.1.wait(woken).unwrap_or_else(PoisonError::into_inner);
        }
        *woken = false;
    }
}

/// What a fallible step must give here.
fn ok<T>(r: Result<T, StoreError>) -> T {
    match r {
        Ok(v) => v,
        Err(e) => panic!("unexpected error: {e}"),
    }
}

fn get(s: &Rc<dyn Store>, key: &Key) -> Option<Record> {
    ok(block_on(s.get(key).wait()))
}

fn list(s: &Rc<dyn Store>, scan: &Scan, limit: usize) -> Vec<(Key, Record)> {
    ok(block_on(s.list(scan, limit).wait()))
}

fn apply(s: &Rc<dyn Store>, mutations: Vec<Mutation>) -> Lsn {
    ok(s.apply(&Batch::of(mutations)))
}

fn counter(slot: u16) -> Key {
    Key::Counter(Slot(slot))
}

fn count(reserved: u64) -> Record {
    Record::Counter(CounterRecord { reserved, epoch: 1 })
}

fn insert(key: Key, record: Record) -> Mutation {
    Mutation::Insert { key, record }
}

fn reply_key(slot: u16, session: u128, lane: u16) -> Key {
    Key::Reply(Slot(slot), SessionId(session), RequestSlot(lane))
}

fn reply(sequence: u64) -> ReplyRecord {
    ReplyRecord {
        sequence: Sequence(sequence),
        dir: DirId(7),
        hash: NameHash(9),
        answer: Blob(vec![1, 2, 3]),
    }
}

fn delta(entries: i32, secs: i64) -> TouchDelta {
    TouchDelta {
        entries,
        subdirs: 0,
        time: Timestamp { secs, nanos: 0 },
    }
}

/// All slots; the store's own records are beyond.
fn everything() -> Scan {
    Scan::Keys(KeyRange {
        start: Vec::new(),
        end: LOCAL_SLOT.0.to_be_bytes().to_vec(),
    })
}

/// A directory whose group is in `slot`.
fn dir_in(slot: u16) -> DirId {
    let mut id = u128::from(slot) << 20;
    while Part::whole(DirId(id)).slot() != Slot(slot) {
        id += 1;
    }
    DirId(id)
}

fn touch(entries: u64) -> Record {
    Record::Touch(Touch {
        stat: DirStat {
            entries,
            ..DirStat::default()
        },
        ..Touch::default()
    })
}

fn touch_by(slot: u16, entries: i32) -> Mutation {
    Mutation::Touch {
        part: dir_in(slot).into(),
        delta: delta(entries, 1),
    }
}

fn entries(s: &Rc<dyn Store>, slot: u16) -> u64 {
    match get(s, &Key::Touch(dir_in(slot).into())) {
        Some(Record::Touch(t)) => t.stat.entries,
        other => panic!("no touch but {other:?}"),
    }
}
