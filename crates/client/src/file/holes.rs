//! Where a file has data.

use super::{Body, OpenFile, block_errno};
use pando_data::Blocks;
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
                let end = self.placed().min(bytes.len() as u64);
                Ok((from < end).then_some((from, end)).or(self.tail_from(from)))
            }
            // Not shown to us: all of it may be data.
            Body::Unread => Ok(Some((from, self.size))),
            Body::Blocks(size) => {
                let size = u64::from(*size);
                let placed = self.placed();
                if from >= placed {
                    return Ok(self.tail_from(from));
                }
                let run = self.blocks_from(blocks, from / size, placed.div_ceil(size));
                let run = run.await?.map(|(first, end)| {
                    let end = end.saturating_mul(size).min(placed);
                    (from.max(first * size), end)
                });
                Ok(run.or(self.tail_from(from)))
            }
        }
    }

    /// The stretch of appended bytes.
    fn tail_from(&self, from: u64) -> Option<(u64, u64)> {
        (!self.tail.is_empty()).then_some((from.max(self.placed()), self.size))
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
