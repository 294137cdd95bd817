//! Bringing a decision about: one batch if all of it is here, else two-phase commit (H37–H40).
//!
//! Order of a distributed commit: participants prepare (durable votes) → the decision, with this server's own changes
//! and the reply record, is one batch (rule 3) → it is synced → only then participants and the caller hear of it.

use crate::account::Notes;
use crate::execute::{Announced, Asked, Done, reply_key};
use crate::graph::Moving;
use crate::locks::{in_order, unit_of_mutation};
use crate::txn::Txn;
use crate::{Decided, Failure, MetaServer};
use pando_env::LocalFuture;
use pando_env::sync::join_all;
use pando_format::codec::Blob;
use pando_format::{
    Batch, Codec, DecisionRecord, Entry, Key, KeyRange, Mutation, Record, ReplyRecord, ReplyWrite, Target,
};
use pando_namespace::{Decision, Walked};
use pando_store::{Level, Lsn, StoreError};
use pando_types::{Errno, ServerId, Timestamp, plant};
use pando_wire::{Answer, Op, Outcome, PeerAnswer, PeerRequest, Refusal, Task, Vote};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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
    pub decision: Decision,
    /// The calendar time it was decided with.
    pub now: Timestamp,
    pub announced: Announced,
    /// If a directory gets another parent: that no loop comes of it.
    pub moving: Option<&'a Moving<'a>>,
    pub walked: &'a Walked,
}

impl Plan<'_> {
    fn holds(&self) -> bool {
        self.moving.is_none_or(|m| m.holds(self.walked))
    }
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

/// Whether statements are made of what is changed. It is shown to nobody before it is synced, in either durability: they would outlive
/// its loss.
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
    pub(crate) async fn commit(
        &self,
        mut txn: Txn<'_>,
        asked: &Asked<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Committed, Failure> {
        let now = plan.now;
        let mutations = std::mem::take(&mut plan.decision.mutations);
        let outcome = std::mem::replace(&mut plan.decision.outcome, Ok(Answer::Done));
        self.keep_private(asked, &mutations);
        let moves = plan.moving.map(|_| mutations.clone()).unwrap_or_default();
        let facts = are_facts(asked.op, &mutations);
        let mut by_owner: BTreeMap<ServerId, Vec<Mutation>> = BTreeMap::new();
        for m in mutations {
            by_owner.entry(self.home_of_change(&m)).or_default().push(m);
        }
        let local = by_owner.remove(&self.id).unwrap_or_default();
        let reply = self.reply_write(asked, &outcome);
        let reply_owner = reply.as_ref().map(|r| self.owner(r.key.slot()));
        let local_reply = reply.clone().filter(|_| reply_owner == Some(self.id));
        // A slot that has moved since this was admitted is served by one server, which may have been asked the same
        // meanwhile. Those of its records that are locked here have not moved.
        if let Some(owner) = reply_owner.filter(|o| *o != self.id && !self.is_coordinated(asked.op)) {
            tracing::debug!(
                server = self.id.0,
                owner = owner.0,
                "a slot has moved under an operation"
            );
            return Err(Failure::Refused(Refusal::NotOwner(self.map().epoch)));
        }

        // Who keeps the answer takes part, also with nothing else to change (H44).
        if let Some(owner) = reply_owner.filter(|o| *o != self.id) {
            by_owner.entry(owner).or_default();
        }
        if local.iter().any(is_new_head) && Box::pin(self.take_ids(&txn, &local)).await? {
            return Ok(Committed::Taken);
        }
        let owed = self
            .may_owe(asked.op, &by_owner, &local)
            .filter(|_| txn.remote.is_empty());
        if by_owner.is_empty() || owed.is_some() {
            // A slot may have come here after its records were locked where it was: then those locks are gone, and others
            // may have been told meanwhile what is about to change.
            if !txn.remote.is_empty() && !Box::pin(self.still_locked(&mut txn)).await {
                return Err(Failure::Refused(Refusal::Busy));
            }
            // Whoever lent locks and starts again meanwhile has none any more.
            if self.flow().await && !txn.remote.is_empty() {
                return Err(Failure::Refused(Refusal::Busy));
            }
            // At this instant, and no earlier: what it rests on may have changed while it waited.
            self.may_take_effect(asked)?;
            if !plan.holds() {
                return Ok(Committed::Overtaken);
            }
            let owed = owed.map(|owed| (txn.id(), owed));
            let record = owed.iter().map(|(tx, (content, _))| Mutation::Insert {
                key: Key::Owed(*tx),
                record: Record::Owed(content.clone()),
            });
            let batch = Batch {
                mutations: local.into_iter().chain(record).collect(),
                reply: local_reply,
            };
            let lsn = self.take_effect(asked, &batch, &outcome, now, &plan.announced)?;
            if let Some((tx, (content, entry))) = owed {
                txn.settle();
                self.owe(tx, lsn, content, (txn.holder(), entry));
                asked.notes.later(by_owner.into_keys(), Task::Content);
            }
            self.enter_moves(&moves);
            if facts {
                asked.notes.syncing(self.safe(lsn, Level::Synced)).await?;
            }
            // Readers of what is not yet durable wait on the log position, not on the lock.
            return Ok(Committed::Done(Done {
                outcome,
                lsn,
                level: Level::Durable,
            }));
        }
        let tx = txn.id();
        let locked = txn.remote.clone();
        // Servers that only lent locks vote too, on nothing: whether they still hold them.
        let mut parts: BTreeMap<ServerId, Vec<Mutation>> = by_owner.clone();
        for lender in &locked {
            parts.entry(*lender).or_default();
        }
        let mut votes: Vec<LocalFuture<Vote>> = Vec::new();
        for (server, mutations) in parts {
            let reply = reply.clone().filter(|_| reply_owner == Some(server));
            votes.push(self.ask_vote(&mut txn, server, locked.contains(&server), mutations, reply)?);
        }
        let votes = join_all(votes).await;
        self.count(|s| s.aborts += u64::from(votes.iter().any(|v| *v != Vote::Yes)));
        // Dropping the transaction undecided aborts it.
        if votes.contains(&Vote::Exists) {
            return Ok(Committed::Taken);
        }
        if votes.contains(&Vote::NoSpace) {
            return self
                .read_only(asked, now, Err(Errno::NoSpace))
                .map(Committed::Done);
        }
        if votes.iter().any(|v| *v != Vote::Yes) {
            return Err(Failure::Refused(Refusal::Busy));
        }
        self.need_not_ask(by_owner.keys());
        let only_lent = locked.iter().any(|lender| !by_owner.contains_key(lender));
        if self.flow().await && only_lent {
            return Err(Failure::Refused(Refusal::Busy));
        }
        self.may_take_effect(asked)?;
        if !plan.holds() {
            return Ok(Committed::Overtaken);
        }
        let participants: Vec<ServerId> = by_owner.keys().copied().collect();
        let mut mutations = local;
        let decision = Record::Decision(DecisionRecord {
            participants: participants.clone(),
        });
        mutations.push(Mutation::Insert {
            key: Key::Decision(tx),
            record: decision,
        });
        let before = self.count_before_change(asked);
        let lsn = self.apply(&Batch {
            mutations,
            reply: local_reply,
        })?;
        self.tell_change(asked, before, now);
        if !plant!(H24) {
            self.enter_moves(&moves);
        }
        {
            let mut c = self.coordinated.borrow_mut();
            c.active.remove(&tx.number);
            c.decided.insert(
                tx,
                Decided {
                    lsn,
                    waiting: participants.iter().copied().collect(),
                },
            );
        }
        self.count(|s| s.commits += 1);
        self.observe(asked, now, &outcome, lsn, &plan.announced);
        // Servers that only lent locks are let go; they have nothing prepared.
        let lenders: BTreeSet<ServerId> = txn
            .remote
            .iter()
            .copied()
            .filter(|s| !participants.contains(s))
            .collect();
        txn.settle();
        if !facts {
            drop(txn);
        }
        asked.notes.syncing(self.safe(lsn, Level::Synced)).await?;
        asked.notes.later(lenders.iter().copied(), Task::Release);
        asked.notes.later(participants, Task::Commit);
        self.tell(tx, false, lenders);
        self.tell(tx, true, by_owner.into_keys());
        if plant!(H24) {
            self.enter_moves(&moves);
        }
        Ok(Committed::Done(Done {
            outcome,
            lsn,
            level: Level::Synced,
        }))
    }

    /// An operation changes what is all here. REQUIRES: that it may was found in this instant.
    pub(crate) fn take_effect(
        &self,
        asked: &Asked<'_>,
        batch: &Batch,
        outcome: &Outcome,
        now: Timestamp,
        announced: &Announced,
    ) -> Result<Lsn, Failure> {
        let before = self.count_before_change(asked);
        let lsn = self.apply_asked(asked, batch)?;
        self.tell_change(asked, before, now);
        self.observe(asked, now, outcome, lsn, announced);
        Ok(lsn)
    }

    /// Locks the content that is to be created here: nobody knows it yet, unless two births hash to one ID.
    /// True: one of the IDs is taken.
    async fn take_ids(&self, txn: &Txn<'_>, local: &[Mutation]) -> Result<bool, Failure> {
        let new = local.iter().filter(|m| is_new_head(m));
        let units = in_order(new.filter_map(unit_of_mutation));
        let acquire = self.locks.acquire(txn.holder(), units, || self.lock_wait());
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

    /// Applies a batch, remembering where its session has a reply record.
    pub(crate) fn apply(&self, batch: &Batch) -> Result<Lsn, Failure> {
        if let Some(reply) = &batch.reply
            && let Key::Reply(slot, session, _) = reply.key
        {
            self.sessions.borrow_mut().wrote(session, slot);
        }
        self.apply_noted(batch)
    }

    /// The same for what a request does that runs here. Its lane's last reply record is not needed any more then (H46), but for what may be
    /// asked of a coordinator: the next one may be asked too, late, and looks for the record here.
    fn apply_asked(&self, asked: &Asked<'_>, batch: &Batch) -> Result<Lsn, Failure> {
        let coordinated = asked.op.traits().coordinated;
        let (Some(request), Some(reply), false) = (asked.request, &batch.reply, coordinated) else {
            return self.apply(batch);
        };
        let (ran_here, last) = self.sessions.borrow_mut().replies(request, reply.key.slot());
        if !ran_here {
            return self.apply(batch);
        }
        if let Some((slot, sequence)) = last {
            let key = Key::Reply(slot, request.session, request.slot);
            self.store.spent(&key, sequence);
        }
        self.apply_noted(batch)
    }

    fn apply_noted(&self, batch: &Batch) -> Result<Lsn, Failure> {
        if plant!(H3) || plant!(H4) {
            self.end_wrongly(batch)?;
        }
        self.change(batch)
    }

    /// Planted: with a directory go the rename lists of births in it (H3), or its content is deleted a second time, later
    /// and whatever is there by then (H4).
    fn end_wrongly(&self, batch: &Batch) -> Result<(), StoreError> {
        for m in &batch.mutations {
            if let Mutation::Delete { key: Key::Head(part) } = m {
                if plant!(H3) {
                    self.store.delete_range(&KeyRange::rename_lists(part.dir))?;
                } else {
                    let late = Batch::of(vec![m.clone()]);
                    self.spawn(|me| {
                        Box::pin(async move {
                            me.pause(Duration::from_millis(20)).await;
                            let _ = me.store.apply(&late);
                        })
                    });
                }
            }
        }
        Ok(())
    }

    pub(crate) fn reply_write(&self, asked: &Asked<'_>, outcome: &Outcome) -> Option<ReplyWrite> {
        let request = asked.request?;
        let (dir, hash) = match asked.op.subjects() {
            [Some(first), _] => {
                let hash_of = |name| self.map().widths().name(first.dir().salt, name);
                (
                    first.dir().id,
                    first.first_name().map_or(pando_format::NameHash(0), hash_of),
                )
            }
            [None, _] => (pando_types::DirId::ABOVE_ROOT, pando_format::NameHash(0)),
        };
        let answer = Blob(outcome.to_bytes());
        let record = ReplyRecord {
            sequence: request.sequence,
            dir,
            hash,
            answer,
        };
        Some(ReplyWrite {
            key: reply_key(asked)?,
            record,
        })
    }

    /// A request for a vote, not yet sent.
    fn ask_vote(
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
        Ok(Box::pin(async move { me.prepare(server, request, &notes).await }))
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

    /// Asks for a vote until there is one. No answer counts as no, after which the transaction can only abort.
    async fn prepare(&self, server: ServerId, request: PeerRequest, notes: &Notes) -> Vote {
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
