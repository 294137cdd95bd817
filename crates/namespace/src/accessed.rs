//! When files were last read: relatime.

use crate::context::Context;
use crate::snapshot::Stop;
use pando_format::InodeRecord;
use pando_types::{Access, Errno, FileKind, Timestamp, plant};
use pando_wire::{Answer, LockMode, Object};

/// An atime that is older follows a read in any case (Linux, `relatime_need_update`).
const OLD: i128 = 24 * 60 * 60 * 1_000_000_000;

/// Takes note that a file was read by who has it open: permission was checked then. Its ctime stays.
pub(crate) fn accessed(cx: &mut Context<'_>, object: &Object, ago: u64) -> Result<Answer, Stop> {
    let dir = &object.dir;
    let place = cx.place(dir, &object.name);
    cx.require(cx.entry_wants(&place, LockMode::Exclusive))?;
    cx.enter_at(&place, dir, Access(0))?;
    // Whether there is such a name is nothing to tell (H99).
    let entry = cx
        .entry_of(&place, object.id())
        .map_err(|_| Stop::Fail(Errno::Stale))?;
    let Some(file) = cx.file(&place, entry, LockMode::Exclusive)? else {
        return Err(Errno::Invalid.into());
    };
    let old = &file.inode;
    if old.kind != FileKind::Regular {
        return Err(Errno::Invalid.into());
    }
    let then = Timestamp::from_nanos(cx.inputs.now.as_nanos() - i128::from(ago));
    let atime = if is_due(old, then) { then } else { old.atime };
    let new = InodeRecord { atime, ..old.clone() };
    Ok(Answer::Entry(cx.keep(&file, new)))
}

/// What was changed after that read is read again, or not: the change made the atime due.
fn is_due(old: &InodeRecord, then: Timestamp) -> bool {
    let unread = old.atime <= old.mtime || old.atime <= old.ctime;
    let stale = then.as_nanos() - old.atime.as_nanos() >= OLD;
    (then >= old.ctime && then > old.atime || plant!(H176)) && (unread || stale)
}
