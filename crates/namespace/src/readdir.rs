//! readdir: pages of a directory in cookie order (H64–H68).

use crate::context::{Context, view_dir};
use crate::file::view_file;
use crate::snapshot::Stop;
use pando_format::{Entry, Key, Line, Position, Record, Target};
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

/// A name of a directory, as its entry or the directory's list has it.
struct Row<'r> {
    position: Position,
    name: &'r Name,
    line: Line,
    entry: Option<&'r Entry>,
}

impl Row<'_> {
    fn of((key, record): &(Key, Record)) -> Option<Row<'_>> {
        let (hash, name, line, entry) = match (key, record) {
            (Key::Entry { hash, name, .. }, Record::Entry(e)) => (hash, name, Line::of(e), Some(e)),
            (Key::Line { hash, name, .. }, Record::Line(line)) => (hash, name, *line, None),
            _ => return None,
        };
        Some(Row {
            position: Position::new(*hash, line.ordinal),
            name,
            line,
            entry,
        })
    }
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
    let mut rows: Vec<Row<'_>> = records.iter().filter_map(Row::of).collect();
    if !complete {
        // The last bucket may go on beyond what was read.
        let Some(last) = rows.last().map(|row| row.position.bucket()) else {
            return Page::More;
        };
        rows.retain(|row| row.position.bucket() != last);
        if rows.is_empty() {
            return Page::More;
        }
    }
    rows.sort_by_key(|row| row.position);
    let gone = plant!(H67) && after.is_entry() && !rows.iter().any(|row| row.position == after);
    let shown = rows
        .into_iter()
        .filter(|row| row.position > after)
        .skip(usize::from(gone))
        .map(|row| DirEntry {
            position: row.position,
            name: row.name.clone(),
            ino: row.line.ino,
            kind: row.line.kind,
            // What is at home, or listed by lines, may be on another server: whoever wants to know more looks
            // it up.
            view: match row.entry.map(|entry| &entry.target) {
                Some(Target::Dir(d)) if plus => Some(Box::new(view_dir(dir, row.name, d))),
                Some(Target::Inode(i)) if plus => Some(Box::new(view_file(i, dir.id))),
                _ => None,
            },
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
