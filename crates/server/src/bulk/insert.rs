//! A table is read once, examined, and put into the tree in one batch.

use super::lease::{Decided, Not, Round, put};
use super::validate::{self, Bad, Rules, Validation};
use crate::{Failure, MetaServer};
use pando_data::{BlockError, FileKey};
use pando_format::{
    Entry, Key, LocalRecord, Mutation, NumberRun, Record, Scan, TABLE_BASES_MAX, TABLE_BYTES_MAX, TouchDelta,
    table_sum,
};
use pando_store::Bundle;
use pando_types::{DirId, Errno, Part, Timestamp, plant};
use pando_wire::{Bulk, Bulked, LockMode, LockWant, Statement};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Records that are looked at before others have their turn.
const SLICE: usize = 1000;
/// How often it is looked whether another table is done.
const PAUSE: Duration = Duration::from_millis(2);

/// One table is examined at a time: each is in memory whole.
pub(super) struct Turn<'a>(&'a Cell<bool>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// The own copy of a table (H310).
pub(super) struct Table<'a> {
    rows: Vec<(Key, Record)>,
    bytes: u32,
    /// Directories it adds to that it does not make, besides the localised one.
    others: BTreeSet<DirId>,
    _turn: Turn<'a>,
}

impl Table<'_> {
    /// What must be locked to insert it, besides the localised directory.
    pub fn wants(&self) -> Vec<LockWant> {
        let locked = |dir: &DirId| {
            let part = Part::whole(*dir);
            [Key::Head(part), Key::Touch(part)].map(|key| LockWant::Key(key, LockMode::Exclusive))
        };
        self.others.iter().flat_map(locked).collect()
    }
}

/// Names and places of entries that a table brings to directories that are there.
type Places = BTreeMap<DirId, Vec<validate::Placed>>;

impl MetaServer {
    /// Reads the table of a step; nothing if its batch was inserted before (H56).
    pub(super) async fn table(
        &self,
        dir: &Statement,
        step: &Bulk,
    ) -> Result<Result<Option<Table<'_>>, Errno>, Failure> {
        let Bulk::Insert {
            lease,
            batch,
            bytes,
            sum,
        } = step
        else {
            return Ok(Err(Errno::Invalid));
        };
        let part = Part::whole(dir.id);
        // The number of its data is the record's, never the caller's.
        let known = match self.store.get(&Key::Local(part)).wait().await? {
            Some(Record::Local(known)) if known.lease == *lease || plant!(H55) => known,
            _ => return Ok(Err(Errno::Stale)),
        };
        if *batch < known.batch {
            return Ok(Ok(None));
        }
        if *bytes == 0 || *bytes > TABLE_BYTES_MAX {
            return Ok(Err(Errno::Invalid));
        }
        while self.bulk.examining.replace(true) {
            self.pause(PAUSE).await;
        }
        let turn = Turn(&self.bulk.examining);
        let read = match self.read_table(&known, *bytes).await {
            Ok(read) => read,
            Err(e) => {
                tracing::warn!(server = self.id.0, error = %e, "the table of a bulk insertion cannot be read");
                return Ok(Err(Errno::Io));
            }
        };
        if read.len() != *bytes as usize || table_sum(&read) != *sum && !plant!(H310) {
            return Ok(Err(self.refused(dir, &Bad::Sum)));
        }
        Ok(match self.decoded(read, part).await {
            Ok(rows) => {
                let mut others = validate::outside(&rows);
                others.remove(&dir.id);
                match others.len() {
                    few if few < TABLE_BASES_MAX => Ok(Some(Table {
                        rows,
                        bytes: *bytes,
                        others,
                        _turn: turn,
                    })),
                    _ => Err(self.refused(dir, &Bad::Bases)),
                }
            }
            Err(bad) => Err(self.refused(dir, &bad)),
        })
    }

    async fn read_table(&self, lease: &LocalRecord, bytes: u32) -> Result<Vec<u8>, BlockError> {
        let file = FileKey {
            ino: lease.table,
            generation: lease.lease,
        };
        let block_size = self.map().block_size;
        let mut all = Vec::with_capacity(bytes as usize);
        for block in 0..u64::from(bytes.div_ceil(block_size)) {
            let left = bytes - all.len() as u32;
            let len = left.min(block_size);
            let some = self.blocks.read(file, block, 0, len).await?;
            let short = some.len() < len as usize;
            all.extend(some);
            if short {
                break;
            }
        }
        Ok(all)
    }

    async fn decoded(&self, table: Vec<u8>, part: Part) -> Result<Vec<(Key, Record)>, Bad> {
        let raw = Bundle(table).raw().map_err(|_| Bad::Records)?;
        let mut rows = Vec::with_capacity(raw.len());
        for (n, (key, value)) in raw.iter().enumerate() {
            let before = n
                .checked_sub(1)
                .and_then(|n| raw.get(n))
                .map(|(key, _)| key.as_slice());
            rows.push(validate::row((key, value), before, part.slot())?);
            if n % SLICE == SLICE - 1 {
                self.pause(Duration::ZERO).await;
            }
        }
        Ok(rows)
    }

    fn refused(&self, dir: &Statement, why: &Bad) -> Errno {
        self.bulk.count(|c| c.refused += 1);
        tracing::warn!(server = self.id.0, directory = %dir.id, %why, "a table was refused");
        match why {
            Bad::Exists => Errno::Exists,
            _ => Errno::Invalid,
        }
    }

    /// What the batch of a table is.
    pub(super) async fn insert(
        &self,
        at: &Round<'_>,
        (lease, batch): (LocalRecord, u64),
        table: &mut Table<'_>,
    ) -> Result<Decided, Not> {
        if batch != lease.batch {
            return Err(Errno::Invalid.into());
        }
        let part = Part::whole(at.dir.id);
        let bases = self.bases(at, &table.others).await?;
        let map = self.map();
        let rules = Rules {
            slot: part.slot(),
            cred: at.asked.cred,
            widths: map.widths(),
            inline_limit: map.inline_limit,
            numbers: lease.numbers,
            now: self.world.now(),
            bases: &bases,
        };
        let mut validation = match Validation::new(&rules, &table.rows) {
            Ok(validation) => validation,
            Err(bad) => return Err(self.refused(at.dir, &bad).into()),
        };
        for rows in table.rows.chunks(SLICE) {
            if let Err(bad) = rows
                .iter()
                .try_for_each(|(key, record)| validation.row(key, record))
            {
                return Err(self.refused(at.dir, &bad).into());
            }
            self.pause(Duration::ZERO).await;
        }
        let sound = match validation.finish(&table.rows) {
            Ok(sound) => sound,
            Err(bad) => return Err(self.refused(at.dir, &bad).into()),
        };
        if !self.are_free(at, &sound.places).await? {
            return Err(self.refused(at.dir, &Bad::Exists).into());
        }
        let next = LocalRecord {
            batch: batch + 1,
            numbers: NumberRun {
                next: sound.next,
                ..lease.numbers
            },
            ..lease
        };
        let mut mutations = written(std::mem::take(&mut table.rows));
        let now = at.now;
        mutations.extend(sound.places.iter().map(|(dir, places)| grown(*dir, places, now)));
        mutations.push(put(Key::Local(part), Record::Local(next)));
        // Its data are collected also if its note was, because its slot has moved.
        mutations.push(self.keep_table(part, &next, table.bytes));
        Ok(Decided {
            bulked: Bulked::Inserted {
                entries: sound.entries,
            },
            mutations,
        })
    }

    /// Whether nothing has these names and places. In a directory in which there is nothing none is taken.
    async fn are_free(&self, at: &Round<'_>, places: &Places) -> Result<bool, Failure> {
        for (dir, places) in places {
            let part = Part::whole(*dir);
            if at
                .snapshot
                .touch(part)
                .is_some_and(|touch| touch.stat.entries == 0)
            {
                continue;
            }
            for (n, place) in places.iter().enumerate() {
                let there = self
                    .store
                    .list(&Scan::Bucket(part, place.hash), 257)
                    .wait()
                    .await?;
                let taken = |(key, record): &(Key, Record)| match (key, record) {
                    (Key::Entry { name, .. }, Record::Entry(Entry { ordinal, .. })) => {
                        *name == place.name || *ordinal == place.ordinal
                    }
                    _ => false,
                };
                if there.iter().any(taken) {
                    return Ok(false);
                }
                if n % SLICE == SLICE - 1 {
                    self.pause(Duration::ZERO).await;
                }
            }
        }
        Ok(true)
    }
}

/// The records of a table as changes: a directory's head before what is in it.
fn written(rows: Vec<(Key, Record)>) -> Vec<Mutation> {
    let (mut heads, mut rest) = (Vec::new(), Vec::with_capacity(rows.len()));
    for (key, record) in rows {
        match key {
            Key::Head(_) => heads.push(Mutation::Insert { key, record }),
            // An attachment without an entry would be damage, and is replaced.
            Key::Attachment { .. } => rest.push(put(key, record)),
            key => rest.push(Mutation::Insert { key, record }),
        }
    }
    heads.append(&mut rest);
    heads
}

/// What new entries change in the counts and times of a directory.
fn grown(dir: DirId, places: &[validate::Placed], time: Timestamp) -> Mutation {
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    Mutation::Touch {
        part: dir.into(),
        delta: TouchDelta {
            entries: count(places.len()),
            subdirs: count(places.iter().filter(|place| place.is_dir).count()),
            time,
        },
    }
}
