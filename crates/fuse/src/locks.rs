//! Locks of programs: from the kernel to the servers.
//!
//! All that is asked about locks goes through one thread, which has the mount's [`Locker`] and waits for
//! nobody: what takes its time is answered when it is known. A few others bring what the mount knows of a
//! file up to date before a lock is granted: under a lock a program sees what the last holder wrote. What was
//! written is published before a lock is given up.

use crate::calls;
use crate::core::Core;
use crate::driver::{Cluster, Driver};
use crate::later::later;
use crate::open::FileHandle;
use foldhash::{HashMap, HashSet};
use pando_client::file::Ops;
use pando_client::locks::{LockError, LockWish, Lockable, Locker, Signs};
use pando_env::sync::{Either, Receiver, Sender, first, oneshot};
use pando_types::{Errno, Generation, Hold, Ino, LockFamily, Span};
use pando_wire::{LockPlace, LockView};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a mount that has locks gives signs of life: so soon it notices that a server has started again,
/// and others wait so long for it to say what it holds.
const PERIOD: Duration = Duration::from_secs(2);
/// A close does not wait longer for a server that is away. The locks are given up all the same, as soon as it
/// is back.
const CLOSING: Duration = Duration::from_secs(5);
/// Servers end the session of a mount after 60 seconds of silence, and give its locks to others. Before that
/// it acts under none of them, and what is under way needs time.
const SILENT: Duration = Duration::from_secs(52);
/// So long a call waits to hear whether the locks are lost.
const DOUBT: Duration = Duration::from_secs(5);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(50);
/// Threads that look what was written by others: so many files' servers may be away before the rest waits for
/// them.
const LOOKING: usize = 4;
/// Signals that came before their calls are remembered, so many.
const EARLY: usize = 256;

/// Called with what became of a request.
type Done<T> = Box<dyn FnOnce(Result<T, LockError>) + Send>;
/// Somebody in the way, and whether on this mount.
pub(crate) type InTheWay = Option<(LockView, bool)>;

enum Job {
    Set {
        /// The kernel's number of the request.
        unique: u64,
        wish: LockWish,
        wait: bool,
        /// What was written under it could not be published.
        unpublished: Option<Errno>,
        done: Done<()>,
    },
    Test {
        unique: u64,
        wish: LockWish,
        done: Done<InTheWay>,
    },
    /// A mount's turn to append: taken, or given up.
    Turn {
        wish: LockWish,
        done: Done<()>,
    },
    /// A signal came for whoever waits for this request.
    Interrupt(u64),
    Stop,
}

/// Jobs from any thread, for a future of one.
#[derive(Default)]
struct Queue(Mutex<(VecDeque<Job>, Option<Waker>)>);

impl Queue {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Job>, Option<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, job: Job) {
        let waker = {
            let mut queue = self.lock();
            queue.0.push_back(job);
            queue.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn next(&self) -> Job {
        poll_fn(|cx| {
            let mut queue = self.lock();
            match queue.0.pop_front() {
                Some(job) => Poll::Ready(job),
                None => {
                    queue.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

type Owners = Arc<Mutex<BTreeSet<LockPlace>>>;
type Task<C> = Box<dyn FnOnce(&Core<C>) + Send>;

/// The locks of a mount.
pub(crate) struct Locks {
    queue: Arc<Queue>,
    /// Owners that have asked for a lock, and have not closed since.
    owners: Owners,
    /// Owners that have lost some.
    lost: Owners,
    signs: Signs,
    /// Directories in which files were locked: what is there is asked for each time, for programs that lock
    /// say by names what they do.
    dirs: Mutex<HashSet<Ino>>,
    /// Programs have asked for some.
    used: AtomicBool,
    /// The threads, while they run.
    running: Mutex<Option<Vec<JoinHandle<()>>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Locks {
    fn default() -> Locks {
        Locks {
            queue: Arc::default(),
            owners: Owners::default(),
            lost: Owners::default(),
            signs: Signs::new(pando_net::boot_time),
            dirs: Mutex::default(),
            used: AtomicBool::new(false),
            running: Mutex::default(),
        }
    }
}

impl Locks {
    /// Nothing is locked after this, and what is held is given up.
    pub fn stop(&self) {
        let running = lock(&self.running).take();
        if let Some(running) = running {
            self.queue.push(Job::Stop);
            for thread in running {
                // What stops the mount may be one of them.
                if thread.thread().id() != std::thread::current().id() {
                    let _ = thread.join();
                }
            }
        }
    }

    /// A signal came for whoever waits for a request of the kernel.
    pub fn interrupt(&self, unique: u64) {
        if lock(&self.running).is_some() {
            self.queue.push(Job::Interrupt(unique));
        }
    }

    /// Whether programs have locked files here.
    pub fn are_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether the kernel may believe what it is told of names in a directory.
    pub fn may_believe(&self, dir: Ino) -> bool {
        !lock(&self.dirs).contains(&dir)
    }

    fn has_lost(&self, place: &LockPlace) -> bool {
        lock(&self.lost).contains(place)
    }

    /// Whether others may have a file's locks by now, although nobody has said so.
    fn in_doubt(&self, ino: Ino, generation: Generation) -> bool {
        self.silence(ino, generation)
            .is_some_and(|silence| silence >= SILENT)
    }

    /// How long nothing was heard of the server that keeps a file's locks.
    pub fn silence(&self, ino: Ino, generation: Generation) -> Option<Duration> {
        self.signs.silence(ino, generation)
    }
}

/// What the kernel says of a lock that is asked for or given up.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub fh: u64,
    pub family: LockFamily,
    pub token: u64,
    pub span: Span,
    pub hold: Option<Hold>,
    pub pid: u32,
}

/// The state of the locks that were taken through a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// It has them, or never had any.
    Yes,
    /// It will be known soon.
    Doubt,
    /// Others may have had them since.
    Lost,
}

impl<C: Cluster> Core<C> {
    fn lock_threads(self: &Arc<Self>) -> Result<(), LockError> {
        let failed = |_| LockError::Failed(Errno::Io);
        let mut running = lock(&self.locks.running);
        if running.is_some() {
            return Ok(());
        }
        let (tasks, todo) = mpsc::channel::<Task<C>>();
        let (cluster, queue) = (self.cluster.clone(), self.locks.queue.clone());
        let (lost, signs) = (self.locks.lost.clone(), self.locks.signs.clone());
        let todo = Arc::new(Mutex::new(todo));
        let mut lookers = Vec::new();
        for _ in 0..LOOKING {
            let (core, todo) = (self.clone(), todo.clone());
            let looker = std::thread::Builder::new().name("pando-locked".into());
            let looker = looker.spawn(move || {
                loop {
                    let next = lock(&todo).recv();
                    let Ok(task) = next else { break };
                    task(&core);
                }
            });
            lookers.push(looker.map_err(failed)?);
        }
        let first = std::thread::Builder::new()
            .name("pando-locks".into())
            .spawn(move || serve::<C>(&*cluster, &queue, &lost, signs, &tasks));
        let mut threads = vec![first.map_err(failed)?];
        threads.append(&mut lookers);
        *running = Some(threads);
        Ok(())
    }

    /// Takes the turn to append to a file, or gives it up; `done` is called when that is known, on another
    /// thread perhaps.
    ///
    /// `number`: no other turn of this mount has it. So a turn that is given up just now is not taken for the
    /// next one.
    pub fn set_turn(
        self: &Arc<Self>,
        file: Lockable,
        number: u64,
        hold: Option<Hold>,
        done: impl FnOnce(Result<(), LockError>) + Send + 'static,
    ) {
        if let Err(e) = self.lock_threads() {
            return done(Err(e));
        }
        let wish = LockWish {
            file,
            family: LockFamily::Append,
            token: number,
            span: Span::ALL,
            hold,
            pid: std::process::id(),
        };
        self.locks.queue.push(Job::Turn {
            wish,
            done: Box::new(done),
        });
    }

    /// What the servers must know of a file to lock it.
    fn lockable(&self, fh: u64) -> Result<Lockable, LockError> {
        let handle = self.files.get(fh).ok_or(LockError::Failed(Errno::BadHandle))?;
        let state = handle.slot.read();
        let file = state.open.as_ref().ok_or(LockError::Failed(Errno::BadHandle))?;
        Ok(Lockable {
            ino: file.key().ino,
            generation: file.key().generation,
            proof: file.proof(),
        })
    }

    fn wish(&self, asked: &Asked) -> Result<LockWish, LockError> {
        Ok(LockWish {
            file: self.lockable(asked.fh)?,
            family: asked.family,
            token: asked.token,
            span: asked.span,
            hold: asked.hold,
            pid: asked.pid,
        })
    }

    /// Takes, changes or gives up a lock; `done` is called when that is known, on another thread perhaps.
    pub fn set_lock(
        self: &Arc<Self>,
        unique: u64,
        asked: Asked,
        wait: bool,
        done: impl FnOnce(Result<(), LockError>) + Send + 'static,
    ) {
        self.locks.used.store(true, Ordering::Relaxed);
        match self
            .wish(&asked)
            .and_then(|wish| self.lock_threads().map(|_| wish))
        {
            Ok(wish) => self.begin_set((unique, asked.fh), wish, wait, done),
            Err(e) => done(Err(e)),
        }
    }

    fn begin_set(
        self: &Arc<Self>,
        (unique, fh): (u64, u64),
        wish: LockWish,
        wait: bool,
        done: impl FnOnce(Result<(), LockError>) + Send + 'static,
    ) {
        let place = place(&wish);
        // Who may get the lock, or share it, sees what was written under it.
        let published = if wish.hold != Some(Hold::Exclusive) {
            self.with(|d| self.flush(d, fh))
        } else {
            Ok(())
        };
        let core = self.clone();
        let (finish, unpublished) = if wish.hold.is_some() {
            self.note_locker(fh, place);
            let finish: Done<()> = Box::new(move |result| {
                // Another descriptor may have been closed while this was waited for.
                if result.is_ok() {
                    core.note_locker(fh, place);
                }
                done(result);
            });
            (finish, published.err())
        } else {
            // What is not published keeps its lock; what was dropped with a lost one does not.
            let kept = published.err().filter(|_| self.check_locks(fh).is_ok());
            if let Some(e) = kept {
                return done(Err(LockError::Failed(e)));
            }
            let finish: Done<()> = Box::new(move |result| {
                if wish.span == Span::ALL && result.is_ok() {
                    lock(&core.locks.lost).remove(&place);
                }
                done(result.and(published.map_err(LockError::Failed)));
            });
            (finish, None)
        };
        self.locks.queue.push(Job::Set {
            unique,
            wish,
            wait,
            unpublished,
            done: finish,
        });
    }

    /// An owner has locks, or may get some: they are given up when it closes.
    fn note_locker(&self, fh: u64, place: LockPlace) {
        if let Some(handle) = self.files.get(fh) {
            lock(&handle.lockers).insert((place.family, place.token));
        }
        lock(&self.locks.owners).insert(place);
    }

    /// Who is in the way of a lock.
    pub fn test_lock(
        self: &Arc<Self>,
        unique: u64,
        asked: Asked,
        done: impl FnOnce(Result<InTheWay, LockError>) + Send + 'static,
    ) {
        match self
            .wish(&asked)
            .and_then(|wish| Ok((wish, self.lock_threads()?)))
        {
            Ok((wish, _)) => self.locks.queue.push(Job::Test {
                unique,
                wish,
                done: Box::new(done),
            }),
            Err(e) => done(Err(e)),
        }
    }

    /// A process has closed a descriptor of a file, or an open file is closed for good: its locks end.
    /// Returns when they have, unless the server is away.
    pub fn unlock_all(self: &Arc<Self>, fh: u64, family: LockFamily, token: u64) {
        let Ok(file) = self.lockable(fh) else { return };
        let wish = LockWish {
            file,
            family,
            token,
            span: Span::ALL,
            hold: None,
            pid: 0,
        };
        if let Some(handle) = self.files.get(fh) {
            lock(&handle.lockers).remove(&(family, token));
        }
        let place = place(&wish);
        if !lock(&self.locks.owners).remove(&place) {
            return;
        }
        lock(&self.locks.lost).remove(&place);
        let (told, heard) = later();
        self.locks.queue.push(Job::Set {
            unique: 0,
            wish,
            wait: false,
            unpublished: None,
            done: Box::new(move |_| told.put(())),
        });
        let _ = self.with(|d| {
            d.run(first(heard, d.world().sleep(CLOSING)));
            Ok(())
        });
    }

    /// Whoever has locked through a handle and has not closed it otherwise.
    pub fn lockers_of(&self, fh: u64) -> Vec<(LockFamily, u64)> {
        let handle = self.files.get(fh);
        handle.map_or(Vec::new(), |h| lock(&h.lockers).iter().copied().collect())
    }

    /// Whoever has lost a lock on a file must not go on as if it had it.
    pub fn check_locks(&self, fh: u64) -> Result<(), Errno> {
        match self.files.get(fh) {
            Some(handle) => self.still_locked(&handle),
            None => Ok(()),
        }
    }

    /// The same. Waits a little for what is not known: a machine that wakes up hears soon what became of its
    /// locks.
    pub fn still_locked(&self, handle: &FileHandle) -> Result<(), Errno> {
        let until = Instant::now() + DOUBT;
        loop {
            match self.held(handle) {
                Held::Yes => return Ok(()),
                Held::Doubt if Instant::now() < until && !calls::cut_off() => {}
                Held::Doubt | Held::Lost => return Err(Errno::Io),
            }
            let _ = self.with(|d| {
                d.run(d.world().sleep(LOOK));
                Ok(())
            });
        }
    }

    /// The state of the locks that were taken through a handle, as far as is known now.
    pub fn held(&self, handle: &FileHandle) -> Held {
        if lock(&handle.lockers).is_empty() {
            return Held::Yes;
        }
        let generation = match &handle.slot.read().open {
            Some(file) => file.key().generation,
            None => Generation(0),
        };
        // In this order: who hears of a loss says so before the doubt ends.
        let doubt = self.locks.in_doubt(handle.ino, generation);
        let lost = lock(&handle.lockers).iter().any(|(family, token)| {
            self.locks.has_lost(&LockPlace {
                ino: handle.ino,
                generation,
                family: *family,
                token: *token,
            })
        });
        match (lost, doubt) {
            (true, _) => Held::Lost,
            (false, true) => Held::Doubt,
            (false, false) => Held::Yes,
        }
    }

    /// A lock was granted: what other mounts have written is taken over, and the kernel keeps nothing older.
    fn revalidate(&self, d: &C::Driver, ino: Ino) -> Result<(), Errno> {
        let parent = self.at(ino).map(|at| at.parent);
        if let Ok(parent) = parent {
            lock(&self.locks.dirs).insert(parent);
        }
        // What was written here without a lock, or under another, is put together with what others have
        // published.
        let slot = self.nodes().file(ino);
        if let Some(slot) = slot {
            let mut state = slot.write();
            if let Some(f) = state.open.as_mut().filter(|f| f.is_dirty()) {
                d.run(f.flush(d.ops(), d.blocks(), &d.ops().own()))?;
            }
        }
        match self.getattr(d, ino) {
            Ok(_) => {}
            // It has no name any more: nobody else can write it.
            Err(Errno::Stale) => return Ok(()),
            Err(e) => return Err(e),
        }
        let Some(slot) = self.nodes().file(ino) else {
            return Ok(());
        };
        let changed = {
            let mut state = slot.write();
            match &mut state.open {
                Some(f) if f.cached_version() != Some(f.version()) => {
                    f.cache_dropped();
                    true
                }
                _ => false,
            }
        };
        // Without the file's own lock: the kernel may have to write or read pages first.
        if let Some(notifier) = self.notifier.get() {
            let offset = if changed { 0 } else { -1 };
            if let Err(e) = notifier.inval_inode(fuser::INodeNo(ino.0), offset, 0)
                && e.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(ino = ino.0, "the kernel keeps what it knew of a locked file: {e}");
            }
        }
        Ok(())
    }
}

fn place(wish: &LockWish) -> LockPlace {
    LockPlace {
        ino: wish.file.ino,
        generation: wish.file.generation,
        family: wish.family,
        token: wish.token,
    }
}

/// Takes, changes or gives up a lock, and shows what is protected before it is taken. Both receivers break
/// that off.
async fn set<C: Cluster>(
    locker: Rc<Locker>,
    (wish, wait): (LockWish, bool),
    unpublished: Option<Errno>,
    tasks: mpsc::Sender<Task<C>>,
    (cancel, cancel_looking): (Receiver<()>, Receiver<()>),
) -> Result<(), LockError> {
    // Others would not see what was written under it.
    if let Some(e) = unpublished.filter(|_| locker.lowers(&wish)) {
        return Err(LockError::Failed(e));
    }
    let before = locker.set(wish, wait, cancel).await?;
    if wish.hold.is_none() {
        return Ok(());
    }
    let (finds, found) = later();
    let task: Task<C> = Box::new(move |core: &Core<C>| {
        finds.put(core.with(|d| core.revalidate(d, wish.file.ino)));
    });
    let posted = tasks.send(task).map_err(|_| LockError::Failed(Errno::Io));
    let seen = match posted {
        Ok(()) => match first(Box::pin(found), cancel_looking).await {
            Either::Left(seen) => seen.unwrap_or(Err(Errno::Io)).map_err(LockError::Failed),
            Either::Right(_) => Err(LockError::Interrupted),
        },
        Err(e) => Err(e),
    };
    if seen.is_err() {
        // It cannot be shown what is protected: then it is not locked.
        locker.take_back(wish, before).await;
    }
    seen
}

/// Those who wait, by the kernel's number of their requests, and signals that came before them.
#[derive(Default)]
struct Calls {
    /// Dropped, they break a call off, whatever it waits for.
    waiting: HashMap<u64, (Sender<()>, Sender<()>)>,
    early: VecDeque<u64>,
}

fn serve<C: Cluster>(cluster: &C, queue: &Queue, lost: &Owners, signs: Signs, tasks: &mpsc::Sender<Task<C>>) {
    let driver = loop {
        match cluster.connect() {
            Ok(driver) => break driver,
            Err(why) => tracing::error!(why, "the mount's locks cannot reach the cluster"),
        }
        std::thread::sleep(Duration::from_secs(1));
    };
    let lost = lost.clone();
    let on_lost = move |place: LockPlace| {
        // Its holder looks at its own clock.
        if place.family == LockFamily::Append {
            return;
        }
        tracing::warn!(
            ino = place.ino.0,
            "a lock was lost: this mount was out of touch with the servers for too long"
        );
        lock(&lost).insert(place);
    };
    let Some(locker) = driver.locker(signs, on_lost) else {
        tracing::error!("this kind of cluster has no locks");
        return driver.run(refuse(queue));
    };
    let calls: Rc<RefCell<Calls>> = Rc::default();
    driver.run(async {
        driver.spawn(Box::pin(locker.clone().keep(PERIOD)));
        loop {
            match queue.next().await {
                Job::Set {
                    unique,
                    wish,
                    wait,
                    unpublished,
                    done,
                } => {
                    // What is given up is not broken off.
                    let heeds = wish.hold.is_some();
                    let (locker, tasks) = (locker.clone(), tasks.clone());
                    begin(&driver, &calls, (unique, heeds), done, |cancel| {
                        set::<C>(locker, (wish, wait), unpublished, tasks, cancel)
                    });
                }
                Job::Test { unique, wish, done } => {
                    let locker = locker.clone();
                    begin(&driver, &calls, (unique, true), done, |(cancel, _)| async move {
                        locker.test(wish, cancel).await
                    });
                }
                Job::Turn { wish, done } => {
                    let locker = locker.clone();
                    begin(&driver, &calls, (0, false), done, |(cancel, _)| async move {
                        locker.set(wish, true, cancel).await.map(drop)
                    });
                }
                Job::Interrupt(unique) => {
                    let calls = &mut *calls.borrow_mut();
                    // Dropped, it breaks the call off.
                    if calls.waiting.remove(&unique).is_none() {
                        calls.early.push_back(unique);
                        if calls.early.len() > EARLY {
                            calls.early.pop_front();
                        }
                    }
                }
                Job::Stop => break,
            }
        }
        close(&locker).await;
    });
    driver.close();
}

/// Answers everything where there are no locks.
async fn refuse(queue: &Queue) {
    const NONE: LockError = LockError::Failed(Errno::Unsupported);
    loop {
        match queue.next().await {
            Job::Set { done, .. } | Job::Turn { done, .. } => done(Err(NONE)),
            Job::Test { done, .. } => done(Err(NONE)),
            Job::Interrupt(_) => {}
            Job::Stop => break,
        }
    }
}

async fn close(locker: &Locker) {
    locker.close().await;
}

/// Serves a call beside the others, until it is answered or broken off.
fn begin<D: Driver, T: 'static, F: Future<Output = Result<T, LockError>> + 'static>(
    driver: &D,
    calls: &Rc<RefCell<Calls>>,
    (unique, heeds): (u64, bool),
    done: Done<T>,
    call: impl FnOnce((Receiver<()>, Receiver<()>)) -> F,
) {
    let (one, first) = oneshot();
    let (other, second) = oneshot();
    let (sender, cancel) = ((one, other), (first, second));
    {
        let known = &mut *calls.borrow_mut();
        let early = known.early.iter().position(|u| *u == unique);
        if let Some(at) = early {
            known.early.remove(at);
            if heeds {
                return done(Err(LockError::Interrupted));
            }
        }
    }
    // 0: nobody waits for it who could be told.
    let unheard = if unique == 0 {
        Some(sender)
    } else {
        calls.borrow_mut().waiting.insert(unique, sender);
        None
    };
    let (calls, call) = (calls.clone(), call(cancel));
    driver.spawn(Box::pin(async move {
        let result = call.await;
        calls.borrow_mut().waiting.remove(&unique);
        drop(unheard);
        done(result);
    }));
}
