//! Figure 13: stat of files with lazy invalidation, and with leases of 1, 5 and 10 seconds, by size of the
//! clients' caches.

use super::Virtual;
use crate::bench::lines::{Claim, Drawn, NOT_IN_TEXT, round};
use anyhow::Result;
use pando_cluster::{Coherence, LeaseLength};
use pando_scale::{Crowd, Phase, Setup};
use serde_json::json;
use std::time::Duration;

const WAYS: [(&str, Coherence); 4] = [
    ("lazy", Coherence::Lazy),
    ("lease 1s", Coherence::Lease(LeaseLength::Fixed(1_000))),
    ("lease 5s", Coherence::Lease(LeaseLength::Fixed(5_000))),
    ("lease 10s", Coherence::Lease(LeaseLength::Fixed(10_000))),
];
/// Directories that each client makes, with a file in each.
const DIRS: u64 = 64;
/// Bytes of a client's cache. A directory takes about 700 of them here.
const CACHES: [usize; 4] = [8 << 10, 24 << 10, 48 << 10, 1 << 20];

pub fn draw(bench: &Virtual) -> Result<Drawn> {
    let calibration = bench.crowd.calibration(&bench.how)?;
    let ops = bench.crowd.ops * u64::from(bench.most);
    let mut rates = Vec::new();
    let mut lines = Vec::new();
    for (way, coherence) in WAYS {
        eprintln!("{} servers, {} clients, {way}", bench.most, bench.crowd.clients);
        let setup = Setup {
            coherence,
            ..bench.crowd.setup(bench.most, bench.how.durability, &calibration)
        };
        let problem = |e: String| anyhow::anyhow!("{way}: {e}");
        let crowd = Crowd::start(&setup).map_err(problem)?;
        crowd.prepare(Phase::Mkdir, DIRS).map_err(problem)?;
        crowd.prepare(Phase::Create, DIRS).map_err(problem)?;
        let mut of_way = Vec::new();
        for bytes in CACHES {
            crowd.renew_clients(bytes).map_err(problem)?;
            // What is remembered is of every age, as it is in the long run.
            let span = coherence.longest_lease().unwrap_or(Duration::from_secs(1));
            crowd.age(span).map_err(problem)?;
            let m = crowd.run(Phase::Stat, ops).map_err(problem)?;
            let most = m.busy.iter().copied().fold(0.0, f64::max);
            lines.push(vec![
                ("coherence", json!(way)),
                ("cache KiB", json!(bytes >> 10)),
                ("ops/s", json!(m.rate().round())),
                ("round trips", round(m.round_trips)),
                ("cpu us", round(m.cpu_us)),
                ("least busy", round(m.least_busy())),
                ("most busy", round(most)),
                ("paper", json!(NOT_IN_TEXT)),
            ]);
            of_way.push(m.rate());
        }
        rates.push(of_way);
    }
    let last = CACHES.len() - 1;
    let claims = vec![
        Claim {
            about: "Lazy invalidation against leases, with the largest cache",
            paper: "lazy is faster; longer leases are faster than shorter ones, and changes wait for them",
            here: format!(
                "against leases of 1, 5 and 10 s: {:.2}, {:.2} and {:.2} times as many",
                rates[0][last] / rates[1][last],
                rates[0][last] / rates[2][last],
                rates[0][last] / rates[3][last]
            ),
        },
        Claim {
            about: "The largest cache against the smallest",
            paper: "what a larger cache brings is more pronounced with lazy invalidation",
            here: format!(
                "lazy {:.2} times, leases of 1, 5 and 10 s {:.2}, {:.2} and {:.2} times as many",
                rates[0][last] / rates[0][0],
                rates[1][last] / rates[1][0],
                rates[2][last] / rates[2][0],
                rates[3][last] / rates[3][0]
            ),
        },
    ];
    Ok(Drawn {
        bench: "figure",
        figure: Some("infinifs-13"),
        params: bench.params(&calibration),
        lines,
        claims,
    })
}
