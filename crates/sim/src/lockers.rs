//! Programs that lock files, on machines of their own that die and pause, and a judge of what they get.
//!
//! The files are numbers: a server keeps locks by number and asks for a proof that the file was opened, which
//! is made here as servers make it. Judged: no two programs have locks that exclude each other, by their own
//! view, unless a server has ended the session of one of them; and in the end, when everything is sound and
//! all have unlocked, everything can be locked.

use crate::cluster::{Cluster, secrets};
use crate::violation::Kind;
use crate::workload::Workload;
use crate::world::{Death, Life, MS, NodeId, Role, SEC, Sim, Time};
use pando_client::locks::{LockError, LockWish, Lockable, Locker, Signs};
use pando_client::{Client, ClientConfig};
use pando_env::Env;
use pando_env::rng::Rng;
use pando_env::sync::{Sender, oneshot};
use pando_types::{
    Generation, Hold, IdentityId, Ino, LockFamily, PeerId, SLOTS, SessionId, Slot, Span, Spans,
};
use pando_wire::LockPlace;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Files that are locked.
const FILES: u64 = 4;
/// Programs on a machine.
const PROGRAMS: u64 = 3;
/// Bytes of a file that are locked by ranges.
const BYTES: u64 = 6;

/// Who believes to have a lock: which process, and which of its programs.
type Owner = (u64, u64);

/// What is believed.
#[derive(Default)]
struct Book {
    held: BTreeMap<(Ino, LockFamily), Spans<Owner>>,
}

/// All of it.
pub struct Lockers {
    cluster: Rc<Cluster>,
    workload: Rc<Workload>,
    nodes: Vec<NodeId>,
    book: RefCell<Book>,
    /// Of each process that runs.
    running: RefCell<BTreeMap<u64, Rc<Locker>>>,
    /// Programs that have not ended, by process.
    active: RefCell<BTreeMap<u64, u64>>,
    rng: RefCell<Rng>,
}

/// Begins, if the seed says so.
pub fn begin(cluster: &Rc<Cluster>, workload: &Rc<Workload>) -> Option<Rc<Lockers>> {
    let machines = cluster.settings.lockers;
    if machines == 0 {
        return None;
    }
    let nodes = (0..machines)
        .map(|n| cluster.sim.machine(Role::Client(3000 + n)))
        .collect();
    let lockers = Rc::new(Lockers {
        cluster: cluster.clone(),
        workload: workload.clone(),
        nodes,
        book: RefCell::default(),
        running: RefCell::default(),
        active: RefCell::default(),
        rng: RefCell::new(cluster.sim.stream(13)),
    });
    for node in lockers.nodes.clone() {
        lockers.identify(node);
        lockers.start(node);
        lockers.trouble(node);
    }
    Some(lockers)
}

impl Lockers {
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

    /// Files are opened by nobody in particular.
    fn identify(&self, node: NodeId) {
        if self.cluster.settings.keyed {
            self.sim().net.borrow_mut().identify(node, PeerId::Operator);
        }
    }

    /// The file of a number, for anybody.
    fn file(&self, n: u64) -> Lockable {
        let map = self.cluster.map();
        // On several servers, and in slots that move.
        let slot = Slot((n * u64::from(SLOTS) / FILES + 7) as u16);
        let (ino, generation) = (Ino::new(slot, 1 << 40 | n), Generation(1));
        let keys = secrets(&map).statement_keys();
        Lockable {
            ino,
            generation,
            proof: keys.proof((ino, generation), IdentityId::ANYONE),
        }
    }

    fn locker(self: &Rc<Self>, life: &Rc<Life>) -> Rc<Locker> {
        let timeout = self.cluster.settings.limits.session_timeout;
        let mut config = ClientConfig::new((*self.cluster.map()).clone());
        config.try_timeout = Duration::from_secs(2).min(timeout / 4);
        let client = Client::new(life.world(), config);
        life.set_receiver(client.clone());
        let (me, number) = (Rc::downgrade(self), life.number);
        // Nobody asks how old the last sign is: time comes from the world.
        let signs = Signs::new(|| Duration::ZERO);
        let locker = Locker::new(client, signs, move |place: LockPlace| {
            if let Some(me) = me.upgrade() {
                me.unbook((place.ino, place.family), (number, place.token), Span::ALL);
            }
        });
        life.spawn(Box::pin(locker.clone().keep(timeout / 8)));
        locker
    }

    fn start(self: &Rc<Self>, node: NodeId) {
        if !self.goes_on() || self.sim().life(node).is_some() {
            return;
        }
        let life = self.sim().start(node);
        let locker = self.locker(&life);
        self.running.borrow_mut().insert(life.number, locker.clone());
        for token in 1..=PROGRAMS {
            let (me, life2, locker) = (self.clone(), life.clone(), locker.clone());
            *self.active.borrow_mut().entry(life.number).or_default() += 1;
            life.spawn(Box::pin(async move {
                while me.goes_on() {
                    me.one(&life2, &locker, token).await;
                }
                if let Some(n) = me.active.borrow_mut().get_mut(&life2.number) {
                    *n -= 1;
                }
            }));
        }
    }

    /// Now and then a machine dies, or stops for a while.
    fn trouble(self: &Rc<Self>, node: NodeId) {
        let me = self.clone();
        let timeout = self.cluster.settings.limits.session_timeout.as_nanos() as Time;
        let next = SEC / 2 + self.rng.borrow_mut().skewed(4 * SEC);
        self.sim().after(next, move |sim| {
            if !me.goes_on() {
                return;
            }
            let Some(life) = sim.life(node) else {
                return me.trouble(node);
            };
            if me.percent(60) {
                me.die(&life);
                let again = me.clone();
                sim.after(me.below(SEC), move |_| again.start(node));
            } else if !sim.is_paused(node) {
                sim.pause(node);
                let long = if me.percent(30) { 2 * timeout } else { SEC };
                sim.after(me.below(long), move |sim| {
                    sim.resume(node);
                });
            }
            me.trouble(node);
        });
    }

    fn die(&self, life: &Rc<Life>) {
        self.running.borrow_mut().remove(&life.number);
        // None of them ends by itself.
        self.active.borrow_mut().remove(&life.number);
        for spans in self.book.borrow_mut().held.values_mut() {
            spans.remove(|(number, _)| number == life.number);
        }
        life.die(Death::Kill);
    }

    async fn nap(&self, life: &Rc<Life>, most: Time) {
        let time = self.below(most);
        life.sleep(Duration::from_nanos(time)).await;
    }

    fn wish(&self, token: u64) -> LockWish {
        let file = self.file(self.below(FILES));
        let (a, b) = (self.below(BYTES), self.below(BYTES));
        let (family, span) = if self.percent(40) {
            (LockFamily::Flock, Span::ALL)
        } else {
            let (first, last) = (a.min(b), a.max(b));
            (LockFamily::Posix, Span { first, last })
        };
        LockWish {
            file,
            family,
            token,
            span,
            hold: Some(self.hold()),
            pid: token as u32,
        }
    }

    fn hold(&self) -> Hold {
        if self.percent(60) {
            Hold::Exclusive
        } else {
            Hold::Shared
        }
    }

    /// A program locks something, perhaps something else with it, changes its mind, and unlocks everything.
    async fn one(self: &Rc<Self>, life: &Rc<Life>, locker: &Rc<Locker>, token: u64) {
        self.nap(life, 100 * MS).await;
        let mut mine: Vec<LockWish> = Vec::new();
        for _ in 0..=self.below(3) {
            let wish = self.wish(token);
            if self.take(life, locker, wish).await {
                mine.push(wish);
            }
            self.nap(life, 100 * MS).await;
            // Another kind of the same.
            if let Some(last) = mine.last().copied().filter(|_| self.percent(30)) {
                let hold = Some(self.hold());
                self.take(life, locker, LockWish { hold, ..last }).await;
                self.nap(life, 50 * MS).await;
            }
        }
        for wish in mine {
            // Whatever it has of the file.
            let span = Span::ALL;
            self.unbook((wish.file.ino, wish.family), (life.number, token), span);
            let none = LockWish {
                hold: None,
                span,
                ..wish
            };
            let (_never, cancel) = oneshot();
            let _ = locker.set(none, false, cancel).await;
        }
    }

    /// Whether it was granted.
    async fn take(self: &Rc<Self>, life: &Rc<Life>, locker: &Rc<Locker>, wish: LockWish) -> bool {
        let place = (wish.file.ino, wish.family);
        let owner = (life.number, wish.token);
        // What is made shared may be shared before that is heard.
        if wish.hold == Some(Hold::Shared) {
            self.lower(place, owner, wish.span);
        }
        let (breaks, cancel) = oneshot();
        let wait = self.percent(60);
        self.break_off(life, breaks);
        let result = locker.set(wish, wait, cancel).await;
        self.cluster.effects.borrow_mut().locks.1 += u64::from(result.is_err());
        match result {
            Ok(_) => {
                self.cluster.effects.borrow_mut().locks.0 += 1;
                self.book(place, owner, &wish);
                true
            }
            Err(LockError::Failed(e)) => {
                self.sim().note(|| format!("a lock was refused: {e}"));
                self.what_is_held(locker, place, owner, wish.span);
                false
            }
            // A lower one may hold already.
            Err(_) => {
                self.what_is_held(locker, place, owner, wish.span);
                false
            }
        }
    }

    /// Nothing was granted: what the program had it has, as far as the mount knows.
    fn what_is_held(&self, locker: &Rc<Locker>, place: (Ino, LockFamily), owner: Owner, span: Span) {
        let has = |p: &LockPlace| (p.ino, p.family, p.token) == (place.0, place.1, owner.1);
        if !locker.held().iter().any(|(p, s)| has(p) && s.meets(span)) {
            self.unbook(place, owner, span);
        }
    }

    /// Some are broken off after a while, all at the end of the run: as if a signal came.
    fn break_off(self: &Rc<Self>, life: &Rc<Life>, breaks: Sender<()>) {
        let after = if self.percent(40) {
            self.below(400 * MS)
        } else {
            self.below(20 * SEC)
        };
        let l = life.clone();
        life.spawn(Box::pin(async move {
            l.sleep(Duration::from_nanos(after)).await;
            drop(breaks);
        }));
    }

    fn lower(&self, place: (Ino, LockFamily), owner: Owner, span: Span) {
        let mut book = self.book.borrow_mut();
        let held = book.held.entry(place).or_default();
        for (piece, hold) in held.pieces(owner, span) {
            if hold.is_some() {
                held.set(owner, piece, Some(Hold::Shared), 0);
            }
        }
    }

    fn unbook(&self, place: (Ino, LockFamily), owner: Owner, span: Span) {
        if let Some(held) = self.book.borrow_mut().held.get_mut(&place) {
            held.set(owner, span, None, 0);
        }
    }

    /// Judges what was granted.
    fn book(&self, place: (Ino, LockFamily), owner: Owner, wish: &LockWish) {
        let Some(hold) = wish.hold else { return };
        let against: Vec<Owner> = {
            let mut book = self.book.borrow_mut();
            let held = book.held.entry(place).or_default();
            let against = held.against(owner, wish.span, hold).map(|h| h.owner).collect();
            held.set(owner, wish.span, wish.hold, 0);
            against
        };
        for other in against {
            if !self.may_have_lost(other.0) && !self.may_have_lost(owner.0) {
                self.sim().fail(
                    Kind::WrongResult,
                    format!(
                        "life {} program {} got {:?} bytes {}..={} of file {:x} as {hold:?}, which life {} program {} has",
                        owner.0, owner.1, place.1, wish.span.first, wish.span.last, place.0.0, other.0, other.1
                    ),
                );
            }
        }
    }

    /// Whether a server has ended a session of a process, or one that may have is not there to say so.
    fn may_have_lost(&self, life: u64) -> bool {
        let running = self.running.borrow();
        let Some(locker) = running.get(&life) else {
            return true;
        };
        let sessions: Vec<SessionId> = locker.sessions().into_iter().map(|(_, s)| s).collect();
        (0..self.cluster.servers.len()).any(|index| match self.cluster.running(index) {
            Some(server) => sessions.iter().any(|s| server.has_ended(*s)),
            None => self
                .cluster
                .map()
                .server(self.cluster.servers[index].id)
                .is_some(),
        })
    }

    /// Everything is healed: all end, and then everything can be locked.
    pub fn finish(self: &Rc<Self>) {
        let sim = self.sim().clone();
        self.workload.stop();
        for node in &self.nodes {
            if sim.is_paused(*node) {
                sim.resume(*node);
            }
        }
        let timeout = self.cluster.settings.limits.session_timeout.as_nanos() as Time;
        let patience = 4 * timeout + 120 * SEC;
        if !sim.run_until(patience, || {
            self.end_the_lost();
            self.left() == 0
        }) {
            let left = self.left();
            return sim.fail(
                Kind::NoProgress,
                format!("everything is healed, but {left} programs wait for locks"),
            );
        }
        let node = sim.machine(Role::Client(3999));
        self.identify(node);
        let life = sim.start(node);
        let locker = self.locker(&life);
        let (me, over) = (self.clone(), Rc::new(Cell::new(false)));
        let (l, done) = (life.clone(), over.clone());
        life.spawn(Box::pin(async move {
            for n in 0..FILES {
                for family in [LockFamily::Posix, LockFamily::Flock] {
                    let wish = LockWish {
                        file: me.file(n),
                        family,
                        token: 1,
                        span: Span::ALL,
                        hold: Some(Hold::Exclusive),
                        pid: 0,
                    };
                    let (_never, cancel) = oneshot();
                    if let Err(e) = locker.set(wish, true, cancel).await {
                        l.sim()
                            .fail(Kind::WrongResult, format!("in the end a lock was refused: {e:?}"));
                    }
                    me.book((wish.file.ino, family), (l.number, 1), &wish);
                }
            }
            done.set(true);
        }));
        if !sim.run_until(patience, || over.get()) {
            return sim.fail(Kind::NoProgress, "all have unlocked, and a lock is not to be had");
        }
        self.running.borrow_mut().clear();
        for node in self.nodes.iter().copied().chain([node]) {
            if let Some(life) = sim.life(node) {
                life.die(Death::Stop);
            }
        }
    }

    /// As [`Workload::end_the_lost`].
    fn end_the_lost(&self) {
        let map = self.cluster.map();
        let lost = |locker: &Locker| {
            let known = locker.map();
            let mut known = known.servers.iter().map(|s| s.id);
            known.all(|id| map.server(id).is_none() && !self.cluster.runs(id))
        };
        let lost: Vec<u64> = self
            .running
            .borrow()
            .iter()
            .filter(|(_, l)| lost(l))
            .map(|(n, _)| *n)
            .collect();
        for node in &self.nodes {
            if let Some(life) = self.sim().life(*node).filter(|l| lost.contains(&l.number)) {
                self.die(&life);
            }
        }
    }

    /// Programs that have not ended.
    fn left(&self) -> u64 {
        self.active.borrow().values().sum()
    }
}
