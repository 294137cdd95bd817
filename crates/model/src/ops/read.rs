//! Operations that change nothing. None of them sets atime: that is relatime's business, not the tree's.

use crate::Model;
use crate::access::allow;
use crate::listing::Listed;
use crate::node::{Inner, NodeId};
use crate::op::{DirRef, ModelAnswer};
use pando_types::{Access, Cred, Errno, Name};

impl Model {
    /// Search permission, then existence: what every operation on an existing name begins with.
    pub(crate) fn find(&self, cred: &Cred, dir: &DirRef, name: &Name) -> Result<NodeId, Errno> {
        let d = self.search(cred, dir)?;
        self.child(d.id, name).ok_or(Errno::NotFound)
    }

    /// RULE (lookup). Needs search permission.
    pub(crate) fn lookup(&self, cred: &Cred, dir: &DirRef, name: &Name) -> Result<ModelAnswer, Errno> {
        let id = self.find(cred, dir, name)?;
        Ok(ModelAnswer::Entry(self.shown(id)))
    }

    /// RULE (stat of a directory's content half). Needs nothing but that the directory is alive: whoever asks
    /// found it by a lookup in its parent.
    pub(crate) fn stat_dir(&self, dir: &DirRef) -> Result<ModelAnswer, Errno> {
        let d = self.enter(dir)?;
        self.dir_stat(d.id).map(ModelAnswer::DirStat).ok_or(Errno::Stale)
    }

    /// RULE (readlink). EINVAL for anything but a symlink. A symlink's own bits never matter.
    pub(crate) fn read_link(&self, cred: &Cred, dir: &DirRef, name: &Name) -> Result<ModelAnswer, Errno> {
        let id = self.find(cred, dir, name)?;
        match &self.node(id).inner {
            Inner::Symlink(target) => Ok(ModelAnswer::Target(target.clone())),
            _ => Err(Errno::Invalid),
        }
    }

    /// RULE (open). A symlink is ELOOP: following is the caller's work. A directory cannot be opened for
    /// writing: EISDIR; a special file is opened by the kernel alone: EOPNOTSUPP. Then the object's own
    /// permissions: EACCES.
    pub(crate) fn open(
        &self,
        cred: &Cred,
        dir: &DirRef,
        name: &Name,
        want: Access,
    ) -> Result<ModelAnswer, Errno> {
        let id = self.find(cred, dir, name)?;
        self.open_found(cred, id, want)
    }

    pub(crate) fn open_found(&self, cred: &Cred, id: NodeId, want: Access) -> Result<ModelAnswer, Errno> {
        let node = self.node(id);
        match &node.inner {
            Inner::Symlink(_) => return Err(Errno::Loop),
            // The kernel opens these, not the filesystem.
            Inner::Special { .. } => return Err(Errno::Unsupported),
            Inner::Dir(_) if want.0 & Access::WRITE.0 != 0 => return Err(Errno::IsDir),
            _ => {}
        }
        allow(cred, node, want)?;
        Ok(ModelAnswer::Opened {
            entry: self.shown(id),
            created: false,
        })
    }

    /// RULE (readdir). Needs read permission, and no search permission.
    pub(crate) fn read_dir(&self, cred: &Cred, dir: &DirRef) -> Result<ModelAnswer, Errno> {
        let d = self.enter(dir)?;
        d.allow(cred, Access::READ)?;
        Ok(ModelAnswer::Entries(self.list(d.id)))
    }

    /// The entries of a directory, by name, without any check. Nothing if it is not alive.
    pub fn list(&self, dir: NodeId) -> Vec<Listed> {
        let Some(d) = self.nodes.get(&dir).and_then(|n| n.as_dir()) else {
            return Vec::new();
        };
        d.entries
            .iter()
            .map(|(name, id)| Listed {
                name: name.clone(),
                ino: id.ino,
                kind: self.node(*id).kind(),
            })
            .collect()
    }
}
