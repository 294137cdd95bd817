//! Mutations: what the store applies, what two-phase commit prepares, what a log would ship.

use crate::codec::{Codec, DecodeError, Reader, put_part, take_part};
use crate::codec_struct;
use crate::key::Key;
use crate::record::{Record, ReplyRecord, TouchDelta};
use pando_types::{Part, Slot};

/// One typed change to one record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// Creates a record. REQUIRES: absent (the operation decided so under the key's lock).
    Insert {
        /// Which.
        key: Key,
        /// What.
        record: Record,
    },
    /// Replaces a record.
    Update {
        /// Which.
        key: Key,
        /// What.
        record: Record,
    },
    /// Deletes a record.
    Delete {
        /// Which.
        key: Key,
    },
    /// Changes a directory's touch, commutatively.
    Touch {
        /// Of which part of a directory.
        part: Part,
        /// By what.
        delta: TouchDelta,
    },
}

/// A reply record to be written with the effect it answers for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplyWrite {
    /// A [`Key::Reply`].
    pub key: Key,
    /// The record.
    pub record: ReplyRecord,
}

/// What is applied atomically. The reply is part of the batch (rule 3): how a store keeps it is the store's
/// business.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// The effect.
    pub mutations: Vec<Mutation>,
    /// The answer.
    pub reply: Option<ReplyWrite>,
}

impl Mutation {
    /// The record changed.
    pub fn key(&self) -> Key {
        match self {
            Mutation::Insert { key, .. } | Mutation::Update { key, .. } | Mutation::Delete { key } => {
                key.clone()
            }
            Mutation::Touch { part, .. } => Key::Touch(*part),
        }
    }

    /// The slot changed.
    pub fn slot(&self) -> Slot {
        match self {
            Mutation::Insert { key, .. } | Mutation::Update { key, .. } | Mutation::Delete { key } => {
                key.slot()
            }
            Mutation::Touch { part, .. } => part.slot(),
        }
    }

    /// Errs when a record of one kind stands under a key of another.
    pub fn check(&self) -> Result<(), DecodeError> {
        match self {
            Mutation::Insert { key, record } | Mutation::Update { key, record } if !record.fits(key) => {
                Err(DecodeError::Invalid("record for key"))
            }
            _ => Ok(()),
        }
    }
}

impl Batch {
    /// These mutations, without a reply.
    pub fn of(mutations: Vec<Mutation>) -> Batch {
        Batch {
            mutations,
            reply: None,
        }
    }
}

/// A touch of part 0 is written as one of its directory, as before there were others.
impl Codec for Mutation {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Mutation::Insert { key, record } => {
                out.push(1);
                key.put(out);
                record.put(out);
            }
            Mutation::Update { key, record } => {
                out.push(2);
                key.put(out);
                record.put(out);
            }
            Mutation::Delete { key } => {
                out.push(3);
                key.put(out);
            }
            Mutation::Touch { part, delta } => {
                out.push(if part.start() == 0 { 4 } else { 5 });
                put_part(*part, out);
                delta.put(out);
            }
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (tag, key) = (u8::take(r)?, Key::take);
        Ok(match tag {
            1 => Mutation::Insert {
                key: key(r)?,
                record: Record::take(r)?,
            },
            2 => Mutation::Update {
                key: key(r)?,
                record: Record::take(r)?,
            },
            3 => Mutation::Delete { key: key(r)? },
            4 | 5 => Mutation::Touch {
                part: take_part(tag == 5, r)?,
                delta: TouchDelta::take(r)?,
            },
            tag => return Err(DecodeError::Tag { of: "Mutation", tag }),
        })
    }
}
codec_struct!(ReplyWrite { key, record });
codec_struct!(Batch { mutations, reply });
