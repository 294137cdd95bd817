//! What keeps locks alive: sessions, signs of life, statements after restarts and moves.

use super::{FileId, LockError, Locker, Pair, Tries};
use pando_types::{BootEpoch, Errno, LockFamily, ServerId, SessionId, Span};
use pando_wire::{FileLockAnswer, FileLockRequest, LockPlace, Refusal, Request, Response, WantedLock};
use std::rc::Rc;
use std::time::Duration;

/// Locks in one statement.
const STATED: usize = 2048;

impl Locker {
    /// Registers a session with a server, and states what is held under it there. Returns when that is done
    /// or somebody else has.
    pub(super) async fn state_at(
        &self,
        pair: Pair,
        boot: BootEpoch,
        tries: &mut Tries<'_>,
    ) -> Result<(), LockError> {
        if !self.state.borrow_mut().stating.insert(pair) {
            self.something_ends().await;
            return Ok(());
        }
        let _end = Stating { locker: self, pair };
        // What is answered to an earlier boot from now on is not true of this one.
        self.state.borrow_mut().pairs.insert(pair, None);
        match self.register(pair).await {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(()) => return tries.pause().await,
        }
        if self.client.boot_of(pair.0) != boot {
            return Ok(());
        }
        self.state_all(pair, boot, tries).await
    }

    /// `Err`: no answer.
    async fn register(&self, (server, session): Pair) -> Result<bool, ()> {
        let request = Request::OpenSession(session);
        match self.client.try_once(server, &request).await {
            Ok(Ok(Response::Ok)) => Ok(true),
            Ok(Err(Refusal::SessionUnknown)) => {
                self.session_lost((server, session));
                Ok(false)
            }
            Ok(Err(Refusal::WrongBoot(_))) => Ok(false),
            _ => Err(()),
        }
    }

    async fn state_all(
        &self,
        (server, session): Pair,
        boot: BootEpoch,
        tries: &mut Tries<'_>,
    ) -> Result<(), LockError> {
        let map = self.client.map();
        let (mut files, mut locks): (Vec<FileId>, Vec<WantedLock>) = (Vec::new(), Vec::new());
        for (id, file) in &self.state.borrow().files {
            if file.session != Some(session) || map.owner(id.0.slot()) != server {
                continue;
            }
            files.push(*id);
            for (family, held) in &file.held {
                locks.extend(held.iter().map(|h| WantedLock {
                    place: place(*id, *family, h.owner),
                    proof: file.proof.unwrap_or(pando_wire::Handle(0)),
                    span: h.span,
                    hold: Some(h.hold),
                    pid: h.pid,
                }));
            }
        }
        let mut rest = &locks[..];
        let mut lost = Vec::new();
        loop {
            let (some, more) = rest.split_at(rest.len().min(STATED));
            let request = FileLockRequest::State {
                session,
                turn: self.next_turn(),
                map: map.epoch,
                locks: some.to_vec(),
                done: more.is_empty(),
            };
            match self.ask(server, session, request, tries).await? {
                Some(FileLockAnswer::Lost(which)) => {
                    lost.extend(which.into_iter().filter_map(|at| some.get(at as usize)).copied());
                }
                Some(_) => return Err(LockError::Failed(Errno::Io)),
                // With what is known now.
                None => return Ok(()),
            }
            if self.client.boot_of(server) != boot {
                return Ok(());
            }
            if more.is_empty() {
                break;
            }
            rest = more;
        }
        for lock in lost {
            let p = lock.place;
            self.lose((p.ino, p.generation), p.family, p.token, lock.span);
        }
        let mut state = self.state.borrow_mut();
        for id in files {
            if let Some(file) = state.files.get_mut(&id).filter(|f| f.session == Some(session)) {
                file.at = Some((server, boot));
                self.signs.kept(id, (server, session));
            }
        }
        state.pairs.insert((server, session), Some(boot));
        Ok(())
    }

    /// A server has ended a session: all that was held under it there is lost.
    pub(super) fn session_lost(&self, (server, session): Pair) {
        let mut lost = Vec::new();
        {
            let map = self.client.map();
            let state = &mut *self.state.borrow_mut();
            state.pairs.remove(&(server, session));
            state.sessions.retain(|_, s| *s != session);
            for (id, file) in &mut state.files {
                if file.session != Some(session) || map.owner(id.0.slot()) != server {
                    continue;
                }
                file.session = None;
                file.at = None;
                for (family, held) in &file.held {
                    lost.extend(held.iter().map(|h| (*id, *family, h.owner, h.span)));
                }
            }
        }
        for (id, family, token, span) in lost {
            self.lose(id, family, token, span);
        }
        self.signs.over((server, session));
        self.wake();
    }

    /// Gives signs of life, finds out which servers have started again and which slots have moved, and states
    /// what is held there. For ever, once in each period.
    pub async fn keep(self: Rc<Self>, period: Duration) {
        let mut idle = 0;
        while !self.is_closed() {
            self.client.world.sleep(period).await;
            let pairs: Vec<Pair> = self.state.borrow().pairs.keys().copied().collect();
            if pairs.is_empty() {
                continue;
            }
            for pair in pairs {
                let me = self.clone();
                // One that does not answer holds up none of the others.
                self.client
                    .world
                    .spawn(Box::pin(async move { me.look_after(pair).await }));
            }
            self.client.look_for_map().await;
            self.state_what_moved();
            idle = if self.state.borrow().files.is_empty() {
                idle + 1
            } else {
                0
            };
            // With nothing to state, nobody waits for it.
            if idle >= 5 {
                self.end_sessions().await;
            }
        }
    }

    async fn look_after(&self, pair: Pair) {
        let (server, session) = pair;
        let before = self.client.boot_of(server);
        let mut tries = Tries::new(self, true);
        let request = FileLockRequest::Alive(session);
        let _ = self.ask(server, session, request, &mut tries).await;
        let boot = self.client.boot_of(server);
        let known = self.state.borrow().pairs.get(&pair).copied();
        if known.is_some_and(|stated| stated != Some(boot)) || boot != before && known.is_some() {
            let _ = self.state_at(pair, boot, &mut tries).await;
        }
    }

    /// Locks of files whose slots have another owner.
    fn state_what_moved(self: &Rc<Self>) {
        let map = self.client.map();
        let moved: Vec<Pair> = {
            let mut state = self.state.borrow_mut();
            let held = state.files.iter().filter(|(_, f)| f.holds());
            let now = held.filter_map(|(id, f)| Some((map.owner(id.0.slot()), f.session?, f.at?)));
            let moved: Vec<Pair> = now
                .filter(|(owner, _, at)| at.0 != *owner)
                .map(|(o, s, _)| (o, s))
                .collect();
            for pair in &moved {
                state.pairs.entry(*pair).or_default();
            }
            moved
        };
        for pair in moved {
            let me = self.clone();
            self.client.world.spawn(Box::pin(async move {
                let boot = me.client.boot_of(pair.0);
                let mut tries = Tries::new(&me, true);
                let _ = me.state_at(pair, boot, &mut tries).await;
            }));
        }
    }

    async fn end_sessions(&self) {
        let pairs: Vec<Pair> = {
            let mut state = self.state.borrow_mut();
            state.sessions.clear();
            std::mem::take(&mut state.pairs).into_keys().collect()
        };
        for (server, session) in pairs {
            self.signs.over((server, session));
            let _ = self
                .client
                .try_once(server, &Request::CloseSession(session))
                .await;
        }
    }

    /// The mount ends: what is held is given up everywhere.
    pub async fn close(&self) {
        self.state.borrow_mut().closed = true;
        self.end_sessions().await;
        self.wake();
    }

    /// What is held: for whom, where. For tests.
    pub fn held(&self) -> Vec<(LockPlace, Span)> {
        let state = self.state.borrow();
        let files = state.files.iter();
        let each = files.flat_map(|(id, f)| f.held.iter().map(move |(family, held)| (id, family, held)));
        each.flat_map(|(id, family, held)| held.iter().map(|h| (place(*id, *family, h.owner), h.span)))
            .collect()
    }

    /// The map as known now.
    pub fn map(&self) -> Rc<pando_cluster::ClusterMap> {
        self.client.map()
    }

    /// Sessions under which locks are held, and where they are registered.
    pub fn sessions(&self) -> Vec<(ServerId, SessionId)> {
        self.state.borrow().pairs.keys().copied().collect()
    }
}

fn place((ino, generation): FileId, family: LockFamily, token: u64) -> LockPlace {
    LockPlace {
        ino,
        generation,
        family,
        token,
    }
}

struct Stating<'a> {
    locker: &'a Locker,
    pair: Pair,
}

impl Drop for Stating<'_> {
    fn drop(&mut self) {
        self.locker.state.borrow_mut().stating.remove(&self.pair);
        self.locker.wake();
    }
}
