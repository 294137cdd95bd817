//! What is left over: the records of a half that was given away, and copies that came to nothing.

use super::buckets;
use crate::txn::locks::Unit;
use crate::{Failure, MetaServer};
use pando_format::{Batch, Key, Mutation, NameHash, PartNote, Record, Scan};
use pando_types::{Part, Slot, Tile, TxId, plant};
use pando_wire::{LockMode, PeerAnswer, PeerRequest, TxState};
use std::time::Duration;

/// Records deleted at a time.
const SWEPT: usize = 256;
/// A copy of which nothing was heard for so long may have come to nothing.
const SILENT: Duration = Duration::from_secs(2);

impl MetaServer {
    /// Looks for notes in slots that are new to this boot.
    pub(super) async fn look_for_notes(&self) -> Result<(), Failure> {
        loop {
            let next: Option<Slot> = self.slots.splits.borrow().unread.first().copied();
            let Some(slot) = next else { return Ok(()) };
            let mut after = None;
            loop {
                let scan = match after.take() {
                    None => Scan::PartNotes(slot),
                    Some(key) => Scan::PartNotes(slot).after(key),
                };
                let found = self.store.list(&scan, SWEPT).wait().await?;
                after = (found.len() == SWEPT)
                    .then(|| found.last().map(|(key, _)| key.clone()))
                    .flatten();
                let mut splits = self.slots.splits.borrow_mut();
                for (key, _) in found {
                    if let Key::PartNote(part) = key {
                        splits.notes.insert(part);
                    }
                }
                drop(splits);
                if after.is_none() {
                    break;
                }
            }
            self.slots.splits.borrow_mut().unread.remove(&slot);
        }
    }

    /// Sees to every note once.
    pub(super) async fn sweep_parts(&self) -> Result<(), Failure> {
        let parts: Vec<Part> = self.slots.splits.borrow().notes.iter().copied().collect();
        for part in parts {
            if !self.serves_slot(part.slot()) {
                continue;
            }
            let over = match self.store.get(&Key::PartNote(part)).wait().await? {
                Some(Record::PartNote(PartNote::Debris)) => self.sweep_debris(part).await?,
                Some(Record::PartNote(PartNote::Coming(copy))) => self.sweep_copy(part, copy).await?,
                _ => true,
            };
            if over {
                let mut splits = self.slots.splits.borrow_mut();
                splits.notes.remove(&part);
                splits.coming.remove(&part);
            }
        }
        Ok(())
    }

    /// Deletes what a part gave away. True: all of it, and the note.
    async fn sweep_debris(&self, part: Part) -> Result<bool, Failure> {
        let Some(head) = self.part_head(part).await? else {
            return Ok(false);
        };
        let tile = head.tile();
        let most = Tile {
            start: part.start(),
            depth: Tile::first_depth(part.start()),
        };
        let (_, kept) = buckets(tile);
        let (_, last) = buckets(most);
        if kept < last {
            let first = NameHash(kept.0 + 1);
            let entries = Scan::Buckets { part, first, last };
            for scan in [entries, Scan::AllAttachments { part, first, last }] {
                self.sweep_scan(part, &scan).await?;
            }
        }
        self.drop_note(part, PartNote::Debris).await
    }

    /// Deletes all of a scan, of a part that stays here.
    async fn sweep_scan(&self, part: Part, scan: &Scan) -> Result<(), Failure> {
        loop {
            let found = self.store.list(scan, SWEPT).wait().await?;
            let complete = found.len() < SWEPT;
            self.flow().await;
            if !self.serves_slot(part.slot()) {
                return Ok(());
            }
            let gone: Vec<Mutation> = found
                .into_iter()
                .map(|(key, _)| Mutation::Delete { key })
                .collect();
            if !gone.is_empty() {
                self.slots.splits.borrow_mut().stats.swept += gone.len() as u64;
                self.change(&Batch::of(gone))?;
            }
            if complete {
                return Ok(());
            }
            self.pause(Duration::from_millis(1)).await;
        }
    }

    /// Deletes a note, if it still says this and nobody is about to change it.
    async fn drop_note(&self, part: Part, said: PartNote) -> Result<bool, Failure> {
        let key = Key::PartNote(part);
        let held = self.hold();
        let units = vec![(Unit::Key(key.clone()), LockMode::Exclusive)];
        self.txn
            .locks
            .acquire(held.holder, units, || self.lock_wait())
            .await?;
        let there = self.store.get(&key).wait().await?;
        if there != Some(Record::PartNote(said)) {
            return Ok(there.is_none());
        }
        self.flow().await;
        self.change(&Batch::of(vec![Mutation::Delete { key }]))?;
        Ok(true)
    }

    /// Clears away a copy that came to nothing. True: its note is gone.
    async fn sweep_copy(&self, part: Part, copy: TxId) -> Result<bool, Failure> {
        if plant!(H60) {
            return Ok(false);
        }
        let known = {
            let splits = self.slots.splits.borrow();
            splits.coming.get(&part).map(|c| (c.copy(), c.heard))
        };
        let lately = |heard| self.world.mono().since(heard) < SILENT;
        if known.is_some_and(|(of, heard)| of == copy && lately(heard)) {
            return Ok(false);
        }
        if !self.has_come_to_nothing(copy).await {
            return Ok(false);
        }
        let key = Key::PartNote(part);
        let held = self.hold();
        let units = vec![(Unit::Key(key.clone()), LockMode::Exclusive)];
        self.txn
            .locks
            .acquire(held.holder, units, || self.lock_wait())
            .await?;
        let there = self.store.get(&key).wait().await?;
        if there != Some(Record::PartNote(PartNote::Coming(copy))) {
            return Ok(there.is_none());
        }
        if self.part_head(part).await?.is_some() {
            tracing::error!(server = self.id.0, %part, "a part that lives is noted to come");
            return Ok(false);
        }
        self.slots.splits.borrow_mut().coming.remove(&part);
        self.clear_part(part).await?;
        self.flow().await;
        self.change(&Batch::of(vec![Mutation::Delete { key }]))?;
        Ok(true)
    }

    /// Whether the source of a copy does not know it any more, without having decided it.
    async fn has_come_to_nothing(&self, copy: TxId) -> bool {
        if self.map().has_left(copy.coordinator) {
            return true;
        }
        let state = match copy.coordinator == self.id {
            true => self.state_of(copy),
            false => match self.ask(copy.coordinator, PeerRequest::Inquire(copy)).await {
                Ok(Ok(PeerAnswer::State(state))) => state,
                _ => return false,
            },
        };
        state == TxState::Aborted
    }
}
