//! What a seed, and many, came to.

use crate::cluster::Cluster;
use crate::violation::{Kind, Violation};
use crate::workload::Workload;
use crate::world::Sim;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;

/// Operations from which on a run must have risked its share of everything.
const ENOUGH_TO_SAY: u64 = 100_000;

/// Sums by name.
pub type Sums = BTreeMap<String, u64>;

/// One seed.
#[derive(Clone, Default, Debug)]
pub struct SeedReport {
    /// The seed.
    pub seed: u64,
    /// What is wrong.
    pub violation: Option<Violation>,
    /// Hash of the trace.
    pub hash: u64,
    /// Events of the trace.
    pub events: u64,
    /// Operations that came to an end.
    pub operations: u64,
    /// Of them, mutating ones.
    pub mutations: u64,
    /// Operations by kind and outcome, as programs saw them.
    pub outcomes: Sums,
    /// Faults begun, by kind.
    pub faults_planned: Sums,
    /// Faults felt, by kind.
    pub faults_felt: Sums,
    /// The network's weather.
    pub weather: Sums,
    /// Everything else that is counted.
    pub counts: Sums,
    /// Nanoseconds of virtual time.
    pub virtual_time: u64,
    /// The last lines of the trace, if they were kept.
    pub tail: Vec<String>,
}

impl SeedReport {
    /// Collects the counts of a run.
    pub(crate) fn gather(&mut self, sim: &Rc<Sim>, cluster: &Rc<Cluster>, workload: &Rc<Workload>) {
        let done = workload.done();
        self.operations = done.operations;
        self.mutations = done.mutations;
        self.outcomes = done
            .outcomes
            .iter()
            .map(|((k, o), n)| (format!("{k} {o}"), *n))
            .collect();
        let effects = cluster.effects.borrow();
        self.faults_planned = named(&effects.planned);
        self.faults_felt = named(&effects.effective);
        let net = sim.net.borrow().counts;
        self.weather = sums([
            ("messages sent", net.sent),
            ("messages lost", net.lost),
            ("messages cut off", net.cut),
            ("messages doubled", net.duplicates),
            ("messages held up", net.delayed),
            ("messages kept until a slot is back", net.kept),
            ("connections broken", net.breaks),
            ("messages to a successor", net.successor),
        ]);
        let (c, r) = (cluster.judge().counts(), cluster.recoveries());
        let history = cluster.judge().history.borrow().tally();
        let executions: u64 = c.executions.values().sum();
        self.counts = sums([
            ("executions judged", executions),
            ("replies judged", c.replies),
            ("replies repeated", c.repeated),
            ("listings judged", c.listings),
            ("histories explained", history.explained),
            ("histories of two names explained", history.joined),
            ("operations in histories", history.operations),
            ("histories given up as too wide", history.too_wide),
            ("slots moved in use", c.slots_moved),
            ("parts of directories split", c.splits),
            ("cuts taken", c.cuts),
            ("distributed commits", c.distributed),
            ("full walks", c.walks),
            ("executions lost with power", c.lost),
            ("batches lost with power", effects.batches_lost),
            ("model rollbacks", c.rollbacks),
            ("servers stopped by their device", effects.device_failures),
            ("slots moved", effects.slots_moved),
            ("locks granted", effects.locks.0),
            ("locks not granted", effects.locks.1),
            ("revocations", effects.revocations),
            ("recoveries", r.starts),
            ("recoveries with transactions in doubt", r.in_doubt),
            ("crashes in recovery", r.died_starting),
            ("clients started", done.clients),
            ("operations given up by programs", done.abandoned),
            ("operations on paths", done.paths),
            ("lies", done.lies),
            ("components guessed", done.guesses),
            ("components guessed right", done.guessed),
            ("client messages", done.round_trips),
            ("client retries", done.retries),
        ]);
        let library = workload.library.borrow();
        self.counts.insert("files written".into(), library.written);
        self.counts
            .insert("file contents compared".into(), library.compared);
        for (name, n) in &effects.crash_points {
            self.counts.insert(format!("crashes {name}"), *n);
        }
        for (name, n) in cluster.stats() {
            self.counts.insert(format!("server {name}"), n);
        }
    }

    /// Faults that were felt.
    pub fn felt(&self) -> u64 {
        self.faults_felt.values().sum()
    }
}

fn named(of: &BTreeMap<&'static str, u64>) -> Sums {
    of.iter().map(|(k, n)| ((*k).to_string(), *n)).collect()
}

fn sums<const N: usize>(of: [(&str, u64); N]) -> Sums {
    of.into_iter().map(|(k, n)| (k.to_string(), n)).collect()
}

/// Many seeds.
#[derive(Clone, Default, Debug)]
pub struct Totals {
    /// Seeds run.
    pub seeds: u64,
    /// Seeds replayed and found the same.
    pub replayed: u64,
    /// Findings: seed, kind, text.
    pub violations: Vec<(u64, Violation)>,
    /// Events.
    pub events: u64,
    /// Operations.
    pub operations: u64,
    /// Mutating operations.
    pub mutations: u64,
    /// Faults felt, in all.
    pub felt: u64,
    /// Fewest operations and faults of a seed.
    pub least: (u64, u64),
    /// By kind and outcome.
    pub outcomes: Sums,
    /// Faults begun.
    pub faults_planned: Sums,
    /// Faults felt.
    pub faults_felt: Sums,
    /// Weather.
    pub weather: Sums,
    /// Other counts.
    pub counts: Sums,
    /// Nanoseconds of virtual time.
    pub virtual_time: u64,
    /// Milliseconds of real time, filled in by whoever has a clock.
    pub wall_ms: u64,
}

impl Totals {
    /// Adds a seed.
    pub fn add(&mut self, r: &SeedReport) {
        self.least = if self.seeds == 0 {
            (r.operations, r.felt())
        } else {
            (self.least.0.min(r.operations), self.least.1.min(r.felt()))
        };
        self.seeds += 1;
        self.events += r.events;
        self.operations += r.operations;
        self.mutations += r.mutations;
        self.felt += r.felt();
        self.virtual_time += r.virtual_time;
        if let Some(v) = &r.violation {
            self.violations.push((r.seed, v.clone()));
        }
        for (to, from) in [
            (&mut self.outcomes, &r.outcomes),
            (&mut self.faults_planned, &r.faults_planned),
            (&mut self.faults_felt, &r.faults_felt),
            (&mut self.weather, &r.weather),
            (&mut self.counts, &r.counts),
        ] {
            for (k, n) in from {
                *to.entry(k.clone()).or_default() += n;
            }
        }
    }

    /// The exit code: that of the worst finding.
    pub fn exit_code(&self) -> i32 {
        let weak = self.weak().map(|_| Kind::RiskedNothing);
        let kinds = self.violations.iter().map(|(_, v)| v.kind);
        kinds.chain(weak).min().map_or(0, |k| k.exit_code())
    }

    /// Operations that change directories' places or ends: renames, removals of directories, links.
    pub fn restructuring(&self) -> u64 {
        let of = |k: &str| matches!(k.split(' ').next(), Some("rename" | "rmdir" | "link"));
        self.outcomes.iter().filter(|(k, _)| of(k)).map(|(_, n)| n).sum()
    }

    /// What keeps a long run from saying much: too few of its operations were of the kinds that go wrong, or
    /// too few faults hit anything.
    pub fn weak(&self) -> Option<&'static str> {
        if self.operations < ENOUGH_TO_SAY {
            None
        } else if self.mutations * 100 < self.operations * 40 {
            Some("less than 40 % of the operations were mutations")
        } else if self.restructuring() * 100 < self.operations * 5 {
            Some("less than 5 % of the operations were renames, removals of directories or links")
        } else if self.felt * 1_000 < self.operations {
            Some("less than one fault in 1,000 operations took effect")
        } else {
            None
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let seconds = self.wall_ms as f64 / 1e3;
        let _ = writeln!(
            out,
            "{} seeds, {} events, {} operations ({} mutations), {} faults that took effect; at least {} operations and {} faults per seed; {} seeds replayed with the same trace",
            self.seeds,
            self.events,
            self.operations,
            self.mutations,
            self.felt,
            self.least.0,
            self.least.1,
            self.replayed
        );
        let per = |n: u64, of: f64| n as f64 * of / self.operations.max(1) as f64;
        let _ = writeln!(
            out,
            "{:.1} % mutations, {:.1} % renames, rmdirs or links, {:.1} faults that took effect per 1,000 operations; all answered by servers",
            per(self.mutations, 100.0),
            per(self.restructuring(), 100.0),
            per(self.felt, 1_000.0)
        );
        let _ = writeln!(
            out,
            "{:.0} s of virtual time in {seconds:.1} s: {:.0} checked operations per minute",
            self.virtual_time as f64 / 1e9,
            self.operations as f64 * 60.0 / seconds.max(0.001)
        );
        if let Some(why) = self.weak() {
            let _ = writeln!(out, "RISKED TOO LITTLE: {why}");
        }
        let _ = writeln!(out, "\nfaults (took effect / planned):");
        for (k, n) in &self.faults_planned {
            let _ = writeln!(
                out,
                "  {k:24} {:>8} / {n}",
                self.faults_felt.get(k).copied().unwrap_or(0)
            );
        }
        for (title, sums) in [("weather", &self.weather), ("counts", &self.counts)] {
            let _ = writeln!(out, "\n{title}:");
            for (k, n) in sums {
                let _ = writeln!(out, "  {k:40} {n:>10}");
            }
        }
        let _ = writeln!(out, "\noperations by outcome:");
        let mut by_kind: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (k, n) in &self.outcomes {
            if let Some((kind, outcome)) = k.split_once(' ') {
                by_kind.entry(kind).or_default().push(format!("{outcome} {n}"));
            }
        }
        for (kind, outcomes) in by_kind {
            let _ = writeln!(out, "  {kind:10} {}", outcomes.join(", "));
        }
        for (seed, v) in &self.violations {
            let _ = writeln!(
                out,
                "\nseed {seed}: {} at {:.6} s: {}",
                v.kind.word(),
                v.time as f64 / 1e9,
                v.text
            );
        }
        out
    }

    /// For programs: one JSON object.
    pub fn json(&self, commit: &str) -> String {
        let violations: Vec<String> = self
            .violations
            .iter()
            .map(|(seed, v)| {
                format!(
                    "{{\"seed\":{seed},\"kind\":{},\"time_s\":{:.6},\"text\":{}}}",
                    quote(v.kind.word()),
                    v.time as f64 / 1e9,
                    quote(&v.text)
                )
            })
            .collect();
        format!(
            concat!(
                "{{\"commit\":{},\"seeds\":{},\"replayed\":{},\"events\":{},\"operations\":{},\"mutations\":{},\"restructuring\":{},\"operations_per_minute\":{:.0},",
                "\"faults_effective\":{},\"least_operations\":{},\"least_faults\":{},\"virtual_s\":{:.3},\"wall_s\":{:.3},",
                "\"faults_planned\":{},\"faults_took_effect\":{},\"weather\":{},\"counts\":{},\"outcomes\":{},\"violations\":[{}]}}"
            ),
            quote(commit),
            self.seeds,
            self.replayed,
            self.events,
            self.operations,
            self.mutations,
            self.restructuring(),
            self.operations as f64 * 6e4 / self.wall_ms.max(1) as f64,
            self.felt,
            self.least.0,
            self.least.1,
            self.virtual_time as f64 / 1e9,
            self.wall_ms as f64 / 1e3,
            object(&self.faults_planned),
            object(&self.faults_felt),
            object(&self.weather),
            object(&self.counts),
            object(&self.outcomes),
            violations.join(",")
        )
    }
}

fn object(sums: &Sums) -> String {
    let fields: Vec<String> = sums.iter().map(|(k, n)| format!("{}:{n}", quote(k))).collect();
    format!("{{{}}}", fields.join(","))
}

/// A JSON string.
pub fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
