//! A server on a thread of the benchmark's own process, so that what no option of a real one does can be done
//! to it.

use crate::args::Mode;
use crate::cluster_dir::{self, ClusterDir};
use crate::connect::open_blocks;
use crate::pki;
use crate::store_kinds::{StoreKind, StoreOptions};
use anyhow::{Context, Result};
use pando_auth::{Introduction, Secrets};
use pando_cluster::{ClusterMap, MemCoord};
use pando_env::Node;
use pando_net::{Options, Reactor, Waiting};
use pando_server::{Executed, Limits, MetaServer, Observer, ServerConfig};
use pando_store::Durability;
use pando_types::{AuthMode, ServerId};
use pando_wire::Role;
use std::rc::Rc;

struct Nobody;

impl Observer for Nobody {
    fn executed(&self, _: &Executed<'_>) {}
    fn fatal(&self, why: &str) {
        tracing::error!("the benchmark's server stops: {why}");
    }
}

/// How it is opened.
pub struct How {
    /// How it waits for messages.
    pub waiting: Waiting,
    /// Bytes of its store's cache.
    pub cache_bytes: usize,
    /// What is done to its secrets.
    pub secrets: fn(Secrets) -> Secrets,
    /// Its bounds and periods.
    pub limits: Limits,
}

/// It, and what drives it. Whoever made it calls [`Reactor::turn`] until nobody needs it any more.
pub struct Inside {
    pub reactor: Rc<Reactor>,
    pub server: Rc<MetaServer>,
    pub map: ClusterMap,
}

impl Inside {
    /// Starts server `id` of the cluster in a folder.
    pub fn open(dir: &ClusterDir, id: ServerId, how: &How) -> Result<Inside> {
        let file = dir.load()?;
        let map = file.map(&dir.path)?;
        let durability = match cluster_dir::mode(&file)? {
            Mode::Sync => Durability::Sync,
            Mode::Async => Durability::Async,
        };
        let options = StoreOptions {
            durability,
            cache_bytes: how.cache_bytes,
            ..StoreOptions::default()
        };
        let path = dir.store(id.0);
        let (opened, _) = StoreKind::at(&path).open(&path, &options)?;
        let secrets = (how.secrets)(dir.secrets(map.fs)?);
        let introduction = Introduction {
            fs: map.fs,
            role: Role::Server(id),
            key: Some(secrets.cluster_key()),
        };
        let options = Options {
            waiting: how.waiting,
            ..Options::default()
        };
        let reactor = Reactor::new(options, introduction)?;
        if map.auth == AuthMode::Tls {
            reactor.set_tls(pki::of_server(dir, id.0)?);
        }
        reactor.set_map(&map);
        opened.write_each_turn(&reactor);
        let config = ServerConfig {
            id,
            map: map.clone(),
            secrets,
            limits: how.limits.clone(),
        };
        let start = MetaServer::start(
            config,
            reactor.clone(),
            opened.store(),
            Rc::new(open_blocks(dir, &map)?),
            Rc::new(Nobody),
            Rc::new(MemCoord::fixed(map.clone())),
        );
        let server = reactor.block_on(start)?;
        Ok(Inside { reactor, server, map })
    }

    /// Takes messages from now on, all of them through `node`.
    pub fn listen(&self, node: Rc<dyn Node>) -> Result<()> {
        let me = self.map.server(self.server.id());
        let address = &me.context("a server that is not in its map")?.address;
        self.reactor.set_node(node);
        self.reactor
            .listen(address, self.server.boot(), self.server.clone())?;
        Ok(())
    }
}
