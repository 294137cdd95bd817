//! An answer from another thread to the single-threaded world.

use pando_cluster::CoordError;
use pando_env::LocalFuture;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

pub(crate) type Answered<T> = Result<T, CoordError>;

struct State<T> {
    value: Option<Answered<T>>,
    waker: Option<Waker>,
}

/// Whoever drops it has answered: with what was found, or with an error.
pub(crate) struct Promise<T>(Arc<Mutex<State<T>>>);

/// A promise, and what waits for it.
pub(crate) fn promise<T: 'static>() -> (Promise<T>, LocalFuture<Answered<T>>) {
    let state = Arc::new(Mutex::new(State {
        value: None,
        waker: None,
    }));
    let promise = Promise(state.clone());
    let future = Box::pin(std::future::poll_fn(move |cx| {
        let mut state = lock(&state);
        match state.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }));
    (promise, future)
}

impl<T> Promise<T> {
    pub(crate) fn keep(self, value: Answered<T>) {
        lock(&self.0).value = Some(value);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state
            .value
            .get_or_insert_with(|| Err(CoordError::Away("its thread has ended".into())));
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
