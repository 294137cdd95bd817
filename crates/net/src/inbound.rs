//! What comes in: readiness, new connections, bytes, hellos.

use crate::along::ALONG;
use crate::clock::mono;
use crate::conn::{Class, Conn, Handshake, Stage, address};
use crate::frames::next;
use crate::hello;
use crate::reactor::{ALARM, Delivery, LISTENER, WAKER};
use crate::session::Session;
use crate::timers::Action;
use crate::{PeerError, Reactor};
use mio::event::Event;
use mio::{Interest, Token};
use pando_auth::{Acceptor, Greeting, Step, payload};
use pando_env::Peer;
use pando_types::{AuthMode, ServerId};
use pando_wire::{Denial, HelloReply};
use std::io::{ErrorKind, Read};
use std::time::Duration;

/// Bytes per read.
const CHUNK: usize = 128 * 1024;
/// Bytes read from one connection before others get their turn.
const CONN_BUDGET: usize = 4 * CHUNK;
/// Bytes read before what they ask for is done.
const TURN_BUDGET: usize = 4 << 20;
/// Connections accepted before those that exist get their turn.
const ACCEPT_BUDGET: usize = 64;
/// Refusals in progress; beyond, connections are closed without a word.
const SURPLUS_MAX: usize = 256;
/// Pause after the system had no room for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a connection cannot go on. `Quiet` ends are everyday life.
pub(crate) enum End {
    Quiet(String),
    Foul(String),
    Server(PeerError),
    Tls(rustls::Error),
}

impl Reactor {
    /// Notes what the kernel says about a socket.
    pub(crate) fn ready(&self, event: &Event) {
        match event.token() {
            // What they tell of is looked for after every wait.
            WAKER | ALARM => {}
            ALONG => {
                if let Some(signal) = &*self.along.borrow() {
                    signal.raise();
                }
            }
            LISTENER => {
                if let Some(listener) = self.listener.borrow_mut().as_mut() {
                    listener.ready = true;
                }
            }
            Token(id) => {
                let id = id as u64;
                let connecting = {
                    let mut table = self.table.borrow_mut();
                    let Some(conn) = table.get_mut(id) else { return };
                    let connecting = matches!(conn.stage, Stage::Connecting(_));
                    if !connecting {
                        if event.is_readable() || event.is_read_closed() || event.is_error() {
                            conn.ended |= event.is_read_closed() || event.is_error();
                            conn.readable = true;
                            self.queue_read(id, conn);
                        }
                        if event.is_writable() && conn.blocked {
                            conn.blocked = false;
                            self.mark_dirty(id, conn);
                        }
                    }
                    connecting
                };
                if connecting {
                    self.connected(id);
                }
            }
        }
    }

    pub(crate) fn queue_read(&self, id: u64, conn: &mut Conn) {
        if conn.readable && !conn.queued && !conn.paused {
            conn.queued = true;
            self.readable.borrow_mut().push_back(id);
        }
    }

    pub(crate) fn accept(&self) {
        for _ in 0..ACCEPT_BUDGET {
            let accepted = match self.listener.borrow_mut().as_mut() {
                Some(l) if l.ready => l.socket.accept(),
                _ => return,
            };
            let pause = match accepted {
                Ok((stream, _)) => {
                    self.admit(stream);
                    continue;
                }
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => false,
                Err(e) => {
                    if self.log.open(mono()) {
                        tracing::warn!(error = %e, "cannot accept a connection");
                    }
                    true
                }
            };
            if let Some(listener) = self.listener.borrow_mut().as_mut() {
                listener.ready = false;
            }
            if pause {
                // The kernel will not report again what already waits.
                self.timers.add(mono().after(ACCEPT_PAUSE), Action::Accept);
            }
            return;
        }
    }

    fn admit(&self, mut stream: mio::net::TcpStream) {
        let mut table = self.table.borrow_mut();
        let class = if table.accepted < self.options.max_connections {
            Class::Accepted
        } else {
            Class::Surplus
        };
        if class == Class::Surplus && table.surplus >= SURPLUS_MAX {
            return;
        }
        self.prepare(&stream);
        let id = table.vacant();
        if self.register(id, &mut stream).is_err() {
            return;
        }
        let mut conn = Conn::new(stream, Stage::Stranger, class, self.time.get());
        if self.listens_for() == Some(AuthMode::Tls) {
            let tls = self.tls.borrow().clone();
            let session = tls.map(|tls| Session::accept(&tls.configs()));
            let Some(Ok(session)) = session else { return };
            conn.tls = Some(Box::new(session));
        }
        self.watch(id, &mut conn);
        table.insert(id, conn);
        let crowded_out = table.is_strange(id, self.options.max_strangers);
        drop(table);
        if let Some(oldest) = crowded_out {
            self.end_conn(oldest, End::Foul("too many have not said who they are".into()));
        }
    }

    /// How clients that connect here identify themselves.
    pub(crate) fn listens_for(&self) -> Option<AuthMode> {
        self.listener.borrow().as_ref().map(|l| l.gate.mode())
    }

    pub(crate) fn register(&self, id: u64, stream: &mut mio::net::TcpStream) -> std::io::Result<()> {
        let done = self.registry.register(
            stream,
            Token(id as usize),
            Interest::READABLE | Interest::WRITABLE,
        );
        if let Err(e) = &done
            && self.log.open(mono())
        {
            tracing::warn!(error = %e, "cannot watch a connection");
        }
        done
    }

    /// Socket options. None is worth failing for.
    pub(crate) fn prepare(&self, stream: &mio::net::TcpStream) {
        let socket = socket2::SockRef::from(stream);
        let _ = socket.set_tcp_nodelay(true);
        // A peer whose machine vanished says nothing: ask.
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(Duration::from_secs(60))
            .with_interval(Duration::from_secs(10))
            .with_retries(3);
        let _ = socket.set_tcp_keepalive(&keepalive);
        let _ = socket.set_tcp_user_timeout(Some(self.options.stall_timeout));
    }

    /// Reads what can be read, up to the budgets, into the inbox.
    pub(crate) fn read(&self) {
        let mut waiting = self.readable.borrow().len();
        if waiting == 0 {
            return;
        }
        let mut buffer = self.buffer.take();
        buffer.resize(CHUNK, 0);
        let mut total = 0;
        while waiting > 0 && total < TURN_BUDGET {
            waiting -= 1;
            let Some(id) = self.readable.borrow_mut().pop_front() else {
                break;
            };
            match self.read_conn(id, &mut buffer) {
                Ok(n) => total += n,
                Err(end) => self.end_conn(id, end),
            }
        }
        self.buffer.replace(buffer);
    }

    fn read_conn(&self, id: u64, buffer: &mut [u8]) -> Result<usize, End> {
        let mut total = 0;
        let mut table = self.table.borrow_mut();
        let Some(conn) = table.get_mut(id) else {
            return Ok(0);
        };
        conn.queued = false;
        while conn.readable && !conn.paused {
            if total >= CONN_BUDGET {
                self.queue_read(id, conn);
                break;
            }
            match conn.stream.read(buffer) {
                Ok(0) => return Err(End::Quiet("closed by the other side".into())),
                Ok(n) => {
                    total += n;
                    // A short read leaves nothing behind, unless it is the end (epoll(7)).
                    conn.readable = n == buffer.len() || conn.ended;
                    let before = conn.partial.len();
                    if conn.stage.is_open() {
                        conn.received = self.time.get();
                    }
                    let fed = self.hear(id, conn, &buffer[..n]);
                    let after = conn.partial.len();
                    self.partial.set(self.partial.get() + after - before);
                    fed?;
                    if !self.charge(conn) {
                        return Err(End::Foul("too many unfinished frames of its identity".into()));
                    }
                    if after > before && self.partial.get() > self.options.total_partial_limit {
                        return Err(End::Foul("too many unfinished frames".into()));
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => conn.readable = false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(End::Quiet(e.to_string())),
            }
        }
        Ok(total)
    }

    /// Says no, and closes when that is sent.
    pub(crate) fn refuse(&self, id: u64, conn: &mut Conn, refusal: HelloReply) {
        conn.stage = Stage::Refused;
        if self.log.open(mono()) {
            let why = hello::refused(&refusal);
            tracing::warn!(address = %address(conn), why, "refused a connection");
        }
        self.append(id, conn, &payload(&refusal));
    }

    /// Takes whole frames off received bytes and keeps the rest.
    pub(crate) fn feed(&self, id: u64, conn: &mut Conn, bytes: &[u8]) -> Result<(), End> {
        let mut joined = std::mem::take(&mut conn.partial);
        let bytes = if joined.is_empty() {
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined
        };
        let mut used = 0;
        let mut result = Ok(());
        while result.is_ok() {
            match next(conn, &bytes[used..]) {
                Ok(Some((payload, n))) => {
                    used += n;
                    result = self.frame(id, conn, payload);
                }
                Ok(None) => break,
                Err(e) => result = Err(End::Foul(e.to_string())),
            }
        }
        if used == 0 && !joined.is_empty() {
            conn.partial = joined;
        } else if used < bytes.len() {
            conn.partial = bytes[used..].to_vec();
        }
        if !conn.partial.is_empty() {
            self.watch(id, conn);
        }
        result
    }

    fn frame(&self, id: u64, conn: &mut Conn, payload: &[u8]) -> Result<(), End> {
        let from = match conn.stage {
            Stage::Welcome(_) => Peer::Connection(id),
            Stage::Up(server) => Peer::Server(server),
            Stage::Stranger => return self.greet(id, conn, payload),
            Stage::Greeting(server) => return self.greeted(id, conn, server, payload),
            Stage::Refused | Stage::Connecting(_) => return Ok(()),
        };
        conn.proved = true;
        self.inbox.push(Delivery::Message(from, payload.to_vec()));
        Ok(())
    }

    /// Answers a hello, or the proof that followed it.
    fn greet(&self, id: u64, conn: &mut Conn, said: &[u8]) -> Result<(), End> {
        let listener = self.listener.borrow();
        let Some(listener) = listener.as_ref() else {
            return Err(End::Quiet("not serving any more".into()));
        };
        let refusal = match conn.handshake.take() {
            Some(Handshake::Accepting(acceptor)) => match acceptor.accept(said, &*listener.gate) {
                Ok(accepted) if !self.take_place(conn, accepted.peer) => {
                    HelloReply::Denied(Denial::TooManyOfYours)
                }
                Ok(accepted) => {
                    self.append(id, conn, &payload(&accepted.welcome));
                    conn.stage = Stage::Welcome(accepted.peer);
                    conn.keys = Some(Box::new(accepted.keys));
                    return Ok(());
                }
                Err(None) => return Err(End::Foul("no proof of who it is".into())),
                Err(Some(refusal)) => refusal,
            },
            _ => {
                let gate = &*listener.gate;
                let certified = conn.shown.take().map(|shown| gate.certified(&shown));
                match Acceptor::greet(said, listener.here, gate, certified, rand::random()) {
                    Greeting::Noise => return Err(End::Foul("no pando hello".into())),
                    _ if conn.misled => HelloReply::Denied(Denial::WrongWay(gate.mode())),
                    Greeting::Refuse(refusal) => refusal,
                    Greeting::Welcome(..) | Greeting::Challenge(..) if conn.class == Class::Surplus => {
                        HelloReply::TooMany
                    }
                    Greeting::Welcome(_, peer)
                        if gate.mode() != AuthMode::None && !self.take_place(conn, peer) =>
                    {
                        HelloReply::Denied(Denial::TooManyOfYours)
                    }
                    Greeting::Welcome(welcome, peer) => {
                        self.append(id, conn, &payload(&welcome));
                        conn.stage = Stage::Welcome(peer);
                        return Ok(());
                    }
                    Greeting::Challenge(challenge, acceptor) => {
                        self.append(id, conn, &payload(&challenge));
                        conn.handshake = Some(Handshake::Accepting(Box::new(acceptor)));
                        return Ok(());
                    }
                }
            }
        };
        self.refuse(id, conn, refusal);
        Ok(())
    }

    /// Takes the answer to our hello, or to our proof.
    fn greeted(&self, id: u64, conn: &mut Conn, server: ServerId, said: &[u8]) -> Result<(), End> {
        let mut links = self.links.borrow_mut();
        let (Some(link), Some(Handshake::Connecting(initiator))) =
            (links.get_mut(&server), &mut conn.handshake)
        else {
            return Err(End::Quiet("not wanted any more".into()));
        };
        let address = link.address.clone();
        let (theirs, keys) = match initiator.take(said) {
            Ok(Step::Say(proof)) => {
                self.append(id, conn, &proof);
                return Ok(());
            }
            Ok(Step::Up { server, keys }) => (server, keys),
            Err(rejected) => return Err(End::Server(PeerError::of(rejected, address))),
        };
        if theirs != server {
            return Err(End::Server(PeerError::WrongServer { address, theirs }));
        }
        conn.handshake = None;
        conn.keys = keys.map(Box::new);
        conn.stage = Stage::Up(server);
        link.state = crate::link::State::Up(id);
        link.error = None;
        link.queued = 0;
        for message in std::mem::take(&mut link.queue) {
            self.append(id, conn, &message);
        }
        Ok(())
    }
}
