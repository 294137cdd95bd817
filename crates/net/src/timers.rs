//! Timers of one reactor.

use pando_types::{Mono, ServerId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What a timer does when it fires.
pub(crate) enum Action {
    /// Ends a sleep.
    Wake(Waker),
    /// Tries to reach a server again.
    Connect(ServerId),
    /// Looks for connections that do nothing.
    Sweep,
    /// Tries to accept again, after the system had no room for it.
    Accept,
}

/// When, and a number that tells timers of one moment apart.
type TimerKey = (Mono, u64);

/// Ordered by time. A timer whose future is dropped leaves at once: most are timeouts of calls that were answered.
#[derive(Default)]
pub(crate) struct Timers {
    queue: RefCell<BTreeMap<TimerKey, Action>>,
    next: Cell<u64>,
}

impl Timers {
    pub fn add(&self, at: Mono, action: Action) -> TimerKey {
        let key = (at, self.next.get());
        self.next.set(key.1 + 1);
        self.queue.borrow_mut().insert(key, action);
        key
    }

    /// When the next one fires.
    pub fn next(&self) -> Option<Mono> {
        self.queue.borrow().first_key_value().map(|(key, _)| key.0)
    }

    /// Takes one that is due.
    pub fn due(&self, now: Mono) -> Option<Action> {
        let mut queue = self.queue.borrow_mut();
        let first = queue.first_entry()?;
        if first.key().0 <= now {
            Some(first.remove())
        } else {
            None
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let all = self.queue.take();
        drop(all); // outside the borrow: a waker's drop may drop a sleep
    }
}

/// A future that completes at a time.
pub(crate) struct Sleep {
    timers: Rc<Timers>,
    at: Mono,
    key: Option<TimerKey>,
}

impl Sleep {
    pub fn new(timers: Rc<Timers>, at: Mono) -> Sleep {
        Sleep {
            timers,
            at,
            key: None,
        }
    }
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(key) = self.key {
            if let Some(timer) = self.timers.queue.borrow_mut().get_mut(&key) {
                *timer = Action::Wake(cx.waker().clone());
                return Poll::Pending;
            }
            self.key = None; // it has fired
            return Poll::Ready(());
        }
        self.key = Some(self.timers.add(self.at, Action::Wake(cx.waker().clone())));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let timer = self.timers.queue.borrow_mut().remove(&key);
            drop(timer);
        }
    }
}
