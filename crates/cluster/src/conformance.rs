//! What every implementation of [`Coord`] must do. Its tests call [`run`].

use crate::{ClusterMap, Coord, CoordError, Membership, View};
use pando_env::LocalFuture;
use pando_types::{FsId, MapEpoch, ServerId, Term};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// A service that keeps [`Harness::map`], and processes that use it.
pub trait Harness {
    /// The map it keeps at first. It has servers 0, 1 and 2 at least.
    fn map(&self) -> ClusterMap;
    /// A new process.
    fn process(&mut self) -> Rc<dyn Coord>;
    /// From now on nobody hears of this process, which has not ended: it is stopped, or cut off.
    fn silence(&mut self, process: &Rc<dyn Coord>);
    /// It is heard again.
    fn recover(&mut self, process: &Rc<dyn Coord>);
    /// Within so long one that is silent is seen gone by who keeps looking.
    fn patience(&self) -> Duration;
    /// The service ends without notice and begins again. False if it cannot: nothing runs for it.
    fn restart(&mut self) -> bool;
    /// What time it is.
    fn now(&self) -> Duration;
    /// Lets time pass.
    fn pass(&mut self, time: Duration);
    /// Runs a future to its end.
    fn block_on<T>(&mut self, future: LocalFuture<T>) -> T;
}

/// What it is called, and what it does.
type Case<H> = (&'static str, fn(&mut H));

/// Runs the whole suite, each case on a fresh service.
pub fn run<H: Harness>(mut fresh: impl FnMut() -> H) {
    let cases: [Case<H>; 8] = [
        ("the map is there", the_map_is_there),
        ("members are seen", members_are_seen),
        ("who leaves is gone", who_leaves_is_gone),
        ("another process is another membership", another_process),
        ("maps are compared and set", maps_are_compared_and_set),
        ("of several who replace one does", one_replaces),
        ("silent members are seen gone, and not too early", silent_members),
        ("what was kept outlives the service", the_service_restarts),
    ];
    for (name, case) in cases {
        eprintln!("coordination conformance: {name}");
        case(&mut fresh());
    }
}

fn ok<T>(result: Result<T, CoordError>) -> T {
    match result {
        Ok(value) => value,
        Err(e) => panic!("unexpected error: {e}"),
    }
}

fn attend<H: Harness>(h: &mut H, coord: &Rc<dyn Coord>, me: u16) -> View {
    ok(h.block_on(coord.attend(ServerId(me))))
}

fn view<H: Harness>(h: &mut H, coord: &Rc<dyn Coord>) -> View {
    ok(h.block_on(coord.view()))
}

/// What a server may do to become the coordinator.
fn next(map: &ClusterMap, coordinator: u16) -> ClusterMap {
    ClusterMap {
        epoch: MapEpoch(map.epoch.0 + 1),
        term: Term(map.term.0 + 1),
        coordinator: ServerId(coordinator),
        ..map.clone()
    }
}

fn the_map_is_there<H: Harness>(h: &mut H) {
    let a = h.process();
    assert!(a.lease() > Duration::ZERO);
    let seen = view(h, &a);
    assert_eq!(seen.map, h.map());
    assert_eq!(seen.members, BTreeMap::new());
}

fn members_are_seen<H: Harness>(h: &mut H) {
    let (a, b) = (h.process(), h.process());
    let alone = attend(h, &a, 0);
    assert_eq!(alone.members.len(), 1);
    let both = attend(h, &b, 1);
    assert_eq!(both.members.get(&ServerId(0)), alone.members.get(&ServerId(0)));
    // A number stays as long as the membership.
    for _ in 0..3 {
        h.pass(a.lease() / 2);
        assert_eq!(attend(h, &a, 0), both);
        assert_eq!(attend(h, &b, 1), both);
        let onlooker = h.process();
        assert_eq!(view(h, &onlooker), both);
    }
}

fn who_leaves_is_gone<H: Harness>(h: &mut H) {
    let (a, b) = (h.process(), h.process());
    let before = attend(h, &a, 0).members[&ServerId(0)];
    assert_eq!(attend(h, &b, 1).members.len(), 2);
    ok(h.block_on(a.leave(ServerId(0))));
    assert!(!view(h, &b).members.contains_key(&ServerId(0)));
    // Twice is no error: who is not there may go.
    ok(h.block_on(a.leave(ServerId(0))));
    assert!(attend(h, &a, 0).members[&ServerId(0)] > before);
    // Others were not concerned.
    assert_eq!(view(h, &b).members.len(), 2);
}

fn another_process<H: Harness>(h: &mut H) {
    let mut last = Membership(0);
    for _ in 0..3 {
        let process = h.process();
        let now = attend(h, &process, 2).members[&ServerId(2)];
        assert!(now > last, "{now:?} after {last:?}");
        last = now;
    }
}

fn maps_are_compared_and_set<H: Harness>(h: &mut H) {
    let (a, b) = (h.process(), h.process());
    let first = h.map();
    let second = next(&first, 1);
    ok(h.block_on(a.replace(first.epoch, second.clone())));
    assert_eq!(view(h, &b).map, second);
    assert_eq!(attend(h, &b, 0).map, second);
    // From the one before.
    let refused = h.block_on(b.replace(first.epoch, next(&first, 2)));
    assert_eq!(refused, Err(CoordError::Changed(second.epoch)));
    // Epochs rise.
    let again = h.block_on(b.replace(second.epoch, second.clone()));
    assert_eq!(again, Err(CoordError::Changed(second.epoch)));
    let foreign = ClusterMap {
        fs: FsId(first.fs.0 ^ 1),
        ..next(&second, 0)
    };
    assert!(matches!(
        h.block_on(b.replace(second.epoch, foreign)),
        Err(CoordError::Foreign(_))
    ));
    let mut unusable = next(&second, 0);
    unusable.slots.pop();
    assert!(matches!(
        h.block_on(b.replace(second.epoch, unusable)),
        Err(CoordError::NoMap(_))
    ));
    assert_eq!(view(h, &a).map, second);
    // One that is allowed, after all these.
    ok(h.block_on(b.replace(second.epoch, next(&second, 2))));
    assert_eq!(view(h, &a).map, next(&second, 2));
}

fn one_replaces<H: Harness>(h: &mut H) {
    let processes: Vec<Rc<dyn Coord>> = (0..3).map(|_| h.process()).collect();
    for _ in 0..5 {
        let before = view(h, &processes[0]).map;
        let mut asked: Vec<LocalFuture<Result<(), CoordError>>> = Vec::new();
        for (server, process) in (0..).zip(&processes) {
            asked.push(process.replace(before.epoch, next(&before, server)));
        }
        let all: LocalFuture<Vec<Result<(), CoordError>>> = Box::pin(pando_env::sync::join_all(asked));
        let results = h.block_on(all);
        let after = view(h, &processes[1]).map;
        let winners: Vec<usize> = (0..results.len()).filter(|i| results[*i].is_ok()).collect();
        assert_eq!(winners.len(), 1, "{results:?}");
        assert_eq!(after, next(&before, winners[0] as u16));
        for refused in results.iter().filter(|r| r.is_err()) {
            assert_eq!(*refused, Err(CoordError::Changed(after.epoch)));
        }
    }
}

fn silent_members<H: Harness>(h: &mut H) {
    let (a, b) = (h.process(), h.process());
    attend(h, &b, 1);
    attend(h, &a, 0);
    h.pass(a.lease() / 4);
    let began = h.now();
    let before = attend(h, &a, 0).members[&ServerId(0)];
    h.silence(&a);
    let step = a.lease() / 8;
    loop {
        let seen = attend(h, &b, 1);
        // The answer is of an instant before now.
        let since = h.now() - began;
        // Who begins to look now knows no less.
        let onlooker = h.process();
        let fresh = view(h, &onlooker);
        let gone = [&seen, &fresh]
            .iter()
            .any(|v| !v.members.contains_key(&ServerId(0)));
        assert!(!gone || since >= a.lease(), "seen gone after {since:?}");
        if gone {
            break;
        }
        assert!(since < h.patience(), "seen there after {since:?}");
        h.pass(step);
    }
    // Who was seen gone stays gone.
    let onlooker = h.process();
    assert!(!view(h, &onlooker).members.contains_key(&ServerId(0)));
    h.recover(&a);
    let began = h.now();
    loop {
        match h.block_on(a.attend(ServerId(0))) {
            Ok(seen) => {
                assert!(seen.members[&ServerId(0)] > before);
                return;
            }
            Err(CoordError::Away(_)) if h.now() - began < h.patience() => h.pass(step),
            Err(e) => panic!("{e}"),
        }
    }
}

fn the_service_restarts<H: Harness>(h: &mut H) {
    let a = h.process();
    let first = attend(h, &a, 0);
    let second = next(&first.map, 2);
    ok(h.block_on(a.replace(first.map.epoch, second.clone())));
    if !h.restart() {
        return;
    }
    let began = h.now();
    loop {
        match h.block_on(a.attend(ServerId(0))) {
            Ok(seen) => {
                assert_eq!(seen.map, second);
                assert!(seen.members[&ServerId(0)] >= first.members[&ServerId(0)]);
                return;
            }
            Err(CoordError::Away(_)) if h.now() - began < h.patience() => h.pass(a.lease() / 8),
            Err(e) => panic!("{e}"),
        }
    }
}
