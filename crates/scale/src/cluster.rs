//! The cluster that is measured: real servers over memory stores, real clients, one directory tree.

use crate::costs::Costs;
use crate::worker::Files;
use crate::world::{Busy, Process, Virtual};
use pando_auth::{Secret, Secrets};
use pando_client::{CACHE_BYTES, Client, ClientConfig};
use pando_cluster::{ClusterMap, Coherence, MemCoord, Placement, Plan, ServerInfo};
use pando_data::MemBlocks;
use pando_env::Env;
use pando_server::{Executed, Limits, MetaServer, Observer, ServerConfig, Stats, format_store};
use pando_store::{Batch, Disk, DiskFaults, Durability, Level, LocalFuture, Lsn, MemStore, NoFaults, Store};
use pando_types::{AuthMode, FsId, Ids, MapEpoch, ServerId, Term, Timestamp};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// In `async` the log is synced after so many bytes; this many batches make about as many.
const ASYNC_BATCHES: u64 = 48;
/// How often that is looked at.
const ASYNC_LOOK: Duration = Duration::from_millis(2);
/// Virtual time that nothing here may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// What is measured on.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Everything that is random follows from it.
    pub seed: u64,
    /// Metadata servers.
    pub servers: u16,
    /// Clients, each a process with one operation at a time.
    pub clients: u32,
    /// Of all stores.
    pub durability: Durability,
    /// How what clients know is kept true.
    pub coherence: Coherence,
    /// How new directories get their IDs, and with them their servers.
    pub ids: Ids,
    /// Where the entries of a directory are.
    pub placement: Placement,
    /// Where clients make their files.
    pub files: Files,
    /// Bytes of directories a client keeps in mind.
    pub cache_bytes: usize,
    /// What things take.
    pub costs: Rc<Costs>,
}

impl Setup {
    /// As the paper has it: stores that sync in the background.
    pub fn new(servers: u16, clients: u32, costs: Rc<Costs>) -> Setup {
        Setup {
            seed: 1,
            servers,
            clients,
            durability: Durability::Async,
            coherence: Coherence::Lazy,
            ids: Ids::Predicted,
            placement: Placement::Directory,
            files: Files::Own,
            cache_bytes: CACHE_BYTES,
            costs,
        }
    }

    fn map(&self) -> Result<ClusterMap, String> {
        let infos: Vec<ServerInfo> = (1..=self.servers)
            .map(|n| ServerInfo {
                id: ServerId(n),
                address: format!("s{n}"),
                metrics: String::new(),
            })
            .collect();
        let map = ClusterMap {
            fs: FsId(u128::from(self.seed) + 1),
            epoch: MapEpoch(1),
            slots: ClusterMap::spread(&infos),
            term: Term(1),
            coordinator: ServerId(1),
            keeper: ServerId(1),
            servers: infos,
            inline_limit: 4096,
            block_size: 1 << 20,
            blocks: "sim:".into(),
            name_bits: 55,
            id_bits: 128,
            auth: AuthMode::None,
            coherence: self.coherence,
            placement: self.placement,
            ids: self.ids,
            updates: pando_cluster::DirectoryUpdates::ParentFirst,
            plan: Plan::default(),
        };
        map.check().map_err(|e| e.to_string())?;
        Ok(map)
    }
}

/// A device that takes time to sync, and is otherwise memory.
struct Device {
    process: Rc<Process>,
    costs: Rc<Costs>,
    /// Batches since a sync began.
    batches: Cell<u64>,
}

impl DiskFaults for Device {
    fn sync(&self) -> LocalFuture<Result<(), String>> {
        let time = self.costs.sync(self.batches.replace(0));
        let timer = self.process.sleep(Duration::from_nanos(time));
        Box::pin(async move {
            timer.await;
            Ok(())
        })
    }

    fn applied(&self, _lsn: Lsn, _batch: &Batch) {
        self.batches.set(self.batches.get() + 1);
    }
}

/// Reports servers that stop.
struct Watcher(Weak<Virtual>, ServerId);

impl Observer for Watcher {
    fn executed(&self, _: &Executed<'_>) {}

    fn fatal(&self, why: &str) {
        if let Some(world) = self.0.upgrade() {
            world.fail(|| format!("server {} stops: {why}", self.1));
        }
    }
}

struct Server {
    process: Rc<Process>,
    running: Rc<RefCell<Option<Rc<MetaServer>>>>,
    store: Rc<MemStore>,
}

/// One client process.
pub(crate) struct Program {
    pub process: Rc<Process>,
    pub client: RefCell<Rc<Client>>,
}

/// The cluster.
pub(crate) struct Cluster {
    pub world: Rc<Virtual>,
    servers: Vec<Server>,
    pub programs: Vec<Program>,
    map: ClusterMap,
}

impl Cluster {
    /// Makes the filesystem and starts everything. Every client knows every server.
    pub fn start(setup: &Setup) -> Result<Rc<Cluster>, String> {
        let map = setup.map()?;
        let world = Virtual::new(setup.seed, setup.costs.clone(), Rc::new(map.clone()));
        let mut servers = Vec::new();
        for info in &map.servers {
            servers.push(start_server(setup, &world, &map, info.id)?);
        }
        let all_serve = || servers.iter().all(|s| s.running.borrow().is_some());
        world.run_until(PATIENCE, all_serve)?;
        let programs: Vec<Program> = (0..setup.clients)
            .map(|_| {
                let process = world.process(None);
                let client = RefCell::new(new_client(&process, &map, setup.cache_bytes));
                Program { process, client }
            })
            .collect();
        let cluster = Rc::new(Cluster {
            world,
            servers,
            programs,
            map,
        });
        cluster.greet()?;
        Ok(cluster)
    }

    /// Puts new clients in the place of those there were. Every client knows every server.
    pub fn renew_clients(&self, cache_bytes: usize) -> Result<(), String> {
        for program in &self.programs {
            *program.client.borrow_mut() = new_client(&program.process, &self.map, cache_bytes);
        }
        self.greet()
    }

    fn greet(&self) -> Result<(), String> {
        let ids: Rc<Vec<ServerId>> = Rc::new(self.map.servers.iter().map(|s| s.id).collect());
        self.all_do(|_, program| {
            let (client, ids) = (program.client.borrow().clone(), ids.clone());
            Box::pin(async move {
                for id in &*ids {
                    client.greet(*id, true).await;
                }
                Ok(())
            })
        })
    }

    /// Every client does something, and this returns when all have.
    pub fn all_do(
        &self,
        what: impl Fn(usize, &Program) -> LocalFuture<Result<(), String>>,
    ) -> Result<(), String> {
        let left = Rc::new(Cell::new(self.programs.len()));
        for (number, program) in self.programs.iter().enumerate() {
            let (left, world) = (left.clone(), self.world.clone());
            let doing = what(number, program);
            program.process.begin(Box::pin(async move {
                if let Err(why) = doing.await {
                    world.fail(|| format!("client {number}: {why}"));
                }
                left.set(left.get() - 1);
            }));
        }
        self.world.run_until(PATIENCE, || left.get() == 0)
    }

    /// What each server has worked so far.
    pub fn busy(&self) -> Vec<Busy> {
        self.servers.iter().map(|s| s.process.busy()).collect()
    }

    /// How many records each server has.
    pub fn records(&self) -> Vec<u64> {
        self.servers.iter().map(|s| s.store.records()).collect()
    }

    /// What the servers counted, together.
    pub fn counted(&self, of: impl Fn(&Stats) -> u64) -> u64 {
        let running = self.servers.iter().filter_map(|s| s.running.borrow().clone());
        running.map(|s| of(&s.stats())).sum()
    }

    /// Halves of directories that servers have given away.
    pub fn splits(&self) -> u64 {
        let running = self.servers.iter().filter_map(|s| s.running.borrow().clone());
        running.map(|s| s.split_stats().given).sum()
    }

    /// Messages the clients waited for, one after the other.
    pub fn round_trips(&self) -> u64 {
        let trips = |p: &Program| p.client.borrow().stats().round_trips;
        self.programs.iter().map(trips).sum()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.world.tear_down();
    }
}

fn new_client(process: &Rc<Process>, map: &ClusterMap, cache_bytes: usize) -> Rc<Client> {
    let config = ClientConfig {
        cache_bytes,
        ..ClientConfig::new(map.clone())
    };
    let client = Client::new(process.world(), config);
    process.set_node(client.clone());
    client
}

fn start_server(
    setup: &Setup,
    world: &Rc<Virtual>,
    map: &ClusterMap,
    id: ServerId,
) -> Result<Server, String> {
    let process = world.process(Some(id));
    let disk = Disk::new();
    let made = MemStore::open(&disk, setup.durability, Rc::new(NoFaults));
    let now = Timestamp {
        secs: 1_600_000_000,
        nanos: 0,
    };
    format_store(&made, id, map, now, (0, 0)).map_err(|e| e.to_string())?;
    let device = Device {
        process: process.clone(),
        costs: setup.costs.clone(),
        batches: Cell::new(0),
    };
    let store = Rc::new(MemStore::open(&disk, setup.durability, Rc::new(device)));
    let config = ServerConfig {
        id,
        map: map.clone(),
        secrets: Secrets::new(map.fs, Secret::new([0x5a; 32]), Vec::new()),
        limits: Limits {
            // Keeping sessions alive is the shells' duty; here nobody is silent for long.
            session_timeout: Duration::from_secs(3600),
            // As it was calibrated.
            owed_after: Duration::ZERO,
            ..Limits::default()
        },
    };
    // Nobody fails, and nobody comes or goes.
    let coord = Rc::new(MemCoord::fixed(map.clone()));
    let running: Rc<RefCell<Option<Rc<MetaServer>>>> = Rc::default();
    let watcher = Rc::new(Watcher(Rc::downgrade(world), id));
    let (p, s, w, out) = (process.clone(), store.clone(), world.clone(), running.clone());
    let kept = store.clone();
    process.begin(Box::pin(async move {
        match MetaServer::start(config, p.world(), s, Rc::new(MemBlocks::new()), watcher, coord).await {
            Ok(server) => {
                p.set_node(server.clone());
                *out.borrow_mut() = Some(server);
            }
            Err(e) => w.fail(|| format!("server {id} does not start: {e}")),
        }
    }));
    if setup.durability == Durability::Async {
        let p = process.clone();
        process.begin(Box::pin(async move {
            loop {
                p.sleep(ASYNC_LOOK).await;
                let applied = store.applied();
                if applied.0 >= store.safe(Level::Synced).0 + ASYNC_BATCHES
                    && store.wait(applied, Level::Synced).await.is_err()
                {
                    return;
                }
            }
        }));
    }
    Ok(Server {
        process,
        running,
        store: kept,
    })
}
