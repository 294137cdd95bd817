//! Who may ask for what: the one place where a message is weighed against what its sender proved to be,
//! before anything else (H100).

use crate::account::Notes;
use crate::facts::statements::Dirs;
use crate::pipeline::{Asked, Basis};
use crate::{Failure, Limits, MetaServer};
use pando_auth::{Fingerprint, Gate, Key};
use pando_types::{
    AuthMode, Bearer, Claims, Cred, DirId, Errno, Generation, IdentityId, Name, PeerId, SessionId, plant,
};
use pando_wire::traits::Home;
use pando_wire::{
    Denial, FileLockRequest, Op, OpRequest, Outcome, Refusal, Request, Role, Said, Statement, Way,
};
use std::cell::Cell;
use std::rc::Weak;

/// What a sender may do beyond what its message says.
pub(crate) struct Entitled {
    /// The identity it has.
    pub holder: IdentityId,
    /// The directory that is its root, if that is not the filesystem's.
    pub subtree: Option<(DirId, Generation)>,
}

/// What is being served of an identity's requests.
#[derive(Clone, Copy, Default)]
pub(crate) struct InFlight {
    requests: usize,
    /// Of the messages they came in.
    bytes: usize,
}

impl InFlight {
    /// Counts a request that came in a message of so many bytes. False: there are as many as there may be.
    fn take(&mut self, bytes: usize, limits: &Limits) -> bool {
        // One alone is never too large: a frame is bounded.
        let crowded = self.requests > 0 && self.bytes + bytes > limits.request_bytes;
        if (self.requests >= limits.requests && !plant!(G49)) || crowded {
            return false;
        }
        self.requests += 1;
        self.bytes += bytes;
        true
    }

    /// It was served. True: none is left.
    fn give_back(&mut self, bytes: usize) -> bool {
        self.requests -= 1;
        self.bytes -= bytes;
        self.requests == 0
    }
}

/// A request of an identity that is being served. The server itself may have some.
pub(crate) struct Turn {
    server: Weak<MetaServer>,
    id: IdentityId,
    bytes: usize,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(server) = self.server.upgrade() else {
            return;
        };
        let mut in_flight = server.admission.in_flight.borrow_mut();
        let done = in_flight
            .get_mut(&self.id)
            .is_some_and(|n| n.give_back(self.bytes));
        if done {
            in_flight.remove(&self.id);
        }
    }
}

impl MetaServer {
    /// What a request may do, if this sender may make it at all.
    pub(crate) fn entitled(&self, who: PeerId, request: &Request) -> Result<Entitled, Refusal> {
        let may = match request {
            // What anybody needs to find the server to ask, and what says nothing.
            Request::GetMap | Request::Null(_) => true,
            Request::Peer(_) => plant!(G1) || matches!(who, PeerId::Server(_)),
            Request::Scan { .. }
            | Request::Status
            | Request::Auth(_)
            | Request::Cluster(_)
            | Request::Cut(_)
            | Request::Remains(_)
            | Request::Repair(_) => plant!(G2) || who == PeerId::Operator,
            Request::Lock(FileLockRequest::List(_)) => plant!(G2) || who == PeerId::Operator,
            Request::Op(_)
            | Request::Lock(_)
            | Request::Probe { .. }
            | Request::OpenSession(_)
            | Request::KeepAlive(_)
            | Request::Holds(_)
            | Request::CloseSession(_) => !matches!(who, PeerId::Server(_)),
        };
        if !may && !plant!(H100) {
            return Err(Refusal::NotAllowed);
        }
        let PeerId::Client(holder) = who else {
            let owner = IdentityId::ANYONE;
            check(owner, &Claims::all(), request)?;
            return Ok(Entitled {
                holder: owner,
                subtree: None,
            });
        };
        if self.map().auth == AuthMode::None {
            check(holder, &Claims::all(), request)?;
            return Ok(Entitled {
                holder,
                subtree: None,
            });
        }
        let identities = self.admission.identities.borrow();
        let claims = identities.claims(holder)?;
        check(holder, claims, request)?;
        Ok(Entitled {
            holder,
            subtree: claims.subtree,
        })
    }

    /// Counts a request of so many bytes, unless its identity has as many as it may have.
    pub(crate) fn take_turn(&self, who: PeerId, bytes: usize) -> Option<Option<Turn>> {
        let PeerId::Client(id) = who else {
            return Some(None);
        };
        let mut in_flight = self.admission.in_flight.borrow_mut();
        let taken = in_flight.entry(id).or_default().take(bytes, &self.limits);
        let server = self.me.clone();
        taken.then(|| Some(Turn { server, id, bytes }))
    }

    /// The entry of the directory that is an identity's whole filesystem, wherever it is by now: what the
    /// root is to others.
    pub(crate) async fn find_subtree(
        &self,
        message: u64,
        holder: Bearer,
        cred: &Cred,
        (id, generation): (DirId, Generation),
    ) -> Result<Outcome, Failure> {
        let above = Said::above_root();
        let dir = Statement::from(Said {
            parent: above.id,
            parent_generation: above.generation,
            name: Name::root(),
            id,
            generation,
            ..above
        });
        let op = Op::Reopen { dir };
        let asked = Asked {
            parts: [0, 0],
            term: self.map().term,
            slot_changes: self.slot_changes(),
            message,
            holder,
            request: None,
            cred: &Cred::root(),
            told: cred,
            basis: Basis::Subtree,
            op: &op,
            keep: None,
            dirs: Dirs::of(&op),
            notes: &Notes::default(),
            change: Cell::default(),
            leases: Default::default(),
        };
        let done = self.execute(&asked, false).await?;
        self.safe(done.lsn, done.level).await?;
        Ok(match done.outcome {
            // It was removed: nothing is left for this identity.
            Err(Errno::Stale) => Err(Errno::NotFound),
            outcome => outcome,
        })
    }
}

/// Whether an identity with these claims may make this request.
fn check(holder: IdentityId, claims: &Claims, request: &Request) -> Result<(), Refusal> {
    if plant!(H100) {
        return Ok(());
    }
    let mine = |session: &SessionId| session.owner() == holder;
    match request {
        Request::Op(asked) => {
            let OpRequest {
                request,
                cred,
                op,
                keep,
                ..
            } = &**asked;
            if keep.as_ref().is_some_and(|k| !mine(&k.session)) && !plant!(G70) {
                return Err(Refusal::NotAllowed);
            }
            // Some say and do nothing on anybody's behalf.
            if !claims.covers(cred) && op.traits().home != Home::Anywhere && !plant!(G3) {
                return Err(Refusal::NotAllowed);
            }
            if request.is_some_and(|r| !mine(&r.session)) && !plant!(G5) {
                return Err(Refusal::NotAllowed);
            }
            if claims.read_only && op.traits().writes && !plant!(G8) {
                return Err(Refusal::ReadOnly);
            }
            // The place above the root is the one directory that nobody needs a statement of. To whom a
            // subtree is all there is, it is only where that subtree is found.
            let above = |s: &&Statement| s.id == DirId::ABOVE_ROOT;
            let outside = op.statements().iter().flatten().any(above) && !op.is_root_lookup();
            if claims.subtree.is_some() && outside && !plant!(G9) {
                return Err(Refusal::NotAllowed);
            }
            Ok(())
        }
        Request::Probe { cred, .. } if !claims.covers(cred) && !plant!(G4) => Err(Refusal::NotAllowed),
        Request::OpenSession(s) | Request::CloseSession(s) if !mine(s) && !plant!(G6) => {
            Err(Refusal::NotAllowed)
        }
        Request::Holds(h) if !mine(&h.session) && !plant!(G70) => Err(Refusal::NotAllowed),
        Request::Lock(l) if !l.session().as_ref().is_none_or(mine) && !plant!(G73) => {
            Err(Refusal::NotAllowed)
        }
        Request::KeepAlive(all) if !all.iter().all(mine) && !plant!(G7) => Err(Refusal::NotAllowed),
        _ => Ok(()),
    }
}

impl Gate for MetaServer {
    fn mode(&self) -> AuthMode {
        self.map().auth
    }

    fn key(&self, role: Role, key_name: u64) -> Result<Key, Denial> {
        if plant!(G41)
            && let Some(any) = self.admission.identities.borrow().any_key(key_name)
        {
            return Ok(any);
        }
        match role {
            Role::Server(_) | Role::Operator => {
                let keys = self.admission.secrets.cluster_keys();
                keys.into_iter()
                    .find(|k| k.name() == key_name)
                    .ok_or(Denial::UnknownKey)
            }
            Role::Client(Way::Key(id)) => {
                self.admission
                    .identities
                    .borrow()
                    .key(id, key_name, self.world.now())
            }
            Role::Client(_) => Err(Denial::UnknownKey),
        }
    }

    fn certified(&self, public_key: &Fingerprint) -> Result<IdentityId, Denial> {
        self.admission
            .identities
            .borrow()
            .certified(public_key, self.world.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_their_bytes_are_bounded() {
        let limits = Limits {
            requests: 3,
            request_bytes: 100,
            ..Limits::default()
        };
        let mut n = InFlight::default();
        assert!(n.take(1000, &limits), "one alone");
        assert!(!n.take(1, &limits));
        assert!(n.give_back(1000));
        assert!(n.take(60, &limits) && n.take(40, &limits));
        assert!(!n.take(1, &limits), "too many bytes");
        assert!(!n.give_back(40));
        assert!(n.take(1, &limits) && n.take(1, &limits));
        assert!(!n.take(1, &limits), "too many requests");
    }
}
