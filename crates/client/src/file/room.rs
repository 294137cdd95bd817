//! Whether there is room for what a program means to write: `fallocate`.
//!
//! No space is set aside: others may have taken it by the time it is written to. What there is no room for
//! now is refused.

use super::{Body, OpenFile, Ops, SIZE_MAX, block_errno};
use pando_data::Blocks;
use pando_types::{Cred, Errno, Timestamp};

/// The content of a range afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Its content stays.
    AsItIs,
    /// Zeros, with room for other bytes.
    Zeros,
    /// Zeros, and its room is given back.
    Hole,
}

/// What `fallocate` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// Where the range begins.
    pub offset: u64,
    /// Bytes in it.
    pub len: u64,
    /// The content that it gets.
    pub fill: Fill,
    /// Whether the file stays as long as it is, if the range ends after it.
    pub keeps_size: bool,
}

impl OpenFile {
    /// Makes a range what it is to be, and the file as long as that. EFBIG: it ends past [`SIZE_MAX`].
    /// ENOSPC: there is no room for what is not stored yet. If it fails for either reason nothing was
    /// changed.
    pub async fn allocate(
        &mut self,
        ops: &impl Ops,
        blocks: &dyn Blocks,
        cred: &Cred,
        what: Allocation,
        now: Timestamp,
    ) -> Result<(), Errno> {
        let Allocation { offset, len, .. } = what;
        let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX);
        let end = end.ok_or(Errno::TooBig)?;
        self.place_tail(ops, blocks, now).await?;
        match what.fill {
            Fill::AsItIs => self.needs_room(ops, blocks, offset, end).await?,
            Fill::Zeros => {
                self.needs_room(ops, blocks, offset, end).await?;
                self.punch(blocks, cred, offset, len, now).await?;
            }
            Fill::Hole => self.punch(blocks, cred, offset, len, now).await?,
        }
        if !what.keeps_size && end > self.size {
            self.truncate(ops, blocks, cred, end, now, true).await?;
        }
        Ok(())
    }

    /// ENOSPC if the block store lacks the room for those bytes of `offset..end` that are not in it. What is
    /// small enough to be beside its record needs none there.
    async fn needs_room(
        &self,
        ops: &impl Ops,
        blocks: &dyn Blocks,
        offset: u64,
        end: u64,
    ) -> Result<(), Errno> {
        let size = match &self.body {
            Body::Memory(_) | Body::Unread if end.max(self.size) <= u64::from(ops.inline_limit()) => {
                return Ok(());
            }
            Body::Memory(_) | Body::Unread => None,
            Body::Blocks(size) => Some(u64::from((*size).max(1))),
        };
        // `None`: the store takes whatever it is given.
        let Some(free) = blocks.room().await.map_err(block_errno)? else {
            return Ok(());
        };
        let mut missing = end - offset;
        if missing > free
            && let Some(size) = size
        {
            let (first, after) = (offset / size, end.div_ceil(size));
            let mut there = blocks
                .present(self.key, first, after)
                .await
                .map_err(block_errno)?;
            if let Some(n) = self.gathered_block().filter(|n| (first..after).contains(n))
                && let Err(at) = there.binary_search(&n)
            {
                there.insert(at, n);
            }
            for n in there {
                let begin = n.saturating_mul(size);
                let within = begin
                    .saturating_add(size)
                    .min(end)
                    .saturating_sub(begin.max(offset));
                missing = missing.saturating_sub(within);
            }
        }
        if missing > free {
            return Err(Errno::NoSpace);
        }
        Ok(())
    }
}
