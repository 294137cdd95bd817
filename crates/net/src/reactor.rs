//! The reactor: what it holds, and what it offers.

use crate::account::Account;
use crate::alarm::Alarm;
use crate::along::Signal;
use crate::clock::{self, mono, raise_file_limit};
use crate::conn::{Stage, Table};
use crate::inbox::Inbox;
use crate::link::{Link, State};
use crate::log::LogGate;
use crate::notify::{Flag, Notify};
use crate::timers::{Sleep, Timers};
use crate::wait::Pacer;
use crate::{Options, PeerError, Stopper, Tls};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Registry, Token};
use pando_auth::{Gate, Here, Introduction};
use pando_cluster::ClusterMap;
use pando_env::{Env, Executor, LocalFuture, Node, Peer, TaskOwner};
use pando_types::{AuthMode, BootEpoch, IdentityId, Mono, PeerId, ServerId, Timestamp};
use pando_wire::Role;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Not numbers of connections: those would need the last generation of the last place.
pub(crate) const WAKER: Token = Token(usize::MAX);
pub(crate) const LISTENER: Token = Token(usize::MAX - 1);
pub(crate) const ALARM: Token = Token(usize::MAX - 2);

/// What the node has to be told, in order.
pub(crate) enum Delivery {
    Message(Peer, Vec<u8>),
    Gone(Peer),
    /// A server does not let us in.
    Denied(ServerId),
}

pub(crate) struct Listener {
    pub socket: TcpListener,
    pub here: Here,
    pub gate: Rc<dyn Gate>,
    /// Someone may be waiting.
    pub ready: bool,
}

/// Sockets, timers and tasks of one thread. See the crate's description.
///
/// Tasks and the node usually hold this reactor, and it holds them: [`Reactor::shutdown`] breaks the circle.
/// A child of `fork` shares its parent's sockets and must make a reactor of its own.
pub struct Reactor {
    pub(crate) options: Options,
    pub(crate) introduction: Introduction,
    pub(crate) poll: RefCell<Poll>,
    pub(crate) registry: Registry,
    pub(crate) events: RefCell<Events>,
    pub(crate) notify: Arc<Notify>,
    pub(crate) executor: Executor,
    pub(crate) timers: Rc<Timers>,
    /// For timers that are near.
    pub(crate) alarm: Alarm,
    pub(crate) pacer: Pacer,
    pub(crate) log: LogGate,
    pub(crate) node: RefCell<Option<Rc<dyn Node>>>,
    pub(crate) listener: RefCell<Option<Listener>>,
    pub(crate) table: RefCell<Table>,
    pub(crate) links: RefCell<BTreeMap<ServerId, Link>>,
    pub(crate) addresses: RefCell<BTreeMap<ServerId, String>>,
    pub(crate) inbox: Inbox,
    /// Connections with something to read.
    pub(crate) readable: RefCell<VecDeque<u64>>,
    /// Connections with something to write.
    pub(crate) dirty: RefCell<Vec<u64>>,
    /// Connections with a deadline.
    pub(crate) watched: RefCell<Vec<u64>>,
    pub(crate) sweeping: Cell<bool>,
    /// What each identity occupies that has connections here.
    pub(crate) accounts: RefCell<BTreeMap<IdentityId, Rc<Account>>>,
    /// What connections are made with, if not with plain sockets.
    pub(crate) tls: RefCell<Option<Arc<Tls>>>,
    /// Bytes waiting to be sent, of all connections.
    pub(crate) unsent: Cell<usize>,
    /// Bytes of unfinished frames, of all connections.
    pub(crate) partial: Cell<usize>,
    /// What reads go into.
    pub(crate) buffer: RefCell<Vec<u8>>,
    /// Emptied send buffers.
    pub(crate) spare: RefCell<Vec<Vec<u8>>>,
    /// When the last wait ended; good enough for deadlines of seconds.
    pub(crate) time: Cell<Mono>,
    /// What else is waited for.
    pub(crate) along: RefCell<Option<Rc<Signal>>>,
    /// A name was looked up.
    pub(crate) resolved: Arc<Flag>,
    /// The future of `block_on` can go on.
    pub(crate) woken: Arc<Flag>,
    pub(crate) stop: Arc<Flag>,
    pub(crate) entered: Cell<bool>,
    /// What is done when all tasks have run that can, before what they sent is written.
    pub(crate) turn_end: RefCell<Option<Rc<dyn Fn()>>>,
}

impl Reactor {
    /// A reactor without connections.
    pub fn new(options: Options, introduction: Introduction) -> io::Result<Rc<Reactor>> {
        let poll = Poll::new()?;
        let notify = Notify::new(mio::Waker::new(poll.registry(), WAKER)?);
        let for_tasks = notify.clone();
        let alarm = Alarm::new(poll.registry(), ALARM)?;
        Ok(Rc::new(Reactor {
            options,
            introduction,
            registry: poll.registry().try_clone()?,
            poll: RefCell::new(poll),
            events: RefCell::new(Events::with_capacity(1024)),
            executor: Executor::new(move || for_tasks.notify()),
            timers: Rc::default(),
            alarm,
            pacer: Pacer::new(options.waiting),
            log: LogGate::default(),
            node: RefCell::new(None),
            listener: RefCell::new(None),
            table: RefCell::default(),
            links: RefCell::default(),
            addresses: RefCell::default(),
            inbox: Inbox::new(options.delay),
            readable: RefCell::default(),
            dirty: RefCell::default(),
            watched: RefCell::default(),
            sweeping: Cell::new(false),
            accounts: RefCell::default(),
            tls: RefCell::default(),
            unsent: Cell::new(0),
            partial: Cell::new(0),
            buffer: RefCell::default(),
            spare: RefCell::default(),
            time: Cell::new(mono()),
            along: RefCell::default(),
            resolved: Flag::new(notify.clone()),
            woken: Flag::new(notify.clone()),
            stop: Flag::new(notify.clone()),
            notify,
            entered: Cell::new(false),
            turn_end: RefCell::new(None),
        }))
    }

    /// Speaks TLS on every connection that is made from here on, and in mode `tls` on those that are
    /// accepted.
    pub fn set_tls(&self, tls: Arc<Tls>) {
        *self.tls.borrow_mut() = Some(tls);
    }

    /// What messages are delivered to. Without a node they are dropped.
    pub fn set_node(&self, node: Rc<dyn Node>) {
        let old = self.node.borrow_mut().replace(node);
        drop(old);
    }

    /// Runs `hook` at the end of every turn: when all tasks have run that can, and before what they sent is
    /// written. Tasks that it wakes still belong to the turn.
    pub fn at_turn_end(&self, hook: Rc<dyn Fn()>) {
        *self.turn_end.borrow_mut() = Some(hook);
    }

    /// Where the servers are, replacing what was known. Connections to addresses that changed are closed.
    pub fn set_map(&self, map: &ClusterMap) {
        let new = map.servers.iter().map(|s| (s.id, s.address.clone())).collect();
        self.set_addresses(new);
    }

    /// As [`Reactor::set_map`], for whoever has no map yet and asks for one.
    pub fn set_addresses(&self, addresses: BTreeMap<ServerId, String>) {
        *self.addresses.borrow_mut() = addresses;
        let moved: Vec<u64> = {
            let (links, addresses) = (self.links.borrow(), self.addresses.borrow());
            let stale = |(id, link): (&ServerId, &Link)| {
                link.conn()
                    .filter(|_| addresses.get(id).is_none_or(|a| *a != link.address))
            };
            links.iter().filter_map(stale).collect()
        };
        for conn in moved {
            self.close_conn(conn, "the server has moved");
        }
    }

    /// Accepts connections at `address` (port 0 lets the system choose) and returns where that is. Lets the
    /// process open as many files as it may. `gate` knows who may come in.
    pub fn listen(&self, address: &str, boot: BootEpoch, gate: Rc<dyn Gate>) -> io::Result<SocketAddr> {
        let Role::Server(server) = self.introduction.role else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "clients do not listen",
            ));
        };
        let certified = self.tls.borrow().as_ref().is_some_and(|t| t.accepts());
        if gate.mode() == AuthMode::Tls && !certified {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "clients are to see a certificate, and there is none",
            ));
        }
        raise_file_limit();
        let mut failure = io::Error::new(io::ErrorKind::InvalidInput, "no such address");
        for address in address.to_socket_addrs()? {
            match TcpListener::bind(address) {
                Ok(mut socket) => {
                    self.registry
                        .register(&mut socket, LISTENER, Interest::READABLE)?;
                    let at = socket.local_addr()?;
                    *self.listener.borrow_mut() = Some(Listener {
                        socket,
                        here: Here {
                            fs: self.introduction.fs,
                            server,
                            boot,
                        },
                        gate,
                        ready: true,
                    });
                    return Ok(at);
                }
                Err(e) => failure = e,
            }
        }
        Err(failure)
    }

    /// Accepts no more connections. Those that exist stay.
    pub fn stop_listening(&self) {
        *self.listener.borrow_mut() = None;
    }

    /// Whether another thread can run beside this one.
    pub fn has_spare_core(&self) -> bool {
        self.pacer.has_spare_core(self.time.get())
    }

    /// Ends [`Reactor::run`], from any thread.
    pub fn stopper(&self) -> Stopper {
        self.stop.stopper()
    }

    /// Why a server could not be reached the last time, in words; nothing once it welcomed us.
    pub fn peer_error(&self, server: ServerId) -> Option<String> {
        self.peer_failure(server).map(|e| e.to_string())
    }

    /// As [`Reactor::peer_error`], for programs.
    pub fn peer_failure(&self, server: ServerId) -> Option<PeerError> {
        self.links.borrow().get(&server)?.error.clone()
    }

    /// Whether a server has welcomed us on a connection that still stands.
    pub fn is_connected(&self, server: ServerId) -> bool {
        self.links
            .borrow()
            .get(&server)
            .is_some_and(|l| matches!(l.state, State::Up(_)))
    }

    /// Number of accepted connections.
    pub fn accepted(&self) -> usize {
        self.table.borrow().accepted
    }

    /// Closes everything, drops all tasks, timers and the node. The reactor can be dropped then.
    pub fn shutdown(&self) {
        self.stop_listening();
        let node = self.node.borrow_mut().take();
        let hook = self.turn_end.borrow_mut().take();
        drop(hook);
        self.executor.kill(TaskOwner::default());
        let all = self.table.borrow().ids();
        for id in all {
            let conn = self.table.borrow_mut().remove(id);
            drop(conn);
        }
        self.accounts.borrow_mut().clear();
        self.unsent.set(0);
        self.partial.set(0);
        self.links.borrow_mut().clear();
        self.inbox.clear();
        self.timers.clear();
        drop(node);
    }
}

impl Env for Reactor {
    fn now(&self) -> Timestamp {
        clock::now()
    }

    fn mono(&self) -> Mono {
        mono()
    }

    fn recent(&self) -> Mono {
        self.time.get()
    }

    fn random(&self) -> u64 {
        rand::random()
    }

    fn sleep(&self, d: Duration) -> LocalFuture<()> {
        Box::pin(Sleep::new(self.timers.clone(), mono().after(d)))
    }

    fn timeout(&self, d: Duration) -> LocalFuture<()> {
        Box::pin(Sleep::new(self.timers.clone(), self.recent().after(d)))
    }

    fn spawn(&self, task: LocalFuture<()>) {
        self.executor.spawn(TaskOwner::default(), task);
    }

    fn send(&self, to: Peer, message: Vec<u8>) {
        match to {
            Peer::Connection(conn) => self.send_on(conn, &message),
            Peer::Server(server) => self.send_to(server, &message),
        }
    }

    fn close(&self, peer: Peer, why: &str) {
        let conn = match peer {
            Peer::Connection(conn) => Some(conn),
            Peer::Server(server) => self.links.borrow().get(&server).and_then(Link::conn),
        };
        if let Some(conn) = conn {
            if self.log.open(mono()) {
                tracing::warn!(%peer, why, "closing a connection");
            }
            self.close_conn(conn, why);
        }
    }

    fn who(&self, peer: Peer) -> Option<PeerId> {
        match peer {
            Peer::Server(id) => Some(PeerId::Server(id)),
            Peer::Connection(id) => match self.table.borrow().get(id)?.stage {
                Stage::Welcome(who) => Some(who),
                _ => None,
            },
        }
    }

    fn expel(&self, identity: IdentityId, why: &str) {
        let theirs = Stage::Welcome(PeerId::Client(identity));
        let open = self.table.borrow().with_stage(theirs);
        for id in open {
            self.close_conn(id, why);
        }
    }
}
