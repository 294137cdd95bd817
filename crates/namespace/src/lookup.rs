//! Operations that only look: lookup, statdir, readlink, open.

use crate::context::{Context, Place, view_dir};
use crate::snapshot::Stop;
use crate::{itself, parts};
use pando_format::{AttachmentKind, Entry, Key, Layout, Target};
use pando_types::{Access, Errno, FileKind, Guard, Name, Tile, plant};
use pando_wire::{Answer, Handle, LockMode, LockWant, Statement};

/// One component of a path. Needs search permission on the directory.
pub(crate) fn lookup(cx: &mut Context<'_>, dir: &Statement, name: &Name) -> Result<Answer, Stop> {
    let place = cx.place(dir, name);
    cx.require(cx.look_wants(&place))?;
    cx.enter_at(&place, dir, Access::EXEC)?;
    let entry = cx.entry(&place).ok_or(Errno::NotFound)?;
    Ok(Answer::Entry(cx.view(dir, &place, entry)?))
}

/// A directory's entry, found by its content, which knows its parent and name. Whoever holds the directory
/// open may know its permissions; where it is now is shown to nobody: the answer says of that what the caller
/// said.
pub(crate) fn reopen(cx: &mut Context<'_>, dir: &Statement) -> Result<Answer, Stop> {
    let (parent, name) = itself::whereabouts(cx, dir)?;
    let place = cx.place_by_list(&parent, &name)?;
    cx.require(vec![place.bucket(LockMode::Shared)])?;
    let entry = cx.entry(&place).ok_or(Errno::Io)?;
    match &entry.target {
        Target::Dir(d) if dir.is_of(d.id, d.generation) => {
            Ok(Answer::Entry(view_dir(&itself::said_above(dir), &dir.name, d)))
        }
        _ => Err(Errno::Io.into()),
    }
}

/// The content half of a directory's attributes. Whoever could look the directory up may have it.
pub(crate) fn dir_stat(cx: &mut Context<'_>, dir: &Statement) -> Result<Answer, Stop> {
    // Each half is of one moment (H43): nobody who is about to change this one is overlooked.
    let mode = if plant!(H43) {
        LockMode::Increment
    } else {
        LockMode::Shared
    };
    cx.require(vec![
        LockWant::Key(Key::Head(dir.id.into()), LockMode::Shared),
        LockWant::Key(Key::Touch(dir.id.into()), mode),
    ])?;
    cx.enter(dir, Access(0))?;
    Ok(Answer::DirStat(match cx.snapshot.part(dir.id.into()) {
        // It has given something away: what the others have is asked for too.
        Some(head) if head.tile != Tile::WHOLE => parts::stat(cx, dir.id, mode)?,
        Some(_) | None => cx.snapshot.touch(dir.id.into()).ok_or(Errno::Stale)?.stat,
    }))
}

/// A symlink's target, from the record or from its attachment.
pub(crate) fn read_link(cx: &mut Context<'_>, dir: &Statement, name: &Name) -> Result<Answer, Stop> {
    let place = cx.place(dir, name);
    cx.require(cx.look_wants(&place))?;
    cx.enter_at(&place, dir, Access::EXEC)?;
    let entry = cx.entry(&place).ok_or(Errno::NotFound)?;
    let Some(file) = cx.file(&place, entry, LockMode::Shared)? else {
        return Err(Errno::Invalid.into());
    };
    match &file.inode.layout {
        Layout::Target(target) => Ok(Answer::Target(target.clone())),
        Layout::LongTarget => Ok(Answer::Target(cx.attached(&file, AttachmentKind::Target)?)),
        Layout::None
        | Layout::Inline
        | Layout::SparseInline(_)
        | Layout::Blocks(_)
        | Layout::Sparse { .. } => Err(Errno::Invalid.into()),
    }
}

/// Permission to open a file that exists, and its inline data.
pub(crate) fn open(cx: &mut Context<'_>, dir: &Statement, name: &Name, want: u8) -> Result<Answer, Stop> {
    let place = cx.place(dir, name);
    cx.require(cx.look_wants(&place))?;
    cx.enter_at(&place, dir, Access::EXEC)?;
    let entry = cx.entry(&place).ok_or(Errno::NotFound)?;
    opened(cx, dir, &place, entry, want, Shown::Bytes)
}

/// What of an opened file is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Its entry. The answers to requests that may change something are kept, and must be small.
    Entry,
    /// Its inline bytes, too.
    Bytes,
}

/// The answer to opening what `entry` names, which exists.
pub(crate) fn opened(
    cx: &Context<'_>,
    dir: &Statement,
    place: &Place,
    entry: &Entry,
    want: u8,
    shown: Shown,
) -> Result<Answer, Stop> {
    let may = |guard: &Guard<'_>| plant!(G52) || cx.inputs.cred.may(Access(want & 7), guard);
    let answer = |entry, data| Answer::Opened {
        entry,
        data,
        created: false,
        handle: None,
        proof: Handle(0),
        kept: false,
    };
    let file = match &entry.target {
        // A directory may be opened, but not for writing.
        Target::Dir(_) if want & Access::WRITE.0 != 0 => return Err(Errno::IsDir.into()),
        Target::Dir(d) if !may(&d.guard()) => return Err(Errno::Access.into()),
        Target::Dir(d) => return Ok(answer(view_dir(dir, &place.name, d), None)),
        Target::Inode(_) | Target::Link(_) => cx.file(place, entry, LockMode::Shared)?.ok_or(Errno::Io)?,
    };
    let inode = &file.inode;
    match inode.kind {
        FileKind::Symlink => return Err(Errno::Loop.into()),
        FileKind::Regular => {}
        // Special files are opened by the kernel, never here.
        _ => return Err(Errno::Unsupported.into()),
    }
    if !may(&inode.guard()) {
        return Err(Errno::Access.into());
    }
    // Who wants nothing, or only to write, has shown no right to the bytes. (Who may execute must be shown
    // them.)
    let asked = want & (Access::READ.0 | Access::EXEC.0) != 0 || plant!(G30);
    let cred = cx.inputs.cred;
    let may_see = asked || cred.may(Access::READ, &inode.guard());
    let data = if may_see && shown == Shown::Bytes && inode.layout.is_inline() {
        Some(cx.attached(&file, AttachmentKind::Data)?)
    } else {
        None
    };
    Ok(answer(file.view(), data))
}
