//! `pando bench resolve`.

use super::meter::Meter;
use super::{Figures, Wait, connect};
use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Paths, ResolutionArg};
use anyhow::{Context, Result, bail};
use pando_client::CACHE_BYTES;
use pando_types::{Cred, Perm};
use pando_wire::RenameMode;
use serde_json::json;
use std::time::{Duration, Instant};

/// A deep path, resolved with nothing remembered but the servers' boot epochs, one component after the other and all at once by predicted
/// directory IDs; and with the directories above it in mind. They take turns, so that all see the same machine. Round trips are those
/// that wait for one another.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  pando bench resolve --depth 24 --renamed 2 --json")]
pub struct ResolveArgs {
    /// Directories above the file.
    #[arg(long, default_value_t = 24)]
    pub depth: usize,
    /// So many of them were renamed to their places, so that their IDs are not what the path predicts.
    #[arg(long, default_value_t = 0)]
    pub renamed: usize,
    /// Seconds in all.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// How the client waits for answers.
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub waiting: Wait,
}

pub fn run(args: &Args, bench: &ResolveArgs) -> Result<Figures> {
    if bench.renamed > bench.depth {
        bail!("there are only {} directories to rename", bench.depth);
    }
    let dir = ClusterDir::of(args)?;
    let way = |op, resolution, cache_bytes| {
        let paths = Paths {
            resolution,
            cache_bytes,
        };
        Ok::<_, anyhow::Error>((connect(&dir, bench.waiting, paths)?, op))
    };
    let ways = [
        way("resolve-sequential", ResolutionArg::Sequential, 0)?,
        way("resolve-speculative", ResolutionArg::Speculative, 0)?,
        way("resolve-cached", ResolutionArg::Speculative, CACHE_BYTES)?,
    ];
    let (conn, _) = &ways[0];
    let made = Chain::make(conn, bench)?;
    // The first message to a server learns its boot epoch: that is not what is measured.
    for (conn, _) in &ways {
        conn.run(conn.client.resolve(&Cred::root(), &made.deepest, true))
            .context("cannot resolve what was just made")?;
    }
    let mut meters = [Meter::new()?, Meter::new()?, Meter::new()?];
    let mut trips = [0; 3];
    let end = Instant::now() + Duration::from_secs_f64(bench.seconds.clamp(0.01, 3600.0));
    while Instant::now() < end {
        for (i, (conn, _)) in ways.iter().enumerate() {
            let (before, began) = (conn.client.stats().round_trips, Instant::now());
            match conn.run(conn.client.resolve(&Cred::root(), &made.deepest, true)) {
                Ok(_) => meters[i].record(began.elapsed()),
                Err(e) => meters[i].failed(|| e.to_string()),
            }
            trips[i] += conn.client.stats().round_trips - before;
        }
    }
    let mut results = Vec::new();
    for ((mut meter, trips), (_, op)) in meters.into_iter().zip(trips).zip(&ways) {
        meter.end(trips);
        results.push(Meter::sum(*op, vec![meter], true)?);
    }
    made.remove(conn)?;
    let params = json!({
        "depth": bench.depth, "renamed": bench.renamed, "seconds": bench.seconds, "waiting": bench.waiting.name(),
    });
    Ok(Figures {
        bench: "resolve",
        profile: Some(conn.file.profile.name.clone()),
        params,
        found: serde_json::Value::Null,
        results,
    })
}

/// The directories of the path.
struct Chain {
    all: Vec<Vec<u8>>,
    deepest: Vec<u8>,
}

impl Chain {
    fn make(conn: &Connection, bench: &ResolveArgs) -> Result<Chain> {
        let (cred, perm) = (Cred::root(), Perm::new(0o755));
        let mut path = format!("/bench-resolve-{}", std::process::id()).into_bytes();
        let mut all = vec![path.clone()];
        let doing = || "cannot make the directories to resolve";
        conn.run(conn.client.mkdir(&cred, &path, perm))
            .with_context(doing)?;
        for n in 0..bench.depth {
            let name = format!("/directory-{n}");
            let next = [&path[..], name.as_bytes()].concat();
            // Spread over the path.
            let renamed =
                bench.renamed > 0 && (n + 1) * bench.renamed / bench.depth > n * bench.renamed / bench.depth;
            if renamed {
                let born = [&path[..], b"/born"].concat();
                conn.run(conn.client.mkdir(&cred, &born, perm))
                    .with_context(doing)?;
                conn.run(conn.client.rename(&cred, &born, &next, RenameMode::NoReplace))
                    .with_context(doing)?;
            } else {
                conn.run(conn.client.mkdir(&cred, &next, perm))
                    .with_context(doing)?;
            }
            path = next;
            all.push(path.clone());
        }
        Ok(Chain { all, deepest: path })
    }

    fn remove(&self, conn: &Connection) -> Result<()> {
        for path in self.all.iter().rev() {
            conn.run(conn.client.rmdir(&Cred::root(), path))
                .context("cannot remove the directories that were resolved")?;
        }
        Ok(())
    }
}
