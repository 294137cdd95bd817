//! The cluster map: which server answers for which slot. Versioned by an epoch.

mod coherence;
#[cfg(feature = "conformance")]
pub mod conformance;
mod coord;
mod file;
mod placement;
mod plan;
mod split;

pub use coherence::{Coherence, LeaseLength, LeaseUse};
pub use coord::{Coord, CoordError, MemCoord, Membership, View, may_replace};
pub use file::{ClusterFile, FileError, PlanText, Profile, Server};
pub use placement::Placement;
use placement::{put_placing, take_placing};
pub use plan::{Plan, PlanError, SERVERS, SlotMove};
pub use split::due;

use pando_format::{Codec, DecodeError, HashWidths, Key, Reader, codec_enum, codec_struct};
use pando_types::{
    AuthMode, Birth, DirId, FsId, Generation, Ids, MapEpoch, Part, SLOTS, ServerId, Slot, Term,
};
use std::collections::BTreeSet;
use thiserror::Error;

/// Lengths of the longest leases, in milliseconds.
const LEASES: std::ops::RangeInclusive<u32> = 100..=60_000;

/// A metadata server as others reach it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerInfo {
    /// Its number.
    pub id: ServerId,
    /// `host:port` for clients and servers.
    pub address: String,
    /// `host:port` of its Prometheus endpoint.
    pub metrics: String,
}

/// How an operation changes directories of two servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectoryUpdates {
    /// Always by two-phase commit, as InfiniFS does (§4.2).
    TwoPhase,
    /// By two-phase commit but for mkdir: the parent's server decides alone, and owes the new directory's
    /// content to the server that is to have it.
    ParentFirst,
}

/// The map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterMap {
    /// The filesystem.
    pub fs: FsId,
    /// Rises with every change.
    pub epoch: MapEpoch,
    /// All servers.
    pub servers: Vec<ServerInfo>,
    /// Owner of each slot, by slot number.
    pub slots: Vec<ServerId>,
    /// The server that coordinates changes of directories' names, parents and permissions.
    pub coordinator: ServerId,
    /// Its term: rises whenever another takes its place.
    pub term: Term,
    /// The server that keeps the identities.
    pub keeper: ServerId,
    /// Largest file kept beside its record, in bytes.
    pub inline_limit: u32,
    /// Size of the blocks of larger files, in bytes.
    pub block_size: u32,
    /// Where the blocks are: `file:PATH`.
    pub blocks: String,
    /// Width of name hashes in bits.
    pub name_bits: u8,
    /// Width of directory IDs in bits.
    pub id_bits: u8,
    /// How clients identify themselves.
    pub auth: AuthMode,
    /// How what clients know of directories is kept true.
    pub coherence: Coherence,
    /// Where a directory's entries are, and its counts and times.
    pub placement: Placement,
    /// How new directories get their IDs.
    pub ids: Ids,
    /// How directories of two servers are changed.
    pub updates: DirectoryUpdates,
    /// What is to move where, and who is on its way out.
    pub plan: Plan,
}

/// Why a map is not usable.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum MapError {
    /// No servers.
    #[error("the cluster map names no server")]
    NoServers,
    /// A slot without an owner among the servers.
    #[error("slot {0} belongs to server {1}, which the map does not name")]
    UnknownOwner(Slot, ServerId),
    /// Not as many slots as the filesystem has.
    #[error("the cluster map has {0} slots, not {SLOTS}")]
    Slots(usize),
    /// One number, two servers.
    #[error("the cluster map names server {0} twice")]
    TwoServers(ServerId),
    /// Nobody coordinates.
    #[error("the coordinator is server {0}, which the map does not name")]
    UnknownCoordinator(ServerId),
    /// Nobody keeps the identities.
    #[error("identities are kept by server {0}, which the map does not name")]
    UnknownKeeper(ServerId),
    /// Nobody is on its way out under this number.
    #[error("server {0} is on its way out, but the map does not name it")]
    UnknownLeaving(ServerId),
    /// A run of slots to move is out of order or out of bounds.
    #[error("slots {0}..{1} cannot be on the move: runs are not empty, in order and of slots that exist")]
    Moves(Slot, Slot),
    /// No file could be stored in such blocks.
    #[error("blocks of {0} bytes: their size is a power of two")]
    BlockSize(u32),
    /// Leases of no time, or of more than clients keep asking for.
    #[error("leases of {0} ms: they are at least 100 ms and at most 60 s")]
    Lease(u32),
    /// Hashes cannot be that wide.
    #[error("hashes of {} and {} bits: names have 1 to 55, directories 8 to 128", .0.name_bits, .0.id_bits)]
    Widths(HashWidths),
}

impl ClusterMap {
    /// Spreads all slots evenly over `servers`, in runs.
    pub fn spread(servers: &[ServerInfo]) -> Vec<ServerId> {
        let n = servers.len().max(1);
        (0..usize::from(SLOTS))
            .filter_map(|s| servers.get(s * n / usize::from(SLOTS)).map(|i| i.id))
            .collect()
    }

    /// Checks that it can be used: that every slot has an owner, and that every number is in its domain.
    pub fn check(&self) -> Result<(), MapError> {
        if self.servers.is_empty() {
            return Err(MapError::NoServers);
        }
        if self.slots.len() != usize::from(SLOTS) {
            return Err(MapError::Slots(self.slots.len()));
        }
        let mut ids = BTreeSet::new();
        if let Some(twice) = self.servers.iter().find(|s| !ids.insert(s.id)) {
            return Err(MapError::TwoServers(twice.id));
        }
        let mut slot = 0;
        // Mostly the same again.
        for run in self.slots.chunk_by(|a, b| a == b) {
            if let Some(owner) = run.first().filter(|owner| !ids.contains(owner)) {
                return Err(MapError::UnknownOwner(Slot(slot), *owner));
            }
            slot += run.len() as u16;
        }
        if !ids.contains(&self.coordinator) {
            return Err(MapError::UnknownCoordinator(self.coordinator));
        }
        if !ids.contains(&self.keeper) {
            return Err(MapError::UnknownKeeper(self.keeper));
        }
        self.plan.check(&ids)?;
        if !self.block_size.is_power_of_two() {
            return Err(MapError::BlockSize(self.block_size));
        }
        if let Some(longest) = self.coherence.longest_lease() {
            let millis = u32::try_from(longest.as_millis()).unwrap_or(u32::MAX);
            if !LEASES.contains(&millis) {
                return Err(MapError::Lease(millis));
            }
        }
        if !(1..=55).contains(&self.name_bits) || !(8..=128).contains(&self.id_bits) {
            return Err(MapError::Widths(self.widths()));
        }
        Ok(())
    }

    /// The owner of a slot. REQUIRES: the map was checked.
    pub fn owner(&self, slot: Slot) -> ServerId {
        self.slots
            .get(usize::from(slot.0))
            .copied()
            .unwrap_or(self.coordinator)
    }

    /// The server that has a record. REQUIRES: the map was checked, and the record is not one of those that
    /// never leave their store.
    pub fn home(&self, key: &Key) -> ServerId {
        match key {
            Key::Touch(part) => self.owner(self.placement.touch_slot(*part)),
            key => self.owner(key.slot()),
        }
    }

    /// Whether a server was part of the cluster and is no more. One that this map does not know yet has not
    /// left.
    pub fn has_left(&self, id: ServerId) -> bool {
        id < self.plan.next && self.server(id).is_none()
    }

    /// A server by number.
    pub fn server(&self, id: ServerId) -> Option<&ServerInfo> {
        self.servers.iter().find(|s| s.id == id)
    }

    /// Whether a directory has the ID that one born so, with this generation, gets. Short IDs that are placed
    /// may be any.
    pub fn is_born(&self, id: DirId, birth: &Birth, generation: Generation) -> bool {
        match self.ids {
            Ids::Predicted => self.widths().dir_id(birth) == id,
            Ids::Placed => self.id_bits < 128 || DirId::placed(generation, Part::whole(id).slot()) == id,
        }
    }

    /// The hash widths of the filesystem.
    pub fn widths(&self) -> HashWidths {
        HashWidths {
            name_bits: self.name_bits,
            id_bits: self.id_bits,
        }
    }

    /// A map from untrusted bytes, checked.
    pub fn decode(bytes: &[u8]) -> Result<ClusterMap, String> {
        let map = ClusterMap::from_bytes(bytes).map_err(|e| e.to_string())?;
        map.check().map_err(|e| e.to_string())?;
        Ok(map)
    }
}

codec_struct!(ServerInfo { id, address, metrics });

impl Codec for ClusterMap {
    fn put(&self, out: &mut Vec<u8>) {
        self.fs.put(out);
        self.epoch.put(out);
        self.servers.put(out);
        self.slots.put(out);
        self.coordinator.put(out);
        self.term.put(out);
        self.keeper.put(out);
        self.inline_limit.put(out);
        self.block_size.put(out);
        self.blocks.put(out);
        self.name_bits.put(out);
        self.id_bits.put(out);
        self.auth.put(out);
        self.coherence.put(out);
        put_placing(self.placement, self.ids, out);
        self.updates.put(out);
        self.plan.put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<ClusterMap, DecodeError> {
        let fs = Codec::take(r)?;
        let epoch = Codec::take(r)?;
        let servers = Codec::take(r)?;
        let slots = Codec::take(r)?;
        let coordinator = Codec::take(r)?;
        let term = Codec::take(r)?;
        let keeper = Codec::take(r)?;
        let inline_limit = Codec::take(r)?;
        let block_size = Codec::take(r)?;
        let blocks = Codec::take(r)?;
        let name_bits = Codec::take(r)?;
        let id_bits = Codec::take(r)?;
        let auth = Codec::take(r)?;
        let coherence = Codec::take(r)?;
        let (placement, ids) = take_placing(r)?;
        let updates = Codec::take(r)?;
        let plan = Codec::take(r)?;
        Ok(ClusterMap {
            fs,
            epoch,
            servers,
            slots,
            coordinator,
            term,
            keeper,
            inline_limit,
            block_size,
            blocks,
            name_bits,
            id_bits,
            auth,
            coherence,
            placement,
            ids,
            updates,
            plan,
        })
    }
}

codec_enum!(DirectoryUpdates { 1 => TwoPhase, 2 => ParentFirst });
