//! The wire's operations and answers in the model's words.

mod homes;
mod itself;
mod many;

use crate::tree::Tree;
use homes::{abuses_a_home, judge_home, learn_open, means};
use itself::{is_gone, judge_itself, judge_reopened};
use many::judge_removals;
use pando_cluster::ClusterMap;
use pando_format::{Codec, Layout, Position, Target, XattrSet};
use pando_model::{
    Body, Content, DirRef, Fresh, Model, ModelAnswer, ModelOp, NodeId, RenameMode, SIZE_MAX, View,
};
use pando_types::{
    Access, Acls, Attr, Cred, DirId, Division, Errno, FileKind, Ino, Name, Timestamp, XattrMode,
};
use pando_wire::{Answer, DirEntry, EntryView, Object, Op, Outcome, Statement, Subject};

/// The same of an operation that was judged when it was executed. The tree is a later one: which names were
/// in another part then is not known any more.
pub fn judge_again(
    model: &mut Model,
    tree: &Tree,
    map: &ClusterMap,
    cred: &Cred,
    op: &Op,
    now: Timestamp,
    outcome: &Outcome,
) -> Result<(), String> {
    if let Op::UnlinkMany { dir, names } = op {
        return judge_removals(model, cred, dir, names, now, outcome, |_| false);
    }
    judge(model, tree, map, cred, op, now, outcome)
}

/// Applies an operation that was executed to the model, and compares every field of the outcome. `tree` gives
/// the positions of entries, which the model leaves to the implementation.
pub fn judge(
    model: &mut Model,
    tree: &Tree,
    map: &ClusterMap,
    cred: &Cred,
    op: &Op,
    now: Timestamp,
    outcome: &Outcome,
) -> Result<(), String> {
    if *outcome == Err(Errno::Io) {
        return Err("EIO from a sound device".into());
    }
    if abuses_a_home(op) {
        return match outcome {
            Err(Errno::Perm) => Ok(()),
            other => Err(format!("the home of a file is no directory, but {other:?}")),
        };
    }
    if let Op::ReadDir {
        dir,
        after,
        limit,
        plus,
    } = op
    {
        return judge_page(model, tree, map, cred, dir, (*after, *limit, *plus), outcome);
    }
    if let Op::UnlinkMany { dir, names } = op {
        let part = |name: &Name| tree.part_with(dir.id, map.widths().name(dir.salt, name).upper());
        let together = map.placement.division() == Division::OneByOne;
        let same_part = |name: &Name| together || names.first().map(part) == Some(part(name));
        return judge_removals(model, cred, dir, names, now, outcome, same_part);
    }
    if let Op::Bulk { dir, step } = op {
        return crate::adopted::judge_step(model, cred, (dir, step), outcome);
    }
    if let Op::Reopen { dir } = op {
        return judge_reopened(model, dir, outcome);
    }
    if let Some(dir) = op.means_itself() {
        return judge_itself(model, cred, dir, outcome);
    }
    if let Op::Home { ino, generation, .. } = op {
        return judge_home(model, NodeId::new(*ino, *generation), outcome);
    }
    if let Err(Errno::NotFound | Errno::Stale) = outcome
        && let Some(home) = op.statements()[0].filter(|s| s.id.is_homes())
        && let Some(attr) = model.attr(NodeId::new(home.ino, home.generation))
    {
        if attr.nlink == 0 {
            // It has gone; or it is there without a name, and gets none; or another file was meant.
            if !matches!(op, Op::Link { .. }) && means(op, home) {
                model.closed(NodeId::new(home.ino, home.generation));
            }
            return Ok(());
        }
        // In `async` a power failure has undone that it moved there, after that was told: it is under its
        // name, where who asks looks next. (That a name of what is at home leads there is the tree's to
        // check.)
        if !tree.is_at_home(home) {
            return Ok(());
        }
    }
    learn_open(model, outcome);
    let Some(model_op) = model_op(op, map.inline_limit) else {
        // Release, StatFs, Sync: not part of the tree.
        return match outcome {
            Ok(Answer::Done | Answer::FsStat(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        };
    };
    let said = lists(op.statements());
    let expected = model.apply_by(said, cred, &model_op, now, fresh(outcome, map));
    match (&expected, outcome) {
        // Who looks at an entry alone, where it is, cannot tell a directory that is gone from an empty one.
        (Err(Errno::Stale), Err(Errno::NotFound | Errno::Access)) if is_gone(op, tree, map) => Ok(()),
        both => same_outcome(both, op, cred, map),
    }
}

fn same_outcome(
    (expected, outcome): (&Result<ModelAnswer, Errno>, &Outcome),
    op: &Op,
    cred: &Cred,
    map: &ClusterMap,
) -> Result<(), String> {
    match (expected, outcome) {
        (Err(a), Err(b)) if a == b => Ok(()),
        (Ok(a), Ok(b)) => {
            same_answer(a, b, op, cred, map).map_err(|e| format!("{e}; expected {a:?}, got {b:?}"))
        }
        (a, b) => Err(format!("expected {a:?}, got {b:?}")),
    }
}

/// `None` for what is not part of the tree.
fn model_op(op: &Op, inline_limit: u32) -> Option<ModelOp> {
    Some(match op {
        Op::Lookup { dir, name } => ModelOp::Lookup {
            dir: dir_ref(dir),
            name: name.clone(),
        },
        Op::Bulk { .. } | Op::StatFs | Op::Sync => return None,
        Op::DirStat { dir } => ModelOp::DirStat { dir: dir_ref(dir) },
        Op::ReadLink { dir, name } => ModelOp::ReadLink {
            dir: dir_ref(dir),
            name: name.clone(),
        },
        Op::Open { dir, name, want } => ModelOp::Open {
            dir: dir_ref(dir),
            name: name.clone(),
            want: Access(*want & 7),
        },
        Op::Create {
            dir,
            name,
            mode,
            exclusive,
            want,
        } => ModelOp::Create {
            dir: dir_ref(dir),
            name: name.clone(),
            mode: *mode,
            exclusive: *exclusive,
            want: Access(*want & 7),
        },
        Op::Tmpfile { dir, mode, linkable } => ModelOp::Tmpfile {
            dir: dir_ref(dir),
            mode: *mode,
            linkable: *linkable,
        },
        Op::Symlink { dir, name, target } => ModelOp::Symlink {
            dir: dir_ref(dir),
            name: name.clone(),
            target: target.0.clone(),
        },
        Op::Mknod {
            dir,
            name,
            kind,
            mode,
            rdev,
        } => ModelOp::Mknod {
            dir: dir_ref(dir),
            name: name.clone(),
            kind: *kind,
            mode: *mode,
            rdev: *rdev,
        },
        Op::Mkdir { dir, name, mode } => ModelOp::Mkdir {
            dir: dir_ref(dir),
            name: name.clone(),
            mode: *mode,
        },
        Op::Rmdir { dir, name } => ModelOp::Rmdir {
            dir: dir_ref(dir),
            name: name.clone(),
        },
        Op::Unlink { dir, name, .. } => ModelOp::Unlink {
            dir: dir_ref(dir),
            name: name.clone(),
        },
        Op::SetAttr {
            object,
            change,
            handle,
        } => ModelOp::SetAttr {
            dir: dir_ref(&object.dir),
            name: object.name.clone(),
            id: node_of(object),
            change: *change,
            through_handle: handle.is_some(),
        },
        Op::GetXattr { object, attr } => ModelOp::GetXattr {
            dir: dir_ref(&object.dir),
            name: object.name.clone(),
            id: node_of(object),
            attr: attr.clone(),
        },
        Op::ListXattr { object } => ModelOp::ListXattr {
            dir: dir_ref(&object.dir),
            name: object.name.clone(),
            id: node_of(object),
        },
        Op::SetXattr {
            object,
            attr,
            value,
            mode,
        } => ModelOp::SetXattr {
            dir: dir_ref(&object.dir),
            name: object.name.clone(),
            id: node_of(object),
            attr: attr.clone(),
            value: Some(value.0.clone()),
            mode: *mode,
        },
        Op::RemoveXattr { object, attr } => ModelOp::SetXattr {
            dir: dir_ref(&object.dir),
            name: object.name.clone(),
            id: node_of(object),
            attr: attr.clone(),
            value: None,
            mode: XattrMode::Replace,
        },
        Op::SetAcl { object, kind, list } => ModelOp::SetAcl {
            dir: dir_ref(&object.dir),
            name: object.name.clone(),
            id: node_of(object),
            kind: *kind,
            list: list.clone(),
        },
        Op::Publish {
            object,
            handle: _,
            content,
            size,
            mtime,
            base,
        } => ModelOp::Publish {
            dir: dir_ref(&object.dir),
            name: object.name.clone(),
            id: node_of(object),
            content: match content {
                pando_wire::Content::None => Content::Sparse,
                pando_wire::Content::Inline(b) => Content::Bytes(b.0.clone().into()),
                pando_wire::Content::Blocks(size) => Content::Blocks(*size),
                pando_wire::Content::Sparse { block_size, .. } => Content::Blocks(*block_size),
            },
            size: match content {
                // The model knows no inline limit. Too long is as wrong as longer than the file.
                pando_wire::Content::Inline(b) if b.0.len() > inline_limit as usize && *size <= SIZE_MAX => 0,
                _ => *size,
            },
            mtime: *mtime,
            base: *base,
        },
        Op::Accessed {
            object,
            proof: _,
            ago,
        } => ModelOp::Accessed {
            dir: dir_ref(&object.dir),
            name: object.name.clone(),
            id: node_of(object),
            ago: *ago,
        },
        Op::Rename {
            src,
            src_name,
            dst,
            dst_name,
            mode,
            ..
        } => ModelOp::Rename {
            src: dir_ref(src),
            src_name: src_name.clone(),
            dst: DirRef {
                second: true,
                ..dir_ref(dst)
            },
            dst_name: dst_name.clone(),
            mode: match mode {
                pando_wire::RenameMode::Replace => RenameMode::Replace,
                pando_wire::RenameMode::NoReplace => RenameMode::NoReplace,
                pando_wire::RenameMode::Exchange => RenameMode::Exchange,
            },
        },
        Op::Link {
            object,
            dst,
            dst_name,
        } => ModelOp::Link {
            src: dir_ref(&object.dir),
            src_name: object.name.clone(),
            id: node_of(object),
            dst: DirRef {
                second: true,
                ..dir_ref(dst)
            },
            dst_name: dst_name.clone(),
        },
        Op::ReadDir { .. }
        | Op::UnlinkMany { .. }
        | Op::Reopen { .. }
        | Op::Home { .. }
        | Op::Release { .. } => return None,
    })
}

/// A directory's ID as the model knows it. Shortened IDs of different birth triples collide, and then the
/// numbers of their slots tell two directories that lived one after the other apart no more: the inode number
/// does.
fn wide(map: &ClusterMap, id: DirId, ino: Ino) -> DirId {
    if map.id_bits < 64 && id != DirId::ROOT && id != DirId::ABOVE_ROOT {
        DirId(id.0 | u128::from(ino.0) << 64)
    } else {
        id
    }
}

fn node_of(object: &Object) -> NodeId {
    NodeId::new(object.ino, object.generation)
}

/// What statements say of lists.
fn lists(said: [Option<&Statement>; 2]) -> Vec<(NodeId, Acls)> {
    let said = said.into_iter().flatten();
    said.map(|s| (NodeId::new(s.ino, s.generation), s.acls.clone()))
        .collect()
}

fn dir_ref(s: &Statement) -> DirRef {
    DirRef {
        id: NodeId::new(s.ino, s.generation),
        dir_perm: Some((s.perm, s.uid, s.gid)),
        home: s.id.is_homes(),
        second: false,
    }
}

/// The identity an outcome shows, in case something was created.
fn fresh(outcome: &Outcome, map: &ClusterMap) -> Option<Fresh> {
    match outcome {
        Ok(Answer::Entry(e) | Answer::Opened { entry: e, .. }) => Some(Fresh {
            ino: e.attr.ino,
            generation: e.attr.generation,
            dir_id: e.dir.as_ref().map(|d| wide(map, d.id, d.ino)),
        }),
        _ => None,
    }
}

fn same_answer(
    expected: &ModelAnswer,
    got: &Answer,
    op: &Op,
    cred: &Cred,
    map: &ClusterMap,
) -> Result<(), String> {
    // (A link's answer shows no directory, and only a directory's name is compared.)
    let place = op.subjects()[0].and_then(Subject::name);
    match (expected, got) {
        (ModelAnswer::Identity(fault), _) => Err(fault.to_string()),
        (ModelAnswer::Entry(a), Answer::Entry(b)) => same_view(a, b, place, None, map),
        (
            ModelAnswer::Opened {
                entry: a,
                created: ca,
            },
            Answer::Opened {
                entry: b,
                data,
                created: cb,
                handle: _,
                proof: _,
                kept: _,
            },
        ) => {
            if ca != cb {
                return Err(format!("created is {cb}"));
            }
            // The bytes of what was there come with an open only: what may change something is kept with its
            // answer. Who opens for nothing, or to write, is shown them if it may read them.
            let create = matches!(op, Op::Create { .. } | Op::Tmpfile { .. });
            let nothing =
                matches!(op, Op::Open { want, .. } if want & (Access::READ.0 | Access::EXEC.0) == 0);
            let may = cred.may(Access::READ, &b.guard());
            if create || nothing && !may {
                return match data {
                    None => same_view(a, b, place, None, map),
                    Some(_) if create => Err("bytes with an answer that is kept".into()),
                    Some(_) => Err("bytes for who may not read them".into()),
                };
            }
            same_view(a, b, place, Some(data.as_ref().map(|d| d.0.as_slice())), map)
        }
        (ModelAnswer::Removed(a), Answer::Removed(b)) => same_view(a, b, place, None, map),
        (ModelAnswer::Renamed { moved: a, other: oa }, Answer::Renamed { moved: b, other: ob }) => {
            let Op::Rename {
                src_name,
                dst_name: dst,
                mode,
                ..
            } = op
            else {
                return Err("an answer to another operation".into());
            };
            let other = match mode {
                pando_wire::RenameMode::Exchange => src_name,
                pando_wire::RenameMode::Replace | pando_wire::RenameMode::NoReplace => dst,
            };
            same_view(a, b, Some(dst), None, map)?;
            match (oa, ob) {
                (None, None) => Ok(()),
                (Some(a), Some(b)) => same_view(a, b, Some(other), None, map),
                _ => Err("what was at the new name".into()),
            }
        }
        (ModelAnswer::DirStat(a), Answer::DirStat(b)) if a == b => Ok(()),
        (ModelAnswer::Target(a), Answer::Target(b)) if **a == *b.0 => Ok(()),
        (ModelAnswer::Value(a), Answer::Value(b)) if *a == b.0 => Ok(()),
        (ModelAnswer::Names(a), Answer::Names(b)) if a == b => Ok(()),
        _ => Err("another answer".into()),
    }
}

/// `data`: what an open answered as the file's inline bytes.
fn same_view(
    expected: &View,
    got: &EntryView,
    name: Option<&Name>,
    data: Option<Option<&[u8]>>,
    map: &ClusterMap,
) -> Result<(), String> {
    if expected.attr != uncounted(got.attr) {
        return Err("attributes".into());
    }
    let a = &expected.attr;
    match &got.home {
        None if a.kind != FileKind::Directory && a.nlink > 1 => return Err("no home".into()),
        Some(s)
            if !s.id.is_homes()
                || (s.ino, s.generation, &s.name)
                    != (a.ino, a.generation, &Name::home(a.ino, a.generation)) =>
        {
            return Err("home".into());
        }
        _ => {}
    }
    if expected.acls != got.acls() {
        return Err("access control lists".into());
    }
    if expected.xattrs != got.xattrs {
        return Err("whether it has extended attributes".into());
    }
    match (&expected.body, &got.dir) {
        (Body::Dir(identity), Some(s)) => {
            let a = &expected.attr;
            let same = identity.id == wide(map, s.id, s.ino)
                && identity.parent_id == wide(map, s.parent, identity.parent.ino)
                && identity.parent.generation == s.parent_generation
                && (a.ino, a.generation, a.perm, a.uid, a.gid) == (s.ino, s.generation, s.perm, s.uid, s.gid)
                && name.is_none_or(|n| *n == s.name);
            if same { Ok(()) } else { Err("statement".into()) }
        }
        (Body::File(content), None) => {
            let size = expected.attr.size;
            let shown = match (&got.layout, data) {
                (Layout::None, _) => Content::Sparse,
                (Layout::Blocks(block_size) | Layout::Sparse { block_size, .. }, _) => {
                    Content::Blocks(*block_size)
                }
                (Layout::Inline | Layout::SparseInline(_), Some(Some(bytes))) => Content::inline(bytes),
                (Layout::Inline | Layout::SparseInline(_), Some(None)) => {
                    return Err("inline data is missing".into());
                }
                (Layout::Inline | Layout::SparseInline(_), None)
                    if !matches!(content, Content::Blocks(_)) =>
                {
                    return Ok(());
                }
                _ => return Err("layout".into()),
            };
            if same_content(content, &shown, size) {
                Ok(())
            } else {
                Err("content".into())
            }
        }
        (Body::Symlink(target), None) => match &got.layout {
            Layout::Target(t) if *t.0 == **target => Ok(()),
            Layout::LongTarget => Ok(()),
            _ => Err("target".into()),
        },
        (Body::Special, None) if got.layout == Layout::None => Ok(()),
        _ => Err("kind".into()),
    }
}

/// How much is stored the model does not know.
pub(super) fn uncounted(attr: Attr) -> Attr {
    Attr { allocated: 0, ..attr }
}

/// A file of blocks that was cut to nothing still has its blocks, to be deleted with it; the model has
/// forgotten them.
fn same_content(expected: &Content, shown: &Content, size: u64) -> bool {
    expected.reads_like(shown, size) || matches!((expected, shown), (Content::Sparse, Content::Blocks(_)))
}

/// A page of a listing shows exactly the entries of one instant that stand in its stretch of positions.
fn judge_page(
    model: &mut Model,
    tree: &Tree,
    map: &ClusterMap,
    cred: &Cred,
    dir: &Statement,
    (after, limit, plus): (Position, u32, bool),
    outcome: &Outcome,
) -> Result<(), String> {
    let at = dir_ref(dir);
    // What a name stands for is for who may search the directory.
    let whole = plus && cred.may(Access::EXEC, &dir.guard());
    let said = lists([Some(dir), None]);
    let expected = model.apply_by(
        said,
        cred,
        &ModelOp::ReadDir { dir: at },
        Timestamp::default(),
        None,
    );
    let (entries, upto) = match (&expected, outcome) {
        (Err(a), Err(b)) if a == b => return Ok(()),
        (Ok(_), Ok(Answer::Entries { entries, end: true })) => (entries, Some(Position::END)),
        (Ok(_), Ok(Answer::Entries { entries, end: false })) => (entries, None),
        (Ok(_), Ok(Answer::Part { entries, upto })) => (entries, Some(*upto)),
        (a, b) => return Err(format!("expected {a:?}, got {b:?}")),
    };
    let mut there: Vec<(Position, Name)> = Vec::new();
    for l in model.list(at.id) {
        let hash = map.widths().name(dir.salt, &l.name);
        let Some(entry) = tree.entry(&(dir.id, hash, l.name.clone())) else {
            return Err(format!("{} is not on any disk in its bucket", l.name));
        };
        let position = Position::new(hash, entry.ordinal);
        if position > after {
            there.push((position, l.name));
        }
    }
    there.sort();
    let shown: Vec<(Position, Name)> = entries.iter().map(|e| (e.position, e.name.clone())).collect();
    // A server cuts pages at buckets, so one that is longer than asked for is right; an empty one that is not
    // the end would make a client ask for ever.
    if shown.is_empty() && upto.is_none_or(|upto| upto <= after) && after != Position::END && limit > 0 {
        return Err("an empty page before the end".into());
    }
    let expected = match upto {
        Some(upto) => {
            there.retain(|(position, _)| *position <= upto);
            &there[..]
        }
        None => &there[..shown.len().min(there.len())],
    };
    if shown != expected {
        return Err(format!(
            "listed {shown:?} (up to {upto:?}) where {there:?} follows {after:?}"
        ));
    }
    entries.iter().try_for_each(|e| {
        let place = (dir.id, map.widths().name(dir.salt, &e.name), e.name.clone());
        let at_home = tree
            .entry(&place)
            .is_some_and(|e| matches!(e.target, Target::Link(_)));
        same_line(model, at.id, e, at_home, whole, map)
    })
}

fn same_line(
    model: &Model,
    dir: NodeId,
    e: &DirEntry,
    at_home: bool,
    plus: bool,
    map: &ClusterMap,
) -> Result<(), String> {
    let view = model
        .child(dir, &e.name)
        .and_then(|id| model.view(id))
        .ok_or("a line of nothing")?;
    if !e.position.is_entry() || (e.ino, e.kind) != (view.attr.ino, view.attr.kind) {
        return Err(format!("the line of {} says {:?}, expected {view:?}", e.name, e));
    }
    let lines = map.placement.division() == Division::OneByOne && dir != NodeId::ABOVE_ROOT;
    match (&e.view, plus) {
        (None, false) => Ok(()),
        // What is at home has to be looked up, and what a list has as a line.
        (None, true) if at_home || lines => Ok(()),
        (Some(v), true) if !lines => {
            same_view(&view, v, Some(&e.name), None, map).map_err(|w| format!("{}: {w}", e.name))
        }
        _ => Err(format!(
            "{}: plus is {plus}, whole entry {}",
            e.name,
            e.view.is_some()
        )),
    }
}

/// Compares the whole tree on the disks with the model's.
pub fn whole_tree(model: &Model, tree: &Tree, map: &ClusterMap) -> Result<(), String> {
    use pando_format::{AttachmentKind, Key, Record};
    let mut seen = 0;
    for (key, record) in tree.records() {
        let (Key::Entry { part, hash, name }, Record::Entry(e)) = (key, record) else {
            continue;
        };
        let (id, layout, attr) = match &e.target {
            Target::Dir(d) => {
                let stat = tree.stat(d.id).unwrap_or_default();
                (NodeId::new(d.ino, d.generation), None, d.attr(&stat))
            }
            Target::Inode(i) => (
                NodeId::new(i.ino, i.generation),
                Some(&i.layout),
                uncounted(i.attr()),
            ),
            Target::Link(l) => {
                seen += 1;
                named(model, tree, NodeId::new(l.ino, l.generation), part.dir, name)?;
                continue;
            }
        };
        if !part.dir.is_homes() {
            seen += 1;
            named(model, tree, id, part.dir, name)?;
        }
        let vanished = || format!("{name} in {part:?}, {id:?}, is stored and should not be there");
        let expected = model.attr(id).ok_or_else(vanished)?;
        if expected != attr {
            return Err(format!(
                "{name} in {part:?}: expected {expected:?}, stored {attr:?}"
            ));
        }
        if let Target::Inode(i) = &e.target
            && model.version(id) != Some(i.version)
        {
            let expected = model.version(id);
            return Err(format!(
                "{name} in {part:?}: expected content {expected:?}, stored {}",
                i.version
            ));
        }
        let attachment = |kind| match tree.get(&Key::Attachment {
            part: *part,
            hash: *hash,
            name: name.clone(),
            kind,
        }) {
            Some(Record::Attachment(b)) => Some(b.0.clone()),
            _ => None,
        };
        let view = model.view(id).ok_or_else(vanished)?;
        let acls = match &e.target {
            Target::Dir(d) => d.acls.clone(),
            Target::Inode(i) => Acls {
                access: i.acl.clone(),
                default: None,
            },
            Target::Link(_) => Acls::default(),
        };
        if acls != view.acls {
            let expected = &view.acls;
            return Err(format!(
                "{name} in {part:?}: expected {expected:?}, stored {acls:?}"
            ));
        }
        let body = Some(view.body);
        let same = match (&body, layout) {
            (Some(Body::Dir(d)), None) => {
                matches!(&e.target, Target::Dir(a) if wide(map, a.id, a.ino) == d.id)
            }
            (Some(Body::Symlink(t)), Some(Layout::Target(b))) => **t == *b.0,
            (Some(Body::Symlink(t)), Some(Layout::LongTarget)) => {
                attachment(AttachmentKind::Target).is_some_and(|b| **t == *b)
            }
            (Some(Body::File(c)), Some(layout)) => {
                let stored = match layout {
                    Layout::Blocks(block_size) | Layout::Sparse { block_size, .. } => {
                        Content::Blocks(*block_size)
                    }
                    Layout::Inline | Layout::SparseInline(_) => {
                        Content::inline(&attachment(AttachmentKind::Data).unwrap_or_default())
                    }
                    _ => Content::Sparse,
                };
                same_content(c, &stored, attr.size)
            }
            (Some(Body::Special), Some(Layout::None)) => true,
            _ => false,
        };
        if !same {
            return Err(format!("{name} in {part:?}: expected {body:?}, stored {e:?}"));
        }
        let stored = attachment(AttachmentKind::Xattrs).unwrap_or_else(|| XattrSet::default().to_bytes());
        let stored = XattrSet::from_bytes(&stored).map_err(|e| format!("{name} in {part:?}: {e}"))?;
        if !stored.iter().eq(model.xattrs(id)) {
            return Err(format!("{name} in {part:?}: extended attributes are {stored:?}"));
        }
    }
    // The model counts the root; the stores have an entry for it too.
    let names = model.walk().len();
    if seen != names {
        return Err(format!("{seen} names are stored, the model has {names}"));
    }
    Ok(())
}

/// Whether it is what an object is called in the model, too.
fn named(model: &Model, tree: &Tree, id: NodeId, dir: DirId, name: &Name) -> Result<(), String> {
    let parent = tree
        .head(dir)
        .map_or(NodeId::ABOVE_ROOT, |h| NodeId::new(h.ino, h.generation));
    if model.names(id).any(|n| n == (parent, name)) {
        return Ok(());
    }
    let names: Vec<_> = model.names(id).collect();
    Err(format!("{id:?} is {name} in {parent:?}, in the model {names:?}"))
}
