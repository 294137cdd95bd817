//! Prints the ceilings of this machine: `cargo run --release -p pando-net --example echo [SECONDS]`.

use pando_net::{EchoOptions, EchoResult, Waiting, echo_bench, reactor_bench};
use std::time::Duration;

fn main() -> std::io::Result<()> {
    let seconds = std::env::args()
        .nth(1)
        .and_then(|s| s.parse().ok())
        .unwrap_or(1.0);
    let time = Duration::from_secs_f64(seconds);
    println!(
        "{:<22} {:>7} {:>7} {:>5} {:>12} {:>9} {:>9}",
        "", "servers", "clients", "depth", "ops/s", "p50 us", "p99 us"
    );
    for (servers, clients, depth) in [
        (1, 1, 1),
        (1, 1, 16),
        (1, 1, 64),
        (1, 4, 1),
        (1, 8, 1),
        (4, 4, 1),
        (4, 4, 16),
    ] {
        let options = EchoOptions {
            servers,
            clients,
            depth,
            time,
        };
        let show = |name: &str, r: EchoResult| {
            println!(
                "{name:<22} {servers:>7} {clients:>7} {depth:>5} {:>12.0} {:>9.1} {:>9.1}",
                r.ops_per_s, r.p50_us, r.p99_us
            );
        };
        // Who polls needs a core of its own.
        let all = [
            ("blocking", Waiting::Blocking),
            ("adaptive", Waiting::default()),
            ("polling", Waiting::Polling),
        ];
        let few = servers + clients <= 2;
        for (name, waiting) in all.into_iter().take(if few { 3 } else { 2 }) {
            show(&format!("bare, {name}"), echo_bench(options, waiting)?);
            show(&format!("reactor, {name}"), reactor_bench(options, waiting)?);
        }
    }
    Ok(())
}
