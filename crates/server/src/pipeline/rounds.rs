//! Execution of one operation, in rounds: each locks, reads and decides, and begins again with what it found
//! to be missing.

use super::asked::{Asked, Basis};
use super::commit::{Committed, Plan};
use super::effect::{Announced, Done, Effect};
use super::listing::Listed;
use super::reply::reply_key;
use crate::facts::coherence::Announcing;
use crate::facts::leases::ByServer;
use crate::office::graph::Moving;
use crate::txn::attempt::{Got, Txn};
use crate::{Failure, MetaServer};
use pando_namespace::{Decision, Fresh, Incarnation, Inputs, Snapshot, Step, Walked, Which, born, run};
use pando_store::Level;
use pando_types::{DirId, Errno, Generation, Ino, Tile, Timestamp, Watermark, plant};
use pando_wire::{Answer, FsStat, LockMode, LockWant, Op, Refusal};
use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

/// Rounds of asking for more records, or of other directory IDs, before a request is refused as busy.
const ROUNDS: u32 = 64;
/// Directory IDs that may turn out to be taken by other births before a mkdir fails. With IDs as wide as in
/// production one is never seen; with 8 bits and a hundred directories so many in a row are not.
const COLLISIONS: u32 = 48;

/// An execution: what one round leaves to the next.
struct Rounds<'a> {
    server: &'a MetaServer,
    asked: &'a Asked<'a>,
    /// An earlier boot, or another server, may have executed it.
    unknown: bool,
    /// Numbers for what it may create.
    fresh: Option<Fresh>,
    /// Directory IDs that turned out to be taken.
    collisions: u32,
    /// Whether locks that are taken are waited for. At first none is: what is needed is seldom taken, and is
    /// then to be had in any order, from all servers at once.
    waits: bool,
    /// Directories whose content was asked for where it may be owed.
    missed: BTreeSet<Incarnation>,
    /// If it moves a directory: the move that is under way.
    moving: Option<Moving<'a>>,
    /// All that is known to be needed.
    wants: Vec<LockWant>,
    /// Under leases: directories on which none is granted until it has changed them.
    closed: ByServer,
}

/// What one round has.
struct Attempt<'a> {
    txn: Txn<'a>,
    snapshot: Snapshot,
    /// Moves that were looked at: whether a loop would come of each. In another round this may have changed.
    walked: Walked,
    /// The change attribute of the directory that is looked at.
    looked: Option<u64>,
}

/// What came of reading for a decision.
enum Found {
    Decided(Decision, Timestamp),
    /// The round is over; the next one knows more.
    Again,
    /// The parents above `into` are not known. They are waited for, so nothing may be held.
    Explore {
        moved: Incarnation,
        into: Incarnation,
    },
}

impl MetaServer {
    pub(crate) async fn execute(&self, asked: &Asked<'_>, unknown: bool) -> Result<Done, Failure> {
        if let Op::Sync = asked.op {
            return Ok(Done {
                outcome: Ok(Answer::Done),
                lsn: self.store.applied(),
                level: Level::Synced,
            });
        }
        if let Op::StatFs = asked.op {
            return self.read_only(asked, self.world.now(), Ok(Answer::FsStat(self.stat_fs())));
        }
        if let Op::Bulk { dir, step } = asked.op {
            return Box::pin(self.bulk(asked, (dir, step), unknown)).await;
        }
        // Whether the coordinator of before has executed it is looked for when that one can decide nothing
        // any more (H116).
        if unknown && self.is_coordinated(asked.op) && !self.may_coordinate(asked.term) && !plant!(H116) {
            return Err(Failure::Refused(Refusal::NotReady));
        }
        let mut rounds = Rounds {
            server: self,
            asked,
            unknown,
            fresh: match asked.op.creates_in() {
                // What waits seldom has a place of its own: the task of every request would be as large.
                Some(dir) => Box::pin(asked.notes.syncing(self.fresh(asked, dir))).await?,
                None => None,
            },
            collisions: 0,
            waits: false,
            missed: BTreeSet::new(),
            moving: None,
            wants: Vec::new(),
            closed: ByServer::new(),
        };
        if let (Some(key), true) = (reply_key(asked), unknown && !plant!(H44)) {
            rounds.wants.push(LockWant::Key(key, LockMode::Exclusive));
        }
        for round in 0..ROUNDS {
            if round > 0 {
                asked.notes.again();
            }
            if let Some(done) = pin!(rounds.round()).await? {
                return Ok(done);
            }
        }
        Err(Failure::Refused(Refusal::Busy))
    }

    /// Identities for what an operation may create in this directory.
    async fn fresh(&self, asked: &Asked<'_>, dir: DirId) -> Result<Option<Fresh>, Failure> {
        let number = self.next_number(asked.first_part(dir).slot()).await?;
        let mut fresh = self.fresh_of(number);
        if let Op::Mkdir { .. } = asked.op {
            fresh.placed = self.place(fresh.generation);
        }
        Ok(Some(fresh))
    }

    /// The same, with a number that was taken for it.
    pub(crate) fn fresh_of(&self, (ino, generation): (Ino, Generation)) -> Fresh {
        Fresh {
            ino,
            generation,
            salt: self.world.random(),
            floor: 0,
            placed: None,
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

impl<'a> Rounds<'a> {
    /// One round. Nothing: another is needed, and all locks have been given back.
    async fn round(&mut self) -> Result<Option<Done>, Failure> {
        let (server, asked) = (self.server, self.asked);
        let mut at = Attempt {
            txn: Txn::new(server, self.waits, asked.notes),
            snapshot: Snapshot::default(),
            walked: Walked::new(),
            looked: server.count_before_look(asked),
        };
        self.wants.sort();
        self.wants.dedup();
        if pin!(at.txn.read(&mut at.snapshot, self.wants.clone())).await? == Got::Taken {
            self.wait_from_here()?;
            return Ok(None);
        }
        if let Some(mut remembered) = server.remembered(asked, self.unknown, &at.snapshot)? {
            let opened = server.open_claim(asked.keep, asked.home(), &mut remembered.outcome)?;
            server.note_open(opened);
            return Ok(Some(remembered));
        }
        // Only now: a retry of what was executed while there was room has its answer.
        if asked.op.grows() && server.low_on_space() {
            let full = server.read_only(asked, server.world.now(), Err(Errno::NoSpace));
            return full.map(Some);
        }
        let found = pin!(self.decide(&mut at)).await?;
        let (mut decision, now) = match found {
            Found::Decided(decision, now) => (decision, now),
            Found::Again => return Ok(None),
            Found::Explore { moved, into } => {
                drop(at);
                self.explore(moved, into).await?;
                return Ok(None);
            }
        };
        if decision.outcome == Err(Errno::Stale)
            && let Some((parent, dir)) = asked.without_content(&at.snapshot, &self.missed)
        {
            drop(at);
            Box::pin(server.is_not_owed(parent, dir.0, dir.1)).await?;
            self.missed.insert(dir);
            return Ok(None);
        }
        self.check_guess(&at.snapshot)?;
        if let Op::ReadDir { dir, .. } = asked.op
            && decision.outcome.is_ok()
        {
            return self.page(dir.id, &at.snapshot, now).await;
        }
        if server.has_leases() {
            let find = |id, generation| at.snapshot.entry_of(id, generation);
            Box::pin(server.borrow_lease(asked, &decision.outcome, find)).await?;
        }
        let announced = match self.announce(&at, &mut decision).await? {
            Ok(announced) => announced,
            // What was decided is decided anew when the leases have run out (H316).
            Err(time) => {
                drop(at);
                server.pause(time + Duration::from_millis(1)).await;
                return Ok(None);
            }
        };
        let mut effect = server.prepare(asked, decision, announced, now)?;
        server.begin_effect(asked, &mut effect);
        if effect.batch.mutations.is_empty() {
            self.look(&mut at, effect).await
        } else {
            self.change(at, effect).await
        }
    }

    /// A lock is taken: from now on it is waited for. How long that takes would tell a guess what is being
    /// changed (H99).
    fn wait_from_here(&mut self) -> Result<(), Failure> {
        if self.asked.basis == Basis::Guess {
            return Err(Failure::Refused(Refusal::Busy));
        }
        self.waits = true;
        Ok(())
    }

    /// Reads what is asked for, until there is a decision.
    async fn decide(&mut self, at: &mut Attempt<'a>) -> Result<Found, Failure> {
        let (server, asked) = (self.server, self.asked);
        loop {
            let (step, now) = {
                let private = server.private_to(asked.holder);
                let inputs = Inputs {
                    fresh: self.fresh,
                    walked: server.coordinates().then_some(&at.walked),
                    ..server.inputs(asked, &private)
                };
                (run(asked.op, &inputs, &at.snapshot), inputs.now)
            };
            match step {
                // It may be on another server: how long that takes would tell what is there (H99).
                Step::Need(more) if asked.basis == Basis::Guess && more.iter().any(is_of_home) => {
                    return Err(Failure::Refused(Refusal::Busy));
                }
                Step::Need(more) => {
                    self.wants.extend(more.iter().cloned());
                    if !at.txn.extends(&more) {
                        // Out of the global order: begin again with all that is known to be needed (H31).
                        return Ok(Found::Again);
                    }
                    if pin!(at.txn.read(&mut at.snapshot, more)).await? == Got::Taken {
                        self.wait_from_here()?;
                        return Ok(Found::Again);
                    }
                }
                Step::Walk { moved, into } => match self.climb(moved, into)? {
                    Some(looped) => {
                        at.walked.insert((moved, into), looped);
                    }
                    None => return Ok(Found::Explore { moved, into }),
                },
                Step::UseCoordinator => return Err(Failure::Refused(Refusal::UseCoordinator)),
                Step::Elsewhere { which, tile } => return Err(self.elsewhere(which, tile)),
                // Of a localised one it is noted, where it is, that somebody waits.
                Step::Busy | Step::Localised => return Err(Failure::Refused(Refusal::Busy)),
                Step::Done(decision) => return Ok(Found::Decided(decision, now)),
            }
        }
    }

    /// A name is not in the part that was asked.
    fn elsewhere(&self, which: Which, tile: Option<Tile>) -> Failure {
        let [first, second] = self.asked.parts;
        let (second, start) = match which {
            Which::First => (false, first),
            Which::Second => (true, second),
        };
        Failure::Refused(Refusal::Elsewhere {
            second,
            start,
            depth: tile.map(|tile| tile.depth),
        })
    }

    /// Whether a move would make a loop, if all that is needed for that is known.
    fn climb(&mut self, moved: Incarnation, into: Incarnation) -> Result<Option<bool>, Failure> {
        let (server, asked) = (self.server, self.asked);
        // Parents that are learnt stay for the term: not before nobody else decides moves.
        if !server.may_coordinate(asked.term) {
            return Err(Failure::Refused(Refusal::NotReady));
        }
        if plant!(H22) {
            let tag = server.facts.keys.tag(moved.0, moved.1);
            let into = asked.op.statements().into_iter().flatten().nth(1);
            return Ok(Some(into.is_some_and(|s| s.way.contains(&tag))));
        }
        let moving = self.moving.get_or_insert_with(|| server.moving());
        Ok(moving.climb(moved, into))
    }

    /// REQUIRES: nothing is held, because heads are waited for.
    async fn explore(&mut self, moved: Incarnation, into: Incarnation) -> Result<(), Failure> {
        let server = self.server;
        let moving = self.moving.get_or_insert_with(|| server.moving());
        Box::pin(moving.explore(moved, into, self.asked.notes)).await
    }

    /// A directory's permissions to search have changed since the guess was begun: the answer would be sealed
    /// under a key of before.
    fn check_guess(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        let asked = self.asked;
        let changed =
            |d: &pando_wire::Statement| snapshot.head(d.id.into()).is_some_and(|h| h.seal != d.seal);
        if asked.basis == Basis::Guess && asked.dirs.all().any(changed) {
            return Err(Failure::Refused(Refusal::Busy));
        }
        Ok(())
    }

    /// A page of a listing. Nothing: entries on it are being changed.
    async fn page(
        &mut self,
        dir: DirId,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Result<Option<Done>, Failure> {
        let (server, asked) = (self.server, self.asked);
        // The slot has left since this was admitted: what is here of it is not what the locks are of (H137).
        if !server.serves_slot(asked.first_part(dir).slot()) {
            return Err(Failure::Refused(Refusal::Busy));
        }
        let mut outcome = match server.list(asked, snapshot).await? {
            Listed::Page(outcome) => outcome,
            Listed::Wait(changing) => {
                self.wants.extend(changing);
                return Ok(None);
            }
        };
        server.sign(&mut outcome, asked);
        server.read_only(asked, now, outcome).map(Some)
    }

    /// All servers hear what becomes untrue; under leases, nobody was told what is still good. For how long
    /// that is to be waited for, holding nothing, if it is.
    async fn announce(
        &mut self,
        at: &Attempt<'a>,
        decision: &mut Decision,
    ) -> Result<Result<Announced, Duration>, Failure> {
        let (server, asked) = (self.server, self.asked);
        let what = std::mem::take(&mut decision.invalidates);
        if what.is_empty() {
            return Ok(Ok(Announced::default()));
        }
        // All that it rests on is true at this instant, and it is looked again when it has waited (H317).
        let seen = server.lease_time();
        server.may_take_effect(asked)?;
        let find = |id, generation| at.snapshot.entry_of(id, generation);
        let closed = server.entries_to_close(&what, find)?;
        let upto = match Box::pin(server.announce(&what, &closed, asked.notes)).await? {
            Announcing::Done(upto) => upto,
            Announcing::Now => {
                // What it rests on is true until its own change. Only what changes later can refuse it now.
                server.may_take_effect(asked)?;
                let upto = server.changes_now(&what);
                asked.leases.verified.set(Watermark(upto.0 + 1));
                upto
            }
            Announcing::Wait(time) if plant!(H316) => {
                server.txn.locks.release(at.txn.holder());
                server.pause(time).await;
                server.changes_now(&what)
            }
            Announcing::Wait(time) => {
                asked.leases.verified.set(seen);
                return Ok(Err(time));
            }
        };
        server.count(|s| s.announced += 1);
        self.closed = closed;
        Ok(Ok(Announced::of(what, upto)))
    }

    /// Whether the moves that were looked at are harmless still.
    fn moves_hold(&self, walked: &Walked) -> bool {
        self.moving.as_ref().is_none_or(|m| m.holds(walked))
    }

    /// It changes nothing: all that it has seen, here and elsewhere, must have been one moment.
    async fn look(&self, at: &mut Attempt<'a>, effect: Effect) -> Result<Option<Done>, Failure> {
        let (server, asked, now) = (self.server, self.asked, effect.now);
        if !self.moves_hold(&at.walked) {
            return Ok(None);
        }
        let outcome = effect.outcome;
        let remote = !at.txn.remote.is_empty();
        if remote {
            let (lsn, unannounced) = (server.store.applied(), Announced::default());
            let seen = server.seen(asked, now, &outcome, lsn, &unannounced);
            server.observer.weighed(&seen);
            if !Box::pin(server.still_locked(&mut at.txn)).await {
                // A server that lent locks has lost them: what was read there and here was never one moment.
                return Err(Failure::Refused(Refusal::Busy));
            }
        }
        server.tell_look(asked, at.looked, &outcome, now);
        let done = server.read_only(asked, now, outcome)?;
        if remote {
            // Remote locks are kept until what was read here is durable. Else, in the order of what is
            // durable, this would not be one moment.
            Box::pin(asked.notes.syncing(server.safe(done.lsn, Level::Durable))).await?;
        }
        Ok(Some(done))
    }

    /// Commits. Nothing: something has changed meanwhile, or a directory ID is taken.
    async fn change(&mut self, at: Attempt<'a>, effect: Effect) -> Result<Option<Done>, Failure> {
        let (server, asked) = (self.server, self.asked);
        let now = effect.now;
        let next = born(&effect.batch.mutations).and_then(|b| b.version.checked_add(1));
        let mut plan = Plan {
            effect,
            moving: self.moving.as_ref(),
            walked: &at.walked,
        };
        // What reads only has no place for it.
        match Box::pin(server.commit(at.txn, asked, &mut plan)).await? {
            Committed::Done(done) => {
                server.leases_changed(std::mem::take(&mut self.closed));
                Ok(Some(done))
            }
            Committed::Overtaken => Ok(None),
            Committed::Taken => {
                // The ID is that of another birth, whose directory lives: their hashes collide (H7).
                server.count(|s| s.collisions += 1);
                self.collisions += 1;
                if let Some(fresh) = &mut self.fresh
                    && fresh.placed.is_some()
                {
                    fresh.placed = server.place(fresh.generation);
                }
                match (&mut self.fresh, next) {
                    (Some(fresh), Some(next)) if self.collisions < COLLISIONS => fresh.floor = next,
                    _ => return server.read_only(asked, now, Err(Errno::TooManyLinks)).map(Some),
                }
                Ok(None)
            }
        }
    }
}

/// Whether it is wanted of a file at home.
fn is_of_home(want: &LockWant) -> bool {
    matches!(want, LockWant::Bucket(dir, ..) if dir.dir.is_homes())
}
