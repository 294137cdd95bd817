//! Column families. Records are in RocksDB's default one. The journal has one of its own, whose memtable is
//! no more than a list: its rows are written all the time and read when a store is opened, so that nothing is
//! gained by keeping them sorted.

use rocksdb::{ColumnFamily, ColumnFamilyDescriptor, DB, Error, MemtableFactory, Options};
use std::path::Path;

/// Name of the journal's.
pub(crate) const JOURNAL: &str = "journal";

/// The journal's, if a store has it: those of older formats do not.
pub(crate) fn journal(db: &DB) -> Option<&ColumnFamily> {
    db.cf_handle(JOURNAL)
}

/// Adds it.
pub(crate) fn add_journal(db: &mut DB, options: &Options) -> Result<(), Error> {
    db.create_cf(JOURNAL, &of(JOURNAL, options))
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

/// Options of a family, given those of records.
fn of(name: &str, options: &Options) -> Options {
    let mut options = options.clone();
    if name == JOURNAL {
        options.set_memtable_factory(MemtableFactory::Vector);
        options.set_memtable_prefix_bloom_ratio(0.0);
    }
    options
}
