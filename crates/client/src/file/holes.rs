//! Where a file has data.

use super::{Body, OpenFile, block_errno};
use pando_data::Blocks;
use pando_format::HOLE_MIN;
use pando_types::Errno;

/// So many blocks are looked for one by one before a store is asked for all that follow.
const NEAR: u64 = 64;

impl OpenFile {
    /// The first stretch with data that ends after `from`: where it begins, or `from` if that is later, and where it ends.
    /// `None`: zeros from there to the end. A block that was written anywhere counts as data whole.
    pub async fn data_from(&self, blocks: &dyn Blocks, from: u64) -> Result<Option<(u64, u64)>, Errno> {
        if from >= self.size {
            return Ok(None);
        }
        match &self.body {
            Body::Memory(bytes) => {
                let end = self.size.min(bytes.len() as u64);
                Ok((from < end).then_some((from, end)))
            }
            // Not shown to us: all of it may be data.
            Body::Unread => Ok(Some((from, self.size))),
            Body::Blocks(size) => {
                let size = u64::from(*size);
                let run = self.blocks_from(blocks, from / size, self.size.div_ceil(size));
                let run = run.await?;
                Ok(run.map(|(first, end)| {
                    let end = end.saturating_mul(size).min(self.size);
                    (from.max(first * size), end)
                }))
            }
        }
    }

    /// Makes `offset..end` of a file in blocks zeros, giving back whole blocks.
    pub(super) async fn punch_blocks(
        &mut self,
        blocks: &dyn Blocks,
        block_size: u32,
        offset: u64,
        end: u64,
    ) -> Result<(), Errno> {
        self.drain(blocks).await?;
        let size = u64::from(block_size);
        if end == self.size && self.size > HOLE_MIN {
            self.count_for_hole(blocks, self.size).await;
            return self.clear(blocks, block_size, offset, end).await;
        }
        self.count_told(blocks).await;
        let (first, last) = (offset.div_ceil(size), end / size);
        if first > last {
            return self.zero(blocks, block_size, offset, end).await;
        }
        if offset < last * size {
            self.count_for_hole(blocks, self.size).await;
        }
        self.zero(blocks, block_size, offset, first * size).await?;
        if first < last {
            blocks.remove(self.key, first, last).await.map_err(block_errno)?;
            self.count.removed(first, last);
            self.unsynced.insert(first);
        }
        self.zero(blocks, block_size, last * size, end).await
    }

    /// Makes a stretch of one block zeros. If what is there is known to end in it, it is cut.
    async fn zero(
        &mut self,
        blocks: &dyn Blocks,
        block_size: u32,
        from: u64,
        to: u64,
    ) -> Result<(), Errno> {
        let size = u64::from(block_size);
        let (block, within) = (from / size, (from % size) as u32);
        match self.count.of_block(block) {
            Some(there) if there <= within => return Ok(()),
            Some(there) if u64::from(there) <= u64::from(within) + (to - from) => {
                let cut = blocks.truncate(self.key, block, within);
                cut.await.map_err(block_errno)?;
                self.count.cut_block(block, within);
                self.unsynced.insert(block);
                return Ok(());
            }
            Some(_) | None => {}
        }
        self.store(blocks, block_size, from, &vec![0; (to - from) as usize])
            .await
    }

    /// The first run of blocks that are there, of those from `first` to before `end`.
    async fn blocks_from(
        &self,
        blocks: &dyn Blocks,
        first: u64,
        end: u64,
    ) -> Result<Option<(u64, u64)>, Errno> {
        let middle = first.saturating_add(NEAR).min(end);
        let mut run: Option<(u64, u64)> = None;
        for (from, to) in [(first, middle), (middle, end)] {
            if from >= to {
                continue;
            }
            let mut there = blocks.present(self.key, from, to).await.map_err(block_errno)?;
            if let Some(n) = self.gathered_block().filter(|n| (from..to).contains(n))
                && let Err(at) = there.binary_search(&n)
            {
                there.insert(at, n);
            }
            for n in there {
                match &mut run {
                    None => run = Some((n, n + 1)),
                    Some((_, next)) if *next == n => *next += 1,
                    Some(_) => return Ok(run),
                }
            }
            // It ends before what was looked at does.
            if run.is_some_and(|(_, next)| next < to) {
                return Ok(run);
            }
        }
        Ok(run)
    }
}
