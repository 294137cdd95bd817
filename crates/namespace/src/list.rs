//! A directory's list: what a new, removed or replaced name changes besides its entry.
//!
//! Where entries are placed one by one, the directory's slot has a line for each, and its counts and times
//! (AsyncFS §3.3). Elsewhere names are listed by their entries, and counted in their part.

use crate::context::{Context, Place};
use pando_format::{Entry, Key, Line, Record, TouchDelta};
use pando_types::{DirId, FileKind, Part};
use pando_wire::{LockMode, LockWant};

/// What becomes of a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Listed<'e> {
    /// It is new.
    New(&'e Entry),
    /// It goes, and stood for this.
    Gone(FileKind),
    /// It stood for this, and stands for something else.
    Other(FileKind, &'e Entry),
}

fn subdirs(kind: FileKind) -> i32 {
    i32::from(kind == FileKind::Directory)
}

impl Listed<'_> {
    /// By how much there are more entries, and subdirectories among them.
    fn counts(self) -> (i32, i32) {
        match self {
            Listed::New(entry) => (1, subdirs(entry.target.kind())),
            Listed::Gone(kind) => (-1, -subdirs(kind)),
            Listed::Other(was, entry) => (0, subdirs(entry.target.kind()) - subdirs(was)),
        }
    }
}

impl Context<'_> {
    /// Whether a directory has a list of its own.
    pub fn has_lines(&self, dir: DirId) -> bool {
        self.inputs.division.has_list(dir)
    }

    /// The part that has head, counts and times of the names of this part.
    pub fn counted_in(&self, part: Part) -> Part {
        match self.has_lines(part.dir) {
            true => Part::whole(part.dir),
            false => part,
        }
    }

    /// Wants to change what a directory's list says of a name, and what is counted there.
    pub fn line_want(&self, place: &Place) -> Option<LockWant> {
        let line = self.line_key(place)?;
        Some(LockWant::Key(line, LockMode::Exclusive))
    }

    fn line_key(&self, place: &Place) -> Option<Key> {
        match self.has_lines(place.part.dir) {
            true => place.key().line(),
            false => None,
        }
    }

    /// Changes list, counts and times of a directory as a name becomes what it is now.
    pub fn list(&mut self, place: &Place, listed: Listed<'_>) {
        self.line(place, listed);
        let (entries, subdirs) = listed.counts();
        self.count(place.part, entries, subdirs);
    }

    /// Changes what a directory's list says of a name. The caller counts.
    pub fn line(&mut self, place: &Place, listed: Listed<'_>) {
        let Some(key) = self.line_key(place) else { return };
        match listed {
            Listed::New(entry) => self.insert(key, Record::Line(Line::of(entry))),
            Listed::Gone(_) => self.delete(key),
            Listed::Other(_, entry) => self.update(key, Record::Line(Line::of(entry))),
        }
    }

    /// Changes counts and times of the directory that a part is of.
    pub fn count(&mut self, part: Part, entries: i32, subdirs: i32) {
        let delta = TouchDelta {
            entries,
            subdirs,
            time: self.inputs.now,
        };
        self.touch(self.counted_in(part), delta);
    }
}
