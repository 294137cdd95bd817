//! A client of a cluster, driven on the calling thread.

use crate::blocks;
use crate::cluster_dir::{ClusterDir, map_in};
use crate::key_file::KeyFile;
use crate::pki;
use anyhow::{Context, Result, bail};
use pando_auth::Introduction;
use pando_blocks::{Place, Store};
use pando_client::{CACHE_BYTES, Client, ClientConfig, Resolution};
use pando_cluster::{ClusterFile, ClusterMap};
use pando_net::{Options, Reactor, Tls, Waiting};
use pando_types::{AuthMode, Cred, IdentityId, Users};
use pando_wire::{Role, Way};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How paths are resolved.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ResolutionArg {
    /// One component after the other.
    Sequential,
    /// All at once, by predicted directory IDs.
    #[default]
    Speculative,
}

impl From<ResolutionArg> for Resolution {
    fn from(arg: ResolutionArg) -> Resolution {
        match arg {
            ResolutionArg::Sequential => Resolution::Sequential,
            ResolutionArg::Speculative => Resolution::Speculative,
        }
    }
}

/// How a client comes to what paths lead to.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Paths {
    /// How paths are resolved. (A mount is asked for one component at a time, so it makes no difference
    /// there.)
    #[arg(long, global = true, value_enum, default_value_t = ResolutionArg::Speculative)]
    pub resolution: ResolutionArg,
    /// Bytes of directories that are kept in mind; 0: every path is resolved from the root.
    #[arg(long, global = true, value_name = "BYTES", default_value_t = CACHE_BYTES)]
    pub cache_bytes: usize,
}

impl Default for Paths {
    fn default() -> Paths {
        Paths {
            resolution: ResolutionArg::default(),
            cache_bytes: CACHE_BYTES,
        }
    }
}

/// As what a command talks to the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Party {
    /// A client, with the key it has.
    Client,
    /// An operator: whoever can read the cluster's secret.
    Operator,
}

/// A connected client. Not shared between threads: each opens its own.
pub struct Connection {
    /// Drives it.
    pub reactor: Rc<Reactor>,
    /// Asks.
    pub client: Rc<Client>,
    /// File data above the inline limit.
    pub blocks: Rc<Store>,
    /// The cluster's file.
    pub file: ClusterFile,
    /// The users it may act for, as far as is known here.
    users: Users,
}

impl Connection {
    /// Opens a client of the cluster in `dir`. Nothing is sent yet.
    pub fn open(dir: &ClusterDir, party: Party, waiting: Waiting, give_up: Duration) -> Result<Connection> {
        let options = Options {
            waiting,
            ..Options::default()
        };
        Connection::open_with(dir, party, options, give_up, Paths::default())
    }

    /// The same with more said about the transport, resolving paths in the way that was asked for.
    pub fn open_with(
        dir: &ClusterDir,
        party: Party,
        options: Options,
        give_up: Duration,
        paths: Paths,
    ) -> Result<Connection> {
        Connection::of(dir, dir.load()?, party, options, give_up, paths)
    }

    /// An operator of a cluster whose map is newer than the copy in the folder.
    pub fn operate(dir: &ClusterDir, file: ClusterFile, give_up: Duration) -> Result<Connection> {
        let options = Options {
            waiting: Waiting::Blocking,
            ..Options::default()
        };
        Connection::of(dir, file, Party::Operator, options, give_up, Paths::default())
    }

    fn of(
        dir: &ClusterDir,
        file: ClusterFile,
        party: Party,
        options: Options,
        give_up: Duration,
        paths: Paths,
    ) -> Result<Connection> {
        let map = file.map(&dir.path)?;
        let Introduced {
            introduction,
            identity,
            own,
            users,
            tls,
        } = introduce(dir, party, &map)?;
        let reactor = Reactor::new(options, introduction).context("cannot open an event queue")?;
        if let Some(tls) = tls {
            reactor.set_tls(tls);
        }
        reactor.set_map(&map);
        // Most commands need no bytes of files, and who asks for names need have no way to them.
        let blocks = blocks_later(dir, &map);
        let config = ClientConfig {
            give_up,
            resolution: paths.resolution.into(),
            cache_bytes: paths.cache_bytes,
            identity,
            own,
            ..ClientConfig::new(map)
        };
        let client = Client::new(reactor.clone(), config);
        reactor.set_node(client.clone());
        let for_map = Rc::downgrade(&reactor);
        client.on_map(move |map| {
            if let Some(reactor) = for_map.upgrade() {
                reactor.set_map(map);
            }
        });
        let folder = dir.path.clone();
        client.find_map(move || map_in(&folder));
        Ok(Connection {
            reactor,
            client,
            blocks: Rc::new(blocks),
            file,
            users,
        })
    }

    /// Looks where bytes of files are that will be needed. If they are not where this machine's map says, and
    /// are where a server has them, they are used there; else their first use says why it fails.
    pub fn seek_blocks(&mut self, dir: &ClusterDir) -> Result<()> {
        let mut map = self.file.map(&dir.path)?;
        let known = map.blocks.clone();
        if blocks::find(&mut map, || blocks::servers_have(self), true).is_ok() && map.blocks != known {
            self.blocks = Rc::new(blocks_later(dir, &map));
        }
        Ok(())
    }

    /// Runs one future to its end.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.reactor.block_on(future)
    }

    /// The identity of this process, with those of its groups that the connection's identity may claim.
    pub fn my_cred(&self) -> Cred {
        self.users.narrow(my_cred())
    }

    /// Why servers cannot be talked to, as far as the transport knows; for messages to people.
    pub fn trouble(&self) -> Option<String> {
        let map = self.client.map();
        let reasons: Vec<String> = map
            .servers
            .iter()
            .filter_map(|s| {
                self.reactor
                    .peer_error(s.id)
                    .map(|e| format!("server {} at {}: {e}", s.id, s.address))
            })
            .collect();
        if reasons.is_empty() {
            None
        } else {
            Some(reasons.join("; "))
        }
    }

    /// The same, to put behind a sentence that says who does not answer; nothing if nothing is known.
    pub fn because(&self) -> String {
        self.trouble().map_or(String::new(), |why| format!(" ({why})"))
    }
}

/// Says to servers who a process is, and to its client what that means.
pub struct Introduced {
    /// For the servers.
    pub introduction: Introduction,
    /// The identity it has then.
    pub identity: IdentityId,
    /// For whom the client acts when no program asks.
    pub own: Cred,
    /// The users it may act for, as far as is known here.
    pub users: Users,
    /// What is shown, and below everything, in mode `tls`.
    pub tls: Option<Arc<Tls>>,
}

/// How a command introduces itself.
pub fn introduce(dir: &ClusterDir, party: Party, map: &ClusterMap) -> Result<Introduced> {
    let introduction = |role, key| Introduction {
        fs: map.fs,
        role,
        key,
    };
    let everybody = |introduction| Introduced {
        introduction,
        identity: IdentityId::ANYONE,
        own: Cred::root(),
        users: Users::Any,
        tls: None,
    };
    match (party, map.auth) {
        (Party::Operator, _) => {
            let key = dir.secrets(map.fs)?.cluster_key();
            let tls = match map.auth {
                AuthMode::Tls => Some(pki::of_operator(dir)?),
                AuthMode::None | AuthMode::Key => None,
            };
            Ok(Introduced {
                tls,
                ..everybody(introduction(Role::Operator, Some(key)))
            })
        }
        (Party::Client, AuthMode::None) => {
            if let Some(path) = &dir.key {
                KeyFile::load(path)?.is_of(map.fs)?;
                bail!(
                    "clients of this filesystem prove nothing (mode none), so what the key {} restricts would not be: leave out --key and \
                     $PANDO_KEY, or have the servers ask for keys (docs/security.md)",
                    path.display()
                );
            }
            Ok(everybody(introduction(Role::Client(Way::Nobody), None)))
        }
        (Party::Client, AuthMode::Key | AuthMode::Tls) => {
            let path = dir.client_key();
            if !path.exists() {
                bail!(
                    "clients of this filesystem need a key or certificate, and {} is not there; make one with `pando auth add NAME \
                     --any-uid --out {0}` where the servers' secret is, or say --key FILE",
                    path.display()
                );
            }
            let file = KeyFile::load(&path)?;
            Ok(Introduced {
                introduction: file.introduction(map.fs, map.auth)?,
                identity: file.id(),
                own: file.own(),
                users: file.users(),
                tls: match map.auth {
                    AuthMode::Tls => Some(pki::of_client(path, file.id())?),
                    AuthMode::None | AuthMode::Key => None,
                },
            })
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A short goodbye, so that the session's records go now and not in a minute; whoever is away is not
        // waited for.
        let client = self.client.clone();
        let world: pando_env::World = self.reactor.clone();
        self.reactor.block_on(async {
            let goodbye: pando_env::LocalFuture<()> = Box::pin(async move { client.close().await });
            pando_env::sync::first(goodbye, world.sleep(Duration::from_millis(200))).await;
        });
    }
}

/// The block store a map names, once it is needed.
fn blocks_later(dir: &ClusterDir, map: &ClusterMap) -> Store {
    Store::later(Place {
        place: map.blocks.clone(),
        block_size: map.block_size,
        fs: map.fs,
        own: Some(dir.path.clone()),
        advice: blocks::advice(map),
    })
}

/// The block store a map names, for a server.
pub fn open_blocks(dir: &ClusterDir, map: &ClusterMap) -> Result<Store> {
    Store::open_in(&map.blocks, map.block_size, map.fs, Some(&dir.path)).with_context(|| {
        format!(
            "cannot use the block store {}; if it is a shared folder, is it mounted?",
            map.blocks
        )
    })
}

/// The identity of this process.
pub fn my_cred() -> Cred {
    Cred {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: rustix::process::getgroups()
            .map(|g| g.iter().map(|g| g.as_raw()).collect())
            .unwrap_or_default(),
    }
}
