//! Planted bugs: each takes one rule out of the code under test; the default workload must find it, and the
//! same seed must pass without it. A harness that cannot find what is planted proves nothing by finding
//! nothing.
//!
//! Which there are stands in one place, the page of hazards (`hazards::plants`).

use crate::hazards::{Plant, plants, system_of};
use crate::report::quote;
use crate::run::{Options, run_seed};
use crate::settings::System;
use crate::violation::{Kind, Violation};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Of each bug a seed that found it: `H44 17`.
const FINDERS: &str = include_str!("../planted.txt");

/// Seeds between the beginnings of two starts.
const APART: u64 = 1_000_000;

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
    /// Whether the first seed tried is the one that `planted.txt` says found it.
    pub finders_first: bool,
}

/// The seed that found this bug when somebody last wrote that down.
fn finder(name: &str) -> Option<u64> {
    let mut lines = FINDERS.lines().filter_map(|l| l.split_once(' '));
    lines.find(|(of, _)| *of == name)?.1.trim().parse().ok()
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

/// One start of one bug.
struct Search {
    name: String,
    /// A seed that is tried before all others.
    finder: Option<u64>,
    first: u64,
    /// The next try, counted from 0, and the one after the last.
    next: u64,
    end: u64,
    /// Seeds that are being run.
    running: usize,
    found: Vec<Found>,
}

impl Search {
    /// Which seed is tried in the try of this number.
    fn seed(&self, at: u64) -> u64 {
        match (self.finder, at) {
            (Some(seed), 0) => seed,
            (Some(_), _) => self.first + at - 1,
            (None, _) => self.first + at,
        }
    }
}

/// Looks for planted bugs, on all threads at once: each takes the first search that nobody is at, and helps
/// with others when there is none. `progress` hears which bug was found, or was not.
pub fn hunt(names: &[String], how: &HuntOptions, progress: impl Fn(&str) + Sync) -> Vec<Hunt> {
    let starts = how.starts.max(1);
    let all = names.iter().flat_map(|name| {
        (0..starts).map(move |start| {
            let finder = finder(name).filter(|_| how.finders_first);
            Search {
                name: name.clone(),
                finder,
                first: how.from + start * APART,
                next: 0,
                end: how.limit + u64::from(finder.is_some()),
                running: 0,
                found: Vec::new(),
            }
        })
    });
    let searches = Mutex::new(all.collect::<Vec<Search>>());
    on_threads(how.jobs, || search(&searches, how, &progress));
    let mut searches = searches.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut hunts = Vec::new();
    for (name, searches) in names.iter().zip(searches.chunks_mut(starts as usize)) {
        for s in searches.iter_mut() {
            // Whichever thread was first: only what any run of this command would have tried.
            s.found.retain(|f| f.after <= s.end);
            s.found.sort_by_key(|f| f.after);
        }
        let found = searches.iter().flat_map(|s| &s.found);
        hunts.push(Hunt {
            name: name.clone(),
            starts: searches.iter().map(|s| s.found.first().cloned()).collect(),
            shortest: found.min_by_key(|f| f.events).cloned(),
            clean_without: true,
        });
    }
    let named = hunts.iter().flat_map(|hunt| {
        let system = system_of(&hunt.name);
        hunt.seeds_named().map(move |seed| (system, seed))
    });
    let failing = failing(named.collect(), how.jobs);
    for hunt in &mut hunts {
        let system = system_of(&hunt.name);
        let clean = !hunt.seeds_named().any(|seed| failing.contains(&(system, seed)));
        hunt.clean_without = clean;
    }
    hunts
}

fn on_threads(jobs: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(&work);
        }
    });
}

/// Of these seeds those that fail although nothing is planted. Many bugs are found by the same seeds.
fn failing(seeds: BTreeSet<(System, u64)>, jobs: usize) -> BTreeSet<(System, u64)> {
    let (left, failing) = (Mutex::new(seeds), Mutex::new(BTreeSet::new()));
    on_threads(jobs, || {
        loop {
            let seed = left.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
            let Some((system, seed)) = seed else { return };
            let unplanted = Options {
                system: Some(system),
                ..Options::default()
            };
            if run_seed(seed, &unplanted).violation.is_some() {
                failing
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert((system, seed));
            }
        }
    });
    failing.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// One thread's share: seed by seed.
fn search(searches: &Mutex<Vec<Search>>, how: &HuntOptions, progress: &(impl Fn(&str) + Sync)) {
    loop {
        let (index, name, seed, at) = {
            let mut all = searches.lock().unwrap_or_else(PoisonError::into_inner);
            let left = all.iter_mut().enumerate().filter(|(_, s)| s.next < s.end);
            let Some((index, s)) = left.min_by_key(|(_, s)| s.running) else {
                return;
            };
            s.next += 1;
            s.running += 1;
            (index, s.name.clone(), s.seed(s.next - 1), s.next - 1)
        };
        let system = Some(system_of(&name));
        let options = Options {
            plants: vec![name],
            histories_only: how.histories_only,
            system,
            ..Options::default()
        };
        let report = run_seed(seed, &options);
        let counts = |v: &Violation| match how.histories_only {
            true => v.text.starts_with(crate::history::WORD),
            false => v.kind != Kind::RiskedNothing,
        };
        let mut all = searches.lock().unwrap_or_else(PoisonError::into_inner);
        let s = &mut all[index];
        s.running -= 1;
        if let Some(finding) = report.violation.filter(counts) {
            s.end = s.end.min(at + 1 + how.more);
            s.found.push(Found {
                after: at + 1,
                seed,
                events: report.events,
                finding,
            });
        }
        if s.next >= s.end && s.running == 0 {
            let after = s.found.iter().map(|f| f.after).min();
            let after = after.map_or("not found".into(), |n| n.to_string());
            progress(&format!("{}: {after}", s.name));
        }
    }
}

impl Hunt {
    /// Seeds that found it and are named.
    fn seeds_named(&self) -> impl Iterator<Item = u64> + '_ {
        self.starts.iter().flatten().chain(&self.shortest).map(|f| f.seed)
    }

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

    /// Its line in `planted.txt`.
    pub fn finder(&self) -> Option<String> {
        let first = self.starts.iter().flatten().next()?;
        Some(format!("{} {}\n", self.name, first.seed))
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
        let bug = self.plant().map_or_else(String::new, |p| p.bug);
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
            quote(plant.as_ref().map_or("", |p| &p.bug)),
            quote(plant.as_ref().map_or("", |p| &p.rule)),
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
    fn finders_are_of_bugs_that_are_planted() {
        for line in FINDERS.lines() {
            let (name, seed) = line.split_once(' ').expect(line);
            assert!(plants().iter().any(|p| p.name == name), "{line}");
            assert_eq!(finder(name), seed.parse().ok(), "{line}");
        }
        let mut search = Search {
            name: "H44".into(),
            finder: Some(7),
            first: 1,
            next: 0,
            end: 3,
            running: 0,
            found: Vec::new(),
        };
        assert_eq!([0, 1, 2].map(|at| search.seed(at)), [7, 1, 2]);
        search.finder = None;
        assert_eq!([0, 1, 2].map(|at| search.seed(at)), [1, 2, 3]);
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
