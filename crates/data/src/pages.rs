//! A block as a file with a checksum for each of its pages of 4096 bytes, changed in place.
//!
//! The file is a row of groups: a table of 512 entries, one page long, then the 512 pages that they are for.
//! An entry is two checksums, and a page is right if it has either: before a page is changed, its entry is
//! made the old and the new one. So whoever is killed in between leaves pages that are old or new, each with
//! a checksum that fits. Where something is overwritten the entries are synced before the pages, so that a
//! power failure leaves no less. A checksum is the CRC-32C of the page, padded with zeros, less (xor) that of
//! a page of zeros: what was never written has zeros in the table and is zeros. All numbers are
//! little-endian.
//!
//! Writers exclude each other by a lock on the file. Readers do not lock: they read entries and pages at
//! different times, so who finds a page that does not fit looks again with a lock before calling it damaged.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

const PAGE: u64 = 4096;
const ENTRY: u64 = 8;
const PER_GROUP: u64 = PAGE / ENTRY;
/// Bytes of data in a group.
const GROUP: u64 = PER_GROUP * PAGE;

static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
static ZERO_SUM: LazyLock<u32> = LazyLock::new(|| crc32c::crc32c(&ZEROS));

/// Why a block's bytes are not to be had.
#[derive(Debug)]
pub(crate) enum PageError {
    /// The page that begins at this offset is not what was written.
    Damaged(u64),
    Io(io::Error),
}

impl From<io::Error> for PageError {
    fn from(e: io::Error) -> PageError {
        PageError::Io(e)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Entry(u32, u32);

impl Entry {
    fn fits(self, sum: u32) -> bool {
        self.0 == sum || self.1 == sum
    }
}

fn sum(page: &[u8]) -> u32 {
    let rest = &ZEROS[page.len().min(ZEROS.len())..];
    crc32c::crc32c_append(crc32c::crc32c(page), rest) ^ *ZERO_SUM
}

fn table_at(group: u64) -> u64 {
    group * (GROUP + PAGE)
}

fn page_at(page: u64) -> u64 {
    (page + page / PER_GROUP + 1) * PAGE
}

/// Bytes of data in a file of so many.
pub(crate) fn data_len(physical: u64) -> u64 {
    let rest = physical % (GROUP + PAGE);
    physical / (GROUP + PAGE) * GROUP + rest.saturating_sub(PAGE)
}

/// Bytes of the file that has so many of data.
fn physical_len(data: u64) -> u64 {
    match data % GROUP {
        0 => table_at(data / GROUP),
        within => table_at(data / GROUP) + PAGE + within,
    }
}

/// As many bytes as there are.
pub(crate) fn read_full(f: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match f.read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// Entries of pages of one group.
fn entries(f: &File, first: u64, last: u64) -> io::Result<Vec<Entry>> {
    let mut bytes = vec![0; ((last + 1 - first) * ENTRY) as usize];
    read_full(
        f,
        &mut bytes,
        table_at(first / PER_GROUP) + first % PER_GROUP * ENTRY,
    )?;
    let number = |b: &[u8]| b.iter().rev().fold(0u32, |n, b| n << 8 | u32::from(*b));
    Ok(bytes
        .chunks_exact(ENTRY as usize)
        .map(|e| Entry(number(&e[..4]), number(&e[4..])))
        .collect())
}

fn set_entries(f: &File, first: u64, entries: &[Entry]) -> io::Result<()> {
    let bytes: Vec<u8> = entries
        .iter()
        .flat_map(|e| [e.0.to_le_bytes(), e.1.to_le_bytes()])
        .flatten()
        .collect();
    f.write_all_at(&bytes, table_at(first / PER_GROUP) + first % PER_GROUP * ENTRY)
}

/// Whole pages `first..=last` of one group, as far as the file has them, after checking them.
fn checked(f: &File, size: u64, first: u64, last: u64) -> Result<Vec<u8>, PageError> {
    let entries = entries(f, first, last)?;
    let want = ((last + 1) * PAGE).min(size).saturating_sub(first * PAGE);
    let mut data = vec![0; want as usize];
    let got = read_full(f, &mut data, page_at(first))?;
    data.truncate(got);
    let mut pages = data.chunks(PAGE as usize);
    for (n, entry) in entries.iter().enumerate() {
        if !entry.fits(pages.next().map_or(0, sum)) {
            return Err(PageError::Damaged((first + n as u64) * PAGE));
        }
    }
    Ok(data)
}

/// The stretches of `from..to` that lie in one group each: first and last page.
fn groups(from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = to.div_ceil(PAGE);
    let mut page = from / PAGE;
    std::iter::from_fn(move || {
        (page < end).then(|| {
            let first = page;
            page = ((first / PER_GROUP + 1) * PER_GROUP).min(end);
            (first, page - 1)
        })
    })
}

fn size_of(f: &File) -> io::Result<u64> {
    Ok(data_len(f.metadata()?.len()))
}

/// Whether so many bytes are in it.
pub(crate) fn holds(f: &File, bytes: u64) -> bool {
    size_of(f).is_ok_and(|size| bytes <= size)
}

/// Reads up to `len` bytes at `offset`; fewer at the end.
pub(crate) fn read(f: &File, offset: u64, len: usize) -> Result<Vec<u8>, PageError> {
    match read_once(f, offset, len) {
        Err(PageError::Damaged(_)) => {
            // A writer may have been between its entries and its pages.
            flock(f, FlockOperation::LockShared).map_err(io::Error::from)?;
            read_once(f, offset, len)
        }
        other => other,
    }
}

fn read_once(f: &File, offset: u64, len: usize) -> Result<Vec<u8>, PageError> {
    let size = size_of(f)?;
    let end = offset + len as u64;
    let mut out = Vec::new();
    for (first, last) in groups(offset, end) {
        let data = checked(f, size, first, last)?;
        if first * PAGE >= offset && out.is_empty() {
            out = data;
        } else {
            let skip = offset.saturating_sub(first * PAGE) as usize;
            out.extend_from_slice(data.get(skip..).unwrap_or_default());
        }
    }
    out.truncate(len);
    Ok(out)
}

/// Writes at `offset`, filling a gap before it with zeros.
pub(crate) fn write(f: &File, offset: u64, data: &[u8]) -> Result<(), PageError> {
    if data.is_empty() {
        return Ok(());
    }
    flock(f, FlockOperation::LockExclusive).map_err(io::Error::from)?;
    let size = size_of(f)?;
    let end = offset + data.len() as u64;
    for (first, last) in groups(offset, end) {
        let from = offset.max(first * PAGE);
        let to = end.min((last + 1) * PAGE);
        let part = &data[(from - offset) as usize..(to - offset) as usize];
        write_group(f, size, (first, last), from, part)?;
    }
    Ok(())
}

fn write_group(
    f: &File,
    size: u64,
    (first, last): (u64, u64),
    from: u64,
    part: &[u8],
) -> Result<(), PageError> {
    let to = from + part.len() as u64;
    let (start, stop) = (first * PAGE, ((last + 1) * PAGE).min(size));
    // What the first and the last page keep of what they had.
    let mut head = Vec::new();
    if from > start {
        head = checked(f, size, first, first)?;
        head.resize((from - start) as usize, 0);
    }
    let tail = if to < stop {
        let page = checked(f, size, last, last)?;
        page.get((to - last * PAGE) as usize..)
            .unwrap_or_default()
            .to_vec()
    } else {
        Vec::new()
    };
    let whole: Vec<u8>;
    let pages: &[u8] = if head.is_empty() && tail.is_empty() {
        part
    } else {
        whole = [&head, part, &tail].concat();
        &whole
    };
    let mut changing = entries(f, first, last)?;
    let mut overwrites = false;
    let mut after = Vec::with_capacity(changing.len());
    for (n, (entry, page)) in changing.iter_mut().zip(pages.chunks(PAGE as usize)).enumerate() {
        let new = sum(page);
        let old = standing(f, size, first + n as u64, *entry)?;
        // A hole that was synced is content, too.
        let there = (first + n as u64) * PAGE < size;
        overwrites |= old.is_some_and(|old| old != new && (old != 0 || there));
        // A page that is damaged is mended by being written whole.
        *entry = Entry(old.unwrap_or(new), new);
        after.push(Entry(new, new));
    }
    set_entries(f, first, &changing)?;
    if overwrites {
        f.sync_data()?;
    }
    f.write_all_at(pages, page_at(first))?;
    // Nothing orders a page before its entry on the device: what an overwrite leaves fits the page of before
    // and the one of now until both are synced, which the next overwrite sees to.
    if !overwrites {
        set_entries(f, first, &after)?;
    }
    Ok(())
}

/// The checksum of a page as it is; `None` if it is damaged. Looks at the page only if the entry leaves it
/// open.
fn standing(f: &File, size: u64, page: u64, entry: Entry) -> io::Result<Option<u32>> {
    if page * PAGE >= size {
        return Ok(Some(0));
    }
    if entry.0 == entry.1 {
        return Ok(Some(entry.0));
    }
    let mut bytes = vec![0; PAGE.min(size - page * PAGE) as usize];
    let got = read_full(f, &mut bytes, page_at(page))?;
    let is = sum(&bytes[..got]);
    Ok(entry.fits(is).then_some(is))
}

/// Cuts to `len` bytes.
pub(crate) fn truncate(f: &File, len: u64) -> Result<(), PageError> {
    flock(f, FlockOperation::LockExclusive).map_err(io::Error::from)?;
    let size = size_of(f)?;
    let keep = len.min(size);
    let page = keep / PAGE;
    if len < size && !keep.is_multiple_of(PAGE) {
        let mut bytes = checked(f, size, page, page)?;
        let old = sum(&bytes);
        bytes.truncate((keep % PAGE) as usize);
        let new = sum(&bytes);
        set_entries(f, page, &[Entry(old, new)])?;
        if old != new {
            f.sync_data()?;
        }
    }
    // What follows in this group has no pages any more, also if who cut here before was killed.
    let gone = keep.div_ceil(PAGE);
    if !gone.is_multiple_of(PER_GROUP) {
        let last = (gone / PER_GROUP + 1) * PER_GROUP - 1;
        let zeros = vec![Entry::default(); (last + 1 - gone) as usize];
        if entries(f, gone, last)? != zeros {
            set_entries(f, gone, &zeros)?;
        }
    }
    if len < size {
        f.set_len(physical_len(len))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    fn file() -> (tempfile::TempDir, File) {
        let tmp = tempfile::tempdir().unwrap();
        let f = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(tmp.path().join("block"))
            .unwrap();
        (tmp, f)
    }

    #[test]
    fn lengths_over_groups() {
        for len in [
            0,
            1,
            PAGE - 1,
            PAGE,
            GROUP - 1,
            GROUP,
            GROUP + 1,
            2 * GROUP,
            5 * GROUP + 77,
        ] {
            assert_eq!(data_len(physical_len(len)), len, "{len}");
        }
        assert_eq!(
            groups(GROUP - 1, 2 * GROUP + 1).collect::<Vec<_>>(),
            [(511, 511), (512, 1023), (1024, 1024)]
        );
    }

    #[test]
    fn over_groups_and_pages() {
        let (_tmp, f) = file();
        let data: Vec<u8> = (0..2 * GROUP + 9000).map(|n| (n % 251) as u8).collect();
        write(&f, 0, &data).unwrap();
        assert_eq!(read(&f, 0, data.len() + 5).unwrap(), data);
        let at = (GROUP - 3) as usize;
        assert_eq!(read(&f, at as u64, 7).unwrap(), data[at..at + 7]);
        write(&f, GROUP - 3, b"seven!!").unwrap();
        assert_eq!(read(&f, GROUP - 4, 9).unwrap()[1..8], *b"seven!!");
        truncate(&f, GROUP + 5).unwrap();
        write(&f, 2 * GROUP + 1, b"x").unwrap();
        let back = read(&f, GROUP, GROUP as usize + 10).unwrap();
        assert_eq!(back.len(), GROUP as usize + 2);
        assert!(back[5..=GROUP as usize].iter().all(|b| *b == 0));
    }

    /// Whoever changes a page is killed after any of its writes: the page is the old one or the new one.
    #[test]
    fn killed_in_between() {
        let (_tmp, f) = file();
        write(&f, 0, &[1; 8192]).unwrap();
        let before = entries(&f, 0, 1).unwrap();
        let new = sum(&[2; 4096]);
        let changing: Vec<Entry> = before.iter().map(|e| Entry(e.0, new)).collect();
        set_entries(&f, 0, &changing).unwrap();
        assert_eq!(read(&f, 0, 8192).unwrap(), [1; 8192]);
        f.write_all_at(&[2; 4096], page_at(0)).unwrap();
        assert_eq!(read(&f, 4095, 2).unwrap(), [2, 1]);
        // And goes on from there.
        write(&f, 4000, b"abc").unwrap();
        write(&f, 5000, b"abc").unwrap();
        assert_eq!(read(&f, 3999, 4).unwrap(), [2, b'a', b'b', b'c']);
        assert_eq!(read(&f, 4999, 2).unwrap(), [1, b'a']);
        // An entry of a page that was never written, with zeros instead of the page.
        set_entries(&f, 2, &[Entry(0, 77)]).unwrap();
        assert_eq!(read(&f, 8192, 10).unwrap(), []);
        write(&f, 3 * 4096, b"far").unwrap();
        assert_eq!(read(&f, 8192, 1).unwrap(), [0]);
    }

    #[test]
    fn every_flipped_byte_is_found_and_a_page_written_whole_is_mended() {
        let (_tmp, f) = file();
        write(&f, 0, &[7; 6000]).unwrap();
        let len = f.metadata().unwrap().len();
        for at in (0..16).chain(PAGE..len) {
            let mut byte = [0];
            f.read_exact_at(&mut byte, at).unwrap();
            f.write_all_at(&[byte[0] ^ 4], at).unwrap();
            let damaged = matches!(read(&f, 0, 6000), Err(PageError::Damaged(_)));
            // One of the two checksums of an entry may be wrong: the other fits.
            assert_eq!(damaged, at >= PAGE, "byte {at}");
            f.write_all_at(&byte, at).unwrap();
        }
        f.write_all_at(&[1], page_at(0)).unwrap();
        assert!(matches!(write(&f, 10, b"part"), Err(PageError::Damaged(0))));
        assert!(matches!(truncate(&f, 10), Err(PageError::Damaged(0))));
        assert_eq!(read(&f, 4096, 3).unwrap(), [7; 3], "other pages are there");
        write(&f, 0, &[3; 4096]).unwrap();
        assert_eq!(read(&f, 0, 4097).unwrap()[4095..], [3, 7]);
        // The file lost its end.
        f.set_len(page_at(1)).unwrap();
        assert!(matches!(read(&f, 0, 6000), Err(PageError::Damaged(4096))));
    }
}
