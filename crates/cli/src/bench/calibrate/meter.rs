//! Processor time between messages.

use pando_cluster::ClusterMap;
use pando_env::{Node, Peer};
use pando_format::Codec;
use pando_net::thread_cpu;
use pando_scale::{items_of, kind_of};
use pando_server::MetaServer;
use pando_types::ServerId;
use pando_wire::Message;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Microseconds of processor time, by kind of message.
#[derive(Clone, Default, Debug)]
pub struct Samples(pub BTreeMap<&'static str, Vec<f64>>);

impl Samples {
    /// And those.
    pub fn add(&mut self, more: Samples) {
        for (kind, times) in more.0 {
            self.0.entry(kind).or_default().extend(times);
        }
    }
}

/// What a server's thread writes and the one that measures takes.
pub type Shared = Arc<Mutex<Samples>>;

/// Takes what there is.
pub fn take(from: &Shared) -> Samples {
    std::mem::take(&mut *from.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Stands before a server and measures: what its thread does from one message to the next is the first one's.
pub struct Meter {
    server: Rc<MetaServer>,
    me: ServerId,
    map: ClusterMap,
    /// What came last: its kind, how many things of it, and when.
    last: Cell<Option<(&'static str, u64, Duration)>>,
    samples: Shared,
}

impl Meter {
    pub fn new(server: Rc<MetaServer>, map: ClusterMap, samples: Shared) -> Rc<Meter> {
        Rc::new(Meter {
            me: server.id(),
            server,
            map,
            last: Cell::new(None),
            samples,
        })
    }
}

impl Node for Meter {
    fn receive(&self, from: Peer, message: Vec<u8>) {
        let now = thread_cpu();
        if let Some((kind, items, since)) = self.last.take() {
            let us = now.saturating_sub(since).as_secs_f64() * 1e6 / items as f64;
            let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
            let each = (0..items).map(|_| us);
            samples.0.entry(kind).or_default().extend(each);
        }
        let (kind, items) = Message::from_bytes(&message)
            .map_or(("other", 1), |m| (kind_of(&m, &self.map, self.me), items_of(&m)));
        // What measuring takes is nobody's.
        self.last.set(Some((kind, items, thread_cpu())));
        self.server.receive(from, message);
    }

    fn disconnected(&self, peer: Peer) {
        self.server.disconnected(peer);
    }

    fn denied(&self, server: ServerId) {
        self.server.denied(server);
    }
}
