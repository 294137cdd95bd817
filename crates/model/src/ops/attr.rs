//! Changing attributes.

use crate::Model;
use crate::access::{allow, without_set_ids};
use crate::node::{Inner, Node, NodeId};
use crate::op::{DirRef, ModelAnswer, SIZE_MAX};
use crate::ops::acl::follow_bits;
use crate::ops::xattr::lose_capability;
use pando_types::{Access, AttrChange, Cred, Errno, FileKind, Name, Perm, TimeChange, Timestamp};

impl Model {
    /// RULE (setattr). Search permission unless through a handle; ENOENT if the name is gone (ESTALE through
    /// a handle, which tells no names), ESTALE if it stands for another object; then size, owner, group, bits
    /// and times are checked in this order, and all are changed or none. A change of nothing changes nothing,
    /// not even ctime.
    #[expect(clippy::too_many_arguments, reason = "the fields of one operation")]
    pub(crate) fn set_attr(
        &mut self,
        cred: &Cred,
        dir: &DirRef,
        name: &Name,
        id: NodeId,
        change: &AttrChange,
        through_handle: bool,
        now: Timestamp,
    ) -> Result<ModelAnswer, Errno> {
        let d = if through_handle {
            self.enter(dir)?
        } else {
            self.search(cred, dir)?
        };
        let missing = if through_handle {
            Errno::Stale
        } else {
            Errno::NotFound
        };
        let found = self.child(d.id, name).ok_or(missing)?;
        if found != id {
            return Err(Errno::Stale);
        }
        if *change != AttrChange::default() {
            let node = self.node_mut(id);
            may_truncate(cred, node, change, through_handle)?;
            may_chmod_kind(node, change)?;
            may_chown(cred, node, change)?;
            may_chmod(cred, node, change)?;
            may_set_times(cred, node, change)?;
            carry_out(cred, node, change, now);
        }
        Ok(ModelAnswer::Entry(self.shown(id)))
    }
}

/// RULE (truncate). EISDIR for a directory, EINVAL for anything else that is not a regular file; write
/// permission on the file unless through a handle; EFBIG above [`SIZE_MAX`].
fn may_truncate(cred: &Cred, node: &Node, change: &AttrChange, through_handle: bool) -> Result<(), Errno> {
    let Some(size) = change.size else { return Ok(()) };
    match node.kind() {
        FileKind::Regular => {}
        FileKind::Directory => return Err(Errno::IsDir),
        _ => return Err(Errno::Invalid),
    }
    if !through_handle {
        allow(cred, node, Access::WRITE)?;
    }
    if size > SIZE_MAX {
        Err(Errno::TooBig)
    } else {
        Ok(())
    }
}

/// RULE (bits of symlinks). They cannot be changed: EOPNOTSUPP, even for the owner (Linux since 6.6).
fn may_chmod_kind(node: &Node, change: &AttrChange) -> Result<(), Errno> {
    let refused = change.perm.is_some() && node.kind() == FileKind::Symlink;
    if refused { Err(Errno::Unsupported) } else { Ok(()) }
}

/// RULE (chown). Only root gives an object away; its owner may name the owner it has. The owner may give it
/// to a group they are in, or name the group it has; root to any. Else EPERM.
fn may_chown(cred: &Cred, node: &Node, change: &AttrChange) -> Result<(), Errno> {
    let root = cred.is_root();
    let owner = cred.uid == node.uid;
    let uid_ok = change.uid.is_none_or(|uid| root || owner && uid == node.uid);
    let gid_ok = change
        .gid
        .is_none_or(|gid| root || owner && (gid == node.gid || cred.in_group(gid)));
    if uid_ok && gid_ok {
        Ok(())
    } else {
        Err(Errno::Perm)
    }
}

/// RULE (chmod). Owner or root, else EPERM.
fn may_chmod(cred: &Cred, node: &Node, change: &AttrChange) -> Result<(), Errno> {
    let ok = change.perm.is_none() || cred.is_root() || cred.uid == node.uid;
    if ok { Ok(()) } else { Err(Errno::Perm) }
}

/// RULE (utimens). Both times to now: owner, root, or whoever may write it, else EACCES. Anything else (a
/// given time, or one time only): owner or root, else EPERM.
fn may_set_times(cred: &Cred, node: &Node, change: &AttrChange) -> Result<(), Errno> {
    if cred.is_root() || cred.uid == node.uid {
        return Ok(());
    }
    match (change.atime, change.mtime) {
        (None, None) => Ok(()),
        (Some(TimeChange::Now), Some(TimeChange::Now)) => allow(cred, node, Access::WRITE),
        _ => Err(Errno::Perm),
    }
}

fn carry_out(cred: &Cred, node: &mut Node, change: &AttrChange, now: Timestamp) {
    new_perm(cred, node, change);
    node.uid = change.uid.unwrap_or(node.uid);
    node.gid = change.gid.unwrap_or(node.gid);
    if let (Some(new), Inner::File { size, content }) = (change.size, &mut node.inner) {
        // Also if the size stays: POSIX, and what Linux does through a handle.
        *size = new;
        node.version += 1;
        *content = content.clone().cut(new);
        node.mtime = now;
    }
    let at = |t: TimeChange| match t {
        TimeChange::Now => now,
        TimeChange::To(t) => t,
    };
    node.atime = change.atime.map_or(node.atime, at);
    node.mtime = change.mtime.map_or(node.mtime, at);
    if change.size.is_some() || change.uid.is_some() || change.gid.is_some() {
        lose_capability(node);
    }
    new_ctime(node, change, now);
}

/// RULE (bits after a change). A new owner or group takes the set-id bits of anything but a directory, a new
/// size takes them when the caller is not root. Bits given in the same change are put on after that; but the
/// set-gid bit is lost, of directories too, when the caller is neither root nor in the object's (new) group.
fn new_perm(cred: &Cred, node: &mut Node, change: &AttrChange) {
    let chown = change.uid.is_some() || change.gid.is_some();
    let truncate = change.size.is_some();
    if chown && !node.is_dir() || truncate && !cred.is_root() {
        node.perm = without_set_ids(cred, node.perm, node.gid);
    }
    if let Some(perm) = change.perm {
        let member = cred.is_root() || cred.in_group(change.gid.unwrap_or(node.gid));
        node.perm = if member {
            perm
        } else {
            Perm::new(perm.bits() & !Perm::SETGID)
        };
        follow_bits(node);
    }
}

/// RULE (ctime after a change). Every change sets it to now. A directory has two: bits, owner and group set
/// that of the access half, times that of the content half (which does not go back, see `touch`).
fn new_ctime(node: &mut Node, change: &AttrChange, now: Timestamp) {
    let access = change.perm.is_some() || change.uid.is_some() || change.gid.is_some();
    let times = change.atime.is_some() || change.mtime.is_some();
    match node.as_dir_mut() {
        Some(d) => {
            if times {
                d.ctime = d.ctime.max(now);
            }
            d.mtime_was_set |= change.mtime.is_some();
            if access {
                node.ctime = now;
            }
        }
        None => node.ctime = now,
    }
}
