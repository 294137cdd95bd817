//! Whether RocksDB is to be asked now to rewrite tables, so that what was removed gives its space back.
//!
//! RocksDB does so by itself when it has enough to merge, which may be never. While there is room nobody
//! minds. When the device is short of space and much was deleted, it is asked to: one *round* at a time, and
//! less and less often if nothing comes of it.

use std::time::{Duration, Instant};

/// So many rows are a good deal.
const DELETED: u64 = 64;
/// A round that freed less was in vain.
const GAIN: u64 = 1 << 20;
/// A device that was short of space still counts as such for so long: rows that follow one another in being
/// deleted are seen to.
const LINGER: Duration = Duration::from_secs(60);
/// Between rounds. It doubles with each that was in vain.
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(60);

/// What came of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Round {
    /// Bytes that tables are smaller by.
    pub freed: u64,
    /// It was broken off because it had done enough.
    pub more: bool,
    /// How long it took.
    pub took: Duration,
}

/// What is known of earlier rounds.
#[derive(Debug)]
pub(crate) struct Pressure {
    /// When the device was short of space last, or a round freed some.
    pressed: Option<Instant>,
    /// No round begins before.
    next: Option<Instant>,
    pause: Duration,
    /// Rows that had been deleted when the last round began.
    seen: u64,
    /// There is more to do than those that were deleted since: of before the store was opened, or what a
    /// round has left.
    more: bool,
}

impl Pressure {
    pub fn new() -> Pressure {
        Pressure {
            pressed: None,
            next: None,
            pause: LEAST,
            seen: 0,
            more: true,
        }
    }

    /// Whether a round is to begin. `low`: the device is short of space. `deleted`: rows, since the store was
    /// opened.
    pub fn is_due(&mut self, now: Instant, low: bool, deleted: u64) -> bool {
        if low {
            self.pressed = Some(now);
        }
        let recent = |at: Instant| now.saturating_duration_since(at) < LINGER;
        self.pressed.is_some_and(recent)
            && self.next.is_none_or(|next| now >= next)
            && (self.more || deleted.saturating_sub(self.seen) >= DELETED)
    }

    /// It begins.
    pub fn begins(&mut self, deleted: u64) {
        self.seen = deleted;
        self.more = false;
    }

    /// It ended.
    pub fn ended(&mut self, now: Instant, round: Round) {
        self.more = round.more;
        if round.freed >= GAIN {
            self.pressed = Some(now);
            self.pause = LEAST;
        } else {
            self.pause = (self.pause * 2).min(MOST);
        }
        // At most half of the time.
        self.next = Some(now + self.pause.max(round.took));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn round(freed: u64, more: bool) -> Round {
        Round {
            freed,
            more,
            took: 3 * SECOND,
        }
    }

    #[test]
    fn with_room_nothing_happens() {
        let (mut pressure, now) = (Pressure::new(), Instant::now());
        for n in 0..1000 {
            assert!(!pressure.is_due(now + n * SECOND, false, 1_000_000));
        }
    }

    #[test]
    fn rounds_follow_what_is_deleted() {
        let (mut pressure, now) = (Pressure::new(), Instant::now());
        // What was deleted before a start is not known.
        assert!(pressure.is_due(now, true, 0));
        pressure.begins(0);
        pressure.ended(now, round(GAIN, false));
        // As long as the round took nothing follows, and without anything deleted nothing either.
        assert!(!pressure.is_due(now + 2 * SECOND, true, DELETED));
        assert!(!pressure.is_due(now + 3 * SECOND, true, DELETED - 1));
        assert!(pressure.is_due(now + 3 * SECOND, false, DELETED));
        pressure.begins(DELETED);
        pressure.ended(now + 5 * SECOND, round(GAIN, true));
        assert!(pressure.is_due(now + 8 * SECOND, false, DELETED));
        pressure.begins(DELETED);
        pressure.ended(now + 9 * SECOND, round(GAIN, false));
        // It was short of space a while ago.
        assert!(pressure.is_due(now + 68 * SECOND, false, 2 * DELETED));
        assert!(!pressure.is_due(now + 69 * SECOND, false, 2 * DELETED));
        assert!(pressure.is_due(now + 70 * SECOND, true, 2 * DELETED));
    }

    #[test]
    fn in_vain_it_is_tried_less_often() {
        let (mut pressure, mut now) = (Pressure::new(), Instant::now());
        let mut begun = Vec::new();
        for n in 0..3000 {
            now += SECOND;
            if pressure.is_due(now, true, n * DELETED) {
                pressure.begins(n * DELETED);
                pressure.ended(now, round(GAIN - 1, false));
                begun.push(n);
            }
        }
        let gaps: Vec<u64> = begun.windows(2).map(|w| w[1] - w[0]).collect();
        assert_eq!(gaps[..6], [3, 4, 8, 16, 32, 60]);
        assert!(gaps[6..].iter().all(|gap| *gap == MOST.as_secs()));
        pressure.begins(0);
        pressure.ended(now, round(GAIN, true));
        assert!(pressure.is_due(now + 3 * SECOND, true, 0));
    }
}
