//! The stream of `pando dump`: a tar archive in pax format (POSIX.1-2001), which every tar reads, with checks
//! of its own. `docs/dump.md` is its reference.
//!
//! What pax has no word for stands in `comment` records, which other programs pass over without a word: the
//! number and links of an inode, and two checks of each entry, one of the entry's own records and one of the
//! whole stream before it.
//!
//! Knows nothing of servers: it makes entries of bytes and bytes of entries.

mod pax;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::{Next, Reader};
pub use write::Writer;

use pando_types::{FileKind, Timestamp};
use thiserror::Error;

/// The version of the stream that is written; a reader refuses others.
pub const VERSION: u32 = 1;
/// Most bytes of an entry's records.
pub const RECORDS_MAX: u64 = 4 << 20;
/// Most pieces that the data of one file may be in.
pub const EXTENTS_MAX: usize = 1 << 20;
/// Longest path: components of 255 bytes, deeper than any system call could name.
pub const PATH_MAX: usize = 1 << 20;

/// A file, a directory, or another name of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// From the directory that was dumped; components with `/` between, none for that directory itself.
    pub path: Vec<u8>,
    /// What it is. Sockets cannot be in a stream.
    pub kind: FileKind,
    /// Another name of the file whose path is `target`: nothing else of it counts.
    pub link: bool,
    /// Permission bits.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Inode number where it was dumped: names of one file have the same.
    pub ino: u64,
    /// Names of the file.
    pub nlink: u32,
    /// Device number of a special file: major and minor.
    pub device: (u32, u32),
    /// Of a symbolic link where it leads, of another name the first one.
    pub target: Vec<u8>,
    /// Bytes of a regular file.
    pub size: u64,
    /// Where in the file the data are that follow, in order: offset and length. The rest reads as zeros.
    pub extents: Vec<(u64, u64)>,
    /// False: only the metadata were dumped, the size is that of the file all the same.
    pub has_data: bool,
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// Of this kind at a path, nobody's, and empty.
    pub fn new(path: impl Into<Vec<u8>>, kind: FileKind) -> Entry {
        Entry {
            path: path.into(),
            kind,
            link: false,
            perm: 0,
            uid: 0,
            gid: 0,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ino: 0,
            nlink: 1,
            device: (0, 0),
            target: Vec::new(),
            size: 0,
            extents: Vec::new(),
            has_data: true,
            xattrs: Vec::new(),
        }
    }

    /// Bytes of data that follow.
    pub fn stored(&self) -> u64 {
        self.extents.iter().map(|(_, len)| len).sum()
    }

    /// Whether all bytes are there, in one piece.
    pub(crate) fn is_dense(&self) -> bool {
        match *self.extents {
            [] => self.size == 0,
            [(0, len)] => len == self.size,
            _ => false,
        }
    }
}

/// How a stream begins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Begin {
    /// The filesystem that was dumped, as its number in hexadecimal digits.
    pub fs: String,
    /// Whether data of files were left out.
    pub metadata_only: bool,
}

/// How it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// Entries in all.
    pub entries: u64,
    /// Bytes of data in all.
    pub bytes: u64,
}

/// What is wrong with a stream.
#[derive(Debug, Error)]
pub enum StreamError {
    /// It is something else.
    #[error("this is no dump of Pando ({0}); `pando dump` makes them")]
    NotADump(&'static str),
    /// A dump of another version.
    #[error(
        "this is a dump of version {0}, and this program reads version {VERSION}; use the program that wrote it, or a newer one"
    )]
    Version(u32),
    /// It ends too early.
    #[error("the dump is cut off at byte {at}, after {after}: get the rest of it")]
    Truncated {
        /// Where it ends.
        at: u64,
        /// The last entry before.
        after: Place,
    },
    /// Bytes were changed.
    #[error("the dump is damaged before byte {at}, in or after {after}: {what}; get it anew")]
    Damaged {
        /// Where it was noticed.
        at: u64,
        /// The last entry before.
        after: Place,
        /// How.
        what: &'static str,
    },
    /// An entry that nobody can use.
    #[error("{place} cannot be in a dump: {what}")]
    Entry {
        /// Which.
        place: Place,
        /// Why.
        what: &'static str,
    },
    /// It cannot be read or written.
    #[error("at byte {at}: {error}")]
    Io {
        /// Where.
        at: u64,
        /// Why.
        #[source]
        error: std::io::Error,
    },
}

/// An entry's path in a message. `None`: the beginning.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place(pub Option<Vec<u8>>);

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            None => f.write_str("its beginning"),
            Some(path) => {
                f.write_str("/")?;
                for c in String::from_utf8_lossy(path).chars() {
                    let shown = if c.is_control() {
                        char::REPLACEMENT_CHARACTER
                    } else {
                        c
                    };
                    std::fmt::Write::write_char(f, shown)?;
                }
                Ok(())
            }
        }
    }
}

/// Why a path cannot be in a stream; the parts of a path are checked by whoever writes and whoever reads.
pub(crate) fn check_path(path: &[u8]) -> Result<(), &'static str> {
    if path.is_empty() {
        return Ok(());
    }
    if path.len() > PATH_MAX {
        return Err("its path is too long");
    }
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" => return Err("its path has an empty part"),
            b"." | b".." => return Err("its path has . or .. in it"),
            _ if part.len() > 255 => return Err("its path has a part of more than 255 bytes"),
            _ if part.contains(&0) => return Err("its path has a zero byte"),
            _ => {}
        }
    }
    Ok(())
}
