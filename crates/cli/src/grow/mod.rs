//! `pando join`, `pando drain`, `pando rebalance`: which servers there are, and who has how many slots.
//!
//! The servers do the work and go on without the command; it only asks for it and shows how far it is.

use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::format::{on_loopback, server_at, stays_here};
use crate::pki::Authority;
use crate::progress::{Progress, Unit};
use crate::{coordination, process, stores, up};
use anyhow::{Context, Result, bail};
use pando_cluster::{ClusterMap, Server, ServerInfo};
use pando_net::Waiting;
use pando_types::{AuthMode, ServerId};
use pando_wire::{ClusterError, ClusterRequest, Request, Response};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Between two looks at how far it is.
const LOOK: Duration = Duration::from_millis(100);
/// So long without any slot moving, and people are told what may be the matter.
const STILL: Duration = Duration::from_secs(20);

/// Arguments of `join`.
#[derive(clap::Args, Debug, Default)]
#[command(after_help = "Examples:\n  pando join\n  pando join --address 10.0.0.5:7000 --store /ssd/pando")]
pub struct JoinArgs {
    /// `HOST:PORT` of the new server; its metrics are at PORT+1000. [default: free ports of the loopback address]
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,
    /// Its store. [default: server-N in the cluster's folder]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Return once the server has joined, and not when it has its share of the slots.
    #[arg(long)]
    pub no_wait: bool,
    /// Add one more server although the last change is still under way. (Without this, its progress is shown.)
    #[arg(long)]
    pub another: bool,
}

/// Arguments of `drain`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  pando drain 3")]
pub struct DrainArgs {
    /// Which server.
    pub server: u16,
    /// Return once it has begun.
    #[arg(long)]
    pub no_wait: bool,
}

/// Arguments of `rebalance`.
#[derive(clap::Args, Debug)]
pub struct RebalanceArgs {
    /// Return once it has begun.
    #[arg(long)]
    pub no_wait: bool,
}

/// Who asks for another cluster.
pub struct Operator {
    dir: ClusterDir,
    connection: Connection,
    /// How long it may take until somebody answers.
    patience: Duration,
    /// For scripts: what is done is told in JSON at the end.
    json: bool,
}

pub fn join(args: &Args, options: &JoinArgs) -> Result<()> {
    let operator = Operator::new(args)?;
    let before = operator.newest();
    if before.to_move() > 0 && !options.another {
        operator.say(
            "Slots are on the move already; this is how far that is. (`--another` adds one more server.)",
        );
        return operator.wait("join", None, &before, options.no_wait);
    }
    let server = operator.add(options, &[])?;
    operator.say(&format!("Server {} at {} has joined.", server.id, server.address));
    if let Some(store) = &options.store {
        operator.say(&format!(
            "Start it on its machine: pando server --dir {} --id {} --store {}",
            operator.dir.path.display(),
            server.id,
            store.display()
        ));
    }
    operator.wait("join", Some(ServerId(server.id)), &before, options.no_wait)
}

pub fn drain(args: &Args, options: &DrainArgs) -> Result<()> {
    let operator = Operator::new(args)?;
    let id = ServerId(options.server);
    let before = operator.newest();
    operator.ask(ClusterRequest::Drain(id))?;
    operator.wait("drain", Some(id), &before, options.no_wait)?;
    if options.no_wait {
        return Ok(());
    }
    let name = format!("server-{id}");
    if process::stop(&operator.dir, &name, Duration::from_secs(15))? {
        operator.say(&format!(
            "Server {id} has left and is stopped. Its store {} is of no use any more.",
            operator.dir.store(id.0).display()
        ));
    } else {
        operator.say(&format!(
            "Server {id} has left. If it runs on another machine, stop it there."
        ));
    }
    Ok(())
}

pub fn rebalance(args: &Args, options: &RebalanceArgs) -> Result<()> {
    let operator = Operator::new(args)?;
    let before = operator.newest();
    operator.ask(ClusterRequest::Rebalance)?;
    operator.wait("rebalance", None, &before, options.no_wait)
}

impl Operator {
    fn new(args: &Args) -> Result<Operator> {
        let patience = Duration::from_secs(args.wait);
        Operator::open(ClusterDir::of(args)?, patience, args.json)
    }

    /// Of the cluster in this folder.
    pub fn open(dir: ClusterDir, patience: Duration, json: bool) -> Result<Operator> {
        let connection = Connection::open(&dir, Party::Operator, Waiting::Blocking, patience)?;
        Ok(Operator {
            dir,
            connection,
            patience,
            json,
        })
    }

    fn say(&self, text: &str) {
        if !self.json {
            println!("{text}");
        }
    }

    /// The newest map that any server knows.
    pub fn newest(&self) -> std::rc::Rc<ClusterMap> {
        self.connection.run(self.connection.client.newest_map())
    }

    /// One more server joins; if it is on this machine it is started, with these options, and answers when this returns.
    pub fn add(&self, options: &JoinArgs, server_options: &[String]) -> Result<Server> {
        let map = self.newest();
        let id = map.next_server();
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
            ..(*map).clone()
        };
        coordination::suits(&coordination::place(&self.connection.file)?, &only)?;
        let path = options.store.clone().unwrap_or_else(|| self.dir.store(id.0));
        if options.store.is_some() && std::fs::read_dir(&path).is_ok_and(|mut found| found.next().is_some()) {
            // What a format was interrupted in is replaced; what somebody points to is not.
            bail!("{} is not empty; say a --store that is new", path.display());
        }
        stores::make(&path, id, &map, (0, 0))?;
        if map.auth == AuthMode::Tls {
            // Certificates from elsewhere are where people put them.
            if !self.dir.tls("server.pem").exists() {
                Authority::open(&self.dir, map.fs)?.certify_servers(&self.dir, &only)?;
            }
        }
        self.ask(ClusterRequest::Join {
            id,
            fs: map.fs,
            address: info.address,
            metrics: info.metrics,
        })?;
        let file = coordination::current(&self.dir)?;
        if options.store.is_none() {
            let started = up::start_servers(&self.dir, &file, server_options)?;
            tracing::info!(?started, "started");
        }
        Ok(server)
    }

    /// Asks the coordinator, whoever that is by then.
    pub fn ask(&self, request: ClusterRequest) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        let mut again = false;
        loop {
            let coordinator = self.newest().coordinator;
            let asked = Request::Cluster(request.clone());
            let client = &self.connection.client;
            match self.connection.run(client.admin(coordinator, asked)) {
                Ok(Response::Cluster(Ok(_))) => return Ok(()),
                // An earlier answer was lost: this is done.
                Ok(Response::Cluster(Err(why))) if again && is_done(&request, &why) => return Ok(()),
                Ok(Response::Cluster(Err(why))) => bail!("{}", explain(&why)),
                Ok(_) | Err(_) if Instant::now() < deadline => {
                    again = true;
                    std::thread::sleep(LOOK);
                }
                Ok(_) => {
                    bail!("server {coordinator} does not understand the question; is it an older program?")
                }
                Err(e) => bail!(
                    "the coordinator (server {coordinator}) does not answer: {e}; {}. Nothing is lost: ask again later",
                    self.connection
                        .trouble()
                        .unwrap_or_else(|| "see `pando status`".into())
                ),
            }
        }
    }

    /// Shows how far it is until it is done: nothing is left to move, and `id` is there or has left. What has moved is told
    /// by the map from before it was asked for: some may have by the time this looks.
    fn wait(&self, what: &str, id: Option<ServerId>, before: &ClusterMap, no_wait: bool) -> Result<()> {
        let began = Instant::now();
        let first = self.newest().to_move();
        let label = match what {
            "join" => "moving slots",
            "drain" => "draining",
            _ => "rebalancing",
        };
        let progress = Progress::new(label, Unit::Items, first.max(1));
        let (mut left, mut moved_at, mut warned) = (first, Instant::now(), false);
        loop {
            let map = self.newest();
            let now = map.to_move();
            let gone = what != "drain" || id.is_none_or(|id| map.server(id).is_none());
            if no_wait || now == 0 && gone {
                break;
            }
            if now != left {
                progress.add(left.saturating_sub(now));
                (left, moved_at, warned) = (now, Instant::now(), false);
            }
            if moved_at.elapsed() > STILL && !warned {
                warned = true;
                progress.complain(
                    "nothing has moved for a while: see `pando status` for servers that are down or full",
                );
            }
            std::thread::sleep(LOOK);
        }
        progress.finish();
        let map = self.newest();
        let moved = before
            .slots
            .iter()
            .zip(&map.slots)
            .filter(|(a, b)| a != b)
            .count();
        if self.json {
            let slots = |s: ServerId| map.slots.iter().filter(|o| **o == s).count();
            let servers: Vec<_> = map
                .servers
                .iter()
                .map(|s| json!({ "server": s.id.0, "slots": slots(s.id) }))
                .collect();
            let all = json!({
                "did": what, "server": id.map(|id| id.0), "epoch": map.epoch.0, "moved": moved,
                "to_move": map.to_move(), "leaving": map.plan.leaving.iter().map(|s| s.0).collect::<Vec<_>>(),
                "seconds": began.elapsed().as_secs_f64(), "servers": servers,
            });
            println!("{}", serde_json::to_string_pretty(&all)?);
        } else if map.to_move() > 0 {
            self.say(&format!(
                "{} slots are to move; `pando map` shows which, `pando status` how far it is.",
                map.to_move()
            ));
        } else {
            self.say(&format!(
                "{moved} slots have moved in {:.1} s.",
                began.elapsed().as_secs_f64()
            ));
        }
        Ok(())
    }
}

/// Whether a request that is repeated is refused because it was granted before.
fn is_done(request: &ClusterRequest, why: &ClusterError) -> bool {
    match (request, why) {
        (ClusterRequest::Join { id, .. }, ClusterError::AlreadyIn(there)) => id == there,
        (ClusterRequest::Drain(id), ClusterError::Unknown(gone)) => id == gone,
        _ => false,
    }
}

/// What to do about a refusal.
fn explain(why: &ClusterError) -> String {
    match why {
        ClusterError::AlreadyIn(id) => {
            format!("server {id} is in the cluster already; `pando status` shows it")
        }
        ClusterError::NumberUsed(next) => {
            format!(
                "another server has just joined with that number; ask again, and the new one becomes server {next}"
            )
        }
        ClusterError::AddressTaken(by) => format!("server {by} is at that address; say another --address"),
        ClusterError::TooMany => "the cluster has as many servers as there can be; drain one first".into(),
        ClusterError::Unknown(id) => {
            format!("the cluster has no server {id}; `pando map` lists those it has")
        }
        ClusterError::Last(id) => {
            format!(
                "server {id} is the last one, and its slots have nowhere to go; `pando join` another one first"
            )
        }
        ClusterError::Coupled => {
            "this filesystem was made --without decoupling, an experiment whose slots do not move; \
             make another one to grow and shrink it"
                .into()
        }
        ClusterError::Foreign(fs) => format!(
            "the store was made for filesystem {:032x}; say the --dir of the cluster it belongs to",
            fs.0
        ),
        ClusterError::KeepsIdentities(id) => {
            format!("server {id} keeps the identities and cannot leave; drain another one")
        }
        ClusterError::BadAddress => {
            "the address is not HOST:PORT; say one where the others can reach it".into()
        }
    }
}
