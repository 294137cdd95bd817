//! `pando bench null`.

use super::meter::Meter;
use super::{Figures, Wait, connect, on_threads};
use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::crew::Crew;
use anyhow::{Result, bail};
use pando_types::ServerId;
use pando_wire::Request;
use serde_json::json;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The ceiling of every operation: an empty request through client, network and server, and the same with a durable
/// empty batch.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  pando bench null --clients 4 --depth 16 --json")]
pub struct NullArgs {
    /// Requests in flight, per client.
    #[arg(long, default_value_t = 1)]
    pub depth: usize,
    /// Clients, each a thread.
    #[arg(long, default_value_t = 1)]
    pub clients: usize,
    /// Seconds per line.
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
    let mut results = Vec::new();
    for (op, durable) in [("null", false), ("null-durable", true)] {
        let start = Barrier::new(bench.clients.max(1));
        let parts = on_threads(bench.clients, |client| {
            let conn = connect(&dir, bench.waiting, args.paths);
            // All threads come here, also those that could not connect: the others wait for them.
            start.wait();
            let conn = conn?;
            let meter = Rc::new(RefCell::new(Meter::new()?));
            let end = Instant::now() + Duration::from_secs_f64(bench.seconds);
            let crew = Crew::new(conn.reactor.clone(), bench.depth);
            let before = conn.client.stats().round_trips;
            for lane in 0..bench.depth.max(1) {
                let (client_, meter, servers) = (conn.client.clone(), meter.clone(), servers.clone());
                let mut next = client + lane;
                crew.add(async move {
                    loop {
                        let began = Instant::now();
                        if began >= end {
                            break;
                        }
                        let server = servers[next % servers.len()];
                        next += 1;
                        match client_.admin(server, Request::Null(durable)).await {
                            Ok(_) => meter.borrow_mut().record(began.elapsed()),
                            Err(e) => meter.borrow_mut().failed(|| e.to_string()),
                        }
                    }
                });
            }
            conn.run(crew.finished());
            meter.borrow_mut().end(conn.client.stats().round_trips - before);
            let meter = meter.replace(Meter::new()?);
            Ok(meter)
        })?;
        results.push(Meter::sum(op, parts, true)?);
    }
    let params = json!({
        "depth": bench.depth, "clients": bench.clients, "seconds": bench.seconds, "servers": servers.len(),
        "waiting": bench.waiting.name(), "durability": file.durability,
    });
    Ok(Figures {
        bench: "null",
        profile: Some(file.profile.name),
        params,
        results,
    })
}
