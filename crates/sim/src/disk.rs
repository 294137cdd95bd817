//! The disks under the servers: time for syncs and reads, full devices, failures, and crashes at every
//! durable step.

use crate::judge::Judge;
use crate::world::{Death, Life, MS, Sim, Time, US};
use pando_env::Env;
use pando_env::rng::Rng;
use pando_store::{Batch, Disk, DiskFaults, LocalFuture, Lsn, Space};
use pando_types::ServerId;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Size of every simulated device.
pub const DEVICE: u64 = 1 << 40;

/// A durable step before, in or after which a server can crash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Point {
    /// Before a batch is written.
    BeforeWrite,
    /// After a batch was written, before anything else happens.
    AfterWrite,
    /// When a sync is asked for.
    BeforeSync,
    /// While the device syncs.
    DuringSync,
    /// When the device has synced, before anybody is told.
    AfterSync,
}

impl Point {
    /// All of them.
    pub const ALL: [Point; 5] = [
        Point::BeforeWrite,
        Point::AfterWrite,
        Point::BeforeSync,
        Point::DuringSync,
        Point::AfterSync,
    ];
}

/// What fails instead of working.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failing {
    /// The next write.
    Write,
    /// The next sync.
    Sync,
}

#[derive(Clone, Copy)]
struct Armed {
    point: Point,
    skip: u32,
    how: Death,
}

/// How fast a device is.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Smallest time of a sync.
    pub sync_base: Time,
    /// Mean of what comes on top.
    pub sync_jitter: Time,
    /// Reads that miss memory, in a million.
    pub misses: u64,
    /// Longest miss.
    pub miss_max: Time,
}

impl Speed {
    /// A good device, differently good in each seed.
    pub fn good(rng: &mut Rng) -> Speed {
        Speed {
            sync_base: 30 * US + rng.below(200 * US),
            sync_jitter: rng.below(500 * US),
            misses: rng.below(20_000),
            miss_max: 100 * US + rng.below(2 * MS),
        }
    }
}

/// One server's device. Survives the server.
pub struct Device {
    /// Whose.
    pub server: ServerId,
    /// What is on it.
    pub disk: Disk,
    speed: Cell<Speed>,
    rng: RefCell<Rng>,
    armed: Cell<Option<Armed>>,
    failing: Cell<Option<Failing>>,
    /// Bytes left, when the device is short of space.
    low: Cell<Option<u64>>,
    /// Misses that were waited for.
    pub slow_reads: Cell<u64>,
    /// A failure was reported to this incarnation of the server.
    pub failed: Cell<Option<u64>>,
    /// Crash points that were reached, for the report.
    pub crashes: RefCell<Vec<(Point, Death)>>,
    judge: RefCell<Option<Rc<Judge>>>,
}

impl Device {
    /// An empty one.
    pub fn new(server: ServerId, speed: Speed, rng: Rng) -> Rc<Device> {
        Rc::new(Device {
            server,
            disk: Disk::new(),
            speed: Cell::new(speed),
            rng: RefCell::new(rng),
            armed: Cell::new(None),
            failing: Cell::new(None),
            low: Cell::new(None),
            slow_reads: Cell::new(0),
            failed: Cell::new(None),
            crashes: RefCell::default(),
            judge: RefCell::new(None),
        })
    }

    /// From now on the judge hears what happens here.
    pub fn watched_by(&self, judge: Rc<Judge>) {
        *self.judge.borrow_mut() = Some(judge);
    }

    fn judge(&self) -> Option<Rc<Judge>> {
        self.judge.borrow().clone()
    }

    /// Makes it faster or slower.
    pub fn set_speed(&self, speed: Speed) {
        self.speed.set(speed);
    }

    /// The server crashes at this point, the `skip + 1`st time it is reached.
    pub fn arm(&self, point: Point, skip: u32, how: Death) {
        self.armed.set(Some(Armed { point, skip, how }));
    }

    /// No crash point any more. Whether one was armed and not reached.
    pub fn disarm(&self) -> bool {
        self.armed.take().is_some()
    }

    /// The next write or sync fails.
    pub fn fail_next(&self, what: Failing) {
        self.failing.set(Some(what));
    }

    /// No failure any more. Whether one was set and not met.
    pub fn sound(&self) -> bool {
        self.failing.take().is_some()
    }

    /// Leaves so many bytes; `None` is plenty.
    pub fn set_low(&self, bytes: Option<u64>) {
        self.low.set(bytes);
    }

    /// Whether it is short of space.
    pub fn is_low(&self) -> bool {
        self.low.get().is_some()
    }

    /// Whether the server dies here.
    fn reached(&self, point: Point) -> Option<Death> {
        let armed = self.armed.get()?;
        if armed.point != point {
            return None;
        }
        if armed.skip > 0 {
            self.armed.set(Some(Armed {
                skip: armed.skip - 1,
                ..armed
            }));
            return None;
        }
        self.armed.set(None);
        self.crashes.borrow_mut().push((point, armed.how));
        Some(armed.how)
    }
}

/// A device as one incarnation of its server has it open.
pub struct OpenDevice {
    device: Rc<Device>,
    life: Rc<Life>,
}

impl OpenDevice {
    /// Opens it for a process.
    pub fn new(device: Rc<Device>, life: Rc<Life>) -> OpenDevice {
        OpenDevice { device, life }
    }

    fn sim(&self) -> &Rc<Sim> {
        self.life.sim()
    }

    /// Whether this is what was to fail.
    fn fails(&self, what: Failing) -> bool {
        let fails = self.device.failing.get() == Some(what);
        if fails {
            self.device.failing.set(None);
            self.device.failed.set(Some(self.life.number));
            self.sim()
                .note(|| format!("    {what:?} of server {} fails", self.device.server));
        }
        fails
    }
}

impl DiskFaults for OpenDevice {
    fn read_delay(&self) -> Option<(LocalFuture<()>, LocalFuture<()>)> {
        let speed = self.device.speed.get();
        let mut rng = self.device.rng.borrow_mut();
        if !rng.ppm(speed.misses) {
            return None;
        }
        self.device.slow_reads.set(self.device.slow_reads.get() + 1);
        // What was read is old when it comes (H129).
        let mut part = || Duration::from_nanos(rng.below(speed.miss_max / 2));
        let (before, after, life) = (part(), part(), self.life.clone());
        let after = Box::pin(async move { life.sleep(after).await });
        Some((self.life.sleep(before), after))
    }

    fn sync(&self) -> LocalFuture<Result<(), String>> {
        if let Some(how) = self.device.reached(Point::BeforeSync) {
            self.life.die(how);
            return Box::pin(std::future::pending());
        }
        let speed = self.device.speed.get();
        let delay = {
            let mut rng = self.device.rng.borrow_mut();
            speed.sync_base + rng.skewed(speed.sync_jitter)
        };
        if let Some(how) = self.device.reached(Point::DuringSync) {
            let life = self.life.clone();
            self.sim().after(delay / 2, move |_| life.die(how));
        }
        let timer = self.life.sleep(Duration::from_nanos(delay));
        if self.fails(Failing::Sync) {
            return Box::pin(async move {
                timer.await;
                Err("fsync: input/output error".into())
            });
        }
        Box::pin(async move {
            timer.await;
            Ok(())
        })
    }

    fn write(&self, _batch: &Batch) -> Result<(), String> {
        if !self.life.alive() {
            return Err("the process is dead".into());
        }
        if let Some(how) = self.device.reached(Point::BeforeWrite) {
            self.life.die(how);
            return Err("the process is dead".into());
        }
        match self.fails(Failing::Write) {
            true => Err("write: input/output error".into()),
            false => Ok(()),
        }
    }

    fn space(&self) -> Space {
        Space {
            total: DEVICE,
            available: self.device.low.get().unwrap_or(DEVICE / 2),
            device: 0,
        }
    }

    fn applied(&self, lsn: Lsn, batch: &Batch) {
        self.sim()
            .trace
            .borrow_mut()
            .event(self.sim().now(), 6, self.life.number, lsn.0);
        if let Some(judge) = self.device.judge() {
            judge.applied(self.device.server, lsn, batch);
        }
        if let Some(how) = self.device.reached(Point::AfterWrite) {
            self.life.die(how);
        }
    }

    fn synced(&self, lsn: Lsn) {
        self.sim()
            .trace
            .borrow_mut()
            .event(self.sim().now(), 7, self.life.number, lsn.0);
        self.sim()
            .note(|| format!("    S{} is synced to @{}", self.device.server, lsn.0));
        if let Some(judge) = self.device.judge() {
            judge.synced(self.device.server, lsn);
        }
        if let Some(how) = self.device.reached(Point::AfterSync) {
            self.life.die(how);
        }
    }
}
