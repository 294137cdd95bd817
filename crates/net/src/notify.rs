//! Ending a park from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Wake;

/// Shared by a reactor and whoever may wake it.
///
/// Invariant (no lost wake-up): a waker makes its work visible, then reads `parked`; the reactor sets
/// `parked`, then looks for work. Whichever comes second sees the other's write.
pub struct Notify {
    parked: AtomicBool,
    waker: mio::Waker,
}

impl Notify {
    pub(crate) fn new(waker: mio::Waker) -> Arc<Notify> {
        Arc::new(Notify {
            parked: AtomicBool::new(false),
            waker,
        })
    }

    /// Ends the park, if there is one. REQUIRES: the reason is visible already. No system call unless parked.
    pub(crate) fn notify(&self) {
        if self.parked.load(SeqCst) && self.parked.swap(false, SeqCst) {
            // It can fail only if the counter would overflow, and then it is readable anyway.
            let _ = self.waker.wake();
        }
    }

    /// About to park. The caller looks for work once more, then parks or calls [`Notify::unpark`].
    pub(crate) fn park(&self) {
        self.parked.store(true, SeqCst);
    }

    /// No longer parked.
    pub(crate) fn unpark(&self) {
        self.parked.store(false, SeqCst);
    }
}

/// Ends [`crate::Reactor::run`] from any thread.
#[derive(Clone)]
pub struct Stopper(Arc<Flag>);

impl Stopper {
    /// Asks the reactor to return from `run` after what it is doing now.
    pub fn stop(&self) {
        self.0.raise();
    }
}

/// A flag that ends a park when it is raised.
pub(crate) struct Flag {
    raised: AtomicBool,
    notify: Arc<Notify>,
}

impl Flag {
    pub(crate) fn new(notify: Arc<Notify>) -> Arc<Flag> {
        Arc::new(Flag {
            raised: AtomicBool::new(false),
            notify,
        })
    }

    pub(crate) fn stopper(self: &Arc<Flag>) -> Stopper {
        Stopper(self.clone())
    }

    pub(crate) fn raise(&self) {
        self.raised.store(true, SeqCst);
        self.notify.notify();
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(SeqCst)
    }

    /// Lowers the flag; true if it was raised.
    pub(crate) fn take(&self) -> bool {
        self.raised.load(SeqCst) && self.raised.swap(false, SeqCst)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.raise();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.raise();
    }
}
