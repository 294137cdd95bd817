//! The lock table: exact keys, three modes, first come first served.
//!
//! Who waits acquires locks in one global order, (server, unit), sorted and deduplicated (H31), so that no
//! two operations can wait for each other. Who does not wait may take them in any order. What is locked by a
//! prepared transaction stays locked over a restart (`participant`).

use pando_env::LocalFuture;
use pando_env::sync::{Either, Sender, first, oneshot};
use pando_format::{Key, Mutation, NameHash, ReplyWrite};
use pando_types::{Part, Slot, plant};
use pando_wire::{LockMode, LockWant};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is locked: a record, or all records of a name bucket (entries and what is attached to them).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Unit {
    Key(Key),
    Bucket(Part, NameHash),
    /// The turn of changes of the cluster map.
    Map,
}

/// Who holds or waits: one operation or transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Holder(pub u64);

struct Waiter {
    holder: Holder,
    mode: LockMode,
    wake: Sender<()>,
}

#[derive(Default)]
struct State {
    /// Mostly one.
    holders: SmallVec<[(Holder, LockMode); 1]>,
    queue: VecDeque<Waiter>,
}

#[derive(Default)]
struct Table {
    units: BTreeMap<Unit, State>,
    /// Few each, and none twice.
    held: BTreeMap<Holder, Vec<Unit>>,
    next: u64,
    waits: u64,
}

impl State {
    /// Whether one who has no part in it would get it, and overtake nobody.
    fn is_free(&self, mode: LockMode) -> bool {
        self.queue.is_empty() && self.holders.iter().all(|(_, m)| compatible(*m, mode))
    }
}

impl Unit {
    /// The slot of what is locked, if it is of one.
    fn slot(&self) -> Option<Slot> {
        match self {
            Unit::Key(key) => Some(key.slot()),
            Unit::Bucket(part, _) => Some(part.slot()),
            Unit::Map => None,
        }
    }
}

/// The table.
#[derive(Default)]
pub(crate) struct Locks {
    table: RefCell<Table>,
    /// Slots in which nobody gets a lock: others serve them, or are about to.
    closed: RefCell<BTreeSet<Slot>>,
    /// Directories that are being read without locks on their buckets, with what somebody got exclusively
    /// meanwhile.
    watches: RefCell<BTreeMap<u64, (Part, BTreeSet<NameHash>)>>,
}

/// The lock was not to be had in time.
#[derive(Debug)]
pub(crate) struct Busy;

fn compatible(a: LockMode, b: LockMode) -> bool {
    a == b && a != LockMode::Exclusive
}

/// The unit and mode of a want; attachments are covered by their entry's bucket.
pub(crate) fn unit_of(want: &LockWant) -> Option<(Unit, LockMode)> {
    match want {
        LockWant::Key(key, mode) => Some((Unit::Key(key.clone()), *mode)),
        LockWant::Bucket(part, hash, mode) => Some((Unit::Bucket(*part, *hash), *mode)),
        LockWant::Attachments(_) => None,
    }
}

/// What a mutation must have locked.
pub(crate) fn unit_of_mutation(m: &Mutation) -> Option<(Unit, LockMode)> {
    match m {
        Mutation::Touch { part, .. } => Some((Unit::Key(Key::Touch(*part)), LockMode::Increment)),
        Mutation::Insert { key, .. } | Mutation::Update { key, .. } | Mutation::Delete { key } => match key {
            Key::Entry { part, hash, .. } => Some((Unit::Bucket(*part, *hash), LockMode::Exclusive)),
            Key::Attachment { .. } | Key::Reply(..) | Key::Garbage(..) => None,
            key => Some((Unit::Key(key.clone()), LockMode::Exclusive)),
        },
    }
}

/// What is locked from a vote to the decision: what changes, and the reply record, for which another
/// coordinator may look when the request is repeated.
pub(crate) fn units_of<'a>(
    mutations: &'a [Mutation],
    reply: Option<&'a ReplyWrite>,
) -> impl Iterator<Item = (Unit, LockMode)> + 'a {
    let reply = reply.map(|r| (Unit::Key(r.key.clone()), LockMode::Exclusive));
    mutations.iter().filter_map(unit_of_mutation).chain(reply)
}

/// Planted: who reads a name locks it not.
fn is_left_out((unit, mode): &(Unit, LockMode)) -> bool {
    plant!(H29) && *mode == LockMode::Shared && matches!(unit, Unit::Bucket(..))
}

/// One unit each, in order, with the strongest mode wanted (H31).
pub(crate) fn in_order(wants: impl IntoIterator<Item = (Unit, LockMode)>) -> Vec<(Unit, LockMode)> {
    if plant!(H31) {
        return wants.into_iter().collect();
    }
    let wants = wants.into_iter().filter(|want| !is_left_out(want));
    let mut units: Vec<(Unit, LockMode)> = wants.collect();
    units.sort_by(|(a, _), (b, _)| a.cmp(b));
    units.dedup_by(|(next, next_mode), (unit, mode)| {
        if next == unit && next_mode != mode {
            *mode = LockMode::Exclusive;
        }
        next == unit
    });
    units
}

impl Locks {
    /// A new holder without locks.
    pub fn holder(&self) -> Holder {
        let mut t = self.table.borrow_mut();
        t.next += 1;
        Holder(t.next)
    }

    /// The buckets of a directory that somebody holds exclusively.
    pub fn being_changed(&self, part: Part) -> BTreeSet<NameHash> {
        let t = self.table.borrow();
        let all = Unit::Bucket(part, NameHash(0))..=Unit::Bucket(part, NameHash::MAX);
        let exclusive = |s: &State| s.holders.iter().any(|(_, mode)| *mode == LockMode::Exclusive);
        let changed = t.units.range(all).filter(|(_, s)| exclusive(s));
        changed
            .filter_map(|(unit, _)| match unit {
                Unit::Bucket(_, hash) => Some(*hash),
                _ => None,
            })
            .collect()
    }

    /// Whether anybody but `holder` has a lock on a bucket of a part from `first` to `last`.
    pub fn any_in(&self, part: Part, (first, last): (NameHash, NameHash), holder: Holder) -> bool {
        let t = self.table.borrow();
        let mut units = t
            .units
            .range(Unit::Bucket(part, first)..=Unit::Bucket(part, last));
        units.any(|(_, s)| s.holders.iter().any(|(h, _)| *h != holder))
    }

    /// From now on it is noted which buckets of a directory somebody has exclusively.
    pub fn watch(&self, part: Part) -> Watch<'_> {
        let changed = self.being_changed(part);
        let mut watches = self.watches.borrow_mut();
        let number = watches.last_key_value().map_or(0, |(last, _)| last + 1);
        watches.insert(number, (part, changed));
        Watch { locks: self, number }
    }

    /// Somebody got a lock.
    fn note(&self, unit: &Unit, mode: LockMode) {
        let (Unit::Bucket(dir, hash), LockMode::Exclusive) = (unit, mode) else {
            return;
        };
        for (watched, changed) in self.watches.borrow_mut().values_mut() {
            if watched == dir {
                changed.insert(*hash);
            }
        }
    }

    /// These were had in one instant by somebody who took none of them.
    pub fn pass(&self, wants: &[LockWant]) {
        if !self.watches.borrow().is_empty() {
            let units = wants.iter().filter_map(unit_of);
            units.for_each(|(unit, mode)| self.note(&unit, mode));
        }
    }

    /// Whether anybody gets locks in a slot. Who waits in one that is closed waits no longer; who has a lock
    /// keeps it.
    pub fn set_open(&self, slot: Slot, open: bool) {
        if open {
            self.closed.borrow_mut().remove(&slot);
        } else if self.closed.borrow_mut().insert(slot) {
            let mut waiters = Vec::new();
            for (unit, state) in &mut self.table.borrow_mut().units {
                if unit.slot() == Some(slot) {
                    waiters.extend(state.queue.drain(..));
                }
            }
            // Dropped outside the table: who waited is woken, and finds that there is nothing to wait for.
            drop(waiters);
        }
    }

    fn is_closed(&self, unit: &Unit) -> bool {
        let closed = self.closed.borrow();
        !closed.is_empty() && unit.slot().is_some_and(|slot| closed.contains(&slot))
    }

    /// Which of these slots somebody has a lock in.
    pub fn busy(&self, slots: &BTreeSet<Slot>) -> BTreeSet<Slot> {
        let t = self.table.borrow();
        let held = t.units.iter().filter(|(_, s)| !s.holders.is_empty());
        held.filter_map(|(unit, _)| unit.slot().filter(|s| slots.contains(s)))
            .collect()
    }

    /// Whether somebody has a lock in one of these slots.
    pub fn holds_in(&self, holder: Holder, slots: &BTreeSet<Slot>) -> bool {
        let t = self.table.borrow();
        let mut units = t.held.get(&holder).into_iter().flatten();
        units.any(|unit| unit.slot().is_some_and(|s| slots.contains(&s)))
    }

    /// Whether all of `wants` would be had by somebody who has no lock and waits for nobody. Who looks at
    /// what they lock before anybody else's turn needs no more than that.
    pub fn are_free(&self, wants: &[LockWant]) -> bool {
        let t = self.table.borrow();
        let mut units = wants.iter().filter_map(unit_of).filter(|want| !is_left_out(want));
        units.all(|(unit, mode)| {
            let free = t.units.get(&unit).is_none_or(|state| state.is_free(mode));
            free && (!self.is_closed(&unit) || plant!(H41))
        })
    }

    /// Takes a lock that is free for `holder` now.
    fn try_one(&self, holder: Holder, unit: &Unit, mode: LockMode) -> bool {
        if self.is_closed(unit) && !plant!(H41) {
            return false;
        }
        let mut t = self.table.borrow_mut();
        let state = t.units.entry(unit.clone()).or_default();
        let free = state.is_free(mode);
        if free {
            state.holders.push((holder, mode));
            t.held.entry(holder).or_default().push(unit.clone());
            self.note(unit, mode);
        }
        free
    }

    /// Takes all of `wants` that `holder` has not yet, if none is taken and nobody waits for one. On `Busy`
    /// what was taken stays taken: the caller releases the holder.
    pub fn try_all(&self, holder: Holder, wants: &[(Unit, LockMode)]) -> Result<(), Busy> {
        let taken = |(unit, mode): &(Unit, LockMode)| match self.mode_of(holder, unit) {
            // What is held to be shared is not to be had alone: others may share it.
            Some(held) => held == *mode || held == LockMode::Exclusive,
            None => self.try_one(holder, unit, *mode),
        };
        if wants.iter().all(taken) {
            Ok(())
        } else {
            Err(Busy)
        }
    }

    /// How `holder` has a lock, if it does.
    fn mode_of(&self, holder: Holder, unit: &Unit) -> Option<LockMode> {
        let t = self.table.borrow();
        let held = t.units.get(unit)?.holders.iter().find(|(h, _)| *h == holder)?;
        Some(held.1)
    }

    /// Takes all of `wants` that `holder` has not yet, in the order given, waiting at most until `timer` ends
    /// in all. On `Busy` what was taken stays taken: the caller releases the holder.
    pub async fn acquire(
        &self,
        holder: Holder,
        wants: Vec<(Unit, LockMode)>,
        mut timer: impl FnMut() -> LocalFuture<()>,
    ) -> Result<(), Busy> {
        let mut clock: Option<LocalFuture<()>> = None;
        for (unit, mode) in wants {
            if self.is_closed(&unit) && !plant!(H41) {
                return Err(Busy);
            }
            if (!plant!(H31) && self.holds(holder, &unit)) || self.try_one(holder, &unit, mode) {
                continue;
            }
            let (wake, woken) = oneshot();
            {
                let mut t = self.table.borrow_mut();
                t.waits += 1;
                let state = t.units.entry(unit.clone()).or_default();
                state.queue.push_back(Waiter { holder, mode, wake });
            }
            let guard = Leave {
                locks: self,
                holder,
                unit: &unit,
            };
            let deadline = clock.get_or_insert_with(&mut timer);
            match first(woken, deadline).await {
                Either::Left(Some(())) => std::mem::forget(guard),
                Either::Left(None) | Either::Right(()) => return Err(Busy),
            }
        }
        Ok(())
    }

    /// Whether `holder` has this lock, in whatever mode.
    pub fn holds(&self, holder: Holder, unit: &Unit) -> bool {
        self.table
            .borrow()
            .held
            .get(&holder)
            .is_some_and(|h| h.contains(unit))
    }

    /// Takes locks that nobody else can have: at recovery, before anything is served.
    pub fn restore(&self, holder: Holder, wants: Vec<(Unit, LockMode)>) {
        for (unit, mode) in wants {
            if !self.holds(holder, &unit) {
                assert!(
                    self.try_one(holder, &unit, mode),
                    "two prepared transactions share {unit:?}"
                );
            }
        }
    }

    /// What `from` has to itself, `to` has from now on, to be shared with other readers.
    pub fn hand_down(&self, from: Holder, to: Holder, unit: &Unit) {
        {
            let mut t = self.table.borrow_mut();
            if let Some(state) = t.units.get_mut(unit) {
                for held in state.holders.iter_mut().filter(|(h, _)| *h == from) {
                    *held = (to, LockMode::Shared);
                }
            }
            if let Some(units) = t.held.get_mut(&from) {
                units.retain(|u| u != unit);
            }
            let units = t.held.entry(to).or_default();
            if !units.contains(unit) {
                units.push(unit.clone());
            }
        }
        self.grant(unit);
    }

    /// Gives up everything `holder` has.
    pub fn release(&self, holder: Holder) {
        let mut units = self.table.borrow_mut().held.remove(&holder).unwrap_or_default();
        // Who waits is let in in the same order, in whichever they were taken.
        units.sort_unstable();
        for unit in units {
            let mut t = self.table.borrow_mut();
            let Entry::Occupied(mut at) = t.units.entry(unit) else {
                continue;
            };
            let state = at.get_mut();
            state.holders.retain(|(h, _)| *h != holder);
            if state.queue.is_empty() {
                if state.holders.is_empty() {
                    at.remove();
                }
                continue;
            }
            let unit = at.key().clone();
            drop(t);
            self.grant(&unit);
        }
    }

    /// Lets in whoever waits first, and those behind who can share with it.
    fn grant(&self, unit: &Unit) {
        loop {
            let mut t = self.table.borrow_mut();
            let Some(state) = t.units.get_mut(unit) else {
                return;
            };
            let Some(next) = state.queue.front() else {
                if state.holders.is_empty() {
                    t.units.remove(unit);
                }
                return;
            };
            if !state.holders.iter().all(|(_, m)| compatible(*m, next.mode)) {
                return;
            }
            let Some(waiter) = state.queue.pop_front() else {
                return;
            };
            state.holders.push((waiter.holder, waiter.mode));
            t.held.entry(waiter.holder).or_default().push(unit.clone());
            self.note(unit, waiter.mode);
            drop(t);
            if !waiter.wake.send(()) {
                // Its future is gone, with its guard run already or about to run.
                self.drop_one(waiter.holder, unit);
            }
        }
    }

    fn drop_one(&self, holder: Holder, unit: &Unit) {
        let mut t = self.table.borrow_mut();
        if let Some(state) = t.units.get_mut(unit) {
            state.holders.retain(|(h, _)| *h != holder);
        }
        if let Some(h) = t.held.get_mut(&holder) {
            h.retain(|u| u != unit);
            if h.is_empty() {
                t.held.remove(&holder);
            }
        }
    }

    /// Locks held, for status and the simulator's check at rest.
    pub fn held(&self) -> usize {
        self.table.borrow().held.values().map(Vec::len).sum()
    }

    /// Times anybody had to wait.
    pub fn waits(&self) -> u64 {
        self.table.borrow().waits
    }
}

/// A directory that is being read without locks on its buckets.
pub(crate) struct Watch<'a> {
    locks: &'a Locks,
    number: u64,
}

impl Watch<'_> {
    /// The buckets that somebody had exclusively when this began, or got since.
    pub fn changed(self) -> BTreeSet<NameHash> {
        let mut watches = self.locks.watches.borrow_mut();
        watches
            .get_mut(&self.number)
            .map(|(_, changed)| std::mem::take(changed))
            .unwrap_or_default()
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.locks.watches.borrow_mut().remove(&self.number);
    }
}

/// Leaves a queue when the waiting future ends without the lock.
struct Leave<'a> {
    locks: &'a Locks,
    holder: Holder,
    unit: &'a Unit,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        {
            let mut t = self.locks.table.borrow_mut();
            if let Some(state) = t.units.get_mut(self.unit) {
                state.queue.retain(|w| w.holder != self.holder);
            }
        }
        self.locks.grant(self.unit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::DirId;
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};

    fn unit(n: u128) -> Unit {
        Unit::Key(Key::Head(DirId(n).into()))
    }

    fn poll<F: Future>(f: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        f.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn never() -> LocalFuture<()> {
        Box::pin(std::future::pending())
    }

    #[test]
    fn a_watch_sees_what_came_and_went() {
        let locks = Locks::default();
        let bucket = |dir, hash| {
            (
                Unit::Bucket(DirId(dir).into(), NameHash(hash)),
                LockMode::Exclusive,
            )
        };
        let (before, during) = (locks.holder(), locks.holder());
        locks.try_all(before, &[bucket(1, 10)]).unwrap();
        let watch = locks.watch(DirId(1).into());
        locks.release(before);
        locks.try_all(during, &[bucket(1, 20), bucket(2, 30)]).unwrap();
        locks.release(during);
        let shared = (Unit::Bucket(DirId(1).into(), NameHash(40)), LockMode::Shared);
        locks.try_all(during, &[shared]).unwrap();
        assert_eq!(watch.changed(), [10, 20].map(NameHash).into());
        assert!(locks.watches.borrow().is_empty());
    }

    #[test]
    fn one_writer_many_readers_in_turn() {
        let locks = Rc::new(Locks::default());
        let (a, b, c) = (locks.holder(), locks.holder(), locks.holder());
        let take = |h, mode| {
            let locks = locks.clone();
            Box::pin(async move { locks.acquire(h, vec![(unit(1), mode)], never).await })
        };
        assert!(poll(take(a, LockMode::Shared).as_mut()).is_ready());
        let mut writer = take(b, LockMode::Exclusive);
        assert!(poll(writer.as_mut()).is_pending());
        // A reader that comes after a waiting writer waits behind it.
        let mut reader = take(c, LockMode::Shared);
        assert!(poll(reader.as_mut()).is_pending());
        locks.release(a);
        assert!(poll(writer.as_mut()).is_ready());
        assert!(poll(reader.as_mut()).is_pending());
        locks.release(b);
        assert!(poll(reader.as_mut()).is_ready());
        locks.release(c);
        assert_eq!(locks.held(), 0);
    }

    #[test]
    fn a_dropped_waiter_lets_the_next_in() {
        let locks = Rc::new(Locks::default());
        let (a, b, c) = (locks.holder(), locks.holder(), locks.holder());
        let take = |h, mode| {
            let locks = locks.clone();
            Box::pin(async move { locks.acquire(h, vec![(unit(1), mode)], never).await })
        };
        assert!(poll(take(a, LockMode::Shared).as_mut()).is_ready());
        let mut writer = take(b, LockMode::Exclusive);
        assert!(poll(writer.as_mut()).is_pending());
        let mut reader = take(c, LockMode::Shared);
        assert!(poll(reader.as_mut()).is_pending());
        drop(writer);
        assert!(poll(reader.as_mut()).is_ready());
    }

    #[test]
    fn who_does_not_wait_overtakes_nobody_and_gets_no_more_than_it_shares() {
        let locks = Rc::new(Locks::default());
        let (a, b, c) = (locks.holder(), locks.holder(), locks.holder());
        let shared = [(unit(1), LockMode::Shared)];
        let alone = [(unit(1), LockMode::Exclusive)];
        assert!(locks.try_all(a, &shared).is_ok());
        assert!(locks.try_all(a, &shared).is_ok());
        assert!(locks.try_all(b, &alone).is_err() && locks.try_all(a, &alone).is_err());
        let writer = locks.clone();
        let mut writer = Box::pin(async move { writer.acquire(b, alone.to_vec(), never).await });
        assert!(poll(writer.as_mut()).is_pending());
        assert!(locks.try_all(c, &shared).is_err());
        locks.release(a);
        assert!(poll(writer.as_mut()).is_ready());
        assert!(locks.try_all(b, &shared).is_ok(), "what it has alone it may read");
        locks.release(b);
        assert_eq!((locks.held(), locks.try_all(c, &shared).is_ok()), (0, true));
    }

    #[test]
    fn a_closed_slot_gives_no_locks_and_who_has_one_keeps_it() {
        let locks = Rc::new(Locks::default());
        let (a, b, c) = (locks.holder(), locks.holder(), locks.holder());
        let slots = BTreeSet::from([Part::whole(DirId(1)).slot()]);
        let take = |h| {
            let locks = locks.clone();
            Box::pin(async move {
                locks
                    .acquire(h, vec![(unit(1), LockMode::Exclusive)], never)
                    .await
            })
        };
        assert!(poll(take(a).as_mut()).is_ready());
        let mut waits = take(b);
        assert!(poll(waits.as_mut()).is_pending());
        locks.set_open(Part::whole(DirId(1)).slot(), false);
        assert!(matches!(poll(waits.as_mut()), Poll::Ready(Err(Busy))));
        assert!(matches!(poll(take(c).as_mut()), Poll::Ready(Err(Busy))));
        assert!(locks.try_all(c, &[(unit(1), LockMode::Shared)]).is_err());
        assert_eq!(locks.busy(&slots), slots);
        assert!(locks.holds_in(a, &slots) && !locks.holds_in(b, &slots));
        locks.release(a);
        assert!(locks.busy(&slots).is_empty());
        assert!(
            locks.try_all(c, &[(unit(1), LockMode::Shared)]).is_err(),
            "free, and closed"
        );
        locks.set_open(Part::whole(DirId(1)).slot(), true);
        assert!(matches!(poll(take(c).as_mut()), Poll::Ready(Ok(()))));
    }

    #[test]
    fn what_is_handed_down_is_shared_with_readers_and_outlives_who_had_it() {
        let locks = Rc::new(Locks::default());
        let (maker, debt, c, d) = (locks.holder(), locks.holder(), locks.holder(), locks.holder());
        let take = |h, mode| {
            let locks = locks.clone();
            Box::pin(async move { locks.acquire(h, vec![(unit(1), mode)], never).await })
        };
        let both = [(unit(1), LockMode::Exclusive), (unit(2), LockMode::Shared)];
        locks.try_all(maker, &both).expect("free");
        let mut reader = take(c, LockMode::Shared);
        assert!(poll(reader.as_mut()).is_pending());
        locks.hand_down(maker, debt, &unit(1));
        assert!(poll(reader.as_mut()).is_ready(), "readers are let in");
        locks.release(maker);
        locks.release(c);
        let mut writer = take(d, LockMode::Exclusive);
        assert!(poll(writer.as_mut()).is_pending(), "and nobody else");
        locks.release(debt);
        assert!(poll(writer.as_mut()).is_ready());
        locks.release(d);
        assert_eq!(locks.held(), 0);
    }

    #[test]
    fn two_wants_of_one_unit_are_one_lock() {
        let wants = in_order([
            (unit(2), LockMode::Shared),
            (unit(1), LockMode::Shared),
            (unit(2), LockMode::Exclusive),
            (unit(1), LockMode::Shared),
        ]);
        assert_eq!(
            wants,
            vec![(unit(1), LockMode::Shared), (unit(2), LockMode::Exclusive)]
        );
    }
}
