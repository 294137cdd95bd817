//! Coordination in ZooKeeper. Of a filesystem, below the node that the address names:
//!
//! | node | what |
//! |---|---|
//! | `FSID/map` | `cluster.json`, replaced by compare-and-set of the node's version |
//! | `FSID/members/N.SEQUENCE` | server N is a member; its number is the zxid at which the node was made. Says how long its lease is |
//! | `FSID/alive/N` | ephemeral: the session behind that membership lives |
//!
//! Both nodes of a member are made, and taken away with those of an earlier process of that server, in one
//! transaction.
//!
//! **Nobody sees a member gone before its lease is over** (H112), and no clock of ZooKeeper is relied upon
//! for that. A session alone would not do: the leader counts its time from when it last heard of it through
//! the pings of the server that the client talks to, not from the client's last write, and may end it sooner
//! than the client thinks. So the end of a session (`alive/N` is gone) only begins the end of a membership.
//! Who looks then measures, on a clock of its own, that a lease passes and a little more, and takes
//! `members/N.SEQUENCE` away; with that, and not before, the member is gone for everybody. An
//! [`Coord::attend`] is a write that fails if either node is gone: one that succeeded was ordered before
//! `alive/N` went, so it began before the other's clock was started. Names of members are never used again,
//! so what is taken away is what was looked at.
//!
//! A process whose event loop is stuck must not stay a member because this thread still keeps the session:
//! without a call of `attend` for a few leases the session is given up.

mod session;
mod thread;

use crate::place::ZkUrl;
use crate::promise::{Promise, promise};
use pando_cluster::{ClusterMap, Coord, CoordError, View};
use pando_env::LocalFuture;
use pando_types::{FsId, MapEpoch, ServerId};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZkOptions {
    /// How long a sign of life is good for. No call takes longer: its answer would be worth nothing.
    pub lease: Duration,
    /// Session timeout that is asked for. ZooKeeper has bounds of its own: 2 to 20 of its ticks (of 2 s,
    /// usually).
    pub session: Duration,
}

impl Default for ZkOptions {
    fn default() -> ZkOptions {
        ZkOptions {
            lease: Duration::from_secs(2),
            session: Duration::from_secs(4),
        }
    }
}

/// Coordination in ZooKeeper.
pub struct ZkCoord {
    calls: UnboundedSender<Call>,
    lease: Duration,
}

/// What is asked of the thread, and when it was.
struct Call {
    asked: Instant,
    what: What,
}

enum What {
    Attend(ServerId, Promise<View>),
    Leave(ServerId, Promise<()>),
    View(Promise<View>),
    Replace(MapEpoch, ClusterMap, Promise<()>),
    Create(String, Promise<()>),
}

impl ZkCoord {
    /// Coordination of the filesystem `fs`, whose folder on this machine is `dir`: there is its
    /// `cluster.json`, in which the map is copied when it has changed, and maybe `coord.auth`. Nothing is
    /// asked yet.
    pub fn open(url: &ZkUrl, dir: &Path, fs: FsId, options: ZkOptions) -> io::Result<ZkCoord> {
        let (calls, queue) = unbounded_channel();
        let thread = thread::Thread::new(url, dir, fs, options)?;
        std::thread::Builder::new()
            .name("coordination".into())
            .spawn(move || thread.serve(queue))?;
        Ok(ZkCoord {
            calls,
            lease: options.lease,
        })
    }

    /// Puts the first map there: the text of a `cluster.json`. Errs if there is one.
    pub fn create(&self, text: String) -> LocalFuture<Result<(), CoordError>> {
        self.ask(|promise| What::Create(text, promise))
    }

    fn ask<T: 'static>(&self, what: impl FnOnce(Promise<T>) -> What) -> LocalFuture<Result<T, CoordError>> {
        let (promise, answer) = promise();
        // A thread that has ended drops the promise, which is an answer too.
        let _ = self.calls.send(Call {
            asked: Instant::now(),
            what: what(promise),
        });
        answer
    }
}

impl Coord for ZkCoord {
    fn lease(&self) -> Duration {
        self.lease
    }

    fn attend(&self, me: ServerId) -> LocalFuture<Result<View, CoordError>> {
        self.ask(|promise| What::Attend(me, promise))
    }

    fn leave(&self, me: ServerId) -> LocalFuture<Result<(), CoordError>> {
        self.ask(|promise| What::Leave(me, promise))
    }

    fn view(&self) -> LocalFuture<Result<View, CoordError>> {
        self.ask(What::View)
    }

    fn replace(&self, from: MapEpoch, to: ClusterMap) -> LocalFuture<Result<(), CoordError>> {
        self.ask(|promise| What::Replace(from, to, promise))
    }
}
