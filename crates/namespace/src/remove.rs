//! unlink, rmdir, and what happens to the data of removed files.

use crate::attached::drop_all;
use crate::births::relist;
use crate::context::{Context, Place, view};
use crate::snapshot::Stop;
use pando_format::{GarbageRecord, InodeRecord, Key, Layout, Record, Target};
use pando_types::{Access, Errno, FileKind, Generation, Ino, Name, Slot};
use pando_wire::{Answer, LockMode, LockWant, Statement};

/// Removes a name that is not a directory's.
pub(crate) fn unlink(cx: &mut Context<'_>, dir: &Statement, name: &Name, held: bool) -> Result<Answer, Stop> {
    let place = cx.place(dir, name);
    cx.require(cx.change_wants(&place))?;
    cx.enter(dir, Access::EXEC)?;
    let entry = cx.entry(&place).ok_or(Errno::NotFound)?;
    cx.change(dir)?;
    cx.sticky(dir, entry)?;
    let Target::Inode(inode) = &entry.target else {
        return Err(Errno::IsDir.into());
    };
    drop_inode(cx, &place, inode, held);
    cx.touch(dir.id, -1, 0);
    Ok(Answer::Removed(view(dir, name, &entry.target)))
}

/// Removes an empty directory: its access record, head, touch and its version on a rename list in one transaction (H4).
/// The head's exclusive lock from the emptiness check to the commit keeps creates out (H32).
pub(crate) fn rmdir(cx: &mut Context<'_>, dir: &Statement, name: &Name) -> Result<Answer, Stop> {
    let place = cx.place(dir, name);
    cx.require(cx.change_wants(&place))?;
    cx.enter(dir, Access::EXEC)?;
    let entry = cx.entry(&place).ok_or(Errno::NotFound)?;
    cx.change(dir)?;
    cx.sticky(dir, entry)?;
    let Target::Dir(access) = &entry.target else {
        return Err(Errno::NotDir.into());
    };
    cx.require(content_wants(access.id))?;
    relist(cx, &[], &[access.id])?;
    drop_dir(cx, access.id, access.generation)?;
    drop_all(cx, &place, &entry.target);
    cx.delete(place.key());
    cx.touch(dir.id, -1, -1);
    Ok(Answer::Removed(view(dir, name, &entry.target)))
}

/// Gives up a removed file that was held open: its data may go.
pub(crate) fn release(
    cx: &mut Context<'_>,
    slot: Slot,
    ino: Ino,
    generation: Generation,
) -> Result<Answer, Stop> {
    let key = Key::Garbage(slot, ino, generation);
    cx.require(vec![LockWant::Key(key.clone(), LockMode::Exclusive)])?;
    if let Some(Record::Garbage(g)) = cx.snapshot.get(&key) {
        // Another session's hold is not ours to give up.
        if g.holder.is_some() && g.holder == cx.inputs.session {
            let freed = GarbageRecord { holder: None, ..*g };
            cx.update(key, Record::Garbage(freed));
        }
    }
    Ok(Answer::Done)
}

/// Wants to remove or move a directory's content.
pub(crate) fn content_wants(id: pando_types::DirId) -> Vec<LockWant> {
    vec![
        LockWant::Key(Key::Head(id), LockMode::Exclusive),
        LockWant::Key(Key::Touch(id), LockMode::Exclusive),
    ]
}

/// Deletes the content of an empty directory. REQUIRES: [`content_wants`].
pub(crate) fn drop_dir(
    cx: &mut Context<'_>,
    id: pando_types::DirId,
    generation: Generation,
) -> Result<(), Stop> {
    match (cx.snapshot.head(id), cx.snapshot.touch(id)) {
        (Some(head), Some(touch)) if head.generation == generation => {
            if touch.stat.entries > 0 {
                return Err(Errno::NotEmpty.into());
            }
        }
        // An access record whose content is missing is damage; fsck reports it.
        _ => return Err(Errno::Io.into()),
    }
    cx.delete(Key::Head(id));
    cx.delete(Key::Touch(id));
    Ok(())
}

/// Deletes an inode's records. Blocks are noted for deletion; a file that the caller has open keeps them until it is
/// released or the session ends.
pub(crate) fn drop_inode(cx: &mut Context<'_>, place: &Place, inode: &InodeRecord, held: bool) {
    cx.delete(place.key());
    drop_all(cx, place, &Target::Inode(inode.clone()));
    let block_size = match inode.layout {
        Layout::Blocks(size) => Some(size),
        _ => None,
    };
    let held = held && inode.kind == FileKind::Regular;
    if block_size.is_some() || held {
        let garbage = GarbageRecord {
            size: inode.size,
            block_size: block_size.unwrap_or(0),
            holder: if held { cx.inputs.session } else { None },
        };
        cx.insert(
            Key::Garbage(place.dir.slot(), inode.ino, inode.generation),
            Record::Garbage(garbage),
        );
    }
}
