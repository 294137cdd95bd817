//! Operations on all parts of a directory: its attributes, its times, its end.
//!
//! Each locks the list of the directory's parts against cuts, and then head and touch of every part (H33,
//! H304).

use crate::context::Context;
use crate::snapshot::Stop;
use pando_format::{Key, Record, Touch};
use pando_types::{DirId, DirStat, Division, Errno, Generation, Part, plant};
use pando_wire::{LockMode, LockWant};

/// Whether directories are split.
fn splits(cx: &Context<'_>) -> bool {
    cx.inputs.division == Division::Halves
}

/// The parts of a directory that is to go, which nobody splits any more.
pub(crate) fn content_parts(cx: &Context<'_>, dir: DirId) -> Result<Vec<Part>, Stop> {
    if plant!(H33) {
        return Ok(vec![Part::whole(dir)]);
    }
    if splits(cx) {
        cx.require(vec![LockWant::Key(Key::Parts(dir), LockMode::Exclusive)])?;
    }
    cx.parts_of(dir)
}

/// Wants their heads and touches, and to know what they have left behind.
pub(crate) fn content_wants(cx: &Context<'_>, parts: &[Part]) -> Vec<LockWant> {
    let mut wants = Vec::with_capacity(3 * parts.len());
    for part in parts {
        wants.push(LockWant::Key(Key::Head(*part), LockMode::Exclusive));
        wants.push(LockWant::Key(Key::Touch(*part), LockMode::Exclusive));
        if splits(cx) {
            wants.push(LockWant::Key(Key::PartNote(*part), LockMode::Shared));
        }
    }
    wants
}

/// Deletes the content of an empty directory. REQUIRES: [`content_wants`].
pub(crate) fn drop_content(cx: &mut Context<'_>, parts: &[Part], generation: Generation) -> Result<(), Stop> {
    for part in parts {
        match (cx.snapshot.part(*part), cx.snapshot.touch(*part)) {
            (Some(head), Some(touch)) if head.generation == generation => {
                if head.localised {
                    cx.not_localised(*part)?;
                }
                if touch.stat.entries > 0 {
                    return Err(Errno::NotEmpty.into());
                }
            }
            // An access record whose content is missing is damage; fsck reports it.
            _ => return Err(Errno::Io.into()),
        }
        // What it gave away is deleted first: else it would be there again with the next directory (H302).
        if cx.snapshot.get(&Key::PartNote(*part)).is_some() {
            return Err(Stop::Busy);
        }
    }
    for part in parts {
        cx.delete(Key::Head(*part));
        cx.delete(Key::Touch(*part));
    }
    if let ([first, _, ..], true) = (parts, splits(cx)) {
        cx.delete(Key::Parts(first.dir));
    }
    Ok(())
}

/// Counts and times of a directory, of all its parts at one moment. `mode`: how their touches are locked.
pub(crate) fn stat(cx: &Context<'_>, dir: DirId, mode: LockMode) -> Result<DirStat, Stop> {
    let parts = cx.parts_of(dir)?;
    let touches = touches(cx, &parts, mode, Errno::Stale)?;
    Ok(joined(touches.iter().map(|(_, touch)| *touch)))
}

/// The touches of these parts. `missing`: what is said if there is none.
pub(crate) fn touches(
    cx: &Context<'_>,
    parts: &[Part],
    mode: LockMode,
    missing: Errno,
) -> Result<Vec<(Part, Touch)>, Stop> {
    let want = |part: &Part| LockWant::Key(Key::Touch(*part), mode);
    cx.require(parts.iter().map(want).collect())?;
    let touch = |part: &Part| Some((*part, *cx.snapshot.touch(*part)?));
    let all: Option<Vec<(Part, Touch)>> = parts.iter().map(touch).collect();
    Ok(all.ok_or(missing)?)
}

/// Counts are sums; of times the largest counts. A time that was set counts only if nothing has changed
/// since, in any part (H306).
pub(crate) fn joined(touches: impl Iterator<Item = Touch>) -> DirStat {
    let mut all: Option<Touch> = None;
    for touch in touches {
        let Some(all) = &mut all else {
            all = Some(touch);
            continue;
        };
        all.stat.entries += touch.stat.entries;
        all.stat.subdirs += touch.stat.subdirs;
        all.stat.atime = all.stat.atime.max(touch.stat.atime);
        all.stat.ctime = all.stat.ctime.max(touch.stat.ctime);
        let explicit = |t: &Touch| t.explicit && !plant!(H306);
        match (explicit(all), explicit(&touch)) {
            (true, false) => all.stat.mtime = touch.stat.mtime,
            (false, true) => {}
            (true, true) | (false, false) => all.stat.mtime = all.stat.mtime.max(touch.stat.mtime),
        }
        all.explicit &= touch.explicit;
    }
    all.map_or_else(DirStat::default, |touch| touch.stat)
}

/// Sets times of a directory in all its parts, in one transaction (H306).
pub(crate) fn set_times(cx: &mut Context<'_>, dir: DirId, change: impl Fn(&mut Touch)) -> Result<(), Stop> {
    let parts = cx.parts_of(dir)?;
    for (part, mut touch) in touches(cx, &parts, LockMode::Exclusive, Errno::Io)? {
        change(&mut touch);
        cx.update(Key::Touch(part), Record::Touch(touch));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::Timestamp;

    fn touch(entries: u64, mtime: i64, explicit: bool) -> Touch {
        let at = |secs| Timestamp { secs, nanos: 0 };
        Touch {
            stat: DirStat {
                entries,
                subdirs: 1,
                mtime: at(mtime),
                ..DirStat::born(at(1))
            },
            explicit,
        }
    }

    #[test]
    fn a_time_that_was_set_gives_way_to_any_change_since() {
        let of = |touches: &[Touch]| joined(touches.iter().copied()).mtime.secs;
        let (set, older, newer) = (touch(1, 50, true), touch(2, 40, false), touch(3, 60, false));
        assert_eq!(of(&[set, set]), 50);
        assert_eq!((of(&[set, older]), of(&[older, set])), (40, 40));
        assert_eq!((of(&[older, set, newer]), of(&[newer, older, set])), (60, 60));
        let all = joined([set, older, newer].into_iter());
        assert_eq!((all.entries, all.subdirs), (6, 3));
    }
}
