//! One seed from format to verdict.

use crate::cluster::Cluster;
use crate::faults::Nemesis;
use crate::final_round::{check_blocks, finish};
use crate::report::SeedReport;
use crate::settings::{Settings, System};
use crate::trace::Print;
use crate::violation::{Kind, Violation};
use crate::workload::Workload;
use crate::world::{MS, Role, SEC, Sim};
use pando_types::PeerId;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Once;

/// Operations a seed must have run.
pub const ENOUGH_OPERATIONS: u64 = 2_000;
/// Faults a seed must have felt.
pub const ENOUGH_FAULTS: u64 = 5;
/// Fewer mutations are too few. What a seed draws varies; a long run as a whole is held to its share
/// (`report`).
const ENOUGH_MUTATIONS: u64 = 50;
/// Events between two full walks.
const WALK_EVERY: u64 = 1_000;
/// Steps without progress of virtual time after which something spins.
const SPIN: u64 = 3_000_000;

/// What to do besides running.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The readable trace.
    pub print: Print,
    /// Bugs to plant (needs the cargo feature `plant`).
    pub plants: Vec<String>,
    /// Nobody judges but the checker of histories, to see what it would find by itself.
    pub histories_only: bool,
    /// With the choices of this system. `None`: with those that the seed draws.
    pub system: Option<System>,
}

impl Options {
    /// With the choices of a system, and nothing else besides.
    pub fn of(system: Option<System>) -> Options {
        Options {
            system,
            ..Options::default()
        }
    }
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Keeps what a panic says for the report instead of printing it.
fn catch_panics() {
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let place = info
                .location()
                .map_or(String::new(), |l| format!("{}:{}", l.file(), l.line()));
            let payload = info.payload();
            let text = payload
                .downcast_ref::<&str>()
                .map(|s| (*s).to_string())
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "?".into());
            PANIC.with(|p| *p.borrow_mut() = Some(format!("{place}: {text}")));
        }));
    });
}

/// Runs something in a world: what was found, and whether it panicked.
fn guarded(sim: &Rc<Sim>, body: impl FnOnce()) -> (Option<Violation>, bool) {
    if catch_unwind(AssertUnwindSafe(body)).is_ok() {
        return (sim.violation(), false);
    }
    let violation = Violation {
        kind: Kind::Panic,
        text: PANIC.with(|p| p.borrow_mut().take()).unwrap_or_default(),
        time: sim.now(),
    };
    (Some(violation), true)
}

/// Runs one seed.
pub fn run_seed(seed: u64, options: &Options) -> SeedReport {
    catch_panics();
    plant(&options.plants);
    let sim = Sim::new(seed, options.print);
    sim.histories_only.set(options.histories_only);
    let mut report = SeedReport {
        seed,
        ..SeedReport::default()
    };
    let cluster: RefCell<Option<(Rc<Cluster>, Rc<Workload>)>> = RefCell::new(None);
    let (violation, panicked) = guarded(&sim, || run(&sim, options.system, &cluster));
    report.violation = violation;
    let gathered = catch_unwind(AssertUnwindSafe(|| {
        if let Some((cluster, workload)) = &*cluster.borrow() {
            report.gather(&sim, cluster, workload);
        }
    }));
    drop(gathered);
    report.tail = sim.trace.borrow().tail();
    report.hash = sim.trace.borrow().hash();
    report.events = sim.trace.borrow().events();
    report.virtual_time = sim.now();
    if report.violation.is_none() {
        report.violation = enough(&report);
    }
    // After a panic the world may be in any state: it is leaked rather than taken apart.
    if !panicked {
        sim.tear_down();
    } else {
        std::mem::forget(cluster);
        std::mem::forget(sim);
    }
    plant(&[]);
    report
}

#[cfg(feature = "plant")]
fn plant(names: &[String]) {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    pando_types::plant::set(&names);
}

#[cfg(not(feature = "plant"))]
fn plant(_names: &[String]) {}

/// A run that put nothing at risk says nothing.
fn enough(report: &SeedReport) -> Option<Violation> {
    let felt: u64 = report.faults_felt.values().sum();
    let why = if report.operations < ENOUGH_OPERATIONS {
        format!("only {} operations", report.operations)
    } else if felt < ENOUGH_FAULTS {
        format!("only {felt} faults took effect")
    } else if report.mutations < ENOUGH_MUTATIONS {
        format!("only {} mutations", report.mutations)
    } else {
        return None;
    };
    Some(Violation {
        kind: Kind::RiskedNothing,
        text: why,
        time: report.virtual_time,
    })
}

fn run(sim: &Rc<Sim>, system: Option<System>, keep: &RefCell<Option<(Rc<Cluster>, Rc<Workload>)>>) {
    let settings = Settings::with_system(&mut sim.stream(6), system);
    sim.note(|| format!("{settings:?}"));
    let cluster = match Cluster::format(sim, settings.clone()) {
        Ok(c) => c,
        Err(e) => return sim.fail(Kind::WrongResult, format!("format: {e}")),
    };
    let workload = Workload::new(&cluster);
    *keep.borrow_mut() = Some((cluster.clone(), workload.clone()));
    // Weak: the workload holds the cluster.
    let w = Rc::downgrade(&workload);
    cluster.on_client_death(Rc::new(move |life| {
        if let Some(w) = w.upgrade() {
            w.died(life);
        }
    }));
    for index in 0..cluster.servers.len() {
        cluster.set_downtime(index, Some(10 * MS));
        cluster.start(index);
    }
    if !sim.run_until(10 * SEC, || cluster.all_serve()) {
        return sim.fail(Kind::NoProgress, "a new cluster does not start");
    }
    let admin = sim.machine(Role::Client(1000));
    sim.net.borrow_mut().identify(admin, PeerId::Operator);
    let opened = {
        let over = workload.aside(admin, |w, life, client| async move {
            w.open_root(&life, &client).await;
            if w.cluster().settings.keyed {
                w.make_identities(&client).await;
            }
        });
        sim.run_until(10 * SEC, || over.get())
    };
    if !opened {
        return sim.fail(Kind::NoProgress, "the first operation does not end");
    }
    if let Some(life) = sim.life(admin) {
        life.die(crate::world::Death::Stop);
    }
    crate::liar::begin(&cluster, &workload);
    crate::revoke::begin(&cluster, &workload);
    crate::grow::begin(&cluster, &workload);
    crate::cuts::begin(&cluster, &workload);
    let nemesis = Nemesis::new(&cluster, &workload);
    let lockers = crate::lockers::begin(&cluster, &workload);
    let localisers = crate::localisers::begin(&cluster, &workload);
    if cluster.settings.aimed {
        nemesis.take_aim();
    }
    for index in 0..workload.machines.len() {
        let w = workload.clone();
        sim.after(workload.below(20 * MS), move |_| w.start(index));
    }
    if attack(sim, &cluster, &workload, &nemesis) {
        nemesis.heal();
        if let Some(lockers) = &lockers {
            lockers.finish();
        }
        if let Some(localisers) = &localisers {
            localisers.finish();
        }
        finish(&cluster, &workload, admin);
    }
    // Or else it would hold the cluster.
    drop((lockers, localisers));
    cluster.aims.borrow_mut().give_up();
    cluster.aims.borrow_mut().keep(None);
    if !sim.failed() {
        cluster.judge().judge_history();
    }
}

/// The part with faults. False if something is wrong.
fn attack(sim: &Rc<Sim>, cluster: &Rc<Cluster>, workload: &Rc<Workload>, nemesis: &Rc<Nemesis>) -> bool {
    let s = &cluster.settings;
    let mut rng = sim.stream(7);
    let gap = (s.operations / (s.faults + 2)).max(1);
    let mut next = (
        rng.range(gap / 2, gap * 3 / 2),
        sim.now() + rng.skewed(s.fault_gap),
    );
    let (mut walked, mut at, mut steps) = (0, sim.now(), 0u64);
    let end = sim.now() + 900 * SEC;
    loop {
        if sim.failed() {
            return false;
        }
        let operations = workload.operations();
        if operations >= next.0 || sim.now() >= next.1 {
            nemesis.strike();
            next = (
                operations + rng.range(gap / 2, gap * 3 / 2),
                sim.now() + SEC + rng.skewed(s.fault_gap),
            );
        }
        let felt = cluster.effects.borrow().felt();
        if operations >= s.operations && nemesis.planned() >= s.faults && felt >= ENOUGH_FAULTS {
            return true;
        }
        if operations >= 4 * s.operations || sim.now() > end + nemesis.slept() {
            // Judged by what was reached.
            return true;
        }
        let events = sim.trace.borrow().events();
        if events >= walked + WALK_EVERY {
            walked = events;
            cluster.judge().full_walk();
            check_blocks(cluster);
        }
        if !sim.step() {
            sim.fail(Kind::NoProgress, "nothing is left to happen");
            return false;
        }
        steps += 1;
        if sim.now() != at {
            (at, steps) = (sim.now(), 0);
        } else if steps > SPIN {
            sim.fail(Kind::NoProgress, "something spins: virtual time does not advance");
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Totals;

    /// What a run exits with in which this was found.
    fn exit_code(body: impl FnOnce(&Rc<Sim>)) -> i32 {
        catch_panics();
        let sim = Sim::new(1, Print::No);
        let (violation, _) = guarded(&sim, || body(&sim));
        let mut totals = Totals::default();
        totals.add(&SeedReport {
            violation,
            ..SeedReport::default()
        });
        totals.exit_code()
    }

    #[test]
    fn each_kind_of_finding_has_its_exit_code() {
        assert_eq!(exit_code(|_| {}), 0);
        assert_eq!(exit_code(|sim| sim.fail(Kind::WrongResult, "not that")), 2);
        assert_eq!(exit_code(|sim| sim.fail(Kind::NoProgress, "still waiting")), 3);
        assert_eq!(exit_code(|_| panic!("the code under test")), 4);
        assert_eq!(exit_code(|sim| sim.fail(Kind::RiskedNothing, "no faults")), 5);
    }

    #[test]
    fn the_worst_finding_counts() {
        let mut totals = Totals::default();
        for kind in [Kind::RiskedNothing, Kind::Panic, Kind::NoProgress] {
            let violation = Some(Violation {
                kind,
                text: String::new(),
                time: 0,
            });
            totals.add(&SeedReport {
                violation,
                ..SeedReport::default()
            });
        }
        assert_eq!(totals.exit_code(), 3);
    }

    #[test]
    fn a_long_run_that_risked_little_fails() {
        let mut totals = Totals::default();
        let report = |mutations, renames, faults| SeedReport {
            operations: 200_000,
            mutations,
            outcomes: [("rename ok".to_string(), renames)].into(),
            faults_felt: [("kill".to_string(), faults)].into(),
            ..SeedReport::default()
        };
        totals.add(&report(100_000, 20_000, 400));
        assert_eq!((totals.exit_code(), totals.weak()), (0, None));
        for weak in [
            report(20_000, 20_000, 400),
            report(100_000, 100, 400),
            report(100_000, 20_000, 1),
        ] {
            let mut totals = Totals::default();
            totals.add(&weak);
            assert_eq!(totals.exit_code(), 5, "{weak:?}");
        }
    }
}
