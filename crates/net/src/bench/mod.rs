//! Ceilings: what the machine, and this crate, can do with messages that say nothing.
//!
//! Servers and clients are threads of this process. Every client is connected to every server, and each of
//! its messages goes to the server after the one that answered last, as those of `pando bench null` do.

mod bare;
mod reactor;

pub use bare::echo_bench;
pub use reactor::reactor_bench;

use crate::clock::{mono, process_cpu};
use hdrhistogram::Histogram;
use pando_types::Mono;
use std::collections::VecDeque;
use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of a message, with its length before it.
const MESSAGE: usize = 64;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct EchoOptions {
    /// Servers, each a thread.
    pub servers: usize,
    /// Clients, each a thread.
    pub clients: usize,
    /// Messages under way at once, per client.
    pub depth: usize,
    /// How long.
    pub time: Duration,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EchoResult {
    /// Round trips.
    pub operations: u64,
    /// Round trips per second.
    pub ops_per_s: f64,
    /// Half of them took no longer than this.
    pub p50_us: f64,
    /// All but one in a hundred took no longer than this.
    pub p99_us: f64,
    /// All but one in a thousand took no longer than this.
    pub p999_us: f64,
    /// Processor time of each, of client and server together.
    pub cpu_us: f64,
}

fn histogram() -> io::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(io::Error::other)
}

/// What one client sees.
struct Meter {
    /// To each server, when. It answers in this order.
    sent: Vec<VecDeque<Mono>>,
    taken: Histogram<u64>,
    end: Mono,
}

impl Meter {
    fn new(options: EchoOptions) -> io::Result<Meter> {
        Ok(Meter {
            sent: vec![VecDeque::new(); options.servers],
            taken: histogram()?,
            end: mono().after(options.time),
        })
    }

    fn sent(&mut self, server: usize, now: Mono) {
        self.sent[server].push_back(now);
    }

    fn answered(&mut self, server: usize, now: Mono) {
        if let Some(at) = self.sent[server].pop_front() {
            self.taken.saturating_record(now.since(at).as_nanos() as u64);
        }
    }
}

/// Waits for clients that have begun, and says what they measured.
fn sum(
    clients: Vec<JoinHandle<io::Result<Histogram<u64>>>>,
    cpu_before: Duration,
    time: Duration,
) -> io::Result<EchoResult> {
    let mut all = histogram()?;
    for client in clients {
        let one = client
            .join()
            .map_err(|_| io::Error::other("a thread of the benchmark failed"))??;
        all.add(one).map_err(io::Error::other)?;
    }
    let cpu = process_cpu().saturating_sub(cpu_before);
    let micros = |quantile| all.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(EchoResult {
        operations: all.len(),
        ops_per_s: all.len() as f64 / time.as_secs_f64(),
        p50_us: micros(0.5),
        p99_us: micros(0.99),
        p999_us: micros(0.999),
        cpu_us: cpu.as_secs_f64() * 1e6 / all.len().max(1) as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Waiting;

    #[test]
    fn every_topology_and_every_way_of_waiting() {
        for (servers, clients, depth) in [(1, 1, 1), (3, 2, 1), (2, 1, 7), (6, 1, 3)] {
            let options = EchoOptions {
                servers,
                clients,
                depth,
                time: Duration::from_millis(20),
            };
            for waiting in [Waiting::Blocking, Waiting::default(), Waiting::Polling] {
                for result in [echo_bench(options, waiting), reactor_bench(options, waiting)] {
                    let result = result.expect("sockets");
                    assert!(
                        result.operations > 0 && result.p50_us > 0.0,
                        "{options:?} {waiting:?}"
                    );
                }
            }
        }
    }
}
