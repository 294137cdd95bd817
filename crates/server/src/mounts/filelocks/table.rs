//! Who holds and awaits which locks of programs, as far as this server answers for it. Pure: what time it is
//! is told, and who is to be woken is woken by dropping what it waits for.

use pando_env::sync::Sender;
use pando_types::{
    Generation, Held, Hold, IdentityId, Ino, LockFamily, Mono, SessionId, Slot, Span, Spans, plant,
};
use pando_wire::{FileLockAnswer, LockPlace, LockView, WantedLock};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Who has a lock: in which session, and as what the kernel there calls it.
type Owner = (SessionId, u64);
/// A file, and which family of its locks.
type Kept = (Ino, Generation, LockFamily);

/// Bounds of locks on files.
#[derive(Clone, Copy, Debug)]
pub struct FileLockBounds {
    /// Locks of a session; and so many owners, of locks or in queues.
    pub session: usize,
    /// Locks of a family on a file, and owners in its queue.
    pub file: usize,
    /// Who is in a queue and has not asked for so long has left.
    pub patience: Duration,
    /// For so long nobody who would wait overtakes one whose turn it is.
    pub reserved: Duration,
}

/// One in a queue.
struct Waiter {
    owner: Owner,
    span: Span,
    hold: Hold,
    pid: u32,
    asked: Mono,
    /// It is its turn since then.
    called: Option<Mono>,
    /// Dropped, it wakes whoever asks whether it is its turn.
    parked: Option<Sender<()>>,
}

#[derive(Default)]
struct Locked {
    held: Spans<Owner>,
    queue: Vec<Waiter>,
}

impl Locked {
    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.queue.is_empty()
    }

    fn waiter(&mut self, owner: Owner) -> Option<&mut Waiter> {
        self.queue.iter_mut().find(|w| w.owner == owner)
    }

    /// Calls those, in order, whom nothing is in the way of, and who are not in each other's way.
    fn call(&mut self, now: Mono) {
        let mut called: Spans<Owner> = Spans::default();
        for w in &mut self.queue {
            let free = self.held.against(w.owner, w.span, w.hold).next().is_none()
                && called.against(w.owner, w.span, w.hold).next().is_none();
            if free {
                w.called.get_or_insert(now);
                w.parked = None;
                called.set(w.owner, w.span, Some(w.hold), w.pid);
            } else {
                w.called = None;
            }
        }
    }
}

/// What is known of a session that has locks here, or had some.
#[derive(Default)]
struct Locker {
    /// No turn below this is taken for who has nothing here.
    floor: u64,
    /// The last turn of each that has something.
    turns: BTreeMap<LockPlace, u64>,
    /// How many locks it has.
    spans: usize,
}

/// What a session has not said yet.
#[derive(Default)]
struct Unsaid {
    /// What it held before this boot: waited for since then.
    all: Option<Mono>,
    /// What it held in slots that came from others: since when they are here, once they are.
    slots: BTreeMap<Slot, Option<Mono>>,
}

impl Unsaid {
    fn covers(&self, slot: Slot) -> bool {
        self.all.is_some() || self.slots.contains_key(&slot)
    }

    fn is_empty(&self) -> bool {
        self.all.is_none() && self.slots.is_empty()
    }
}

/// All of it.
#[derive(Default)]
pub(crate) struct FileLocks {
    files: BTreeMap<Kept, Locked>,
    sessions: BTreeMap<SessionId, Locker>,
    unsaid: BTreeMap<SessionId, Unsaid>,
    /// In which queues an owner is, or was a moment ago.
    waits: BTreeMap<Owner, BTreeSet<Kept>>,
    /// Who is not answered until it is its turn, by identity.
    parked: BTreeMap<IdentityId, usize>,
}

/// So many locks and waiters are looked at to find out whether somebody would wait for itself: all others
/// wait for the answer.
const LOOKED_AT: usize = 16_384;

fn kept(place: &LockPlace) -> Kept {
    (place.ino, place.generation, place.family)
}

fn view((ino, generation, family): Kept, held: &Held<Owner>) -> LockView {
    let (session, token) = held.owner;
    let place = LockPlace {
        ino,
        generation,
        family,
        token,
    };
    LockView::held(place, session, held)
}

impl FileLocks {
    /// Of a server that starts: these sessions had locks.
    pub fn after_restart(sessions: impl Iterator<Item = SessionId>, now: Mono) -> FileLocks {
        let unsaid = |id| {
            let unsaid = Unsaid {
                all: Some(now),
                slots: BTreeMap::new(),
            };
            (id, unsaid)
        };
        // Planted: what was held is forgotten.
        let sessions = sessions.filter(|_| !plant!(H170));
        FileLocks {
            unsaid: sessions.filter(|id| id.is_for_locks()).map(unsaid).collect(),
            ..FileLocks::default()
        }
    }

    /// A slot comes in which this session has locks.
    pub fn comes(&mut self, session: SessionId, slot: Slot) {
        self.unsaid.entry(session).or_default().slots.insert(slot, None);
    }

    /// Slots that came, or are to come, in which a session has not said what it holds.
    pub fn awaited(&self, session: SessionId) -> impl Iterator<Item = Slot> {
        let unsaid = self.unsaid.get(&session).into_iter();
        unsaid.flat_map(|u| u.slots.keys().copied())
    }

    /// Whether a session is known here only because a slot was to come, and has not.
    pub fn only_awaits(&self, session: SessionId, here: impl Fn(Slot) -> bool) -> bool {
        let awaits = |u: &Unsaid| u.all.is_none() && !u.slots.keys().any(|slot| here(*slot));
        !self.sessions.contains_key(&session) && self.unsaid.get(&session).is_some_and(awaits)
    }

    /// Whether somebody may hold locks in a slot that it has not stated: nobody gets new ones there.
    pub fn is_in_grace(&self, slot: Slot) -> bool {
        self.unsaid.values().any(|u| u.covers(slot))
    }

    /// Whether a session has still to state what it holds in a slot.
    pub fn may_state(&self, session: SessionId, slot: Slot) -> bool {
        let unsaid = self.unsaid.get(&session);
        unsaid.is_some_and(|u| u.covers(slot))
    }

    /// A session has stated all it holds in the slots that are here.
    pub fn has_stated(&mut self, session: SessionId, here: impl Fn(Slot) -> bool) {
        if let Some(unsaid) = self.unsaid.get_mut(&session) {
            unsaid.all = None;
            unsaid.slots.retain(|slot, _| !here(*slot));
            if unsaid.is_empty() {
                self.unsaid.remove(&session);
            }
        }
    }

    /// Sessions that have locks in these slots, or may have.
    pub fn lockers(&self, slots: &BTreeSet<Slot>) -> Vec<(Slot, SessionId)> {
        let mut lockers = BTreeSet::new();
        // Planted: the next owner knows of nobody.
        if plant!(H173) {
            return Vec::new();
        }
        for ((ino, ..), locked) in &self.files {
            let slot = ino.slot();
            if slots.contains(&slot) {
                lockers.extend(locked.held.iter().map(|h| (slot, h.owner.0)));
            }
        }
        for slot in slots {
            let may = self.unsaid.iter().filter(|(_, u)| u.covers(*slot));
            lockers.extend(may.map(|(session, _)| (*slot, *session)));
        }
        lockers.into_iter().collect()
    }

    /// A slot is another server's: it is told there. Who waits, asks there.
    pub fn left(&mut self, slot: Slot) {
        let gone: Vec<Kept> = self
            .files
            .keys()
            .filter(|k| k.0.slot() == slot)
            .copied()
            .collect();
        for file in gone {
            let Some(locked) = self.files.remove(&file) else {
                continue;
            };
            for held in locked.held.iter() {
                if let Some(locker) = self.sessions.get_mut(&held.owner.0) {
                    locker.spans = locker.spans.saturating_sub(1);
                }
            }
            for w in &locked.queue {
                self.waits_not(w.owner, &file);
            }
        }
        let here = |place: &LockPlace| place.ino.slot() != slot;
        for locker in self.sessions.values_mut() {
            let highest = locker
                .turns
                .iter()
                .filter(|(p, _)| !here(p))
                .map(|(_, t)| *t)
                .max();
            locker.floor = locker.floor.max(highest.unwrap_or(0));
            locker.turns.retain(|p, _| here(p));
        }
        for unsaid in self.unsaid.values_mut() {
            unsaid.slots.remove(&slot);
        }
        self.unsaid.retain(|_, u| !u.is_empty());
    }

    /// A session is over: so are its locks.
    pub fn end(&mut self, session: SessionId, now: Mono) {
        self.unsaid.remove(&session);
        self.waits.retain(|owner, _| owner.0 != session);
        // Planted: they stay.
        if self.sessions.remove(&session).is_none() || plant!(H172) {
            return;
        }
        self.files.retain(|_, locked| {
            let held = locked.held.remove(|owner| owner.0 == session);
            let waited = locked.queue.len();
            locked.queue.retain(|w| w.owner.0 != session);
            if held || locked.queue.len() != waited {
                locked.call(now);
            }
            !locked.is_empty()
        });
    }

    /// Sessions that give signs of life and have not said for so long what they hold: one client must not
    /// keep all others from locking, so they are to end.
    pub fn overdue(&mut self, now: Mono, most: Duration, here: impl Fn(Slot) -> bool) -> Vec<SessionId> {
        let late = |since: &Option<Mono>| since.is_some_and(|since| now.since(since) >= most);
        let mut overdue = Vec::new();
        for (session, unsaid) in &mut self.unsaid {
            for (slot, since) in &mut unsaid.slots {
                if since.is_none() && here(*slot) {
                    *since = Some(now);
                }
            }
            if late(&unsaid.all) || unsaid.slots.values().any(late) {
                overdue.push(*session);
            }
        }
        overdue
    }

    /// Those in queues who have not asked for long have left.
    pub fn tidy(&mut self, now: Mono, bounds: &FileLockBounds) {
        let mut left = Vec::new();
        for (file, locked) in &mut self.files {
            let silent = |w: &Waiter| now.since(w.asked) >= bounds.patience;
            left.extend(
                locked
                    .queue
                    .iter()
                    .filter(|w| silent(w))
                    .map(|w| (*file, w.owner)),
            );
            let waited = locked.queue.len();
            locked.queue.retain(|w| !silent(w));
            if locked.queue.len() != waited {
                locked.call(now);
            }
        }
        for ((ino, generation, family), (session, token)) in left {
            let place = LockPlace {
                ino,
                generation,
                family,
                token,
            };
            self.settle(session, &place);
        }
    }

    /// Takes a turn; false: a later one was seen.
    pub fn turn(&mut self, session: SessionId, place: &LockPlace, turn: u64) -> bool {
        let locker = self.sessions.entry(session).or_default();
        let last = locker.turns.get(place).copied().unwrap_or(locker.floor);
        if turn <= last && !plant!(H171) {
            return false;
        }
        locker.turns.insert(*place, turn.max(last));
        true
    }

    /// Forgets an owner that has nothing and waits for nothing, and a file nobody has locked; not that turns
    /// below its last one are over.
    fn settle(&mut self, session: SessionId, place: &LockPlace) {
        let file = kept(place);
        let owner = (session, place.token);
        let locked = self.files.get(&file);
        if locked.is_some_and(|l| l.queue.iter().any(|w| w.owner == owner)) {
            self.waits.entry(owner).or_default().insert(file);
            return;
        }
        self.waits_not(owner, &file);
        if let Some(locked) = self.files.get(&file) {
            let busy = locked.held.of(owner).next().is_some();
            if locked.is_empty() {
                self.files.remove(&file);
            }
            if busy {
                return;
            }
        }
        if let Some(locker) = self.sessions.get_mut(&session)
            && let Some(turn) = locker.turns.remove(place)
        {
            locker.floor = locker.floor.max(turn);
        }
    }

    fn waits_not(&mut self, owner: Owner, file: &Kept) {
        if let Some(files) = self.waits.get_mut(&owner) {
            files.remove(file);
            if files.is_empty() {
                self.waits.remove(&owner);
            }
        }
    }

    /// From now on an owner has this lock, or none, on these bytes. False: there would be too many.
    fn put(&mut self, session: SessionId, lock: &WantedLock, bounds: &FileLockBounds) -> bool {
        let owner = (session, lock.place.token);
        let held = &mut self.files.entry(kept(&lock.place)).or_default().held;
        let locker = self.sessions.entry(session).or_default();
        match held.growth(owner, lock.span, lock.hold) {
            Ok(more) => {
                let many = locker.spans + more > bounds.session && !plant!(G74);
                if many || held.len() + more > bounds.file {
                    return false;
                }
                locker.spans += more;
            }
            Err(fewer) => locker.spans = locker.spans.saturating_sub(fewer),
        }
        held.set(owner, lock.span, lock.hold, lock.pid);
        true
    }

    /// A setting whose turn was taken.
    pub fn set(
        &mut self,
        session: SessionId,
        lock: &WantedLock,
        wait: bool,
        now: Mono,
        bounds: &FileLockBounds,
    ) -> FileLockAnswer {
        let answer = self.try_set(session, lock, wait, now, bounds);
        self.settle(session, &lock.place);
        answer
    }

    fn try_set(
        &mut self,
        session: SessionId,
        lock: &WantedLock,
        wait: bool,
        now: Mono,
        bounds: &FileLockBounds,
    ) -> FileLockAnswer {
        let (file, owner) = (kept(&lock.place), (session, lock.place.token));
        let held = self.sessions.get(&session).map_or(0, |s| s.turns.len());
        let locked = self.files.entry(file).or_default();
        let Some(hold) = lock.hold else {
            // One piece may become two.
            if !self.put(session, lock, bounds) {
                return FileLockAnswer::TooMany;
            }
            if let Some(locked) = self.files.get_mut(&file) {
                locked.call(now);
            }
            return FileLockAnswer::Done;
        };
        let by = locked
            .held
            .against(owner, lock.span, hold)
            .next()
            .map(|by| view(file, by));
        let reserved = |w: &&Waiter| {
            let called = w.called.is_some_and(|at| now.since(at) < bounds.reserved);
            let meets = w.span.meets(lock.span) && (w.hold == Hold::Exclusive || hold == Hold::Exclusive);
            called && meets && w.owner != owner
        };
        // Whoever would wait does not overtake those before it; who would not, may: nothing is locked.
        let mine = locked.queue.iter().position(|w| w.owner == owner);
        let ahead = &locked.queue[..mine.unwrap_or(locked.queue.len())];
        let overtakes = wait && ahead.iter().any(|w| reserved(&w));
        if by.is_none() && !overtakes {
            let many = held > bounds.session && !plant!(G74);
            if many || !self.put(session, lock, bounds) {
                return FileLockAnswer::TooMany;
            }
            if let Some(locked) = self.files.get_mut(&file) {
                locked.queue.retain(|w| w.owner != owner);
                locked.call(now);
            }
            return FileLockAnswer::Done;
        }
        if !wait {
            return by.map_or(FileLockAnswer::NotQueued, FileLockAnswer::Taken);
        }
        if file.2 == LockFamily::Posix && self.would_wait_for_itself(file, owner, lock.span, hold) {
            let queue = self.files.get_mut(&file).map(|l| &mut l.queue);
            queue.into_iter().for_each(|q| q.retain(|w| w.owner != owner));
            return FileLockAnswer::Deadlock;
        }
        let locked = self.files.entry(file).or_default();
        match locked.waiter(owner) {
            Some(w) if (w.span, w.hold) == (lock.span, hold) => w.asked = now,
            _ => {
                locked.queue.retain(|w| w.owner != owner);
                if locked.queue.len() >= bounds.file || held > bounds.session {
                    return FileLockAnswer::TooMany;
                }
                locked.queue.push(Waiter {
                    owner,
                    span: lock.span,
                    hold,
                    pid: lock.pid,
                    asked: now,
                    called: None,
                    parked: None,
                });
            }
        }
        FileLockAnswer::Queued
    }

    /// Whether those in the way of a lock wait, by way of whomever, for who asks for it. Not, as far as is
    /// known, if there is too much to look at.
    fn would_wait_for_itself(&self, file: Kept, owner: Owner, span: Span, hold: Hold) -> bool {
        let mut left = LOOKED_AT;
        let mut seen: BTreeSet<Owner> = BTreeSet::new();
        let mut next: Vec<Owner> = Vec::new();
        let mut wanted = vec![(file, owner, span, hold)];
        loop {
            while let Some((file, who, span, hold)) = wanted.pop() {
                let Some(locked) = self.files.get(&file) else {
                    continue;
                };
                let Some(rest) = left.checked_sub(locked.held.len()) else {
                    return false;
                };
                left = rest;
                for held in locked.held.against(who, span, hold) {
                    if held.owner == owner {
                        return true;
                    }
                    if seen.insert(held.owner) {
                        next.push(held.owner);
                    }
                }
            }
            let Some(one) = next.pop() else { return false };
            for file in self.waits.get(&one).into_iter().flatten() {
                let Some(locked) = self.files.get(file).filter(|_| file.2 == LockFamily::Posix) else {
                    continue;
                };
                let Some(rest) = left.checked_sub(locked.queue.len()) else {
                    return false;
                };
                left = rest;
                let waits = locked.queue.iter().filter(|w| w.owner == one);
                wanted.extend(waits.map(|w| (*file, one, w.span, w.hold)));
            }
        }
    }

    /// Counts one that is not answered until it is its turn. False: of this identity there are too many.
    pub fn parks(&mut self, holder: IdentityId, most: usize) -> bool {
        let parked = self.parked.entry(holder).or_default();
        if *parked >= most {
            return false;
        }
        *parked += 1;
        true
    }

    /// One of them is answered.
    pub fn parks_no_more(&mut self, holder: IdentityId) {
        if let Some(parked) = self.parked.get_mut(&holder) {
            *parked -= 1;
            if *parked == 0 {
                self.parked.remove(&holder);
            }
        }
    }

    /// Whether it is somebody's turn, who still waits.
    pub fn asks_again(&mut self, session: SessionId, place: &LockPlace, now: Mono) -> FileLockAnswer {
        let locked = self.files.get_mut(&kept(place));
        if let Some(w) = locked.and_then(|l| l.waiter((session, place.token))) {
            w.asked = now;
        }
        self.is_called(session, place)
    }

    /// Leaves the queue.
    pub fn leave(&mut self, session: SessionId, place: &LockPlace, now: Mono) {
        if let Some(locked) = self.files.get_mut(&kept(place)) {
            locked.queue.retain(|w| w.owner != (session, place.token));
            locked.call(now);
        }
        self.settle(session, place);
    }

    /// Whoever waits is woken, by the sender being dropped, when it is its turn. `Err`: it is, or it is in no
    /// queue.
    pub fn park(
        &mut self,
        session: SessionId,
        place: &LockPlace,
        now: Mono,
        wake: Sender<()>,
    ) -> Result<(), FileLockAnswer> {
        let locked = self.files.get_mut(&kept(place));
        let waiter = locked.and_then(|l| l.waiter((session, place.token)));
        let waiter = waiter.ok_or(FileLockAnswer::NotQueued)?;
        waiter.asked = now;
        if waiter.called.is_some() {
            return Err(FileLockAnswer::Done);
        }
        waiter.parked = Some(wake);
        Ok(())
    }

    /// Whether it is somebody's turn.
    pub fn is_called(&self, session: SessionId, place: &LockPlace) -> FileLockAnswer {
        let locked = self.files.get(&kept(place));
        let waiter = locked.and_then(|l| l.queue.iter().find(|w| w.owner == (session, place.token)));
        match waiter {
            None => FileLockAnswer::NotQueued,
            Some(w) if w.called.is_some() => FileLockAnswer::Done,
            Some(_) => FileLockAnswer::Queued,
        }
    }

    /// What is in the way of a lock.
    pub fn test(&self, session: SessionId, lock: &WantedLock) -> FileLockAnswer {
        let file = kept(&lock.place);
        let held = self.files.get(&file).map(|l| &l.held);
        let owner = (session, lock.place.token);
        let by = held
            .zip(lock.hold)
            .and_then(|(held, hold)| held.against(owner, lock.span, hold).min_by_key(|h| h.span));
        by.map_or(FileLockAnswer::Free, |by| FileLockAnswer::Taken(view(file, by)))
    }

    /// A lock that is stated. Whether it is held from now on.
    pub fn state(
        &mut self,
        session: SessionId,
        lock: &WantedLock,
        turn: u64,
        bounds: &FileLockBounds,
    ) -> bool {
        let Some(hold) = lock.hold else { return true };
        let (file, owner) = (kept(&lock.place), (session, lock.place.token));
        let slot = lock.place.ino.slot();
        let may = self.may_state(session, slot);
        let locked = self.files.entry(file).or_default();
        let has = locked.held.pieces(owner, lock.span) == [(lock.span, Some(hold))];
        let free = locked.held.against(owner, lock.span, hold).next().is_none();
        let locker = self.sessions.get(&session);
        let few = locker.is_none_or(|s| s.turns.contains_key(&lock.place) || s.turns.len() < bounds.session);
        let good = (has || may && free && few) && self.put(session, lock, bounds);
        if good {
            let locker = self.sessions.entry(session).or_default();
            let last = locker.turns.entry(lock.place).or_default();
            *last = turn.max(*last);
        } else if self.files.get(&file).is_some_and(Locked::is_empty) {
            self.files.remove(&file);
        }
        good
    }

    /// Up to so many locks, held and waited for.
    pub fn list(&self, most: usize) -> Vec<LockView> {
        let all = self.files.iter().flat_map(|(file, locked)| {
            let waiting = locked.queue.iter().map(|w| {
                let held = Held {
                    owner: w.owner,
                    span: w.span,
                    hold: w.hold,
                    pid: w.pid,
                };
                LockView {
                    waiting: true,
                    ..view(*file, &held)
                }
            });
            locked.held.iter().map(|h| view(*file, h)).chain(waiting)
        });
        all.take(most).collect()
    }

    /// How many are held and how many wait.
    pub fn counts(&self) -> (usize, usize) {
        let sum = |(a, b), l: &Locked| (a + l.held.len(), b + l.queue.len());
        self.files.values().fold((0, 0), sum)
    }
}

#[cfg(test)]
mod tests;
