//! Timers of one reactor.

use pando_types::{Mono, ServerId};
use slab::Slab;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
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

/// Where a timer is, and its number: places are used again, numbers are not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TimerKey {
    number: u64,
    place: usize,
}

/// All timers, and their order. Who leaves early, as nearly all do (they are timeouts of calls that are
/// answered), leaves its entry in the order behind, which goes when it comes first, or with others when they
/// are the most.
#[derive(Default)]
struct Queue {
    actions: Slab<(u64, Action)>,
    order: BinaryHeap<Reverse<(Mono, TimerKey)>>,
    next: u64,
}

/// So many entries of timers that have left are no matter.
const LEFT: usize = 64;

impl Queue {
    fn add(&mut self, at: Mono, action: Action) -> TimerKey {
        let number = self.next;
        self.next += 1;
        let place = self.actions.insert((number, action));
        let key = TimerKey { number, place };
        self.order.push(Reverse((at, key)));
        key
    }

    fn get(&mut self, key: TimerKey) -> Option<&mut Action> {
        match self.actions.get_mut(key.place) {
            Some((number, action)) if *number == key.number => Some(action),
            _ => None,
        }
    }

    fn remove(&mut self, key: TimerKey) -> Option<Action> {
        self.get(key)?;
        let (_, action) = self.actions.remove(key.place);
        if self.order.len() > 2 * self.actions.len() + LEFT {
            let actions = &self.actions;
            self.order
                .retain(|Reverse((_, key))| actions.get(key.place).is_some_and(|(n, _)| *n == key.number));
        }
        Some(action)
    }

    fn first(&mut self) -> Option<(Mono, TimerKey)> {
        while let Some(Reverse((at, key))) = self.order.peek().copied() {
            if self.get(key).is_some() {
                return Some((at, key));
            }
            self.order.pop();
        }
        None
    }
}

/// Ordered by time, those of one moment as they were added.
#[derive(Default)]
pub(crate) struct Timers(RefCell<Queue>);

impl Timers {
    pub fn add(&self, at: Mono, action: Action) {
        self.0.borrow_mut().add(at, action);
    }

    /// When the next one fires.
    pub fn next(&self) -> Option<Mono> {
        self.0.borrow_mut().first().map(|(at, _)| at)
    }

    /// Takes one that is due.
    pub fn due(&self, now: Mono) -> Option<Action> {
        let mut queue = self.0.borrow_mut();
        let (at, key) = queue.first()?;
        if at <= now { queue.remove(key) } else { None }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let all = {
            let mut queue = self.0.borrow_mut();
            queue.order.clear();
            // Numbers go on: a sleep that is still held must not find another's timer.
            std::mem::take(&mut queue.actions)
        };
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
            if let Some(timer) = self.timers.0.borrow_mut().get(key) {
                *timer = Action::Wake(cx.waker().clone());
                return Poll::Pending;
            }
            self.key = None; // it has fired
            return Poll::Ready(());
        }
        let action = Action::Wake(cx.waker().clone());
        let key = self.timers.0.borrow_mut().add(self.at, action);
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let timer = self.timers.0.borrow_mut().remove(key);
            drop(timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(timers: &Timers, now: Mono) -> Vec<u64> {
        let mut fired = Vec::new();
        while let Some(action) = timers.due(now) {
            match action {
                Action::Connect(server) => fired.push(u64::from(server.0)),
                _ => panic!("another timer"),
            }
        }
        fired
    }

    #[test]
    fn in_the_order_of_their_times() {
        let timers = Timers::default();
        for (at, n) in [(5, 1), (3, 2), (5, 3), (9, 4), (3, 5)] {
            timers.add(Mono(at), Action::Connect(ServerId(n)));
        }
        assert_eq!(timers.next(), Some(Mono(3)));
        assert!(numbers(&timers, Mono(2)).is_empty());
        assert_eq!(numbers(&timers, Mono(5)), [2, 5, 1, 3]);
        assert_eq!(timers.next(), Some(Mono(9)));
        timers.clear();
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn who_leaves_is_not_kept_in_mind() {
        let timers = Rc::new(Timers::default());
        let poll = |sleep: &mut Sleep| Pin::new(sleep).poll(&mut Context::from_waker(Waker::noop()));
        let sleep = |at| {
            let mut sleep = Sleep::new(timers.clone(), Mono(at));
            assert!(poll(&mut sleep).is_pending());
            sleep
        };
        let mut held = Vec::new();
        let mut long = sleep(10);
        for at in 100..10_000 {
            held.push(sleep(at));
            if held.len() > 3 {
                held.remove(0);
            }
            // The one that comes first stays, so the others do not come first.
            assert!(timers.0.borrow().order.len() <= 2 * 5 + LEFT + 1);
        }
        assert_eq!(timers.next(), Some(Mono(10)));
        assert!(timers.due(Mono(10)).is_some());
        // Its place has another now, which is not its own.
        let mut other = sleep(20_000);
        assert_eq!(other.key.map(|k| k.place), long.key.map(|k| k.place));
        assert!(poll(&mut long).is_ready());
        drop(long);
        assert!(poll(&mut other).is_pending());
        drop(held);
        assert_eq!(timers.next(), Some(Mono(20_000)));
        drop(other);
        assert_eq!(timers.next(), None);
        assert!(timers.0.borrow().actions.is_empty());
    }
}
