//! Real sockets under [`pando_env::Env`].
//!
//! One [`Reactor`] serves both kinds of process: a server's event loop ([`Reactor::run`]) and a caller that
//! blocks ([`Reactor::block_on`]) and drives its client's futures on its own thread, so that no request waits
//! for another thread to wake. It delivers everything that can be read, runs what became ready, then writes
//! once per connection.
//!
//! Knows frames, handshakes and certificates; knows nothing of what messages say.
//!
//! ```no_run
//! # use pando_net::{Options, Reactor};
//! # fn sketch(me: pando_auth::Introduction, gate: std::rc::Rc<dyn pando_auth::Gate>, boot: pando_types::BootEpoch, map: pando_cluster::ClusterMap,
//! #     node: std::rc::Rc<dyn pando_env::Node>, request: impl Future<Output = ()>) -> std::io::Result<()> {
//! let reactor = Reactor::new(Options::default(), me)?;
//! reactor.set_map(&map);
//! reactor.set_node(node); // usually made with `reactor.clone()` as its `World`
//! // A server:
//! reactor.listen("0.0.0.0:7400", boot, gate)?;
//! reactor.run(); // until reactor.stopper().stop(), from any thread
//! // A caller that blocks, instead of both:
//! reactor.block_on(request);
//! reactor.shutdown();
//! # Ok(()) }
//! ```

mod account;
mod alarm;
mod along;
mod bench;
mod clock;
mod conn;
mod frames;
mod hello;
mod inbound;
mod inbox;
mod link;
mod load;
mod log;
mod notify;
mod options;
mod outbound;
mod reactor;
mod secure;
mod session;
mod timers;
mod tls;
mod turn;
mod wait;

pub use along::Along;
pub use bench::{EchoOptions, EchoResult, echo_bench, reactor_bench};
pub use clock::{boot_time, process_cpu, raise_file_limit, thread_cpu};
pub use hello::PeerError;
pub use notify::Stopper;
pub use options::{Options, Waiting};
pub use reactor::Reactor;
pub use tls::{Pems, Purpose, Tls, TlsError, TlsFault, fingerprint};
