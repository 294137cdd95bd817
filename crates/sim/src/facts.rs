//! What clients were told about directories, and until when it was true: nothing may take effect that rests
//! on a name, parent or permission that has changed (H10–H13, H15, H16, H19).

use pando_auth::StatementKeys;
use pando_format::FactChange;
use pando_model::{Model, NodeId, View};
use pando_server::Executed;
use pando_types::{Bearer, DirId, Generation, IdentityId, Watermark};
use pando_wire::{Answer, EntryView, Op, RenameMode, Scope, Statement};
use std::collections::{BTreeMap, BTreeSet};

/// A directory's incarnation.
type Dir = (DirId, Generation);

/// What is known of one directory.
#[derive(Default)]
struct Fact {
    /// Entry of the log that announced its last rename that took effect.
    moved: Watermark,
    /// The same of its permissions and owners.
    access: Watermark,
    /// Who was ever given a statement of it.
    told: BTreeSet<Bearer>,
    /// Who changed it without telling anybody: the maker, while nobody else was told.
    silently: BTreeSet<Bearer>,
}

/// All of them.
#[derive(Default)]
pub struct Facts {
    facts: BTreeMap<Dir, Fact>,
    tags: BTreeMap<u64, (Dir, NodeId)>,
}

impl Facts {
    /// Whether everything an execution rests on is true at this instant, before it changes anything.
    pub fn check(&self, model: &Model, e: &Executed<'_>) -> Result<(), String> {
        // A guess is on nobody's behalf.
        let dirs = e.dirs.iter().flatten().copied().filter(|_| !e.guess);
        dirs.into_iter()
            .try_for_each(|d| self.check_one(model, e.holder, d))
    }

    fn check_one(&self, model: &Model, holder: Bearer, d: &Statement) -> Result<(), String> {
        let here = NodeId::new(d.ino, d.generation);
        let Some(view) = model
            .view(here)
            .filter(|_| d.id != DirId::ABOVE_ROOT && !d.id.is_homes())
        else {
            return Ok(());
        };
        for tag in &d.way {
            let Some((dir, _)) = self.tags.get(tag) else {
                return Err(format!("nobody was told of tag {tag:x} in {d:?}"));
            };
            let Some(fact) = self.facts.get(dir) else { continue };
            if fact.access > d.at || fact.moved > d.at && d.scope != Scope::Handle {
                return Err(format!(
                    "it rests on what was true of {dir:?} at {}, which was renamed at {} and changed at {}: {d:?}",
                    d.at, fact.moved, fact.access
                ));
            }
        }
        let silently = |dir: Dir| self.facts.get(&dir).is_some_and(|f| f.silently.contains(&holder));
        let a = view.attr;
        let same = (a.perm, a.uid, a.gid) == (d.perm, d.uid, d.gid) && view.acls == d.acls;
        if !same && !silently((d.id, d.generation)) {
            return Err(format!(
                "permissions have changed unannounced: {d:?}, now {view:?}"
            ));
        }
        if d.scope == Scope::Way {
            self.check_way(model, holder, d)?;
        }
        Ok(())
    }

    /// The directories of a way stand below each other, the first below nothing.
    fn check_way(&self, model: &Model, holder: Bearer, d: &Statement) -> Result<(), String> {
        let mut above = NodeId::ABOVE_ROOT;
        for tag in &d.way {
            let Some((_, node)) = self.tags.get(tag) else {
                continue;
            };
            // What is the root to an identity may be anywhere.
            let root = above == NodeId::ABOVE_ROOT && holder.identity != IdentityId::ANYONE;
            if model.place(*node).map(|(parent, _)| parent) != Some(above) && !root {
                return Err(format!("{node:?} is not in {above:?} any more: {d:?}"));
            }
            above = *node;
        }
        Ok(())
    }

    /// Notes what an execution changed and whom it told what. `before`: what a changed directory was like.
    pub fn note(
        &mut self,
        keys: &StatementKeys,
        e: &Executed<'_>,
        before: Option<View>,
    ) -> Result<(), String> {
        let Ok(answer) = e.outcome else { return Ok(()) };
        let mut result = Ok(());
        if e.changed {
            for (dir, change) in changes(e.op, answer, before) {
                let first = e.announced_upto.0 + 1 - e.announced.len() as u64;
                let announced = (first..)
                    .zip(e.announced)
                    .find(|(_, i)| (i.id, i.generation, i.change) == (dir.0, dir.1, change));
                let fact = self.facts.entry(dir).or_default();
                match (announced, change) {
                    (Some((at, _)), FactChange::Moved) => fact.moved = Watermark(at),
                    (Some((at, _)), FactChange::Access) => fact.access = Watermark(at),
                    (None, FactChange::Access) if fact.told.iter().all(|i| *i == e.holder) => {
                        fact.silently.insert(e.holder);
                    }
                    (None, _) => {
                        result = Err(format!(
                            "a change of {dir:?} was announced to nobody, though {} were told of it",
                            fact.told.len()
                        ));
                    }
                }
            }
        }
        for s in told(answer) {
            let dir = (s.id, s.generation);
            self.facts.entry(dir).or_default().told.insert(e.holder);
            let node = NodeId::new(s.ino, s.generation);
            self.tags.insert(keys.tag(s.id, s.generation), (dir, node));
        }
        result
    }
}

/// The directories whose name, parent or permissions an operation changed.
fn changes(op: &Op, answer: &Answer, before: Option<View>) -> Vec<(Dir, FactChange)> {
    let dir = |e: &EntryView| e.dir.as_ref().map(|s| (s.id, s.generation));
    match answer {
        Answer::Entry(e) if matches!(op, Op::SetAttr { .. } | Op::SetAcl { .. }) => {
            let facts = |a: &pando_types::Attr| (a.perm, a.uid, a.gid);
            let same = before.is_some_and(|b| facts(&b.attr) == facts(&e.attr) && b.acls == e.acls());
            dir(e)
                .filter(|_| !same)
                .map(|d| (d, FactChange::Access))
                .into_iter()
                .collect()
        }
        Answer::Renamed { moved, other } => {
            let exchanged = matches!(
                op,
                Op::Rename {
                    mode: RenameMode::Exchange,
                    ..
                }
            );
            let other = other.as_deref().filter(|_| exchanged);
            let both = [Some(&**moved), other].into_iter().flatten();
            both.filter_map(dir).map(|d| (d, FactChange::Moved)).collect()
        }
        Answer::Entry(_)
        | Answer::Opened { .. }
        | Answer::Removed(_)
        | Answer::Done
        | Answer::DirStat(_)
        | Answer::Target(_)
        | Answer::Entries { .. }
        | Answer::Part { .. }
        | Answer::FsStat(_)
        | Answer::Value(_)
        | Answer::Names(_)
        | Answer::Fates(_)
        | Answer::Bulk(_) => Vec::new(),
    }
}

/// The statements in an answer.
fn told(answer: &Answer) -> Vec<&Statement> {
    match answer {
        Answer::Entry(e) | Answer::Opened { entry: e, .. } | Answer::Removed(e) => {
            e.dir.as_ref().into_iter().collect()
        }
        Answer::Renamed { moved, other } => moved
            .dir
            .as_ref()
            .into_iter()
            .chain(other.iter().filter_map(|o| o.dir.as_ref()))
            .collect(),
        Answer::Entries { entries, .. } | Answer::Part { entries, .. } => entries
            .iter()
            .filter_map(|e| e.view.as_ref()?.dir.as_ref())
            .collect(),
        Answer::Done
        | Answer::DirStat(_)
        | Answer::Target(_)
        | Answer::FsStat(_)
        | Answer::Value(_)
        | Answer::Names(_)
        | Answer::Fates(_)
        | Answer::Bulk(_) => Vec::new(),
    }
}
