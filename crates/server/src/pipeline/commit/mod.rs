//! Bringing a decision about: here alone, owing content, or by two-phase commit (H37–H40).
//!
//! `Path` says which, by where the changes are. Each has a file.

mod alone;
mod apply;
mod two_phase;

use super::asked::Asked;
use super::effect::{Done, Effect};
use crate::office::graph::Moving;
use crate::txn::attempt::Txn;
use crate::txn::locks::{Unit, in_order, unit_of_mutation};
use crate::{Failure, MetaServer};
use pando_format::{Entry, Key, Mutation, OwedRecord, Record, ReplyWrite, Target};
use pando_namespace::Walked;
use pando_types::{ServerId, plant};
use pando_wire::{Op, Refusal};
use std::collections::BTreeMap;

/// How a commit ended.
pub(crate) enum Committed {
    /// It took effect.
    Done(Done),
    /// A directory ID was taken; nothing happened.
    Taken,
    /// Whether a loop would come of it has changed since it was looked at; nothing happened.
    Overtaken,
}

/// What is to be brought about, and what it rests on beside statements.
pub(crate) struct Plan<'a> {
    pub effect: Effect,
    /// If a directory gets another parent: that no loop comes of it.
    pub moving: Option<&'a Moving<'a>>,
    pub walked: &'a Walked,
}

impl Plan<'_> {
    fn holds(&self) -> bool {
        self.moving.is_none_or(|m| m.holds(self.walked))
    }
}

/// Where the changes of an effect are.
struct Shares {
    /// On other servers, by server. A server that keeps the answer takes part, also with nothing else to
    /// change (H44).
    elsewhere: BTreeMap<ServerId, Vec<Mutation>>,
    /// The record of the answer, and the server that keeps it, if that is another.
    reply_elsewhere: Option<(ServerId, ReplyWrite)>,
    /// All changes, if they move a directory.
    moves: Vec<Mutation>,
}

/// How a decision is brought about.
enum Path {
    /// All of it is here: one batch.
    Alone,
    /// All but the content of a new directory, which its server gets later. Its entry, locked until then.
    Owing(OwedRecord, Unit),
    /// Several servers vote.
    TwoPhase,
}

/// Whether it changes a directory's entry.
fn is_of_dir(m: &Mutation) -> bool {
    matches!(
        m,
        Mutation::Insert {
            record: Record::Entry(Entry {
                target: Target::Dir(_),
                ..
            }),
            ..
        } | Mutation::Update {
            record: Record::Entry(Entry {
                target: Target::Dir(_),
                ..
            }),
            ..
        }
    )
}

/// Whether statements are made of what is changed. It is shown to nobody before it is synced, in either
/// durability: they would outlive its loss.
pub(crate) fn are_facts(op: &Op, mutations: &[Mutation]) -> bool {
    op.traits().facts && mutations.iter().any(is_of_dir)
}

/// Whether it creates the content of a directory.
pub(crate) fn is_new_head(m: &Mutation) -> bool {
    matches!(
        m,
        Mutation::Insert {
            key: Key::Head(_),
            ..
        }
    )
}

impl MetaServer {
    /// Brings an effect about, in which all has begun that comes before its batch.
    pub(crate) async fn commit(
        &self,
        txn: Txn<'_>,
        asked: &Asked<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Committed, Failure> {
        let shares = self.shares(asked, plan)?;
        let here = &plan.effect.batch.mutations;
        if here.iter().any(is_new_head) && Box::pin(self.take_ids(&txn, here)).await? {
            return Ok(Committed::Taken);
        }
        match self.path(asked.op, &shares, here, &txn) {
            Path::Alone => self.commit_alone(txn, asked, plan, shares).await,
            Path::Owing(content, entry) => {
                self.commit_owing(txn, asked, plan, shares, (content, entry))
                    .await
            }
            Path::TwoPhase => self.commit_with_others(txn, asked, plan, shares).await,
        }
    }

    /// Takes from the batch what is not here.
    fn shares(&self, asked: &Asked<'_>, plan: &mut Plan<'_>) -> Result<Shares, Failure> {
        let batch = &mut plan.effect.batch;
        let moves = plan.moving.map(|_| batch.mutations.clone()).unwrap_or_default();
        let mut elsewhere: BTreeMap<ServerId, Vec<Mutation>> = BTreeMap::new();
        for m in std::mem::take(&mut batch.mutations) {
            elsewhere.entry(self.home_of_change(&m)).or_default().push(m);
        }
        batch.mutations = elsewhere.remove(&self.id).unwrap_or_default();
        let owner = batch.reply.as_ref().map(|r| self.owner(r.key.slot()));
        let Some(owner) = owner.filter(|o| *o != self.id) else {
            return Ok(Shares {
                elsewhere,
                reply_elsewhere: None,
                moves,
            });
        };
        // A slot that has moved since this was admitted is served by one server, which may have been asked
        // the same meanwhile. Those of its records that are locked here have not moved.
        if !self.is_coordinated(asked.op) {
            tracing::debug!(
                server = self.id.0,
                owner = owner.0,
                "a slot has moved under an operation"
            );
            return Err(Failure::Refused(Refusal::NotOwner(self.map().epoch)));
        }
        elsewhere.entry(owner).or_default();
        Ok(Shares {
            elsewhere,
            reply_elsewhere: batch.reply.take().map(|reply| (owner, reply)),
            moves,
        })
    }

    fn path(&self, op: &Op, shares: &Shares, here: &[Mutation], txn: &Txn<'_>) -> Path {
        if shares.elsewhere.is_empty() {
            return Path::Alone;
        }
        let owed = self.may_owe(op, &shares.elsewhere, here);
        match owed.filter(|_| txn.remote.is_empty()) {
            Some((content, entry)) => Path::Owing(content, entry),
            None => Path::TwoPhase,
        }
    }

    /// Locks the content that is to be created here: nobody knows it yet, unless two births hash to one ID.
    /// True: one of the IDs is taken.
    async fn take_ids(&self, txn: &Txn<'_>, local: &[Mutation]) -> Result<bool, Failure> {
        let new = local.iter().filter(|m| is_new_head(m));
        let units = in_order(new.filter_map(unit_of_mutation));
        let acquire = self.txn.locks.acquire(txn.holder(), units, || self.lock_wait());
        txn.notes.locking(acquire).await?;
        self.taken(local).await
    }

    /// Whether a directory ID that is to be created here stands for a live directory.
    pub(crate) async fn taken(&self, mutations: &[Mutation]) -> Result<bool, Failure> {
        for m in mutations {
            if let Mutation::Insert {
                key: key @ Key::Head(_),
                record: Record::Head(new),
            } = m
                && let Some(Record::Head(there)) = self.store.get(key).wait().await?
                && !(plant!(H2) && there.birth == new.birth)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
