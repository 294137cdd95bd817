//! Figure 4 of IndexFS: creates, stats and removals in one directory that all clients share, with more and
//! more servers, once each has a part of it.

use super::Virtual;
use crate::bench::lines::{Claim, Drawn, Line, NOT_IN_TEXT, round};
use crate::scale::{Point, to_linear};
use anyhow::Result;
use pando_cluster::Placement;
use pando_scale::{Crowd, Files, Phase, Setup};
use pando_types::Ids;
use serde_json::json;
use std::time::{Duration, Instant};

/// Each with what the paper measured on 128 servers.
const PHASES: [(Phase, &str); 3] = [
    (Phase::Create, "842,000/s on 128 servers"),
    (Phase::Stat, "1,161,000/s on 128 servers"),
    (Phase::Delete, "930,000/s on 128 servers"),
];
/// Entries of which a part is split.
pub(super) const SPLIT: u32 = 250;
/// Files that are made for each server before it is looked whether all have parts.
const FILLED: u64 = 2 * SPLIT as u64;
/// Halves that are being copied have come by then.
const SETTLED: Duration = Duration::from_secs(1);
/// So often at most.
const ROUNDS: u32 = 64;
/// Creates of each client in which it learns where the parts are.
const LEARNT: u64 = 48;
/// All reach so much of linear.
const AIM: f64 = 0.85;

/// Clients in one directory.
pub(super) fn setup(of: Setup) -> Setup {
    Setup {
        ids: Ids::Placed,
        placement: Placement::Split(SPLIT),
        files: Files::Shared,
        ..of
    }
}

fn measure(setup: &Setup, ops: u64) -> Result<Point> {
    let began = Instant::now();
    let problem = |e: String| anyhow::anyhow!("{} servers: {e}", setup.servers);
    let crowd = Crowd::start(setup).map_err(problem)?;
    let servers = u64::from(setup.servers);
    let each = (FILLED * servers).div_ceil(u64::from(setup.clients));
    let mut rounds = 0;
    // Each split gives one more server a part.
    while crowd.splits() + 1 < servers || rounds == 0 {
        anyhow::ensure!(rounds < ROUNDS, "{servers} servers: not all have a part of it");
        crowd.prepare(Phase::Create, each).map_err(problem)?;
        crowd.rest(SETTLED).map_err(problem)?;
        rounds += 1;
    }
    // Clients learn of parts as they are sent on.
    crowd.prepare(Phase::Create, LEARNT).map_err(problem)?;
    let ops = ops * servers;
    let mut phases = Vec::new();
    // As many are removed as were made meanwhile: clients that have nothing left make others look slow.
    for (phase, ops) in [(Phase::Create, ops), (Phase::Stat, ops), (Phase::Delete, ops / 2)] {
        phases.push(crowd.run(phase, ops).map_err(problem)?);
    }
    Ok(Point {
        servers: setup.servers,
        phases,
        wall: began.elapsed(),
    })
}

pub fn draw(bench: &Virtual) -> Result<Drawn> {
    let calibration = bench.crowd.calibration(&bench.how)?;
    let mut points = Vec::new();
    for servers in bench.servers() {
        eprintln!(
            "{servers} servers, {} clients, one directory",
            bench.crowd.clients
        );
        let setup = setup(bench.crowd.setup(servers, bench.how.durability, &calibration));
        points.push(measure(&setup, bench.crowd.ops)?);
    }
    let mut params = bench.params(&calibration);
    params["split_entries"] = json!(SPLIT);
    Ok(Drawn {
        bench: "figure",
        figure: Some("indexfs-4"),
        params,
        lines: lines(&points),
        claims: claims(&points),
    })
}

fn lines(points: &[Point]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (phase, _) in PHASES {
        for point in points {
            let Some(m) = point.phases.iter().find(|m| m.phase == phase) else {
                continue;
            };
            let share = to_linear(points, point, phase, 1).map_or(json!(null), round);
            lines.push(vec![
                ("operation", json!(phase.name())),
                ("servers", json!(point.servers)),
                ("ops/s", json!(m.rate().round())),
                ("of linear", share),
                ("least busy", round(m.least_busy())),
                ("round trips", round(m.round_trips)),
                ("between", round(m.between)),
                ("paper", json!(NOT_IN_TEXT)),
            ]);
        }
    }
    lines
}

fn claims(points: &[Point]) -> Vec<Claim> {
    let Some(last) = points.last() else {
        return Vec::new();
    };
    let claim = |(phase, paper): (Phase, &'static str)| {
        let of = last.phases.iter().find(|m| m.phase == phase);
        let rate = of.map_or(f64::NAN, |m| m.rate());
        let share = to_linear(points, last, phase, 1).unwrap_or(f64::NAN);
        let met = if share >= AIM { "met" } else { "missed" };
        Claim {
            about: phase.name(),
            paper,
            here: format!(
                "{rate:.0}/s on {} servers, {share:.2} of linear (aim: {AIM}, {met})",
                last.servers
            ),
        }
    };
    PHASES.map(claim).into()
}
