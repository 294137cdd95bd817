//! A few seeds of the default workload and the simulator's own promises. Seeds of the commit and those that
//! ever failed run optimized, in the stage `sim` of `make test`.

use pando_sim::{Batch, ENOUGH_FAULTS, ENOUGH_OPERATIONS, Options, Print, run_many, run_seed, seeds_of};

#[test]
fn a_few_seeds() {
    let batch = Batch {
        seeds: (1..=4).collect(),
        operations: 0,
        jobs: 2,
        replay_every: 0,
        stop_at_first: false,
        options: Options::default(),
    };
    let totals = run_many(&batch, |_| {});
    assert!(totals.violations.is_empty(), "{:#?}", totals.violations);
}

#[test]
fn a_seed_replays_exactly() {
    let first = run_seed(7, &Options::default());
    // Printing must not change what happens.
    let second = run_seed(
        7,
        &Options {
            print: Print::Tail(10),
            ..Options::default()
        },
    );
    assert_eq!(first.hash, second.hash);
    assert_eq!(first.events, second.events);
    assert_eq!(second.tail.len(), 10);
    assert_ne!(first.hash, run_seed(8, &Options::default()).hash);
}

#[test]
fn every_seed_risks_something() {
    let report = run_seed(9, &Options::default());
    assert!(report.violation.is_none(), "{:?}", report.violation);
    assert!(report.operations >= ENOUGH_OPERATIONS);
    assert!(report.felt() >= ENOUGH_FAULTS);
    assert!(report.mutations * 10 >= report.operations * 4);
}

#[test]
fn seeds_follow_from_the_commit() {
    assert_eq!(seeds_of("abc", 3), seeds_of("abc", 3));
    assert_ne!(seeds_of("abc", 3), seeds_of("abd", 3));
    assert_eq!(seeds_of("abc", 5)[..3], seeds_of("abc", 3)[..]);
}
