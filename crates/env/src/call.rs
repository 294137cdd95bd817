//! Calls over messages: a reply is matched by the number its request chose, whichever server or connection
//! brings it.

use crate::sync::{Either, Receiver, Sender, first, oneshot};
use crate::{Peer, World};
use foldhash::fast::FixedState;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

/// Why a call brought no answer. Unless it was denied, the request may have been executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallError {
    /// Nothing came in time.
    Timeout,
    /// The connection was lost.
    Disconnected,
    /// The server does not let this process in: this try was not executed.
    Denied,
}

/// Who was asked, and who waits for the answer.
type Pending<R> = (Peer, Sender<Result<R, CallError>>);

/// The outstanding calls of one process.
pub struct Caller<R> {
    world: World,
    next: Cell<u64>,
    pending: RefCell<HashMap<u64, Pending<R>, FixedState>>,
}

impl<R> Caller<R> {
    /// No calls yet. Numbers start at random, so that a late reply to an earlier incarnation matches nothing.
    pub fn new(world: World) -> Caller<R> {
        let first = world.random() >> 1;
        Caller {
            world,
            next: Cell::new(first),
            pending: RefCell::default(),
        }
    }

    /// Sends what `encode` makes of the call's number, and waits for the answer.
    pub async fn call(
        &self,
        to: Peer,
        timeout: Duration,
        encode: impl FnOnce(u64) -> Vec<u8>,
    ) -> Result<R, CallError> {
        let id = self.next.get();
        self.next.set(id.wrapping_add(1));
        let (sender, receiver) = oneshot();
        self.pending.borrow_mut().insert(id, (to, sender));
        let guard = Forget { caller: self, id };
        self.world.send(to, encode(id));
        // Pinned where it is made: `.await` alone would move it there, with the place for the answer.
        let answer = pin!(Self::wait(receiver, self.world.timeout(timeout))).await;
        drop(guard);
        answer
    }

    async fn wait(
        receiver: Receiver<Result<R, CallError>>,
        timer: crate::LocalFuture<()>,
    ) -> Result<R, CallError> {
        match first(receiver, timer).await {
            Either::Left(Some(r)) => r,
            Either::Left(None) => Err(CallError::Disconnected),
            Either::Right(()) => Err(CallError::Timeout),
        }
    }

    /// A reply came in. False if nobody waits for it.
    pub fn complete(&self, id: u64, reply: R) -> bool {
        let waiting = self.pending.borrow_mut().remove(&id);
        waiting.is_some_and(|(_, sender)| sender.send(Ok(reply)))
    }

    /// The connection to `peer` is gone: its calls end.
    pub fn disconnected(&self, peer: Peer) {
        self.fail(peer, CallError::Disconnected);
    }

    /// `peer` does not let us in: its calls end.
    pub fn denied(&self, peer: Peer) {
        self.fail(peer, CallError::Denied);
    }

    fn fail(&self, peer: Peer, why: CallError) {
        let mut gone: Vec<u64> = self
            .pending
            .borrow()
            .iter()
            .filter(|(_, (p, _))| *p == peer)
            .map(|(id, _)| *id)
            .collect();
        gone.sort_unstable(); // in the order in which they were made
        for id in gone {
            let waiting = self.pending.borrow_mut().remove(&id);
            if let Some((_, sender)) = waiting {
                sender.send(Err(why));
            }
        }
    }
}

/// Takes a call off the list when its future ends or is dropped.
struct Forget<'a, R> {
    caller: &'a Caller<R>,
    id: u64,
}

impl<R> Drop for Forget<'_, R> {
    fn drop(&mut self) {
        let waiting = self.caller.pending.borrow_mut().remove(&self.id);
        drop(waiting);
    }
}
