//! The session that holds removed files.
//!
//! A file that is removed while open keeps its data until the session that removed it lets go of it, or ends. Requests
//! come in on any of the mount's threads, each with a session of its own; so whatever begins or ends a hold goes
//! through one thread, whose session lives, and is kept alive, as long as the mount. It is rare enough for a thread hop.

use crate::driver::{Cluster, Driver};
use pando_client::file::Ops;
use pando_types::{Cred, Errno};
use pando_wire::{Op, Outcome};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

struct Job {
    /// For whom; `None`: nobody in particular.
    cred: Option<Cred>,
    op: Op,
    /// `None`: nobody waits.
    answer: Option<Sender<Outcome>>,
}

pub(crate) struct Holder {
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Holder {
    pub fn start<C: Cluster>(cluster: Arc<C>) -> std::io::Result<Holder> {
        let (jobs, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("pando-holds".into())
            .spawn(move || serve(&*cluster, &receiver))?;
        Ok(Holder {
            jobs: Mutex::new(Some(jobs)),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Runs an operation under the holding session.
    pub fn op(&self, cred: &Cred, op: Op) -> Outcome {
        let (sender, receiver) = mpsc::channel();
        self.send(Job {
            cred: Some(cred.clone()),
            op,
            answer: Some(sender),
        });
        receiver.recv().unwrap_or(Err(Errno::Io))
    }

    /// The same, for what nobody waits for.
    pub fn send_off(&self, op: Op) {
        self.send(Job {
            cred: None,
            op,
            answer: None,
        });
    }

    fn send(&self, job: Job) {
        if let Some(jobs) = &*self.jobs.lock().unwrap_or_else(PoisonError::into_inner) {
            // If the thread is gone the answer's sender is dropped, and the caller sees that.
            let _ = jobs.send(job);
        }
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
    // Nothing is connected before there is something to hold.
    let mut driver: Option<C::Driver> = None;
    let mut due = Instant::now() + every;
    loop {
        let wait = if driver.is_some() {
            due.saturating_duration_since(Instant::now())
        } else {
            Duration::MAX
        };
        match jobs.recv_timeout(wait) {
            Ok(job) => {
                let outcome = run(cluster, &mut driver, &job);
                match job.answer {
                    Some(answer) => drop(answer.send(outcome)),
                    None => {
                        if let Err(e) = outcome {
                            tracing::warn!("a removed file is freed only when this mount ends: {e}");
                        }
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some(driver) = &driver {
                    driver.keep_alive();
                }
                due = Instant::now() + every;
            }
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

fn run<C: Cluster>(cluster: &C, driver: &mut Option<C::Driver>, job: &Job) -> Outcome {
    if driver.is_none() {
        *driver = Some(cluster.connect().map_err(|why| {
            tracing::error!(why, "the mount's holding session cannot reach the cluster");
            Errno::Io
        })?);
    }
    match driver {
        Some(driver) => {
            let cred = job.cred.clone().unwrap_or_else(|| driver.ops().own());
            driver.run(driver.ops().op(&cred, job.op.clone()))
        }
        None => Err(Errno::Io),
    }
}
