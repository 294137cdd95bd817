//! Leases: how long what this client was told of directories is good.

use crate::Client;
use crate::cache::EVER;
use pando_cluster::Coherence;
use pando_types::Mono;
use pando_wire::EntryView;
use std::time::Duration;

/// So much earlier than servers this client takes what it was told under leases to have run out.
const SOONER: Duration = Duration::from_millis(2);

impl Client {
    /// How long an entry is good that was asked for at that time: as far as it is known here, counted from
    /// before it was asked for, and somewhat less, because servers do not know the time exactly.
    pub(crate) fn good_until(&self, asked: Mono, entry: &EntryView) -> Mono {
        match self.map().coherence {
            Coherence::Lazy => EVER,
            Coherence::Lease(_) => {
                let lease = Duration::from_millis(u64::from(entry.lease));
                asked.after((lease - lease / 16).saturating_sub(SOONER))
            }
        }
    }

    /// A directory is not what was known of it, or that has run out.
    pub(crate) fn outdated(&self, tag: u64) {
        let mut cache = self.cache.borrow_mut();
        match self.map().coherence {
            Coherence::Lease(_) if tag != 0 => cache.run_out(tag),
            Coherence::Lazy | Coherence::Lease(_) => cache.forget(tag),
        }
        self.handles.borrow_mut().forget(tag);
    }
}
