//! What was received and waits for the node. An emulated way lets it wait as long as a longer way would have taken.

use crate::alarm::Alarm;
use crate::clock::mono;
use crate::reactor::{Delivery, WAY};
use mio::Registry;
use pando_types::Mono;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
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
    /// Rings when the first arrives.
    alarm: Alarm,
}

impl Way {
    fn new(delay: Duration, registry: &Registry) -> io::Result<Way> {
        Ok(Way {
            delay,
            under_way: RefCell::default(),
            alarm: Alarm::new(registry, WAY)?,
        })
    }

    fn send(&self, delivery: Delivery) {
        let arrives = mono().after(self.delay);
        let mut under_way = self.under_way.borrow_mut();
        under_way.push_back((arrives, delivery));
        if under_way.len() == 1 {
            self.alarm.set(arrives);
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
            self.alarm.set(*next);
        }
        Some(delivery)
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
