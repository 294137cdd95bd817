//! `pando bench oracle`: whether the time of an answer tells what it does not say (H99).

use super::lines::{Drawn, round};
use super::meter::Meter;
use super::{Wait, connect};
use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Paths};
use anyhow::{Context, Result, bail};
use pando_types::{Birth, Cred, Instance, Name, Part, Perm, ServerId};
use pando_wire::{Probe, Request, Response};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Somebody who may not search a directory asks for what is below it, with every ID known to him: for an
/// entry that exists, for one that does not, and below a directory that does not exist. They take turns in
/// changing order, and their times are compared by two two-sample tests (Mann-Whitney, Kolmogorov-Smirnov). A
/// p of more than 0.01 says that a difference was not seen; one run in a hundred of equal times gives less.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  pando bench oracle --pairs 100000 --json")]
pub struct OracleArgs {
    /// Questions of each kind.
    #[arg(long, default_value_t = 100_000)]
    pub pairs: usize,
    /// How the client waits for answers.
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub waiting: Wait,
}

const KINDS: [&str; 3] = ["exists", "missing-name", "missing-directory"];

pub fn run(args: &Args, bench: &OracleArgs) -> Result<ExitCode> {
    if bench.pairs < 100 {
        bail!("with fewer than 100 pairs nothing can be said");
    }
    let dir = ClusterDir::of(args)?;
    let conn = connect(&dir, bench.waiting, Paths::default())?;
    let secret = Secret::make(&conn)?;
    let mut times = [const { Vec::new() }; 3];
    let mut order = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..bench.pairs {
        // Marsaglia's xorshift: any order that the server does not know will do.
        order ^= order << 13;
        order ^= order >> 7;
        order ^= order << 17;
        for turn in 0..3 {
            let kind = ((order >> 8) as usize + turn) % 3;
            times[kind].push(secret.ask(&conn, kind)?);
        }
    }
    secret.remove(&conn)?;
    let p = |test: fn(&[u64], &[u64]) -> f64, kind: usize| match kind {
        // The one that the others are compared with.
        2 => Value::Null,
        kind => json!((test(&times[kind], &times[2]) * 1e4).round() / 1e4),
    };
    let mut lines = Vec::new();
    for (kind, name) in KINDS.iter().enumerate() {
        let mut meter = Meter::new()?;
        times[kind]
            .iter()
            .for_each(|t| meter.record(Duration::from_nanos(*t)));
        let sum = Meter::sum(*name, vec![meter], false)?;
        lines.push(vec![
            ("asked for", json!(name)),
            ("ops", json!(sum.ops)),
            ("p50 us", round(sum.p50_us)),
            ("p99 us", round(sum.p99_us)),
            ("U test p", p(mann_whitney, kind)),
            ("KS test p", p(kolmogorov_smirnov, kind)),
        ]);
    }
    let drawn = Drawn {
        bench: "oracle",
        figure: None,
        params: json!({"pairs": bench.pairs, "waiting": bench.waiting.name()}),
        lines,
        claims: Vec::new(),
    };
    drawn.print(args);
    Ok(ExitCode::SUCCESS)
}

/// A directory that only root may search, with one in it, and in that a file.
struct Secret {
    top: String,
    server: ServerId,
    probes: [Probe; 3],
}

impl Secret {
    fn make(conn: &Connection) -> Result<Secret> {
        let top = format!("/bench-oracle-{}", std::process::id());
        let root = Cred::root();
        let doing = || "cannot make the directories to ask for";
        for (path, perm) in [
            (top.clone(), 0o700),
            (format!("{top}/known"), 0o755),
            (format!("{top}/known/x"), 0o755),
        ] {
            conn.run(conn.client.mkdir(&root, path.as_bytes(), Perm::new(perm)))
                .with_context(doing)?;
        }
        let entry = conn
            .run(
                conn.client
                    .resolve(&root, format!("{top}/known").as_bytes(), true),
            )
            .with_context(doing)?;
        let Some(known) = entry.entry.dir else {
            bail!("{top}/known is not the directory that was just made");
        };
        let map = conn.client.map();
        let server = map.owner(Part::whole(known.id).slot());
        // On the same server, born beside it.
        let missing = (0u32..)
            .map(|n| Birth {
                parent: known.parent,
                name: Name::new(format!("missing-{n}").as_bytes()).unwrap_or(known.name.clone()),
                version: 0,
            })
            .map(|birth| map.widths().dir_id(&birth))
            .find(|id| *id != known.id && map.owner(Part::whole(*id).slot()) == server)
            .context("no ID for a directory that does not exist")?;
        let name = |n: &str| Name::new(n.as_bytes()).context("a name");
        Ok(Secret {
            top,
            server,
            probes: [(known.id, "x"), (known.id, "y"), (missing, "x")]
                .map(|(dir, n)| name(n).map(|name| Probe { dir, name }))
                .into_iter()
                .collect::<Result<Vec<_>>>()?
                .try_into()
                .ok()
                .context("three questions")?,
        })
    }

    /// Nanoseconds until the answer.
    fn ask(&self, conn: &Connection, kind: usize) -> Result<u64> {
        let request = Request::Probe {
            instance: Instance(1),
            cred: Cred {
                uid: 65_534,
                gid: 65_534,
                groups: Vec::new(),
            },
            probes: vec![self.probes[kind].clone()],
        };
        let began = Instant::now();
        match conn.run(conn.client.admin(self.server, request))? {
            Response::Sealed(answers) if answers.len() == 1 => Ok(began.elapsed().as_nanos() as u64),
            _ => bail!("the server answered something else than was asked"),
        }
    }

    fn remove(&self, conn: &Connection) -> Result<()> {
        for below in ["/known/x", "/known", ""] {
            let path = format!("{}{below}", self.top);
            conn.run(conn.client.rmdir(&Cred::root(), path.as_bytes()))
                .context("cannot remove the directories that were asked for")?;
        }
        Ok(())
    }
}

/// All values in ascending order, each with whether it is of the first sample.
fn pooled(a: &[u64], b: &[u64]) -> Vec<(u64, bool)> {
    let mut all: Vec<_> = a
        .iter()
        .map(|x| (*x, true))
        .chain(b.iter().map(|x| (*x, false)))
        .collect();
    all.sort_unstable();
    all
}

/// Probability of ranks at least so unequal if both samples are of one distribution: normal approximation,
/// ties corrected.
fn mann_whitney(a: &[u64], b: &[u64]) -> f64 {
    let (na, nb) = (a.len() as f64, b.len() as f64);
    let n = na + nb;
    let (mut ranks, mut ties, mut before) = (0.0, 0.0, 0.0);
    for same in pooled(a, b).chunk_by(|x, y| x.0 == y.0) {
        let t = same.len() as f64;
        ranks += (before + (t + 1.0) / 2.0) * same.iter().filter(|x| x.1).count() as f64;
        ties += t * t * t - t;
        before += t;
    }
    let u = ranks - na * (na + 1.0) / 2.0;
    let deviation = (na * nb / 12.0 * ((n + 1.0) - ties / (n * (n - 1.0)))).sqrt();
    libm::erfc((u - na * nb / 2.0).abs() / deviation.max(f64::MIN_POSITIVE) / std::f64::consts::SQRT_2)
}

/// Probability of distributions at least so far apart if both samples are of one: Kolmogorov's series.
fn kolmogorov_smirnov(a: &[u64], b: &[u64]) -> f64 {
    let (na, nb) = (a.len() as f64, b.len() as f64);
    let (mut fa, mut fb, mut far) = (0.0, 0.0, 0.0_f64);
    for same in pooled(a, b).chunk_by(|x, y| x.0 == y.0) {
        let of_a = same.iter().filter(|x| x.1).count();
        fa += of_a as f64 / na;
        fb += (same.len() - of_a) as f64 / nb;
        far = far.max((fa - fb).abs());
    }
    let root = (na * nb / (na + nb)).sqrt();
    let lambda = (root + 0.12 + 0.11 / root) * far;
    if lambda < 0.2 {
        return 1.0;
    }
    let terms = (1..=100).map(|k| {
        let k = f64::from(k);
        let sign = if k as u32 % 2 == 1 { 2.0 } else { -2.0 };
        sign * (-2.0 * k * k * lambda * lambda).exp()
    });
    terms.sum::<f64>().clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_samples_are_found_equal_and_unequal_ones_are_not() {
        let noise = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
        let a: Vec<u64> = (0..5_000).map(noise).collect();
        let b: Vec<u64> = (5_000..10_000).map(noise).collect();
        let later: Vec<u64> = b.iter().map(|x| x + 60).collect();
        let wider: Vec<u64> = b
            .iter()
            .map(|x| {
                if x % 2 == 0 {
                    x + 200
                } else {
                    x.saturating_sub(200)
                }
            })
            .collect();
        assert!(mann_whitney(&a, &b) > 0.1 && kolmogorov_smirnov(&a, &b) > 0.1);
        assert!(mann_whitney(&a, &later) < 1e-6 && kolmogorov_smirnov(&a, &later) < 1e-6);
        assert!(kolmogorov_smirnov(&a, &wider) < 1e-6);
    }
}
