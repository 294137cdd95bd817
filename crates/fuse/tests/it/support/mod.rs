//! A cluster of real servers on threads of this process, stores in memory, file data in a temporary
//! directory.
#![allow(dead_code, clippy::unwrap_used)]

use pando_auth::{Introduction, Secret, Secrets};
use pando_client::ClientConfig;
use pando_cluster::{ClusterMap, Coherence, MemCoord, Placement, ServerInfo};
use pando_data::DirBlocks;
use pando_fuse::NetCluster;
use pando_net::{Options, Reactor, Stopper};
use pando_server::{Executed, Limits, MetaServer, Observer, ServerConfig, format_store};
use pando_store::{Durability, MemStore};
#[allow(unused_imports)] // an example has it, too
pub use pando_testing::can_mount;
use pando_types::{AuthMode, FsId, MapEpoch, ServerId, Term, Timestamp};
use pando_wire::{Role, Way};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Sizes of a test cluster.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub servers: u16,
    pub inline_limit: u32,
    pub block_size: u32,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            servers: 4,
            inline_limit: 64 * 1024,
            block_size: 4 << 20,
        }
    }
}

pub struct TestCluster {
    pub map: ClusterMap,
    servers: Vec<(Stopper, JoinHandle<()>)>,
}

struct Watch;

impl Observer for Watch {
    fn executed(&self, _: &Executed<'_>) {}
    fn fatal(&self, why: &str) {
        panic!("a server has failed: {why}");
    }
}

impl TestCluster {
    pub fn start(data: &Path, sizes: Sizes) -> TestCluster {
        let info = |i| ServerInfo {
            id: ServerId(i),
            address: String::new(),
            metrics: String::new(),
        };
        let servers: Vec<ServerInfo> = (0..sizes.servers).map(info).collect();
        let mut map = ClusterMap {
            fs: FsId(0x1234_5678),
            epoch: MapEpoch(1),
            slots: ClusterMap::spread(&servers),
            coordinator: servers[0].id,
            term: Term(1),
            keeper: servers[0].id,
            servers,
            inline_limit: sizes.inline_limit,
            block_size: sizes.block_size,
            blocks: format!("file:{}", data.display()),
            name_bits: 55,
            // Short IDs collide; the tests do not care.
            id_bits: std::env::var("PANDO_ID_BITS").map_or(128, |bits| bits.parse().unwrap()),
            auth: AuthMode::None,
            coherence: Coherence::Lazy,
            placement: Placement::Directory,
            ids: pando_types::Ids::Predicted,
            updates: pando_cluster::DirectoryUpdates::ParentFirst,
            plan: pando_cluster::Plan::default(),
        };
        map.check().unwrap();
        pando_blocks::Store::create(&map.blocks, map.fs, None).unwrap();
        // The system chooses the ports; then everybody is told.
        let started: Vec<Started> = map
            .servers
            .iter()
            .map(|s| serve(s.id, map.clone(), data))
            .collect();
        for (info, started) in map.servers.iter_mut().zip(&started) {
            info.address = started.address.to_string();
        }
        let servers = started
            .into_iter()
            .map(|s| {
                s.go.send(map.clone()).unwrap();
                (s.stopper, s.thread)
            })
            .collect();
        TestCluster { map, servers }
    }

    /// What mounts it; gives up soon, because nothing here is ever away for long.
    pub fn cluster(&self) -> NetCluster {
        let config = ClientConfig {
            give_up: Duration::from_secs(20),
            ..ClientConfig::new(self.map.clone())
        };
        let nobody = Introduction {
            fs: self.map.fs,
            role: Role::Client(Way::Nobody),
            key: None,
        };
        NetCluster::new(config, Options::default(), nobody, None).unwrap()
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        for (stopper, _) in &self.servers {
            stopper.stop();
        }
        for (_, thread) in self.servers.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Started {
    address: SocketAddr,
    stopper: Stopper,
    go: mpsc::Sender<ClusterMap>,
    thread: JoinHandle<()>,
}

fn serve(id: ServerId, map: ClusterMap, data: &Path) -> Started {
    let (ready, started) = mpsc::channel();
    let (go, addresses) = mpsc::channel();
    let blocks = DirBlocks::open(data).unwrap();
    let thread = std::thread::spawn(move || {
        let secrets = Secrets::new(map.fs, Secret::new([1; 32]), Vec::new());
        let me = Introduction {
            fs: map.fs,
            role: Role::Server(id),
            key: Some(secrets.cluster_key()),
        };
        let reactor = Reactor::new(Options::default(), me).unwrap();
        let store = Rc::new(MemStore::new(Durability::Sync));
        format_store(&*store, id, &map, Timestamp { secs: 1, nanos: 0 }, (0, 0)).unwrap();
        let config = ServerConfig {
            id,
            secrets,
            map,
            limits: Limits::default(),
        };
        let coord = Rc::new(MemCoord::fixed(config.map.clone()));
        let (blocks, watch) = (Rc::new(blocks), Rc::new(Watch));
        let start = MetaServer::start(config, reactor.clone(), store, blocks, watch, coord);
        let server = reactor.block_on(start).unwrap();
        reactor.set_node(server.clone());
        let address = reactor
            .listen("127.0.0.1:0", server.boot(), server.clone())
            .unwrap();
        ready.send((address, reactor.stopper())).unwrap();
        reactor.set_map(&addresses.recv().unwrap());
        reactor.run();
        reactor.shutdown();
    });
    let (address, stopper) = started.recv().unwrap();
    Started {
        address,
        stopper,
        go,
        thread,
    }
}
