//! The cluster map: which server answers for which slot. Versioned by an epoch.

use pando_format::{Codec, HashWidths, codec_struct};
use pando_types::{AuthMode, FsId, MapEpoch, SLOTS, ServerId, Slot};
use thiserror::Error;

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
    /// The server that serialises renames of directories between parents.
    pub rename_server: ServerId,
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
}

impl ClusterMap {
    /// Spreads all slots evenly over `servers`, in runs.
    pub fn spread(servers: &[ServerInfo]) -> Vec<ServerId> {
        let n = servers.len().max(1);
        (0..usize::from(SLOTS))
            .filter_map(|s| servers.get(s * n / usize::from(SLOTS)).map(|i| i.id))
            .collect()
    }

    /// Checks that every slot has an owner.
    pub fn check(&self) -> Result<(), MapError> {
        if self.servers.is_empty() {
            return Err(MapError::NoServers);
        }
        if self.slots.len() != usize::from(SLOTS) {
            return Err(MapError::Slots(self.slots.len()));
        }
        for (slot, owner) in self.slots.iter().enumerate() {
            if self.server(*owner).is_none() {
                return Err(MapError::UnknownOwner(Slot(slot as u16), *owner));
            }
        }
        Ok(())
    }

    /// The owner of a slot. REQUIRES: the map was checked.
    pub fn owner(&self, slot: Slot) -> ServerId {
        self.slots
            .get(usize::from(slot.0))
            .copied()
            .unwrap_or(self.rename_server)
    }

    /// A server by number.
    pub fn server(&self, id: ServerId) -> Option<&ServerInfo> {
        self.servers.iter().find(|s| s.id == id)
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

codec_struct!(ClusterMap {
    fs,
    epoch,
    servers,
    slots,
    rename_server,
    inline_limit,
    block_size,
    blocks,
    name_bits,
    id_bits,
    auth
});
