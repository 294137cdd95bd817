//! What servers tell of directories' change attributes (H179, H180): a count that comes a second time is of
//! the state it was of.

use crate::nature::Nature;
use pando_server::Executed;
use pando_types::{AttrChange, DirId, ServerId};
use pando_wire::{Answer, Op, UNCHANGED};
use std::collections::BTreeMap;

#[derive(Default)]
struct Dir {
    /// Changes of its names or of the times in its content half, since it was first heard of.
    changes: u64,
    /// How many there had been, by the count that a server told.
    told: BTreeMap<u64, u64>,
}

/// All that was told.
#[derive(Default)]
pub struct Told {
    dirs: BTreeMap<DirId, Dir>,
    lives: BTreeMap<ServerId, u64>,
}

/// The directories in which an operation has changed something.
fn changed_in(e: &Executed<'_>) -> Vec<DirId> {
    if !e.changed {
        return Vec::new();
    }
    let Ok(answer) = e.outcome else {
        return Vec::new();
    };
    let dirs = e.op.statements();
    match (Nature::of(e.op), answer) {
        // Their answers say whether.
        (Nature::Makes, Answer::Opened { created: false, .. }) => Vec::new(),
        (Nature::Makes | Nature::Removes, _) => dirs[0].iter().map(|d| d.id).collect(),
        (Nature::Links, _) => dirs[1].iter().map(|d| d.id).collect(),
        (Nature::Moves, _) => {
            let mut dirs: Vec<DirId> = dirs.into_iter().flatten().map(|d| d.id).collect();
            dirs.dedup();
            dirs
        }
        (Nature::Changes, Answer::Entry(view)) => {
            let times = |c: &AttrChange| c.atime.is_some() || c.mtime.is_some();
            let sets = matches!(e.op, Op::SetAttr { change, .. } if times(change));
            view.dir.iter().filter(|_| sets).map(|d| d.id).collect()
        }
        _ => Vec::new(),
    }
}

impl Told {
    /// An operation took effect.
    pub fn executed(&mut self, server: ServerId, life: u64, e: &Executed<'_>) -> Result<(), String> {
        if self.lives.insert(server, life) != Some(life) {
            // What a power failure undid may be done again: directories are as they were when they were made.
            self.dirs.values_mut().for_each(|d| {
                d.told.remove(&UNCHANGED);
            });
        }
        if let (Op::Mkdir { .. }, Ok(Answer::Entry(view))) = (e.op, e.outcome)
            && let Some(born) = &view.dir
            && e.changed
        {
            let told = BTreeMap::from([(UNCHANGED, 0)]);
            self.dirs.insert(born.id, Dir { changes: 0, told });
        }
        let about = e
            .change
            .and_then(|c| Some((c, e.op.changes_names_in().or(e.op.looks_at())?)));
        let mut wrong = Ok(());
        if let Some((change, id)) = about {
            let dir = self.dirs.entry(id).or_default();
            let was = *dir.told.entry(change.before).or_insert(dir.changes);
            if was != dir.changes {
                wrong = Err(format!(
                    "{change:?} begins where {} changes had been made in {id}, and it is {}",
                    was, dir.changes
                ));
            }
        }
        for id in changed_in(e) {
            self.dirs.entry(id).or_default().changes += 1;
        }
        if let Some((change, id)) = about
            && let Some(dir) = self.dirs.get_mut(&id)
        {
            dir.told.insert(change.after, dir.changes);
        }
        wrong
    }
}
