//! What this server decides alone: one batch, with or without content that it owes to another.

use super::{Committed, Plan, Shares};
use crate::pipeline::{Asked, Done};
use crate::txn::attempt::Txn;
use crate::txn::locks::Unit;
use crate::{Failure, MetaServer};
use pando_format::{Key, Mutation, OwedRecord, Record};
use pando_store::{Level, Lsn};
use pando_wire::{Refusal, Task};

impl MetaServer {
    pub(super) async fn commit_alone(
        &self,
        mut txn: Txn<'_>,
        asked: &Asked<'_>,
        plan: &mut Plan<'_>,
        shares: Shares,
    ) -> Result<Committed, Failure> {
        if !self.may_decide_alone(&mut txn, asked, plan).await? {
            return Ok(Committed::Overtaken);
        }
        let lsn = self.take_effect(asked, &plan.effect)?;
        self.decided_alone(asked, plan, &shares, lsn).await
    }

    /// The same, with a record of the content that another server gets later (H117).
    pub(super) async fn commit_owing(
        &self,
        mut txn: Txn<'_>,
        asked: &Asked<'_>,
        plan: &mut Plan<'_>,
        shares: Shares,
        (content, entry): (OwedRecord, Unit),
    ) -> Result<Committed, Failure> {
        if !self.may_decide_alone(&mut txn, asked, plan).await? {
            return Ok(Committed::Overtaken);
        }
        let tx = txn.id();
        plan.effect.batch.mutations.push(Mutation::Insert {
            key: Key::Owed(tx),
            record: Record::Owed(content.clone()),
        });
        let lsn = self.take_effect(asked, &plan.effect)?;
        txn.settle();
        self.owe(tx, lsn, content, (txn.holder(), entry));
        asked.notes.later(shares.elsewhere.keys().copied(), Task::Content);
        self.decided_alone(asked, plan, &shares, lsn).await
    }

    /// Whether it may take effect at this instant, and no earlier: what it rests on may have changed while it
    /// waited.
    async fn may_decide_alone(
        &self,
        txn: &mut Txn<'_>,
        asked: &Asked<'_>,
        plan: &Plan<'_>,
    ) -> Result<bool, Failure> {
        // A slot may have come here after its records were locked where it was: then those locks are gone,
        // and others may have been told meanwhile what is about to change.
        if !txn.remote.is_empty() && !Box::pin(self.still_locked(txn)).await {
            return Err(Failure::Refused(Refusal::Busy));
        }
        // A lender that starts again meanwhile has no locks any more.
        if self.flow().await && !txn.remote.is_empty() {
            return Err(Failure::Refused(Refusal::Busy));
        }
        self.may_take_effect(asked)?;
        Ok(plan.holds())
    }

    async fn decided_alone(
        &self,
        asked: &Asked<'_>,
        plan: &mut Plan<'_>,
        shares: &Shares,
        lsn: Lsn,
    ) -> Result<Committed, Failure> {
        self.enter_moves(&shares.moves);
        if plan.effect.until == Level::Synced {
            asked.notes.syncing(self.safe(lsn, Level::Synced)).await?;
        }
        // Readers of what is not yet durable wait on the log position, not on the lock.
        Ok(Committed::Done(Done {
            outcome: plan.effect.take_outcome(),
            lsn,
            level: Level::Durable,
        }))
    }
}
