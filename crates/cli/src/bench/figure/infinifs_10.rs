//! Figure 10: latency of mkdir, create, stat and delete with 32 servers, of one client alone and of all.

use super::Virtual;
use crate::bench::lines::{Claim, Drawn, NOT_IN_TEXT, round};
use crate::scale::{CrowdArgs, Point, measure};
use anyhow::Result;
use pando_scale::Phase;
use serde_json::json;

/// Operations of the client that is alone, for each server.
const ALONE: u64 = 20;

pub fn draw(bench: &Virtual) -> Result<Drawn> {
    let calibration = bench.crowd.calibration(&bench.how)?;
    let crowd = |clients, ops| -> Result<Point> {
        let crowd = CrowdArgs {
            clients,
            ..bench.crowd.clone()
        };
        eprintln!("{} servers, {clients} clients", bench.most);
        measure(&crowd.setup(bench.most, bench.how.durability, &calibration), ops)
    };
    let points = [
        (1, crowd(1, ALONE)?),
        (bench.crowd.clients, crowd(bench.crowd.clients, bench.crowd.ops)?),
    ];
    let rtt = bench.crowd.network.as_secs_f64() * 1e6;
    let mut lines = Vec::new();
    for (clients, point) in &points {
        for m in &point.phases {
            lines.push(vec![
                ("operation", json!(m.phase.name())),
                ("clients", json!(clients)),
                ("mean us", round(m.mean_us)),
                ("p99 us", round(m.p99_us)),
                ("in RTTs", round(m.mean_us / rtt.max(1e-9))),
                ("round trips", round(m.round_trips)),
                ("between", round(m.between)),
                ("paper", json!(NOT_IN_TEXT)),
            ]);
        }
    }
    let alone = &points[0].1;
    let of = |phase| alone.phases.iter().find(|m| m.phase == phase);
    let mean = |phase| of(phase).map_or(f64::NAN, |m| m.mean_us);
    let trips = |phase| of(phase).map_or(f64::NAN, |m| m.round_trips);
    let claims = vec![
        Claim {
            about: "create, stat and delete",
            paper: "as low as LocoFS, of which all operations take nearly one RTT",
            here: format!(
                "{:.2}, {:.2} and {:.2} round trips; {:.0}, {:.0} and {:.0} us over a network of {rtt:.0} us",
                trips(Phase::Create),
                trips(Phase::Stat),
                trips(Phase::Delete),
                mean(Phase::Create),
                mean(Phase::Stat),
                mean(Phase::Delete)
            ),
        },
        Claim {
            about: "mkdir",
            paper: "higher than LocoFS: a distributed transaction",
            here: format!(
                "{:.2} round trip of the client, {:.1} times as long as create",
                trips(Phase::Mkdir),
                mean(Phase::Mkdir) / mean(Phase::Create)
            ),
        },
    ];
    Ok(Drawn {
        bench: "figure",
        figure: Some("infinifs-10"),
        params: bench.params(&calibration),
        lines,
        claims,
    })
}
