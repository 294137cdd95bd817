//! The client's session: registered with each server before the first mutating request there.

use crate::{Beside, Client};
use pando_env::sync::join_all;
use pando_env::{CallError, World};
use pando_types::{IdentityId, ServerId, SessionId, plant};
use pando_wire::{Refusal, Request, Response};
use std::collections::{BTreeMap, BTreeSet};

/// Servers that are asked for a newer map, if they do not answer.
const ASKED: usize = 3;

/// A name nobody ever had (H48).
pub(crate) fn new_id(world: &World, identity: IdentityId) -> SessionId {
    let random = (u128::from(world.random()) << 64) | u128::from(world.random());
    let id = SessionId::of(identity, if plant!(H48) { 2 } else { random }).working();
    // Files are locked under others.
    if id.is_for_locks() {
        new_id(world, identity)
    } else {
        id
    }
}

impl Client {
    /// The session, registered with `server`; tried once. `Err`: nobody answered, or the server does not
    /// register anybody now.
    pub(crate) async fn try_session_at(&self, server: ServerId) -> Result<SessionId, Option<CallError>> {
        loop {
            let id = {
                let s = self.session.borrow();
                if s.opened.contains_key(&server) {
                    return Ok(s.id);
                }
                s.id
            };
            match self.try_once(server, &Request::OpenSession(id)).await {
                Ok(Ok(Response::Ok)) => self.opened_at(id, server),
                Ok(Err(Refusal::SessionUnknown)) => self.renew(id),
                Ok(Err(Refusal::WrongBoot(_))) => {}
                Ok(_) => return Err(None),
                Err(e) => return Err(Some(e)),
            }
        }
    }

    /// The session, if it is known to be registered with both.
    pub(crate) fn known_session_at(&self, server: ServerId, other: Option<ServerId>) -> Option<SessionId> {
        let s = self.session.borrow();
        let there = |server| s.opened.contains_key(&server);
        (there(server) && other.is_none_or(there)).then_some(s.id)
    }

    /// The same with another server, too, if there is one.
    pub(crate) async fn sessions_at(
        &self,
        server: ServerId,
        other: Option<ServerId>,
    ) -> Result<SessionId, Option<CallError>> {
        if let Some(other) = other {
            self.try_session_at(other).await?;
        }
        self.try_session_at(server).await
    }

    /// `id` is registered with `server`, unless a newer session has taken its place.
    fn opened_at(&self, id: SessionId, server: ServerId) {
        let boot = self.boot_of(server);
        let mut s = self.session.borrow_mut();
        if s.id == id {
            s.opened.insert(server, boot);
        }
    }

    /// A server does not know the session any more. If it is the boot that it was registered with, it has
    /// ended there, perhaps so long ago that nobody remembers: that name is never registered again (H194).
    /// Else it may have been lost with the power, and is.
    pub(crate) fn closed_at(&self, id: SessionId, server: ServerId) {
        let known = {
            let mut s = self.session.borrow_mut();
            (s.id == id).then(|| s.opened.remove(&server)).flatten()
        };
        if known == Some(self.boot_of(server)) && !plant!(H194) {
            self.renew(id);
        }
    }

    fn renew(&self, ended: SessionId) {
        let fresh = new_id(&self.world, self.config.identity);
        let mut s = self.session.borrow_mut();
        if s.id == ended {
            s.id = fresh;
            s.opened = BTreeMap::new();
            s.heirs = BTreeSet::new();
        }
    }

    /// Learns who answers as `server`, and if `changes` registers the session there, so that the first
    /// operation need not. A server that is away is not waited for. Returns whether it answered.
    pub async fn greet(&self, server: ServerId, changes: bool) -> bool {
        let id = self.session_id();
        let request = if changes {
            Request::OpenSession(id)
        } else {
            Request::KeepAlive(Vec::new())
        };
        // The first try may only learn the boot epoch.
        for _ in 0..2 {
            match self.try_once(server, &request).await {
                Ok(Err(Refusal::WrongBoot(_))) => {}
                Ok(Ok(_)) => {
                    if changes {
                        self.opened_at(id, server);
                    }
                    return true;
                }
                _ => return false,
            }
        }
        false
    }

    /// A sign of life to every server the session is registered with. Errors are of no consequence: what
    /// matters is found out by the next operation.
    pub async fn keep_alive(&self) {
        let (id, servers) = {
            let s = self.session.borrow();
            (s.id, s.opened.keys().copied().collect::<Vec<_>>())
        };
        // All at once: those that are away would make the others wait too long.
        let alive = Request::KeepAlive(vec![id]);
        let sign = |server: &ServerId| -> Beside<'_> {
            let (server, alive) = (*server, &alive);
            Box::pin(async move { _ = self.try_once(server, alive).await })
        };
        join_all(servers.iter().map(sign).collect()).await;
        // A server may have got slots with something of this session, and must know that it lives.
        self.look_for_map().await;
        let heirs = std::mem::take(&mut self.session.borrow_mut().heirs);
        let greet = |server: ServerId| -> Beside<'_> {
            Box::pin(async move {
                if !self.greet(server, true).await && self.map().server(server).is_some() {
                    self.session.borrow_mut().heirs.insert(server);
                }
            })
        };
        join_all(heirs.into_iter().map(greet).collect()).await;
    }

    /// Asks whoever answers first, another one each time, whether there is a newer map.
    pub(crate) async fn look_for_map(&self) {
        let mut servers: Vec<ServerId> = self.map().servers.iter().map(|s| s.id).collect();
        let first = self.world.random() as usize % servers.len().max(1);
        servers.rotate_left(first);
        // Who is away is waited for: not for all of them, when others wait for a sign of life.
        for server in servers.into_iter().take(ASKED) {
            if let Some(newer) = self.map_of(server).await {
                self.adopt_map(newer);
                return;
            }
        }
    }

    /// Ends the session at every server: an orderly goodbye, so that holds and records go now and not in a
    /// minute.
    pub async fn close(&self) {
        let (id, servers) = {
            let s = self.session.borrow();
            (s.id, s.opened.keys().copied().collect::<Vec<_>>())
        };
        for server in servers {
            let _ = self.try_once(server, &Request::CloseSession(id)).await;
        }
    }
}
