//! The renaming graph: what the coordinator knows of which directory is in which, and the moves that are
//! under way (InfiniFS §4.1).
//!
//! A directory that gets another parent must not get one that is below it, whatever else moves at that time:
//! a→b, b→c, c→a are each harmless and together a loop (H21). All such moves are decided here, by one server,
//! one after the other, though they lock, announce and prepare at once. So the check is made *at the instant
//! of the decision*, in the same step of the program that writes it, against the parents as all earlier
//! decisions have left them ([`Graph::holds`]). Nobody waits for another move, none is refused because of one
//! that then aborts, and no order of arrival has to be kept: of moves that make a loop together, the last to
//! be decided meets the others, and fails. An exchange is two such checks and one decision.
//!
//! It needs the parents of all directories above the new one, and they must be those of that instant:
//!
//! - They are by (ID, generation) (H22). A generation is never used again, so what is known of a directory
//!   that has been removed is asked for by nobody; and while a directory lives, all above it live.
//! - A living directory's parent changes by decisions of this server only, and each is entered here in the
//!   step that decides, not when the participants have confirmed it (H24).
//! - What is not known is read from the directory's head, under its lock (H26): until a participant has heard
//!   what became of a move it holds that lock, over restarts of its own and of this server (H114). So the
//!   head says either what was before a move that is not decided, or what is after one that is; and an empty
//!   graph, after a restart or in a new term, is not a dangerous one.
//! - While a head is read the directory may be moved: what is known by then stands ([`Graph::learn`]).
//! - What is forgotten, lest it grow, has not changed since the oldest move under way began: no answer that
//!   is still on its way can bring back an older parent. And the way of a move that is under way stays until
//!   it is decided.

use crate::account::Notes;
use crate::{Failure, MetaServer};
use pando_format::{Head, Key, Mutation, Record};
use pando_namespace::{Incarnation, Walked};
use pando_types::{DirId, Part, Term, plant};
use pando_wire::{PeerAnswer, PeerRequest, Refusal};
use std::collections::{BTreeMap, BTreeSet};

/// What is above a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Above {
    /// The directory that was looked for, or it is that itself: a move into it would make a loop.
    It,
    /// Everything up to the root, and not the directory that was looked for.
    Others,
    /// This directory, whose own parent is not known.
    Unknown(Incarnation),
}

/// A move that is under way: in which term it began, and when.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Number {
    term: Term,
    at: u64,
}

/// A directory's parent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Known {
    parent: Incarnation,
    /// When it was learnt or looked at last.
    used: u64,
}

/// All that is known.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Graph {
    /// In which all of it was learnt: in another one somebody else may have decided moves.
    term: Term,
    known: BTreeMap<Incarnation, Known>,
    by_use: BTreeMap<u64, Incarnation>,
    /// Moves that are neither decided nor given up, by when they began.
    under_way: BTreeSet<u64>,
    clock: u64,
}

impl Graph {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A move begins, in this term.
    pub fn begin(&mut self, term: Term) -> Number {
        if term != self.term {
            *self = Graph {
                term,
                clock: self.clock,
                ..Graph::default()
            };
        }
        let at = self.tick();
        self.under_way.insert(at);
        Number { term, at }
    }

    /// Parents were changed past this: nothing that is known counts, and who rests on it looks again.
    pub fn forget_all(&mut self) {
        *self = Graph {
            term: self.term,
            clock: self.clock,
            ..Graph::default()
        };
    }

    /// It is decided, or given up.
    pub fn end(&mut self, number: Number) {
        self.under_way.remove(&number.at);
    }

    /// Whether nothing of what a move rests on can have been forgotten.
    fn counts(&self, number: Number, term: Term) -> bool {
        number.term == term && self.under_way.contains(&number.at)
    }

    /// A directory's parent, if it is known.
    pub fn parent(&mut self, dir: Incarnation) -> Option<Incarnation> {
        let now = self.tick();
        let known = self.known.get_mut(&dir)?;
        self.by_use.remove(&known.used);
        self.by_use.insert(now, dir);
        known.used = now;
        Some(known.parent)
    }

    /// Whether `moved` is `into` or above it (H22).
    pub fn climb(&mut self, moved: Incarnation, into: Incarnation) -> Above {
        let mut at = into;
        // Parents that lead in a circle are a damaged tree's, which fsck reports: nothing is moved into that.
        for _ in 0..=self.known.len() {
            if at == moved {
                return Above::It;
            }
            if at.0 == DirId::ROOT || at.0 == DirId::ABOVE_ROOT {
                return Above::Others;
            }
            match self.parent(at) {
                Some(parent) => at = parent,
                // Planted: what an empty graph does not know stands in nobody's way.
                None if plant!(H26) => return Above::Others,
                None => return Above::Unknown(at),
            }
            // Planted: whether one of the two is in the other, and no further.
            if plant!(H21) {
                return if at == moved { Above::It } else { Above::Others };
            }
        }
        Above::It
    }

    /// Whether what a move was checked for is so now, at the instant it takes effect.
    pub fn holds(&mut self, number: Number, term: Term, walked: &Walked) -> bool {
        let same =
            |graph: &mut Graph, ((moved, into), looped): (&(Incarnation, Incarnation), &bool)| match graph
                .climb(*moved, *into)
            {
                Above::It => *looped,
                Above::Others => !*looped,
                Above::Unknown(_) => false,
            };
        plant!(H20) || self.counts(number, term) && walked.iter().all(|w| same(self, w))
    }

    /// A head that was read for a move says what a directory's parent is. If that is known by now it stands:
    /// it has changed since. False: the term has ended, and the move with it.
    pub fn learn(
        &mut self,
        (number, term): (Number, Term),
        dir: Incarnation,
        parent: Incarnation,
        most: usize,
    ) -> bool {
        if !self.counts(number, term) {
            return false;
        }
        if !self.known.contains_key(&dir) {
            self.put(dir, parent, most);
        }
        true
    }

    /// A decision gives a directory this parent.
    pub fn moved(&mut self, dir: Incarnation, parent: Incarnation, most: usize) {
        self.forget(dir);
        self.put(dir, parent, most);
    }

    /// A directory was removed: nobody will ask for it.
    pub fn forget(&mut self, dir: Incarnation) {
        if let Some(known) = self.known.remove(&dir) {
            self.by_use.remove(&known.used);
        }
    }

    fn put(&mut self, dir: Incarnation, parent: Incarnation, most: usize) {
        let used = self.tick();
        self.known.insert(dir, Known { parent, used });
        self.by_use.insert(used, dir);
        let oldest = self.under_way.first().copied().unwrap_or(u64::MAX);
        while self.known.len() > most
            && let Some((used, dir)) = self.by_use.first_key_value().map(|(used, dir)| (*used, *dir))
            && used < oldest
        {
            self.forget(dir);
        }
    }
}

/// A move that is under way.
pub(crate) struct Moving<'a> {
    server: &'a MetaServer,
    number: Number,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.server.office.graph.borrow_mut().end(self.number);
    }
}

impl MetaServer {
    /// Begins a move.
    pub(crate) fn moving(&self) -> Moving<'_> {
        Moving {
            server: self,
            number: self.office.graph.borrow_mut().begin(self.map().term),
        }
    }

    /// What a decision does to the graph, in the step that writes it.
    pub(crate) fn enter_moves(&self, mutations: &[Mutation]) {
        if !self.coordinates() {
            return;
        }
        let mut graph = self.office.graph.borrow_mut();
        for m in mutations {
            if let Mutation::Update {
                key: Key::Head(id),
                record: Record::Head(head),
            } = m
            {
                let parent = (head.parent, head.parent_generation);
                graph.moved((id.dir, head.generation), parent, self.limits.parents);
            }
        }
    }
}

impl Moving<'_> {
    /// Whether `moved` is `into` or above it, if all that is needed for that is known.
    pub fn climb(&self, moved: Incarnation, into: Incarnation) -> Option<bool> {
        match self.server.office.graph.borrow_mut().climb(moved, into) {
            Above::It => Some(true),
            Above::Others => Some(false),
            Above::Unknown(_) => None,
        }
    }

    /// Whether all that was found is so now.
    pub fn holds(&self, walked: &Walked) -> bool {
        let term = self.server.map().term;
        self.server
            .office
            .graph
            .borrow_mut()
            .holds(self.number, term, walked)
    }

    /// Comes to know what is above a directory. REQUIRES: no lock is held, because others are waited for.
    pub async fn explore(&self, moved: Incarnation, into: Incarnation, notes: &Notes) -> Result<(), Failure> {
        let server = self.server;
        loop {
            let Above::Unknown(dir) = server.office.graph.borrow_mut().climb(moved, into) else {
                return Ok(());
            };
            let head = server.head_of(dir.0, notes).await?;
            // One that is gone was left, or removed, meanwhile: whoever looks again will see.
            let Some(head) = head.filter(|h| h.generation == dir.1) else {
                return Ok(());
            };
            let parent = (head.parent, head.parent_generation);
            let meant = (self.number, server.map().term);
            let most = server.limits.parents;
            if !server.office.graph.borrow_mut().learn(meant, dir, parent, most) {
                return Err(Failure::Refused(Refusal::Busy));
            }
        }
    }
}

impl MetaServer {
    /// A directory's head, from whoever has it.
    async fn head_of(&self, dir: DirId, notes: &Notes) -> Result<Option<Head>, Failure> {
        let owner = self.owner(Part::whole(dir).slot());
        if owner == self.id {
            return self.read_head(dir, true, notes).await;
        }
        match self.ask_for(owner, PeerRequest::Head(dir), notes).await {
            Ok(Ok(PeerAnswer::Head(head))) => Ok(head),
            _ => Err(Failure::Refused(Refusal::Busy)),
        }
    }
}

#[cfg(test)]
mod model;
