//! The receiver's side: it takes what comes, and answers for none of it before the map says so.

use crate::slots::recovery::all;
use crate::{Failure, MetaServer};
use pando_format::{Batch, Key, Mutation, Record, Scan, SessionRecord};
use pando_store::{Bundle, Level};
use pando_types::{MapEpoch, SessionId, Slot, plant};
use pando_wire::{CopyId, Holds, MoveAnswer, Refusal};
use std::collections::BTreeSet;

/// Records deleted at a time before a copy begins.
const CLEARED: usize = 512;

/// A copy on its way here.
pub(super) struct Coming {
    /// Which.
    copy: CopyId,
    /// Of what.
    pub slots: BTreeSet<Slot>,
    /// What was here before is gone.
    cleared: bool,
    /// Messages that were taken.
    taken: BTreeSet<u32>,
}

impl MetaServer {
    /// A copy begins. What is here of its slots is what an earlier one left.
    pub(super) async fn copy_begins(
        &self,
        copy: CopyId,
        slots: BTreeSet<Slot>,
    ) -> Result<MoveAnswer, Failure> {
        // What may be here already is not made room for (H121).
        let ours = |slot: &Slot| {
            self.slots
                .moving
                .borrow()
                .may_be_ours(&self.map(), self.id, *slot)
                && !plant!(H121)
        };
        if slots.iter().any(ours) {
            return Ok(MoveAnswer::Lost);
        }
        // A former owner's may be late: what the owner has sent is not thrown away for it (H125). That one
        // asks again until it is known here.
        let map = self.map();
        if slots.iter().any(|s| map.owner(*s) != copy.source) && !plant!(H121) {
            return Err(Failure::Refused(Refusal::Busy));
        }
        {
            let mut moving = self.slots.moving.borrow_mut();
            if let Some(known) = moving.coming.get(&copy.source) {
                match copy.cmp(&known.copy) {
                    std::cmp::Ordering::Less => return Ok(MoveAnswer::Lost),
                    std::cmp::Ordering::Equal if known.cleared => return Ok(MoveAnswer::Taken),
                    std::cmp::Ordering::Equal => return Err(Failure::Refused(Refusal::Busy)),
                    std::cmp::Ordering::Greater => {}
                }
            }
            // Late messages of a server that owned one of these slots before must not be taken any more.
            moving.coming.retain(|_, c| c.slots.is_disjoint(&slots));
            moving.unswept.extend(&slots);
            let coming = Coming {
                copy,
                slots: slots.clone(),
                cleared: false,
                taken: BTreeSet::new(),
            };
            moving.coming.insert(copy.source, coming);
        }
        self.mounts.holds.borrow_mut().forget(&slots);
        // What is left over of what was owed when these were here is not to be told once they are here again
        // (H118).
        self.drop_debts(|slot| slots.contains(&slot));
        for slot in slots {
            loop {
                let found = self.store.list(&Scan::Slot(slot), CLEARED).wait().await?;
                if !self.is_of(copy, |_| true) {
                    return Ok(MoveAnswer::Lost);
                }
                let complete = found.len() < CLEARED;
                if !found.is_empty() {
                    let gone = found.into_iter().map(|(key, _)| Mutation::Delete { key });
                    self.store.apply(&Batch::of(gone.collect()))?;
                }
                if complete {
                    break;
                }
            }
        }
        let mut moving = self.slots.moving.borrow_mut();
        if let Some(coming) = moving.coming.get_mut(&copy.source) {
            coming.cleared = true;
        }
        Ok(MoveAnswer::Taken)
    }

    /// Whether this copy is still coming, and something holds of it.
    fn is_of(&self, copy: CopyId, holds: impl FnOnce(&Coming) -> bool) -> bool {
        let moving = self.slots.moving.borrow();
        moving
            .coming
            .get(&copy.source)
            .is_some_and(|c| c.copy == copy && holds(c))
    }

    /// Records of a copy. They take the place of what was sent before.
    pub(super) fn copied(
        &self,
        copy: CopyId,
        number: u32,
        bundle: &Bundle,
        gone: Vec<Key>,
    ) -> Result<MoveAnswer, Failure> {
        if !self.is_of(copy, |c| c.cleared) {
            return Ok(MoveAnswer::Lost);
        }
        // A message that comes twice may have been overtaken by what changed after it was sent.
        if self.is_of(copy, |c| c.taken.contains(&number)) {
            return Ok(MoveAnswer::Taken);
        }
        if self.low_on_space() {
            return Err(Failure::Refused(Refusal::Busy));
        }
        let mut slots = bundle.slots()?;
        slots.extend(gone.iter().map(Key::slot));
        if !self.is_of(copy, |c| slots.is_subset(&c.slots)) {
            return Err(Failure::Refused(Refusal::Invalid));
        }
        self.store.ingest(bundle)?;
        if !gone.is_empty() {
            let gone = gone.into_iter().map(|key| Mutation::Delete { key });
            self.store.apply(&Batch::of(gone.collect()))?;
        }
        let mut moving = self.slots.moving.borrow_mut();
        moving.stats.received += 1;
        if let Some(coming) = moving.coming.get_mut(&copy.source) {
            coming.taken.insert(number);
        }
        Ok(MoveAnswer::Taken)
    }

    /// All of a copy is here. Its reply records are worth nothing without the sessions they belong to, and a
    /// session that has ended on one side has ended for both (H46, H47).
    pub(super) async fn copy_settles(
        &self,
        copy: CopyId,
        made: MapEpoch,
        (ended, lockers): (Vec<SessionId>, Vec<(Slot, SessionId)>),
        holds: Holds,
    ) -> Result<MoveAnswer, Failure> {
        let slots = {
            let moving = self.slots.moving.borrow();
            match moving.coming.get(&copy.source) {
                Some(c) if c.copy == copy && c.cleared => c.slots.clone(),
                _ => return Ok(MoveAnswer::Lost),
            }
        };
        for session in &ended {
            let lives = self.admission.sessions.borrow().knows(*session);
            // What keeps files open may live here though it has ended there: it has no reply records.
            if lives && session.keeps() {
                continue;
            }
            if lives {
                self.expire(*session, |_| true).await?;
            } else {
                self.stays_ended(*session)?;
            }
            // Whoever gets these slots next is told so too (H120).
            if !plant!(H120) {
                self.admission.sessions.borrow_mut().had_in(*session, &slots);
            }
        }
        // By whom a file is held is known here under their names, also after a restart (H165).
        for (session, held) in &holds.held {
            self.comes_with(*session, held.file.slot)?;
        }
        // One that has ended here holds nothing.
        let knows = |session: &SessionId| self.admission.sessions.borrow().knows(*session);
        let held = holds.held.into_iter().filter(|(s, _)| knows(s)).collect();
        self.mounts.holds.borrow_mut().come(&Holds { held });
        for (slot, session) in lockers.into_iter().filter(|(slot, _)| slots.contains(slot)) {
            self.comes_with(session, slot)?;
            // Whoever has locks there must say so here before others get some (H173).
            if self.admission.sessions.borrow().knows(session) {
                self.mounts.file_locks.borrow_mut().comes(session, slot);
            }
        }
        for slot in slots {
            let sessions = self.sessions_of(slot).await?;
            if plant!(H47) {
                self.store.delete_range(&Scan::AllReplies(slot))?;
            }
            for session in sessions {
                self.comes_with(session, slot)?;
            }
        }
        // Under a map from before that plan this would be garbage.
        let lsn = self.believe_from(made)?;
        if !plant!(H62) {
            self.safe(lsn, Level::Synced).await?;
        }
        Ok(if self.is_of(copy, |_| true) {
            MoveAnswer::Taken
        } else {
            MoveAnswer::Lost
        })
    }

    /// Sessions that have reply records in a slot, or removed files open.
    async fn sessions_of(&self, slot: Slot) -> Result<BTreeSet<SessionId>, Failure> {
        let mut sessions = BTreeSet::new();
        for (key, _) in all(&*self.store, Scan::AllReplies(slot)).await? {
            if let Key::Reply(_, session, _) = key {
                sessions.insert(session);
            }
        }
        for (_, record) in all(&*self.store, Scan::Garbage(slot)).await? {
            if let Record::Garbage(garbage) = record {
                sessions.extend(garbage.holder);
            }
        }
        Ok(sessions)
    }

    /// A session has something in a slot that comes.
    fn comes_with(&self, session: SessionId, slot: Slot) -> Result<(), Failure> {
        let mut sessions = self.admission.sessions.borrow_mut();
        let known = sessions.knows(session);
        // One that has ended here stays ended; its records go when its name is forgotten.
        let opened = sessions.come(session, self.world.mono());
        sessions.wrote(session, slot);
        drop(sessions);
        if opened && !known {
            self.store.apply(&Batch::of(vec![self.session_begins(session)]))?;
        }
        Ok(())
    }

    /// A session that was never heard of here has ended where its slot comes from.
    fn stays_ended(&self, session: SessionId) -> Result<(), Failure> {
        if self.admission.sessions.borrow().has_ended(session) {
            return Ok(());
        }
        let now = self.world.now();
        let record = Record::Session(SessionRecord {
            opened: now,
            ended: Some(now),
        });
        self.store.apply(&Batch::of(vec![Mutation::Update {
            key: Key::Session(session),
            record,
        }]))?;
        self.admission
            .sessions
            .borrow_mut()
            .stays_ended(session, self.world.mono());
        Ok(())
    }
}
