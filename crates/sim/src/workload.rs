//! Clients at work: each machine runs one client with one to four programs, which come and go and sometimes
//! crash.

use crate::claims::{IDENTITIES, forbids, own};
use crate::cluster::{Cluster, SlowBlocks};
use crate::generate::{Generator, Task, creds};
use crate::judge::outcome_word;
use crate::keeper::Keeper;
use crate::knowledge::Knowledge;
use crate::opposed::Mover;
use crate::scribe::{Library, Scribe};
use crate::world::{Death, Life, MS, NodeId, Role, Time};
use pando_client::{Client, ClientConfig, Contents, Keeping, Resolution};
use pando_data::{Blocks, FileKey};
use pando_env::Env;
use pando_env::rng::Rng;
use pando_env::sync::{Either, first};
use pando_format::Position;
use pando_model::{Listed, NodeId as ModelId};
use pando_types::{AttrChange, Cred, DirId, Errno, IdentityId, Instance, Name, PeerId, Perm};
use pando_wire::{Answer, Object, Op, Outcome, Statement};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Mean length of a nap.
const NAP: Time = 1_500 * MS;

/// A client machine.
pub struct Machine {
    /// Where.
    pub node: NodeId,
    /// Programs at once.
    programs: usize,
    /// Whether the last of them is a scribe.
    scribe: bool,
    /// Further ones, which move directories into each other.
    movers: usize,
    /// One that keeps files open, or takes their names from others.
    keeper: Option<Program>,
    /// Identity most of its operations run under.
    cred: usize,
    /// Who it proves to be.
    pub who: PeerId,
    running: RefCell<Option<Rc<Client>>>,
    /// Programs that have not ended.
    active: Cell<usize>,
}

/// What a program does.
#[derive(Clone, Copy)]
enum Program {
    /// Everything.
    Any,
    /// Writes and reads files.
    Scribe,
    /// Moves directories into each other.
    Mover,
    /// Keeps files open.
    Keeper,
    /// Takes their names.
    Thief,
}

/// Counts of the workload.
#[derive(Clone, Default, Debug)]
pub struct Done {
    /// Operations that came to an end, by kind and outcome.
    pub outcomes: BTreeMap<(&'static str, &'static str), u64>,
    /// All of them.
    pub operations: u64,
    /// Of them, mutating ones.
    pub mutations: u64,
    /// Messages that waited for an answer, and those repeated.
    pub round_trips: u64,
    /// Repeated messages.
    pub retries: u64,
    /// Client processes started.
    pub clients: u64,
    /// Operations that programs gave up.
    pub abandoned: u64,
    /// Operations on whole paths.
    pub paths: u64,
    /// Operations with forged statements.
    pub lies: u64,
    /// Path components asked for ahead of those before them.
    pub guesses: u64,
    /// Of them, those that were right.
    pub guessed: u64,
}

/// The workload.
pub struct Workload {
    me: Weak<Workload>,
    cluster: Rc<Cluster>,
    /// The machines.
    pub machines: Vec<Machine>,
    generator: Generator,
    /// What clients know, by identity: what one was told is worth nothing to another.
    boards: BTreeMap<IdentityId, RefCell<Knowledge>>,
    done: RefCell<Done>,
    stopping: Cell<bool>,
    rng: RefCell<Rng>,
    /// In some seeds many names are removed at once. Drawn apart, so that the others stay what they were.
    many: Option<RefCell<Rng>>,
    try_timeout: Duration,
    /// After the healing an operation that was given up is a finding.
    pub strict: Cell<bool>,
    /// Every client keeps what it opens.
    pub keeps: Cell<bool>,
    /// What a mover moved last, and where to, so that others may do the opposite.
    pub duel: Cell<Option<(DirId, DirId)>>,
    /// What the scribes know.
    pub library: Rc<RefCell<Library>>,
}

impl Workload {
    /// Makes the machines; nothing runs yet.
    pub fn new(cluster: &Rc<Cluster>) -> Rc<Workload> {
        let s = &cluster.settings;
        let mut rng = cluster.sim.stream(4);
        // Who keeps files open and who takes their names are two, so there are two clients at least.
        let keepers = cluster.sim.stream(31).percent(40) && s.clients > 1;
        let machines = (0..s.clients)
            .map(|n| Machine {
                node: cluster.sim.machine(Role::Client(n)),
                who: PeerId::Client(IdentityId::ANYONE),
                programs: if rng.percent(60) {
                    1
                } else {
                    rng.range(2, 4) as usize
                },
                scribe: rng.percent(20),
                keeper: match n {
                    _ if !keepers => None,
                    n if n % 2 == 0 => Some(Program::Keeper),
                    _ => Some(Program::Thief),
                },
                movers: usize::from((s.movers + s.clients - 1 - n) / s.clients),
                cred: [0, 0, 1, 2][usize::from(n % 4)],
                running: RefCell::new(None),
                active: Cell::new(0),
            })
            .collect();
        let machines = identify(cluster, machines);
        Rc::new_cyclic(|me| Workload {
            me: me.clone(),
            cluster: cluster.clone(),
            machines,
            generator: Generator::new(&mut cluster.sim.stream(8), s.names, s.inline_limit, s.block_size),
            boards: (0..=IDENTITIES.len() as u32)
                .map(|n| (IdentityId(n), RefCell::new(Knowledge::new(s.known_dirs))))
                .collect(),
            done: RefCell::default(),
            stopping: Cell::new(false),
            // Several tries fit into a session's life, as they do in production.
            try_timeout: Duration::from_millis(rng.range(100, 3_000)).min(s.limits.session_timeout / 4),
            rng: RefCell::new(rng),
            many: cluster
                .sim
                .stream(32)
                .percent(25)
                .then(|| RefCell::new(cluster.sim.stream(33))),
            strict: Cell::new(false),
            keeps: Cell::new(false),
            duel: Cell::new(None),
            library: Rc::default(),
        })
    }

    /// Starts the client of a machine with its programs.
    pub fn start(&self, index: usize) {
        let Some(me) = self.me.upgrade() else { return };
        let machine = &self.machines[index];
        if self.stopping.get() || self.cluster.sim.life(machine.node).is_some() {
            return;
        }
        let life = self.cluster.sim.start(machine.node);
        let client = self.client(&life);
        *machine.running.borrow_mut() = Some(client.clone());
        // Identities may not do all that these do.
        let keeper = machine
            .keeper
            .filter(|_| machine.who == PeerId::Client(IdentityId::ANYONE));
        let all = machine.programs + machine.movers + usize::from(keeper.is_some());
        machine.active.set(all);
        for program in 0..all {
            let kind = match program {
                _ if program >= machine.programs + machine.movers => keeper.unwrap_or(Program::Any),
                _ if program >= machine.programs => Program::Mover,
                _ if machine.scribe && program + 1 == machine.programs => Program::Scribe,
                _ => Program::Any,
            };
            let (me, client, l) = (me.clone(), client.clone(), life.clone());
            let rng = self.rng.borrow().fork(life.number << 8 | program as u64);
            life.spawn(Box::pin(async move {
                me.program(index, l, client, rng, kind).await;
                let machine = &me.machines[index];
                machine.active.set(machine.active.get().saturating_sub(1));
            }));
        }
    }

    /// Ends the programs of clients that know only servers which have left and were stopped, while the
    /// clients slept or were cut off: they cannot learn who took their places.
    pub fn end_the_lost(&self) {
        let map = self.cluster.map();
        for machine in &self.machines {
            let lost = machine.running.borrow().as_ref().is_some_and(|client| {
                let known = client.map();
                let mut known = known.servers.iter().map(|s| s.id);
                known.all(|id| map.server(id).is_none() && !self.cluster.runs(id))
            });
            if let Some(life) = self.cluster.sim.life(machine.node).filter(|_| lost) {
                life.die(Death::Kill);
            }
        }
    }

    /// A client on a process, with signs of life.
    fn client(&self, life: &Rc<Life>) -> Rc<Client> {
        self.done.borrow_mut().clients += 1;
        let mut config = ClientConfig::new((*self.cluster.map()).clone());
        config.try_timeout = self.try_timeout;
        config.lanes = 4;
        config.cache_bytes = self.cluster.settings.cache_bytes;
        // A lie is told as it is.
        if self.cluster.settings.lies > 0 {
            config.handles = 0;
        }
        config.instance = self.cluster.settings.accomplices.then_some(Instance(7));
        config.identity = self.identity_of(life.node);
        config.own = own(config.identity);
        let machine = self.machines.iter().find(|m| m.node == life.node);
        if self.keeps.get() || machine.is_some_and(|m| matches!(m.keeper, Some(Program::Keeper))) {
            config.keeping = Some(Keeping::default());
        }
        config.contents = Some(Contents::default());
        // Most as in production.
        if life.number.is_multiple_of(4) {
            config.resolution = Resolution::Sequential;
        }
        let client = Client::new(life.world(), config);
        life.set_receiver(client.clone());
        let (l, c) = (life.clone(), client.clone());
        let period = self.cluster.settings.limits.session_timeout / 8;
        life.spawn(Box::pin(async move {
            loop {
                l.sleep(period).await;
                c.keep_alive().await;
                c.keep_open().await;
            }
        }));
        client
    }

    /// Who a machine proves to be.
    pub fn who(&self, node: NodeId) -> Option<PeerId> {
        self.machines.iter().find(|m| m.node == node).map(|m| m.who)
    }

    /// A statement that another identity was given.
    pub fn of_another(&self, rng: &mut Rng, node: NodeId, stale: bool) -> Option<Statement> {
        let mine = self.identity_of(node);
        let others: Vec<_> = self.boards.iter().filter(|(id, _)| **id != mine).collect();
        let (_, board) = rng.pick(&others);
        let stolen = board.borrow().dir(rng, stale)?;
        (stolen.id != pando_types::DirId::ABOVE_ROOT).then_some(stolen)
    }

    /// The identity of a machine's clients.
    fn identity_of(&self, node: NodeId) -> IdentityId {
        match self.machines.iter().find(|m| m.node == node).map(|m| m.who) {
            Some(PeerId::Client(id)) => id,
            _ => IdentityId::ANYONE,
        }
    }

    /// A client process is gone.
    pub fn died(&self, life: &Rc<Life>) {
        if let Some(m) = self.machines.iter().find(|m| m.node == life.node) {
            m.active.set(0);
            if let Some(client) = m.running.borrow_mut().take() {
                self.add_stats(&client);
            }
        }
    }

    fn add_stats(&self, client: &Client) {
        let stats = client.stats();
        let mut done = self.done.borrow_mut();
        done.round_trips += stats.round_trips;
        done.retries += stats.retries;
        done.guesses += stats.guesses;
        done.guessed += stats.guessed;
    }

    /// Whether a machine's client waits for an operation.
    pub fn is_waiting(&self, index: usize) -> bool {
        let life = self.cluster.sim.life(self.machines[index].node);
        life.is_some_and(|l| self.cluster.judge().replies.borrow().waits(l.number))
    }

    /// The cluster.
    pub fn cluster(&self) -> &Rc<Cluster> {
        &self.cluster
    }

    /// Whether programs are to go on.
    pub fn goes_on(&self) -> bool {
        !self.stopping.get()
    }

    /// Whether this client process is alive.
    pub fn lives(&self, life: u64) -> bool {
        let here = |m: &Machine| self.cluster.sim.life(m.node).is_some_and(|l| l.number == life);
        self.machines.iter().any(here)
    }

    /// Whether the IDs of this seed are so few that no more directories are to be made.
    fn crowded(&self) -> bool {
        let s = &self.cluster.settings;
        let directories = || self.cluster.judge().with_model(|_, tree| tree.directories());
        s.id_bits <= 8 && directories() >= s.directories
    }

    /// Programs end after the operation they are at.
    pub fn stop(&self) {
        self.stopping.set(true);
    }

    /// Whether every program has ended.
    pub fn is_over(&self) -> bool {
        self.machines.iter().all(|m| m.active.get() == 0)
    }

    /// Operations that came to an end.
    pub fn operations(&self) -> u64 {
        self.done.borrow().operations
    }

    /// A lie came to its end.
    pub fn lied(&self) {
        self.done.borrow_mut().lies += 1;
    }

    /// Counts so far.
    pub fn done(&self) -> Done {
        let mut done = self.done.borrow().clone();
        for client in self.machines.iter().filter_map(|m| m.running.borrow().clone()) {
            done.round_trips += client.stats().round_trips;
            done.retries += client.stats().retries;
            done.guesses += client.stats().guesses;
            done.guessed += client.stats().guessed;
        }
        done
    }

    async fn program(&self, index: usize, life: Rc<Life>, client: Rc<Client>, mut rng: Rng, kind: Program) {
        let Some(me) = self.me.upgrade() else { return };
        match kind {
            Program::Scribe => return Scribe::new(&me, &life, &client).work(&mut rng).await,
            Program::Mover => return Mover::new(&me, &life, &client).work(&mut rng).await,
            Program::Keeper => return Keeper::new(&me, &life, &client).keep(&mut rng).await,
            Program::Thief => return Keeper::new(&me, &life, &client).steal(&mut rng).await,
            Program::Any => {}
        }
        let mut own = Knowledge::new(self.cluster.settings.known_dirs);
        let nothing = Knowledge::new(0);
        let creds = creds();
        let machine = &self.machines[index];
        let identity = self.identity_of(machine.node);
        let claims = self.cluster.judge().claims_of(identity);
        while !self.stopping.get() && life.alive() {
            // What others were told is worth nothing to a stranger.
            let strangers = !self.cluster.settings.accomplices && rng.percent(90);
            let few = self.few_mutations();
            let mut draws = 0;
            let task = loop {
                let task = if strangers {
                    self.generator.draw(&mut rng, &mut own, &nothing)
                } else {
                    self.generator
                        .draw(&mut rng, &mut own, &self.boards[&identity].borrow())
                };
                let task = self.more(task);
                draws += 1;
                if !few || draws == 4 || task.mutates() {
                    break task;
                }
            };
            let usual = match identity {
                IdentityId(2) => &crate::claims::own(identity),
                _ => &creds[machine.cred],
            };
            let mut cred = if rng.percent(85) { usual } else { rng.pick(&creds) };
            if let Task::Op(op) | Task::Write { publish: op, .. } = &task
                && forbids(&claims, cred, op)
            {
                self.forbidden(&client, cred, op.clone()).await;
                continue;
            }
            if !claims.covers(cred) {
                cred = usual;
            }
            if rng.percent(self.cluster.settings.lies) && matches!(machine.who, PeerId::Client(_)) {
                let own = match &task {
                    Task::Op(op) => Some(op.clone()),
                    _ => None,
                };
                if rng.percent(40) {
                    self.intrude(&mut rng, &life, &client).await;
                } else {
                    self.mischief(&mut rng, &life, &client, cred, own).await;
                }
            }
            let lie = match &task {
                Task::Op(op) if rng.percent(self.cluster.settings.lies) => {
                    crate::liar::forged(&mut rng, cred, op)
                }
                _ => None,
            };
            match lie {
                Some(lie) => self.lie(&client, cred, lie).await,
                None => self.perform(&life, &client, cred, &mut own, task).await,
            }
            let think = self.cluster.settings.think;
            if think > 0 {
                life.sleep(Duration::from_nanos(rng.skewed(think))).await;
            }
            // What is late then finds that nothing came after it.
            if rng.percent(self.cluster.settings.naps) {
                life.sleep(Duration::from_nanos(rng.skewed(NAP))).await;
            }
        }
    }

    /// Where one name was to be removed, perhaps many are.
    fn more(&self, task: Task) -> Task {
        match (task, &self.many) {
            (
                Task::Op(Op::Unlink {
                    dir,
                    name,
                    held: false,
                }),
                Some(rng),
            ) if rng.borrow_mut().percent(60) => Task::Op(Op::UnlinkMany {
                dir,
                names: self.generator.many(&mut rng.borrow_mut(), name),
            }),
            (task, _) => task,
        }
    }

    /// Whether so far so much was only read that little would be at risk.
    fn few_mutations(&self) -> bool {
        let done = self.done.borrow();
        done.operations > 200 && done.mutations * 100 < done.operations * 44
    }

    async fn perform(&self, life: &Rc<Life>, client: &Client, cred: &Cred, own: &mut Knowledge, task: Task) {
        match task {
            Task::Root => {
                let op = Op::Lookup {
                    dir: Statement::above_root(),
                    name: Name::root(),
                };
                let asker = crate::claims::own(self.identity_of(life.node));
                let outcome = self.op(life, client, &asker, own, op).await;
                if matches!(outcome, Some(Err(Errno::NotFound))) {
                    // Somebody removed the directory that is all there is for this identity.
                    life.sleep(Duration::from_millis(500)).await;
                }
            }
            Task::Op(Op::Mkdir { dir, name, .. }) if self.crowded() => {
                self.op(life, client, cred, own, Op::Rmdir { dir, name }).await;
            }
            Task::Op(op) => {
                self.op(life, client, cred, own, op).await;
            }
            Task::Write { blocks, publish } => {
                let Op::Publish {
                    object: Object { ino, generation, .. },
                    ..
                } = &publish
                else {
                    return;
                };
                let file = FileKey {
                    ino: *ino,
                    generation: *generation,
                };
                let store = SlowBlocks {
                    inner: self.cluster.blocks.clone(),
                    life: life.clone(),
                };
                for block in 0..blocks {
                    // No fault is planned here; without the data nothing is published.
                    if store.write(file, block, 0, vec![7; 16]).await.is_err() {
                        return;
                    }
                }
                if store.sync(file, (0..blocks).collect()).await.is_ok() {
                    self.op(life, client, cred, own, publish).await;
                }
            }
            Task::Path(path, what) => self.path(client, cred, &path, what).await,
            Task::List { dir, limit, plus } => self.list(life, client, cred, own, dir, limit, plus).await,
        }
    }

    /// Reads whole paths: each step is judged where it is executed; here it only has to come to an end.
    /// (Changes by path would send operations that could not be told from those of the programs beside it.)
    async fn path(&self, client: &Client, cred: &Cred, path: &[u8], what: u64) {
        let result = match what {
            0 => client.stat(cred, path, true).await.map(|_| ()),
            1 => client.stat(cred, path, false).await.map(|_| ()),
            _ => client.readlink(cred, path).await.map(|_| ()),
        };
        self.done.borrow_mut().paths += 1;
        if result == Err(Errno::Io) {
            let text = "EIO from an operation on a path";
            self.cluster.sim.fail(crate::violation::Kind::WrongResult, text);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one task")]
    async fn list(
        &self,
        life: &Rc<Life>,
        client: &Client,
        cred: &Cred,
        own: &mut Knowledge,
        dir: Statement,
        limit: u32,
        plus: bool,
    ) {
        let judge = self.cluster.judge().clone();
        let id = ModelId::new(dir.ino, dir.generation);
        let watch = judge.watch(id);
        let mut after = Position::START;
        let mut lines = Vec::new();
        for _ in 0..200 {
            let op = Op::ReadDir {
                dir: dir.clone(),
                after,
                limit,
                plus,
            };
            match self.op(life, client, cred, own, op).await {
                Some(Ok(Answer::Entries { entries, end })) => {
                    after = entries.last().map_or(after, |e| e.position);
                    lines.extend(entries.into_iter().map(|e| Listed {
                        name: e.name,
                        ino: e.ino,
                        kind: e.kind,
                    }));
                    if end {
                        if let Some(w) = watch {
                            judge.listed(w, Some(&lines));
                        }
                        return;
                    }
                }
                _ => break,
            }
        }
        if let Some(w) = watch {
            judge.listed(w, None);
        }
    }

    /// Now and then an operation is to be explained, which must make no difference to what comes of it.
    async fn ask(&self, client: &Client, cred: &Cred, op: Op) -> Outcome {
        if self.operations().is_multiple_of(8) {
            client.explain(client.op(cred, op)).await.0
        } else {
            client.op(cred, op).await
        }
    }

    /// One operation, judged. `None` if the same is on its way already.
    pub async fn op(
        &self,
        life: &Rc<Life>,
        client: &Client,
        cred: &Cred,
        own: &mut Knowledge,
        op: Op,
    ) -> Option<Outcome> {
        let judge = self.cluster.judge().clone();
        let token = {
            let mut replies = judge.replies.borrow_mut();
            // Two equal operations of one client could not be told apart.
            if replies.waits_for(life.number, &op) {
                None
            } else {
                Some(replies.begin(&judge, life.number, &op))
            }
        };
        let Some(token) = token else {
            life.sleep(Duration::from_millis(1)).await;
            return None;
        };
        let call = judge.history.borrow_mut().begin(&op);
        let outcome = match self.impatience() {
            None => self.ask(client, cred, op.clone()).await,
            Some(most) => {
                let patience = life.sleep(Duration::from_nanos(life.random() % most));
                match first(Box::pin(self.ask(client, cred, op.clone())), patience).await {
                    Either::Left(outcome) => outcome,
                    Either::Right(()) => {
                        // As a signal does: the operation is given up at whatever point it is.
                        judge.replies.borrow_mut().abandon(token);
                        self.done.borrow_mut().abandoned += 1;
                        return None;
                    }
                }
            }
        };
        judge.history.borrow_mut().end(call, &outcome);
        let verdict = judge.replies.borrow_mut().end(&judge, token, &outcome);
        judge.check(verdict);
        {
            let mut done = self.done.borrow_mut();
            done.operations += 1;
            done.mutations += u64::from(op.mutates());
            *done
                .outcomes
                .entry((op.kind(), outcome_word(&outcome)))
                .or_default() += 1;
        }
        if self.strict.get() && outcome == Err(Errno::Unreachable) {
            self.cluster.sim.fail(
                crate::violation::Kind::NoProgress,
                format!(
                    "{} was given up although everything is healed",
                    crate::words::describe_op(&op)
                ),
            );
        }
        own.learn(&op, &outcome);
        let board = &self.boards[&self.identity_of(life.node)];
        board.borrow_mut().learn(&op, &outcome);
        Some(outcome)
    }

    /// Now and then a program does not wait for the end; not in the final round, where everything must end
    /// well.
    fn impatience(&self) -> Option<Time> {
        let mut rng = self.rng.borrow_mut();
        if self.strict.get() || !rng.percent(2) {
            None
        } else {
            Some(rng.range(1, 30 * MS))
        }
    }

    /// Opens the root for all users, as an administrator would.
    pub async fn open_root(&self, life: &Rc<Life>, client: &Client) {
        let mut own = Knowledge::new(8);
        let op = Op::SetAttr {
            object: Object {
                dir: Statement::above_root(),
                name: Name::root(),
                ino: pando_types::Ino::ROOT,
                generation: pando_types::Generation::ROOT,
            },
            change: AttrChange {
                perm: Some(Perm::new(0o777)),
                ..AttrChange::default()
            },
            handle: None,
        };
        self.op(life, client, &Cred::root(), &mut own, op).await;
    }

    /// Runs a task on a machine of its own with a fresh client, and tells when it has ended.
    pub fn aside<F>(
        self: &Rc<Self>,
        node: NodeId,
        task: impl FnOnce(Rc<Workload>, Rc<Life>, Rc<Client>) -> F,
    ) -> Rc<Cell<bool>>
    where
        F: Future<Output = ()> + 'static,
    {
        let life = self.cluster.sim.start(node);
        let client = self.client(&life);
        let over = Rc::new(Cell::new(false));
        let (f, o) = (task(self.clone(), life.clone(), client), over.clone());
        life.spawn(Box::pin(async move {
            f.await;
            o.set(true);
        }));
        over
    }

    /// Random time below `most`.
    pub fn below(&self, most: Time) -> Time {
        self.rng.borrow_mut().below(most)
    }
}

/// Gives every machine an identity, if clients have any. Scribes share what they were told, and movers may do
/// anything, so all of them are operators.
fn identify(cluster: &Cluster, mut machines: Vec<Machine>) -> Vec<Machine> {
    if cluster.settings.keyed {
        for (n, machine) in machines.iter_mut().enumerate() {
            machine.who = if machine.scribe || machine.movers > 0 {
                PeerId::Operator
            } else {
                PeerId::Client(IDENTITIES[n % IDENTITIES.len()])
            };
            cluster.sim.net.borrow_mut().identify(machine.node, machine.who);
        }
    }
    machines
}
