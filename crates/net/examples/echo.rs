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
        "{:<22} {:>5} {:>5} {:>12} {:>9} {:>9}",
        "", "pairs", "depth", "ops/s", "p50 us", "p99 us"
    );
    for (pairs, depth) in [(1, 1), (1, 16), (1, 64), (2, 1), (4, 1), (8, 1), (4, 16)] {
        let options = EchoOptions { depth, pairs, time };
        let show = |name: &str, r: EchoResult| {
            println!(
                "{name:<22} {pairs:>5} {depth:>5} {:>12.0} {:>9.1} {:>9.1}",
                r.ops_per_s, r.p50_us, r.p99_us
            );
        };
        show("bare, blocking", echo_bench(options, false)?);
        if pairs == 1 {
            show("bare, polling", echo_bench(options, true)?);
        }
        show("reactor, blocking", reactor_bench(options, Waiting::Blocking)?);
        show("reactor, adaptive", reactor_bench(options, Waiting::default())?);
        if pairs == 1 {
            show("reactor, polling", reactor_bench(options, Waiting::Polling)?);
        }
    }
    Ok(())
}
