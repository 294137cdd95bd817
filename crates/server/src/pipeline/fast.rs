//! Operations that are over before anything else happens: what they need is here, free and in memory, and
//! what they change is here. They need no task and no locks, and nearly every look and every change of a file
//! is one. All others go the long way (`operate`, `execute`), from the beginning.
//!
//! It is the same operation: decided by the same function, from records that nobody is changing, and it takes
//! effect at the instant they were read (H29), by the same function. What it tells waits until that cannot be
//! lost, as there (rule 8). A change begins in its lane at that instant too: until then nothing has happened,
//! and the long way finds everything as it was.

use super::asked::Asked;
use super::commit::{are_facts, is_new_head};
use super::effect::{Announced, Done, Effect};
use crate::account::Notes;
use crate::admission::claims::{Entitled, Turn};
use crate::admission::operate::Tried;
use crate::admission::sessions::Asker;
use crate::txn::attempt::{Records, Unread};
use crate::{Failure, MetaServer};
use pando_env::LocalFuture;
use pando_format::Mutation;
use pando_namespace::{Decision, Inputs, Snapshot, Step, run};
use pando_store::{Level, Lsn, StoreError};
use pando_types::{Bearer, Errno, MapEpoch, RequestId, plant};
use pando_wire::traits::Quick;
use pando_wire::{Op, OpRequest, Outcome, Response};
use std::collections::BTreeSet;

/// So often more records are asked for.
const ROUNDS: usize = 4;

/// What came of it.
pub(crate) enum AtOnce {
    /// It is answered.
    Answered,
    /// It took effect, and is told once that cannot be lost.
    Done(Untold),
    /// It goes the long way,
    TheLongWay,
    /// once this has been read, from when on it is in memory.
    After(LocalFuture<Result<Records, StoreError>>),
}

/// What is to be told.
pub(crate) struct Untold {
    asker: Asker,
    response: Response,
    /// Of which request it is the outcome, and the map by which that was sent, if it changes anything.
    request: Option<(RequestId, Outcome, MapEpoch)>,
    lsn: Lsn,
    /// It counts as being served until then.
    _turn: Option<Turn>,
}

/// Why an operation is not over at once.
enum Not {
    /// Something stands in its way.
    Now,
    /// A record is not in memory.
    Read(LocalFuture<Result<Records, StoreError>>),
}

impl From<Unread> for Not {
    fn from(why: Unread) -> Not {
        match why {
            Unread::Coming(reading) => Not::Read(reading),
            // Whoever reads it again will hear why it failed.
            Unread::Failed(_) => Not::Now,
        }
    }
}

/// Whether an operation may be over at once.
fn may_be_quick(asked: &OpRequest) -> bool {
    match asked.op.traits().quick {
        Quick::Always => true,
        Quick::Once => asked.request.is_some() && !asked.again,
        Quick::Never => false,
    }
}

impl MetaServer {
    /// Executes what can be executed at once, and answers it if that can be told at once.
    pub(crate) fn do_at_once(
        &self,
        asker: Asker,
        entitled: &Entitled,
        asked: &OpRequest,
        turn: &mut Option<Turn>,
    ) -> AtOnce {
        if !may_be_quick(asked) || entitled.subtree.is_some() && asked.op.is_root_lookup() {
            return AtOnce::TheLongWay;
        }
        let holder = Bearer {
            identity: entitled.holder,
            instance: asked.instance,
        };
        let notes = Notes::default();
        let tried = Tried {
            request: asked.request,
            again: asked.again,
            map: asked.map,
            keep: asked.keep.as_ref(),
            parts: asked.parts,
        };
        let (cred, op, ways, map) = (&asked.cred, &asked.op, &asked.ways, asked.map);
        let asked = if op.mutates() {
            // Its lane comes last.
            let may = self.may_name(op, tried.parts);
            match may.and_then(|()| self.believed(&tried, (holder, cred), op, ways)) {
                Ok(dirs) => self.asked(asker, &tried, (holder, cred), op, dirs, &notes),
                Err(refusal) => {
                    self.answer(vec![asker], Err(refusal));
                    return AtOnce::Answered;
                }
            }
        } else {
            match self.take_on(asker, tried, (holder, cred), op, ways, &notes) {
                Some((asked, _)) => asked,
                None => return AtOnce::Answered,
            }
        };
        let done = match self.done_at_once(asker, &asked, map) {
            Ok(done) => done,
            Err(Not::Now) => return AtOnce::TheLongWay,
            Err(Not::Read(reading)) => return AtOnce::After(reading),
        };
        self.count(|s| s.operations += 1);
        let Done { outcome, lsn, level } = match done {
            Err(Failure::Store(e)) if self.report(&e) => {
                self.conclude(asker, &asked, map, Ok(Err(Errno::Io)));
                return AtOnce::Answered;
            }
            Err(failure) => {
                self.conclude(asker, &asked, map, Err(failure));
                return AtOnce::Answered;
            }
            Ok(done) => done,
        };
        assert_eq!(level, Level::Durable, "what waits for more is not over at once");
        if plant!(H102) && !op.mutates() || self.store.safe(level) >= lsn {
            self.conclude(asker, &asked, map, Ok(outcome));
            return AtOnce::Answered;
        }
        AtOnce::Done(Untold {
            asker,
            request: asked.request.map(|id| (id, outcome.clone(), map)),
            response: self.response(&asked, outcome),
            lsn,
            _turn: turn.take(),
        })
    }

    /// Tells what was done once it cannot be lost, together with what else is done in this turn.
    pub(crate) fn tell_with_turn(&self, untold: Untold) {
        let first = {
            let mut turn = self.untold.borrow_mut();
            turn.push(untold);
            turn.len() == 1
        };
        if first {
            self.spawn(|me| Box::pin(async move { me.tell_turn().await }));
        }
    }

    async fn tell_turn(&self) {
        // In the order in which it was done.
        let turn = self.untold.take();
        let Some(last) = turn.last().map(|untold| untold.lsn) else {
            return;
        };
        match self.safe(last, Level::Durable).await {
            Ok(()) => turn.into_iter().for_each(|untold| self.tell_now(untold)),
            // Nothing is told any more, by nobody.
            Err(Failure::Store(e)) => self.fatal(&e),
            Err(Failure::Refused(_)) => {}
        }
    }

    fn tell_now(&self, untold: Untold) {
        let Untold {
            asker,
            response,
            request,
            ..
        } = untold;
        self.answer(self.askers(asker, request), Ok(response));
    }

    /// Executes it between two turns of all others.
    fn done_at_once(
        &self,
        asker: Asker,
        asked: &Asked<'_>,
        map: MapEpoch,
    ) -> Result<Result<Done, Failure>, Not> {
        let op = asked.op;
        if op.grows() && self.low_on_space() {
            return Err(Not::Now);
        }
        let looked = self.count_before_look(asked);
        let private = self.private_to(asked.holder);
        let mut inputs = self.inputs(asked, &private);
        let mut snapshot = Snapshot::default();
        let decision = self.decided_at_once(asked, &mut inputs, &mut snapshot)?;
        let on_its_way = decision.outcome == Err(Errno::Stale)
            && asked.without_content(&snapshot, &BTreeSet::new()).is_some();
        let alone = decision.invalidates.is_empty() && self.are_done_at_once(op, &decision.mutations);
        if on_its_way || !alone {
            return Err(Not::Now);
        }
        // The last that can stand in its way: from here on it happens.
        if op.mutates() && !self.begins(asker, asked, map) {
            return Err(Not::Now);
        }
        if self.has_leases() {
            let find = |id, generation| snapshot.entry_of(id, generation);
            if self.lease_of_shown(asked, &decision.outcome, find).is_some() {
                return Err(Not::Now);
            }
        }
        let effect = match self.prepare(asked, decision, Announced::default(), inputs.now) {
            Ok(effect) => effect,
            Err(refused) => return Ok(Err(refused)),
        };
        if !effect.batch.mutations.is_empty() && !plant!(H191) {
            self.txn.locks.pass(snapshot.wanted());
        }
        Ok(self.effect_at_once(asked, effect, looked))
    }

    /// REQUIRES: nothing has happened since the records were read.
    #[inline]
    fn effect_at_once(
        &self,
        asked: &Asked<'_>,
        mut effect: Effect,
        looked: Option<u64>,
    ) -> Result<Done, Failure> {
        self.begin_effect(asked, &mut effect);
        if effect.batch.mutations.is_empty() {
            self.tell_look(asked, looked, &effect.outcome, effect.now);
            return self.read_only(asked, effect.now, effect.outcome);
        }
        self.may_take_effect(asked)?;
        let lsn = self.take_effect(asked, &effect)?;
        Ok(Done {
            outcome: effect.outcome,
            lsn,
            level: effect.until,
        })
    }

    /// What is to be done, if all that must be known is here and free.
    fn decided_at_once(
        &self,
        asked: &Asked<'_>,
        inputs: &mut Inputs<'_>,
        snapshot: &mut Snapshot,
    ) -> Result<Decision, Not> {
        for _ in 0..ROUNDS {
            match run(asked.op, inputs, snapshot) {
                Step::Need(wants) => {
                    let here = wants.iter().all(|want| self.home_of(want) == self.id);
                    if !here || !(self.txn.locks.are_free(&wants) || plant!(H190)) {
                        return Err(Not::Now);
                    }
                    let mut records = Vec::with_capacity(wants.len());
                    for want in &wants {
                        self.read_one(want, &mut records)?;
                    }
                    snapshot.add_held(self.held_among(&records));
                    snapshot.add_all(wants, records);
                    // None is spent on what goes the long way.
                    if let (Some(dir), None) = (asked.op.creates_in(), &inputs.fresh) {
                        let number = self
                            .number_at_once(asked.first_part(dir).slot())
                            .ok_or(Not::Now)?;
                        inputs.fresh = Some(self.fresh_of(number));
                    }
                }
                Step::Done(decision) => return Ok(decision),
                Step::UseCoordinator
                | Step::Walk { .. }
                | Step::Localised
                | Step::Elsewhere { .. }
                | Step::Busy => return Err(Not::Now),
            }
        }
        Err(Not::Now)
    }

    /// Whether changes need no other server, and nothing that is waited for before or after.
    fn are_done_at_once(&self, op: &Op, mutations: &[Mutation]) -> bool {
        let here = |m: &Mutation| self.home_of_change(m) == self.id && !is_new_head(m);
        mutations.iter().all(here) && !are_facts(op, mutations) && !self.slots.cuts.holds_still()
    }
}
