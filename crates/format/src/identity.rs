//! Identities of clients as they are stored, and as servers tell each other of them.

use crate::codec_struct;
use pando_types::{Claims, IdentityId, Timestamp};
use std::fmt;

/// An identity. Revoked ones stay, so that no number is given out again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdentityRecord {
    /// What people call it. No two that are not revoked have one name.
    pub name: String,
    /// What it may claim.
    pub claims: Claims,
    /// What proves it, the newest first.
    pub keys: Vec<IdentityKey>,
    /// When it was made.
    pub created: Timestamp,
    /// When it ended.
    pub revoked: Option<Timestamp>,
    /// Number of the change that made it what it is: the largest is the version of the whole table.
    pub change: u64,
}

/// A key of an identity.
#[derive(Clone, PartialEq, Eq)]
pub struct IdentityKey {
    /// The key; where certificates prove who somebody is, the fingerprint of the public key of one.
    pub key: [u8; 32],
    /// Until when it is good, if another has replaced it.
    pub until: Option<Timestamp>,
}

impl fmt::Debug for IdentityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdentityKey(.., until {:?})", self.until)
    }
}

/// Everybody who may connect, as of one change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IdentityTable {
    /// Rises with every change.
    pub version: u64,
    /// Identities that are not revoked.
    pub identities: Vec<(IdentityId, IdentityRecord)>,
}

codec_struct!(IdentityRecord {
    name,
    claims,
    keys,
    created,
    revoked,
    change
});
codec_struct!(IdentityKey { key, until });
codec_struct!(IdentityTable { version, identities });
