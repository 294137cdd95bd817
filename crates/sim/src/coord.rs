//! The coordination service as the servers of a simulated cluster see it: it takes time, can be cut off from
//! some of them, and be away altogether. It never forgets anything: that is what one runs it for.

use crate::world::{Life, MS, NodeId, Time, US};
use pando_cluster::{ClusterMap, Coord, CoordError, MemCoord, View};
use pando_env::Env;
use pando_env::rng::Rng;
use pando_store::LocalFuture;
use pando_types::{MapEpoch, ServerId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// How long is waited for an answer that does not come.
const PATIENCE: Time = 500 * MS;

/// Who hears of maps.
pub type HearMap = Box<dyn Fn(ClusterMap)>;

/// The service.
pub struct Service {
    /// What it knows.
    pub known: MemCoord,
    /// Machines that do not reach it.
    cut: RefCell<BTreeSet<NodeId>>,
    /// Whether it is away.
    away: Cell<bool>,
    /// Who hears at once which map is in force.
    on_map: RefCell<Option<HearMap>>,
    /// Calls that were not answered because of that.
    unanswered: Cell<u64>,
}

impl Service {
    /// Begins with a map.
    pub fn new(known: MemCoord) -> Rc<Service> {
        Rc::new(Service {
            known,
            cut: RefCell::default(),
            away: Cell::new(false),
            on_map: RefCell::default(),
            unanswered: Cell::new(0),
        })
    }

    /// Cuts a machine off from it, or mends that.
    pub fn set_cut(&self, machine: NodeId, cut: bool) {
        if cut {
            self.cut.borrow_mut().insert(machine);
        } else {
            self.cut.borrow_mut().remove(&machine);
        }
    }

    /// Takes it away, or brings it back.
    pub fn set_away(&self, away: bool) {
        self.away.set(away);
    }

    /// Who is to hear at once which map is in force.
    pub fn on_map(&self, hear: HearMap) {
        *self.on_map.borrow_mut() = Some(hear);
    }

    /// Ends all that keeps anybody from it.
    pub fn heal(&self) {
        self.away.set(false);
        self.cut.borrow_mut().clear();
    }

    /// Calls that were not answered.
    pub fn unanswered(&self) -> u64 {
        self.unanswered.get()
    }

    fn answers(&self, machine: NodeId) -> bool {
        !self.away.get() && !self.cut.borrow().contains(&machine)
    }
}

/// It, as one process uses it.
#[derive(Clone)]
pub struct SimCoord {
    /// The service.
    pub service: Rc<Service>,
    /// The process.
    pub life: Rc<Life>,
}

type Act<T> = Box<dyn FnOnce(&MemCoord) -> LocalFuture<Result<T, CoordError>>>;

impl SimCoord {
    fn call<T: 'static>(&self, act: Act<T>) -> LocalFuture<Result<T, CoordError>> {
        let (service, life) = (self.service.clone(), self.life.clone());
        Box::pin(async move {
            let mut rng = Rng::new(life.random());
            let way = |rng: &mut Rng| Duration::from_nanos(100 * US + rng.below(3 * MS));
            life.sleep(way(&mut rng)).await;
            if service.answers(life.node) {
                let before = service.known.now().map.epoch;
                let result = act(&service.known).await;
                let now = service.known.now().map;
                if let (true, Some(hear)) = (now.epoch > before, &*service.on_map.borrow()) {
                    hear(now);
                }
                life.sleep(way(&mut rng)).await;
                if service.answers(life.node) {
                    return result;
                }
            }
            service.unanswered.set(service.unanswered.get() + 1);
            life.sleep(Duration::from_nanos(PATIENCE)).await;
            Err(CoordError::Away("no answer".into()))
        })
    }
}

impl Coord for SimCoord {
    fn lease(&self) -> Duration {
        self.service.known.lease()
    }

    fn attend(&self, me: ServerId) -> LocalFuture<Result<View, CoordError>> {
        self.call(Box::new(move |known| known.attend(me)))
    }

    fn leave(&self, me: ServerId) -> LocalFuture<Result<(), CoordError>> {
        self.call(Box::new(move |known| known.leave(me)))
    }

    fn view(&self) -> LocalFuture<Result<View, CoordError>> {
        self.call(Box::new(MemCoord::view))
    }

    fn replace(&self, from: MapEpoch, to: ClusterMap) -> LocalFuture<Result<(), CoordError>> {
        self.call(Box::new(move |known| known.replace(from, to)))
    }
}
