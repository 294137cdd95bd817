//! Blocks and records of pax.

use crate::{Entry, RECORDS_MAX};
use pando_types::{FileKind, Timestamp};

/// Everything is a multiple of this.
pub const BLOCK: usize = 512;
/// Largest numbers of the header's fields; larger ones stand in records.
const ID_MAX: u32 = 0o7_777_777;
const SIZE_MAX: u64 = 0o77_777_777_777;

/// Bytes up to the next block.
pub fn padding(len: u64) -> u64 {
    len.next_multiple_of(BLOCK as u64) - len
}

/// What a header block says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// `x`, `g`, `0` ...
    pub flag: u8,
    pub perm: u16,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub device: (u32, u32),
}

fn octal(field: &mut [u8], value: u64) {
    let digits = format!("{value:0width$o}\0", width = field.len() - 1);
    field.copy_from_slice(digits.as_bytes());
}

fn number(field: &[u8]) -> Option<u64> {
    let text = field.strip_suffix(b"\0")?;
    text.iter().try_fold(0u64, |n, digit| match digit {
        b'0'..=b'7' => n.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// What stands in a header of itself.
pub fn checksum(block: &[u8; BLOCK]) -> String {
    let sum = |bytes: &[u8]| bytes.iter().map(|b| u64::from(*b)).sum::<u64>();
    let sum = sum(&block[..148]) + 8 * u64::from(b' ') + sum(&block[156..]);
    format!("{sum:06o}\0 ")
}

impl Header {
    /// The block; `name` and `link` are for programs that do not know pax, cut off where they are too long.
    pub fn block(&self, name: &[u8], link: &[u8], mtime: i64) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let mut text = |at: usize, len: usize, bytes: &[u8]| {
            let n = bytes.len().min(len);
            block[at..at + n].copy_from_slice(&bytes[bytes.len() - n..]);
        };
        text(0, 100, name);
        text(157, 100, link);
        block[156] = self.flag;
        octal(&mut block[100..108], self.perm.into());
        octal(&mut block[108..116], self.uid.min(ID_MAX).into());
        octal(&mut block[116..124], self.gid.min(ID_MAX).into());
        octal(&mut block[124..136], self.size.min(SIZE_MAX));
        octal(&mut block[136..148], (mtime.max(0) as u64).min(SIZE_MAX));
        block[257..265].copy_from_slice(b"ustar\x0000");
        octal(&mut block[329..337], self.device.0.min(ID_MAX).into());
        octal(&mut block[337..345], self.device.1.min(ID_MAX).into());
        let sum = checksum(&block);
        block[148..156].copy_from_slice(sum.as_bytes());
        block
    }

    /// What a block says, if it is one of ours.
    pub fn parse(block: &[u8; BLOCK]) -> Option<Header> {
        if &block[257..265] != b"ustar\x0000" || block[148..156] != *checksum(block).as_bytes() {
            return None;
        }
        let small = |field: &[u8]| u32::try_from(number(field)?).ok();
        Some(Header {
            flag: block[156],
            perm: u16::try_from(number(&block[100..108])?).ok()?,
            uid: small(&block[108..116])?,
            gid: small(&block[116..124])?,
            size: number(&block[124..136])?,
            device: (small(&block[329..337])?, small(&block[337..345])?),
        })
    }
}

/// Adds `LENGTH KEY=VALUE\n`, where the length counts itself.
pub fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len.to_string().len() + rest != len {
        len = len.to_string().len() + rest;
    }
    out.extend_from_slice(len.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// The first record: key, value, and what is behind.
pub fn first_record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|b| *b == b' ')?;
    let len = decimal(&bytes[..space])? as usize;
    if len > bytes.len() || len < space + 3 {
        return None;
    }
    let (whole, rest) = bytes.split_at(len);
    let body = whole[space + 1..].strip_suffix(b"\n")?;
    let equals = body.iter().position(|b| *b == b'=')?;
    Some((&body[..equals], &body[equals + 1..], rest))
}

/// A number without sign or needless zeros, at most 2^63.
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.len() > 1 && text.first() == Some(&b'0') || text.is_empty() {
        return None;
    }
    let value = text.iter().try_fold(0u64, |n, digit| match digit {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })?;
    (value <= i64::MAX as u64).then_some(value)
}

/// `-1.500000000`: seconds with their fraction.
pub fn time(t: Timestamp) -> String {
    let nanos = t.as_nanos();
    let sign = if nanos < 0 { "-" } else { "" };
    let (secs, rest) = (
        nanos.unsigned_abs() / 1_000_000_000,
        nanos.unsigned_abs() % 1_000_000_000,
    );
    format!("{sign}{secs}.{rest:09}")
}

/// The same back.
pub fn parse_time(text: &[u8]) -> Option<Timestamp> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let dot = digits.iter().position(|b| *b == b'.')?;
    let fraction = &digits[dot + 1..];
    if fraction.len() != 9 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let fraction = fraction.iter().fold(0, |n, b| n * 10 + i128::from(b - b'0'));
    let whole = digits[..dot].iter().try_fold(0i128, |n, b| match b {
        b'0'..=b'9' if n < 1 << 64 => Some(n * 10 + i128::from(b - b'0')),
        _ => None,
    })?;
    let nanos = whole * 1_000_000_000 + fraction;
    let found = Timestamp::from_nanos(if negative { -nanos } else { nanos });
    // One form only.
    (found.as_nanos().unsigned_abs() == nanos.unsigned_abs() && time(found).as_bytes() == text)
        .then_some(found)
}

/// The letter of a kind.
pub fn flag(entry: &Entry) -> Option<u8> {
    Some(match entry.kind {
        _ if entry.link => b'1',
        FileKind::Regular => b'0',
        FileKind::Symlink => b'2',
        FileKind::CharDevice => b'3',
        FileKind::BlockDevice => b'4',
        FileKind::Directory => b'5',
        FileKind::Fifo => b'6',
        FileKind::Socket => return None,
    })
}

/// The records of an entry but the last, which has the checks; and how many bytes follow its header: map and
/// data.
pub fn records(entry: &Entry, map: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let path = shown(&entry.path, entry.kind == FileKind::Directory && !entry.link);
    let target = match entry.link {
        true => shown(&entry.target, false),
        false => entry.target.clone(),
    };
    // Values are UTF-8 unless this is said.
    if std::str::from_utf8(&path).is_err() || std::str::from_utf8(&target).is_err() {
        record(&mut out, b"hdrcharset", b"BINARY");
    }
    record(&mut out, b"path", &path);
    if !target.is_empty() {
        record(&mut out, b"linkpath", &target);
    }
    record(&mut out, b"mtime", time(entry.mtime).as_bytes());
    record(&mut out, b"atime", time(entry.atime).as_bytes());
    for (key, id) in [("uid", entry.uid), ("gid", entry.gid)] {
        if id > ID_MAX {
            record(&mut out, key.as_bytes(), id.to_string().as_bytes());
        }
    }
    let stored = entry.stored() + map.len() as u64;
    if stored > SIZE_MAX {
        record(&mut out, b"size", stored.to_string().as_bytes());
    }
    if !map.is_empty() {
        record(&mut out, b"GNU.sparse.major", b"1");
        record(&mut out, b"GNU.sparse.minor", b"0");
        record(&mut out, b"GNU.sparse.name", &path);
        record(
            &mut out,
            b"GNU.sparse.realsize",
            entry.size.to_string().as_bytes(),
        );
    }
    for (name, value) in &entry.xattrs {
        let mut key = b"SCHILY.xattr.".to_vec();
        for byte in name {
            match byte {
                b'=' => key.extend_from_slice(b"%3D"),
                b'%' => key.extend_from_slice(b"%25"),
                _ => key.push(*byte),
            }
        }
        record(&mut out, &key, value);
    }
    out
}

/// The name of an extended attribute, in which GNU tar writes what would end a key as `%3D`.
pub fn plain(name: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = name;
    while let Some((first, tail)) = rest.split_first() {
        let (byte, used) = match (first, tail.get(..2)) {
            (b'%', Some(b"3D")) => (b'=', 2),
            (b'%', Some(b"25")) => (b'%', 2),
            (b'%', _) => return None,
            (byte, _) => (*byte, 0),
        };
        out.push(byte);
        rest = &tail[used..];
    }
    Some(out)
}

/// The map of a file with holes, as GNU tar has it since 1.15.92: numbers in lines before the data.
pub fn map(entry: &Entry) -> Vec<u8> {
    if entry.kind != FileKind::Regular || entry.link || entry.is_dense() {
        return Vec::new();
    }
    let end = entry.extents.last().map_or(0, |(at, len)| at + len);
    // Without this a hole at the end would be lost.
    let tail = (end < entry.size).then_some((entry.size, 0));
    let all = || entry.extents.iter().copied().chain(tail);
    let mut text = format!("{}\n", all().count()).into_bytes();
    for (at, len) in all() {
        text.extend_from_slice(format!("{at}\n{len}\n").as_bytes());
    }
    text.resize(text.len() + padding(text.len() as u64) as usize, 0);
    text
}

/// As tar shows paths.
fn shown(path: &[u8], directory: bool) -> Vec<u8> {
    let mut out = b"./".to_vec();
    out.extend_from_slice(path);
    if directory && !path.is_empty() {
        out.push(b'/');
    }
    out
}

/// Back from what tar shows.
pub fn hidden(path: &[u8], directory: bool) -> Option<&[u8]> {
    let path = path.strip_prefix(b"./")?;
    if directory && !path.is_empty() {
        path.strip_suffix(b"/")
    } else {
        Some(path)
    }
}

/// Whether an entry's records are few enough.
pub fn fits(records: &[u8]) -> bool {
    records.len() as u64 <= RECORDS_MAX
}
