//! Many seeds on several threads.

use crate::report::{SeedReport, Totals};
use crate::run::{Options, run_seed};
use crate::violation::{Kind, Violation};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Which seeds, and how.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The seeds.
    pub seeds: Vec<u64>,
    /// After them, those that follow the last, until so many operations were checked; 0: no more.
    pub operations: u64,
    /// Threads.
    pub jobs: usize,
    /// Every so many seeds one is run twice and must give the same trace; 0: never.
    pub replay_every: u64,
    /// End at the first finding.
    pub stop_at_first: bool,
    /// How each is run.
    pub options: Options,
}

impl Batch {
    fn seed(&self, at: usize, so_far: &Mutex<Totals>) -> Option<u64> {
        if let Some(seed) = self.seeds.get(at) {
            return Some(*seed);
        }
        let checked = || {
            so_far
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .operations
        };
        let beyond = (at - self.seeds.len()) as u64;
        let next = self.seeds.last().map_or(0, |last| last + 1) + beyond;
        (self.operations > 0 && checked() < self.operations).then_some(next)
    }
}

/// Runs them. `each` hears of every seed as it ends.
pub fn run_many(batch: &Batch, each: impl Fn(&SeedReport) + Sync) -> Totals {
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let totals = Mutex::new(Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..batch.jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(seed) = batch.seed(at, &totals) else {
                        return;
                    };
                    let mut report = run_seed(seed, &batch.options);
                    let again = batch.replay_every > 0 && (at as u64).is_multiple_of(batch.replay_every);
                    if again && report.violation.is_none() {
                        let hash = run_seed(seed, &batch.options).hash;
                        if hash != report.hash {
                            let text = format!("trace {:016x}, then {hash:016x}", report.hash);
                            report.violation = Some(Violation {
                                kind: Kind::Diverged,
                                text,
                                time: 0,
                            });
                        }
                    }
                    each(&report);
                    let mut t = totals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    t.replayed += u64::from(again);
                    t.add(&report);
                    if batch.stop_at_first && report.violation.is_some() {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut t = totals
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    t.violations.sort_by_key(|(seed, _)| *seed);
    t
}

/// Seeds that follow from a name, such as a commit's hash: known before they are run, different for each.
pub fn seeds_of(name: &str, count: u64) -> Vec<u64> {
    let base = crate::trace::digest(name.as_bytes());
    (0..count)
        .map(|n| pando_env::rng::mix(base ^ pando_env::rng::mix(n)) >> 16)
        .collect()
}

/// The seeds that ever failed, with why: `SEED why` per line, `#` begins a comment.
pub fn regressions() -> Vec<(u64, &'static str)> {
    include_str!("../regressions.txt")
        .lines()
        .filter(|l| !l.trim_start().starts_with('#'))
        .filter_map(|l| {
            let (seed, why) = l.trim().split_once(' ')?;
            Some((seed.parse().ok()?, why.trim()))
        })
        .collect()
}
