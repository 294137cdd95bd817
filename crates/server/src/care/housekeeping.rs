//! Background work: inquiries, the end of silent sessions, the deletion of removed files' data.

use crate::admission::sessions::{Sessions, Written};
use crate::slots::recovery::all;
use crate::{Failure, MetaServer};
use pando_data::{BlockError, FileKey};
use pando_format::{Batch, GarbageRecord, Key, Mutation, Record, Scan, SessionRecord};
use pando_store::StoreError;
use pando_types::{SLOTS, SessionId, Slot, plant};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Slots whose garbage is looked at per tick, so that a tick stays short.
const GARBAGE_SLOTS: u16 = 256;
/// Sessions that end per tick, for the same reason: one of an earlier boot may have records in every slot.
const SESSIONS_PER_TICK: usize = 32;

/// Removed files whose data are there yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Removed {
    /// How many.
    pub files: u64,
    /// Their sizes together, in bytes.
    pub bytes: u64,
    /// How many of them somebody has open.
    pub held: u64,
}

impl Removed {
    fn add(&mut self, other: Removed) {
        self.files += other.files;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.held += other.held;
    }
}

impl MetaServer {
    /// What waits for the deletion of its data here, as housekeeping found it: it goes round all slots every
    /// few seconds.
    pub fn removed(&self) -> Removed {
        let mut all = Removed::default();
        self.care
            .removed
            .borrow()
            .values()
            .for_each(|part| all.add(*part));
        all
    }

    pub(crate) async fn housekeeping(self: Rc<Self>) {
        let mut slot = 0;
        while !self.stopped.get() {
            self.world.sleep(self.limits.tick).await;
            self.inquire().await;
            let result = self.keep_house(&mut slot).await;
            if let Err(Failure::Store(e)) = result
                && !self.report(&e)
            {
                return;
            }
        }
    }

    async fn keep_house(&self, slot: &mut u16) -> Result<(), Failure> {
        // A sync in the background may have failed, and nobody else asks.
        self.store.check()?;
        self.enforce_identities().await?;
        self.expire_sessions().await?;
        self.end_idle_cut();
        let mute = self.tidy_file_locks().into_iter().chain(self.mute_keepers());
        for session in mute.take(SESSIONS_PER_TICK) {
            self.expire(session, |_| true).await?;
        }
        self.collect_garbage(slot).await?;
        self.sweep().await
    }

    fn my_slots(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..SLOTS).map(Slot).filter(|s| self.serves_slot(*s))
    }

    async fn expire_sessions(&self) -> Result<(), Failure> {
        let now = self.world.mono();
        let timeout = if plant!(H46) {
            self.limits.session_timeout / 8
        } else {
            self.limits.session_timeout
        };
        let expired = self
            .admission
            .sessions
            .borrow()
            .expired(now, timeout, SESSIONS_PER_TICK);
        for session in expired {
            // It may have been heard of while others were ended.
            let silent = |s: &Sessions| s.is_silent(session, self.world.mono(), timeout);
            // What it has open, or has locked, is on its way here with its slot (H192).
            if self.comes_along(session) {
                self.admission.sessions.borrow_mut().seen(session, now);
                continue;
            }
            // Its slot did not come, and may yet: then it must not be spent here.
            let awaits = self
                .mounts
                .file_locks
                .borrow()
                .only_awaits(session, |slot| self.serves_slot(slot));
            if (awaits || self.came_in_vain(session)) && silent(&self.admission.sessions.borrow()) {
                self.mounts.file_locks.borrow_mut().end(session, now);
                self.mounts.holds.borrow_mut().end(session);
                self.admission.sessions.borrow_mut().forget_unused(session);
                let key = Key::Session(session);
                self.write(&Batch::of(vec![Mutation::Delete { key }]))?;
                continue;
            }
            self.expire(session, silent).await?;
        }
        let forgotten =
            self.admission
                .sessions
                .borrow_mut()
                .forget(now, self.limits.session_memory, SESSIONS_PER_TICK);
        for (session, written) in forgotten {
            self.remove_replies(session, written, None).await?;
        }
        Ok(())
    }

    /// Whether a session that keeps files open, and has never spoken here, has some in a slot that is coming;
    /// or one under which files are locked, which need not speak here before, has locks in one.
    fn comes_along(&self, session: SessionId) -> bool {
        let coming = |slot: Slot| self.is_coming(slot);
        let opened = session.keeps()
            && self.admission.sessions.borrow().only_came(session)
            && self.mounts.holds.borrow().slots_of(session).any(coming);
        opened || self.mounts.file_locks.borrow().awaited(session).any(coming) && !plant!(H192)
    }

    /// Whether one has none in a slot that is here.
    fn came_in_vain(&self, session: SessionId) -> bool {
        session.keeps()
            && self.admission.sessions.borrow().only_came(session)
            && !self
                .mounts
                .holds
                .borrow()
                .slots_of(session)
                .any(|slot| self.serves_slot(slot))
    }

    /// Ends a session whose client did not say goodbye. It may be out of reach and have requests whose
    /// outcome it does not know: remembered, also by the next boot, so that the name does not come back to
    /// life without its reply records. Only if `may` says so at the instant it ends.
    pub(crate) async fn expire(
        &self,
        session: SessionId,
        may: impl Fn(&Sessions) -> bool,
    ) -> Result<(), Failure> {
        let key = Key::Session(session);
        let ended = self.world.now();
        let opened = match self.store.get(&key).wait().await? {
            Some(Record::Session(s)) => s.opened,
            _ => ended,
        };
        let record = Record::Session(SessionRecord {
            opened,
            ended: Some(ended),
        });
        if !may(&self.admission.sessions.borrow()) {
            return Ok(());
        }
        self.end_session(session, Some(record)).await
    }

    /// A client's goodbye: it waits for nothing any more.
    pub(crate) async fn close_session(&self, id: SessionId) -> Result<(), Failure> {
        self.end_session(id, None).await
    }

    /// Ends a session: first in memory, so that nothing of it is executed any more, then its records but for
    /// the one that is to stay. Its holds on removed files end with it, and its locks.
    async fn end_session(&self, id: SessionId, stays: Option<Record>) -> Result<(), Failure> {
        let open: BTreeSet<Slot> = self.mounts.holds.borrow().slots_of(id).collect();
        let ended = self
            .admission
            .sessions
            .borrow_mut()
            .end(id, self.world.mono(), stays.is_some());
        // Who gets these slots tells it so: what it had open there may be gone (H183).
        if !plant!(H183) {
            self.admission.sessions.borrow_mut().had_in(id, &open);
        }
        self.mounts.holds.borrow_mut().end(id);
        self.mounts.file_locks.borrow_mut().end(id, self.world.mono());
        match ended {
            Some(written) => self.remove_replies(id, written, stays).await,
            None => Ok(()),
        }
    }

    async fn remove_replies(
        &self,
        id: SessionId,
        written: Written,
        stays: Option<Record>,
    ) -> Result<(), Failure> {
        let key = Key::Session(id);
        let mut batch = vec![match stays {
            Some(record) => Mutation::Update { key, record },
            None => Mutation::Delete { key },
        }];
        let slots: Vec<Slot> = match written {
            Written::In(slots) => slots.into_iter().filter(|s| self.serves_slot(*s)).collect(),
            Written::Anywhere => self.my_slots().collect(),
        };
        let mut replies = Vec::new();
        for slot in slots {
            replies.extend(all(&*self.store, Scan::Replies(slot, id)).await?);
        }
        // Slots that were given up while that was read have another server to look after them.
        let ours = replies
            .into_iter()
            .map(|(key, _)| key)
            .filter(|key| self.serves(key));
        batch.extend(ours.map(|key| Mutation::Delete { key }));
        self.write(&Batch::of(batch))?;
        Ok(())
    }

    /// Deletes blocks of removed files that nobody holds open. The record goes after the data, so a crash
    /// repeats it.
    async fn collect_garbage(&self, next: &mut u16) -> Result<(), Failure> {
        // Their blocks may be what a cut names.
        if self.slots.cuts.keeps_data() {
            return Ok(());
        }
        let from = *next;
        *next = if from + GARBAGE_SLOTS >= SLOTS {
            0
        } else {
            from + GARBAGE_SLOTS
        };
        let mut found = Vec::new();
        for slot in (from..SLOTS.min(from + GARBAGE_SLOTS)).map(Slot) {
            if self.serves_slot(slot) {
                self.reap_slot(slot).await?;
                found.extend(all(&*self.store, Scan::Garbage(slot)).await?);
            }
        }
        let held = |g: &GarbageRecord| {
            g.holder
                .is_some_and(|s| self.admission.sessions.borrow().knows(s))
        };
        let mut left = Removed::default();
        for (_, record) in &found {
            if let Record::Garbage(g) = record
                && held(g)
            {
                left.add(Removed {
                    files: 1,
                    bytes: g.size,
                    held: 1,
                });
            }
        }
        found.retain(|(_, record)| !matches!(record, Record::Garbage(g) if held(g)));
        if !found.is_empty() {
            // Nothing is deleted that a power failure could bring back a name for: one sync for all that was
            // read.
            self.store
                .wait(self.store.applied(), pando_store::Level::Synced)
                .await?;
        }
        for (key, record) in found {
            if let (Key::Garbage(_, ino, generation), Record::Garbage(garbage)) = (&key, record) {
                let file = FileKey {
                    ino: *ino,
                    generation: *generation,
                };
                let stays = self.serves(&key) && (held(&garbage) || !self.collect(key, file).await?);
                if stays {
                    left.add(Removed {
                        files: 1,
                        bytes: garbage.size,
                        held: u64::from(held(&garbage)),
                    });
                }
            }
        }
        self.care.removed.borrow_mut().insert(from, left);
        Ok(())
    }

    /// Whether it is done: the data are gone, or another server sees to that.
    async fn collect(&self, key: Key, file: FileKey) -> Result<bool, StoreError> {
        // A cut may have been begun, and the file removed after it.
        if self.slots.cuts.keeps_data() {
            return Ok(false);
        }
        // Blocks beyond the size may be left of an earlier, longer life of the file: all go.
        match self.blocks.remove(file, 0, u64::MAX).await {
            // If its slot was given up meanwhile, whoever has it does this again.
            Ok(()) if !self.serves(&key) => Ok(true),
            Ok(()) => {
                self.write(&Batch::of(vec![Mutation::Delete { key }]))?;
                Ok(true)
            }
            // It goes on beside everything else.
            Err(BlockError::Later) => Ok(false),
            Err(e) => {
                tracing::warn!(server = self.id.0, error = %e, "file data not deleted; trying again later");
                Ok(false)
            }
        }
    }
}
