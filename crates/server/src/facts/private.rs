//! Directories that nobody was told of but who made them. A change of their permissions concerns nobody else,
//! and needs no broadcast: `tar x` of 10,000 directories changes the permissions of each.
//!
//! Kept in memory alone: what was made before a restart, or too long ago, is assumed to be known to others.

use crate::MetaServer;
use crate::pipeline::Asked;
use pando_format::{Entry, Mutation, Record, Target};
use pando_types::{Bearer, DirId, Generation, Slot, plant};
use pando_wire::traits::Leaves;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Directories remembered.
const MOST: usize = 64 * 1024;

#[derive(Default)]
pub(crate) struct Private {
    makers: BTreeMap<(DirId, Generation), Bearer>,
    order: VecDeque<(DirId, Generation)>,
}

impl Private {
    /// `maker` made it, and is the first to be told.
    pub fn made(&mut self, id: DirId, generation: Generation, maker: Bearer) {
        self.makers.insert((id, generation), maker);
        self.order.push_back((id, generation));
        while self.order.len() > MOST {
            if let Some(old) = self.order.pop_front() {
                self.makers.remove(&old);
            }
        }
    }

    /// Somebody is told of it.
    pub fn told(&mut self, id: DirId, generation: Generation, whom: Bearer) {
        if self
            .makers
            .get(&(id, generation))
            .is_some_and(|maker| *maker != whom && !plant!(G50))
        {
            self.makers.remove(&(id, generation));
        }
    }

    /// It leaves this server's hands: from here on others answer for it.
    pub fn left(&mut self, id: DirId, generation: Generation) {
        self.makers.remove(&(id, generation));
    }

    /// The slots that these directories were born in are served by others: a generation has its slot's
    /// number.
    pub fn left_slots(&mut self, slots: &BTreeSet<Slot>) {
        self.makers
            .retain(|(_, generation), _| !slots.contains(&generation.slot()));
    }

    /// Whether nobody but `asker` was told.
    pub fn to(&self, id: DirId, generation: Generation, asker: Bearer) -> bool {
        self.makers.get(&(id, generation)) == Some(&asker)
    }
}

impl MetaServer {
    /// Whether nobody but this asker was told of a directory.
    pub(crate) fn private_to(&self, asker: Bearer) -> impl Fn(DirId, Generation) -> bool {
        move |id, generation| self.facts.private.borrow().to(id, generation, asker)
    }

    /// Records are lent to another server, or changed by it: whom it tells of the directories among them is
    /// not known here.
    pub(crate) fn lent<'a>(&self, records: impl Iterator<Item = &'a Record>) {
        let mut private = self.facts.private.borrow_mut();
        for record in records {
            if let Record::Entry(Entry {
                target: Target::Dir(d),
                ..
            }) = record
            {
                private.left(d.id, d.generation);
            }
        }
    }
}

impl MetaServer {
    /// What an operation does to directories' entries, here or elsewhere: one that is made is its maker's
    /// secret until somebody else is told; where one is moved to, others answer for it.
    pub(crate) fn keep_private(&self, asked: &Asked<'_>, mutations: &[Mutation]) {
        let mut private = self.facts.private.borrow_mut();
        for m in mutations {
            if let Mutation::Insert { record, .. } | Mutation::Update { record, .. } = m
                && let Record::Entry(Entry {
                    target: Target::Dir(d),
                    ..
                }) = record
            {
                match asked.op.traits().leaves {
                    Leaves::Made => private.made(d.id, d.generation, asked.holder),
                    Leaves::Told => private.told(d.id, d.generation, asked.holder),
                    Leaves::Open => private.left(d.id, d.generation),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::{IdentityId, Instance};

    fn whom(n: u128) -> Bearer {
        Bearer {
            identity: IdentityId(0),
            instance: Instance(n),
        }
    }

    #[test]
    fn private_until_somebody_else_is_told() {
        let (a, b) = (whom(1), whom(2));
        let mut p = Private::default();
        let (d, g) = (DirId(7), Generation(1));
        assert!(!p.to(d, g, a));
        p.made(d, g, a);
        p.told(d, g, a);
        assert!(p.to(d, g, a) && !p.to(d, g, b) && !p.to(d, Generation(2), a));
        p.told(d, g, b);
        assert!(!p.to(d, g, a) && !p.to(d, g, b));
        p.made(d, g, a);
        p.left(d, g);
        assert!(!p.to(d, g, a));
    }

    #[test]
    fn it_forgets_the_oldest() {
        let mut p = Private::default();
        for n in 0..=MOST as u128 {
            p.made(DirId(n), Generation(1), whom(1));
        }
        assert!(!p.to(DirId(0), Generation(1), whom(1)));
        assert!(p.to(DirId(1), Generation(1), whom(1)));
        assert_eq!(p.makers.len(), MOST);
    }
}
