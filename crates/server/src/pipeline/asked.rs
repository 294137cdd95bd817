//! A request that is being executed, with all that bears on it.

use super::effect::Announced;
use crate::account::Notes;
use crate::facts::statements::Dirs;
use crate::{Executed, MetaServer};
use pando_format::Key;
use pando_namespace::{Incarnation, Inputs, Snapshot};
use pando_store::Lsn;
use pando_types::{
    Bearer, Cred, DirId, Generation, MapEpoch, Part, RequestId, Slot, Term, Timestamp, Watermark, plant,
};
use pando_wire::traits::Rests;
use pando_wire::{ChangeInfo, Keep, Op, Outcome, Scope, Statement};
use std::cell::Cell;
use std::collections::BTreeSet;

/// With what right something is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Basis {
    /// With the statements that were shown.
    Shown,
    /// None: a guess, executed for nobody. What comes of it is a link; who hears of it is decided by who has
    /// the key.
    Guess,
    /// That it is the identity's root.
    Subtree,
}

/// Who asked for what.
pub(crate) struct Asked<'a> {
    pub message: u64,
    /// Who, and whose statements they are.
    pub holder: Bearer,
    /// The coordinator's term when it came.
    pub term: Term,
    /// The maps by which slots had come to this server and left it when it came.
    pub slot_changes: (MapEpoch, MapEpoch),
    pub request: Option<RequestId>,
    pub cred: &'a Cred,
    /// Whose keys the answer contains.
    pub told: &'a Cred,
    pub basis: Basis,
    pub op: &'a Op,
    /// In which parts the asker takes its names to be.
    pub parts: [u16; 2],
    /// Under which session it keeps files open.
    pub keep: Option<&'a Keep>,
    pub dirs: Dirs<'a>,
    /// What it costs, if somebody wants to know.
    pub notes: &'a Notes,
    /// What became of its directory's change attribute, once it has taken effect.
    pub change: Cell<Option<ChangeInfo>>,
    /// Under leases, what its own change and its answer depend on.
    pub leases: AskedLeases,
}

/// What an operation knows of leases.
#[derive(Default)]
pub(crate) struct AskedLeases {
    /// As of when all it rests on was true, before it waited (H317).
    pub verified: Cell<Watermark>,
    /// Until when may be told of the directory that was looked for by its content: its entry's server says.
    pub lent: Cell<Watermark>,
    /// A directory that it would tell of is about to change.
    pub closed: Cell<bool>,
}

impl Asked<'_> {
    /// The slot that keeps the answer, and has the first name.
    pub fn home(&self) -> Option<Slot> {
        self.op.home_in(self.parts)
    }

    /// The part of a directory that has the first name, as the asker takes it.
    pub fn first_part(&self, dir: DirId) -> Part {
        Part::new(dir, self.parts[0]).unwrap_or(Part::whole(dir))
    }

    /// The statements that must be true at the instant it takes effect. Who has a file open may go on writing
    /// it, and who has a directory open may ask what has become of it.
    pub fn rests_on(&self) -> impl Iterator<Item = &Statement> {
        let rests = match self.op.traits().rests {
            _ if self.basis != Basis::Shown => Rests::Nothing,
            // Its own record says who may do what. What a change of that makes untrue is the statement it
            // came with.
            Rests::Everything if self.op.means_itself().is_some() => Rests::Ways,
            rests => rests,
        };
        self.dirs.all().filter(move |s| match rests {
            Rests::Everything => true,
            Rests::Ways => s.scope != Scope::Handle,
            Rests::Nothing => false,
        })
    }

    /// A directory whose content was not found, and its parent: it may be on its way (H117). Not one of those
    /// `asked` for.
    pub(crate) fn without_content(
        &self,
        snapshot: &Snapshot,
        asked: &BTreeSet<Incarnation>,
    ) -> Option<(DirId, Incarnation)> {
        let mut dirs = self.dirs.all().filter(|d| d.parent != DirId::ABOVE_ROOT);
        let looked = |d: &Statement| snapshot.has_read(&Key::Head(d.id.into()));
        let missing = dirs.find(|d| {
            looked(d) && snapshot.head(d.id.into()).is_none() && !asked.contains(&(d.id, d.generation))
        })?;
        let shown = self.basis == Basis::Shown && !plant!(H117);
        shown.then_some((missing.parent, (missing.id, missing.generation)))
    }
}

impl MetaServer {
    pub(super) fn seen<'a>(
        &self,
        asked: &'a Asked<'a>,
        now: Timestamp,
        outcome: &'a Outcome,
        lsn: Lsn,
        announced: &'a Announced,
    ) -> Executed<'a> {
        Executed {
            message: asked.message,
            request: asked.request,
            cred: asked.cred,
            holder: asked.holder,
            op: asked.op,
            parts: asked.parts,
            dirs: {
                let mut dirs = asked.rests_on();
                [dirs.next(), dirs.next()]
            },
            announced: announced.what(),
            announced_upto: announced.upto(),
            guess: asked.basis != Basis::Shown,
            now,
            outcome,
            lsn,
            changed: false,
            change: asked.change.get(),
        }
    }

    /// What an operation may depend on besides records, now; of one that creates nothing and moves no
    /// directory.
    pub(crate) fn inputs<'a>(
        &self,
        asked: &'a Asked<'_>,
        private: &'a dyn Fn(DirId, Generation) -> bool,
    ) -> Inputs<'a> {
        let map = self.map();
        Inputs {
            cred: asked.cred,
            session: asked.request.map(|r| r.session),
            keeper: asked.keep.map(|k| k.session),
            now: self.world.now(),
            widths: map.widths(),
            ids: map.ids,
            division: map.placement.division(),
            parts: asked.parts,
            inline_limit: map.inline_limit,
            block_size: map.block_size,
            fresh: None,
            walked: None,
            private,
        }
    }
}
