//! The store as it was at one instant: a snapshot of RocksDB, on a thread of its own.

use crate::pool::promise;
use crate::read;
use pando_format::Scan;
use pando_store::{Exported, LocalFuture, Picture, StoreError};
use rocksdb::{DB, Snapshot};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce(&DB, &Snapshot<'_>) + Send>;

/// Sends what is to be read to the thread that has the snapshot.
struct RocksPicture {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// Takes one, of this instant: what is written to the journal afterwards must not be missing beside what is
/// in it. So it is waited for, for some ten microseconds.
pub(crate) fn take(db: Arc<DB>) -> Result<Rc<dyn Picture>, StoreError> {
    let (jobs, queue) = channel::<Job>();
    let (there, taken) = channel();
    let thread = std::thread::Builder::new()
        .name("store-picture".into())
        .spawn(move || {
            let snapshot = db.snapshot();
            let _ = there.send(());
            while let Ok(job) = queue.recv() {
                job(&db, &snapshot);
            }
        })
        .map_err(|e| StoreError::Device(format!("cannot start a thread: {e}")))?;
    taken
        .recv()
        .map_err(|_| StoreError::Device("no snapshot could be taken".into()))?;
    Ok(Rc::new(RocksPicture {
        jobs: Some(jobs),
        thread: Some(thread),
    }))
}

impl Picture for RocksPicture {
    fn export(&self, scan: &Scan, bytes: usize) -> LocalFuture<Result<Exported, StoreError>> {
        let (promise, kept) = promise();
        let scan = scan.clone();
        let job: Job =
            Box::new(move |db, snapshot| promise.keep(read::export_at(db, snapshot, &scan, bytes)));
        if let Some(jobs) = &self.jobs {
            // A thread that is gone drops the job, and who waits is told.
            let _ = jobs.send(job);
        }
        kept
    }
}

impl Drop for RocksPicture {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // Whoever opens the store next must find it closed.
            let _ = thread.join();
        }
    }
}
