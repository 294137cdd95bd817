//! Clients that localise directories, on machines of their own that die and pause: they come late, die
//! between a table and its insertion, and name leases that are not theirs. What they insert the judge takes
//! over into the model (`adopted`); nobody else may do anything inside meanwhile.

use crate::cluster::{Cluster, SlowBlocks};
use crate::generate::creds;
use crate::knowledge::Knowledge;
use crate::violation::Kind;
use crate::workload::Workload;
use crate::world::{Death, Life, MS, NodeId, Role, SEC, Sim, Time};
use pando_client::{Client, Going, Localised};
use pando_cluster::Placement;
use pando_env::Env;
use pando_env::rng::Rng;
use pando_format::codec::Blob;
use pando_types::{Cred, Errno, Generation, Ids, Name, Perm};
use pando_wire::{Answer, Bulk, Content, EntryView, Handle, Object, Op, Outcome, Statement};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Names of what is made in localised directories: histories say nothing of them.
pub const NAMES: [&[u8]; 6] = [b"bulk-1", b"bulk-2", b"bulk-3", b"bulk-4", b"bulk-5", b"bulk-6"];
/// Directories in the root that are localised.
const PLACES: u64 = 5;
/// Machines.
const MACHINES: u16 = 2;
/// Most that is done in one lease.
const STEPS: u64 = 14;

/// All of them.
pub struct Localisers {
    cluster: Rc<Cluster>,
    workload: Rc<Workload>,
    rng: RefCell<Rng>,
    /// Machines, and whether the last process of each is over.
    nodes: Vec<(NodeId, RefCell<Rc<Cell<bool>>>)>,
}

/// Begins, if the seed says so: where IDs are placed and long enough.
pub fn begin(cluster: &Rc<Cluster>, workload: &Rc<Workload>) -> Option<Rc<Localisers>> {
    let s = &cluster.settings;
    match s.ids {
        Ids::Predicted => return None,
        Ids::Placed => {}
    }
    let mut rng = cluster.sim.stream(41);
    if s.id_bits != 128 || s.keyed || !rng.percent(70) || s.placement == Placement::Entry {
        return None;
    }
    cluster.judge().history.borrow_mut().ignore(&NAMES);
    let machine = |n| (cluster.sim.machine(Role::Client(4000 + n)), RefCell::default());
    let all = Rc::new(Localisers {
        cluster: cluster.clone(),
        workload: workload.clone(),
        rng: RefCell::new(rng),
        nodes: (0..MACHINES).map(machine).collect(),
    });
    for (node, _) in &all.nodes {
        all.start(*node);
        all.trouble(*node);
    }
    Some(all)
}

/// A process of one of them.
struct Process {
    all: Rc<Localisers>,
    life: Rc<Life>,
    client: Rc<Client>,
    cred: Cred,
}

impl Localisers {
    fn below(&self, n: u64) -> u64 {
        self.rng.borrow_mut().below(n)
    }

    fn percent(&self, n: u64) -> bool {
        self.rng.borrow_mut().percent(n)
    }

    fn sim(&self) -> &Rc<Sim> {
        &self.cluster.sim
    }

    fn goes_on(&self) -> bool {
        self.workload.goes_on() && !self.sim().failed()
    }

    fn start(self: &Rc<Self>, node: NodeId) {
        if !self.goes_on() || self.sim().life(node).is_some() {
            return;
        }
        let all = self.clone();
        let over = self.workload.aside(node, |_, life, client| async move {
            let cred = all.rng.borrow_mut().pick(&creds()).clone();
            let process = Process {
                all,
                life,
                client,
                cred,
            };
            process.work().await;
        });
        for (_, last) in self.nodes.iter().filter(|(n, _)| *n == node) {
            *last.borrow_mut() = over.clone();
        }
    }

    /// Lets them end what they do: nothing of it happens during the last look at everything.
    pub fn finish(&self) {
        let sim = self.sim();
        self.workload.stop();
        for (node, _) in self.nodes.iter().filter(|(node, _)| sim.is_paused(*node)) {
            sim.resume(*node);
        }
        let goes_on = |(node, over): &&(NodeId, RefCell<Rc<Cell<bool>>>)| {
            sim.life(*node).is_some() && !over.borrow().get()
        };
        let timeout = self.cluster.settings.limits.session_timeout.as_nanos() as Time;
        let all_over = || {
            if !self.cluster.all_serve() {
                self.cluster.start_joined();
            }
            !self.nodes.iter().any(|n| goes_on(&n))
        };
        if !sim.run_until(4 * timeout + 120 * SEC, all_over) {
            sim.fail(
                Kind::NoProgress,
                "everything is healed, but who localises does not end",
            );
        }
    }

    /// Now and then a machine dies, or stops for longer than a lease.
    fn trouble(self: &Rc<Self>, node: NodeId) {
        let me = self.clone();
        let next = SEC / 2 + self.rng.borrow_mut().skewed(4 * SEC);
        self.sim().after(next, move |sim| {
            if !me.goes_on() {
                return;
            }
            let Some(life) = sim.life(node) else {
                return me.trouble(node);
            };
            if me.percent(50) {
                life.die(Death::Kill);
                let again = me.clone();
                sim.after(me.below(SEC), move |_| again.start(node));
            } else if !sim.is_paused(node) {
                sim.pause(node);
                sim.after(me.below(3 * SEC), move |sim| {
                    sim.resume(node);
                });
            }
            me.trouble(node);
        });
    }
}

impl Process {
    fn goes_on(&self) -> bool {
        self.all.goes_on() && self.life.alive()
    }

    async fn nap(&self, most: Time) {
        let time = self.all.below(most);
        self.life.sleep(Duration::from_nanos(time)).await;
    }

    /// An operation that is judged as any other.
    async fn op(&self, op: Op) -> Outcome {
        let mut own = Knowledge::new(4);
        let workload = &self.all.workload;
        let done = workload.op(&self.life, &self.client, &self.cred, &mut own, op);
        done.await.unwrap_or(Err(Errno::Interrupted))
    }

    async fn view(&self, op: Op) -> Option<EntryView> {
        shown(self.op(op).await)
    }

    async fn work(&self) {
        while self.goes_on() {
            self.nap(200 * MS).await;
            if let Some(dir) = self.place().await {
                self.localise(&dir).await;
            }
        }
    }

    /// A directory in the root, made or found.
    async fn place(&self) -> Option<Statement> {
        let (dir, name) = (Statement::above_root(), Name::root());
        let root = self.view(Op::Lookup { dir, name }).await?.dir?;
        let name = Name::new(format!("local{}", self.all.below(PLACES)).as_bytes()).ok()?;
        let mkdir = Op::Mkdir {
            dir: root.clone(),
            name: name.clone(),
            mode: Perm::new(0o755).into(),
        };
        if let Some(made) = self.view(mkdir).await {
            return made.dir;
        }
        if self.all.percent(40) {
            self.op(Op::Rmdir { dir: root, name }).await.ok();
            return None;
        }
        self.view(Op::Lookup { dir: root, name }).await?.dir
    }

    async fn localise(&self, dir: &Statement) {
        let blocks = Rc::new(SlowBlocks {
            inner: self.all.cluster.blocks.clone(),
            life: self.life.clone(),
        });
        let Ok(mut local) = self.client.localize(&self.cred, dir, blocks).await else {
            return;
        };
        let mut known = vec![dir.clone()];
        for _ in 0..self.all.below(STEPS) {
            if !self.goes_on() {
                return;
            }
            let made = self.make(&mut local, &known);
            known.extend(made.and_then(|view| view.dir));
            let went = match self.all.below(12) {
                0 => local.insert().await.map(|()| Going::On),
                1 => {
                    self.nap(3 * SEC).await;
                    Ok(Going::On)
                }
                2 => {
                    self.lie(dir, local.lease()).await;
                    Ok(Going::On)
                }
                3..6 => {
                    self.nap(100 * MS).await;
                    local.tend().await
                }
                _ => local.tend().await,
            };
            if went != Ok(Going::On) {
                return;
            }
        }
        // Some forget it.
        if self.all.percent(80) {
            local.give_back().await.ok();
        }
    }

    /// Makes something; nothing if that cannot be.
    fn make(&self, local: &mut Localised, known: &[Statement]) -> Option<EntryView> {
        let (dir, name, what, len) = {
            let mut rng = self.all.rng.borrow_mut();
            let name = Name::new(rng.pick::<&[u8]>(&NAMES)).ok()?;
            (
                rng.pick(known).clone(),
                name,
                rng.below(5),
                rng.below(200) as usize,
            )
        };
        let mode = Perm::new(0o755).into();
        let op = match what {
            0 | 1 => Op::Mkdir { dir, name, mode },
            2 => Op::Symlink {
                dir,
                name,
                target: Blob(vec![b't'; 1 + 2 * len]),
            },
            3 => Op::Unlink {
                dir,
                name,
                held: false,
            },
            _ => {
                let op = Op::Create {
                    dir: dir.clone(),
                    name: name.clone(),
                    mode,
                    exclusive: true,
                    want: 0,
                };
                let made = shown(local.carry_out(&op))?;
                Op::Publish {
                    object: Object::shown(dir, name, &made.attr),
                    handle: Handle(0),
                    content: Content::Inline(Blob(vec![b'd'; len])),
                    size: len as u64,
                    mtime: None,
                    base: None,
                }
            }
        };
        shown(local.carry_out(&op))
    }

    /// Names a lease that nobody was given, or a batch that was never stored.
    async fn lie(&self, dir: &Statement, lease: Generation) {
        let other = Generation(lease.0 ^ (1 << self.all.below(40)));
        let (bytes, sum) = (100, [7; 32]);
        let insert = |lease, batch| Bulk::Insert {
            lease,
            batch,
            bytes,
            sum,
        };
        let step = match self.all.below(4) {
            0 => insert(other, 0),
            1 => insert(lease, 1 << 20),
            2 => Bulk::Renew {
                lease: other,
                more: true,
            },
            _ => Bulk::Return { lease: other },
        };
        let op = Op::Bulk {
            dir: dir.clone(),
            step,
        };
        if let Ok(answer) = self.client.op(&self.cred, op).await {
            let text = format!("a lease that is nobody's was good: {answer:?}");
            self.all.sim().fail(Kind::WrongResult, text);
        }
    }
}

fn shown(outcome: Outcome) -> Option<EntryView> {
    match outcome {
        Ok(Answer::Entry(view) | Answer::Opened { entry: view, .. }) => Some(view),
        _ => None,
    }
}
