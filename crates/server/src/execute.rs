//! Execution of one operation: locks, records, decision.

use crate::account::Notes;
use crate::commit::{Committed, Plan};
use crate::graph::Moving;
use crate::statements::Dirs;
use crate::txn::{Got, Txn};
use crate::{Executed, Failure, MetaServer};
use pando_format::{Codec, Invalidation, Key, KeyRange, NameHash, Record};
use pando_namespace::{Fresh, Incarnation, Inputs, Page, Snapshot, Step, Walked, born, page, run};
use pando_store::{Level, Lsn};
use pando_types::{
    Bearer, Cred, DirId, Errno, Generation, Ino, MapEpoch, Part, RequestId, Term, Timestamp, Watermark, plant,
};
use pando_wire::traits::Rests;
use pando_wire::{
    Answer, ChangeInfo, FsStat, Keep, LockMode, LockWant, Op, Outcome, Refusal, Scope, Statement,
};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::pin::pin;

/// Rounds of asking for more records, or of other directory IDs, before a request is refused as busy.
const ROUNDS: u32 = 64;
/// Directory IDs that may turn out to be taken by other births before a mkdir fails. With IDs as wide as in production
/// one is never seen; with 8 bits and a hundred directories so many in a row are not.
const COLLISIONS: u32 = 48;

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
}

/// With what right something is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Basis {
    /// With the statements that were shown.
    Shown,
    /// None: a guess, executed for nobody. What comes of it is a link; who hears of it is decided by who has the key.
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
    /// Under which session it keeps files open.
    pub keep: Option<&'a Keep>,
    pub dirs: Dirs<'a>,
    /// What it costs, if somebody wants to know.
    pub notes: &'a Notes,
    /// What became of its directory's change attribute, once it has taken effect.
    pub change: Cell<Option<ChangeInfo>>,
}

impl Asked<'_> {
    /// The statements that must be true at the instant it takes effect. Who has a file open may go on writing it, and who
    /// has a directory open may ask what has become of it.
    pub fn rests_on(&self) -> impl Iterator<Item = &Statement> {
        let rests = match self.op.traits().rests {
            _ if self.basis != Basis::Shown => Rests::Nothing,
            // Its own record says who may do what. What a change of that makes untrue is the statement it came with.
            Rests::Everything if self.op.means_itself().is_some() => Rests::Ways,
            rests => rests,
        };
        self.dirs.all().filter(move |s| match rests {
            Rests::Everything => true,
            Rests::Ways => s.scope != Scope::Handle,
            Rests::Nothing => false,
        })
    }
}

impl Asked<'_> {
    /// A directory whose content was not found, and its parent: it may be on its way (H117). Not one of those `asked` for.
    pub(crate) fn without_content(
        &self,
        snapshot: &Snapshot,
        asked: &BTreeSet<Incarnation>,
    ) -> Option<(DirId, Incarnation)> {
        let mut dirs = self.dirs.all().filter(|d| d.parent != DirId::ABOVE_ROOT);
        let missing =
            dirs.find(|d| snapshot.head(d.id.into()).is_none() && !asked.contains(&(d.id, d.generation)))?;
        let shown = self.basis == Basis::Shown && !plant!(H117);
        shown.then_some((missing.parent, (missing.id, missing.generation)))
    }
}

impl MetaServer {
    fn seen<'a>(
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
            dirs: {
                let mut dirs = asked.rests_on();
                [dirs.next(), dirs.next()]
            },
            announced: &announced.what,
            announced_upto: announced.upto,
            guess: asked.basis != Basis::Shown,
            now,
            outcome,
            lsn,
            changed: false,
            change: asked.change.get(),
        }
    }

    /// What an operation may depend on besides records, now; of one that creates nothing and moves no directory.
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
            inline_limit: map.inline_limit,
            block_size: map.block_size,
            fresh: None,
            walked: None,
            private,
        }
    }

    pub(crate) async fn execute(&self, asked: &Asked<'_>, unknown: bool) -> Result<Done, Failure> {
        let Asked { cred, op, notes, .. } = *asked;
        if matches!(op, Op::Sync) {
            return Ok(Done {
                outcome: Ok(Answer::Done),
                lsn: self.store.applied(),
                level: Level::Synced,
            });
        }
        if matches!(op, Op::StatFs) {
            return self.read_only(asked, self.world.now(), Ok(Answer::FsStat(self.stat_fs())));
        }
        // Whether the coordinator of before has executed it is looked for when that one can decide nothing any more (H116).
        if unknown && self.is_coordinated(op) && !self.may_coordinate(asked.term) && !plant!(H116) {
            return Err(Failure::Refused(Refusal::NotReady));
        }
        let mut fresh = match op.creates_in() {
            // What waits seldom has a place of its own: the task of every request would be as large.
            Some(dir) => Box::pin(notes.syncing(self.fresh(dir))).await?,
            None => None,
        };
        let mut collisions = 0;
        // How long a lock is waited for would tell what is being changed (H99).
        let may_wait = asked.basis != Basis::Guess;
        // At first nobody is waited for: what is needed is seldom taken, and is then to be had in any order, from all
        // servers at once.
        let mut waits = false;
        let mut missed: BTreeSet<Incarnation> = BTreeSet::new();
        let mut moving: Option<Moving<'_>> = None;
        let mut wants: Vec<LockWant> = Vec::new();
        if let (Some(key), true) = (reply_key(asked), unknown && !plant!(H44)) {
            wants.push(LockWant::Key(key, LockMode::Exclusive));
        }
        'round: for round in 0..ROUNDS {
            if round > 0 {
                notes.again();
            }
            let mut txn = Txn::new(self, waits, notes);
            let mut snapshot = Snapshot::default();
            // What was found out in another round may have changed since.
            let mut walked = Walked::new();
            let looked = self.count_before_look(asked);
            wants.sort();
            wants.dedup();
            if pin!(txn.read(&mut snapshot, wants.clone())).await? == Got::Taken {
                waits = wait_from_here(may_wait)?;
                continue;
            }
            if let Some(mut remembered) = self.remembered(asked, unknown, &snapshot)? {
                self.hold_opened(asked.keep, op.home(), &mut remembered.outcome)?;
                return Ok(remembered);
            }
            // Only now: a retry of what was executed while there was room has its answer.
            if op.grows() && self.low_on_space() {
                return self.read_only(asked, self.world.now(), Err(Errno::NoSpace));
            }
            let (mut decision, now) = loop {
                let private = self.private_to(asked.holder);
                let inputs = Inputs {
                    fresh,
                    walked: self.coordinates().then_some(&walked),
                    ..self.inputs(asked, &private)
                };
                match run(op, &inputs, &snapshot) {
                    // It may be on another server: how long that takes would tell what is there (H99).
                    Step::Need(more) if !may_wait && more.iter().any(is_of_home) => {
                        return Err(Failure::Refused(Refusal::Busy));
                    }
                    Step::Need(more) => {
                        wants.extend(more.iter().cloned());
                        if !txn.extends(&more) {
                            // Out of the global order: begin again with all that is known to be needed (H31).
                            continue 'round;
                        }
                        if pin!(txn.read(&mut snapshot, more)).await? == Got::Taken {
                            waits = wait_from_here(may_wait)?;
                            continue 'round;
                        }
                    }
                    // Parents that are learnt stay for the term: not before nobody else decides moves.
                    Step::Walk { .. } if !self.may_coordinate(asked.term) => {
                        return Err(Failure::Refused(Refusal::NotReady));
                    }
                    Step::Walk { moved, into } => {
                        if plant!(H22) {
                            let tag = self.keys.tag(moved.0, moved.1);
                            let looped = op
                                .statements()
                                .into_iter()
                                .flatten()
                                .nth(1)
                                .is_some_and(|s| s.way.contains(&tag));
                            walked.insert((moved, into), looped);
                            continue;
                        }
                        let moving = moving.get_or_insert_with(|| self.moving());
                        if let Some(looped) = moving.climb(moved, into) {
                            walked.insert((moved, into), looped);
                        } else {
                            // Heads are waited for, so nothing is held.
                            drop(txn);
                            Box::pin(moving.explore(moved, into, notes)).await?;
                            continue 'round;
                        }
                    }
                    Step::UseCoordinator => return Err(Failure::Refused(Refusal::UseCoordinator)),
                    Step::Done(decision) => break (decision, inputs.now),
                }
            };
            if decision.outcome == Err(Errno::Stale)
                && let Some((parent, dir)) = asked.without_content(&snapshot, &missed)
            {
                drop(txn);
                Box::pin(self.is_not_owed(parent, dir.0, dir.1)).await?;
                missed.insert(dir);
                continue;
            }
            // What may search it has changed since the guess was begun: it would be sealed under a key of before.
            if asked.basis == Basis::Guess
                && asked
                    .dirs
                    .all()
                    .any(|d| snapshot.head(d.id.into()).is_some_and(|h| h.seal != d.seal))
            {
                return Err(Failure::Refused(Refusal::Busy));
            }
            if let Op::ReadDir { dir, .. } = op
                && decision.outcome.is_ok()
            {
                // The slot has left since this was admitted: what is here of it is not what the locks are of (H137).
                if !self.serves_slot(Part::whole(dir.id).slot()) {
                    return Err(Failure::Refused(Refusal::Busy));
                }
                let mut outcome = match self.list(cred, op).await? {
                    Listed::Page(outcome) => outcome,
                    Listed::Wait(changing) => {
                        wants.extend(changing);
                        continue;
                    }
                };
                self.sign(&mut outcome, asked);
                return self.read_only(asked, now, outcome);
            }
            let what = std::mem::take(&mut decision.invalidates);
            let mut announced = Announced::default();
            if !what.is_empty() {
                self.may_take_effect(asked)?;
                let upto = Box::pin(self.announce(&what, notes)).await?;
                announced = Announced { what, upto };
                self.count(|s| s.announced += 1);
            }
            self.sign(&mut decision.outcome, asked);
            self.give_handle(op, &mut decision.outcome, asked.holder.identity);
            self.hold_opened(asked.keep, op.home(), &mut decision.outcome)?;
            if decision.mutations.is_empty() {
                if moving.as_ref().is_some_and(|m| !m.holds(&walked)) {
                    continue;
                }
                let remote = !txn.remote.is_empty();
                if remote {
                    let outcome = &decision.outcome;
                    self.observer.weighed(&self.seen(
                        asked,
                        now,
                        outcome,
                        self.store.applied(),
                        &Announced::default(),
                    ));
                    if !Box::pin(self.still_locked(&mut txn)).await {
                        // A server that lent locks has lost them: what was read there and here was never one moment.
                        return Err(Failure::Refused(Refusal::Busy));
                    }
                }
                self.tell_look(asked, looked, &decision.outcome, now);
                let done = self.read_only(asked, now, decision.outcome)?;
                if remote {
                    // What was seen on other servers stays as it was until what was seen here cannot be lost: the
                    // operation is one moment also for whoever orders servers by what is durable.
                    Box::pin(notes.syncing(self.safe(done.lsn, Level::Durable))).await?;
                }
                return Ok(done);
            }
            let next = born(&decision.mutations).and_then(|b| b.version.checked_add(1));
            let mut plan = Plan {
                decision,
                now,
                announced,
                moving: moving.as_ref(),
                walked: &walked,
            };
            // What reads only has no place for it.
            match Box::pin(self.commit(txn, asked, &mut plan)).await? {
                Committed::Done(done) => return Ok(done),
                Committed::Overtaken => {}
                Committed::Taken => {
                    // The ID is that of another birth, whose directory lives: their hashes collide (H7).
                    self.count(|s| s.collisions += 1);
                    collisions += 1;
                    match (&mut fresh, next) {
                        (Some(fresh), Some(next)) if collisions < COLLISIONS => fresh.floor = next,
                        _ => return self.read_only(asked, now, Err(Errno::TooManyLinks)),
                    }
                }
            }
        }
        Err(Failure::Refused(Refusal::Busy))
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

    /// An operation that changed something took effect.
    pub(crate) fn observe(
        &self,
        asked: &Asked<'_>,
        now: Timestamp,
        outcome: &Outcome,
        lsn: Lsn,
        announced: &Announced,
    ) {
        self.observer.executed(&Executed {
            changed: true,
            ..self.seen(asked, now, outcome, lsn, announced)
        });
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
            // It may have gone with its session since this was admitted (H46).
            return match self.sessions.borrow().knows(request.session) {
                true => Ok(None),
                false => Err(Failure::Refused(Refusal::SessionUnknown)),
            };
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

    /// Identities for what an operation may create in this directory.
    async fn fresh(&self, dir: DirId) -> Result<Option<Fresh>, Failure> {
        let number = self.next_number(Part::whole(dir).slot()).await?;
        Ok(Some(self.fresh_of(number)))
    }

    /// The same, with a number that was taken for it.
    pub(crate) fn fresh_of(&self, (ino, generation): (Ino, Generation)) -> Fresh {
        Fresh {
            ino,
            generation,
            salt: self.world.random(),
            floor: 0,
        }
    }

    /// A page of a listing, under the locks that make it one moment.
    async fn list(&self, cred: &Cred, op: &Op) -> Result<Listed, Failure> {
        let Op::ReadDir {
            dir,
            after,
            limit,
            plus,
        } = op
        else {
            return Ok(Listed::Page(Err(Errno::Invalid)));
        };
        // What is read may be as of before a change that comes and goes meanwhile (H136).
        let watch = self.locks.watch(dir.id.into());
        let range = KeyRange::entries_from(dir.id.into(), after.bucket());
        let mut limit = (*limit).clamp(1, self.limits.page) as usize;
        loop {
            // One more than shown, to know whether the last bucket is whole.
            let records = self.store.list(&range, limit + 1).wait().await?;
            let complete = records.len() <= limit;
            match page(cred, dir, &records, complete, *after, *plus) {
                // A page of entries the caller has seen already says nothing: look further.
                Page::Entries(Answer::Entries { entries, end: false }) if entries.is_empty() => limit *= 2,
                Page::Entries(answer) => {
                    let changing = if plant!(H136) {
                        self.locks.being_changed(dir.id.into())
                    } else {
                        watch.changed()
                    };
                    let wait = being_changed(dir.id, &answer, &changing);
                    return Ok(if wait.is_empty() {
                        Listed::Page(Ok(answer))
                    } else {
                        Listed::Wait(wait)
                    });
                }
                Page::More => limit *= 2,
            }
        }
    }

    fn stat_fs(&self) -> FsStat {
        let space = self.room();
        let reserve = self.limits.reserve(space.total);
        FsStat {
            total: space.total,
            available: space.available.saturating_sub(reserve),
            device: space.device,
        }
    }
}

/// A lock is taken: from now on it is waited for, by who may.
fn wait_from_here(may_wait: bool) -> Result<bool, Failure> {
    if may_wait {
        Ok(true)
    } else {
        Err(Failure::Refused(Refusal::Busy))
    }
}

/// Whether it is wanted of a file at home.
fn is_of_home(want: &LockWant) -> bool {
    matches!(want, LockWant::Bucket(dir, ..) if dir.dir.is_homes())
}

/// What came of reading a page.
enum Listed {
    /// The page.
    Page(Outcome),
    /// These are needed first.
    Wait(Vec<LockWant>),
}

/// Entries on a page that are being changed. Of a subdirectory every server may have heard already that what it is now will
/// not be true any more, so its statement must not say that it is; of a file it may be decided elsewhere, and told, what
/// it is now.
fn being_changed(dir: DirId, page: &Answer, changing: &BTreeSet<NameHash>) -> Vec<LockWant> {
    let Answer::Entries { entries, .. } = page else {
        return Vec::new();
    };
    let told = entries.iter().filter(|e| e.view.is_some());
    told.map(|e| e.position.bucket())
        .filter(|bucket| changing.contains(bucket))
        .map(|bucket| LockWant::Bucket(dir.into(), bucket, LockMode::Shared))
        .collect()
}

/// The key of a mutating request's reply record.
pub(crate) fn reply_key(asked: &Asked<'_>) -> Option<Key> {
    let request = asked.request.filter(|_| asked.op.mutates())?;
    Some(Key::Reply(asked.op.home()?, request.session, request.slot))
}
