//! Reader threads: they wait for the device so that the event loop need not.

use pando_store::{LocalFuture, StoreError};
use rocksdb::DB;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

type Job = Box<dyn FnOnce(&DB) + Send>;

/// The queue of reads.
#[derive(Default)]
pub(crate) struct Pool {
    queue: Mutex<Queue>,
    ready: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    stop: bool,
}

impl Pool {
    /// What each thread runs, until [`Pool::stop`].
    pub(crate) fn serve(&self, db: &DB) {
        loop {
            let mut queue = lock(&self.queue);
            while queue.jobs.is_empty() && !queue.stop {
                queue = self.ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            if queue.stop {
                return;
            }
            let job = queue.jobs.pop_front();
            drop(queue);
            if let Some(job) = job {
                job(db);
            }
        }
    }

    /// Ends the threads. Reads that did not begin fail.
    pub(crate) fn stop(&self) {
        let mut queue = lock(&self.queue);
        queue.stop = true;
        let dropped = std::mem::take(&mut queue.jobs);
        drop(queue);
        self.ready.notify_all();
        drop(dropped);
    }

    /// Runs a read on one of the threads.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce(&DB) -> Result<T, StoreError> + Send + 'static,
    ) -> LocalFuture<Result<T, StoreError>> {
        let (promise, kept) = promise();
        let mut queue = lock(&self.queue);
        if !queue.stop {
            queue.jobs.push_back(Box::new(move |db| promise.keep(read(db))));
            self.ready.notify_one();
        }
        drop(queue);
        kept
    }
}

/// Something that another thread will say, and where it is waited for.
pub(crate) fn promise<T: Send + 'static>() -> (Promise<T>, LocalFuture<Result<T, StoreError>>) {
    let answer = Arc::new(Mutex::new(Answer {
        value: None,
        waker: None,
    }));
    let promise = Promise(answer.clone());
    let kept = std::future::poll_fn(move |cx| {
        let mut answer = lock(&answer);
        match answer.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                answer.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    });
    (promise, Box::pin(kept))
}

struct Answer<T> {
    value: Option<Result<T, StoreError>>,
    waker: Option<Waker>,
}

/// Whoever drops it has answered: with what was read, or with an error.
pub(crate) struct Promise<T>(Arc<Mutex<Answer<T>>>);

impl<T> Promise<T> {
    pub(crate) fn keep(self, value: Result<T, StoreError>) {
        lock(&self.0).value = Some(value);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let mut answer = lock(&self.0);
        answer
            .value
            .get_or_insert_with(|| Err(StoreError::Device("the store was closed".into())));
        let waker = answer.waker.take();
        drop(answer);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
