//! What a layout says of the bytes of a file: where they are, and how many are stored.

use crate::Layout;

/// Holes are counted in units of this many bytes, and a file of at most so many has none.
pub const HOLE_MIN: u64 = 4096;

/// Whether a file of `size` bytes of which `allocated` are stored has holes that are worth a word.
fn has_holes(allocated: u64, size: u64) -> bool {
    size > HOLE_MIN && allocated.div_ceil(HOLE_MIN) < size.div_ceil(HOLE_MIN)
}

impl Layout {
    /// Of a file of `size` bytes, the first `len` of which may be in its attachment and the others nowhere.
    pub fn inline(len: u64, size: u64) -> Layout {
        match u32::try_from(len) {
            Ok(len) if has_holes(len.into(), size) => Layout::SparseInline(len),
            _ => Layout::Inline,
        }
    }

    /// Of a file of `size` bytes, of which `allocated` are stored in blocks of `block_size` bytes.
    pub fn blocks(block_size: u32, allocated: u64, size: u64) -> Layout {
        match has_holes(allocated, size) {
            true => Layout::Sparse {
                block_size,
                allocated,
            },
            false => Layout::Blocks(block_size),
        }
    }

    /// What the layout becomes when the size is set to `size` and was `old`. Of a file with holes that is cut
    /// it is not known here where they were: the number is what may be left at most.
    pub fn resized(&self, old: u64, size: u64) -> Layout {
        let left = self.allocated(old).min(size);
        match self {
            Layout::Inline | Layout::SparseInline(_) => Layout::inline(left, size),
            Layout::Blocks(block_size) | Layout::Sparse { block_size, .. } => {
                Layout::blocks(*block_size, left, size)
            }
            Layout::None | Layout::Target(_) | Layout::LongTarget => self.clone(),
        }
    }

    /// How many bytes are stored of `size`.
    pub fn allocated(&self, size: u64) -> u64 {
        match self {
            Layout::None => 0,
            Layout::Inline | Layout::Blocks(_) | Layout::Target(_) | Layout::LongTarget => size,
            Layout::SparseInline(len) => size.min((*len).into()),
            Layout::Sparse { allocated, .. } => size.min(*allocated),
        }
    }

    /// Whether the number that it says can be true of a file of `size` bytes, and is worth saying.
    pub fn is_plausible(&self, size: u64) -> bool {
        match self {
            Layout::SparseInline(len) => has_holes((*len).into(), size),
            Layout::Sparse { allocated, .. } => has_holes(*allocated, size),
            Layout::None | Layout::Inline | Layout::Blocks(_) | Layout::Target(_) | Layout::LongTarget => {
                true
            }
        }
    }

    /// Whether there is an attachment with bytes of the file.
    pub fn is_inline(&self) -> bool {
        matches!(self, Layout::Inline | Layout::SparseInline(_))
    }

    /// Bytes in a block of what is in blocks.
    pub fn block_size(&self) -> Option<u32> {
        match self {
            Layout::Blocks(block_size) | Layout::Sparse { block_size, .. } => Some(*block_size),
            Layout::None
            | Layout::Inline
            | Layout::SparseInline(_)
            | Layout::Target(_)
            | Layout::LongTarget => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u32 = 1 << 22;

    fn sparse(allocated: u64) -> Layout {
        Layout::Sparse {
            block_size: BLOCK,
            allocated,
        }
    }

    #[test]
    fn only_holes_are_worth_a_word() {
        assert_eq!(Layout::blocks(BLOCK, 200 << 20, 200 << 20), Layout::Blocks(BLOCK));
        assert_eq!(Layout::blocks(BLOCK, 4096, 200 << 20), sparse(4096));
        assert_eq!(Layout::blocks(BLOCK, 0, 4096), Layout::Blocks(BLOCK));
        assert_eq!(Layout::blocks(BLOCK, 0, 4097), sparse(0));
        assert_eq!(Layout::blocks(BLOCK, 8193, 8195), Layout::Blocks(BLOCK));
        assert_eq!(Layout::blocks(BLOCK, u64::MAX, u64::MAX), Layout::Blocks(BLOCK));
        assert_eq!(Layout::inline(5, 4096), Layout::Inline);
        assert_eq!(Layout::inline(5, 1 << 40), Layout::SparseInline(5));
        assert_eq!(
            Layout::inline(1 << 40, 1 << 50),
            Layout::Inline,
            "no attachment is so long"
        );
    }

    #[test]
    fn a_new_size_makes_holes_and_takes_them() {
        let (small, large) = (10 << 20, 200 << 20);
        assert_eq!(Layout::Blocks(BLOCK).resized(small, large), sparse(small));
        assert_eq!(sparse(small).resized(large, small), Layout::Blocks(BLOCK));
        assert_eq!(sparse(4096).resized(large, small), sparse(4096));
        assert_eq!(Layout::Inline.resized(5, large), Layout::SparseInline(5));
        assert_eq!(Layout::SparseInline(5).resized(large, 3), Layout::Inline);
        assert_eq!(Layout::None.resized(0, large), Layout::None);
    }

    #[test]
    fn what_is_stored_is_never_more_than_the_size() {
        assert_eq!(Layout::None.allocated(9), 0);
        assert_eq!(Layout::Inline.allocated(9), 9);
        assert_eq!(sparse(u64::MAX).allocated(9), 9);
        assert_eq!(Layout::SparseInline(3).allocated(9), 3);
        assert!(!sparse(u64::MAX).is_plausible(1 << 20));
        assert!(!sparse(0).is_plausible(4096));
        assert!(sparse(0).is_plausible(4097));
        assert_eq!(sparse(1).block_size(), Some(BLOCK));
        assert!(Layout::SparseInline(3).is_inline());
    }
}
