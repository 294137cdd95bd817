//! The cluster under test: servers that start, die and start again on their devices.

use crate::aim::Aims;
use crate::coord::{Service, SimCoord};
use crate::disk::{Device, OpenDevice};
use crate::faults::Effects;
use crate::judge::Judge;
use crate::settings::Settings;
use crate::violation::Kind;
use crate::world::{Death, Life, MS, NodeId, Role, SEC, Sim, Tap, Time, US};
use pando_auth::{Secret, Secrets};
use pando_cluster::{ClusterMap, Coherence, Coord, MemCoord, ServerInfo};
use pando_data::{BlockError, Blocks, FileKey, MemBlocks, StoredBlock};
use pando_env::Env;
use pando_env::rng::Rng;
use pando_model::Model;
use pando_server::{Executed, MetaServer, Observer, ServerConfig, format_store};
use pando_store::{Durability, Level, LocalFuture, MemStore, NoFaults, Store};
use pando_types::{AuthMode, FsId, MapEpoch, Mono, Perm, ServerId, Term, Timestamp};
use pando_wire::Message;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Mean time that opening a store takes, where it takes any.
const OPENING: Time = 300 * MS;
/// Old maps of which a server may have a copy.
const COPIES: usize = 5;

type OnStart = Box<dyn FnOnce(&Device)>;

/// What the servers share. The clients do not know it.
pub fn secrets(map: &ClusterMap) -> Secrets {
    Secrets::new(map.fs, Secret::new([0x5a; 32]), Vec::new())
}

/// Hears of the death of a client process.
pub type HearDeath = Rc<dyn Fn(&Rc<Life>)>;

/// A server: its machine, its device, and the process on it.
pub struct Server {
    /// Its number.
    pub id: ServerId,
    /// Its machine.
    pub node: NodeId,
    /// Its device.
    pub device: Rc<Device>,
    /// The process, once it serves.
    running: RefCell<Option<Rc<MetaServer>>>,
    /// Messages that reached it and were not answered yet.
    open: RefCell<BTreeSet<u64>>,
    /// How long it stays down when it dies; `None`: until it is told to start.
    downtime: Cell<Option<Time>>,
    /// Crash points to arm when it starts next.
    on_start: RefCell<Option<OnStart>>,
}

/// Counts of the servers' lives.
#[derive(Clone, Copy, Default, Debug)]
pub struct Recoveries {
    /// Starts after a death.
    pub starts: u64,
    /// Of them, those that found prepared transactions.
    pub in_doubt: u64,
    /// Deaths before the start was finished.
    pub died_starting: u64,
}

/// The cluster.
pub struct Cluster {
    /// The world.
    pub sim: Rc<Sim>,
    /// How this seed is set up.
    pub settings: Settings,
    /// The servers.
    pub servers: Vec<Server>,
    /// File data.
    pub blocks: MemBlocks,
    /// What the faults did.
    pub effects: RefCell<Effects>,
    /// What faults wait for.
    pub aims: RefCell<Aims>,
    /// The last maps that were in force: copies of which one may stand on a machine whose servers cannot ask.
    copies: RefCell<VecDeque<ClusterMap>>,
    /// Who is there, and what the map is.
    pub coord: Rc<Service>,
    judge: Rc<Judge>,
    rng: RefCell<Rng>,
    recoveries: Cell<Recoveries>,
    /// Counts of servers that are gone.
    past: RefCell<BTreeMap<&'static str, u64>>,
    /// Deaths of servers: what was on the way when they happened.
    on_client_death: RefCell<Option<HearDeath>>,
    /// What was said lately, for those who listen and repeat it.
    overheard: RefCell<VecDeque<Overheard>>,
}

/// A message that somebody else sent.
#[derive(Clone)]
pub struct Overheard {
    /// The machine it came from.
    pub from: NodeId,
    /// The machine it went to.
    pub to: NodeId,
    /// What.
    pub message: Message,
}

impl Cluster {
    /// Formats a cluster; nothing runs yet.
    pub fn format(sim: &Rc<Sim>, settings: Settings) -> Result<Rc<Cluster>, String> {
        let mut rng = sim.stream(3);
        let infos: Vec<ServerInfo> = (1..=settings.servers)
            .map(|n| ServerInfo {
                id: ServerId(n),
                address: format!("s{n}"),
                metrics: String::new(),
            })
            .collect();
        let map = ClusterMap {
            fs: FsId(u128::from(rng.next()) << 64 | u128::from(rng.next())),
            epoch: MapEpoch(1),
            slots: ClusterMap::spread(&infos),
            term: Term(1),
            coordinator: ServerId(1 + rng.below(u64::from(settings.servers)) as u16),
            keeper: ServerId(1 + rng.below(u64::from(settings.servers)) as u16),
            servers: infos,
            inline_limit: settings.inline_limit,
            block_size: settings.block_size,
            blocks: "sim:".into(),
            name_bits: settings.name_bits,
            id_bits: settings.id_bits,
            auth: match settings.keyed {
                true => AuthMode::Key,
                false => AuthMode::None,
            },
            coherence: settings.lease.map_or(Coherence::Lazy, Coherence::Lease),
            placement: settings.placement,
            ids: settings.ids,
            updates: settings.updates,
            plan: pando_cluster::Plan::default(),
        };
        map.check().map_err(|e| e.to_string())?;
        let now = Timestamp {
            secs: 1_600_000_000,
            nanos: 0,
        };
        let mut servers = Vec::new();
        let joining = (1..=settings.spares).map(|n| settings.servers + n).map(ServerId);
        for id in map.servers.iter().map(|s| s.id).chain(joining) {
            let node = sim.machine(Role::Server(id));
            let device = Device::new(id, settings.speed, sim.stream(100 + u64::from(id.0)));
            let store = MemStore::open(&device.disk, settings.durability, Rc::new(NoFaults));
            format_store(&store, id, &map, now, (0, 0)).map_err(|e| e.to_string())?;
            // Opened once more, so that it is on the device for certain: the server may start much later.
            drop(MemStore::open(
                &device.disk,
                settings.durability,
                Rc::new(NoFaults),
            ));
            servers.push(Server {
                id,
                node,
                device,
                running: RefCell::new(None),
                open: RefCell::default(),
                downtime: Cell::new(None),
                on_start: RefCell::new(None),
            });
        }
        let disks = servers.iter().map(|s| (s.id, s.device.disk.clone())).collect();
        let model = Model::new(Perm::new(0o755), 0, 0, now);
        let judge = Judge::new(sim.clone(), settings.durability, map.clone(), disks, model)?;
        for s in &servers {
            s.device.watched_by(judge.clone());
        }
        let world = sim.clone();
        let coord = MemCoord::new(map, Duration::from_nanos(settings.coord_lease), move || {
            Mono(world.now())
        });
        let coord = Service::new(coord);
        let cluster = Rc::new(Cluster {
            sim: sim.clone(),
            settings,
            servers,
            blocks: MemBlocks::new(),
            effects: RefCell::default(),
            aims: RefCell::new(Aims::new(sim.stream(13))),
            copies: RefCell::default(),
            coord,
            judge,
            rng: RefCell::new(rng),
            recoveries: Cell::default(),
            past: RefCell::default(),
            on_client_death: RefCell::new(None),
            overheard: RefCell::default(),
        });
        let me = Rc::downgrade(&cluster);
        cluster.coord.on_map(Box::new(move |map| {
            let Some(me) = me.upgrade() else { return };
            let back = me.aims.borrow_mut().map_changed(&map);
            me.let_go(back);
            let mut copies = me.copies.borrow_mut();
            copies.push_back(map.clone());
            if copies.len() > COPIES {
                copies.pop_front();
            }
            me.judge.map_in_force(map);
        }));
        sim.set_tap(Rc::new(ClusterTap(Rc::downgrade(&cluster))));
        Ok(cluster)
    }

    /// The judge.
    pub fn judge(&self) -> &Rc<Judge> {
        &self.judge
    }

    /// The map in force.
    pub fn map(&self) -> Rc<ClusterMap> {
        Rc::new(self.coord.known.now().map)
    }

    /// A new map, for everything that starts from here on.
    pub fn set_map(&self, map: ClusterMap) {
        // Whoever moves slots while nothing runs gives the new map to every machine.
        self.copies.borrow_mut().clear();
        self.judge.new_map(map.clone());
        self.coord.known.put(map);
    }

    /// What was said lately, the latest last.
    pub fn overheard(&self) -> Vec<Overheard> {
        self.overheard.borrow().iter().cloned().collect()
    }

    fn overhear(&self, from: NodeId, to: NodeId, message: &Message) {
        if self.settings.overhears == 0 {
            return;
        }
        let mut overheard = self.overheard.borrow_mut();
        if overheard.len() >= self.settings.overhears {
            overheard.pop_front();
        }
        let message = message.clone();
        overheard.push_back(Overheard { from, to, message });
    }

    /// Who hears of the death of a client process.
    pub fn on_client_death(&self, f: HearDeath) {
        *self.on_client_death.borrow_mut() = Some(f);
    }

    /// What a server finds that starts: the map in force, or an old copy of it.
    fn map_to_start_with(&self, id: ServerId) -> ClusterMap {
        let mut rng = self.rng.borrow_mut();
        let copies = self.copies.borrow();
        // Where slots move, what an old map says of them is what can go wrong.
        let old = match (self.settings.pendulum, self.settings.spares) {
            (true, _) => 50,
            (false, 0) => 10,
            (false, _) => 25,
        };
        if rng.percent(old) && !copies.is_empty() {
            let old = &copies[rng.index(copies.len())];
            if old.server(id).is_some() {
                return old.clone();
            }
        }
        (*self.map()).clone()
    }

    /// Starts a server, unless it runs.
    pub fn start(self: &Rc<Self>, index: usize) {
        let server = &self.servers[index];
        // Who has not joined yet, or has left, is not started by anybody.
        if self.sim.life(server.node).is_some() || self.map().server(server.id).is_none() {
            return;
        }
        let life = self.sim.start(server.node);
        self.judge.opened(server.id, life.number);
        if let Some(arm) = server.on_start.borrow_mut().take() {
            arm(&server.device);
        }
        let faults = Rc::new(OpenDevice::new(server.device.clone(), life.clone()));
        let store = Rc::new(MemStore::open(
            &server.device.disk,
            self.settings.durability,
            faults,
        ));
        let config = ServerConfig {
            id: server.id,
            map: self.map_to_start_with(server.id),
            secrets: secrets(&self.map()),
            limits: self.settings.limits.clone(),
        };
        let observer = Rc::new(Watcher {
            cluster: Rc::downgrade(self),
            index,
            life: life.clone(),
        });
        let blocks = Rc::new(SlowBlocks {
            inner: self.blocks.clone(),
            life: life.clone(),
        });
        let coord: Rc<dyn Coord> = Rc::new(SimCoord {
            service: self.coord.clone(),
            life: life.clone(),
        });
        let cluster = self.clone();
        let (l, s) = (life.clone(), store.clone());
        // The map may change while a server that has read it gets ready.
        let opening = {
            let mut rng = self.rng.borrow_mut();
            if rng.percent(20) { rng.skewed(OPENING) } else { 0 }
        };
        life.spawn(Box::pin(async move {
            if opening > 0 {
                l.sleep(Duration::from_nanos(opening)).await;
            }
            match MetaServer::start(config, l.world(), s, blocks, observer, coord).await {
                Ok(server) => cluster.serves(index, &l, server),
                Err(e) if l.alive() => {
                    if cluster.servers[index].device.failed.get() == Some(l.number) {
                        l.die(Death::Power);
                    } else {
                        cluster
                            .sim
                            .fail(Kind::WrongResult, format!("{} does not start: {e}", l.role));
                    }
                }
                Err(_) => {}
            }
        }));
        if self.settings.durability == Durability::Async {
            // The shell's duty in this mode: a sync every so often.
            let period = Duration::from_nanos(self.settings.async_period);
            let l = life.clone();
            life.spawn(Box::pin(async move {
                loop {
                    l.sleep(period).await;
                    if store.wait(store.applied(), Level::Synced).await.is_err() {
                        return;
                    }
                }
            }));
        }
    }

    fn serves(&self, index: usize, life: &Rc<Life>, server: Rc<MetaServer>) {
        let mut r = self.recoveries.get();
        r.starts += u64::from(server.boot().0 > 1);
        r.in_doubt += u64::from(server.stats().in_doubt > 0);
        self.recoveries.set(r);
        self.sim
            .note(|| format!("{} serves, boot {}", life.role, server.boot()));
        life.set_receiver(server.clone());
        let late = self.aims.borrow_mut().started(life.node);
        self.let_go(late);
        *self.servers[index].running.borrow_mut() = Some(server);
    }

    /// Messages that were kept arrive, each in its time.
    fn let_go(&self, messages: Vec<(u64, Time)>) {
        for (number, time) in messages {
            self.sim.let_go(|n| (n == number).then_some(time));
        }
    }

    /// The running process of a server.
    pub fn running(&self, index: usize) -> Option<Rc<MetaServer>> {
        self.servers[index].running.borrow().clone()
    }

    /// Whether a server has a running process.
    pub fn runs(&self, id: ServerId) -> bool {
        self.servers
            .iter()
            .any(|s| s.id == id && s.running.borrow().is_some())
    }

    /// Whether all servers serve.
    pub fn all_serve(&self) -> bool {
        let map = self.map();
        let mut named = self.servers.iter().filter(|s| map.server(s.id).is_some());
        named.all(|s| s.running.borrow().is_some())
    }

    /// Ends a server's process, if it runs; it starts again after `downtime`, or when told. What was on the
    /// way: the requests it had not answered and the batches it had not synced.
    pub fn kill(self: &Rc<Self>, index: usize, how: Death, downtime: Option<Time>) -> Option<(usize, usize)> {
        let server = &self.servers[index];
        server.downtime.set(downtime);
        let life = self.sim.life(server.node)?;
        let at_risk = self.at_risk(index);
        if self.sim.is_paused(server.node) {
            self.sim.resume(server.node);
        }
        life.die(how);
        Some(at_risk)
    }

    /// Requests a server has not answered, and batches it has not synced.
    pub fn at_risk(&self, index: usize) -> (usize, usize) {
        let server = &self.servers[index];
        let life = self.sim.life(server.node).map_or(0, |l| l.number);
        let _ = life;
        (server.open.borrow().len(), server.device.disk.unsynced())
    }

    /// How long a server stays down when it dies next.
    pub fn set_downtime(&self, index: usize, downtime: Option<Time>) {
        self.servers[index].downtime.set(downtime);
    }

    /// No crash point any more, nor one at the next start.
    pub fn disarm(&self, index: usize) {
        let server = &self.servers[index];
        server.device.disarm();
        server.on_start.borrow_mut().take();
    }

    /// What to do to a server's device when the server starts next.
    pub fn at_next_start(&self, index: usize, arm: impl FnOnce(&Device) + 'static) {
        *self.servers[index].on_start.borrow_mut() = Some(Box::new(arm));
    }

    /// The power of a machine that runs nothing fails: what its last process did not sync may go.
    pub fn power_loss(&self, index: usize) {
        let server = &self.servers[index];
        let unsynced = server.device.disk.unsynced();
        if unsynced == 0 {
            return;
        }
        let keep = self.rng.borrow_mut().index(unsynced + 1);
        let survived = server.device.disk.power_loss(keep);
        self.sim.note(|| {
            format!(
                "S{} loses {} of {unsynced} unsynced batches",
                server.id,
                unsynced - keep
            )
        });
        self.effects.borrow_mut().batches_lost += (unsynced - keep) as u64;
        self.judge.power_lost(server.id, survived);
    }

    /// Lives of servers so far.
    pub fn recoveries(&self) -> Recoveries {
        self.recoveries.get()
    }

    /// Sums of the servers' own counts.
    pub fn stats(&self) -> BTreeMap<&'static str, u64> {
        let mut sums = self.past.borrow().clone();
        for s in &self.servers {
            if let Some(server) = &*s.running.borrow() {
                add_stats(&mut sums, server);
            }
        }
        sums
    }

    fn died(self: &Rc<Self>, life: &Rc<Life>, how: Death) {
        let Role::Server(id) = life.role else {
            let f = self.on_client_death.borrow().clone();
            if let Some(f) = f {
                f(life);
            }
            return self.judge.replies.borrow_mut().gone(life.number);
        };
        let Some(index) = self.servers.iter().position(|s| s.id == id) else {
            return;
        };
        let server = &self.servers[index];
        let running = server.running.borrow_mut().take();
        match running {
            Some(server) => add_stats(&mut self.past.borrow_mut(), &server),
            None => {
                let mut r = self.recoveries.get();
                r.died_starting += 1;
                self.recoveries.set(r);
            }
        }
        server.open.borrow_mut().clear();
        if how == Death::Kill && self.rng.borrow_mut().percent(50) {
            // Known to be dead at once, as on one machine; else only when its time is over.
            self.coord.known.gone(id);
        }
        if how == Death::Power {
            self.power_loss(index);
        }
        if let Some(downtime) = server.downtime.get() {
            let me = Rc::downgrade(self);
            self.sim.after(downtime, move |_| {
                if let Some(me) = me.upgrade() {
                    me.start(index);
                }
            });
        }
    }
}

fn add_stats(sums: &mut BTreeMap<&'static str, u64>, server: &MetaServer) {
    let s = server.stats();
    for (name, n) in [
        ("operations", s.operations),
        ("replayed", s.replayed),
        ("commits", s.commits),
        ("aborts", s.aborts),
        ("collisions", s.collisions),
        ("in_doubt", s.in_doubt),
        ("busy", s.busy),
        ("peer_calls", s.peer_calls),
    ] {
        *sums.entry(name).or_default() += n;
    }
}

/// Passes what the world sees to the cluster and its judge.
struct ClusterTap(Weak<Cluster>);

impl Tap for ClusterTap {
    fn sent(&self, from: &Rc<Life>, to: NodeId, message: &Message) -> Time {
        let Some(cluster) = self.0.upgrade() else { return 0 };
        cluster.overhear(from.node, to, message);
        let server = match from.role {
            Role::Server(id) => Some(id.0),
            Role::Client(_) => None,
        };
        if let (Some(id), Message::Reply { id: number, .. }) = (server, message)
            && let Some(s) = cluster.servers.iter().find(|s| s.id.0 == id)
        {
            s.open.borrow_mut().remove(number);
        }
        cluster.judge.saw(from.number, server, message);
        let receiver = cluster.servers.iter().find(|s| s.node == to).map(|s| s.id);
        if let (Role::Server(from), Some(to)) = (from.role, receiver) {
            cluster.judge.lent.borrow_mut().sent(from, to, message);
        }
        let map = || cluster.map();
        let struck = cluster
            .aims
            .borrow_mut()
            .sent((from.node, to), receiver, message, map);
        let more = struck.hit.map_or(0, |(at, then)| then(at));
        struck.hold.max(more)
    }

    fn delivered(&self, to: &Rc<Life>, message: &Message) {
        let Some(cluster) = self.0.upgrade() else { return };
        if let (Role::Server(id), Message::Request { id: number, .. }) = (to.role, message)
            && let Some(s) = cluster.servers.iter().find(|s| s.id == id)
        {
            s.open.borrow_mut().insert(*number);
        }
        if let Role::Server(id) = to.role {
            cluster.judge.lent.borrow_mut().delivered(id, message);
        }
    }

    fn died(&self, life: &Rc<Life>, how: Death) {
        if let Some(cluster) = self.0.upgrade() {
            cluster.died(life, how);
        }
    }
}

/// Hears one server process.
struct Watcher {
    cluster: Weak<Cluster>,
    index: usize,
    life: Rc<Life>,
}

impl Observer for Watcher {
    fn executed(&self, e: &Executed<'_>) {
        let Some(cluster) = self.cluster.upgrade() else {
            return;
        };
        let id = cluster.servers[self.index].id;
        if self.life.alive() || cluster.judge.counts_while_dying(&self.life, id, e) {
            cluster.judge.executed(id, self.life.number, e);
        }
    }

    fn weighed(&self, e: &Executed<'_>) {
        if let Some(cluster) = self.cluster.upgrade()
            && self.life.alive()
        {
            cluster.judge.weighed(self.life.number, e);
        }
    }

    fn fatal(&self, why: &str) {
        let Some(cluster) = self.cluster.upgrade() else {
            return;
        };
        if !self.life.alive() {
            return;
        }
        let server = &cluster.servers[self.index];
        if server.device.failed.get() == Some(self.life.number) {
            cluster.effects.borrow_mut().device_failures += 1;
            // Repaired by restoring what the device has for certain.
            self.life.die(Death::Power);
        } else {
            cluster.sim.fail(
                Kind::WrongResult,
                format!("{} stops although its device is sound: {why}", self.life.role),
            );
        }
    }
}

/// Blocks that take time, as one process uses them.
pub struct SlowBlocks {
    /// The blocks themselves.
    pub inner: MemBlocks,
    /// Whose time it takes.
    pub life: Rc<Life>,
}

impl SlowBlocks {
    fn slowly<T: 'static>(
        &self,
        act: impl FnOnce(&MemBlocks) -> LocalFuture<Result<T, BlockError>> + 'static,
    ) -> LocalFuture<Result<T, BlockError>> {
        let (inner, life) = (self.inner.clone(), self.life.clone());
        Box::pin(async move {
            let time = 20 * US + life.random() % (200 * US);
            life.sleep(Duration::from_nanos(time)).await;
            act(&inner).await
        })
    }
}

impl Blocks for SlowBlocks {
    fn read(
        &self,
        file: FileKey,
        block: u64,
        offset: u32,
        len: u32,
    ) -> LocalFuture<Result<Vec<u8>, BlockError>> {
        self.slowly(move |b| b.read(file, block, offset, len))
    }
    fn write(
        &self,
        file: FileKey,
        block: u64,
        offset: u32,
        data: Vec<u8>,
    ) -> LocalFuture<Result<(), BlockError>> {
        self.slowly(move |b| b.write(file, block, offset, data))
    }
    fn truncate(&self, file: FileKey, block: u64, len: u32) -> LocalFuture<Result<(), BlockError>> {
        self.slowly(move |b| b.truncate(file, block, len))
    }
    fn sync(&self, file: FileKey, blocks: Vec<u64>) -> LocalFuture<Result<(), BlockError>> {
        self.slowly(move |b| b.sync(file, blocks))
    }
    fn present(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<Vec<u64>, BlockError>> {
        self.slowly(move |b| b.present(file, from, to))
    }
    fn stored(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<Vec<StoredBlock>, BlockError>> {
        self.slowly(move |b| b.stored(file, from, to))
    }

    fn remove(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<(), BlockError>> {
        self.slowly(move |b| b.remove(file, from, to))
    }
    fn room(&self) -> LocalFuture<Result<Option<u64>, BlockError>> {
        self.inner.room()
    }
}

/// Longest time without a fault after which a failed device's server must have stopped.
pub const STOP_WITHIN: Time = 5 * SEC;
