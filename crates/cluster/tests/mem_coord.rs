//! Coordination in memory keeps what every coordination promises.

use pando_cluster::conformance::{self, Harness};
use pando_cluster::{ClusterMap, Coherence, Coord, CoordError, MemCoord, Placement, ServerInfo, View};
use pando_env::LocalFuture;
use pando_types::{AuthMode, FsId, MapEpoch, Mono, ServerId, Term};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(2);

fn map() -> ClusterMap {
    let servers: Vec<ServerInfo> = (0..3)
        .map(|id| ServerInfo {
            id: ServerId(id),
            address: format!("host{id}:1"),
            metrics: String::new(),
        })
        .collect();
    ClusterMap {
        fs: FsId(1),
        epoch: MapEpoch(1),
        slots: ClusterMap::spread(&servers),
        servers,
        coordinator: ServerId(0),
        term: Term(1),
        keeper: ServerId(0),
        inline_limit: 65_536,
        block_size: 1 << 22,
        blocks: "file:/blocks".into(),
        name_bits: 55,
        id_bits: 128,
        auth: AuthMode::None,
        coherence: Coherence::Lazy,
        placement: Placement::Directory,
        ids: pando_types::Ids::Predicted,
        updates: pando_cluster::DirectoryUpdates::ParentFirst,
        plan: pando_cluster::Plan::default(),
    }
}

/// One process. Whoever starts it knows that the one before is dead.
struct Process {
    service: Rc<MemCoord>,
    silent: Cell<bool>,
    is: RefCell<BTreeSet<ServerId>>,
}

impl Process {
    fn call<T: 'static>(
        &self,
        act: impl FnOnce() -> LocalFuture<Result<T, CoordError>>,
    ) -> LocalFuture<Result<T, CoordError>> {
        if self.silent.get() {
            return Box::pin(async { Err(CoordError::Away("cut off".into())) });
        }
        act()
    }
}

impl Coord for Process {
    fn lease(&self) -> Duration {
        LEASE
    }
    fn attend(&self, me: ServerId) -> LocalFuture<Result<View, CoordError>> {
        self.call(|| {
            if self.is.borrow_mut().insert(me) {
                self.service.gone(me);
            }
            self.service.attend(me)
        })
    }
    fn leave(&self, me: ServerId) -> LocalFuture<Result<(), CoordError>> {
        self.call(|| self.service.leave(me))
    }
    fn view(&self) -> LocalFuture<Result<View, CoordError>> {
        self.call(|| self.service.view())
    }
    fn replace(&self, from: MapEpoch, to: ClusterMap) -> LocalFuture<Result<(), CoordError>> {
        self.call(|| self.service.replace(from, to))
    }
}

struct Memory {
    service: Rc<MemCoord>,
    now: Rc<Cell<Mono>>,
    processes: Vec<Rc<Process>>,
}

impl Memory {
    fn new() -> Memory {
        let now = Rc::new(Cell::new(Mono(1)));
        let clock = now.clone();
        Memory {
            service: Rc::new(MemCoord::new(map(), LEASE, move || clock.get())),
            now,
            processes: Vec::new(),
        }
    }

    fn set_silent(&self, process: &Rc<dyn Coord>, silent: bool) {
        for p in &self.processes {
            let same: Rc<dyn Coord> = p.clone();
            if Rc::ptr_eq(&same, process) {
                p.silent.set(silent);
            }
        }
    }
}

impl Harness for Memory {
    fn map(&self) -> ClusterMap {
        map()
    }
    fn process(&mut self) -> Rc<dyn Coord> {
        let process = Rc::new(Process {
            service: self.service.clone(),
            silent: Cell::new(false),
            is: RefCell::default(),
        });
        self.processes.push(process.clone());
        process
    }
    fn silence(&mut self, process: &Rc<dyn Coord>) {
        self.set_silent(process, true);
    }
    fn recover(&mut self, process: &Rc<dyn Coord>) {
        self.set_silent(process, false);
    }
    fn patience(&self) -> Duration {
        LEASE * 2
    }
    fn restart(&mut self) -> bool {
        false
    }
    fn now(&self) -> Duration {
        Duration::from_nanos(self.now.get().0)
    }
    fn pass(&mut self, time: Duration) {
        self.now.set(self.now.get().after(time));
    }
    fn block_on<T>(&mut self, future: LocalFuture<T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("memory does not wait"),
        }
    }
}

#[test]
fn conformance() {
    conformance::run(Memory::new);
}
