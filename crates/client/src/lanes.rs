//! Request slots: each carries one mutating request at a time, under rising sequence numbers (H44–H46).

use pando_env::sync::{Sender, oneshot};
use pando_types::{RequestSlot, Sequence};
use std::cell::RefCell;
use std::collections::VecDeque;

#[derive(Default)]
struct State {
    free: Vec<(RequestSlot, Sequence)>,
    made: u16,
    waiting: VecDeque<Sender<()>>,
}

pub(crate) struct Lanes {
    most: u16,
    state: RefCell<State>,
}

/// A lane in use. Returned when dropped; its last sequence stays spent.
pub(crate) struct Lane<'a> {
    lanes: &'a Lanes,
    pub slot: RequestSlot,
    sequence: Sequence,
}

impl Lanes {
    pub fn new(most: u16) -> Lanes {
        Lanes {
            most: most.max(1),
            state: RefCell::default(),
        }
    }

    /// A free lane; waits while all are in use.
    pub async fn take(&self) -> Lane<'_> {
        loop {
            let wait = {
                let mut s = self.state.borrow_mut();
                if let Some((slot, sequence)) = s.free.pop() {
                    return Lane {
                        lanes: self,
                        slot,
                        sequence,
                    };
                }
                if s.made < self.most {
                    let slot = RequestSlot(s.made);
                    s.made += 1;
                    return Lane {
                        lanes: self,
                        slot,
                        sequence: Sequence(0),
                    };
                }
                let (sender, receiver) = oneshot();
                s.waiting.push_back(sender);
                receiver
            };
            wait.await;
        }
    }
}

impl Lane<'_> {
    /// The next sequence: only for a new request, or after a definite *not executed*.
    pub fn next(&mut self) -> Sequence {
        self.sequence = Sequence(self.sequence.0 + 1);
        self.sequence
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        let mut s = self.lanes.state.borrow_mut();
        s.free.push((self.slot, self.sequence));
        // A waiter that gave up is skipped.
        while let Some(waiting) = s.waiting.pop_front() {
            if waiting.send(()) {
                break;
            }
        }
    }
}
