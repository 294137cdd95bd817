//! Connections and the table that holds them.

use crate::account::Holder;
use crate::session::Session;
use mio::net::TcpStream;
use pando_auth::{Acceptor, Fingerprint, FrameKeys, Initiator};
use pando_types::{Mono, PeerId, ServerId};
use std::collections::VecDeque;

/// What a connection is for, and how far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// We connect; the system has not said yet whether it works.
    Connecting(ServerId),
    /// We said hello; the handshake goes on.
    Greeting(ServerId),
    /// The server welcomed us.
    Up(ServerId),
    /// Accepted; its hello, or its proof, is due.
    Stranger,
    /// Accepted and welcomed.
    Welcome(PeerId),
    /// Refused: closes when the refusal is sent.
    Refused,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stage::Connecting(server) => write!(f, "connecting to server {server}"),
            Stage::Greeting(server) => write!(f, "greeting server {server}"),
            Stage::Up(server) => write!(f, "up, to server {server}"),
            Stage::Stranger => f.write_str("not welcomed yet"),
            Stage::Welcome(_) => f.write_str("welcomed"),
            Stage::Refused => f.write_str("refused"),
        }
    }
}

/// Where the other side of a connection is, as logs say it.
pub(crate) fn address(conn: &Conn) -> String {
    match conn.stream.peer_addr() {
        Ok(address) => address.to_string(),
        Err(_) => "gone".into(),
    }
}

impl Stage {
    /// The server this connection leads to, if we opened it.
    pub fn server(self) -> Option<ServerId> {
        match self {
            Stage::Connecting(id) | Stage::Greeting(id) | Stage::Up(id) => Some(id),
            _ => None,
        }
    }

    /// Whether messages flow.
    pub fn is_open(self) -> bool {
        matches!(self, Stage::Up(_) | Stage::Welcome(_))
    }
}

/// Which count a connection belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// We opened it.
    Outgoing,
    /// Accepted.
    Accepted,
    /// Accepted beyond the limit: its hello will be answered with a refusal.
    Surplus,
}

/// How far a handshake is: all that a connection costs before it is let in.
pub(crate) enum Handshake {
    /// We said hello.
    Connecting(Box<Initiator>),
    /// We challenged.
    Accepting(Box<Acceptor>),
}

/// One connection. Idle ones hold no buffers.
pub(crate) struct Conn {
    pub stream: TcpStream,
    pub stage: Stage,
    pub class: Class,
    /// The handshake, while it lasts.
    pub handshake: Option<Handshake>,
    /// What frames are authenticated with; `None`: they have checksums.
    pub keys: Option<Box<FrameKeys>>,
    /// What is below the frames, if that is not the socket itself.
    pub tls: Option<Box<Session>>,
    /// It came without TLS to where that is spoken, or with it to where it is not: it is told so, and nothing
    /// else.
    pub misled: bool,
    /// The public key of the certificate it came with, until its hello.
    pub shown: Option<Box<Fingerprint>>,
    /// The first bytes were looked at.
    pub begun: bool,
    /// Whose it is, if that was proved.
    pub account: Option<Holder>,
    /// What was last counted there.
    pub charged: usize,
    /// An unfinished frame.
    pub partial: Vec<u8>,
    /// Bytes to send, from `sent` on.
    pub out: Vec<u8>,
    pub sent: usize,
    /// Messages since it was last written to.
    pub frames: usize,
    /// When bytes were last received, or a frame was last whole.
    pub received: Mono,
    /// When bytes were last sent, or there were none to send.
    pub wrote: Mono,
    /// It may have bytes to read. Invariant: set from a readiness event until a read finds nothing.
    pub readable: bool,
    /// Stands in the queue of connections to read.
    pub queued: bool,
    /// Stands in the list of connections to write.
    pub dirty: bool,
    /// The kernel's buffer is full: wait for it to say otherwise.
    pub blocked: bool,
    /// Not read because it does not read either.
    pub paused: bool,
    /// Stands in the list of connections with a deadline.
    pub watched: bool,
    /// The other side has closed.
    pub ended: bool,
    /// A message came since it opened.
    pub proved: bool,
}

impl Conn {
    pub fn new(stream: TcpStream, stage: Stage, class: Class, now: Mono) -> Conn {
        Conn {
            stream,
            stage,
            class,
            handshake: None,
            keys: None,
            tls: None,
            misled: false,
            shown: None,
            begun: false,
            account: None,
            charged: 0,
            partial: Vec::new(),
            out: Vec::new(),
            sent: 0,
            frames: 0,
            received: now,
            wrote: now,
            readable: false,
            queued: false,
            dirty: false,
            blocked: false,
            paused: false,
            watched: false,
            ended: false,
            proved: false,
        }
    }

    /// Bytes waiting to be sent.
    pub fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Whether anything is still to be written to the socket.
    pub fn is_writing(&self) -> bool {
        self.unsent() > 0 || self.tls.as_ref().is_some_and(|t| t.wants_write())
    }

    /// Whether it may not do nothing for ever.
    pub fn has_deadline(&self) -> bool {
        !self.stage.is_open() || self.is_writing() || !self.partial.is_empty()
    }
}

#[derive(Default)]
struct Place {
    /// Part of the connection's number, so that no number ever means a second connection.
    generation: u32,
    conn: Option<Box<Conn>>,
}

/// All connections, by number: generation above place.
#[derive(Default)]
pub(crate) struct Table {
    places: Vec<Place>,
    free: Vec<u32>,
    /// Connections we opened.
    pub outgoing: usize,
    /// Accepted connections below the limit.
    pub accepted: usize,
    /// Accepted connections beyond the limit.
    pub surplus: usize,
    /// Accepted connections that had not said who they are when this was last looked through, oldest first.
    strangers: VecDeque<u64>,
}

fn place_of(id: u64) -> usize {
    (id & 0xFFFF_FFFF) as usize
}

impl Table {
    fn count(&mut self, class: Class) -> &mut usize {
        match class {
            Class::Outgoing => &mut self.outgoing,
            Class::Accepted => &mut self.accepted,
            Class::Surplus => &mut self.surplus,
        }
    }

    /// The number the next connection gets.
    pub fn vacant(&mut self) -> u64 {
        let place = match self.free.last() {
            Some(p) => *p,
            None => {
                let p = self.places.len() as u32;
                self.places.push(Place::default());
                self.free.push(p);
                p
            }
        };
        let generation = self.places[place as usize].generation;
        (u64::from(generation) << 32) | u64::from(place)
    }

    /// Notes an accepted connection. If more than `most` have not said who they are: the oldest, to be
    /// closed.
    pub fn is_strange(&mut self, id: u64, most: usize) -> Option<u64> {
        self.strangers.push_back(id);
        if self.strangers.len() <= most {
            return None;
        }
        let mut strangers = std::mem::take(&mut self.strangers);
        strangers.retain(|id| self.get(*id).is_some_and(|c| c.stage == Stage::Stranger));
        let oldest = (strangers.len() > most).then(|| strangers.pop_front()).flatten();
        self.strangers = strangers;
        oldest
    }

    /// Adds a connection under the number [`Table::vacant`] gave.
    pub fn insert(&mut self, id: u64, conn: Conn) {
        let taken = self.free.pop();
        debug_assert_eq!(taken, Some(place_of(id) as u32));
        *self.count(conn.class) += 1;
        self.places[place_of(id)].conn = Some(Box::new(conn));
    }

    pub fn get(&self, id: u64) -> Option<&Conn> {
        let place = self.places.get(place_of(id))?;
        if u64::from(place.generation) == id >> 32 {
            place.conn.as_deref()
        } else {
            None
        }
    }

    pub fn get_mut(&mut self, id: u64) -> Option<&mut Conn> {
        let place = self.places.get_mut(place_of(id))?;
        if u64::from(place.generation) == id >> 32 {
            place.conn.as_deref_mut()
        } else {
            None
        }
    }

    /// Takes a connection out; its number is never used again.
    pub fn remove(&mut self, id: u64) -> Option<Box<Conn>> {
        let place = self.places.get_mut(place_of(id))?;
        if u64::from(place.generation) != id >> 32 {
            return None;
        }
        let conn = place.conn.take()?;
        // A place whose generations are used up stays empty.
        if let Some(next) = place.generation.checked_add(1) {
            place.generation = next;
            self.free.push(place_of(id) as u32);
        }
        *self.count(conn.class) -= 1;
        Some(conn)
    }

    /// Numbers of all connections.
    pub fn ids(&self) -> Vec<u64> {
        self.matching(|_| true)
    }

    /// Numbers of the connections at a stage.
    pub fn with_stage(&self, stage: Stage) -> Vec<u64> {
        self.matching(|conn| conn.stage == stage)
    }

    fn matching(&self, wanted: impl Fn(&Conn) -> bool) -> Vec<u64> {
        let of = |(i, p): (usize, &Place)| {
            let conn = p.conn.as_ref().filter(|c| wanted(c));
            conn.map(|_| (u64::from(p.generation) << 32) | i as u64)
        };
        self.places.iter().enumerate().filter_map(of).collect()
    }
}
