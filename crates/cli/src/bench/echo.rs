//! `pando bench echo`.

use super::Figures;
use super::meter::Measured;
use anyhow::Result;
use pando_net::{EchoOptions, EchoResult, Waiting, echo_bench, reactor_bench};
use serde_json::json;
use std::time::Duration;

/// The network alone, on this machine: bare TCP, which nothing built on it can beat, and the same through this
/// program's frames and event loops.
///
/// Needs no cluster.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  pando bench echo --depth 16 --json")]
pub struct EchoArgs {
    /// Messages under way at once, per client.
    #[arg(long, default_value_t = 1)]
    pub depth: usize,
    /// Clients, each with a server thread of its own.
    #[arg(long, default_value_t = 1)]
    pub clients: usize,
    /// Seconds per line.
    #[arg(long, default_value_t = 1.0, value_parser = crate::text::seconds)]
    pub seconds: f64,
}

pub fn run(args: &EchoArgs) -> Result<Figures> {
    let options = EchoOptions {
        depth: args.depth.max(1),
        pairs: args.clients.max(1),
        time: Duration::from_secs_f64(args.seconds),
    };
    let line = |op: &str, r: EchoResult| Measured {
        op: op.into(),
        ops: r.operations,
        ops_per_s: r.ops_per_s,
        p50_us: r.p50_us,
        p99_us: r.p99_us,
        p999_us: r.p999_us,
        round_trips: Some(1.0),
        errors: 0,
        first_error: None,
    };
    let results = vec![
        line("bare-blocking", echo_bench(options, false)?),
        line("bare-polling", echo_bench(options, true)?),
        line("reactor-blocking", reactor_bench(options, Waiting::Blocking)?),
        line("reactor-adaptive", reactor_bench(options, Waiting::default())?),
        line("reactor-polling", reactor_bench(options, Waiting::Polling)?),
    ];
    Ok(Figures {
        bench: "echo",
        profile: None,
        params: json!({ "depth": args.depth, "clients": args.clients, "seconds": args.seconds }),
        results,
    })
}
