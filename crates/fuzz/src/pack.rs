//! A corpus in one file: thousands of inputs of a few bytes each would be thousands of files in the
//! repository.
//!
//! | bytes | meaning |
//! |---|---|
//! | 8 | `FF` `pando` `c1` `0A`: no text, in no encoding |
//! | each: 4 + n | length, little-endian, and an input; in ascending order, none twice |

use std::collections::BTreeSet;

const MAGIC: &[u8; 8] = b"\xFFpando\xc1\n";

/// The file of these inputs.
pub fn pack(inputs: &BTreeSet<Vec<u8>>) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    for input in inputs {
        out.extend_from_slice(&(input.len() as u32).to_le_bytes());
        out.extend_from_slice(input);
    }
    out
}

/// The inputs of a file; `None` if it is damaged.
pub fn unpack(file: &[u8]) -> Option<BTreeSet<Vec<u8>>> {
    let mut rest = file.strip_prefix(MAGIC)?;
    let mut inputs = BTreeSet::new();
    while let Some((len, after)) = rest.split_first_chunk::<4>() {
        let (input, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        inputs.insert(input.to_vec());
        rest = after;
    }
    rest.is_empty().then_some(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let inputs = BTreeSet::from([vec![], vec![1, 2, 3], vec![0; 300]]);
        let file = pack(&inputs);
        assert_eq!(unpack(&file), Some(inputs));
        assert_eq!(unpack(&file[..file.len() - 1]), None);
        assert_eq!(unpack(&file[1..]), None);
    }
}
