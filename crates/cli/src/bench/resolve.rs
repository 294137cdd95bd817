//! `pando bench resolve`.

use super::meter::Meter;
use super::{Figures, Wait, connect_over};
use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Paths, ResolutionArg};
use crate::text;
use anyhow::{Context, Result, bail};
use pando_client::CACHE_BYTES;
use pando_types::{Cred, Perm};
use pando_wire::RenameMode;
use serde_json::json;
use std::time::{Duration, Instant};

/// A deep path, resolved with nothing remembered but the servers' boot epochs, one component after the other
/// and all at once by predicted directory IDs; and with the directories above it in mind. They take turns, so
/// that all see the same machine. Round trips are those that wait for one another.
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
    #[arg(long, default_value_t = 2.0, value_parser = crate::text::seconds)]
    pub seconds: f64,
    /// An emulated round trip, such as 1ms: answers arrive so much later.
    #[arg(long, value_name = "TIME", value_parser = text::duration, default_value = "0s")]
    pub rtt: Duration,
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
        Ok::<_, anyhow::Error>((connect_over(&dir, bench.waiting, paths, bench.rtt)?, op))
    };
    let ways = [
        way("resolve-sequential", ResolutionArg::Sequential, 0)?,
        way("resolve-speculative", ResolutionArg::Speculative, 0)?,
        way("resolve-cached", ResolutionArg::Speculative, CACHE_BYTES)?,
    ];
    let (conn, _) = &ways[0];
    let base = format!("/bench-resolve-{}", std::process::id()).into_bytes();
    conn.run(conn.client.mkdir(&Cred::root(), &base, Perm::new(0o755)))
        .context("cannot make the directory to resolve in")?;
    let made = Chain::make(conn, base.clone(), "directory-", bench.depth, bench.renamed)?;
    // The first message to a server learns its boot epoch: that is not what is measured.
    for (conn, _) in &ways {
        conn.run(conn.client.resolve(&Cred::root(), &made.deepest, true))
            .context("cannot resolve what was just made")?;
    }
    let mut meters = [Meter::new()?, Meter::new()?, Meter::new()?];
    let mut trips = [0; 3];
    let end = Instant::now() + Duration::from_secs_f64(bench.seconds);
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
    conn.run(conn.client.rmdir(&Cred::root(), &base))
        .context("cannot remove the directory that was resolved in")?;
    let params = json!({
        "depth": bench.depth, "renamed": bench.renamed, "seconds": bench.seconds, "rtt_us": bench.rtt.as_micros() as u64,
        "waiting": bench.waiting.name(),
    });
    Ok(Figures {
        bench: "resolve",
        profile: Some(conn.file.profile.name.clone()),
        params,
        results,
    })
}

/// Directories below each other.
pub(super) struct Chain {
    all: Vec<Vec<u8>>,
    /// The path of the last.
    pub deepest: Vec<u8>,
}

impl Chain {
    /// So many, `renamed` of them to their places, spread over the path. Their names begin with `prefix`.
    pub fn make(
        conn: &Connection,
        base: Vec<u8>,
        prefix: &str,
        depth: usize,
        renamed: usize,
    ) -> Result<Chain> {
        let (cred, perm) = (Cred::root(), Perm::new(0o755));
        let mut path = base;
        let mut all = Vec::new();
        let doing = || "cannot make the directories to resolve";
        for n in 0..depth {
            let name = format!("/{prefix}{n}");
            let next = [&path[..], name.as_bytes()].concat();
            if (n + 1) * renamed / depth > n * renamed / depth {
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

    /// Removes them.
    pub fn remove(&self, conn: &Connection) -> Result<()> {
        for path in self.all.iter().rev() {
            conn.run(conn.client.rmdir(&Cred::root(), path))
                .context("cannot remove the directories that were resolved")?;
        }
        Ok(())
    }
}
