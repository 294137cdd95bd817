//! Writing.

use crate::Model;
use crate::access::without_set_ids;
use crate::content::Content;
use crate::node::{Inner, NodeId};
use crate::op::{DirRef, ModelAnswer, SIZE_MAX};
use crate::ops::xattr::lose_capability;
use pando_types::{Cred, Errno, Name, Timestamp};

impl Model {
    /// RULE (relatime). Who has a file open may have read it; a name that is gone or stands for another
    /// object is ESTALE, and what is no file EINVAL. The atime becomes the time of the read if that is not
    /// before the last change of anything of the file, and if the atime is not later than the last change or
    /// is a day older than the read. Nothing else changes.
    pub(crate) fn accessed(
        &mut self,
        dir: &DirRef,
        name: &Name,
        id: NodeId,
        ago: u64,
        now: Timestamp,
    ) -> Result<ModelAnswer, Errno> {
        let d = self.enter(dir)?;
        if self.child(d.id, name) != Some(id) {
            return Err(Errno::Stale);
        }
        let node = self.node_mut(id);
        if !matches!(node.inner, Inner::File { .. }) {
            return Err(Errno::Invalid);
        }
        let read = Timestamp::from_nanos(now.as_nanos() - i128::from(ago));
        let changed_since = read < node.ctime;
        let seen = node.atime > node.mtime && node.atime > node.ctime;
        let day_old = read.as_nanos() - node.atime.as_nanos() >= 86_400_000_000_000;
        if !changed_since && read > node.atime && (!seen || day_old) {
            node.atime = read;
        }
        Ok(ModelAnswer::Entry(self.shown(id)))
    }

    /// RULE (publish). Goes through a handle, so permissions were checked at open: the directory needs none,
    /// and a name that is gone or stands for another object is ESTALE. Only regular files have content:
    /// EINVAL. EFBIG above [`SIZE_MAX`]; EBUSY if the content is not of the version that this was made of;
    /// bytes past the size are EINVAL. Takes set-id bits from those who are not root. Who is neither root nor
    /// the owner cannot have written before the last change or after now.
    #[expect(clippy::too_many_arguments, reason = "the fields of one operation")]
    pub(crate) fn publish(
        &mut self,
        cred: &Cred,
        dir: &DirRef,
        name: &Name,
        id: NodeId,
        content: &Content,
        size: u64,
        (mtime, base): (Option<Timestamp>, Option<u64>),
        now: Timestamp,
    ) -> Result<ModelAnswer, Errno> {
        let d = self.enter(dir)?;
        if self.child(d.id, name) != Some(id) {
            return Err(Errno::Stale);
        }
        let node = self.node_mut(id);
        if !matches!(node.inner, Inner::File { .. }) {
            return Err(Errno::Invalid);
        }
        if size > SIZE_MAX {
            return Err(Errno::TooBig);
        }
        if base.is_some_and(|base| base != node.version) {
            return Err(Errno::Busy);
        }
        let content = match content {
            Content::Bytes(bytes) if bytes.len() as u64 > size => return Err(Errno::Invalid),
            Content::Bytes(bytes) => Content::inline(bytes),
            other => other.clone(),
        };
        node.version += 1;
        node.inner = Inner::File { size, content };
        let mtime = mtime.unwrap_or(now);
        node.mtime = if cred.is_root() || cred.uid == node.uid {
            mtime
        } else {
            mtime.clamp(node.mtime.min(now), now)
        };
        node.ctime = now;
        if !cred.is_root() {
            node.perm = without_set_ids(cred, node.perm, node.gid);
        }
        lose_capability(node);
        Ok(ModelAnswer::Entry(self.shown(id)))
    }
}
