//! The real cluster: sockets and a client per thread.

use crate::calls;
use crate::driver::{Cluster, Driver};
use crate::fiber;
use pando_auth::Introduction;
use pando_blocks::Store;
use pando_client::locks::{Locker, Signs};
use pando_client::{Client, ClientConfig, Contents, Keeping};
use pando_cluster::ClusterMap;
use pando_data::Blocks;
use pando_env::{Env, LocalFuture, World};
use pando_net::{Along, Options, Reactor, Tls};
use pando_types::{Errno, Instance, Mono, Users};
use pando_wire::{EntryView, FsStat, LockPlace};
use std::future::Future;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A cluster reached over the network, its blocks in a directory or a bucket.
#[derive(Clone, Debug)]
pub struct NetCluster {
    map: ClusterMap,
    config: ClientConfig,
    options: Options,
    introduction: Introduction,
    tls: Option<Arc<Tls>>,
    blocks: Store,
    /// The threads of a mount share what they were told.
    instance: OnceLock<Instance>,
    keeping: Keeping,
    contents: Contents,
    users: Users,
    maps: Option<(PathBuf, FindMap)>,
}

/// Finds the map that is written down in a folder, if one is.
pub type FindMap = fn(&Path) -> Option<ClusterMap>;

impl NetCluster {
    /// The cluster of `config.map`, whose servers are told who this is, by `tls` if they are asked in that
    /// way. Fails if its blocks cannot be reached.
    pub fn new(
        config: ClientConfig,
        options: Options,
        introduction: Introduction,
        tls: Option<Arc<Tls>>,
    ) -> Result<NetCluster, String> {
        let map = config.map.clone();
        let blocks = Store::open(&map.blocks, map.block_size, map.fs).map_err(|e| e.to_string())?;
        pando_data::wait(blocks.check()).map_err(|e| e.to_string())?;
        Ok(NetCluster {
            map,
            config,
            options,
            introduction,
            tls,
            blocks,
            instance: OnceLock::new(),
            keeping: Keeping::default(),
            contents: Contents::default(),
            users: Users::Any,
            maps: None,
        })
    }

    /// For an identity that may act for these users.
    pub fn with_users(self, users: Users) -> NetCluster {
        NetCluster { users, ..self }
    }

    /// Where no server answers, another map is looked for in this folder.
    pub fn with_maps(self, folder: &Path, find: FindMap) -> NetCluster {
        NetCluster {
            maps: Some((folder.to_owned(), find)),
            ..self
        }
    }
}

impl Cluster for NetCluster {
    type Driver = NetDriver;

    fn connect(&self) -> Result<NetDriver, String> {
        let reactor = Reactor::new(self.options, self.introduction.clone()).map_err(|e| e.to_string())?;
        if let Some(tls) = &self.tls {
            reactor.set_tls(tls.clone());
        }
        reactor.set_map(&self.map);
        let world: World = reactor.clone();
        let instance = *self.instance.get_or_init(|| pando_client::new_instance(&world));
        let mut config = self.config.clone();
        config.instance = Some(instance);
        config.keeping = Some(self.keeping.clone());
        config.contents = Some(self.contents.clone());
        let client = Client::new(world, config);
        // The reactor holds the client already: a strong reference back would keep both for ever.
        let weak: Weak<Reactor> = Rc::downgrade(&reactor);
        client.on_map(move |map| {
            if let Some(reactor) = weak.upgrade() {
                reactor.set_map(map);
            }
        });
        if let Some((folder, find)) = self.maps.clone() {
            client.find_map(move || find(&folder));
        }
        if matches!(self.users, Users::Only { .. }) {
            client.act_for(calls::acts);
        }
        reactor.set_node(client.clone());
        Ok(NetDriver {
            reactor,
            client,
            blocks: self.blocks.clone(),
        })
    }

    fn keeping(&self) -> Option<Keeping> {
        Some(self.keeping.clone())
    }

    fn contents(&self) -> Option<Contents> {
        Some(self.contents.clone())
    }

    fn users(&self) -> Users {
        self.users.clone()
    }

    fn name(&self) -> String {
        format!("pando:{:032x}", self.map.fs.0)
    }
}

/// One thread's reactor and client.
pub struct NetDriver {
    reactor: Rc<Reactor>,
    client: Rc<Client>,
    blocks: Store,
}

impl Driver for NetDriver {
    type Ops = Client;

    fn ops(&self) -> &Client {
        &self.client
    }

    fn blocks(&self) -> &dyn Blocks {
        &self.blocks
    }

    fn now(&self) -> Mono {
        self.reactor.mono()
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        if !fiber::is_running() {
            self.client.heed(calls::heeded());
            return self.reactor.block_on(future);
        }
        let mut future = pin!(future);
        fiber::wait(std::future::poll_fn(|cx| {
            // Calls that wait beside it have heeded others meanwhile.
            self.client.heed(calls::heeded());
            let polled = future.as_mut().poll(cx);
            self.client.heed(None);
            polled
        }))
    }

    fn world(&self) -> World {
        self.reactor.clone()
    }

    fn along(&self, fd: BorrowedFd<'_>) -> io::Result<Along> {
        self.reactor.along(fd)
    }

    fn has_spare_core(&self) -> bool {
        self.reactor.has_spare_core()
    }

    fn root(&self) -> Result<EntryView, Errno> {
        self.run(self.client.root_handle())
    }

    fn statfs(&self) -> Result<FsStat, Errno> {
        self.run(self.client.statfs())
    }

    fn locker(&self, signs: Signs, on_lost: impl Fn(LockPlace) + 'static) -> Option<Rc<Locker>> {
        Some(Locker::new(self.client.clone(), signs, on_lost))
    }

    fn spawn(&self, task: LocalFuture<()>) {
        self.reactor.spawn(task);
    }

    fn keep_alive(&self) {
        self.run(self.client.keep_alive());
    }

    fn stay_alive(&self, every: Duration) {
        let (reactor, client) = (self.reactor.clone(), self.client.clone());
        self.spawn(Box::pin(async move {
            loop {
                reactor.sleep(every).await;
                client.keep_alive().await;
            }
        }));
    }

    fn keep_open(&self) {
        self.run(self.client.keep_open());
    }

    fn tell_closed(&self) {
        self.run(self.client.tell_closed());
    }

    fn close_keeping(&self) {
        self.run(self.client.close_keeping());
    }

    fn close(&self) {
        self.run(self.client.close());
    }
}

impl Drop for NetDriver {
    fn drop(&mut self) {
        self.reactor.shutdown();
    }
}
