//! publish: the metadata of written content, after the data was stored.

use crate::attached::drop_bytes;
use crate::attr::{SIZE_MAX, without_set_ids};
use crate::context::Context;
use crate::snapshot::Stop;
use crate::xattr::drop_capability;
use pando_format::{AttachmentKind, Layout, Record};
use pando_types::{Access, Errno, FileKind, Timestamp, plant};
use pando_wire::{Answer, Content, LockMode, Object};

/// Publishes content through a handle that was opened for writing; permission was checked then.
pub(crate) fn publish(
    cx: &mut Context<'_>,
    object: &Object,
    content: &Content,
    size: u64,
    (mtime, base): (Option<Timestamp>, Option<u64>),
) -> Result<Answer, Stop> {
    let dir = &object.dir;
    let place = cx.place(dir, &object.name);
    cx.require(cx.entry_wants(&place, LockMode::Exclusive))?;
    cx.enter_at(&place, dir, Access(0))?;
    // Through a handle a missing name means: renamed or removed by somebody else.
    let entry = cx
        .entry_of(&place, object.id())
        .map_err(|_| Stop::Fail(Errno::Stale))?;
    let Some(file) = cx.file(&place, entry, LockMode::Exclusive)? else {
        return Err(Errno::Invalid.into());
    };
    let (old, body) = (&file.inode, &file.body);
    if old.kind != FileKind::Regular {
        return Err(Errno::Invalid.into());
    }
    if size > SIZE_MAX {
        return Err(Errno::TooBig.into());
    }
    // Another mount has published since: what this one did not write is theirs.
    if base.is_some_and(|base| base != old.version) && !plant!(H174) {
        return Err(Errno::Busy.into());
    }
    let mut new = old.clone();
    match content {
        Content::Inline(data) => {
            if data.0.len() as u64 > size || data.0.len() > cx.inputs.inline_limit as usize {
                return Err(Errno::Invalid.into());
            }
            let (key, record) = (
                body.attachment(AttachmentKind::Data),
                Record::Attachment(data.clone()),
            );
            if old.layout.is_inline() {
                cx.update(key, record);
            } else {
                cx.insert(key, record);
            }
            new.layout = Layout::inline(data.0.len() as u64, size);
        }
        Content::None => {
            drop_bytes(cx, body, &old.layout);
            new.layout = Layout::None;
        }
        Content::Blocks(block_size) => {
            drop_bytes(cx, body, &old.layout);
            new.layout = in_blocks(cx, &old.layout, *block_size, size, size)?;
        }
        Content::Sparse {
            block_size,
            allocated,
        } => {
            drop_bytes(cx, body, &old.layout);
            new.layout = in_blocks(cx, &old.layout, *block_size, *allocated, size)?;
        }
    }
    new.size = size;
    let now = cx.inputs.now;
    new.mtime = mtime.unwrap_or(now);
    // A caller that may only write can have written since then. Other times are the owner's to set.
    if !cx.inputs.cred.is_root() && cx.inputs.cred.uid != old.uid && !plant!(G58) {
        new.mtime = new.mtime.clamp(old.mtime.min(now), now);
    }
    new.ctime = now;
    new.version += 1;
    if !cx.inputs.cred.is_root() {
        new.perm = without_set_ids(cx.inputs.cred, new.perm, new.gid);
    }
    drop_capability(cx, body, &mut new)?;
    Ok(Answer::Entry(cx.keep(&file, new)))
}

/// The layout of what is in blocks now. EINVAL: of another size than they may have, or more is said to be
/// stored than there is.
fn in_blocks(
    cx: &Context<'_>,
    old: &Layout,
    block_size: u32,
    allocated: u64,
    size: u64,
) -> Result<Layout, Stop> {
    // Who reads it asks for as many blocks as that makes.
    let known = block_size == cx.inputs.block_size || old.block_size() == Some(block_size);
    if !known || allocated > size {
        return Err(Errno::Invalid.into());
    }
    Ok(Layout::blocks(block_size, allocated, size))
}
