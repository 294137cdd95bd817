//! Figure 5 of IndexFS: creates per second in one directory while it spreads over the servers.

use super::Virtual;
use super::indexfs_4::{SPLIT, setup};
use crate::bench::lines::{Claim, Drawn, NOT_IN_TEXT, round};
use anyhow::Result;
use pando_scale::{Crowd, Phase};
use serde_json::json;
use std::time::Duration;

/// Of each value.
const STEP: Duration = Duration::from_millis(100);
const STEPS: usize = 60;

pub fn draw(bench: &Virtual) -> Result<Drawn> {
    let calibration = bench.crowd.calibration(&bench.how)?;
    let mut lines = Vec::new();
    let mut told = Vec::new();
    for servers in bench.servers().into_iter().filter(|n| *n > 1) {
        eprintln!(
            "{servers} servers, {} clients, one directory",
            bench.crowd.clients
        );
        let setup = setup(bench.crowd.setup(servers, bench.how.durability, &calibration));
        let crowd = Crowd::start(&setup).map_err(anyhow::Error::msg)?;
        let ended = crowd
            .timeline(Phase::Create, STEP, STEPS)
            .map_err(anyhow::Error::msg)?;
        let rate = |count: u64| count as f64 / STEP.as_secs_f64();
        // The last third says what it comes to.
        let late = &ended[STEPS * 2 / 3..];
        let steady = rate(late.iter().sum::<u64>()) / late.len() as f64;
        let least = late.iter().copied().min().map_or(0.0, rate);
        let reached = ended.iter().position(|count| rate(*count) >= 0.9 * steady);
        let reached = reached.map(|n| n as u64 * STEP.as_millis() as u64);
        for (n, count) in ended.iter().enumerate() {
            lines.push(vec![
                ("servers", json!(servers)),
                ("ms", json!(n as u64 * STEP.as_millis() as u64)),
                ("creates/s", json!(rate(*count).round())),
                ("of steady", round(rate(*count) / steady.max(1.0))),
                ("paper", json!(NOT_IN_TEXT)),
            ]);
        }
        told.push(format!(
            "{servers} servers: {steady:.0}/s, nine tenths of it after {} ms, then never below {:.2} of it",
            reached.map_or("-".into(), |ms| ms.to_string()),
            least / steady.max(1.0)
        ));
    }
    let mut params = bench.params(&calibration);
    params["split_entries"] = json!(SPLIT);
    Ok(Drawn {
        bench: "figure",
        figure: Some("indexfs-5"),
        params,
        lines,
        claims: vec![Claim {
            about: "creates while a directory spreads",
            paper: "throughput rises as the directory is split, and is steady once each server has a part",
            here: told.join("; "),
        }],
    })
}
