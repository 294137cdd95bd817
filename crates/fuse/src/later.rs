//! A result that another thread finds.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

struct State<T> {
    found: Option<T>,
    /// Nobody looks for it any more.
    over: bool,
    waker: Option<Waker>,
}

/// Whoever finds it.
pub(crate) struct Finder<T>(Arc<Mutex<State<T>>>);

/// Whoever waits for it. `None`: nobody found it.
pub(crate) struct Found<T>(Arc<Mutex<State<T>>>);

/// A result that is found later.
pub(crate) fn later<T>() -> (Finder<T>, Found<T>) {
    let state = Arc::new(Mutex::new(State {
        found: None,
        over: false,
        waker: None,
    }));
    (Finder(state.clone()), Found(state))
}

fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Finder<T> {
    /// Here it is.
    pub fn put(self, found: T) {
        lock(&self.0).found = Some(found);
    }
}

impl<T> Drop for Finder<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = lock(&self.0);
            state.over = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Found<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.0);
        if state.over {
            return Poll::Ready(state.found.take());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
