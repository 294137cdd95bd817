//! Table files, read without RocksDB: of a block whose checksum is wrong RocksDB gives nothing, and most
//! records in it are whole.
//!
//! Records have checksums of their own, over key and value. So it does no harm to look into bytes that may be
//! damaged: whoever takes a value from here checks it. Tables are those that `open` configures: blocks as
//! they are or in LZ4, and a plain index.

use crate::columns;
use pando_format::{Key, KeyRange, Record};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Bytes at the end of a file: checksum type, two handles, version, magic number.
const FOOTER: usize = 1 + 40 + 4 + 8;
/// The last eight bytes.
const MAGIC: u64 = 0x88e2_41b7_85f4_cff7;
/// Between blocks: how a block is compressed, and its checksum.
const TRAILER: usize = 5;
const PLAIN: u8 = 0;
const LZ4: u8 = 4;
/// What the place of a value in a blob file begins with.
const BLOB: u8 = 1;
/// No block of ours unpacks to more.
const UNPACKED_MAX: usize = 1 << 26;

/// What a row does to its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Does {
    Put,
    /// The value says where in a blob file the value is.
    Blob,
    Delete,
}

/// A row of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) key: Vec<u8>,
    /// The larger, the newer.
    pub(crate) sequence: u64,
    pub(crate) does: Does,
    pub(crate) value: Vec<u8>,
}

impl Row {
    /// The name of the file that its value is in.
    pub(crate) fn blob_file(&self) -> Option<String> {
        let mut front = Front(&self.value);
        let kind = front.byte()?;
        let number = front.varint()?;
        (self.does == Does::Blob && kind == BLOB).then(|| format!("{number:06}.blob"))
    }

    /// Whether its own checksum says that it is what was written. Of a deletion nothing says so.
    pub(crate) fn is_whole(&self) -> bool {
        let is_whole =
            || columns::is_sound(&self.key, &self.value) || Record::decode(&self.key, &self.value).is_ok();
        self.does == Does::Put && is_whole()
    }
}

/// A data block.
#[derive(Debug)]
pub(crate) struct Block {
    /// Where it is in the file.
    pub(crate) offset: u64,
    pub(crate) first: Option<Vec<u8>>,
    /// All of it could be taken apart, and is in order.
    pub(crate) clear: bool,
    /// And what has a checksum of its own is whole.
    pub(crate) clean: bool,
    /// Deletions in it.
    pub(crate) deletions: usize,
    /// Those of the range that was asked for.
    pub(crate) rows: Vec<Row>,
}

/// Takes bytes from the front.
struct Front<'a>(&'a [u8]);

impl<'a> Front<'a> {
    fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|b| b[0])
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn length(&mut self) -> Option<usize> {
        usize::try_from(self.varint()?).ok()
    }
}

/// What a block holds, as far as it can be unpacked, and whether that is all.
fn unpack(file: &[u8], offset: u64, size: u64) -> Option<(Vec<u8>, bool)> {
    let (offset, size) = (usize::try_from(offset).ok()?, usize::try_from(size).ok()?);
    let end = offset.checked_add(size)?;
    let packed = file.get(offset..end)?;
    match *file.get(end..end.checked_add(TRAILER)?)?.first()? {
        PLAIN => Some((packed.to_vec(), true)),
        LZ4 => {
            let mut front = Front(packed);
            let size = front.length().filter(|n| *n <= UNPACKED_MAX)?;
            let out = unpack_lz4(front.0, size);
            let whole = out.len() == size;
            Some((out, whole))
        }
        _ => None,
    }
}

/// Bytes of an LZ4 block, up to the first that makes no sense.
fn unpack_lz4(packed: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(size);
    let mut front = Front(packed);
    let more = |front: &mut Front<'_>, nibble: u8| {
        let mut n = usize::from(nibble);
        if nibble == 15 {
            loop {
                let byte = front.byte()?;
                n += usize::from(byte);
                if byte < 255 {
                    break;
                }
            }
        }
        Some(n)
    };
    let mut sequence = || -> Option<()> {
        let token = front.byte()?;
        let literals = more(&mut front, token >> 4)?;
        let literals = front.bytes(literals)?;
        out.extend_from_slice(literals.get(..literals.len().min(size - out.len()))?);
        // The last sequence has no more than that.
        let distance = front.bytes(2)?;
        let distance = usize::from(u16::from_le_bytes([distance[0], distance[1]]));
        let copied = more(&mut front, token & 15)? + 4;
        let from = out.len().checked_sub(distance).filter(|_| distance > 0)?;
        for at in from..from + copied.min(size - out.len()) {
            out.push(out[at]);
        }
        Some(())
    };
    while sequence().is_some() {}
    out
}

/// The entries of a block, raw: keys and values.
struct Entries {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    /// All of it could be understood.
    whole: bool,
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..at.checked_add(4)?)?.first_chunk::<4>()?;
    usize::try_from(u32::from_le_bytes(*four)).ok()
}

/// Where entries begin that share nothing with those before them, and where entries end.
fn restarts(block: &[u8]) -> Option<(Vec<usize>, usize)> {
    let count = number(block, block.len().checked_sub(4)?)?;
    let end = block.len().checked_sub(count.checked_add(1)?.checked_mul(4)?)?;
    let all: Option<Vec<usize>> = (0..count).map(|n| number(block, end + 4 * n)).collect();
    let all = all?;
    let rising = all.is_sorted() && all.iter().all(|at| *at <= end);
    (rising && all.first() == Some(&0)).then_some((all, end))
}

/// Takes a block apart. Past what makes no sense it goes on where entries share nothing with those before.
fn entries(block: &[u8], unpacked: bool, values_have_lengths: bool) -> Entries {
    let known = if unpacked { restarts(block) } else { None };
    let mut whole = known.is_some();
    let (restarts, end) = known.unwrap_or((vec![0], block.len()));
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let (mut at, mut key) = (0, Vec::new());
    while at < end {
        let next = restarts.iter().copied().find(|r| *r > at).unwrap_or(end);
        let begins = restarts.binary_search(&at).is_ok();
        let mut front = Front(&block[at..next]);
        let mut one = || {
            let (shared, own) = (front.length()?, front.length()?);
            let length = match values_have_lengths {
                true => front.length()?,
                false => 0,
            };
            let fits = shared <= key.len() && (shared == 0 || !begins);
            key.truncate(if fits { shared } else { return None });
            key.extend_from_slice(front.bytes(own)?);
            // The value of an index entry is two numbers.
            let value = match values_have_lengths {
                true => front.bytes(length)?,
                false => {
                    let before = front.0;
                    front.varint().and(front.varint())?;
                    &before[..before.len() - front.0.len()]
                }
            };
            Some(value.to_vec())
        };
        match one() {
            Some(value) => {
                pairs.push((key.clone(), value));
                at = next - front.0.len();
            }
            None => {
                whole = false;
                (at, key) = (next, Vec::new());
            }
        }
    }
    Entries { pairs, whole }
}

fn row(internal: Vec<u8>, value: Vec<u8>) -> Option<Row> {
    let (key, tail) = internal.split_last_chunk::<8>()?;
    let tail = u64::from_le_bytes(*tail);
    let does = match tail & 0xFF {
        0 | 7 => Does::Delete,
        1 => Does::Put,
        0x11 => Does::Blob,
        _ => return None,
    };
    Some(Row {
        key: key.to_vec(),
        sequence: tail >> 8,
        does,
        value,
    })
}

fn block(file: &[u8], offset: u64, size: u64, range: &KeyRange) -> Block {
    let mut block = Block {
        offset,
        first: None,
        clear: false,
        clean: false,
        deletions: 0,
        rows: Vec::new(),
    };
    let Some((bytes, unpacked)) = unpack(file, offset, size) else {
        return block;
    };
    let Entries { pairs, whole } = entries(&bytes, unpacked, true);
    block.clear = whole;
    block.clean = true;
    let mut before = Vec::new();
    for (key, value) in pairs {
        let Some(row) = row(key, value) else {
            block.clear = false;
            continue;
        };
        block.clear &= row.key >= before && Key::decode(&row.key).is_ok();
        block.clean &= row.does == Does::Delete || row.is_whole();
        block.deletions += usize::from(row.does == Does::Delete);
        before.clone_from(&row.key);
        block.first.get_or_insert_with(|| row.key.clone());
        if range.contains(&row.key) {
            block.rows.push(row);
        }
    }
    block.clean &= block.clear;
    block
}

/// The data blocks of a table, in order, with rows of a range. Fails if its index cannot be read.
pub(crate) fn read(path: &Path, range: &KeyRange) -> Result<Vec<Block>> {
    let mut file = Vec::new();
    File::open(path)?.read_to_end(&mut file)?;
    let handles = index(&file).ok_or_else(|| {
        let why = format!("the index of {} cannot be read", path.display());
        Error::new(ErrorKind::InvalidData, why)
    })?;
    let blocks = handles.into_iter();
    Ok(blocks
        .map(|(offset, size)| block(&file, offset, size, range))
        .collect())
}

/// Where data blocks are, and how long.
fn index(file: &[u8]) -> Option<Vec<(u64, u64)>> {
    let footer = file.get(file.len().checked_sub(FOOTER)?..)?;
    if u64::from_le_bytes(*footer.last_chunk::<8>()?) != MAGIC {
        return None;
    }
    let mut front = Front(&footer[1..]);
    // The first handle is that of the blocks with properties and filters.
    let [_, _, offset, size] = [front.varint()?, front.varint()?, front.varint()?, front.varint()?];
    let (bytes, unpacked) = unpack(file, offset, size)?;
    let Entries { pairs, .. } = entries(&bytes, unpacked, false);
    let handle = |(_, value): (Vec<u8>, Vec<u8>)| {
        let mut front = Front(&value);
        Some((front.varint()?, front.varint()?))
    };
    pairs.into_iter().map(handle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lz4_packs_is_unpacked() {
        // Four literals, then a copy that overlaps itself, then the last literals.
        let packed = [0x44, b'a', b'b', b'c', b'd', 4, 0, 0x20, b'x', b'y'];
        assert_eq!(unpack_lz4(&packed, 14), b"abcdabcdabcdxy");
        // Lengths beyond 15 go on in more bytes.
        let mut long = vec![0xF0, 5];
        long.extend_from_slice(&[7; 20]);
        assert_eq!(unpack_lz4(&long, 20), [7; 20]);
        for cut in 0..packed.len() {
            assert!(b"abcdabcdabcdxy".starts_with(&unpack_lz4(&packed[..cut], 14)[..]));
        }
        // A copy from before the beginning ends it.
        assert_eq!(unpack_lz4(&[0x14, b'a', 9, 0], 14), b"a");
    }

    #[test]
    fn no_bytes_end_the_program() {
        let mut state = 1u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        for len in 0..400 {
            let bytes: Vec<u8> = (0..len).map(|_| random() & random()).collect();
            for lengths in [true, false] {
                drop((
                    entries(&bytes, true, lengths),
                    entries(&bytes, false, lengths),
                    index(&bytes),
                ));
            }
            drop(unpack_lz4(&bytes, 100));
        }
    }
}
