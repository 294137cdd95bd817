//! What this server has heard of the log of invalidations (InfiniFS §3.4): which statements are not true any
//! more.
//!
//! A directory's access record changes only after every server has heard that it will (H10), so what is
//! checked here, at the instant an operation takes effect, is what holds in the whole cluster.

use crate::MetaServer;
use pando_auth::StatementKeys;
use pando_format::{FactChange, Invalidation};
use pando_types::{Term, Watermark, plant};
use pando_wire::{Scope, Statement};
use std::collections::{BTreeMap, VecDeque};

/// The newest entry about one directory.
#[derive(Clone, Copy, Default)]
struct Newest {
    moved: Watermark,
    access: Watermark,
}

/// The latest part of the log.
#[derive(Default)]
pub(crate) struct Heard {
    /// Whether the coordinator has been asked since this server started. Before, nothing is known (H15).
    joined: bool,
    /// All entries up to here were heard, without gaps (H12).
    upto: Watermark,
    /// Entries up to here are forgotten (H13).
    floor: Watermark,
    entries: VecDeque<Invalidation>,
    by_tag: BTreeMap<u64, Newest>,
}

impl Heard {
    /// How far the log was heard.
    pub fn upto(&self) -> Watermark {
        self.upto
    }

    /// Whether this server knows what it has to know before it serves.
    pub fn joined(&self) -> bool {
        self.joined
    }

    /// Of what was before nothing is known.
    pub fn floor(&self) -> Watermark {
        self.floor
    }

    /// All that is remembered, the oldest first.
    pub fn entries(&self) -> impl Iterator<Item = Invalidation> {
        self.entries.iter().copied()
    }

    /// The first part of the log, from the coordinator.
    pub fn join(&mut self, floor: Watermark, entries: &[Invalidation], keys: &StatementKeys, most: usize) {
        *self = Heard {
            joined: true,
            upto: floor,
            floor,
            ..Heard::default()
        };
        self.hear(floor, entries, keys, most);
    }

    /// Entries after `after`, one after the other. What was heard before, or leaves a gap, changes nothing.
    pub fn hear(&mut self, after: Watermark, entries: &[Invalidation], keys: &StatementKeys, most: usize) {
        let gap = after > self.upto && !plant!(H12);
        if !self.joined || gap {
            return;
        }
        for (at, entry) in (after.0 + 1..).zip(entries) {
            if at <= self.upto.0 {
                continue;
            }
            self.upto = Watermark(at);
            self.entries.push_back(*entry);
            for tag in keys.tags(entry.id, entry.generation) {
                let newest = self.by_tag.entry(tag).or_default();
                match entry.change {
                    FactChange::Moved => newest.moved = self.upto,
                    FactChange::Access => newest.access = self.upto,
                }
            }
        }
        while self.entries.len() > most {
            self.forget_one(keys);
        }
    }

    fn forget_one(&mut self, keys: &StatementKeys) {
        let Some(old) = self.entries.pop_front() else {
            return;
        };
        self.floor = Watermark(self.upto.0 - self.entries.len() as u64);
        for tag in keys.tags(old.id, old.generation) {
            if let Some(newest) = self.by_tag.get(&tag)
                && newest.moved.max(newest.access) <= self.floor
            {
                self.by_tag.remove(&tag);
            }
        }
    }

    /// The tag through which a statement is not true any more, 0 if that is not known.
    pub fn outdated(&self, s: &Statement) -> Option<u64> {
        // Who is current costs nothing.
        if s.at >= self.upto {
            return None;
        }
        if s.at < self.floor && !plant!(H13) {
            return Some(0);
        }
        let newer = |tag: &u64| {
            self.by_tag
                .get(tag)
                .is_some_and(|n| n.access > s.at || n.moved > s.at && s.scope != Scope::Handle)
        };
        let from = if plant!(H19) {
            s.way.len().saturating_sub(1)
        } else {
            0
        };
        s.way[from..].iter().copied().find(newer)
    }
}

impl MetaServer {
    /// How far this server has heard the log.
    pub(crate) fn heard_upto(&self) -> Watermark {
        self.facts.heard.borrow().upto()
    }

    /// The same, for the coordinator: 0 if nothing is known of its log.
    pub(crate) fn heard_so_far(&self) -> Watermark {
        let heard = self.facts.heard.borrow();
        if heard.joined() {
            heard.upto()
        } else {
            Watermark(0)
        }
    }

    /// The coordinator of a term tells entries of its log.
    pub(crate) fn hear(&self, term: Term, after: Watermark, entries: &[Invalidation]) -> Watermark {
        let known = self.map().term;
        if term != known && !plant!(H27) {
            if term > known {
                self.spawn(|me| Box::pin(async move { drop(me.attend_once().await) }));
            }
            return Watermark(0);
        }
        let mut heard = self.facts.heard.borrow_mut();
        heard.hear(after, entries, &self.facts.keys, self.limits.invalidations);
        if after > heard.upto() || !heard.joined() {
            // It says from where on it knows, so that nothing be missed (H12).
            self.spawn(|me| {
                Box::pin(async move {
                    me.follow_once(&mut 0).await;
                })
            });
        }
        drop(heard);
        self.heard_so_far()
    }

    /// What a follower that has heard so much has to hear: the entries after the position returned. If that
    /// is higher, the entries in between are forgotten.
    pub(crate) fn log_after(&self, known: Watermark) -> (Watermark, Vec<Invalidation>) {
        let heard = self.facts.heard.borrow();
        let after = known.max(heard.floor()).min(heard.upto());
        let skip = (after.0 - heard.floor().0) as usize;
        (after, heard.entries().skip(skip).collect())
    }

    /// The coordinator's answer to who follows it.
    pub(crate) fn hear_what_was_missed(&self, after: Watermark, entries: &[Invalidation]) {
        let mut heard = self.facts.heard.borrow_mut();
        if !heard.joined() || after > heard.upto() {
            heard.join(after, entries, &self.facts.keys, self.limits.invalidations);
        } else {
            heard.hear(after, entries, &self.facts.keys, self.limits.invalidations);
        }
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;
    use pando_auth::Secret;
    use pando_types::{DirId, FsId, Generation};
    use pando_wire::Said;

    fn keys() -> StatementKeys {
        StatementKeys::new(FsId(1), &Secret::new([1; 32]), &[Secret::new([2; 32])])
    }

    fn entry(id: u128, change: FactChange) -> Invalidation {
        Invalidation {
            id: DirId(id),
            generation: Generation(1),
            change,
        }
    }

    fn statement(scope: Scope, ids: &[u128], at: u64) -> Statement {
        Statement::from(Said {
            scope,
            way: ids
                .iter()
                .map(|id| keys().tag(DirId(*id), Generation(1)))
                .collect(),
            at: Watermark(at),
            ..Said::above_root()
        })
    }

    #[test]
    fn only_what_is_newer_and_on_the_way_counts() {
        let mut heard = Heard::default();
        heard.join(Watermark(10), &[], &keys(), 3);
        heard.hear(Watermark(10), &[entry(5, FactChange::Moved)], &keys(), 3);
        assert_eq!(heard.upto(), Watermark(11));
        let tag = keys().tag(DirId(5), Generation(1));
        assert_eq!(heard.outdated(&statement(Scope::Way, &[4, 5, 6], 10)), Some(tag));
        assert_eq!(heard.outdated(&statement(Scope::Way, &[4, 5, 6], 11)), None);
        assert_eq!(heard.outdated(&statement(Scope::Way, &[4, 6], 10)), None);
        assert_eq!(heard.outdated(&statement(Scope::Handle, &[5], 10)), None);
        heard.hear(Watermark(11), &[entry(5, FactChange::Access)], &keys(), 3);
        assert_eq!(heard.outdated(&statement(Scope::Handle, &[5], 11)), Some(tag));
        // Below the floor nothing is known.
        assert_eq!(heard.outdated(&statement(Scope::Way, &[4], 9)), Some(0));
    }

    #[test]
    fn gaps_and_repetitions_change_nothing_and_the_oldest_is_forgotten() {
        let mut heard = Heard::default();
        heard.hear(Watermark(0), &[entry(1, FactChange::Moved)], &keys(), 2);
        assert_eq!(heard.upto(), Watermark(0), "not joined");
        heard.join(Watermark(0), &[entry(1, FactChange::Moved)], &keys(), 2);
        heard.hear(Watermark(2), &[entry(3, FactChange::Moved)], &keys(), 2);
        assert_eq!(heard.upto(), Watermark(1), "a gap");
        let two = [entry(1, FactChange::Moved), entry(2, FactChange::Moved)];
        heard.hear(Watermark(0), &two, &keys(), 2);
        assert_eq!((heard.upto(), heard.floor()), (Watermark(2), Watermark(0)));
        heard.hear(Watermark(2), &two, &keys(), 2);
        assert_eq!((heard.upto(), heard.floor()), (Watermark(4), Watermark(2)));
        assert_eq!(heard.by_tag.len(), 2 * 2);
    }
}
