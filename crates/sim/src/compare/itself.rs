//! Directories by themselves, and directories that are gone.

use super::uncounted;
use crate::tree::Tree;
use pando_cluster::ClusterMap;
use pando_model::{Model, NodeId};
use pando_types::{Cred, Division, Errno, Ino};
use pando_wire::{Answer, Op, Outcome, Statement};

/// Whether it looks at an entry, placed by itself, of a directory that is not there any more.
pub(super) fn is_gone(op: &Op, tree: &Tree, map: &ClusterMap) -> bool {
    let gone = |dir: &Statement| {
        tree.head(dir.id)
            .is_none_or(|head| head.generation != dir.generation)
    };
    map.placement.division() == Division::OneByOne
        && op.changes_names_in().is_none()
        && op.statements()[0].is_some_and(gone)
}

/// A directory that is changed by itself. Of those who speak here only a hostile client does so, whose
/// directory it is not.
pub(super) fn judge_itself(
    model: &Model,
    cred: &Cred,
    dir: &Statement,
    outcome: &Outcome,
) -> Result<(), String> {
    match (model.attr(NodeId::new(dir.ino, dir.generation)), outcome) {
        (None, Err(Errno::Stale)) => Ok(()),
        (Some(attr), Err(Errno::Perm)) if !cred.is_root() && cred.uid != attr.uid => Ok(()),
        (attr, outcome) => Err(format!(
            "of {attr:?}, changed by itself for uid {}, {outcome:?}",
            cred.uid
        )),
    }
}

/// A directory that is open shows its access half, and of where it is what the caller said.
pub(super) fn judge_reopened(model: &Model, dir: &Statement, outcome: &Outcome) -> Result<(), String> {
    // Who asks for the root of an identity says no inode number.
    let ino = match outcome {
        Ok(Answer::Entry(e)) if dir.ino == Ino(0) => e.attr.ino,
        _ => dir.ino,
    };
    match (model.view(NodeId::new(ino, dir.generation)), outcome) {
        (None, Err(Errno::Stale)) => Ok(()),
        (Some(view), Ok(Answer::Entry(e))) if uncounted(e.attr) == view.attr => {
            let same = e.dir.as_ref().is_some_and(|s| {
                let (a, said) = (&view.attr, (&dir.parent, dir.parent_generation, &dir.name));
                s.is_of(dir.id, dir.generation)
                    && (a.perm, a.uid, a.gid) == (s.perm, s.uid, s.gid)
                    && view.acls == s.acls
                    && (&s.parent, s.parent_generation, &s.name) == said
            });
            if same {
                Ok(())
            } else {
                Err(format!("statement of {outcome:?}"))
            }
        }
        (expected, _) => Err(format!("expected {expected:?}, got {outcome:?}")),
    }
}
