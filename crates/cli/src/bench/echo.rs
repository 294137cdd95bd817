//! `pando bench echo`.

use super::meter::Measured;
use super::{Figures, Wait};
use anyhow::Result;
use pando_net::{EchoOptions, EchoResult, echo_bench, reactor_bench};
use serde_json::{Map, json};
use std::time::Duration;

/// The network alone, on this machine: bare TCP, which nothing built on it can beat, and the same through
/// this program's frames and event loops.
///
/// Messages have 64 bytes with their length before it, are parsed one at a time, and what a thread says on a
/// connection is written once per turn. Every client is connected to every server and asks them in turn, as
/// in `bench null`: say as many servers, clients and messages under way as there are in what is to be
/// compared. Servers and clients are threads of one process. Needs no cluster.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando bench echo --depth 16 --json\n  pando bench echo --servers 4 --clients 8 --depth 8 --waiting adaptive"
)]
pub struct EchoArgs {
    /// Servers, each a thread.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub servers: u16,
    /// Clients, each a thread.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub clients: u16,
    /// Messages under way at once, per client.
    #[arg(long, default_value_t = 1)]
    pub depth: usize,
    /// Seconds per line.
    #[arg(long, default_value_t = 1.0, value_parser = crate::text::seconds)]
    pub seconds: f64,
    /// How both sides wait for messages.
    #[arg(long, value_enum, default_value_t = Waits::All)]
    pub waiting: Waits,
}

/// Ways of waiting.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// Always sleep.
    Blocking,
    /// Spin while it pays.
    Adaptive,
    /// Never sleep.
    Polling,
    /// One after the other.
    All,
}

impl Waits {
    fn which(self) -> Vec<Wait> {
        match self {
            Waits::Blocking => vec![Wait::Blocking],
            Waits::Adaptive => vec![Wait::Adaptive],
            Waits::Polling => vec![Wait::Polling],
            Waits::All => vec![Wait::Blocking, Wait::Adaptive, Wait::Polling],
        }
    }
}

pub fn run(args: &EchoArgs) -> Result<Figures> {
    let options = EchoOptions {
        servers: args.servers.into(),
        clients: args.clients.into(),
        depth: args.depth.max(1),
        time: Duration::from_secs_f64(args.seconds),
    };
    let waits = args.waiting.which();
    let mut results = Vec::new();
    for wait in &waits {
        let result = echo_bench(options, wait.waiting())?;
        results.push(line(format!("bare-{}", wait.name()), result));
    }
    for wait in &waits {
        let result = reactor_bench(options, wait.waiting())?;
        results.push(line(format!("reactor-{}", wait.name()), result));
    }
    let waiting: Vec<&str> = waits.iter().map(|w| w.name()).collect();
    Ok(Figures {
        bench: "echo",
        profile: None,
        params: json!({
            "servers": args.servers, "clients": args.clients, "depth": options.depth, "seconds": args.seconds,
            "waiting": waiting,
        }),
        results,
    })
}

fn line(op: String, r: EchoResult) -> Measured {
    let cpu = json!({ "client_and_server": (r.cpu_us * 1e4).round() / 1e4 });
    Measured {
        op,
        ops: r.operations,
        ops_per_s: r.ops_per_s,
        p50_us: r.p50_us,
        p99_us: r.p99_us,
        p999_us: r.p999_us,
        round_trips: Some(1.0),
        errors: 0,
        first_error: None,
        spent: None,
        more: Map::from_iter([("cpu_us_per_op".to_owned(), cpu)]),
    }
}
