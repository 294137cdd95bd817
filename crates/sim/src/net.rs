//! The network: delays, loss, duplicates, reordering, one-way cuts, and connections that break.
//!
//! A connection is made when a process first sends to a server, and ends when either end dies or it is
//! broken. Replies go back on it or nowhere. A request in flight to a server that dies may reach that
//! server's next incarnation, as one on another path would: boot epochs are there to refuse it.

use crate::aim::KEPT;
use crate::trace::digest;
use crate::violation::Kind;
use crate::words::describe;
use crate::world::{Event, Life, MS, NodeId, Role, SEC, Sim, Time, US};
use pando_auth::FrameKeys;
use pando_env::Peer;
use pando_env::rng::Rng;
use pando_format::Codec;
use pando_types::{Errno, IdentityId, PeerId, ServerId};
use pando_wire::{Answer, Message, Refusal, Response};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// How the network behaves.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Messages lost, in a million.
    pub loss: u64,
    /// Messages doubled, in a million.
    pub duplicate: u64,
    /// Of the doubles, those that come very late, in a million.
    pub late: u64,
    /// So late at most.
    pub late_max: Time,
    /// Connections broken at a send, in a million.
    pub breaks: u64,
    /// Smallest delay.
    pub base: Time,
    /// Mean of what comes on top: large against `base` means much reordering.
    pub jitter: Time,
    /// Messages that are held up, in a million.
    pub spike: u64,
    /// For how long at most.
    pub spike_max: Time,
    /// Requests in flight to a dead process that its successor gets, in a hundred.
    pub successor: u64,
}

/// Answers that no server sent, put on the connections of clients (see [`Sim::forge`]).
pub(crate) struct Forger {
    /// In a million answers.
    rate: u64,
    /// The client's end of a connection.
    keys: FrameKeys,
}

impl Conditions {
    /// A sound local network.
    pub fn calm() -> Conditions {
        Conditions {
            loss: 0,
            duplicate: 0,
            late: 0,
            late_max: 30 * SEC,
            breaks: 0,
            base: 30 * US,
            jitter: 20 * US,
            spike: 0,
            spike_max: 0,
            successor: 50,
        }
    }

    /// A bad network, differently bad in each seed.
    pub fn rough(rng: &mut Rng) -> Conditions {
        Conditions {
            loss: rng.below(8_000),
            duplicate: rng.below(8_000),
            late: rng.below(500_000),
            late_max: [2, 8, 30][rng.index(3)] * SEC,
            breaks: rng.below(500),
            base: 20 * US + rng.below(200 * US),
            jitter: rng.below(400 * US),
            spike: rng.below(8_000),
            spike_max: 5 * MS + rng.below(SEC),
            successor: rng.below(101),
        }
    }
}

/// A message on its way.
#[derive(Clone)]
pub(crate) struct Packet {
    from_life: u64,
    from_node: NodeId,
    pub(crate) to_node: NodeId,
    /// The incarnation that ran there when it was sent; 0: none.
    to_life: u64,
    /// For replies: the connection it goes back on.
    reply_on: Option<u64>,
    bytes: Vec<u8>,
    duplicate: bool,
}

#[derive(Clone, Copy)]
struct Conn {
    opener_life: u64,
    opener: NodeId,
    acceptor_life: u64,
    acceptor: NodeId,
}

/// What the network did that somebody felt.
#[derive(Clone, Copy, Default, Debug)]
pub struct NetCounts {
    /// Messages sent.
    pub sent: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Lost at random.
    pub lost: u64,
    /// Lost to a cut.
    pub cut: u64,
    /// Doubles delivered.
    pub duplicates: u64,
    /// Held up by a spike.
    pub delayed: u64,
    /// Connections broken at random.
    pub breaks: u64,
    /// Delivered to another incarnation than the one meant.
    pub successor: u64,
    /// Forged answers that reached a client.
    pub forged: u64,
    /// Kept until they are let go.
    pub kept: u64,
}

/// State of the network.
pub struct Net {
    rng: Rng,
    /// How it behaves now.
    pub conditions: Conditions,
    /// What it did.
    pub counts: NetCounts,
    roles: Vec<Role>,
    /// Cut directions: bit `to` of `cuts[from]`.
    cuts: Vec<u64>,
    conns: BTreeMap<u64, Conn>,
    by_ends: BTreeMap<(u64, u64), u64>,
    /// Who each machine proves to be.
    proved: Vec<PeerId>,
    /// Who opened each connection, closed ones too.
    opened_by: BTreeMap<u64, PeerId>,
    /// Machines that may say anything: nonsense of theirs costs the connection and is nobody's mistake.
    hostile: u64,
    /// Connections they opened.
    distrusted: BTreeSet<u64>,
    forger: Option<Forger>,
    /// Messages that are kept, by number, until they are let go.
    kept: BTreeMap<u64, Packet>,
    next: u64,
}

impl Net {
    pub(crate) fn new(rng: Rng) -> Net {
        Net {
            rng,
            conditions: Conditions::calm(),
            counts: NetCounts::default(),
            roles: Vec::new(),
            cuts: Vec::new(),
            conns: BTreeMap::new(),
            by_ends: BTreeMap::new(),
            proved: Vec::new(),
            opened_by: BTreeMap::new(),
            hostile: 0,
            distrusted: BTreeSet::new(),
            forger: None,
            kept: BTreeMap::new(),
            next: 1,
        }
    }

    pub(crate) fn machine(&mut self, id: NodeId, role: Role) {
        debug_assert_eq!(id.0, self.roles.len());
        self.roles.push(role);
        self.proved.push(match role {
            Role::Server(id) => PeerId::Server(id),
            Role::Client(_) => PeerId::Client(IdentityId::ANYONE),
        });
        self.cuts.push(0);
    }

    /// What connections that a machine opens from here on prove.
    pub fn identify(&mut self, machine: NodeId, who: PeerId) {
        self.proved[machine.0] = who;
    }

    /// From here on somebody on the way forges answers to clients, so many in a million. REQUIRES: the
    /// connections of clients have keys, or nothing keeps them from being believed.
    pub fn forge(&mut self, rate: u64, keys: FrameKeys) {
        self.forger = Some(Forger { rate, keys });
    }

    /// A machine may say anything from here on.
    pub fn distrust(&mut self, machine: NodeId) {
        self.hostile |= 1 << machine.0;
    }

    /// Cuts the way from one machine to another; the way back stays.
    pub fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cuts[from.0] |= 1 << to.0;
    }

    /// Mends one way.
    pub fn mend(&mut self, from: NodeId, to: NodeId) {
        self.cuts[from.0] &= !(1 << to.0);
    }

    /// Mends all.
    pub fn mend_all(&mut self) {
        self.cuts.iter_mut().for_each(|c| *c = 0);
    }

    /// The machine of a server.
    pub fn server(&self, id: ServerId) -> Option<NodeId> {
        self.roles.iter().position(|r| *r == Role::Server(id)).map(NodeId)
    }

    fn connect(&mut self, opener: (u64, NodeId), acceptor: (u64, NodeId)) -> u64 {
        let (next, conns, opened_by) = (&mut self.next, &mut self.conns, &mut self.opened_by);
        let (distrusted, hostile) = (&mut self.distrusted, self.hostile >> opener.1.0 & 1 == 1);
        let who = self.proved[opener.1.0];
        *self.by_ends.entry((opener.0, acceptor.0)).or_insert_with(|| {
            let id = *next;
            *next += 1;
            let conn = Conn {
                opener_life: opener.0,
                opener: opener.1,
                acceptor_life: acceptor.0,
                acceptor: acceptor.1,
            };
            conns.insert(id, conn);
            opened_by.insert(id, who);
            if hostile {
                distrusted.insert(id);
            }
            id
        })
    }

    fn disconnect(&mut self, id: u64) -> Option<Conn> {
        let conn = self.conns.remove(&id)?;
        self.by_ends.remove(&(conn.opener_life, conn.acceptor_life));
        Some(conn)
    }

    pub(crate) fn who(&self, peer: Peer) -> Option<PeerId> {
        match peer {
            Peer::Server(id) => Some(PeerId::Server(id)),
            Peer::Connection(c) => self.opened_by.get(&c).copied(),
        }
    }

    fn peer_of(&self, node: NodeId) -> Option<Peer> {
        match self.roles[node.0] {
            Role::Server(id) => Some(Peer::Server(id)),
            Role::Client(_) => None,
        }
    }

    fn latency(&mut self) -> Time {
        let c = &self.conditions;
        let mut delay = c.base + self.rng.skewed(c.jitter);
        if self.rng.ppm(c.spike) {
            self.counts.delayed += 1;
            delay += self.rng.below(c.spike_max);
        }
        delay
    }
}

impl Sim {
    /// A process sends.
    pub(crate) fn send(self: &Rc<Self>, from_life: u64, from_node: NodeId, to: Peer, bytes: Vec<u8>) {
        let mut net = self.net.borrow_mut();
        let (to_node, reply_on) = match to {
            Peer::Server(id) => match net.server(id) {
                Some(node) => (node, None),
                None => {
                    drop(net);
                    return self.fail(
                        Kind::WrongResult,
                        format!("a message to server {id}, which does not exist"),
                    );
                }
            },
            Peer::Connection(c) => match net.conns.get(&c) {
                Some(conn) if conn.acceptor_life == from_life => (conn.opener, Some(c)),
                _ => return,
            },
        };
        net.counts.sent += 1;
        let message = match Message::from_bytes(&bytes) {
            Ok(m) => m,
            Err(e) => {
                drop(net);
                return self.fail(Kind::WrongResult, format!("a message that does not decode: {e}"));
            }
        };
        drop(net);
        let sender = self.life(from_node).filter(|l| l.number == from_life);
        let held = match (self.tap(), &sender) {
            (Some(tap), Some(sender)) => tap.sent(sender, to_node, &message),
            _ => 0,
        };
        self.note(|| {
            format!(
                "{} -> {}  {}",
                self.role(from_node),
                self.role(to_node),
                describe(&message)
            )
        });
        let to_life = self.life(to_node).map_or(0, |l| l.number);
        let mut net = self.net.borrow_mut();
        let net = &mut *net;
        if from_node != to_node && held != KEPT {
            if net.cuts[from_node.0] >> to_node.0 & 1 == 1 {
                net.counts.cut += 1;
                return self.note(|| "    cut off".into());
            }
            if net.rng.ppm(net.conditions.loss) {
                net.counts.lost += 1;
                return self.note(|| "    lost".into());
            }
        }
        let packet = Packet {
            from_life,
            from_node,
            to_node,
            to_life,
            reply_on,
            bytes,
            duplicate: false,
        };
        if held == KEPT {
            net.counts.kept += 1;
            net.kept.insert(net.counts.kept, packet);
            return self.note(|| "    kept".into());
        }
        if from_node != to_node && net.rng.ppm(net.conditions.duplicate) {
            let mut delay = net.latency();
            if net.rng.ppm(net.conditions.late) {
                let most = net.conditions.late_max;
                delay += net.rng.below(most);
            }
            self.schedule(
                delay,
                Event::Deliver(Box::new(Packet {
                    duplicate: true,
                    ..packet.clone()
                })),
            );
        }
        if let (Some(conn), Role::Client(_), Message::Reply { id, .. }) =
            (reply_on, self.role(to_node), &message)
            && let Some(rate) = net.forger.as_ref().map(|f| f.rate)
            && net.rng.ppm(rate)
        {
            let result = forged(net.rng.below(5));
            let frame = forged_frame(
                &Message::Reply {
                    id: *id,
                    result,
                    account: None,
                },
                net.rng.next(),
            );
            let delay = net.latency();
            self.after(delay, move |sim| sim.forged(to_node, to_life, conn, &frame));
        }
        let breaks = net.rng.ppm(net.conditions.breaks);
        let delay = net.latency() + held;
        self.schedule(delay, Event::Deliver(Box::new(packet)));
        if breaks && to_life != 0 {
            net.counts.breaks += 1;
            let id = reply_on.or_else(|| net.by_ends.get(&(from_life, to_life)).copied());
            if let Some(conn) = id.and_then(|id| net.disconnect(id).map(|c| (id, c))) {
                self.tell_both(net, conn.0, conn.1);
            }
        }
    }

    /// Messages that were kept arrive in the time that is given, by their number.
    pub(crate) fn let_go(&self, when: impl Fn(u64) -> Option<Time>) {
        let mut net = self.net.borrow_mut();
        let chosen: Vec<(u64, Time)> = net.kept.keys().filter_map(|n| Some((*n, when(*n)?))).collect();
        for (number, time) in chosen {
            if let Some(packet) = net.kept.remove(&number) {
                self.schedule(time, Event::Deliver(Box::new(packet)));
            }
        }
    }

    fn tell_both(&self, net: &mut Net, id: u64, conn: Conn) {
        if let Some(peer) = net.peer_of(conn.acceptor) {
            let delay = net.rng.below(5 * MS);
            self.schedule(
                delay,
                Event::Lost {
                    life: conn.opener_life,
                    node: conn.opener,
                    peer,
                },
            );
        }
        let delay = net.rng.below(5 * MS);
        let peer = Peer::Connection(id);
        self.schedule(
            delay,
            Event::Lost {
                life: conn.acceptor_life,
                node: conn.acceptor,
                peer,
            },
        );
    }

    /// A server ends the connections that an identity opened to it.
    pub(crate) fn expel(&self, life: u64, identity: IdentityId) {
        let mut net = self.net.borrow_mut();
        let net = &mut *net;
        let theirs = Some(&PeerId::Client(identity));
        let opened_by = &net.opened_by;
        let wanted = |(id, c): &(&u64, &Conn)| c.acceptor_life == life && opened_by.get(id) == theirs;
        let ended: Vec<u64> = net.conns.iter().filter(wanted).map(|(id, _)| *id).collect();
        for id in ended {
            if let Some(conn) = net.disconnect(id) {
                self.tell_both(net, id, conn);
            }
        }
    }

    /// A server closes a connection whose messages make no sense. False: it was opened by somebody who is not
    /// hostile.
    pub(crate) fn shut(&self, peer: Peer) -> bool {
        let mut net = self.net.borrow_mut();
        let net = &mut *net;
        let Peer::Connection(id) = peer else { return false };
        if !net.distrusted.contains(&id) {
            return false;
        }
        if let Some(conn) = net.disconnect(id) {
            self.tell_both(net, id, conn);
        }
        true
    }

    /// Bytes that somebody on the way put on a client's connection arrive there. The frames' own code decides
    /// whether they are a message.
    fn forged(self: &Rc<Self>, node: NodeId, life: u64, conn: u64, frame: &[u8]) {
        let Some(client) = self.life(node).filter(|l| l.number == life && l.receives()) else {
            return;
        };
        if self.is_paused(node) {
            return;
        }
        let mut net = self.net.borrow_mut();
        let net = &mut *net;
        let (Some(ends), Some(forger)) = (net.conns.get(&conn).copied(), &mut net.forger) else {
            return;
        };
        net.counts.forged += 1;
        match forger.keys.receive.cut(frame) {
            Ok(Some((message, _))) => {
                let (message, from) = (message.to_vec(), net.peer_of(ends.acceptor));
                self.note(|| format!("  {} believes a forged answer", client.role));
                if let Some(from) = from {
                    self.after(0, move |sim| {
                        sim.enter(&client, |node| node.receive(from, message))
                    });
                }
            }
            // The connection is of no use any more.
            Ok(None) | Err(_) => {
                if let Some(ends) = net.disconnect(conn) {
                    self.tell_both(net, conn, ends);
                }
            }
        }
    }

    /// A process died: its connections end, and most of the other ends hear of it.
    pub(crate) fn cut_connections(&self, life: &Life) {
        let mut net = self.net.borrow_mut();
        let net = &mut *net;
        let ended: Vec<u64> = net
            .conns
            .iter()
            .filter(|(_, c)| c.opener_life == life.number || c.acceptor_life == life.number)
            .map(|(id, _)| *id)
            .collect();
        for id in ended {
            if let Some(conn) = net.disconnect(id)
                && net.rng.percent(80)
            {
                self.tell_both(net, id, conn);
            }
        }
    }

    /// A message arrives, if there is still anybody to take it.
    pub(crate) fn deliver(self: &Rc<Self>, packet: Packet) {
        let Some(life) = self.life(packet.to_node) else {
            return;
        };
        let from = {
            let mut net = self.net.borrow_mut();
            let net = &mut *net;
            match packet.reply_on {
                Some(c) => {
                    // A reply to a process that is gone goes nowhere. If only the connection is gone, a reply
                    // that was in flight already may still come.
                    if life.number != packet.to_life {
                        return;
                    }
                    if !net.conns.contains_key(&c) && !net.rng.percent(net.conditions.successor) {
                        return;
                    }
                    match net.peer_of(packet.from_node) {
                        Some(peer) => peer,
                        None => return,
                    }
                }
                None => {
                    if life.number != packet.to_life {
                        if !net.rng.percent(net.conditions.successor) {
                            return;
                        }
                        net.counts.successor += 1;
                    }
                    Peer::Connection(
                        net.connect((packet.from_life, packet.from_node), (life.number, life.node)),
                    )
                }
            }
        };
        if !life.receives() {
            return;
        }
        {
            let counts = &mut self.net.borrow_mut().counts;
            counts.delivered += 1;
            counts.duplicates += u64::from(packet.duplicate);
        }
        self.trace.borrow_mut().event(
            self.now(),
            5,
            (packet.from_node.0 << 8 | packet.to_node.0) as u64,
            digest(&packet.bytes),
        );
        // Nobody looks at what reaches a client, unless it is to be printed.
        let looked_at = matches!(life.role, Role::Server(_)) || self.trace.borrow().wants_lines();
        if let Some(message) = looked_at
            .then(|| Message::from_bytes(&packet.bytes).ok())
            .flatten()
        {
            self.note(|| {
                let double = if packet.duplicate { " (again)" } else { "" };
                format!(
                    "  {} <- {}  {}{double}",
                    life.role,
                    self.role(packet.from_node),
                    describe(&message)
                )
            });
            if let Some(tap) = self.tap() {
                tap.delivered(&life, &message);
            }
        }
        self.enter(&life, |node| node.receive(from, packet.bytes));
    }
}

/// What a forger says.
fn forged(n: u64) -> Result<Response, Refusal> {
    match n {
        0 => Ok(Err(Errno::NotFound).into()),
        1 => Ok(Err(Errno::Exists).into()),
        2 => Ok(Ok(Answer::Done).into()),
        3 => Ok(Response::Ok),
        _ => Err(Refusal::NotAllowed),
    }
}

/// As a frame by somebody who has no key of the connection.
fn forged_frame(message: &Message, guess: u64) -> Vec<u8> {
    let payload = message.to_bytes();
    let mac = u128::from(guess).to_le_bytes();
    [&(payload.len() as u32).to_le_bytes()[..], &mac, &payload].concat()
}
