//! Small clusters with fixed costs.

use super::*;
use pando_cluster::Placement;
use pando_types::Ids;
use std::rc::Rc;
use std::time::Duration;

fn costs() -> Rc<Costs> {
    let us = |n: u64| n * 1_000;
    let service = [
        ("lookup", 15),
        ("statdir", 15),
        ("create", 30),
        ("unlink", 30),
        ("mkdir", 40),
        ("mkdir on one server", 45),
        ("rmdir", 40),
        ("rmdir on one server", 45),
        ("rename", 50),
        ("rename on one server", 45),
        ("peer lock", 15),
        ("peer prepare", 30),
        ("peer content", 30),
        ("peer decide", 20),
        ("peer settle", 20),
        ("peer invalidate", 10),
        ("answer locked", 20),
        ("answer vote", 30),
        ("answer content", 10),
        ("answer decided", 10),
        ("answer heard", 5),
    ];
    Rc::new(Costs {
        service: service.iter().map(|(k, n)| ((*k).into(), us(*n))).collect(),
        other: us(10),
        client: us(10),
        one_way: us(30),
        sync: vec![(1, us(20)), (64, us(60))],
    })
}

/// All phases on so many servers.
fn all(servers: u16) -> Vec<Measured> {
    let crowd = Crowd::start(&Setup::new(servers, 64, costs())).expect("it starts");
    let ops = 1_000 * u64::from(servers);
    let mut measured = Vec::new();
    for (phase, ops) in [
        (Phase::Mkdir, ops),
        (Phase::MkdirWide, ops / 2),
        (Phase::Create, ops),
        (Phase::Stat, ops),
        (Phase::RenameFile, ops / 2),
        (Phase::Delete, ops / 2),
    ] {
        measured.push(crowd.run(phase, ops).expect("it works"));
    }
    crowd.prepare(Phase::Delete, u64::MAX).expect("all files go");
    measured.push(crowd.run(Phase::Rmdir, ops / 2).expect("it works"));
    measured
}

/// Twice the servers do nearly twice as much of what concerns one of them, or two.
#[test]
fn what_concerns_few_servers_scales() {
    let (two, four) = (all(2), all(4));
    for (two, four) in two.iter().zip(&four) {
        let ratio = four.rate() / two.rate() / 2.0;
        let name = two.phase.name();
        println!(
            "{name}: {:.0}/s, then {:.0}/s: {ratio:.2} of linear; busy {:.2}, {:.2}; {:.2} round trips, {:.2} between",
            two.rate(),
            four.rate(),
            two.least_busy(),
            four.least_busy(),
            four.round_trips,
            four.between
        );
        assert!(two.least_busy() > 0.85, "{name}: {:?}", two.busy);
        assert!(four.least_busy() > 0.8, "{name}: {:?}", four.busy);
        // What may concern two servers concerns one half of the time with two, and a quarter of the time with
        // four.
        let least = match two.phase {
            Phase::Mkdir => 0.7,
            Phase::RenameFile | Phase::Rmdir => 0.6,
            _ => 0.85,
        };
        assert!((least..1.1).contains(&ratio), "{name}: {ratio}");
        assert!(four.unknown < 0.01, "{name}: {}", four.unknown);
    }
}

/// The same setup gives the same numbers; another seed does not.
#[test]
fn it_repeats() {
    let run = |seed| {
        let setup = Setup {
            seed,
            ..Setup::new(2, 16, costs())
        };
        let crowd = Crowd::start(&setup).expect("it starts");
        let made = crowd.run(Phase::Mkdir, 500).expect("it works");
        let crowd_events = crowd.events();
        (format!("{made:?}"), crowd_events)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}

/// The less loaded of two servers gets a new directory: records are spread far more evenly than by chance.
#[test]
fn placed_directories_are_spread_evenly() {
    let shares = |ids| {
        let setup = Setup {
            ids,
            ..Setup::new(32, 4, costs())
        };
        place(&setup, 10_000).expect("it works")
    };
    let (placed, random) = (shares(Ids::Placed), shares(Ids::Predicted));
    for all in [&placed, &random] {
        assert_eq!(all.directories.iter().sum::<u64>(), 10_000);
    }
    let (even, chance) = (largest(&placed.records), largest(&random.records));
    println!("less loaded of two: {even:.3} of the mean; one random choice: {chance:.3}");
    assert!(even < 1.08 && even + 0.03 < chance, "{even} {chance}");
}

/// A server that is busy all the time gives halves away all the same, one after the other.
#[test]
fn a_directory_spreads_while_its_clients_never_rest() {
    let mut slow = (*costs()).clone();
    slow.service.insert("create".into(), 80_000);
    let setup = Setup {
        ids: Ids::Placed,
        placement: Placement::Split(250),
        files: Files::Shared,
        ..Setup::new(8, 512, Rc::new(slow))
    };
    let crowd = Crowd::start(&setup).expect("it starts");
    let ended = crowd
        .timeline(Phase::Create, Duration::from_millis(100), 25)
        .expect("it works");
    assert_eq!(crowd.splits(), 7, "{ended:?}");
    let (first, last) = (ended.first().expect("some"), ended.last().expect("some"));
    assert!(*last > 6 * first, "{ended:?}");
}
