//! Objects of the tree.

use crate::content::Content;
use pando_types::{
    Acl, Acls, Attr, DirId, DirStat, FileKind, Generation, Ino, Name, Perm, Timestamp, XattrName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An object: its inode number, and which incarnation of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId {
    /// Inode number.
    pub ino: Ino,
    /// Incarnation.
    pub generation: Generation,
}

impl NodeId {
    /// The place whose only entry is the root.
    pub const ABOVE_ROOT: NodeId = NodeId {
        ino: Ino(0),
        generation: Generation::ABOVE_ROOT,
    };
    /// The root directory.
    pub const ROOT: NodeId = NodeId {
        ino: Ino::ROOT,
        generation: Generation::ROOT,
    };

    /// Incarnation `generation` of `ino`.
    pub fn new(ino: Ino, generation: Generation) -> NodeId {
        NodeId { ino, generation }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The directories it is in, and its names there. A directory has one; the place above the root has none.
    pub names: BTreeSet<(NodeId, Name)>,
    pub perm: Perm,
    pub uid: u32,
    pub gid: u32,
    /// Of a directory: of its content half.
    pub atime: Timestamp,
    /// Of a directory: of its content half.
    pub mtime: Timestamp,
    /// Of a directory: of its access half.
    pub ctime: Timestamp,
    pub inner: Inner,
    pub xattrs: BTreeMap<XattrName, Vec<u8>>,
    /// Of a file: how often its content was changed.
    pub version: u64,
    /// Access control list, whole; always says of owner, mask and others what the bits say.
    pub list: Option<Acl>,
    /// Of a directory: what new objects in it begin with.
    pub default: Option<Acl>,
}

#[derive(Clone, Debug)]
pub(crate) enum Inner {
    Dir(Directory),
    File { size: u64, content: Content },
    Symlink(Arc<[u8]>),
    Special { kind: FileKind, rdev: u64 },
}

#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub id: DirId,
    pub entries: BTreeMap<Name, NodeId>,
    pub subdirs: u64,
    /// Of the content half.
    pub ctime: Timestamp,
    /// `mtime` was set by utimens, and no entry changed since.
    pub mtime_was_set: bool,
}

impl Node {
    /// An object nobody has named yet.
    pub fn new(perm: Perm, uid: u32, gid: u32, now: Timestamp, inner: Inner) -> Node {
        Node {
            names: BTreeSet::new(),
            perm,
            uid,
            gid,
            atime: now,
            mtime: now,
            ctime: now,
            inner,
            xattrs: BTreeMap::new(),
            version: 0,
            list: None,
            default: None,
        }
    }

    pub fn dir(id: DirId, perm: Perm, uid: u32, gid: u32, now: Timestamp) -> Node {
        let content = Directory {
            id,
            entries: BTreeMap::new(),
            subdirs: 0,
            ctime: now,
            mtime_was_set: false,
        };
        Node::new(perm, uid, gid, now, Inner::Dir(content))
    }

    /// The directory it is in: of a directory the only one.
    pub fn parent(&self) -> NodeId {
        self.names.first().map_or(NodeId::ABOVE_ROOT, |(dir, _)| *dir)
    }

    pub fn kind(&self) -> FileKind {
        match self.inner {
            Inner::Dir(_) => FileKind::Directory,
            Inner::File { .. } => FileKind::Regular,
            Inner::Symlink(_) => FileKind::Symlink,
            Inner::Special { kind, .. } => kind,
        }
    }

    pub fn is_dir(&self) -> bool {
        matches!(self.inner, Inner::Dir(_))
    }

    pub fn as_dir(&self) -> Option<&Directory> {
        match &self.inner {
            Inner::Dir(d) => Some(d),
            _ => None,
        }
    }

    pub fn as_dir_mut(&mut self) -> Option<&mut Directory> {
        match &mut self.inner {
            Inner::Dir(d) => Some(d),
            _ => None,
        }
    }

    pub fn dir_stat(&self) -> Option<DirStat> {
        self.as_dir().map(|d| DirStat {
            entries: d.entries.len() as u64,
            subdirs: d.subdirs,
            atime: self.atime,
            mtime: self.mtime,
            ctime: d.ctime,
        })
    }

    /// Its lists as answers show them.
    pub fn acls(&self) -> Acls {
        Acls {
            access: self.list.as_ref().and_then(|list| list.split().1),
            default: self.default.clone(),
        }
    }

    /// As `stat` shows it. Of a directory: nlink is 2 plus the subdirectories, size the number of entries,
    /// ctime the later of its two halves'.
    pub fn attr(&self, id: NodeId) -> Attr {
        let links = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let (nlink, size, ctime) = match &self.inner {
            Inner::Dir(d) => {
                let nlink = u32::try_from(d.subdirs + 2).unwrap_or(u32::MAX);
                (nlink, d.entries.len() as u64, self.ctime.max(d.ctime))
            }
            Inner::File { size, .. } => (links, *size, self.ctime),
            Inner::Symlink(target) => (links, target.len() as u64, self.ctime),
            Inner::Special { .. } => (links, 0, self.ctime),
        };
        let rdev = match self.inner {
            Inner::Special { rdev, .. } => rdev,
            _ => 0,
        };
        Attr {
            ino: id.ino,
            generation: id.generation,
            kind: self.kind(),
            perm: self.perm,
            uid: self.uid,
            gid: self.gid,
            nlink,
            size,
            // What is stored of it the model does not know.
            allocated: 0,
            rdev,
            atime: self.atime,
            mtime: self.mtime,
            ctime,
        }
    }
}
