//! What operators ask about identities.

use pando_format::{codec_enum, codec_struct};
use pando_types::{Claims, IdentityId, ServerId, Timestamp};

/// A request about identities.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthRequest {
    /// All of them.
    List,
    /// One of them changes.
    Change {
        /// What is known of its name: [`AuthAnswer::newest`] of a list. If that is not so any more, nothing
        /// is done (H123).
        seen: u64,
        /// How.
        change: AuthChange,
    },
}

/// A change of an identity. It may be repeated: it is recognised by the key it brings.
#[derive(Clone, PartialEq, Eq)]
pub enum AuthChange {
    /// A new one.
    Add {
        /// What people will call it.
        name: String,
        /// What it may claim.
        claims: Claims,
        /// What proves it: a key, or in mode `tls` the fingerprint of a certificate's public key.
        key: [u8; 32],
    },
    /// It ends now, its connections and sessions with it.
    Revoke {
        /// Which.
        name: String,
    },
    /// It gets another key.
    Rotate {
        /// Which.
        name: String,
        /// The new one.
        key: [u8; 32],
        /// For so many seconds the older ones stay good.
        grace: u32,
    },
}

impl AuthChange {
    /// Whose.
    pub fn name(&self) -> &str {
        match self {
            AuthChange::Add { name, .. } | AuthChange::Revoke { name } | AuthChange::Rotate { name, .. } => {
                name
            }
        }
    }
}

impl std::fmt::Debug for AuthChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AuthChange::Add { name, claims, .. } => write!(f, "Add({name:?}, {claims:?})"),
            AuthChange::Revoke { name } => write!(f, "Revoke({name:?})"),
            AuthChange::Rotate { name, grace, .. } => write!(f, "Rotate({name:?}, {grace} s)"),
        }
    }
}

/// An identity as operators see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdentityView {
    /// Its number.
    pub id: IdentityId,
    /// Its name.
    pub name: String,
    /// What it may claim.
    pub claims: Claims,
    /// Until when each of its keys is good, the newest first.
    pub keys: Vec<Option<Timestamp>>,
    /// When it was made.
    pub created: Timestamp,
    /// When it ended.
    pub revoked: Option<Timestamp>,
    /// Which change of any identity was the last of this one.
    pub change: u64,
}

/// What became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthAnswer {
    /// All identities, or the one that was changed.
    pub identities: Vec<IdentityView>,
    /// Servers that have not confirmed the change. They learn of it as soon as they are back.
    pub unconfirmed: Vec<ServerId>,
}

impl AuthAnswer {
    /// Of a list: the last change of the newest identity of a name, 0 without one.
    pub fn newest(&self, name: &str) -> u64 {
        let mut named = self.identities.iter().filter(|view| view.name == name);
        named.next_back().map_or(0, |view| view.change)
    }
}

/// Why it was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthError {
    /// There is one of that name.
    Exists,
    /// There is none of that name.
    Unknown,
    /// Clients of this filesystem are not asked who they are.
    NotUsed,
    /// There are as many as there can be.
    TooMany,
    /// The name is empty or too long.
    BadName,
    /// Another identity has this key.
    KeyTaken,
    /// This identity, or one of its name, has changed since whoever asks looked.
    Changed,
}

codec_enum!(AuthRequest {
    1 => List,
    2 => Change { seen, change },
});
codec_enum!(AuthChange {
    1 => Add { name, claims, key },
    2 => Revoke { name },
    3 => Rotate { name, key, grace },
});
codec_struct!(IdentityView {
    id,
    name,
    claims,
    keys,
    created,
    revoked,
    change
});
codec_struct!(AuthAnswer {
    identities,
    unconfirmed
});
codec_enum!(AuthError { 1 => Exists, 2 => Unknown, 3 => NotUsed, 4 => TooMany, 5 => BadName, 6 => KeyTaken, 7 => Changed });
