//! Execution of one operation: locks, records, decision.

use crate::commit::Committed;
use crate::txn::Txn;
use crate::{Executed, Failure, MetaServer};
use pando_format::{Codec, Key, KeyRange, Position, Record};
use pando_namespace::{Decision, Fresh, Inputs, Page, Snapshot, Step, page, run};
use pando_store::{Level, Lsn};
use pando_types::{Cred, DirId, Errno, IdentityId, RequestId, Timestamp, plant};
use pando_wire::{
    Answer, FsStat, LockMode, LockWant, Op, Outcome, PeerAnswer, PeerRequest, Refusal, Statement,
};
use std::collections::{BTreeMap, BTreeSet};

/// Rounds of asking for more records, or of other directory IDs, before a request is refused as busy.
const ROUNDS: u32 = 64;

/// A result that may be told once `lsn` is safe.
pub(crate) struct Done {
    pub outcome: Outcome,
    pub lsn: Lsn,
    pub level: Level,
}

/// Who asked for what.
pub(crate) struct Asked<'a> {
    pub message: u64,
    /// The identity that asks, for which statements are signed.
    pub holder: IdentityId,
    pub request: Option<RequestId>,
    pub cred: &'a Cred,
    /// Whose keys the answer contains.
    pub told: &'a Cred,
    /// Nobody showed a right to ask this: who hears of the answer is decided otherwise.
    pub guess: bool,
    pub op: &'a Op,
}

impl<'a> Asked<'a> {
    fn executed(&'a self, now: Timestamp, outcome: &'a Outcome, lsn: Lsn, changed: bool) -> Executed<'a> {
        Executed {
            message: self.message,
            holder: self.holder,
            request: self.request,
            cred: self.cred,
            guess: self.guess,
            op: self.op,
            now,
            outcome,
            lsn,
            changed,
        }
    }
}

impl MetaServer {
    pub(crate) async fn execute(&self, asked: &Asked<'_>, unknown: bool) -> Result<Done, Failure> {
        let Asked {
            holder,
            request,
            cred,
            told,
            op,
            ..
        } = *asked;
        match op {
            Op::Sync => {
                return Ok(Done {
                    outcome: Ok(Answer::Done),
                    lsn: self.store.applied(),
                    level: Level::Synced,
                });
            }
            Op::StatFs => {
                return Ok(self.read_only(asked, self.world.now(), Ok(Answer::FsStat(self.stat_fs()))));
            }
            _ => {}
        }
        // One rename between directories at a time: the walk that finds no loop stays true until it is decided.
        let _turn = match op {
            Op::Rename { src, dst, .. } if self.map.rename_server == self.id && src.id != dst.id => {
                Some(self.rename_turn().await?)
            }
            _ => None,
        };
        let mut fresh = self.fresh(op).await?;
        let mut walked = BTreeMap::new();
        let mut wants: BTreeSet<LockWant> = BTreeSet::new();
        if let (Some(key), true) = (reply_key(asked), unknown && !plant!(H44)) {
            wants.insert(LockWant::Key(key, LockMode::Exclusive));
        }
        for _ in 0..ROUNDS {
            let mut txn = Txn::new(self);
            let mut snapshot = Snapshot::default();
            txn.read(&mut snapshot, wants.iter().cloned().collect()).await?;
            if let Some(remembered) = self.remembered(asked, unknown, &snapshot)? {
                return Ok(remembered);
            }
            // Only now: a retry of what was executed while there was room has its answer.
            if op.grows() && self.low_on_space() {
                return Ok(self.read_only(asked, self.world.now(), Err(Errno::NoSpace)));
            }
            let decision = loop {
                let inputs = Inputs {
                    cred,
                    session: request.map(|r| r.session),
                    now: self.world.now(),
                    widths: self.map.widths(),
                    inline_limit: self.map.inline_limit,
                    fresh,
                    walked: (self.map.rename_server == self.id).then_some(&walked),
                };
                match run(op, &inputs, &snapshot) {
                    Step::Need(more) => {
                        if txn.extends(&more) {
                            wants.extend(more.iter().cloned());
                            txn.read(&mut snapshot, more).await?;
                        } else {
                            // Out of the global order: begin again with all that is known to be needed (H31).
                            wants.extend(more);
                            break None;
                        }
                    }
                    Step::Walk { moved, into } => {
                        drop(txn);
                        let looped = self.walk(moved, into).await?;
                        walked.insert((moved, into), looped);
                        txn = Txn::new(self);
                        break None;
                    }
                    Step::UseRenameServer => return Err(Failure::Refused(Refusal::UseRenameServer)),
                    Step::Done(decision) => break Some((decision, inputs.now)),
                }
            };
            let Some((mut decision, now)) = decision else {
                continue;
            };
            self.sign(&mut decision.outcome, told, holder);
            self.give_handle(op, &mut decision.outcome, holder);
            if let (
                Op::ReadDir {
                    dir,
                    after,
                    limit,
                    plus,
                },
                Ok(_),
            ) = (op, &decision.outcome)
            {
                let mut outcome = self.list(dir, *after, *limit, *plus).await?;
                self.sign(&mut outcome, told, holder);
                return Ok(self.read_only(asked, now, outcome));
            }
            if decision.mutations.is_empty() {
                if !txn.remote.is_empty() {
                    self.observer.weighed(&asked.executed(
                        now,
                        &decision.outcome,
                        self.store.applied(),
                        false,
                    ));
                    if !self.still_locked(&mut txn).await {
                        // A server that lent locks has lost them: what was read there and here was never one moment.
                        return Err(Failure::Refused(Refusal::Busy));
                    }
                }
                let done = self.read_only(asked, now, decision.outcome);
                if !txn.remote.is_empty() {
                    // What was seen on other servers stays as it was until what was seen here cannot be lost: the
                    // operation is one moment also for whoever orders servers by what is durable.
                    self.safe(done.lsn, Level::Durable).await?;
                }
                return Ok(done);
            }
            let Decision { outcome, mutations } = decision;
            match self.commit(txn, asked, now, outcome, mutations).await? {
                Committed::Done(done) => return Ok(done),
                Committed::Taken => {
                    // The directory ID stands for another directory, alive elsewhere: try the next version (H2).
                    if let Some(f) = &mut fresh {
                        f.version = f.version.checked_add(1).ok_or(Failure::Refused(Refusal::Busy))?;
                    }
                }
            }
        }
        Err(Failure::Refused(Refusal::Busy))
    }

    /// An operation that changed nothing: it counts at this point of the log.
    fn read_only(&self, asked: &Asked<'_>, now: Timestamp, outcome: Outcome) -> Done {
        let lsn = self.store.applied();
        self.observe(asked, now, &outcome, lsn, false);
        Done {
            outcome,
            lsn,
            level: Level::Durable,
        }
    }

    pub(crate) fn observe(
        &self,
        asked: &Asked<'_>,
        now: Timestamp,
        outcome: &Outcome,
        lsn: Lsn,
        changed: bool,
    ) {
        self.observer
            .executed(&asked.executed(now, outcome, lsn, changed));
    }

    /// The answer of an earlier boot to this very request (H44, H45).
    fn remembered(
        &self,
        asked: &Asked<'_>,
        unknown: bool,
        snapshot: &Snapshot,
    ) -> Result<Option<Done>, Failure> {
        let (Some(request), Some(key), true) = (asked.request, reply_key(asked), unknown) else {
            return Ok(None);
        };
        let Some(Record::Reply(reply)) = snapshot.get(&key) else {
            return Ok(None);
        };
        if reply.sequence > request.sequence {
            return Err(Failure::Refused(Refusal::TooOld));
        }
        if reply.sequence < request.sequence {
            return Ok(None);
        }
        let outcome = Outcome::from_bytes(&reply.answer.0).map_err(|e| pando_store::StoreError::Corrupt {
            key: "reply record".into(),
            why: e.to_string(),
        })?;
        self.count(|s| s.replayed += 1);
        Ok(Some(Done {
            outcome,
            lsn: self.store.applied(),
            level: Level::Durable,
        }))
    }

    /// Identities for what the operation may create.
    async fn fresh(&self, op: &Op) -> Result<Option<Fresh>, Failure> {
        let dir = match op {
            Op::Create { dir, .. } | Op::Symlink { dir, .. } | Op::Mkdir { dir, .. } => dir,
            _ => return Ok(None),
        };
        let (ino, generation) = self
            .numbers
            .next(&*self.store, dir.id.slot(), self.limits.number_block)
            .await?;
        Ok(Some(Fresh {
            ino,
            generation,
            salt: self.world.random(),
            version: 0,
        }))
    }

    /// A page of a listing, under the locks that make it one moment.
    async fn list(
        &self,
        dir: &Statement,
        after: Position,
        limit: u32,
        plus: bool,
    ) -> Result<Outcome, Failure> {
        let range = KeyRange::entries_from(dir.id, after.bucket());
        let mut limit = limit.clamp(1, self.limits.page) as usize;
        loop {
            // One more than shown, to know whether the last bucket is whole.
            let records = self.store.list(&range, limit + 1).wait().await?;
            let complete = records.len() <= limit;
            match page(dir, &records, complete, after, plus) {
                // A page of entries the caller has seen already says nothing: look further.
                Page::Entries(Answer::Entries { entries, end: false }) if entries.is_empty() => limit *= 2,
                Page::Entries(answer) => return Ok(Ok(answer)),
                Page::More => limit *= 2,
            }
        }
    }

    fn stat_fs(&self) -> FsStat {
        let space = self.room();
        let reserve = self.limits.reserve_bytes.min(space.total / 8);
        FsStat {
            total: space.total,
            available: space.available.saturating_sub(reserve),
        }
    }

    /// Whether `moved` is `into` or one of its ancestors, by (ID, generation) from parent to parent (H22).
    async fn walk(&self, moved: DirId, into: DirId) -> Result<bool, Failure> {
        if plant!(H21) {
            return Ok(false);
        }
        let mut at = into;
        let mut generation = None;
        for _ in 0..1_000_000 {
            if at == moved {
                return Ok(true);
            }
            if at == DirId::ROOT || at == DirId::ABOVE_ROOT {
                return Ok(false);
            }
            let head = if self.owner(at.slot()) == self.id {
                self.read_head(at).await?
            } else {
                match self.ask(self.owner(at.slot()), PeerRequest::Head(at)).await {
                    Ok(Ok(PeerAnswer::Head(head))) => head,
                    _ => return Err(Failure::Refused(Refusal::Busy)),
                }
            };
            match head {
                Some(h) if generation.is_none_or(|g| g == h.generation) => {
                    at = h.parent;
                    generation = Some(h.parent_generation);
                }
                // The new parent itself is gone: the operation will find that under its lock.
                None if generation.is_none() => return Ok(false),
                _ => return Err(Failure::Refused(Refusal::Busy)),
            }
        }
        Err(Failure::Refused(Refusal::Busy))
    }
}

/// The key of a mutating request's reply record.
pub(crate) fn reply_key(asked: &Asked<'_>) -> Option<Key> {
    let request = asked.request.filter(|_| asked.op.mutates())?;
    Some(Key::Reply(asked.op.home()?, request.session, request.slot))
}
