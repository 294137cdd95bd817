//! With leases: what time it is (`--coherence lease`).
//!
//! Until when a statement is good is told by the coordinator's clock, as a client's word is worth nothing
//! here, and no two clocks need show the same. The coordinator counts milliseconds on its monotonic clock;
//! the others ask it again and again. From what it answered they compute a time that has passed for certain,
//! and one that has not come (H51): their own clocks run a little faster or slower than its. Leases are
//! granted by the first, and tested by the second.

use crate::MetaServer;
use pando_auth::StatementKeys;
use pando_format::{FactChange, Invalidation};
use pando_types::{Mono, Term, Watermark, plant};
use pando_wire::{Refusal, Scope, Statement};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Bits of a time; the coordinator's term stands above them.
const TIME_BITS: u32 = 40;
/// Clocks differ by less than one part in so many.
const DRIFT: u32 = 64;
/// For so many of the longest leases the coordinator knows what has changed: operations whose own change
/// waits rest on statements that run out meanwhile (H317).
const MEMORY: u32 = 4;
/// A time that never comes: of what does not change.
const NEVER: Watermark = Watermark(u64::MAX);

/// A time that the coordinator has said.
#[derive(Clone, Copy)]
struct Told {
    time: Watermark,
    /// When it was asked, and when its answer came.
    asked: Mono,
    heard: Mono,
}

/// The coordinator's clock, as this server knows it.
#[derive(Default)]
pub(crate) struct Clock {
    /// On the coordinator: nothing.
    told: Option<Told>,
    /// On the coordinator: the newest change through each tag, and of what kind.
    changed: BTreeMap<u64, (Watermark, FactChange)>,
    /// The same, the oldest first.
    order: VecDeque<(Watermark, u64)>,
    /// On the coordinator: the latest change. No two are at the same time.
    latest: Watermark,
    /// The latest time that was said not to have come.
    upper: Watermark,
}

/// So much later.
pub(crate) fn later(at: Watermark, by: Duration) -> Watermark {
    Watermark(at.0.saturating_add(by.as_millis() as u64))
}

/// The term of a time.
fn term_of(at: Watermark) -> Term {
    Term(at.0 >> TIME_BITS)
}

impl Clock {
    /// Whether something has changed since then that a statement says.
    /// REQUIRES: that is no longer ago than is remembered.
    fn outdated(&self, s: &Statement, since: Watermark) -> Option<u64> {
        let newer = |tag: &&u64| {
            self.changed.get(tag).is_some_and(|(at, change)| {
                *at >= since && (*change == FactChange::Access || s.scope != Scope::Handle)
            })
        };
        s.way.iter().find(newer).copied()
    }

    fn note(&mut self, at: Watermark, what: &Invalidation, keys: &StatementKeys) {
        for tag in keys.tags(what.id, what.generation) {
            let entry = self.changed.entry(tag).or_insert((at, what.change));
            // Access concerns more; what is taken for it is refused once too often.
            let change = if entry.1 == FactChange::Access {
                entry.1
            } else {
                what.change
            };
            *entry = (at, change);
            self.order.push_back((at, tag));
        }
    }

    fn forget(&mut self, before: Watermark) {
        while let Some((at, tag)) = self.order.front().copied().filter(|(at, _)| *at < before) {
            self.order.pop_front();
            if self.changed.get(&tag).is_some_and(|(newest, _)| *newest == at) {
                self.changed.remove(&tag);
            }
        }
    }

    /// A time that has passed.
    fn lower(&self, now: Mono) -> Option<Watermark> {
        let told = self.told?;
        let since = now.since(told.heard);
        Some(later(told.time, since - since / DRIFT))
    }

    /// A time that has not come; it never goes back, so that what was refused stays refused. `None`: the
    /// coordinator was not heard of within the longest lease.
    fn upper(&mut self, now: Mono, longest: Duration) -> Option<Watermark> {
        let told = self.told.filter(|told| now.since(told.asked) < longest)?;
        if plant!(H51) {
            return Some(told.time);
        }
        let since = now.since(told.asked);
        let upper = later(told.time, since + since / DRIFT + Duration::from_millis(1));
        self.upper = self.upper.max(upper);
        Some(self.upper)
    }

    /// The coordinator said, when it was asked then, that it was this time.
    fn hear(&mut self, told: Told) {
        if self.told.is_none_or(|known| known.time <= told.time) {
            self.told = Some(told);
        }
    }
}

impl MetaServer {
    /// A time of the coordinator that has passed; on the coordinator: now. 0: not known.
    pub(crate) fn lease_time(&self) -> Watermark {
        let now = self.world.mono();
        if self.coordinates() {
            let millis = now.0 / 1_000_000 % (1 << TIME_BITS);
            return Watermark(self.map().term.0 << TIME_BITS | millis);
        }
        self.facts.clock.borrow().lower(now).unwrap_or_default()
    }

    /// Whether a statement has run out: then the tag that says so, its own. `verified`: as of when it was
    /// known to be true here, if it was.
    pub(crate) fn run_out(&self, s: &Statement, verified: Watermark) -> Result<Option<u64>, Refusal> {
        if s.at == NEVER || plant!(H52) {
            return Ok(None);
        }
        let now = match self.coordinates() {
            true => self.lease_time(),
            false => {
                let longest = self.map().coherence.longest_lease().unwrap_or_default();
                let upper = self.facts.clock.borrow_mut().upper(self.world.mono(), longest);
                upper.ok_or(Refusal::NotReady)?
            }
        };
        // Of a time of a later term nothing is known here.
        if term_of(s.at) > term_of(now) {
            return Err(Refusal::NotReady);
        }
        if now < s.at {
            return Ok(None);
        }
        // It ran out while the operation waited: here it is known what has changed meanwhile.
        if self.coordinates() && self.remembers_since(verified) && !plant!(H317) {
            return Ok(self.facts.clock.borrow().outdated(s, verified));
        }
        Ok(Some(s.tag()))
    }

    /// Whether all changes since then are known here.
    fn remembers_since(&self, time: Watermark) -> bool {
        let now = self.lease_time();
        let memory = self.map().coherence.longest_lease().unwrap_or_default() * MEMORY;
        term_of(time) == term_of(now) && later(time, memory) >= now
    }

    /// On the coordinator: this changes now. Returns the time, which no other change has.
    pub(crate) fn changes_now(&self, what: &[Invalidation]) -> Watermark {
        let latest = self.facts.clock.borrow().latest;
        let now = self.lease_time().max(Watermark(latest.0 + 1));
        let memory = self.map().coherence.longest_lease().unwrap_or_default() * (MEMORY + 1);
        let mut clock = self.facts.clock.borrow_mut();
        clock.latest = now;
        for i in what {
            clock.note(now, i, &self.facts.keys);
        }
        clock.forget(Watermark(now.0.saturating_sub(memory.as_millis() as u64)));
        now
    }

    /// What time the coordinator said it was when it was asked then.
    pub(crate) fn hear_the_time(&self, time: Watermark, asked: Mono) {
        let heard = self.world.mono();
        self.facts.clock.borrow_mut().hear(Told { time, asked, heard });
        if let Some(longest) = self.map().coherence.longest_lease() {
            self.facts.leases.borrow_mut().hear(time, asked, longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_auth::Secret;
    use pando_types::{DirId, FsId, Generation};
    use pando_wire::Said;

    fn keys() -> StatementKeys {
        StatementKeys::new(FsId(1), &Secret::new([1; 32]), &[Secret::new([2; 32])])
    }

    fn change(id: u128, change: FactChange) -> Invalidation {
        Invalidation {
            id: DirId(id),
            generation: Generation(1),
            change,
        }
    }

    fn statement(scope: Scope, ids: &[u128]) -> Statement {
        let way = ids.iter().map(|id| keys().tag(DirId(*id), Generation(1)));
        Statement::from(Said {
            scope,
            way: way.collect(),
            ..Said::above_root()
        })
    }

    #[test]
    fn the_coordinator_knows_what_has_changed_while_an_operation_waited() {
        let mut clock = Clock::default();
        let tag = |id| keys().tag(DirId(id), Generation(1));
        let way = statement(Scope::Way, &[4, 5, 6]);
        let open = statement(Scope::Handle, &[5]);
        clock.note(Watermark(10), &change(5, FactChange::Moved), &keys());
        assert_eq!(clock.outdated(&way, Watermark(10)), Some(tag(5)));
        assert_eq!(clock.outdated(&way, Watermark(11)), None);
        assert_eq!(
            clock.outdated(&statement(Scope::Way, &[4, 6]), Watermark(9)),
            None
        );
        // A directory that is open stays so when it is renamed, not when it is closed to others.
        assert_eq!(clock.outdated(&open, Watermark(9)), None);
        clock.note(Watermark(12), &change(5, FactChange::Access), &keys());
        assert_eq!(clock.outdated(&open, Watermark(9)), Some(tag(5)));
        clock.note(Watermark(14), &change(5, FactChange::Moved), &keys());
        assert_eq!(clock.outdated(&open, Watermark(9)), Some(tag(5)));
        clock.forget(Watermark(14));
        assert_eq!(clock.outdated(&way, Watermark(14)), Some(tag(5)));
        clock.forget(Watermark(15));
        assert_eq!(clock.outdated(&way, Watermark(14)), None);
        assert!(clock.changed.is_empty() && clock.order.is_empty());
    }

    #[test]
    fn time_passes_between_two_answers_and_never_goes_back() {
        const LONG: Duration = Duration::from_secs(5);
        let at = |millis: u64| Mono(millis * 1_000_000);
        let mut clock = Clock::default();
        assert_eq!((clock.lower(at(1)), clock.upper(at(1), LONG)), (None, None));
        clock.hear(Told {
            time: Watermark(500),
            asked: at(90),
            heard: at(100),
        });
        assert_eq!(clock.lower(at(100)), Some(Watermark(500)));
        assert_eq!(clock.upper(at(100), LONG), Some(Watermark(511)));
        assert_eq!(clock.lower(at(740)), Some(Watermark(1130)));
        assert_eq!(clock.upper(at(730), LONG), Some(Watermark(1151)));
        // An answer that says less has come: what was said of the future stays said.
        clock.hear(Told {
            time: Watermark(1130),
            asked: at(735),
            heard: at(740),
        });
        assert_eq!(clock.upper(at(740), LONG), Some(Watermark(1151)));
        assert_eq!(clock.upper(at(5740), LONG), None, "silent for too long");
        // An older answer that comes later.
        clock.hear(Told {
            time: Watermark(400),
            asked: at(95),
            heard: at(800),
        });
        assert_eq!(clock.lower(at(740)), Some(Watermark(1130)));
    }
}
