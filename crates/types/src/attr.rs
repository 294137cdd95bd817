//! Attributes of files and directories.

use crate::{Generation, Ino, Timestamp};

/// What kind of object an entry names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix domain socket's name.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// The twelve permission bits: set-uid, set-gid, sticky, and rwx for owner, group and others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Perm(u16);

impl Perm {
    /// The set-user-ID bit.
    pub const SETUID: u16 = 0o4000;
    /// The set-group-ID bit.
    pub const SETGID: u16 = 0o2000;
    /// The sticky bit.
    pub const STICKY: u16 = 0o1000;

    /// Keeps the twelve permission bits of `bits`.
    pub fn new(bits: u16) -> Perm {
        Perm(bits & 0o7777)
    }

    /// The bits.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// rwx of owner, group and others.
    pub fn classes(self) -> [u8; 3] {
        [6, 3, 0].map(|shift| (self.0 >> shift) as u8 & 7)
    }

    /// Whether all of `mask` is set.
    pub fn has(self, mask: u16) -> bool {
        self.0 & mask == mask
    }
}

/// Attributes as `stat` shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Incarnation of the inode.
    pub generation: Generation,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits.
    pub perm: Perm,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names of this object; for a directory 2 plus its subdirectories.
    pub nlink: u32,
    /// Bytes; for a directory, its entries.
    pub size: u64,
    /// Bytes that are stored of it: less than the size if it has holes. 0 for a directory.
    pub allocated: u64,
    /// Device number of a special file, else 0.
    pub rdev: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of attributes or content.
    pub ctime: Timestamp,
}

/// What a directory's content half knows; `stat` of a directory joins it with the access half (InfiniFS
/// §3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DirStat {
    /// Entries, subdirectories included.
    pub entries: u64,
    /// Subdirectories.
    pub subdirs: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the entries.
    pub mtime: Timestamp,
    /// Last change of the content half.
    pub ctime: Timestamp,
}

impl DirStat {
    /// Of a directory that was made at this time, in which nothing is.
    pub fn born(at: Timestamp) -> DirStat {
        DirStat {
            entries: 0,
            subdirs: 0,
            atime: at,
            mtime: at,
            ctime: at,
        }
    }
}

/// A requested change of a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeChange {
    /// To the server's clock.
    Now,
    /// To this.
    To(Timestamp),
}

/// A requested change of attributes; what is `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AttrChange {
    /// chmod
    pub perm: Option<Perm>,
    /// chown
    pub uid: Option<u32>,
    /// chgrp
    pub gid: Option<u32>,
    /// truncate
    pub size: Option<u64>,
    /// utimens, access time
    pub atime: Option<TimeChange>,
    /// utimens, modification time
    pub mtime: Option<TimeChange>,
}
