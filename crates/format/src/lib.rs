//! Bytes on disk: keys, records, mutations, and the codec they share with the wire.
//!
//! All layouts are described in `docs/format.md` and pinned by golden bytes in `tests/golden.rs`. A change of
//! any layout raises [`FORMAT_VERSION`].

mod acls;
pub mod codec;
mod hash;
mod identity;
mod key;
mod layout;
mod line;
mod local;
mod mutation;
mod part;
mod record;
mod remnant;
mod renames;
mod scan;
mod tag;
mod xattrs;

pub use codec::{Codec, DecodeError, Reader};
pub use hash::{HashWidths, NameHash, Position};
pub use identity::{IdentityKey, IdentityRecord, IdentityTable};
pub use key::{Key, LOCAL_SLOT};
pub use layout::HOLE_MIN;
pub use line::Line;
pub use local::{LocalRecord, NumberRun, TABLE_BASES_MAX, TABLE_BYTES_MAX, TABLE_RECORDS_MAX, table_sum};
pub use mutation::{Batch, Mutation, ReplyWrite};
pub use part::{PartHead, PartNote, PartRecord, PartsRecord};
pub use record::{
    AccessRecord, AttachmentKind, CounterRecord, DecisionRecord, Entry, FactChange, GarbageRecord,
    HandOverRecord, Head, InodeRecord, Invalidation, Layout, LinkRecord, OwedRecord, PreparedRecord, Record,
    ReplyRecord, SessionRecord, Superblock, Target, Touch, TouchDelta,
};
pub use remnant::{Left, Remains, Remnant};
pub use renames::RenameList;
pub use scan::{KeyRange, Scan};
pub use tag::Tag;
pub use xattrs::{Marks, XattrSet};

/// Version of every layout in this crate, stored in the superblock. A newer one is refused, never guessed at.
pub const FORMAT_VERSION: u32 = 9;
/// The oldest that is understood: what came since only adds kinds of records.
pub const OLDEST_FORMAT: u32 = 2;
