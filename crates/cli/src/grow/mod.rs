//! `pando join`, `pando drain`, `pando rebalance`: which servers there are, and who has how many slots.
//!
//! The servers do the work and go on without the command; it only asks for it and shows how far it is.

mod cancel;
mod damage;
mod follow;
mod join;
pub mod waits;

pub use follow::how_far;
pub use join::{JoinArgs, join};

use follow::Patience;

use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::{coordination, process, status};
use anyhow::{Context, Result, bail};
use pando_cluster::{ClusterMap, View};
use pando_env::sync::{Either, first, join_all};
use pando_env::{Env, LocalFuture};
use pando_net::Waiting;
use pando_types::ServerId;
use pando_wire::{ClusterError, ClusterRequest, Request, Response};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Between two looks at how far it is.
const LOOK: Duration = Duration::from_millis(100);
/// By then a server that is well answers.
const MOMENT: Duration = Duration::from_secs(2);

/// Arguments of `drain`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  pando drain 3\n  pando drain 3 --cancel")]
pub struct DrainArgs {
    /// Which server.
    pub server: u16,
    #[command(flatten)]
    patience: Patience,
    /// Put back the plan of a drain that is under way: the server stays, with the slots that it still has.
    #[arg(long, conflicts_with = "no_wait")]
    pub cancel: bool,
}

/// Arguments of `rebalance`.
#[derive(clap::Args, Debug)]
pub struct RebalanceArgs {
    #[command(flatten)]
    patience: Patience,
    /// Slots of servers that stay, of a rebalance or a join, move no further; what has moved stays where it
    /// is.
    #[arg(long, conflicts_with = "no_wait")]
    pub cancel: bool,
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

pub fn drain(args: &Args, options: &DrainArgs) -> Result<()> {
    let id = ServerId(options.server);
    if options.cancel {
        return cancel::drain(args, id);
    }
    Operator::new(args)?.take_away(id, &options.patience)
}

pub fn rebalance(args: &Args, options: &RebalanceArgs) -> Result<()> {
    if options.cancel {
        return cancel::rebalance(args);
    }
    let operator = Operator::new(args)?;
    let before = operator.newest();
    operator.ask(ClusterRequest::Rebalance)?;
    operator.follow("rebalance", None, &before, &options.patience)
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

    /// A server gives up its slots, leaves, and is stopped if it is here.
    fn take_away(&self, id: ServerId, patience: &Patience) -> Result<()> {
        let (before, began) = (self.newest(), Instant::now());
        let asked = self.ask(ClusterRequest::Drain(id));
        // Its drain was interrupted, or nobody waited for the end: its process may still be there.
        let unknown = |e: &anyhow::Error| matches!(e.downcast_ref(), Some(Refused(ClusterError::Unknown(gone))) if *gone == id);
        let had_left = asked.as_ref().is_err_and(unknown) && self.newest().has_left(id);
        let mut waited = Ok(());
        if !had_left {
            asked?;
            waited = self.wait("drain", Some(id), patience);
        }
        let mut outcome = self.outcome("drain", Some(id), &before, began);
        if waited.is_err() {
            return self.tell_unless_stopped(outcome, waited);
        }
        if patience.no_wait && !had_left {
            return self.tell(&outcome);
        }
        let stopped = process::stop(&self.dir, &format!("server-{id}"), Duration::from_secs(15))?;
        outcome["stopped"] = stopped.into();
        if !had_left || self.json {
            self.tell(&outcome)?;
        }
        if stopped {
            self.say(&format!(
                "Server {id} has left and is stopped. Its store {} is of no use any more.",
                self.dir.store(id.0).display()
            ));
        } else {
            self.say(&format!(
                "Server {id} has left. If it runs on another machine, stop it there."
            ));
        }
        Ok(())
    }

    /// The newest map that any server knows.
    pub fn newest(&self) -> std::rc::Rc<ClusterMap> {
        self.connection.run(self.connection.client.newest_map())
    }

    /// The map in force, by the word of coordination: no server needs to have heard of it.
    fn in_force(&self) -> Result<ClusterMap> {
        self.view()
            .map(|view| view.map)
            .context("the cluster cannot be changed now")
    }

    fn view(&self) -> Result<View> {
        let coord = coordination::open(&self.dir, &self.connection.file)?;
        Ok(coordination::wait(
            coord.view(),
            Instant::now() + coordination::PATIENCE,
        )?)
    }

    /// Whether a server answers, within a moment.
    fn answers(&self, server: ServerId) -> bool {
        let client = self.connection.client.clone();
        let answer: LocalFuture<_> =
            Box::pin(async move { client.admin(server, Request::Null(false)).await });
        let nap = self.connection.reactor.sleep(MOMENT);
        matches!(self.connection.run(first(answer, nap)), Either::Left(Ok(_)))
    }

    /// What each server says of itself, with its number, in the order of the map; with its number alone if it
    /// does not answer in time.
    fn statuses(&self, map: &ClusterMap) -> Vec<Value> {
        let conn = &self.connection;
        let ask = |id: ServerId| -> LocalFuture<Option<Value>> {
            Box::pin(status::ask(conn.client.clone(), conn.reactor.clone(), id.0))
        };
        let ids = map.servers.iter().map(|s| s.id);
        let said = conn.run(join_all(ids.clone().map(ask).collect()));
        let all = ids.zip(said);
        all.map(|(id, said)| said.unwrap_or_else(|| json!({ "server": id.0 })))
            .collect()
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
                Ok(Response::Cluster(Err(why))) => return Err(Refused(why).into()),
                Ok(_) | Err(_) if Instant::now() < deadline => {
                    again = true;
                    std::thread::sleep(LOOK);
                }
                Ok(_) => {
                    bail!("server {coordinator} does not understand the question; is it an older program?")
                }
                Err(_) => bail!("{}", self.silent(coordinator)),
            }
        }
    }

    /// Why nothing came of what the coordinator was asked: it may be there, and unable to.
    fn silent(&self, coordinator: ServerId) -> String {
        if let Err(e) = self.view() {
            return format!("the cluster cannot be changed now: {e:#}. Nothing is lost: ask again later");
        }
        if self.answers(coordinator) {
            return format!(
                "the coordinator (server {coordinator}) answers, but cannot change the cluster map; its log says why ({} on its \
                 machine). Nothing is lost: ask again later",
                process::log_path(&self.dir, &format!("server-{coordinator}")).display()
            );
        }
        format!(
            "the coordinator (server {coordinator}) does not answer{}; see `pando status`. Nothing is lost: ask again later",
            self.connection.because()
        )
    }
}

/// The coordinator said no.
#[derive(Debug)]
struct Refused(ClusterError);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&explain(&self.0))
    }
}

impl std::error::Error for Refused {}

/// Whether a request that is repeated is refused because it was granted before.
fn is_done(request: &ClusterRequest, why: &ClusterError) -> bool {
    match (request, why) {
        (ClusterRequest::Join { id, .. }, ClusterError::AlreadyIn(there)) => id == there,
        (ClusterRequest::Drain(id), ClusterError::Unknown(gone)) => id == gone,
        (ClusterRequest::KeepServer(id), ClusterError::NotLeaving(stays)) => id == stays,
        (ClusterRequest::EndMoves, ClusterError::NothingMoves) => true,
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
        ClusterError::NotLeaving(id) => {
            format!("server {id} is not being drained: there is nothing to cancel; `pando status` shows what is under way")
        }
        ClusterError::NothingMoves => {
            "no slots of servers that stay are on the move: there is nothing to cancel. A drain is cancelled by `pando drain N --cancel`"
                .into()
        }
        ClusterError::BadAddress => {
            "the address is not HOST:PORT; say one where the others can reach it".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_cluster::{Coherence, DirectoryUpdates, Placement, Plan, ServerInfo};
    use pando_types::{AuthMode, FsId, MapEpoch, Term};

    /// Of so many servers, of which nothing moves.
    pub(super) fn map(servers: u16) -> ClusterMap {
        let info = |id| ServerInfo {
            id: ServerId(id),
            address: format!("host{id}:1"),
            metrics: String::new(),
        };
        let servers: Vec<ServerInfo> = (0..servers).map(info).collect();
        ClusterMap {
            fs: FsId(1),
            epoch: MapEpoch(1),
            slots: ClusterMap::spread(&servers),
            coordinator: ServerId(0),
            term: Term(1),
            keeper: ServerId(0),
            servers,
            inline_limit: 65536,
            block_size: 4096,
            blocks: "file:b".into(),
            name_bits: 55,
            id_bits: 128,
            auth: AuthMode::None,
            coherence: Coherence::Lazy,
            placement: Placement::Directory,
            ids: pando_types::Ids::Predicted,
            updates: DirectoryUpdates::ParentFirst,
            plan: Plan::default(),
        }
    }

    #[test]
    fn what_was_granted_before_is_not_refused() {
        let (one, two) = (ServerId(1), ServerId(2));
        let kept = ClusterRequest::KeepServer(one);
        assert!(is_done(&kept, &ClusterError::NotLeaving(one)));
        assert!(
            !is_done(&kept, &ClusterError::NotLeaving(two)) && !is_done(&kept, &ClusterError::Unknown(one))
        );
        assert!(is_done(&ClusterRequest::Drain(one), &ClusterError::Unknown(one)));
        assert!(!is_done(&ClusterRequest::Rebalance, &ClusterError::NothingMoves));
    }
}
