//! Extended attributes: get, list, set, remove.

use crate::attached::marks;
use crate::context::{Context, Place, owner, view};
use crate::snapshot::Stop;
use pando_format::codec::{Blob, Codec};
use pando_format::{AttachmentKind, Entry, InodeRecord, Key, Record, Target, XattrSet};
use pando_types::{
    Access, Errno, FileKind, Generation, Ino, Name, Perm, XATTR_VALUE_MAX, XattrMode, XattrName, XattrSpace,
    may_xattr, plant,
};
use pando_wire::{Answer, LockMode, LockWant, Statement};

/// The object meant: its name, and which of all that had it.
pub(crate) struct Meant<'a> {
    pub dir: &'a Statement,
    pub name: &'a Name,
    pub object: (Ino, Generation),
}

/// One attribute's value.
pub(crate) fn get(cx: &mut Context<'_>, meant: &Meant<'_>, attr: &XattrName) -> Result<Answer, Stop> {
    let (place, entry) = find(cx, meant)?;
    may(cx, &entry.target, attr.space(), false)?;
    let set = load(cx, &place, &entry.target)?;
    let value = set.get(attr).ok_or(Errno::NoData)?;
    Ok(Answer::Value(Blob(value.to_vec())))
}

/// The names. Needs no permission on the object: as on Linux, whoever may stat it may know them, but those of the superuser.
pub(crate) fn list(cx: &mut Context<'_>, meant: &Meant<'_>) -> Result<Answer, Stop> {
    let (place, entry) = find(cx, meant)?;
    let set = load(cx, &place, &entry.target)?;
    let shown = set.iter().map(|(name, _)| name);
    let shown = shown.filter(|name| plant!(G61) || name.listed_for(cx.inputs.cred));
    Ok(Answer::Names(shown.cloned().collect()))
}

/// Sets one.
pub(crate) fn set(
    cx: &mut Context<'_>,
    meant: &Meant<'_>,
    attr: &XattrName,
    value: &[u8],
    mode: XattrMode,
) -> Result<Answer, Stop> {
    // As setxattr(2) has it, before anything is looked at.
    if value.len() > XATTR_VALUE_MAX {
        return Err(Errno::ValueTooBig.into());
    }
    change(cx, meant, attr, |set| {
        let mode = if plant!(H147) { XattrMode::Any } else { mode };
        set.set(attr, value, mode)
    })
}

/// Removes one.
pub(crate) fn remove(cx: &mut Context<'_>, meant: &Meant<'_>, attr: &XattrName) -> Result<Answer, Stop> {
    change(cx, meant, attr, |set| match set.remove(attr) {
        true => Ok(()),
        false => Err(Errno::NoData),
    })
}

/// Looks for the object meant, to read.
fn find<'a>(cx: &Context<'a>, meant: &Meant<'_>) -> Result<(Place, &'a Entry), Stop> {
    let place = cx.place(meant.dir, meant.name);
    cx.require(cx.look_wants(&place))?;
    cx.enter(meant.dir, Access::EXEC)?;
    let entry = cx.entry_of(&place, meant.object)?;
    Ok((place, entry))
}

fn change(
    cx: &mut Context<'_>,
    meant: &Meant<'_>,
    attr: &XattrName,
    how: impl FnOnce(&mut XattrSet) -> Result<(), Errno>,
) -> Result<Answer, Stop> {
    let place = cx.place(meant.dir, meant.name);
    cx.require(vec![
        LockWant::Key(Key::Head(meant.dir.id), LockMode::Shared),
        place.bucket(LockMode::Exclusive),
    ])?;
    cx.enter(meant.dir, Access::EXEC)?;
    let entry = cx.entry_of(&place, meant.object)?;
    may(cx, &entry.target, attr.space(), true)?;
    let old = load(cx, &place, &entry.target)?;
    let mut set = old.clone();
    how(&mut set)?;
    // The value it has: ctime stays too, as ext4 has it.
    if set == old {
        return Ok(Answer::Entry(view(meant.dir, meant.name, &entry.target)));
    }
    let mut target = entry.target.clone();
    store(cx, &place, &mut target, &set);
    match &mut target {
        Target::Dir(d) => {
            d.ctime = cx.inputs.now;
            d.version += 1;
        }
        Target::Inode(i) => i.ctime = cx.inputs.now,
    }
    let shown = view(meant.dir, meant.name, &target);
    let changed = Entry {
        ordinal: entry.ordinal,
        target,
    };
    cx.update(place.key(), Record::Entry(changed));
    Ok(Answer::Entry(shown))
}

fn may(cx: &Context<'_>, target: &Target, space: XattrSpace, write: bool) -> Result<(), Stop> {
    let taken_out = match space {
        XattrSpace::User => plant!(G59),
        XattrSpace::Trusted | XattrSpace::Security => plant!(G60),
    };
    if taken_out {
        return Ok(());
    }
    let cred = cx.inputs.cred;
    let (kind, perm, gid): (FileKind, Perm, u32) = match target {
        Target::Dir(d) => (FileKind::Directory, d.perm, d.gid),
        Target::Inode(i) => (i.kind, i.perm, i.gid),
    };
    let uid = owner(target);
    let is_dir = kind == FileKind::Directory;
    may_xattr(cred, space, write, (kind, perm, uid), |want| {
        cred.may(want, perm, uid, gid, is_dir)
    })?;
    Ok(())
}

/// All that an object has.
fn load(cx: &Context<'_>, place: &Place, target: &Target) -> Result<XattrSet, Stop> {
    if !marks(target).has_xattrs() {
        return Ok(XattrSet::default());
    }
    cx.require(vec![LockWant::Attachments(place.key())])?;
    let kind = AttachmentKind::Xattrs;
    let bytes = cx
        .snapshot
        .attachment(place.dir, place.hash, &place.name, kind)
        .ok_or(Errno::Io)?;
    XattrSet::from_bytes(bytes).map_err(|_| Stop::Fail(Errno::Io))
}

/// Writes all that an object has now, and marks it. REQUIRES: it was loaded.
fn store(cx: &mut Context<'_>, place: &Place, target: &mut Target, set: &XattrSet) {
    let before = marks(target).has_xattrs();
    let key = place.attachment(AttachmentKind::Xattrs);
    let record = Record::Attachment(Blob(set.to_bytes()));
    match (before, set.is_empty()) {
        (true, true) => cx.delete(key),
        (true, false) => cx.update(key, record),
        (false, false) => cx.insert(key, record),
        (false, true) => {}
    }
    let marks = match target {
        Target::Dir(d) => &mut d.marks,
        Target::Inode(i) => &mut i.marks,
    };
    *marks = marks.with_xattrs(!set.is_empty());
}

/// Takes the capabilities from a program whose bytes or owner change, whoever changes them: who ran it with them trusted
/// those (H146). As Linux does with `security.capability`.
pub(crate) fn drop_capability(
    cx: &mut Context<'_>,
    place: &Place,
    inode: &mut InodeRecord,
) -> Result<(), Stop> {
    if !inode.marks.has_xattrs() || plant!(H146) {
        return Ok(());
    }
    let mut target = Target::Inode(inode.clone());
    let mut set = load(cx, place, &target)?;
    if set.remove(&XattrName::capability()) {
        store(cx, place, &mut target, &set);
        inode.marks = marks(&target);
    }
    Ok(())
}
