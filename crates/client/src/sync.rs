//! What is to survive a power failure, on the servers that have it.

use crate::Client;
use pando_types::{Division, Errno, Name, Part, Slot};
use pando_wire::{Op, Statement};

impl Client {
    /// Makes what was acknowledged for the entry of a name survive a power failure, on the server that has
    /// it.
    pub async fn sync_entry(&self, dir: &Statement, name: &Name) -> Result<(), Errno> {
        if self.may_be_divided(dir) {
            // A server that does not have the name says which has; whether it is there does not matter.
            let (dir, name) = (dir.clone(), name.clone());
            match self.op(&self.own_cred(), Op::Lookup { dir, name }).await {
                Ok(_) | Err(Errno::NotFound | Errno::Access | Errno::Stale) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.sync_slot(self.part_with(dir, name).slot()).await
    }

    /// The same, of everything in a directory.
    pub async fn sync_dir(&self, dir: &Statement) -> Result<(), Errno> {
        match self.map().placement.division() {
            Division::Whole => self.sync_slot(Part::whole(dir.id).slot()).await,
            // Which servers have some of it changes while it is asked.
            Division::Halves | Division::OneByOne => self.sync_all().await,
        }
    }

    /// Makes everything acknowledged survive a power failure, on the server that owns `slot`.
    pub async fn sync_slot(&self, slot: Slot) -> Result<(), Errno> {
        self.heeding(Box::pin(self.sync_owner(slot))).await
    }

    async fn sync_owner(&self, slot: Slot) -> Result<(), Errno> {
        loop {
            let map = self.map();
            self.at(map.owner(slot), Op::Sync).await?;
            // With another map it may be another server's.
            if self.map().epoch == map.epoch {
                return Ok(());
            }
        }
    }
}
