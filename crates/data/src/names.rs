//! What blocks are called, in folders and in buckets: `xx/INO-GENERATION/BLOCK`. Two hexadecimal digits of
//! fan-out, so that no directory grows with the number of files, then inode and generation in hexadecimal,
//! then the block number in decimal.

use crate::FileKey;
use pando_types::{Generation, Ino};

/// Which of the 256 parts of a store a file's blocks are in.
pub fn part(file: FileKey) -> u8 {
    // Inode numbers are a slot above a counter: mix, so that one busy slot is spread too.
    (file.ino.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// The name of a part.
pub fn part_name(part: u8) -> String {
    format!("{part:02x}")
}

/// The name of a file within its part.
pub fn file_name(file: FileKey) -> String {
    format!("{:016x}-{:016x}", file.ino.0, file.generation.0)
}

/// The file that [`file_name`] names so; `None` for what no program of ours wrote.
pub fn parse_file(name: &str) -> Option<FileKey> {
    let (ino, generation) = name.split_once('-')?;
    let number = |s: &str| u64::from_str_radix(s, 16).ok();
    let file = FileKey {
        ino: Ino(number(ino)?),
        generation: Generation(number(generation)?),
    };
    (file_name(file) == name).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let file = FileKey {
            ino: Ino(u64::MAX - 3),
            generation: Generation(12),
        };
        assert_eq!(parse_file(&file_name(file)), Some(file));
        for wrong in ["", "-", "1-2", "000000000000000g-0000000000000001", "x"] {
            assert_eq!(parse_file(wrong), None, "{wrong}");
        }
        assert_eq!(part_name(part(file)).len(), 2);
    }
}
