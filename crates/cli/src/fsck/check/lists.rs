//! Lists of directories whose entries are placed one by one: of a directory what its lines say together must
//! be what its entries say together.

use super::{Checker, fingerprint};
use crate::fsck::finding::{Kind, Place, Subject};
use pando_format::{Entry, Key, Line, NameHash};
use pando_types::{DirId, Division, Name};

/// Many names together, in whatever order they come.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum {
    names: u64,
    marks: u64,
}

impl Sum {
    fn add(&mut self, hash: NameHash, name: &Name, line: &Line) {
        let said = (hash.0, name, line.ordinal, line.kind, line.ino, line.generation);
        self.names += 1;
        self.marks = self.marks.wrapping_add(fingerprint(said));
    }
}

impl Checker {
    /// Whether directories have lists.
    pub(super) fn has_lists(&self) -> bool {
        self.map.placement.division() == Division::OneByOne
    }

    /// Takes a line.
    pub(super) fn line(&mut self, key: &Key, line: &Line) {
        if let Key::Line { dir, hash, name } = key {
            self.dir(*dir).1.lines.add(*hash, name, line);
        }
    }

    /// Takes an entry that has a line, if its directory has a list.
    pub(super) fn lined(&mut self, place: Place, name: &Name, entry: &Entry) {
        let dir = place.part.dir;
        if self.map.placement.division().has_list(dir) {
            self.dir(dir).1.named.add(place.hash, name, &Line::of(entry));
        }
    }

    pub(super) fn judge_list(&mut self, id: DirId, (lines, named): (Sum, Sum)) {
        if lines != named {
            let detail = match lines.names == named.names {
                true => format!("its list of {} names is not that of its entries", lines.names),
                false => format!(
                    "its list has {} names, and there are {} entries",
                    lines.names, named.names
                ),
            };
            self.find(Kind::List, Subject::Dir(id), detail);
        }
    }
}
