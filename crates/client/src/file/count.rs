//! How many bytes of a file are stored: what `st_blocks` and `du` count of it.
//!
//! Of a file without holes it is the size, and nobody asks. Where a hole is made, or one may be filled, the
//! block store is asked once what there is; from then on it is counted here, until another mount publishes.

use super::{Body, OpenFile, Ops};
use pando_data::Blocks;
use pando_format::{HOLE_MIN, Layout};
use pando_types::{Access, Cred};
use pando_wire::Content;
use std::collections::BTreeMap;

/// What of a file in blocks is stored.
#[derive(Clone, Debug)]
pub(super) enum Count {
    /// All of it.
    Whole,
    /// What these blocks have.
    Blocks(Counted),
    /// So many bytes, say the servers; in which blocks is not known.
    Told(u64),
}

/// Blocks, with how many bytes there are of each from its beginning.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    blocks: BTreeMap<u64, u32>,
    /// Bytes of all of them.
    sum: u64,
}

impl Counted {
    fn set(&mut self, block: u64, bytes: u32) {
        let old = match bytes {
            0 => self.blocks.remove(&block),
            _ => self.blocks.insert(block, bytes),
        };
        self.sum = self.sum - u64::from(old.unwrap_or(0)) + u64::from(bytes);
    }

    /// The first `len` bytes of the file.
    fn first(len: u64, block_size: u32) -> Counted {
        let mut all = Counted::default();
        let size = u64::from(block_size.max(1));
        for block in 0..len.div_ceil(size) {
            all.set(block, size.min(len - block * size) as u32);
        }
        all
    }

    fn of(&self, block: u64) -> u32 {
        self.blocks.get(&block).copied().unwrap_or(0)
    }

    /// Nothing is there from this byte on.
    fn cut(&mut self, at: u64, block_size: u32) {
        let size = u64::from(block_size.max(1));
        let (block, within) = (at / size, (at % size) as u32);
        for bytes in self.blocks.split_off(&block).into_iter() {
            self.sum -= u64::from(bytes.1);
            if bytes.0 == block {
                self.set(block, bytes.1.min(within));
            }
        }
    }
}

impl Count {
    /// Of what has this layout.
    pub fn of(layout: &Layout) -> Count {
        match layout {
            Layout::Sparse { allocated, .. } => Count::Told(*allocated),
            Layout::None
            | Layout::Inline
            | Layout::SparseInline(_)
            | Layout::Blocks(_)
            | Layout::Target(_)
            | Layout::LongTarget => Count::Whole,
        }
    }

    /// Of a file of `size` bytes, the first `len` of which were brought to blocks.
    pub fn moved(len: u64, size: u64, block_size: u32) -> Count {
        match len < size && size > HOLE_MIN {
            true => Count::Blocks(Counted::first(len, block_size)),
            false => Count::Whole,
        }
    }

    /// Whether there are no holes.
    pub fn is_whole(&self) -> bool {
        matches!(self, Count::Whole)
    }

    /// So many bytes of a block are there by now.
    pub fn wrote(&mut self, block: u64, end: u32) {
        if let Count::Blocks(counted) = self
            && counted.of(block) < end
        {
            counted.set(block, end);
        }
    }

    /// Nothing is there from this byte on.
    pub fn cut(&mut self, at: u64, block_size: u32) {
        if let Count::Blocks(counted) = self {
            counted.cut(at, block_size);
        }
    }

    /// Blocks were removed.
    pub fn removed(&mut self, from: u64, to: u64) {
        if let Count::Blocks(counted) = self {
            let gone: Vec<u64> = counted.blocks.range(from..to).map(|(n, _)| *n).collect();
            for block in gone {
                counted.set(block, 0);
            }
        }
    }

    /// How many bytes of a block there are, if that is known.
    pub fn of_block(&self, block: u64) -> Option<u32> {
        match self {
            Count::Blocks(counted) => Some(counted.of(block)),
            Count::Whole | Count::Told(_) => None,
        }
    }

    /// A block was cut to so many bytes.
    pub fn cut_block(&mut self, block: u64, bytes: u32) {
        if let Count::Blocks(counted) = self {
            counted.set(block, bytes);
        }
    }
}

impl OpenFile {
    /// Where the bytes are, as it would be published now. `None`: that is not shown to us.
    fn layout(&self) -> Option<Layout> {
        match &self.body {
            Body::Memory(bytes) if bytes.is_empty() && self.tail.is_empty() => Some(Layout::None),
            Body::Memory(bytes) if self.tail.is_empty() => {
                Some(Layout::inline(bytes.len() as u64, self.size))
            }
            Body::Memory(_) => Some(Layout::Inline),
            Body::Blocks(block_size) => {
                let stored = match &self.count {
                    Count::Whole => self.size,
                    Count::Blocks(counted) => counted.sum.min(self.size),
                    Count::Told(bytes) => self.size.min(*bytes),
                };
                Some(Layout::blocks(*block_size, stored, self.size))
            }
            Body::Unread => None,
        }
    }

    /// How many bytes are stored, what is not published included.
    pub(super) fn allocated(&self) -> u64 {
        match self.layout() {
            // Of a tail in a file in blocks nothing is stored yet.
            Some(layout) => (layout.allocated(self.size) + self.tail.len() as u64).min(self.size),
            None => self.attr.allocated.min(self.size),
        }
    }

    /// What a file in blocks is published as.
    pub(super) fn content_in_blocks(&self, block_size: u32) -> Content {
        match self.layout() {
            Some(Layout::Sparse {
                block_size,
                allocated,
            }) => Content::Sparse {
                block_size,
                allocated,
            },
            _ => Content::Blocks(block_size),
        }
    }

    /// Whether it is known block by block what is there.
    pub(super) fn is_counted(&self) -> bool {
        matches!((&self.body, &self.count), (Body::Blocks(_), Count::Blocks(_)))
    }

    /// Asks which blocks there are. If that cannot be had the number stays what it was.
    async fn count_blocks(&mut self, blocks: &dyn Blocks, block_size: u32) {
        let size = u64::from(block_size.max(1));
        let end = self.size.div_ceil(size);
        let mut counted = Counted::default();
        if end > 0 {
            let Ok(found) = self.stored_blocks(blocks, 0, end).await else {
                self.count = Count::Told(self.allocated());
                return;
            };
            for block in found {
                // Bytes past the end are nobody's.
                let most = size.min(self.size.saturating_sub(block.number.saturating_mul(size)));
                counted.set(block.number, u64::from(block.bytes).min(most) as u32);
            }
        }
        self.count = Count::Blocks(counted);
    }

    /// A publish, or a change of what is in blocks, needs to know what there is.
    pub(super) async fn count_told(&mut self, blocks: &dyn Blocks) {
        if let (Body::Blocks(block_size), Count::Told(_)) = (&self.body, &self.count) {
            self.count_blocks(blocks, *block_size).await;
        }
    }

    /// A write at `offset` comes next, and what is between the end and there was cleared.
    pub(super) async fn count_for_write(&mut self, blocks: &dyn Blocks, block_size: u32, offset: u64) {
        self.count_told(blocks).await;
        let size = u64::from(block_size.max(1));
        // A gap within one block is filled with zeros by who writes behind it.
        if offset > self.size && offset / size != self.size / size {
            self.count_for_hole(blocks, offset).await;
        }
    }

    /// A hole comes next, in a file of `size` bytes.
    pub(super) async fn count_for_hole(&mut self, blocks: &dyn Blocks, size: u64) {
        self.count_told(blocks).await;
        if let (Body::Blocks(block_size), Count::Whole) = (&self.body, &self.count)
            && size > HOLE_MIN
        {
            self.count_blocks(blocks, *block_size).await;
        }
    }

    /// Changes of this mount and another were put together.
    pub(super) fn count_anew(&mut self) {
        self.count = match self.body {
            Body::Blocks(_) if self.size > HOLE_MIN => Count::Told(self.size),
            Body::Blocks(_) | Body::Memory(_) | Body::Unread => Count::Whole,
        };
    }

    /// The server that set the size could not know how much is stored now: says it. If it cannot be said now,
    /// the next publish does.
    pub(super) async fn tell_count(&mut self, ops: &impl Ops, blocks: &dyn Blocks, cred: &Cred) {
        if !self.is_counted() || self.allocated() == self.attr.allocated {
            return;
        }
        if self.handle.is_none() {
            let opened = super::open(ops, cred, &self.location.get(), Access::WRITE).await;
            let same = |e: &pando_types::Attr| (e.ino, e.generation) == (self.key.ino, self.key.generation);
            self.handle = opened.ok().filter(|o| same(&o.entry.attr)).and_then(|o| o.handle);
        }
        if self.handle.is_some() {
            self.dirty = Some(self.attr.mtime);
            if self.flush(ops, blocks, cred).await.is_err() {
                self.dirty = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_with_their_bytes() {
        let mut count = Count::moved(1000, 1 << 20, 512);
        let sum = |count: &Count| match count {
            Count::Blocks(counted) => {
                assert_eq!(
                    counted.sum,
                    counted.blocks.values().map(|n| u64::from(*n)).sum::<u64>()
                );
                counted.sum
            }
            Count::Whole | Count::Told(_) => panic!("{count:?}"),
        };
        assert_eq!(sum(&count), 1000);
        count.wrote(1, 512);
        count.wrote(1, 100);
        count.wrote(100, 7);
        assert_eq!(sum(&count), 1031);
        assert_eq!((count.of_block(99), count.of_block(100)), (Some(0), Some(7)));
        count.cut_block(100, 9);
        count.cut_block(100, 7);
        count.removed(1, 100);
        assert_eq!(sum(&count), 519);
        count.cut(100 * 512 + 3, 512);
        assert_eq!(sum(&count), 515);
        count.cut(100 * 512, 512);
        assert_eq!(sum(&count), 512);
        count.cut(10, 512);
        assert_eq!(sum(&count), 10);
        count.cut(0, 512);
        assert_eq!(sum(&count), 0);
    }

    #[test]
    fn what_has_no_holes_is_not_counted() {
        assert!(matches!(Count::moved(100, 100, 512), Count::Whole));
        assert!(matches!(Count::moved(100, 4096, 512), Count::Whole));
        assert!(matches!(Count::of(&Layout::Blocks(512)), Count::Whole));
        assert_eq!(
            (Count::Whole.of_block(7), Count::Told(0).of_block(7)),
            (None, None)
        );
    }
}
