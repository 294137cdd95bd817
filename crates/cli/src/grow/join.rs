//! `pando join`: the store of a new server, where it is, and its start. Whatever can be known to fail is
//! found out before anything is made.

use super::follow::Patience;
use super::{LOOK, Operator, Refused, cancel};
use crate::addresses::{self, on_loopback, server_at, stays_here};
use crate::args::Args;
use crate::pki::Authority;
use crate::process::RunLock;
use crate::store_kinds::StoreKind;
use crate::{coordination, process, stores, up};
use anyhow::{Context, Result, bail};
use pando_cluster::{ClusterMap, Server, ServerInfo};
use pando_types::{AuthMode, ServerId};
use pando_wire::ClusterRequest;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Arguments of `join`.
#[derive(clap::Args, Debug, Default)]
#[command(
    after_help = "Examples:\n  pando join\n  pando join --address 10.0.0.5:7000 --store /ssd/pando\n  pando join --cancel"
)]
pub struct JoinArgs {
    /// `HOST:PORT` of the new server; its metrics are at PORT+1000. [default: free ports of the loopback
    /// address]
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,
    /// Its store. [default: server-N in the cluster's folder]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Kind of its store. [default: rocksdb]
    #[arg(long, value_enum, value_name = "KIND")]
    pub store_kind: Option<StoreKind>,
    #[command(flatten)]
    pub patience: Patience,
    /// Add one more server although the last change is still under way. (Without this, its progress is
    /// shown.)
    #[arg(long)]
    pub another: bool,
    /// Put back a join that is under way: the new server gives back the slots that it has got so far, and
    /// leaves.
    #[arg(long, conflicts_with_all = ["another", "address", "store", "store_kind"])]
    pub cancel: bool,
}

pub fn join(args: &Args, options: &JoinArgs) -> Result<()> {
    if options.cancel {
        return cancel::join(args, options);
    }
    let operator = Operator::new(args)?;
    let turn = operator.turn()?;
    let before = operator.in_force()?;
    if before.to_move() > 0 && !options.another {
        drop(turn);
        operator.say(
            "Slots are on the move already; this is how far that is. (`--another` adds one more server.)",
        );
        return operator.follow("join", None, &before, &options.patience);
    }
    let server = operator.add(&turn, options, &[])?;
    drop(turn);
    operator.say(&format!("Server {} at {} has joined.", server.id, server.address));
    if let Some(store) = &options.store {
        operator.say(&format!(
            "Start it on its machine: pando server --dir {} --id {} --store {}",
            operator.dir.path.display(),
            server.id,
            store.display()
        ));
        if operator.dir.store(server.id).exists() {
            operator.say("On this one `pando up` starts it too.");
        }
    }
    operator.follow("join", Some(ServerId(server.id)), &before, &options.patience)
}

impl Operator {
    /// Whoever holds this is the only one who adds a server from this folder: a number is one join's until
    /// that is over.
    pub fn turn(&self) -> Result<RunLock> {
        stores::has_room(&self.dir.path)?;
        process::wait_for_lock(&self.dir, "join")
    }

    /// Waits until the coordinator answers, whoever that is; the map in force then.
    fn ready(&self) -> Result<ClusterMap> {
        let deadline = Instant::now() + self.patience;
        loop {
            self.newest();
            let map = self.in_force()?;
            if self.answers(map.coordinator) {
                return Ok(map);
            }
            if Instant::now() > deadline {
                bail!("{}", self.silent(map.coordinator));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// One more server joins; if its store is in the cluster's folder it is started, with these options, and
    /// answers when this returns. Nothing is made before it is known that somebody is there to be asked.
    pub fn add(&self, _turn: &RunLock, options: &JoinArgs, server_options: &[String]) -> Result<Server> {
        let map = self.ready()?;
        let id = map.next_server();
        addresses::reaches(options.address.as_deref(), &map)?;
        let server = match &options.address {
            Some(address) => server_at(id.0, address)?,
            None => on_loopback(id.0, 1, map.auth)?.pop().context("no free port")?,
        };
        stays_here(map.auth, &server.address)?;
        let info = ServerInfo {
            id,
            address: server.address.clone(),
            metrics: server.metrics.clone(),
        };
        let only = ClusterMap {
            servers: vec![info.clone()],
            ..map.clone()
        };
        coordination::suits(&coordination::place(&self.connection.file)?, &only)?;
        addresses::is_free(&server, &map)?;
        let path = match &options.store {
            Some(store) => stores::real(store)?,
            None => self.dir.store(id.0),
        };
        if options.store.is_some() && std::fs::read_dir(&path).is_ok_and(|mut found| found.next().is_some()) {
            // What a format was interrupted in is replaced; what somebody points to is not.
            bail!("{} is not empty; say a --store that is new", path.display());
        }
        stores::has_room(&path)?;
        let is_new = !path.exists();
        let kind = options.store_kind.unwrap_or(StoreKind::NEW);
        stores::make(&path, id, &map, (0, 0), kind)?;
        if map.auth == AuthMode::Tls {
            // Certificates from elsewhere are where people put them.
            if !self.dir.tls("server.pem").exists() {
                Authority::open(&self.dir, map.fs)?.certify_servers(&self.dir, &only)?;
            }
        }
        let asked = self.ask(ClusterRequest::Join {
            id,
            fs: map.fs,
            address: info.address,
            metrics: info.metrics,
        });
        if let Err(e) = asked {
            // Refused, it is nobody's, and would be taken for the store of whoever gets the number.
            if is_new && e.is::<Refused>() {
                let _ = std::fs::remove_dir_all(&path);
            }
            return Err(e);
        }
        if options.store.is_none() {
            self.start(id, server_options)
        } else if addresses::is_here(&server.address)? {
            self.note_store(id, &path)
        } else {
            Ok(())
        }
        .with_context(|| {
            format!("server {id} has joined but does not start; when that is mended, `pando up` starts it and it gets its slots")
        })?;
        Ok(server)
    }

    fn start(&self, id: ServerId, options: &[String]) -> Result<()> {
        let file = coordination::current(&self.dir)?;
        let started = up::start_servers(&self.dir, &file, &[id.0], options)?;
        tracing::info!(started = started.len(), "started");
        Ok(())
    }

    /// A store of this machine in another folder: what starts servers here finds it by a link.
    fn note_store(&self, id: ServerId, path: &Path) -> Result<()> {
        let link = self.dir.store(id.0);
        if link.canonicalize().is_ok_and(|there| there == path) {
            return Ok(());
        }
        std::os::unix::fs::symlink(path, &link)
            .with_context(|| format!("cannot make the link {}", link.display()))
    }
}
