//! Two-phase commit.
//!
//! 1. Participants prepare; their votes are durable.
//! 2. The decision, with this server's own changes and the reply record, is one batch (rule 3).
//! 3. The batch is synced.
//! 4. Only then participants and the caller hear of it.

use super::{Committed, Plan, Shares};
use crate::account::Notes;
use crate::pipeline::{Asked, Done};
use crate::txn::Decided;
use crate::txn::attempt::Txn;
use crate::{Failure, MetaServer};
use pando_env::LocalFuture;
use pando_env::sync::join_all;
use pando_format::{DecisionRecord, Key, Mutation, Record, ReplyWrite};
use pando_store::{Level, Lsn};
use pando_types::{Errno, ServerId, TxId, plant};
use pando_wire::{PeerAnswer, PeerRequest, Refusal, Task, Vote};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl MetaServer {
    pub(super) async fn commit_with_others(
        &self,
        mut txn: Txn<'_>,
        asked: &Asked<'_>,
        plan: &mut Plan<'_>,
        shares: Shares,
    ) -> Result<Committed, Failure> {
        let locked = txn.remote.clone();
        let votes = self.votes(&mut txn, &shares)?;
        let votes = join_all(votes).await;
        self.count(|s| s.aborts += u64::from(votes.iter().any(|v| *v != Vote::Yes)));
        // Dropping the transaction undecided aborts it.
        if votes.contains(&Vote::Exists) {
            return Ok(Committed::Taken);
        }
        if votes.contains(&Vote::NoSpace) {
            return self
                .read_only(asked, plan.effect.now, Err(Errno::NoSpace))
                .map(Committed::Done);
        }
        if votes.iter().any(|v| *v != Vote::Yes) {
            return Err(Failure::Refused(Refusal::Busy));
        }
        self.need_not_ask(shares.elsewhere.keys());
        let only_lent = locked.iter().any(|lender| !shares.elsewhere.contains_key(lender));
        if self.flow().await && only_lent {
            return Err(Failure::Refused(Refusal::Busy));
        }
        self.may_take_effect(asked)?;
        if !plan.holds() {
            return Ok(Committed::Overtaken);
        }
        let tx = txn.id();
        let lsn = self.decide(tx, asked, plan, &shares)?;
        let participants = shares.elsewhere;
        // Servers that only lent locks are let go; they have nothing prepared.
        let lent = txn.remote.iter().copied();
        let lenders: BTreeSet<ServerId> = lent.filter(|s| !participants.contains_key(s)).collect();
        txn.settle();
        if plan.effect.until == Level::Durable {
            drop(txn);
        }
        asked.notes.syncing(self.safe(lsn, Level::Synced)).await?;
        asked.notes.later(lenders.iter().copied(), Task::Release);
        asked.notes.later(participants.keys().copied(), Task::Commit);
        self.tell(tx, false, lenders);
        self.tell(tx, true, participants.into_keys());
        if plant!(H24) {
            self.enter_moves(&shares.moves);
        }
        Ok(Committed::Done(Done {
            outcome: plan.effect.take_outcome(),
            lsn,
            level: Level::Synced,
        }))
    }

    /// Requests for the votes of all who take part, not yet sent.
    fn votes(&self, txn: &mut Txn<'_>, shares: &Shares) -> Result<Vec<LocalFuture<Vote>>, Failure> {
        let locked = txn.remote.clone();
        // The transaction has its number before the requests have it.
        txn.id();
        // Servers that only lent locks vote too, on nothing: whether they still hold them.
        let mut parts: BTreeMap<ServerId, Vec<Mutation>> = shares.elsewhere.clone();
        for lender in &locked {
            parts.entry(*lender).or_default();
        }
        let keeper = shares.reply_elsewhere.as_ref();
        let ask = |(server, mutations)| {
            let reply = keeper
                .filter(|(owner, _)| *owner == server)
                .map(|(_, reply)| reply.clone());
            self.ask_vote(txn, server, locked.contains(&server), mutations, reply)
        };
        parts.into_iter().map(ask).collect()
    }

    /// Writes the decision. From here on it has happened.
    fn decide(
        &self,
        tx: TxId,
        asked: &Asked<'_>,
        plan: &mut Plan<'_>,
        shares: &Shares,
    ) -> Result<Lsn, Failure> {
        let participants: Vec<ServerId> = shares.elsewhere.keys().copied().collect();
        let waiting = participants.iter().copied().collect();
        let batch = &mut plan.effect.batch;
        batch.mutations.push(Mutation::Insert {
            key: Key::Decision(tx),
            record: Record::Decision(DecisionRecord { participants }),
        });
        let before = self.count_before_change(asked);
        let lsn = self.apply(&plan.effect.batch)?;
        if !plant!(H24) {
            self.enter_moves(&shares.moves);
        }
        {
            let mut c = self.txn.coordinated.borrow_mut();
            c.active.remove(&tx.number);
            c.decided.insert(tx, Decided { lsn, waiting });
        }
        self.count(|s| s.commits += 1);
        self.took_effect(asked, &plan.effect, lsn, before);
        Ok(lsn)
    }

    /// A request for a vote, not yet sent.
    pub(crate) fn ask_vote(
        &self,
        txn: &mut Txn<'_>,
        server: ServerId,
        locked: bool,
        mutations: Vec<Mutation>,
        reply: Option<ReplyWrite>,
    ) -> Result<LocalFuture<Vote>, Failure> {
        let tx = txn.id();
        txn.remote.insert(server);
        let request = PeerRequest::Prepare {
            tx,
            low: self.low_watermark(),
            locked,
            mutations,
            reply,
        };
        let Some(me) = self.me.upgrade() else {
            return Err(Failure::Refused(Refusal::NotReady));
        };
        let notes = txn.notes.clone();
        Ok(Box::pin(async move { me.vote_of(server, request, &notes).await }))
    }

    /// Whether all servers that lent locks to an attempt that changes nothing have held them until now.
    pub(crate) async fn still_locked(&self, txn: &mut Txn<'_>) -> bool {
        let mut votes = Vec::new();
        for server in txn.remote.clone() {
            match self.ask_vote(txn, server, true, Vec::new(), None) {
                Ok(vote) => votes.push(vote),
                Err(_) => return false,
            }
        }
        join_all(votes).await.iter().all(|v| *v == Vote::Yes)
    }

    /// Asks for a vote until there is one. No answer counts as no, after which the transaction can only
    /// abort.
    async fn vote_of(&self, server: ServerId, request: PeerRequest, notes: &Notes) -> Vote {
        for _ in 0..self.limits.prepare_tries {
            match self.ask_for(server, request.clone(), notes).await {
                Ok(Ok(PeerAnswer::Vote(vote))) => return vote,
                Ok(Ok(_)) => return Vote::No,
                Ok(Err(_)) | Err(_) => self.pause(Duration::from_millis(20)).await,
            }
        }
        Vote::No
    }
}
