//! Reading and writing bytes.

use super::count::Count;
use super::{Body, OpenFile, Ops, SIZE_MAX, block_errno};
use pando_data::Blocks;
use pando_format::HOLE_MIN;
use pando_types::{Cred, Errno, Timestamp};

impl OpenFile {
    /// Up to `len` bytes at `offset`; fewer only at the end of the file.
    pub async fn read(&self, blocks: &dyn Blocks, offset: u64, len: u32) -> Result<Vec<u8>, Errno> {
        let end = offset.saturating_add(u64::from(len)).min(self.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let len = (end - offset) as usize;
        match &self.body {
            Body::Memory(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let to = from.saturating_add(len).min(bytes.len());
                let mut out = bytes[from..to].to_vec();
                out.resize(len, 0);
                self.show_tail(offset, &mut out);
                Ok(out)
            }
            Body::Blocks(size) => {
                let mut out = Vec::new();
                // Past that it is in the tail.
                let stored = self.placed().saturating_sub(offset).min(len as u64) as usize;
                while out.len() < stored {
                    let (block, within, n) = piece(offset + out.len() as u64, stored - out.len(), *size);
                    let mut data = match self.gathered_whole(block, within, n) {
                        true => Vec::new(),
                        false => blocks
                            .read(self.key, block, within, n)
                            .await
                            .map_err(block_errno)?,
                    };
                    data.resize(n as usize, 0);
                    self.show_gathered(block, within, &mut data);
                    if out.is_empty() {
                        out = data;
                    } else {
                        out.append(&mut data);
                    }
                }
                out.resize(len, 0);
                self.show_tail(offset, &mut out);
                Ok(out)
            }
            Body::Unread => Err(Errno::Access),
        }
    }

    /// Writes at `offset`. `now` becomes the modification time. On an error the size is what it was; bytes
    /// within the old size may have been overwritten.
    pub async fn write(
        &mut self,
        ops: &impl Ops,
        blocks: &dyn Blocks,
        cred: &Cred,
        offset: u64,
        data: &[u8],
        now: Timestamp,
    ) -> Result<(), Errno> {
        if data.is_empty() {
            return Ok(());
        }
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|e| *e <= SIZE_MAX)
            .ok_or(Errno::TooBig)?;
        let outgrown = matches!(self.body, Body::Memory(_)) && self.size > u64::from(ops.inline_limit());
        if end > self.placed() || outgrown {
            self.place_tail(ops, blocks, now).await?;
        }
        let size = self.size.max(end);
        let unread = self.body == Body::Unread;
        if unread {
            if offset > 0 || end < self.size {
                return Err(Errno::Access);
            }
            self.body = Body::Memory(Vec::new());
        }
        let done = self.put(ops, blocks, (offset, data), size, now).await;
        if done.is_err() && unread && matches!(self.body, Body::Memory(_)) {
            self.body = Body::Unread;
        }
        done?;
        self.size = size;
        self.touch(now);
        self.changes.wrote(offset, end);
        self.wrote(cred);
        Ok(())
    }

    /// Stores `data`, after which the file has `size` bytes.
    pub(super) async fn put(
        &mut self,
        ops: &impl Ops,
        blocks: &dyn Blocks,
        (offset, data): (u64, &[u8]),
        size: u64,
        now: Timestamp,
    ) -> Result<(), Errno> {
        if let Body::Memory(bytes) = &mut self.body
            && size <= u64::from(ops.inline_limit())
        {
            let (from, to) = (offset as usize, offset as usize + data.len());
            if bytes.len() < to {
                bytes.resize(to, 0);
            }
            bytes[from..to].copy_from_slice(data);
        } else {
            let block_size = self.move_to_blocks(ops.block_size(), blocks, now).await?;
            if offset > self.size {
                self.clear(blocks, block_size, self.size, offset).await?;
            }
            self.count_for_write(blocks, block_size, offset).await;
            self.store(blocks, block_size, offset, data).await?;
        }
        Ok(())
    }

    /// Makes `offset..offset + len` zeros, giving back whole blocks. The size stays; what is past it stays
    /// zeros. REQUIRES: no tail.
    pub async fn punch(
        &mut self,
        blocks: &dyn Blocks,
        cred: &Cred,
        offset: u64,
        len: u64,
        now: Timestamp,
    ) -> Result<(), Errno> {
        let end = offset.saturating_add(len).min(self.size);
        if offset >= end {
            return Ok(());
        }
        match &mut self.body {
            Body::Memory(bytes) => {
                let to = usize::try_from(end).unwrap_or(usize::MAX).min(bytes.len());
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(to);
                bytes[from..to].fill(0);
                if to == bytes.len() && self.size > HOLE_MIN {
                    bytes.truncate(from);
                }
            }
            Body::Blocks(size) => {
                let block_size = *size;
                self.punch_blocks(blocks, block_size, offset, end).await?;
            }
            Body::Unread => return Err(Errno::Access),
        }
        self.touch(now);
        self.changes.wrote(offset, end);
        self.wrote(cred);
        Ok(())
    }

    /// Notes whose an unpublished write is, if publishing it must clear the set-id bits.
    pub(super) fn wrote(&mut self, cred: &Cred) {
        if !cred.is_root() && self.writer.as_ref() != Some(cred) {
            self.writer = Some(cred.clone());
        }
    }

    /// Moves the content to blocks if it is inline, and returns the size of the file's blocks. If it fails,
    /// the content is still in memory, and what was stored is past anything that is published.
    pub(super) async fn move_to_blocks(
        &mut self,
        new: u32,
        blocks: &dyn Blocks,
        now: Timestamp,
    ) -> Result<u32, Errno> {
        let bytes = match &mut self.body {
            Body::Blocks(size) => return Ok(*size),
            Body::Memory(bytes) => std::mem::take(bytes),
            Body::Unread => return Err(Errno::Access),
        };
        if let Err(e) = self.move_out(new, blocks, &bytes).await {
            self.gathered = None;
            self.body = Body::Memory(bytes);
            return Err(e);
        }
        self.body = Body::Blocks(new);
        self.count = Count::moved(bytes.len() as u64, self.size, new);
        // Even if the write that asked for it fails now: blocks that no layout speaks of would never be
        // freed.
        self.touch(now);
        Ok(new)
    }

    async fn move_out(&mut self, block_size: u32, blocks: &dyn Blocks, bytes: &[u8]) -> Result<(), Errno> {
        if block_size == 0 {
            return Err(Errno::Io);
        }
        // Blocks of an earlier life of this file (before a truncate to nothing) may still be there.
        if (bytes.len() as u64) < self.size {
            self.clear(blocks, block_size, bytes.len() as u64, self.size)
                .await?;
        }
        self.store(blocks, block_size, 0, bytes).await
    }

    /// Makes `from..to` read as zeros. REQUIRES: nothing of the file's content is at or past `from`.
    pub(super) async fn clear(
        &mut self,
        blocks: &dyn Blocks,
        block_size: u32,
        from: u64,
        to: u64,
    ) -> Result<(), Errno> {
        self.drain(blocks).await?;
        self.count.cut(from, block_size);
        let size = u64::from(block_size);
        let mut first = from / size;
        if !from.is_multiple_of(size) {
            blocks
                .truncate(self.key, first, (from % size) as u32)
                .await
                .map_err(block_errno)?;
            self.unsynced.insert(first);
            first += 1;
        }
        let end = to.div_ceil(size);
        if first < end {
            blocks.remove(self.key, first, end).await.map_err(block_errno)?;
            // One of them stands for the directory they were removed from.
            self.unsynced.insert(first);
        }
        Ok(())
    }

    /// Gives back the space past the end after a truncate from `old` bytes. Failure costs space only (see the
    /// module's second rule), and is reported for that reason alone.
    pub(super) async fn cut(&mut self, blocks: &dyn Blocks, old: u64) -> Result<(), Errno> {
        let Body::Blocks(size) = self.body else {
            return Ok(());
        };
        if self.size == 0 {
            self.gathered = None;
            blocks.remove(self.key, 0, u64::MAX).await.map_err(block_errno)?;
            // Empty again: what comes next may be small. Had the blocks stayed, they would be forgotten here.
            self.body = Body::Memory(Vec::new());
            self.count = Count::Whole;
            self.unsynced.clear();
        } else if self.size < old {
            self.unsynced
                .retain(|b| b.saturating_mul(u64::from(size)) < self.size);
            self.clear(blocks, size, self.size, old).await?;
        }
        Ok(())
    }
}

/// The part of `offset..offset + len` in one block: block, offset within, bytes.
pub(super) fn piece(offset: u64, len: usize, block_size: u32) -> (u64, u32, u32) {
    let size = u64::from(block_size.max(1));
    let within = offset % size;
    (
        offset / size,
        within as u32,
        (size - within).min(len as u64) as u32,
    )
}
