//! What a coordinator tells of its transactions (H37, H38), and when it forgets them.
//!
//! Each participant is told at once, so that it lets go of its locks, and need not answer. What was told it
//! in a while is then told once more, all together; it answers when the effects are synced, which by then
//! they are, and the decisions are forgotten in one batch. So a transaction costs one message beyond its
//! vote, and a small part of two others.

use crate::MetaServer;
use pando_env::Peer;
use pando_format::{Batch, Key, Mutation};
use pando_types::{ServerId, TxId, plant};
use pando_wire::{Message, PeerAnswer, PeerRequest, Request};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// Between two tries, at first and in the end.
pub(crate) const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// Outcomes in one message.
const TOGETHER: usize = 4096;

/// What one server has been told and has not confirmed.
#[derive(Default)]
pub(crate) struct Unconfirmed {
    committed: BTreeSet<TxId>,
    aborted: BTreeSet<TxId>,
    /// What needs no word any more, and is to be forgotten when others are.
    over: BTreeSet<TxId>,
    /// Somebody sees to it.
    attended: bool,
}

/// The first of them; those remain that there is no room for.
fn take(from: &mut BTreeSet<TxId>) -> BTreeSet<TxId> {
    let rest = match from.iter().nth(TOGETHER).copied() {
        Some(next) => from.split_off(&next),
        None => BTreeSet::new(),
    };
    std::mem::replace(from, rest)
}

impl MetaServer {
    /// A transaction ends undecided: from here on whoever asks hears "aborted".
    pub(crate) fn abort(&self, tx: TxId, servers: BTreeSet<ServerId>) {
        self.txn.coordinated.borrow_mut().active.remove(&tx.number);
        self.tell(tx, false, servers);
    }

    /// Tells participants of a commit of an earlier boot.
    pub(crate) fn deliver(&self, tx: TxId) {
        let waiting = self
            .txn
            .coordinated
            .borrow()
            .decided
            .get(&tx)
            .map(|d| d.waiting.clone());
        self.tell(tx, true, waiting.unwrap_or_default());
    }

    /// Tells an outcome: that of a commit until each has confirmed that it is synced there (H38), an abort
    /// twice. A participant that does not hear it asks.
    pub(crate) fn tell(&self, tx: TxId, commit: bool, servers: impl IntoIterator<Item = ServerId>) {
        for server in servers {
            let boot = self.boots.borrow().get(&server).copied().unwrap_or_default();
            self.count(|s| s.peer_calls += 1);
            let word = Message::Request {
                // No answer comes; should one come, it belongs to nothing.
                id: 0,
                boot,
                request: Request::Peer(PeerRequest::Decide { tx, commit }),
                explain: false,
            };
            self.send(Peer::Server(server), &word);
            let mut all = self.txn.outcomes.borrow_mut();
            let unconfirmed = all.entry(server).or_default();
            if commit {
                unconfirmed.committed.insert(tx);
            } else {
                unconfirmed.aborted.insert(tx);
            }
            let attended = std::mem::replace(&mut unconfirmed.attended, true);
            drop(all);
            if !attended {
                self.spawn(|me| Box::pin(me.settle_with(server)));
            }
        }
    }

    /// A server has what was owed to it.
    pub(crate) fn forget_with_others(&self, server: ServerId, tx: TxId) {
        let attended = {
            let mut all = self.txn.outcomes.borrow_mut();
            let unconfirmed = all.entry(server).or_default();
            unconfirmed.over.insert(tx);
            std::mem::replace(&mut unconfirmed.attended, true)
        };
        if !attended {
            self.spawn(|me| Box::pin(me.settle_with(server)));
        }
    }

    /// Tells a server once more what it was told, until nothing is left.
    async fn settle_with(self: Rc<Self>, server: ServerId) {
        let mut wait = self.limits.settle_after;
        while !self.stopped.get() {
            self.pause(wait).await;
            let (committed, aborted, over) = {
                let mut all = self.txn.outcomes.borrow_mut();
                let unconfirmed = all.entry(server).or_default();
                let over = std::mem::take(&mut unconfirmed.over);
                (
                    take(&mut unconfirmed.committed),
                    take(&mut unconfirmed.aborted),
                    over,
                )
            };
            if committed.is_empty() && aborted.is_empty() && over.is_empty() {
                self.txn.outcomes.borrow_mut().remove(&server);
                return;
            }
            self.remember_while_cut().await;
            self.confirmed_outcomes(server, over);
            if committed.is_empty() && aborted.is_empty() {
                continue;
            }
            // Who has left had nothing in doubt any more: it asked.
            let settled = self.map().has_left(server) || {
                let request = PeerRequest::Settle {
                    committed: committed.iter().copied().collect(),
                    aborted: aborted.into_iter().collect(),
                };
                matches!(self.ask(server, request).await, Ok(Ok(PeerAnswer::Decided)))
            };
            if settled {
                self.remember_while_cut().await;
                self.confirmed_outcomes(server, committed);
                wait = self.limits.settle_after;
            } else {
                let mut all = self.txn.outcomes.borrow_mut();
                all.entry(server).or_default().committed.extend(committed);
                wait = (wait * 2).clamp(PAUSE.0, PAUSE.1);
            }
        }
    }

    /// Of a server that has its picture already, an outcome may have come after it: while this one has none
    /// yet, that must still be found here (H154).
    async fn remember_while_cut(&self) {
        if !plant!(H154) {
            self.flow().await;
        }
    }

    /// Forgets the decisions that all have confirmed now.
    fn confirmed_outcomes(&self, server: ServerId, committed: BTreeSet<TxId>) {
        let mut done = Vec::new();
        {
            let mut c = self.txn.coordinated.borrow_mut();
            for tx in committed {
                if let Some(decided) = c.decided.get_mut(&tx) {
                    let owed = decided.waiting.is_empty();
                    decided.waiting.remove(&server);
                    if decided.waiting.is_empty() {
                        done.push((tx, owed));
                    }
                }
            }
        }
        if done.is_empty() || self.stopped.get() {
            return;
        }
        // Forgetting late only repeats confirmations.
        let forget = done.iter().map(|(tx, owed)| Mutation::Delete {
            key: if *owed { Key::Owed(*tx) } else { Key::Decision(*tx) },
        });
        match self.store.apply(&Batch::of(forget.collect())) {
            Ok(_) => {
                let mut c = self.txn.coordinated.borrow_mut();
                done.iter().for_each(|(tx, _)| {
                    c.decided.remove(tx);
                });
            }
            Err(e) => self.fatal(&e),
        }
    }

    /// Every transaction of this boot below this number is finished everywhere (H39).
    pub(crate) fn low_watermark(&self) -> u64 {
        let c = self.txn.coordinated.borrow();
        let active = c.active.first().copied().unwrap_or(c.next + 1);
        let this_boot = TxId {
            coordinator: self.id,
            boot: self.boot,
            number: 0,
        };
        let decided = c.decided.range(this_boot..).next().map(|(tx, _)| tx.number);
        decided.map_or(active, |d| d.min(active))
    }
}
