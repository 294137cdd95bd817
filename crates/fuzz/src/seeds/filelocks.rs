//! Every kind of message about locks on files.

use pando_types::{Generation, Hold, IdentityId, Ino, LockFamily, MapEpoch, SessionId, Span};
use pando_wire::{FileLockAnswer, FileLockRequest, Handle, LockPlace, LockView, WantedLock};

/// One under which files may be locked.
pub(super) fn session() -> SessionId {
    SessionId::for_locks(IdentityId::ANYONE, 5)
}

fn place(family: LockFamily) -> LockPlace {
    LockPlace {
        ino: Ino(0x0abc_0000_0000_0002),
        generation: Generation(3),
        family,
        token: 7,
    }
}

fn lock(family: LockFamily, hold: Option<Hold>) -> WantedLock {
    WantedLock {
        place: place(family),
        proof: Handle(9),
        span: Span { first: 3, last: 8 },
        hold,
        pid: 1000,
    }
}

pub(super) fn requests() -> Vec<FileLockRequest> {
    let (session, map) = (session(), MapEpoch(1));
    let set = |turn, lock, wait| FileLockRequest::Set {
        session,
        turn,
        map,
        lock,
        wait,
    };
    vec![
        set(1, lock(LockFamily::Posix, Some(Hold::Shared)), false),
        set(2, lock(LockFamily::Flock, Some(Hold::Exclusive)), true),
        set(3, lock(LockFamily::Posix, None), false),
        set(4, lock(LockFamily::Append, Some(Hold::Exclusive)), true),
        FileLockRequest::Leave {
            session,
            turn: 4,
            place: place(LockFamily::Posix),
        },
        FileLockRequest::Await {
            session,
            place: place(LockFamily::Flock),
        },
        FileLockRequest::Test {
            session,
            map,
            lock: lock(LockFamily::Posix, Some(Hold::Exclusive)),
        },
        FileLockRequest::State {
            session,
            turn: 5,
            map,
            locks: vec![lock(LockFamily::Posix, Some(Hold::Exclusive))],
            done: true,
        },
        FileLockRequest::Alive(session),
        FileLockRequest::List(10),
    ]
}

pub(super) fn answers() -> Vec<FileLockAnswer> {
    let view = LockView {
        session: session(),
        place: place(LockFamily::Posix),
        span: Span::ALL,
        hold: Hold::Exclusive,
        pid: 1000,
        waiting: true,
    };
    vec![
        FileLockAnswer::Done,
        FileLockAnswer::Taken(view),
        FileLockAnswer::Queued,
        FileLockAnswer::NotQueued,
        FileLockAnswer::Free,
        FileLockAnswer::Deadlock,
        FileLockAnswer::TooMany,
        FileLockAnswer::Lost(vec![0]),
        FileLockAnswer::Locks(vec![view]),
    ]
}
