//! Counting and timing.

use super::spent::Spent;
use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
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

    /// How the first operation failed.
    pub fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// All of it as one line, for another process of this machine.
    pub fn to_line(&self) -> String {
        // Times as the clock has them that all processes share.
        let (now, clock) = (Instant::now(), clock());
        let at = |time: Instant| (clock - now.duration_since(time)).as_nanos() as u64;
        let taken = self.taken.iter_recorded();
        let taken: Vec<(u64, u64)> = taken
            .map(|v| (v.value_iterated_to(), v.count_at_value()))
            .collect();
        let line = json!({
            "began": at(self.began), "ended": at(self.ended), "taken": taken, "round_trips": self.round_trips, "errors": self.errors,
            "first_error": self.first_error,
        });
        line.to_string()
    }

    /// What another process wrote so.
    pub fn from_line(line: &str) -> Result<Meter> {
        let line: Value = serde_json::from_str(line)?;
        let number = |value: &Value| value.as_u64().context("a number is missing");
        let (now, clock) = (Instant::now(), clock());
        let at = |field: &str| {
            let passed = clock.saturating_sub(Duration::from_nanos(number(&line[field])?));
            now.checked_sub(passed).context("a time before all times")
        };
        let mut meter = Meter::new()?;
        (meter.began, meter.ended) = (at("began")?, at("ended")?);
        for pair in line["taken"].as_array().context("no times")? {
            meter.taken.record_n(number(&pair[0])?, number(&pair[1])?)?;
        }
        meter.round_trips = number(&line["round_trips"])?;
        meter.errors = number(&line["errors"])?;
        meter.first_error = line["first_error"].as_str().map(str::to_owned);
        Ok(meter)
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

fn clock() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::Meter;
    use std::time::Duration;

    #[test]
    fn a_meter_survives_its_line() {
        let mut meter = Meter::new().unwrap();
        for us in [1, 5, 5, 70_000, 3_000_000] {
            meter.record(Duration::from_micros(us));
        }
        meter.failed(|| "no space".into());
        std::thread::sleep(Duration::from_millis(20));
        meter.end(7);
        let copy = Meter::from_line(&meter.to_line()).unwrap();
        assert_eq!(copy.taken, meter.taken);
        assert_eq!((copy.round_trips, copy.errors), (7, 1));
        let took = |m: &Meter| m.ended.duration_since(m.began).as_micros();
        assert_eq!(took(&copy), took(&meter));
        let sum = Meter::sum("x", vec![copy, meter], false).unwrap();
        assert_eq!(
            (sum.ops, sum.errors, sum.first_error.as_deref()),
            (10, 2, Some("no space"))
        );
        assert!(Meter::from_line("{}").is_err() && Meter::from_line("x").is_err());
    }
}
