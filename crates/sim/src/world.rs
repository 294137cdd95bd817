//! Virtual time, the event queue, and processes that live, pause and die in it. One thread; one [`Executor`]
//! per process incarnation, so that a crash drops its tasks and a pause stops them.

use crate::net::{Net, Packet};
use crate::trace::{Print, Trace};
use crate::violation::{Kind, Violation};
use pando_env::rng::Rng;
use pando_env::schedule::Scheduled;
use pando_env::{Env, Executor, LocalFuture, Node, Peer, TaskOwner, World};
use pando_types::{IdentityId, Mono, PeerId, ServerId, Timestamp};
use pando_wire::Message;
use std::cell::{Cell, RefCell};
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Virtual time in nanoseconds since the run began.
pub type Time = u64;

/// One microsecond.
pub const US: Time = 1_000;
/// One millisecond.
pub const MS: Time = 1_000_000;
/// One second.
pub const SEC: Time = 1_000_000_000;

/// Calendar time at which every run begins, in nanoseconds since 1970.
const BEGIN: i128 = 1_700_000_000 * 1_000_000_000;

/// A machine's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NodeId(pub usize);

/// What runs on a machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// A metadata server.
    Server(ServerId),
    /// A client.
    Client(u16),
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Role::Server(id) => write!(f, "S{id}"),
            Role::Client(n) => write!(f, "C{n}"),
        }
    }
}

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Death {
    /// kill -9: what it wrote stays written.
    Kill,
    /// The machine lost power: what was not synced may be gone.
    Power,
    /// It stopped by itself.
    Stop,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Alive,
    /// Dead as far as the world can see; its current task has not returned yet.
    Dying(Death),
    Dead,
}

/// Sees what happens, to judge it. Every method is called in the order of events.
pub trait Tap {
    /// A process sent a message (which may still be lost). Returns for how long it is held up besides.
    fn sent(&self, from: &Rc<Life>, to: NodeId, message: &Message) -> Time;
    /// A message reached a living process; called before the process sees it.
    fn delivered(&self, to: &Rc<Life>, message: &Message);
    /// A process ended.
    fn died(&self, life: &Rc<Life>, how: Death);
}

/// Something that happens at its time.
pub(crate) type Action = Box<dyn FnOnce(&Rc<Sim>)>;

/// What the queue holds.
pub(crate) enum Event {
    Timer(Rc<TimerState>),
    Deliver(Box<Packet>),
    Lost { life: u64, node: NodeId, peer: Peer },
    Action(Action),
}

struct Machine {
    role: Role,
    life: Option<Rc<Life>>,
    /// Calendar clock minus true time.
    clock: Rc<Cell<i128>>,
    /// Events that came while it was paused.
    deferred: Vec<Event>,
}

/// The simulated world.
pub struct Sim {
    now: Cell<Time>,
    seq: Cell<u64>,
    lives: Cell<u64>,
    queue: RefCell<BinaryHeap<Scheduled<Event>>>,
    machines: RefCell<Vec<Machine>>,
    /// A bit for each machine that may have ready tasks.
    ready: Arc<AtomicU64>,
    paused: Cell<u64>,
    rng: RefCell<Rng>,
    root: Rng,
    /// The trace.
    pub trace: RefCell<Trace>,
    pub(crate) net: RefCell<Net>,
    violation: RefCell<Option<Violation>>,
    tap: RefCell<Option<Rc<dyn Tap>>>,
    /// Findings of others than the checker of histories count for nothing.
    pub(crate) histories_only: Cell<bool>,
    /// Messages and timers that reached a paused machine; task runs of all machines.
    pub(crate) deferrals: Cell<u64>,
}

/// One incarnation of a process: its tasks, its randomness, its view of the world.
pub struct Life {
    /// Unique in a run.
    pub number: u64,
    /// Where it runs.
    pub node: NodeId,
    /// What it is.
    pub role: Role,
    exec: Executor,
    receiver: RefCell<Option<Rc<dyn Node>>>,
    rng: RefCell<Rng>,
    state: Cell<State>,
    running: Cell<bool>,
    mono_base: u64,
    clock: Rc<Cell<i128>>,
    sim: Rc<Sim>,
}

pub(crate) struct TimerState {
    life: Rc<Life>,
    fired: Cell<bool>,
    cancelled: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

struct Timer {
    state: Rc<TimerState>,
}

impl Future for Timer {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.state.fired.get() {
            return Poll::Ready(());
        }
        let mut waker = self.state.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.state.cancelled.set(true);
    }
}

impl Sim {
    /// An empty world at time 0.
    pub fn new(seed: u64, print: Print) -> Rc<Sim> {
        let root = Rng::new(seed);
        Rc::new(Sim {
            now: Cell::new(0),
            seq: Cell::new(0),
            lives: Cell::new(0),
            queue: RefCell::new(BinaryHeap::new()),
            machines: RefCell::new(Vec::new()),
            ready: Arc::new(AtomicU64::new(0)),
            paused: Cell::new(0),
            rng: RefCell::new(root.fork(1)),
            net: RefCell::new(Net::new(root.fork(2))),
            root,
            trace: RefCell::new(Trace::new(print)),
            violation: RefCell::new(None),
            tap: RefCell::new(None),
            histories_only: Cell::new(false),
            deferrals: Cell::new(0),
        })
    }

    /// Who is to see everything.
    pub fn set_tap(&self, tap: Rc<dyn Tap>) {
        *self.tap.borrow_mut() = Some(tap);
    }

    pub(crate) fn tap(&self) -> Option<Rc<dyn Tap>> {
        self.tap.borrow().clone()
    }

    /// A random stream of this seed.
    pub fn stream(&self, label: u64) -> Rng {
        self.root.fork(label)
    }

    /// Virtual time.
    pub fn now(&self) -> Time {
        self.now.get()
    }

    /// Adds a machine. REQUIRES: at most 64 in all.
    pub fn machine(&self, role: Role) -> NodeId {
        let mut machines = self.machines.borrow_mut();
        assert!(machines.len() < 64, "at most 64 machines");
        machines.push(Machine {
            role,
            life: None,
            clock: Rc::default(),
            deferred: Vec::new(),
        });
        let id = NodeId(machines.len() - 1);
        self.net.borrow_mut().machine(id, role);
        id
    }

    /// Starts a process on a machine. REQUIRES: none runs there.
    pub fn start(self: &Rc<Self>, node: NodeId) -> Rc<Life> {
        let number = self.lives.get() + 1;
        self.lives.set(number);
        let (ready, bit) = (self.ready.clone(), 1u64 << node.0);
        let mut machines = self.machines.borrow_mut();
        let machine = &mut machines[node.0];
        assert!(
            machine.life.is_none(),
            "a process runs already on {}",
            machine.role
        );
        let mut rng = self.root.fork(1_000_000 + number);
        let life = Rc::new(Life {
            number,
            node,
            role: machine.role,
            exec: Executor::new(move || {
                ready.fetch_or(bit, Relaxed);
            }),
            receiver: RefCell::new(None),
            mono_base: rng.below(1 << 50),
            rng: RefCell::new(rng),
            state: Cell::new(State::Alive),
            running: Cell::new(false),
            clock: machine.clock.clone(),
            sim: self.clone(),
        });
        machine.life = Some(life.clone());
        drop(machines);
        self.note(|| format!("{} starts (life {number})", life.role));
        life
    }

    /// The process on a machine.
    pub fn life(&self, node: NodeId) -> Option<Rc<Life>> {
        self.machines.borrow()[node.0].life.clone().filter(|l| l.alive())
    }

    /// What runs on a machine.
    pub fn role(&self, node: NodeId) -> Role {
        self.machines.borrow()[node.0].role
    }

    /// Moves a machine's calendar clock.
    pub fn step_clock(&self, node: NodeId, by: i128) {
        let clock = self.machines.borrow()[node.0].clock.clone();
        clock.set(clock.get() + by);
    }

    /// Stops a machine's tasks, timers and messages until [`Sim::resume`].
    pub fn pause(&self, node: NodeId) {
        self.paused.set(self.paused.get() | 1 << node.0);
        self.note(|| format!("{} pauses", self.role(node)));
    }

    /// Whether a machine is paused.
    pub fn is_paused(&self, node: NodeId) -> bool {
        self.paused.get() >> node.0 & 1 == 1
    }

    /// Ends a pause: what was held back happens now. Returns how much that is.
    pub fn resume(&self, node: NodeId) -> usize {
        self.paused.set(self.paused.get() & !(1 << node.0));
        let held = std::mem::take(&mut self.machines.borrow_mut()[node.0].deferred);
        let n = held.len();
        self.note(|| format!("{} resumes, {n} events held", self.role(node)));
        for event in held {
            let jitter = self.rng.borrow_mut().below(20 * US);
            self.schedule(jitter, event);
        }
        n
    }

    /// Runs `action` after `delay`.
    pub fn after(&self, delay: Time, action: impl FnOnce(&Rc<Sim>) + 'static) {
        self.schedule(delay, Event::Action(Box::new(action)));
    }

    pub(crate) fn schedule(&self, delay: Time, event: Event) {
        let seq = self.seq.get();
        self.seq.set(seq + 1);
        let time = self.now.get().saturating_add(delay);
        self.queue.borrow_mut().push(Scheduled { time, seq, event });
    }

    /// A line for the readable trace.
    pub fn note(&self, text: impl FnOnce() -> String) {
        if self.trace.borrow().wants_lines() {
            let text = text();
            self.trace.borrow_mut().line(self.now.get(), &text);
        }
    }

    /// Records that something is wrong. The first counts; the run ends.
    pub fn fail(&self, kind: Kind, text: impl Into<String>) {
        let text = text.into();
        if self.histories_only.get() && !text.starts_with(crate::history::WORD) {
            return;
        }
        self.note(|| format!("VIOLATION {kind:?}: {text}"));
        let mut violation = self.violation.borrow_mut();
        if violation.is_none() {
            *violation = Some(Violation {
                kind,
                text,
                time: self.now.get(),
            });
        }
    }

    /// What is wrong, if anything.
    pub fn violation(&self) -> Option<Violation> {
        self.violation.borrow().clone()
    }

    /// Whether something is wrong.
    pub fn failed(&self) -> bool {
        self.violation.borrow().is_some()
    }

    /// Runs one ready task, or else the next event. False when nothing is left to do.
    pub fn step(self: &Rc<Self>) -> bool {
        let mask = self.ready.load(Relaxed) & !self.paused.get();
        if mask != 0 {
            self.run_task(mask);
            return true;
        }
        let next = self.queue.borrow_mut().pop();
        let Some(Scheduled { time, event, .. }) = next else {
            return false;
        };
        if let Event::Timer(t) = &event
            && t.cancelled.get()
        {
            return true;
        }
        self.now.set(time);
        self.happen(event);
        true
    }

    /// Runs until `done`, or `limit` of virtual time has passed, or something is wrong. Whether `done`.
    pub fn run_until(self: &Rc<Self>, limit: Time, mut done: impl FnMut() -> bool) -> bool {
        let end = self.now.get().saturating_add(limit);
        loop {
            if self.failed() {
                return false;
            }
            if done() {
                return true;
            }
            if self.now.get() > end || !self.step() {
                return done();
            }
        }
    }

    fn run_task(self: &Rc<Self>, mask: u64) {
        let mut rng = self.rng.borrow_mut();
        let mut left = mask;
        for _ in 0..rng.below(u64::from(mask.count_ones())) {
            left &= left - 1;
        }
        let index = left.trailing_zeros() as usize;
        let choice = rng.next();
        drop(rng);
        self.ready.fetch_and(!(1 << index), Relaxed);
        let life = self.machines.borrow()[index].life.clone();
        let Some(life) = life else { return };
        self.trace.borrow_mut().add(choice ^ index as u64);
        life.running.set(true);
        life.exec
            .run_one(|n| ((u128::from(choice) * n as u128) >> 64) as usize);
        life.running.set(false);
        if life.exec.ready() > 0 {
            self.ready.fetch_or(1 << index, Relaxed);
        }
        self.bury(&life);
    }

    fn happen(self: &Rc<Self>, event: Event) {
        match event {
            Event::Timer(t) => {
                if !t.life.alive() {
                    return;
                }
                if self.is_paused(t.life.node) {
                    return self.defer(t.life.node, Event::Timer(t));
                }
                self.trace.borrow_mut().event(self.now.get(), 1, t.life.number, 0);
                t.fired.set(true);
                if let Some(w) = t.waker.borrow_mut().take() {
                    w.wake();
                }
            }
            Event::Deliver(packet) => {
                if self.is_paused(packet.to_node) {
                    return self.defer(packet.to_node, Event::Deliver(packet));
                }
                self.deliver(*packet);
            }
            Event::Lost { life, node, peer } => {
                if self.is_paused(node) {
                    return self.defer(node, Event::Lost { life, node, peer });
                }
                let Some(l) = self.life(node).filter(|l| l.number == life) else {
                    return;
                };
                self.trace.borrow_mut().event(self.now.get(), 2, life, 0);
                self.note(|| format!("{} loses its connection to {peer:?}", l.role));
                self.enter(&l, |node| node.disconnected(peer));
            }
            Event::Action(action) => {
                self.trace.borrow_mut().event(self.now.get(), 3, 0, 0);
                action(self);
            }
        }
    }

    fn defer(&self, node: NodeId, event: Event) {
        self.deferrals.set(self.deferrals.get() + 1);
        self.machines.borrow_mut()[node.0].deferred.push(event);
    }

    /// Calls into a process's message handler.
    pub(crate) fn enter(self: &Rc<Self>, life: &Rc<Life>, call: impl FnOnce(&Rc<dyn Node>)) {
        let receiver = life.receiver.borrow().clone();
        if let Some(r) = receiver {
            life.running.set(true);
            call(&r);
            life.running.set(false);
            self.bury(life);
        }
    }

    /// Finishes the death of a process, if it is dying.
    fn bury(self: &Rc<Self>, life: &Rc<Life>) {
        let State::Dying(how) = life.state.get() else {
            return;
        };
        life.state.set(State::Dead);
        self.trace
            .borrow_mut()
            .event(self.now.get(), 4, life.number, how as u64);
        self.note(|| format!("{} dies: {how:?} (life {})", life.role, life.number));
        life.exec.kill(TaskOwner(0));
        let receiver = life.receiver.borrow_mut().take();
        drop(receiver);
        {
            let mut machines = self.machines.borrow_mut();
            let machine = &mut machines[life.node.0];
            if machine.life.as_ref().is_some_and(|l| l.number == life.number) {
                machine.life = None;
            }
        }
        self.cut_connections(life);
        if let Some(tap) = self.tap() {
            tap.died(life, how);
        }
    }

    /// Ends every process and drops every event, so that nothing holds the world any more.
    pub fn tear_down(self: &Rc<Self>) {
        *self.tap.borrow_mut() = None;
        let lives: Vec<Rc<Life>> = self
            .machines
            .borrow_mut()
            .iter_mut()
            .filter_map(|m| m.life.take())
            .collect();
        for life in lives {
            life.state.set(State::Dead);
            life.exec.kill(TaskOwner(0));
            let receiver = life.receiver.borrow_mut().take();
            drop(receiver);
        }
        let events = std::mem::take(&mut *self.queue.borrow_mut());
        drop(events);
        let deferred: Vec<Vec<Event>> = self
            .machines
            .borrow_mut()
            .iter_mut()
            .map(|m| std::mem::take(&mut m.deferred))
            .collect();
        drop(deferred);
    }
}

impl Life {
    /// Who receives this process's messages. Messages that come before this is set are dropped.
    pub fn set_receiver(&self, receiver: Rc<dyn Node>) {
        if self.alive() {
            *self.receiver.borrow_mut() = Some(receiver);
        }
    }

    /// Whether the process receives messages.
    pub fn receives(&self) -> bool {
        self.receiver.borrow().is_some()
    }

    /// The process as its code sees the world.
    pub fn world(self: &Rc<Self>) -> World {
        self.clone()
    }

    /// Whether it lives.
    pub fn alive(&self) -> bool {
        self.state.get() == State::Alive
    }

    /// Whether its last task has not returned yet although it is dead to the world.
    pub fn dying(&self) -> bool {
        matches!(self.state.get(), State::Dying(_))
    }

    /// The world it lives in.
    pub fn sim(&self) -> &Rc<Sim> {
        &self.sim
    }

    /// Ends the process now. If it is running, its current task still returns, but nothing it does is seen.
    pub fn die(self: &Rc<Self>, how: Death) {
        if self.alive() {
            self.state.set(State::Dying(how));
            if !self.running.get() {
                self.sim.bury(self);
            }
        }
    }
}

impl Env for Life {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(BEGIN + i128::from(self.sim.now()) + self.clock.get())
    }

    fn mono(&self) -> Mono {
        // Runs up to half of one percent too fast or too slow: where leases count, no two agree on how long
        // they were.
        let now = i128::from(self.sim.now());
        let off = now * (i128::from(self.mono_base % 10_001) - 5_000) / 1_000_000;
        Mono(self.mono_base + (now + off) as u64)
    }

    fn random(&self) -> u64 {
        self.rng.borrow_mut().next()
    }

    fn sleep(&self, d: Duration) -> LocalFuture<()> {
        let Some(life) = self.sim.machines.borrow()[self.node.0].life.clone() else {
            return Box::pin(std::future::pending());
        };
        if life.number != self.number {
            return Box::pin(std::future::pending());
        }
        let state = Rc::new(TimerState {
            life,
            fired: Cell::new(false),
            cancelled: Cell::new(false),
            waker: RefCell::new(None),
        });
        let delay = d.as_nanos().min(u128::from(u64::MAX / 4)) as u64;
        self.sim.schedule(delay, Event::Timer(state.clone()));
        Box::pin(Timer { state })
    }

    fn spawn(&self, task: LocalFuture<()>) {
        if self.alive() {
            self.exec.spawn(TaskOwner(0), task);
        }
    }

    fn send(&self, to: Peer, message: Vec<u8>) {
        if self.alive() {
            self.sim.send(self.number, self.node, to, message);
        }
    }

    fn who(&self, peer: Peer) -> Option<PeerId> {
        self.sim.net.borrow().who(peer)
    }

    fn expel(&self, identity: IdentityId, _why: &str) {
        if self.alive() {
            self.sim.expel(self.number, identity);
        }
    }

    fn close(&self, peer: Peer, why: &str) {
        if self.alive() && !self.sim.shut(peer) {
            // Nobody else is hostile: a message that makes no sense is a bug of its sender or of its reader.
            self.sim.fail(
                Kind::WrongResult,
                format!("{} closed its connection to {peer:?}: {why}", self.role),
            );
        }
    }
}
