//! What is attached to an entry: it moves and goes with the object, whatever kind that is.

use crate::context::{Context, Place};
use crate::snapshot::Stop;
use pando_format::codec::Blob;
use pando_format::{AttachmentKind, Layout, Marks, Record, Target};
use pando_types::{Errno, plant};
use pando_wire::LockWant;

/// The attachments of an object, by its record alone.
pub(crate) fn kinds(target: &Target) -> Vec<AttachmentKind> {
    let mut kinds = Vec::new();
    if let Target::Inode(inode) = target {
        kinds.extend(of_layout(&inode.layout));
    }
    if marks(target).has_xattrs() {
        kinds.push(AttachmentKind::Xattrs);
    }
    kinds
}

/// The attachment that holds the bytes of a file or a symlink, if one does.
fn of_layout(layout: &Layout) -> Option<AttachmentKind> {
    match layout {
        Layout::Inline | Layout::SparseInline(_) => Some(AttachmentKind::Data),
        Layout::LongTarget => Some(AttachmentKind::Target),
        Layout::None | Layout::Blocks(_) | Layout::Sparse { .. } | Layout::Target(_) => None,
    }
}

/// What an object has besides its record.
pub(crate) fn marks(target: &Target) -> Marks {
    match target {
        Target::Dir(d) => d.marks,
        Target::Inode(i) => i.marks,
        // What is at home has them there.
        Target::Link(_) => Marks::default(),
    }
}

/// Wants to move what is attached.
pub(crate) fn wants(place: &Place, target: &Target) -> Option<LockWant> {
    (!kinds(target).is_empty()).then(|| LockWant::Attachments(place.key()))
}

/// Deletes the bytes attached to a file.
pub(crate) fn drop_bytes(cx: &mut Context<'_>, place: &Place, layout: &Layout) {
    if let Some(kind) = of_layout(layout) {
        cx.delete(place.attachment(kind));
    }
}

/// Deletes everything attached to an object that goes (H144).
pub(crate) fn drop_all(cx: &mut Context<'_>, place: &Place, target: &Target) {
    for kind in kinds(target) {
        if !(kind == AttachmentKind::Xattrs && plant!(H144)) {
            cx.delete(place.attachment(kind));
        }
    }
}

/// Moves everything attached to an object to its new name (H145). REQUIRES: [`wants`].
pub(crate) fn carry(cx: &mut Context<'_>, target: &Target, from: &Place, to: &Place) -> Result<(), Stop> {
    for kind in kinds(target) {
        // Only files have them, says who forgets directories.
        if plant!(H145) && kind == AttachmentKind::Xattrs && matches!(target, Target::Dir(_)) {
            continue;
        }
        let data = cx
            .snapshot
            .attachment(from.part, from.hash, &from.name, kind)
            .ok_or(Errno::Io)?;
        let data = Record::Attachment(Blob(data.to_vec()));
        cx.delete(from.attachment(kind));
        cx.insert(to.attachment(kind), data);
    }
    Ok(())
}
