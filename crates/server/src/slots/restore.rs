//! A new filesystem from the records of a cut (`cut`): into fresh stores, of any number of servers.
//!
//! The records of a cut are what would be found if all servers had been killed at one instant. Here they are
//! brought to rest, as their servers would have done: what is decided is applied, what is not is dropped, and
//! content that is owed is put where it belongs. What belongs to the life of servers and clients, and not to
//! the tree, does not come along: sessions, reply records, logs, and who has removed files open. All epochs
//! are above those of before, so no number is given to two things (H155).
//!
//! Nothing is taken on trust: a record that does not fit is an error, and never the end of the program.

use pando_cluster::ClusterMap;
use pando_format::{
    Batch, CounterRecord, Entry, FORMAT_VERSION, Key, LOCAL_SLOT, Mutation, OwedRecord, PartNote, Record,
    Superblock, Target, Touch,
};
use pando_store::{Bundle, Level, RawRecord, Store, StoreError};
use pando_types::{BootEpoch, DirId, Division, Part, SLOTS, ServerId, Slot, TxId, plant};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

/// Bytes of records that are written in one go.
const PIECE: usize = 1 << 20;
/// The first number of a slot.
const FIRST_NUMBER: u64 = crate::slots::numbers::FIRST_NUMBER;

/// Why records do not make a filesystem.
#[derive(Debug)]
pub enum RestoreError {
    /// A store failed, or a record is damaged.
    Store(StoreError),
    /// They contradict each other.
    Contradiction(String),
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::Store(e) => write!(f, "{e}"),
            RestoreError::Contradiction(what) => {
                write!(f, "the records do not belong to one moment: {what}")
            }
        }
    }
}

impl std::error::Error for RestoreError {}

impl From<StoreError> for RestoreError {
    fn from(e: StoreError) -> RestoreError {
        RestoreError::Store(e)
    }
}

/// What was restored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Restored {
    /// Records written.
    pub records: u64,
    /// Directories.
    pub dirs: u64,
    /// Names of everything else.
    pub names: u64,
    /// Transactions that were decided and had not taken effect everywhere.
    pub finished: u64,
    /// And those that were not decided.
    pub dropped: u64,
    /// Directories whose content had not come to its server.
    pub owed: u64,
}

/// Whether a record of a server is worth keeping in a backup. `map` is the one of the cut: what a server has
/// of slots of others is of no use.
pub fn restored(key: &Key, server: ServerId, map: &ClusterMap) -> bool {
    match key {
        Key::Reply(..)
        | Key::Garbage(..)
        | Key::Session(_)
        | Key::Superblock
        | Key::Invalidation(_)
        | Key::Local(_)
        | Key::HandOver => false,
        Key::Decision(_) | Key::Owed(_) | Key::Prepared(..) | Key::Identity(_) => true,
        Key::Attachment { .. }
        | Key::Counter(_)
        | Key::Entry { .. }
        | Key::Head(_)
        | Key::Line { .. }
        | Key::Orphan(..)
        | Key::Parts(_)
        | Key::PartNote(_)
        | Key::RenameList { .. }
        | Key::Touch(_) => map.home(key) == server,
    }
}

/// A filesystem that is being restored.
pub struct Restore {
    map: ClusterMap,
    stores: BTreeMap<ServerId, Rc<dyn Store>>,
    /// Not written yet.
    pending: BTreeMap<ServerId, (Vec<RawRecord>, usize)>,
    counters: BTreeMap<Slot, CounterRecord>,
    decided: BTreeSet<TxId>,
    parts: BTreeMap<(TxId, Slot), Vec<Mutation>>,
    owed: Vec<OwedRecord>,
    counts: Restored,
}

impl Restore {
    /// Into these stores, one for each server of the map, which hold nothing but their superblocks.
    pub fn new(map: ClusterMap, stores: BTreeMap<ServerId, Rc<dyn Store>>) -> Restore {
        Restore {
            map,
            stores,
            pending: BTreeMap::new(),
            counters: BTreeMap::new(),
            decided: BTreeSet::new(),
            parts: BTreeMap::new(),
            owed: Vec::new(),
            counts: Restored::default(),
        }
    }

    /// Takes one record of the cut.
    pub fn add(&mut self, key: Key, record: Record) -> Result<(), RestoreError> {
        if !record.fits(&key) {
            // debug: a damaged store is looked into by its keys.
            return Err(RestoreError::Contradiction(format!("{key:?} has another kind")));
        }
        match (&key, record) {
            (Key::Counter(slot), Record::Counter(counter)) => {
                self.counters.insert(*slot, counter);
                Ok(())
            }
            (Key::Decision(tx), _) => {
                self.decided.insert(*tx);
                Ok(())
            }
            (Key::Prepared(slot, tx), Record::Prepared(part)) => {
                self.parts.insert((*tx, *slot), part.mutations);
                Ok(())
            }
            (Key::Owed(_), Record::Owed(content)) => {
                self.owed.push(content);
                Ok(())
            }
            (Key::Identity(_), record) => self.put(self.map.keeper, &key, &record),
            (
                Key::Reply(..)
                | Key::Garbage(..)
                | Key::Session(_)
                | Key::Superblock
                | Key::Invalidation(_)
                | Key::HandOver,
                _,
            ) => Ok(()),
            (Key::PartNote(_), Record::PartNote(PartNote::Coming(copy))) => {
                // Its source knows nothing of it any more, or is not there: whoever has the slot clears it.
                let nothing = TxId {
                    coordinator: self.map.home(&key),
                    boot: BootEpoch(0),
                    ..copy
                };
                let record = Record::PartNote(PartNote::Coming(nothing));
                self.put(self.map.home(&key), &key, &record)
            }
            (_, record) => {
                match &record {
                    Record::Head(_) => self.counts.dirs += 1,
                    Record::Entry(_) => self.counts.names += 1,
                    _ => {}
                }
                self.put(self.map.home(&key), &key, &record)
            }
        }
    }

    fn put(&mut self, server: ServerId, key: &Key, record: &Record) -> Result<(), RestoreError> {
        let key = key.encode();
        let value = record.encode(&key);
        let (records, bytes) = self.pending.entry(server).or_default();
        *bytes += key.len() + value.len();
        records.push((key, value));
        self.counts.records += 1;
        match *bytes >= PIECE {
            true => self.flush(server),
            false => Ok(()),
        }
    }

    fn flush(&mut self, server: ServerId) -> Result<(), RestoreError> {
        let (records, _) = self.pending.remove(&server).unwrap_or_default();
        self.store(server)?.ingest(&Bundle::of(records))?;
        Ok(())
    }

    fn store(&self, server: ServerId) -> Result<Rc<dyn Store>, RestoreError> {
        let store = self.stores.get(&server).cloned();
        store.ok_or_else(|| RestoreError::Contradiction(format!("server {server} has no store")))
    }

    /// [`Restore::rest`], and [`Raise::boots`] at once.
    pub async fn finish(self, boot: BootEpoch) -> Result<Restored, RestoreError> {
        let (counts, raise) = self.rest().await?;
        raise.boots(boot).await?;
        Ok(counts)
    }

    /// Brings what was under way to its end, raises all epochs, and waits until everything is synced. Until
    /// boots are raised too, these are stores that nobody has used.
    pub async fn rest(mut self) -> Result<(Restored, Raise), RestoreError> {
        for server in self.pending.keys().copied().collect::<Vec<_>>() {
            self.flush(server)?;
        }
        for ((tx, _), mutations) in std::mem::take(&mut self.parts) {
            if !self.decided.contains(&tx) {
                self.counts.dropped += 1;
                continue;
            }
            self.counts.finished += 1;
            for mutation in mutations {
                self.apply(&mutation).await?;
            }
        }
        for content in std::mem::take(&mut self.owed) {
            self.pay(&content).await?;
        }
        self.raise_epochs().await?;
        // Only a root makes it a filesystem.
        if self.get(&Key::Head(DirId::ROOT.into())).await?.is_none() {
            return Err(RestoreError::Contradiction("there is no root directory".into()));
        }
        Ok((
            self.counts,
            Raise {
                map: self.map,
                stores: self.stores,
            },
        ))
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, RestoreError> {
        Ok(self.store(self.map.home(key))?.get(key).wait().await?)
    }

    fn write(&self, key: &Key, mutation: Mutation) -> Result<(), RestoreError> {
        self.store(self.map.home(key))?
            .apply(&Batch::of(vec![mutation]))?;
        Ok(())
    }

    /// One change of a transaction that was decided.
    async fn apply(&mut self, mutation: &Mutation) -> Result<(), RestoreError> {
        // debug: a damaged store is looked into by its records.
        let wrong = |why: &str| RestoreError::Contradiction(format!("{why}: {mutation:?}"));
        if mutation.check().is_err() {
            return Err(wrong("a change that cannot be"));
        }
        let key = mutation.key();
        match &key {
            // Nobody is waiting for what was removed, nor for an answer.
            Key::Garbage(..) | Key::Reply(..) => return Ok(()),
            key if key.slot() == LOCAL_SLOT => return Err(wrong("a change of no slot")),
            _ => {}
        }
        let there = self.get(&key).await?;
        match mutation {
            Mutation::Insert { .. } if there.is_some() => Err(wrong("it exists")),
            Mutation::Insert { record, .. } | Mutation::Update { record, .. } => {
                match (&key, record) {
                    (Key::Head(_), Record::Head(_)) if there.is_none() => self.counts.dirs += 1,
                    (Key::Entry { .. }, _) if there.is_none() => self.counts.names += 1,
                    _ => {}
                }
                let record = record.clone();
                self.write(
                    &key,
                    Mutation::Update {
                        key: key.clone(),
                        record,
                    },
                )
            }
            Mutation::Delete { .. } => {
                match (&key, there) {
                    (Key::Head(_), Some(Record::Head(_))) => {
                        self.counts.dirs = self.counts.dirs.saturating_sub(1);
                    }
                    (Key::Entry { .. }, Some(_)) => self.counts.names = self.counts.names.saturating_sub(1),
                    _ => {}
                }
                self.write(&key, mutation.clone())
            }
            Mutation::Touch { delta, .. } => {
                let Some(Record::Touch(touch)) = there else {
                    return Err(wrong("no such directory"));
                };
                let (entries, subdirs) = (i64::from(delta.entries), i64::from(delta.subdirs));
                let fits = touch.stat.entries.checked_add_signed(entries).is_some()
                    && touch.stat.subdirs.checked_add_signed(subdirs).is_some();
                if !fits {
                    return Err(wrong("counts below zero"));
                }
                let mut touch: Touch = touch;
                touch.apply(delta);
                let record = Record::Touch(touch);
                self.write(
                    &key,
                    Mutation::Update {
                        key: key.clone(),
                        record,
                    },
                )
            }
        }
    }

    /// The content of a new directory, unless it had come, or the directory is not where it was born any
    /// more.
    async fn pay(&mut self, content: &OwedRecord) -> Result<(), RestoreError> {
        let (dir, parent, name) = (content.dir, content.head.parent, &content.head.name);
        // The generation says in which part of its parent it was born.
        let part = match self.map.placement.division() {
            Division::Halves => Part::at(parent, content.head.generation.slot()),
            // One by one a directory's content is where its entry is, and never owed.
            Division::Whole | Division::OneByOne => Some(Part::whole(parent)),
        };
        let Some(part) = part else { return Ok(()) };
        let head = self.get(&Key::Head(part)).await?;
        let Some(head) = head.and_then(|head| head.part_head(part)) else {
            return Ok(());
        };
        let hash = self.map.widths().name(head.salt, name);
        // A half is given away after what is owed in it came: what is left of it here says nothing (H302).
        if !head.tile.has(hash.upper()) {
            return Ok(());
        }
        let entry = Key::Entry {
            part,
            hash,
            name: name.clone(),
        };
        let stands = matches!(
            self.get(&entry).await?,
            Some(Record::Entry(Entry { target: Target::Dir(d), .. }))
                if (d.id, d.generation) == (dir, content.head.generation)
        );
        if !stands || self.get(&Key::Head(dir.into())).await?.is_some() {
            return Ok(());
        }
        let records = [
            (Key::Head(dir.into()), Record::Head(content.head.clone())),
            (Key::Touch(dir.into()), Record::Touch(content.touch)),
        ];
        for (key, record) in records {
            self.write(&key.clone(), Mutation::Update { key, record })?;
        }
        self.counts.dirs += 1;
        self.counts.owed += 1;
        Ok(())
    }

    /// Every slot gives its numbers under an epoch that none had: what the old filesystem gave after the cut
    /// is not given again (H155).
    async fn raise_epochs(&self) -> Result<(), RestoreError> {
        let highest = self.counters.values().map(|c| c.epoch).max().unwrap_or(1).max(1);
        let Some(epoch) = highest.checked_add(1) else {
            return Err(RestoreError::Contradiction(
                "its slots have been restored 65,534 times".into(),
            ));
        };
        let mut batches: BTreeMap<ServerId, Vec<Mutation>> = BTreeMap::new();
        for slot in (0..SLOTS).map(Slot) {
            let before = self.counters.get(&slot).copied();
            let record = CounterRecord {
                reserved: before.map_or(FIRST_NUMBER, |c| c.reserved),
                epoch: match plant!(H155) {
                    true => before.map_or(1, |c| c.epoch),
                    false => epoch,
                },
            };
            let key = Key::Counter(slot);
            let batch = batches.entry(self.map.home(&key)).or_default();
            batch.push(Mutation::Update {
                key,
                record: Record::Counter(record),
            });
        }
        for (server, batch) in batches {
            let store = self.store(server)?;
            let lsn = store.apply(&Batch::of(batch))?;
            store.wait(lsn, Level::Synced).await?;
        }
        Ok(())
    }
}

/// What is left to be done when all records are there.
pub struct Raise {
    map: ClusterMap,
    stores: BTreeMap<ServerId, Rc<dyn Store>>,
}

impl Raise {
    /// Servers may be started when this is done, in boots above `boot`. Comes when nothing else can fail any
    /// more: from then on these are stores that nobody replaces.
    pub async fn boots(self, boot: BootEpoch) -> Result<(), RestoreError> {
        for (id, store) in &self.stores {
            let superblock = Superblock {
                format: FORMAT_VERSION,
                boot,
                ..crate::superblock(*id, &self.map)
            };
            let lsn = store.apply(&Batch::of(vec![Mutation::Update {
                key: Key::Superblock,
                record: Record::Superblock(superblock),
            }]))?;
            store.wait(lsn, Level::Synced).await?;
        }
        Ok(())
    }
}
