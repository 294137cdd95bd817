//! Access control lists: set, remove, and what new objects inherit. Reading needs no operation: lists are
//! shown with entries.

use crate::attr::reseal;
use crate::context::{Context, view_dir};
use crate::snapshot::Stop;
use pando_format::{AccessRecord, Entry, FactChange, InodeRecord, Record, Target};
use pando_types::{Access, Acl, AclKind, Cred, Errno, Extended, FileKind, Mode, Perm, plant};
use pando_wire::{Answer, LockMode, Object, Statement};

/// Sets a list, or removes it. The checks are Linux's (`set_posix_acl`), in its order.
pub(crate) fn set(
    cx: &mut Context<'_>,
    meant: &Object,
    kind: AclKind,
    list: Option<&Acl>,
) -> Result<Answer, Stop> {
    let (dir, name) = (&meant.dir, &meant.name);
    let place = cx.place(dir, name);
    cx.require(cx.entry_wants(&place, LockMode::Exclusive))?;
    cx.enter_at(&place, dir, Access::EXEC)?;
    let entry = cx.entry_of(&place, meant.id())?;
    if let Target::Dir(old) = &entry.target {
        owned(cx.inputs.cred, old.uid)?;
        let new = set_dir(cx, old, kind, list)?;
        let shown = view_dir(dir, name, &new);
        // As of what is no directory: nothing changes, ctime neither.
        if new != *old {
            let (ordinal, target) = (entry.ordinal, Target::Dir(new));
            cx.update(place.key(), Record::Entry(Entry { ordinal, target }));
        }
        return Ok(Answer::Entry(shown));
    }
    let file = cx.file(&place, entry, LockMode::Exclusive)?.ok_or(Errno::Io)?;
    let old = &file.inode;
    if old.kind == FileKind::Symlink {
        return Err(Errno::Unsupported.into());
    }
    if kind == AclKind::Default {
        // There is none to remove.
        return match list {
            Some(_) => Err(Errno::Access.into()),
            None => Ok(Answer::Entry(file.view())),
        };
    }
    owned(cx.inputs.cred, old.uid)?;
    let (perm, acl) = match list {
        Some(list) => replaced(cx.inputs.cred, old.perm, old.gid, list),
        None => (old.perm, None),
    };
    // What it says already: ctime stays too, as ext4 has it.
    if (perm, &acl) == (old.perm, &old.acl) {
        return Ok(Answer::Entry(file.view()));
    }
    let new = InodeRecord {
        ctime: cx.inputs.now,
        perm,
        acl,
        ..old.clone()
    };
    Ok(Answer::Entry(cx.keep(&file, new)))
}

/// A directory's lists change as its permission bits do: whoever knows the old ones hears of it first.
fn set_dir(
    cx: &mut Context<'_>,
    old: &AccessRecord,
    kind: AclKind,
    list: Option<&Acl>,
) -> Result<AccessRecord, Stop> {
    let mut new = old.clone();
    match (kind, list) {
        (AclKind::Access, Some(list)) => {
            (new.perm, new.acls.access) = replaced(cx.inputs.cred, old.perm, old.gid, list);
        }
        (AclKind::Access, None) => new.acls.access = None,
        (AclKind::Default, list) => new.acls.default = list.cloned(),
    }
    if new == *old {
        return Ok(new);
    }
    new.ctime = cx.inputs.now;
    new.version = old.version + 1;
    if !plant!(H150) && cx.invalidate(old, FactChange::Access)? {
        reseal(cx, &mut new)?;
    }
    Ok(new)
}

/// Lists are the owner's to set, and the superuser's.
fn owned(cred: &Cred, owner: u32) -> Result<(), Stop> {
    if cred.is_root() || cred.uid == owner || plant!(G64) {
        Ok(())
    } else {
        Err(Errno::Perm.into())
    }
}

/// The bits and the list of what is given a list. Who is not in its group takes the set-gid bit, as with
/// chmod (Linux, `posix_acl_update_mode`).
fn replaced(cred: &Cred, old: Perm, gid: u32, list: &Acl) -> (Perm, Option<Extended>) {
    let (rwx, extended) = list.split();
    let drop_setgid = !cred.is_root() && !cred.in_group(gid) && !plant!(G65);
    let kept = old.bits() & 0o7000 & !if drop_setgid { Perm::SETGID } else { 0 };
    (Perm::new(kept | rwx.bits()), extended)
}

/// The bits and the list of what is new in a directory and no symlink. Where there is a default list the
/// umask does not count.
pub(crate) fn inherited(dir: &Statement, mode: Mode) -> (Perm, Option<Extended>) {
    match dir.acls.default.as_ref().filter(|_| !plant!(H151)) {
        Some(list) => list.bequeath(mode.perm),
        None => (mode.masked(), None),
    }
}
