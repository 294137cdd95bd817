//! Leases: how long what this client was told of directories is good.

use crate::Client;
use crate::cache::EVER;
use pando_cluster::Coherence;
use pando_types::Mono;
use pando_wire::{EntryView, Op, Scope, Statement};
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
    fn outdated(&self, tag: u64) {
        self.count(|s| s.outdated += 1);
        let mut cache = self.cache.borrow_mut();
        match self.map().coherence {
            Coherence::Lease(_) if tag != 0 => cache.run_out(tag),
            Coherence::Lazy | Coherence::Lease(_) => cache.forget(tag),
        }
        self.handles.borrow_mut().forget(tag);
    }

    /// A directory is outdated. True: a program holds it open and only its lease had run out, which is no
    /// change of it; the client has another.
    pub(crate) async fn held_again(&self, op: &Op, tag: u64) -> bool {
        self.outdated(tag);
        let leases = self.map().coherence != Coherence::Lazy;
        let held = |s: &&Statement| leases && s.scope == Scope::Handle && s.tag() == tag;
        let Some(dir) = op.statements().into_iter().flatten().find(held) else {
            return false;
        };
        match self.reopen(dir).await {
            Ok(EntryView { dir: Some(again), .. }) => {
                self.handles.borrow_mut().learn(&again);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }
}
