//! What can be asked of the model, and what it answers.

use crate::content::Content;
use crate::listing::Listed;
use crate::node::NodeId;
use pando_types::{
    Access, Acl, AclKind, Acls, Attr, AttrChange, DirId, DirStat, FileKind, Generation, Ino, Mode, Name,
    Perm, Timestamp, XattrMode, XattrName,
};
use std::fmt;
use std::sync::Arc;

/// Largest size of a file, in bytes.
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// The directory an operation is about, as its request says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirRef {
    /// The directory.
    pub id: NodeId,
    /// Permission bits, owner and group as the caller last saw them. The implementation checks by them, and
    /// inherits from them, because they stand in the request and not with the directory's content. `None`: as
    /// they are now. (Lists: [`crate::Model::apply_by`].)
    pub dir_perm: Option<(Perm, u32, u32)>,
    /// It is no directory, but the home of the file `id`: whoever names it was shown the way to it, and needs
    /// no permission.
    pub home: bool,
    /// It is the second that the request names: of one directory it may say two things, an old one and a new
    /// one.
    pub second: bool,
}

impl DirRef {
    /// The directory, with its permissions as they are now.
    pub fn new(id: NodeId) -> DirRef {
        DirRef {
            id,
            dir_perm: None,
            home: false,
            second: false,
        }
    }
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

/// An operation. Whether the caller has a removed file open makes no difference to the tree, so that is not
/// here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ModelOp {
    /// The entry of a name.
    Lookup {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
    },
    /// The content half of a directory's attributes.
    DirStat {
        /// Which.
        dir: DirRef,
    },
    /// A symlink's target.
    ReadLink {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
    },
    /// Opens.
    Open {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
        /// For what.
        want: Access,
    },
    /// The whole listing at one instant. What is listed by pages over time, [`crate::ListingWatch`] judges.
    ReadDir {
        /// Which.
        dir: DirRef,
    },
    /// Creates a regular file, or opens it.
    Create {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
        /// Permissions, and the umask.
        mode: Mode,
        /// EEXIST if it exists.
        exclusive: bool,
        /// Checked if it exists.
        want: Access,
    },
    /// Creates a regular file without a name, and opens it.
    Tmpfile {
        /// In which directory it would be.
        dir: DirRef,
        /// Permissions, and the umask.
        mode: Mode,
        /// It may get a name.
        linkable: bool,
    },
    /// Creates a symlink.
    Symlink {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
        /// Where it points.
        target: Vec<u8>,
    },
    /// Creates a special file.
    Mknod {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
        /// Which.
        kind: FileKind,
        /// Permissions, and the umask.
        mode: Mode,
        /// Number of a device.
        rdev: u64,
    },
    /// The value of an extended attribute.
    GetXattr {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
        /// The object meant.
        id: NodeId,
        /// Which attribute.
        attr: XattrName,
    },
    /// The names of extended attributes.
    ListXattr {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
        /// The object meant.
        id: NodeId,
    },
    /// Sets an extended attribute, or removes it.
    SetXattr {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
        /// The object meant.
        id: NodeId,
        /// Which attribute.
        attr: XattrName,
        /// Its value; `None` removes it.
        value: Option<Vec<u8>>,
        /// If there is one, or none.
        mode: XattrMode,
    },
    /// Sets an access control list, or removes it.
    SetAcl {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
        /// The object meant.
        id: NodeId,
        /// Which.
        kind: AclKind,
        /// The list; `None` removes it.
        list: Option<Acl>,
    },
    /// Creates a directory.
    Mkdir {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
        /// Permissions, and the umask.
        mode: Mode,
    },
    /// Removes an empty directory.
    Rmdir {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
    },
    /// Removes any other name.
    Unlink {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
    },
    /// Changes attributes.
    SetAttr {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
        /// The object meant.
        id: NodeId,
        /// What to change.
        change: AttrChange,
        /// Through a handle opened for writing.
        through_handle: bool,
    },
    /// Replaces the content of a file through a handle opened for writing.
    Publish {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
        /// The object meant.
        id: NodeId,
        /// The content. [`Content::Bytes`] may end with zeros here.
        content: Content,
        /// The size.
        size: u64,
        /// When it was last written; `None` is now.
        mtime: Option<Timestamp>,
        /// Of which version of the content it was made.
        base: Option<u64>,
    },
    /// A file that is open was read.
    Accessed {
        /// Where.
        dir: DirRef,
        /// What.
        name: Name,
        /// The object meant.
        id: NodeId,
        /// How many nanoseconds ago.
        ago: u64,
    },
    /// Renames.
    Rename {
        /// From where.
        src: DirRef,
        /// What.
        src_name: Name,
        /// To where.
        dst: DirRef,
        /// As what.
        dst_name: Name,
        /// If that exists.
        mode: RenameMode,
    },
    /// Gives something that is no directory another name.
    Link {
        /// Where it has one.
        src: DirRef,
        /// Which.
        src_name: Name,
        /// The object meant.
        id: NodeId,
        /// Where it gets another.
        dst: DirRef,
        /// Which.
        dst_name: Name,
    },
}

/// Identity of a new object, as the implementation chose it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fresh {
    /// Inode number.
    pub ino: Ino,
    /// Incarnation.
    pub generation: Generation,
    /// Of a directory, its ID.
    pub dir_id: Option<DirId>,
}

/// What is wrong with the identity of a new object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdentityFault {
    /// Something is created, but the implementation named no identity: it did not create it.
    Missing,
    /// A living object has this inode number.
    InoLive(Ino),
    /// An object had this identity before: handles of the old one would reach the new one.
    Reused(NodeId),
    /// A directory is created, but no directory ID was named.
    NoDirId,
    /// A living directory has this ID.
    DirIdLive(DirId),
    /// A directory had this identity before.
    DirReused(DirId, Generation),
}

impl fmt::Display for IdentityFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdentityFault::Missing => write!(f, "something must be created here, but was not"),
            IdentityFault::InoLive(ino) => write!(f, "inode number {ino} belongs to a living object"),
            IdentityFault::Reused(id) => {
                write!(
                    f,
                    "inode number {} generation {} was used before",
                    id.ino, id.generation
                )
            }
            IdentityFault::NoDirId => write!(f, "a directory must be created here, but was not"),
            IdentityFault::DirIdLive(id) => write!(f, "directory ID {id} belongs to a living directory"),
            IdentityFault::DirReused(id, generation) => {
                write!(f, "directory ID {id} generation {generation} was used before")
            }
        }
    }
}

/// What a directory is called inside the implementation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirIdentity {
    /// Its ID.
    pub id: DirId,
    /// Its parent.
    pub parent: NodeId,
    /// Its parent's ID.
    pub parent_id: DirId,
}

/// What belongs to one kind of object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// A directory.
    Dir(DirIdentity),
    /// A regular file.
    File(Content),
    /// A symlink, and its target.
    Symlink(Arc<[u8]>),
    /// A FIFO, a socket's name or a device.
    Special,
}

/// An entry as an answer shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Attributes. Of a directory the access half: ino, generation, kind, perm, uid, gid and that half's
    /// ctime; its nlink is 2, its size, atime and mtime are zero. What [`crate::Model::walk`] gives has both
    /// halves.
    pub attr: Attr,
    /// What belongs to its kind.
    pub body: Body,
    /// Whether it has extended attributes.
    pub xattrs: bool,
    /// Its access control lists.
    pub acls: Acls,
}

impl View {
    /// The object.
    pub fn id(&self) -> NodeId {
        NodeId::new(self.attr.ino, self.attr.generation)
    }

    /// What it is.
    pub fn kind(&self) -> FileKind {
        self.attr.kind
    }
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ModelAnswer {
    /// An entry (Lookup, Symlink, Mknod, Mkdir, SetAttr, SetXattr, Publish).
    Entry(View),
    /// An open file (Open, Create).
    Opened {
        /// Its entry, content included.
        entry: View,
        /// Whether this operation created it.
        created: bool,
    },
    /// What was removed (Unlink, Rmdir), as it was before.
    Removed(View),
    /// Rename.
    Renamed {
        /// The object under its new name.
        moved: View,
        /// What it replaced, as that was before, or was exchanged with, as that is now. `None` also if both
        /// names were one.
        other: Option<View>,
    },
    /// The content half of a directory.
    DirStat(DirStat),
    /// A symlink's target.
    Target(Arc<[u8]>),
    /// The value of an extended attribute.
    Value(Vec<u8>),
    /// The names of extended attributes, in order.
    Names(Vec<XattrName>),
    /// A listing, by name.
    Entries(Vec<Listed>),
    /// The implementation broke the rules of identities. Equals no answer of an implementation.
    Identity(IdentityFault),
}
