//! The reference tree: POSIX rules stated once more, slowly and obviously, in memory, at one instant.
//!
//! It is the oracle that judges the distributed implementation, so it shares nothing with it but the
//! vocabulary of `pando-types`. Each rule stands in one place, as the documentation of the function that
//! carries it out:
//!
//! - entering a directory, changing its entries, the sticky bit, inherited groups, lost set-id bits:
//!   `access`;
//! - reading: `ops::read`; making: `ops::create`; removing: `ops::remove`; attributes: `ops::attr`; extended
//!   attributes: `ops::xattr`; access control lists: `access` and `ops::acl`; content: `ops::publish`;
//!   rename: `rename`;
//! - times and counts of directories: `tree`; listings that run over time: `listing`.
//!
//! Where POSIX leaves the order of checks open, Linux decides: programs were written against it.
//! `tests/it/linux` holds the model against the kernel's own filesystem.
//!
//! What an implementation may choose (identities of new objects) is handed in and judged, never invented
//! here.

mod access;
mod adopt;
mod check;
mod content;
mod listing;
mod node;
mod op;
mod ops;
mod rename;
mod tree;

pub use adopt::{Adopted, Brought};
pub use check::Walked;
pub use content::Content;
pub use listing::{Listed, ListingWatch};
pub use node::NodeId;
pub use op::{
    Body, DirIdentity, DirRef, Fresh, IdentityFault, ModelAnswer, ModelOp, RenameMode, SIZE_MAX, View,
};

use listing::Watches;
use node::Node;
use pando_types::{Acls, Attr, Cred, DirId, DirStat, Errno, Generation, Name, Perm, Timestamp, XattrName};
use std::collections::{BTreeMap, BTreeSet};

/// The tree.
#[derive(Clone, Debug)]
pub struct Model {
    nodes: BTreeMap<NodeId, Node>,
    /// Every identity an object ever had.
    spent: BTreeSet<NodeId>,
    /// Every identity a directory ever had.
    spent_dirs: BTreeSet<(DirId, Generation)>,
    live_dirs: BTreeMap<DirId, NodeId>,
    /// Files that stay without a name, because somebody has them open.
    open: BTreeSet<NodeId>,
    /// Those of them that never had a name and may get one.
    linkable: BTreeSet<NodeId>,
    watches: Watches,
    /// Access control lists of directories as the request that is being carried out says.
    said: Vec<(NodeId, Acls)>,
}

impl Model {
    /// A filesystem just formatted: the place above the root, and in it the root, empty.
    pub fn new(perm: Perm, uid: u32, gid: u32, now: Timestamp) -> Model {
        let mut model = Model {
            nodes: BTreeMap::new(),
            spent: BTreeSet::new(),
            spent_dirs: BTreeSet::new(),
            live_dirs: BTreeMap::new(),
            open: BTreeSet::new(),
            linkable: BTreeSet::new(),
            watches: Watches::default(),
            said: Vec::new(),
        };
        let above = Node::dir(DirId::ABOVE_ROOT, Perm::new(0o755), 0, 0, Timestamp::default());
        model.bear(NodeId::ABOVE_ROOT, above);
        model.bear(NodeId::ROOT, Node::dir(DirId::ROOT, perm, uid, gid, now));
        model.link(NodeId::ABOVE_ROOT, &Name::root(), NodeId::ROOT);
        model
    }

    /// The same as [`Model::apply`], by what the request says of directories' access control lists.
    pub fn apply_by(
        &mut self,
        said: Vec<(NodeId, Acls)>,
        cred: &Cred,
        op: &ModelOp,
        now: Timestamp,
        fresh: Option<Fresh>,
    ) -> Result<ModelAnswer, Errno> {
        self.said = said;
        let answer = self.apply(cred, op, now, fresh);
        self.said.clear();
        answer
    }

    /// Carries out one operation at the instant `now`. A failed operation changes nothing.
    ///
    /// `fresh` is what the implementation says it chose for the object this operation created; it is looked
    /// at only if one is created. If it may not be used, or is missing, the answer is
    /// [`ModelAnswer::Identity`], which equals no answer of an implementation, and nothing changes.
    pub fn apply(
        &mut self,
        cred: &Cred,
        op: &ModelOp,
        now: Timestamp,
        fresh: Option<Fresh>,
    ) -> Result<ModelAnswer, Errno> {
        match op {
            ModelOp::Lookup { dir, name } => self.lookup(cred, dir, name),
            ModelOp::DirStat { dir } => self.stat_dir(dir),
            ModelOp::ReadLink { dir, name } => self.read_link(cred, dir, name),
            ModelOp::Open { dir, name, want } => self.open(cred, dir, name, *want),
            ModelOp::ReadDir { dir } => self.read_dir(cred, dir),
            ModelOp::Create {
                dir,
                name,
                mode,
                exclusive,
                want,
            } => self.create(cred, dir, name, *mode, *exclusive, *want, now, fresh),
            ModelOp::Tmpfile { dir, mode, linkable } => self.unnamed(cred, dir, *mode, *linkable, now, fresh),
            ModelOp::Symlink { dir, name, target } => self.symlink(cred, dir, name, target, now, fresh),
            ModelOp::Mknod {
                dir,
                name,
                kind,
                mode,
                rdev,
            } => self.mknod(cred, dir, name, *kind, *mode, *rdev, now, fresh),
            ModelOp::GetXattr { dir, name, id, attr } => self.get_xattr(cred, dir, name, *id, attr),
            ModelOp::ListXattr { dir, name, id } => self.list_xattrs(cred, dir, name, *id),
            ModelOp::SetXattr {
                dir,
                name,
                id,
                attr,
                value,
                mode,
            } => self.set_xattr(cred, dir, name, *id, attr, value.as_deref(), *mode, now),
            ModelOp::Mkdir { dir, name, mode } => self.mkdir(cred, dir, name, *mode, now, fresh),
            ModelOp::SetAcl {
                dir,
                name,
                id,
                kind,
                list,
            } => self.set_acl(cred, dir, name, *id, *kind, list.as_ref(), now),
            ModelOp::Rmdir { dir, name } => self.rmdir(cred, dir, name, now),
            ModelOp::Unlink { dir, name } => self.unlink(cred, dir, name, now),
            ModelOp::SetAttr {
                dir,
                name,
                id,
                change,
                through_handle,
            } => self.set_attr(cred, dir, name, *id, change, *through_handle, now),
            ModelOp::Publish {
                dir,
                name,
                id,
                content,
                size,
                mtime,
                base,
            } => self.publish(cred, dir, name, *id, content, *size, (*mtime, *base), now),
            ModelOp::Accessed { dir, name, id, ago } => self.accessed(dir, name, *id, *ago, now),
            ModelOp::Rename {
                src,
                src_name,
                dst,
                dst_name,
                mode,
            } => self.rename(cred, (src, src_name), (dst, dst_name), *mode, now),
            ModelOp::Link {
                src,
                src_name,
                id,
                dst,
                dst_name,
            } => self.hard_link(cred, (src, src_name), *id, (dst, dst_name), now),
        }
    }

    /// How often the content of a file was changed.
    pub fn version(&self, id: NodeId) -> Option<u64> {
        self.nodes.get(&id).map(|n| n.version)
    }

    /// Somebody has this file open: without a name it stays, until [`Model::closed`].
    pub fn stays_open(&mut self, id: NodeId) {
        self.open.insert(id);
    }

    /// Nobody has this file open: without a name it goes.
    pub fn closed(&mut self, id: NodeId) {
        self.open.remove(&id);
        self.linkable.remove(&id);
        if self
            .nodes
            .get(&id)
            .is_some_and(|n| n.names.is_empty() && !n.is_dir())
        {
            self.nodes.remove(&id);
        }
    }

    /// Objects alive, the root included.
    pub fn len(&self) -> usize {
        // Without the place above the root.
        self.nodes.len() - 1
    }

    /// Whether nothing was made yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// Whether this object is alive.
    pub fn contains(&self, id: NodeId) -> bool {
        self.nodes.contains_key(&id)
    }

    /// What a name stands for, without any check of permissions. At a file's home there is that file.
    pub fn child(&self, dir: NodeId, name: &Name) -> Option<NodeId> {
        let node = self.nodes.get(&dir)?;
        match node.as_dir() {
            Some(d) => d.entries.get(name).copied(),
            None => (*name == Name::home(dir.ino, dir.generation)).then_some(dir),
        }
    }

    /// All names of an object, each with the directory it is in.
    pub fn names(&self, id: NodeId) -> impl Iterator<Item = (NodeId, &Name)> {
        let node = self.nodes.get(&id).into_iter();
        node.flat_map(|n| n.names.iter().map(|(dir, name)| (*dir, name)))
    }

    /// The directory an object is in, and its name there: of a file the first of them.
    pub fn place(&self, id: NodeId) -> Option<(NodeId, &Name)> {
        let node = self.nodes.get(&id)?;
        if id == NodeId::ABOVE_ROOT {
            None
        } else {
            node.names.first().map(|(dir, name)| (*dir, name))
        }
    }

    /// The living directory with this ID.
    pub fn dir_by_id(&self, id: DirId) -> Option<NodeId> {
        self.live_dirs.get(&id).copied()
    }

    /// An object as an answer shows it: of a directory the access half.
    pub fn view(&self, id: NodeId) -> Option<View> {
        self.nodes.get(&id).map(|n| self.view_of(id, n))
    }

    /// The whole attributes of an object, as `stat` shows them: of a directory both halves.
    pub fn attr(&self, id: NodeId) -> Option<Attr> {
        self.nodes.get(&id).map(|n| n.attr(id))
    }

    /// The extended attributes of an object, by name.
    pub fn xattrs(&self, id: NodeId) -> impl Iterator<Item = (&XattrName, &[u8])> {
        let node = self.nodes.get(&id).into_iter();
        node.flat_map(|n| n.xattrs.iter().map(|(name, v)| (name, v.as_slice())))
    }

    /// The content half of a directory.
    pub fn dir_stat(&self, id: NodeId) -> Option<DirStat> {
        self.nodes.get(&id)?.dir_stat()
    }
}
