//! Coordination in memory: for worlds that are one process.

use super::{Coord, CoordError, Membership, View};
use crate::ClusterMap;
use pando_env::LocalFuture;
use pando_types::{MapEpoch, Mono, ServerId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

struct State {
    map: ClusterMap,
    members: BTreeMap<ServerId, (Membership, Mono)>,
    last: u64,
}

/// What all share who are coordinated.
pub struct MemCoord {
    state: RefCell<State>,
    lease: Duration,
    now: Box<dyn Fn() -> Mono>,
}

impl MemCoord {
    /// Begins with this map and nobody.
    pub fn new(map: ClusterMap, lease: Duration, now: impl Fn() -> Mono + 'static) -> MemCoord {
        MemCoord {
            state: RefCell::new(State {
                map,
                members: BTreeMap::new(),
                last: 0,
            }),
            lease,
            now: Box::new(now),
        }
    }

    /// All servers of the map are there for ever: nobody ever takes another's place.
    pub fn fixed(map: ClusterMap) -> MemCoord {
        let everybody = map
            .servers
            .iter()
            .map(|s| (s.id, (Membership(0), Mono(u64::MAX))));
        let members = everybody.collect();
        let coord = MemCoord::new(map, Duration::from_secs(3600), || Mono(0));
        coord.state.borrow_mut().members = members;
        coord
    }

    /// Ends a membership before its time: whoever had it is known to be dead.
    pub fn gone(&self, server: ServerId) {
        self.state.borrow_mut().members.remove(&server);
    }

    /// A map that replaces whatever there is, by whoever stopped all servers first.
    pub fn put(&self, map: ClusterMap) {
        self.state.borrow_mut().map = map;
    }

    /// What is so now.
    pub fn now(&self) -> View {
        let now = (self.now)();
        let mut state = self.state.borrow_mut();
        state.members.retain(|_, (_, until)| now < *until);
        View {
            map: state.map.clone(),
            members: state.members.iter().map(|(s, (m, _))| (*s, *m)).collect(),
        }
    }
}

impl Coord for MemCoord {
    fn lease(&self) -> Duration {
        self.lease
    }

    fn attend(&self, me: ServerId) -> LocalFuture<Result<View, CoordError>> {
        drop(self.now());
        let until = (self.now)().after(self.lease);
        {
            let state = &mut *self.state.borrow_mut();
            let last = &mut state.last;
            let member = state.members.entry(me).or_insert_with(|| {
                *last += 1;
                (Membership(*last), until)
            });
            member.1 = member.1.max(until);
        }
        let view = self.now();
        Box::pin(async move { Ok(view) })
    }

    fn leave(&self, me: ServerId) -> LocalFuture<Result<(), CoordError>> {
        self.gone(me);
        Box::pin(async { Ok(()) })
    }

    fn view(&self) -> LocalFuture<Result<View, CoordError>> {
        let view = self.now();
        Box::pin(async move { Ok(view) })
    }

    fn replace(&self, from: MapEpoch, to: ClusterMap) -> LocalFuture<Result<(), CoordError>> {
        let mut state = self.state.borrow_mut();
        let result = super::may_replace(&state.map, from, &to);
        if result.is_ok() {
            state.map = to;
        }
        Box::pin(async move { result })
    }
}
