//! What was received and waits for the node. An emulated way lets it wait as long as a longer way would have taken.

use crate::clock::mono;
use crate::reactor::{Delivery, WAY};
use mio::unix::SourceFd;
use mio::{Interest, Registry};
use pando_types::Mono;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Deliveries, in order.
pub(crate) struct Inbox {
    ready: RefCell<VecDeque<Delivery>>,
    way: Option<Way>,
}

/// All of it is equally long, so that nothing overtakes.
struct Way {
    delay: Duration,
    under_way: RefCell<VecDeque<(Mono, Delivery)>>,
    /// Ends the wait in the kernel when the first arrives. The timeout of that wait counts in milliseconds, which is too
    /// coarse, and spinning would take the core from those whose messages these are.
    alarm: OwnedFd,
}

impl Way {
    fn new(delay: Duration, registry: &Registry) -> io::Result<Way> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let alarm = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        registry.register(&mut SourceFd(&alarm.as_raw_fd()), WAY, Interest::READABLE)?;
        Ok(Way {
            delay,
            under_way: RefCell::default(),
            alarm,
        })
    }

    fn send(&self, delivery: Delivery) {
        let arrives = mono().after(self.delay);
        let mut under_way = self.under_way.borrow_mut();
        under_way.push_back((arrives, delivery));
        if under_way.len() == 1 {
            self.wake_at(arrives);
        }
    }

    fn arrived(&self) -> bool {
        let under_way = self.under_way.borrow();
        under_way.front().is_some_and(|(at, _)| *at <= mono())
    }

    fn take(&self) -> Option<Delivery> {
        if !self.arrived() {
            return None;
        }
        let mut under_way = self.under_way.borrow_mut();
        let (_, delivery) = under_way.pop_front()?;
        if let Some((next, _)) = under_way.front() {
            self.wake_at(*next);
        }
        Some(delivery)
    }

    fn wake_at(&self, at: Mono) {
        let when = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: (at.0 / 1_000_000_000) as i64,
                tv_nsec: (at.0 % 1_000_000_000) as i64,
            },
        };
        if let Err(e) = timerfd_settime(&self.alarm, TimerfdTimerFlags::ABSTIME, &when) {
            tracing::error!(error = %e, "an emulated way has no timer");
        }
    }
}

impl Inbox {
    /// Nothing was received. With a `delay`, what is takes so long to arrive.
    pub fn new(delay: Duration, registry: &Registry) -> io::Result<Inbox> {
        let way = (!delay.is_zero()).then(|| Way::new(delay, registry));
        Ok(Inbox {
            ready: RefCell::default(),
            way: way.transpose()?,
        })
    }

    /// Adds what is delivered after all before it.
    pub fn push(&self, delivery: Delivery) {
        match &self.way {
            Some(way) => way.send(delivery),
            None => self.ready.borrow_mut().push_back(delivery),
        }
    }

    /// The next that has arrived.
    pub fn pop(&self) -> Option<Delivery> {
        match &self.way {
            Some(way) => way.take(),
            None => self.ready.borrow_mut().pop_front(),
        }
    }

    /// Whether nothing has arrived.
    pub fn is_empty(&self) -> bool {
        match &self.way {
            Some(way) => !way.arrived(),
            None => self.ready.borrow().is_empty(),
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.ready.borrow_mut().clear();
        if let Some(way) = &self.way {
            way.under_way.borrow_mut().clear();
        }
    }
}
