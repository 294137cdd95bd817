//! Servers that join and leave while clients work and everything else goes wrong.
//!
//! Besides the judge, which compares the tree before and after every change of the map, all that is asked
//! here is that it comes to an end once the world is sound: nothing is left to move, and who was drained has
//! left.

use crate::cluster::Cluster;
use crate::violation::Kind;
use crate::workload::Workload;
use crate::world::{Death, Life, MS, Role, SEC};
use pando_client::{Client, ClientConfig};
use pando_env::Env;
use pando_env::rng::Rng;
use pando_types::{PeerId, ServerId};
use pando_wire::{ClusterError, ClusterRequest, Request, Response};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

struct Operator {
    cluster: Rc<Cluster>,
    workload: Rc<Workload>,
    client: Rc<Client>,
    life: Rc<Life>,
    rng: RefCell<Rng>,
    /// Who joined last, if it is to leave again.
    joined: Cell<Option<ServerId>>,
}

/// Begins, if the seed says so.
pub fn begin(cluster: &Rc<Cluster>, workload: &Rc<Workload>) {
    if cluster.settings.spares == 0 {
        return;
    }
    let sim = &cluster.sim;
    let node = sim.machine(Role::Client(3000));
    sim.net.borrow_mut().identify(node, PeerId::Operator);
    let life = sim.start(node);
    let mut config = ClientConfig::new((*cluster.map()).clone());
    config.give_up = Duration::from_secs(2);
    let client = Client::new(life.world(), config);
    life.set_receiver(client.clone());
    let operator = Rc::new(Operator {
        cluster: cluster.clone(),
        workload: workload.clone(),
        client,
        life: life.clone(),
        rng: RefCell::new(sim.stream(11)),
        joined: Cell::new(None),
    });
    life.spawn(Box::pin(async move {
        while operator.workload.goes_on() {
            let most = if operator.cluster.settings.pendulum {
                SEC
            } else {
                2 * SEC
            };
            operator.pause(most).await;
            operator.one().await;
        }
        operator.life.die(Death::Stop);
    }));
}

impl Operator {
    fn below(&self, n: u64) -> u64 {
        self.rng.borrow_mut().below(n)
    }

    async fn pause(&self, most: u64) {
        let time = self.below(most);
        self.life.sleep(Duration::from_nanos(time)).await;
    }

    async fn one(&self) {
        let map = self.cluster.map();
        let spare = self
            .cluster
            .servers
            .iter()
            .position(|s| s.id == map.next_server());
        // Back where they came from, as far as that is even.
        let leaves = self.joined.get().filter(|_| self.below(4) > 0);
        match (self.below(5), spare) {
            (0..=4, _) if leaves.is_some_and(|id| map.staying().any(|s| s == id)) => {
                self.joined.set(None);
                self.drain(leaves).await;
            }
            (0..=1, Some(index)) => self.join(index).await,
            (0..=3, _) => self.drain(None).await,
            _ => {
                self.ask(ClusterRequest::Rebalance).await;
            }
        }
        // Now and then another change is asked for while the last one is under way.
        if self.below(3) > 0 {
            let mut looks = 0;
            while self.cluster.map().to_move() > 0 && looks < 200 && self.workload.goes_on() {
                looks += 1;
                self.pause(40 * MS).await;
            }
        }
    }

    async fn join(&self, index: usize) {
        let server = &self.cluster.servers[index];
        let request = ClusterRequest::Join {
            id: server.id,
            fs: self.cluster.map().fs,
            address: format!("s{}:1", server.id),
            metrics: String::new(),
        };
        self.ask(request).await;
        if self.cluster.map().server(server.id).is_some() {
            self.pause(300 * MS).await;
            self.cluster.set_downtime(index, Some(50 * MS));
            self.cluster.start(index);
            if self.cluster.settings.pendulum {
                self.joined.set(Some(server.id));
            }
        }
    }

    async fn drain(&self, whom: Option<ServerId>) {
        let map = self.cluster.map();
        let staying: Vec<ServerId> = map.staying().collect();
        let wanted = whom.unwrap_or_else(|| *self.rng.borrow_mut().pick(&staying));
        let answer = self.ask(ClusterRequest::Drain(wanted)).await;
        // Somebody must have the slots; the identities stay where they are.
        let may_be_refused = staying.len() == 1 || wanted == map.keeper;
        // An answer may have been lost, and the server have left meanwhile.
        let has_left = self.cluster.map().server(wanted).is_none();
        if let Some(Err(why)) = answer
            && !(may_be_refused && matches!(why, ClusterError::Last(_) | ClusterError::KeepsIdentities(_)))
            && !(has_left && matches!(why, ClusterError::Unknown(_)))
        {
            let text = format!("draining server {wanted} of {staying:?} was refused: {why:?}");
            self.cluster.sim.fail(Kind::WrongResult, text);
        }
    }

    /// Asks the coordinator, until it answers or the workload is over.
    async fn ask(&self, request: ClusterRequest) -> Option<Result<(), ClusterError>> {
        self.cluster.sim.note(|| format!("an operator asks: {request:?}"));
        while self.workload.goes_on() {
            let coordinator = self.cluster.map().coordinator;
            let asked = Request::Cluster(request.clone());
            match self.client.admin(coordinator, asked).await {
                Ok(Response::Cluster(answer)) => return Some(answer.map(|_| ())),
                Ok(other) => {
                    let text = format!("{request:?} was answered with {other:?}");
                    self.cluster.sim.fail(Kind::WrongResult, text);
                    return None;
                }
                Err(_) => self.pause(100 * MS).await,
            }
        }
        None
    }
}

impl Cluster {
    /// Starts whom an operator added who went home before he was told so.
    pub fn start_joined(self: &Rc<Self>) {
        (0..self.servers.len()).for_each(|index| self.start(index));
    }

    /// Whether nothing is left to move, and everybody has left who is to leave.
    pub fn has_grown(&self) -> bool {
        let map = self.map();
        map.to_move() == 0 && map.plan.leaving.is_empty()
    }
}
