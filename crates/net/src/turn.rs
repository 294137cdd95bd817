//! The loop: wait, read, deliver, run, write.

use crate::Reactor;
use crate::clock::mono;
use crate::reactor::Delivery;
use crate::timers::Action;
use pando_types::Mono;
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Tasks run before what they sent is written: beyond it, others would wait too long for theirs.
const TASKS_PER_TURN: usize = 8192;
/// A blocking caller that was away for so long first looks at what happened to its connections.
const AWAY: Duration = Duration::from_millis(5);

/// The last so much of a wait for a timer is spent with an alarm set, which ends it at its instant.
const FINE: Duration = Duration::from_millis(3);

/// It is asleep so long before the end of such a wait, if there is so much of it.
const ASLEEP: Duration = Duration::from_micros(50);

/// Marks that the loop runs.
struct Entered<'a>(&'a Cell<bool>);

impl<'a> Entered<'a> {
    fn new(cell: &'a Cell<bool>) -> Entered<'a> {
        assert!(
            !cell.replace(true),
            "a reactor's loop was entered from one of its own tasks"
        );
        Entered(cell)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Reactor {
    /// Does what can be done now, then waits at most `max_wait` for something to come in, and does that.
    pub fn turn(&self, max_wait: Option<Duration>) {
        let _entered = Entered::new(&self.entered);
        self.process();
        self.wait(max_wait, &|| false);
        self.process();
    }

    /// Turns until the [`crate::Stopper`] is used.
    pub fn run(&self) {
        let _entered = Entered::new(&self.entered);
        self.process();
        while !self.stop.take() {
            self.wait(None, &|| self.stop.is_raised());
            self.process();
        }
    }

    /// Drives a future, and everything else here, on this thread until it completes.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _entered = Entered::new(&self.entered);
        let mut future = pin!(future);
        let waker = Waker::from(self.woken.clone());
        let mut cx = Context::from_waker(&waker);
        if mono().since(self.time.get()) > AWAY {
            // Else the first message might be sent on a connection that is known to be closed.
            self.wait(Some(Duration::ZERO), &|| true);
            self.process();
        }
        // What ended before this began must not end what it begins.
        self.deliver();
        loop {
            self.woken.take();
            if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
                self.flush();
                return value;
            }
            loop {
                self.process();
                if self.woken.is_raised() {
                    break;
                }
                self.wait(None, &|| self.woken.is_raised());
            }
        }
    }

    /// Delivers, fires, runs; then writes.
    fn process(&self) {
        let mut budget = TASKS_PER_TURN;
        loop {
            self.deliver();
            if self.resolved.take() {
                self.take_lookups();
            }
            self.fire();
            while budget > 0 && self.executor.run_one(|_| 0) {
                budget -= 1;
            }
            if self.inbox.is_empty() || budget == 0 {
                self.end_turn();
                if self.executor.ready() == 0 || budget == 0 {
                    break;
                }
            }
        }
        self.flush();
    }

    /// Does for all tasks at once what they wait for at the end of a turn.
    fn end_turn(&self) {
        let hook = self.turn_end.borrow().clone();
        if let Some(hook) = hook {
            hook();
        }
    }

    fn deliver(&self) {
        if self.inbox.is_empty() {
            return;
        }
        let node = self.node.borrow().clone();
        loop {
            match (self.inbox.pop(), &node) {
                (Some(Delivery::Message(from, message)), Some(node)) => node.receive(from, message),
                (Some(Delivery::Gone(peer)), Some(node)) => node.disconnected(peer),
                (Some(Delivery::Denied(server)), Some(node)) => node.denied(server),
                (Some(_), None) => {}
                (None, _) => return,
            }
        }
    }

    fn fire(&self) {
        if self.timers.next().is_none() {
            return;
        }
        let now = mono();
        while let Some(action) = self.timers.due(now) {
            match action {
                Action::Wake(waker) => waker.wake(),
                Action::Connect(server) => self.open(server),
                Action::Sweep => {
                    self.flush(); // a caller that was away must not be blamed on its peers
                    self.sweep(now);
                }
                Action::Accept => {
                    if let Some(listener) = self.listener.borrow_mut().as_mut() {
                        listener.ready = true;
                    }
                }
            }
        }
    }

    /// Waits until something can be read, a task can run, `done`, the next timer, or `max_wait`. Then reads.
    fn wait(&self, max_wait: Option<Duration>, done: &dyn Fn() -> bool) {
        let begin = mono();
        if self.has_work() || done() || max_wait == Some(Duration::ZERO) {
            self.poll(Some(Duration::ZERO));
        } else {
            self.idle(begin, max_wait, done);
        }
        self.time.set(mono());
        self.accept();
        self.read();
    }

    fn idle(&self, begin: Mono, max_wait: Option<Duration>, done: &dyn Fn() -> bool) {
        let due = [self.timers.next(), self.inbox.next()];
        let timer = due.into_iter().flatten().min().map(|at| at.since(begin));
        let limit = match (max_wait, timer) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        // Before a timer that is near it sleeps at last, however much of the time is gone: how such a wait
        // ends must not tell how long what came before it took (H99).
        let spun = match limit {
            Some(l) if l < FINE && !self.pacer.polls() => l.saturating_sub(ASLEEP),
            l => l.unwrap_or(Duration::MAX),
        };
        let window = self.pacer.window(begin).min(spun);
        let (mut waited, mut crowded, mut rang) = (Duration::ZERO, false, false);
        while waited < window && !crowded {
            if self.poll(Some(Duration::ZERO)) || self.interrupted(done) {
                return;
            }
            crowded = !self.pacer.give_way();
            waited = mono().since(begin);
        }
        if limit.is_some_and(|l| waited >= l) {
            return;
        }
        self.notify.park();
        let busy = if self.interrupted(done) {
            true
        } else {
            let arrived = match limit {
                Some(l) if l - waited < FINE && self.alarm.set(begin.after(l)) => {
                    let any = self.poll(None);
                    rang = mono().since(begin) >= l;
                    any && !rang
                }
                // Until it is near: the kernel counts such a timeout in milliseconds, and up.
                _ => self.poll(limit.map(|l| (l - waited).saturating_sub(FINE / 2))),
            };
            arrived || self.interrupted(done)
        };
        self.notify.unpark();
        // How long a wait takes where others compute, or until our own timer, says nothing of what it would
        // have taken.
        if !crowded && !rang {
            self.pacer
                .learn(if busy { mono().since(begin) } else { Duration::MAX });
        }
    }

    /// Work that would not end a wait in the kernel.
    fn has_work(&self) -> bool {
        self.executor.ready() > 0
            || !self.inbox.is_empty()
            || !self.readable.borrow().is_empty()
            || !self.dirty.borrow().is_empty()
            || self.listener.borrow().as_ref().is_some_and(|l| l.ready)
            || self.resolved.is_raised()
    }

    /// What another thread may have done meanwhile.
    fn interrupted(&self, done: &dyn Fn() -> bool) -> bool {
        done() || self.executor.ready() > 0 || self.resolved.is_raised()
    }

    /// One look at the kernel. True if anything happened.
    fn poll(&self, timeout: Option<Duration>) -> bool {
        let mut events = self.events.borrow_mut();
        let polled = self.poll.borrow_mut().poll(&mut events, timeout);
        // Who is woken by what came need not be woken once more.
        self.notify.unpark();
        match polled {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => return false,
            Err(e) => {
                tracing::error!(error = %e, "waiting for events failed");
                std::thread::sleep(Duration::from_millis(10));
                return false;
            }
        }
        for event in events.iter() {
            self.ready(event);
        }
        !events.is_empty()
    }
}
