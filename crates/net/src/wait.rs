//! When to spin and when to sleep.
//!
//! The window to spin in adapts as KVM's halt polling does (`virt/kvm/kvm_main.c`, `kvm_vcpu_halt`): a wait that was
//! a little longer than the window makes it grow, a long one closes it. So an idle process sleeps, and one whose
//! peers answer within the limit spins. While more threads want to run than there are cores, nobody spins: the
//! message waited for may be one that a thread waiting for this core is to send.

use crate::Waiting;
use crate::load::Load;
use pando_types::Mono;
use std::cell::Cell;
use std::time::Duration;

/// The first window tried.
const START: Duration = Duration::from_micros(25);

/// Spins or sleeps, by what waits were like lately.
pub(crate) struct Pacer {
    limit: Duration,
    window: Cell<Duration>,
    /// Whether it spins only where a core is to spare.
    yields: bool,
    load: Load,
}

impl Pacer {
    pub fn new(waiting: Waiting) -> Pacer {
        let (limit, window, yields) = match waiting {
            Waiting::Blocking => (Duration::ZERO, Duration::ZERO, false),
            Waiting::Adaptive { limit } => (limit, Duration::ZERO, true),
            Waiting::Polling => (Duration::MAX, Duration::MAX, false),
        };
        Pacer {
            limit,
            window: Cell::new(window),
            yields,
            load: Load::new(),
        }
    }

    /// Whether it never sleeps.
    pub fn polls(&self) -> bool {
        self.limit == Duration::MAX
    }

    /// How long to spin now.
    pub fn window(&self) -> Duration {
        self.window.get()
    }

    /// Whether to stop spinning because the core is wanted.
    pub fn yields(&self, now: Mono) -> bool {
        self.yields && self.load.is_busy(now)
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
        assert_eq!(pacer.window(), us(0));
        pacer.learn(us(60));
        assert_eq!(pacer.window(), START);
        pacer.learn(us(10)); // paid
        assert_eq!(pacer.window(), START);
        for _ in 0..5 {
            pacer.learn(us(190));
        }
        assert_eq!(pacer.window(), us(200));
        pacer.learn(us(5_000));
        assert_eq!(pacer.window(), us(0));
        for (waiting, window) in [(Waiting::Blocking, us(0)), (Waiting::Polling, Duration::MAX)] {
            let pacer = Pacer::new(waiting);
            pacer.learn(us(1));
            pacer.learn(Duration::MAX);
            assert_eq!(pacer.window(), window);
            assert!(!pacer.yields(Mono(0)));
        }
    }
}
