//! An answer from another thread to the single-threaded world.

use crate::LocalFuture;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

struct State<T> {
    /// `Some(None)`: nobody will answer any more.
    value: Option<Option<T>>,
    waker: Option<Waker>,
}

/// Whoever drops it has answered: with what was found, or with nothing.
pub struct Promise<T>(Arc<Mutex<State<T>>>);

/// A promise, and what waits for it: for a value, or for nothing if the promise was dropped.
pub fn promise<T: 'static>() -> (Promise<T>, LocalFuture<Option<T>>) {
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
    /// Answers.
    pub fn keep(self, value: T) {
        lock(&self.0).value = Some(Some(value));
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.value.get_or_insert(None);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Context;

    #[test]
    fn kept_and_dropped() {
        let mut cx = Context::from_waker(Waker::noop());
        let (kept, mut answer) = promise();
        assert_eq!(answer.as_mut().poll(&mut cx), Poll::Pending);
        kept.keep(7);
        assert_eq!(answer.as_mut().poll(&mut cx), Poll::Ready(Some(7)));
        let (dropped, mut answer) = promise::<u8>();
        drop(dropped);
        assert_eq!(answer.as_mut().poll(&mut cx), Poll::Ready(None));
    }
}
