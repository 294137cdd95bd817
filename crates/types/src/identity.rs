//! Who may connect, and what they may claim.

use crate::{Cred, DirId, Generation, SessionId};
use std::fmt;

/// A client's identity within a filesystem. Numbers are never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct IdentityId(pub u32);

impl IdentityId {
    /// Whoever connects to a filesystem that asks nobody who they are; operators too.
    pub const ANYONE: IdentityId = IdentityId(0);
}

impl fmt::Display for IdentityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How clients prove who they are; chosen when the filesystem is made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum AuthMode {
    /// They do not. Only on the loopback address.
    #[default]
    None,
    /// A secret key per client.
    Key,
    /// A certificate per client.
    Tls,
}

impl AuthMode {
    /// As it is typed.
    pub fn word(self) -> &'static str {
        match self {
            AuthMode::None => "none",
            AuthMode::Key => "key",
            AuthMode::Tls => "tls",
        }
    }
}

/// Who a message comes from: what the handshake of its connection proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerId {
    /// A server of this cluster.
    Server(crate::ServerId),
    /// Whoever has the cluster's secret and is not a server.
    Operator,
    /// A client.
    Client(IdentityId),
}

/// The users a client may act for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Users {
    /// All of them: a trusted mount.
    Any,
    /// These users, in these groups.
    Only {
        /// User numbers, in order.
        uids: Vec<u32>,
        /// Group numbers, in order.
        gids: Vec<u32>,
    },
}

impl Users {
    /// As much of a program's credentials as may be claimed: supplementary groups that are not among these
    /// are left out, which can only make its rights fewer. Everything else stays as it is; whether that may
    /// be claimed the servers say.
    pub fn narrow(&self, cred: Cred) -> Cred {
        match self {
            Users::Any => cred,
            Users::Only { gids, .. } => Cred {
                groups: cred.groups.into_iter().filter(|g| gids.contains(g)).collect(),
                ..cred
            },
        }
    }

    /// Whether they are some, and these credentials, narrowed, are of one of them.
    pub fn are_some_with(&self, cred: &Cred) -> bool {
        match self {
            Users::Any => false,
            Users::Only { uids, gids } => uids.contains(&cred.uid) && gids.contains(&cred.gid),
        }
    }
}

/// What an identity may claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claims {
    /// For whom it may act.
    pub users: Users,
    /// The directory that is its whole filesystem; nothing outside exists for it.
    pub subtree: Option<(DirId, Generation)>,
    /// It may change nothing.
    pub read_only: bool,
}

impl Claims {
    /// Everything.
    pub fn all() -> Claims {
        Claims {
            users: Users::Any,
            subtree: None,
            read_only: false,
        }
    }

    /// Whether the identity may act under these credentials: user, group and every supplementary group.
    pub fn covers(&self, cred: &Cred) -> bool {
        match &self.users {
            Users::Any => true,
            Users::Only { uids, gids } => {
                uids.contains(&cred.uid)
                    && gids.contains(&cred.gid)
                    && cred.groups.iter().all(|g| gids.contains(g))
            }
        }
    }
}

impl SessionId {
    /// Bits of a session's name below its owner's number.
    const RANDOM: u32 = 96;

    /// A session of `owner`: its name says whose it is, so that nobody can speak of another's (H100).
    pub fn of(owner: IdentityId, random: u128) -> SessionId {
        SessionId(u128::from(owner.0) << Self::RANDOM | random & ((1 << Self::RANDOM) - 1))
    }

    /// All sessions of `owner`, from the first to the last.
    pub fn all_of(owner: IdentityId) -> std::ops::RangeInclusive<SessionId> {
        SessionId::of(owner, 0)..=SessionId::of(owner, u128::MAX)
    }

    /// The same name as that of a session that keeps files open: the lowest bit says so, for servers that
    /// restart (H97).
    pub fn keeping(self) -> SessionId {
        SessionId(self.0 | 1)
    }

    /// The same name as that of a session that keeps none.
    pub fn working(self) -> SessionId {
        SessionId(self.0 & !1)
    }

    /// Whether it may keep files open.
    pub fn keeps(self) -> bool {
        self.0 & 1 == 1
    }

    /// What stands above the random bits of a session under which files are locked.
    const LOCKS: u128 = 0x6c6f_636b << 64;

    /// A session of `owner` that has locks: after a restart a server gives no new ones before each of these
    /// has said which.
    pub fn for_locks(owner: IdentityId, random: u64) -> SessionId {
        SessionId::of(owner, Self::LOCKS | u128::from(random << 1))
    }

    /// Whether files are locked under it.
    pub fn is_for_locks(self) -> bool {
        (self.0 >> 64) as u32 == (Self::LOCKS >> 64) as u32
    }

    /// Whose session this is.
    pub fn owner(self) -> IdentityId {
        IdentityId((self.0 >> Self::RANDOM) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_among_those_of_its_owner_alone() {
        for (random, owner) in [(0, 0), (u128::MAX, 7), (5, u32::MAX)] {
            let session = SessionId::of(IdentityId(owner), random);
            assert!(SessionId::all_of(IdentityId(owner)).contains(&session));
            assert!(!SessionId::all_of(IdentityId(owner ^ 1)).contains(&session));
            assert_eq!(session.owner(), IdentityId(owner));
        }
    }

    #[test]
    fn claims_cover_whole_credentials() {
        let cred = |uid, gid, groups: &[u32]| Cred {
            uid,
            gid,
            groups: groups.to_vec(),
        };
        let some = Claims {
            users: Users::Only {
                uids: vec![5, 6],
                gids: vec![7, 8],
            },
            ..Claims::all()
        };
        assert!(some.covers(&cred(5, 7, &[])));
        assert!(some.covers(&cred(6, 8, &[7, 8])));
        for wrong in [
            cred(7, 7, &[]),
            cred(5, 5, &[]),
            cred(5, 7, &[7, 0]),
            Cred::root(),
        ] {
            assert!(!some.covers(&wrong), "{wrong:?}");
            assert!(Claims::all().covers(&wrong));
        }
    }

    #[test]
    fn sessions_say_what_they_are_for() {
        let s = SessionId::for_locks(IdentityId(7), u64::MAX);
        assert!(s.is_for_locks());
        assert_eq!(s.owner(), IdentityId(7));
        assert!(!SessionId::of(IdentityId(7), 1).is_for_locks());
    }

    #[test]
    fn sessions_say_whose_they_are() {
        let s = SessionId::of(IdentityId(u32::MAX), u128::MAX);
        assert_eq!(s.owner(), IdentityId(u32::MAX));
        assert_eq!(SessionId::of(IdentityId(3), u128::MAX).owner(), IdentityId(3));
        assert_eq!(SessionId::of(IdentityId::ANYONE, 9), SessionId(9));
    }
}
