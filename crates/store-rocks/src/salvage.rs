//! A damaged store is made anew: what can be read, and what is whole where RocksDB reads nothing, goes to a
//! new database, which then takes the place of the old one. The tables that were damaged are kept.
//!
//! Nothing but a new database helps: what is written over a damaged block does not take it away. Whoever
//! reads past it, a compaction too, fails on it; and tables that are taken out bring back what they had
//! deleted.

use crate::files::{LockFile, failed, space, sync_dir};
use crate::journal::Journal;
use crate::open::{cannot_open, database, database_options, superblock};
use crate::remains::{bare, survey, tables_of};
use crate::table;
use crate::{RocksOptions, RocksStore, clean, columns, families};
use pando_format::{KeyRange, Left, Remains};
use pando_store::StoreError;
use rocksdb::{DB, FlushOptions, Options, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of a batch.
const BATCH: usize = 1 << 20;
/// Beyond what its tables take.
const SPARE: u64 = 64 << 20;

/// What became of a damaged store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Salvaged {
    /// Records that the store has now.
    pub records: u64,
    /// What was in damaged places. Nothing: the store was sound, and was left alone.
    pub remains: Option<Remains>,
    /// Answers to requests may be lost, and counts of directories older than they were: the journal of them
    /// was damaged.
    pub journal: bool,
    /// Where the damaged tables are.
    pub kept: Option<PathBuf>,
}

fn unfinished(path: &Path) -> PathBuf {
    path.join("db.new")
}

fn replaced(path: &Path) -> PathBuf {
    path.join("db.old")
}

/// A new database is complete before the old one gives it its place: one that stands alone is to be used.
pub(crate) fn finish(path: &Path) -> Result<(), StoreError> {
    if !database(path).exists() && unfinished(path).exists() && replaced(path).exists() {
        rename(&unfinished(path), &database(path))?;
        sync_dir(path)?;
    }
    Ok(())
}

fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::rename(from, to).map_err(|e| failed("rename", from, &e))
}

fn remove(folder: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed("remove", folder, &e)),
        _ => Ok(()),
    }
}

/// All keys of records.
fn everything() -> KeyRange {
    KeyRange {
        start: Vec::new(),
        end: vec![0xFF; 4],
    }
}

/// A database that is filled. What is in it counts only when all of it is there.
struct Filling {
    db: DB,
    how: WriteOptions,
    batch: WriteBatch,
    rows: u64,
}

fn unwritten(e: &rocksdb::Error) -> StoreError {
    StoreError::Device(format!("cannot write the new database: {e}"))
}

impl Filling {
    /// One with the families that another has.
    fn new(path: &Path, options: &Options, like: &DB) -> Result<Filling, StoreError> {
        remove(path)?;
        let mut options = options.clone();
        options.create_if_missing(true);
        let mut db = DB::open(&options, path).map_err(|e| unwritten(&e))?;
        let others = [
            (families::JOURNAL, families::journal(like)),
            (families::ROWS, families::rows(like)),
        ];
        for (name, family) in others {
            if family.is_some() {
                families::add(&mut db, name, &options).map_err(|e| unwritten(&e))?;
            }
        }
        let mut how = WriteOptions::default();
        how.disable_wal(true);
        Ok(Filling {
            db,
            how,
            batch: WriteBatch::default(),
            rows: 0,
        })
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        columns::put(families::rows(&self.db), &mut self.batch, key, value);
        self.rows += 1;
        match self.batch.size_in_bytes() > BATCH {
            true => self.write(),
            false => Ok(()),
        }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        let batch = std::mem::take(&mut self.batch);
        self.db.write_opt(batch, &self.how).map_err(|e| unwritten(&e))
    }

    fn flush(&self) -> Result<(), StoreError> {
        let mut how = FlushOptions::default();
        how.set_wait(true);
        families::flush(&self.db, &how).map_err(|e| unwritten(&e))
    }
}

/// What the journal says, as far as it can be read.
struct LeftOfJournal {
    batch: WriteBatch,
    /// Its damaged tables.
    tables: Vec<String>,
    incomplete: bool,
}

fn left_of_journal(db: &DB, most: usize) -> Result<LeftOfJournal, StoreError> {
    match Journal::open(db, most) {
        Ok((_, batch)) => {
            return Ok(LeftOfJournal {
                batch,
                tables: Vec::new(),
                incomplete: false,
            });
        }
        Err(StoreError::Corrupt { .. }) => {}
        Err(e) => return Err(e),
    }
    let (mut newest, mut tables) = (BTreeMap::new(), Vec::new());
    for file in tables_of(db, families::JOURNAL)? {
        let name = bare(&file).to_owned();
        // Rows of it have other checksums than records: which blocks are damaged is not asked.
        for block in table::read(&db.path().join(&name), &everything()).unwrap_or_default() {
            for row in block.rows {
                let older = newest
                    .get(&row.key)
                    .is_none_or(|(sequence, _)| *sequence < row.sequence);
                if older {
                    newest.insert(row.key, (row.sequence, row.value));
                }
            }
        }
        tables.push(name);
    }
    let rows = newest.into_iter().map(|(key, (_, value))| (key, value)).collect();
    let (batch, complete) = Journal::left(&rows);
    Ok(LeftOfJournal {
        batch,
        tables,
        incomplete: !complete,
    })
}

/// Copies everything that is left, and tells what was in damaged places.
fn copy(db: &DB, into: &mut Filling) -> Result<Remains, StoreError> {
    let mut remains = Remains::default();
    let mut whole = Vec::new();
    let mut each = |key: &[u8], value: &[u8]| into.put(key, value);
    survey(db, &everything(), &mut each, &mut |some| {
        for table in some.tables {
            if !remains.tables.contains(&table) {
                remains.tables.push(table);
            }
        }
        remains.more |= some.more;
        for remnant in some.found {
            if let Some(record) = remnant.left.record() {
                let key = remnant.key.encode();
                whole.push((record.encode(&key), key));
            }
            if !matches!(remnant.left, Left::Whole(_)) {
                remains.found.push(remnant);
            }
        }
        Ok(true)
    })?;
    for (value, key) in whole {
        into.put(&key, &value)?;
    }
    into.write()?;
    Ok(remains)
}

impl RocksStore {
    /// Makes a store anew without what is damaged in it, if anything is. No server may have it open. It reads
    /// everything, and if something is damaged takes as much space again until it is done. If it is
    /// interrupted, it can be called again.
    pub fn salvage(path: &Path) -> Result<Salvaged, StoreError> {
        if !path.is_dir() {
            return Err(StoreError::Device(format!("no store at {}", path.display())));
        }
        let _lock = LockFile::take(path)?;
        finish(path)?;
        let options = RocksOptions::default();
        let made = database_options(&options);
        let mut still = made.clone();
        // It would fail on what is damaged, and nothing could be written any more.
        still.set_disable_auto_compactions(true);
        let db = families::open(&still, &database(path)).map_err(|e| cannot_open(path, &e))?;
        superblock(path, &db)?;
        // Rows of the journal go where they belong: what is damaged there may have newer ones here. The new
        // one is empty.
        let journal = left_of_journal(&db, options.journal_bytes)?;
        db.write(journal.batch).map_err(|e| unwritten(&e))?;
        let mut flush = FlushOptions::default();
        flush.set_wait(true);
        families::flush(&db, &flush).map_err(|e| unwritten(&e))?;
        let tables = families::sum(&db, "rocksdb.total-sst-files-size");
        let needed = tables.saturating_add(clean::bytes(&db).all).saturating_add(SPARE);
        let available = space(path).available;
        if available < needed {
            return Err(StoreError::Device(format!(
                "the store is made anew beside itself: {needed} bytes must be free in {}, and {available} are",
                path.display()
            )));
        }
        let mut into = Filling::new(&unfinished(path), &made, &db)?;
        let mut remains = copy(&db, &mut into)?;
        remains.tables.extend(journal.tables);
        if remains.tables.is_empty() {
            drop(into);
            remove(&unfinished(path))?;
            return Ok(Salvaged::default());
        }
        into.flush()?;
        superblock(path, &into.db)?;
        let records = into.rows;
        drop((into, db));
        let kept = swap(path, &remains.tables)?;
        Ok(Salvaged {
            records,
            journal: journal.incomplete,
            remains: Some(remains),
            kept: Some(kept),
        })
    }
}

/// The new database takes the place of the old one. Returns where damaged tables of that are.
fn swap(path: &Path, tables: &[String]) -> Result<PathBuf, StoreError> {
    sync_dir(&unfinished(path))?;
    remove(&replaced(path))?;
    rename(&database(path), &replaced(path))?;
    sync_dir(path)?;
    finish(path)?;
    let kept = path.join("damaged");
    fs::create_dir_all(&kept).map_err(|e| failed("create", &kept, &e))?;
    // Of a row that is missing nobody knows where it was.
    for table in tables.iter().filter(|table| replaced(path).join(table).exists()) {
        rename(&replaced(path).join(table), &kept.join(table))?;
    }
    remove(&replaced(path))?;
    Ok(kept)
}
