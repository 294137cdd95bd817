//! A directory's list is made anew from its entries.

use super::edit::Source;
use super::plan::{Plan, Planned, Planner, WELL, one};
use pando_format::{Key, Line, Record};
use pando_types::{DirId, Part, Tile};
use std::collections::{BTreeMap, BTreeSet};

/// Lines that are changed in one go.
const SOME: usize = 2_000;

impl<S: Source> Planner<S> {
    pub(super) async fn list(&self, id: DirId) -> Planned {
        let part = Part::whole(id);
        let before = self.records.touch(part).await?;
        let said = self.records.lines(id).await?;
        let mut should = BTreeMap::new();
        // Where directories have no lists no line is right.
        if self.records.has_list(id) {
            let entries = self.records.live(part, Tile::WHOLE).await?;
            should.extend(
                entries
                    .iter()
                    .filter_map(|(key, e)| Some((key.line()?, Line::of(e)))),
            );
        }
        if before != self.records.touch(part).await? {
            return Ok(Plan::Later("it is changing"));
        }
        let all: BTreeSet<&Key> = said.keys().chain(should.keys()).collect();
        let wrong = all.into_iter().filter(|key| said.get(key) != should.get(key));
        let wrong: Vec<&Key> = wrong.take(SOME).collect();
        if wrong.is_empty() {
            return Ok(WELL);
        }
        let mut edit = self.edit();
        for key in &wrong {
            let line = |of: &BTreeMap<Key, Line>| of.get(key).copied().map(Record::Line);
            edit.set((*key).clone(), line(&said), line(&should));
        }
        one(edit, format!("listed anew {} of its names", wrong.len()))
    }
}
