//! The key space, one table:
//!
//! | bytes | record | lives with |
//! |---|---|---|
//! | `slot 'A' dir hash name kind` | attachment of an entry: inline data, long symlink target, extended attributes | the directory |
//! | `slot 'C'` | the slot's counter of inode numbers and generations | the slot |
//! | `0xFFFF 'D' tx` | a decided transaction not yet confirmed by all participants | the coordinator's store |
//! | `slot 'E' dir hash name` | an entry: a subdirectory's access record, or an inode record | the directory |
//! | `slot 'G' ino generation` | file data to be deleted | the directory it was in |
//! | `slot 'H' dir` | content head of a directory | the directory |
//! | `slot 'J' dir` | the parts of a split directory | the directory |
//! | `slot 'j' dir` | a part that is coming, or has left something behind | the part |
//! | `slot 'K' ino generation` | a file without a name that somebody may have open | the slot of its home |
//! | `slot 'L' dir name` | rename list: versions of this birth in use elsewhere | the directory it is the birth parent of |
//! | `slot 'n' dir hash name` | a line of a directory's list, apart from entries | the directory |
//! | `slot 'R' session request-slot` | reply record | the slot of the request's first name |
//! | `slot 'T' dir` | content touch of a directory | the directory |
//! | `slot 'Z' dir` | lease of a directory that a client has localised | the directory |
//! | `0xFFFF 'B'` | superblock and boot epoch | the store |
//! | `0xFFFF 'M'` | what must not be forgotten of slots that were given or got | the store |
//! | `0xFFFF 'P' slot tx` | a prepared part of a transaction, for one slot | the store that voted |
//! | `0xFFFF 'S' session` | a session | the store |
//! | `0xFFFF 'V' watermark` | an entry of the invalidation log | the coordinator's store |
//! | `0xFFFF 'U' identity` | an identity that may connect | the store of the server that keeps them |
//!
//! `slot` is 16 bits, `hash` 56 bits, all numbers big-endian so that byte order is numeric order. Reserved
//! tags: `I` home inode records, `Q` realms.

use crate::codec::{DecodeError, Reader};
use crate::hash::NameHash;
use crate::record::AttachmentKind;
use crate::tag::Tag;
use pando_types::{
    BootEpoch, DirId, Generation, IdentityId, Ino, Name, Part, RequestSlot, ServerId, SessionId, Slot, Tile,
    TxId, Watermark,
};

/// The pseudo-slot of records that belong to a store, not to the tree. Sorts last and never moves.
pub const LOCAL_SLOT: Slot = Slot(0xFFFF);

/// The name of one record.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// An attachment of the entry `(dir, name)`.
    Attachment {
        /// Part of the directory that has the entry.
        part: Part,
        /// Bucket of the entry.
        hash: NameHash,
        /// Name of the entry.
        name: Name,
        /// Which attachment.
        kind: AttachmentKind,
    },
    /// A slot's counter.
    Counter(Slot),
    /// A decision of this server.
    Decision(TxId),
    /// An entry of a directory.
    Entry {
        /// The part of the directory that has it.
        part: Part,
        /// Bucket of the name.
        hash: NameHash,
        /// The name.
        name: Name,
    },
    /// File data to delete.
    Garbage(Slot, Ino, Generation),
    /// The content head of a directory's part.
    Head(Part),
    /// The live parts of a directory that is split.
    Parts(DirId),
    /// What is to be done about a part of a directory.
    PartNote(Part),
    /// A file at home that has no name any more, and goes when nobody has it open (H97).
    Orphan(Slot, Ino, Generation),
    /// The content of a new directory, owed to the server that is to have it.
    Owed(TxId),
    /// What a transaction will change in a slot.
    Prepared(Slot, TxId),
    /// Which versions of a birth are taken by directories that were renamed. Of the birth parent's ID, not of
    /// its incarnation: it outlives the directory `parent` (H3).
    RenameList {
        /// Birth parent.
        parent: DirId,
        /// Name at birth.
        name: Name,
    },
    /// A reply record.
    Reply(Slot, SessionId, RequestSlot),
    /// The content touch of a directory's part.
    Touch(Part),
    /// The superblock.
    Superblock,
    /// A session.
    Session(SessionId),
    /// An entry of the invalidation log.
    Invalidation(Watermark),
    /// An identity.
    Identity(IdentityId),
    /// What must not be forgotten of slots that were given or got.
    HandOver,
    /// The lease of a directory's part that a client has localised.
    Local(Part),
    /// A name in a directory's list, whose entry may be in another slot (AsyncFS §3.3).
    Line {
        /// The directory.
        dir: DirId,
        /// Bucket of the name.
        hash: NameHash,
        /// The name.
        name: Name,
    },
}

impl Key {
    /// The slot this record is placed by.
    pub fn slot(&self) -> Slot {
        match self {
            Key::Attachment { part, .. }
            | Key::Entry { part, .. }
            | Key::Head(part)
            | Key::PartNote(part)
            | Key::Touch(part)
            | Key::Local(part) => part.slot(),
            Key::RenameList { parent, .. } => Part::whole(*parent).slot(),
            Key::Parts(dir) | Key::Line { dir, .. } => Part::whole(*dir).slot(),
            Key::Counter(s) | Key::Garbage(s, _, _) | Key::Orphan(s, _, _) | Key::Reply(s, _, _) => *s,
            Key::Superblock
            | Key::Session(_)
            | Key::Decision(_)
            | Key::Owed(_)
            | Key::Prepared(..)
            | Key::Identity(_)
            | Key::HandOver
            | Key::Invalidation(_) => LOCAL_SLOT,
        }
    }

    /// The encoded key; byte order is the store's order.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48);
        out.extend_from_slice(&self.slot().0.to_be_bytes());
        out.push(self.tag().byte());
        match self {
            Key::Attachment {
                part,
                hash,
                name,
                kind,
            } => {
                put_entry(&mut out, part.dir, *hash, name);
                out.push(0); // no name contains NUL, so this ends it
                out.push(*kind as u8);
            }
            Key::Entry { part, hash, name } => put_entry(&mut out, part.dir, *hash, name),
            Key::Line { dir, hash, name } => put_entry(&mut out, *dir, *hash, name),
            Key::Counter(_) | Key::Superblock | Key::HandOver => {}
            Key::Decision(tx) | Key::Owed(tx) => put_tx(&mut out, *tx),
            Key::Prepared(slot, tx) => {
                out.extend_from_slice(&slot.0.to_be_bytes());
                put_tx(&mut out, *tx);
            }
            Key::Garbage(_, ino, generation) | Key::Orphan(_, ino, generation) => {
                out.extend_from_slice(&ino.0.to_be_bytes());
                out.extend_from_slice(&generation.0.to_be_bytes());
            }
            Key::Head(part) | Key::Touch(part) | Key::PartNote(part) | Key::Local(part) => {
                out.extend_from_slice(&part.dir.0.to_be_bytes());
            }
            Key::Parts(dir) => out.extend_from_slice(&dir.0.to_be_bytes()),
            Key::RenameList { parent, name } => {
                out.extend_from_slice(&parent.0.to_be_bytes());
                out.extend_from_slice(name.as_bytes());
            }
            Key::Reply(_, session, slot) => {
                out.extend_from_slice(&session.0.to_be_bytes());
                out.extend_from_slice(&slot.0.to_be_bytes());
            }
            Key::Session(session) => out.extend_from_slice(&session.0.to_be_bytes()),
            Key::Invalidation(at) => out.extend_from_slice(&at.0.to_be_bytes()),
            Key::Identity(id) => out.extend_from_slice(&id.0.to_be_bytes()),
        }
        out
    }

    /// The key these bytes encode.
    pub fn decode(bytes: &[u8]) -> Result<Key, DecodeError> {
        let mut r = Reader::new(bytes);
        let slot = Slot(u16::from_be_bytes(array(&mut r)?));
        let tag = Tag::from_byte(r.bytes(1)?[0])?;
        let key = match tag {
            Tag::Attachment => {
                let (part, hash) = take_bucket(slot, &mut r)?;
                let rest = r.bytes(r.remaining())?;
                let [name @ .., 0, kind] = rest else {
                    return Err(DecodeError::Invalid("attachment key"));
                };
                let kind = AttachmentKind::from_tag(*kind)?;
                Key::Attachment {
                    part,
                    hash,
                    name: take_name(name)?,
                    kind,
                }
            }
            Tag::Entry => {
                let (part, hash) = take_bucket(slot, &mut r)?;
                let rest = r.bytes(r.remaining())?;
                Key::Entry {
                    part,
                    hash,
                    name: take_name(rest)?,
                }
            }
            Tag::Line => Key::Line {
                dir: take_dir(&mut r)?,
                hash: take_hash(&mut r)?,
                name: take_name(r.bytes(r.remaining())?)?,
            },
            Tag::Counter => Key::Counter(slot),
            Tag::Decision => Key::Decision(take_tx(&mut r)?),
            Tag::Owed => Key::Owed(take_tx(&mut r)?),
            Tag::Prepared => Key::Prepared(Slot(u16::from_be_bytes(array(&mut r)?)), take_tx(&mut r)?),
            Tag::Garbage => Key::Garbage(
                slot,
                Ino(u64::from_be_bytes(array(&mut r)?)),
                Generation(u64::from_be_bytes(array(&mut r)?)),
            ),
            Tag::Orphan => Key::Orphan(
                slot,
                Ino(u64::from_be_bytes(array(&mut r)?)),
                Generation(u64::from_be_bytes(array(&mut r)?)),
            ),
            Tag::Head => Key::Head(take_part(slot, &mut r)?),
            Tag::Touch => Key::Touch(take_part(slot, &mut r)?),
            Tag::Local => Key::Local(take_part(slot, &mut r)?),
            Tag::Parts => Key::Parts(take_dir(&mut r)?),
            Tag::PartNote => Key::PartNote(take_part(slot, &mut r)?),
            Tag::RenameList => Key::RenameList {
                parent: take_dir(&mut r)?,
                name: take_name(r.bytes(r.remaining())?)?,
            },
            Tag::Reply => Key::Reply(
                slot,
                SessionId(u128::from_be_bytes(array(&mut r)?)),
                RequestSlot(u16::from_be_bytes(array(&mut r)?)),
            ),
            Tag::Superblock => Key::Superblock,
            Tag::HandOver => Key::HandOver,
            Tag::Session => Key::Session(SessionId(u128::from_be_bytes(array(&mut r)?))),
            Tag::Invalidation => Key::Invalidation(Watermark(u64::from_be_bytes(array(&mut r)?))),
            Tag::Identity => Key::Identity(IdentityId(u32::from_be_bytes(array(&mut r)?))),
        };
        r.finish()?;
        if key.slot() != slot {
            return Err(DecodeError::Invalid("slot of key"));
        }
        Ok(key)
    }
}

pub(crate) fn put_entry(out: &mut Vec<u8>, dir: DirId, hash: NameHash, name: &Name) {
    out.extend_from_slice(&dir.0.to_be_bytes());
    out.extend_from_slice(&hash.0.to_be_bytes()[1..]);
    out.extend_from_slice(name.as_bytes());
}

fn put_tx(out: &mut Vec<u8>, tx: TxId) {
    out.extend_from_slice(&tx.coordinator.0.to_be_bytes());
    out.extend_from_slice(&tx.boot.0.to_be_bytes());
    out.extend_from_slice(&tx.number.to_be_bytes());
}

fn array<const N: usize>(r: &mut Reader<'_>) -> Result<[u8; N], DecodeError> {
    let mut b = [0; N];
    b.copy_from_slice(r.bytes(N)?);
    Ok(b)
}

fn take_dir(r: &mut Reader<'_>) -> Result<DirId, DecodeError> {
    Ok(DirId(u128::from_be_bytes(array(r)?)))
}

/// The part of a directory that a key with this slot is of.
fn take_part(slot: Slot, r: &mut Reader<'_>) -> Result<Part, DecodeError> {
    Part::at(take_dir(r)?, slot).ok_or(DecodeError::Invalid("slot of key"))
}

/// A bucket, with the part that has it. A part of the least depth that may begin there may not have the hash:
/// the key says nothing of depths. But each part begins at the upper bits of its hashes, with some of the
/// lowest cleared.
fn take_bucket(slot: Slot, r: &mut Reader<'_>) -> Result<(Part, NameHash), DecodeError> {
    let part = take_part(slot, r)?;
    let hash = take_hash(r)?;
    let first = Tile {
        start: part.start(),
        depth: Tile::first_depth(part.start()),
    };
    if !first.has(hash.upper()) {
        return Err(DecodeError::Invalid("part of key"));
    }
    Ok((part, hash))
}

fn take_hash(r: &mut Reader<'_>) -> Result<NameHash, DecodeError> {
    let mut b = [0; 8];
    b[1..].copy_from_slice(r.bytes(7)?);
    let hash = NameHash(u64::from_be_bytes(b));
    if hash > NameHash::MAX {
        return Err(DecodeError::Invalid("name hash"));
    }
    Ok(hash)
}

fn take_name(bytes: &[u8]) -> Result<Name, DecodeError> {
    Name::new(bytes).map_err(|_| DecodeError::Invalid("name"))
}

fn take_tx(r: &mut Reader<'_>) -> Result<TxId, DecodeError> {
    Ok(TxId {
        coordinator: ServerId(u16::from_be_bytes(array(r)?)),
        boot: BootEpoch(u64::from_be_bytes(array(r)?)),
        number: u64::from_be_bytes(array(r)?),
    })
}

impl crate::Codec for Key {
    fn put(&self, out: &mut Vec<u8>) {
        let bytes = self.encode();
        (bytes.len() as u16).put(out);
        out.extend_from_slice(&bytes);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let n = u16::take(r)? as usize;
        Key::decode(r.bytes(n)?)
    }
}
