//! Listings of buckets in a store with columns.

use crate::{RocksStore, read};
use pando_format::{Key, KeyRange, Record};
use pando_store::{Read, StoreError};

impl RocksStore {
    /// What a range has, if that is known without RocksDB. Else what waits to be written there is written.
    pub(crate) fn known(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Option<Result<Vec<(Key, Record)>, StoreError>> {
        let kept = self.records.borrow().list(range, limit);
        if kept.is_some() {
            return kept;
        }
        if self.births.borrow().is_empty(range) {
            return Some(Ok(Vec::new()));
        }
        self.settle_range(range).err().map(Err)
    }

    /// The records of a bucket, of which rows are never in RocksDB's memory once they are in files: they are
    /// kept in front of it when they were read from there, too.
    pub(crate) fn list_bucket(&self, range: &KeyRange, limit: usize) -> Read<Vec<(Key, Record)>> {
        let mut known = None;
        let rows = self.read(
            || {
                known = self.known(range, limit);
                known.as_ref().map(|_| Ok(Vec::new()))
            },
            |memory| memory.rows(range, limit),
            || {
                let again = range.clone();
                move |db| read::rows(db, &again, limit)
            },
        );
        match (known, rows) {
            (Some(known), _) => Read::Ready(known),
            (None, Read::Ready(Err(e))) => Read::Ready(Err(e)),
            (None, Read::Ready(Ok(rows))) => {
                let records = read::records(&rows).map_err(read::failed);
                if rows.len() < limit {
                    self.records.borrow_mut().was_listed(range, rows);
                }
                Read::Ready(records)
            }
            (None, Read::Pending(rows)) => {
                let (records, range) = (self.records.clone(), range.clone());
                let read = records.borrow_mut().begins(&range);
                Read::Pending(Box::pin(async move {
                    let rows = rows.await?;
                    let found = read::records(&rows).map_err(read::failed)?;
                    if rows.len() < limit {
                        records.borrow_mut().ended(&range, read, rows);
                    }
                    Ok(found)
                }))
            }
        }
    }
}
