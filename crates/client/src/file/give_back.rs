//! Space that a file took which could not be published, given back.

use super::{Body, OpenFile, Ops, block_errno, in_blocks};
use pando_data::Blocks;
use pando_types::{Access, Cred, Errno};

impl OpenFile {
    /// The last handle closes, there was no space for all that was written, and the program was told so.
    /// Publishes what could be stored, as far as it goes without a gap. Where the servers refuse that too,
    /// what they do not know of is removed. Fails if neither can be done.
    pub async fn give_back(&mut self, ops: &impl Ops, blocks: &dyn Blocks, cred: &Cred) -> Result<(), Errno> {
        if self.removed || self.dirty.is_none() {
            return Ok(());
        }
        let before = self.size;
        self.drop_unstored();
        if self.flush(ops, blocks, cred).await.is_ok() {
            if let Body::Blocks(block_size) = self.body {
                self.clear(blocks, block_size, self.size, before).await?;
            }
            return Ok(());
        }
        let place = self.location.get();
        let entry = super::open(ops, &ops.own(), &place, Access(0)).await?.entry;
        let same = (entry.attr.ino, entry.attr.generation) == (self.key.ino, self.key.generation);
        // Another mount has published, perhaps of what is here.
        if !same || entry.version != self.version {
            return Err(Errno::NoSpace);
        }
        match self.body {
            Body::Blocks(block_size) if in_blocks(&entry) => {
                self.clear(blocks, block_size, entry.attr.size, before).await
            }
            Body::Blocks(_) | Body::Memory(_) | Body::Unread if in_blocks(&entry) => Ok(()),
            Body::Blocks(_) | Body::Memory(_) | Body::Unread => {
                blocks.remove(self.key, 0, u64::MAX).await.map_err(block_errno)
            }
        }
    }

    /// Forgets what is in memory and goes to blocks: it cannot be stored.
    fn drop_unstored(&mut self) {
        if !matches!(self.body, Body::Blocks(_)) && self.tail.is_empty() {
            return;
        }
        self.size = self.placed();
        self.tail = Vec::new();
        if let Body::Blocks(block_size) = self.body
            && let Some((from, to)) = self.gathered_span(block_size)
            && to >= self.size
        {
            self.size = from;
        }
        self.gathered = None;
        self.changes.shrunk(self.size);
    }
}
