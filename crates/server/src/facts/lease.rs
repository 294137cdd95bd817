//! Leases (`--coherence lease`), the baseline of InfiniFS §5.5: what clients are told of a directory is good
//! for a fixed time, and whoever changes the directory locks its records, so that nobody is told anything new
//! of it, and waits until that time has passed. Nobody is told of the change.
//!
//! Whether a statement's time has passed is told by the coordinator's clock, as a client's word is worth
//! nothing here, and no two clocks need show the same. The coordinator counts milliseconds on its monotonic
//! clock; the others ask it again and again. What it answered is a time that has passed for certain, and is
//! what they write on statements (`at`). How late it may be at most they count themselves, from before they
//! asked, a little faster than their clock runs (H51). When the answer is older than a lease they serve
//! nobody: so when a coordinator that has started again changes something, a lease later, nobody goes by the
//! clock of the one before any more.

use crate::MetaServer;
use pando_auth::StatementKeys;
use pando_format::{FactChange, Invalidation};
use pando_types::{Mono, Watermark, plant};
use pando_wire::{Scope, Statement};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Bits of a time; the coordinator's term stands above them.
const TIME_BITS: u32 = 40;
/// Clocks differ by less than one part in so many: of lengths that must not come out too short, so much is
/// added.
const DRIFT: u32 = 64;
/// For so many leases the coordinator knows what has changed: operations whose own change waits rest on
/// statements that run out meanwhile.
const MEMORY: u32 = 4;

/// What time it is.
#[derive(Default)]
pub(crate) struct Clock {
    /// What the coordinator said, and when it was asked. On the coordinator: nothing.
    told: Option<(Watermark, Mono)>,
    /// On the coordinator: the newest change through each tag, and of what kind.
    changed: BTreeMap<u64, (Watermark, FactChange)>,
    /// The same, the oldest first.
    order: VecDeque<(Watermark, u64)>,
}

impl Clock {
    /// Whether a change concerns what a statement says. REQUIRES: it is not older than what is remembered.
    fn outdated(&self, s: &Statement) -> Option<u64> {
        let newer = |tag: &&u64| {
            self.changed.get(tag).is_some_and(|(at, change)| {
                *at > s.at && (*change == FactChange::Access || s.scope != Scope::Handle)
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
}

/// So much later.
fn later(at: Watermark, by: Duration) -> Watermark {
    Watermark(at.0.saturating_add(by.as_millis() as u64))
}

impl MetaServer {
    /// A time of the coordinator that has passed.
    pub(crate) fn lease_time(&self) -> Watermark {
        if self.coordinates() {
            let millis = self.world.mono().0 / 1_000_000 % (1 << TIME_BITS);
            return Watermark(self.map().term.0 << TIME_BITS | millis);
        }
        self.facts
            .clock
            .borrow()
            .told
            .map_or(Watermark(0), |(time, _)| time)
    }

    /// Whether the coordinator was heard of within a lease.
    pub(crate) fn lease_time_is_known(&self, lease: Duration) -> bool {
        let told = self.facts.clock.borrow().told;
        self.coordinates() || told.is_some_and(|(_, asked)| self.world.mono().since(asked) < lease)
    }

    /// The tag through which a statement may not be true any more; 0: its time has passed. REQUIRES: the time
    /// is known.
    pub(crate) fn run_out(&self, s: &Statement, lease: Duration) -> Option<u64> {
        let clock = self.facts.clock.borrow();
        if self.coordinates() {
            // Whoever has waited for a lease has statements that are older; here it is known what they
            // missed.
            let passed = later(s.at, lease * MEMORY) <= self.lease_time();
            return if passed { Some(0) } else { clock.outdated(s) };
        }
        let now = clock.told.map(|(time, asked)| {
            let since = self.world.mono().since(asked);
            later(time, since + since / DRIFT + Duration::from_millis(1))
        });
        let passed = now.is_none_or(|now| later(s.at, lease) <= now);
        (passed && !plant!(H52)).then_some(0)
    }

    /// Waits until every lease on what is locked has run out. As of the time returned it may be changed.
    pub(crate) async fn outlast(&self, what: &[Invalidation], lease: Duration) -> Watermark {
        let upto = Watermark(self.lease_time().0 + what.len() as u64);
        {
            let mut clock = self.facts.clock.borrow_mut();
            for i in what {
                clock.note(upto, i, &self.facts.keys);
            }
            let old = (lease * (MEMORY + 1)).as_millis() as u64;
            clock.forget(Watermark(upto.0.saturating_sub(old)));
        }
        if !plant!(H51) {
            let rounded = Duration::from_millis(1 + what.len() as u64);
            self.pause(lease + lease / (DRIFT / 4) + rounded).await;
        }
        upto
    }

    /// What time the coordinator said it was when it was asked then.
    pub(crate) fn hear_the_time(&self, time: Watermark, asked: Mono) {
        let told = &mut self.facts.clock.borrow_mut().told;
        if told.is_none_or(|(known, _)| known <= time) {
            *told = Some((time, asked));
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

    fn statement(scope: Scope, ids: &[u128], at: u64) -> Statement {
        let way = ids.iter().map(|id| keys().tag(DirId(*id), Generation(1)));
        Statement::from(Said {
            scope,
            way: way.collect(),
            at: Watermark(at),
            ..Said::above_root()
        })
    }

    #[test]
    fn the_coordinator_knows_what_has_changed_while_an_operation_waited() {
        let mut clock = Clock::default();
        let tag = |id| keys().tag(DirId(id), Generation(1));
        clock.note(Watermark(10), &change(5, FactChange::Moved), &keys());
        assert_eq!(
            clock.outdated(&statement(Scope::Way, &[4, 5, 6], 9)),
            Some(tag(5))
        );
        assert_eq!(clock.outdated(&statement(Scope::Way, &[4, 5, 6], 10)), None);
        assert_eq!(clock.outdated(&statement(Scope::Way, &[4, 6], 9)), None);
        // A directory that is open stays so when it is renamed, not when it is closed to others.
        assert_eq!(clock.outdated(&statement(Scope::Handle, &[5], 9)), None);
        clock.note(Watermark(12), &change(5, FactChange::Access), &keys());
        assert_eq!(clock.outdated(&statement(Scope::Handle, &[5], 9)), Some(tag(5)));
        clock.note(Watermark(14), &change(5, FactChange::Moved), &keys());
        assert_eq!(clock.outdated(&statement(Scope::Handle, &[5], 9)), Some(tag(5)));
        clock.forget(Watermark(14));
        assert_eq!(clock.outdated(&statement(Scope::Way, &[5], 13)), Some(tag(5)));
        clock.forget(Watermark(15));
        assert_eq!(clock.outdated(&statement(Scope::Way, &[5], 13)), None);
        assert!(clock.changed.is_empty() && clock.order.is_empty());
    }
}
