//! The store of the simulator and of tests: encoded records in a map, on a [`Disk`] that can lose, delay and
//! fail.

use crate::disk::{DiskState, Undo};
use crate::{
    Batch, Bundle, Disk, DiskFaults, Durability, Exported, Key, KeyRange, Level, LocalFuture, Lsn, Mutation,
    NoFaults, Picture, Read, Record, Scan, Space, Store, StoreError,
};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Bound;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// One incarnation of a store on a [`Disk`]. Dropping it is a kill -9: nothing that was applied is lost.
///
/// In [`Durability::Async`] nothing is synced in the background, for this crate has no clock: whoever
/// simulates that mode calls `wait(applied, Synced)` every 5 s.
pub struct MemStore(Rc<Inner>);

type Syncing = LocalFuture<Result<(), String>>;

struct Inner {
    disk: Disk,
    incarnation: u64,
    durability: Durability,
    faults: Rc<dyn DiskFaults>,
    applied: Cell<Lsn>,
    synced: Cell<Lsn>,
    poisoned: RefCell<Option<String>>,
    /// The sync that runs now, with the position it will make safe. Whoever waits polls it, so nobody has to
    /// spawn it and any waiter may go away.
    sync: RefCell<Option<(Lsn, Syncing)>>,
    waiters: Arc<Waiters>,
}

impl MemStore {
    /// Opens a disk. An earlier store on it can do nothing any more.
    pub fn open(disk: &Disk, durability: Durability, faults: Rc<dyn DiskFaults>) -> MemStore {
        let incarnation = disk.state().begin();
        MemStore(Rc::new(Inner {
            disk: disk.clone(),
            incarnation,
            durability,
            faults,
            applied: Cell::new(Lsn(0)),
            synced: Cell::new(Lsn(0)),
            poisoned: RefCell::new(None),
            sync: RefCell::new(None),
            waiters: Arc::default(),
        }))
    }

    /// An empty store on a sound disk of its own.
    pub fn new(durability: Durability) -> MemStore {
        MemStore::open(&Disk::new(), durability, Rc::new(NoFaults))
    }

    fn read<T: 'static>(&self, read: impl Fn(&Inner) -> Result<T, StoreError> + 'static) -> Read<T> {
        match self.0.faults.read_delay() {
            None => Read::Ready(read(&self.0)),
            Some((before, after)) => {
                let inner = self.0.clone();
                Read::Pending(Box::pin(async move {
                    before.await;
                    let what = read(&inner);
                    after.await;
                    what
                }))
            }
        }
    }
}

impl Inner {
    /// The disk, unless this incarnation is over or has failed.
    fn state(&self) -> Result<RefMut<'_, DiskState>, StoreError> {
        if let Some(why) = &*self.poisoned.borrow() {
            return Err(StoreError::Poisoned(why.clone()));
        }
        let state = self.disk.state();
        if state.incarnation != self.incarnation {
            return Err(StoreError::Poisoned(
                "a later incarnation has opened the store".into(),
            ));
        }
        Ok(state)
    }

    fn poison(&self, why: String) -> StoreError {
        *self.poisoned.borrow_mut() = Some(why.clone());
        self.waiters.wake_all();
        StoreError::Poisoned(why)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Record>, StoreError> {
        match self.state()?.map.get(key) {
            Some(value) => decode(key, value).map(Some),
            None => Ok(None),
        }
    }

    /// Calls `each` with the encoded records of a range.
    fn scan(
        &self,
        range: &KeyRange,
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let state = self.state()?;
        for (key, value) in within(&state.map, range).take(limit) {
            each(key, value)?;
        }
        Ok(())
    }

    fn list(&self, range: &KeyRange, limit: usize) -> Result<Vec<(Key, Record)>, StoreError> {
        let mut out = Vec::new();
        self.scan(range, limit, |key, value| {
            let record = decode(key, value)?;
            out.push((Key::decode(key).map_err(|e| StoreError::corrupt(key, e))?, record));
            Ok(())
        })?;
        Ok(out)
    }

    fn export(&self, scan: &Scan, bytes: usize) -> Result<Exported, StoreError> {
        export(&self.state()?.map, scan, bytes)
    }

    fn apply(&self, batch: &Batch) -> Result<Lsn, StoreError> {
        drop(self.state()?);
        self.faults.write(batch).map_err(|why| self.poison(why))?;
        let mut undo = Undo::default();
        let mut state = self.state()?;
        for m in &batch.mutations {
            if let Err(e) = change(&mut state, &mut undo, m) {
                state.take_back(undo);
                return Err(e);
            }
        }
        if let Some(reply) = &batch.reply {
            let key = reply.key.encode();
            let value = Record::Reply(reply.record.clone()).encode(&key);
            state.set(&mut undo, key, value);
        }
        state.keep(undo);
        drop(state);
        let lsn = Lsn(self.applied.get().0 + 1);
        self.applied.set(lsn);
        self.faults.applied(lsn, batch);
        Ok(lsn)
    }

    fn safe(&self, level: Level) -> Lsn {
        match (level, self.durability) {
            (Level::Durable, Durability::Async) => self.applied.get(),
            _ => self.synced.get(),
        }
    }

    /// One step of waiting: runs the sync that is in flight, or starts one.
    fn poll_wait(&self, lsn: Lsn, level: Level, cx: &mut Context<'_>) -> Poll<Result<(), StoreError>> {
        loop {
            if let Err(e) = self.state() {
                return Poll::Ready(Err(e));
            }
            if self.safe(level) >= lsn {
                return Poll::Ready(Ok(()));
            }
            let running = self.sync.borrow_mut().take();
            // A sync makes safe what was applied when it began, and nothing later (H102).
            let (target, mut sync) = running.unwrap_or_else(|| (self.applied.get(), self.faults.sync()));
            self.waiters.add(cx.waker());
            let waker = Waker::from(self.waiters.clone());
            match sync.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => {
                    *self.sync.borrow_mut() = Some((target, sync));
                    return Poll::Pending;
                }
                Poll::Ready(Err(why)) => return Poll::Ready(Err(self.poison(why))),
                Poll::Ready(Ok(())) => {
                    self.state()?.synced_to(target);
                    self.synced.set(target);
                    self.faults.synced(target);
                    self.waiters.wake_all();
                }
            }
        }
    }
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// The encoded records of a range.
fn within<'a>(map: &'a Map, range: &KeyRange) -> impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)> {
    // An inverted range is empty, as it is in every store; BTreeMap would panic.
    let end = range.end.as_slice().max(range.start.as_slice());
    map.range::<[u8], _>((Bound::Included(range.start.as_slice()), Bound::Excluded(end)))
}

fn export(map: &Map, scan: &Scan, bytes: usize) -> Result<Exported, StoreError> {
    let (mut out, mut size) = (Vec::new(), 0);
    for (key, value) in within(map, &scan.range()) {
        if size >= bytes {
            return Ok((Bundle::of(out), Some(scan.rest(key.clone()))));
        }
        decode(key, value)?;
        size += key.len() + value.len();
        out.push((key.clone(), value.clone()));
    }
    Ok((Bundle::of(out), None))
}

/// The records as they were.
struct MemPicture(Map);

impl Picture for MemPicture {
    fn export(&self, scan: &Scan, bytes: usize) -> LocalFuture<Result<Exported, StoreError>> {
        Box::pin(std::future::ready(export(&self.0, scan, bytes)))
    }
}

fn decode(key: &[u8], value: &[u8]) -> Result<Record, StoreError> {
    Record::decode(key, value).map_err(|e| StoreError::corrupt(key, e))
}

fn change(state: &mut DiskState, undo: &mut Undo, m: &Mutation) -> Result<(), StoreError> {
    assert!(m.check().is_ok(), "a record of another kind: {m:?}");
    match m {
        Mutation::Insert { key, record } => {
            let bytes = key.encode();
            let value = record.encode(&bytes);
            assert!(
                !state.map.contains_key(&bytes),
                "insert of a present key: {key:?}"
            );
            state.set(undo, bytes, value);
        }
        Mutation::Update { key, record } => {
            let bytes = key.encode();
            let value = record.encode(&bytes);
            state.set(undo, bytes, value);
        }
        Mutation::Delete { key } => state.remove(undo, key.encode()),
        Mutation::Touch { part, delta } => {
            let bytes = Key::Touch(*part).encode();
            let before = state.map.get(&bytes).map(|v| decode(&bytes, v)).transpose()?;
            let Some(Record::Touch(mut touch)) = before else {
                panic!("touch of an absent directory: {part:?}")
            };
            touch.apply(delta);
            let value = Record::Touch(touch).encode(&bytes);
            state.set(undo, bytes, value);
        }
    }
    Ok(())
}

impl Store for MemStore {
    fn check(&self) -> Result<(), StoreError> {
        self.0.state().map(drop)
    }

    fn get(&self, key: &Key) -> Read<Option<Record>> {
        let key = key.encode();
        self.read(move |s| s.get(&key))
    }

    fn list(&self, scan: &Scan, limit: usize) -> Read<Vec<(Key, Record)>> {
        let range = scan.range();
        self.read(move |s| s.list(&range, limit))
    }

    fn apply(&self, batch: &Batch) -> Result<Lsn, StoreError> {
        self.0.apply(batch)
    }

    fn obsolete(&self, key: &Key, version: u64) {
        let key = key.encode();
        let Ok(mut state) = self.0.state() else { return };
        let value = state.map.get(&key).map(|value| decode(&key, value));
        if matches!(value, Some(Ok(Record::Reply(reply))) if reply.sequence.0 == version) {
            state.map.remove(&key);
        }
    }

    fn applied(&self) -> Lsn {
        self.0.applied.get()
    }

    fn safe(&self, level: Level) -> Lsn {
        self.0.safe(level)
    }

    fn durability(&self) -> Durability {
        self.0.durability
    }

    fn wait(&self, lsn: Lsn, level: Level) -> LocalFuture<Result<(), StoreError>> {
        assert!(
            lsn <= self.applied(),
            "wait for {lsn:?}, applied {:?}",
            self.applied()
        );
        Box::pin(Wait {
            store: self.0.clone(),
            lsn,
            level,
        })
    }

    fn export(&self, scan: &Scan, bytes: usize) -> Read<Exported> {
        let scan = scan.clone();
        self.read(move |s| s.export(&scan, bytes))
    }

    fn ingest(&self, bundle: &Bundle) -> Result<Lsn, StoreError> {
        let records = bundle.decode()?.into_iter();
        let updates = records.map(|(key, record)| Mutation::Update { key, record });
        self.apply(&Batch::of(updates.collect()))
    }

    fn delete_range(&self, scan: &Scan) -> Result<Lsn, StoreError> {
        let mut deletes = Vec::new();
        self.0.scan(&scan.range(), usize::MAX, |key, _| {
            let key = Key::decode(key).map_err(|e| StoreError::corrupt(key, e))?;
            deletes.push(Mutation::Delete { key });
            Ok(())
        })?;
        self.apply(&Batch::of(deletes))
    }

    fn picture(&self) -> LocalFuture<Result<Rc<dyn Picture>, StoreError>> {
        let read = self.read(|s| Ok(Rc::new(MemPicture(s.state()?.map.clone())) as Rc<dyn Picture>));
        Box::pin(read.wait())
    }

    fn space(&self) -> Space {
        self.0.faults.space()
    }

    fn records(&self) -> u64 {
        self.0.disk.len() as u64
    }
}

struct Wait {
    store: Rc<Inner>,
    lsn: Lsn,
    level: Level,
}

impl Future for Wait {
    type Output = Result<(), StoreError>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.store.poll_wait(self.lsn, self.level, cx)
    }
}

/// The waker of the sync in flight: it wakes all who wait, so that it does not matter which of them polled
/// last and which of them is gone.
#[derive(Default)]
struct Waiters(Mutex<Vec<Waker>>);

impl Waiters {
    fn list(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, waker: &Waker) {
        let mut list = self.list();
        if !list.iter().any(|w| w.will_wake(waker)) {
            list.push(waker.clone());
        }
    }

    fn wake_all(&self) {
        // Woken outside the lock: a waker may run code of others.
        let all = std::mem::take(&mut *self.list());
        for w in all {
            w.wake();
        }
    }
}

impl Wake for Waiters {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}
