//! Writing.

use crate::Model;
use crate::access::without_set_ids;
use crate::content::Content;
use crate::node::{Inner, NodeId};
use crate::op::{DirRef, ModelAnswer, SIZE_MAX};
use crate::ops::xattr::lose_capability;
use pando_types::{Cred, Errno, Name, Timestamp};

impl Model {
    /// RULE (publish). Goes through a handle, so permissions were checked at open: the directory needs none, and a name
    /// that is gone or stands for another object is ESTALE. Only regular files have content: EINVAL. EFBIG above
    /// [`SIZE_MAX`]; bytes past the size are EINVAL. Takes set-id bits from those who are not root. Who is neither root nor
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
        mtime: Option<Timestamp>,
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
        let content = match content {
            Content::Bytes(bytes) if bytes.len() as u64 > size => return Err(Errno::Invalid),
            Content::Bytes(bytes) => Content::inline(bytes),
            other => other.clone(),
        };
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
