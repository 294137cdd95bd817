//! When to spin and when to sleep.
//!
//! The window to spin in adapts as KVM's halt polling does (`virt/kvm/kvm_main.c`, `kvm_vcpu_halt`): a wait
//! that was a little longer than the window makes it grow, a long one closes it. So an idle process sleeps,
//! and one whose peers answer within the limit spins.
//!
//! Who spins gives its core away between any two looks: the message waited for may be one that a thread
//! waiting for this core is to send. Threads that answer each other then go round without ever sleeping, also
//! where there are more of them than cores, and a core that never idles need not be woken. Where somebody
//! takes the core for long, it computes, and a thread that sleeps gets its core back sooner than one that
//! waits in line: then nobody spins for a while.

use crate::Waiting;
use crate::clock::mono;
use crate::load::Load;
use pando_types::Mono;
use std::cell::Cell;
use std::time::Duration;

/// The first window tried.
const START: Duration = Duration::from_micros(25);
/// Who has the core for so long computes.
const LONG: Duration = Duration::from_micros(250);
/// After so many times that the core came back at once, that was an accident.
const CALM: u64 = 1000;
/// How long nobody spins then: first, and at most.
const HOLD: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(250));

/// Spins or sleeps, by what waits were like lately.
pub(crate) struct Pacer {
    limit: Duration,
    window: Cell<Duration>,
    /// It does not spin before.
    crowded: Cell<Mono>,
    hold: Cell<Duration>,
    /// How often the core came back at once, since it last did not.
    quick: Cell<u64>,
    load: Load,
}

impl Pacer {
    pub fn new(waiting: Waiting) -> Pacer {
        let (limit, window) = match waiting {
            Waiting::Blocking => (Duration::ZERO, Duration::ZERO),
            Waiting::Adaptive { limit } => (limit, Duration::ZERO),
            Waiting::Polling => (Duration::MAX, Duration::MAX),
        };
        Pacer {
            limit,
            window: Cell::new(window),
            crowded: Cell::new(Mono(0)),
            hold: Cell::new(HOLD.0),
            quick: Cell::new(0),
            load: Load::new(),
        }
    }

    /// Whether it never sleeps.
    pub fn polls(&self) -> bool {
        self.limit == Duration::MAX
    }

    /// How long to spin now.
    pub fn window(&self, now: Mono) -> Duration {
        if now < self.crowded.get() {
            Duration::ZERO
        } else {
            self.window.get()
        }
    }

    /// Gives the core to whoever wants it, once, unless it is this one's own. False: somebody computes there,
    /// and this is to sleep.
    pub fn give_way(&self) -> bool {
        if self.polls() {
            return true;
        }
        let before = mono();
        std::thread::yield_now();
        self.gave_way(before, mono())
    }

    fn gave_way(&self, before: Mono, after: Mono) -> bool {
        if after.since(before) < LONG {
            self.quick.set(self.quick.get() + 1);
            return true;
        }
        let hold = if self.quick.replace(0) < CALM {
            (self.hold.get() * 2).min(HOLD.1)
        } else {
            HOLD.0
        };
        self.hold.set(hold);
        self.crowded.set(after.after(hold));
        false
    }

    /// Whether another thread can run beside this one.
    pub fn has_spare_core(&self, now: Mono) -> bool {
        !self.load.is_busy(now)
    }

    /// A wait took `waited` until something came in.
    pub fn learn(&self, waited: Duration) {
        let window = self.window.get();
        if self.polls() || waited <= window {
            return;
        }
        let next = if waited <= self.limit {
            (window * 2).clamp(START, self.limit)
        } else {
            Duration::ZERO
        };
        self.window.set(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_follow_waits() {
        let us = Duration::from_micros;
        let pacer = Pacer::new(Waiting::Adaptive { limit: us(200) });
        assert_eq!(pacer.window(Mono(0)), us(0));
        pacer.learn(us(60));
        assert_eq!(pacer.window(Mono(0)), START);
        pacer.learn(us(10)); // paid
        assert_eq!(pacer.window(Mono(0)), START);
        for _ in 0..5 {
            pacer.learn(us(190));
        }
        assert_eq!(pacer.window(Mono(0)), us(200));
        pacer.learn(us(5_000));
        assert_eq!(pacer.window(Mono(0)), us(0));
        for (waiting, window) in [(Waiting::Blocking, us(0)), (Waiting::Polling, Duration::MAX)] {
            let pacer = Pacer::new(waiting);
            pacer.learn(us(1));
            pacer.learn(Duration::MAX);
            assert_eq!(pacer.window(Mono(0)), window);
        }
    }

    #[test]
    fn who_computes_is_left_alone() {
        let pacer = Pacer::new(Waiting::default());
        pacer.learn(Duration::from_micros(60));
        let long = |at: u64| pacer.gave_way(Mono(at), Mono(at).after(LONG));
        let (window, ms) = (|at: Mono| pacer.window(at), Duration::from_millis);
        assert!(pacer.gave_way(Mono(5), Mono(6)));
        assert_eq!(window(Mono(6)), START);
        let mut at = Mono(0);
        for hold in [8, 16, 32, 64, 128, 250, 250] {
            assert!(!long(at.0));
            let since = at.after(LONG);
            assert_eq!(window(since.after(ms(hold - 1))), Duration::ZERO);
            at = since.after(ms(hold));
            assert_eq!(window(at), START);
        }
        // Not any more.
        for _ in 0..CALM {
            assert!(pacer.gave_way(at, at));
        }
        assert!(!long(at.0));
        assert_eq!(window(at.after(LONG).after(HOLD.0)), START);
    }
}
