//! Figure 14: latency, in parts, and throughput of renames of files and of directories.

use super::Virtual;
use crate::bench::lines::{Claim, Drawn, Line, NOT_IN_TEXT, round};
use crate::scale::CrowdArgs;
use anyhow::Result;
use pando_client::explain::{Exchange, Explained};
use pando_scale::{Crowd, Measured, Phase};
use pando_wire::{ErrandEnd, Task};
use serde_json::json;

/// Clients that rename directories at once: one server gives them all their turns, and more would only wait
/// longer.
const DIR_CLIENTS: u32 = 128;
/// Directories renamed while throughput is measured; so few that each has one left.
const DIR_RENAMES: u64 = 512;
/// Renames of one client alone.
const ALONE: usize = 24;

/// Microseconds of each part of a rename.
#[derive(Default)]
struct Parts {
    took: f64,
    /// Other round trips of the client: whom to ask.
    before: f64,
    /// The way up to the root, to see that no loop comes of it.
    loops: f64,
    /// Telling all servers.
    told: f64,
    /// Locks, votes and syncs.
    transaction: f64,
}

/// How long at least one errand of this kind was under way.
fn under_way(message: &Exchange, wanted: impl Fn(Task) -> bool) -> f64 {
    let account = message.account.as_ref();
    let mut spans: Vec<(u64, u64)> = account
        .into_iter()
        .flat_map(|a| &a.errands)
        .filter(|e| wanted(e.what) && e.end != ErrandEnd::Later)
        .map(|e| (e.at, e.at + e.took))
        .collect();
    spans.sort_unstable();
    let (mut sum, mut end) = (0, 0);
    for (from, to) in spans {
        sum += to.saturating_sub(from.max(end));
        end = end.max(to);
    }
    sum as f64
}

impl Parts {
    fn of(all: &[Explained]) -> Parts {
        let mut parts = Parts::default();
        let n = all.len().max(1) as f64;
        for one in all {
            let Some((last, before)) = one.messages.split_last() else {
                continue;
            };
            parts.took += one.took.as_secs_f64() * 1e6 / n;
            parts.before += before.iter().map(|m| m.took.as_secs_f64() * 1e6).sum::<f64>() / n;
            parts.loops += under_way(last, |t| t == Task::Ancestor) / n;
            parts.told += under_way(last, |t| t == Task::Invalidate) / n;
            parts.transaction += under_way(last, |t| matches!(t, Task::Lock | Task::Prepare)) / n;
        }
        parts
    }

    fn rest(&self) -> f64 {
        self.took - self.before - self.loops - self.told - self.transaction
    }
}

struct Point {
    servers: u16,
    phase: Phase,
    parts: Parts,
    measured: Measured,
}

pub fn draw(bench: &Virtual) -> Result<Drawn> {
    let calibration = bench.crowd.calibration(&bench.how)?;
    let mut points = Vec::new();
    for phase in [Phase::RenameFile, Phase::RenameDir] {
        for servers in bench.servers() {
            let problem = |e: String| anyhow::anyhow!("{servers} servers: {e}");
            let setup = |clients| {
                let crowd = CrowdArgs {
                    clients,
                    ..bench.crowd.clone()
                };
                eprintln!("{servers} servers, {clients} clients, {}", phase.name());
                let setup = crowd.setup(servers, bench.how.durability, &calibration);
                Crowd::start(&setup).map_err(problem)
            };
            let alone = setup(1)?;
            alone.prepare(Phase::Mkdir, ALONE as u64).map_err(problem)?;
            alone.prepare(Phase::Create, ALONE as u64).map_err(problem)?;
            let explained = alone.explain(phase, ALONE).map_err(problem)?;
            drop(alone);
            let (clients, ops) = match phase {
                Phase::RenameDir => (bench.crowd.clients.min(DIR_CLIENTS), DIR_RENAMES),
                _ => (bench.crowd.clients, bench.crowd.ops * u64::from(servers) / 2),
            };
            let crowd = setup(clients)?;
            let each = 8 + 2 * ops / u64::from(clients);
            crowd.prepare(Phase::Mkdir, each).map_err(problem)?;
            if phase == Phase::RenameFile {
                crowd.prepare(Phase::Create, each).map_err(problem)?;
            }
            points.push(Point {
                servers,
                phase,
                parts: Parts::of(&explained),
                measured: crowd.run(phase, ops).map_err(problem)?,
            });
        }
    }
    Ok(Drawn {
        bench: "figure",
        figure: Some("infinifs-14"),
        params: bench.params(&calibration),
        lines: lines(&points),
        claims: claims(&points),
    })
}

fn lines(points: &[Point]) -> Vec<Line> {
    points
        .iter()
        .map(|p| {
            let (parts, m) = (&p.parts, &p.measured);
            vec![
                ("operation", json!(p.phase.name())),
                ("servers", json!(p.servers)),
                ("alone us", round(parts.took)),
                ("whom to ask", round(parts.before)),
                ("loops", round(parts.loops)),
                ("told", round(parts.told)),
                ("transaction", round(parts.transaction)),
                ("rest", round(parts.rest())),
                ("ops/s", json!(m.rate().round())),
                ("least busy", round(m.least_busy())),
                ("most busy", round(m.busy.iter().copied().fold(0.0, f64::max))),
                ("between", round(m.between)),
                ("paper", json!(NOT_IN_TEXT)),
            ]
        })
        .collect()
}

fn claims(points: &[Point]) -> Vec<Claim> {
    let of = |phase| points.iter().filter(move |p| p.phase == phase);
    let first = |phase| of(phase).find(|p| p.servers > 1).or(of(phase).next());
    let last = |phase| of(phase).next_back();
    let ends = |phase| first(phase).zip(last(phase));
    let (Some((file, file_end)), Some((dir, dir_end))) = (ends(Phase::RenameFile), ends(Phase::RenameDir))
    else {
        return Vec::new();
    };
    let more = |a: &Point, b: &Point| b.measured.rate() / a.measured.rate();
    vec![
        Claim {
            about: "Latency of a file's rename against a directory's",
            paper: "much lower, and steady while that of directories increases slowly with the servers",
            here: format!(
                "with {} servers {:.0} us against {:.0} us, with {} {:.0} us against {:.0} us",
                file.servers,
                file.parts.took,
                dir.parts.took,
                file_end.servers,
                file_end.parts.took,
                dir_end.parts.took
            ),
        },
        Claim {
            about: "Throughput of file renames",
            paper: "scales with the number of servers",
            here: format!(
                "{:.1} times as many with {} servers as with {}: {:.0} ops/s",
                more(file, file_end),
                file_end.servers,
                file.servers,
                file_end.measured.rate()
            ),
        },
        Claim {
            about: "Throughput of directory renames",
            paper: "does not scale, near 10K ops/s: one coordinator detects loops and broadcasts",
            here: format!(
                "{:.0} ops/s with {} servers, {:.0} with {}",
                dir.measured.rate(),
                dir.servers,
                dir_end.measured.rate(),
                dir_end.servers
            ),
        },
    ]
}
