//! setattr: chmod, chown, utimens and truncate.

use crate::context::{Context, view_dir};
use crate::file::{File, view_file};
use crate::parts;
use crate::snapshot::Stop;
use crate::xattr::drop_capability;
use pando_format::{
    AccessRecord, AttachmentKind, Entry, FactChange, Head, InodeRecord, Key, Layout, Record, Target,
};
use pando_types::{Access, AttrChange, Cred, Errno, FileKind, Perm, TimeChange, Timestamp, plant};
use pando_wire::{Answer, LockMode, LockWant, Object};

/// Largest file size.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;

/// Changes attributes of the object meant.
pub(crate) fn set_attr(
    cx: &mut Context<'_>,
    object: &Object,
    change: &AttrChange,
    through_handle: bool,
) -> Result<Answer, Stop> {
    let (dir, name) = (&object.dir, &object.name);
    let place = cx.place(dir, name);
    cx.require(cx.entry_wants(&place, LockMode::Exclusive))?;
    cx.enter_at(&place, dir, if through_handle { Access(0) } else { Access::EXEC })?;
    // Through a handle the directory need not be searchable: whether there is such a name is nothing to tell
    // (H99).
    let entry = cx
        .entry_of(&place, object.id())
        .map_err(|stop| match through_handle {
            true if !plant!(G57) => Stop::Fail(Errno::Stale),
            _ => stop,
        })?;
    if *change == AttrChange::default() {
        return Ok(Answer::Entry(cx.view(dir, &place, entry)?));
    }
    if let Target::Dir(access) = &entry.target {
        let new = set_dir(cx, access, change)?;
        let shown = view_dir(dir, name, &new);
        if new != *access {
            let (ordinal, target) = (entry.ordinal, Target::Dir(new));
            cx.update(place.key(), Record::Entry(Entry { ordinal, target }));
        }
        return Ok(Answer::Entry(shown));
    }
    let file = cx.file(&place, entry, LockMode::Exclusive)?.ok_or(Errno::Io)?;
    let new = set_inode(cx, &file, change, through_handle)?;
    // Its cookie stays what it is for the entry's life (H66).
    if plant!(H66) && new != file.inode {
        let ordinal = cx.free_ordinal(&file.body)?;
        cx.keep_at(&file, new.clone(), ordinal);
        return Ok(Answer::Entry(view_file(&new, file.body.part.dir)));
    }
    Ok(Answer::Entry(cx.keep(&file, new)))
}

fn set_inode(
    cx: &mut Context<'_>,
    file: &File,
    change: &AttrChange,
    through_handle: bool,
) -> Result<InodeRecord, Stop> {
    let old = &file.inode;
    let cred = cx.inputs.cred;
    let now = cx.inputs.now;
    let mut new = old.clone();
    if let Some(size) = change.size {
        if old.kind != FileKind::Regular {
            return Err(Errno::Invalid.into());
        }
        let may_write = cred.may(Access::WRITE, &old.guard());
        if !through_handle && !may_write && !plant!(G27) {
            return Err(Errno::Access.into());
        }
        if size > SIZE_MAX {
            return Err(Errno::TooBig.into());
        }
    }
    // Nobody changes a symlink's bits (Linux since 6.6).
    if change.perm.is_some() && old.kind == FileKind::Symlink {
        return Err(Errno::Unsupported.into());
    }
    check_owner_changes(cred, change, old.uid, old.gid)?;
    check_times(cred, change, old.uid, |want| cred.may(want, &old.guard()))?;
    if let Some(size) = change.size {
        resize(cx, file, &mut new, size)?;
        new.mtime = now;
        if !cred.is_root() && !plant!(G26) {
            new.perm = without_set_ids(cred, new.perm, old.gid);
        }
    }
    if change.uid.is_some() || change.gid.is_some() {
        new.uid = change.uid.unwrap_or(old.uid);
        new.gid = change.gid.unwrap_or(old.gid);
        new.perm = without_set_ids(cred, new.perm, old.gid);
    }
    if change.size.is_some() || change.uid.is_some() || change.gid.is_some() {
        drop_capability(cx, &file.body, &mut new)?;
    }
    if let Some(perm) = change.perm {
        let drop_setgid = !cred.is_root() && !cred.in_group(new.gid) && !plant!(G28);
        new.perm = Perm::new(perm.bits() & !if drop_setgid { Perm::SETGID } else { 0 });
        // Where there is a list the group's bits are its mask (H152).
        if let Some(list) = new.acl.as_mut().filter(|_| plant!(H152)) {
            list.group = new.perm.classes()[1];
        }
    }
    if let Some(t) = change.atime {
        new.atime = time(t, now);
    }
    if let Some(t) = change.mtime {
        new.mtime = time(t, now);
    }
    new.ctime = now;
    Ok(new)
}

/// A directory: permission bits and owners are in its access half, times in its content half.
fn set_dir(cx: &mut Context<'_>, old: &AccessRecord, change: &AttrChange) -> Result<AccessRecord, Stop> {
    let cred = cx.inputs.cred;
    if change.size.is_some() {
        return Err(Errno::IsDir.into());
    }
    check_owner_changes(cred, change, old.uid, old.gid)?;
    check_times(cred, change, old.uid, |want| cred.may(want, &old.guard()))?;
    let mut new = old.clone();
    if change.perm.is_some() || change.uid.is_some() || change.gid.is_some() {
        new.uid = change.uid.unwrap_or(old.uid);
        new.gid = change.gid.unwrap_or(old.gid);
        if let Some(perm) = change.perm {
            let drop_setgid = !cred.is_root() && !cred.in_group(new.gid);
            new.perm = Perm::new(perm.bits() & !if drop_setgid { Perm::SETGID } else { 0 });
        }
        new.ctime = cx.inputs.now;
        new.version = old.version + 1;
        let same = (new.perm, new.uid, new.gid) == (old.perm, old.uid, old.gid);
        if !same && cx.invalidate(old, FactChange::Access)? {
            reseal(cx, &mut new)?;
        }
    }
    if change.atime.is_some() || change.mtime.is_some() {
        let now = cx.inputs.now;
        parts::set_times(cx, old.id, |touch| {
            if let Some(t) = change.atime {
                touch.stat.atime = time(t, now);
            }
            if let Some(t) = change.mtime {
                touch.stat.mtime = time(t, now);
                touch.explicit = true;
            }
            touch.stat.ctime = touch.stat.ctime.max(now);
        })?;
    }
    Ok(new)
}

/// What is sealed about the directory from now on opens under a new key (H99).
pub(crate) fn reseal(cx: &mut Context<'_>, access: &mut AccessRecord) -> Result<(), Stop> {
    let key = Key::Head(access.id.into());
    cx.require(vec![LockWant::Key(key.clone(), LockMode::Exclusive)])?;
    let head = cx.snapshot.head(access.id.into()).ok_or(Errno::Io)?;
    access.seal += u64::from(!plant!(G33));
    let head = Head {
        seal: access.seal,
        ..head.clone()
    };
    cx.update(key, Record::Head(head));
    Ok(())
}

/// chmod is the owner's; chown is the superuser's, but an owner may give a file to a group of theirs.
fn check_owner_changes(cred: &Cred, change: &AttrChange, uid: u32, gid: u32) -> Result<(), Stop> {
    if cred.is_root() || plant!(G24) {
        return Ok(());
    }
    let owner = cred.uid == uid;
    let uid_kept = change.uid.is_none_or(|u| owner && u == uid);
    let gid_kept = change.gid.is_none_or(|g| owner && (g == gid || cred.in_group(g)));
    if (change.perm.is_some() && !owner) || !uid_kept || !gid_kept {
        return Err(Errno::Perm.into());
    }
    Ok(())
}

/// Setting a time needs ownership; setting both to now needs only write permission.
fn check_times(cred: &Cred, change: &AttrChange, uid: u32, may: impl Fn(Access) -> bool) -> Result<(), Stop> {
    if change.atime.is_none() && change.mtime.is_none() || cred.is_root() || cred.uid == uid {
        return Ok(());
    }
    if change.atime == Some(TimeChange::Now) && change.mtime == Some(TimeChange::Now) {
        return if may(Access::WRITE) {
            Ok(())
        } else {
            Err(Errno::Access.into())
        };
    }
    if plant!(G25) {
        Ok(())
    } else {
        Err(Errno::Perm.into())
    }
}

fn time(change: TimeChange, now: Timestamp) -> Timestamp {
    match change {
        TimeChange::Now => now,
        TimeChange::To(t) => t,
    }
}

/// Without set-uid; without set-gid too if the group may execute it, or the caller is neither the superuser
/// nor in the group (Linux, `setattr_should_drop_suidgid`).
pub(crate) fn without_set_ids(cred: &Cred, perm: Perm, gid: u32) -> Perm {
    let setgid = perm.bits() & 0o010 != 0 || !(cred.is_root() || cred.in_group(gid));
    Perm::new(perm.bits() & !(Perm::SETUID | if setgid { Perm::SETGID } else { 0 }))
}

/// Truncates: inline data is cut here; blocks are cut by the client that asked, and hidden by the size until
/// then.
fn resize(cx: &mut Context<'_>, file: &File, inode: &mut InodeRecord, size: u64) -> Result<(), Stop> {
    inode.layout = inode.layout.resized(inode.size, size);
    if inode.layout.is_inline() && size < inode.size {
        let mut data = cx.attached(file, AttachmentKind::Data)?;
        let key = file.body.attachment(AttachmentKind::Data);
        inode.layout = Layout::inline(size.min(data.0.len() as u64), size);
        if size == 0 {
            cx.delete(key);
            inode.layout = Layout::None;
        } else if size < data.0.len() as u64 {
            data.0.truncate(size as usize);
            cx.update(key, Record::Attachment(data));
        }
    }
    inode.size = size;
    inode.version += 1;
    Ok(())
}
