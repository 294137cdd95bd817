//! Cleaning of rows: what is left of those that were removed or replaced is in blob files, between others
//! that are still there. RocksDB removes a blob file that has nothing else; it moves what is still there out
//! of the oldest ones only while it is told to.

use crate::families;
use pando_store::StoreError;
use rocksdb::{BottommostLevelCompaction, ColumnFamily, CompactOptions, DB, Error};

/// Fewer bytes than these are not worth it, nor is less than a sixteenth of all.
const WORTH: u64 = 1 << 20;
const SHARE: u64 = 16;
/// Left over while rows are moved.
const MARGIN: u64 = 16 << 20;

/// Bytes of blob files, and of those what nobody refers to, as far as compactions have met it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bytes {
    pub(crate) all: u64,
    pub(crate) void: u64,
}

/// What blob files take.
pub(crate) fn bytes(db: &DB) -> Bytes {
    let Some(rows) = families::rows(db) else {
        return Bytes::default();
    };
    let property = |name: &str| db.property_int_value_cf(rows, name).ok().flatten().unwrap_or(0);
    Bytes {
        all: property("rocksdb.live-blob-file-size"),
        void: property("rocksdb.live-blob-file-garbage-size"),
    }
}

/// The share of blob files, from the oldest on, whose rows can be moved into so many bytes; nothing if little
/// would come of it.
fn share(bytes: Bytes, room: u64) -> Option<f64> {
    let kept = bytes.all.saturating_sub(bytes.void).max(1);
    let room = room.saturating_sub(MARGIN);
    let worth = bytes.void >= WORTH.max(bytes.all / SHARE);
    let share = (room as f64 / kept as f64).min(1.0);
    (worth && share >= 0.01).then_some(share)
}

/// Gives space of removed rows back, as far as there are so many bytes to do it with.
pub(crate) fn some(db: &DB, room: u64) -> Result<(), Error> {
    let Some(rows) = families::rows(db) else {
        return Ok(());
    };
    let keys = db.property_int_value_cf(rows, "rocksdb.total-sst-files-size")?;
    if keys.unwrap_or(0).saturating_add(MARGIN) > room {
        return Ok(());
    }
    // It is known then what nobody refers to. Keys and places are merged for that, no rows.
    let mut options = CompactOptions::default();
    options.set_exclusive_manual_compaction(false);
    db.compact_range_cf_opt(rows, None::<&[u8]>, None::<&[u8]>, &options);
    match share(bytes(db), room) {
        Some(share) => moving(db, rows, share),
        None => Ok(()),
    }
}

/// Moves all rows that are still there into new files, in order of keys.
pub(crate) fn all(db: &DB) -> Result<(), StoreError> {
    let Some(rows) = families::rows(db) else {
        return Ok(());
    };
    moving(db, rows, 1.0).map_err(|e| StoreError::Device(e.to_string()))
}

/// Rewrites all tables of keys, and the rows in this share of blob files.
fn moving(db: &DB, rows: &ColumnFamily, share: f64) -> Result<(), Error> {
    let cutoff = format!("{share:.4}");
    let on = [
        ("enable_blob_garbage_collection", "true"),
        ("blob_garbage_collection_age_cutoff", cutoff.as_str()),
    ];
    db.set_options_cf(rows, &on)?;
    let mut options = CompactOptions::default();
    options.set_exclusive_manual_compaction(false);
    options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
    db.compact_range_cf_opt(rows, None::<&[u8]>, None::<&[u8]>, &options);
    db.set_options_cf(rows, &[("enable_blob_garbage_collection", "false")])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn as_much_as_there_is_room_for() {
        let bytes = |all, void| Bytes {
            all: all * MIB,
            void: void * MIB,
        };
        assert_eq!(share(bytes(300, 100), 1000 * MIB), Some(1.0));
        assert_eq!(share(bytes(300, 100), MARGIN + 50 * MIB), Some(0.25));
        assert_eq!(share(bytes(300, 100), MARGIN), None, "no room");
        assert_eq!(share(bytes(300, 18), 1000 * MIB), None, "of little use");
        assert_eq!(share(bytes(1, 0), 1000 * MIB), None);
        assert_eq!(share(bytes(100, 100), 1000 * MIB), Some(1.0));
    }
}
