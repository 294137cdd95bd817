//! Locks of programs on files (`flock`, `fcntl`): what is asked about them, and when it may be answered.
//!
//! They are in memory only. What is durable is which sessions have some: after a restart each of those must
//! say what it holds, or end, before anybody gets a new lock (H170). With a slot goes who has locks in it,
//! and its next owner waits likewise.

mod table;

pub use table::FileLockBounds;
pub(crate) use table::FileLocks;

use crate::{Failure, MetaServer};
use pando_env::sync::{first, oneshot};
use pando_types::{IdentityId, MapEpoch, SLOTS, SessionId, Slot, plant};
use pando_wire::{FileLockAnswer, FileLockRequest, LockPlace, Refusal, Response, WantedLock};
use std::time::Duration;

/// For so long one who waits for its turn is not answered; clients ask again after longer.
const PARKED: Duration = Duration::from_millis(1500);
/// Of the requests that an identity may have served at one time one in so many may wait for its turn.
const PARKING: usize = 4;
/// Locks in one statement.
const STATED: usize = 4096;
/// Most locks that are listed.
const LISTED: usize = 8192;

impl MetaServer {
    /// Serves what is asked about locks on files.
    pub(crate) async fn file_lock(
        &self,
        holder: IdentityId,
        request: FileLockRequest,
    ) -> Result<Response, Failure> {
        if let FileLockRequest::List(most) = request {
            let most = LISTED.min(most as usize);
            let locks = self.mounts.file_locks.borrow().list(most);
            return Ok(Response::Lock(FileLockAnswer::Locks(locks)));
        }
        if let Some(session) = request.session() {
            self.lock_session_lives(session)?;
        }
        let bounds = self.limits.file_locks;
        let now = self.world.mono();
        let answer = match request {
            FileLockRequest::Set {
                session,
                turn,
                map,
                lock,
                wait,
            } => {
                self.may_lock(holder, &lock)?;
                self.answers_for(&lock.place, map)?;
                let mut locks = self.mounts.file_locks.borrow_mut();
                if lock.hold.is_some() && locks.is_in_grace(lock.place.ino.slot()) {
                    return Err(Failure::Refused(Refusal::Busy));
                }
                if !locks.turn(session, &lock.place, turn) && !plant!(G75) {
                    return Err(Failure::Refused(Refusal::TooOld));
                }
                locks.set(session, &lock, wait, now, &bounds)
            }
            FileLockRequest::Leave { session, turn, place } => {
                self.serves_file(&place)?;
                let mut locks = self.mounts.file_locks.borrow_mut();
                if !locks.turn(session, &place, turn) {
                    return Err(Failure::Refused(Refusal::TooOld));
                }
                locks.leave(session, &place, now);
                FileLockAnswer::Done
            }
            FileLockRequest::Await { session, place } => {
                self.serves_file(&place)?;
                self.await_turn(holder, session, place).await
            }
            FileLockRequest::Test { session, map, lock } => {
                self.may_lock(holder, &lock)?;
                self.answers_for(&lock.place, map)?;
                let locks = self.mounts.file_locks.borrow();
                if locks.is_in_grace(lock.place.ino.slot()) {
                    return Err(Failure::Refused(Refusal::Busy));
                }
                locks.test(session, &lock)
            }
            FileLockRequest::State {
                session,
                turn,
                map,
                locks,
                done,
            } => self.state_locks(holder, (session, turn, map), locks, done)?,
            FileLockRequest::Alive(_) => FileLockAnswer::Done,
            FileLockRequest::List(_) => FileLockAnswer::Locks(Vec::new()),
        };
        Ok(Response::Lock(answer))
    }

    /// Answers when it is one's turn, or after a while. Who waits has one of its identity's requests: with a
    /// part of them taken by such, the rest is answered at once, and comes again.
    async fn await_turn(&self, holder: IdentityId, session: SessionId, place: LockPlace) -> FileLockAnswer {
        let now = self.world.mono();
        let most = (self.limits.requests / PARKING).max(1);
        let woken = {
            let mut locks = self.mounts.file_locks.borrow_mut();
            if !locks.parks(holder, most) {
                return locks.asks_again(session, &place, now);
            }
            let (wake, woken) = oneshot();
            if let Err(answer) = locks.park(session, &place, now, wake) {
                locks.parks_no_more(holder);
                return answer;
            }
            woken
        };
        first(woken, self.world.sleep(PARKED)).await;
        let mut locks = self.mounts.file_locks.borrow_mut();
        locks.parks_no_more(holder);
        locks.is_called(session, &place)
    }

    /// Whether a session under which files may be locked lives; that it asks is a sign of life.
    fn lock_session_lives(&self, session: SessionId) -> Result<(), Failure> {
        if !session.is_for_locks() {
            return Err(Failure::Refused(Refusal::Invalid));
        }
        let mut sessions = self.admission.sessions.borrow_mut();
        if !sessions.knows(session) {
            return Err(Failure::Refused(Refusal::SessionUnknown));
        }
        sessions.seen(session, self.world.mono());
        Ok(())
    }

    /// Whether who asks has opened the file.
    fn may_lock(&self, holder: IdentityId, lock: &WantedLock) -> Result<(), Failure> {
        let file = (lock.place.ino, lock.place.generation);
        if self.facts.keys.proved(lock.proof, file, holder) || plant!(G72) || plant!(H100) {
            return Ok(());
        }
        self.count(|s| s.forged += 1);
        Err(Failure::Refused(Refusal::BadHandle))
    }

    /// Whether the locks of a file are kept here.
    fn serves_file(&self, place: &LockPlace) -> Result<(), Failure> {
        let slot = place.ino.slot();
        if slot >= Slot(SLOTS) {
            return Err(Failure::Refused(Refusal::Invalid));
        }
        if !self.serves_slot(slot) {
            return Err(Failure::Refused(self.not_served(slot)));
        }
        Ok(())
    }

    /// The same for what changes or shows something: it must not be late, from before the slot came here.
    fn answers_for(&self, place: &LockPlace, map: MapEpoch) -> Result<(), Failure> {
        self.serves_file(place)?;
        if map < self.slots.gained.get() {
            return Err(Failure::Refused(Refusal::NotOwner(self.map().epoch)));
        }
        Ok(())
    }

    /// What is to be done now and then. Returns sessions that are to end: they live, and have not said what
    /// they hold for twice as long as one lives that says nothing at all.
    pub(crate) fn tidy_file_locks(&self) -> Vec<SessionId> {
        let now = self.world.mono();
        let mut locks = self.mounts.file_locks.borrow_mut();
        locks.tidy(now, &self.limits.file_locks);
        let most = self.limits.session_timeout * 2;
        locks.overdue(now, most, |slot| self.serves_slot(slot))
    }

    fn state_locks(
        &self,
        holder: IdentityId,
        (session, turn, map): (SessionId, u64, MapEpoch),
        stated: Vec<WantedLock>,
        done: bool,
    ) -> Result<FileLockAnswer, Failure> {
        if stated.len() > STATED {
            return Err(Failure::Refused(Refusal::Invalid));
        }
        // With an older map it does not know of all slots that are here.
        if map < self.slots.gained.get() {
            return Err(Failure::Refused(Refusal::NotOwner(self.map().epoch)));
        }
        for lock in &stated {
            self.may_lock(holder, lock)?;
            self.serves_file(&lock.place)?;
        }
        let bounds = self.limits.file_locks;
        let mut locks = self.mounts.file_locks.borrow_mut();
        let mut lost = Vec::new();
        for (lock, at) in stated.iter().zip(0..) {
            if !locks.state(session, lock, turn, &bounds) {
                lost.push(at);
            }
        }
        if done {
            locks.has_stated(session, |slot| self.serves_slot(slot));
        }
        Ok(FileLockAnswer::Lost(lost))
    }
}
