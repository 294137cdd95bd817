//! Ways to servers: found in the cluster map, connected on demand, tried again after a pause that grows.

use crate::clock::mono;
use crate::conn::{Class, Conn, Handshake, Stage};
use crate::inbound::End;
use crate::reactor::Delivery;
use crate::session::Session;
use crate::timers::Action;
use crate::{PeerError, Reactor, TlsFault};
use mio::net::TcpStream;
use pando_auth::Initiator;
use pando_env::Peer;
use pando_types::{Mono, ServerId};
use pando_wire::{FRAME_MAX, Role, Way};
use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How far a link is.
pub(crate) enum State {
    /// Nothing to do; not to be tried before this time.
    Down(Mono),
    /// A message waits for this pause to end.
    Pausing,
    /// The name is being looked up.
    Resolving(Arc<Lookup>),
    /// Connection `0`, not welcomed yet; `1` are the addresses to try after it.
    Opening(u64, Vec<SocketAddr>),
    /// Welcomed.
    Up(u64),
}

/// The way to one server.
pub(crate) struct Link {
    pub state: State,
    /// As the map has it.
    pub address: String,
    /// Messages to send once welcomed.
    pub queue: Vec<Vec<u8>>,
    /// Their bytes.
    pub queued: usize,
    /// The pause after the next failure.
    pub pause: Duration,
    /// What went wrong last, until a welcome.
    pub error: Option<PeerError>,
}

impl Link {
    pub fn new() -> Link {
        Link {
            state: State::Down(Mono(0)),
            address: String::new(),
            queue: Vec::new(),
            queued: 0,
            pause: Duration::ZERO,
            error: None,
        }
    }

    /// The connection, if there is one.
    pub fn conn(&self) -> Option<u64> {
        match self.state {
            State::Opening(id, _) | State::Up(id) => Some(id),
            _ => None,
        }
    }

    /// How long to pause now, after another failure. `random` spreads clients that failed together.
    pub fn next_pause(&mut self, (first, longest): (Duration, Duration), random: u64) -> Duration {
        let pause = self.pause;
        self.pause = if pause.is_zero() {
            first
        } else {
            (pause * 2).min(longest)
        };
        pause.mul_f64(0.75 + (random % 1024) as f64 / 2048.0)
    }
}

/// A name being looked up beside the event loop, because the system's resolver blocks.
pub(crate) struct Lookup(Mutex<Option<Result<Vec<SocketAddr>, String>>>);

impl Lookup {
    /// The addresses of `address` (`host:port`) at once if it has no name to look up; else what `done` will
    /// announce.
    pub fn start(
        address: &str,
        done: impl FnOnce() + Send + 'static,
    ) -> Result<Vec<SocketAddr>, Result<Arc<Lookup>, String>> {
        if let Ok(a) = address.parse::<SocketAddr>() {
            return Ok(vec![a]);
        }
        let lookup = Arc::new(Lookup(Mutex::new(None)));
        let (result, name) = (lookup.clone(), address.to_string());
        let work = move || {
            let found = name
                .to_socket_addrs()
                .map(Iterator::collect)
                .map_err(|e| e.to_string());
            *result.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            done();
        };
        match std::thread::Builder::new()
            .name("pando-resolve".into())
            .spawn(work)
        {
            Ok(_) => Err(Ok(lookup)),
            Err(e) => Err(Err(e.to_string())),
        }
    }

    /// The result, once.
    pub fn take(&self) -> Option<Result<Vec<SocketAddr>, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Reactor {
    /// Sends to a server, connecting first if need be.
    pub(crate) fn send_to(&self, server: ServerId, message: &[u8]) {
        let mut connect = false;
        {
            let mut links = self.links.borrow_mut();
            let link = links.entry(server).or_insert_with(Link::new);
            if let State::Up(conn) = link.state {
                drop(links);
                return self.send_on(conn, message);
            }
            if message.len() > FRAME_MAX || link.queued + message.len() > self.options.send_limit {
                tracing::error!(%server, bytes = message.len(), "too much to send before it is connected");
                link.queue = Vec::new();
                link.queued = 0;
                self.inbox.push(Delivery::Gone(Peer::Server(server)));
                return;
            }
            link.queued += message.len();
            link.queue.push(message.to_vec());
            if let State::Down(until) = link.state {
                connect = until <= mono();
                link.state = State::Pausing;
                if !connect {
                    self.timers.add(until, Action::Connect(server));
                }
            }
        }
        if connect {
            self.open(server);
        }
    }

    /// The pause is over: finds the address, and connects.
    pub(crate) fn open(&self, server: ServerId) {
        let found = {
            let address = self.addresses.borrow().get(&server).cloned();
            let mut links = self.links.borrow_mut();
            let Some(link) = links.get_mut(&server) else {
                return;
            };
            if !matches!(link.state, State::Pausing) {
                return;
            }
            link.address = address.clone().unwrap_or_default();
            match address {
                None => Err(PeerError::NotInMap),
                Some(address) => {
                    let flag = self.resolved.clone();
                    match Lookup::start(&address, move || flag.raise()) {
                        Ok(addresses) => Ok(addresses),
                        Err(Ok(lookup)) => {
                            link.state = State::Resolving(lookup);
                            return;
                        }
                        Err(Err(why)) => Err(PeerError::Address { address, why }),
                    }
                }
            }
        };
        match found {
            Ok(addresses) => self.connect(server, addresses, None),
            Err(error) => self.link_failed(server, error),
        }
    }

    /// Names were looked up.
    pub(crate) fn take_lookups(&self) {
        let mut done = Vec::new();
        for (server, link) in self.links.borrow().iter() {
            if let State::Resolving(lookup) = &link.state
                && let Some(result) = lookup.take()
            {
                done.push((*server, link.address.clone(), result));
            }
        }
        for (server, address, result) in done {
            match result {
                Ok(addresses) => self.connect(server, addresses, None),
                Err(why) => self.link_failed(server, PeerError::Address { address, why }),
            }
        }
    }

    /// Tries addresses in turn. `why` is what went wrong with those before.
    fn connect(&self, server: ServerId, mut addresses: Vec<SocketAddr>, why: Option<String>) {
        let mut why = why.unwrap_or_else(|| "the name has no address".into());
        while !addresses.is_empty() {
            match self.dial(server, addresses.remove(0)) {
                Ok(conn) => {
                    if let Some(link) = self.links.borrow_mut().get_mut(&server) {
                        link.state = State::Opening(conn, addresses);
                    }
                    return;
                }
                Err(e) => why = e.to_string(),
            }
        }
        let address = self
            .links
            .borrow()
            .get(&server)
            .map(|l| l.address.clone())
            .unwrap_or_default();
        self.link_failed(server, PeerError::Connect { address, why });
    }

    fn dial(&self, server: ServerId, address: SocketAddr) -> std::io::Result<u64> {
        let tls = self.tls.borrow().clone();
        let session = match (tls, self.introduction.role) {
            (Some(tls), _) => {
                let name = self.links.borrow().get(&server).map(|l| l.address.clone());
                let made = Session::connect(&tls.configs(), &name.unwrap_or_default());
                Some(Box::new(made.map_err(std::io::Error::other)?))
            }
            // What would prove who we are is not there, nor who they are.
            (None, Role::Client(Way::Certificate)) => {
                return Err(std::io::Error::other("a certificate is shown inside TLS only"));
            }
            (None, _) => None,
        };
        let mut stream = TcpStream::connect(address)?;
        self.prepare(&stream);
        let mut table = self.table.borrow_mut();
        let id = table.vacant();
        self.register(id, &mut stream)?;
        let mut conn = Conn::new(stream, Stage::Connecting(server), Class::Outgoing, mono());
        conn.tls = session;
        self.watch(id, &mut conn);
        table.insert(id, conn);
        Ok(id)
    }

    /// The kernel says something about a connection being made: says hello if it stands.
    pub(crate) fn connected(&self, id: u64) {
        let failure = {
            let mut table = self.table.borrow_mut();
            let Some(conn) = table.get_mut(id) else { return };
            let Stage::Connecting(server) = conn.stage else {
                return;
            };
            match (conn.stream.take_error(), conn.stream.peer_addr()) {
                (Ok(None), Ok(_)) => {
                    conn.stage = Stage::Greeting(server);
                    conn.received = mono();
                    let (initiator, hello) = Initiator::new(&self.introduction, rand::random());
                    conn.handshake = Some(Handshake::Connecting(Box::new(initiator)));
                    self.append(id, conn, &hello);
                    // It may have ended at once, and the kernel reports that once.
                    conn.readable = true;
                    self.queue_read(id, conn);
                    return;
                }
                (Ok(None), Err(e)) if e.kind() == ErrorKind::NotConnected => return,
                (Ok(Some(e)) | Err(e), _) | (_, Err(e)) => e.to_string(),
            }
        };
        self.close_conn(id, &failure);
    }

    /// A connection to a server has ended.
    pub(crate) fn link_ended(&self, server: ServerId, id: u64, conn: &Conn, end: End) {
        let mut links = self.links.borrow_mut();
        let Some(link) = links.get_mut(&server) else {
            return;
        };
        if link.conn() != Some(id) {
            return;
        }
        let address = link.address.clone();
        let error = match end {
            End::Server(error) => error,
            End::Quiet(why) | End::Foul(why) if matches!(conn.stage, Stage::Connecting(_)) => {
                if let State::Opening(_, rest) = &mut link.state {
                    let rest = std::mem::take(rest);
                    drop(links);
                    return self.connect(server, rest, Some(why));
                }
                PeerError::Connect { address, why }
            }
            End::Foul(_) if matches!(conn.stage, Stage::Greeting(_)) => PeerError::Foreign(address),
            End::Tls(why) => PeerError::Tls {
                address,
                why: TlsFault::of(&why),
            },
            End::Quiet(why) | End::Foul(why) => PeerError::Lost { address, why },
        };
        if conn.proved {
            // It worked: whatever ended it, trying again at once is right.
            link.pause = Duration::ZERO;
        }
        drop(links);
        self.link_failed(server, error);
    }

    /// Nothing sent to this server so far will be answered. The next message tries again, after a pause
    /// unless this is the first failure in a row.
    fn link_failed(&self, server: ServerId, error: PeerError) {
        let mut links = self.links.borrow_mut();
        let Some(link) = links.get_mut(&server) else {
            return;
        };
        tracing::debug!(%server, %error, "no way to a server");
        let pause = link.next_pause(self.options.backoff, rand::random());
        link.state = State::Down(mono().after(pause));
        let denied = error.is_final();
        link.error = Some(error);
        link.queue = Vec::new();
        link.queued = 0;
        self.inbox.push(if denied {
            Delivery::Denied(server)
        } else {
            Delivery::Gone(Peer::Server(server))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let ms = Duration::from_millis;
        let mut link = Link::new();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            pauses.push(link.next_pause((ms(10), ms(500)), 512).as_millis());
        }
        assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 320, 500, 500]);
        assert!(link.next_pause((ms(10), ms(500)), 0) == ms(375));
        assert!(link.next_pause((ms(10), ms(500)), 1023) < ms(625));
    }
}
