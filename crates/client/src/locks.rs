//! Locks of programs on files, as a mount has them.
//!
//! A [`Locker`] knows what its programs hold, and tells the servers. What it tells are settings, which may be
//! repeated: each try has a higher turn, and the last one is what holds. Who waits is told when it is its
//! turn, and asks then.
//!
//! Servers have locks in memory. After a restart, or when a file's slot goes to another server, the Locker
//! states what is held there before anything else is asked. A session that a server has ended took its locks
//! with it: they are *lost*, and whoever held them is told so, until it unlocks or closes.

mod keep;
mod signs;

pub use signs::Signs;

use crate::Client;
use pando_env::sync::{Either, Receiver, Sender, first, oneshot};
use pando_env::{CallError, LocalFuture};
use pando_types::{BootEpoch, Errno, Generation, Hold, Ino, LockFamily, ServerId, SessionId, Span, Spans};
use pando_wire::{
    FileLockAnswer, FileLockRequest, Handle, LockPlace, LockView, Refusal, Request, Response, WantedLock,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// First and longest pause between tries.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// For whom there was no room in the queue, or whose place another thread of the same process took.
const AGAIN: Duration = Duration::from_millis(30);
/// For whom a server does not park until it is its turn: shorter than the time for which nobody overtakes it
/// then.
const UNTOLD: Duration = Duration::from_millis(500);

/// Why there is no lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockError {
    /// Somebody else has it.
    Taken,
    /// Whoever has it waits for the asker.
    Deadlock,
    /// The waiting was broken off.
    Interrupted,
    /// There are too many, or the owner has lost one that it has not given up yet.
    NoLocks,
    /// Something else.
    Failed(Errno),
}

/// A file that can be locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lockable {
    /// Its number.
    pub ino: Ino,
    /// Which of those that had it.
    pub generation: Generation,
    /// Shows that it was opened.
    pub proof: Handle,
}

/// What a program asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockWish {
    /// Of which file.
    pub file: Lockable,
    /// In which family.
    pub family: LockFamily,
    /// For whom.
    pub token: u64,
    /// Which bytes.
    pub span: Span,
    /// How; `None`: not any more.
    pub hold: Option<Hold>,
    /// The process.
    pub pid: u32,
}

impl LockWish {
    fn place(&self) -> LockPlace {
        LockPlace {
            ino: self.file.ino,
            generation: self.file.generation,
            family: self.family,
            token: self.token,
        }
    }

    fn wanted(&self, span: Span, hold: Option<Hold>) -> WantedLock {
        WantedLock {
            place: self.place(),
            proof: self.file.proof,
            span,
            hold,
            pid: self.pid,
        }
    }
}

type FileId = (Ino, Generation);
/// At which server, under which session.
type Pair = (ServerId, SessionId);
/// What is held of some bytes.
pub type Piece = (Span, Option<Hold>);

#[derive(Default)]
struct File {
    /// Under which its locks are held.
    session: Option<SessionId>,
    /// Where the servers were told of what is held.
    at: Option<(ServerId, BootEpoch)>,
    /// By family.
    held: BTreeMap<LockFamily, Spans<u64>>,
    /// What was held and is not any more, though nobody gave it up.
    lost: BTreeMap<LockFamily, Spans<u64>>,
    /// The newest of it.
    proof: Option<Handle>,
    /// Calls under way.
    users: usize,
}

impl File {
    fn holds(&self) -> bool {
        self.held.values().any(|s| !s.is_empty())
    }

    fn is_idle(&self) -> bool {
        self.users == 0 && !self.holds() && self.lost.values().all(Spans::is_empty)
    }

    fn has_lost(&self, family: LockFamily, token: u64) -> bool {
        self.lost
            .get(&family)
            .is_some_and(|s| s.of(token).next().is_some())
    }
}

#[derive(Default)]
struct State {
    turn: u64,
    files: BTreeMap<FileId, File>,
    /// Under which new locks are held.
    sessions: BTreeMap<ServerId, SessionId>,
    /// Those that are registered, and the boot to which all was stated; `None`: it is to be stated.
    pairs: BTreeMap<Pair, Option<BootEpoch>>,
    stating: BTreeSet<Pair>,
    /// Owners that are being spoken of.
    busy: BTreeSet<LockPlace>,
    /// Woken whenever one of these ends.
    waiting: Vec<Sender<()>>,
    closed: bool,
}

/// The locks of a mount.
pub struct Locker {
    client: Rc<Client>,
    state: RefCell<State>,
    /// Told of each owner that lost something.
    on_lost: Box<dyn Fn(LockPlace)>,
    signs: Signs,
}

/// Nobody else speaks of an owner meanwhile.
struct Turn<'a> {
    locker: &'a Locker,
    place: LockPlace,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.locker.state.borrow_mut().busy.remove(&self.place);
        self.locker.wake();
    }
}

impl Locker {
    /// Without locks. `on_lost` hears of each owner that loses some; `signs` says of which servers something
    /// was heard.
    pub fn new(client: Rc<Client>, signs: Signs, on_lost: impl Fn(LockPlace) + 'static) -> Rc<Locker> {
        Rc::new(Locker {
            client,
            state: RefCell::default(),
            on_lost: Box::new(on_lost),
            signs,
        })
    }

    /// Takes, changes or gives up a lock. `cancel`: breaks the waiting off. Returns what was held there
    /// before, of a lock that is taken.
    pub async fn set(
        self: &Rc<Self>,
        wish: LockWish,
        wait: bool,
        cancel: Receiver<()>,
    ) -> Result<Vec<Piece>, LockError> {
        if wish.hold.is_none() {
            return self.unlock(wish).await.map(|()| Vec::new());
        }
        {
            let mut state = self.state.borrow_mut();
            let file = state
                .files
                .entry((wish.file.ino, wish.file.generation))
                .or_default();
            if file.has_lost(wish.family, wish.token) {
                return Err(LockError::NoLocks);
            }
            file.proof = Some(wish.file.proof);
            file.users += 1;
        }
        let result = match first(Box::pin(self.acquire(&wish, wait)), cancel).await {
            Either::Left(result) => result,
            Either::Right(_) => Err(LockError::Interrupted),
        };
        match result {
            // Whether it was granted is not known: nobody wants it any more.
            Err(LockError::Interrupted | LockError::Failed(_)) => {
                let me = self.clone();
                self.client.world.spawn(Box::pin(async move {
                    me.restore(&wish).await;
                    me.leave(&wish.file);
                }));
            }
            _ => self.leave(&wish.file),
        }
        result
    }

    /// Whether a setting makes something shared, or gives something up, that is held exclusively.
    pub fn lowers(&self, wish: &LockWish) -> bool {
        let exclusive = |(_, hold): &Piece| *hold == Some(Hold::Exclusive);
        wish.hold != Some(Hold::Exclusive) && self.pieces(wish).iter().any(exclusive)
    }

    fn pieces(&self, wish: &LockWish) -> Vec<Piece> {
        let state = self.state.borrow();
        let file = state.files.get(&(wish.file.ino, wish.file.generation));
        match file.and_then(|f| f.held.get(&wish.family)) {
            Some(held) => held.pieces(wish.token, wish.span),
            None => vec![(wish.span, None)],
        }
    }

    /// A lock that was just granted is not wanted after all: `before` is held again. What was made shared
    /// stays so: others may share it by now.
    pub async fn take_back(self: &Rc<Self>, wish: LockWish, before: Vec<Piece>) {
        {
            let mut state = self.state.borrow_mut();
            let Some(file) = state.files.get_mut(&(wish.file.ino, wish.file.generation)) else {
                return;
            };
            file.users += 1;
        }
        {
            // Others may have spoken of it since, or it was lost.
            let _turn = self.turn_of(wish.place()).await;
            let now = self.pieces(&wish);
            let mut state = self.state.borrow_mut();
            let file = state.files.get_mut(&(wish.file.ino, wish.file.generation));
            let held = file.and_then(|f| f.held.get_mut(&wish.family));
            if let Some(held) = held.filter(|_| now == [(wish.span, wish.hold)]) {
                for (span, hold) in before {
                    let hold = hold.map(|_| match (hold, wish.hold) {
                        (Some(Hold::Exclusive), Some(Hold::Exclusive)) => Hold::Exclusive,
                        _ => Hold::Shared,
                    });
                    held.set(wish.token, span, hold, wish.pid);
                }
            }
        }
        // Nobody waits for the server: it may be away.
        let me = self.clone();
        self.client.world.spawn(Box::pin(async move {
            me.restore(&wish).await;
            me.leave(&wish.file);
        }));
    }

    /// Who is in the way of a lock; and whether that is on this mount.
    pub async fn test(
        self: &Rc<Self>,
        wish: LockWish,
        cancel: Receiver<()>,
    ) -> Result<Option<(LockView, bool)>, LockError> {
        let Some(_) = wish.hold else { return Ok(None) };
        {
            let mut state = self.state.borrow_mut();
            let file = state
                .files
                .entry((wish.file.ino, wish.file.generation))
                .or_default();
            file.users += 1;
        }
        let asked = self.ask_about(&wish);
        let result = match first(Box::pin(asked), cancel).await {
            Either::Left(result) => result,
            Either::Right(_) => Err(LockError::Interrupted),
        };
        self.leave(&wish.file);
        result
    }

    async fn ask_about(&self, wish: &LockWish) -> Result<Option<(LockView, bool)>, LockError> {
        let mut tries = Tries::new(self, true);
        loop {
            let (server, session, _) = self.ready(&wish.file, &mut tries).await?;
            let request = FileLockRequest::Test {
                session,
                map: self.client.map().epoch,
                lock: wish.wanted(wish.span, wish.hold),
            };
            match self.ask(server, session, request, &mut tries).await? {
                Some(FileLockAnswer::Free) => return Ok(None),
                Some(FileLockAnswer::Taken(by)) => {
                    let state = self.state.borrow();
                    let ours = state.pairs.keys().any(|(_, session)| *session == by.session);
                    return Ok(Some((by, ours)));
                }
                Some(_) => return Err(LockError::Failed(Errno::Io)),
                None => {}
            }
        }
    }

    /// An owner gives up all it has of a file: it has closed it. False: it had nothing.
    pub fn has_any(&self, file: FileId, family: LockFamily, token: u64) -> bool {
        let state = self.state.borrow();
        let Some(f) = state.files.get(&file) else {
            return false;
        };
        let held = f.held.get(&family).is_some_and(|s| s.of(token).next().is_some());
        // Something may be under way.
        held || f.has_lost(family, token) || f.users > 0
    }

    /// It is unlocked for certain, whatever becomes of who waits for this; unless what is left would be too
    /// many pieces.
    async fn unlock(self: &Rc<Self>, wish: LockWish) -> Result<(), LockError> {
        {
            let id = (wish.file.ino, wish.file.generation);
            let mut state = self.state.borrow_mut();
            let Some(file) = state.files.get_mut(&id) else {
                return Ok(());
            };
            file.users += 1;
        }
        let (done, told) = oneshot();
        let me = self.clone();
        self.client.world.spawn(Box::pin(async move {
            let result = me.give_up(&wish).await;
            me.leave(&wish.file);
            done.send(result);
        }));
        told.await.unwrap_or(Ok(()))
    }

    async fn give_up(&self, wish: &LockWish) -> Result<(), LockError> {
        let id = (wish.file.ino, wish.file.generation);
        let _turn = self.turn_of(wish.place()).await;
        // What splits may be refused: then all of it is still held.
        let splits = {
            let state = self.state.borrow();
            let held = state.files.get(&id).and_then(|f| f.held.get(&wish.family));
            held.is_some_and(|held| held.growth(wish.token, wish.span, None).is_ok())
        };
        if !splits {
            self.forget(wish);
        }
        let mut tries = Tries::new(self, false);
        while !self.is_closed() {
            match self.exchange(wish, (wish.span, None), false, &mut tries).await {
                Ok(None) => {}
                Ok(Some(FileLockAnswer::TooMany)) if splits => return Err(LockError::NoLocks),
                // It is done, or the session is over and the lock with it.
                Ok(Some(_)) | Err(_) => break,
            }
        }
        if splits {
            self.forget(wish);
        }
        Ok(())
    }

    /// What was given up is not held, nor was it lost.
    fn forget(&self, wish: &LockWish) {
        let mut state = self.state.borrow_mut();
        let Some(file) = state.files.get_mut(&(wish.file.ino, wish.file.generation)) else {
            return;
        };
        for spans in [&mut file.held, &mut file.lost] {
            if let Some(spans) = spans.get_mut(&wish.family) {
                spans.set(wish.token, wish.span, None, wish.pid);
            }
        }
    }

    async fn acquire(&self, wish: &LockWish, wait: bool) -> Result<Vec<Piece>, LockError> {
        let id = (wish.file.ino, wish.file.generation);
        let mut tries = Tries::new(self, !wait);
        loop {
            let turn = self.turn_of(wish.place()).await;
            match self
                .exchange(wish, (wish.span, wish.hold), wait, &mut tries)
                .await?
            {
                Some(FileLockAnswer::Done) => {
                    let before = self.pieces(wish);
                    let mut state = self.state.borrow_mut();
                    if let Some(file) = state.files.get_mut(&id) {
                        let held = file.held.entry(wish.family).or_default();
                        held.set(wish.token, wish.span, wish.hold, wish.pid);
                    }
                    return Ok(before);
                }
                Some(FileLockAnswer::Taken(_)) => return Err(LockError::Taken),
                Some(FileLockAnswer::Deadlock) => return Err(LockError::Deadlock),
                Some(FileLockAnswer::TooMany) => return Err(LockError::NoLocks),
                Some(FileLockAnswer::Queued) => {
                    drop(turn);
                    self.wait_for_turn(wish, &mut tries).await?;
                }
                Some(_) => return Err(LockError::Failed(Errno::Io)),
                None => {}
            }
        }
    }

    /// In the queue: returns when it may be asked for again.
    async fn wait_for_turn(&self, wish: &LockWish, tries: &mut Tries<'_>) -> Result<(), LockError> {
        let (server, session, _) = self.ready(&wish.file, tries).await?;
        let place = wish.place();
        let request = FileLockRequest::Await { session, place };
        let asked = self.client.world.mono();
        match self.ask(server, session, request, tries).await? {
            Some(FileLockAnswer::NotQueued) => self.client.world.sleep(AGAIN).await,
            // Too many wait there to be told when it is their turn.
            Some(FileLockAnswer::Queued) if self.client.world.mono().since(asked) < UNTOLD => {
                let random = (self.client.world.random() % 1024) as f64 / 1024.0;
                self.client.world.sleep(UNTOLD.mul_f64(0.5 + random)).await;
            }
            Some(_) => tries.fresh(),
            None => {}
        }
        Ok(())
    }

    /// What was asked for is not wanted any more: what was held before is held.
    async fn restore(&self, wish: &LockWish) {
        let id = (wish.file.ino, wish.file.generation);
        let _turn = self.turn_of(wish.place()).await;
        let mut tries = Tries::new(self, false);
        while !self.is_closed() {
            let Ok((server, session, boot)) = self.ready(&wish.file, &mut tries).await else {
                return;
            };
            let leave = FileLockRequest::Leave {
                session,
                turn: self.next_turn(),
                place: wish.place(),
            };
            match self.ask(server, session, leave, &mut tries).await {
                Ok(Some(_)) if self.is_as(&wish.file, server, session, boot) => {}
                Ok(_) => continue,
                Err(_) => return,
            }
            let pieces = self.pieces(wish);
            let mut all = true;
            for (span, hold) in pieces {
                match self.exchange(wish, (span, hold), false, &mut tries).await {
                    Ok(Some(FileLockAnswer::Done)) => {}
                    // Somebody else has it by now.
                    Ok(Some(_)) if hold.is_some() => self.lose(id, wish.family, wish.token, span),
                    Ok(Some(_)) => {}
                    Ok(None) => all = false,
                    Err(_) => return,
                }
            }
            if all {
                return;
            }
        }
    }

    /// One setting; `None`: nothing is known of it, and it may be repeated.
    async fn exchange(
        &self,
        wish: &LockWish,
        (span, hold): (Span, Option<Hold>),
        wait: bool,
        tries: &mut Tries<'_>,
    ) -> Result<Option<FileLockAnswer>, LockError> {
        let (server, session, boot) = self.ready(&wish.file, tries).await?;
        let request = FileLockRequest::Set {
            session,
            turn: self.next_turn(),
            map: self.client.map().epoch,
            lock: wish.wanted(span, hold),
            wait,
        };
        let answer = self.ask(server, session, request, tries).await?;
        // What an earlier boot or owner has answered is not true of this one.
        if answer.is_none() || !self.is_as(&wish.file, server, session, boot) {
            return Ok(None);
        }
        if let Some(file) = self
            .state
            .borrow_mut()
            .files
            .get_mut(&(wish.file.ino, wish.file.generation))
        {
            file.at = Some((server, boot));
            self.signs
                .kept((wish.file.ino, wish.file.generation), (server, session));
        }
        Ok(answer)
    }

    /// Whether a file's locks are still that server's to keep, by that boot and session.
    fn is_as(&self, file: &Lockable, server: ServerId, session: SessionId, boot: BootEpoch) -> bool {
        let state = self.state.borrow();
        let known = state.files.get(&(file.ino, file.generation));
        self.client.map().owner(file.ino.slot()) == server
            && known.is_some_and(|f| f.session == Some(session))
            && state.pairs.get(&(server, session)) == Some(&Some(boot))
            && self.client.boot_of(server) == boot
    }

    /// The server of a file's locks, which has been told all it must know.
    async fn ready(
        &self,
        file: &Lockable,
        tries: &mut Tries<'_>,
    ) -> Result<(ServerId, SessionId, BootEpoch), LockError> {
        loop {
            let server = self.client.map().owner(file.ino.slot());
            let (pair, boot) = {
                let state = &mut *self.state.borrow_mut();
                let known = state.files.entry((file.ino, file.generation)).or_default();
                let session = *known.session.get_or_insert_with(|| {
                    let new =
                        || SessionId::for_locks(self.client.config.identity, self.client.world.random());
                    *state.sessions.entry(server).or_insert_with(new)
                });
                let pair = (server, session);
                let boot = self.client.boot_of(server);
                let told = !known.holds() || known.at == Some((server, boot));
                let stated = *state.pairs.entry(pair).or_default();
                if told && stated == Some(boot) && !state.stating.contains(&pair) {
                    return Ok((server, session, boot));
                }
                (pair, boot)
            };
            self.state_at(pair, boot, tries).await?;
        }
    }

    fn next_turn(&self) -> u64 {
        let mut state = self.state.borrow_mut();
        state.turn += 1;
        state.turn
    }

    async fn turn_of(&self, place: LockPlace) -> Turn<'_> {
        while !self.state.borrow_mut().busy.insert(place) {
            self.something_ends().await;
        }
        Turn { locker: self, place }
    }

    async fn something_ends(&self) {
        let (wake, woken) = oneshot();
        self.state.borrow_mut().waiting.push(wake);
        woken.await;
    }

    fn wake(&self) {
        let waiting = std::mem::take(&mut self.state.borrow_mut().waiting);
        drop(waiting);
    }

    /// A call is over.
    fn leave(&self, file: &Lockable) {
        let id = (file.ino, file.generation);
        let mut state = self.state.borrow_mut();
        if let Some(f) = state.files.get_mut(&id) {
            f.users = f.users.saturating_sub(1);
            if f.is_idle() {
                state.files.remove(&id);
                self.signs.forget(id);
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.state.borrow().closed
    }

    fn lose(&self, id: FileId, family: LockFamily, token: u64, span: Span) {
        {
            let mut state = self.state.borrow_mut();
            let Some(file) = state.files.get_mut(&id) else {
                return;
            };
            if let Some(held) = file.held.get_mut(&family) {
                held.set(token, span, None, 0);
            }
            let lost = file.lost.entry(family).or_default();
            lost.set(token, span, Some(Hold::Shared), 0);
        }
        (self.on_lost)(LockPlace {
            ino: id.0,
            generation: id.1,
            family,
            token,
        });
    }

    /// One request to a server; `None`: no answer that says anything about it. Learns what the answer says
    /// otherwise.
    async fn ask(
        &self,
        server: ServerId,
        session: SessionId,
        request: FileLockRequest,
        tries: &mut Tries<'_>,
    ) -> Result<Option<FileLockAnswer>, LockError> {
        let sent = self.signs.now();
        match self.client.try_once(server, &Request::Lock(request)).await {
            Ok(Ok(Response::Lock(answer))) => {
                // The session lived when that was sent.
                self.signs.answered((server, session), sent);
                return Ok(Some(answer));
            }
            Ok(Ok(_)) => return Err(LockError::Failed(Errno::Io)),
            Ok(Err(refusal)) => match refusal {
                Refusal::WrongBoot(_) => {}
                Refusal::NotOwner(_) => {
                    if !self.client.refresh_map(server).await {
                        tries.pause().await?;
                    }
                }
                Refusal::SessionUnknown => self.session_lost((server, session)),
                // A later turn than this one's was seen: it was not executed.
                Refusal::TooOld => {}
                Refusal::Busy | Refusal::NotReady | Refusal::UseCoordinator | Refusal::Elsewhere { .. } => {
                    tries.pause().await?
                }
                Refusal::BadHandle => return Err(LockError::Failed(Errno::BadHandle)),
                Refusal::NotAllowed => return Err(LockError::Failed(Errno::Access)),
                Refusal::ReadOnly => return Err(LockError::Failed(Errno::ReadOnly)),
                Refusal::Invalid | Refusal::BadStatement | Refusal::Outdated(_) | Refusal::KeeperUnknown => {
                    return Err(LockError::Failed(Errno::Invalid));
                }
            },
            Err(CallError::Denied) => return Err(LockError::Failed(Errno::Access)),
            Err(CallError::Timeout | CallError::Disconnected) => {
                tries.pause().await?;
                if tries.are_many() {
                    self.client.refresh_map_from(self.client.others(server)).await;
                }
            }
        }
        Ok(None)
    }
}

/// Pauses that grow, for as long as there is patience.
struct Tries<'a> {
    locker: &'a Locker,
    pause: Duration,
    made: u32,
    until: Option<pando_types::Mono>,
}

impl<'a> Tries<'a> {
    /// `limited`: not for ever.
    fn new(locker: &'a Locker, limited: bool) -> Tries<'a> {
        let client = &locker.client;
        Tries {
            locker,
            pause: PAUSE.0,
            made: 0,
            until: limited.then(|| client.world.mono().after(client.config.give_up)),
        }
    }

    fn fresh(&mut self) {
        self.pause = PAUSE.0;
        self.made = 0;
    }

    fn are_many(&self) -> bool {
        self.made > 3
    }

    fn pause(&mut self) -> LocalFuture<Result<(), LockError>> {
        let world = self.locker.client.world.clone();
        let over = self.until.is_some_and(|until| world.mono() >= until);
        let jitter = self.pause.mul_f64(0.5 + (world.random() % 1024) as f64 / 1024.0);
        self.pause = (self.pause * 2).min(PAUSE.1);
        self.made += 1;
        Box::pin(async move {
            if over {
                return Err(LockError::Failed(Errno::Unreachable));
            }
            world.sleep(jitter).await;
            Ok(())
        })
    }
}
