//! Where IndexFS puts new directories (§II-A): the less loaded of two servers beside one random choice.

use super::Virtual;
use crate::bench::calibrate::Calibration;
use crate::bench::lines::{Claim, Drawn, NOT_IN_TEXT, round};
use anyhow::Result;
use pando_scale::{Setup, Shares, largest, place};
use pando_types::Ids;
use serde_json::json;

const WAYS: [(&str, Ids); 2] = [
    ("less loaded of two", Ids::Placed),
    // A hash of where it is born.
    ("one random choice", Ids::Predicted),
];
/// Numbers of directories.
const DIRS: [u64; 2] = [1_000, 10_000];
/// Clients that make them together: the more, the less servers know of what others have just been given.
const CLIENTS: [u32; 2] = [4, 64];
/// Times that each is done, with another seed each.
const TIMES: u64 = 3;
/// The largest share of 10,000 directories on 32 servers is at most so many times the mean.
const AIM: f64 = 1.05;

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len().max(1) as f64
}

fn most(all: &[f64]) -> f64 {
    all.iter().copied().fold(0.0, f64::max)
}

/// Every time of one way.
fn times(
    bench: &Virtual,
    calibration: &Calibration,
    ids: Ids,
    clients: u32,
    dirs: u64,
) -> Result<Vec<Shares>> {
    let one = |time| {
        let setup = Setup {
            ids,
            clients,
            seed: bench.crowd.seed + time,
            ..bench.crowd.setup(bench.most, bench.how.durability, calibration)
        };
        place(&setup, dirs).map_err(anyhow::Error::msg)
    };
    (0..TIMES).map(one).collect()
}

pub fn draw(bench: &Virtual) -> Result<Drawn> {
    let calibration = bench.crowd.calibration(&bench.how)?;
    let mut lines = Vec::new();
    let mut found = Vec::new();
    for clients in CLIENTS {
        for dirs in DIRS {
            for (way, ids) in WAYS {
                eprintln!(
                    "{} servers, {clients} clients, {dirs} directories, {way}",
                    bench.most
                );
                let shares = times(bench, &calibration, ids, clients, dirs)?;
                let records: Vec<f64> = shares.iter().map(|s| largest(&s.records)).collect();
                let contents: Vec<f64> = shares.iter().map(|s| largest(&s.directories)).collect();
                lines.push(vec![
                    ("clients", json!(clients)),
                    ("directories", json!(dirs)),
                    ("choice", json!(way)),
                    ("largest/mean", round(mean(&records))),
                    ("worst of 3", round(most(&records))),
                    ("directories alone", round(mean(&contents))),
                    ("paper", json!(NOT_IN_TEXT)),
                ]);
                found.push((clients, dirs, ids, mean(&records)));
            }
        }
    }
    let of = |wanted| {
        let line = found.iter().find(|(c, d, ids, _)| (*c, *d, *ids) == wanted);
        line.map_or(f64::NAN, |(.., share)| *share)
    };
    let (even, chance) = (of((4, 10_000, Ids::Placed)), of((4, 10_000, Ids::Predicted)));
    let crowded = of((64, 10_000, Ids::Placed));
    let met = if even <= AIM { "met" } else { "missed" };
    let claims = vec![Claim {
        about: "load of servers",
        paper: "two random servers are probed, and a directory is placed on the one with fewer directory entries: that reduces the variance",
        here: format!(
            "of the records of 10,000 directories the largest share is {even:.3} of the mean (aim: at most {AIM}, {met}); by one random \
             choice {chance:.3}. With 64 clients, whose directories are all made in a few hundredths of a second, {crowded:.3}"
        ),
    }];
    let mut params = bench.params(&calibration);
    params["crowd"]["clients"] = json!(CLIENTS);
    params["times"] = json!(TIMES);
    Ok(Drawn {
        bench: "figure",
        figure: Some("indexfs-placement"),
        params,
        lines,
        claims,
    })
}
