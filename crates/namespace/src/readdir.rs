//! readdir: pages of a directory in cookie order (H64–H68).

use crate::context::{Context, view_dir};
use crate::file::view_file;
use crate::snapshot::Stop;
use pando_format::{Entry, Key, NameHash, Position, Record, Target};
use pando_types::{Access, Cred, Name, plant};
use pando_wire::{Answer, DirEntry, LockMode, LockWant, Statement};

/// May the caller list this directory? Locks its touch against changes of entries, so that a page is one
/// moment.
pub(crate) fn check(cx: &mut Context<'_>, dir: &Statement, after: Position) -> Result<Answer, Stop> {
    let part = cx.listed_part(dir);
    cx.require(vec![
        LockWant::Key(Key::Head(part), LockMode::Shared),
        LockWant::Key(Key::Touch(part), LockMode::Shared),
    ])?;
    cx.enter_listed(part, dir, after)?;
    Ok(Answer::Done)
}

/// Where a listing stands, and how far its part goes.
#[derive(Clone, Copy, Debug)]
pub struct From {
    /// After this position.
    pub after: Position,
    /// The last one that its part may have.
    pub last: Position,
}

/// What a run of records makes of a page.
pub enum Page {
    /// The page.
    Entries(Answer),
    /// The run ends inside a bucket and no whole bucket precedes it: read more records.
    More,
}

/// Makes a page from records in key order, read from `from.after`'s bucket on. `complete`: no entry of the
/// part follows them.
///
/// Keys order a bucket by name, cookies by ordinal, so only whole buckets can be shown. Who may list a
/// directory sees names; what they stand for is shown, as by lookups, to who may search it.
pub fn page(
    cred: &Cred,
    dir: &Statement,
    records: &[(Key, Record)],
    complete: bool,
    from: From,
    plus: bool,
) -> Page {
    let after = from.after;
    let plus = plus && (plant!(G29) || cred.may(Access::EXEC, &dir.guard()));
    let mut entries: Vec<(NameHash, &Name, &Entry)> = records
        .iter()
        .filter_map(|(k, r)| match (k, r) {
            (Key::Entry { hash, name, .. }, Record::Entry(e)) => Some((*hash, name, e)),
            _ => None,
        })
        .collect();
    if !complete {
        // The last bucket may go on beyond what was read.
        let Some((last, _, _)) = entries.last().copied() else {
            return Page::More;
        };
        entries.retain(|(hash, _, _)| *hash != last);
        if entries.is_empty() {
            return Page::More;
        }
    }
    entries.sort_by_key(|(hash, _, e)| Position::new(*hash, e.ordinal));
    let at = |(hash, _, e): &(NameHash, &Name, &Entry)| Position::new(*hash, e.ordinal);
    let gone = plant!(H67) && after.is_entry() && !entries.iter().any(|e| at(e) == after);
    let shown = entries
        .into_iter()
        .map(|(hash, name, e)| (Position::new(hash, e.ordinal), name, e))
        .filter(|(position, _, _)| *position > after)
        .skip(usize::from(gone))
        .map(|(position, name, e)| {
            // What is at home may be on another server: whoever wants to know more looks it up.
            let view = match &e.target {
                _ if !plus => None,
                Target::Dir(d) => Some(view_dir(dir, name, d)),
                Target::Inode(i) => Some(view_file(i, dir.id)),
                Target::Link(_) => None,
            };
            DirEntry {
                position,
                name: name.clone(),
                ino: e.target.identity().0,
                kind: e.target.kind(),
                view: view.map(Box::new),
            }
        })
        .collect();
    Page::Entries(match complete && from.last != Position::END {
        true => Answer::Part {
            entries: shown,
            upto: from.last,
        },
        false => Answer::Entries {
            entries: shown,
            end: complete,
        },
    })
}
