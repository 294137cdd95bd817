//! Figure 15: what mispredictions cost. A path of 24 directories, more and more of them renamed to their
//! places, so that their IDs are not what the path predicts; evenly distributed, as in the paper.

use super::Real;
use crate::bench::lines::{Claim, Drawn, Line, NOT_IN_TEXT, best, median, round};
use crate::bench::own::OwnCluster;
use crate::bench::resolve::Chain;
use crate::connect::{Connection, Paths, ResolutionArg};
use anyhow::{Context, Result};
use pando_client::CACHE_BYTES;
use pando_types::Cred;
use serde_json::json;
use std::time::Instant;

/// Directories of the path.
const DEPTH: usize = 24;
/// Of them, renamed.
const RENAMED: [usize; 13] = [0, 1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24];
/// The approaches of the figure; the first is its baseline.
const WAYS: [(&str, ResolutionArg, usize); 3] = [
    ("naive", ResolutionArg::Sequential, 0),
    ("speculative", ResolutionArg::Speculative, 0),
    ("speculative and cache", ResolutionArg::Speculative, CACHE_BYTES),
];

/// One approach on one path.
#[derive(Default)]
struct Point {
    us: Vec<f64>,
    trips: u64,
    messages: u64,
}

impl Point {
    fn measure(&mut self, conn: &Connection, path: &[u8]) -> Result<()> {
        let (before, began) = (conn.client.stats(), Instant::now());
        conn.run(conn.client.resolve(&Cred::root(), path, true))
            .context("cannot resolve what was just made")?;
        self.us.push(began.elapsed().as_secs_f64() * 1e6);
        let after = conn.client.stats();
        self.trips += after.round_trips - before.round_trips;
        self.messages += after.round_trips - before.round_trips + after.beside - before.beside;
        Ok(())
    }

    fn each(&self, sum: u64) -> f64 {
        sum as f64 / self.us.len().max(1) as f64
    }
}

pub fn draw(bench: &Real) -> Result<Drawn> {
    let cluster = OwnCluster::start(&bench.at, bench.servers, &bench.choices(), bench.rtt)?;
    let maker = cluster.connect(bench.waiting, Paths::default())?;
    let mut conns = Vec::new();
    for (_, resolution, cache_bytes) in WAYS {
        let paths = Paths {
            resolution,
            cache_bytes,
        };
        conns.push(cluster.connect(bench.waiting, paths)?);
    }
    let mut paths = Vec::new();
    for renamed in RENAMED {
        paths.push(Chain::make(
            &maker,
            Vec::new(),
            &format!("r{renamed}-"),
            DEPTH,
            renamed,
        )?);
    }
    // What the cache is for: the true IDs of what was resolved before.
    for (path, conn) in paths.iter().flat_map(|p| conns.iter().map(move |c| (p, c))) {
        Point::default().measure(conn, &path.deepest)?;
    }
    let mut points: Vec<[Point; 3]> = RENAMED.iter().map(|_| Default::default()).collect();
    for _ in 0..bench.rounds {
        for (path, ways) in paths.iter().zip(&mut points) {
            for (point, conn) in ways.iter_mut().zip(&conns) {
                point.measure(conn, &path.deepest)?;
            }
        }
    }
    Ok(Drawn {
        bench: "figure",
        figure: Some("infinifs-15"),
        params: json!({
            "depth": DEPTH, "servers": bench.servers, "rounds": bench.rounds, "rtt_us": bench.rtt.as_micros() as u64,
            "waiting": bench.waiting.name(), "durability": bench.durability.word(),
        }),
        lines: lines(&points),
        claims: claims(&points),
    })
}

fn lines(points: &[[Point; 3]]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (renamed, ways) in RENAMED.iter().zip(points) {
        let baseline = median(&ways[0].us);
        for (p, (way, ..)) in ways.iter().zip(WAYS) {
            lines.push(vec![
                ("renamed", json!(renamed)),
                ("approach", json!(way)),
                ("round trips", round(p.each(p.trips))),
                ("messages", round(p.each(p.messages))),
                ("p50 us", round(median(&p.us))),
                ("best us", round(best(&p.us))),
                ("to baseline", round(median(&p.us) / baseline)),
                ("paper", json!(NOT_IN_TEXT)),
            ]);
        }
    }
    lines
}

fn claims(points: &[[Point; 3]]) -> Vec<Claim> {
    let time = |way: usize, at: usize| median(&points[at][way].us);
    let last = points.len() - 1;
    let slower = (0..points.len()).find(|at| time(1, *at) >= time(0, *at));
    let trips = |way: usize, at: usize| points[at][way].each(points[at][way].trips);
    vec![
        Claim {
            about: "Speculative resolution against naive",
            paper: "faster unless nearly half of the directories have been renamed",
            here: match slower {
                Some(at) => format!("faster below {} of {DEPTH} renamed", RENAMED[at]),
                None => format!("faster with all {DEPTH} renamed"),
            },
        },
        Claim {
            about: "Naive resolution, all renamed against none",
            paper: "mispredictions do not affect it",
            here: format!(
                "{:.2} of the time, {:.0} round trips against {:.0}",
                time(0, last) / time(0, 0),
                trips(0, last),
                trips(0, 0)
            ),
        },
        Claim {
            about: "The cache",
            paper: "clients remember the true IDs and avoid mispredictions in the future",
            here: format!(
                "{:.0} round trip with none renamed, {:.0} with all",
                trips(2, 0),
                trips(2, last)
            ),
        },
    ]
}
