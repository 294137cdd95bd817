//! The same through this crate's event loops: frames, checksums, hellos and all.

use super::{EchoOptions, EchoResult, MESSAGE, Meter, histogram, sum};
use crate::clock::{mono, process_cpu};
use crate::{Options, Reactor, Waiting};
use hdrhistogram::Histogram;
use pando_auth::{Introduction, OpenGate};
use pando_env::{Env, Node, Peer};
use pando_types::{BootEpoch, FsId, ServerId};
use pando_wire::{Role, Way};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;

/// Through reactors on both sides.
pub fn reactor_bench(options: EchoOptions, waiting: Waiting) -> io::Result<EchoResult> {
    let options = EchoOptions {
        servers: options.servers.max(1),
        clients: options.clients.max(1),
        ..options
    };
    let mut addresses = BTreeMap::new();
    for n in 0..options.servers {
        let id = ServerId(n as u16);
        let (tell, told) = channel();
        thread::spawn(move || server(id, options.clients, &tell, waiting));
        addresses.insert(id, told.recv().map_err(io::Error::other)??);
    }
    let start = Arc::new(Barrier::new(options.clients + 1));
    let clients = (0..options.clients).map(|number| {
        let (addresses, start) = (addresses.clone(), start.clone());
        thread::spawn(move || {
            let asker = Asker::connect(addresses, options, waiting);
            // All come here, also who has no connection: the others wait.
            start.wait();
            asker?.measure(number)
        })
    });
    let clients = clients.collect();
    start.wait();
    sum(clients, process_cpu(), options.time)
}

fn reactor(waiting: Waiting, role: Role) -> io::Result<Rc<Reactor>> {
    Reactor::new(
        Options {
            waiting,
            ..Options::default()
        },
        Introduction {
            fs: FsId(0),
            role,
            key: None,
        },
    )
}

/// Sends back what it gets, until all its clients have gone.
struct EchoNode {
    reactor: Rc<Reactor>,
    clients: Cell<usize>,
}

impl Node for EchoNode {
    fn receive(&self, from: Peer, message: Vec<u8>) {
        self.reactor.send(from, message);
    }
    fn disconnected(&self, _peer: Peer) {
        self.clients.set(self.clients.get().saturating_sub(1));
        if self.clients.get() == 0 {
            self.reactor.stopper().stop();
        }
    }
}

fn server(id: ServerId, clients: usize, tell: &Sender<io::Result<String>>, waiting: Waiting) {
    let listening = reactor(waiting, Role::Server(id)).and_then(|reactor| {
        let gate = Rc::new(OpenGate(Vec::new()));
        let address = reactor.listen("127.0.0.1:0", BootEpoch(0), gate)?.to_string();
        Ok((address, reactor))
    });
    match listening {
        Ok((address, reactor)) => {
            reactor.set_node(Rc::new(EchoNode {
                reactor: reactor.clone(),
                clients: Cell::new(clients),
            }));
            let _ = tell.send(Ok(address));
            reactor.run();
            reactor.shutdown();
        }
        Err(e) => drop(tell.send(Err(e))),
    }
}

struct Asker {
    reactor: Rc<Reactor>,
    options: EchoOptions,
    /// Not before all servers have let it in.
    meter: RefCell<Option<Meter>>,
    missing: Cell<usize>,
    lost: Cell<Option<ServerId>>,
}

impl Asker {
    /// A client that every server has answered once.
    fn connect(
        addresses: BTreeMap<ServerId, String>,
        options: EchoOptions,
        waiting: Waiting,
    ) -> io::Result<Rc<Asker>> {
        let reactor = reactor(waiting, Role::Client(Way::Nobody))?;
        let asker = Rc::new(Asker {
            reactor: reactor.clone(),
            options,
            meter: RefCell::new(None),
            missing: Cell::new(addresses.len()),
            lost: Cell::new(None),
        });
        reactor.set_node(asker.clone());
        let servers: Vec<ServerId> = addresses.keys().copied().collect();
        reactor.set_addresses(addresses);
        for server in servers {
            reactor.send(Peer::Server(server), message());
        }
        reactor.run();
        asker.check()?;
        Ok(asker)
    }

    fn measure(&self, number: usize) -> io::Result<Histogram<u64>> {
        *self.meter.borrow_mut() = Some(Meter::new(self.options)?);
        for lane in 0..self.options.depth.max(1) {
            self.ask((number + lane) % self.options.servers, message());
        }
        self.reactor.run();
        self.reactor.shutdown();
        self.check()?;
        let meter = self.meter.take();
        meter.map_or_else(histogram, |meter| Ok(meter.taken))
    }

    fn ask(&self, server: usize, message: Vec<u8>) {
        if let Some(meter) = &mut *self.meter.borrow_mut() {
            meter.sent(server, mono());
        }
        self.reactor.send(Peer::Server(ServerId(server as u16)), message);
    }

    fn check(&self) -> io::Result<()> {
        self.lost.get().map_or(Ok(()), |server| {
            let why = self.reactor.peer_error(server);
            Err(io::Error::other(why.unwrap_or("the connection was lost".into())))
        })
    }
}

fn message() -> Vec<u8> {
    // A frame has eight bytes more.
    vec![7; MESSAGE - 8]
}

impl Node for Asker {
    fn receive(&self, from: Peer, message: Vec<u8>) {
        let Peer::Server(server) = from else { return };
        let now = mono();
        let more = match &mut *self.meter.borrow_mut() {
            Some(meter) => {
                meter.answered(usize::from(server.0), now);
                Some(now < meter.end)
            }
            None => None,
        };
        match more {
            Some(true) => self.ask((usize::from(server.0) + 1) % self.options.servers, message),
            Some(false) => self.reactor.stopper().stop(),
            None => {
                self.missing.set(self.missing.get().saturating_sub(1));
                if self.missing.get() == 0 {
                    self.reactor.stopper().stop();
                }
            }
        }
    }

    fn disconnected(&self, peer: Peer) {
        if let Peer::Server(server) = peer {
            self.lost.set(Some(server));
        }
        self.reactor.stopper().stop();
    }
}
