//! Access control lists: whole, as Linux keeps them, beside the permission bits that repeat them.

use crate::Model;
use crate::access::Entered;
use crate::node::{Node, NodeId};
use crate::op::{DirRef, ModelAnswer};
use pando_types::{Acl, AclKind, Cred, Errno, FileKind, Mode, Name, Perm, Timestamp};

impl Model {
    /// RULE (setting a list, and removing one; Linux, `set_posix_acl`). Search permission; ENOENT if the name
    /// is gone, ESTALE if it stands for another object; EOPNOTSUPP for a symlink; a default list is EACCES
    /// for anything but a directory, and to remove what it cannot have is nothing; then owner or root, else
    /// EPERM. Sets ctime, unless bits and lists stay as they are.
    #[expect(clippy::too_many_arguments, reason = "the fields of one operation")]
    pub(crate) fn set_acl(
        &mut self,
        cred: &Cred,
        dir: &DirRef,
        name: &Name,
        id: NodeId,
        kind: AclKind,
        list: Option<&Acl>,
        now: Timestamp,
    ) -> Result<ModelAnswer, Errno> {
        if self.find(cred, dir, name)? != id {
            return Err(Errno::Stale);
        }
        let node = self.node_mut(id);
        if node.kind() == FileKind::Symlink {
            return Err(Errno::Unsupported);
        }
        if kind == AclKind::Default && !node.is_dir() {
            return match list {
                Some(_) => Err(Errno::Access),
                None => Ok(ModelAnswer::Entry(self.shown(id))),
            };
        }
        if !cred.is_root() && cred.uid != node.uid {
            return Err(Errno::Perm);
        }
        let before = (node.perm, node.list.clone(), node.default.clone());
        match (kind, list) {
            (AclKind::Access, Some(list)) => give(cred, node, list),
            (AclKind::Access, None) => node.list = None,
            (AclKind::Default, list) => node.default = list.cloned(),
        }
        if before != (node.perm, node.list.clone(), node.default.clone()) {
            node.ctime = now;
        }
        Ok(ModelAnswer::Entry(self.shown(id)))
    }
}

/// RULE (an access list and the bits). The bits become owner, mask (group, if there is none) and others. A
/// list that says no more than bits can is not kept. The set-gid bit is lost if the caller is neither root
/// nor in the object's group.
fn give(cred: &Cred, node: &mut Node, list: &Acl) {
    let middle = list.mask.unwrap_or(list.group);
    let mut bits = node.perm.bits() & 0o7000;
    bits |= u16::from(list.owner) * 64 + u16::from(middle) * 8 + u16::from(list.other);
    if !cred.is_root() && !cred.in_group(node.gid) {
        bits &= !Perm::SETGID;
    }
    node.perm = Perm::new(bits);
    let says_more = list.mask.is_some() || !list.users.is_empty() || !list.groups.is_empty();
    node.list = says_more.then(|| list.clone());
}

/// RULE (chmod and the list). Owner and others as the bits say; the group's bits are the mask, and the
/// group's own entry stays. REQUIRES: the node has its new bits.
pub(crate) fn follow_bits(node: &mut Node) {
    let bits = node.perm.bits();
    if let Some(list) = &mut node.list {
        list.owner = (bits / 64 % 8) as u8;
        list.mask = Some((bits / 8 % 8) as u8);
        list.other = (bits % 8) as u8;
    }
}

/// RULE (inherited lists; Linux, `posix_acl_create`). What is new in a directory with a default list, and is
/// no symlink, has that as its access list, with owner, mask (group, if there is none) and others cut to what
/// its creator asked for, and these as its bits; the umask counts only where there is no default list. A
/// directory has the default list, too. `perm`: what the creator asked for.
pub(crate) fn inherit(d: &Entered, mode: Mode, perm: Perm, mut node: Node) -> Node {
    let Some(default) = &d.default else {
        node.perm = Perm::new(perm.bits() & !(mode.umask.bits() & 0o777));
        return node;
    };
    let mut list = default.clone();
    let asked = |shift: u16| (perm.bits() >> shift & 7) as u8;
    list.owner &= asked(6);
    list.other &= asked(0);
    let middle = match &mut list.mask {
        Some(mask) => mask,
        None => &mut list.group,
    };
    *middle &= asked(3);
    let rwx = u16::from(list.owner) << 6 | u16::from(*middle) << 3 | u16::from(list.other);
    node.perm = Perm::new(perm.bits() & 0o7000 | rwx);
    node.list = list.mask.is_some().then_some(list);
    if node.is_dir() {
        node.default = Some(default.clone());
    }
    node
}
