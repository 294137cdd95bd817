//! What a reactor can be told.

use std::time::Duration;

/// How a reactor waits when nothing is to be done.
///
/// Waking a sleeping thread costs several times what a round trip between two awake threads does, so spinning
/// pays while the next message is near and nobody computes on the core. It is waste, or worse, at any other
/// time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// Always sleep in the kernel.
    Blocking,
    /// Spin before sleeping, as long as recent waits say it would have paid, giving the core to whoever else
    /// wants it between any two looks.
    Adaptive {
        /// The longest spin. Waits longer than this are not worth spinning for.
        limit: Duration,
    },
    /// Never sleep. For measurements, and for servers that own their core.
    Polling,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting::Adaptive {
            limit: Duration::from_micros(500),
        }
    }
}

/// Limits and timeouts. Everything a peer can make us hold is bounded by one of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// How to wait.
    pub waiting: Waiting,
    /// Accepted connections at one time; more are told so and closed.
    pub max_connections: usize,
    /// Of those, such as have not said who they are; for more, the oldest is closed.
    pub max_strangers: usize,
    /// Accepted connections of one identity at one time; more are told so and closed.
    pub max_per_identity: usize,
    /// Bytes waiting to be sent, and of unfinished frames, on all connections of one identity; beyond, one
    /// that adds to them is closed.
    pub max_buffered_per_identity: usize,
    /// How long an accepted connection may take to say who it is, and a server we connect to, to let us in.
    pub hello_timeout: Duration,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a connection may leave our data unread, or a frame unfinished, without any progress.
    pub stall_timeout: Duration,
    /// With so many bytes waiting to be sent on a connection, nothing more is read from it.
    pub high_water: usize,
    /// With so many bytes waiting to be sent on a connection, it is closed.
    pub send_limit: usize,
    /// All connections together may have so many bytes waiting to be sent; beyond, one that adds to them
    /// while above its own high-water mark is closed.
    pub total_send_limit: usize,
    /// All connections together may have so many bytes of unfinished frames; beyond, one that adds to them is
    /// closed.
    pub total_partial_limit: usize,
    /// An emulated way: so long after it was received a message is delivered. For measurements.
    pub delay: Duration,
    /// First and longest pause between two attempts to connect.
    pub backoff: (Duration, Duration),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            waiting: Waiting::default(),
            max_connections: 16_384,
            max_strangers: 4096,
            max_per_identity: 1024,
            max_buffered_per_identity: 128 << 20,
            hello_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(3),
            stall_timeout: Duration::from_secs(30),
            high_water: 1 << 20,
            send_limit: 64 << 20,
            total_send_limit: 1 << 30,
            total_partial_limit: 512 << 20,
            delay: Duration::ZERO,
            backoff: (Duration::from_millis(10), Duration::from_millis(500)),
        }
    }
}
