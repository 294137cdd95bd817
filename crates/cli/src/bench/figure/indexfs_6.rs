//! Figures 6 and 7 of IndexFS: clients without caches, and with leases of each policy, on a tree of which few
//! directories are used by most.

use super::Virtual;
use crate::bench::calibrate::Calibration;
use crate::bench::lines::{Claim, Drawn, NOT_IN_TEXT, round};
use anyhow::Result;
use pando_client::CACHE_BYTES;
use pando_cluster::{Coherence, LeaseLength};
use pando_scale::{Crowd, Kind, Replayed, Setup, replay};
use pando_types::Ids;
use serde_json::json;

/// How clients keep what they know, and whether they keep anything.
struct Way {
    name: &'static str,
    coherence: Coherence,
    cache_bytes: usize,
}

const fn lease(name: &'static str, length: LeaseLength) -> Way {
    Way {
        name,
        coherence: Coherence::Lease(length),
        cache_bytes: CACHE_BYTES,
    }
}

/// The paper's, and Pando's own.
const WAYS: [Way; 6] = [
    Way {
        name: "no caching",
        coherence: Coherence::Lazy,
        cache_bytes: 0,
    },
    lease("fixed 0.1 s", LeaseLength::Fixed(100)),
    lease("fixed 1 s", LeaseLength::Fixed(1_000)),
    lease("3 s / depth", LeaseLength::Depth(3_000)),
    lease("rate, 1 s", LeaseLength::Rate(1_000)),
    Way {
        name: "lazy",
        coherence: Coherence::Lazy,
        cache_bytes: CACHE_BYTES,
    },
];
/// Clients of each server, as in the paper.
const CLIENTS: u32 = 8;

fn measure(bench: &Virtual, calibration: &Calibration, way: &Way, servers: u16) -> Result<Replayed> {
    eprintln!("{servers} servers, {CLIENTS} clients of each, {}", way.name);
    let setup = Setup {
        ids: Ids::Placed,
        coherence: way.coherence,
        clients: CLIENTS * u32::from(servers),
        ..bench.crowd.setup(servers, bench.how.durability, calibration)
    };
    let problem = |e: String| anyhow::anyhow!("{}, {servers} servers: {e}", way.name);
    let crowd = Crowd::start(&setup).map_err(problem)?;
    let ops = bench.crowd.ops * u64::from(servers);
    replay(&crowd, ops, way.cache_bytes, bench.crowd.seed).map_err(problem)
}

fn drawn(bench: &Virtual, calibration: &Calibration, figure: &'static str) -> Drawn {
    let mut params = bench.params(calibration);
    params["crowd"]["clients"] = json!(format!("{CLIENTS} of each server"));
    Drawn {
        bench: "figure",
        figure: Some(figure),
        params,
        lines: Vec::new(),
        claims: Vec::new(),
    }
}

pub fn throughput(bench: &Virtual) -> Result<Drawn> {
    let calibration = bench.crowd.calibration(&bench.how)?;
    let mut all = drawn(bench, &calibration, "indexfs-6");
    let mut told = Vec::new();
    for way in &WAYS {
        let mut first = None;
        for servers in bench.servers() {
            let found = measure(bench, &calibration, way, servers)?;
            let each = found.rate() / f64::from(servers);
            let linear = each / *first.get_or_insert(each);
            all.lines.push(vec![
                ("coherence", json!(way.name)),
                ("servers", json!(servers)),
                ("ops/s", json!(found.rate().round())),
                ("of each server", json!(each.round())),
                ("of linear", round(linear)),
                ("round trips", round(found.round_trips)),
                ("paper", json!(NOT_IN_TEXT)),
            ]);
            if servers == bench.most {
                told.push(format!("{} {each:.0} ({linear:.2} of linear)", way.name));
            }
        }
    }
    all.claims = vec![Claim {
        about: "operations of each server with the most servers",
        paper: "without caching it does not scale; leases by rate are best, 4,016/s of each of 128 servers; 1 s fixed better than 0.1 s",
        here: format!(
            "{} (of a hundred operations here 2 or 3 change permissions of directories, and wait for leases; \
             the trace's share is not in the text)",
            told.join("; ")
        ),
    }];
    Ok(all)
}

pub fn latency(bench: &Virtual) -> Result<Drawn> {
    let calibration = bench.crowd.calibration(&bench.how)?;
    let mut all = drawn(bench, &calibration, "indexfs-7");
    let mut told = Vec::new();
    for way in &WAYS {
        let found = measure(bench, &calibration, way, bench.most)?;
        for (name, kind) in [
            ("lookup", Kind::Look),
            ("create", Kind::Create),
            ("update", Kind::Update),
        ] {
            let of = found.of(kind);
            all.lines.push(vec![
                ("coherence", json!(way.name)),
                ("operation", json!(name)),
                ("count", json!(of.count)),
                ("mean us", round(of.mean)),
                ("p50 us", round(of.p50)),
                ("p99 us", round(of.p99)),
                ("most us", round(of.most)),
                ("paper", json!(NOT_IN_TEXT)),
            ]);
        }
        let (look, update) = (found.of(Kind::Look), found.of(Kind::Update));
        told.push(format!(
            "{}: looks {:.0} and {:.0} us, updates {:.0} and {:.0} us",
            way.name, look.p50, look.p99, update.p50, update.p99
        ));
    }
    all.claims = vec![Claim {
        about: "median and 99th percentile",
        paper: "leases by rate have the lowest median and the best 99th percentile of lookups; their longest update is longer than with 0.1 s fixed",
        here: told.join("; "),
    }];
    Ok(all)
}
