//! The content of new directories, at the server that is to have it. See `owed`.

use crate::txn::locks::{Unit, in_order};
use crate::{Failure, MetaServer};
use pando_format::{Batch, Key, Mutation, OwedRecord, Record};
use pando_store::Level;
use pando_types::{DirId, Generation, MapEpoch, Part, TxId, plant};
use pando_wire::{LockMode, PeerAnswer, PeerRequest, Refusal, Stored};

impl MetaServer {
    /// Whether content that is not there is not on its way either: asks whoever would owe it. Busy as long as
    /// it is.
    pub(crate) async fn is_not_owed(
        &self,
        parent: DirId,
        dir: DirId,
        generation: Generation,
    ) -> Result<(), Failure> {
        let to = self.owner(self.owing_slot(parent, generation));
        if to == self.id {
            return self.owes(parent, dir, generation).await.map(|_| ());
        }
        let request = PeerRequest::Owes {
            parent,
            dir,
            generation,
        };
        match self.ask(to, request).await {
            Ok(Ok(PeerAnswer::NotOwed)) => Ok(()),
            _ => Err(Failure::Refused(Refusal::Busy)),
        }
    }

    /// Takes content of directories that were born elsewhere. It is synced when this returns.
    pub(crate) async fn store_contents(
        &self,
        low: u64,
        map: MapEpoch,
        contents: Vec<(TxId, OwedRecord)>,
    ) -> Result<Vec<Stored>, Failure> {
        // Who had the slot before may have had the directory and lost it again (H118).
        if map < self.slots.gained.get() && !plant!(H118) {
            return Err(Failure::Refused(Refusal::NotOwner(self.map().epoch)));
        }
        let mut slots = contents.iter().map(|(_, c)| Part::whole(c.dir).slot());
        if let Some(slot) = slots.find(|slot| !self.serves_slot(*slot)) {
            return Err(Failure::Refused(self.not_served(slot)));
        }
        let held = self.hold();
        let heads = contents.iter().map(|(_, c)| Key::Head(c.dir.into()));
        let units = in_order(heads.map(|key| (Unit::Key(key), LockMode::Exclusive)));
        self.txn
            .locks
            .acquire(held.holder, units, || self.peer_wait())
            .await?;
        let mut there = Vec::new();
        for (_, content) in &contents {
            there.push(self.store.get(&Key::Head(content.dir.into())).wait().await?);
        }
        self.flow().await;
        // Nothing is waited for from here to the batch.
        let (mut stored, mut taken, mut mutations) = (Vec::new(), Vec::new(), Vec::new());
        for ((tx, content), there) in contents.into_iter().zip(there) {
            let OwedRecord { dir, head, touch } = content;
            // Another copy may have come before, long enough for the directory to be removed again.
            let first = self.txn.parts.borrow_mut().current(tx, low);
            let another = matches!(&there, Some(there) if !matches!(there, Record::Head(h) if h.generation == head.generation));
            if first && another {
                stored.push(Stored::Taken);
                continue;
            }
            if first && there.is_none() {
                let insert = |key, record| Mutation::Insert { key, record };
                mutations.push(insert(Key::Head(dir.into()), Record::Head(head)));
                mutations.push(insert(Key::Touch(dir.into()), Record::Touch(touch)));
            }
            taken.extend(first.then_some(tx));
            stored.push(Stored::Yes);
        }
        if !mutations.is_empty() {
            self.change(&Batch::of(mutations))?;
        }
        if !plant!(H118) {
            let mut parts = self.txn.parts.borrow_mut();
            taken.into_iter().for_each(|tx| drop(parts.finish(tx)));
        }
        drop(held);
        self.safe(self.store.applied(), Level::Synced).await?;
        if self.low_on_space() {
            let full = |s: &mut Stored| *s = if *s == Stored::Yes { Stored::YesButFull } else { *s };
            stored.iter_mut().for_each(full);
        }
        Ok(stored)
    }
}
