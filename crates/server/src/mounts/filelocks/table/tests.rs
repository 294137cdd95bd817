//! What one table of locks promises.

use super::*;
use pando_env::sync::oneshot;
use pando_types::IdentityId;
use pando_wire::Handle;

const BOUNDS: FileLockBounds = FileLockBounds {
    session: 8,
    file: 16,
    patience: Duration::from_secs(10),
    reserved: Duration::from_secs(1),
};
const ALL: Span = Span::ALL;

fn session(n: u64) -> SessionId {
    SessionId::for_locks(IdentityId(1), n)
}

fn lock(file: u64, token: u64, span: Span, hold: Option<Hold>) -> WantedLock {
    WantedLock {
        place: LockPlace {
            ino: Ino::new(Slot(3), file),
            generation: Generation(1),
            family: LockFamily::Posix,
            token,
        },
        proof: Handle(0),
        span,
        hold,
        pid: 7,
    }
}

struct World {
    locks: FileLocks,
    turn: u64,
    now: Mono,
}

impl World {
    fn new() -> World {
        World {
            locks: FileLocks::default(),
            turn: 0,
            now: Mono(0),
        }
    }

    fn set(&mut self, who: u64, wanted: &WantedLock, wait: bool) -> FileLockAnswer {
        self.turn += 1;
        assert!(self.locks.turn(session(who), &wanted.place, self.turn));
        self.locks.set(session(who), wanted, wait, self.now, &BOUNDS)
    }
}

const EX: Option<Hold> = Some(Hold::Exclusive);
const SH: Option<Hold> = Some(Hold::Shared);

fn bytes(first: u64, last: u64) -> Span {
    Span { first, last }
}

#[test]
fn who_waits_is_called_in_order() {
    let mut w = World::new();
    let first = lock(5, 1, ALL, EX);
    assert_eq!(w.set(1, &first, false), FileLockAnswer::Done);
    assert!(matches!(w.set(2, &first, false), FileLockAnswer::Taken(_)));
    assert_eq!(w.set(2, &first, true), FileLockAnswer::Queued);
    assert_eq!(w.set(3, &first, true), FileLockAnswer::Queued);
    let (wake, _woken) = oneshot();
    assert_eq!(w.locks.park(session(2), &first.place, w.now, wake), Ok(()));
    assert_eq!(
        w.locks.is_called(session(2), &first.place),
        FileLockAnswer::Queued
    );
    assert_eq!(w.set(1, &lock(5, 1, ALL, None), false), FileLockAnswer::Done);
    assert_eq!(w.locks.is_called(session(2), &first.place), FileLockAnswer::Done);
    assert_eq!(
        w.locks.is_called(session(3), &first.place),
        FileLockAnswer::Queued
    );
    // Whoever waits does not overtake.
    assert_eq!(w.set(3, &first, true), FileLockAnswer::Queued);
    assert_eq!(w.set(1, &first, true), FileLockAnswer::Queued);
    assert_eq!(w.set(2, &first, true), FileLockAnswer::Done);
    assert_eq!(w.set(2, &lock(5, 1, ALL, None), false), FileLockAnswer::Done);
    // One that does not come holds nobody up for long.
    assert_eq!(w.set(1, &first, true), FileLockAnswer::Queued);
    w.now = w.now.after(BOUNDS.reserved);
    assert_eq!(w.set(1, &first, true), FileLockAnswer::Done);
    w.now = w.now.after(BOUNDS.patience);
    w.locks.tidy(w.now, &BOUNDS);
    assert_eq!(w.locks.counts(), (1, 0));
}

#[test]
fn turns_that_are_over_are_refused_whatever_was_forgotten() {
    let mut w = World::new();
    let one = lock(5, 1, ALL, EX);
    assert!(w.locks.turn(session(1), &one.place, 4));
    w.locks.set(session(1), &one, false, w.now, &BOUNDS);
    assert!(!w.locks.turn(session(1), &one.place, 4));
    assert!(w.locks.turn(session(1), &one.place, 6));
    w.locks
        .set(session(1), &lock(5, 1, ALL, None), false, w.now, &BOUNDS);
    assert!(w.locks.files.is_empty());
    // A late copy of the first.
    assert!(!w.locks.turn(session(1), &one.place, 4));
    assert!(!w.locks.turn(session(1), &lock(6, 2, ALL, EX).place, 5));
    assert!(w.locks.turn(session(1), &one.place, 7));
}

#[test]
fn waiting_in_a_circle_is_told() {
    let mut w = World::new();
    assert_eq!(
        w.set(1, &lock(5, 1, bytes(0, 9), EX), false),
        FileLockAnswer::Done
    );
    assert_eq!(
        w.set(2, &lock(6, 2, bytes(0, 9), EX), false),
        FileLockAnswer::Done
    );
    assert_eq!(
        w.set(3, &lock(7, 3, bytes(0, 9), SH), false),
        FileLockAnswer::Done
    );
    assert_eq!(
        w.set(1, &lock(6, 1, bytes(5, 5), SH), true),
        FileLockAnswer::Queued
    );
    assert_eq!(
        w.set(2, &lock(7, 2, bytes(5, 5), EX), true),
        FileLockAnswer::Queued
    );
    assert_eq!(
        w.set(3, &lock(5, 3, bytes(5, 5), SH), true),
        FileLockAnswer::Deadlock
    );
    assert_eq!(
        w.set(3, &lock(5, 3, bytes(10, 15), SH), true),
        FileLockAnswer::Done
    );
}

#[test]
fn upgrades_wait_for_others_and_keep_what_they_have() {
    let mut w = World::new();
    assert_eq!(w.set(1, &lock(5, 1, ALL, SH), false), FileLockAnswer::Done);
    assert_eq!(w.set(2, &lock(5, 2, ALL, SH), false), FileLockAnswer::Done);
    assert_eq!(w.set(1, &lock(5, 1, ALL, EX), true), FileLockAnswer::Queued);
    assert_eq!(w.locks.counts(), (2, 1));
    assert_eq!(w.set(2, &lock(5, 2, ALL, EX), true), FileLockAnswer::Deadlock);
    w.locks.end(session(2), w.now);
    assert_eq!(w.set(1, &lock(5, 1, ALL, EX), true), FileLockAnswer::Done);
    assert!(matches!(
        w.locks.test(session(2), &lock(5, 2, bytes(3, 3), SH)),
        FileLockAnswer::Taken(_)
    ));
    w.locks.leave(session(1), &lock(5, 1, ALL, SH).place, w.now);
    assert_eq!(w.locks.counts(), (1, 0));
}

#[test]
fn nobody_gets_a_lock_before_all_have_said_what_they_hold() {
    let mut locks = FileLocks::after_restart([session(1), session(2), SessionId(9)].into_iter(), Mono(0));
    let (slot, other) = (Slot(3), Slot(4));
    assert!(locks.is_in_grace(slot) && locks.is_in_grace(other));
    assert!(locks.state(session(1), &lock(5, 1, ALL, EX), 1, &BOUNDS));
    // Two cannot have had it.
    assert!(!locks.state(session(2), &lock(5, 1, ALL, SH), 1, &BOUNDS));
    locks.has_stated(session(1), |_| true);
    assert!(locks.is_in_grace(slot));
    locks.end(session(2), Mono(0));
    assert!(!locks.is_in_grace(slot));
    // What was stated is held; nothing more can be.
    assert!(locks.state(session(1), &lock(5, 1, ALL, EX), 2, &BOUNDS));
    assert!(!locks.state(session(1), &lock(6, 1, ALL, EX), 2, &BOUNDS));
    // It goes, and somebody comes.
    assert_eq!(locks.lockers(&[slot, other].into()), [(slot, session(1))]);
    locks.left(slot);
    assert_eq!(locks.counts(), (0, 0));
    assert!(!locks.turn(session(1), &lock(5, 1, ALL, EX).place, 2));
    locks.comes(session(1), slot);
    assert!(locks.is_in_grace(slot) && !locks.is_in_grace(other));
    locks.has_stated(session(1), |s| s == other);
    assert!(locks.is_in_grace(slot));
    locks.has_stated(session(1), |s| s == slot);
    assert!(!locks.is_in_grace(slot));
}

#[test]
fn nobody_is_waited_for_for_ever() {
    let mut locks = FileLocks::after_restart([session(1)].into_iter(), Mono(0));
    let (slot, most) = (Slot(3), Duration::from_secs(60));
    let at = |n| Mono(0).after(most * n / 2);
    assert!(locks.overdue(at(1), most, |_| true).is_empty());
    assert_eq!(locks.overdue(at(2), most, |_| true), [session(1)]);
    locks.end(session(1), at(2));
    // What it says then comes too late.
    assert!(!locks.is_in_grace(slot));
    assert!(!locks.state(session(1), &lock(5, 1, ALL, EX), 1, &BOUNDS));
    // A slot that is still to come is waited for from when it is here.
    locks.comes(session(1), slot);
    assert!(locks.overdue(at(9), most, |_| false).is_empty());
    assert!(locks.overdue(at(9), most, |_| true).is_empty());
    assert!(locks.overdue(at(10), most, |_| true).is_empty());
    assert_eq!(locks.overdue(at(11), most, |_| true), [session(1)]);
}

#[test]
fn locks_are_bounded() {
    let mut w = World::new();
    for n in 0..BOUNDS.session as u64 {
        assert_eq!(w.set(1, &lock(n + 2, 1, ALL, SH), false), FileLockAnswer::Done);
    }
    assert_eq!(w.set(1, &lock(100, 1, ALL, SH), false), FileLockAnswer::TooMany);
    let mut given = 0;
    while w.set(2, &lock(50, 1, bytes(given * 2, given * 2), SH), false) == FileLockAnswer::Done {
        given += 1;
    }
    assert!(given < BOUNDS.file as u64);
    // What is given up makes room.
    assert_eq!(w.set(1, &lock(2, 1, ALL, None), false), FileLockAnswer::Done);
    assert_eq!(w.set(1, &lock(100, 1, ALL, SH), false), FileLockAnswer::Done);
}

#[test]
fn what_splits_is_bounded_too() {
    let bounds = FileLockBounds {
        session: 6,
        file: 4,
        ..BOUNDS
    };
    let (mut locks, mut turn) = (FileLocks::default(), 0);
    let mut set = |file, span, hold| {
        let wanted = lock(file, 1, span, hold);
        turn += 1;
        assert!(locks.turn(session(1), &wanted.place, turn));
        let answer = locks.set(session(1), &wanted, false, Mono(0), &bounds);
        (answer, locks.counts().0, locks.sessions[&session(1)].spans)
    };
    assert_eq!(set(5, ALL, EX), (FileLockAnswer::Done, 1, 1));
    assert_eq!(set(5, bytes(10, 10), None), (FileLockAnswer::Done, 2, 2));
    assert_eq!(set(5, bytes(20, 20), SH), (FileLockAnswer::Done, 4, 4));
    // The file has as many as it may have. What is told once more is none more.
    assert_eq!(set(5, bytes(30, 30), None), (FileLockAnswer::TooMany, 4, 4));
    assert_eq!(set(5, bytes(20, 20), SH), (FileLockAnswer::Done, 4, 4));
    assert_eq!(set(5, bytes(0, 9), None), (FileLockAnswer::Done, 3, 3));
    assert_eq!(set(6, ALL, SH), (FileLockAnswer::Done, 4, 4));
    assert_eq!(set(6, bytes(1, 1), EX), (FileLockAnswer::Done, 6, 6));
    // So has the session.
    assert_eq!(set(6, bytes(5, 5), None), (FileLockAnswer::TooMany, 6, 6));
    assert_eq!(set(5, ALL, None), (FileLockAnswer::Done, 3, 3));
    locks.left(Slot(3));
    assert_eq!(locks.sessions[&session(1)].spans, 0);
    // What is stated is bounded in the same way.
    let mut locks = FileLocks::after_restart([session(1)].into_iter(), Mono(0));
    let stated = (0..9).filter(|n| locks.state(session(1), &lock(5, 1, bytes(n * 2, n * 2), EX), 1, &bounds));
    assert_eq!(stated.count(), 4);
    let stated = (10..20).filter(|n| locks.state(session(1), &lock(*n, 1, ALL, EX), 1, &bounds));
    assert_eq!(stated.count(), 2);
}

#[test]
fn many_who_wait_are_looked_at_for_a_while() {
    let bounds = FileLockBounds {
        session: 1 << 20,
        file: 1 << 14,
        ..BOUNDS
    };
    let (mut locks, mut turn) = (FileLocks::default(), 0);
    let mut set = |file, token, hold| {
        let wanted = lock(file, token, ALL, hold);
        turn += 1;
        assert!(locks.turn(session(1), &wanted.place, turn));
        locks.set(session(1), &wanted, true, Mono(0), &bounds)
    };
    // All share two files, and each wants one of them for itself: whoever is in the way of one is in the way
    // of all.
    for token in 0..400 {
        assert_eq!(set(5, token, SH), FileLockAnswer::Done);
        assert_eq!(set(6, token, SH), FileLockAnswer::Done);
    }
    assert_eq!(set(5, 0, EX), FileLockAnswer::Queued);
    assert_eq!(set(6, 1, EX), FileLockAnswer::Deadlock);
    for token in 1000..1400 {
        assert_eq!(set(5, token, EX), FileLockAnswer::Queued);
    }
    assert_eq!(locks.waits.len(), 401);
    locks.leave(session(1), &lock(5, 0, ALL, None).place, Mono(0));
    assert_eq!(locks.waits.len(), 400);
    locks.end(session(1), Mono(0));
    assert!(locks.waits.is_empty() && locks.files.is_empty());
}

#[test]
fn not_all_of_an_identity_park() {
    let mut locks = FileLocks::default();
    assert!(locks.parks(IdentityId(1), 2) && locks.parks(IdentityId(1), 2));
    assert!(!locks.parks(IdentityId(1), 2));
    assert!(locks.parks(IdentityId(2), 2));
    locks.parks_no_more(IdentityId(1));
    assert!(locks.parks(IdentityId(1), 2));
    for identity in [1, 1, 2] {
        locks.parks_no_more(IdentityId(identity));
    }
    assert!(locks.parked.is_empty());
}
