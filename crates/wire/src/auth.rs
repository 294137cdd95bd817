//! What operators ask about identities.

use pando_format::{codec_enum, codec_struct};
use pando_types::{Claims, IdentityId, ServerId, Timestamp};

/// A request about identities. Every change may be repeated: it is recognised by the key it brings.
#[derive(Clone, PartialEq, Eq)]
pub enum AuthRequest {
    /// All of them.
    List,
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

impl std::fmt::Debug for AuthRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AuthRequest::List => f.write_str("List"),
            AuthRequest::Add { name, claims, .. } => write!(f, "Add({name:?}, {claims:?})"),
            AuthRequest::Revoke { name } => write!(f, "Revoke({name:?})"),
            AuthRequest::Rotate { name, grace, .. } => write!(f, "Rotate({name:?}, {grace} s)"),
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
}

/// What became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthAnswer {
    /// All identities, or the one that was changed.
    pub identities: Vec<IdentityView>,
    /// Servers that have not confirmed the change. They learn of it as soon as they are back.
    pub unconfirmed: Vec<ServerId>,
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
}

codec_enum!(AuthRequest {
    1 => List,
    2 => Add { name, claims, key },
    3 => Revoke { name },
    4 => Rotate { name, key, grace },
});
codec_struct!(IdentityView {
    id,
    name,
    claims,
    keys,
    created,
    revoked
});
codec_struct!(AuthAnswer {
    identities,
    unconfirmed
});
codec_enum!(AuthError { 1 => Exists, 2 => Unknown, 3 => NotUsed, 4 => TooMany, 5 => BadName, 6 => KeyTaken });
