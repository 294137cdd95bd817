//! Slots that move from server to server while they are in use.
//!
//! The map's plan says which slots are to move where. The owner of a slot drives its move: it copies the
//! records (`source`), notes what changes meanwhile and sends that too, and then does and says nothing more
//! of the slot. When the receiver (`target`) has everything on its device, the owner writes down that it will
//! not touch the slot again until the map says whose it is (`hand_over`), and asks the coordinator (`plan`)
//! to change the map. Only the map decides who owns:
//!
//! - A slot is served where the newest map says, and by an owner that has given it up not even there (H41,
//!   H111).
//! - Nothing that is prepared moves: participants are named by server. A slot with prepared parts waits
//!   (H41).
//! - What a server has of a slot that is not its own and not to become its own is garbage (H62).
//! - Whatever fails before the coordinator is asked, the copy is begun again; afterwards only a map decides.

mod hand_over;
mod plan;
mod source;
mod stuck;
mod target;

use crate::{Failure, MetaServer};
use pando_cluster::ClusterMap;
use pando_format::{Batch, HandOverRecord, Key, LOCAL_SLOT, Mutation, Scan};
use pando_store::{Lsn, StoreError};
use pando_types::{MapEpoch, Mono, SLOTS, ServerId, Slot, plant};
use pando_wire::{CopyId, Refusal};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Records of lost slots that are deleted at a time, and in one go.
const SWEPT: usize = 256;
const SWEPT_IN_ALL: usize = 16 * SWEPT;

/// What of a server's slots is moving.
#[derive(Default)]
pub(crate) struct Moving {
    /// Copies begun.
    copies: u64,
    /// Slots that are being copied from here, and the keys whose records have changed since they were sent.
    noted: BTreeMap<Slot, BTreeSet<Key>>,
    /// Slots of this server that it does and says nothing of any more.
    sealed: BTreeSet<Slot>,
    /// What a restart must not forget: what waits for the map to say whose it is, and which maps are too old.
    kept: HandOverRecord,
    /// Slots that could not be moved, and until when they are left alone.
    put_off: BTreeMap<Slot, Mono>,
    /// Why slots that are to move have not.
    stuck: stuck::Stuck,
    /// From each server the copy that is coming from there.
    coming: BTreeMap<ServerId, target::Coming>,
    /// Slots that may have records here and are not this server's.
    unswept: BTreeSet<Slot>,
    /// On the coordinator: what is to be put into the map.
    asked: VecDeque<plan::Asked>,
    /// Counts.
    stats: MoveStats,
}

/// Counts of what moved.
#[derive(Clone, Copy, Default, Debug)]
pub struct MoveStats {
    /// Records sent.
    pub sent: u64,
    /// Bytes of them.
    pub sent_bytes: u64,
    /// Messages with records received.
    pub received: u64,
    /// Slots given up.
    pub given: u64,
    /// Slots taken over.
    pub taken: u64,
    /// Copies that came to nothing.
    pub broken_off: u64,
    /// Longest time in which slots were nobody's, in microseconds.
    pub longest_pause: u64,
}

impl Moving {
    /// Of a server that starts: nothing of a slot that waits for the map may be touched by this boot either.
    /// The map that it starts with may be one from before these slots were its own: that says nothing of them
    /// (H135).
    pub fn starting(kept: HandOverRecord, map: &ClusterMap, me: ServerId) -> Moving {
        let slots = kept.slots.iter().copied();
        Moving {
            sealed: slots.filter(|s| !plant!(H135) || map.owner(*s) == me).collect(),
            unswept: (0..SLOTS).map(Slot).filter(|s| map.owner(*s) != me).collect(),
            kept,
            ..Moving::default()
        }
    }

    /// Whether a map may say whose slots are whose.
    fn believes(&self, map: &ClusterMap) -> bool {
        map.epoch >= self.kept.epoch
    }

    /// Slots in which nobody gets a lock here.
    pub fn not_served(&self, map: &ClusterMap, me: ServerId) -> Vec<Slot> {
        let slots = (0..SLOTS).map(Slot);
        let closed = |s: &Slot| map.owner(*s) != me || self.sealed.contains(s) || !self.believes(map);
        slots.filter(closed).collect()
    }

    /// Whether a slot may be this server's; an old map does not say that it is not.
    pub fn may_be_ours(&self, map: &ClusterMap, me: ServerId, slot: Slot) -> bool {
        map.owner(slot) == me || !self.believes(map)
    }

    fn is_coming(&self, slot: Slot) -> bool {
        self.coming.values().any(|c| c.slots.contains(&slot))
    }

    fn next_copy(&mut self, server: &MetaServer) -> CopyId {
        self.copies += 1;
        CopyId {
            source: server.id,
            boot: server.boot,
            number: self.copies,
        }
    }
}

impl MetaServer {
    /// Whether this server answers for a record, at this instant.
    pub(crate) fn serves(&self, key: &Key) -> bool {
        // A prepared part is about the slot it is for.
        let slot = match key {
            Key::Prepared(slot, _) => *slot,
            key => key.slot(),
        };
        if slot == LOCAL_SLOT {
            return true;
        }
        let here = match key {
            Key::Prepared(..) => self.owner(slot) == self.id || !self.map().placement.by_key(),
            key => self.home(key) == self.id,
        };
        here && self.may_serve(slot)
    }

    /// The same of a whole slot.
    pub(crate) fn serves_slot(&self, slot: Slot) -> bool {
        self.owner(slot) == self.id && self.may_serve(slot)
    }

    /// Whether a copy of a slot is on its way here.
    pub(crate) fn is_coming(&self, slot: Slot) -> bool {
        self.slots.moving.borrow().is_coming(slot)
    }

    fn may_serve(&self, slot: Slot) -> bool {
        let moving = self.slots.moving.borrow();
        !moving.sealed.contains(&slot) && moving.believes(&self.map())
    }

    /// Why not.
    pub(crate) fn not_served(&self, slot: Slot) -> Refusal {
        if self.owner(slot) == self.id {
            // It will be somebody else's in a moment, or ours again.
            Refusal::Busy
        } else {
            Refusal::NotOwner(self.map().epoch)
        }
    }

    /// Whether who believes in the map of this epoch knows of everybody who may have what was ours: else a
    /// sync would not cover it.
    pub(crate) fn knows_all_owners(&self, epoch: MapEpoch) -> Result<(), Refusal> {
        if epoch < self.map().epoch {
            return Err(Refusal::NotOwner(self.map().epoch));
        }
        // Whose these are nobody here knows.
        let undecided = !self.slots.moving.borrow().kept.slots.is_empty();
        if undecided { Err(Refusal::NotReady) } else { Ok(()) }
    }

    /// Changes records of slots, all of which must be this server's at this instant.
    pub(crate) fn change(&self, batch: &Batch) -> Result<Lsn, Failure> {
        let prepared = |m: &&Mutation| {
            !matches!(
                m,
                Mutation::Delete {
                    key: Key::Prepared(..)
                }
            )
        };
        let keys = batch.mutations.iter().filter(prepared).map(Mutation::key);
        for key in keys.chain(batch.reply.iter().map(|r| r.key.clone())) {
            if !self.serves(&key) && !plant!(H41) {
                return Err(Failure::Refused(self.not_served(key.slot())));
            }
        }
        Ok(self.write(batch)?)
    }

    /// Writes a batch, and notes what of it must be sent after a copy that is under way. REQUIRES: whose
    /// slots they are was looked at just now.
    pub(crate) fn write(&self, batch: &Batch) -> Result<Lsn, StoreError> {
        // What failed may stand on the device all the same: then nothing is said any more, not even that it
        // was not done (H133).
        let lsn = self.store.apply(batch).inspect_err(|e| {
            self.report(e);
        })?;
        self.facts.changes.borrow_mut().count(batch);
        self.slots.splits.borrow_mut().wrote(batch);
        if batch.mutations.iter().any(is_new_part) {
            // Of the directories in it others were told where it was.
            self.facts.leases.borrow_mut().arrived(self.world.mono());
        }
        let mut moving = self.slots.moving.borrow_mut();
        if !moving.noted.is_empty() {
            let keys = batch.mutations.iter().map(Mutation::key);
            for key in keys.chain(batch.reply.iter().map(|r| r.key.clone())) {
                if let Some(noted) = moving.noted.get_mut(&key.slot()) {
                    noted.insert(key);
                }
            }
        }
        Ok(lsn)
    }

    /// The map has changed: slots are this server's that were not, or the other way round.
    pub(crate) fn slots_changed(&self, before: &ClusterMap, now: &ClusterMap) {
        let mut moving = self.slots.moving.borrow_mut();
        let (mut lost, mut came) = (BTreeSet::new(), false);
        self.facts.changes.borrow_mut().forget();
        for slot in (0..SLOTS).map(Slot) {
            let was = before.owner(slot) == self.id && moving.believes(before);
            let is = now.owner(slot) == self.id && moving.believes(now);
            // What was served may not be believed any more: what has come since has raised what is (H128).
            let left = before.owner(slot) == self.id && now.owner(slot) != self.id;
            if was && !is || left {
                lost.insert(slot);
                self.slots.splits.borrow_mut().left(slot);
                moving.noted.remove(&slot);
                moving.put_off.remove(&slot);
                moving.unswept.insert(slot);
                moving.stats.given += 1;
                if !moving.sealed.remove(&slot) && was {
                    tracing::error!(
                        server = self.id.0,
                        slot = slot.0,
                        "a slot was taken away that was not given up"
                    );
                }
            }
            if is && !was {
                came = true;
                self.slots.splits.borrow_mut().came(slot);
                moving.unswept.remove(&slot);
                moving.stats.taken += u64::from(before.owner(slot) != self.id);
                // What is still on its way of the copy is older than what is done here from now on.
                moving.coming.retain(|_, c| !c.slots.contains(&slot));
            }
            if was != is || left {
                self.slots.numbers.forget(slot);
                if !is {
                    self.mounts.file_locks.borrow_mut().left(slot);
                }
                self.txn
                    .locks
                    .set_open(slot, is && !moving.sealed.contains(&slot));
            }
        }
        let believed = moving.believes(now);
        drop(moving);
        if believed {
            self.drop_debts(|slot| now.owner(slot) != self.id);
        }
        if came {
            self.facts.leases.borrow_mut().arrived(self.world.mono());
        }
        if came || !lost.is_empty() {
            self.facts.leases.borrow_mut().unmark();
        }
        if !lost.is_empty() {
            self.facts.private.borrow_mut().left_slots(&lost);
            self.mounts.holds.borrow_mut().forget(&lost);
        }
    }

    /// Counts of what moved from and to here.
    pub fn move_stats(&self) -> MoveStats {
        self.slots.moving.borrow().stats
    }

    /// Slots of this server that are to move and could not, by cause: a list in JSON.
    pub(crate) fn stuck_slots(&self) -> String {
        let mut moving = self.slots.moving.borrow_mut();
        moving.stuck.prune(&self.map(), self.id);
        moving.stuck.json(self.world.mono())
    }

    /// How many slots have been given up and wait for the map to say whose they are.
    pub(crate) fn handing_over(&self) -> usize {
        self.slots.moving.borrow().kept.slots.len()
    }

    /// Deletes a bounded part of what is here of slots that are not this server's.
    pub(crate) async fn sweep(&self) -> Result<(), Failure> {
        let slots: Vec<Slot> = self.slots.moving.borrow().unswept.iter().copied().collect();
        let mut records = 0;
        for slot in slots {
            while records < SWEPT_IN_ALL && self.is_garbage(slot) {
                let found = self.store.list(&Scan::Slot(slot), SWEPT).wait().await?;
                // While that was read a copy may have begun, or become the slot.
                if !self.is_garbage(slot) {
                    break;
                }
                let complete = found.len() < SWEPT;
                records += found.len().max(1);
                let gone = found.into_iter().map(|(key, _)| Mutation::Delete { key });
                let batch = Batch::of(gone.collect());
                if !batch.mutations.is_empty() {
                    self.store.apply(&batch)?;
                }
                if complete {
                    self.slots.moving.borrow_mut().unswept.remove(&slot);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether what is here of a slot is of no use to anybody. What is to become ours may be all there is of
    /// it.
    fn is_garbage(&self, slot: Slot) -> bool {
        let map = self.map();
        let moving = self.slots.moving.borrow();
        map.placement.by_key()
            && moving.believes(&map)
            && map.owner(slot) != self.id
            && map.destination(slot) != Some(self.id)
            && !moving.is_coming(slot)
    }
}

/// Whether a part of a directory that was split may become this server's by it.
fn is_new_part(m: &Mutation) -> bool {
    match m {
        Mutation::Insert { key, .. } | Mutation::Update { key, .. } => {
            matches!(key, Key::Head(part) if part.start() != 0)
        }
        Mutation::Delete { .. } | Mutation::Touch { .. } => false,
    }
}
