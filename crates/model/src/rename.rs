//! Rename.

use crate::Model;
use crate::access::allow;
use crate::node::NodeId;
use crate::op::{DirRef, ModelAnswer, RenameMode};
use pando_types::{Access, Cred, Errno, Name, Timestamp};

impl Model {
    /// RULE (rename, H30). Checked in this order, which is Linux's:
    ///
    /// 1. ESTALE for the source directory, then for the destination's;
    /// 2. EACCES: search permission on the source directory, then on the destination's;
    /// 3. ENOENT if the source is missing; EEXIST if the destination exists and must not be replaced; ENOENT
    ///    if it is missing and must be exchanged;
    /// 4. EINVAL if the source is the destination directory or holds it; ENOTEMPTY (EINVAL for an exchange)
    ///    if the destination is the source directory or holds it, whatever the source is;
    /// 5. success, and no change at all, if both are names of one object;
    /// 6. EACCES, then EPERM: the source directory must be writable and not hold the entry by its sticky bit;
    /// 7. the same of the destination directory (and entry, if it exists);
    /// 8. unless exchanged: ENOTDIR for a directory over something else, EISDIR for something else over a
    ///    directory;
    /// 9. EACCES if the parent changes and the caller may not write the moved directory itself, whose `..`
    ///    changes; the same of the other one of an exchange;
    /// 10. ENOTEMPTY if the replaced directory is not empty.
    ///
    /// Then mtime and ctime of both directories and ctime of what moved are now.
    pub(crate) fn rename(
        &mut self,
        cred: &Cred,
        (src, src_name): (&DirRef, &Name),
        (dst, dst_name): (&DirRef, &Name),
        mode: RenameMode,
        now: Timestamp,
    ) -> Result<ModelAnswer, Errno> {
        let from = self.enter(src)?;
        let to = self.enter(dst)?;
        from.allow(cred, Access::EXEC)?;
        to.allow(cred, Access::EXEC)?;
        let moved = self.child(from.id, src_name).ok_or(Errno::NotFound)?;
        let other = self.child(to.id, dst_name);
        match (mode, other) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::Exists),
            (RenameMode::Exchange, None) => return Err(Errno::NotFound),
            _ => {}
        }
        let exchange = mode == RenameMode::Exchange;
        let new_parent = from.id != to.id;
        if new_parent {
            self.must_stay_a_tree((from.id, moved), (to.id, other), exchange)?;
        }
        if other == Some(moved) {
            return Ok(ModelAnswer::Renamed {
                moved: self.shown(moved),
                other: None,
            });
        }
        from.change(cred)?;
        from.unstick(cred, self.node(moved))?;
        to.change(cred)?;
        if let Some(other) = other {
            to.unstick(cred, self.node(other))?;
            match (self.node(moved).is_dir(), self.node(other).is_dir()) {
                (true, false) if !exchange => return Err(Errno::NotDir),
                (false, true) if !exchange => return Err(Errno::IsDir),
                _ => {}
            }
        }
        if new_parent {
            self.may_reparent(cred, moved)?;
            if let (true, Some(other)) = (exchange, other) {
                self.may_reparent(cred, other)?;
            }
        }
        if let (false, Some(other)) = (exchange, other)
            && self.node(other).as_dir().is_some_and(|d| !d.entries.is_empty())
        {
            return Err(Errno::NotEmpty);
        }
        Ok(self.carry_out(
            (from.id, src_name, moved),
            (to.id, dst_name, other),
            exchange,
            now,
        ))
    }

    fn must_stay_a_tree(
        &self,
        (src, moved): (NodeId, NodeId),
        (dst, other): (NodeId, Option<NodeId>),
        exchange: bool,
    ) -> Result<(), Errno> {
        if self.node(moved).is_dir() && self.holds(moved, dst) {
            return Err(Errno::Invalid);
        }
        match other {
            Some(other) if self.node(other).is_dir() && self.holds(other, src) => {
                Err(if exchange { Errno::Invalid } else { Errno::NotEmpty })
            }
            _ => Ok(()),
        }
    }

    fn may_reparent(&self, cred: &Cred, id: NodeId) -> Result<(), Errno> {
        let node = self.node(id);
        if node.is_dir() {
            allow(cred, node, Access::WRITE)
        } else {
            Ok(())
        }
    }

    fn carry_out(
        &mut self,
        (src, src_name, moved): (NodeId, &Name, NodeId),
        (dst, dst_name, other): (NodeId, &Name, Option<NodeId>),
        exchange: bool,
        now: Timestamp,
    ) -> ModelAnswer {
        self.unlink_name(src, src_name, moved);
        let mut other_view = None;
        if let Some(other) = other {
            other_view = Some(self.shown(other));
            self.unlink_name(dst, dst_name, other);
            if exchange {
                self.link(src, src_name, other);
                self.node_mut(other).ctime = now;
                other_view = Some(self.shown(other));
            } else {
                self.lost_a_name(other, now);
                other_view = self.left(other).or(other_view);
            }
        }
        self.link(dst, dst_name, moved);
        self.node_mut(moved).ctime = now;
        self.touch(src, now);
        self.touch(dst, now);
        ModelAnswer::Renamed {
            moved: self.shown(moved),
            other: other_view,
        }
    }
}
