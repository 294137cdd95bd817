//! A cluster of a benchmark's own, in a temporary folder. It ends with the benchmark, however that ends.

use super::{Wait, connect_over};
use crate::args::Choices;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party, Paths};
use crate::{format, process, up};
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
    /// Makes and starts one in a folder below `at`. Between any two of its processes a round trip takes `rtt` longer than it
    /// does here: half of that each way.
    pub fn start(at: &Path, servers: u16, choices: &Choices, rtt: Duration) -> Result<OwnCluster> {
        let folder = tempfile::Builder::new()
            .prefix("pando-bench-")
            .tempdir_in(at)
            .with_context(|| format!("cannot make a folder in {}", at.display()))?;
        let dir = ClusterDir {
            path: folder.path().join("cluster"),
            key: None,
        };
        let file = format::make(&dir, format::on_loopback(servers)?, None, choices)?;
        let cluster = OwnCluster {
            dir,
            servers: file.servers.iter().map(|s| s.id).collect(),
            rtt,
            _folder: folder,
        };
        let delay = format!("{}us", (rtt / 2).as_micros());
        let options = ["--with-parent", "--delay", &delay].map(str::to_owned);
        up::start_servers(&cluster.dir, &file, &options)?;
        Ok(cluster)
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
        let mut sum = 0;
        for id in &self.servers {
            let answer = operator.run(operator.client.admin(ServerId(*id), Request::Status))?;
            let Response::Status(text) = answer else {
                anyhow::bail!("server {id} gave no status");
            };
            let status: serde_json::Value = serde_json::from_str(&text)?;
            sum += status["peer_calls"]
                .as_u64()
                .context("a status without peer_calls")?;
        }
        Ok(sum)
    }
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
