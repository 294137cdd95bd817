//! An echoing server on a thread, and a client that calls it.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use pando_auth::{Gate, Introduction, Key, OpenGate};
use pando_env::{CallError, Caller, Env, Node, Peer};
use pando_format::Codec;
use pando_net::{Options, Reactor, Stopper, Tls};
use pando_types::{BootEpoch, FsId, ServerId};
use pando_wire::{Hello, PROTOCOL_VERSION, Role, Way, encode_frame};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

pub const FS: FsId = FsId(42);
pub const SERVER: ServerId = ServerId(1);
pub const PEER: Peer = Peer::Server(SERVER);

pub const CLIENT: Role = Role::Client(Way::Nobody);

pub fn cluster_key() -> Key {
    Key::new([6; 32])
}

pub fn identity(role: Role) -> Introduction {
    Introduction {
        fs: FS,
        role,
        key: (role != CLIENT).then(cluster_key),
    }
}

/// Answers `n` with `n`; a message that starts with `BIG` with 1 MiB; tells who is a server on `WHO`, and the
/// processor time its thread has used, in nanoseconds, on `CPU`.
pub struct Echo {
    pub reactor: Rc<Reactor>,
    pub gone: Cell<u32>,
}

impl Node for Echo {
    fn receive(&self, from: Peer, message: Vec<u8>) {
        let body = message.get(8..).unwrap_or_default();
        if body.starts_with(b"BIG") {
            let mut reply = message[..8].to_vec();
            reply.resize(1 << 20, 7);
            self.reactor.send(from, reply);
        } else if body == b"WHO" {
            let mut reply = message[..8].to_vec();
            reply.extend(format!("{:?}", self.reactor.who(from)).bytes());
            self.reactor.send(from, reply);
        } else if body == b"CPU" {
            let used = u64::try_from(pando_net::thread_cpu().as_nanos()).unwrap();
            let mut reply = message[..8].to_vec();
            reply.extend(used.to_le_bytes());
            self.reactor.send(from, reply);
        } else if body == b"CLOSE" {
            self.reactor.close(from, "asked to");
        } else {
            self.reactor.send(from, message);
        }
    }
    fn disconnected(&self, _peer: Peer) {
        self.gone.set(self.gone.get() + 1);
    }
}

pub struct Server {
    pub address: SocketAddr,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(address: &str, options: Options) -> Server {
        Server::start_behind(address, options, || Rc::new(OpenGate(vec![cluster_key()])))
    }

    /// The same with another gate, made on the server's thread.
    pub fn start_behind(
        address: &str,
        options: Options,
        gate: impl FnOnce() -> Rc<dyn Gate> + Send + 'static,
    ) -> Server {
        Server::start_with(address, options, None, gate)
    }

    /// The same with certificates.
    pub fn start_with(
        address: &str,
        options: Options,
        tls: Option<Arc<Tls>>,
        gate: impl FnOnce() -> Rc<dyn Gate> + Send + 'static,
    ) -> Server {
        let (tell, told) = channel();
        let address = address.to_string();
        let thread = std::thread::spawn(move || {
            let reactor = Reactor::new(options, identity(Role::Server(SERVER))).unwrap();
            if let Some(tls) = tls {
                reactor.set_tls(tls);
            }
            let at = reactor.listen(&address, BootEpoch(1), gate()).unwrap();
            reactor.set_node(Rc::new(Echo {
                reactor: reactor.clone(),
                gone: Cell::new(0),
            }));
            tell.send((at, reactor.stopper())).unwrap();
            reactor.run();
            reactor.shutdown();
        });
        let (address, stopper) = told.recv().unwrap();
        Server {
            address,
            stopper,
            thread: Some(thread),
        }
    }

    pub fn stop(self) {}
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

pub struct Client {
    pub reactor: Rc<Reactor>,
    pub node: Rc<ClientNode>,
}

pub struct ClientNode {
    pub calls: Caller<Vec<u8>>,
    pub gone: RefCell<Vec<Peer>>,
}

impl Node for ClientNode {
    fn receive(&self, _from: Peer, message: Vec<u8>) {
        let id = u64::from_le_bytes(message[..8].try_into().unwrap());
        self.calls.complete(id, message[8..].to_vec());
    }
    fn disconnected(&self, peer: Peer) {
        self.gone.borrow_mut().push(peer);
        self.calls.disconnected(peer);
    }
}

impl Client {
    pub fn new(server: &str, options: Options) -> Client {
        Client::with(server, options, identity(CLIENT))
    }

    pub fn with(server: &str, options: Options, identity: Introduction) -> Client {
        let reactor = Reactor::new(options, identity).unwrap();
        reactor.set_addresses(BTreeMap::from([(SERVER, server.to_string())]));
        let node = Rc::new(ClientNode {
            calls: Caller::new(reactor.clone()),
            gone: RefCell::new(Vec::new()),
        });
        reactor.set_node(node.clone());
        Client { reactor, node }
    }

    pub async fn ask(&self, body: &[u8]) -> Result<Vec<u8>, CallError> {
        self.node
            .calls
            .call(PEER, Duration::from_secs(20), |id| {
                [&id.to_le_bytes(), body].concat()
            })
            .await
    }

    pub fn call(&self, body: &[u8]) -> Result<Vec<u8>, CallError> {
        self.reactor.block_on(self.ask(body))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.reactor.shutdown();
    }
}

/// The first frame of a client.
pub fn hello(fs: FsId, version: u16) -> Vec<u8> {
    let mut payload = b"PNDO".to_vec();
    Hello {
        version,
        fs,
        role: CLIENT,
        key_name: 0,
        nonce: [0; 32],
    }
    .put(&mut payload);
    let mut frame = Vec::new();
    encode_frame(&mut frame, &payload);
    frame
}

/// A plain socket that was welcomed.
pub fn greet(server: &Server) -> TcpStream {
    let mut s = TcpStream::connect(server.address).unwrap();
    s.write_all(&hello(FS, PROTOCOL_VERSION)).unwrap();
    let mut answer = [0; 24];
    s.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[8..12], b"PNDO");
    assert_eq!(answer[12], 0, "welcome");
    s
}

pub fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}
