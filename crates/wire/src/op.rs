//! Operations on the tree, as clients ask for them and servers answer.

mod codec;
mod object;
mod statement;
pub mod traits;

pub use object::{Object, Shows, Subject, SubjectMut};
pub use statement::{Said, Scope, Statement};

use crate::bulk::{Bulk, Bulked};
use pando_format::codec::Blob;
use pando_format::{Layout, Position};
use pando_types::{
    Acl, AclKind, Acls, Attr, AttrChange, DirId, DirStat, Errno, Extended, FileKind, Generation, Guard, Ino,
    Mode, Name, Slot, Timestamp, XattrMode, XattrName,
};

/// Largest file kept beside its record, unless configured otherwise.
pub const INLINE_LIMIT_DEFAULT: u32 = 64 * 1024;
/// Largest configurable inline limit.
pub const INLINE_LIMIT_MAX: u32 = 1024 * 1024;
/// Most names that one request removes.
pub const UNLINK_MAX: usize = 256;

/// Opens the sealed answers about one directory (H99). Told with its statement, to callers who may search it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SealKey(pub [u8; 32]);

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey(..)")
    }
}

/// Shows that the holder opened a file for writing: a server's keyed MAC over the file's number, its
/// generation and the identity. Good as long as the file and the identity are, whatever becomes of the file's
/// permissions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Handle(pub u128);

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handle(..)")
    }
}

/// A name in a directory of which the asker has no statement: a guess of a path that is resolved ahead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The directory, guessed.
    pub dir: DirId,
    /// What.
    pub name: Name,
}

/// An entry as clients see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryView {
    /// Attributes. Of a directory: the access half only (size, times and nlink come with [`Op::DirStat`]).
    pub attr: Attr,
    /// For a directory, its statement.
    pub dir: Option<Statement>,
    /// For a directory that the caller may search: opens what is sealed about it.
    pub seal: Option<SealKey>,
    /// For anything else, where its bytes are. A short symlink target is in here.
    pub layout: Layout,
    /// Counts changes of content.
    pub version: u64,
    /// Of what has several names: where it is. Good for this one file, whatever becomes of the names: with
    /// [`Name::home`] it stands for a place (H96).
    pub home: Option<Statement>,
    /// Whether it has extended attributes.
    pub xattrs: bool,
    /// What the access control list of anything but a directory says beyond the permission bits. (A
    /// directory's lists are in its statement.)
    pub acl: Option<Extended>,
    /// Under leases, of a directory: for how many milliseconds from now it is good (IndexFS §II-B). 0: it has
    /// run out, or there are no leases.
    pub lease: u32,
}

impl EntryView {
    /// Its access control lists.
    pub fn acls(&self) -> Acls {
        match &self.dir {
            Some(dir) => dir.acls.clone(),
            None => Acls {
                access: self.acl.clone(),
                default: None,
            },
        }
    }

    /// Who may do what with it.
    pub fn guard(&self) -> Guard<'_> {
        let acl = match &self.dir {
            Some(dir) => dir.acls.access.as_ref(),
            None => self.acl.as_ref(),
        };
        Guard {
            perm: self.attr.perm,
            uid: self.attr.uid,
            gid: self.attr.gid,
            acl,
            is_dir: self.attr.kind == FileKind::Directory,
        }
    }
}

/// One line of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// Cookie: continue after it.
    pub position: Position,
    /// Name.
    pub name: Name,
    /// Inode number.
    pub ino: Ino,
    /// Kind.
    pub kind: FileKind,
    /// The whole entry, if asked for. (Apart: lines without are many, and small.)
    pub view: Option<Box<EntryView>>,
}

/// New content of a file, published after its data was stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// No bytes: reads as zeros.
    None,
    /// These bytes, then zeros up to the size.
    Inline(Blob),
    /// In blocks of this many bytes, all of which are there.
    Blocks(u32),
    /// In blocks, with holes.
    Sparse {
        /// Bytes in a block.
        block_size: u32,
        /// Bytes that are stored, not more than the size.
        allocated: u64,
    },
}

/// What rename does when the new name exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameMode {
    /// Replaces it.
    Replace,
    /// EEXIST.
    NoReplace,
    /// Swaps the two.
    Exchange,
}

/// Space of one server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FsStat {
    /// Bytes in all.
    pub total: u64,
    /// Bytes left before growing operations are refused.
    pub available: u64,
    /// The device it is on: servers on one say the same. 0: not known.
    pub device: u64,
}

/// An operation on the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// The entry of a name. Needs search permission.
    Lookup {
        /// Where.
        dir: Statement,
        /// What.
        name: Name,
    },
    /// A directory's entry, found without its name: as a handle, which stays good wherever the directory is
    /// moved. Its statement must be good, or a handle, whose permissions may be outdated.
    Reopen {
        /// Which.
        dir: Statement,
    },
    /// The content half of a directory's attributes.
    DirStat {
        /// Which.
        dir: Statement,
    },
    /// A symlink's target, long ones too.
    ReadLink {
        /// Where.
        dir: Statement,
        /// What.
        name: Name,
    },
    /// Checks permission to open and returns the entry with its inline data.
    Open {
        /// Where.
        dir: Statement,
        /// What.
        name: Name,
        /// READ, WRITE or both (as `Access` bits).
        want: u8,
    },
    /// A page of entries. Needs read permission.
    ReadDir {
        /// Which.
        dir: Statement,
        /// Strictly after this cookie.
        after: Position,
        /// At most so many entries; the server may return fewer.
        limit: u32,
        /// With whole entries.
        plus: bool,
    },
    /// The value of an extended attribute of the object meant.
    GetXattr {
        /// The object meant.
        object: Object,
        /// Which attribute.
        attr: XattrName,
    },
    /// The names of the extended attributes of the object meant, as far as the caller may see them.
    ListXattr {
        /// The object meant.
        object: Object,
    },
    /// Where a file is that others may have renamed or removed since the caller opened it: at home, or not
    /// any more.
    Home {
        /// Slot of its record when it was opened.
        slot: Slot,
        /// The file.
        ino: Ino,
        /// Its incarnation.
        generation: Generation,
        /// Shows that the caller opened it.
        proof: Handle,
    },
    /// Free space.
    StatFs,
    /// Makes everything acknowledged before safe against a power failure (fsync, in either durability).
    Sync,
    /// Creates a regular file; if it exists and `exclusive` is not set, opens it.
    Create {
        /// Where.
        dir: Statement,
        /// What.
        name: Name,
        /// Permissions, and the umask.
        mode: Mode,
        /// EEXIST if it exists.
        exclusive: bool,
        /// READ, WRITE or both, checked if it exists.
        want: u8,
    },
    /// Creates a regular file without a name, at home in the slot of a directory (`O_TMPFILE`). It is there
    /// while it is open.
    Tmpfile {
        /// Whose group, default list and server it gets; the caller must be allowed to create files there.
        dir: Statement,
        /// Permissions, and the umask.
        mode: Mode,
        /// It may get a name by [`Op::Link`].
        linkable: bool,
    },
    /// Creates a symlink.
    Symlink {
        /// Where.
        dir: Statement,
        /// What.
        name: Name,
        /// 1 to 4,095 bytes.
        target: Blob,
    },
    /// Creates a FIFO, a socket's name or a device.
    Mknod {
        /// Where.
        dir: Statement,
        /// What.
        name: Name,
        /// Which of these.
        kind: FileKind,
        /// Permissions, and the umask.
        mode: Mode,
        /// Number of a device, as Linux has it (`makedev`), in 32 bits.
        rdev: u64,
    },
    /// Creates a directory.
    Mkdir {
        /// Where.
        dir: Statement,
        /// What.
        name: Name,
        /// Permissions, and the umask.
        mode: Mode,
    },
    /// Removes an empty directory.
    Rmdir {
        /// Where.
        dir: Statement,
        /// What.
        name: Name,
    },
    /// Removes any other name.
    Unlink {
        /// Where.
        dir: Statement,
        /// What.
        name: Name,
        /// The caller has it open: its blocks stay until [`Op::Release`] or the end of the session.
        held: bool,
    },
    /// Removes many names of one directory, none of them a directory's, each as [`Op::Unlink`] would with
    /// nothing held, one after the other and at one moment. What does not go does not keep the others.
    UnlinkMany {
        /// Where.
        dir: Statement,
        /// What: 1 to [`UNLINK_MAX`].
        names: Vec<Name>,
    },
    /// Changes attributes.
    SetAttr {
        /// The object meant.
        object: Object,
        /// What to change.
        change: AttrChange,
        /// A truncate through a handle opened for writing: permission was checked at open, as this shows.
        handle: Option<Handle>,
    },
    /// Sets an extended attribute.
    SetXattr {
        /// The object meant.
        object: Object,
        /// Which attribute.
        attr: XattrName,
        /// Its value.
        value: Blob,
        /// If there is one, or none.
        mode: XattrMode,
    },
    /// Sets an access control list, and with an access list permission bits, or removes it. Lists are shown
    /// with entries.
    SetAcl {
        /// The object meant.
        object: Object,
        /// Which of its lists.
        kind: AclKind,
        /// The list; `None` removes it.
        list: Option<Acl>,
    },
    /// Removes an extended attribute.
    RemoveXattr {
        /// The object meant.
        object: Object,
        /// Which attribute.
        attr: XattrName,
    },
    /// Publishes written content through a handle opened for writing.
    Publish {
        /// The object meant.
        object: Object,
        /// Permission was checked at open, as this shows.
        handle: Handle,
        /// The data.
        content: Content,
        /// The new size.
        size: u64,
        /// When the last write happened, by the client's clock; `None` is the server's now.
        mtime: Option<Timestamp>,
        /// The version of the content that this was made of: if it is another by now, EBUSY. `None`: whatever
        /// it is.
        base: Option<u64>,
    },
    /// A file was read. Its atime follows as with `relatime`: if it is not later than its last change, or a
    /// day old.
    Accessed {
        /// The object meant.
        object: Object,
        /// Shows that the caller opened it.
        proof: Handle,
        /// How long ago, in nanoseconds.
        ago: u64,
    },
    /// Renames.
    Rename {
        /// From where.
        src: Statement,
        /// What.
        src_name: Name,
        /// To where.
        dst: Statement,
        /// As what.
        dst_name: Name,
        /// If that exists.
        mode: RenameMode,
        /// The caller has the replaced file open (see `Unlink`).
        held: bool,
    },
    /// Gives a file, symlink or device another name. It moves to its home, if it is not there yet (H96).
    Link {
        /// The object meant, by a name that it has.
        object: Object,
        /// Where it gets another.
        dst: Statement,
        /// Which.
        dst_name: Name,
    },
    /// Gives up a removed file that was held open.
    Release {
        /// Slot of the directory it was in.
        slot: Slot,
        /// The file.
        ino: Ino,
        /// Its incarnation.
        generation: Generation,
    },
    /// A step of a bulk insertion.
    Bulk {
        /// Into which directory.
        dir: Statement,
        /// What.
        step: Bulk,
    },
}

/// What became of one of many names that were to be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is gone.
    Gone,
    /// It is there, or was not, as an [`Op::Unlink`] would say.
    Not(Errno),
    /// Nothing happened to it: what it names has a home, or may be open, so it is to be removed by itself.
    Alone,
}

/// What an operation answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Done, nothing to say.
    Done,
    /// An entry (Lookup, Symlink, Mknod, Mkdir, SetAttr, SetXattr, RemoveXattr, SetAcl, Publish, Accessed).
    Entry(EntryView),
    /// An open file.
    Opened {
        /// Its entry.
        entry: EntryView,
        /// Its inline data.
        data: Option<Blob>,
        /// Whether this request created it.
        created: bool,
        /// If it was opened for writing, what shows that.
        handle: Option<Handle>,
        /// Shows that it was opened at all.
        proof: Handle,
        /// The session of the request keeps it open, by the turn of the request.
        kept: bool,
    },
    /// What was removed (Unlink, Rmdir), as it was. No names, and a home: others have it open, and it is
    /// there (H97).
    Removed(EntryView),
    /// Rename: the moved entry under its new name, and what it replaced or was exchanged with.
    Renamed {
        /// Moved.
        moved: Box<EntryView>,
        /// Replaced or exchanged.
        other: Option<Box<EntryView>>,
    },
    /// The content half of a directory.
    DirStat(DirStat),
    /// A symlink's target.
    Target(Blob),
    /// A page of a listing.
    Entries {
        /// In cookie order.
        entries: Vec<DirEntry>,
        /// Nothing follows.
        end: bool,
    },
    /// A page of a listing that ends where a part of a split directory ends: more follows in another part.
    Part {
        /// In cookie order. None: there are none up to there.
        entries: Vec<DirEntry>,
        /// All up to this position was told.
        upto: Position,
    },
    /// Free space.
    FsStat(FsStat),
    /// The value of an extended attribute.
    Value(Blob),
    /// The names of extended attributes, in order.
    Names(Vec<XattrName>),
    /// What became of each name, in the order they were given (UnlinkMany).
    Fates(Vec<Fate>),
    /// What came of a step of a bulk insertion.
    Bulk(Bulked),
}
