//! Virtual time for measuring: processes whose work takes processor time, messages that take the network's
//! time, and nothing that goes wrong. Unlike the world of the simulator's seeds it explores nothing: tasks
//! run in the order in which they became ready, and equal times in the order in which they were planned.
//!
//! A server has one processor, as its event loop has one thread: what arrives while it is busy waits, first
//! come first served. What a message sets off, until its process has nothing ready any more, happens at the
//! beginning of its service; what is sent or begun meanwhile leaves at the end. Who is woken by a timer or a
//! device was paid for with the message that made it wait, and does not stand in line again: an event loop
//! runs what became ready before it reads on, and a device begins its next sync without asking anybody.

use crate::costs::{Costs, items_of, kind_of};
use pando_cluster::ClusterMap;
use pando_env::rng::Rng;
use pando_env::schedule::Scheduled;
use pando_env::{Env, Executor, LocalFuture, Node, Peer, TaskOwner, World};
use pando_format::Codec;
use pando_types::{IdentityId, Mono, PeerId, ServerId, Timestamp};
use pando_wire::Message;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Virtual time in nanoseconds since the run began.
pub(crate) type Time = u64;

/// Calendar time at which every run begins, in nanoseconds since 1970.
const BEGIN: i128 = 1_700_000_000 * 1_000_000_000;
/// What is due later than this stands in a queue of its own: nearly all of it are timeouts that never come to
/// pass, and they would make the queue of what happens next long.
const FAR: Time = 50_000_000;

enum Event {
    Arrives(Rc<Process>, Packet),
    Timer(Rc<TimerState>),
    /// The processor of a server is free again.
    Free(Rc<Process>),
}

struct Packet {
    from: Peer,
    bytes: Vec<u8>,
}

struct TimerState {
    process: Weak<Process>,
    fired: Cell<bool>,
    cancelled: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

struct Timer(Rc<TimerState>);

impl Future for Timer {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.fired.get() {
            return Poll::Ready(());
        }
        let mut waker = self.0.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.cancelled.set(true);
    }
}

/// Processor time of a server, by what it was for.
#[derive(Clone, Default, Debug)]
pub struct Busy {
    /// In all, in nanoseconds.
    pub total: Time,
    /// How many messages of each kind, and their time.
    pub kinds: BTreeMap<&'static str, (u64, Time)>,
    /// Time of messages whose kind the calibration does not know.
    pub unknown: Time,
}

/// A process: a server or a client.
pub(crate) struct Process {
    /// Its place in the world; the connections it opens are known by it.
    index: usize,
    server: Option<ServerId>,
    exec: Executor,
    node: RefCell<Option<Rc<dyn Node>>>,
    rng: RefCell<Rng>,
    /// When what is sent now leaves.
    leaves: Cell<Time>,
    occupied: Cell<bool>,
    /// Until when, if it is.
    until: Cell<Time>,
    /// What waits for its processor.
    waiting: RefCell<VecDeque<Packet>>,
    busy: RefCell<Busy>,
    virtual_time: Rc<Virtual>,
}

/// The world.
pub(crate) struct Virtual {
    now: Cell<Time>,
    seq: Cell<u64>,
    near: RefCell<BinaryHeap<Scheduled<Event>>>,
    far: RefCell<BinaryHeap<Scheduled<Event>>>,
    processes: RefCell<Vec<Rc<Process>>>,
    /// The process of each server.
    servers: RefCell<BTreeMap<ServerId, usize>>,
    map: RefCell<Rc<ClusterMap>>,
    costs: Rc<Costs>,
    seed: Rng,
    events: Cell<u64>,
    /// The first thing that must not happen.
    trouble: RefCell<Option<String>>,
}

impl Virtual {
    /// An empty world at time 0.
    pub fn new(seed: u64, costs: Rc<Costs>, map: Rc<ClusterMap>) -> Rc<Virtual> {
        Rc::new(Virtual {
            now: Cell::new(0),
            seq: Cell::new(0),
            near: RefCell::default(),
            far: RefCell::default(),
            processes: RefCell::default(),
            servers: RefCell::default(),
            map: RefCell::new(map),
            costs,
            seed: Rng::new(seed),
            events: Cell::new(0),
            trouble: RefCell::new(None),
        })
    }

    /// Adds a process; `server`: which, if it is one.
    pub fn process(self: &Rc<Self>, server: Option<ServerId>) -> Rc<Process> {
        let mut all = self.processes.borrow_mut();
        let index = all.len();
        if let Some(id) = server {
            self.servers.borrow_mut().insert(id, index);
        }
        let process = Rc::new(Process {
            index,
            server,
            exec: Executor::new(|| {}),
            node: RefCell::new(None),
            rng: RefCell::new(self.seed.fork(1 + index as u64)),
            leaves: Cell::new(0),
            occupied: Cell::new(false),
            until: Cell::new(0),
            waiting: RefCell::default(),
            busy: RefCell::default(),
            virtual_time: self.clone(),
        });
        all.push(process.clone());
        process
    }

    pub fn now(&self) -> Time {
        self.now.get()
    }

    /// Events that happened.
    pub fn events(&self) -> u64 {
        self.events.get()
    }

    /// Something that must not happen did.
    pub fn fail(&self, why: impl FnOnce() -> String) {
        self.trouble.borrow_mut().get_or_insert_with(why);
    }

    fn schedule(&self, at: Time, event: Event) {
        let seq = self.seq.get();
        self.seq.set(seq + 1);
        let queue = if at > self.now.get() + FAR {
            &self.far
        } else {
            &self.near
        };
        queue.borrow_mut().push(Scheduled { time: at, seq, event });
    }

    fn next(&self) -> Option<Scheduled<Event>> {
        let (mut near, mut far) = (self.near.borrow_mut(), self.far.borrow_mut());
        // The greater of two is the earlier.
        let from_far = match (near.peek(), far.peek()) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(near), Some(far)) => far > near,
        };
        if from_far { far.pop() } else { near.pop() }
    }

    /// Runs until `done`. Fails if it takes longer than `limit` of virtual time, nothing is left to happen,
    /// or something happened that must not.
    pub fn run_until(&self, limit: Duration, mut done: impl FnMut() -> bool) -> Result<(), String> {
        let end = self.now.get() + limit.as_nanos() as Time;
        loop {
            if let Some(why) = self.trouble.borrow().clone() {
                return Err(why);
            }
            if done() {
                return Ok(());
            }
            let Some(next) = self.next() else {
                return Err("nothing is left to happen, and not all is done".into());
            };
            if next.time > end {
                return Err(format!(
                    "not done after {} s of virtual time",
                    limit.as_secs_f64()
                ));
            }
            if matches!(&next.event, Event::Timer(t) if t.cancelled.get()) {
                continue;
            }
            self.now.set(next.time);
            self.events.set(self.events.get() + 1);
            match next.event {
                Event::Arrives(process, packet) => process.arrives(packet),
                Event::Timer(timer) => {
                    if let Some(process) = timer.process.upgrade() {
                        process.wake(&timer);
                    }
                }
                Event::Free(process) => process.free(),
            }
        }
    }

    /// Ends every process and drops every event, so that nothing holds the world any more.
    pub fn tear_down(&self) {
        let all = std::mem::take(&mut *self.processes.borrow_mut());
        for process in all {
            process.exec.kill(TaskOwner(0));
            let node = process.node.borrow_mut().take();
            drop(node);
            process.waiting.borrow_mut().clear();
        }
        let near = std::mem::take(&mut *self.near.borrow_mut());
        let far = std::mem::take(&mut *self.far.borrow_mut());
        drop((near, far));
    }
}

impl Process {
    /// Who receives its messages.
    pub fn set_node(&self, node: Rc<dyn Node>) {
        *self.node.borrow_mut() = Some(node);
    }

    /// The process as its code sees the world.
    pub fn world(self: &Rc<Self>) -> World {
        self.clone()
    }

    /// The time its processor has worked.
    pub fn busy(&self) -> Busy {
        self.busy.borrow().clone()
    }

    /// Begins a task, now.
    pub fn begin(&self, task: LocalFuture<()>) {
        self.exec.spawn(TaskOwner(0), task);
        self.serve(0, || {});
    }

    /// How long from now until what happens now leaves the processor.
    pub fn until_it_leaves(&self) -> Time {
        self.leaves.get().saturating_sub(self.virtual_time.now())
    }

    fn arrives(self: &Rc<Self>, packet: Packet) {
        if self.occupied.get() {
            self.waiting.borrow_mut().push_back(packet);
        } else {
            self.work(packet);
        }
    }

    fn free(self: &Rc<Self>) {
        self.occupied.set(false);
        while !self.occupied.get() {
            let Some(packet) = self.waiting.borrow_mut().pop_front() else {
                return;
            };
            self.work(packet);
        }
    }

    fn work(self: &Rc<Self>, packet: Packet) {
        let cost = self.cost(&packet);
        let node = self.node.borrow().clone();
        if self.server.is_some() && cost > 0 {
            self.occupied.set(true);
            self.until.set(self.virtual_time.now() + cost);
            self.virtual_time
                .schedule(self.until.get(), Event::Free(self.clone()));
        }
        self.serve(cost, || {
            if let Some(node) = node {
                node.receive(packet.from, packet.bytes);
            }
        });
    }

    fn wake(&self, timer: &TimerState) {
        let left = self.until.get().saturating_sub(self.virtual_time.now());
        self.serve(left, || {
            timer.fired.set(true);
            let waker = timer.waker.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        });
    }

    /// What is done, with all it sets off, as one service that ends so much later.
    fn serve(&self, cost: Time, act: impl FnOnce()) {
        self.leaves.set(self.virtual_time.now() + cost);
        act();
        self.exec.run_until_idle();
    }

    fn cost(&self, packet: &Packet) -> Time {
        let world = &self.virtual_time;
        let Some(id) = self.server else {
            return world.costs.client;
        };
        let Ok(message) = Message::from_bytes(&packet.bytes) else {
            world.fail(|| format!("server {id} was sent a message that does not decode"));
            return 0;
        };
        let kind = kind_of(&message, &world.map.borrow(), id);
        let (each, known) = world.costs.service(kind);
        let cost = each * items_of(&message);
        let mut busy = self.busy.borrow_mut();
        busy.total += cost;
        if !known {
            busy.unknown += cost;
        }
        let of = busy.kinds.entry(kind).or_default();
        *of = (of.0 + 1, of.1 + cost);
        cost
    }
}

impl Env for Process {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(BEGIN + i128::from(self.virtual_time.now()))
    }

    fn mono(&self) -> Mono {
        Mono(self.virtual_time.now())
    }

    fn random(&self) -> u64 {
        self.rng.borrow_mut().next()
    }

    fn sleep(&self, d: Duration) -> LocalFuture<()> {
        let process = self.virtual_time.processes.borrow().get(self.index).cloned();
        let Some(process) = process else {
            return Box::pin(std::future::pending());
        };
        let state = Rc::new(TimerState {
            process: Rc::downgrade(&process),
            fired: Cell::new(false),
            cancelled: Cell::new(false),
            waker: RefCell::new(None),
        });
        let at = self.virtual_time.now() + self.until_it_leaves();
        let delay = d.as_nanos().min(u128::from(u64::MAX / 4)) as Time;
        self.virtual_time
            .schedule(at + delay, Event::Timer(state.clone()));
        Box::pin(Timer(state))
    }

    fn spawn(&self, task: LocalFuture<()>) {
        self.exec.spawn(TaskOwner(0), task);
    }

    fn send(&self, to: Peer, message: Vec<u8>) {
        let world = &self.virtual_time;
        let index = match to {
            Peer::Server(id) => world.servers.borrow().get(&id).copied(),
            Peer::Connection(opener) => Some(opener as usize),
        };
        let receiver = index.and_then(|i| world.processes.borrow().get(i).cloned());
        let Some(receiver) = receiver else {
            return world.fail(|| format!("a message to {to}, which does not exist"));
        };
        // A reply comes from the server it was asked of; a request on the connection its sender opened.
        let from = match (to, self.server) {
            (Peer::Connection(_), Some(id)) => Peer::Server(id),
            _ => Peer::Connection(self.index as u64),
        };
        let at = world.now() + self.until_it_leaves() + world.costs.one_way;
        let packet = Packet { from, bytes: message };
        world.schedule(at, Event::Arrives(receiver, packet));
    }

    fn close(&self, peer: Peer, why: &str) {
        let who = self.index;
        self.virtual_time
            .fail(|| format!("process {who} closed its connection to {peer}: {why}"));
    }

    fn who(&self, peer: Peer) -> Option<PeerId> {
        match peer {
            Peer::Server(id) => Some(PeerId::Server(id)),
            Peer::Connection(opener) => {
                let all = self.virtual_time.processes.borrow();
                let opener = all.get(opener as usize)?;
                Some(match opener.server {
                    Some(id) => PeerId::Server(id),
                    None => PeerId::Client(IdentityId::ANYONE),
                })
            }
        }
    }

    fn expel(&self, identity: IdentityId, why: &str) {
        self.virtual_time
            .fail(|| format!("identity {identity} was expelled: {why}"));
    }
}
