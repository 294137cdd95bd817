//! Many names that were removed in one request: each as by itself, in the order they were given, all at one
//! moment.

use super::{dir_ref, lists};
use pando_model::{Model, ModelAnswer, ModelOp};
use pando_types::{Cred, Errno, FileKind, Name, Timestamp};
use pando_wire::{Answer, Fate, Outcome, Statement, UNLINK_MAX};

/// Applies them to the model, and compares what became of each. `same_part`: whether a name is in the part of
/// the directory that has the first one.
pub(super) fn judge_removals(
    model: &mut Model,
    cred: &Cred,
    dir: &Statement,
    names: &[Name],
    now: Timestamp,
    outcome: &Outcome,
    same_part: impl Fn(&Name) -> bool,
) -> Result<(), String> {
    let asked = 1..=UNLINK_MAX;
    if !asked.contains(&names.len()) {
        return match outcome {
            Err(Errno::Invalid) => Ok(()),
            other => Err(format!("{} names, but {other:?}", names.len())),
        };
    }
    let fates = match outcome {
        Ok(Answer::Fates(fates)) if fates.len() == names.len() => fates,
        Ok(other) => return Err(format!("{} names, but {other:?}", names.len())),
        // Nothing in it is for this caller, or it is not there.
        Err(errno) => {
            let mut each = names.iter().map(|name| by_itself(model, cred, dir, name, now));
            let differs = each.find(|expected| expected.as_ref().err() != Some(errno));
            return match differs {
                Some(expected) => Err(format!("all fail with {errno:?}, expected {expected:?}")),
                None => Ok(()),
            };
        }
    };
    for (name, fate) in names.iter().zip(fates) {
        // What is in another part is for another request.
        if *fate == Fate::Alone && !same_part(name) {
            continue;
        }
        if *fate == Fate::Alone {
            let id = dir_ref(dir).id;
            let there = model.child(id, name).and_then(|id| model.attr(id));
            match there.map(|attr| attr.kind) {
                Some(FileKind::Directory) | None => {
                    return Err(format!("{name} is to be removed by itself, and is no file"));
                }
                Some(_) => continue,
            }
        }
        let expected = by_itself(model, cred, dir, name, now);
        match (fate, &expected) {
            (Fate::Gone, Ok(ModelAnswer::Removed(_))) => {}
            (Fate::Not(got), Err(errno)) if got == errno && *got != Errno::Stale => {}
            _ => return Err(format!("{name}: expected {expected:?}, got {fate:?}")),
        }
    }
    Ok(())
}

fn by_itself(
    model: &mut Model,
    cred: &Cred,
    dir: &Statement,
    name: &Name,
    now: Timestamp,
) -> Result<ModelAnswer, Errno> {
    let op = ModelOp::Unlink {
        dir: dir_ref(dir),
        name: name.clone(),
    };
    model.apply_by(lists([Some(dir), None]), cred, &op, now, None)
}
