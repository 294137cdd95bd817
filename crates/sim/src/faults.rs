//! Faults: what is planned, and whether it hit anything.
//!
//! Each fault is counted as planned when it begins and as effective only when somebody felt it: a crash with
//! a request or an unsynced batch on its way, a cut that swallowed a message, a pause that held events back.
//! Loss, duplicates and delays of single messages are the weather, counted apart.

use crate::cluster::{Cluster, STOP_WITHIN};
use crate::disk::{Failing, Point, Speed};
use crate::net::Conditions;
use crate::violation::Kind;
use crate::workload::Workload;
use crate::world::{Death, MS, NodeId, SEC, Sim, Time};
use pando_env::rng::Rng;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What the faults did.
#[derive(Clone, Default, Debug)]
pub struct Effects {
    /// Begun, by kind.
    pub planned: BTreeMap<&'static str, u64>,
    /// Felt, by kind.
    pub effective: BTreeMap<&'static str, u64>,
    /// Batches lost to power failures.
    pub batches_lost: u64,
    /// Servers stopped by a failed device.
    pub device_failures: u64,
    /// Identities revoked.
    pub revocations: u64,
    /// Slots moved to another server.
    pub slots_moved: u64,
    /// Locks that programs got on files, and that they did not get.
    pub locks: (u64, u64),
    /// Crash points reached.
    pub crash_points: BTreeMap<&'static str, u64>,
}

impl Effects {
    /// Faults that were felt.
    pub fn felt(&self) -> u64 {
        self.effective.values().sum()
    }
}

/// The kinds, with their weights.
const KINDS: [(&str, u32); 27] = [
    ("kill", 14),
    ("power loss", 12),
    ("crash point", 26),
    ("crash in recovery", 10),
    ("cluster power loss", 4),
    ("kill several", 4),
    ("fsync error", 6),
    ("write error", 3),
    ("one-way cut", 8),
    ("isolation", 6),
    ("split", 4),
    ("pause", 10),
    ("long pause", 2),
    ("clock step", 8),
    ("full disk", 7),
    ("slow disk", 5),
    ("storm", 8),
    ("client crash", 10),
    ("slots move", 5),
    ("coordination cut", 6),
    ("coordination away", 3),
    ("aimed death", 4),
    ("aimed cut", 2),
    ("late message", 3),
    ("late kind", 3),
    ("office falls", 2),
    ("deposed", 2),
];

/// Who brings the faults.
pub struct Nemesis {
    /// Under attack.
    pub cluster: Rc<Cluster>,
    workload: Rc<Workload>,
    rng: RefCell<Rng>,
    weather: Conditions,
    /// A change of the map is under way: everything is about to stop or start.
    moving: Cell<bool>,
    stopped: Cell<bool>,
    planned: Cell<u64>,
    /// Machines that a fault has paused.
    paused: RefCell<BTreeMap<NodeId, &'static str>>,
    /// At which fault all machines sleep for hours, if they do.
    sleep_at: Option<u64>,
    /// Whether they sleep now, and for how long they have.
    asleep: Cell<bool>,
    slept: Cell<Time>,
}

impl Nemesis {
    /// With the weather of this seed.
    pub fn new(cluster: &Rc<Cluster>, workload: &Rc<Workload>) -> Rc<Nemesis> {
        let mut rng = cluster.sim.stream(5);
        let weather = match rng.percent(60) {
            // Slots go and come back: what comes late by then is the danger (H39, H115, H118).
            _ if cluster.settings.pendulum => Conditions {
                duplicate: rng.range(5_000, 20_000),
                late: rng.range(200_000, 600_000),
                ..Conditions::rough(&mut rng)
            },
            true => Conditions::rough(&mut rng),
            false => Conditions::calm(),
        };
        cluster.sim.net.borrow_mut().conditions = weather.clone();
        // A stream of its own: what the others draw is what it was before there was this fault.
        let mut sleep = cluster.sim.stream(12);
        Rc::new(Nemesis {
            cluster: cluster.clone(),
            workload: workload.clone(),
            rng: RefCell::new(rng),
            weather,
            moving: Cell::new(false),
            stopped: Cell::new(false),
            planned: Cell::new(0),
            paused: RefCell::default(),
            sleep_at: sleep.percent(10).then(|| sleep.range(1, 6)),
            asleep: Cell::new(false),
            slept: Cell::new(0),
        })
    }

    pub(crate) fn sim(&self) -> &Rc<Sim> {
        &self.cluster.sim
    }

    /// Faults begun so far.
    pub fn planned(&self) -> u64 {
        self.planned.get()
    }

    /// Whether the world is to be sound from here on.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// The clients' machines.
    pub(crate) fn machines(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.workload.machines.iter().map(|m| m.node)
    }

    /// No new faults from here on.
    pub fn stop(&self) {
        self.stopped.set(true);
    }

    pub(crate) fn below(&self, n: u64) -> u64 {
        self.rng.borrow_mut().below(n)
    }

    /// Mostly short, sometimes long against all timeouts.
    pub(crate) fn duration(&self, short: Time, long: Time) -> Time {
        let mut rng = self.rng.borrow_mut();
        if rng.percent(85) {
            rng.skewed(short)
        } else {
            rng.below(long)
        }
    }

    pub(crate) fn server(&self) -> usize {
        self.below(self.cluster.servers.len() as u64) as usize
    }

    pub(crate) fn felt(&self, kind: &'static str, felt: bool) {
        if felt {
            *self
                .cluster
                .effects
                .borrow_mut()
                .effective
                .entry(kind)
                .or_default() += 1;
            self.sim().note(|| format!("fault felt: {kind}"));
        }
    }

    pub(crate) fn later(self: &Rc<Self>, delay: Time, then: impl FnOnce(&Rc<Nemesis>) + 'static) {
        let me = self.clone();
        self.sim().after(delay, move |_| then(&me));
    }

    /// Begins a fault.
    pub fn strike(self: &Rc<Self>) {
        if self.stopped.get() || self.moving.get() || self.asleep.get() {
            return;
        }
        if self.sleep_at == Some(self.planned.get() + 1) {
            return self.sleep("sleep of hours");
        }
        let weights: Vec<u32> = KINDS.iter().map(|(_, w)| *w).collect();
        let kind = KINDS[self.rng.borrow_mut().weighted(&weights)].0;
        self.strike_as(kind);
    }

    /// Whether everything is about to stop or start, or sleeps.
    pub(crate) fn is_busy(&self) -> bool {
        self.moving.get() || self.asleep.get()
    }

    /// Begins a fault of this kind.
    pub(crate) fn strike_as(self: &Rc<Self>, kind: &'static str) {
        self.plan(kind);
        match kind {
            "kill" => self.kill(kind, Death::Kill),
            "power loss" => self.kill(kind, Death::Power),
            "crash point" => self.crash_point(kind),
            "crash in recovery" => self.crash_in_recovery(kind),
            "cluster power loss" => self.kill_many(kind, true),
            "kill several" => self.kill_many(kind, false),
            "fsync error" => self.device_error(kind, Failing::Sync),
            "write error" => self.device_error(kind, Failing::Write),
            "one-way cut" | "isolation" | "split" => self.partition(kind),
            "pause" => self.pause(kind, false),
            "long pause" => self.pause(kind, true),
            "clock step" => self.clock_step(kind),
            "full disk" => self.full_disk(kind),
            "slow disk" => self.slow_disk(kind),
            "storm" => self.storm(kind),
            "client crash" => self.client_crash(kind),
            "coordination cut" => self.coordination_cut(kind),
            "coordination away" => self.coordination_away(kind),
            "aimed death" => self.aimed_death(kind),
            "aimed cut" => self.aimed_cut(kind),
            "late message" => self.late_message(kind),
            "late kind" => self.late_kind(kind),
            "lost locks" => self.lost_locks(kind),
            "office falls" => self.office_falls(kind),
            "kept requests" => self.kept_requests(kind),
            "deposed" => self.deposed(kind),
            _ => self.move_slots(kind),
        }
    }

    fn plan(&self, kind: &'static str) {
        self.planned.set(self.planned.get() + 1);
        *self.cluster.effects.borrow_mut().planned.entry(kind).or_default() += 1;
        self.sim().note(|| format!("fault: {kind}"));
        self.sim().trace.borrow_mut().add(kind.len() as u64);
    }

    /// Virtual time for which nothing happened because everybody slept.
    pub fn slept(&self) -> Time {
        self.slept.get()
    }

    /// All machines stop for hours and go on one after the other, as when the one machine that they all are
    /// was put to sleep: sessions and leases have run out for some before others have said a word.
    fn sleep(self: &Rc<Self>, kind: &'static str) {
        self.plan(kind);
        self.asleep.set(true);
        let servers = self.cluster.servers.iter().map(|s| s.node);
        let nodes: Vec<NodeId> = servers
            .chain(self.workload.machines.iter().map(|m| m.node))
            .collect();
        let held = self.sim().deferrals.get();
        for node in &nodes {
            self.sim().pause(*node);
            self.paused.borrow_mut().entry(*node).or_insert("pause");
        }
        let hours = 3_600 * SEC + self.below(2 * 3_600 * SEC);
        self.slept.set(hours);
        self.later(hours, move |me| {
            me.asleep.set(false);
            me.felt(kind, me.sim().deferrals.get() > held);
            for node in nodes {
                let delay = me.duration(200 * MS, 5 * SEC);
                me.later(delay, move |me| me.resume(node));
            }
        });
    }

    pub(crate) fn downtime(&self) -> Time {
        MS + self.duration(60 * MS, 6 * SEC)
    }

    fn kill(self: &Rc<Self>, kind: &'static str, how: Death) {
        let index = self.server();
        let hit = self.cluster.kill(index, how, Some(self.downtime()));
        self.felt(kind, hit.is_some_and(|(open, unsynced)| open + unsynced > 0));
    }

    fn kill_many(self: &Rc<Self>, kind: &'static str, all: bool) {
        let mut felt = false;
        let how = if all || self.below(2) == 0 {
            Death::Power
        } else {
            Death::Kill
        };
        for index in 0..self.cluster.servers.len() {
            if all || self.below(2) == 0 {
                let hit = self.cluster.kill(index, how, Some(self.downtime()));
                felt |= hit.is_some_and(|(open, unsynced)| open + unsynced > 0);
                if hit.is_none() && how == Death::Power {
                    // It was down; its page cache goes too.
                    self.cluster.power_loss(index);
                }
            }
        }
        if all && self.below(2) == 0 {
            self.power_of_clients();
        }
        self.felt(kind, felt);
    }

    /// The clients and the block store were on the same power.
    fn power_of_clients(self: &Rc<Self>) {
        for index in 0..self.workload.machines.len() {
            let node = self.workload.machines[index].node;
            self.resume(node);
            if let Some(life) = self.sim().life(node) {
                life.die(Death::Kill);
                let time = self.duration(50 * MS, 2 * SEC);
                self.later(time, move |me| me.workload.start(index));
            }
        }
        self.cluster.blocks.power_failure();
        self.workload.library.borrow_mut().blocks_lost();
    }

    fn crash_point(self: &Rc<Self>, kind: &'static str) {
        let index = self.server();
        let (point, skip, how) = {
            let mut rng = self.rng.borrow_mut();
            let how = if rng.percent(50) {
                Death::Kill
            } else {
                Death::Power
            };
            (*rng.pick(&Point::ALL), rng.below(12) as u32, how)
        };
        self.cluster.set_downtime(index, Some(self.downtime()));
        self.cluster.servers[index].device.arm(point, skip, how);
        self.later(SEC, move |me| {
            let reached = !me.cluster.servers[index].device.disarm();
            if reached {
                let mut effects = me.cluster.effects.borrow_mut();
                *effects.crash_points.entry(point_name(point)).or_default() += 1;
            }
            me.felt(kind, reached);
        });
    }

    fn crash_in_recovery(self: &Rc<Self>, kind: &'static str) {
        let index = self.server();
        let before = self.cluster.recoveries().died_starting;
        let again = self.downtime();
        let (point, skip, how, by_time) = {
            let mut rng = self.rng.borrow_mut();
            let how = if rng.percent(50) {
                Death::Kill
            } else {
                Death::Power
            };
            (
                *rng.pick(&Point::ALL),
                rng.below(3) as u32,
                how,
                rng.percent(30).then(|| rng.below(3 * MS)),
            )
        };
        let down = self.downtime();
        self.cluster.kill(index, Death::Kill, Some(down));
        match by_time {
            Some(after) => self.later(down + after, move |me| {
                me.cluster.kill(index, how, Some(again));
            }),
            None => self
                .cluster
                .at_next_start(index, move |device| device.arm(point, skip, how)),
        }
        self.later(down + SEC, move |me| {
            me.cluster.servers[index].device.disarm();
            me.felt(kind, me.cluster.recoveries().died_starting > before);
        });
    }

    fn device_error(self: &Rc<Self>, kind: &'static str, what: Failing) {
        let index = self.server();
        let device = self.cluster.servers[index].device.clone();
        self.cluster.set_downtime(index, Some(self.downtime()));
        device.fail_next(what);
        self.later(SEC, move |me| {
            let device = &me.cluster.servers[index].device;
            let met = !device.sound();
            me.felt(kind, met);
            if let (true, Some(life)) = (met, device.failed.get()) {
                me.later(STOP_WITHIN, move |me| me.must_have_stopped(index, life));
            }
        });
    }

    /// After a failed write or sync a server stops; the second call might "succeed" (H103).
    fn must_have_stopped(self: &Rc<Self>, index: usize, life: u64) {
        let node = self.cluster.servers[index].node;
        if self.sim().is_paused(node) {
            return self.later(STOP_WITHIN, move |me| me.must_have_stopped(index, life));
        }
        if self.sim().life(node).is_some_and(|l| l.number == life) {
            self.sim().fail(
                Kind::WrongResult,
                format!(
                    "server {} goes on after its device failed",
                    self.cluster.servers[index].id
                ),
            );
        }
    }

    fn partition(self: &Rc<Self>, kind: &'static str) {
        let servers: Vec<NodeId> = self.cluster.servers.iter().map(|s| s.node).collect();
        let mut all = servers.clone();
        all.extend(self.workload.machines.iter().map(|m| m.node));
        let mut ways = Vec::new();
        {
            let mut rng = self.rng.borrow_mut();
            match kind {
                "one-way cut" => {
                    for _ in 0..rng.range(1, 6) {
                        ways.push((*rng.pick(&all), *rng.pick(&servers)));
                        if rng.percent(50)
                            && let Some(last) = ways.last_mut()
                        {
                            *last = (last.1, last.0);
                        }
                    }
                }
                "isolation" => {
                    let lonely = *rng.pick(&servers);
                    let direction = rng.below(3);
                    for other in all.iter().filter(|n| **n != lonely) {
                        if direction != 1 {
                            ways.push((lonely, *other));
                        }
                        if direction != 0 {
                            ways.push((*other, lonely));
                        }
                    }
                }
                _ => {
                    let side = rng.next();
                    for a in &all {
                        for b in &all {
                            if (side >> a.0 & 1) != (side >> b.0 & 1) {
                                ways.push((*a, *b));
                            }
                        }
                    }
                }
            }
        }
        let before = {
            let mut net = self.sim().net.borrow_mut();
            for (a, b) in &ways {
                net.cut(*a, *b);
            }
            net.counts.cut
        };
        let time = self.duration(150 * MS, 8 * SEC);
        self.later(time, move |me| {
            let felt = {
                let mut net = me.sim().net.borrow_mut();
                for (a, b) in &ways {
                    net.mend(*a, *b);
                }
                net.counts.cut > before
            };
            me.felt(kind, felt);
        });
    }

    fn pause(self: &Rc<Self>, kind: &'static str, long: bool) {
        let node = {
            let mut rng = self.rng.borrow_mut();
            if rng.percent(75) {
                rng.pick(&self.cluster.servers).node
            } else {
                rng.pick(&self.workload.machines).node
            }
        };
        if self.sim().is_paused(node) || self.sim().life(node).is_none() {
            return;
        }
        let time = if long {
            10 * SEC + self.below(90 * SEC)
        } else {
            self.duration(100 * MS, 5 * SEC)
        };
        self.sim().pause(node);
        self.paused.borrow_mut().insert(node, kind);
        self.later(time, move |me| me.resume(node));
    }

    /// A machine stands still for a while, unless it does already.
    pub(crate) fn stand_still(self: &Rc<Self>, node: NodeId, time: Time) {
        if self.stopped.get() || self.sim().is_paused(node) || self.sim().life(node).is_none() {
            return;
        }
        self.sim().pause(node);
        self.paused.borrow_mut().insert(node, "pause");
        self.later(time, move |me| me.resume(node));
    }

    fn resume(&self, node: NodeId) {
        // Nobody wakes up before the others.
        if self.asleep.get() {
            return;
        }
        let kind = self.paused.borrow_mut().remove(&node);
        if self.sim().is_paused(node) {
            let held = self.sim().resume(node);
            self.felt(kind.unwrap_or("pause"), held > 0);
        }
    }

    fn clock_step(self: &Rc<Self>, kind: &'static str) {
        let index = self.server();
        let node = self.cluster.servers[index].node;
        let by = {
            let mut rng = self.rng.borrow_mut();
            let most = *rng.pick(&[10 * MS, SEC, 3600 * SEC, 10 * 24 * 3600 * SEC]);
            i128::from(rng.below(2 * most)) - i128::from(most)
        };
        self.sim().step_clock(node, by);
        let before = self.cluster.judge().executions_of(self.cluster.servers[index].id);
        let back = self.below(2) == 0;
        let time = self.duration(500 * MS, 5 * SEC);
        self.later(time, move |me| {
            let after = me.cluster.judge().executions_of(me.cluster.servers[index].id);
            if back {
                me.sim().step_clock(node, -by);
            }
            me.felt(kind, after > before);
        });
    }

    fn full_disk(self: &Rc<Self>, kind: &'static str) {
        let index = self.server();
        let server = &self.cluster.servers[index];
        let reserve = self.cluster.settings.limits.reserve_bytes;
        server.device.set_low(Some(self.below(reserve)));
        self.cluster.judge().space_low(server.id, Time::MAX);
        let before = self.cluster.judge().refused_for_space();
        let time = self.duration(400 * MS, 5 * SEC);
        self.later(time, move |me| {
            let server = &me.cluster.servers[index];
            server.device.set_low(None);
            // A measurement may be believed for a while, by a server that is paused meanwhile too.
            me.cluster.judge().space_low(server.id, me.sim().now() + 5 * SEC);
            me.felt(kind, me.cluster.judge().refused_for_space() > before);
        });
    }

    fn slow_disk(self: &Rc<Self>, kind: &'static str) {
        let index = self.server();
        let device = self.cluster.servers[index].device.clone();
        let before = device.slow_reads.get();
        let slow = Speed {
            sync_base: 2 * MS + self.below(20 * MS),
            sync_jitter: self.below(50 * MS),
            misses: 50_000 + self.below(300_000),
            miss_max: MS + self.below(20 * MS),
        };
        device.set_speed(slow);
        let time = self.duration(300 * MS, 3 * SEC);
        let normal = self.cluster.settings.speed;
        self.later(time, move |me| {
            let device = &me.cluster.servers[index].device;
            device.set_speed(normal);
            me.felt(kind, device.slow_reads.get() > before);
        });
    }

    fn storm(self: &Rc<Self>, kind: &'static str) {
        let before = {
            let mut rng = self.rng.borrow_mut();
            let mut storm = Conditions::rough(&mut rng);
            storm.loss *= 12;
            storm.duplicate *= 12;
            storm.breaks *= 20;
            storm.spike *= 5;
            let mut net = self.sim().net.borrow_mut();
            net.conditions = storm;
            net.counts
        };
        let time = self.duration(200 * MS, 3 * SEC);
        self.later(time, move |me| {
            let after = {
                let mut net = me.sim().net.borrow_mut();
                net.conditions = if me.stopped.get() {
                    Conditions::calm()
                } else {
                    me.weather.clone()
                };
                net.counts
            };
            me.felt(kind, after.lost + after.breaks > before.lost + before.breaks);
        });
    }

    fn client_crash(self: &Rc<Self>, kind: &'static str) {
        let index = self.below(self.workload.machines.len() as u64) as usize;
        let node = self.workload.machines[index].node;
        let Some(life) = self.sim().life(node) else { return };
        let waiting = self.workload.is_waiting(index);
        if self.sim().is_paused(node) {
            self.sim().resume(node);
        }
        life.die(Death::Kill);
        self.felt(kind, waiting);
        let time = self.duration(50 * MS, 2 * SEC);
        self.later(time, move |me| me.workload.start(index));
    }

    /// One server does not reach coordination.
    fn coordination_cut(self: &Rc<Self>, kind: &'static str) {
        let (service, node) = (
            self.cluster.coord.clone(),
            self.cluster.servers[self.server()].node,
        );
        let before = service.unanswered();
        service.set_cut(node, true);
        let time = self.duration(3 * SEC, 20 * SEC);
        self.later(time, move |me| {
            service.set_cut(node, false);
            me.felt(kind, service.unanswered() > before);
        });
    }

    /// None does.
    fn coordination_away(self: &Rc<Self>, kind: &'static str) {
        let service = self.cluster.coord.clone();
        let before = service.unanswered();
        service.set_away(true);
        let time = self.duration(3 * SEC, 20 * SEC);
        self.later(time, move |me| {
            service.set_away(false);
            me.felt(kind, service.unanswered() > before);
        });
    }

    /// Stops every server, moves slots between two of them, and starts all under a new map.
    fn move_slots(self: &Rc<Self>, kind: &'static str) {
        // Where they move while servers run, they do not move otherwise.
        if self.cluster.settings.spares > 0 {
            return;
        }
        self.moving.set(true);
        for index in 0..self.cluster.servers.len() {
            self.cluster.kill(index, Death::Kill, None);
            self.cluster.set_downtime(index, None);
        }
        // Whoever was about to start by an earlier order does so first and is stopped again.
        let (a, b) = (self.server(), self.server());
        let wait = self.downtime();
        self.later(wait, move |me| {
            for index in 0..me.cluster.servers.len() {
                me.cluster.kill(index, Death::Kill, None);
            }
            let share = me.below(100);
            let moved = crate::moving::move_slots(&me.cluster, a, b, share, &mut me.rng.borrow_mut());
            me.felt(kind, moved > 0);
            me.cluster.effects.borrow_mut().slots_moved += moved;
            for index in 0..me.cluster.servers.len() {
                let me2 = me.clone();
                let delay = me.below(50 * MS);
                me.sim().after(delay, move |_| me2.cluster.start(index));
            }
            me.moving.set(false);
        });
    }

    /// Ends every fault: the network is sound, nothing is paused, all disks are good, every server starts.
    pub fn heal(self: &Rc<Self>) {
        self.stop();
        self.asleep.set(false);
        self.sim().note(|| "healing".into());
        {
            let mut net = self.sim().net.borrow_mut();
            net.conditions = Conditions::calm();
            net.mend_all();
        }
        self.cluster.coord.heal();
        {
            let mut aims = self.cluster.aims.borrow_mut();
            aims.give_up();
            aims.late(None);
            aims.keep(None);
        }
        self.sim().let_go(|_| Some(0));
        let now = self.sim().now();
        for index in 0..self.cluster.servers.len() {
            let server = &self.cluster.servers[index];
            self.cluster.disarm(index);
            server.device.sound();
            if server.device.is_low() {
                server.device.set_low(None);
            }
            self.cluster.judge().space_low(server.id, now + 5 * SEC);
            server.device.set_speed(self.cluster.settings.speed);
            self.resume(server.node);
            self.cluster.set_downtime(index, Some(10 * MS));
        }
        for machine in &self.workload.machines {
            self.resume(machine.node);
        }
        if !self.moving.get() {
            for index in 0..self.cluster.servers.len() {
                self.cluster.start(index);
            }
        }
    }
}

fn point_name(point: Point) -> &'static str {
    match point {
        Point::BeforeWrite => "before a write",
        Point::AfterWrite => "after a write",
        Point::BeforeSync => "before a sync",
        Point::DuringSync => "during a sync",
        Point::AfterSync => "after a sync",
    }
}
