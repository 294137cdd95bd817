//! Publishes in the background what was written to files that stay open.
//!
//! A file is listed when it becomes dirty, and published when its time has come, beside its writer
//! (`pando_client::file::Underway`). What fails is tried again, less and less often; close and fsync try it
//! too, and tell why.

use crate::core::Core;
use crate::driver::{self, Cluster, Driver};
use crate::join::some;
use crate::locks::Held;
use crate::open::{FileHandle, FileSlot, FileState};
use pando_client::file::{OpenFile, Ops, Turn};
use pando_types::{Cred, Errno};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Files that are published at the same time: those of a server that is away leave room for others.
const AT_ONCE: usize = 256;
/// How often the list is looked at while a publish is under way.
const LOOK: Duration = Duration::from_millis(20);
/// A publish that fails is tried again after so many times the usual, at most.
const RARELY: u32 = 16;

/// A file that is to be published.
struct Listed {
    /// The handle that wrote first, and whose user it is.
    handle: Weak<FileHandle>,
    slot: Weak<FileSlot>,
    /// How often it failed.
    failures: u32,
    /// It is on the list because attributes wait, and for nothing else.
    attributes: bool,
}

#[derive(Default)]
struct List {
    /// By when they are due, and in order.
    due: BTreeMap<(Instant, u64), Listed>,
    next: u64,
    over: bool,
}

/// Dirty files of a mount, and when they are published.
pub(crate) struct Publisher {
    /// How long after the first write; `None`: at close and fsync alone.
    after: Option<Duration>,
    list: Mutex<List>,
    wake: Condvar,
}

impl Publisher {
    /// `within`: so long after it was written everything is published; zero: at close and fsync alone.
    pub fn new(within: Duration) -> Publisher {
        Publisher {
            // The rest is for the publish itself.
            after: (!within.is_zero()).then(|| within * 3 / 4),
            list: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was written through `handle`.
    pub fn wrote(&self, handle: &Arc<FileHandle>, state: &mut FileState) {
        let Some(after) = self.after.filter(|_| !state.listed) else {
            return;
        };
        state.listed = true;
        let listed = Listed {
            handle: Arc::downgrade(handle),
            slot: Arc::downgrade(&handle.slot),
            failures: 0,
            attributes: false,
        };
        self.put(Instant::now() + after, listed);
    }

    /// Whether what waits is told after so long.
    pub fn comes_within(&self, timeout: Duration) -> bool {
        self.after.is_some() && !timeout.is_zero()
    }

    /// Attributes of a file wait, for no longer than this.
    pub fn put_off(&self, slot: &Arc<FileSlot>, timeout: Duration) {
        let listed = Listed {
            handle: Weak::new(),
            slot: Arc::downgrade(slot),
            failures: 0,
            attributes: true,
        };
        self.put(Instant::now() + timeout * 3 / 4, listed);
    }

    fn put(&self, due: Instant, listed: Listed) {
        let mut list = self.lock();
        let number = list.next;
        list.next += 1;
        let first = list.due.first_key_value().is_none_or(|(at, _)| due < at.0);
        list.due.insert((due, number), listed);
        drop(list);
        if first {
            self.wake.notify_one();
        }
    }

    /// It is still, or again, to be published.
    fn put_again(&self, begun: Instant, listed: Listed) {
        let times = 1 << listed.failures.min(RARELY.ilog2());
        let after = self.after.unwrap_or_default() * times;
        self.put(begun + after, listed);
    }

    /// Files whose time has come.
    fn due(&self, most: usize) -> Vec<Listed> {
        let mut list = self.lock();
        let now = Instant::now();
        let mut due = Vec::new();
        while due.len() < most
            && let Some(first) = list.due.first_entry()
            && first.key().0 <= now
        {
            due.push(first.remove());
        }
        due
    }

    /// Waits until a file is due. False: it is over.
    fn wait(&self) -> bool {
        let mut list = self.lock();
        while !list.over {
            let first = list.due.first_key_value().map(|((due, _), _)| *due);
            let left = first.map(|due| due.saturating_duration_since(Instant::now()));
            list = match left {
                Some(Duration::ZERO) => return true,
                Some(left) => self
                    .wake
                    .wait_timeout(list, left)
                    .map_or_else(|e| e.into_inner().0, |(l, _)| l),
                None => self.wake.wait(list).unwrap_or_else(PoisonError::into_inner),
            };
        }
        false
    }

    /// Ends the thread, when what is under way has ended.
    pub fn stop(&self) {
        self.lock().over = true;
        self.wake.notify_all();
    }
}

type Going = Vec<Pin<Box<dyn Future<Output = ()>>>>;

/// Starts the thread that publishes, as long as the mount is there.
pub(crate) fn start<C: Cluster>(core: &Arc<Core<C>>) -> std::io::Result<()> {
    if core.publisher.after.is_none() {
        return Ok(());
    }
    let (publisher, core) = (core.publisher.clone(), Arc::downgrade(core));
    let publish = move || {
        let mut going: Going = Vec::new();
        while !going.is_empty() || publisher.wait() {
            let Some(core) = core.upgrade() else { return };
            match driver::of(core.id, &*core.cluster) {
                Ok(driver) => step(&core, &driver, &mut going),
                // It has been said why. The files are closed some time.
                Err(_) => std::thread::sleep(LOOK * 50),
            }
        }
    };
    std::thread::Builder::new()
        .name("pando-publish".into())
        .spawn(publish)
        .map(drop)
}

/// Begins what is due, and goes on with everything until something has ended, or for a while.
fn step<C: Cluster>(core: &Arc<Core<C>>, driver: &Rc<C::Driver>, going: &mut Going) {
    for listed in core.publisher.due(AT_ONCE.saturating_sub(going.len())) {
        let Some(slot) = listed.slot.upgrade() else {
            continue;
        };
        let handle = listed.handle.upgrade();
        match handle.as_ref().map_or(Held::Yes, |handle| core.held(handle)) {
            Held::Yes => {
                let cred = handle.map_or_else(|| driver.ops().own(), |handle| handle.cred.clone());
                let publish = Publish {
                    core: core.clone(),
                    driver: driver.clone(),
                    cred,
                    slot,
                    listed,
                };
                going.push(Box::pin(publish.run()));
            }
            // Whether it may be published will be known soon.
            Held::Doubt => core.publisher.put(Instant::now() + LOOK, listed),
            Held::Lost => {
                let mut state = slot.write();
                if let Some(handle) = handle {
                    core.forget_changes(driver, &handle, &mut state);
                }
                state.listed = false;
            }
        }
    }
    driver.run(some(going, driver.world().sleep(LOOK)));
}

/// A publish of one file.
struct Publish<C: Cluster> {
    core: Arc<Core<C>>,
    driver: Rc<C::Driver>,
    cred: Cred,
    slot: Arc<FileSlot>,
    listed: Listed,
}

impl<C: Cluster> Publish<C> {
    async fn run(mut self) {
        let slot = self.slot.clone();
        let _publishing = slot.publishing().await;
        let begun = Instant::now();
        let done = self.publish().await;
        let mut state = slot.beside().await;
        match done {
            Ok(()) => self.listed.failures = 0,
            Err(e) => {
                if self.listed.failures == 0 {
                    let ino = state.open.as_ref().map_or(0, |f| f.key().ino.0);
                    tracing::warn!(ino, "writes were not published, and will be tried again: {e}");
                }
                self.listed.failures += 1;
            }
        }
        let again = if self.listed.attributes {
            state.open.as_ref().is_some_and(OpenFile::waits)
        } else {
            state.listed = state.open.as_ref().is_some_and(OpenFile::is_dirty);
            state.listed
        };
        if again {
            self.core.publisher.put_again(begun, self.listed);
        }
    }

    async fn publish(&self) -> Result<(), Errno> {
        let (ops, blocks) = (self.driver.ops(), self.driver.blocks());
        let underway = {
            let mut state = self.slot.beside().await;
            let Some(f) = &mut state.open else { return Ok(()) };
            // Together, and nobody writes meanwhile: it is small.
            if f.waits() {
                return f.end_waiting(ops, blocks).await;
            }
            if self.listed.attributes {
                return Ok(());
            }
            if f.needs_turn(ops.inline_limit()) {
                let turn = f.turn();
                drop(state);
                return self.publish_tail(turn.await?).await;
            }
            f.begin_publish(blocks, &self.cred).await?
        };
        let Some(underway) = underway else { return Ok(()) };
        let published = underway.send(ops, blocks).await;
        let mut state = self.slot.beside().await;
        let Some(f) = &mut state.open else { return Ok(()) };
        match f.end_publish(published) {
            // Another mount has published: both are put together.
            Err(Errno::Busy) => {
                let flushed = f.flush(ops, blocks, &self.cred).await;
                self.core.merged(f);
                flushed
            }
            done => done,
        }
    }

    /// Publishes what was appended to blocks. Nobody writes meanwhile.
    async fn publish_tail(&self, turn: Box<dyn Turn>) -> Result<(), Errno> {
        let (ops, blocks) = (self.driver.ops(), self.driver.blocks());
        let mut state = self.slot.beside().await;
        let Some(f) = &mut state.open else { return Ok(()) };
        let flushed = f.flush_in(Some(turn), ops, blocks, &self.cred).await;
        self.core.merged(f);
        flushed
    }
}
