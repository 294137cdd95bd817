//! A cluster of a benchmark's own, in a temporary folder. It ends with the benchmark, however that ends.

use super::{Wait, connect_over};
use crate::args::Choices;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party, Paths};
use crate::grow::{JoinArgs, Operator};
use crate::{addresses, format, process, up};
use anyhow::{Context, Result};
use pando_net::Waiting;
use pando_types::ServerId;
use pando_wire::{Request, Response};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// It.
pub struct OwnCluster {
    dir: ClusterDir,
    servers: Vec<u16>,
    rtt: Duration,
    /// Removed last.
    _folder: TempDir,
}

impl OwnCluster {
    /// Makes and starts one in a folder below `at`. Between any two of its processes a round trip takes `rtt`
    /// longer than it does here: half of that each way.
    pub fn start(at: &Path, servers: u16, choices: &Choices, rtt: Duration) -> Result<OwnCluster> {
        let folder = tempfile::Builder::new()
            .prefix("pando-bench-")
            .tempdir_in(at)
            .with_context(|| format!("cannot make a folder in {}", at.display()))?;
        let dir = ClusterDir {
            path: folder.path().join("cluster"),
            key: None,
        };
        let file = format::make(
            &dir,
            addresses::on_loopback(0, servers, choices.auth.mode())?,
            None,
            choices,
        )?;
        let cluster = OwnCluster {
            dir,
            servers: file.servers.iter().map(|s| s.id).collect(),
            rtt,
            _folder: folder,
        };
        up::start_servers(&cluster.dir, &file, &cluster.servers, &cluster.server_options())?;
        Ok(cluster)
    }

    fn server_options(&self) -> [String; 3] {
        let delay = format!("{}us", (self.rtt / 2).as_micros());
        ["--with-parent", "--delay", &delay].map(str::to_owned)
    }

    /// Who changes which servers there are.
    pub fn grower(&self) -> Result<Operator> {
        Operator::open(self.dir.clone(), Duration::from_secs(30), true)
    }

    /// One more server joins; it answers when this returns, and slots begin to move to it. To be called by a
    /// thread that lives as long as the cluster: with it the server would end.
    pub fn join(&mut self, grower: &Operator) -> Result<ServerId> {
        let turn = grower.turn()?;
        let server = grower.add(&turn, &JoinArgs::default(), &self.server_options())?;
        self.servers.push(server.id);
        Ok(ServerId(server.id))
    }

    /// Stops a server that has left.
    pub fn stop(&mut self, id: ServerId) -> Result<()> {
        process::stop(&self.dir, &format!("server-{id}"), Duration::from_secs(15))?;
        self.servers.retain(|s| *s != id.0);
        Ok(())
    }

    /// A client, connected to every server.
    pub fn connect(&self, waiting: Wait, paths: Paths) -> Result<Connection> {
        connect_over(&self.dir, waiting, paths, self.rtt / 2)
    }

    /// An operator, to ask for counts.
    pub fn operator(&self) -> Result<Connection> {
        Connection::open(
            &self.dir,
            Party::Operator,
            Waiting::Blocking,
            Duration::from_secs(5),
        )
    }

    /// Messages its servers have sent each other so far.
    pub fn peer_calls(&self, operator: &Connection) -> Result<u64> {
        Ok(counts(operator, &self.servers, "peer_calls")?.iter().sum())
    }

    /// Where it is, and who is in it.
    pub fn parts(&self) -> (ClusterDir, Vec<u16>) {
        (self.dir.clone(), self.servers.clone())
    }
}

/// What each of these servers has counted under a name.
pub fn counts(operator: &Connection, servers: &[u16], name: &str) -> Result<Vec<u64>> {
    let count = |id: &u16| {
        let answer = operator.run(operator.client.admin(ServerId(*id), Request::Status))?;
        let Response::Status(text) = answer else {
            anyhow::bail!("server {id} gave no status");
        };
        let status: serde_json::Value = serde_json::from_str(&text)?;
        let count = status[name].as_u64();
        count.with_context(|| format!("a status without {name}"))
    };
    servers.iter().map(count).collect()
}

impl Drop for OwnCluster {
    fn drop(&mut self) {
        for id in &self.servers {
            if let Err(e) = process::stop(&self.dir, &format!("server-{id}"), Duration::from_secs(15)) {
                tracing::warn!(error = %e, "a server of the benchmark does not stop");
            }
        }
    }
}
