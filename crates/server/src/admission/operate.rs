//! From a message to an execution and back: boots, owners, sessions, lanes.

use crate::account::Notes;
use crate::admission::claims::Entitled;
use crate::admission::sessions::{Admission, Asker};
use crate::facts::statements::Dirs;
use crate::pipeline::AtOnce;
use crate::pipeline::{Asked, Basis};
use crate::{Failure, MetaServer};
use pando_format::{Batch, NameHash};
use pando_store::{Level, StoreError};
use pando_types::{
    AuthMode, Bearer, BootEpoch, Cred, Division, Errno, MapEpoch, PeerId, RequestId, SLOTS, SessionId, Slot,
    Tile, plant,
};
use pando_wire::{
    Keep, Op, OpRequest, Outcome, PeerRequest, Refreshed, Refusal, Request, Response, Statement,
};
use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

/// Of which request something is a try.
pub(crate) struct Tried<'a> {
    pub request: Option<RequestId>,
    /// Whether an earlier one may have been executed.
    pub again: bool,
    /// By which map it was sent.
    pub map: MapEpoch,
    /// Under which session its sender keeps files open.
    pub keep: Option<&'a Keep>,
    /// In which parts its sender takes the names to be.
    pub parts: [u16; 2],
}

impl MetaServer {
    /// Serves a request that came in a message of so many bytes.
    pub(crate) fn dispatch(
        &self,
        asker: Asker,
        who: PeerId,
        boot: BootEpoch,
        (request, bytes): (Request, usize),
        explain: bool,
    ) {
        // What was meant for an earlier boot is from before a crash: its lanes are gone, and the sender must
        // know.
        let exempt = matches!(request, Request::GetMap | Request::Status | Request::Null(_));
        if boot != self.boot && !exempt && !plant!(G34) {
            return self.answer(vec![asker], Err(Refusal::WrongBoot(self.boot)));
        }
        let entitled = match self.entitled(who, &request) {
            Ok(entitled) => entitled,
            Err(refusal) => return self.answer(vec![asker], Err(refusal)),
        };
        // Neither looks at anything nor waits.
        if let Request::Null(false) = request {
            return self.answer_with(asker, Ok(Response::Ok), None);
        }
        let Some(mut turn) = self.take_turn(who, bytes) else {
            return self.answer(vec![asker], Err(Refusal::Busy));
        };
        let mut reading = None;
        if let (Request::Op(asked), false) = (&request, explain)
            && self.limits.at_once
        {
            match self.do_at_once(asker, &entitled, asked, &mut turn) {
                AtOnce::Answered => return,
                AtOnce::Done(untold) => return self.tell_with_turn(untold),
                AtOnce::After(read) => reading = Some(read),
                AtOnce::TheLongWay => {}
            }
        }
        // To whom a subtree is all there is, nothing is told of what is above it.
        let notes = self.notes(explain && entitled.subtree.is_none());
        // By reference: what a task is given it has twice, and every request is a task. What it waits for is
        // pinned where it is made, here and below: `.await` alone would move it there, several KB each time.
        self.spawn(|me| match request {
            Request::Op(asked) => Box::pin(async move {
                if let Some(read) = reading {
                    // What it said will be heard when it is read again.
                    let _ = read.await;
                }
                pin!(me.serve_op(asker, &entitled, &asked, &notes)).await;
                drop(turn);
            }),
            other => Box::pin(async move {
                me.serve(asker, entitled, other, &notes).await;
                drop(turn);
            }),
        });
    }

    async fn serve_op(&self, asker: Asker, entitled: &Entitled, asked: &OpRequest, notes: &Notes) {
        let OpRequest {
            request,
            again,
            map,
            instance,
            cred,
            op,
            ways,
            keep,
            parts,
        } = asked;
        if *op == Op::Sync
            && let Err(refusal) = self.knows_all_owners(*map)
        {
            return self.answer(vec![asker], Err(refusal));
        }
        let holder = Bearer {
            identity: entitled.holder,
            instance: *instance,
        };
        if let Some(root) = entitled.subtree
            && op.is_root_lookup()
            && !plant!(G10)
        {
            let found = Box::pin(self.find_subtree(asker.1, holder, cred, root)).await;
            let result = found.map(Response::from).map_err(|f| match f {
                Failure::Refused(why) => why,
                Failure::Store(e) => {
                    self.report(&e);
                    Refusal::NotReady
                }
            });
            return self.answer(vec![asker], result);
        }
        let tried = Tried {
            request: *request,
            again: *again,
            map: *map,
            keep: keep.as_ref(),
            parts: *parts,
        };
        pin!(self.operate(asker, tried, (holder, cred), op, ways, notes)).await;
    }

    /// Everything but operations. What waits has a place of its own, so that no request has one for all of
    /// them.
    async fn serve(&self, asker: Asker, entitled: Entitled, request: Request, notes: &Notes) {
        let Entitled { holder, subtree } = entitled;
        let result = match request {
            Request::Op(_) => Err(Failure::Refused(Refusal::Invalid)),
            Request::OpenSession(session) => Box::pin(self.open_session(session)).await,
            Request::KeepAlive(sessions) => {
                let now = self.world.mono();
                let mut table = self.admission.sessions.borrow_mut();
                sessions.iter().for_each(|s| table.seen(*s, now));
                Ok(Response::Ok)
            }
            Request::Holds(said) => self.hear_holding(holder, &said),
            Request::CloseSession(session) => {
                Box::pin(self.close_session(session)).await.map(|()| Response::Ok)
            }
            Request::GetMap => Ok(self.show_map()),
            Request::Null(durable) => self.null(durable).await,
            Request::Scan { range, limit } => Box::pin(self.scan(range, limit)).await,
            Request::Probe {
                instance,
                cred,
                probes,
            } => {
                let holder = Bearer {
                    identity: holder,
                    instance,
                };
                Box::pin(self.probe(asker.1, (holder, &cred), subtree.is_some(), probes)).await
            }
            Request::Lock(request) => Box::pin(self.file_lock(holder, request)).await,
            Request::Cluster(request) => Box::pin(self.cluster(request)).await,
            Request::Auth(request) => Box::pin(self.auth(request)).await.map(Response::Auth),
            Request::Cut(request) => Box::pin(self.cut(request)).await,
            Request::Repair(request) => Box::pin(self.repair(asker.1, request)).await,
            Request::Remains(range) => Box::pin(self.remains(range)).await,
            Request::Status => Ok(Response::Status(self.status())),
            Request::Peer(request) => {
                // It is told once more, so nobody waits to hear what comes of it.
                let silent = matches!(request, PeerRequest::Decide { .. });
                let done = Box::pin(self.participate(request, notes)).await;
                if silent {
                    if let Err(Failure::Store(e)) = done {
                        self.report(&e);
                    }
                    return;
                }
                done.map(Response::Peer)
            }
        };
        match result {
            Ok(response) => {
                // Servers may know. Others are told only of operations (H99).
                let account = matches!(response, Response::Peer(_)).then(|| notes.account());
                self.answer_with(asker, Ok(response), account.flatten());
            }
            Err(Failure::Refused(why)) => self.answer(vec![asker], Err(why)),
            Err(Failure::Store(e)) => {
                // Damage of one record is that request's failure; anything else stops the server.
                self.report(&e);
                self.answer(vec![asker], Err(Refusal::NotReady));
            }
        }
    }

    /// Says what a store error means. True if the server goes on.
    pub(crate) fn report(&self, e: &StoreError) -> bool {
        match e {
            StoreError::Corrupt { .. } => {
                // Once a second: a client that asks in a loop must not fill the disk with this.
                let now = self.world.mono();
                if self
                    .care
                    .damage_logged
                    .get()
                    .is_none_or(|at| now.since(at) >= Duration::from_secs(1))
                {
                    self.care.damage_logged.set(Some(now));
                    tracing::error!(server = self.id.0, error = %e, "damaged record");
                }
                true
            }
            _ => {
                self.fatal(e);
                false
            }
        }
    }

    async fn operate(
        &self,
        asker: Asker,
        tried: Tried<'_>,
        (holder, cred): (Bearer, &Cred),
        op: &Op,
        ways: &[Statement],
        notes: &Notes,
    ) {
        let map = tried.map;
        // Nothing of what comes before and after has a place in the task while it is executed.
        let Some((asked, unknown)) = self.take_on(asker, tried, (holder, cred), op, ways, notes) else {
            return;
        };
        self.count(|s| s.operations += 1);
        let done = pin!(self.run_to_safety(&asked, unknown)).await;
        self.conclude(asker, &asked, map, done);
    }

    /// What is to be executed, and whether it may have been before; nothing if it is answered, or will be.
    pub(crate) fn take_on<'a>(
        &self,
        asker: Asker,
        tried: Tried<'a>,
        (holder, cred): (Bearer, &'a Cred),
        op: &'a Op,
        ways: &'a [Statement],
        notes: &'a Notes,
    ) -> Option<(Asked<'a>, bool)> {
        let believed = self
            .may_name(op, tried.parts)
            .and_then(|()| self.believed(&tried, (holder, cred), op, ways));
        let admitted = believed.and_then(|dirs| Ok((dirs, self.admit(asker, &tried, op)?)));
        let (dirs, unknown) = match admitted {
            // Another server may have executed it.
            Ok((dirs, Admission::Execute { unknown })) => (dirs, unknown || tried.again && !plant!(H116)),
            Ok((_, Admission::Wait)) => return None,
            Ok((_, Admission::Answer(outcome))) => {
                self.count(|s| s.replayed += 1);
                self.answer(vec![asker], Ok(outcome.into()));
                return None;
            }
            Ok((_, Admission::Refuse(refusal))) | Err(refusal) => {
                self.answer(vec![asker], Err(refusal));
                return None;
            }
        };
        let asked = self.asked(asker, &tried, (holder, cred), op, dirs, notes);
        Some((asked, unknown))
    }

    /// What a request says of directories and open files, if it may say it.
    pub(crate) fn believed<'a>(
        &self,
        tried: &Tried<'a>,
        (holder, cred): (Bearer, &'a Cred),
        op: &'a Op,
        ways: &'a [Statement],
    ) -> Result<Dirs<'a>, Refusal> {
        self.check_handle(op, holder.identity)?;
        tried.keep.map_or(Ok(()), |k| self.heed_keeper(k))?;
        self.believe(holder, cred, op, ways)
    }

    pub(crate) fn asked<'a>(
        &self,
        asker: Asker,
        tried: &Tried<'a>,
        (holder, cred): (Bearer, &'a Cred),
        op: &'a Op,
        dirs: Dirs<'a>,
        notes: &'a Notes,
    ) -> Asked<'a> {
        Asked {
            term: self.map().term,
            slot_changes: self.slot_changes(),
            message: asker.1,
            // What changes nothing takes no lane, whatever its message says.
            request: tried.request.filter(|_| op.mutates()),
            holder,
            cred,
            op,
            parts: tried.parts,
            keep: tried.keep,
            dirs,
            told: cred,
            basis: Basis::Shown,
            notes,
            change: Cell::default(),
            leases: Default::default(),
        }
    }

    /// Tells all who asked what came of it.
    pub(crate) fn conclude(
        &self,
        asker: Asker,
        asked: &Asked<'_>,
        map: MapEpoch,
        done: Result<Outcome, Failure>,
    ) {
        match done {
            Ok(outcome) => {
                let request = asked.request.map(|id| (id, outcome.clone(), map));
                let mut askers = self.askers(asker, request);
                let told = outcome.is_ok() && asked.dirs.whole_ways();
                let account = told.then(|| asked.notes.account()).flatten();
                let response = self.response(asked, outcome);
                // For the message that asked for it: another try of the same request may not have.
                let of = |to| account.clone().filter(|_| to == asker);
                let last = askers.pop();
                for to in askers {
                    self.answer_with(to, Ok(response.clone()), of(to));
                }
                if let Some(to) = last {
                    self.answer_with(to, Ok(response), of(to));
                }
            }
            Err(Failure::Refused(why)) => {
                let why = self.unless_outdated(why, map);
                self.count(|s| s.busy += u64::from(why == Refusal::Busy));
                let askers = match asked.request {
                    Some(id) => self.admission.sessions.borrow_mut().refused(id, why),
                    None => vec![asker],
                };
                self.answer(askers, Err(why));
            }
            // The server has stopped; a reader of damaged records got EIO already.
            Err(Failure::Store(_)) => {}
        }
    }

    /// All who asked for what is done, and is remembered from now on if it changed anything.
    pub(crate) fn askers(&self, asker: Asker, request: Option<(RequestId, Outcome, MapEpoch)>) -> Vec<Asker> {
        match request {
            Some((id, outcome, map)) => {
                let by = map.max(self.map().epoch);
                self.admission.sessions.borrow_mut().done(id, outcome, by)
            }
            None => vec![asker],
        }
    }

    /// What is told of an outcome, and what else there is to say.
    pub(crate) fn response(&self, asked: &Asked<'_>, outcome: Outcome) -> Response {
        let fresh = self.refresh(&asked.dirs, asked.holder);
        let change = asked.change.get();
        if fresh.is_empty() && change.is_none() {
            return outcome.into();
        }
        Response::Refreshed(Box::new(Refreshed {
            outcome,
            fresh,
            change,
        }))
    }

    /// Whether the parts that an asker names may have its names. Which one has, records say.
    pub(crate) fn may_name(&self, op: &Op, parts: [u16; 2]) -> Result<(), Refusal> {
        let map = self.map();
        let division = map.placement.division();
        if division == Division::OneByOne {
            return match parts == op.parts_by_hash(map.widths()) {
                true => Ok(()),
                false => Err(Refusal::Invalid),
            };
        }
        if parts == [0, 0] {
            return Ok(());
        }
        let hashes = op.hashes(map.widths());
        let may = |(start, hash): (u16, Option<NameHash>)| {
            let first = Tile {
                start,
                depth: Tile::first_depth(start),
            };
            start == 0 || start < SLOTS && hash.is_some_and(|hash| first.has(hash.upper()))
        };
        match division == Division::Halves && parts.into_iter().zip(hashes).all(may) {
            true => Ok(()),
            false => Err(Refusal::Invalid),
        }
    }

    /// Is this request for us, and what does its lane say?
    fn admit(&self, asker: Asker, tried: &Tried<'_>, op: &Op) -> Result<Admission, Refusal> {
        let (map, home) = (tried.map, op.home_in(tried.parts));
        let request = tried.request.filter(|_| op.mutates());
        // What was executed already must find its answer, whatever has become of this server since.
        let known = request.is_some_and(|id| self.admission.sessions.borrow().has(id));
        if !known && let Err(refusal) = self.is_here(op, home) {
            if plant!(H64) {
                return Ok(Admission::Answer(Err(Errno::NotFound)));
            }
            return Err(refusal);
        }
        let known = known || request.is_some_and(|id| !self.admission.sessions.borrow().knows(id.session));
        if !known && !self.knows_enough() && !plant!(H15) {
            return Err(Refusal::NotReady);
        }
        if !op.mutates() {
            return Ok(Admission::Execute { unknown: false });
        }
        let id = request.ok_or(Refusal::Invalid)?;
        // It was sent before what it needs came here: it may have been repeated where that was, and be late
        // (H115). So it may if it was sent to the owner of the slot that this was, and is taken for the
        // coordinator's now.
        let elsewhere = home.is_some_and(|slot| !self.serves_slot(slot));
        let late = map < self.slots.gained.get() || elsewhere && map < self.slots.lost.get();
        if !known && late && !plant!(H115) {
            return Err(Refusal::NotOwner(self.map().epoch));
        }
        self.check_failure(id, tried, op)?;
        let now = self.world.mono();
        let admission = self
            .admission
            .sessions
            .borrow_mut()
            .admit(id, asker, now, &self.limits);
        let admission = match admission {
            Admission::Refuse(Refusal::UseCoordinator) if self.coordinates() => {
                self.admission.sessions.borrow_mut().take_on(id, asker)
            }
            Admission::Refuse(why) => Admission::Refuse(self.unless_outdated(why, map)),
            admission => admission,
        };
        if plant!(H45) && matches!(admission, Admission::Answer(_)) && matches!(op, Op::Unlink { .. }) {
            return Ok(Admission::Execute { unknown: false });
        }
        if plant!(H49)
            && matches!(admission, Admission::Refuse(Refusal::TooOld))
            && matches!(op, Op::SetAttr { .. } | Op::Publish { .. })
        {
            return Ok(Admission::Execute { unknown: false });
        }
        Ok(admission)
    }

    /// Begins a change that is this server's to do and was never asked for before. False, and nothing is
    /// noted: there is something else to be said of it.
    pub(crate) fn begins(&self, asker: Asker, asked: &Asked<'_>, map: MapEpoch) -> bool {
        let here = asked.home().is_some_and(|slot| self.serves_slot(slot));
        let in_time = map >= self.slots.gained.get();
        let begin = |id| {
            self.admission
                .sessions
                .borrow_mut()
                .begin(id, asker, self.world.mono())
        };
        here && in_time && self.knows_enough() && asked.request.is_some_and(begin)
    }

    /// That another is the coordinator is said only by a map that is no older than the asker's: who hears it
    /// gives the request up for another, and if this server has the office by then a late copy would be taken
    /// on (H127).
    fn unless_outdated(&self, why: Refusal, map: MapEpoch) -> Refusal {
        match why {
            Refusal::UseCoordinator if map > self.map().epoch => Refusal::NotReady,
            why => why,
        }
    }

    /// The maps by which slots have come to this server, and left it, last.
    pub(crate) fn slot_changes(&self) -> (MapEpoch, MapEpoch) {
        (self.slots.gained.get(), self.slots.lost.get())
    }

    /// Whether an operation is this server's to do.
    fn is_here(&self, op: &Op, home: Option<Slot>) -> Result<(), Refusal> {
        match home {
            Some(slot) if !self.serves_slot(slot) && !self.is_coordinated(op) => Err(self.not_served(slot)),
            _ => Ok(()),
        }
    }

    /// That a request failed is known where it did and nowhere else: with the slot gone it may have been done
    /// by the next owner, also if the slot has come back since (H122).
    fn check_failure(&self, id: RequestId, tried: &Tried<'_>, op: &Op) -> Result<(), Refusal> {
        let Some(by) = self
            .admission
            .sessions
            .borrow()
            .failed_by(id)
            .filter(|_| !plant!(H122))
        else {
            return Ok(());
        };
        self.is_here(op, op.home_in(tried.parts))?;
        if by < self.slots.gained.get() {
            // It may be a late copy of what was answered.
            if tried.map < self.slots.gained.get() {
                return Err(Refusal::NotOwner(self.map().epoch));
            }
            self.admission.sessions.borrow_mut().forget_failure(id);
        }
        Ok(())
    }

    /// Executes, and waits until what is told cannot be lost (rule 8).
    async fn run_to_safety(&self, asked: &Asked<'_>, unknown: bool) -> Result<Outcome, Failure> {
        let done = match pin!(self.execute(asked, unknown)).await {
            Ok(done) => done,
            Err(Failure::Store(e)) if self.report(&e) => return Ok(Err(Errno::Io)),
            Err(e) => return Err(e),
        };
        if plant!(H102) && !asked.op.mutates() {
            return Ok(done.outcome);
        }
        if let Err(e) = pin!(asked.notes.syncing(self.safe(done.lsn, done.level))).await {
            if let Failure::Store(e) = &e {
                self.fatal(e);
            }
            return Err(e);
        }
        Ok(done.outcome)
    }

    async fn open_session(&self, id: SessionId) -> Result<Response, Failure> {
        let now = self.world.mono();
        let known = self.admission.sessions.borrow().knows(id);
        if !known {
            let sessions = self.admission.sessions.borrow();
            // In mode `none` all are one identity.
            let crowded = self.map().auth != AuthMode::None
                && sessions.remembered_of(id.owner()) >= self.limits.identity_sessions
                && !plant!(G55);
            let most = &self.limits;
            let full = sessions.len() >= most.sessions || sessions.remembered() >= most.sessions_remembered;
            if crowded || full {
                return Err(Failure::Refused(Refusal::Busy));
            }
        }
        if !self.admission.sessions.borrow_mut().open(id, now) {
            return Err(Failure::Refused(Refusal::SessionUnknown));
        }
        if !known {
            self.store.apply(&Batch::of(vec![self.session_begins(id)]))?;
        }
        // Also when it was known: the first opening may still be on its way to the disk. A session of open
        // files or locks must be there after a power failure in either durability: it is waited for then
        // (H165, H170).
        let level = match id.keeps() || id.is_for_locks() {
            true => Level::Synced,
            false => Level::Durable,
        };
        self.safe(self.store.applied(), level).await?;
        Ok(Response::Ok)
    }
}
