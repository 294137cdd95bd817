//! Identities. Each is its own type, so that a generation can never be passed for an epoch.

use crate::{IdentityId, Name};
use std::fmt;

/// Number of slots a filesystem's key space is divided into (fixed at format).
pub const SLOTS: u16 = 4096;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// Tells one incarnation of a directory or file from the next (rule 1). Unique and rising per slot: 16
    /// bits of the slot's ownership epoch above 48 bits of the slot's counter.
    Generation(u64)
);
id!(
    /// What `st_ino` shows: 16 bits of slot above a 48-bit counter of that slot. Never changed by rename.
    Ino(u64)
);
id!(
    /// The unit of placement: every key begins with one, and the cluster map assigns each to a server.
    Slot(u16)
);
id!(
    /// A metadata server's number within its cluster.
    ServerId(u16)
);
id!(
    /// Version of the cluster map. Rises with every change of it.
    MapEpoch(u64)
);
id!(
    /// Counts the coordinators of a cluster: rises whenever another takes its place (H27).
    Term(u64)
);
id!(
    /// Counts the starts of a server on one store. Durable before the server answers anything (rule 2).
    BootEpoch(u64)
);
id!(
    /// A small id inherited at mkdir; quota, snapshots and zones hang on it.
    Realm(u32)
);
id!(
    /// One of a session's lanes for mutating requests; at most one request is outstanding in each.
    RequestSlot(u16)
);
id!(
    /// Number of a mutating request within its request slot. Rises by one for each new request.
    Sequence(u64)
);
id!(
    /// A random name of one client incarnation. Never used again after the session ended (H48).
    SessionId(u128)
);
id!(
    /// A random secret name of one client program or mount, shared by its threads. Statements are good only
    /// for the instance they were given to.
    Instance(u128)
);
id!(
    /// A position in the cluster's log of invalidations: how far a server has heard of them, or up to where a
    /// statement is known to be true (InfiniFS §3.4). The upper half is the epoch of the map under which it
    /// was written.
    Watermark(u64)
);
id!(
    /// A random name of a filesystem, chosen at format. Servers and clients of another are refused.
    FsId(u128)
);

/// A directory's 128-bit identity: the hash of its birth triple (InfiniFS §3.3.1). Rename does not change it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DirId(pub u128);

impl DirId {
    /// The place that holds the root's access record. Not a directory.
    pub const ABOVE_ROOT: DirId = DirId(0);
    /// The root directory of every filesystem.
    pub const ROOT: DirId = DirId(1);

    /// Upper half of the IDs of [`DirId::homes`]. Others' are hashes: that one of them is the same is as
    /// likely as that two are.
    const HOMES: u64 = 0x7061_6e64_6f20_686f;
    /// What [`DirId::first_slot`] multiplies by, and what undoes that.
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    const GATHER: u64 = 0xF1DE_83E1_9937_733D;

    /// The place of a slot whose entries are files that are not found by one name: the homes of those with
    /// several (H96). Not a directory: it has no name, no head and no permissions.
    pub const fn homes(slot: Slot) -> DirId {
        let low = ((slot.0 as u64) << 48).wrapping_mul(Self::GATHER) ^ Self::HOMES;
        DirId((Self::HOMES as u128) << 64 | low as u128)
    }

    /// The ID of a directory that is placed: its generation, which is given once, and the slot it is to be
    /// in. So it never comes twice, and says nothing of a name ([`Ids::Placed`]).
    pub const fn placed(generation: Generation, slot: Slot) -> DirId {
        let low = ((slot.0 as u64) << 48).wrapping_mul(Self::GATHER) ^ generation.0;
        DirId((generation.0 as u128) << 64 | low as u128)
    }

    /// Whether this is the [`DirId::homes`] of a slot.
    pub fn is_homes(self) -> bool {
        (self.0 >> 64) as u64 == Self::HOMES && self == DirId::homes(self.first_slot())
    }

    /// The slot of a directory's part 0: all of it, if it is not split ([`crate::Part`]).
    pub(crate) fn first_slot(self) -> Slot {
        // IDs are hashes, but test modes shorten them to a few bits: spread what is there over all slots.
        let folded = (self.0 as u64) ^ ((self.0 >> 64) as u64);
        let mixed = folded.wrapping_mul(Self::SPREAD);
        Slot(((mixed >> 48) as u16) % SLOTS)
    }
}

/// How new directories get their IDs. Fixed at format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ids {
    /// By a hash of where they were born: a client that knows the names can guess them (InfiniFS §3.3.1).
    #[default]
    Predicted,
    /// By their generation and a slot of the less loaded of two servers (IndexFS §II-A).
    Placed,
}

impl Ids {
    /// The word in `cluster.json`.
    pub fn word(self) -> &'static str {
        match self {
            Ids::Predicted => "predicted",
            Ids::Placed => "placed",
        }
    }

    /// What a word means.
    pub fn of_word(word: &str) -> Option<Ids> {
        [Ids::Predicted, Ids::Placed]
            .into_iter()
            .find(|ids| ids.word() == word)
    }
}

impl fmt::Debug for DirId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DirId({:032x})", self.0)
    }
}

impl fmt::Display for DirId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Ino {
    /// The root directory's inode number, as programs expect it of a mount.
    pub const ROOT: Ino = Ino(1);

    /// Number `counter` of `slot`. Counters start at 2 so that no allocated number equals [`Ino::ROOT`].
    pub fn new(slot: Slot, counter: u64) -> Ino {
        Ino((u64::from(slot.0) << 48) | (counter & 0xFFFF_FFFF_FFFF))
    }

    /// The slot that allocated this number.
    pub fn slot(self) -> Slot {
        Slot((self.0 >> 48) as u16)
    }
}

const _: () = assert!(DirId::SPREAD.wrapping_mul(DirId::GATHER) == 1);
const _: () = assert!(SLOTS <= 1 << 12, "a slot has 12 bits of a generation");

impl Generation {
    /// The root directory's generation.
    pub const ROOT: Generation = Generation(1);
    /// The generation of [`DirId::ABOVE_ROOT`], which is never removed.
    pub const ABOVE_ROOT: Generation = Generation(0);

    /// Counters of generations stop before this.
    pub const COUNTERS: u64 = 1 << 36;

    /// Number `counter` of `slot` in its ownership epoch `epoch`. It rises with both, and no other slot gives
    /// it: directories whose IDs collide are told apart by it, whichever names they were born under.
    pub fn new(epoch: u16, slot: Slot, counter: u64) -> Generation {
        let counter = counter % Self::COUNTERS;
        Generation((u64::from(epoch) << 48) | (counter << 12) | u64::from(slot.0 % SLOTS))
    }

    /// The slot that gave it. (That of the root and of the place above it were given by none.)
    pub fn slot(self) -> Slot {
        Slot((self.0 as u16) % SLOTS)
    }
}

/// Where and as what a directory was born; its ID is the hash of this.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Birth {
    /// The parent directory at birth.
    pub parent: DirId,
    /// The name at birth.
    pub name: Name,
    /// Tells apart directories born under one name while an earlier one lives elsewhere (H2).
    pub version: u32,
}

/// A distributed transaction. Unique for ever: the coordinator's boot epoch is durable and rises.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxId {
    /// The server that decides.
    pub coordinator: ServerId,
    /// Its boot epoch when it began the transaction.
    pub boot: BootEpoch,
    /// Counts the transactions of that boot.
    pub number: u64,
}

impl fmt::Display for TxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.coordinator, self.boot, self.number)
    }
}

/// What names a mutating request for ever: a retry carries the same one (H44–H48).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId {
    /// The client incarnation.
    pub session: SessionId,
    /// Its lane.
    pub slot: RequestSlot,
    /// The number within the lane.
    pub sequence: Sequence,
}

/// Whom a statement is given to: it is worth nothing to anybody else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bearer {
    /// Under whose name the connection was opened.
    pub identity: IdentityId,
    /// Which program or mount of theirs.
    pub instance: Instance,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_its_homes() {
        for slot in (0..SLOTS).map(Slot) {
            let homes = DirId::homes(slot);
            assert_eq!(homes.first_slot(), slot);
            let placed = DirId::placed(Generation(0x1_0000_0000_7000 | u64::from(slot.0)), slot);
            assert_eq!((placed.first_slot(), placed.is_homes()), (slot, false));
            assert!(homes.is_homes());
            assert!(!DirId(homes.0 ^ 1).is_homes());
        }
        assert!(!DirId::ROOT.is_homes() && !DirId::ABOVE_ROOT.is_homes());
    }

    #[test]
    fn a_generation_is_its_slots_alone_and_rises() {
        let last = Generation::COUNTERS - 1;
        let (a, b) = (Slot(7), Slot(SLOTS - 1));
        assert_ne!(Generation::new(1, a, 3), Generation::new(1, b, 3));
        assert!(Generation::new(1, b, 3) < Generation::new(1, a, 4));
        assert!(Generation::new(1, b, last) < Generation::new(2, a, 0));
        assert!(Generation::ROOT < Generation::new(1, Slot(0), 0));
        assert_eq!(Generation::new(3, b, last).slot(), b);
    }
}
