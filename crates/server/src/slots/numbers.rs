//! Inode numbers and generations: one counter per slot, reserved in durable blocks, the next one long before
//! it is needed.

use crate::{Failure, MetaServer};
use pando_format::{Batch, CounterRecord, Key, Mutation, NumberRun, Record};
use pando_store::{Durability, Level, Lsn, StoreError};
use pando_types::{Generation, Ino, Slot};
use pando_wire::Refusal;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// First number of a slot's counter: no allocated inode number equals the root's.
pub(crate) const FIRST_NUMBER: u64 = 2;

struct Counter {
    next: u64,
    /// What is reserved.
    record: CounterRecord,
    /// Position of the last reservation.
    reserved_at: Lsn,
    /// Numbers below are reserved for good, whatever fails.
    lasting: u64,
}

impl Counter {
    /// The next number, if there is one that is reserved for good.
    fn give(&mut self, slot: Slot) -> Option<(Ino, Generation)> {
        let number = self.next;
        if number >= self.lasting || number >= Generation::COUNTERS {
            return None;
        }
        self.next += 1;
        let generation = Generation::new(self.record.epoch, slot, number);
        Some((Ino::new(slot, number), generation))
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
    /// The next number of `slot`, if nothing must be read or waited for.
    pub(crate) fn number_at_once(&self, slot: Slot) -> Option<(Ino, Generation)> {
        if !self.serves_slot(slot) {
            return None;
        }
        let mut slots = self.slots.numbers.slots.borrow_mut();
        let counter = slots.get_mut(&slot)?;
        // What uses the number follows its reservation in the log, so in `sync` both are lost or neither. In
        // `async` a power failure may take both after the object was shown, and another must not get its
        // name: only what is synced is given.
        if self.store.durability() == Durability::Sync
            || self.store.safe(Level::Synced) >= counter.reserved_at
        {
            counter.lasting = counter.record.reserved;
        }
        let given = counter.give(slot)?;
        // So far ahead that what fills a block brings about the sync. If it fails, so it does when there is
        // no other way.
        if counter.record.reserved - counter.next < self.number_block() {
            let _ = self.reserve(slot, counter);
        }
        Some(given)
    }

    fn number_block(&self) -> u64 {
        self.limits.number_block.max(1)
    }

    /// Reserves two blocks from the next number on.
    fn reserve(&self, slot: Slot, counter: &mut Counter) -> Result<(), Failure> {
        let reserved = counter.next + 2 * self.number_block();
        let epoch = counter.record.epoch;
        let record = CounterRecord { reserved, epoch };
        let update = Mutation::Update {
            key: Key::Counter(slot),
            record: Record::Counter(record),
        };
        counter.reserved_at = self.change(&Batch::of(vec![update]))?;
        counter.record = record;
        Ok(())
    }

    /// The next number of `slot`, never given out before and never again, whatever fails.
    pub(crate) async fn next_number(&self, slot: Slot) -> Result<(Ino, Generation), Failure> {
        loop {
            if let Some(given) = self.number_at_once(slot) {
                return Ok(given);
            }
            self.read_counter(slot).await?;
            // Nothing is waited for from here to the reservation.
            if !self.serves_slot(slot) {
                return Err(Failure::Refused(self.not_served(slot)));
            }
            let reserved_at = {
                let mut slots = self.slots.numbers.slots.borrow_mut();
                let counter = slots
                    .get_mut(&slot)
                    .ok_or_else(|| StoreError::Device("slot counter".into()))?;
                if counter.next >= Generation::COUNTERS {
                    let all = format!("slot {} has given out all its numbers", slot.0);
                    return Err(StoreError::Device(all).into());
                }
                if counter.next >= counter.record.reserved {
                    self.reserve(slot, counter)?;
                }
                counter.reserved_at
            };
            if self.store.durability() == Durability::Async {
                self.store.wait(reserved_at, Level::Synced).await?;
            }
        }
    }

    /// As many numbers of `slot`, one after the other, as [`MetaServer::next_number`] gives one.
    pub(crate) async fn number_run(&self, slot: Slot, many: u64) -> Result<NumberRun, Failure> {
        self.read_counter(slot).await?;
        // Nothing is waited for from here to the reservation.
        if !self.serves_slot(slot) {
            return Err(Failure::Refused(self.not_served(slot)));
        }
        let (run, reserved_at) = {
            let mut slots = self.slots.numbers.slots.borrow_mut();
            let counter = slots
                .get_mut(&slot)
                .ok_or_else(|| StoreError::Device("slot counter".into()))?;
            let (first, end) = (counter.next, counter.next + many);
            if end >= Generation::COUNTERS {
                return Err(Failure::Refused(Refusal::Invalid));
            }
            counter.next = end;
            self.reserve(slot, counter)?;
            let epoch = counter.record.epoch;
            (
                NumberRun {
                    epoch,
                    next: first,
                    end,
                },
                counter.reserved_at,
            )
        };
        self.store.wait(reserved_at, Level::Synced).await?;
        Ok(run)
    }

    /// Has a slot's counter in memory.
    async fn read_counter(&self, slot: Slot) -> Result<(), Failure> {
        let numbers = &self.slots.numbers;
        while !numbers.slots.borrow().contains_key(&slot) {
            let forgotten = numbers.forgotten.get();
            let record = match self.store.get(&Key::Counter(slot)).wait().await? {
                Some(Record::Counter(c)) => c,
                _ => CounterRecord {
                    reserved: FIRST_NUMBER,
                    epoch: 1,
                },
            };
            // Numbers of the last reservation may be spent: go on after it. Another task may have been
            // faster.
            let fresh = Counter {
                next: record.reserved,
                record,
                reserved_at: Lsn(0),
                lasting: record.reserved,
            };
            if numbers.forgotten.get() == forgotten {
                numbers.slots.borrow_mut().entry(slot).or_insert(fresh);
            }
        }
        Ok(())
    }
}
