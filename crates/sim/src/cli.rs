//! The commands: `run`, `replay`, `plant`. Shared by `pando sim` and the program of its own.

use crate::settings::System;
use crate::{Batch, HuntOptions, Options, Print, hunt, plants, regressions, run_many, run_seed, seeds_of};
use std::time::Instant;

const HELP: &str = "\
Runs whole clusters in virtual time under faults, judged by a reference model.

  run [--seeds A..B] [--operations N] [--ci [N]] [--regressions] [--profile NAME] [--jobs N] [--replay-every N]
      [--keep-going] [--json]
        --seeds A..B      these seeds (default 0..100)
        --operations N    and those that follow, until so many operations were checked
        --ci [N]          N seeds (default 200) that follow from the commit (PANDO_CI_COMMIT or git rev-parse HEAD)
        --regressions     the seeds that ever failed
        --profile NAME    all with the choices of pando, indexfs or asyncfs-without-deferral (default: each draws; regressions: pando)
        --replay-every N  every Nth seed is run twice and must give the same trace (default 20; 0: never)
        --keep-going      do not stop at the first finding
  replay SEED [--trace] [--tail N] [--plant BUG] [--profile NAME]
        runs a seed twice and compares the traces; --trace prints one line per event, --tail the last N lines
  plant --all | BUG...  [--starts N] [--from SEED] [--limit N] [--more N] [--jobs N] [--histories-only] [--finders-first]
        [--write FILE] [--json]
        takes a rule out and looks for a seed that notices; needs a build with --features plant
        --starts N        so many times, each from other seeds on (default 3): the median is told
        --histories-only  nobody judges but the checker of histories, who does not know what servers do
        --limit N         a start that has not found it after so many seeds has failed (default 2000)
        --finders-first   tries first the seed that found it when crates/sim/planted.txt was written
        --write FILE      writes that list

  grid [--only TEXT] [--json] [--table]
        every cell of the hostile client's grid, with its checks and, in a build with --features plant, without them;
        --table prints it as docs/security.md has it

Exit code: 0 sound, 2 a wrong result, 3 no progress, 4 a panic, 5 a seed or a run that risked nothing, 6 a planted bug
that was not found, 64 wrong usage. Of several findings the first in this list counts.
";

/// Exit code: a planted bug went unnoticed.
const NOT_FOUND: u8 = 6;

/// Most seeds of one run, and threads.
const MOST: u64 = 10_000_000;
const MOST_JOBS: u64 = 1_024;

/// Runs a command line without the program's name. Returns the exit code.
pub fn main(args: &[String]) -> u8 {
    let mut args = Args { rest: args.to_vec() };
    match args.word().as_deref() {
        Some("run") => run(args),
        Some("replay") => replay(args),
        Some("plant") => plant(args),
        Some("grid") => grid(args),
        Some("--help" | "-h" | "help") => {
            print!("{HELP}");
            0
        }
        _ => usage("which command?"),
    }
}

fn usage(why: &str) -> u8 {
    eprintln!("{why}\n\n{HELP}");
    64
}

struct Args {
    rest: Vec<String>,
}

impl Args {
    fn word(&mut self) -> Option<String> {
        if self.rest.is_empty() {
            None
        } else {
            Some(self.rest.remove(0))
        }
    }

    fn flag(&mut self, name: &str) -> bool {
        let before = self.rest.len();
        self.rest.retain(|a| a != name);
        self.rest.len() < before
    }

    fn value(&mut self, name: &str) -> Option<String> {
        let at = self.rest.iter().position(|a| a == name)?;
        self.rest.remove(at);
        if at < self.rest.len() && !self.rest[at].starts_with("--") {
            Some(self.rest.remove(at))
        } else {
            Some(String::new())
        }
    }

    fn number(&mut self, name: &str, default: u64) -> Result<u64, String> {
        match self.value(name) {
            None => Ok(default),
            Some(v) => v.parse().map_err(|_| format!("{name} wants a number, not {v:?}")),
        }
    }

    fn system(&mut self) -> Result<Option<System>, String> {
        let Some(word) = self.value("--profile") else {
            return Ok(None);
        };
        let known = System::of_word(&word).map(Some);
        known.ok_or_else(|| format!("--profile is pando, indexfs or asyncfs-without-deferral, not {word:?}"))
    }

    fn jobs(&mut self) -> Result<usize, String> {
        match self.number("--jobs", jobs())? {
            n if (1..=MOST_JOBS).contains(&n) => Ok(n as usize),
            n => Err(format!("--jobs is 1 to {MOST_JOBS}, not {n}")),
        }
    }
}

/// `A..B`, or one seed.
fn range(text: &str) -> Option<Vec<u64>> {
    let (a, b) = match text.split_once("..") {
        Some((a, b)) => (a.parse().ok()?, b.parse().ok()?),
        None => {
            let seed: u64 = text.parse().ok()?;
            (seed, seed.checked_add(1)?)
        }
    };
    (b.checked_sub(a)? <= MOST).then(|| (a..b).collect())
}

fn commit() -> String {
    if let Ok(c) = std::env::var("PANDO_CI_COMMIT") {
        return c;
    }
    let out = std::process::Command::new("git")
        .args(["rev-parse", "HEAD"])
        .output();
    out.ok().map_or(String::new(), |o| {
        String::from_utf8_lossy(&o.stdout).trim().to_string()
    })
}

fn jobs() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}

fn run(mut args: Args) -> u8 {
    let json = args.flag("--json");
    let keep_going = args.flag("--keep-going");
    let only_regressions = args.flag("--regressions");
    let commit = commit();
    let ci = args.value("--ci");
    let seeds = match (&ci, args.value("--seeds")) {
        (Some(n), _) => {
            let count = if n.is_empty() { Some(200) } else { n.parse().ok() };
            count.filter(|n| *n <= MOST).map(|n| seeds_of(&commit, n))
        }
        (None, Some(text)) => range(&text),
        (None, None) if only_regressions => Some(regressions().iter().map(|(seed, _)| *seed).collect()),
        (None, None) => Some((0..100).collect()),
    };
    let Some(seeds) = seeds.filter(|s| !s.is_empty()) else {
        return usage(&format!("seeds are A..B, one at least, {MOST} at most"));
    };
    let numbers = (|| {
        Ok::<_, String>((
            args.jobs()?,
            args.number("--replay-every", 20)?,
            args.number("--operations", 0)?,
            args.system()?.or(only_regressions.then_some(System::Pando)),
        ))
    })();
    let (jobs, replay_every, operations, system) = match numbers {
        Ok(n) => n,
        Err(e) => return usage(&e),
    };
    if operations > 0 && (ci.is_some() || only_regressions) {
        return usage("--operations goes on after --seeds, not after --ci or --regressions");
    }
    if let Some(unknown) = args.rest.first() {
        return usage(&format!("what is {unknown}?"));
    }
    if ci.is_some() && !json {
        println!(
            "seeds of commit {commit}: {} … ({} in all)",
            seeds.first().copied().unwrap_or(0),
            seeds.len()
        );
    }
    let batch = Batch {
        seeds,
        operations,
        jobs,
        replay_every,
        stop_at_first: !keep_going,
        options: Options::of(system),
    };
    let begin = Instant::now();
    let progress = std::sync::atomic::AtomicU64::new(0);
    let checked = std::sync::atomic::AtomicU64::new(0);
    let mut totals = run_many(&batch, |r| {
        let done = progress.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        checked.fetch_add(r.operations, std::sync::atomic::Ordering::Relaxed);
        if let Some(v) = &r.violation {
            tell_violation(r.seed, v, system);
        } else if done.is_multiple_of(100) {
            let checked = checked.load(std::sync::atomic::Ordering::Relaxed);
            eprintln!(
                "{done} of {} seeds{}, {:.0} s",
                batch.seeds.len(),
                if batch.operations > 0 {
                    format!(" at least, {checked} of {} operations", batch.operations)
                } else {
                    String::new()
                },
                begin.elapsed().as_secs_f64()
            );
        }
    });
    totals.wall_ms = begin.elapsed().as_millis() as u64;
    if json {
        println!("{}", totals.json(&commit));
    } else {
        println!("commit {commit}\n{}", totals.text());
    }
    totals.exit_code() as u8
}

fn tell_violation(seed: u64, v: &crate::Violation, system: Option<System>) {
    eprintln!("seed {seed}: {}: {}", v.kind.word(), v.text);
    let profile = system.map_or(String::new(), |s| format!(" --profile {}", s.word()));
    eprintln!("   replay with: pando sim replay {seed} --trace{profile}");
}

fn replay(mut args: Args) -> u8 {
    let trace = args.flag("--trace");
    let tail = match args.number("--tail", 0) {
        Ok(n) => n as usize,
        Err(e) => return usage(&e),
    };
    let plants: Vec<String> = args.value("--plant").into_iter().collect();
    let system = match args.system() {
        // As `plant` runs it.
        Ok(None) if !plants.is_empty() => Some(System::Pando),
        Ok(system) => system,
        Err(e) => return usage(&e),
    };
    let Some(seed) = args.word().and_then(|s| s.parse().ok()) else {
        return usage("replay which seed?");
    };
    if let Some(unknown) = args.rest.first() {
        return usage(&format!("what is {unknown}?"));
    }
    if let Err(why) = can_be_planted(&plants) {
        return usage(&why);
    }
    let print = if trace {
        Print::All
    } else if tail > 0 {
        Print::Tail(tail)
    } else {
        Print::No
    };
    let first = run_seed(
        seed,
        &Options {
            print,
            plants: plants.clone(),
            system,
            ..Options::default()
        },
    );
    for line in &first.tail {
        println!("{line}");
    }
    let second = run_seed(
        seed,
        &Options {
            plants,
            system,
            ..Options::default()
        },
    );
    println!(
        "seed {seed}: {} events, {} operations, {} faults felt, {:.3} s of virtual time, trace {:016x}",
        first.events,
        first.operations,
        first.felt(),
        first.virtual_time as f64 / 1e9,
        first.hash
    );
    println!("faults felt: {:?}", first.faults_felt);
    if first.hash != second.hash {
        println!(
            "NOT DETERMINISTIC: the second run gave trace {:016x}",
            second.hash
        );
        return 2;
    }
    println!("the second run gave the same trace");
    match &first.violation {
        Some(v) => {
            println!("{} at {:.6} s: {}", v.kind.word(), v.time as f64 / 1e9, v.text);
            v.kind.exit_code() as u8
        }
        None => 0,
    }
}

/// Whether these bugs can be planted in this build.
fn can_be_planted(names: &[String]) -> Result<(), String> {
    let is_known = |name: &String| crate::hazards::is_known(name);
    match names.iter().find(|n| !is_known(n)) {
        _ if names.is_empty() => Ok(()),
        _ if !cfg!(feature = "plant") => {
            Err("this build cannot plant bugs: build with --features plant".to_owned())
        }
        Some(unknown) => Err(format!("{unknown} is no hazard of docs/hazards.md")),
        None => Ok(()),
    }
}

fn plant(mut args: Args) -> u8 {
    if !cfg!(feature = "plant") {
        return usage("this build cannot plant bugs: build with --features plant");
    }
    let json = args.flag("--json");
    let all = args.flag("--all");
    let histories_only = args.flag("--histories-only");
    let finders_first = args.flag("--finders-first");
    let write = args.value("--write");
    let numbers = (|| {
        Ok::<_, String>((
            args.number("--from", 1)?,
            args.number("--starts", 3)?,
            args.number("--limit", 2_000)?,
            args.number("--more", 10)?,
            args.jobs()?,
        ))
    })();
    let how = match numbers {
        Ok((from, starts, limit, more, jobs)) => HuntOptions {
            from,
            starts,
            limit,
            more,
            jobs,
            histories_only,
            finders_first,
        },
        Err(e) => return usage(&e),
    };
    let names: Vec<String> = if all {
        plants().iter().map(|p| p.name.to_string()).collect()
    } else {
        args.rest.clone()
    };
    if names.is_empty() {
        return usage("which bug?");
    }
    let known = plants();
    if let Some(unknown) = names.iter().find(|n| known.iter().all(|p| p.name != **n)) {
        let all: Vec<&str> = known.iter().map(|p| p.name).collect();
        return usage(&format!(
            "{unknown} is not planted, or not in the default workload's list: {}",
            all.join(" ")
        ));
    }
    let hunts = hunt(&names, &how, |line| eprintln!("{line}"));
    if !json {
        hunts.iter().for_each(|h| println!("{}", h.text()));
    }
    if json {
        let list: Vec<String> = hunts.iter().map(|h| h.json()).collect();
        println!(
            "{{\"commit\":{},\"plants\":[{}]}}",
            crate::report::quote(&commit()),
            list.join(",")
        );
    }
    let failed = hunts.iter().filter(|h| !h.ok()).count();
    if let Some(file) = write {
        let finders: String = hunts.iter().filter_map(crate::Hunt::finder).collect();
        if let Err(e) = std::fs::write(&file, finders) {
            return usage(&format!("{file:?} cannot be written: {e}"));
        }
    }
    if !json {
        println!(
            "{} planted bugs, {failed} not found by every start within {} seeds, or by seeds that fail without them",
            hunts.len(),
            how.limit
        );
    }
    if failed == 0 { 0 } else { NOT_FOUND }
}

fn grid(mut args: Args) -> u8 {
    if args.flag("--table") {
        print!("{}", crate::grid::table());
        return 0;
    }
    let json = args.flag("--json");
    let only = args.value("--only");
    if let Some(unknown) = args.rest.first() {
        return usage(&format!("what is {unknown}?"));
    }
    let wanted = |c: &&crate::grid::Cell| only.as_ref().is_none_or(|o| c.manipulation.contains(o.as_str()));
    if crate::grid::cells().filter(wanted).count() == 0 {
        return usage("no cell has that in its name");
    }
    let verdicts: Vec<_> = crate::grid::cells()
        .filter(wanted)
        .map(crate::grid::run)
        .collect();
    let failed = verdicts.iter().filter(|v| !v.ok()).count();
    if json {
        let list: Vec<String> = verdicts.iter().map(|v| v.json()).collect();
        println!(
            "{{\"commit\":{},\"planted\":{},\"cells\":[{}]}}",
            crate::report::quote(&commit()),
            cfg!(feature = "plant"),
            list.join(",")
        );
    } else {
        verdicts.iter().for_each(|v| println!("{}", v.text()));
        let checks: std::collections::BTreeSet<&str> = verdicts
            .iter()
            .flat_map(|v| v.cell.checks.iter().copied())
            .collect();
        println!(
            "{} cells, {} checks, {failed} not as they should be",
            verdicts.len(),
            checks.len()
        );
    }
    if failed == 0 { 0 } else { 2 }
}

#[cfg(test)]
mod tests {
    fn exit_code(line: &str) -> u8 {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        super::main(&words)
    }

    #[test]
    fn wrong_usage_is_none_of_the_findings() {
        for line in [
            "",
            "walk",
            "run --seeds a..b",
            "run --operations 5 --regressions",
            "run --jobs many",
            "run --seeds 9..3",
            "run --seeds 5..5",
            "run --seeds 0..18446744073709551615",
            "run --ci 0",
            "run --ci 100000000000000",
            "run --seeds 0..1 --jobs 1000000",
            "replay",
            "replay 3 --plant H0",
            "replay 3 4",
            "grid --only zzzz",
            "plant H0",
            "plant",
            "grid --what",
        ] {
            assert_eq!(exit_code(line), 64, "{line}");
        }
        assert_eq!(exit_code("--help"), 0);
    }
}
