//! Extended attributes: get, list, set, remove.

use crate::attached::marks;
use crate::context::{Context, Place, view_dir};
use crate::file::view_file;
use crate::snapshot::Stop;
use pando_format::codec::{Blob, Codec};
use pando_format::{AttachmentKind, Entry, InodeRecord, Record, Target, XattrSet};
use pando_types::{
    Access, Errno, FileKind, XATTR_VALUE_MAX, XattrMode, XattrName, XattrSpace, may_xattr, plant,
};
use pando_wire::{Answer, EntryView, LockMode, LockWant, Object};

/// One attribute's value.
pub(crate) fn get(cx: &mut Context<'_>, meant: &Object, attr: &XattrName) -> Result<Answer, Stop> {
    let object = find(cx, meant)?;
    may(cx, &object.target, attr.space(), false)?;
    let set = load(cx, &object.body, &object.target)?;
    let value = set.get(attr).ok_or(Errno::NoData)?;
    Ok(Answer::Value(Blob(value.to_vec())))
}

/// The names. Needs no permission on the object: as on Linux, whoever may stat it may know them, but those of
/// the superuser.
pub(crate) fn list(cx: &mut Context<'_>, meant: &Object) -> Result<Answer, Stop> {
    let object = find(cx, meant)?;
    let set = load(cx, &object.body, &object.target)?;
    let shown = set.iter().map(|(name, _)| name);
    let shown = shown.filter(|name| plant!(G61) || name.listed_for(cx.inputs.cred));
    Ok(Answer::Names(shown.cloned().collect()))
}

/// Sets one.
pub(crate) fn set(
    cx: &mut Context<'_>,
    meant: &Object,
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
pub(crate) fn remove(cx: &mut Context<'_>, meant: &Object, attr: &XattrName) -> Result<Answer, Stop> {
    change(cx, meant, attr, |set| match set.remove(attr) {
        true => Ok(()),
        false => Err(Errno::NoData),
    })
}

/// The object meant as it was found, where it is.
struct Found {
    body: Place,
    ordinal: u8,
    /// Never a link.
    target: Target,
}

impl Found {
    fn of(cx: &Context<'_>, meant: &Object, mode: LockMode) -> Result<Found, Stop> {
        let place = cx.place(&meant.dir, &meant.name);
        let entry = cx.entry_of(&place, meant.id())?;
        Ok(match cx.file(&place, entry, mode)? {
            Some(file) => Found {
                ordinal: file.ordinal,
                target: Target::Inode(file.inode),
                body: file.body,
            },
            None => Found {
                ordinal: entry.ordinal,
                target: entry.target.clone(),
                body: place,
            },
        })
    }

    fn view(&self, meant: &Object) -> EntryView {
        match &self.target {
            Target::Dir(d) => view_dir(&meant.dir, &meant.name, d),
            Target::Inode(i) => view_file(i, self.body.part.dir),
            Target::Link(_) => unreachable!("a link was followed"),
        }
    }
}

/// Looks for the object meant, to read.
fn find(cx: &Context<'_>, meant: &Object) -> Result<Found, Stop> {
    let place = cx.place(&meant.dir, &meant.name);
    cx.require(cx.look_wants(&place))?;
    cx.enter_at(&place, &meant.dir, Access::EXEC)?;
    Found::of(cx, meant, LockMode::Shared)
}

fn change(
    cx: &mut Context<'_>,
    meant: &Object,
    attr: &XattrName,
    how: impl FnOnce(&mut XattrSet) -> Result<(), Errno>,
) -> Result<Answer, Stop> {
    let place = cx.place(&meant.dir, &meant.name);
    cx.require(cx.entry_wants(&place, LockMode::Exclusive))?;
    cx.enter_at(&place, &meant.dir, Access::EXEC)?;
    let mut object = Found::of(cx, meant, LockMode::Exclusive)?;
    may(cx, &object.target, attr.space(), true)?;
    let old = load(cx, &object.body, &object.target)?;
    let mut set = old.clone();
    how(&mut set)?;
    // The value it has: ctime stays too, as ext4 has it.
    if set == old {
        return Ok(Answer::Entry(object.view(meant)));
    }
    let now = cx.inputs.now;
    store(cx, &object.body, &mut object.target, &set);
    match &mut object.target {
        Target::Dir(d) => {
            d.ctime = now;
            d.version += 1;
        }
        Target::Inode(i) => i.ctime = now,
        Target::Link(_) => {}
    }
    let shown = object.view(meant);
    let Found {
        body,
        ordinal,
        target,
    } = object;
    cx.update(body.key(), Record::Entry(Entry { ordinal, target }));
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
    let (kind, guard) = match target {
        Target::Dir(d) => (FileKind::Directory, d.guard()),
        Target::Inode(i) => (i.kind, i.guard()),
        Target::Link(_) => return Err(Errno::Io.into()),
    };
    may_xattr(cred, space, write, (kind, guard.perm, guard.uid), |want| {
        cred.may(want, &guard)
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
        .attachment(place.part, place.hash, &place.name, kind)
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
        Target::Link(_) => return,
    };
    *marks = marks.with_xattrs(!set.is_empty());
}

/// Takes the capabilities from a program whose bytes or owner change, whoever changes them: who ran it with
/// them trusted those (H146). As Linux does with `security.capability`.
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
