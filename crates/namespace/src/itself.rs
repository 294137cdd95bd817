//! A directory by itself: found by its content, which knows its parent and name. Who has a directory open, or as root, asks so.

use crate::context::Context;
use crate::snapshot::Stop;
use pando_format::Key;
use pando_types::{DirId, Errno, Name};
use pando_wire::{Answer, LockMode, LockWant, Op, Said, Statement};

/// Where a directory has its name, as a statement that lets everybody search it, and the name. Neither is for callers to hear.
pub(crate) fn whereabouts(cx: &Context<'_>, dir: &Statement) -> Result<(Statement, Name), Stop> {
    cx.require(vec![LockWant::Key(Key::Head(dir.id), LockMode::Shared)])?;
    let head = cx.snapshot.head(dir.id);
    let head = head
        .filter(|h| h.generation == dir.generation)
        .ok_or(Errno::Stale)?;
    let mut parent = Statement::from(Said {
        id: head.parent,
        generation: head.parent_generation,
        ..Said::above_root()
    });
    if parent.id != DirId::ABOVE_ROOT {
        cx.require(vec![LockWant::Key(Key::Head(parent.id), LockMode::Shared)])?;
        parent.salt = cx.snapshot.head(parent.id).ok_or(Errno::Io)?.salt;
    }
    Ok((parent, head.name.clone()))
}

/// What a caller has said of where a directory is.
pub(crate) fn said_above(dir: &Statement) -> Statement {
    Statement::from(Said {
        id: dir.parent,
        generation: dir.parent_generation,
        ..Said::above_root()
    })
}

/// Does to a directory what is asked of it by itself. Whether the caller may is decided by the directory's own record; that it may come to
/// it, the statement shows.
pub(crate) fn carry_out(cx: &mut Context<'_>, op: &Op, dir: &Statement) -> Result<Answer, Stop> {
    let (parent, name) = whereabouts(cx, dir)?;
    let mut there = op.clone();
    if let Op::SetAttr { name: at, .. }
    | Op::GetXattr { name: at, .. }
    | Op::ListXattr { name: at, .. }
    | Op::SetXattr { name: at, .. }
    | Op::RemoveXattr { name: at, .. }
    | Op::SetAcl { name: at, .. } = &mut there
    {
        *at = name;
    }
    there
        .statements_mut()
        .into_iter()
        .flatten()
        .for_each(|s| *s = parent.clone());
    let mut answer = crate::carry_out(cx, &there)?;
    if let Answer::Entry(view) = &mut answer
        && let Some(shown) = &mut view.dir
    {
        let mut said = Said::clone(shown);
        (said.parent, said.parent_generation, said.name) =
            (dir.parent, dir.parent_generation, dir.name.clone());
        *shown = Statement::from(said);
    }
    Ok(answer)
}
