//! create and symlink: a new inode in a directory.

use crate::acl::inherited;
use crate::context::{Context, Place};
use crate::file::view_file;
use crate::lookup::{Shown, opened};
use crate::snapshot::Stop;
use pando_format::codec::Blob;
use pando_format::{AttachmentKind, InodeRecord, Key, Layout, Marks, Record, Target};
use pando_types::{Access, Errno, FileKind, Mode, Name, Part, Perm, SYMLINK_MAX};
use pando_wire::{Answer, EntryView, Handle, LockMode, LockWant, Statement};

/// Symlink targets up to this long stand in the record itself.
const SHORT_TARGET: usize = 256;

/// Creates a regular file, or opens the one that is there.
pub(crate) fn create(
    cx: &mut Context<'_>,
    dir: &Statement,
    name: &Name,
    mode: Mode,
    exclusive: bool,
    want: u8,
) -> Result<Answer, Stop> {
    let place = cx.place(dir, name);
    cx.require(cx.change_wants(&place))?;
    cx.enter_at(&place, dir, Access::EXEC)?;
    if let Some(entry) = cx.entry(&place) {
        if exclusive {
            return Err(Errno::Exists.into());
        }
        if matches!(entry.target, Target::Dir(_)) {
            return Err(Errno::IsDir.into());
        }
        return opened(cx, dir, &place, entry, want, Shown::Entry);
    }
    cx.change_at(&place, dir)?;
    let inode = new_inode(cx, dir, FileKind::Regular, mode)?;
    let entry = add(cx, &place, inode)?;
    Ok(Answer::Opened {
        entry,
        data: None,
        created: true,
        handle: None,
        proof: Handle(0),
        kept: false,
    })
}

/// Creates a regular file that has no name, at home in the directory's slot. Unless somebody has it open it
/// goes as what has lost its last name does (H97).
pub(crate) fn unnamed(
    cx: &mut Context<'_>,
    dir: &Statement,
    mode: Mode,
    linkable: bool,
) -> Result<Answer, Stop> {
    cx.require(vec![LockWant::Key(Key::Head(dir.id.into()), LockMode::Shared)])?;
    cx.enter(dir, Access::EXEC)?;
    cx.change(dir)?;
    let new = new_inode(cx, dir, FileKind::Regular, mode)?;
    let inode = InodeRecord {
        nlink: 0,
        marks: if linkable { Marks::LINKABLE } else { Marks::NONE },
        ..new
    };
    let home = cx.new_home(Part::whole(dir.id).slot(), &inode)?;
    cx.insert(
        Key::Orphan(home.part.slot(), inode.ino, inode.generation),
        Record::Orphan,
    );
    Ok(Answer::Opened {
        entry: view_file(&inode, home.part.dir),
        data: None,
        created: true,
        handle: None,
        proof: Handle(0),
        kept: false,
    })
}

/// Creates a symbolic link.
pub(crate) fn symlink(
    cx: &mut Context<'_>,
    dir: &Statement,
    name: &Name,
    target: &Blob,
) -> Result<Answer, Stop> {
    // As symlink(2) has it, before anything is looked at.
    if target.0.is_empty() {
        return Err(Errno::NotFound.into());
    }
    if target.0.len() > SYMLINK_MAX {
        return Err(Errno::NameTooLong.into());
    }
    if target.0.contains(&0) {
        return Err(Errno::Invalid.into());
    }
    let place = cx.place(dir, name);
    cx.require(cx.change_wants(&place))?;
    cx.enter_at(&place, dir, Access::EXEC)?;
    if cx.entry(&place).is_some() {
        return Err(Errno::Exists.into());
    }
    cx.change_at(&place, dir)?;
    let mut inode = new_inode(cx, dir, FileKind::Symlink, Perm::new(0o777).into())?;
    inode.size = target.0.len() as u64;
    inode.layout = if target.0.len() <= SHORT_TARGET {
        Layout::Target(target.clone())
    } else {
        cx.insert(
            place.attachment(AttachmentKind::Target),
            Record::Attachment(target.clone()),
        );
        Layout::LongTarget
    };
    Ok(Answer::Entry(add(cx, &place, inode)?))
}

/// The record of something new that is no directory.
pub(crate) fn new_inode(
    cx: &Context<'_>,
    dir: &Statement,
    kind: FileKind,
    mode: Mode,
) -> Result<InodeRecord, Stop> {
    let cred = cx.inputs.cred;
    let setgid = dir.perm.has(Perm::SETGID);
    let gid = if setgid { dir.gid } else { cred.gid };
    // As Linux does: a set-gid program is not made for a group its creator is not in.
    let program = mode.perm.has(Perm::SETGID | 0o010);
    let stripped = setgid && program && !cred.is_root() && !cred.in_group(gid);
    // A symlink's bits mean nothing, and it has no list.
    let (perm, acl) = match kind {
        FileKind::Symlink => (mode.perm, None),
        _ => inherited(dir, mode),
    };
    let perm = Perm::new(perm.bits() & !if stripped { Perm::SETGID } else { 0 });
    let fresh = cx.fresh()?;
    let now = cx.inputs.now;
    Ok(InodeRecord {
        ino: fresh.ino,
        generation: fresh.generation,
        kind,
        perm,
        uid: cred.uid,
        gid,
        nlink: 1,
        size: 0,
        rdev: 0,
        atime: now,
        mtime: now,
        ctime: now,
        layout: Layout::None,
        marks: Marks::NONE,
        version: 0,
        acl,
    })
}

/// Gives it its name.
pub(crate) fn add(cx: &mut Context<'_>, place: &Place, inode: InodeRecord) -> Result<EntryView, Stop> {
    let shown = view_file(&inode, place.part.dir);
    cx.link(place, Target::Inode(inode))?;
    Ok(shown)
}
