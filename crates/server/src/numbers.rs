//! Inode numbers and generations: one counter per slot, reserved in durable blocks.

use pando_format::{Batch, CounterRecord, Key, Mutation, Record};
use pando_store::{Level, Lsn, Store, StoreError};
use pando_types::{Generation, Ino, Slot};
use std::cell::RefCell;
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

/// The counters of the slots used since boot.
#[derive(Default)]
pub(crate) struct Numbers {
    slots: RefCell<BTreeMap<Slot, Counter>>,
}

impl Numbers {
    /// The next number of `slot`, never given out before and never again, whatever fails.
    pub async fn next(
        &self,
        store: &dyn Store,
        slot: Slot,
        block: u64,
    ) -> Result<(Ino, Generation), StoreError> {
        if !self.slots.borrow().contains_key(&slot) {
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
            self.slots.borrow_mut().entry(slot).or_insert(fresh);
        }
        let (number, counter) = {
            let mut slots = self.slots.borrow_mut();
            let counter = slots
                .get_mut(&slot)
                .ok_or_else(|| StoreError::Device("slot counter".into()))?;
            let number = counter.next;
            if number >= Generation::COUNTERS {
                return Err(StoreError::Device(format!(
                    "slot {} has given out all its numbers",
                    slot.0
                )));
            }
            counter.next += 1;
            if counter.next > counter.record.reserved {
                counter.record.reserved = number + block.max(1);
                let (key, record) = (Key::Counter(slot), Record::Counter(counter.record));
                counter.reserved_at = store.apply(&Batch::of(vec![Mutation::Update { key, record }]))?;
            }
            (number, *counter)
        };
        // What uses the number follows its reservation in the log, so in `sync` both are lost or neither. In `async` a
        // power failure may take both after the object was shown; another must not get its name: sync first.
        if store.safe(Level::Durable) >= counter.reserved_at {
            store.wait(counter.reserved_at, Level::Synced).await?;
        }
        Ok((
            Ino::new(slot, number),
            Generation::new(counter.record.epoch, slot, number),
        ))
    }
}
