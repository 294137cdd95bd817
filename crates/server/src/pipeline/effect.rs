//! What a decision does, as a value.

use super::asked::Asked;
use super::commit::are_facts;
use crate::mounts::holds::OpenClaim;
use crate::{Executed, Failure, MetaServer};
use pando_format::{Batch, Invalidation};
use pando_namespace::Decision;
use pando_store::{Level, Lsn};
use pando_types::{Timestamp, Watermark};
use pando_wire::{Answer, Outcome, Refusal};

/// A result that may be told once `lsn` is safe.
pub(crate) struct Done {
    pub outcome: Outcome,
    pub lsn: Lsn,
    pub level: Level,
}

/// What an operation makes untrue, after every server has heard of it.
#[derive(Default)]
pub(crate) struct Announced {
    what: Vec<Invalidation>,
    upto: Watermark,
}

impl Announced {
    /// All servers have heard of this.
    pub fn of(what: Vec<Invalidation>, upto: Watermark) -> Announced {
        Announced { what, upto }
    }

    pub(super) fn what(&self) -> &[Invalidation] {
        &self.what
    }

    pub(super) fn upto(&self) -> Watermark {
        self.upto
    }
}

/// What an operation does when it takes effect. Its fields stand in the order in which they happen.
///
/// The operation's lane has begun before there is an `Effect`: nothing after that asks for the operation
/// again.
pub(crate) struct Effect {
    /// Every server has heard of this before anything below happens.
    pub announced: Announced,
    /// The open file is noted before anybody hears of it, and while its record is locked (H97).
    pub opened: Option<OpenClaim>,
    /// All changes, and what is kept of the answer: one atomic write (rule 3). On several servers, two phases
    /// (H37).
    pub batch: Batch,
    /// The answer, signed while the records it was made of are locked. It is told when the batch is safe
    /// (rule 8).
    pub outcome: Outcome,
    /// How safe the batch must be before its locks are given back.
    pub until: Level,
    /// The calendar time it was decided with.
    pub now: Timestamp,
}

impl Effect {
    /// The answer, which is told once.
    pub(super) fn take_outcome(&mut self) -> Outcome {
        std::mem::replace(&mut self.outcome, Ok(Answer::Done))
    }
}

impl MetaServer {
    /// Makes a decision into what is to be done. Nothing is changed here.
    /// REQUIRES: its lane has begun, `announced` is what it invalidates, and its records are locked.
    #[inline]
    pub(crate) fn prepare(
        &self,
        asked: &Asked<'_>,
        decision: Decision,
        announced: Announced,
        now: Timestamp,
    ) -> Result<Effect, Failure> {
        let Decision {
            mut outcome,
            mutations,
            invalidates: _,
        } = decision;
        self.sign(&mut outcome, asked);
        // A directory is about to change: who looks it up hears when it has.
        if asked.leases.closed.get() && mutations.is_empty() && outcome_is_entry(&outcome) {
            return Err(Failure::Refused(Refusal::Busy));
        }
        self.give_handle(asked.op, &mut outcome, asked.holder.identity);
        let opened = self.open_claim(asked.keep, asked.home(), &mut outcome)?;
        // An operation that only reads has nothing to keep.
        let changes = !mutations.is_empty();
        let reply = changes.then(|| self.reply_write(asked, &outcome)).flatten();
        let until = match are_facts(asked.op, &mutations) {
            true => Level::Synced,
            false => Level::Durable,
        };
        Ok(Effect {
            announced,
            opened,
            batch: Batch { mutations, reply },
            outcome,
            until,
            now,
        })
    }

    /// The first of it: what this server knows beside its records.
    #[inline]
    pub(crate) fn begin_effect(&self, asked: &Asked<'_>, effect: &mut Effect) {
        if effect.opened.is_some() {
            self.opened_while_split(asked);
        }
        self.note_open(effect.opened.take());
        self.keep_private(asked, &effect.batch.mutations);
    }

    /// The batch, if all of it is here. REQUIRES: `may_take_effect` said yes in this instant.
    pub(super) fn take_effect(&self, asked: &Asked<'_>, effect: &Effect) -> Result<Lsn, Failure> {
        let before = self.count_before_change(asked);
        let lsn = self.apply_asked(asked, &effect.batch)?;
        self.took_effect(asked, effect, lsn, before);
        Ok(lsn)
    }

    /// What is told of a batch that was written. `before`: the change attribute of its directory.
    pub(super) fn took_effect(&self, asked: &Asked<'_>, effect: &Effect, lsn: Lsn, before: Option<u64>) {
        self.tell_change(asked, before, effect.now);
        let seen = self.seen(asked, effect.now, &effect.outcome, lsn, &effect.announced);
        self.observer.executed(&Executed {
            changed: true,
            ..seen
        });
    }

    /// An operation that changed nothing: it counts at this point of the log.
    pub(crate) fn read_only(
        &self,
        asked: &Asked<'_>,
        now: Timestamp,
        outcome: Outcome,
    ) -> Result<Done, Failure> {
        self.may_take_effect(asked)?;
        let lsn = self.store.applied();
        self.observer
            .executed(&self.seen(asked, now, &outcome, lsn, &Announced::default()));
        Ok(Done {
            outcome,
            lsn,
            level: Level::Durable,
        })
    }
}

/// Whether it shows one entry.
fn outcome_is_entry(outcome: &Outcome) -> bool {
    matches!(outcome, Ok(Answer::Entry(_)))
}
