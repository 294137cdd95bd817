//! A block as one object with its checksum at the end, for stores that replace objects whole.
//!
//! `data, magic (8), version (4), length of data (4), CRC-32C of all before (4)`, numbers little-endian.

/// What every sealed block of this form ends with, before its numbers.
const MAGIC: &[u8; 8] = b"pandoblk";
/// The form that is written.
const VERSION: u32 = 1;
/// Bytes after the data.
pub const SEAL: usize = 20;

/// Why an object is not a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealError {
    /// It is shorter than a seal, or ends in something else.
    #[error("it is not a block, or was cut off")]
    NotABlock,
    /// A newer program wrote it.
    #[error("it has version {0}, this program reads {VERSION}; use a newer pando")]
    Version(u32),
    /// Its bytes are not those that were written.
    #[error("its checksum is wrong")]
    Checksum,
}

/// Adds the seal to a block's bytes.
pub fn seal(mut data: Vec<u8>) -> Vec<u8> {
    let len = data.len() as u32;
    data.reserve_exact(SEAL);
    data.extend_from_slice(MAGIC);
    data.extend_from_slice(&VERSION.to_le_bytes());
    data.extend_from_slice(&len.to_le_bytes());
    let sum = crc32c::crc32c(&data);
    data.extend_from_slice(&sum.to_le_bytes());
    data
}

/// How many of an object's bytes are the block's, if they are what was sealed.
pub fn check(object: &[u8]) -> Result<usize, SealError> {
    let len = object.len().checked_sub(SEAL).ok_or(SealError::NotABlock)?;
    let (_, end) = object.split_at(len);
    let number = |at: usize| {
        end[at..at + 4]
            .iter()
            .rev()
            .fold(0u32, |n, b| n << 8 | u32::from(*b))
    };
    if &end[..8] != MAGIC {
        return Err(SealError::NotABlock);
    }
    if number(8) != VERSION {
        return Err(SealError::Version(number(8)));
    }
    if number(12) as usize != len || number(16) != crc32c::crc32c(&object[..object.len() - 4]) {
        return Err(SealError::Checksum);
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_found() {
        let sealed = seal(b"some bytes of a file".to_vec());
        assert_eq!(check(&sealed), Ok(20));
        assert_eq!(check(&seal(Vec::new())), Ok(0));
        for bit in 0..sealed.len() * 8 {
            let mut wrong = sealed.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&wrong).is_err(), "bit {bit}");
        }
        for len in 0..sealed.len() {
            assert!(check(&sealed[..len]).is_err(), "cut to {len}");
        }
        let mut newer = sealed.clone();
        newer[28] = 2;
        assert_eq!(check(&newer), Err(SealError::Version(2)));
    }
}
