//! One operation to a definite outcome: owner, boot, session, lane, retries.

use crate::contents::{Dir, Times};
use crate::{Client, Contents};
use pando_cluster::ClusterMap;
use pando_env::{CallError, Peer, World};
use pando_types::{Cred, Errno, MapEpoch, Mono, RequestId, ServerId, Slot, plant};
use pando_wire::{
    Answer, ChangeInfo, EntryView, FsStat, Message, Op, OpRequest, Outcome, Refusal, Request, Response,
    Statement,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// First and longest pause between tries.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// Who was waited for with pauses of this length is asked for in the map of others.
const ELSEWHERE: Duration = Duration::from_millis(40);

/// A mutating request that may have been executed is repeated for at most so many times `give_up` by the
/// clock: far less than servers remember the names of ended sessions.
const UNCERTAIN: u32 = 10;

/// An operation is sent on so often, at most: 12 times for each of two names, and as often again while they
/// are split (H64).
const REDIRECTS: u32 = 48;

/// Where an operation goes.
#[derive(Clone, Copy)]
struct Aim {
    /// The parts that have its names.
    parts: [u16; 2],
    /// The slot of the first.
    home: Slot,
}

/// A server does not know this mount yet.
struct Trouble {
    server: ServerId,
    error: Option<CallError>,
    /// Whether an earlier try may have been executed.
    tried: bool,
}

/// Pauses that grow, until so much time was spent. What counts is time spent trying: a machine that was
/// suspended, or had no memory or processor for minutes, must not come back to errors.
struct Patience {
    left: Duration,
    pause: Duration,
    begun: Mono,
}

impl Patience {
    /// Takes off what a try or a pause was meant to take at most.
    fn spend(&mut self, from: Mono, to: Mono, most: Duration) {
        self.left = self.left.saturating_sub(to.since(from).min(most));
    }
}

/// Whether an operation takes effect is not known, unless somebody says otherwise.
struct Doubt<'a>(&'a Contents, Vec<Dir>, &'a World);

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.0.doubt(&self.1, self.2.mono());
    }
}

impl Client {
    /// Runs an operation until its outcome is known. Stalls while its server is away; after `give_up` it
    /// fails with [`Errno::Unreachable`], which for a mutating operation means: it may have happened. Ends
    /// with [`Errno::Interrupted`] if the call is cut off ([`Client::heed`]) before anything of it may have
    /// happened.
    // What is given to a future is in it twice, and is moved with it: the operation lies beside it, once.
    pub fn op<'a>(&'a self, cred: &Cred, op: Op) -> impl Future<Output = Outcome> + use<'a> {
        let mut asked = self.asked(cred, op);
        async move { pin!(self.op_in_turn(&mut asked, 0)).await }
    }

    /// What is asked for an operation: [`Client::op_in_turn`] fills in the rest.
    pub(crate) fn asked(&self, cred: &Cred, op: Op) -> Request {
        Request::from(OpRequest {
            parts: [0, 0],
            keep: None,
            request: None,
            again: false,
            map: MapEpoch(0),
            instance: self.instance,
            cred: cred.clone(),
            op,
            ways: Vec::new(),
        })
    }

    /// The same, of an operation that opens a file to be kept, in this turn; 0: of any other.
    pub(crate) async fn op_in_turn(&self, asked: &mut Request, turn: u64) -> Outcome {
        let Request::Op(about) = &*asked else {
            return Err(Errno::Invalid);
        };
        let mut doubt =
            (self.config.contents.as_ref()).map(|c| Doubt(c, Contents::at_stake(&about.op), &self.world));
        let outcome = pin!(self.heeding(pin!(self.to_the_end(asked, turn)))).await;
        if let Some(doubt) = &mut doubt
            && !matches!(outcome, Err(Errno::Unreachable | Errno::Io))
        {
            doubt.1.clear();
        }
        outcome
    }

    async fn to_the_end(&self, message: &mut Request, turn: u64) -> Outcome {
        self.count(|s| s.operations += 1);
        let Request::Op(asked) = &*message else {
            return Err(Errno::Invalid);
        };
        // What is rare, or waits, has a place of its own, so that no operation has one for it.
        if matches!(asked.op, Op::StatFs) {
            return Box::pin(self.space()).await.map(Answer::FsStat);
        }
        if matches!(asked.op, Op::Sync) {
            return Box::pin(self.sync_all()).await.map(|()| Answer::Done);
        }
        let mut aim = self.aim(&asked.op)?;
        let mut redirects = 0;
        let mut lane = match asked.op.mutates() {
            true => Some(self.lanes.take().await),
            false => None,
        };
        let mut patience = self.patience();
        let mut request: Option<RequestId> = None;
        let mut at_coordinator = false;
        // Whether a try may have been executed without our hearing of it.
        let mut uncertain = false;
        // When the first message under the present identity was sent.
        let mut first_tried = self.about_now();
        let (mut sent, mut looked) = (None, false);
        // What was closed may be of a slot that moves: it is said another time.
        let mut refused = false;
        loop {
            let Request::Op(asked) = &mut *message else {
                return Err(Errno::Invalid);
            };
            if plant!(H300) {
                aim = self.aim(&asked.op)?;
            }
            let map = self.map();
            let server = if at_coordinator {
                map.coordinator
            } else {
                map.owner(aim.home)
            };
            if let Some(lane) = &mut lane {
                // Whoever has a removed file that is held open must know who holds it (H97).
                let held = asked.op.leaves_held(asked.parts);
                let holds = held.map(|slot| map.owner(slot)).filter(|s| *s != server);
                let session = match self.known_session_at(server, holds) {
                    Some(session) => Ok(session),
                    None => Box::pin(self.sessions_at(server, holds)).await,
                };
                let session = match session {
                    Ok(session) => session,
                    Err(error) => {
                        let tried = uncertain || sent.is_some();
                        let trouble = Trouble { server, error, tried };
                        Box::pin(self.not_ready(trouble, &mut patience)).await?;
                        continue;
                    }
                };
                match &request {
                    // A retry keeps identity and session until a definite *not executed*: if the session
                    // ended elsewhere and was renewed, a late copy may be executed where it lives (H138).
                    Some(id) if uncertain || id.session == session => {}
                    Some(_) if request == sent && !plant!(H138) => {}
                    _ => {
                        request = Some(RequestId {
                            session,
                            slot: lane.slot,
                            sequence: lane.next(),
                        });
                        first_tried = self.about_now();
                    }
                }
            }
            // A server that has started again takes all files for open by this mount until that says what it
            // has: what loses its name before then would stay. If it cannot be told now it is told later.
            if turn == 0 && asked.op.may_orphan() && self.was_forgotten_by(server) {
                _ = Box::pin(self.greet_keeper(server)).await;
            }
            if turn != 0
                && !self.keeper_is_known(server)
                && let Err(error) = Box::pin(self.greet_keeper(server)).await
            {
                let tried = uncertain || sent.is_some();
                let trouble = Trouble { server, error, tried };
                Box::pin(self.not_ready(trouble, &mut patience)).await?;
                continue;
            }
            for shown in asked.op.statements_mut().into_iter().flatten() {
                self.handles.borrow_mut().renew(shown);
            }
            // Another copy of an earlier try may be executed, and where is not known (H126).
            let again = request.is_some() && request == sent;
            // What it hangs on may have become a ticket meanwhile; if something of it was forgotten it must
            // be looked up again, unless an earlier try with all of it may be executed (H134).
            if !again || !looked {
                let ways = self
                    .cache
                    .borrow()
                    .ways(asked.op.statements().into_iter().flatten(), self.world.recent());
                asked.ways = ways.ok_or(Errno::Stale)?;
                looked = true;
            }
            if request.is_some() {
                self.change()?;
            }
            if turn != 0 {
                self.keeper_asks(turn, server, map.epoch);
            }
            sent = request;
            let in_doubt = uncertain || again;
            asked.keep = self.keep_for(server, &asked.op, turn, !refused);
            asked.request = request;
            asked.parts = aim.parts;
            asked.again = again;
            asked.map = map.epoch;
            let tried = self.about_now();
            let answer = pin!(self.try_once(server, message)).await;
            let Request::Op(asked) = &*message else {
                return Err(Errno::Invalid);
            };
            let op = &asked.op;
            patience.spend(tried, self.world.recent(), self.config.try_timeout);
            if matches!(answer, Ok(Ok(_))) {
                self.keep_heard(asked.keep.as_ref());
            }
            refused |= matches!(answer, Ok(Err(Refusal::Busy | Refusal::NotOwner(_))));
            match answer {
                Ok(Ok(response)) => {
                    let outcome = self.take_answer(op, response, first_tried..tried)?;
                    match turned(message, outcome) {
                        Some(outcome) => return outcome,
                        None => aim = self.next_part(message)?,
                    }
                }
                Ok(Err(refusal)) => match refusal {
                    Refusal::WrongBoot(_) => continue, // learnt by try_once
                    Refusal::NotOwner(_) => {
                        // Who knows better now need not wait.
                        if !Box::pin(self.refresh_map(server)).await {
                            Box::pin(self.wait(&mut patience)).await?;
                        }
                    }
                    // Another is the coordinator by now. A copy may have been executed by the one before.
                    Refusal::UseCoordinator if at_coordinator => {
                        Box::pin(self.refresh_map(server)).await;
                        Box::pin(self.wait(&mut patience)).await?;
                    }
                    Refusal::SessionUnknown => {
                        // Its records are gone with it: whether an earlier try was executed cannot be known
                        // any more. Nor, if the first try is longer ago than one is waited for (after a
                        // pause), whether another copy of it was: the session may have ended since (H46).
                        let late = self.world.mono().since(first_tried) > self.config.try_timeout;
                        if uncertain || late {
                            return Err(Errno::Unreachable);
                        }
                        // The request stays what it is, unless its session is given up: another copy of this
                        // try may find the session once it is registered again (H130).
                        if let Some(id) = request {
                            self.closed_at(id.session, server);
                            request = request.filter(|_| id.session == self.session_id());
                        }
                    }
                    Refusal::UseCoordinator => {
                        at_coordinator = true;
                        uncertain = false;
                        request = None;
                    }
                    // Neither this try nor one of before was or will be executed (H300): another identity,
                    // and the part that has the name.
                    Refusal::Elsewhere { second, start, depth } => {
                        self.not_in_part(op, second, start, depth);
                        redirects += 1;
                        if redirects > REDIRECTS {
                            return Err(Errno::Io);
                        }
                        aim = self.aim(op)?;
                        (at_coordinator, uncertain, request) = (false, false, None);
                    }
                    Refusal::KeeperUnknown => self.keeper_unknown(server, asked.keep.as_ref()),
                    Refusal::Busy | Refusal::NotReady => Box::pin(self.wait(&mut patience)).await?,
                    Refusal::TooOld => return Err(Errno::Unreachable),
                    Refusal::BadStatement if in_doubt => return Err(Errno::Unreachable),
                    // What was looked up is worth nothing any more: the caller looks again.
                    Refusal::BadStatement => {
                        self.forget(op);
                        return Err(Errno::Stale);
                    }
                    // Neither this try nor one of before was or will be executed: what is outdated stays so,
                    // and of an earlier try it was looked for first (H116).
                    Refusal::Outdated(tag) => {
                        redirects += 1;
                        if !Box::pin(self.held_again(op, tag)).await || redirects > REDIRECTS {
                            return Err(Errno::Stale);
                        }
                        (uncertain, request) = (false, None);
                    }
                    Refusal::NotAllowed | Refusal::ReadOnly | Refusal::BadHandle if in_doubt => {
                        return Err(Errno::Unreachable);
                    }
                    Refusal::BadHandle => return Err(Errno::BadHandle),
                    Refusal::NotAllowed => {
                        self.count(|s| s.not_allowed += 1);
                        return Err(Errno::Access);
                    }
                    Refusal::ReadOnly => return Err(Errno::ReadOnly),
                    Refusal::Invalid => return Err(Errno::Invalid),
                },
                // Not let in: this try was not executed.
                Err(CallError::Denied) if !in_doubt => return Err(Errno::Access),
                Err(CallError::Denied) => return Err(Errno::Unreachable),
                Err(error) => {
                    uncertain = lane.is_some();
                    if uncertain && self.world.mono().since(patience.begun) > self.config.give_up * UNCERTAIN
                    {
                        return Err(Errno::Unreachable);
                    }
                    Box::pin(self.after(error, &mut patience)).await?;
                    Box::pin(self.look_elsewhere(server, &patience)).await;
                }
            }
        }
    }

    /// Keeps what an answer says. The tries began and ended then.
    #[inline]
    fn take_answer(&self, op: &Op, response: Response, tries: Range<Mono>) -> Result<Outcome, Errno> {
        let when = (tries.start, tries.end);
        match response {
            Response::Op(outcome) => {
                self.contents(op, &outcome, None, when);
                self.learnt(op, &outcome, &[], tries.end);
                Ok(*outcome)
            }
            Response::Refreshed(told) => {
                self.contents(op, &told.outcome, told.change, when);
                self.learnt(op, &told.outcome, &told.fresh, tries.end);
                Ok(told.outcome)
            }
            _ => Err(Errno::Io),
        }
    }

    /// Where a listing goes on.
    fn next_part(&self, message: &Request) -> Result<Aim, Errno> {
        match message {
            Request::Op(asked) => self.aim(&asked.op),
            _ => Err(Errno::Invalid),
        }
    }

    /// Where an operation goes.
    fn aim(&self, op: &Op) -> Result<Aim, Errno> {
        let parts = self.parts_of(op);
        let home = op.home_in(parts).ok_or(Errno::Invalid)?;
        Ok(Aim { parts, home })
    }

    /// A server does not know this mount yet: waits, until the next try.
    async fn not_ready(&self, trouble: Trouble, patience: &mut Patience) -> Result<(), Errno> {
        match trouble.error {
            Some(CallError::Denied) if trouble.tried => return Err(Errno::Unreachable),
            Some(error) => self.after(error, patience).await?,
            None => self.wait(patience).await?,
        }
        self.look_elsewhere(trouble.server, patience).await;
        Ok(())
    }

    /// A server has been silent for a while: perhaps another has its place by now.
    async fn look_elsewhere(&self, silent: ServerId, patience: &Patience) {
        if patience.pause >= ELSEWHERE
            && !self.refresh_map_from(self.others(silent)).await
            && let Some(find) = &*self.find_map.borrow()
            && let Some(map) = find()
        {
            self.adopt_map(map);
        }
    }

    pub(crate) fn others(&self, than: ServerId) -> Vec<ServerId> {
        let map = self.map();
        map.servers.iter().map(|s| s.id).filter(|s| *s != than).collect()
    }

    /// When something is asked. The last look at the clock, which was before, says as much unless it matters
    /// what was heard in between, as for what is known of directories' contents.
    fn about_now(&self) -> Mono {
        match self.config.contents {
            Some(_) => self.world.mono(),
            None => self.world.recent(),
        }
    }

    /// What an outcome says about what is in directories.
    fn contents(&self, op: &Op, outcome: &Outcome, change: Option<ChangeInfo>, sent: (Mono, Mono)) {
        if let Some(contents) = &self.config.contents {
            let (first, sent) = sent;
            let heard = self.world.mono();
            contents.hear(op, outcome, change, Times { first, sent, heard });
        }
    }

    /// What an outcome says about directories that are known.
    fn learnt(&self, op: &Op, outcome: &Outcome, fresh: &[Statement], asked: Mono) {
        let mut cache = self.cache.borrow_mut();
        let mut handles = self.handles.borrow_mut();
        for s in fresh {
            cache.refresh(s);
            handles.learn(s);
        }
        drop(handles);
        match outcome {
            Ok(Answer::Entry(e)) => {
                let named = op.subjects()[0].filter(|_| op.traits().learnt);
                if let Some((dir, name)) = named.and_then(|s| Some((s.dir(), s.name()?))) {
                    cache.insert(dir, name, e, self.good_until(asked, e));
                }
            }
            Ok(Answer::Removed(EntryView { dir: Some(gone), .. })) => cache.forget(gone.tag()),
            Ok(Answer::Renamed { moved, other }) => {
                for s in [moved.dir.as_ref(), other.as_ref().and_then(|o| o.dir.as_ref())]
                    .into_iter()
                    .flatten()
                {
                    cache.forget(s.tag());
                }
            }
            Err(Errno::Stale) => {
                drop(cache);
                self.forget(op);
            }
            _ => {}
        }
    }

    /// The directories an operation named are not what was known of them.
    fn forget(&self, op: &Op) {
        let mut cache = self.cache.borrow_mut();
        // The tag of the place above the root means all.
        op.statements()
            .into_iter()
            .flatten()
            .for_each(|s| cache.forget(s.tag()));
    }

    /// Asks one server until it answers something other than that it has a newer boot.
    pub(crate) async fn ask(
        &self,
        server: ServerId,
        request: Request,
    ) -> Result<Result<Response, Refusal>, Errno> {
        let mut patience = self.patience();
        loop {
            let tried = self.world.recent();
            let answer = pin!(self.try_once(server, &request)).await;
            patience.spend(tried, self.world.recent(), self.config.try_timeout);
            match answer {
                Ok(Err(Refusal::WrongBoot(_))) => {}
                Ok(Err(Refusal::NotReady)) => Box::pin(self.wait(&mut patience)).await?,
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    Box::pin(self.after(error, &mut patience)).await?;
                    Box::pin(self.look_elsewhere(server, &patience)).await;
                    if self.map().server(server).is_none() {
                        // It has left the cluster.
                        return Err(Errno::Unreachable);
                    }
                }
            }
        }
    }

    /// One message, one answer or none.
    pub(crate) async fn try_once(
        &self,
        server: ServerId,
        request: &Request,
    ) -> Result<Result<Response, Refusal>, CallError> {
        self.count(|s| s.round_trips += 1);
        pin!(self.exchange(server, request)).await
    }

    /// The same, counted by the caller.
    pub(crate) async fn exchange(
        &self,
        server: ServerId,
        request: &Request,
    ) -> Result<Result<Response, Refusal>, CallError> {
        let boot = self.boot_of(server);
        let noted = self.sent(server, request);
        let encode = |id| Message::request_bytes(id, boot, request, noted.is_some());
        let peer = Peer::Server(server);
        let answer = pin!(self.caller.call(peer, self.config.try_timeout, encode)).await;
        self.answered(noted, &answer);
        let (answer, _) = answer?;
        if let Err(Refusal::WrongBoot(boot)) = answer {
            self.boots.borrow_mut().insert(server, boot);
        }
        Ok(answer)
    }

    /// Asks a server for something outside the tree, for operators' tools; tries until it answers or
    /// `give_up` ends.
    pub async fn admin(&self, server: ServerId, request: Request) -> Result<Response, Errno> {
        match pin!(self.ask(server, request)).await? {
            Ok(response) => Ok(response),
            Err(Refusal::Invalid) => Err(Errno::Invalid),
            Err(Refusal::NotAllowed) => Err(Errno::Access),
            Err(_) => Err(Errno::Unreachable),
        }
    }

    /// Fetches the map, from the server that says ours is old or from any other. False: nobody has a newer
    /// one.
    pub(crate) async fn refresh_map(&self, from: ServerId) -> bool {
        let mut servers = self.others(from);
        servers.insert(0, from);
        self.refresh_map_from(servers).await
    }

    /// The newest map that any server knows, for operators' tools.
    pub async fn newest_map(&self) -> Rc<ClusterMap> {
        for server in self.map().servers.iter().map(|s| s.id) {
            self.refresh_map_from(vec![server]).await;
        }
        self.map()
    }

    pub(crate) async fn refresh_map_from(&self, servers: Vec<ServerId>) -> bool {
        for server in servers {
            if let Some(newer) = self.map_of(server).await
                && self.adopt_map(newer)
            {
                return true;
            }
        }
        false
    }

    /// The map that a server has. `None`: it does not answer.
    pub async fn map_of(&self, server: ServerId) -> Option<ClusterMap> {
        match self.try_once(server, &Request::GetMap).await {
            Ok(Ok(Response::Map(bytes))) => ClusterMap::decode(&bytes.0).ok(),
            _ => None,
        }
    }

    fn patience(&self) -> Patience {
        Patience {
            left: self.config.give_up,
            pause: PAUSE.0,
            begun: self.world.recent(),
        }
    }

    /// A try brought no answer.
    async fn after(&self, error: CallError, patience: &mut Patience) -> Result<(), Errno> {
        match error {
            CallError::Disconnected => self.wait(patience).await,
            CallError::Denied => Err(Errno::Access),
            CallError::Timeout if patience.left.is_zero() => Err(Errno::Unreachable),
            CallError::Timeout => {
                self.count(|s| s.retries += 1);
                // That was a longer wait than any pause.
                patience.pause = patience.pause.max(ELSEWHERE);
                Ok(())
            }
        }
    }

    async fn wait(&self, patience: &mut Patience) -> Result<(), Errno> {
        if patience.left.is_zero() {
            return Err(Errno::Unreachable);
        }
        self.count(|s| s.retries += 1);
        // Spread out those who wait for the same server.
        let jitter = patience
            .pause
            .mul_f64(0.5 + (self.world.random() % 1024) as f64 / 1024.0);
        let begun = self.world.mono();
        self.world.sleep(jitter).await;
        patience.spend(begun, self.world.mono(), jitter);
        self.paused(self.world.mono().since(begun));
        patience.pause = (patience.pause * 2).min(PAUSE.1);
        Ok(())
    }

    /// For whom this acts when what is asked for is not any one user's.
    pub fn own_cred(&self) -> Cred {
        let asker = self.asker.get().and_then(|asker| asker());
        asker.unwrap_or_else(|| self.config.own.clone())
    }

    /// The root directory's entry.
    pub async fn root(&self) -> Result<EntryView, Errno> {
        let op = Op::Lookup {
            dir: Statement::above_root(),
            name: pando_types::Name::root(),
        };
        match self.op(&self.config.own, op).await? {
            Answer::Entry(entry) => Ok(entry),
            _ => Err(Errno::Io),
        }
    }

    /// The root directory's entry as a handle, for who walks by handles from there.
    pub async fn root_handle(&self) -> Result<EntryView, Errno> {
        self.persist(async || {
            let root = self.root().await?;
            self.reopen(&root.dir.ok_or(Errno::Io)?).await
        })
        .await
    }

    /// A directory's entry as a handle, which stays good wherever the directory is moved, and when
    /// directories above it are closed to the caller.
    pub async fn reopen(&self, dir: &Statement) -> Result<EntryView, Errno> {
        match self.op(&self.config.own, Op::Reopen { dir: dir.clone() }).await? {
            Answer::Entry(entry) => Ok(entry),
            _ => Err(Errno::Io),
        }
    }

    /// Space of all servers together. What several have on one device is there once.
    pub async fn statfs(&self) -> Result<FsStat, Errno> {
        self.heeding(Box::pin(self.space())).await
    }

    async fn space(&self) -> Result<FsStat, Errno> {
        let answers = self.everywhere(Op::StatFs).await?;
        Ok(together(answers.into_iter().filter_map(|answer| match answer {
            Answer::FsStat(s) => Some(s),
            _ => None,
        })))
    }

    /// Makes everything acknowledged before safe against a power failure, on all servers.
    pub async fn sync_all(&self) -> Result<(), Errno> {
        self.everywhere(Op::Sync).await.map(|_| ())
    }

    async fn everywhere(&self, op: Op) -> Result<Vec<Answer>, Errno> {
        loop {
            let (map, mut answers) = (self.map(), Vec::new());
            for server in map.servers.iter().map(|s| s.id) {
                match self.at(server, op.clone()).await {
                    Ok(answer) => answers.push(answer),
                    Err(e) => {
                        // Who has left the cluster has left nothing behind.
                        let known = self.refresh_map_from(self.others(server)).await;
                        if !known || self.map().server(server).is_some() {
                            return Err(e);
                        }
                    }
                }
            }
            // Who joined meanwhile is asked too.
            if self.map().epoch == map.epoch {
                return Ok(answers);
            }
        }
    }

    /// One operation that names no directory, at one server.
    pub async fn at(&self, server: ServerId, op: Op) -> Outcome {
        loop {
            let request = OpRequest {
                parts: [0, 0],
                keep: None,
                request: None,
                again: false,
                map: self.map().epoch,
                instance: self.instance,
                cred: self.config.own.clone(),
                op: op.clone(),
                ways: Vec::new(),
            };
            match pin!(self.ask(server, request.into())).await? {
                Ok(Response::Op(outcome)) => return *outcome,
                Ok(_) => return Err(Errno::Io),
                // It knows of servers that we do not.
                Err(Refusal::NotOwner(_)) => {
                    if !Box::pin(self.refresh_map(server)).await {
                        return Err(Errno::Unreachable);
                    }
                }
                Err(_) => return Err(Errno::Unreachable),
            }
        }
    }
}

/// Space of several servers. Of those on one device the least that any of them has left counts.
fn together(all: impl Iterator<Item = FsStat>) -> FsStat {
    let (mut devices, mut sum): (BTreeMap<u64, FsStat>, _) = (BTreeMap::new(), FsStat::default());
    let mut add = |s: &FsStat| {
        sum.total = sum.total.saturating_add(s.total);
        sum.available = sum.available.saturating_add(s.available);
    };
    for s in all {
        if s.device == 0 {
            add(&s);
            continue;
        }
        let known = devices.entry(s.device).or_insert(s);
        known.total = known.total.max(s.total);
        known.available = known.available.min(s.available);
    }
    devices.values().for_each(add);
    sum
}

/// An outcome as callers see it. `None`: a part of a directory has nothing more, and the listing goes on in
/// the next (H64).
fn turned(message: &mut Request, outcome: Outcome) -> Option<Outcome> {
    match outcome {
        Ok(Answer::Part { entries, upto }) if entries.is_empty() => {
            if let Request::Op(asked) = message
                && let Op::ReadDir { after, .. } = &mut asked.op
            {
                *after = upto;
            }
            None
        }
        Ok(Answer::Part { entries, .. }) => Some(Ok(Answer::Entries { entries, end: false })),
        outcome => Some(outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_counted_once() {
        let of = |total, available, device| FsStat {
            total,
            available,
            device,
        };
        let servers = [
            of(100, 50, 7),
            of(100, 49, 7),
            of(30, 3, 8),
            of(10, 1, 0),
            of(10, 1, 0),
        ];
        assert_eq!(together(servers.into_iter()), of(150, 54, 0));
    }
}
