//! Who may ask for what: the one place where a message is weighed against what its sender proved to be, before anything
//! else (H100).

use crate::MetaServer;
use pando_auth::{Gate, Key};
use pando_types::{AuthMode, IdentityId, PeerId};
use pando_wire::{Denial, Refusal, Request, Role};

impl MetaServer {
    /// For which identity a request is to be served, if this sender may make it.
    pub(crate) fn entitled(&self, who: PeerId, request: &Request) -> Result<IdentityId, Refusal> {
        let may = match request {
            // What anybody needs to find the server to ask, and what says nothing.
            Request::GetMap | Request::Null(_) => true,
            Request::Peer(_) => matches!(who, PeerId::Server(_)),
            Request::Scan { .. } | Request::Status => who == PeerId::Operator,
            Request::Op { .. }
            | Request::Probe { .. }
            | Request::OpenSession(_)
            | Request::KeepAlive(_)
            | Request::CloseSession(_) => !matches!(who, PeerId::Server(_)),
        };
        if !may {
            return Err(Refusal::NotAllowed);
        }
        Ok(match who {
            PeerId::Client(id) => id,
            PeerId::Server(_) | PeerId::Operator => IdentityId::ANYONE,
        })
    }
}

impl Gate for MetaServer {
    fn mode(&self) -> AuthMode {
        self.map.auth
    }

    fn key(&self, role: Role, key_name: u64) -> Result<Key, Denial> {
        match role {
            Role::Server(_) | Role::Operator => {
                let keys = self.secrets.cluster_keys();
                keys.into_iter()
                    .find(|k| k.name() == key_name)
                    .ok_or(Denial::UnknownKey)
            }
            Role::Client(_) => Err(Denial::UnknownKey),
        }
    }
}
