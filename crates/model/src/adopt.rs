//! Objects that were made elsewhere and come into the tree whole: bulk insertion.

use crate::Model;
use crate::content::Content;
use crate::node::{Directory, Inner, Node, NodeId};
use pando_types::{Attr, DirId, DirStat, FileKind, Name, Perm, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One of them.
#[derive(Clone, Debug)]
pub struct Adopted {
    /// The directory that it comes into.
    pub parent: NodeId,
    /// Under which name.
    pub name: Name,
    /// What `stat` shows of it; of a directory without what its content half says.
    pub attr: Attr,
    /// How often its content was changed.
    pub version: u64,
    /// What it is.
    pub what: Brought,
}

/// What comes with a name.
#[derive(Clone, Debug)]
pub enum Brought {
    /// A directory, with its counts and times, and whether its mtime was set by hand.
    Dir(DirId, DirStat, bool),
    /// A file.
    File(Content),
    /// A symlink.
    Symlink(Arc<[u8]>),
    /// A FIFO or a socket.
    Special,
}

impl Model {
    /// RULE (bulk insertion). What comes has an identity that nothing ever had, a name that is free, one
    /// link, its maker's owner and no set-id bits but a directory's set-gid.
    pub fn adopt(&mut self, uid: u32, new: &Adopted) -> Result<(), String> {
        let id = NodeId::new(new.attr.ino, new.attr.generation);
        let parent = self.nodes.get(&new.parent).and_then(|node| node.as_dir());
        let parent = parent.ok_or_else(|| format!("{:?} is not there", new.parent))?;
        let taken = parent.entries.contains_key(&new.name);
        let set_ids = new.attr.perm.has(Perm::SETUID)
            || new.attr.perm.has(Perm::SETGID) && new.attr.kind != FileKind::Directory;
        if taken || self.spent.contains(&id) || new.attr.uid != uid || set_ids || new.attr.rdev != 0 {
            return Err(format!("{new:?} cannot be"));
        }
        let a = &new.attr;
        let inner = match &new.what {
            Brought::Dir(dir, stat, set) => Inner::Dir(Directory {
                id: *dir,
                entries: BTreeMap::new(),
                subdirs: 0,
                ctime: stat.ctime,
                mtime_was_set: *set,
            }),
            Brought::File(content) => Inner::File {
                size: a.size,
                content: content.clone(),
            },
            Brought::Symlink(target) => Inner::Symlink(target.clone()),
            Brought::Special => Inner::Special {
                kind: a.kind,
                rdev: 0,
            },
        };
        let mut node = Node::new(a.perm, a.uid, a.gid, a.ctime, inner);
        (node.atime, node.mtime) = match &new.what {
            Brought::Dir(_, stat, _) => (stat.atime, stat.mtime),
            Brought::File(_) | Brought::Symlink(_) | Brought::Special => (a.atime, a.mtime),
        };
        node.version = new.version;
        self.bear(id, node);
        self.link(new.parent, &new.name, id);
        Ok(())
    }

    /// Something came into a directory that was there.
    pub fn grew(&mut self, dir: NodeId, now: Timestamp) {
        self.touch(dir, now);
    }
}
