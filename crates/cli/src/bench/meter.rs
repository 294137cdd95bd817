//! Counting and timing.

use super::spent::Spent;
use anyhow::Result;
use hdrhistogram::Histogram;
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

/// One line of results.
pub struct Measured {
    /// Which operation.
    pub op: String,
    /// How many.
    pub ops: u64,
    /// Per second, all clients together.
    pub ops_per_s: f64,
    /// Half of them took no longer.
    pub p50_us: f64,
    /// All but one in a hundred took no longer.
    pub p99_us: f64,
    /// All but one in a thousand took no longer.
    pub p999_us: f64,
    /// Messages that waited for an answer, per operation.
    pub round_trips: Option<f64>,
    /// Of them, failed.
    pub errors: u64,
    /// How.
    pub first_error: Option<String>,
    /// What they cost beside time, if somebody looked.
    pub spent: Option<Spent>,
    /// What else scripts are told.
    pub more: Map<String, Value>,
}

/// What one client did in one phase.
pub struct Meter {
    taken: Histogram<u64>,
    began: Instant,
    ended: Instant,
    round_trips: u64,
    errors: u64,
    first_error: Option<String>,
}

impl Meter {
    /// The phase begins now.
    pub fn new() -> Result<Meter> {
        let now = Instant::now();
        Ok(Meter {
            taken: Histogram::new_with_bounds(1, 600_000_000_000, 3)?,
            began: now,
            ended: now,
            round_trips: 0,
            errors: 0,
            first_error: None,
        })
    }

    /// The phase begins only now.
    pub fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// One operation.
    pub fn record(&mut self, took: Duration) {
        self.taken.saturating_record(took.as_nanos() as u64);
    }

    /// One operation that failed.
    pub fn failed(&mut self, why: impl FnOnce() -> String) {
        self.errors += 1;
        self.first_error.get_or_insert_with(why);
    }

    /// The phase ends now.
    pub fn end(&mut self, round_trips: u64) {
        self.ended = Instant::now();
        self.round_trips = round_trips;
    }

    /// All clients' parts of one phase, from the first start to the last end.
    pub fn sum(op: impl Into<String>, parts: Vec<Meter>, counts_trips: bool) -> Result<Measured> {
        let mut all = Meter::new()?;
        let began = parts.iter().map(|p| p.began).min();
        let ended = parts.iter().map(|p| p.ended).max();
        for part in parts {
            all.taken.add(&part.taken)?;
            all.round_trips += part.round_trips;
            all.errors += part.errors;
            all.first_error = all.first_error.or(part.first_error);
        }
        let time = match (began, ended) {
            (Some(began), Some(ended)) => ended.duration_since(began).as_secs_f64().max(1e-9),
            _ => 1.0,
        };
        let ops = all.taken.len();
        Ok(Measured {
            op: op.into(),
            ops,
            ops_per_s: ops as f64 / time,
            p50_us: all.taken.value_at_quantile(0.5) as f64 / 1000.0,
            p99_us: all.taken.value_at_quantile(0.99) as f64 / 1000.0,
            p999_us: all.taken.value_at_quantile(0.999) as f64 / 1000.0,
            round_trips: (counts_trips && ops > 0).then(|| all.round_trips as f64 / ops as f64),
            errors: all.errors,
            first_error: all.first_error,
            spent: None,
            more: Map::new(),
        })
    }
}
