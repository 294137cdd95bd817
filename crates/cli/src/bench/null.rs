//! `pando bench null`.

use super::meter::Meter;
use super::spent::{Phases, Spent, Watch};
use super::{Figures, Wait, connect, on_threads};
use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::Connection;
use crate::crew::Crew;
use anyhow::{Result, bail};
use pando_types::ServerId;
use pando_wire::Request;
use serde_json::json;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The ceiling of every operation: an empty request through client, network and server.
///
/// With --sync it writes an empty batch to the store's log and is answered when that is synced, one sync for
/// all that wait: the ceiling of what changes something in durability `sync`. Its line is called null-sync
/// then.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando bench null --clients 4 --depth 16 --json\n  pando bench null --sync --depth 16"
)]
pub struct NullArgs {
    /// Requests in flight, per client.
    #[arg(long, default_value_t = 1)]
    pub depth: usize,
    /// Clients, each a thread.
    #[arg(long, default_value_t = 1)]
    pub clients: usize,
    /// With one sync for all requests that wait.
    #[arg(long)]
    pub sync: bool,
    /// Seconds.
    #[arg(long, default_value_t = 2.0, value_parser = crate::text::seconds)]
    pub seconds: f64,
    /// Only this server. [default: all in turn]
    #[arg(long)]
    pub server: Option<u16>,
    /// How clients wait for answers.
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub waiting: Wait,
}

pub fn run(args: &Args, bench: &NullArgs) -> Result<Figures> {
    let dir = ClusterDir::of(args)?;
    let file = dir.load()?;
    let servers: Vec<ServerId> = match bench.server {
        Some(id) if file.servers.iter().any(|s| s.id == id) => vec![ServerId(id)],
        Some(id) => bail!("this cluster has no server {id}; `pando map` shows those there are"),
        None => file.servers.iter().map(|s| ServerId(s.id)).collect(),
    };
    let watch = Watch::of(&dir, &file);
    let phases = Phases::new(&watch, bench.clients);
    let parts = on_threads(bench.clients, |client| {
        let conn = connect(&dir, bench.waiting, args.paths);
        // All threads come here, also those that could not connect: the others wait for them.
        phases.part(|| ask(conn?, bench, client, &servers))
    })?;
    let op = if bench.sync { "null-sync" } else { "null" };
    let mut measured = Meter::sum(op, parts, true)?;
    // It reads nothing: what servers read meanwhile is their own business.
    measured.spent = phases.spent(0, measured.ops).map(Spent::without_reads);
    let params = json!({
        "depth": bench.depth, "clients": bench.clients, "seconds": bench.seconds, "servers": servers.len(), "sync": bench.sync,
        "waiting": bench.waiting.name(), "durability": file.durability,
    });
    Ok(Figures {
        bench: "null",
        profile: Some(file.profile.name),
        params,
        results: vec![measured],
    })
}

/// One client's requests, to one server after the other.
fn ask(conn: Connection, bench: &NullArgs, client: usize, servers: &[ServerId]) -> Result<Meter> {
    let meter = Rc::new(RefCell::new(Meter::new()?));
    let end = Instant::now() + Duration::from_secs_f64(bench.seconds);
    let crew = Crew::new(conn.reactor.clone(), bench.depth);
    let before = conn.client.stats().round_trips;
    let sync = bench.sync;
    for lane in 0..bench.depth.max(1) {
        let (client_, meter, servers) = (conn.client.clone(), meter.clone(), servers.to_vec());
        let mut next = client + lane;
        crew.add(async move {
            let mut began = Instant::now();
            while began < end {
                let server = servers[next % servers.len()];
                next += 1;
                let answer = client_.admin(server, Request::Null(sync)).await;
                let now = Instant::now();
                match answer {
                    Ok(_) => meter.borrow_mut().record(now - began),
                    Err(e) => meter.borrow_mut().failed(|| e.to_string()),
                }
                began = now;
            }
        });
    }
    conn.run(crew.finished());
    meter.borrow_mut().end(conn.client.stats().round_trips - before);
    let meter = meter.replace(Meter::new()?);
    Ok(meter)
}
