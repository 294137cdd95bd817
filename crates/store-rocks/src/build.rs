//! From a batch of mutations to what is written for it.

use crate::births::Births;
use crate::gather::{Gathered, Written};
use crate::journal::Journal;
use crate::read::{self, Memory, Tier};
use crate::records::Records;
use pando_format::{Key, Mutation, Record, Touch};
use pando_store::StoreError;
use pando_types::Part;
use rocksdb::DB;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A write under construction. Nothing happens before it is finished and written.
pub(crate) struct Build<'a> {
    db: &'a DB,
    memory: &'a Memory,
    cached: &'a RefCell<BTreeMap<Part, Touch>>,
    gathered: &'a Gathered,
    journal: &'a Journal,
    /// What this batch did to a key: its value, if it is there.
    written: Written,
    records: &'a RefCell<Records>,
    births: &'a RefCell<Births>,
    /// What this batch made of touches; `None` is deleted.
    touches: BTreeMap<Part, Option<Touch>>,
}

impl<'a> Build<'a> {
    pub(crate) fn new(
        db: &'a DB,
        memory: &'a Memory,
        cached: &'a RefCell<BTreeMap<Part, Touch>>,
        records: &'a RefCell<Records>,
        births: &'a RefCell<Births>,
        gathered: &'a Gathered,
        journal: &'a Journal,
    ) -> Build<'a> {
        Build {
            db,
            memory,
            cached,
            gathered,
            journal,
            written: BTreeMap::new(),
            records,
            births,
            touches: BTreeMap::new(),
        }
    }

    pub(crate) fn mutation(&mut self, m: &Mutation) -> Result<(), StoreError> {
        assert!(m.check().is_ok(), "a record of another kind: {m:?}");
        match m {
            Mutation::Insert { key, record } => {
                // What is named by a transaction is as new as its number; the memory store, in the simulator,
                // looks.
                let numbered = matches!(key, Key::Prepared(..) | Key::Decision(_) | Key::Owed(_));
                assert!(
                    numbered || !self.is_present(key)?,
                    "insert of a present key: {key:?}"
                );
                self.put(key, record);
            }
            Mutation::Update { key, record } => self.put(key, record),
            Mutation::Delete { key } => {
                if let Key::Touch(part) = key {
                    self.touches.insert(*part, None);
                }
                self.written.insert(key.encode(), None);
            }
            Mutation::Touch { part, delta } => {
                let Some(mut touch) = self.touch(*part)? else {
                    panic!("touch of an absent directory: {part:?}")
                };
                touch.apply(delta);
                self.put(&Key::Touch(*part), &Record::Touch(touch));
            }
        }
        Ok(())
    }

    pub(crate) fn put(&mut self, key: &Key, record: &Record) {
        let bytes = key.encode();
        let value = record.encode(&bytes);
        if let (Key::Touch(part), Record::Touch(touch)) = (key, record) {
            self.touches.insert(*part, Some(*touch));
        }
        self.written.insert(bytes, Some(value));
    }

    pub(crate) fn finish(self) -> (BTreeMap<Part, Option<Touch>>, Written) {
        (self.touches, self.written)
    }

    /// Whether a key is there, as far as memory knows: an assertion is not worth a wait for the device. In
    /// practice the operation has just read the key, and a filter says that it is absent.
    fn is_present(&self, key: &Key) -> Result<bool, StoreError> {
        if let Key::Touch(part) = key {
            if let Some(touch) = self.touches.get(part) {
                return Ok(touch.is_some());
            }
            if self.cached.borrow().contains_key(part) {
                return Ok(true);
            }
        }
        let bytes = key.encode();
        if let Some(written) = self.written.get(&bytes) {
            return Ok(written.is_some());
        }
        if self.births.borrow().is_first(&bytes) {
            return Ok(false);
        }
        if let Some(present) = self.records.borrow().has(&bytes) {
            return Ok(present);
        }
        if let Some(value) = self.gathered.get(&bytes).or_else(|| self.journal.get(&bytes)) {
            return Ok(value.is_some());
        }
        match self.memory.has(&bytes) {
            Ok(there) => Ok(there),
            Err(Tier::NotInMemory) => Ok(false),
            Err(Tier::Failed(e)) => Err(e),
        }
    }

    /// A directory's touch with this batch's changes. The only read that may wait for the device: once per
    /// directory and opening, and not then if the directory's head was read through
    /// [`pando_store::Store::get`] before.
    fn touch(&self, part: Part) -> Result<Option<Touch>, StoreError> {
        if let Some(touch) = self.touches.get(&part) {
            return Ok(*touch);
        }
        if let Some(touch) = self.cached.borrow().get(&part) {
            return Ok(Some(*touch));
        }
        let bytes = Key::Touch(part).encode();
        let known = match self.gathered.get(&bytes).or_else(|| self.journal.get(&bytes)) {
            Some(value) => value.map(|value| read::decode(&bytes, &value)).transpose()?,
            None => read::get(self.db, &bytes)?,
        };
        match known {
            Some(Record::Touch(touch)) => Ok(Some(touch)),
            None => Ok(None),
            Some(_) => Err(StoreError::corrupt(&bytes, "record of another kind")),
        }
    }
}
