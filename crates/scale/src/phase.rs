//! What all clients do together, and what comes of it. Every client does one thing after the other, without a
//! pause, until enough has been done by all; what is counted lies between the time when each has had its
//! first answers and the end.

use crate::cluster::{Cluster, Setup};
use crate::latencies::Latencies;
use crate::tree;
use crate::worker::{Phase, Worker};
use crate::world::{Busy, Time};
use pando_client::explain::Explained;
use pando_env::Env;
use pando_env::rng::Rng;
use pando_types::Cred;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Longest virtual time of a phase.
const PATIENCE: Duration = Duration::from_secs(3600);
/// All clients begin within this time.
const STAGGER: Time = 1_000_000;
/// Operations of each client before anything is counted.
const WARM: u64 = 2;

/// What a phase gave.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which.
    pub phase: Phase,
    /// Operations that were counted. All succeeded, or there is no result.
    pub ops: u64,
    /// Virtual seconds in which they ended.
    pub seconds: f64,
    /// Of each, in microseconds of virtual time.
    pub mean_us: f64,
    /// Half took no longer.
    pub p50_us: f64,
    /// All but one in a hundred took no longer.
    pub p99_us: f64,
    /// Messages that a client waited for, per operation.
    pub round_trips: f64,
    /// Messages that servers sent each other, per operation.
    pub between: f64,
    /// Share of the time that each server's processor worked.
    pub busy: Vec<f64>,
    /// Processor time of all servers per operation, in microseconds.
    pub cpu_us: f64,
    /// Of it, the share whose kind the calibration does not know.
    pub unknown: f64,
    /// Of each kind of message, how many all servers were sent per operation, and what they took, in
    /// microseconds.
    pub kinds: BTreeMap<&'static str, (f64, f64)>,
}

impl Measured {
    /// Operations per virtual second.
    pub fn rate(&self) -> f64 {
        self.ops as f64 / self.seconds
    }

    /// The least busy server.
    pub fn least_busy(&self) -> f64 {
        self.busy.iter().copied().fold(1.0, f64::min)
    }
}

/// What all clients of a phase share.
#[derive(Default)]
struct Stage {
    done: Cell<u64>,
    enough: Cell<bool>,
    /// Of those that are counted, in nanoseconds.
    latencies: RefCell<Vec<Time>>,
    counting: Cell<bool>,
}

/// Where everything stands at one instant.
struct Mark {
    at: Time,
    done: u64,
    busy: Vec<Busy>,
    round_trips: u64,
    between: u64,
}

/// A cluster with its tree and clients, phase by phase.
pub struct Crowd {
    cluster: Rc<Cluster>,
    workers: Vec<Rc<Worker>>,
    rng: RefCell<Rng>,
}

impl Crowd {
    /// Starts it all and makes the tree.
    pub fn start(setup: &Setup) -> Result<Crowd, String> {
        let cluster = Cluster::start(setup)?;
        tree::make(&cluster, setup.files)?;
        let clients = cluster.programs.len();
        let programs = cluster.programs.iter().enumerate();
        let workers: Vec<Rc<Worker>> = programs
            .map(|(n, program)| Rc::new(Worker::new(n, clients, program, setup.files)))
            .collect();
        let crowd = Crowd {
            cluster,
            workers,
            rng: RefCell::new(Rng::new(setup.seed).fork(0)),
        };
        // Each knows the directories it works in.
        crowd.cluster.all_do(|number, _| {
            let worker = crowd.workers[number].clone();
            Box::pin(async move {
                for parent in &worker.parents {
                    let found = worker.client().dir(&Cred::root(), parent).await;
                    found.map_err(|e| e.to_string())?;
                }
                Ok(())
            })
        })?;
        Ok(crowd)
    }

    /// Puts new clients in the place of those there were, with caches of another size, in which nothing is
    /// yet.
    pub fn renew_clients(&self, cache_bytes: usize) -> Result<(), String> {
        self.cluster.renew_clients(cache_bytes)?;
        for (worker, program) in self.workers.iter().zip(&self.cluster.programs) {
            worker.renew(program);
        }
        Ok(())
    }

    /// The first client does it so many times, and tells what each took.
    pub fn explain(&self, phase: Phase, times: usize) -> Result<Vec<Explained>, String> {
        let all: Rc<RefCell<Vec<Explained>>> = Rc::default();
        self.cluster.all_do(|number, _| {
            let (worker, all) = (self.workers[number].clone(), all.clone());
            Box::pin(async move {
                if number > 0 {
                    return Ok(());
                }
                for _ in 0..times {
                    let client = worker.client();
                    let (done, explained) = client.explain(worker.act(phase)).await;
                    done.map_err(|e| format!("{}: {e}", phase.name()))?;
                    all.borrow_mut().extend(explained);
                }
                Ok(())
            })
        })?;
        let all = all.borrow().clone();
        Ok(all)
    }

    /// Its servers and clients.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// How many halves of directories were given to another server.
    pub fn splits(&self) -> u64 {
        self.cluster.splits()
    }

    /// Nobody does anything for so long: servers end what they do by themselves.
    pub fn rest(&self, time: Duration) -> Result<(), String> {
        self.cluster.all_do(|_, program| {
            let process = program.process.clone();
            Box::pin(async move {
                process.sleep(time).await;
                Ok(())
            })
        })
    }

    /// Events so far: what it cost this machine.
    pub fn events(&self) -> u64 {
        self.cluster.world.events()
    }

    /// Does something to everything there is to do it to, so many times each at most, and counts nothing.
    pub fn prepare(&self, phase: Phase, each: u64) -> Result<(), String> {
        self.cluster.all_do(|number, _| {
            let worker = self.workers[number].clone();
            Box::pin(async move {
                for _ in 0..each {
                    if !worker.can(phase) {
                        break;
                    }
                    let done = worker.act(phase).await;
                    done.map_err(|e| format!("{}: {e}", phase.name()))?;
                }
                Ok(())
            })
        })
    }

    /// Looks at one file of each directory, at times that are spread evenly over `span`: what clients know by
    /// leases is then of every age, as it is in the long run.
    pub fn age(&self, span: Duration) -> Result<(), String> {
        let mut rng = self.rng.borrow_mut();
        let span = span.as_nanos() as Time;
        let mut times = |n: u64| {
            let mut all: Vec<Time> = (0..n).map(|_| rng.below(span)).collect();
            all.sort_unstable();
            all
        };
        let plans: Vec<Vec<Time>> = (self.workers.iter().map(|w| times(w.dirs_made()))).collect();
        self.cluster.all_do(|number, program| {
            let (worker, process) = (self.workers[number].clone(), program.process.clone());
            let plan = plans[number].clone();
            Box::pin(async move {
                let mut at = 0;
                for time in plan {
                    process.sleep(Duration::from_nanos(time - at)).await;
                    at = time;
                    let done = worker.act(Phase::Stat).await;
                    done.map_err(|e| format!("stat: {e}"))?;
                }
                Ok(())
            })
        })
    }

    fn mark(&self, stage: &Stage) -> Mark {
        Mark {
            at: self.cluster.world.now(),
            done: stage.done.get(),
            busy: self.cluster.busy(),
            round_trips: self.cluster.round_trips(),
            between: self.cluster.counted(|s| s.peer_calls + s.settles),
        }
    }

    /// All clients do it for so many steps of time; how many ended in each.
    pub fn timeline(&self, phase: Phase, step: Duration, steps: usize) -> Result<Vec<u64>, String> {
        let step = (step.as_nanos() as Time).max(1);
        let bins = Rc::new(RefCell::new(vec![0u64; steps]));
        let left = Rc::new(Cell::new(self.workers.len()));
        let start = self.cluster.world.now();
        for (program, worker) in self.cluster.programs.iter().zip(&self.workers) {
            let (worker, bins, left) = (worker.clone(), bins.clone(), left.clone());
            let world = self.cluster.world.clone();
            program.process.begin(Box::pin(async move {
                loop {
                    if let Err(e) = worker.act(phase).await {
                        return world.fail(|| format!("client {}: {}: {e}", worker.number, phase.name()));
                    }
                    let bin = ((world.now() - start) / step) as usize;
                    match bins.borrow_mut().get_mut(bin) {
                        Some(count) => *count += 1,
                        None => break,
                    }
                }
                left.set(left.get() - 1);
            }));
        }
        self.cluster.world.run_until(PATIENCE, || left.get() == 0)?;
        let bins = bins.borrow().clone();
        Ok(bins)
    }

    /// All clients do it; `ops` are counted. Those that have nothing left to do it to stop.
    pub fn run(&self, phase: Phase, ops: u64) -> Result<Measured, String> {
        let stage = Rc::new(Stage::default());
        let left = Rc::new(Cell::new(self.workers.len()));
        for (program, worker) in self.cluster.programs.iter().zip(&self.workers) {
            let (worker, stage, left) = (worker.clone(), stage.clone(), left.clone());
            let (process, world) = (program.process.clone(), self.cluster.world.clone());
            let begin = self.rng.borrow_mut().below(STAGGER);
            program.process.begin(Box::pin(async move {
                process.sleep(Duration::from_nanos(begin)).await;
                while !stage.enough.get() && worker.can(phase) {
                    let began = world.now();
                    if let Err(e) = worker.act(phase).await {
                        return world.fail(|| format!("client {}: {}: {e}", worker.number, phase.name()));
                    }
                    stage.done.set(stage.done.get() + 1);
                    if stage.counting.get() {
                        stage.latencies.borrow_mut().push(world.now() - began);
                    }
                }
                left.set(left.get() - 1);
            }));
        }
        let warm = WARM * self.workers.len() as u64;
        let executed = self.cluster.counted(|s| s.operations);
        let world = &self.cluster.world;
        world.run_until(PATIENCE, || stage.done.get() >= warm || left.get() == 0)?;
        stage.counting.set(true);
        let before = self.mark(&stage);
        world.run_until(PATIENCE, || stage.done.get() >= warm + ops || left.get() == 0)?;
        let after = self.mark(&stage);
        stage.counting.set(false);
        stage.enough.set(true);
        world.run_until(PATIENCE, || left.get() == 0)?;
        let executed = self.cluster.counted(|s| s.operations) - executed;
        if after.done - before.done < ops {
            let (name, done) = (phase.name(), after.done);
            return Err(format!("{name}: there was nothing left to do it to after {done}"));
        }
        if executed < stage.done.get() {
            let done = stage.done.get();
            return Err(format!(
                "the servers executed {executed} operations, and the clients believe in {done}"
            ));
        }
        Ok(measured(
            phase,
            &before,
            &after,
            Latencies::of(stage.latencies.take()),
        ))
    }
}

fn measured(phase: Phase, before: &Mark, after: &Mark, latencies: Latencies) -> Measured {
    let ops = after.done - before.done;
    let time = (after.at - before.at).max(1);
    let us = |ns: Time| ns as f64 / 1e3;
    let worked: Vec<(Time, Time)> = (before.busy.iter().zip(&after.busy))
        .map(|(b, a)| (a.total - b.total, a.unknown - b.unknown))
        .collect();
    let total: Time = worked.iter().map(|(total, _)| total).sum();
    let unknown: Time = worked.iter().map(|(_, unknown)| unknown).sum();
    let each = |n: u64| n as f64 / ops.max(1) as f64;
    let mut kinds: BTreeMap<&'static str, (f64, f64)> = BTreeMap::new();
    for (before, after) in before.busy.iter().zip(&after.busy) {
        for (kind, (count, time)) in &after.kinds {
            let (earlier, spent) = before.kinds.get(kind).copied().unwrap_or_default();
            let of = kinds.entry(*kind).or_default();
            *of = (of.0 + each(count - earlier), of.1 + each(time - spent) / 1e3);
        }
    }
    kinds.retain(|_, (count, _)| *count > 0.0);
    Measured {
        phase,
        ops,
        seconds: time as f64 / 1e9,
        mean_us: latencies.mean,
        p50_us: latencies.p50,
        p99_us: latencies.p99,
        round_trips: each(after.round_trips - before.round_trips),
        between: each(after.between - before.between),
        busy: worked
            .iter()
            .map(|(total, _)| *total as f64 / time as f64)
            .collect(),
        cpu_us: us(total) / ops.max(1) as f64,
        unknown: unknown as f64 / total.max(1) as f64,
        kinds,
    }
}
