//! Planted bugs: each takes one rule out of the code under test; the default workload must find it, and the same seed
//! must pass without it. A harness that cannot find what is planted proves nothing by finding nothing.
//!
//! Which there are stands in one place, the page of hazards: every row of it that begins with H and says `yes`.

use crate::report::quote;
use crate::run::{Options, run_seed};
use crate::violation::{Kind, Violation};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

const PAGE: &str = include_str!("../../../docs/hazards.md");

/// Checks of the hostile client's grid that the default workload finds missing, too.
const OF_THE_GRID: &[&str] = &["G1", "G5", "G15", "G21", "G22", "G35", "G43", "G47", "G53"];

/// Seeds between the beginnings of two starts.
const APART: u64 = 1_000_000;

/// A bug that can be planted, as its row has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plant {
    /// The hazard's number.
    pub name: &'static str,
    /// What goes wrong.
    pub bug: &'static str,
    /// The rule that is taken out.
    pub rule: &'static str,
}

/// All that the default workload must find, in the page's order.
pub fn plants() -> Vec<Plant> {
    PAGE.lines()
        .filter_map(row)
        .filter(|(p, planted)| *planted && (p.name.starts_with('H') || OF_THE_GRID.contains(&p.name)))
        .map(|(p, _)| p)
        .collect()
}

/// `| H44 | what goes wrong | rule | where | yes |`.
fn row(line: &'static str) -> Option<(Plant, bool)> {
    let cells: Vec<&str> = line.trim().strip_prefix('|')?.split('|').map(str::trim).collect();
    let [name, bug, rule, _, planted, ..] = cells[..] else {
        return None;
    };
    let number = name.strip_prefix(['H', 'G'])?;
    number.parse::<u32>().ok()?;
    Some((Plant { name, bug, rule }, planted == "yes"))
}

/// How a bug is looked for.
#[derive(Clone, Copy, Debug)]
pub struct HuntOptions {
    /// The first seed of the first start.
    pub from: u64,
    /// How often it is looked for, each time from other seeds on.
    pub starts: u64,
    /// Seeds tried at most in each.
    pub limit: u64,
    /// Seeds tried after one has found it, for a shorter trace.
    pub more: u64,
    /// Threads.
    pub jobs: usize,
    /// Whether nobody judges but the checker of histories.
    pub histories_only: bool,
}

/// A seed that found a planted bug.
#[derive(Clone, Debug)]
pub struct Found {
    /// How many seeds were tried before it, and it.
    pub after: u64,
    /// The seed.
    pub seed: u64,
    /// Events until then.
    pub events: u64,
    /// What was found.
    pub finding: Violation,
}

/// What became of one planted bug.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// Its name.
    pub name: String,
    /// The first seed of each start that found it; `None`: that start did not.
    pub starts: Vec<Option<Found>>,
    /// The one with the shortest trace of all that found it.
    pub shortest: Option<Found>,
    /// Whether the seeds named above pass without the bug.
    pub clean_without: bool,
}

/// Looks for a planted bug.
pub fn hunt(name: &str, how: &HuntOptions) -> Hunt {
    let (mut starts, mut shortest) = (Vec::new(), None::<Found>);
    for start in 0..how.starts.max(1) {
        let all = search(name, how.from + start * APART, how);
        starts.push(all.first().cloned());
        for found in all {
            if shortest.as_ref().is_none_or(|s| found.events < s.events) {
                shortest = Some(found);
            }
        }
    }
    let named = starts.iter().flatten().chain(&shortest);
    let clean_without = named
        .map(|found| run_seed(found.seed, &Options::default()).violation)
        .all(|violation| violation.is_none());
    Hunt {
        name: name.into(),
        starts,
        shortest,
        clean_without,
    }
}

/// One start: all seeds that found it, up to so many after the first, in order.
fn search(name: &str, first: u64, how: &HuntOptions) -> Vec<Found> {
    let options = Options {
        plants: vec![name.to_string()],
        histories_only: how.histories_only,
        ..Options::default()
    };
    let next = AtomicU64::new(0);
    let end = AtomicU64::new(how.limit);
    let found: Mutex<Vec<Found>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..how.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= end.load(Ordering::Relaxed) {
                        return;
                    }
                    let report = run_seed(first + at, &options);
                    let counts = |v: &Violation| match how.histories_only {
                        true => v.text.starts_with(crate::history::WORD),
                        false => v.kind != Kind::RiskedNothing,
                    };
                    let Some(finding) = report.violation.filter(counts) else {
                        continue;
                    };
                    end.fetch_min(at + 1 + how.more, Ordering::Relaxed);
                    found.lock().unwrap_or_else(PoisonError::into_inner).push(Found {
                        after: at + 1,
                        seed: first + at,
                        events: report.events,
                        finding,
                    });
                }
            });
        }
    });
    let mut all = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Whichever thread was first: only what any run of this command would have tried.
    all.retain(|f| f.after <= end.load(Ordering::Relaxed));
    all.sort_by_key(|f| f.after);
    all
}

impl Hunt {
    /// Whether every start found it, and the same seeds pass without it.
    pub fn ok(&self) -> bool {
        self.starts.iter().all(Option::is_some) && self.clean_without
    }

    /// Seeds until it was found: the median of all starts, if at least half of them found it.
    pub fn seeds(&self) -> Option<u64> {
        let mut all: Vec<u64> = self
            .starts
            .iter()
            .map(|s| s.as_ref().map_or(u64::MAX, |f| f.after))
            .collect();
        all.sort_unstable();
        all.get(all.len().saturating_sub(1) / 2)
            .copied()
            .filter(|n| *n != u64::MAX)
    }

    fn replay(&self) -> String {
        let seed = self.shortest.as_ref().map_or(0, |f| f.seed);
        format!("pando sim replay {seed} --plant {} --trace", self.name)
    }

    fn plant(&self) -> Option<Plant> {
        plants().into_iter().find(|p| p.name == self.name)
    }

    /// For people.
    pub fn text(&self) -> String {
        let bug = self.plant().map_or("", |p| p.bug);
        let each: Vec<String> = self
            .starts
            .iter()
            .map(|s| s.as_ref().map_or("not found".into(), |f| f.after.to_string()))
            .collect();
        let (Some(seeds), Some(shortest)) = (self.seeds(), &self.shortest) else {
            return format!("{:5} NOT FOUND ({}): {bug}", self.name, each.join(", "));
        };
        let verdict = match (self.clean_without, self.starts.iter().all(Option::is_some)) {
            (false, _) => "; A SEED FAILS WITHOUT IT TOO",
            (true, false) => "; NOT FOUND BY EVERY START",
            (true, true) => "",
        };
        let text: String = shortest.finding.text.chars().take(160).collect();
        format!(
            "{:5} {bug}\n      found after {seeds} seeds (median of {}); shortest trace {} events: {}{verdict}\n      {}: {text}",
            self.name,
            each.join(", "),
            shortest.events,
            self.replay(),
            shortest.finding.kind.word(),
        )
    }

    /// One JSON object.
    pub fn json(&self) -> String {
        let plant = self.plant();
        let each: Vec<String> = self
            .starts
            .iter()
            .map(|s| s.as_ref().map_or("null".into(), |f| f.after.to_string()))
            .collect();
        let shortest = self.shortest.as_ref().map_or("null".into(), |f| {
            format!(
                "{{\"seed\":{},\"events\":{},\"kind\":{},\"text\":{},\"replay\":{}}}",
                f.seed,
                f.events,
                quote(f.finding.kind.word()),
                quote(&f.finding.text),
                quote(&self.replay())
            )
        });
        format!(
            "{{\"plant\":{},\"bug\":{},\"rule\":{},\"found\":{},\"seeds\":{},\"seeds_by_start\":[{}],\"shortest\":{shortest},\"passes_without\":{}}}",
            quote(&self.name),
            quote(plant.as_ref().map_or("", |p| p.bug)),
            quote(plant.as_ref().map_or("", |p| p.rule)),
            self.ok(),
            self.seeds().map_or("null".into(), |n| n.to_string()),
            each.join(","),
            self.clean_without
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_is_planted() {
        let all = plants();
        let create = all.iter().find(|p| p.name == "H44").expect("a row of H44");
        assert!(create.bug.contains("EEXIST"), "{create:?}");
        assert!(all.iter().all(|p| !p.bug.is_empty() && !p.rule.is_empty()));
        for name in OF_THE_GRID {
            assert!(all.iter().any(|p| p.name == *name), "{name} has no row");
        }
        let names: std::collections::BTreeSet<_> = all.iter().map(|p| p.name).collect();
        assert_eq!(names.len(), all.len(), "a row stands twice");
    }

    #[test]
    fn the_median_counts_starts_that_found_nothing() {
        let found = |after| {
            Some(Found {
                after,
                seed: after,
                events: 10 * after,
                finding: Violation {
                    kind: Kind::WrongResult,
                    text: "wrong".into(),
                    time: 0,
                },
            })
        };
        let mut hunt = Hunt {
            name: "H44".into(),
            starts: vec![found(9), None, found(2)],
            shortest: found(2),
            clean_without: true,
        };
        assert_eq!((hunt.seeds(), hunt.ok()), (Some(9), false));
        hunt.starts[1] = found(3);
        assert_eq!((hunt.seeds(), hunt.ok()), (Some(3), true));
        assert!(
            hunt.json().contains("\"seeds_by_start\":[9,3,2]"),
            "{}",
            hunt.json()
        );
        assert!(hunt.text().contains("replay 2 --plant H44"), "{}", hunt.text());
        hunt.starts = vec![None, None, found(2)];
        assert_eq!(hunt.seeds(), None);
    }
}
