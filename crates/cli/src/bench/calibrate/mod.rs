//! `pando bench calibrate`: what one server takes for each kind of message, measured here and now; the
//! simulator's virtual time adds it up (`pando sim scale`).
//!
//! Two real servers work in this process, each on a thread with sockets and a RocksDB of its own. First one
//! client asks for one thing at a time: the processor time that a server's thread uses from one message to
//! the next is what the first of them took. Then several clients ask at once: the sum of all these times,
//! against what the first numbers predict, says how much less a message takes when there are always more to
//! read. Costs are the first numbers times that share.

mod meter;
mod servers;
mod work;

use super::lines::median;
use crate::args::{Args, Mode};
use anyhow::{Context, Result};
use meter::Samples;
use pando_scale::Costs;
use serde_json::{Map, Value, json};
use servers::Pair;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Messages of one kind that must have been measured, or it counts as not measured.
const ENOUGH: usize = 40;

/// How often it is measured if nothing else is said.
pub const ROUNDS: u8 = 3;

/// Measures what a server of this machine takes for each kind of message, and its device for a sync.
///
/// The result is for `pando sim scale --calibration FILE` and `pando bench figure infinifs-9 --calibration
/// FILE`, which measure it themselves if no file is given.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando bench calibrate --out costs.json\n  pando bench calibrate --at /dev/shm --durability async --json"
)]
pub struct CalibrateArgs {
    /// Where to write it. [default: nowhere; it is printed]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub how: How,
}

/// How it is measured.
#[derive(clap::Args, Clone, Debug)]
pub struct How {
    /// Operations of each kind that one client does.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u64).range(50..=1_000_000))]
    pub operations: u64,
    /// How often all of it is measured: of each number the middle one counts.
    #[arg(long, default_value_t = ROUNDS, value_parser = clap::value_parser!(u8).range(1..=99))]
    pub rounds: u8,
    /// Where to make the temporary folder: its device is the one whose syncs count. [default: the system's]
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// Durability of the servers: as in the paper, which keeps its stores in memory, `async`.
    #[arg(long, value_enum, default_value_t = Mode::Async)]
    pub durability: Mode,
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    /// Built from.
    pub commit: String,
    /// Where the stores were, and how durable.
    pub params: Value,
    /// Processor time of each kind of message under load, in microseconds.
    pub service_us: BTreeMap<String, f64>,
    /// The same with one message at a time.
    pub alone_us: BTreeMap<String, f64>,
    /// How many messages of each kind were measured.
    pub messages: BTreeMap<String, u64>,
    /// Of the kinds that are not listed: an empty request.
    pub other_us: f64,
    /// Processor time of a client for an operation of one round trip.
    pub client_us: f64,
    /// Batches that share a sync, and how long it takes.
    pub sync_us: Vec<(u64, f64)>,
}

impl Calibration {
    /// For scripts, and for the file.
    pub fn json(&self) -> Value {
        let round = |x: &f64| json!((x * 1000.0).round() / 1000.0);
        let times = |all: &BTreeMap<String, f64>| -> Map<String, Value> {
            all.iter().map(|(kind, us)| (kind.clone(), round(us))).collect()
        };
        json!({
            "bench": "calibrate", "commit": self.commit, "unit": "us", "params": self.params,
            "service_us": times(&self.service_us), "alone_us": times(&self.alone_us), "messages": self.messages,
            "other_us": round(&self.other_us), "client_us": round(&self.client_us),
            "sync_us": self.sync_us.iter().map(|(n, us)| json!([n, round(us)])).collect::<Vec<_>>(),
        })
    }

    /// From a file that [`Calibration::json`] wrote.
    pub fn read(path: &Path) -> Result<Calibration> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the calibration {}", path.display()))?;
        let from = || -> Option<Calibration> {
            let value: Value = serde_json::from_str(&text).ok()?;
            let us = |v: &Value| v.as_f64().filter(|us| us.is_finite() && *us >= 0.0 && *us < 1e9);
            let times = |field: &str| -> Option<BTreeMap<String, f64>> {
                let all = value.get(field)?.as_object()?;
                all.iter().map(|(kind, v)| Some((kind.clone(), us(v)?))).collect()
            };
            let sync = value.get("sync_us")?.as_array()?;
            let sync_us: Option<Vec<(u64, f64)>> = sync
                .iter()
                .map(|pair| Some((pair.get(0)?.as_u64()?, us(pair.get(1)?)?)))
                .collect();
            Some(Calibration {
                commit: value.get("commit")?.as_str()?.to_owned(),
                params: value.get("params")?.clone(),
                service_us: times("service_us")?,
                alone_us: times("alone_us")?,
                messages: BTreeMap::new(),
                other_us: us(value.get("other_us")?)?,
                client_us: us(value.get("client_us")?)?,
                sync_us: sync_us.filter(|s| s.is_sorted_by_key(|(n, _)| *n))?,
            })
        };
        from().with_context(|| {
            format!(
                "{} is not a calibration; `pando bench calibrate --out {}` writes one",
                path.display(),
                path.display()
            )
        })
    }

    /// As virtual time uses it, over a network with this round trip.
    pub fn costs(&self, rtt: Duration) -> Costs {
        let ns = |us: f64| (us * 1000.0).round() as u64;
        Costs {
            service: self
                .service_us
                .iter()
                .map(|(kind, us)| (kind.clone(), ns(*us)))
                .collect(),
            other: ns(self.other_us),
            client: ns(self.client_us),
            one_way: (rtt / 2).as_nanos() as u64,
            sync: self.sync_us.iter().map(|(n, us)| (*n, ns(*us))).collect(),
        }
    }
}

/// The middle of what lies between the first and the last hundredth.
fn mean(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    let cut = samples.len() / 100;
    let middle = &samples[cut..samples.len() - cut];
    middle.iter().sum::<f64>() / middle.len().max(1) as f64
}

/// Measures everything, as often as it is to be; tells on stderr how far it is.
pub fn measure(how: &How) -> Result<Calibration> {
    let mut all = Vec::new();
    for round in 1..=how.rounds {
        eprintln!("calibrating: round {round} of {}", how.rounds);
        all.push(measure_once(how)?);
    }
    let first = all.first().cloned().unwrap_or_default();
    let middle = |what: &dyn Fn(&Calibration) -> f64| median(&all.iter().map(what).collect::<Vec<_>>());
    // Of a kind that a round did not have the others count.
    let kinds = |of: &dyn Fn(&Calibration) -> &BTreeMap<String, f64>| -> BTreeMap<String, f64> {
        let names: BTreeSet<&String> = all.iter().flat_map(|c| of(c).keys()).collect();
        let each = names.into_iter().map(|kind| {
            let found: Vec<f64> = all.iter().filter_map(|c| of(c).get(kind).copied()).collect();
            (kind.clone(), median(&found))
        });
        each.collect()
    };
    let groups = 0..first.sync_us.len();
    Ok(Calibration {
        service_us: kinds(&|c| &c.service_us),
        alone_us: kinds(&|c| &c.alone_us),
        other_us: middle(&|c| c.other_us),
        client_us: middle(&|c| c.client_us),
        sync_us: groups
            .map(|n| (first.sync_us[n].0, middle(&|c| c.sync_us[n].1)))
            .collect(),
        messages: all.iter().flat_map(|c| &c.messages).fold(
            BTreeMap::new(),
            |mut sums: BTreeMap<String, u64>, (kind, n)| {
                *sums.entry(kind.clone()).or_default() += n;
                sums
            },
        ),
        ..first
    })
}

fn measure_once(how: &How) -> Result<Calibration> {
    let at = how.at.clone().unwrap_or_else(std::env::temp_dir);
    let pair = Pair::start(&at, how.durability)?;
    let (mut alone, mut client) = (Samples::default(), Vec::new());
    for (task, mut samples, client_us) in work::alone(&pair, how.operations)? {
        if task == work::Task::RenameDir {
            // A file's takes much more than to say that a directory's is for the coordinator.
            samples.0.remove("rename");
        }
        if task.is_simple() {
            client.push(client_us);
        }
        alone.add(samples);
    }
    let together = work::together(&pair, how.operations)?;
    let mut alone_us = BTreeMap::new();
    let mut messages = BTreeMap::new();
    // A rare message comes while nothing else does. It would be charged with the work of a waiting thread.
    alone.0.retain(|_, samples| samples.len() >= ENOUGH);
    for (kind, samples) in &mut alone.0 {
        messages.insert((*kind).to_owned(), samples.len() as u64);
        alone_us.insert((*kind).to_owned(), mean(samples));
    }
    // What a message takes beside others, against alone: of each task, then of each kind in the tasks that
    // have it.
    let mut scale: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for (_, samples) in &together {
        let all = || samples.0.iter();
        let total: f64 = all().map(|(_, samples)| samples.iter().sum::<f64>()).sum();
        let predicted: f64 = all()
            .map(|(kind, samples)| alone_us.get(*kind).copied().unwrap_or(0.0) * samples.len() as f64)
            .sum();
        for (kind, samples) in all() {
            let (sum, weight) = scale.entry((*kind).to_owned()).or_default();
            *sum += total / predicted.max(1e-9) * samples.len() as f64;
            *weight += samples.len() as f64;
        }
    }
    let service_us = alone_us
        .iter()
        .map(|(kind, us)| {
            let share = scale
                .get(kind)
                .map_or(1.0, |(sum, weight)| sum / weight.max(1e-9));
            (kind.clone(), us * share)
        })
        .collect::<BTreeMap<_, _>>();
    eprintln!("calibrating: syncs");
    Ok(Calibration {
        commit: option_env!("PANDO_COMMIT").unwrap_or("unknown").to_owned(),
        params: json!({
            "operations": how.operations, "rounds": how.rounds, "at": at.display().to_string(), "durability": how.durability.word(),
            "clients": work::CLIENTS,
        }),
        other_us: service_us.get("null").copied().unwrap_or_default(),
        client_us: mean(&mut client),
        sync_us: servers::syncs(&at, how.operations)?,
        service_us,
        alone_us,
        messages,
    })
}

pub fn run(args: &Args, bench: &CalibrateArgs) -> Result<ExitCode> {
    let measured = measure(&bench.how)?;
    let json = measured.json();
    if let Some(path) = &bench.out {
        std::fs::write(path, format!("{json:#}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        println!("{json}");
    } else {
        print!("{}", table(&measured));
    }
    Ok(ExitCode::SUCCESS)
}

/// For people.
pub fn table(c: &Calibration) -> String {
    let us = |x: f64| format!("{x:.1}");
    let rows: Vec<Vec<String>> = c
        .service_us
        .iter()
        .map(|(kind, time)| {
            let alone = c.alone_us.get(kind).copied().unwrap_or_default();
            let n = c.messages.get(kind).map_or("-".into(), u64::to_string);
            vec![kind.clone(), n, us(alone), us(*time)]
        })
        .collect();
    let mut out = crate::text::table(&["message", "measured", "alone us", "under load us"], &rows);
    for (n, time) in &c.sync_us {
        out += &format!("a sync of {n} batches: {time:.0} us\n");
    }
    out + &format!("a client, per operation: {:.1} us\n", c.client_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_the_same_costs() {
        let written = Calibration {
            commit: "c".into(),
            service_us: BTreeMap::from([("create".into(), 31.5), ("peer lock".into(), 9.25)]),
            other_us: 4.0,
            client_us: 11.0,
            sync_us: vec![(1, 100.0), (64, 250.5)],
            ..Calibration::default()
        };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("costs.json");
        std::fs::write(&path, written.json().to_string()).expect("written");
        let read = Calibration::read(&path).expect("read");
        let rtt = Duration::from_micros(60);
        assert_eq!(read.costs(rtt), written.costs(rtt));
        assert_eq!(read.costs(rtt).service["create"], 31_500);
        assert_eq!(read.costs(rtt).one_way, 30_000);
    }

    #[test]
    fn what_is_no_calibration_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("costs.json");
        let sound = Calibration::default().json();
        let mut negative = sound.clone();
        negative["other_us"] = json!(-1);
        let mut unsorted = sound.clone();
        unsorted["sync_us"] = json!([[8, 1.0], [1, 1.0]]);
        for text in [
            String::new(),
            "{}".into(),
            negative.to_string(),
            unsorted.to_string(),
        ] {
            std::fs::write(&path, text).expect("written");
            let error = Calibration::read(&path).expect_err("refused").to_string();
            assert!(error.contains("pando bench calibrate --out"), "{error}");
        }
        std::fs::write(&path, sound.to_string()).expect("written");
        Calibration::read(&path).expect("an empty one is one");
    }

    #[test]
    fn the_mean_leaves_out_what_is_far_off() {
        let mut samples: Vec<f64> = (0..200).map(|_| 10.0).collect();
        samples[17] = 10_000.0;
        samples[90] = 0.0;
        assert_eq!(mean(&mut samples), 10.0);
        assert_eq!(mean(&mut []), 0.0);
    }
}
