//! Ending a call that waits.
//!
//! A front end shows the call that its thread is at ([`Client::heed`]), and another thread may cut it off.
//! That ends all waiting with [`Errno::Interrupted`], which means *not executed*: so it is possible only
//! until the first message goes out that may change something. From then on the call goes on to a definite
//! outcome, whoever hears it.

use crate::Client;
use pando_types::Errno;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

const OPEN: u8 = 0;
const CHANGED: u8 = 1;
const CUT: u8 = 2;

/// One call of a program, which can be cut off while it has changed nothing.
#[derive(Default)]
pub struct Interrupt {
    state: AtomicU8,
    waiting: Mutex<Vec<Waker>>,
}

impl Interrupt {
    /// Ends what the call waits for. False: it may have changed something already, and goes on.
    pub fn cut(&self) -> bool {
        let cut = self.state.compare_exchange(OPEN, CUT, SeqCst, SeqCst) != Err(CHANGED);
        if cut {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            for waker in waiting.drain(..) {
                waker.wake();
            }
        }
        cut
    }

    /// Something is about to be changed. False: the call was cut off, and must change nothing.
    pub fn change(&self) -> bool {
        self.state.compare_exchange(OPEN, CHANGED, SeqCst, SeqCst) != Err(CUT)
    }

    /// Whether it was cut off.
    pub fn is_cut(&self) -> bool {
        self.state.load(SeqCst) == CUT
    }

    fn wake_when_cut(&self, waker: &Waker) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|w| w.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }
}

impl Client {
    /// What this client does from now on is part of this call.
    pub fn heed(&self, call: Option<std::sync::Arc<Interrupt>>) {
        *self.call.borrow_mut() = call;
    }

    /// Something is about to be changed.
    pub(crate) fn change(&self) -> Result<(), Errno> {
        match &*self.call.borrow() {
            Some(call) if !call.change() => Err(Errno::Interrupted),
            _ => Ok(()),
        }
    }

    /// Runs `work` until the call is cut off.
    pub(crate) async fn heeding<T>(&self, work: impl Future<Output = Result<T, Errno>>) -> Result<T, Errno> {
        let call = self.call.borrow().clone();
        let Some(call) = call else { return work.await };
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            // Registered before it looks: whoever cuts sets the state first.
            call.wake_when_cut(cx.waker());
            if call.is_cut() {
                return Poll::Ready(Err(Errno::Interrupted));
            }
            work.as_mut().poll(cx)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_cut_off_or_changed() {
        let call = Interrupt::default();
        assert!(call.change() && call.change());
        assert!(!call.cut() && !call.is_cut());
        let call = Interrupt::default();
        assert!(call.cut() && call.cut() && call.is_cut());
        assert!(!call.change());
    }
}
