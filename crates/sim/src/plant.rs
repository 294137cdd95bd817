//! Planted bugs: each takes one rule out of the code under test; the default workload must find it, and the same seed
//! must pass without it. A harness that cannot find what is planted proves nothing by finding nothing.

use crate::report::quote;
use crate::run::{Options, run_seed};
use crate::violation::{Kind, Violation};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The bugs that can be planted, with the rule each takes out.
pub const PLANTS: &[(&str, &str)] = &[
    ("H1", "requests name the generation they mean"),
    (
        "H2",
        "a version is searched, and content is never put over content",
    ),
    ("H3", "a rename list outlives the birth parent"),
    ("H4", "content goes in the transaction that saw its generation"),
    ("H5", "a rename list has a directory once, under its birth"),
    (
        "H6",
        "a hop counts only in the directory that the hop before named",
    ),
    ("H7", "content is there when its transaction is committed"),
    ("H9", "content that is missing is not made up"),
    ("H10", "a change waits until every server has heard of it"),
    ("H11", "a way is as old as the oldest statement in it"),
    ("H12", "the log is heard without gaps"),
    ("H13", "what is older than the log reaches back is refused"),
    ("H15", "a server serves after it has fetched the log"),
    ("H16", "the log is read back at start"),
    ("H17", "a participant asks what became of what it holds"),
    ("H19", "all directories of a way are tested"),
    ("H21", "directory renames are checked on the whole graph"),
    ("H31", "lock slots are sorted and deduplicated"),
    (
        "H32",
        "a directory stays locked from the emptiness check to its removal",
    ),
    ("H37", "an in-doubt participant holds and inquires"),
    ("H38", "a decision is acknowledged after it is synced"),
    ("H39", "finished transactions are remembered"),
    ("H40", "votes are synced before they are sent"),
    ("H44", "a retry finds its own reply record"),
    ("H45", "a repeated removal is answered, not executed"),
    ("H47", "reply records move with their slot"),
    ("H51", "a change waits until leases have run out"),
    ("H52", "the server tests whether a lease has run out"),
    ("H98", "a statement must have been made by a server"),
    ("H99", "answers to guesses are sealed"),
    ("H100", "who may ask for what is checked before anything else"),
    ("G1", "only servers say what servers say"),
    ("G5", "a request is in a session of who asks"),
    ("G15", "a statement is good for whom it was told to"),
    ("G21", "what has changed is refused"),
    ("G22", "permissions of directories"),
    ("G35", "only servers answer servers"),
    ("G43", "a frame has its connection's MAC"),
    ("G47", "a revocation is put in force"),
    ("G53", "nothing of a revoked identity takes effect"),
    ("H102", "reads wait until what they show is durable"),
    ("H114", "recovery takes the locks of prepared transactions again"),
];

/// What became of one planted bug.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// Its name.
    pub name: String,
    /// Seeds run until it was found; `None`: not found.
    pub seeds: Option<u64>,
    /// The seed that found it.
    pub seed: u64,
    /// What was found.
    pub finding: Option<Violation>,
    /// Shortest trace that shows it, in events, among the seeds that found it.
    pub events: u64,
    /// Whether the seed passes without the bug.
    pub clean_without: bool,
}

/// Looks for a planted bug in up to `limit` seeds from `first` on, and in `more` seeds after it was found for a shorter
/// trace.
pub fn hunt(name: &str, first: u64, limit: u64, more: u64, jobs: usize) -> Hunt {
    let options = Options {
        plants: vec![name.to_string()],
        ..Options::default()
    };
    let next = AtomicU64::new(0);
    let end = AtomicU64::new(limit);
    let found: Mutex<Vec<(u64, u64, Violation)>> = Mutex::new(Vec::new());
    let seen = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= end.load(Ordering::Relaxed) {
                        return;
                    }
                    let report = run_seed(first + at, &options);
                    let Some(v) = report.violation.filter(|v| v.kind != Kind::RiskedNothing) else {
                        continue;
                    };
                    let mut all = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    all.push((at, report.events, v));
                    if !seen.swap(true, Ordering::Relaxed) {
                        end.store((at + 1 + more).min(limit), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut all = found
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    all.sort_by_key(|(at, _, _)| *at);
    let Some((at, _, finding)) = all.first().cloned() else {
        return Hunt {
            name: name.into(),
            seeds: None,
            seed: 0,
            finding: None,
            events: 0,
            clean_without: false,
        };
    };
    let clean = run_seed(first + at, &Options::default());
    Hunt {
        name: name.into(),
        seeds: Some(at + 1),
        seed: first + at,
        finding: Some(finding),
        events: all.iter().map(|(_, events, _)| *events).min().unwrap_or(0),
        clean_without: clean.violation.is_none(),
    }
}

impl Hunt {
    /// Whether it was found, and the same seed passes without it.
    pub fn ok(&self) -> bool {
        self.seeds.is_some() && self.clean_without
    }

    /// One line for people.
    pub fn text(&self) -> String {
        match (&self.seeds, &self.finding) {
            (Some(seeds), Some(v)) => {
                let clean = if self.clean_without {
                    "passes without it"
                } else {
                    "FAILS WITHOUT IT TOO"
                };
                let text: String = v.text.chars().take(160).collect();
                format!(
                    "{:8} found after {seeds} seeds (seed {}, shortest trace {} events; {clean}): {}: {text}",
                    self.name,
                    self.seed,
                    self.events,
                    v.kind.word()
                )
            }
            _ => format!("{:8} NOT FOUND", self.name),
        }
    }

    /// One JSON object.
    pub fn json(&self) -> String {
        let rule = PLANTS
            .iter()
            .find(|(n, _)| *n == self.name)
            .map_or("", |(_, r)| r);
        format!(
            "{{\"bug\":{},\"rule\":{},\"found\":{},\"seeds\":{},\"seed\":{},\"events\":{},\"kind\":{},\"text\":{},\"passes_without\":{}}}",
            quote(&self.name),
            quote(rule),
            self.seeds.is_some(),
            self.seeds.unwrap_or(0),
            self.seed,
            self.events,
            quote(self.finding.as_ref().map_or("", |v| v.kind.word())),
            quote(self.finding.as_ref().map_or("", |v| v.text.as_str())),
            self.clean_without
        )
    }
}
