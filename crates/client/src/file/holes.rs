//! Where a file has data.

use super::{Body, OpenFile, block_errno};
use pando_data::{Blocks, StoredBlock};
use pando_format::HOLE_MIN;
use pando_types::Errno;

/// So many blocks are looked for one by one before a store is asked for all that follow.
const NEAR: u64 = 64;

impl OpenFile {
    /// The first stretch with data that ends after `from`: where it begins, or `from` if that is later, and
    /// where it ends. `None`: zeros from there to the end. A block counts as data up to the last byte that
    /// was written to it.
    pub async fn data_from(&self, blocks: &dyn Blocks, from: u64) -> Result<Option<(u64, u64)>, Errno> {
        if from >= self.size {
            return Ok(None);
        }
        match &self.body {
            Body::Memory(bytes) => {
                let end = self.placed().min(bytes.len() as u64);
                Ok((from < end).then_some((from, end)).or(self.tail_from(from)))
            }
            // Not shown to us: all of it may be data.
            Body::Unread => Ok(Some((from, self.size))),
            Body::Blocks(size) => {
                let size = u64::from(*size);
                let middle = (from / size).saturating_add(NEAR);
                let mut run: Option<(u64, u64)> = None;
                let all = self.placed().div_ceil(size);
                for (first, after) in [(from / size, middle.min(all)), (middle.min(all), all)] {
                    if first < after
                        && self
                            .grow_run(blocks, size, from, (first, after), &mut run)
                            .await?
                    {
                        break;
                    }
                }
                Ok(run.or(self.tail_from(from)))
            }
        }
    }

    /// The stretch of appended bytes.
    fn tail_from(&self, from: u64) -> Option<(u64, u64)> {
        (!self.tail.is_empty()).then_some((from.max(self.placed()), self.size))
    }

    /// Adds what blocks `first..after` have behind `from` to a run of data. Whether it ends there.
    async fn grow_run(
        &self,
        blocks: &dyn Blocks,
        size: u64,
        from: u64,
        (first, after): (u64, u64),
        run: &mut Option<(u64, u64)>,
    ) -> Result<bool, Errno> {
        for block in self.stored_blocks(blocks, first, after).await? {
            let begin = block.number.saturating_mul(size);
            let end = begin.saturating_add(size.min(block.bytes.into()));
            let end = end.min(self.placed());
            match run {
                _ if end <= from.max(begin) => {}
                None => *run = Some((from.max(begin), end)),
                Some((_, last)) if *last == begin => *last = end,
                Some(_) => return Ok(true),
            }
        }
        Ok(run.is_some_and(|(_, end)| end < after.saturating_mul(size)))
    }

    /// What there is of blocks `from..to`, what was gathered included.
    pub(super) async fn stored_blocks(
        &self,
        blocks: &dyn Blocks,
        from: u64,
        to: u64,
    ) -> Result<Vec<StoredBlock>, Errno> {
        let mut there = blocks.stored(self.key, from, to).await.map_err(block_errno)?;
        if let Some(gathered) = self.gathered_end().filter(|g| (from..to).contains(&g.number)) {
            match there.binary_search_by_key(&gathered.number, |b| b.number) {
                Ok(at) => there[at].bytes = there[at].bytes.max(gathered.bytes),
                Err(at) => there.insert(at, gathered),
            }
        }
        Ok(there)
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
    async fn zero(&mut self, blocks: &dyn Blocks, block_size: u32, from: u64, to: u64) -> Result<(), Errno> {
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
}
