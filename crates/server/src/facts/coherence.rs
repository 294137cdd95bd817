//! The one place where lazy invalidation and leases differ: as of when a statement is true, whether it still
//! is, what a server must know before it serves, and what comes before a change.

use crate::account::Notes;
use crate::{Failure, MetaServer};
use pando_cluster::Coherence;
use pando_format::Invalidation;
use pando_types::{Mono, Watermark, plant};
use pando_wire::{Refusal, Statement};
use std::time::Duration;

/// How often the coordinator is asked in the time of a lease: statements are good for so much less.
const ASKED: u32 = 8;

impl MetaServer {
    fn lease(&self) -> Option<Duration> {
        self.map().coherence.lease()
    }

    /// As of when what this server says is true: a position in the log of invalidations, or a time.
    pub(crate) fn known_upto(&self) -> Watermark {
        match self.map().coherence {
            Coherence::Lazy => self.heard_upto(),
            Coherence::Lease(_) => self.lease_time(),
        }
    }

    /// As of when a statement is true that rests on one that was shown.
    pub(crate) fn known_upto_below(&self, shown: Option<&Statement>) -> Watermark {
        let now = self.known_upto();
        match (self.map().coherence, shown) {
            // What was shown has just been tested against all that was heard.
            (Coherence::Lazy, _) | (_, None) => now,
            // Nobody was asked about what was shown.
            (Coherence::Lease(_), Some(above)) => now.min(above.at),
        }
    }

    /// What is older than this is told anew after it was tested; with leases nothing is, unless it was joined
    /// from links.
    pub(crate) fn renewed_upto(&self) -> Watermark {
        match self.map().coherence {
            Coherence::Lazy => self.heard_upto(),
            Coherence::Lease(_) => Watermark(0),
        }
    }

    /// Whether this server knows what it has to know before it serves.
    pub(crate) fn knows_enough(&self) -> bool {
        match self.lease() {
            // Whether it still may act on it is tested when an operation takes effect.
            None => self.facts.heard.borrow().joined(),
            Some(_) => self.coordinates() || self.lease_time() > Watermark(0),
        }
    }

    /// Refuses what rests on something that is not true any more, or may not be.
    pub(crate) fn check_current<'a>(
        &self,
        statements: impl IntoIterator<Item = &'a Statement>,
    ) -> Result<(), Refusal> {
        let lent_time = self.lease().is_some() && !self.coordinates();
        if !lent_time && !self.may_act() {
            return Err(Refusal::NotReady);
        }
        let outdated = match self.lease() {
            None => {
                let heard = self.facts.heard.borrow();
                statements.into_iter().find_map(|s| heard.outdated(s))
            }
            Some(lease) => {
                if !self.lease_time_is_known(lease) && !plant!(H15) {
                    return Err(Refusal::NotReady);
                }
                statements.into_iter().find_map(|s| self.run_out(s, lease))
            }
        };
        match outdated.filter(|_| !plant!(G21)) {
            Some(tag) => {
                self.count(|s| s.outdated += 1);
                Err(Refusal::Outdated(tag))
            }
            None => Ok(()),
        }
    }

    /// What must happen between locking a directory's records and changing its name, parent or permissions:
    /// afterwards nobody acts on what they are now. Returns as of when they are not.
    pub(crate) async fn announce(&self, what: &[Invalidation], notes: &Notes) -> Result<Watermark, Failure> {
        match self.lease() {
            None => self.broadcast(what, notes).await,
            Some(lease) => Ok(self.outlast(what, lease).await),
        }
    }

    /// What the coordinator tells a server that follows it: the log, or the time.
    pub(crate) fn to_be_heard(&self, known: Watermark) -> (Watermark, Vec<Invalidation>) {
        match self.map().coherence {
            Coherence::Lazy => self.log_after(known),
            Coherence::Lease(_) => (self.lease_time(), Vec::new()),
        }
    }

    /// The coordinator has answered what was asked then.
    pub(crate) fn told_to_follow(
        &self,
        asked: Mono,
        after: Watermark,
        entries: &[Invalidation],
        granted: bool,
    ) {
        match self.map().coherence {
            Coherence::Lazy => self.hear_what_was_missed(after, entries),
            Coherence::Lease(_) if granted => self.hear_the_time(after, asked),
            Coherence::Lease(_) => {}
        }
    }

    /// How often a server that has its lease follows.
    pub(crate) fn following_period(&self) -> Duration {
        let period = self.office.tenure.borrow().period();
        self.lease().map_or(period, |lease| period.min(lease / ASKED))
    }
}
