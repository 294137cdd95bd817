//! The world as servers and clients see it. Nothing below the shells reaches time, randomness, sockets or
//! threads by any other way, so the same code runs on real sockets and in the simulator.

mod call;
mod exec;
mod promise;
pub mod rng;
pub mod schedule;
pub mod sync;

pub use call::{CallError, Caller};
pub use exec::{Executor, TaskOwner};
pub use promise::{Promise, promise};

use pando_types::{IdentityId, Mono, PeerId, ServerId, Timestamp};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// A future of the single-threaded world.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// One end of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Peer {
    /// A server, by its number in the cluster map; the environment connects as needed.
    Server(ServerId),
    /// Whoever opened this connection to us. Replies go back on it, or nowhere if it is gone.
    Connection(u64),
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::Server(server) => write!(f, "server {server}"),
            Peer::Connection(number) => write!(f, "connection {number}"),
        }
    }
}

/// The world. Cheap to clone behind `Rc`.
pub trait Env {
    /// Calendar time, for timestamps only: it may step in either direction.
    fn now(&self) -> Timestamp;
    /// Monotonic time, for timeouts.
    fn mono(&self) -> Mono;
    /// Monotonic time as of when the process last looked: not later than [`Env::mono`], and earlier by no
    /// more than a turn of its loop. Looking costs as much as much of what is timed.
    fn recent(&self) -> Mono {
        self.mono()
    }
    /// Random bits.
    fn random(&self) -> u64;
    /// Completes after `d`.
    fn sleep(&self, d: Duration) -> LocalFuture<()>;
    /// Completes after about `d`, counted from [`Env::recent`]: for what is seldom waited for to the end.
    fn timeout(&self, d: Duration) -> LocalFuture<()> {
        self.sleep(d)
    }
    /// Runs a task beside the others of this process.
    fn spawn(&self, task: LocalFuture<()>);
    /// Sends one message. It may be lost, late, doubled or out of order; the sender is never told.
    fn send(&self, to: Peer, message: Vec<u8>);
    /// Ends a connection whose messages make no sense.
    fn close(&self, peer: Peer, why: &str);
    /// Who a peer has proved to be; nobody, if its connection is gone.
    fn who(&self, peer: Peer) -> Option<PeerId>;
    /// Ends all connections that an identity opened to this process.
    fn expel(&self, identity: IdentityId, why: &str);
}

/// Shared handle to the world.
pub type World = Rc<dyn Env>;

/// What an environment delivers messages to.
pub trait Node {
    /// A message came in.
    fn receive(&self, from: Peer, message: Vec<u8>);
    /// The connection to a peer was lost: what is outstanding there will not be answered on it.
    fn disconnected(&self, peer: Peer);
    /// A server does not let this process in, and will not before somebody does something about it: what is
    /// outstanding there was not sent.
    fn denied(&self, server: ServerId) {
        self.disconnected(Peer::Server(server));
    }
}
