//! What a server says of the work a request made, to an asker who wants to know (`pando explain`).
//!
//! It tells numbers of servers, kinds of messages and durations; nothing in it comes from a record, and no
//! name, ID or slot is in it. It accompanies successes of operations only, and only for who has shown the
//! whole way from the root to where they were done: whoever may not do something learns nothing (H99).

use crate::message::{PeerRequest, Refusal, Response, Vote};
use pando_format::{codec_enum, codec_struct};
use pando_types::ServerId;

/// Most errands an account lists.
pub const ERRANDS_MAX: usize = 64;

/// What a call brings: an answer or a refusal, and the account that came with it.
pub type Accounted = (Result<Response, Refusal>, Option<Account>);

/// Work of one server for one request. Times are in microseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// From the arrival of the request to its answer.
    pub took: u64,
    /// Of that, waiting for locks of this server.
    pub locks: u64,
    /// Of that, waiting until something was durable here.
    pub syncs: u64,
    /// Times it began again, because it turned out to need more, or other directory IDs.
    pub again: u32,
    /// Messages to other servers in the order they were sent, at most [`ERRANDS_MAX`].
    pub errands: Vec<Errand>,
    /// Further ones.
    pub unlisted: u32,
}

/// One message to another server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Errand {
    /// To whom.
    pub to: ServerId,
    /// What for.
    pub what: Task,
    /// When it was sent, after the arrival of the request.
    pub at: u64,
    /// Until the answer came; 0 if nobody waited for it.
    pub took: u64,
    /// What came of it.
    pub end: ErrandEnd,
    /// Waiting for locks there.
    pub locks: u64,
    /// Waiting until something was durable there.
    pub syncs: u64,
}

/// What a server asks another for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Task {
    /// Locks, and the records under them.
    Lock,
    /// To vote on its part of a transaction.
    Prepare,
    /// To store the content of a directory that was born elsewhere.
    Content,
    /// To commit its part.
    Commit,
    /// To let go of its part: the transaction was given up, or needs nothing more there.
    Release,
    /// One step of the way up to the root.
    Ancestor,
    /// To hear that a directory will not be what it was any more; under leases, to say until when it is.
    Invalidate,
    /// Housekeeping of servers among themselves.
    Other,
}

/// How an errand ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrandEnd {
    /// It was done.
    Done,
    /// A vote.
    Voted(Vote),
    /// It was not done.
    Refused(Refusal),
    /// No answer came: it may have been done.
    Silent,
    /// It is told after the request was answered, and confirmed some time.
    Later,
}

impl Account {
    /// The longest chain of errands of which each was sent after the one before was answered.
    pub fn rounds(&self) -> usize {
        let mut deepest: Vec<(u64, usize)> = Vec::new();
        let awaited = self.errands.iter().filter(|e| e.end != ErrandEnd::Later);
        for e in awaited.take(ERRANDS_MAX) {
            let before = deepest.iter().filter(|(end, _)| *end <= e.at);
            let depth = before.map(|(_, depth)| depth + 1).max().unwrap_or(1);
            deepest.push((e.at.saturating_add(e.took), depth));
        }
        deepest.into_iter().map(|(_, depth)| depth).max().unwrap_or(0)
    }
}

impl From<&PeerRequest> for Task {
    fn from(request: &PeerRequest) -> Task {
        match request {
            PeerRequest::Lock { .. } => Task::Lock,
            PeerRequest::Prepare { .. } => Task::Prepare,
            PeerRequest::Decide { commit: true, .. } => Task::Commit,
            PeerRequest::Decide { commit: false, .. } => Task::Release,
            PeerRequest::Head(_) => Task::Ancestor,
            PeerRequest::Invalidate { .. } | PeerRequest::Lease(_) => Task::Invalidate,
            PeerRequest::Content { .. } => Task::Content,
            PeerRequest::Inquire(_)
            | PeerRequest::Owes { .. }
            | PeerRequest::Load
            | PeerRequest::Settle { .. }
            | PeerRequest::Follow { .. }
            | PeerRequest::NewMap(_)
            | PeerRequest::Identities(_)
            | PeerRequest::Moving(_)
            | PeerRequest::Split(_)
            | PeerRequest::Adopt(_) => Task::Other,
        }
    }
}

codec_struct!(Account {
    took,
    locks,
    syncs,
    again,
    errands,
    unlisted
});
codec_struct!(Errand {
    to,
    what,
    at,
    took,
    end,
    locks,
    syncs
});
codec_enum!(Task {
    1 => Lock, 2 => Prepare, 3 => Commit, 4 => Release, 5 => Ancestor, 6 => Invalidate, 7 => Other, 8 => Content
});
codec_enum!(ErrandEnd { 1 => Done, 2 => Voted(v), 3 => Refused(r), 4 => Silent, 5 => Later });

#[cfg(test)]
mod tests {
    use super::*;

    fn errand(at: u64, took: u64) -> Errand {
        Errand {
            to: ServerId(1),
            what: Task::Lock,
            at,
            took,
            end: ErrandEnd::Done,
            locks: 0,
            syncs: 0,
        }
    }

    #[test]
    fn rounds_are_those_that_wait_for_one_another() {
        let of = |errands: Vec<Errand>| {
            let account = Account {
                errands,
                ..Account::default()
            };
            account.rounds()
        };
        assert_eq!(of(vec![]), 0);
        assert_eq!(of(vec![errand(0, 5), errand(0, 9), errand(1, 5)]), 1);
        assert_eq!(
            of(vec![errand(0, 5), errand(0, 9), errand(9, 5), errand(14, 1)]),
            3
        );
        let later = Errand {
            end: ErrandEnd::Later,
            ..errand(20, 0)
        };
        assert_eq!(of(vec![errand(0, 5), later]), 1);
    }
}
