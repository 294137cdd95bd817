//! Writes that are gathered before they are stored.
//!
//! Programs write in pieces that are smaller than blocks, and kernels hand them on so. Of an open file one
//! stretch within one block is kept here while writes continue it, and is stored when the block is full, when
//! something else is to be done with the blocks, and before anything is published or synced (close-to-open
//! asks for no more). Reads see it. If it cannot be stored it is kept, and whoever writes, flushes or closes
//! next hears why.

use super::append::Turns;
use super::io::piece;
use super::{OpenFile, block_errno};
use pando_data::{Blocks, StoredBlock};
use pando_types::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Bytes of this process that may be gathered at once, of all its open files. Writes that find no room are
/// stored at once.
const MOST: u64 = 256 << 20;
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Room for one block of one open file, until it is dropped.
#[derive(Debug)]
pub(super) struct Room(u64);

impl Room {
    fn take(bytes: u64) -> Option<Arc<Room>> {
        let enough = |taken: u64| taken.checked_add(bytes).filter(|t| *t <= MOST);
        let took = TAKEN.fetch_update(SeqCst, SeqCst, enough).is_ok();
        took.then(|| Arc::new(Room(bytes)))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, SeqCst);
    }
}

/// Bytes of one block that are not stored yet.
#[derive(Clone, Debug)]
pub(super) struct Gathered {
    block: u64,
    from: u32,
    bytes: Vec<u8>,
}

impl Gathered {
    fn end(&self) -> u64 {
        u64::from(self.from) + self.bytes.len() as u64
    }

    /// Whether a write there continues or overwrites it.
    fn takes(&self, block: u64, within: u32) -> bool {
        self.block == block && self.from <= within && u64::from(within) <= self.end()
    }

    fn put(&mut self, within: u32, data: &[u8]) {
        let at = (within - self.from) as usize;
        let over = data.len().min(self.bytes.len() - at);
        self.bytes[at..at + over].copy_from_slice(&data[..over]);
        self.bytes.extend_from_slice(&data[over..]);
    }
}

impl OpenFile {
    /// From now on writes are gathered.
    pub fn gathering(mut self) -> OpenFile {
        self.gathers = true;
        self
    }

    /// From now on what is appended has no place before it is published, and mounts take turns to append to
    /// blocks.
    pub fn appending(mut self, turns: Arc<dyn Turns>) -> OpenFile {
        self.turns = Some(turns);
        self
    }

    /// Stores `data`, or keeps it to be stored.
    pub(super) async fn store(
        &mut self,
        blocks: &dyn Blocks,
        block_size: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        let mut done = 0;
        while done < data.len() {
            let (block, within, n) = piece(offset + done as u64, data.len() - done, block_size);
            let part = &data[done..done + n as usize];
            self.unsynced.insert(block);
            self.count.wrote(block, within + n);
            if let Some(gathered) = self.gathered.as_mut().filter(|g| g.takes(block, within)) {
                gathered.put(within, part);
            } else {
                self.drain(blocks).await?;
                if self.gathers && n < block_size && self.has_room(block_size) {
                    let mut bytes = std::mem::take(&mut self.spare);
                    bytes.clear();
                    bytes.extend_from_slice(part);
                    self.gathered = Some(Gathered {
                        block,
                        from: within,
                        bytes,
                    });
                } else {
                    let stored = blocks.write(self.key, block, within, part.to_vec());
                    stored.await.map_err(block_errno)?;
                }
            }
            if self
                .gathered
                .as_ref()
                .is_some_and(|g| g.end() >= u64::from(block_size))
            {
                self.drain(blocks).await?;
            }
            done += n as usize;
        }
        Ok(())
    }

    fn has_room(&mut self, block_size: u32) -> bool {
        if self.room.is_none() {
            self.room = Room::take(u64::from(block_size));
        }
        self.room.is_some()
    }

    /// Nothing is gathered: the room is for others.
    pub(super) fn leave_room(&mut self) {
        if self.gathered.is_none() {
            self.spare = Vec::new();
            self.room = None;
        }
    }

    /// Stores what was gathered. If that fails it is still there.
    pub(super) async fn drain(&mut self, blocks: &dyn Blocks) -> Result<(), Errno> {
        let Some(Gathered { block, from, bytes }) = self.gathered.take() else {
            return Ok(());
        };
        let bytes = Arc::new(bytes);
        let stored = blocks.write_shared(self.key, block, from, bytes.clone()).await;
        let bytes = Arc::try_unwrap(bytes).unwrap_or_else(|shared| shared.to_vec());
        match stored {
            Ok(()) => {
                // The next block needs as much.
                self.spare = bytes;
                Ok(())
            }
            Err(e) => {
                self.gathered = Some(Gathered { block, from, bytes });
                Err(block_errno(e))
            }
        }
    }

    /// Which bytes of the file are gathered.
    pub(super) fn gathered_span(&self, block_size: u32) -> Option<(u64, u64)> {
        let g = self.gathered.as_ref()?;
        let begin = g.block.saturating_mul(u64::from(block_size));
        Some((begin + u64::from(g.from), begin + g.end()))
    }

    /// How much of its block will be there when what is gathered is stored.
    pub(super) fn gathered_end(&self) -> Option<StoredBlock> {
        self.gathered.as_ref().map(|g| StoredBlock {
            number: g.block,
            bytes: u32::try_from(g.end()).unwrap_or(u32::MAX),
        })
    }

    /// The block that something is gathered of.
    pub(super) fn gathered_block(&self) -> Option<u64> {
        self.gathered.as_ref().map(|g| g.block)
    }

    /// Whether a piece of a block is here whole.
    pub(super) fn gathered_whole(&self, block: u64, within: u32, len: u32) -> bool {
        let end = u64::from(within) + u64::from(len);
        self.gathered
            .as_ref()
            .is_some_and(|g| g.takes(block, within) && end <= g.end())
    }

    /// Puts what was gathered over what was stored.
    pub(super) fn show_gathered(&self, block: u64, within: u32, data: &mut [u8]) {
        let Some(g) = self.gathered.as_ref().filter(|g| g.block == block) else {
            return;
        };
        let (start, end) = (u64::from(within), u64::from(within) + data.len() as u64);
        let (from, to) = (start.max(u64::from(g.from)), end.min(g.end()));
        if from < to {
            let source = (from - u64::from(g.from)) as usize..(to - u64::from(g.from)) as usize;
            data[(from - start) as usize..(to - start) as usize].copy_from_slice(&g.bytes[source]);
        }
    }
}
