//! The store over RocksDB.
//!
//! One column family holds encoded keys and records in key order, another the journal of those that change
//! all the time. A batch is one RocksDB write, its WAL record handed to the kernel before anybody is told of
//! it, so that kill -9 loses nothing: before `apply` returns, or, where an event loop says so
//! ([`RocksStore::gather`]), together with all others of a turn at its end. A thread of its own syncs the WAL
//! for all who wait. Reads try memory first and go to a small pool of reader threads when they miss, so that
//! the event loop never waits for the device. Where a store was made so, values of files are in a third
//! family (`columns`), which compactions leave alone.
//!
//! This crate knows nothing of operations or servers. It is a shell: it has threads and time of its own.

mod ballast;
mod births;
mod buckets;
mod build;
mod clean;
mod columns;
mod compactor;
mod families;
mod files;
mod gather;
mod journal;
mod open;
mod picture;
mod pool;
mod pressure;
mod read;
mod records;
mod remains;
mod salvage;
mod sync;
mod table;
mod tables;
mod watch;

use ballast::Ballast;
use births::Births;
use build::Build;
pub use columns::Schema;
use compactor::Compactor;
use files::LockFile;
use gather::Gathered;
use journal::Journal;
use pando_format::{Batch, Key, KeyRange, Mutation, Record, Scan, Touch};
use pando_store::{
    Bundle, Durability, Exported, Level, LocalFuture, Lsn, Picture, Read, Remains, Space, Stats, Store,
    StoreError,
};
use pando_types::{Part, Sequence};
use pool::Pool;
use pressure::Pressure;
use read::Tier;
use records::Records;
use rocksdb::{ColumnFamily, DB, FlushOptions, Options, WriteBatch, WriteOptions};
pub use salvage::Salvaged;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sync::Syncer;
pub use watch::{Compactions, Watched};

/// Touches kept in memory. A create changes its directory's touch and reads it nowhere else.
const TOUCHES: usize = 64 * 1024;

/// From this format on programs know the journal in a family of its own.
const JOURNAL_FORMAT: u32 = 7;

/// Cache of blocks where nothing is said, in MiB.
pub const CACHE_MIB: usize = 192;
/// And of records: a file with a short name takes a quarter of a KiB there, and a million of them fit.
pub const RECORD_MIB: usize = 320;

/// A compaction writes no more than that before it removes what it has read; about, of tables that are that
/// many.
const COMPACTION_MAX: u64 = 1 << 30;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct RocksOptions {
    /// What durable means.
    pub durability: Durability,
    /// Bytes of the block cache: data, indexes and filters of everything that is not in a memtable.
    pub cache_bytes: usize,
    /// Bytes of records that are kept in front of that; 0: none.
    pub record_bytes: usize,
    /// Names in new directories of which it is noted that they were used, so that those that were not are
    /// known to be free without a search: some 1.5 bytes each; 0: none.
    pub births: usize,
    /// Bytes of WAL after which the memtable is flushed and a new WAL begins: what a restart replays.
    pub wal_bytes: u64,
    /// Bytes in the journal of touches and replies: each is written again as a row of its own once so much
    /// was written after it.
    pub journal_bytes: usize,
    /// Bytes that are set aside on the device, to be given up when there is nothing else left; 0: none.
    pub ballast_bytes: u64,
    /// Threads that serve reads from the device.
    pub readers: usize,
    /// How files are read and written.
    pub watched: Watched,
    /// `async` only: a sync begins at least this often,
    pub sync_interval: Duration,
    /// and after this many bytes of WAL.
    pub sync_bytes: u64,
}

impl Default for RocksOptions {
    fn default() -> RocksOptions {
        RocksOptions {
            durability: Durability::Sync,
            cache_bytes: CACHE_MIB << 20,
            record_bytes: RECORD_MIB << 20,
            births: 4 << 20,
            wal_bytes: 8 << 20,
            journal_bytes: 1 << 20,
            ballast_bytes: 0,
            readers: 2,
            watched: Watched::No,
            sync_interval: Duration::from_secs(5),
            sync_bytes: 256 << 10,
        }
    }
}

/// A store in a directory. Dropping it without waiting for a sync is like kill -9: nothing applied is lost.
pub struct RocksStore {
    options: RocksOptions,
    path: PathBuf,
    ballast: Ballast,
    db: Arc<DB>,
    schema: Schema,
    /// Records that were there when it was opened, if RocksDB says none.
    found: u64,
    write: WriteOptions,
    /// Rewrites tables when space is short.
    compactor: Arc<Compactor>,
    pressure: RefCell<Pressure>,
    /// Rows that were deleted.
    deleted: Cell<u64>,
    /// Every write is synced: RocksDB may begin a log by itself (see [`RocksStore::next_log`]).
    log_may_end: Cell<bool>,
    memory: read::Memory,
    pool: Arc<Pool>,
    syncer: Arc<Syncer>,
    threads: Vec<JoinHandle<()>>,
    applied: Cell<Lsn>,
    /// Batches that were applied and not written.
    gathered: Rc<Gathered>,
    /// Whether there are any, beyond one call.
    gathers: Cell<bool>,
    /// Rows that have others in their place.
    journal: Journal,
    /// Invariant: each equals the record in the database, pending batches included (there is one writer).
    touches: RefCell<BTreeMap<Part, Touch>>,
    /// Bytes in the current WAL.
    log_bytes: Cell<u64>,
    written: Cell<u64>,
    records: Rc<RefCell<Records>>,
    /// What counts, where somebody measures.
    counts: Option<Options>,
    births: RefCell<Births>,
    record_hits: Cell<u64>,
    hits: Cell<u64>,
    misses: Cell<u64>,
    _lock: LockFile,
}

impl RocksStore {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it keeps the values of files.
    pub fn schema(&self) -> Schema {
        self.schema
    }

    /// The family of rows, if it has one.
    fn rows(&self) -> Option<&ColumnFamily> {
        match self.schema {
            Schema::Whole => None,
            Schema::Columns => families::rows(&self.db),
        }
    }

    /// Bytes that one flush and one compaction may take before they give any back, and what is missing of the
    /// ballast.
    pub fn needs(&self) -> u64 {
        let flush = self.log_bytes.get().saturating_mul(2);
        let compaction = families::sum(&self.db, "rocksdb.total-sst-files-size").min(COMPACTION_MAX);
        flush
            .saturating_add(compaction)
            .saturating_add(self.ballast.missing())
    }

    /// Bytes that the next log takes while the one before is still there. Of a small device at most an
    /// eighth: RocksDB does with less.
    pub fn next_log_needs(&self) -> u64 {
        open::log_allocation(&self.options).min(files::space(&self.path).total / 8)
    }

    /// From now on batches wait to be written until [`RocksStore::flush`], which must be called before
    /// anything is waited for: who waits for a batch waits for that.
    pub fn gather(&self) {
        self.gathers.set(true);
    }

    /// Writes what was gathered. An error stops the store, and reaches whoever waits for what was not
    /// written.
    pub fn flush(&self) -> Result<(), StoreError> {
        match self.gathered.take() {
            Some(rows) => {
                let mut batch = WriteBatch::default();
                self.journal.write(rows, &self.db, &mut batch);
                self.write(batch)
            }
            None => Ok(()),
        }
    }

    /// Writes what was gathered, and rows of their own for all that is in the journal.
    fn settle(&self) -> Result<(), StoreError> {
        self.flush()?;
        let mut batch = WriteBatch::default();
        self.journal.settle(families::journal(&self.db), &mut batch);
        if batch.is_empty() {
            Ok(())
        } else {
            self.write(batch)
        }
    }

    /// The same for what is in a range, if there is anything.
    fn settle_range(&self, range: &KeyRange) -> Result<(), StoreError> {
        if !self.gathered.touches(range) && !self.journal.touches(range) {
            return Ok(());
        }
        // All of it, and first: whatever is written says that what was applied before it is (H187).
        self.flush()?;
        let mut batch = WriteBatch::default();
        if self.journal.write_out(range, &mut batch) {
            self.write(batch)?;
        }
        Ok(())
    }

    /// Rewrites all tables into one sorted whole, without what was removed or replaced. It takes as long as
    /// reading and writing everything does, and until then as much space again.
    pub fn compact(&self) -> Result<(), StoreError> {
        self.settle()?;
        let mut void = WriteBatch::default();
        self.journal.clear(families::journal(&self.db), &mut void);
        self.write(void)?;
        let mut whole = FlushOptions::default();
        whole.set_wait(true);
        self.flush_tables(&whole)?;
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        if let Some(family) = families::journal(&self.db) {
            self.db.compact_range_cf(family, None::<&[u8]>, None::<&[u8]>);
        }
        clean::all(&self.db)?;
        // It returns nothing: what went wrong was counted.
        match self.db.property_int_value("rocksdb.background-errors") {
            // Tables that needed no rewriting were not read.
            Ok(Some(0)) => match remains::damage(&self.db) {
                None => Ok(()),
                Some(why) => Err(self.syncer.stop_for(StoreError::DamagedTable(why))),
            },
            Ok(_) => Err(self.syncer.stop_for(match remains::damage(&self.db) {
                Some(why) => StoreError::DamagedTable(why),
                None => StoreError::Poisoned("tables could not be rewritten".into()),
            })),
            Err(e) => Err(self.syncer.poison(&e)),
        }
    }

    /// Sees to it that space of deleted rows comes back: to be called again and again. `low`: the device is
    /// short of space. Tables are rewritten by a thread, a part at a time and as long as there is room for
    /// it; meanwhile each write waits for a sync.
    pub fn make_room(&self, low: bool, now: Instant) -> Result<(), StoreError> {
        let (mut pressure, deleted) = (self.pressure.borrow_mut(), self.deleted.get());
        if let Some(round) = self.compactor.ended() {
            self.log_may_end.set(false);
            pressure.ended(now, round);
        }
        if self.compactor.runs() || !pressure.is_due(now, low, deleted) {
            return Ok(());
        }
        pressure.begins(deleted);
        self.log_may_end.set(true);
        self.next_log()?;
        self.compactor.ask();
        Ok(())
    }

    /// Notes which directories come into being and go with a batch that is about to be applied.
    fn note(&self, batch: &Batch) {
        for m in &batch.mutations {
            match m {
                Mutation::Insert {
                    key: Key::Head(part), ..
                } => self.births.borrow_mut().born(*part),
                Mutation::Delete { key } => {
                    self.deleted.set(self.deleted.get() + 1);
                    if let Key::Head(part) = key {
                        self.births.borrow_mut().gone(*part);
                    }
                }
                _ => {}
            }
        }
    }

    /// The next position in the order of batches.
    fn advance(&self) -> Lsn {
        let lsn = Lsn(self.applied.get().0 + 1);
        self.applied.set(lsn);
        lsn
    }

    /// Writes what makes all that was applied complete.
    fn write(&self, batch: WriteBatch) -> Result<(), StoreError> {
        let done = self.hand_over(batch);
        self.gathered.done(done.is_ok().then_some(self.applied.get()));
        done
    }

    fn hand_over(&self, batch: WriteBatch) -> Result<(), StoreError> {
        self.syncer.check()?;
        let bytes = batch.size_in_bytes() as u64;
        let synced = self.log_may_end.get().then(|| {
            let mut synced = WriteOptions::default();
            synced.set_sync(true);
            synced
        });
        self.db
            .write_opt(batch, synced.as_ref().unwrap_or(&self.write))
            .map_err(|e| self.syncer.poison(&e))?;
        self.written.set(self.written.get() + bytes);
        self.log_bytes.set(self.log_bytes.get() + bytes);
        self.syncer.applied(self.applied.get(), bytes);
        if self.log_bytes.get() >= self.options.wal_bytes {
            self.next_log()?;
        }
        Ok(())
    }

    /// Flushes the memtable in the background and begins a new WAL, which bounds what a restart replays.
    ///
    /// The old WAL is synced first. RocksDB itself would not, and then a power cut could keep the beginning
    /// of the new WAL and lose the end of the old one, which recovery cannot see when the file ends between
    /// two records: a hole in the order of batches. Its own switch (`write_buffer_size`) is set out of reach.
    fn next_log(&self) -> Result<(), StoreError> {
        self.syncer.sync_now(&self.db)?;
        // There may be nothing left to write it to but the ballast.
        self.ballast
            .look(files::space(&self.path).available, self.needs());
        let mut flush = FlushOptions::default();
        flush.set_wait(false);
        self.flush_tables(&flush)?;
        self.log_bytes.set(0);
        Ok(())
    }

    fn flush_tables(&self, how: &FlushOptions) -> Result<(), StoreError> {
        families::flush(&self.db, how).map_err(|e| self.syncer.poison(&e))
    }

    /// Completes from what is kept or from memory, or asks a reader thread to run the same read against the
    /// device.
    fn read<T: Send + 'static, F: FnOnce(&DB) -> Result<T, StoreError> + Send + 'static>(
        &self,
        kept: impl FnOnce() -> Option<Result<T, StoreError>>,
        from_memory: impl FnOnce(&read::Memory) -> Result<T, Tier>,
        from_disk: impl FnOnce() -> F,
    ) -> Read<T> {
        if let Err(e) = self.syncer.check() {
            return Read::Ready(Err(e));
        }
        if let Some(known) = kept() {
            self.hits.set(self.hits.get() + 1);
            self.record_hits.set(self.record_hits.get() + 1);
            return Read::Ready(known);
        }
        match from_memory(&self.memory) {
            Ok(value) => {
                self.hits.set(self.hits.get() + 1);
                Read::Ready(Ok(value))
            }
            Err(Tier::Failed(e)) => Read::Ready(Err(e)),
            Err(Tier::NotInMemory) => {
                self.misses.set(self.misses.get() + 1);
                Read::Pending(self.pool.run(from_disk()))
            }
        }
    }
}

impl Drop for RocksStore {
    fn drop(&mut self) {
        // Who would have been told of a failure is gone.
        let _ = self.flush();
        self.syncer.stop();
        self.pool.stop();
        self.compactor.stop(&self.db);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so; there is nothing to add while going down.
            let _ = thread.join();
        }
    }
}

impl Store for RocksStore {
    fn check(&self) -> Result<(), StoreError> {
        self.syncer.check()
    }

    fn get(&self, key: &Key) -> Read<Option<Record>> {
        let bytes = key.encode();
        self.read(
            || {
                if let Key::Touch(part) = key
                    && let Some(touch) = self.touches.borrow().get(part)
                {
                    return Some(Ok(Some(Record::Touch(*touch))));
                }
                let waiting = || {
                    let value = self.gathered.get(&bytes).or_else(|| self.journal.get(&bytes))?;
                    Some(value.map(|v| read::decode(&bytes, &v)).transpose())
                };
                self.records.borrow().get(key, &bytes).or_else(waiting)
            },
            |memory| {
                let value = memory.raw(&bytes)?;
                let record = read::decoded(&bytes, value.as_deref())?;
                self.records.borrow_mut().was_read(key, &bytes, value.as_deref());
                Ok(record)
            },
            || {
                // Whoever misses on a directory's head is about to change its touch: have its block in memory
                // too, since `apply` cannot wait.
                let touch = match key {
                    Key::Head(part) => Some(Key::Touch(*part).encode()),
                    _ => None,
                };
                let again = bytes.clone();
                move |db| {
                    if let Some(touch) = touch {
                        read::get(db, &touch)?;
                    }
                    read::get(db, &again)
                }
            },
        )
    }

    fn list(&self, scan: &Scan, limit: usize) -> Read<Vec<(Key, Record)>> {
        let range = &scan.range();
        if self.rows().is_some() && self.records.borrow().keeps_range(range) {
            return self.list_bucket(range, limit);
        }
        self.read(
            || self.known(range, limit),
            |memory| {
                if !self.records.borrow().keeps_range(range) {
                    return memory.list(range, limit);
                }
                let rows = memory.rows(range, limit)?;
                let records = read::records(&rows)?;
                // Else there may be more.
                if rows.len() < limit {
                    self.records.borrow_mut().was_listed(range, rows);
                }
                Ok(records)
            },
            || {
                let again = range.clone();
                move |db| read::list(db, &again, limit)
            },
        )
    }

    fn names(&self, scan: &Scan, limit: usize) -> Read<Vec<(Key, Record)>> {
        if self.rows().is_none() {
            return self.list(scan, limit);
        }
        let range = &scan.range();
        self.read(
            || self.known(range, limit),
            |memory| memory.names(range, limit),
            || {
                let again = range.clone();
                move |db| read::names(db, &again, limit)
            },
        )
    }

    fn apply(&self, batch: &Batch) -> Result<Lsn, StoreError> {
        self.syncer.check()?;
        let mut build = Build::new(
            &self.db,
            &self.memory,
            &self.touches,
            &self.records,
            &self.births,
            &self.gathered,
            &self.journal,
        );
        for m in &batch.mutations {
            build.mutation(m)?;
        }
        if let Some(reply) = &batch.reply {
            build.put(&reply.key, &Record::Reply(reply.record.clone()));
        }
        let (touches, mut written) = build.finish();
        self.note(batch);
        let (mut records, mut births) = (self.records.borrow_mut(), self.births.borrow_mut());
        for (key, value) in &written {
            match value {
                Some(value) if births.is_first(key) => records.is_alone(key, value),
                _ => records.was_written(key, value.as_deref()),
            }
            if value.is_some() {
                births.noted(key);
            }
        }
        drop((records, births));
        self.gathered.add(&mut written);
        let lsn = self.advance();
        if !self.gathers.get() || self.gathered.is_full() {
            self.flush()?;
        }
        let mut cache = self.touches.borrow_mut();
        if cache.len() > TOUCHES {
            cache.clear();
        }
        for (dir, touch) in touches {
            match touch {
                Some(touch) => cache.insert(dir, touch),
                None => cache.remove(&dir),
            };
        }
        Ok(lsn)
    }

    fn obsolete(&self, key: &Key, version: u64) {
        self.journal.obsolete(&key.encode(), Sequence(version));
    }

    fn applied(&self) -> Lsn {
        self.applied.get()
    }

    fn safe(&self, level: Level) -> Lsn {
        match (level, self.options.durability) {
            (Level::Durable, Durability::Async) => self.gathered.written(),
            _ => self.syncer.synced(),
        }
    }

    fn durability(&self) -> Durability {
        self.options.durability
    }

    fn wait(&self, lsn: Lsn, level: Level) -> LocalFuture<Result<(), StoreError>> {
        assert!(
            lsn <= self.applied(),
            "wait for {lsn:?}, applied {:?}",
            self.applied()
        );
        if self.safe(level) >= lsn {
            return Box::pin(std::future::ready(self.syncer.check()));
        }
        let synced = sync::Wait::new(self.syncer.clone(), lsn);
        if self.gathered.written() >= lsn {
            return Box::pin(synced);
        }
        let written = gather::until_written(self.gathered.clone(), self.syncer.clone(), lsn);
        match (level, self.options.durability) {
            (Level::Durable, Durability::Async) => written,
            _ => Box::pin(async move {
                written.await?;
                synced.await
            }),
        }
    }

    fn export(&self, scan: &Scan, bytes: usize) -> Read<Exported> {
        // Large and rare: never on the event loop, never through the cache.
        let waiting = self.settle_range(&scan.range()).err();
        self.read(
            || waiting.map(Err),
            |_| Err(Tier::NotInMemory),
            || {
                let scan = scan.clone();
                move |db| read::export(db, &scan, bytes)
            },
        )
    }

    fn ingest(&self, bundle: &Bundle) -> Result<Lsn, StoreError> {
        self.settle()?;
        let mut batch = WriteBatch::default();
        let mut replaced = Vec::new();
        let rows = bundle.records()?;
        for (key, value) in &rows {
            if let Ok(Key::Touch(part)) = Key::decode(key) {
                replaced.push(part);
            }
            columns::put(self.rows(), &mut batch, key, value);
        }
        self.births.borrow_mut().forget();
        let lsn = self.advance();
        self.write(batch)?;
        let mut records = self.records.borrow_mut();
        for (key, value) in &rows {
            records.was_written(key, Some(value));
        }
        drop(records);
        let mut cache = self.touches.borrow_mut();
        replaced.iter().for_each(|dir| _ = cache.remove(dir));
        Ok(lsn)
    }

    fn delete_range(&self, scan: &Scan) -> Result<Lsn, StoreError> {
        self.settle()?;
        // One by one, not by RocksDB's DeleteRange: with range tombstones the iterators of 7.8 forget the
        // error of a table that they skip in, and go on without that table: a memory-only read that missed,
        // or a read of a damaged block, would list old records as if nothing had happened (the conformance
        // suite found it).
        let mut batch = WriteBatch::default();
        let keys = read::keys(&self.db, &scan.range())?;
        self.deleted.set(self.deleted.get() + keys.len() as u64);
        keys.iter()
            .for_each(|key| columns::delete(self.rows(), &mut batch, key));
        self.touches.borrow_mut().clear();
        let lsn = self.advance();
        self.write(batch)?;
        let mut records = self.records.borrow_mut();
        keys.iter().for_each(|key| records.was_written(key, None));
        Ok(lsn)
    }

    fn remains(&self, scan: &Scan) -> Read<Remains> {
        // Rows that are not in tables are not looked for.
        let settled = self.settle().err();
        self.read(
            || settled.map(Err),
            |_| Err(Tier::NotInMemory),
            || {
                let range = scan.range();
                move |db| {
                    let mut whole = FlushOptions::default();
                    whole.set_wait(true);
                    // What stands in the way of a flush is told to those who write.
                    let _ = families::flush(db, &whole);
                    remains::remains(db, &range)
                }
            },
        )
    }

    fn picture(&self) -> LocalFuture<Result<Rc<dyn Picture>, StoreError>> {
        let taken = self
            .settle()
            .and_then(|()| self.syncer.check())
            .and_then(|()| picture::take(self.db.clone()));
        Box::pin(std::future::ready(taken))
    }

    fn records(&self) -> u64 {
        let estimated = self.db.property_int_value("rocksdb.estimate-num-keys");
        match estimated.ok().flatten() {
            None | Some(0) => self.found,
            Some(n) => n,
        }
    }

    fn stats(&self) -> Stats {
        let cached = self.db.property_int_value("rocksdb.block-cache-usage");
        let tables = families::sum(&self.db, "rocksdb.total-sst-files-size");
        Stats {
            batches: self.applied.get().0,
            wal_bytes: self.written.get(),
            syncs: self.syncer.syncs(),
            hits: self.hits.get(),
            record_hits: self.record_hits.get(),
            record_bytes: self.records.borrow().bytes(),
            misses: self.misses.get(),
            table_bytes: tables + clean::bytes(&self.db).all,
            cache_bytes: cached.ok().flatten().unwrap_or(0),
            compaction_debt_bytes: families::sum(&self.db, "rocksdb.estimate-pending-compaction-bytes"),
        }
    }

    fn space(&self) -> Space {
        let space = files::space(&self.path);
        let needs = self.needs();
        self.ballast.look(space.available, needs);
        Space {
            available: space.available.saturating_sub(needs),
            ..space
        }
    }
}
