//! What was received and waits for the node. An emulated way lets it wait as long as a longer way would have
//! taken.

use crate::clock::mono;
use crate::reactor::Delivery;
use pando_types::Mono;
use std::cell::RefCell;
use std::collections::VecDeque;
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
}

impl Way {
    fn send(&self, delivery: Delivery) {
        let arrives = mono().after(self.delay);
        self.under_way.borrow_mut().push_back((arrives, delivery));
    }

    fn next(&self) -> Option<Mono> {
        self.under_way.borrow().front().map(|(at, _)| *at)
    }

    fn arrived(&self) -> bool {
        self.next().is_some_and(|at| at <= mono())
    }

    fn take(&self) -> Option<Delivery> {
        if !self.arrived() {
            return None;
        }
        self.under_way
            .borrow_mut()
            .pop_front()
            .map(|(_, delivery)| delivery)
    }
}

impl Inbox {
    /// Nothing was received. With a `delay`, what is takes so long to arrive.
    pub fn new(delay: Duration) -> Inbox {
        Inbox {
            ready: RefCell::default(),
            way: (!delay.is_zero()).then(|| Way {
                delay,
                under_way: RefCell::default(),
            }),
        }
    }

    /// When the first arrives of those that are under way.
    pub fn next(&self) -> Option<Mono> {
        self.way.as_ref()?.next()
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
