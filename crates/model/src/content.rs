//! What a file reads as.

use std::sync::Arc;

/// Content of a regular file. Two that read the same are equal, except that blocks are only a tag here: what
/// they hold is judged by the data path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// Zeros.
    Sparse,
    /// These bytes, the last of which is not zero, then zeros. Made by [`Content::inline`].
    Bytes(Arc<[u8]>),
    /// In blocks of this many bytes.
    Blocks(u32),
}

impl Content {
    /// These bytes, then zeros.
    pub fn inline(bytes: &[u8]) -> Content {
        match bytes.iter().rposition(|b| *b != 0) {
            None => Content::Sparse,
            Some(last) => Content::Bytes(bytes[..=last].into()),
        }
    }

    /// Truncate: what is cut off is gone for ever, growth reads as zeros.
    pub(crate) fn cut(self, size: u64) -> Content {
        match self {
            _ if size == 0 => Content::Sparse,
            Content::Bytes(b) if b.len() as u64 > size => Content::inline(&b[..size as usize]),
            other => other,
        }
    }

    /// Whether a file of `size` bytes reads the same with either.
    pub fn reads_like(&self, other: &Content, size: u64) -> bool {
        self.clone().cut(size) == other.clone().cut(size)
    }

    /// The bytes of a file of `size` bytes; `None` if they are in blocks.
    pub fn read(&self, size: u64) -> Option<Vec<u8>> {
        let mut out = match self {
            Content::Sparse => Vec::new(),
            Content::Bytes(b) => b.to_vec(),
            Content::Blocks(_) => return None,
        };
        out.resize(usize::try_from(size).ok()?, 0);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_the_same_is_equal() {
        assert_eq!(Content::inline(b"ab\0\0"), Content::inline(b"ab"));
        assert_eq!(Content::inline(b"\0\0"), Content::Sparse);
        assert_eq!(Content::inline(b""), Content::Sparse);
        assert_ne!(Content::inline(b"ab"), Content::inline(b"\0ab"));
        assert!(Content::inline(b"abc").reads_like(&Content::inline(b"abd"), 2));
        assert!(Content::Blocks(4096).reads_like(&Content::Sparse, 0));
        assert!(!Content::Blocks(4096).reads_like(&Content::Sparse, 1));
    }

    #[test]
    fn what_was_cut_does_not_come_back() {
        let c = Content::inline(b"abc").cut(1).cut(3);
        assert_eq!(c.read(3), Some(b"a\0\0".to_vec()));
        assert_eq!(Content::Blocks(1).read(1), None);
    }
}
