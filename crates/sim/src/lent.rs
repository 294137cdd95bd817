//! Which boots of which servers lent locks to a transaction: one that is committed rests on one of each (H124).

use pando_types::{BootEpoch, ServerId, TxId};
use pando_wire::{Message, PeerRequest, Request};
use std::collections::{BTreeMap, BTreeSet};

/// What was lent.
#[derive(Default)]
pub struct Lent {
    by: BTreeMap<TxId, BTreeSet<(ServerId, BootEpoch)>>,
}

impl Lent {
    /// A message reaches a server in this boot.
    pub fn delivered(&mut self, server: ServerId, running: BootEpoch, message: &Message) {
        if let Message::Request { boot, request, .. } = message
            && let Request::Peer(PeerRequest::Lock { tx, .. }) = request
            && *boot == running
        {
            self.by.entry(*tx).or_default().insert((server, running));
        }
    }

    /// A transaction is committed.
    pub fn committed(&mut self, tx: TxId) -> Result<(), String> {
        let lent = self.by.remove(&tx).unwrap_or_default();
        let servers: BTreeSet<ServerId> = lent.iter().map(|(server, _)| *server).collect();
        if servers.len() == lent.len() {
            return Ok(());
        }
        Err(format!(
            "{tx} is committed, and locks that it rests on were gone: it had them of {lent:?}"
        ))
    }
}
