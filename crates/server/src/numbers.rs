//! Inode numbers and generations: one counter per slot, reserved in durable blocks.

use crate::{Failure, MetaServer};
use pando_format::{Batch, CounterRecord, Key, Mutation, Record};
use pando_store::{Durability, Level, Lsn, StoreError};
use pando_types::{Generation, Ino, Slot};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// First number of a slot's counter: no allocated inode number equals the root's.
pub(crate) const FIRST_NUMBER: u64 = 2;

#[derive(Clone, Copy)]
struct Counter {
    next: u64,
    record: CounterRecord,
    /// Position of the last reservation.
    reserved_at: Lsn,
}

impl Counter {
    fn give(&self, slot: Slot, number: u64) -> (Ino, Generation) {
        let generation = Generation::new(self.record.epoch, slot, number);
        (Ino::new(slot, number), generation)
    }
}

/// The counters of the slots used since boot.
#[derive(Default)]
pub(crate) struct Numbers {
    slots: RefCell<BTreeMap<Slot, Counter>>,
    /// Rises when something is forgotten: what was read of a record before that is of another time.
    forgotten: Cell<u64>,
}

impl Numbers {
    /// A slot comes or goes: whoever has it goes on after what was reserved last.
    pub fn forget(&self, slot: Slot) {
        self.slots.borrow_mut().remove(&slot);
        self.forgotten.set(self.forgotten.get() + 1);
    }
}

impl MetaServer {
    /// The next number of `slot`, if it is reserved and that cannot be lost.
    pub(crate) fn number_at_once(&self, slot: Slot) -> Option<(Ino, Generation)> {
        if !self.serves_slot(slot) {
            return None;
        }
        let mut slots = self.numbers.slots.borrow_mut();
        let counter = slots.get_mut(&slot)?;
        let number = counter.next;
        let lasts = self.store.durability() == Durability::Sync
            || self.store.safe(Level::Synced) >= counter.reserved_at;
        if number >= counter.record.reserved || number >= Generation::COUNTERS || !lasts {
            return None;
        }
        counter.next += 1;
        Some(counter.give(slot, number))
    }

    /// The next number of `slot`, never given out before and never again, whatever fails.
    pub(crate) async fn next_number(&self, slot: Slot) -> Result<(Ino, Generation), Failure> {
        let (numbers, store) = (&self.numbers, &*self.store);
        let block = self.limits.number_block;
        while !numbers.slots.borrow().contains_key(&slot) {
            let forgotten = numbers.forgotten.get();
            let record = match store.get(&Key::Counter(slot)).wait().await? {
                Some(Record::Counter(c)) => c,
                _ => CounterRecord {
                    reserved: FIRST_NUMBER,
                    epoch: 1,
                },
            };
            // Numbers of the last reservation may be spent: go on after it. Another task may have been faster.
            let fresh = Counter {
                next: record.reserved,
                record,
                reserved_at: Lsn(0),
            };
            if numbers.forgotten.get() == forgotten {
                numbers.slots.borrow_mut().entry(slot).or_insert(fresh);
            }
        }
        // Nothing is waited for from here to the reservation.
        if !self.serves_slot(slot) {
            return Err(Failure::Refused(self.not_served(slot)));
        }
        let (number, counter) = {
            let mut slots = numbers.slots.borrow_mut();
            let counter = slots
                .get_mut(&slot)
                .ok_or_else(|| StoreError::Device("slot counter".into()))?;
            let number = counter.next;
            if number >= Generation::COUNTERS {
                return Err(
                    StoreError::Device(format!("slot {} has given out all its numbers", slot.0)).into(),
                );
            }
            counter.next += 1;
            if counter.next > counter.record.reserved {
                counter.record.reserved = number + block.max(1);
                let (key, record) = (Key::Counter(slot), Record::Counter(counter.record));
                counter.reserved_at = self.change(&Batch::of(vec![Mutation::Update { key, record }]))?;
            }
            (number, *counter)
        };
        // What uses the number follows its reservation in the log, so in `sync` both are lost or neither. In `async` a
        // power failure may take both after the object was shown; another must not get its name: sync first.
        if store.durability() == Durability::Async {
            store.wait(counter.reserved_at, Level::Synced).await?;
        }
        Ok(counter.give(slot, number))
    }
}
