//! The participant's side of distributed transactions, and the answers about those coordinated here.
//!
//! A vote of yes is durable before it is sent (H40); after it only the coordinator's word ends the
//! transaction (H37). Before it, locks are volatile: lost in a restart, after which the vote is no.

use crate::account::Notes;
use crate::office::follow::Following;
use crate::txn::locks::{Busy, Holder, in_order, unit_of, units_of};
use crate::{Failure, MetaServer};
use pando_env::LocalFuture;
use pando_format::{Batch, Head, Key, Mutation, PreparedRecord, Record, ReplyWrite, SessionRecord};
use pando_store::{Level, Read, StoreError};
use pando_types::{
    BootEpoch, DirId, Ids, Mono, Part, RequestId, Sequence, ServerId, SessionId, Slot, TxId, plant,
};
use pando_wire::{LockMode, LockWant, PeerAnswer, PeerRequest, Refusal, Stored, TxState, Vote};
use std::collections::{BTreeMap, BTreeSet};

/// So often what stands where a reply is to go is looked for in memory, and brought there.
const LOOKS: usize = 4;

/// Reply records, by what they are of.
type Replies = Vec<(Key, Sequence)>;

/// One that is not in memory.
type Coming = (Key, LocalFuture<Result<Option<Record>, StoreError>>);

/// A transaction of another coordinator that holds something here.
pub(crate) struct TxPart {
    pub holder: Holder,
    /// Slots with a prepared record; empty: only volatile locks.
    pub prepared: BTreeSet<Slot>,
    /// What it will do, by slot.
    pub records: Vec<(Slot, PreparedRecord)>,
    /// Last time the coordinator was heard of it.
    pub heard: Mono,
}

/// All of them.
#[derive(Default)]
pub(crate) struct TxParts {
    pub live: BTreeMap<TxId, TxPart>,
    /// Finished transactions at or above the coordinator's low-watermark: late messages of theirs do nothing
    /// (H39).
    finished: BTreeSet<TxId>,
    /// Low-watermark of each coordinator in its latest boot.
    low: BTreeMap<ServerId, (BootEpoch, u64)>,
}

impl TxParts {
    /// Notes a coordinator's low-watermark. False: `tx` is finished, or of an earlier boot than its
    /// coordinator's.
    pub fn current(&mut self, tx: TxId, low: u64) -> bool {
        let known = self.low.entry(tx.coordinator).or_default();
        if (tx.boot, low) > *known {
            *known = (tx.boot, low);
            let below = |(boot, number)| TxId {
                coordinator: tx.coordinator,
                boot,
                number,
            };
            let old = below(Default::default())..below(*known);
            // They are passed one after the other: most times there is nothing to look at but the first.
            while let Some(first) = self.finished.range(old.clone()).next().copied() {
                self.finished.remove(&first);
            }
        }
        plant!(H39) || ((tx.boot, tx.number) >= self.low[&tx.coordinator] && !self.finished.contains(&tx))
    }

    pub fn finish(&mut self, tx: TxId) -> Option<TxPart> {
        self.finished.insert(tx);
        self.live.remove(&tx)
    }

    fn reopen(&mut self, tx: TxId, part: TxPart) {
        self.finished.remove(&tx);
        self.live.insert(tx, part);
    }
}

/// Whether a change needs room. Notes of what is removed take room to make some.
fn grows(m: &Mutation) -> bool {
    match m {
        Mutation::Insert { key, .. } => !matches!(key, Key::Orphan(..) | Key::Garbage(..)),
        Mutation::Update { .. } | Mutation::Delete { .. } | Mutation::Touch { .. } => false,
    }
}

impl MetaServer {
    pub(crate) async fn participate(
        &self,
        request: PeerRequest,
        notes: &Notes,
    ) -> Result<PeerAnswer, Failure> {
        match request {
            PeerRequest::Lock {
                tx,
                low,
                locked,
                wants,
                wait,
            } => self.lock((tx, low), locked, (wants, wait), notes).await,
            PeerRequest::Prepare {
                tx,
                low,
                locked,
                mutations,
                reply,
            } => {
                let vote = self.vote((tx, low), locked, mutations, reply, notes).await?;
                Ok(PeerAnswer::Vote(vote))
            }
            PeerRequest::Decide { tx, commit } => {
                self.decided(tx, commit).await.map(|()| PeerAnswer::Decided)
            }
            PeerRequest::Settle { committed, aborted } => {
                self.heed_all(&committed, &aborted).await?;
                Ok(PeerAnswer::Decided)
            }
            PeerRequest::Content { low, map, contents } => {
                let stored = self.store_contents(low, map, contents).await?;
                Ok(self.stored(stored))
            }
            PeerRequest::Load => Ok(PeerAnswer::Load(self.store.records())),
            PeerRequest::Owes {
                parent,
                dir,
                generation,
            } => self.owes(parent, dir, generation).await,
            PeerRequest::Inquire(tx) => Ok(PeerAnswer::State(self.state_of(tx))),
            PeerRequest::Head(dir) => Ok(PeerAnswer::Head(self.read_head(dir, true, notes).await?)),
            PeerRequest::Follow {
                who,
                boot,
                term,
                map,
                heard,
                echo,
                relayed,
            } => {
                self.lead(Following {
                    who,
                    boot,
                    term,
                    map,
                    heard,
                    echo,
                    relayed,
                })
                .await
            }
            PeerRequest::Invalidate { term, after, entries } => Ok(PeerAnswer::Heard {
                boot: self.boot,
                upto: self.hear(term, after, &entries),
            }),
            PeerRequest::Lease(request) => self.about_leases(request),
            PeerRequest::Split(request) => Ok(PeerAnswer::Split(self.about_split(request).await?)),
            PeerRequest::Moving(request) => Ok(PeerAnswer::Moving(self.about_moving(request).await?)),
            PeerRequest::NewMap(bytes) => {
                self.adopt_bytes(&bytes);
                Ok(PeerAnswer::Adopted)
            }
            PeerRequest::Identities(known) => self.show_identities(known),
            PeerRequest::Adopt(table) => {
                self.adopt_identities(table);
                Ok(PeerAnswer::Adopted)
            }
        }
    }

    /// The part's holder, made at its first message. `None`: the transaction is finished.
    fn part(&self, tx: TxId, low: u64) -> Option<Holder> {
        let mut parts = self.txn.parts.borrow_mut();
        if !parts.current(tx, low) {
            return None;
        }
        let now = self.world.mono();
        let part = parts.live.entry(tx).or_insert_with(|| TxPart {
            holder: self.txn.locks.holder(),
            prepared: BTreeSet::new(),
            records: Vec::new(),
            heard: now,
        });
        part.heard = now;
        Some(part.holder)
    }

    /// Whether the part that had this holder still lives; while we waited it may have been decided.
    fn lives(&self, tx: TxId, holder: Holder) -> bool {
        self.txn
            .parts
            .borrow()
            .live
            .get(&tx)
            .is_some_and(|p| p.holder == holder)
    }

    async fn lock(
        &self,
        (tx, low): (TxId, u64),
        locked: bool,
        (wants, wait): (Vec<LockWant>, bool),
        notes: &Notes,
    ) -> Result<PeerAnswer, Failure> {
        self.owns(wants.iter().map(|w| self.home_of(w)))?;
        self.may_have_replied(&wants)?;
        // Those of an earlier boot of this server are gone, and a new part would hide it from the vote
        // (H124).
        if locked && !self.txn.parts.borrow().live.contains_key(&tx) && !plant!(H124) {
            return Err(Failure::Refused(Refusal::Busy));
        }
        let holder = self.part(tx, low).ok_or(Failure::Refused(Refusal::TooOld))?;
        let units = in_order(wants.iter().filter_map(unit_of));
        let got = if wait {
            let acquire = self.txn.locks.acquire(holder, units, || self.peer_wait());
            notes.locking(acquire).await
        } else {
            self.txn.locks.try_all(holder, &units)
        };
        if !self.lives(tx, holder) {
            self.txn.locks.release(holder);
            return Err(Failure::Refused(Refusal::TooOld));
        }
        // What was taken stays with the part until the coordinator gives up.
        got?;
        let records = self.read_records(&wants).await?;
        // While locks were waited for, or now.
        self.may_have_replied(&wants)?;
        self.lent(records.iter().map(|(_, record)| record));
        if plant!(H32)
            && wants
                .iter()
                .any(|w| matches!(w, LockWant::Key(Key::Touch(_), LockMode::Exclusive)))
        {
            self.txn.locks.release(holder);
        }
        // Nothing leaves for another server that could still be lost (rule 8).
        notes
            .syncing(self.safe(self.store.applied(), Level::Durable))
            .await?;
        let held = if plant!(H166) {
            Vec::new()
        } else {
            self.held_among(&records)
        };
        Ok(PeerAnswer::Locked { records, held })
    }

    /// A reply record that is asked for may have been here, and gone with its session (H46).
    fn may_have_replied(&self, wants: &[LockWant]) -> Result<(), Failure> {
        let gone = wants.iter().any(|w| match w {
            LockWant::Key(Key::Reply(_, session, _), _) => {
                self.admission.sessions.borrow().has_ended(*session)
            }
            _ => false,
        });
        match gone && !plant!(H46) {
            true => Err(Failure::Refused(Refusal::SessionUnknown)),
            false => Ok(()),
        }
    }

    /// The answer to content that was stored, with this server's load where others ask for that.
    fn stored(&self, stored: Vec<Stored>) -> PeerAnswer {
        let ids = self.map().ids;
        match ids {
            Ids::Predicted => PeerAnswer::Content(stored),
            Ids::Placed => PeerAnswer::Stored {
                stored,
                records: self.store.records(),
            },
        }
    }

    /// The holder of a transaction's locks here, and whether it is prepared.
    fn progress(&self, tx: TxId) -> Option<(Holder, bool)> {
        let parts = self.txn.parts.borrow();
        let part = parts.live.get(&tx)?;
        Some((part.holder, !part.prepared.is_empty()))
    }

    async fn vote(
        &self,
        (tx, low): (TxId, u64),
        locked: bool,
        mutations: Vec<Mutation>,
        reply: Option<ReplyWrite>,
        notes: &Notes,
    ) -> Result<Vote, Failure> {
        if mutations.iter().any(|m| m.check().is_err()) {
            return Err(Failure::Refused(Refusal::Invalid));
        }
        self.owns(mutations.iter().map(|m| self.home_of_change(m)))?;
        match self.progress(tx).map(|(_, prepared)| prepared) {
            // A repeated prepare: the vote stands, once it is durable.
            Some(true) => {
                notes
                    .syncing(self.safe(self.store.applied(), Level::Synced))
                    .await?;
                return Ok(Vote::Yes);
            }
            // The locks were taken by an earlier boot of this server.
            None if locked => return Ok(Vote::No),
            // Asked only whether the locks are still held.
            Some(false) if mutations.is_empty() && reply.is_none() => {
                return notes.syncing(self.vote_for_what_was_read(tx, low)).await;
            }
            _ => {}
        }
        let Some(holder) = self.part(tx, low) else {
            return Ok(Vote::No);
        };
        let units = in_order(units_of(&mutations, reply.as_ref()));
        let acquire = self.txn.locks.acquire(holder, units, || self.peer_wait());
        let got = notes.locking(acquire).await;
        if !self.lives(tx, holder) {
            self.txn.locks.release(holder);
            return Ok(Vote::No);
        }
        if let Err(Busy) = got {
            return Ok(Vote::No);
        }
        if mutations.iter().any(grows) && self.low_on_space() {
            return Ok(Vote::NoSpace);
        }
        if self.taken(&mutations).await? {
            return Ok(Vote::Exists);
        }
        self.flow().await;
        // That may have taken time: a second prepare, or the decision, may have come.
        match self.progress(tx).map(|(by, prepared)| (by == holder, prepared)) {
            Some((true, false)) => match self.write_prepared(tx, mutations, reply) {
                // Meanwhile a slot was given up.
                Err(Failure::Refused(_)) => return Ok(Vote::No),
                written => written?,
            },
            Some((true, true)) => {}
            _ => {
                self.txn.locks.release(holder);
                return Ok(Vote::No);
            }
        }
        if !plant!(H40) {
            notes
                .syncing(self.safe(self.store.applied(), Level::Synced))
                .await?;
        }
        // An abort may have overtaken the sync; saying yes then is harmless, but pointless.
        Ok(if self.lives(tx, holder) {
            Vote::Yes
        } else {
            Vote::No
        })
    }

    /// A vote like any other (H40): what the transaction read here must not be lost once it counts on it.
    async fn vote_for_what_was_read(&self, tx: TxId, low: u64) -> Result<Vote, Failure> {
        let Some(holder) = self.part(tx, low) else {
            return Ok(Vote::No);
        };
        self.safe(self.store.applied(), Level::Synced).await?;
        Ok(if self.lives(tx, holder) {
            Vote::Yes
        } else {
            Vote::No
        })
    }

    fn write_prepared(
        &self,
        tx: TxId,
        mutations: Vec<Mutation>,
        reply: Option<ReplyWrite>,
    ) -> Result<(), Failure> {
        let mut by_slot: BTreeMap<Slot, PreparedRecord> = BTreeMap::new();
        let empty = || PreparedRecord {
            mutations: Vec::new(),
            reply: None,
        };
        // Planted (H7): content stands there before its transaction is decided, and stays if that aborts.
        let early = |m: &Mutation| {
            plant!(H7)
                && matches!(m, Mutation::Insert { key, .. } if matches!(key, Key::Head(_) | Key::Touch(_)))
        };
        let (now, mutations): (Vec<_>, Vec<_>) = mutations.into_iter().partition(early);
        for m in mutations {
            by_slot.entry(m.slot()).or_insert_with(empty).mutations.push(m);
        }
        if let Some(reply) = reply {
            let slot = reply.key.slot();
            if let Key::Reply(_, session, _) = reply.key {
                self.admission.sessions.borrow_mut().wrote(session, slot);
            }
            by_slot.entry(slot).or_insert_with(empty).reply = Some(reply);
        }
        let batch = by_slot.iter().map(|(slot, record)| Mutation::Insert {
            key: Key::Prepared(*slot, tx),
            record: Record::Prepared(record.clone()),
        });
        self.change(&Batch::of(batch.chain(now).collect()))?;
        if let Some(part) = self.txn.parts.borrow_mut().live.get_mut(&tx) {
            part.prepared = by_slot.keys().copied().collect();
            part.records = by_slot.into_iter().collect();
        }
        Ok(())
    }

    /// What the coordinator decided in a while. Returns when all effects are synced, so that it may forget
    /// (H38).
    async fn heed_all(&self, committed: &[TxId], aborted: &[TxId]) -> Result<(), Failure> {
        let all = (committed.iter().map(|tx| (*tx, true))).chain(aborted.iter().map(|tx| (*tx, false)));
        let mut settled = Ok(());
        for (tx, commit) in all {
            match self.decided(tx, commit).await {
                // The others are not to wait for this one.
                Err(why @ (Failure::Refused(_) | Failure::Store(StoreError::Corrupt { .. }))) => {
                    settled = Err(why)
                }
                done => done?,
            }
        }
        settled?;
        if committed.is_empty() || plant!(H38) {
            return Ok(());
        }
        self.safe(self.store.applied(), Level::Synced).await
    }

    /// The coordinator's word. When this returns its effect is not synced yet.
    async fn decided(&self, tx: TxId, commit: bool) -> Result<(), Failure> {
        let (mut standing, mut exact) = (Replies::new(), false);
        for look in 0.. {
            self.flow().await;
            let coming = match self.standing_replies(tx) {
                Ok(replies) => {
                    (standing, exact) = (replies, true);
                    break;
                }
                Err(_) if look == LOOKS => break,
                Err(coming) => coming,
            };
            // Once it is in memory it is known without waiting. One that is damaged stands for nothing.
            if let (key, read) = coming
                && let Ok(Some(Record::Reply(there))) = read.await
            {
                standing.push((key, there.sequence));
            }
        }
        // Nothing is waited for from here to the batch: who asks again must find the part, or its effect.
        let part = self.txn.parts.borrow_mut().finish(tx);
        if let Some(mut part) = part {
            // A lane's reply record never goes back to an older request (H46).
            for (_, record) in &mut part.records {
                // By what stands there at this instant, if that is known, and else also by the lane (H129):
                // one that has gone on may have left nothing there, and a late copy is to find this then.
                let newer = |r: &ReplyWrite| {
                    let is_newer =
                        |(key, sequence): &(Key, Sequence)| *key == r.key && *sequence > r.record.sequence;
                    standing.iter().any(is_newer) || !exact && self.is_past(r)
                };
                if record.reply.as_ref().is_some_and(newer) && !plant!(H46) {
                    record.reply = None;
                }
            }
            match self.apply_decision(tx, &part, commit) {
                // Whose its slots are is not known here at this instant, or a record is damaged: it stays in
                // doubt, with its locks, and is told again.
                Err(why) => {
                    self.txn.parts.borrow_mut().reopen(tx, part);
                    return Err(why);
                }
                Ok(()) => self.txn.locks.release(part.holder),
            }
        }
        Ok(())
    }

    fn is_past(&self, reply: &ReplyWrite) -> bool {
        let Key::Reply(_, session, slot) = reply.key else {
            return false;
        };
        let sequence = reply.record.sequence;
        self.admission.sessions.borrow().is_past(RequestId {
            session,
            slot,
            sequence,
        })
    }

    /// Reply records that stand where this transaction's would go. The client may have had its answer from
    /// the coordinator, and used the lane again, before the decision comes here. Not known at this instant:
    /// one of them is to be waited for.
    fn standing_replies(&self, tx: TxId) -> Result<Replies, Coming> {
        let mut standing = Replies::new();
        let parts = self.txn.parts.borrow();
        let records = parts.live.get(&tx).into_iter().flat_map(|part| &part.records);
        for key in records.filter_map(|(_, r)| Some(&r.reply.as_ref()?.key)) {
            match self.store.get(key) {
                Read::Ready(Ok(Some(Record::Reply(there)))) => standing.push((key.clone(), there.sequence)),
                Read::Ready(Ok(_)) => {}
                Read::Ready(Err(e)) => return Err((key.clone(), Box::pin(std::future::ready(Err(e))))),
                Read::Pending(read) => return Err((key.clone(), read)),
            }
        }
        Ok(standing)
    }

    fn apply_decision(&self, tx: TxId, part: &TxPart, commit: bool) -> Result<(), Failure> {
        if part.prepared.is_empty() {
            // It lent locks and has nothing to apply; having missed its release it may have asked and heard
            // "committed". What it voted for is found again after any restart.
            return Ok(());
        }
        let mut batch = Batch::default();
        for (slot, record) in &part.records {
            batch.mutations.push(Mutation::Delete {
                key: Key::Prepared(*slot, tx),
            });
            if commit {
                let come = record.mutations.iter().filter_map(holder);
                let replies = record.reply.iter().filter_map(|r| match r.key {
                    Key::Reply(_, session, _) => Some(session),
                    _ => None,
                });
                for session in come.chain(replies) {
                    batch.mutations.extend(self.adopt_session(session));
                }
                batch.mutations.extend(record.mutations.iter().cloned());
                if record.reply.is_some() {
                    batch.reply = record.reply.clone();
                }
            }
        }
        self.apply(&batch)?;
        Ok(())
    }

    /// The record of a session that is known from here on. Where decisions that are under way may yet leave
    /// reply records of it is noted, so that none is dropped there (H46).
    pub(crate) fn session_begins(&self, session: SessionId) -> Mutation {
        let parts = self.txn.parts.borrow();
        let records = parts.live.values().flat_map(|part| &part.records);
        let mut sessions = self.admission.sessions.borrow_mut();
        for reply in records.filter_map(|(_, r)| r.reply.as_ref()) {
            if let Key::Reply(slot, of, _) = reply.key
                && of == session
            {
                sessions.wrote(session, slot);
            }
        }
        let record = Record::Session(SessionRecord {
            opened: self.world.now(),
            ended: None,
        });
        Mutation::Update {
            key: Key::Session(session),
            record,
        }
    }

    /// A reply record, or a removed file that is held open, may come for a session that never spoke to this
    /// server: it must still end here one day, and not before (H97).
    fn adopt_session(&self, session: SessionId) -> Option<Mutation> {
        let mut sessions = self.admission.sessions.borrow_mut();
        // One that has ended here stays ended; the record goes when its name is forgotten.
        if sessions.knows(session) || !sessions.open(session, self.world.mono()) {
            return None;
        }
        drop(sessions);
        Some(self.session_begins(session))
    }

    /// What is known of a transaction coordinated here. One of an earlier boot without a decision can never
    /// commit.
    pub(crate) fn state_of(&self, tx: TxId) -> TxState {
        let c = self.txn.coordinated.borrow();
        if let Some(decided) = c.decided.get(&tx) {
            return if self.store.safe(Level::Synced) >= decided.lsn {
                TxState::Committed
            } else {
                TxState::Active
            };
        }
        if tx.boot == self.boot && c.active.contains(&tx.number) {
            TxState::Active
        } else {
            TxState::Aborted
        }
    }

    /// A coordinator does not answer. What was only locked for it is free again: a late prepare finds the
    /// locks gone, as after a restart, and is a no. Of what was voted for only the coordinator can say how it
    /// ended (H37).
    fn give_back(&self, tx: TxId) {
        let mut parts = self.txn.parts.borrow_mut();
        if parts.live.get(&tx).is_some_and(|p| p.prepared.is_empty())
            && let Some(part) = parts.finish(tx)
        {
            self.txn.locks.release(part.holder);
        }
    }

    /// Asks the coordinators of parts that have not been heard of for a while. Never presumes (rule 7).
    pub(crate) async fn inquire(&self) {
        if plant!(H17) {
            return;
        }
        let now = self.world.mono();
        let quiet: Vec<TxId> = {
            let mut parts = self.txn.parts.borrow_mut();
            parts
                .live
                .iter_mut()
                .filter(|(_, p)| now.since(p.heard) >= self.limits.inquire_after)
                .map(|(tx, p)| {
                    p.heard = now;
                    *tx
                })
                .collect()
        };
        for tx in quiet {
            self.spawn(|me| {
                Box::pin(async move {
                    if plant!(H37) {
                        let _ = me.decided(tx, false).await;
                        return;
                    }
                    let commit = match me.ask(tx.coordinator, PeerRequest::Inquire(tx)).await {
                        // Who leaves has been told that all it decided is done: this came late, and was not
                        // decided.
                        _ if me.map().has_left(tx.coordinator) => false,
                        Ok(Ok(PeerAnswer::State(TxState::Committed))) => true,
                        Ok(Ok(PeerAnswer::State(TxState::Aborted))) => false,
                        Err(_) => return me.give_back(tx),
                        _ => return,
                    };
                    if let Err(Failure::Store(e)) = me.decided(tx, commit).await {
                        me.fatal(&e);
                    }
                })
            });
        }
    }

    /// A directory's head, as of a moment when no transaction is changing it (H26); busy if one is, to who
    /// does not wait.
    pub(crate) async fn read_head(
        &self,
        dir: DirId,
        patient: bool,
        notes: &Notes,
    ) -> Result<Option<Head>, Failure> {
        self.owns([self.owner(Part::whole(dir).slot())])?;
        let held = self.hold();
        let want = LockWant::Key(Key::Head(dir.into()), LockMode::Shared);
        let timer = || match patient {
            true => self.peer_wait(),
            false => self.no_wait(),
        };
        let units = unit_of(&want).into_iter().collect();
        let acquire = self.txn.locks.acquire(held.holder, units, timer);
        notes.locking(acquire).await?;
        let record = self.store.get(&Key::Head(dir.into())).wait().await?;
        let lsn = self.store.applied();
        drop(held);
        notes.syncing(self.safe(lsn, Level::Durable)).await?;
        Ok(match record {
            Some(Record::Head(h)) => Some(h),
            _ => None,
        })
    }

    /// Refuses what is not this server's.
    fn owns(&self, homes: impl IntoIterator<Item = ServerId>) -> Result<(), Failure> {
        if homes.into_iter().all(|home| home == self.id) {
            Ok(())
        } else {
            Err(Failure::Refused(Refusal::NotOwner(self.map().epoch)))
        }
    }
}

/// Who holds the removed file open that this writes down, if anybody.
fn holder(m: &Mutation) -> Option<SessionId> {
    match m {
        Mutation::Insert {
            record: Record::Garbage(garbage),
            ..
        } => garbage.holder,
        _ => None,
    }
}
