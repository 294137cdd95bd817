//! Locks that programs take on files (`flock`, `fcntl`).
//!
//! A file's locks are kept, in memory, by the server that owns the slot of its number. Whoever holds some
//! says so again after a restart of the server, or when the slot has another owner
//! ([`FileLockRequest::State`]); before all have, nobody gets a new one.
//!
//! A request that changes locks is a *setting*: from now on this owner has this, or nothing, on these bytes.
//! It may be repeated at will, as long as each try has a higher turn: what is older than the last that was
//! seen is refused.

use crate::op::Handle;
use pando_format::{codec_enum, codec_struct};
use pando_types::{Generation, Held, Hold, Ino, LockFamily, MapEpoch, SessionId, Span};

/// Whose a lock is, within a session: what the kernel calls its owner, and on which file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LockPlace {
    /// The file.
    pub ino: Ino,
    /// Which of those that had its number.
    pub generation: Generation,
    /// Of which family the lock is.
    pub family: LockFamily,
    /// The process or the open file.
    pub token: u64,
}

/// A lock that is asked for or stated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WantedLock {
    /// Whose.
    pub place: LockPlace,
    /// Shows that the identity has opened the file.
    pub proof: Handle,
    /// Which bytes.
    pub span: Span,
    /// How; `None`: not at all.
    pub hold: Option<Hold>,
    /// The process, to be shown.
    pub pid: u32,
}

/// Requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileLockRequest {
    /// Takes, changes or gives up a lock.
    Set {
        /// Under which it is held.
        session: SessionId,
        /// Rises with every request of the session.
        turn: u64,
        /// The asker's map: what was sent by one from before the slot came here may be late.
        map: MapEpoch,
        /// What.
        lock: WantedLock,
        /// Whether to be put in the queue if it is taken.
        wait: bool,
    },
    /// Leaves the queue.
    Leave {
        /// Whose.
        session: SessionId,
        /// As above.
        turn: u64,
        /// Who.
        place: LockPlace,
    },
    /// Answered as soon as it is the turn of one that is in the queue, or after a while. Changes nothing.
    Await {
        /// Whose.
        session: SessionId,
        /// Who.
        place: LockPlace,
    },
    /// Who is in the way of a lock?
    Test {
        /// Whose.
        session: SessionId,
        /// As above.
        map: MapEpoch,
        /// What.
        lock: WantedLock,
    },
    /// What a session holds here, for a server that has started again or got the slot.
    State {
        /// Whose.
        session: SessionId,
        /// As above.
        turn: u64,
        /// As above: who states must know of all slots that are here.
        map: MapEpoch,
        /// Some.
        locks: Vec<WantedLock>,
        /// Whether these were the last.
        done: bool,
    },
    /// A sign of life of a session, which says whether it is over.
    Alive(SessionId),
    /// From an operator: all locks, and who waits. So many at most.
    List(u32),
}

/// A lock as it is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockView {
    /// Under which session it is held or waited for.
    pub session: SessionId,
    /// By whom.
    pub place: LockPlace,
    /// Which bytes.
    pub span: Span,
    /// How.
    pub hold: Hold,
    /// By which process.
    pub pid: u32,
    /// Whether it is only waited for.
    pub waiting: bool,
}

/// Answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileLockAnswer {
    /// It is so.
    Done,
    /// This is in the way.
    Taken(LockView),
    /// In the queue.
    Queued,
    /// Not in the queue, or not any more.
    NotQueued,
    /// Nothing is in the way.
    Free,
    /// Who is waited for waits for the asker.
    Deadlock,
    /// There are as many as there may be.
    TooMany,
    /// Those that were stated and are not held, by their place in the list: others may have had them since.
    Lost(Vec<u32>),
    /// All there are.
    Locks(Vec<LockView>),
}

codec_struct!(LockPlace {
    ino,
    generation,
    family,
    token
});
codec_struct!(WantedLock {
    place,
    proof,
    span,
    hold,
    pid
});
codec_enum!(FileLockRequest {
    1 => Set { session, turn, map, lock, wait },
    2 => Leave { session, turn, place },
    3 => Await { session, place },
    4 => Test { session, map, lock },
    5 => State { session, turn, map, locks, done },
    6 => Alive(session),
    7 => List(most),
});
codec_struct!(LockView {
    session,
    place,
    span,
    hold,
    pid,
    waiting
});
codec_enum!(FileLockAnswer {
    1 => Done, 2 => Taken(by), 3 => Queued, 4 => NotQueued, 5 => Free, 6 => Deadlock, 7 => TooMany, 8 => Lost(which),
    9 => Locks(all)
});

impl FileLockRequest {
    /// In whose name it is made.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            FileLockRequest::Set { session, .. }
            | FileLockRequest::Leave { session, .. }
            | FileLockRequest::Await { session, .. }
            | FileLockRequest::Test { session, .. }
            | FileLockRequest::State { session, .. }
            | FileLockRequest::Alive(session) => Some(*session),
            FileLockRequest::List(_) => None,
        }
    }
}

impl LockView {
    /// Of a lock that somebody has.
    pub fn held(place: LockPlace, session: SessionId, held: &Held<(SessionId, u64)>) -> LockView {
        LockView {
            session,
            place,
            span: held.span,
            hold: held.hold,
            pid: held.pid,
            waiting: false,
        }
    }
}
