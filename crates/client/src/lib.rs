//! The client: finds the server that answers, retries until there is a definite outcome, resolves paths,
//! reads and writes files. Async functions over [`pando_env::Env`], driven inline by blocking callers and by
//! event loops alike.
//!
//! A `Client` lives on one thread. Programs with several threads have one each; what they share (open files)
//! is plain data of [`file`].

mod ahead;
mod cache;
pub mod components;
mod contents;
mod cut;
pub mod explain;
pub mod file;
mod handles;
mod interrupt;
mod keep;
mod lanes;
mod leases;
mod local;
pub mod locks;
mod parts;
mod path;
mod request;
mod session;
mod sync;
mod whole;
mod xattr;

pub use ahead::Resolution;
pub use cache::CACHE_BYTES;
pub use contents::Contents;
pub use cut::{Cut, CutFailed};
pub use interrupt::Interrupt;
pub use keep::{Keeping, Kept};
pub use local::{Going, Localised};
pub use path::{Found, Listing};
pub use whole::whole;

use cache::Cache;
use handles::{HANDLES, Handles};
use lanes::Lanes;
use pando_cluster::ClusterMap;
use pando_env::{Caller, Node, Peer, World};
use pando_format::Codec;
use pando_types::{BootEpoch, Cred, IdentityId, Instance, MapEpoch, ServerId, SessionId};
use pando_wire::{Accounted, Message};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What a client is told at start.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The cluster map to begin with; newer ones are fetched when a server says so.
    pub map: ClusterMap,
    /// How long one try waits for an answer before it is repeated.
    pub try_timeout: Duration,
    /// How long an operation is retried before it fails with EIO (`Errno::Unreachable`).
    pub give_up: Duration,
    /// Mutating operations in flight at once.
    pub lanes: u16,
    /// How paths are resolved.
    pub resolution: Resolution,
    /// Bytes of directories kept in mind; 0: each path is resolved from the root.
    pub cache_bytes: usize,
    /// Directories held open whose newest statements are kept in mind; 0: what the program shows is shown.
    pub handles: usize,
    /// Shared by the clients of one program or mount that share what they know: what one was told the others
    /// may use, and what one changes where nobody else knows of it is told to nobody. `None`: a new one.
    pub instance: Option<Instance>,
    /// The open files of the program or mount, shared by its clients. `None`: nothing is kept open.
    pub keeping: Option<Keeping>,
    /// What is known of the contents of directories, shared by the clients of a mount. `None`: nothing.
    pub contents: Option<Contents>,
    /// The identity under which its connections are opened.
    pub identity: IdentityId,
    /// For whom it acts when no program asks: to find the root, to sync, to measure space.
    pub own: Cred,
}

impl ClientConfig {
    /// The defaults, for this map.
    pub fn new(map: ClusterMap) -> ClientConfig {
        ClientConfig {
            map,
            try_timeout: Duration::from_secs(3),
            give_up: Duration::from_secs(120),
            lanes: 64,
            resolution: Resolution::default(),
            cache_bytes: CACHE_BYTES,
            handles: HANDLES,
            instance: None,
            keeping: None,
            contents: None,
            identity: IdentityId::ANYONE,
            own: Cred::root(),
        }
    }
}

/// Counts of what a client did: figures are counted round trips.
#[derive(Clone, Copy, Default, Debug)]
pub struct ClientStats {
    /// Operations begun.
    pub operations: u64,
    /// Messages that waited for an answer, one after the other.
    pub round_trips: u64,
    /// Messages that were sent beside another one and waited with it.
    pub beside: u64,
    /// Tries that were sent on to another part of a split directory.
    pub redirects: u64,
    /// Tries that were repeated because no answer came or the server was not ready.
    pub retries: u64,
    /// Components that were asked for ahead of those before them.
    pub guesses: u64,
    /// Of them, those whose answers could be used.
    pub guessed: u64,
    /// Components that were known already.
    pub cached: u64,
    /// Requests refused because a directory on the way had changed.
    pub outdated: u64,
    /// Requests refused because of what our identity may claim.
    pub not_allowed: u64,
}

impl ClientStats {
    /// What was counted since it stood so.
    pub fn since(&self, before: &ClientStats) -> ClientStats {
        ClientStats {
            operations: self.operations - before.operations,
            round_trips: self.round_trips - before.round_trips,
            beside: self.beside - before.beside,
            redirects: self.redirects - before.redirects,
            retries: self.retries - before.retries,
            guesses: self.guesses - before.guesses,
            guessed: self.guessed - before.guessed,
            cached: self.cached - before.cached,
            outdated: self.outdated - before.outdated,
            not_allowed: self.not_allowed - before.not_allowed,
        }
    }
}

/// The session this client speaks under.
struct Session {
    id: SessionId,
    /// Servers it is registered with, and with which boot of them it was.
    opened: BTreeMap<ServerId, BootEpoch>,
    /// Servers that got slots from those, and may not have heard of it.
    heirs: BTreeSet<ServerId>,
}

/// What runs beside others.
pub(crate) type Beside<'a> = std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;

type HearMap = Box<dyn Fn(&ClusterMap)>;
type FindMap = Box<dyn Fn() -> Option<ClusterMap>>;

/// A client on one thread.
pub struct Client {
    world: World,
    config: ClientConfig,
    map: RefCell<Rc<ClusterMap>>,
    caller: Caller<Accounted>,
    boots: RefCell<BTreeMap<ServerId, BootEpoch>>,
    session: RefCell<Session>,
    instance: Instance,
    cache: RefCell<Cache>,
    handles: RefCell<Handles>,
    parts: RefCell<parts::Parts>,
    lanes: Lanes,
    stats: Cell<ClientStats>,
    /// Of what is being explained.
    notes: RefCell<Option<explain::Notes>>,
    /// The call of a program that it is at.
    call: RefCell<Option<Arc<Interrupt>>>,
    /// Whom the program's thread serves.
    asker: Cell<Option<Asker>>,
    /// Called with every newer map, so that the transport learns the addresses.
    on_map: RefCell<Option<HearMap>>,
    /// Asked for a map where servers do not answer.
    find_map: RefCell<Option<FindMap>>,
}

/// Says whom this thread serves now, if what is looked at for them is to be looked at as them.
pub type Asker = fn() -> Option<Cred>;

/// A name nobody can guess.
pub fn new_instance(world: &World) -> Instance {
    Instance((u128::from(world.random()) << 64) | u128::from(world.random()))
}

impl Client {
    /// A client with a new session. It sends nothing until it is asked for something.
    pub fn new(world: World, config: ClientConfig) -> Rc<Client> {
        let id = session::new_id(&world, config.identity);
        Rc::new(Client {
            map: RefCell::new(Rc::new(config.map.clone())),
            caller: Caller::new(world.clone()),
            boots: RefCell::new(BTreeMap::new()),
            session: RefCell::new(Session {
                id,
                opened: BTreeMap::new(),
                heirs: BTreeSet::new(),
            }),
            instance: config.instance.unwrap_or_else(|| new_instance(&world)),
            cache: RefCell::new(Cache::new(config.cache_bytes)),
            handles: RefCell::new(Handles::new(config.handles)),
            parts: RefCell::default(),
            lanes: Lanes::new(config.lanes),
            stats: Cell::new(ClientStats::default()),
            notes: RefCell::new(None),
            call: RefCell::new(None),
            asker: Cell::new(None),
            on_map: RefCell::new(None),
            find_map: RefCell::new(None),
            world,
            config,
        })
    }

    /// The map as known now.
    pub fn map(&self) -> Rc<ClusterMap> {
        self.map.borrow().clone()
    }

    /// Has `hear` called with every newer map.
    pub fn on_map(&self, hear: impl Fn(&ClusterMap) + 'static) {
        *self.on_map.borrow_mut() = Some(Box::new(hear));
    }

    /// Has `find` asked for a map where servers do not answer: all that are known may have been replaced.
    pub fn find_map(&self, find: impl Fn() -> Option<ClusterMap> + 'static) {
        *self.find_map.borrow_mut() = Some(Box::new(find));
    }

    /// Has `asker` asked for whom this acts, before [`ClientConfig::own`]: an identity that may act for some
    /// users only sees with the rights of each what is theirs.
    pub fn act_for(&self, asker: Asker) {
        self.asker.set(Some(asker));
    }

    /// Counts so far.
    pub fn stats(&self) -> ClientStats {
        self.stats.get()
    }

    /// Forgets every directory, as a new client knows none.
    pub fn forget_all(&self) {
        self.cache.borrow_mut().forget(0);
    }

    /// The session mutating requests run under now.
    pub fn session_id(&self) -> SessionId {
        self.session.borrow().id
    }

    fn count(&self, f: impl FnOnce(&mut ClientStats)) {
        let mut s = self.stats.get();
        f(&mut s);
        self.stats.set(s);
    }

    fn boot_of(&self, server: ServerId) -> BootEpoch {
        self.boots.borrow().get(&server).copied().unwrap_or_default()
    }

    /// Takes a map if it is newer than the one known.
    fn adopt_map(&self, map: ClusterMap) -> bool {
        let newer: MapEpoch = map.epoch;
        if newer <= self.map.borrow().epoch || map.fs != self.map.borrow().fs {
            return false;
        }
        {
            let Session { opened, heirs, .. } = &mut *self.session.borrow_mut();
            for (was, is) in self.map.borrow().slots.iter().zip(&map.slots) {
                let has_some = opened.contains_key(was) || heirs.contains(was);
                if was != is && has_some && !opened.contains_key(is) {
                    heirs.insert(*is);
                }
            }
            opened.retain(|server, _| map.server(*server).is_some());
            heirs.retain(|server| map.server(*server).is_some());
        }
        if let Some(hear) = &*self.on_map.borrow() {
            hear(&map);
        }
        *self.map.borrow_mut() = Rc::new(map);
        true
    }
}

impl Node for Client {
    fn receive(&self, from: Peer, message: Vec<u8>) {
        match Message::from_bytes(&message) {
            Ok(Message::Reply { id, result, account }) => {
                // Late or doubled replies match nothing.
                self.caller.complete(id, (result, account));
            }
            Ok(Message::Request { .. }) => self.world.close(from, "a server sent a request to a client"),
            Err(e) => self.world.close(from, &format!("undecodable message: {e}")),
        }
    }

    fn disconnected(&self, peer: Peer) {
        self.caller.disconnected(peer);
    }

    fn denied(&self, server: ServerId) {
        self.caller.denied(Peer::Server(server));
    }
}
