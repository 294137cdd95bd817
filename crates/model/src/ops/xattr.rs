//! Extended attributes.

use crate::Model;
use crate::access::allow;
use crate::node::{Node, NodeId};
use crate::op::{DirRef, ModelAnswer};
use pando_types::{Access, Cred, Errno, FileKind, Name, Perm, Timestamp, XattrMode, XattrName};

/// Longest value.
const VALUE_MAX: usize = 65_536;
/// All names and values of an object.
const ALL_MAX: usize = 131_072;

impl Model {
    /// RULE (getxattr). As for looking at an attribute, see `may`; ENODATA if there is none.
    pub(crate) fn get_xattr(
        &self,
        cred: &Cred,
        dir: &DirRef,
        name: &Name,
        id: NodeId,
        attr: &XattrName,
    ) -> Result<ModelAnswer, Errno> {
        let node = self.meant(cred, dir, name, id)?;
        may(cred, node, attr, false)?;
        let value = node.xattrs.get(attr).ok_or(Errno::NoData)?;
        Ok(ModelAnswer::Value(value.clone()))
    }

    /// RULE (listxattr). Needs no permission on the object; `trusted.` is shown to root alone.
    pub(crate) fn list_xattrs(
        &self,
        cred: &Cred,
        dir: &DirRef,
        name: &Name,
        id: NodeId,
    ) -> Result<ModelAnswer, Errno> {
        let node = self.meant(cred, dir, name, id)?;
        let shown = |n: &&XattrName| cred.is_root() || !n.as_bytes().starts_with(b"trusted.");
        Ok(ModelAnswer::Names(
            node.xattrs.keys().filter(shown).cloned().collect(),
        ))
    }

    /// RULE (setxattr, removexattr). E2BIG above 65,536 bytes before anything is looked at; permissions, see
    /// `may`; EEXIST or ENODATA as asked (removing needs one, too); ENOSPC if all names and values come to
    /// more than 131,072 bytes. Sets ctime, unless the value stays (as ext4 has it).
    #[expect(clippy::too_many_arguments, reason = "the fields of one operation")]
    pub(crate) fn set_xattr(
        &mut self,
        cred: &Cred,
        dir: &DirRef,
        name: &Name,
        id: NodeId,
        attr: &XattrName,
        value: Option<&[u8]>,
        mode: XattrMode,
        now: Timestamp,
    ) -> Result<ModelAnswer, Errno> {
        if value.is_some_and(|v| v.len() > VALUE_MAX) {
            return Err(Errno::ValueTooBig);
        }
        let node = self.meant(cred, dir, name, id)?;
        may(cred, node, attr, true)?;
        match (mode, node.xattrs.contains_key(attr)) {
            (XattrMode::Create, true) => return Err(Errno::Exists),
            (XattrMode::Replace, false) => return Err(Errno::NoData),
            _ => {}
        }
        let mut all = node.xattrs.clone();
        match value {
            Some(value) => all.insert(attr.clone(), value.to_vec()),
            None => all.remove(attr),
        };
        let bytes: usize = all.iter().map(|(n, v)| n.as_bytes().len() + v.len()).sum();
        if value.is_some() && bytes > ALL_MAX {
            return Err(Errno::NoSpace);
        }
        let node = self.node_mut(id);
        if node.xattrs != all {
            node.xattrs = all;
            node.ctime = now;
        }
        Ok(ModelAnswer::Entry(self.shown(id)))
    }

    /// RULE (objects meant). Search permission; ENOENT if the name is gone, ESTALE if it stands for another
    /// object.
    fn meant(&self, cred: &Cred, dir: &DirRef, name: &Name, id: NodeId) -> Result<&Node, Errno> {
        if self.find(cred, dir, name)? == id {
            Ok(self.node(id))
        } else {
            Err(Errno::Stale)
        }
    }
}

/// RULE (who may see and change an attribute; Linux, `xattr_permission`). `trusted.` is root's: for others it
/// is not there (ENODATA), and not to be changed (EPERM). `security.` may be seen by all and changed by root
/// (EPERM). `user.` is for files and directories (else as for `trusted.`); the owner alone changes that of a
/// sticky directory (EPERM); then the object's permissions: EACCES.
fn may(cred: &Cred, node: &Node, attr: &XattrName, write: bool) -> Result<(), Errno> {
    let no = if write { Errno::Perm } else { Errno::NoData };
    let name = attr.as_bytes();
    if name.starts_with(b"trusted.") {
        return if cred.is_root() { Ok(()) } else { Err(no) };
    }
    if name.starts_with(b"security.") {
        return if !write || cred.is_root() { Ok(()) } else { Err(no) };
    }
    if node.kind() != FileKind::Regular && node.kind() != FileKind::Directory {
        return Err(no);
    }
    if write && node.is_dir() && node.perm.has(Perm::STICKY) && !(cred.is_root() || cred.uid == node.uid) {
        return Err(Errno::Perm);
    }
    allow(cred, node, if write { Access::WRITE } else { Access::READ })
}

/// RULE (capabilities). New content, a new size, a new owner or group take `security.capability` from
/// anything but a directory, whoever makes them.
pub(crate) fn lose_capability(node: &mut Node) {
    if !node.is_dir() {
        node.xattrs
            .retain(|name, _| name.as_bytes() != b"security.capability");
    }
}
