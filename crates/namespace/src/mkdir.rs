//! mkdir: an access record with the parent, a head and a touch on the child's own slot (InfiniFS §3.2).

use crate::acl;
use crate::births::{birth_want, free_version};
use crate::context::{Context, Fresh, view_dir};
use crate::snapshot::Stop;
use pando_format::{AccessRecord, Head, Key, Marks, Record, Target, Touch};
use pando_types::{Access, Acls, Birth, DirId, DirStat, Errno, Ids, Mode, Name, Perm};
use pando_wire::{Answer, Statement};

/// The birth of a new directory, and its ID: the hash of the birth, or a place that the server has drawn.
fn born_as(cx: &Context<'_>, dir: &Statement, name: &Name, fresh: &Fresh) -> Result<(Birth, DirId), Stop> {
    let birth = |version| Birth {
        parent: dir.id,
        name: name.clone(),
        version,
    };
    match cx.inputs.ids {
        Ids::Predicted => {
            let birth = birth(free_version(cx.snapshot, dir.id, name, fresh.floor)?);
            let id = cx.inputs.widths.dir_id(&birth);
            Ok((birth, id))
        }
        // No name is in it, so no list of names needs be kept.
        Ids::Placed => Ok((birth(0), fresh.placed.ok_or(Errno::Io)?)),
    }
}

/// Creates a directory. A predicted ID is the hash of its birth, with the smallest version that no directory
/// has which was born under this name and renamed since (H2). A server that has content of another birth
/// under that ID refuses the insert. The caller asks again, from the next version on (H7).
pub(crate) fn mkdir(cx: &mut Context<'_>, dir: &Statement, name: &Name, mode: Mode) -> Result<Answer, Stop> {
    let place = cx.place(dir, name);
    let mut wants = cx.change_wants(&place);
    wants.extend(birth_want(cx, dir.id, name));
    cx.require(wants)?;
    cx.enter_at(&place, dir, Access::EXEC)?;
    if cx.entry(&place).is_some() {
        return Err(Errno::Exists.into());
    }
    cx.change_at(&place, dir)?;
    let fresh = cx.fresh()?;
    let now = cx.inputs.now;
    let (birth, id) = born_as(cx, dir, name, &fresh)?;
    let setgid = dir.perm.has(Perm::SETGID);
    let (perm, access) = acl::inherited(dir, mode);
    let salt = if pando_types::plant!(H1) { 0 } else { fresh.salt };
    let access = AccessRecord {
        id,
        generation: fresh.generation,
        ino: fresh.ino,
        // As Linux does: mkdir honours the permission bits and the sticky bit; set-gid comes from the parent
        // only.
        perm: Perm::new((perm.bits() & 0o1777) | if setgid { Perm::SETGID } else { 0 }),
        uid: cx.inputs.cred.uid,
        gid: if setgid { dir.gid } else { cx.inputs.cred.gid },
        ctime: now,
        realm: dir.realm,
        salt,
        version: 0,
        marks: Marks::NONE,
        seal: 0,
        acls: Acls {
            access,
            default: dir.acls.default.clone(),
        },
    };
    let head = Head {
        generation: fresh.generation,
        ino: fresh.ino,
        birth,
        parent: dir.id,
        parent_generation: dir.generation,
        name: name.clone(),
        realm: dir.realm,
        salt,
        split: 0,
        seal: 0,
        listed: false,
    };
    let stat = DirStat::born(now);
    let shown = view_dir(dir, name, &access);
    cx.link(&place, Target::Dir(access))?;
    cx.insert(Key::Head(id.into()), Record::Head(head));
    cx.insert(
        Key::Touch(id.into()),
        Record::Touch(Touch {
            stat,
            explicit: false,
        }),
    );
    Ok(Answer::Entry(shown))
}
