//! Identities that come and go while clients run: an operator makes one, its programs work, it is revoked,
//! and from the moment the revocation has returned nothing of it may take effect, whatever was on its way.
//! Now and then the server that keeps the identities is cut off while it is asked.

use crate::cluster::Cluster;
use crate::judge::Judge;
use crate::violation::Kind;
use crate::workload::Workload;
use crate::world::{Death, Life, MS, NodeId, Role};
use pando_auth::{Gate, Key as Secret};
use pando_client::{Client, ClientConfig};
use pando_env::Env;
use pando_env::rng::Rng;
use pando_format::{Key, Record};
use pando_types::{Claims, Cred, IdentityId, Name, PeerId, Perm, ServerId};
use pando_wire::{
    Answer, AuthAnswer, AuthChange, AuthRequest, IdentityView, Op, RenameMode, Request, Response, Statement,
    Way,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// Programs of one identity.
const PROGRAMS: u64 = 4;
/// Names they fight for, in the root.
pub const NAMES: [&[u8]; 3] = [b"doomed-1", b"doomed-2", b"doomed-3"];

/// Identities that ended.
#[derive(Default)]
pub struct Ended {
    /// With the servers that did not confirm it, and in which incarnation they were: nothing of it takes
    /// effect anywhere else.
    revoked: BTreeMap<IdentityId, BTreeMap<ServerId, u64>>,
    keys: Vec<(IdentityId, [u8; 32])>,
    /// What they were called. No name is given twice.
    names: BTreeSet<String>,
    /// All that were made to be revoked.
    made: BTreeSet<IdentityId>,
    /// Whether more are to come.
    active: bool,
}

impl Ended {
    /// Whether an identity is to be revoked, or was.
    pub fn has(&self, id: IdentityId) -> bool {
        self.made.contains(&id)
    }

    /// Whether this incarnation of a server may still act for an identity.
    pub fn check(&self, id: IdentityId, server: ServerId, life: u64) -> Result<(), String> {
        match self.revoked.get(&id) {
            Some(unconfirmed) if unconfirmed.get(&server) != Some(&life) => {
                Err(format!("identity {id} was revoked, and the server confirmed it"))
            }
            _ => Ok(()),
        }
    }
}

/// The operator, and the machine of those that are to end.
struct Revoker {
    cluster: Rc<Cluster>,
    workload: Rc<Workload>,
    admin: Rc<Client>,
    life: Rc<Life>,
    node: NodeId,
    rng: RefCell<Rng>,
}

/// Begins, if the seed says so.
pub fn begin(cluster: &Rc<Cluster>, workload: &Rc<Workload>) {
    if !cluster.settings.revokes {
        return;
    }
    let sim = &cluster.sim;
    let (operator, node) = (sim.machine(Role::Client(2000)), sim.machine(Role::Client(2001)));
    sim.net.borrow_mut().identify(operator, PeerId::Operator);
    let life = sim.start(operator);
    cluster.judge().revocations.borrow_mut().active = true;
    let revoker = Rc::new(Revoker {
        admin: client(cluster, &life, IdentityId::ANYONE),
        cluster: cluster.clone(),
        workload: workload.clone(),
        life: life.clone(),
        node,
        rng: RefCell::new(sim.stream(9)),
    });
    life.spawn(Box::pin(async move {
        let mut number = 0;
        while revoker.workload.goes_on() {
            number += 1;
            revoker.one(number).await;
        }
        revoker.cluster.judge().revocations.borrow_mut().active = false;
        revoker.life.die(Death::Stop);
    }));
}

fn client(cluster: &Cluster, life: &Rc<Life>, identity: IdentityId) -> Rc<Client> {
    let mut config = ClientConfig::new((*cluster.map()).clone());
    if identity != IdentityId::ANYONE {
        config.try_timeout = Duration::from_millis(300);
    }
    config.give_up = Duration::from_secs(5);
    config.identity = identity;
    let client = Client::new(life.world(), config);
    life.set_receiver(client.clone());
    client
}

impl Revoker {
    fn below(&self, n: u64) -> u64 {
        self.rng.borrow_mut().below(n)
    }

    async fn pause(&self, most: u64) {
        let time = self.below(most);
        self.life.sleep(Duration::from_nanos(time)).await;
    }

    /// A change of identities, asked for until it is done. `None`: the workload is over, and it may not be.
    async fn change(&self, change: AuthChange) -> Option<(IdentityId, Vec<ServerId>)> {
        let all = self.ask(AuthRequest::List).await?;
        if let Err(why) = self.cluster.judge().stay_revoked(&all) {
            self.cluster.sim.fail(Kind::WrongResult, why);
        }
        let seen = all.newest(change.name());
        let done = self.ask(AuthRequest::Change { seen, change }).await?;
        Some((done.identities.first()?.id, done.unconfirmed))
    }

    async fn ask(&self, request: AuthRequest) -> Option<AuthAnswer> {
        loop {
            let keeper = self.cluster.map().keeper;
            match self.admin.admin(keeper, Request::Auth(request.clone())).await {
                Ok(Response::Auth(Ok(done))) => return Some(done),
                Ok(other) => {
                    let text = format!("{request:?} was answered with {other:?}");
                    self.cluster.sim.fail(Kind::WrongResult, text);
                    return None;
                }
                Err(_) if !self.workload.goes_on() => return None,
                Err(_) => self.pause(50 * MS).await,
            }
        }
    }

    /// One identity from its beginning to its end.
    async fn one(&self, number: u64) -> Option<()> {
        let judge = self.cluster.judge().clone();
        let (name, mut key) = (format!("doomed {number}"), [0x80; 32]);
        key[8..16].copy_from_slice(&number.to_be_bytes());
        let claims = Claims::all();
        let (id, _) = self
            .change(AuthChange::Add {
                name: name.clone(),
                claims: claims.clone(),
                key,
            })
            .await?;
        judge.identity(id, claims);
        judge.revocations.borrow_mut().made.insert(id);
        let life = self.work(id);
        let ended = self.end(id, name, key).await;
        life.die(Death::Stop);
        ended
    }

    /// Its end, while its programs go on.
    async fn end(&self, id: IdentityId, name: String, mut key: [u8; 32]) -> Option<()> {
        self.pause(400 * MS).await;
        if self.below(3) == 0 {
            key[0] = 1;
            let grace = self.below(2) as u32;
            self.change(AuthChange::Rotate {
                name: name.clone(),
                key,
                grace,
            })
            .await?;
        }
        let cuts = if self.below(3) == 0 && self.workload.goes_on() {
            self.cut()
        } else {
            Vec::new()
        };
        let revoked = self.change(AuthChange::Revoke { name: name.clone() }).await;
        if let Some((_, unconfirmed)) = &revoked {
            self.cluster.effects.borrow_mut().revocations += 1;
            self.cluster
                .judge()
                .ended(&self.cluster, (id, name), unconfirmed, key);
        }
        // It goes on trying.
        self.pause(200 * MS).await;
        for (from, to) in cuts {
            self.cluster.sim.net.borrow_mut().mend(from, to);
        }
        self.pause(200 * MS).await;
        revoked.map(|_| ())
    }

    /// Cuts the server that keeps the identities off from some of the others.
    fn cut(&self) -> Vec<(NodeId, NodeId)> {
        let map = self.cluster.map();
        let keeper = self.cluster.servers.iter().find(|s| s.id == map.keeper);
        let Some(keeper) = keeper.map(|s| s.node) else {
            return Vec::new();
        };
        let others = self
            .cluster
            .servers
            .iter()
            .map(|s| s.node)
            .filter(|n| *n != keeper);
        let some: Vec<NodeId> = others.filter(|_| self.below(2) == 0).collect();
        let mut net = self.cluster.sim.net.borrow_mut();
        some.into_iter()
            .map(|other| {
                let way = if self.below(2) == 0 {
                    (keeper, other)
                } else {
                    (other, keeper)
                };
                net.cut(way.0, way.1);
                way
            })
            .collect()
    }

    /// Starts the programs of an identity.
    fn work(&self, id: IdentityId) -> Rc<Life> {
        let sim = &self.cluster.sim;
        sim.net.borrow_mut().identify(self.node, PeerId::Client(id));
        let life = sim.start(self.node);
        let client = client(&self.cluster, &life, id);
        for n in 0..PROGRAMS {
            let (l, c, mut rng) = (
                life.clone(),
                client.clone(),
                self.rng.borrow().fork(u64::from(id.0) << 8 | n),
            );
            life.spawn(Box::pin(async move {
                while l.alive() {
                    step(&c, &mut rng).await;
                    l.sleep(Duration::from_nanos(rng.below(10 * MS))).await;
                }
            }));
        }
        life
    }
}

/// Something simple. What comes of it is judged where it is executed.
async fn step(client: &Client, rng: &mut Rng) -> Option<()> {
    let cred = Cred::root();
    let root = Op::Lookup {
        dir: Statement::above_root(),
        name: Name::root(),
    };
    let Ok(Answer::Entry(root)) = client.op(&cred, root).await else {
        return None;
    };
    let dir = root.dir?;
    let name = |rng: &mut Rng| Name::new(rng.pick::<&[u8]>(&NAMES)).ok();
    let (one, two) = (name(rng)?, name(rng)?);
    let op = match rng.below(5) {
        0 | 1 => Op::Mkdir {
            dir,
            name: one,
            mode: Perm::new(0o755).into(),
        },
        2 => Op::Rmdir { dir, name: one },
        3 => Op::ReadLink { dir, name: one },
        _ => Op::Rename {
            src: dir.clone(),
            src_name: one,
            dst: dir,
            dst_name: two,
            mode: RenameMode::NoReplace,
            held: false,
        },
    };
    client.op(&cred, op).await.ok().map(|_| ())
}

impl Judge {
    /// An identity's revocation has returned.
    pub fn ended(
        &self,
        cluster: &Cluster,
        (id, name): (IdentityId, String),
        unconfirmed: &[ServerId],
        key: [u8; 32],
    ) {
        let life = |server: &ServerId| {
            let node = cluster.servers.iter().find(|s| s.id == *server)?.node;
            Some((*server, cluster.sim.life(node)?.number))
        };
        let mut ended = self.revocations.borrow_mut();
        ended
            .revoked
            .insert(id, unconfirmed.iter().filter_map(life).collect());
        ended.keys.push((id, key));
        ended.names.insert(name);
        cluster
            .sim
            .note(|| format!("identity {id} is revoked; {unconfirmed:?} did not confirm"));
    }

    /// What an operator is shown: nobody who was revoked is back (H123).
    fn stay_revoked(&self, all: &AuthAnswer) -> Result<(), String> {
        let ended = self.revocations.borrow();
        let back = |view: &&IdentityView| view.revoked.is_none() && ended.names.contains(&view.name);
        match all.identities.iter().find(back) {
            Some(view) => Err(format!("{:?} was revoked, and may connect again", view.name)),
            None => Ok(()),
        }
    }

    /// Whether identities come and go.
    pub fn revokes(&self) -> bool {
        self.revocations.borrow().active
    }

    /// After the healing: no server lets in who was revoked, and no session of theirs lives.
    pub fn revoked_are_gone(&self, cluster: &Cluster) -> Result<(), String> {
        let ended = self.revocations.borrow();
        for (index, server) in cluster.servers.iter().enumerate() {
            let named = cluster.map().server(server.id).is_some();
            let Some(running) = cluster.running(index).filter(|_| named) else {
                continue;
            };
            for (id, key) in &ended.keys {
                let role = pando_wire::Role::Client(Way::Key(*id));
                if running.key(role, Secret::new(*key).name()).is_ok() {
                    return Err(format!(
                        "server {} lets identity {id} in, which was revoked",
                        server.id
                    ));
                }
            }
            for (key, record) in server.device.disk.dump() {
                if let (Key::Session(s), Record::Session(r)) = (key, record)
                    && r.ended.is_none()
                    && ended.revoked.contains_key(&s.owner())
                {
                    return Err(format!(
                        "a session of identity {} lives on server {}",
                        s.owner(),
                        server.id
                    ));
                }
            }
        }
        Ok(())
    }
}
