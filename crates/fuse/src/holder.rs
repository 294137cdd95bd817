//! The session that holds removed files, and signs of life for that of open files.
//!
//! A file that is removed while open keeps its data until the session that removed it lets go of it, or ends. Requests
//! come in on any of the mount's threads, each with a session of its own; so whatever begins or ends a hold goes
//! through one thread, whose session lives, and is kept alive, as long as the mount. It is rare enough for a thread hop.

use crate::driver::{Cluster, Driver};
use pando_client::Keeping;
use pando_client::file::Ops;
use pando_types::{Cred, Errno};
use pando_wire::{Op, Outcome};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What is closed is said after so long: more may be.
const TELL_AFTER: Duration = Duration::from_millis(50);

enum Job {
    /// An operation of the holding session.
    Op {
        /// For whom; `None`: nobody in particular.
        cred: Option<Cred>,
        op: Op,
        /// `None`: nobody waits.
        answer: Option<Sender<Outcome>>,
    },
    /// Files were closed: the servers are to be told.
    Closed,
}

type Jobs = Arc<Mutex<Option<Sender<Job>>>>;

fn send(jobs: &Mutex<Option<Sender<Job>>>, job: Job) {
    if let Some(jobs) = &*jobs.lock().unwrap_or_else(PoisonError::into_inner) {
        // If the thread is gone the answer's sender is dropped, and the caller sees that.
        let _ = jobs.send(job);
    }
}

pub(crate) struct Holder {
    jobs: Jobs,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Holder {
    pub fn start<C: Cluster>(cluster: Arc<C>) -> std::io::Result<Holder> {
        let (jobs, receiver) = mpsc::channel();
        let jobs = Arc::new(Mutex::new(Some(jobs)));
        if let Some(keeping) = cluster.keeping() {
            let jobs = Arc::downgrade(&jobs);
            keeping.on_close(move || {
                if let Some(jobs) = jobs.upgrade() {
                    send(&jobs, Job::Closed);
                }
            });
        }
        let thread = std::thread::Builder::new()
            .name("pando-holds".into())
            .spawn(move || serve(&*cluster, &receiver))?;
        Ok(Holder {
            jobs,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Runs an operation under the holding session.
    pub fn op(&self, cred: &Cred, op: Op) -> Outcome {
        crate::calls::change()?;
        let (sender, receiver) = mpsc::channel();
        let job = Job::Op {
            cred: Some(cred.clone()),
            op,
            answer: Some(sender),
        };
        send(&self.jobs, job);
        receiver.recv().unwrap_or(Err(Errno::Io))
    }

    /// The same, for what nobody waits for.
    pub fn send_off(&self, op: Op) {
        let job = Job::Op {
            cred: None,
            op,
            answer: None,
        };
        send(&self.jobs, job);
    }

    /// Ends the session, and with it all holds. Nothing is run after this.
    pub fn stop(&self) {
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve<C: Cluster>(cluster: &C, jobs: &Receiver<Job>) {
    let every = cluster.keep_alive_every();
    let keeping = cluster.keeping();
    let in_use = || keeping.as_ref().is_some_and(Keeping::is_used);
    // Nothing is connected before there is something to hold.
    let mut driver: Option<C::Driver> = None;
    let mut due = Instant::now() + every;
    let mut tell: Option<Instant> = None;
    loop {
        let next = tell.map_or(due, |tell| tell.min(due));
        match jobs.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Job::Op { cred, op, answer }) => {
                let outcome = run(cluster, &mut driver, cred, op);
                match answer {
                    Some(answer) => drop(answer.send(outcome)),
                    None => {
                        if let Err(e) = outcome {
                            tracing::warn!("a removed file is freed only when this mount ends: {e}");
                        }
                    }
                }
            }
            Ok(Job::Closed) => {
                tell.get_or_insert(Instant::now() + TELL_AFTER);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let now = Instant::now();
        if tell.is_some_and(|tell| tell <= now) {
            tell = None;
            if let Ok(driver) = connected(cluster, &mut driver) {
                driver.tell_closed();
            }
        }
        if due <= now {
            if (driver.is_some() || in_use())
                && let Ok(driver) = connected(cluster, &mut driver)
            {
                driver.keep_alive();
            }
            due = Instant::now() + every;
        }
    }
    if in_use() {
        let _ = connected(cluster, &mut driver);
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
    let driver = connected(cluster, driver)?;
    let cred = cred.unwrap_or_else(|| driver.ops().own());
    driver.run(driver.ops().op(&cred, op))
}
