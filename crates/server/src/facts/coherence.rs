//! The one place where lazy invalidation and leases differ: as of when a statement is true, whether it still
//! is, what a server must know before it serves, and what comes before a change.

use super::leases::{ByServer, Closed, LeaseElsewhere};
use crate::account::Notes;
use crate::pipeline::{Asked, Basis};
use crate::{Failure, MetaServer};
use pando_cluster::Coherence;
use pando_format::{Invalidation, Key};
use pando_types::{DirId, Generation, Mono, Watermark, plant};
use pando_wire::{Answer, Op, Outcome, Refusal, Scope, Statement};
use std::time::Duration;

/// How often the coordinator is asked in the time of the longest lease.
const ASKED: u32 = 8;

/// What came of announcing a change.
pub(crate) enum Announcing {
    /// Nobody acts on what was any more, as of then.
    Done(Watermark),
    /// Under leases: nobody does from this instant on.
    Now,
    /// Under leases: others were told what lasts for so long. Nothing may be held meanwhile.
    Wait(Duration),
}

/// As of when, or until when, a statement is true.
pub(crate) struct Good {
    pub at: Watermark,
    /// Under leases: for how many milliseconds from now.
    pub millis: u32,
}

impl MetaServer {
    /// Whether what clients are told is good for a while.
    pub(crate) fn has_leases(&self) -> bool {
        self.longest_lease().is_some()
    }

    fn longest_lease(&self) -> Option<Duration> {
        self.map.borrow().coherence.longest_lease()
    }

    /// As of when a statement is true that rests on one that was shown; under leases, until when it is.
    pub(crate) fn known_upto_below(&self, shown: &Statement) -> Watermark {
        match self.map().coherence {
            // What was shown has just been tested against all that was heard.
            Coherence::Lazy => self.heard_upto(),
            Coherence::Lease(_) => shown.at,
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

    /// Until when a directory's entry is true that an answer shows. REQUIRES: the entry is locked.
    pub(crate) fn good_upto(&self, dir: (DirId, Generation), asked: &Asked<'_>) -> Good {
        let length = match self.map().coherence {
            Coherence::Lazy => {
                return Good {
                    at: self.heard_upto(),
                    millis: 0,
                };
            }
            Coherence::Lease(length) => length,
        };
        let at = match self.entries_are_here(asked) {
            true => self.grant_lease(dir, asked.depth_of_entries(), length),
            // Only the server that has the entry may say so.
            false => Some(asked.leases.lent.get()),
        };
        asked.leases.closed.set(asked.leases.closed.get() || at.is_none());
        let at = at.unwrap_or_default();
        let left = at.0.saturating_sub(self.lease_time().0);
        Good {
            at,
            millis: u32::try_from(left).unwrap_or(0),
        }
    }

    /// Whether the directories that an answer shows have their entries here. Of a rename's nothing is told.
    fn entries_are_here(&self, asked: &Asked<'_>) -> bool {
        let Some(dir) = asked.op.subjects()[0].map(|s| s.dir()) else {
            return false;
        };
        let in_it = match matches!(asked.op, Op::ReadDir { .. } | Op::Rename { .. }) {
            true => matches!(asked.op, Op::ReadDir { .. }),
            false => asked.op.subjects()[0].is_some_and(|s| s.name().is_some()),
        };
        in_it && asked.basis != Basis::Subtree && self.serves_slot(asked.first_part(dir.id).slot())
    }

    /// Whether this server knows what it has to know before it serves.
    pub(crate) fn knows_enough(&self) -> bool {
        match self.longest_lease() {
            // Whether it still may act on it is tested when an operation takes effect.
            None => self.facts.heard.borrow().joined(),
            Some(_) => self.coordinates() || self.lease_time() > Watermark(0),
        }
    }

    /// Refuses what rests on something that is not true any more, or may not be. `verified`: as of when it
    /// was known to be true, under leases.
    pub(crate) fn check_current<'a>(
        &self,
        statements: impl IntoIterator<Item = &'a Statement>,
        verified: Watermark,
    ) -> Result<(), Refusal> {
        let leases = self.longest_lease().is_some();
        let lent_time = leases && !self.coordinates();
        if !lent_time && !self.may_act() {
            return Err(Refusal::NotReady);
        }
        let mut statements = statements.into_iter();
        let outdated = match leases {
            false => {
                let heard = self.facts.heard.borrow();
                statements.find_map(|s| heard.outdated(s))
            }
            true => {
                let mut outdated = None;
                for s in statements {
                    outdated = outdated.or(self.run_out(s, verified)?);
                }
                outdated
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
    /// afterwards nobody acts on what they are now.
    pub(crate) async fn announce(
        &self,
        what: &[Invalidation],
        entries: &ByServer,
        notes: &Notes,
    ) -> Result<Announcing, Failure> {
        if self.longest_lease().is_none() {
            return Ok(Announcing::Done(self.broadcast(what, notes).await?));
        }
        Ok(match self.close_leases(entries).await? {
            Closed::Now => Announcing::Now,
            Closed::In(time) => Announcing::Wait(time),
        })
    }

    /// Under leases: where the entries are of what is to change.
    pub(crate) fn entries_to_close<'a>(
        &self,
        what: &[Invalidation],
        find: impl Fn(DirId, Generation) -> Option<&'a Key>,
    ) -> Result<ByServer, Failure> {
        match self.longest_lease() {
            None => Ok(ByServer::new()),
            Some(_) => self.entries_of(what, find),
        }
    }

    /// Under leases: one on a directory that an answer shows without having been asked for its name. The
    /// server that has its entry says so; if that is another, it is to be asked.
    pub(crate) fn lease_of_shown<'a>(
        &self,
        asked: &Asked<'_>,
        outcome: &Outcome,
        find: impl Fn(DirId, Generation) -> Option<&'a Key>,
    ) -> Option<LeaseElsewhere> {
        let (Coherence::Lease(length), Ok(Answer::Entry(entry))) = (self.map().coherence, outcome) else {
            return None;
        };
        let shown = entry.dir.as_ref()?;
        if asked.op.mutates() || self.entries_are_here(asked) {
            return None;
        }
        let dir = (shown.id, shown.generation);
        let (server, depth) = (self.home(find(dir.0, dir.1)?), asked.depth_of_entries());
        if server != self.id {
            return Some(LeaseElsewhere { server, dir, depth });
        }
        asked.lent(self.grant_lease(dir, depth, length).unwrap_or_default());
        None
    }

    /// The same, waiting for another server.
    pub(crate) async fn borrow_lease<'a>(
        &self,
        asked: &Asked<'_>,
        outcome: &Outcome,
        find: impl Fn(DirId, Generation) -> Option<&'a Key>,
    ) -> Result<(), Failure> {
        if let Some(elsewhere) = self.lease_of_shown(asked, outcome, find) {
            asked.lent(self.lease_elsewhere(elsewhere).await?);
        }
        Ok(())
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
        self.longest_lease()
            .map_or(period, |lease| period.min(lease / ASKED))
    }
}

impl Asked<'_> {
    /// Until when may be told of what it shows; 0: it is about to change.
    fn lent(&self, until: Watermark) {
        self.leases.lent.set(until);
        self.leases.closed.set(until == Watermark(0));
    }

    /// Components of the path to the directories that its answer shows; 0: not known.
    fn depth_of_entries(&self) -> u32 {
        let Some(dir) = self.dirs.all().next() else {
            return 0;
        };
        // A directory that is opened by its content shows itself.
        let below = u32::from(!matches!(self.op, Op::Reopen { .. }));
        match dir.scope {
            Scope::Way => dir.way.len() as u32 + below,
            Scope::Link | Scope::Handle => 0,
        }
    }
}
