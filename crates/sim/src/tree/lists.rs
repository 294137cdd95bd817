//! Lists: the names of a directory whose entries are placed one by one, and births of renamed directories.

use super::{Broken, Place, Tree};
use pando_format::{Entry, Key, Line, Record};
use pando_types::{DirId, Name};
use std::collections::BTreeSet;

impl Tree {
    /// A directory's list has exactly its entries, where it has one (AsyncFS §3.3).
    pub(super) fn check_line(&self, (dir, hash, name): &Place, entry: Option<&Entry>) -> Result<(), Broken> {
        let key = Key::Line {
            dir: *dir,
            hash: *hash,
            name: name.clone(),
        };
        let line = match self.records.get(&key) {
            Some(Record::Line(line)) => Some(*line),
            _ => None,
        };
        let has_list = self.division.has_list(*dir);
        match line == entry.filter(|_| has_list).map(Line::of) {
            true => Ok(()),
            false => Err(format!(
                "{dir:?} lists {name:?} as {line:?}, and its entry is {entry:?}"
            )),
        }
    }

    /// A rename list has exactly the versions of the directories that say so (H2-H5).
    pub(super) fn check_births(&self, birth: &(DirId, Name)) -> Result<(), Broken> {
        let (parent, name) = birth.clone();
        let list = match self.records.get(&Key::RenameList { parent, name }) {
            Some(Record::RenameList(list)) => list.versions().collect(),
            _ => BTreeSet::new(),
        };
        let heads = self.listed.get(birth).cloned().unwrap_or_default();
        if list != heads {
            return Err(format!(
                "the rename list of {birth:?} has {list:?}, but renamed directories born there are {heads:?}"
            ));
        }
        Ok(())
    }
}
