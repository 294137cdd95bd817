//! From the last change to the map that says whose the slots are.
//!
//! Before the coordinator is asked, the owner has it on its device that it will not touch the slots again: a
//! restart must not forget what a message that is still on its way may bring about. It asks until a map
//! decides: one in which the slots have moved, or one of a newer plan in which they have not, and by the
//! older plan never will.

use crate::{Failure, MetaServer};
use pando_cluster::ClusterMap;
use pando_format::{Batch, HandOverRecord, Key, Mutation, Record};
use pando_store::{Level, Lsn, StoreError};
use pando_types::{MapEpoch, ServerId, Slot, plant};
use pando_wire::{MoveAnswer, MoveRequest, PeerAnswer, PeerRequest};
use std::collections::BTreeSet;
use std::time::Duration;

/// First and longest pause between two questions.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

impl MetaServer {
    /// Slots that have settled at `to` become its own, unless the plan of epoch `made` is not in force any
    /// more.
    pub(super) async fn hand_over(
        &self,
        to: ServerId,
        made: MapEpoch,
        slots: &BTreeSet<Slot>,
    ) -> Result<(), Failure> {
        {
            let kept = &mut self.slots.moving.borrow_mut().kept;
            (kept.to, kept.made) = (to, made);
            kept.slots = slots.iter().copied().collect();
        }
        let lsn = self.keep()?;
        // All that was ever seen of the slots is on the device with it.
        self.safe(lsn, Level::Synced).await?;
        self.finish_handing_over().await
    }

    /// No map that is older than this is believed from here on, by no later boot either.
    pub(crate) fn believe_from(&self, epoch: MapEpoch) -> Result<Lsn, StoreError> {
        {
            let kept = &mut self.slots.moving.borrow_mut().kept;
            kept.epoch = kept.epoch.max(epoch);
        }
        self.keep()
    }

    /// The epoch of the newest map that any boot of this server has been told of, as far as it is on the
    /// device.
    pub fn newest_told(&self) -> MapEpoch {
        self.slots.moving.borrow().kept.epoch
    }

    fn keep(&self) -> Result<Lsn, StoreError> {
        let mut kept = self.slots.moving.borrow().kept.clone();
        if plant!(H111) {
            kept = HandOverRecord::default();
        }
        self.store.apply(&Batch::of(vec![Mutation::Update {
            key: Key::HandOver,
            record: Record::HandOver(kept),
        }]))
    }

    /// Asks until a map decides. Nothing to hand over: at once.
    pub(super) async fn finish_handing_over(&self) -> Result<(), Failure> {
        let mut pause = PAUSE.0;
        while !self.stopped.get() {
            let h = self.slots.moving.borrow().kept.clone();
            if h.slots.is_empty() {
                return Ok(());
            }
            let map = self.map();
            let mine: BTreeSet<Slot> = h
                .slots
                .iter()
                .copied()
                .filter(|s| map.owner(*s) == self.id)
                .collect();
            let current = map.epoch >= h.epoch && map.plan.made >= h.made;
            if current && (mine.is_empty() || map.plan.made > h.made) {
                return self.decided_by_map(&map, mine).await;
            }
            if !self.ask_for_map(&h).await {
                self.pause(pause).await;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
        Ok(())
    }

    /// Asks the coordinator. Whether it answered with a newer map.
    async fn ask_for_map(&self, h: &HandOverRecord) -> bool {
        let answer = if self.coordinates() {
            self.put_into_map(self.id, h.to, h.made, &h.slots).await.ok()
        } else {
            let request = MoveRequest::HandOver {
                from: self.id,
                to: h.to,
                made: h.made,
                slots: h.slots.clone(),
            };
            match self
                .ask(self.map().coordinator, PeerRequest::Moving(request))
                .await
            {
                Ok(Ok(PeerAnswer::Moving(answer))) => Some(answer),
                _ => None,
            }
        };
        let Some(MoveAnswer::Map(bytes)) = answer else {
            return false;
        };
        let before = self.map().epoch;
        self.adopt_bytes(&bytes);
        self.map().epoch > before
    }

    async fn decided_by_map(&self, map: &ClusterMap, mine: BTreeSet<Slot>) -> Result<(), Failure> {
        {
            let mut moving = self.slots.moving.borrow_mut();
            for slot in std::mem::take(&mut moving.kept.slots) {
                // Of a boot that began with an older map nobody has heard that it lost them. They may come
                // back.
                if !mine.contains(&slot) {
                    moving.sealed.remove(&slot);
                }
            }
        }
        self.believe_from(map.epoch)?;
        self.take_back(&mine);
        self.note_replies(&mine).await
    }
}
