//! The session that holds removed files, and signs of life for that of open files.
//!
//! A file that is removed while open keeps its data until the session that removed it lets go of it, or ends.
//! Requests come in on any of the mount's threads, each with a session of its own; so whatever begins or ends
//! a hold goes through one thread, whose session lives, and is kept alive, as long as the mount. It is rare
//! enough for a thread hop. Another thread speaks for what is open: it waits for no operation, or one server
//! that is away would make all others believe that the mount is gone.

use crate::driver::{Cluster, Driver};
use crate::later::{Finder, later};
use pando_client::Keeping;
use pando_client::file::Ops;
use pando_types::{Cred, Errno};
use pando_wire::{Op, Outcome};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What is closed is said after so long: more may be.
const TELL_AFTER: Duration = Duration::from_millis(50);

/// An operation of the holding session.
struct Job {
    /// For whom; `None`: nobody in particular.
    cred: Option<Cred>,
    op: Op,
    /// `None`: nobody waits.
    answer: Option<Finder<Outcome>>,
}

/// Files were closed: the servers are to be told.
struct Closed;

type Jobs<T> = Arc<Mutex<Option<Sender<T>>>>;

fn send<T>(jobs: &Mutex<Option<Sender<T>>>, job: T) {
    if let Some(jobs) = &*jobs.lock().unwrap_or_else(PoisonError::into_inner) {
        // If the thread is gone the answer's finder is dropped, and the caller sees that.
        let _ = jobs.send(job);
    }
}

/// A thread and what it is given to do.
struct Worker<T> {
    jobs: Jobs<T>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<T: Send + 'static> Worker<T> {
    fn start(name: &str, serve: impl FnOnce(Receiver<T>) + Send + 'static) -> std::io::Result<Worker<T>> {
        let (jobs, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || serve(receiver))?;
        Ok(Worker {
            jobs: Arc::new(Mutex::new(Some(jobs))),
            thread: Mutex::new(Some(thread)),
        })
    }

    fn stop(&self) {
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

pub(crate) struct Holder {
    operations: Worker<Job>,
    signs: Worker<Closed>,
}

impl Holder {
    pub fn start<C: Cluster>(cluster: Arc<C>) -> std::io::Result<Holder> {
        let c = cluster.clone();
        let operations = Worker::start("pando-holds", move |jobs| operate(&*c, &jobs))?;
        let c = cluster.clone();
        // That the thread is about to tell what was closed: it need not hear of each file.
        let about_to_tell = Arc::<AtomicBool>::default();
        let told = about_to_tell.clone();
        let signs = Worker::start("pando-signs", move |closed| give_signs(&*c, &closed, &told))?;
        if let Some(keeping) = cluster.keeping() {
            let closed = Arc::downgrade(&signs.jobs);
            keeping.on_close(move || {
                if !about_to_tell.swap(true, SeqCst)
                    && let Some(closed) = closed.upgrade()
                {
                    send(&closed, Closed);
                }
            });
        }
        Ok(Holder { operations, signs })
    }

    /// Runs an operation under the holding session.
    pub fn op<D: Driver>(&self, d: &D, cred: &Cred, op: Op) -> Outcome {
        crate::calls::change()?;
        let (finder, found) = later();
        let job = Job {
            cred: Some(cred.clone()),
            op,
            answer: Some(finder),
        };
        send(&self.operations.jobs, job);
        d.run(found).unwrap_or(Err(Errno::Io))
    }

    /// The same, for what nobody waits for.
    pub fn send_off(&self, op: Op) {
        let job = Job {
            cred: None,
            op,
            answer: None,
        };
        send(&self.operations.jobs, job);
    }

    /// Ends the session, and with it all holds. Nothing is run after this.
    pub fn stop(&self) {
        self.operations.stop();
        self.signs.stop();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.stop();
    }
}

fn operate<C: Cluster>(cluster: &C, jobs: &Receiver<Job>) {
    let every = cluster.keep_alive_every();
    // Nothing is connected before there is something to hold.
    let mut driver: Option<C::Driver> = None;
    let mut due = Instant::now() + every;
    loop {
        match jobs.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(Job { cred, op, answer }) => {
                let outcome = run(cluster, &mut driver, cred, op);
                match answer {
                    Some(answer) => answer.put(outcome),
                    None => {
                        if let Err(e) = outcome {
                            tracing::warn!("a removed file is freed only when this mount ends: {e}");
                        }
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if due <= Instant::now() {
            if let Some(driver) = &driver {
                driver.keep_alive();
            }
            due = Instant::now() + every;
        }
    }
    if let Some(driver) = driver {
        driver.close();
    }
}

fn give_signs<C: Cluster>(cluster: &C, closed: &Receiver<Closed>, about_to_tell: &AtomicBool) {
    let every = cluster.keep_alive_every();
    let keeping = cluster.keeping();
    let in_use = || keeping.as_ref().is_some_and(Keeping::is_used);
    let mut driver: Option<C::Driver> = None;
    let mut due = Instant::now() + every;
    let mut tell: Option<Instant> = None;
    loop {
        let next = tell.map_or(due, |tell| tell.min(due));
        match closed.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Closed) => {
                tell.get_or_insert(Instant::now() + TELL_AFTER);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let now = Instant::now();
        // That also says what was closed.
        if due <= now {
            tell = None;
            about_to_tell.store(false, SeqCst);
            if in_use()
                && let Ok(driver) = connected(cluster, &mut driver)
            {
                driver.keep_open();
            }
            due = Instant::now() + every;
        } else if tell.is_some_and(|tell| tell <= now) {
            tell = None;
            about_to_tell.store(false, SeqCst);
            if let Ok(driver) = connected(cluster, &mut driver) {
                driver.tell_closed();
            }
        }
    }
    if in_use()
        && let Ok(driver) = connected(cluster, &mut driver)
    {
        driver.close_keeping();
    }
    if let Some(driver) = driver {
        driver.close();
    }
}

fn connected<'a, C: Cluster>(cluster: &C, driver: &'a mut Option<C::Driver>) -> Result<&'a C::Driver, Errno> {
    if driver.is_none() {
        *driver = Some(cluster.connect().map_err(|why| {
            tracing::error!(why, "the mount's holding session cannot reach the cluster");
            Errno::Io
        })?);
    }
    driver.as_ref().ok_or(Errno::Io)
}

fn run<C: Cluster>(cluster: &C, driver: &mut Option<C::Driver>, cred: Option<Cred>, op: Op) -> Outcome {
    let new = driver.is_none();
    let driver = connected(cluster, driver)?;
    if new {
        // An operation may wait for one server for minutes: the others must know meanwhile that the session
        // lives.
        driver.stay_alive(cluster.keep_alive_every());
    }
    let cred = cred.unwrap_or_else(|| driver.ops().own());
    driver.run(driver.ops().op(&cred, op))
}
