//! What a table brings into the tree: found in the records at the instant it is inserted, and taken over into
//! the model, also when that is made anew after a power failure.

use crate::tree::Tree;
use pando_format::{AttachmentKind, Key, Layout, Record, Target};
use pando_model::{Adopted, Brought, Content, Model, NodeId};
use pando_types::{Cred, DirId, Errno, FileKind, Name, Part, Timestamp};
use pando_wire::{Answer, Bulk, Bulked, Op, Outcome, Statement};
use std::collections::BTreeSet;

/// What an execution brought; nothing if it was no insertion.
pub fn brought(tree: &Tree, model: &Model, op: &Op, outcome: &Outcome) -> Option<Vec<Adopted>> {
    let (Op::Bulk { dir, .. }, Ok(Answer::Bulk(Bulked::Inserted { .. }))) = (op, outcome) else {
        return None;
    };
    let mut all = Vec::new();
    let mut left = vec![(dir.id, NodeId::new(dir.ino, dir.generation))];
    while let Some((dir, parent)) = left.pop() {
        for (key, record) in tree.entries_of(dir) {
            let (Key::Entry { hash, name, .. }, Record::Entry(entry)) = (key, record) else {
                continue;
            };
            let (ino, generation) = entry.target.identity();
            let id = NodeId::new(ino, generation);
            if let Target::Dir(d) = &entry.target {
                left.push((d.id, id));
            }
            let attached = |kind| match tree.get(&Key::Attachment {
                part: Part::whole(dir),
                hash: *hash,
                name: name.clone(),
                kind,
            }) {
                Some(Record::Attachment(bytes)) => bytes.0.clone(),
                _ => Vec::new(),
            };
            if model.attr(id).is_none()
                && let Some(new) = adopted(tree, (parent, name), &entry.target, attached)
            {
                all.push(new);
            }
        }
    }
    Some(all)
}

fn adopted(
    tree: &Tree,
    (parent, name): (NodeId, &Name),
    target: &Target,
    attached: impl Fn(AttachmentKind) -> Vec<u8>,
) -> Option<Adopted> {
    let (attr, version, what) = match target {
        Target::Dir(d) => {
            let touch = tree.touch(d.id).copied().unwrap_or_default();
            let attr = d.attr(&Default::default());
            let attr = pando_types::Attr {
                ctime: d.ctime,
                ..attr
            };
            (attr, 0, Brought::Dir(d.id, touch.stat, touch.explicit))
        }
        Target::Inode(i) => {
            let what = match (&i.layout, i.kind) {
                (Layout::Target(target), _) => Brought::Symlink(target.0.clone().into()),
                (Layout::LongTarget, _) => Brought::Symlink(attached(AttachmentKind::Target).into()),
                (Layout::Inline, _) => Brought::File(Content::inline(&attached(AttachmentKind::Data))),
                (_, FileKind::Regular) => Brought::File(Content::Sparse),
                _ => Brought::Special,
            };
            (i.attr(), i.version, what)
        }
        Target::Link(_) => return None,
    };
    Some(Adopted {
        parent,
        name: name.clone(),
        attr,
        version,
        what,
    })
}

/// Takes over what an execution brought.
pub fn adopt(
    model: &mut Model,
    cred: &Cred,
    brought: Option<&[Adopted]>,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<(), String> {
    let (Some(brought), Ok(Answer::Bulk(Bulked::Inserted { entries }))) = (brought, outcome) else {
        return Ok(());
    };
    if brought.len() as u64 != *entries {
        return Err(format!(
            "{entries} entries were inserted, and {} are there",
            brought.len()
        ));
    }
    let new: BTreeSet<NodeId> = brought.iter().map(id).collect();
    let grown: BTreeSet<NodeId> = brought.iter().map(|a| a.parent).collect();
    brought.iter().try_for_each(|a| model.adopt(cred.uid, a))?;
    for dir in grown.difference(&new) {
        model.grew(*dir, now);
    }
    Ok(())
}

fn id(new: &Adopted) -> NodeId {
    NodeId::new(new.attr.ino, new.attr.generation)
}

/// Whether a step may have come out so.
pub fn judge_step(
    model: &Model,
    cred: &Cred,
    (dir, step): (&Statement, &Bulk),
    outcome: &Outcome,
) -> Result<(), String> {
    let there = model.attr(NodeId::new(dir.ino, dir.generation));
    let wrong = || Err(format!("{outcome:?} with {there:?}"));
    let may = cred.may(pando_types::Access(3), &dir.guard());
    match (outcome, step) {
        (Ok(_), _) if there.is_none() || !may => wrong(),
        (Ok(Answer::Bulk(Bulked::Localized { .. })), Bulk::Localize)
            if there.is_some_and(|a| a.size == 0) =>
        {
            Ok(())
        }
        (Ok(Answer::Bulk(Bulked::Renewed { .. })), Bulk::Renew { .. })
        | (Ok(Answer::Bulk(Bulked::Inserted { .. })), Bulk::Insert { .. })
        | (Ok(Answer::Bulk(Bulked::Returned)), Bulk::Return { .. }) => Ok(()),
        (Err(Errno::Stale), _) => match (there, step) {
            (Some(_), Bulk::Localize) => wrong(),
            _ => Ok(()),
        },
        (Err(Errno::Access), _) if !may => Ok(()),
        (Err(Errno::NotEmpty), Bulk::Localize) if there.is_some_and(|a| a.size > 0) => Ok(()),
        (Err(Errno::Unsupported), Bulk::Localize) => Ok(()),
        // What a table is worth is judged by what comes of it.
        // Of a table that adds to others' directories it may be theirs that forbid it.
        (Err(Errno::Invalid | Errno::Exists | Errno::Io | Errno::Access), Bulk::Insert { .. }) => Ok(()),
        _ => wrong(),
    }
}

/// Whether somebody did something in a directory that another has localised.
pub fn intrudes(tree: &Tree, op: &Op, outcome: &Outcome) -> Result<(), String> {
    let inside = |dir: DirId| tree.get(&Key::Local(dir.into())).is_some();
    let looks_from_outside = matches!(op, Op::DirStat { .. } | Op::Reopen { .. } | Op::Bulk { .. })
        || op.means_itself().is_some()
        || matches!(op, Op::Publish { .. } | Op::Accessed { .. });
    match op.statements().into_iter().flatten().find(|s| inside(s.id)) {
        Some(dir) if outcome.is_ok() && !looks_from_outside => {
            Err(format!("{} is somebody's who has localised it", dir.id))
        }
        _ => Ok(()),
    }
}
