//! Keeping peers from filling the log.

use pando_types::Mono;
use std::cell::Cell;
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(1);
const PER_WINDOW: u32 = 10;

/// Lets a few lines through per second and counts the others.
#[derive(Default)]
pub(crate) struct LogGate {
    since: Cell<Mono>,
    lines: Cell<u32>,
}

impl LogGate {
    /// Whether a line may be logged now.
    pub fn open(&self, now: Mono) -> bool {
        if now.since(self.since.get()) >= WINDOW {
            let suppressed = self.lines.get().saturating_sub(PER_WINDOW);
            if suppressed > 0 {
                tracing::warn!(suppressed, "more lines about peers were not logged");
            }
            self.since.set(now);
            self.lines.set(0);
        }
        self.lines.set(self.lines.get().saturating_add(1));
        self.lines.get() <= PER_WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_per_second() {
        let gate = LogGate::default();
        let at = |s: u64| Mono(s * 1_000_000_000);
        assert_eq!((0..50).filter(|_| gate.open(at(5))).count(), 10);
        assert_eq!((0..50).filter(|_| gate.open(at(6))).count(), 10);
    }
}
