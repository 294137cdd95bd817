//! Column families. Records are in RocksDB's default one. The journal has one of its own, whose memtable is
//! no more than a list: its rows are written all the time and read when a store is opened, so that nothing is
//! gained by keeping them sorted. A store with columns has one more, for rows (`columns`).

use rocksdb::{ColumnFamily, ColumnFamilyDescriptor, DB, Error, FlushOptions, MemtableFactory, Options};
use std::path::Path;

/// Name of the journal's.
pub(crate) const JOURNAL: &str = "journal";
/// Name of that of rows.
pub(crate) const ROWS: &str = "rows";

/// The journal's, if a store has it: those of older formats do not.
pub(crate) fn journal(db: &DB) -> Option<&ColumnFamily> {
    db.cf_handle(JOURNAL)
}

/// That of rows, if a store has them.
pub(crate) fn rows(db: &DB) -> Option<&ColumnFamily> {
    db.cf_handle(ROWS)
}

/// Adds one.
pub(crate) fn add(db: &mut DB, name: &str, options: &Options) -> Result<(), Error> {
    db.create_cf(name, &of(name, options))
}

/// Opens a database with all the families that it has, also those that a newer program may have added: what
/// it then says of its format is what is to be heard.
pub(crate) fn open(options: &Options, path: &Path) -> Result<DB, Error> {
    let names = DB::list_cf(options, path)?;
    let families = names
        .into_iter()
        .map(|name| ColumnFamilyDescriptor::new(&name, of(&name, options)));
    DB::open_cf_descriptors(options, path, families)
}

/// Flushes the memtables of all of them: a log goes when none needs it.
pub(crate) fn flush(db: &DB, how: &FlushOptions) -> Result<(), Error> {
    db.flush_opt(how)?;
    let others = [journal(db), rows(db)];
    others
        .into_iter()
        .flatten()
        .try_for_each(|family| db.flush_cf_opt(family, how))
}

/// A number that RocksDB has of each of them, for all together.
pub(crate) fn sum(db: &DB, property: &str) -> u64 {
    let of = |family| db.property_int_value_cf(family, property).ok().flatten();
    let others = [journal(db), rows(db)].into_iter().flatten().filter_map(of);
    let own = db.property_int_value(property).ok().flatten();
    own.unwrap_or(0) + others.sum::<u64>()
}

/// Options of a family, given those of records.
fn of(name: &str, options: &Options) -> Options {
    let mut options = options.clone();
    if name == JOURNAL {
        options.set_memtable_factory(MemtableFactory::Vector);
        options.set_memtable_prefix_bloom_ratio(0.0);
    }
    if name == ROWS {
        // Every value is in a blob file, and stays in it. They are small, and read one at a time: packing
        // each by itself gains little.
        options.set_enable_blob_files(true);
        options.set_min_blob_size(0);
        options.set_enable_blob_gc(false);
    }
    options
}
