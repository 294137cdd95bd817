//! Which boots of which servers lent locks to a transaction: one that is committed rests on one of each
//! (H124).

use pando_types::{BootEpoch, ServerId, TxId};
use pando_wire::{Message, PeerAnswer, PeerRequest, Request, Response};
use std::collections::{BTreeMap, BTreeSet};

/// Locks of one boot of a server.
type Lender = (ServerId, BootEpoch);

/// What was lent.
#[derive(Default)]
pub struct Lent {
    /// Requests of a server, by their numbers.
    asked: BTreeMap<(ServerId, u64), (TxId, Lender)>,
    /// Those that were granted. (Liars say so too.)
    granted: BTreeMap<(ServerId, u64), (TxId, Lender)>,
    /// Those of which it was heard.
    lent: BTreeMap<TxId, BTreeSet<Lender>>,
}

/// The number of an answer that grants locks.
fn grant(message: &Message) -> Option<u64> {
    match message {
        Message::Reply {
            id,
            result: Ok(Response::Peer(PeerAnswer::Locked { .. })),
            ..
        } => Some(*id),
        _ => None,
    }
}

impl Lent {
    /// A server sends a message to another.
    pub fn sent(&mut self, from: ServerId, to: ServerId, message: &Message) {
        if let Message::Request {
            id,
            boot,
            request: Request::Peer(PeerRequest::Lock { tx, .. }),
            ..
        } = message
        {
            self.asked.insert((from, *id), (*tx, (to, *boot)));
        }
        if let Some(id) = grant(message)
            && let Some((tx, lender)) = self.asked.remove(&(to, id))
            && lender.0 == from
        {
            self.granted.insert((to, id), (tx, lender));
        }
    }

    /// A message reaches a server.
    pub fn delivered(&mut self, to: ServerId, message: &Message) {
        if let Some(id) = grant(message)
            && let Some((tx, lender)) = self.granted.remove(&(to, id))
        {
            self.lent.entry(tx).or_default().insert(lender);
        }
    }

    /// A transaction is committed.
    pub fn committed(&mut self, tx: TxId) -> Result<(), String> {
        let lent = self.lent.remove(&tx).unwrap_or_default();
        let servers: BTreeSet<ServerId> = lent.iter().map(|(server, _)| *server).collect();
        if servers.len() == lent.len() {
            return Ok(());
        }
        Err(format!(
            "{tx} is committed, and locks that it rests on were gone: it had them of {lent:?}"
        ))
    }
}
