//! Removing names.

use crate::Model;
use crate::node::NodeId;
use crate::op::{DirRef, ModelAnswer};
use pando_types::{Cred, Errno, Name, Timestamp};

impl Model {
    /// RULE (unlink). In this order: search, existence, permission to change entries, sticky, and EISDIR for
    /// a directory.
    pub(crate) fn unlink(
        &mut self,
        cred: &Cred,
        dir: &DirRef,
        name: &Name,
        now: Timestamp,
    ) -> Result<ModelAnswer, Errno> {
        let (d, id) = self.victim(cred, dir, name)?;
        if self.node(id).is_dir() {
            return Err(Errno::IsDir);
        }
        Ok(self.remove(d, name, id, now))
    }

    /// RULE (rmdir). As unlink, but ENOTDIR for anything but a directory, and at last ENOTEMPTY.
    pub(crate) fn rmdir(
        &mut self,
        cred: &Cred,
        dir: &DirRef,
        name: &Name,
        now: Timestamp,
    ) -> Result<ModelAnswer, Errno> {
        let (d, id) = self.victim(cred, dir, name)?;
        let target = self.node(id).as_dir().ok_or(Errno::NotDir)?;
        if !target.entries.is_empty() {
            return Err(Errno::NotEmpty);
        }
        Ok(self.remove(d, name, id, now))
    }

    fn victim(&self, cred: &Cred, dir: &DirRef, name: &Name) -> Result<(NodeId, NodeId), Errno> {
        let d = self.search(cred, dir)?;
        let id = self.child(d.id, name).ok_or(Errno::NotFound)?;
        d.change(cred)?;
        d.unstick(cred, self.node(id))?;
        Ok((d.id, id))
    }

    fn remove(&mut self, dir: NodeId, name: &Name, id: NodeId, now: Timestamp) -> ModelAnswer {
        let view = self.shown(id);
        self.unlink_name(dir, name, id);
        self.lost_a_name(id, now);
        self.touch(dir, now);
        ModelAnswer::Removed(self.left(id).unwrap_or(view))
    }
}
