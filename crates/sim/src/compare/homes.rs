//! Files at home: what may be said of them, and what is learnt from it.

use pando_model::{Model, NodeId};
use pando_types::Errno;
use pando_wire::{Answer, Op, Outcome, Statement, Subject};

/// Whether an operation means the file whose home it shows.
pub(super) fn means(op: &Op, home: &Statement) -> bool {
    op.object().is_none_or(|o| o.id() == (home.ino, home.generation))
}

/// Whether it takes the home of a file for a directory, or for that of another file.
pub(super) fn abuses_a_home(op: &Op) -> bool {
    let [first, second] = op.statements().map(|s| s.filter(|s| s.id.is_homes()));
    let looks_or_changes = !matches!(
        op,
        Op::Create { .. }
            | Op::Tmpfile { .. }
            | Op::Symlink { .. }
            | Op::Mkdir { .. }
            | Op::Rmdir { .. }
            | Op::Unlink { .. }
            | Op::UnlinkMany { .. }
            | Op::Rename { .. }
    );
    let name = op.subjects()[0].and_then(Subject::name);
    let right = looks_or_changes && first.is_none_or(|s| name == Some(&s.name));
    second.is_some() || first.is_some() && !right
}

/// A file at home is as it is. That it is not there may be, as far as the tree goes: who has it open knows
/// better (`keeper`).
pub(super) fn judge_home(model: &Model, id: NodeId, outcome: &Outcome) -> Result<(), String> {
    match (model.attr(id), outcome) {
        (_, Err(Errno::Stale)) => Ok(()),
        (Some(attr), Ok(Answer::Entry(e))) if super::uncounted(e.attr) == attr && e.home.is_some() => Ok(()),
        (expected, _) => Err(format!("expected {expected:?}, got {outcome:?}")),
    }
}

/// What an outcome says of files without a name: that one stays, because it may be open.
pub(super) fn learn_open(model: &mut Model, outcome: &Outcome) {
    let gone = match outcome {
        Ok(Answer::Removed(e)) => Some(e),
        Ok(Answer::Renamed { other, .. }) => other.as_deref(),
        _ => None,
    };
    match gone {
        Some(e) if e.dir.is_none() && e.attr.nlink == 0 && e.home.is_some() => {
            model.stays_open(NodeId::new(e.attr.ino, e.attr.generation));
        }
        _ => {}
    }
}
