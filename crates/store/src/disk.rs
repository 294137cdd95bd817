//! The part of [`MemStore`](crate::MemStore) that survives the process: what is on the simulated device, what
//! is only in the simulated page cache, and the faults of both.

use crate::{Batch, Key, LocalFuture, Lsn, Record, Scan, Space};
use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// What can go wrong, or take time, below a [`MemStore`](crate::MemStore).
pub trait DiskFaults {
    /// How long the next read takes before it reads, and after it; `None` is a memory hit.
    fn read_delay(&self) -> Option<(LocalFuture<()>, LocalFuture<()>)> {
        None
    }
    /// One sync. An error poisons the store (H103).
    fn sync(&self) -> LocalFuture<Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Called before a batch is applied. An error leaves it out and poisons the store.
    fn write(&self, _batch: &Batch) -> Result<(), String> {
        Ok(())
    }
    /// Free space.
    fn space(&self) -> Space {
        Space {
            total: 1 << 40,
            available: 1 << 40,
            device: 0,
        }
    }
    /// A batch was applied. Ingests and range deletions show as batches of inserts and deletions.
    fn applied(&self, _lsn: Lsn, _batch: &Batch) {}
    /// Everything up to `lsn` was synced.
    fn synced(&self, _lsn: Lsn) {}
}

/// A disk that is always fast and sound.
pub struct NoFaults;

impl DiskFaults for NoFaults {}

/// Durable state of one simulated store. It outlives the [`MemStore`](crate::MemStore)s opened on it, one
/// after the other: opening one makes every earlier one useless, as if its process had been killed.
#[derive(Clone, Default)]
pub struct Disk(Rc<RefCell<DiskState>>);

#[derive(Default)]
pub(crate) struct DiskState {
    /// Everything applied, synced or not: what a kill -9 leaves.
    pub(crate) map: BTreeMap<Vec<u8>, Vec<u8>>,
    /// How to take back what is applied and not synced. Invariant: oldest first, all above `synced`, without
    /// gaps.
    unsynced: VecDeque<Undo>,
    /// Synced position of the current incarnation.
    synced: Lsn,
    /// Number of the [`MemStore`](crate::MemStore) that may still use this disk.
    pub(crate) incarnation: u64,
}

/// The values one batch replaced, in the order it replaced them.
#[derive(Default)]
pub(crate) struct Undo(Vec<(Vec<u8>, Option<Vec<u8>>)>);

impl Disk {
    /// An empty disk.
    pub fn new() -> Disk {
        Disk::default()
    }

    /// The machine lost power: what was not synced is gone, except the first `keep_unsynced` batches, which
    /// happened to have reached the device. Returns the last position that survived, in the count of the
    /// store that was open.
    pub fn power_loss(&self, keep_unsynced: usize) -> Lsn {
        let mut d = self.state();
        while d.unsynced.len() > keep_unsynced {
            if let Some(undo) = d.unsynced.pop_back() {
                d.take_back(undo);
            }
        }
        let survived = Lsn(d.synced.0 + d.unsynced.len() as u64);
        d.begin();
        survived
    }

    /// Number of batches a power loss could take.
    pub fn unsynced(&self) -> usize {
        self.state().unsynced.len()
    }

    /// Flips one bit of the record under `key`. False if there is none.
    pub fn corrupt(&self, key: &Key) -> bool {
        match self.state().map.get_mut(&key.encode()) {
            Some(value) => {
                let middle = value.len() / 2;
                value[middle] ^= 0x10;
                true
            }
            None => false,
        }
    }

    /// All records in key order, for checkers. Damaged ones ([`Disk::corrupt`]) are left out.
    pub fn dump(&self) -> Vec<(Key, Record)> {
        let d = self.state();
        d.map
            .iter()
            .filter_map(|(k, v)| Some((Key::decode(k).ok()?, Record::decode(k, v).ok()?)))
            .collect()
    }

    /// Whether two disks hold the same in a scan, of the records that count.
    pub fn is_same(&self, other: &Disk, scan: &Scan, counts: impl Fn(&Key) -> bool) -> bool {
        let (here, there) = (self.state(), other.state());
        let counts = |record: &(&Vec<u8>, &Vec<u8>)| Key::decode(record.0).is_ok_and(|key| counts(&key));
        let range = scan.range();
        let within = || range.start.clone()..range.end.clone();
        let here = here.map.range(within()).filter(counts);
        here.eq(there.map.range(within()).filter(counts))
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.state().map.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn state(&self) -> RefMut<'_, DiskState> {
        self.0.borrow_mut()
    }
}

impl DiskState {
    /// A new incarnation: what is there now is synced, and positions start again.
    pub(crate) fn begin(&mut self) -> u64 {
        self.unsynced.clear();
        self.synced = Lsn(0);
        self.incarnation += 1;
        self.incarnation
    }

    pub(crate) fn set(&mut self, undo: &mut Undo, key: Vec<u8>, value: Vec<u8>) {
        let before = self.map.insert(key.clone(), value);
        undo.0.push((key, before));
    }

    pub(crate) fn remove(&mut self, undo: &mut Undo, key: Vec<u8>) {
        if let Some(before) = self.map.remove(&key) {
            undo.0.push((key, Some(before)));
        }
    }

    pub(crate) fn take_back(&mut self, undo: Undo) {
        for (key, before) in undo.0.into_iter().rev() {
            match before {
                Some(value) => self.map.insert(key, value),
                None => self.map.remove(&key),
            };
        }
    }

    pub(crate) fn keep(&mut self, undo: Undo) {
        self.unsynced.push_back(undo);
    }

    pub(crate) fn synced_to(&mut self, lsn: Lsn) {
        while self.synced < lsn && self.unsynced.pop_front().is_some() {
            self.synced.0 += 1;
        }
    }
}
