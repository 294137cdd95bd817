//! Files without a name go when nobody has them open any more (H97).

use crate::slots::recovery::all;
use crate::txn::locks::{in_order, unit_of};
use crate::{Failure, MetaServer};
use pando_format::{Batch, Key, Scan};
use pando_namespace::{Snapshot, reap, reap_wants};
use pando_types::{Slot, plant};
use pando_wire::{FileAt, Holders};
use std::collections::BTreeSet;

impl MetaServer {
    /// Removes what nobody has open of a slot's files without a name.
    pub(crate) async fn reap_slot(&self, slot: Slot) -> Result<(), Failure> {
        let notes = all(&*self.store, Scan::Orphans(slot)).await?;
        let file = |key: &Key| match *key {
            Key::Orphan(slot, ino, generation) => Some(FileAt {
                slot,
                ino,
                generation,
            }),
            _ => None,
        };
        let noted: BTreeSet<FileAt> = notes.iter().filter_map(|(key, _)| file(key)).collect();
        self.mounts.holds.borrow_mut().orphans_in(slot, &noted);
        for file in noted {
            self.mounts.holds.borrow_mut().orphan(file, true);
            if self.is_held(file) {
                continue;
            }
            self.reap(file).await?;
        }
        Ok(())
    }

    fn is_held(&self, file: FileAt) -> bool {
        self.mounts.holds.borrow().holders(file) != Holders::Nobody && !plant!(H168)
    }

    /// Removes one, unless it is in use.
    async fn reap(&self, file: FileAt) -> Result<(), Failure> {
        let widths = self.map().widths();
        let wants = reap_wants(widths, file.slot, file.ino, file.generation);
        let held = self.hold();
        let units = in_order(wants.iter().filter_map(unit_of));
        if self.txn.locks.try_all(held.holder, &units).is_err() {
            return Ok(());
        }
        let records = self.read_records(&wants).await?;
        self.flow().await;
        // By way of its home it may have been opened again.
        if self.is_held(file) || !self.serves_slot(file.slot) {
            return Ok(());
        }
        let mut snapshot = Snapshot::default();
        snapshot.add_all(wants, records);
        let gone = reap(&snapshot, widths, file.slot, (file.ino, file.generation));
        if !gone.is_empty() {
            self.change(&Batch::of(gone))?;
        }
        self.mounts.holds.borrow_mut().orphan(file, false);
        Ok(())
    }
}
