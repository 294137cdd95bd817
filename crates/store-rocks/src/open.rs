//! Creating and opening a store.

use crate::ballast::Ballast;
use crate::births::Births;
use crate::compactor::Compactor;
use crate::families;
use crate::files::{LockFile, create_dirs, failed, make_private, sync_dir};
use crate::journal::Journal;
use crate::pool::Pool;
use crate::pressure::Pressure;
use crate::read::{BUCKET_PREFIX, Memory};
use crate::records::Records;
use crate::sync::Syncer;
use crate::{JOURNAL_FORMAT, RocksOptions, RocksStore, Schema, Watched, salvage, tables};
use pando_format::codec::Reader;
use pando_format::{Codec, DecodeError, FORMAT_VERSION, Key, Record, Superblock};
use pando_store::{Lsn, StoreError};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBRecoveryMode, ErrorKind, LogLevel, Options,
    SliceTransform, WriteOptions,
    perf::{PerfStatsLevel, set_perf_stats},
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Levels of tables, RocksDB's default.
const LEVELS: i32 = 7;

/// A file that only stores with columns have. It is there before anything else is.
const COLUMNS: &str = "columns";

/// How the store in a folder keeps values, if there is one.
fn schema(path: &Path) -> Schema {
    match path.join(COLUMNS).exists() {
        true => Schema::Columns,
        false => Schema::Whole,
    }
}

/// Says in a folder that its store has columns.
fn mark(path: &Path) -> Result<(), StoreError> {
    let file = path.join(COLUMNS);
    let text = "This store has columns: values of files are in db/*.blob.\n";
    std::fs::write(&file, text)
        .and_then(|()| std::fs::File::open(&file)?.sync_all())
        .map_err(|e| failed("write", &file, &e))?;
    sync_dir(path)
}

/// RocksDB's own files, below our lock.
pub(crate) fn database(path: &Path) -> PathBuf {
    path.join("db")
}

impl RocksStore {
    /// Makes a store that holds only its superblock. When this returns, a power cut does not undo it; if it
    /// is interrupted, it can be called again.
    pub fn create(path: &Path, superblock: Superblock) -> Result<(), StoreError> {
        RocksStore::create_as(path, superblock, Schema::Whole)
    }

    /// The same of a store that keeps values so. It stays that.
    pub fn create_as(path: &Path, superblock: Superblock, wanted: Schema) -> Result<(), StoreError> {
        let unsynced = create_dirs(path)?;
        make_private(path)?;
        let _lock = LockFile::take(path)?;
        let mut options = database_options(&RocksOptions::default());
        options.create_if_missing(true);
        let there = database(path).join("CURRENT").exists();
        match (schema(path), wanted) {
            (Schema::Whole, Schema::Columns) if !there => mark(path)?,
            (is, wanted) if is == wanted => {}
            (Schema::Columns, _) => return Err(other_kind(path, ["column", "rocksdb"])),
            (Schema::Whole, _) => return Err(other_kind(path, ["rocksdb", "column"])),
        }
        let db = match there {
            true => families::open(&options, &database(path)),
            false => DB::open(&options, database(path)),
        };
        let mut db = db.map_err(|e| cannot_open(path, &e))?;
        if wanted == Schema::Columns && families::rows(&db).is_none() {
            families::add(&mut db, families::ROWS, &options).map_err(|e| cannot_open(path, &e))?;
        }
        let key = Key::Superblock.encode();
        if db.get_pinned(&key).map_err(|e| cannot_open(path, &e))?.is_some() {
            return Err(StoreError::Device(format!(
                "{} already holds a store",
                path.display()
            )));
        }
        let mut write = WriteOptions::default();
        write.set_sync(true);
        db.put_opt(&key, Record::Superblock(superblock).encode(&key), &write)
            .map_err(|e| StoreError::Poisoned(e.to_string()))?;
        drop(db);
        sync_dir(&database(path))?;
        sync_dir(path)?;
        unsynced.iter().try_for_each(|dir| sync_dir(dir))
    }

    /// Opens a store. What it holds is synced when this returns: RocksDB writes what it replays from the WAL
    /// into a table before it serves (so never set `avoid_flush_during_recovery`).
    pub fn open(path: &Path, options: RocksOptions) -> Result<(RocksStore, Superblock), StoreError> {
        if !path.is_dir() {
            return Err(StoreError::Device(format!("no store at {}", path.display())));
        }
        make_private(path)?;
        // Its counters of what each thread does are thread-local, and looked for at every step of every
        // search.
        set_perf_stats(PerfStatsLevel::Disable);
        let lock = LockFile::take(path)?;
        salvage::finish(path)?;
        let of_records = database_options(&options);
        let mut db = families::open(&of_records, &database(path)).map_err(|e| cannot_open(path, &e))?;
        let superblock = superblock(path, &db)?;
        // No older program opens it any more.
        if superblock.format >= JOURNAL_FORMAT && families::journal(&db).is_none() {
            families::add(&mut db, families::JOURNAL, &of_records).map_err(|e| cannot_open(path, &e))?;
        }
        let schema = match (schema(path), families::rows(&db)) {
            (Schema::Whole, Some(_)) => {
                mark(path)?;
                Schema::Columns
            }
            (Schema::Columns, None) => {
                let why = format!("{} has an index of rows, and no rows", path.display());
                return Err(StoreError::corrupt(&[], why));
            }
            (is, _) => is,
        };
        let (journal, left) = Journal::open(&db, options.journal_bytes)?;
        if !left.is_empty() {
            let mut write = WriteOptions::default();
            write.set_sync(true);
            db.write_opt(left, &write)
                .map_err(|e| StoreError::Poisoned(e.to_string()))?;
        }
        let found = tables::records(&db).map_err(|e| cannot_open(path, &e))?;
        let db = Arc::new(db);
        let mut store = RocksStore {
            path: path.to_path_buf(),
            ballast: Ballast::open(path, options.ballast_bytes),
            write: WriteOptions::default(),
            compactor: Arc::new(Compactor::new(path.to_path_buf())),
            pressure: RefCell::new(Pressure::new()),
            deleted: Cell::new(0),
            log_may_end: Cell::new(false),
            memory: Memory::new(db.clone()),
            pool: Arc::new(Pool::default()),
            syncer: Arc::new(Syncer::new(&options)),
            threads: Vec::new(),
            applied: Cell::new(Lsn(0)),
            gathered: Rc::default(),
            gathers: Cell::new(false),
            journal,
            touches: RefCell::new(BTreeMap::new()),
            log_bytes: Cell::new(0),
            written: Cell::new(0),
            records: Rc::new(RefCell::new(Records::new(options.record_bytes))),
            counts: (options.watched != Watched::No).then_some(of_records),
            births: RefCell::new(Births::new(options.births)),
            record_hits: Cell::new(0),
            hits: Cell::new(0),
            misses: Cell::new(0),
            _lock: lock,
            schema,
            found,
            options,
            db,
        };
        store.start()?;
        Ok((store, superblock))
    }

    fn start(&mut self) -> Result<(), StoreError> {
        let mut spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.into()).spawn(run);
            self.threads
                .push(thread.map_err(|e| failed("start a thread for", &self.path, &e))?);
            Ok(())
        };
        let (db, syncer) = (self.db.clone(), self.syncer.clone());
        spawn("store-sync", Box::new(move || syncer.serve(&db)))?;
        let (db, compactor) = (self.db.clone(), self.compactor.clone());
        spawn("store-compact", Box::new(move || compactor.serve(&db)))?;
        for _ in 0..self.options.readers.max(1) {
            let (db, pool) = (self.db.clone(), self.pool.clone());
            let serve = move || {
                set_perf_stats(PerfStatsLevel::Disable);
                pool.serve(&db);
            };
            spawn("store-read", Box::new(serve))?;
        }
        Ok(())
    }
}

fn other_kind(path: &Path, [is, wanted]: [&'static str; 2]) -> StoreError {
    StoreError::OtherKind {
        path: path.to_path_buf(),
        is,
        wanted,
    }
}

pub(crate) fn cannot_open(path: &Path, e: &rocksdb::Error) -> StoreError {
    match e.kind() {
        ErrorKind::Corruption => StoreError::corrupt(&[], format!("{}: {e}", path.display())),
        _ => StoreError::Device(format!("cannot open {}: {e}", path.display())),
    }
}

pub(crate) fn superblock(path: &Path, db: &DB) -> Result<Superblock, StoreError> {
    let key = Key::Superblock.encode();
    let value = db.get_pinned(&key).map_err(|e| cannot_open(path, &e))?;
    let Some(value) = value else {
        return Err(StoreError::Device(format!(
            "{} was never completely formatted; format it again",
            path.display()
        )));
    };
    let known = FORMAT_VERSION;
    match Record::decode(&key, &value) {
        Ok(Record::Superblock(s)) if s.format > known => Err(StoreError::NewerFormat {
            found: s.format,
            known,
        }),
        Ok(Record::Superblock(s)) => Ok(s),
        Ok(_) => Err(StoreError::corrupt(&key, "not a superblock")),
        Err(DecodeError::Checksum) => Err(StoreError::corrupt(&key, DecodeError::Checksum)),
        // Undamaged and yet unknown: a newer version's, if the number that stands first says so.
        Err(e) => match format_of(&value) {
            Ok(found) if found > known => Err(StoreError::NewerFormat { found, known }),
            _ => Err(StoreError::corrupt(&key, e)),
        },
    }
}

/// The format of a superblock of any version: it follows the record's version and tag.
fn format_of(value: &[u8]) -> Result<u32, DecodeError> {
    let mut r = Reader::new(value);
    r.bytes(2)?;
    u32::take(&mut r)
}

/// Bytes of records at which RocksDB would flush by itself.
fn write_buffer(o: &RocksOptions) -> u64 {
    o.wal_bytes.saturating_mul(4).max(8 << 20)
}

/// Bytes that RocksDB allocates for a WAL before its first byte.
pub(crate) fn log_allocation(o: &RocksOptions) -> u64 {
    let buffer = write_buffer(o);
    buffer.saturating_add(buffer / 10)
}

pub(crate) fn database_options(o: &RocksOptions) -> Options {
    let mut options = Options::default();

    // Point-in-time recovery: replay stops at the first record that is torn or fails its checksum, and
    // everything before it is kept. After a power cut the unsynced end of the WAL may be short, or have some
    // of its pages and not others; the stricter mode that tolerates only a short end would refuse to open
    // then (H104). Nothing that was synced lies behind such a place, except when the device damaged synced
    // data; that case is not told apart.
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    options.set_paranoid_checks(true);

    // The WAL's length decides when the memtable is flushed (`RocksStore::next_log`); these limits are out of
    // reach: a record in memory takes at most 2.2 times its bytes in the WAL. RocksDB allocates 1.1 times the
    // first of them for each WAL before its first byte, and old WALs leave after new ones came. On a small
    // device a larger limit is refused room.
    options.set_write_buffer_size(write_buffer(o) as usize);
    options.set_max_total_wal_size(0);
    options.set_max_write_buffer_number(4);
    // Most buckets that are looked for are not in memory: a memtable says so without a search. (A share of
    // the buffer's size above, of which a quarter is used.)
    options.set_memtable_prefix_bloom_ratio(0.02);
    options.set_memtable_whole_key_filtering(true);
    // There is one writer.
    options.set_allow_concurrent_memtable_write(false);

    // Opening must not depend on the number of files: it opens few tables (the rest when they are first read)
    // and reads no statistics from them. Half of the file descriptors are left to connections.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap_or(1 << 16);
    options.set_max_open_files((limit / 2).clamp(64, 8192) as i32);
    options.set_skip_stats_update_on_db_open(true);

    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(o.cache_bytes));
    table.set_block_size(8 << 10);
    table.set_format_version(5);
    table.set_bloom_filter(10.0, false);
    // Indexes and filters of billions of records do not fit: they live in the cache, the newest tables' for
    // good.
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    options.set_block_based_table_factory(&table);
    options.set_prefix_extractor(SliceTransform::create_fixed_prefix(BUCKET_PREFIX));

    if o.watched == Watched::PastTheCache {
        options.enable_statistics();
        options.set_use_direct_reads(true);
        options.set_use_direct_io_for_flush_and_compaction(true);
    }

    options.set_level_compaction_dynamic_level_bytes(true);
    // A flushed memtable is merged with the next level soon: to compress it before, and a merge for every
    // fourth instead of every sixth, took a twelfth of a create's processor time. (With more tables beside
    // each other, reads that miss memory are slower.)
    let of_level = |level| match level {
        0 => DBCompressionType::None,
        _ => DBCompressionType::Lz4,
    };
    let levels: Vec<_> = (0..LEVELS).map(of_level).collect();
    options.set_num_levels(LEVELS);
    options.set_compression_per_level(&levels);
    options.set_level_zero_file_num_compaction_trigger(6);
    options.set_max_background_jobs(2);
    options.set_bytes_per_sync(1 << 20);
    options.set_manifest_preallocation_size(64 << 10);

    // Debian's library has its assertions on, and one of them ends the process when its text log is written
    // after a write to it failed: just when there is a device error to report and to stop for in order
    // (H103). What goes wrong reaches us as a status; the log would add little.
    options.set_log_level(LogLevel::Fatal);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1 << 20);
    options.set_stats_dump_period_sec(0);
    options
}
