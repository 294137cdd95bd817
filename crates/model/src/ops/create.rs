//! Making files, symlinks and directories.

use crate::Model;
use crate::access::Entered;
use crate::content::Content;
use crate::node::{Inner, Node, NodeId};
use crate::op::{DirRef, Fresh, ModelAnswer};
use crate::ops::acl::inherit;
use pando_types::{Access, Cred, Errno, FileKind, Mode, Name, Perm, SYMLINK_MAX, Timestamp};

/// An empty file of the caller's.
fn new_file(cred: &Cred, d: &Entered, mode: Mode, now: Timestamp) -> Node {
    let inner = Inner::File {
        size: 0,
        content: Content::Sparse,
    };
    let perm = d.perm_of_new(cred, mode.perm);
    let node = Node::new(perm, cred.uid, d.group_of_new(cred), now, inner);
    inherit(d, mode, perm, node)
}

impl Model {
    /// RULE (create). If the name exists: EEXIST for an exclusive create; a directory is EISDIR whatever is
    /// wanted; else as for open. A new file is empty and belongs to the caller. Its set-gid bit is lost if it
    /// inherits a group that the caller (not root) is not in, and that group may execute it.
    #[expect(clippy::too_many_arguments, reason = "the fields of one operation")]
    pub(crate) fn create(
        &mut self,
        cred: &Cred,
        dir: &DirRef,
        name: &Name,
        mode: Mode,
        exclusive: bool,
        want: Access,
        now: Timestamp,
        fresh: Option<Fresh>,
    ) -> Result<ModelAnswer, Errno> {
        let d = self.search(cred, dir)?;
        if let Some(id) = self.child(d.id, name) {
            if exclusive {
                return Err(Errno::Exists);
            }
            if self.node(id).is_dir() {
                return Err(Errno::IsDir);
            }
            return self.open_found(cred, id, want);
        }
        d.change(cred)?;
        let id = match self.admit(fresh, false) {
            Ok((id, _)) => id,
            Err(fault) => return Ok(ModelAnswer::Identity(fault)),
        };
        let node = new_file(cred, &d, mode, now);
        self.place_new(&d, name, id, node, now);
        Ok(ModelAnswer::Opened {
            entry: self.shown(id),
            created: true,
        })
    }

    /// RULE (O_TMPFILE). The directory must allow a file to be made in it, and does not change. The file is
    /// as one that is created there, has no name, and is there while it is open.
    pub(crate) fn unnamed(
        &mut self,
        cred: &Cred,
        dir: &DirRef,
        mode: Mode,
        linkable: bool,
        now: Timestamp,
        fresh: Option<Fresh>,
    ) -> Result<ModelAnswer, Errno> {
        let d = self.search(cred, dir)?;
        d.change(cred)?;
        let id = match self.admit(fresh, false) {
            Ok((id, _)) => id,
            Err(fault) => return Ok(ModelAnswer::Identity(fault)),
        };
        let node = new_file(cred, &d, mode, now);
        self.bear(id, node);
        self.open.insert(id);
        if linkable {
            self.linkable.insert(id);
        }
        Ok(ModelAnswer::Opened {
            entry: self.shown(id),
            created: true,
        })
    }

    /// RULE (symlink). The target is 1 to 4,095 bytes without NUL, checked before anything else: ENOENT if
    /// empty (as symlink(2) says), ENAMETOOLONG, EINVAL. It is not looked at. Bits are 0777, size is the
    /// target's length.
    pub(crate) fn symlink(
        &mut self,
        cred: &Cred,
        dir: &DirRef,
        name: &Name,
        target: &[u8],
        now: Timestamp,
        fresh: Option<Fresh>,
    ) -> Result<ModelAnswer, Errno> {
        if target.is_empty() {
            return Err(Errno::NotFound);
        }
        if target.len() > SYMLINK_MAX {
            return Err(Errno::NameTooLong);
        }
        if target.contains(&0) {
            return Err(Errno::Invalid);
        }
        let d = self.make_in(cred, dir, name)?;
        let id = match self.admit(fresh, false) {
            Ok((id, _)) => id,
            Err(fault) => return Ok(ModelAnswer::Identity(fault)),
        };
        let inner = Inner::Symlink(target.into());
        self.place_new(
            &d,
            name,
            id,
            Node::new(Perm::new(0o777), cred.uid, d.group_of_new(cred), now, inner),
            now,
        );
        Ok(ModelAnswer::Entry(self.shown(id)))
    }

    /// RULE (mknod). A directory is EPERM, a symlink or a regular file (which create makes) EINVAL, and so is
    /// a device number of more than 32 bits, all before anything is looked at. A device is the superuser's to
    /// make: else EPERM, checked last. Set-gid is lost as for create.
    #[expect(clippy::too_many_arguments, reason = "the fields of one operation")]
    pub(crate) fn mknod(
        &mut self,
        cred: &Cred,
        dir: &DirRef,
        name: &Name,
        kind: FileKind,
        mode: Mode,
        rdev: u64,
        now: Timestamp,
        fresh: Option<Fresh>,
    ) -> Result<ModelAnswer, Errno> {
        let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        if kind == FileKind::Directory {
            return Err(Errno::Perm);
        }
        if !(device || matches!(kind, FileKind::Fifo | FileKind::Socket)) {
            return Err(Errno::Invalid);
        }
        if device && rdev > u64::from(u32::MAX) {
            return Err(Errno::Invalid);
        }
        let d = self.make_in(cred, dir, name)?;
        if device && !cred.is_root() {
            return Err(Errno::Perm);
        }
        let id = match self.admit(fresh, false) {
            Ok((id, _)) => id,
            Err(fault) => return Ok(ModelAnswer::Identity(fault)),
        };
        let rdev = if device { rdev } else { 0 };
        let inner = Inner::Special { kind, rdev };
        let perm = d.perm_of_new(cred, mode.perm);
        let node = Node::new(perm, cred.uid, d.group_of_new(cred), now, inner);
        self.place_new(&d, name, id, inherit(&d, mode, perm, node), now);
        Ok(ModelAnswer::Entry(self.shown(id)))
    }

    /// RULE (mkdir). Of the bits given, rwx and sticky count, set-uid and set-gid do not (Linux,
    /// `vfs_mkdir`). In a set-gid directory the new one has its group and is set-gid too.
    pub(crate) fn mkdir(
        &mut self,
        cred: &Cred,
        dir: &DirRef,
        name: &Name,
        mode: Mode,
        now: Timestamp,
        fresh: Option<Fresh>,
    ) -> Result<ModelAnswer, Errno> {
        let d = self.make_in(cred, dir, name)?;
        let (id, dir_id) = match self.admit(fresh, true) {
            Ok(ids) => ids,
            Err(fault) => return Ok(ModelAnswer::Identity(fault)),
        };
        let mut bits = mode.perm.bits() & 0o1777;
        if d.is_setgid() {
            bits |= Perm::SETGID;
        }
        let perm = Perm::new(bits);
        let node = Node::dir(dir_id, perm, cred.uid, d.group_of_new(cred), now);
        self.place_new(&d, name, id, inherit(&d, mode, perm, node), now);
        Ok(ModelAnswer::Entry(self.shown(id)))
    }

    /// RULE (link). In this order, which is Linux's: search permission where the object is, ENOENT if the
    /// name is missing, ESTALE if it stands for another; search permission where the new name is to be,
    /// EEXIST if that is taken, the permission to change it; EPERM for a directory; ENOENT for what has no
    /// name, but what was made without one to get one. Its ctime is now.
    pub(crate) fn hard_link(
        &mut self,
        cred: &Cred,
        (src, src_name): (&DirRef, &Name),
        id: NodeId,
        (dst, dst_name): (&DirRef, &Name),
        now: Timestamp,
    ) -> Result<ModelAnswer, Errno> {
        let found = self.find(cred, src, src_name)?;
        if found != id {
            return Err(Errno::Stale);
        }
        let d = self.make_in(cred, dst, dst_name)?;
        if self.node(id).is_dir() {
            return Err(Errno::Perm);
        }
        if self.node(id).names.is_empty() {
            if !self.linkable.remove(&id) {
                return Err(Errno::NotFound);
            }
            // From now on it is there for its name.
            self.open.remove(&id);
        }
        self.link(d.id, dst_name, id);
        self.node_mut(id).ctime = now;
        self.touch(d.id, now);
        Ok(ModelAnswer::Entry(self.shown(id)))
    }

    /// RULE (making). The name must be free, else EEXIST; then the directory must be writable.
    fn make_in(&self, cred: &Cred, dir: &DirRef, name: &Name) -> Result<Entered, Errno> {
        let d = self.search(cred, dir)?;
        if self.child(d.id, name).is_some() {
            return Err(Errno::Exists);
        }
        d.change(cred)?;
        Ok(d)
    }

    fn place_new(&mut self, d: &Entered, name: &Name, id: NodeId, node: Node, now: Timestamp) {
        self.bear(id, node);
        self.link(d.id, name, id);
        self.touch(d.id, now);
    }
}
