//! Figure 9: throughput of mkdir, create, stat and delete with 1 to 32 servers.

use super::Virtual;
use crate::bench::lines::{Claim, Drawn, Line, NOT_IN_TEXT, round};
use crate::scale::{Point, sweep, to_linear};
use anyhow::Result;
use pando_scale::Phase;
use serde_json::json;

const PHASES: [Phase; 4] = [Phase::Mkdir, Phase::Create, Phase::Stat, Phase::Delete];

pub fn draw(bench: &Virtual) -> Result<Drawn> {
    let (calibration, points) = sweep(&bench.servers(), &bench.crowd, &bench.how)?;
    Ok(Drawn {
        bench: "figure",
        figure: Some("infinifs-9"),
        params: bench.params(&calibration),
        lines: lines(&points),
        claims: claims(&points),
    })
}

fn lines(points: &[Point]) -> Vec<Line> {
    let mut lines = Vec::new();
    for phase in PHASES {
        for point in points {
            let Some(m) = point.phases.iter().find(|m| m.phase == phase) else {
                continue;
            };
            let share = |from| to_linear(points, point, phase, from).map_or(json!(null), round);
            let paper = match (phase, point.servers) {
                (Phase::Create, 1) => "180K ops/s",
                _ => NOT_IN_TEXT,
            };
            lines.push(vec![
                ("operation", json!(phase.name())),
                ("servers", json!(point.servers)),
                ("ops/s", json!(m.rate().round())),
                ("of linear", share(1)),
                ("from 2 on", share(2)),
                ("least busy", round(m.least_busy())),
                ("round trips", round(m.round_trips)),
                ("between", round(m.between)),
                ("paper", json!(paper)),
            ]);
        }
    }
    lines
}

fn claims(points: &[Point]) -> Vec<Claim> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    let rate = |point: &Point, phase| {
        let of = point.phases.iter().find(|m| m.phase == phase);
        of.map_or(f64::NAN, |m| m.rate())
    };
    let share = |phase, from| to_linear(points, last, phase, from).unwrap_or(f64::NAN);
    vec![
        Claim {
            about: "From the fewest to the most servers",
            paper: "near linear for mkdir, create, stat and delete, from 1 to 32",
            here: format!(
                "with {} of linear: create {:.2}, stat {:.2}, delete {:.2}; mkdir {:.2}, from two servers on {:.2}",
                last.servers,
                share(Phase::Create, 1),
                share(Phase::Stat, 1),
                share(Phase::Delete, 1),
                share(Phase::Mkdir, 1),
                share(Phase::Mkdir, 2),
            ),
        },
        Claim {
            about: "mkdir against create, with the most servers",
            paper: "much lower: two-phase locking and commit between two servers",
            here: format!(
                "{:.2} of it",
                rate(last, Phase::Mkdir) / rate(last, Phase::Create)
            ),
        },
        Claim {
            about: "create with one server",
            paper: "180K ops/s, with 8 worker threads of 96 cores",
            here: format!("{:.0} ops/s, with one event loop", rate(first, Phase::Create)),
        },
        Claim {
            about: "Peak with the most servers",
            paper: "about 4M ops/s with 32 servers (§5.7)",
            here: format!("stat {:.0} ops/s with {}", rate(last, Phase::Stat), last.servers),
        },
    ]
}
