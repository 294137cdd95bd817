//! unlink, rmdir, and what happens to the data of removed files.

use crate::attached::drop_all;
use crate::births::relist;
use crate::context::{Context, Place, view_dir};
use crate::list::Listed;
use crate::parts::{content_parts, content_wants, drop_content};
use crate::snapshot::Stop;
use pando_format::{GarbageRecord, Key, Record, Target};
use pando_types::{Access, Errno, FileKind, Generation, Ino, Name, Part, Slot, plant};
use pando_wire::{Answer, Fate, LockMode, LockWant, Statement, UNLINK_MAX};
use std::collections::BTreeSet;

/// Removes a name that is not a directory's.
pub(crate) fn unlink(cx: &mut Context<'_>, dir: &Statement, name: &Name, held: bool) -> Result<Answer, Stop> {
    let place = cx.place(dir, name);
    cx.require(cx.change_wants(&place))?;
    cx.enter_at(&place, dir, Access::EXEC)?;
    let entry = cx.entry(&place).ok_or(Errno::NotFound)?;
    cx.change_at(&place, dir)?;
    cx.sticky(dir, cx.owner(&place, entry, LockMode::Exclusive)?)?;
    let Some(file) = cx.file(&place, entry, LockMode::Exclusive)? else {
        return Err(Errno::IsDir.into());
    };
    let shown = cx.drop_name(&place, &file, held)?;
    cx.list(&place, Listed::Gone(file.inode.kind));
    Ok(Answer::Removed(shown))
}

/// Removes many names of one directory, one after the other, each as [`unlink`] would. All of it is in the
/// directory's slot: what has a home, or may be open, needs more and is left as it is (H177).
pub(crate) fn unlink_many(cx: &mut Context<'_>, dir: &Statement, names: &[Name]) -> Result<Answer, Stop> {
    if names.is_empty() || names.len() > UNLINK_MAX {
        return Err(Errno::Invalid.into());
    }
    let places: Vec<Place> = names.iter().map(|name| cx.place(dir, name)).collect();
    let part = places.first().map_or(Part::whole(dir.id), |place| place.part);
    cx.require(cx.change_all_wants(part, &places))?;
    // All of it is in the part that has the first name.
    if let Some(first) = places.first() {
        cx.enter_at(first, dir, Access::EXEC)?;
    }
    let mut gone: BTreeSet<&Name> = BTreeSet::new();
    let mut fates = Vec::with_capacity(places.len());
    for place in &places {
        let fate = match one_of_many(cx, dir, place, &gone) {
            Ok(fate) => fate,
            Err(Stop::Fail(errno)) => Fate::Not(errno),
            Err(stop) => return Err(stop),
        };
        if fate == Fate::Gone {
            gone.insert(&place.name);
        }
        fates.push(fate);
    }
    if !gone.is_empty() {
        cx.count(part, -(gone.len() as i32), 0);
    }
    Ok(Answer::Fates(fates))
}

/// `gone`: what the same operation has removed already.
fn one_of_many(
    cx: &mut Context<'_>,
    dir: &Statement,
    place: &Place,
    gone: &BTreeSet<&Name>,
) -> Result<Fate, Stop> {
    if cx.enter_at(place, dir, Access::EXEC).is_err() {
        return Ok(Fate::Alone);
    }
    let there = cx.entry(place).filter(|_| !gone.contains(&place.name));
    let entry = there.ok_or(Errno::NotFound)?;
    cx.change_at(place, dir)?;
    if matches!(entry.target, Target::Link(_)) {
        if plant!(H177) {
            cx.delete(place.key());
            cx.line(place, Listed::Gone(FileKind::Regular));
            return Ok(Fate::Gone);
        }
        return Ok(Fate::Alone);
    }
    cx.sticky(dir, cx.owner(place, entry, LockMode::Exclusive)?)?;
    let Some(file) = cx.file(place, entry, LockMode::Exclusive)? else {
        return Err(Errno::IsDir.into());
    };
    if cx.is_open(&file) {
        return Ok(Fate::Alone);
    }
    cx.drop_name(place, &file, false)?;
    cx.line(place, Listed::Gone(file.inode.kind));
    Ok(Fate::Gone)
}

/// Removes an empty directory: its access record, head, touch and its version on a rename list in one
/// transaction (H4). The head's exclusive lock from the emptiness check to the commit keeps creates out
/// (H32).
pub(crate) fn rmdir(cx: &mut Context<'_>, dir: &Statement, name: &Name) -> Result<Answer, Stop> {
    let place = cx.place(dir, name);
    cx.require(cx.change_wants(&place))?;
    cx.enter_at(&place, dir, Access::EXEC)?;
    let entry = cx.entry(&place).ok_or(Errno::NotFound)?;
    cx.change_at(&place, dir)?;
    cx.sticky(dir, cx.owner(&place, entry, LockMode::Shared)?)?;
    let Target::Dir(access) = &entry.target else {
        return Err(Errno::NotDir.into());
    };
    let parts = content_parts(cx, access.id)?;
    cx.require(content_wants(cx, &parts))?;
    relist(cx, &[], &[access.id])?;
    drop_content(cx, &parts, access.generation)?;
    drop_all(cx, &place, &entry.target);
    cx.delete(place.key());
    cx.list(&place, Listed::Gone(FileKind::Directory));
    Ok(Answer::Removed(view_dir(dir, name, access)))
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
