//! The shape of the tree: naming and un-naming objects, identities, times of directories.

use crate::Model;
use crate::node::{Directory, Inner, Node, NodeId};
use crate::op::{Body, DirIdentity, Fresh, IdentityFault, View};
use pando_types::{DirId, Generation, Ino, Name, Timestamp};

impl Model {
    /// RULE (identities). A new object's inode number belongs to no living object, and it and its generation
    /// together never belonged to any; the same for a directory's ID.
    pub(crate) fn admit(&self, fresh: Option<Fresh>, is_dir: bool) -> Result<(NodeId, DirId), IdentityFault> {
        let fresh = fresh.ok_or(IdentityFault::Missing)?;
        let id = NodeId::new(fresh.ino, fresh.generation);
        if self.is_live(fresh.ino) {
            return Err(IdentityFault::InoLive(fresh.ino));
        }
        if self.spent.contains(&id) {
            return Err(IdentityFault::Reused(id));
        }
        if !is_dir {
            return Ok((id, DirId::ABOVE_ROOT));
        }
        let dir_id = fresh.dir_id.ok_or(IdentityFault::NoDirId)?;
        if self.live_dirs.contains_key(&dir_id) {
            return Err(IdentityFault::DirIdLive(dir_id));
        }
        if self.spent_dirs.contains(&(dir_id, fresh.generation)) {
            return Err(IdentityFault::DirReused(dir_id, fresh.generation));
        }
        Ok((id, dir_id))
    }

    fn is_live(&self, ino: Ino) -> bool {
        let all = NodeId::new(ino, Generation(0))..=NodeId::new(ino, Generation(u64::MAX));
        self.nodes.range(all).next().is_some()
    }

    /// Takes an object whose identity was admitted. It has no name yet.
    pub(crate) fn bear(&mut self, id: NodeId, node: Node) {
        if let Inner::Dir(d) = &node.inner {
            self.live_dirs.insert(d.id, id);
            self.spent_dirs.insert((d.id, id.generation));
        }
        self.spent.insert(id);
        self.nodes.insert(id, node);
    }

    /// RULE (names). An object lives as long as it has a name, or is open; one that loses a name and stays
    /// has changed: its ctime is now.
    pub(crate) fn lost_a_name(&mut self, id: NodeId, now: Timestamp) {
        if !self.node(id).names.is_empty() || self.open.contains(&id) {
            self.node_mut(id).ctime = now;
            return;
        }
        if let Some(Node {
            inner: Inner::Dir(d), ..
        }) = self.nodes.remove(&id)
        {
            self.live_dirs.remove(&d.id);
        }
    }

    /// What is left without a name, because it is open.
    pub(crate) fn left(&self, id: NodeId) -> Option<View> {
        let nameless = self.nodes.get(&id).is_some_and(|n| n.names.is_empty());
        nameless.then(|| self.shown(id))
    }

    /// Gives an object its name.
    pub(crate) fn link(&mut self, dir: NodeId, name: &Name, id: NodeId) {
        let child = self.node_mut(id);
        child.names.insert((dir, name.clone()));
        let kind = child.kind();
        let is_dir = child.is_dir();
        let parent = self.dir_mut(dir);
        let before = parent.entries.insert(name.clone(), id);
        assert!(before.is_none(), "{name} in {dir:?} was taken");
        parent.subdirs += u64::from(is_dir);
        self.watches.appeared(dir, name, id.ino, kind);
    }

    /// Takes the name from an object.
    pub(crate) fn unlink_name(&mut self, dir: NodeId, name: &Name, id: NodeId) {
        let is_dir = self.node(id).is_dir();
        self.node_mut(id).names.remove(&(dir, name.clone()));
        let parent = self.dir_mut(dir);
        let before = parent.entries.remove(name);
        assert!(before == Some(id), "{name} in {dir:?} was not {id:?}");
        parent.subdirs -= u64::from(is_dir);
        self.watches.vanished(dir, name, id.ino);
    }

    /// RULE (times of directories). A change of a directory's entries sets the mtime and ctime of its content
    /// half. Neither goes back when a server's clock does (the latest change wins, so that the order in which
    /// servers report them is nothing to anyone), except that an mtime set by utimens gives way to the next
    /// change, whatever it was.
    pub(crate) fn touch(&mut self, dir: NodeId, now: Timestamp) {
        let node = self.node_mut(dir);
        let mtime = node.mtime;
        let Some(d) = node.as_dir_mut() else { return };
        d.ctime = d.ctime.max(now);
        let newer = if d.mtime_was_set { now } else { mtime.max(now) };
        d.mtime_was_set = false;
        node.mtime = newer;
    }

    /// Whether `above` is `below` or one of the directories it is in.
    pub(crate) fn holds(&self, above: NodeId, mut below: NodeId) -> bool {
        loop {
            if above == below {
                return true;
            }
            if below == NodeId::ABOVE_ROOT {
                return false;
            }
            below = self.node(below).parent();
        }
    }

    /// A living object. Whoever asks has found it by a name or checked it.
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[&id]
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes
            .get_mut(&id)
            .unwrap_or_else(|| panic!("{id:?} is not alive"))
    }

    fn dir_mut(&mut self, id: NodeId) -> &mut Directory {
        self.node_mut(id)
            .as_dir_mut()
            .unwrap_or_else(|| panic!("{id:?} is no directory"))
    }

    pub(crate) fn view_of(&self, id: NodeId, node: &Node) -> View {
        let mut attr = node.attr(id);
        let body = match &node.inner {
            Inner::Dir(d) => {
                attr.nlink = 2;
                attr.size = 0;
                attr.atime = Timestamp::default();
                attr.mtime = Timestamp::default();
                attr.ctime = node.ctime;
                Body::Dir(self.identity_of(d.id, node))
            }
            Inner::File { content, .. } => Body::File(content.clone()),
            Inner::Symlink(target) => Body::Symlink(target.clone()),
            Inner::Special { .. } => Body::Special,
        };
        let xattrs = !node.xattrs.is_empty();
        let acls = node.acls();
        View {
            attr,
            body,
            xattrs,
            acls,
        }
    }

    pub(crate) fn identity_of(&self, id: DirId, node: &Node) -> DirIdentity {
        let parent_id = self
            .nodes
            .get(&node.parent())
            .and_then(Node::as_dir)
            .map_or(id, |d| d.id);
        DirIdentity {
            id,
            parent: node.parent(),
            parent_id,
        }
    }

    pub(crate) fn shown(&self, id: NodeId) -> View {
        self.view_of(id, self.node(id))
    }
}
