//! Sending what is owed, until it is synced where it belongs.

use crate::txn::outcomes::PAUSE;
use crate::{Failure, MetaServer};
use pando_env::sync::{first, oneshot};
use pando_format::OwedRecord;
use pando_store::Level;
use pando_types::{DirId, Part, ServerId, TxId, plant};
use pando_wire::{PeerAnswer, PeerRequest, Refusal, Stored};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Directories' contents in one message.
const TOGETHER: usize = 64;

impl MetaServer {
    pub(super) fn pay_later(&self, dirs: impl IntoIterator<Item = DirId>) {
        let attended = {
            let mut debts = self.txn.debts.borrow_mut();
            debts.due.extend(dirs);
            std::mem::replace(&mut debts.attended, true)
        };
        if !attended {
            self.spawn(|me| Box::pin(me.pay_all()));
        }
    }

    /// Sends what is due, as often as there is something: in one message what was synced together and goes to
    /// one server.
    async fn pay_all(self: Rc<Self>) {
        while !self.stopped.get() {
            let rests = {
                let mut debts = self.txn.debts.borrow_mut();
                if debts.due.is_empty() {
                    debts.attended = false;
                    return;
                }
                let hurried = std::mem::take(&mut debts.hurried);
                let unsynced = self.store.safe(Level::Synced) < self.store.safe(Level::Durable);
                (unsynced && !hurried).then(|| {
                    let (wake, woken) = oneshot();
                    debts.resting = Some(wake);
                    woken
                })
            };
            if let Some(woken) = rests {
                first(woken, self.world.sleep(self.limits.owed_after)).await;
                self.txn.debts.borrow_mut().resting = None;
            }
            let due = std::mem::take(&mut self.txn.debts.borrow_mut().due);
            // What could still be lost here is not told (H119). A failure has stopped the server.
            if !plant!(H119) && self.safe(self.store.applied(), Level::Synced).await.is_err() {
                return;
            }
            for (to, dirs) in self.by_owner(due) {
                self.spawn(|me| Box::pin(me.pay(to, dirs)));
            }
        }
    }

    /// Messages to send: what was refused before goes alone, lest it keeps others back.
    fn by_owner(&self, due: BTreeSet<DirId>) -> Vec<(ServerId, Vec<DirId>)> {
        let debts = self.txn.debts.borrow();
        let (mut together, mut all): (BTreeMap<_, Vec<_>>, Vec<_>) = Default::default();
        for dir in due {
            // Slots move: whose it is now.
            let to = self.owner(Part::whole(dir).slot());
            match debts.live.get(&dir) {
                Some(debt) if debt.tries == 0 => together.entry(to).or_default().push(dir),
                Some(_) => all.push((to, vec![dir])),
                None => {}
            }
        }
        for (to, dirs) in together {
            all.extend(dirs.chunks(TOGETHER).map(|part| (to, part.to_vec())));
        }
        all
    }

    /// Sends content; what is not synced where it belongs then, is due again.
    async fn pay(self: Rc<Self>, to: ServerId, dirs: Vec<DirId>) {
        let sent: Vec<(TxId, OwedRecord)> = {
            let debts = self.txn.debts.borrow();
            let live = dirs.iter().filter_map(|dir| debts.live.get(dir));
            // After a start it may have to be learnt first whether this is still ours to say.
            live.filter(|d| self.serves_slot(d.content.head.generation.slot()))
                .map(|d| (d.tx, d.content.clone()))
                .collect()
        };
        if !sent.is_empty() {
            let names: Vec<(TxId, DirId)> = sent.iter().map(|(tx, c)| (*tx, c.dir)).collect();
            match self.send_contents(to, sent).await {
                Some(stored) => {
                    let all = names.into_iter().zip(stored);
                    all.for_each(|(what, stored)| self.paid(what, to, stored));
                }
                None => {
                    let mut debts = self.txn.debts.borrow_mut();
                    for (tx, dir) in names {
                        if let Some(debt) = debts.live.get_mut(&dir).filter(|d| d.tx == tx) {
                            debt.tries = debt.tries.saturating_add(1);
                        }
                    }
                }
            }
        }
        let (left, tries) = {
            let debts = self.txn.debts.borrow();
            let left: Vec<(DirId, u32)> = dirs
                .iter()
                .filter_map(|dir| debts.live.get(dir).map(|d| (*dir, d.tries)))
                .collect();
            let tries = left.iter().map(|(_, tries)| *tries).max().unwrap_or(0);
            (left.into_iter().map(|(dir, _)| dir).collect::<Vec<_>>(), tries)
        };
        if !left.is_empty() {
            let wait = PAUSE.0.saturating_mul(1 << tries.saturating_sub(1).min(16));
            self.pause(wait.min(PAUSE.1)).await;
            self.pay_later(left);
        }
    }

    /// What became of each, or nothing.
    async fn send_contents(&self, to: ServerId, contents: Vec<(TxId, OwedRecord)>) -> Option<Vec<Stored>> {
        let (low, map, count) = (self.low_watermark(), self.map().epoch, contents.len());
        if to == self.id {
            return match self.store_contents(low, map, contents).await {
                Ok(stored) => Some(stored),
                Err(Failure::Store(e)) => {
                    self.report(&e);
                    None
                }
                Err(_) => None,
            };
        }
        match self.ask(to, PeerRequest::Content { low, map, contents }).await {
            Ok(Ok(PeerAnswer::Content(stored))) if stored.len() == count => Some(stored),
            Ok(Ok(PeerAnswer::Stored { stored, records })) if stored.len() == count => {
                self.slots.loads.borrow_mut().hear(to, records);
                Some(stored)
            }
            Ok(Err(Refusal::NotOwner(epoch))) if epoch > self.map().epoch => {
                self.follow_once(&mut 0).await;
                None
            }
            Ok(_) => None,
            Err(_) => {
                self.txn.debts.borrow_mut().ask_first.insert(to);
                None
            }
        }
    }

    fn paid(&self, (tx, dir): (TxId, DirId), to: ServerId, stored: Stored) {
        let debt = {
            let mut debts = self.txn.debts.borrow_mut();
            // It was dropped meanwhile, and another of the same ID may have been born.
            if debts.live.get(&dir).is_none_or(|d| d.tx != tx) {
                return;
            }
            match stored {
                Stored::Yes => debts.ask_first.remove(&to),
                Stored::YesButFull => debts.ask_first.insert(to),
                Stored::Taken => false,
            };
            debts.live.remove(&dir)
        };
        let Some(debt) = debt else { return };
        if stored == Stored::Taken {
            self.count(|s| s.collisions += 1);
            let (parent, name) = (debt.content.head.parent, &debt.content.head.name);
            tracing::error!(
                server = self.id.0,
                "the new directory {name} of {parent} cannot be used: server {to} has content of another one under its ID; run `pando fsck`"
            );
        }
        self.txn.locks.release(debt.holder);
        self.forget_with_others(to, debt.tx);
    }

    /// Somebody waits, perhaps for what is owed.
    pub(crate) fn hurry_debts(&self) {
        let resting = {
            let mut debts = self.txn.debts.borrow_mut();
            let resting = debts.resting.take();
            debts.hurried = resting.is_none() && !debts.due.is_empty();
            resting
        };
        drop(resting);
    }

    /// After a start: sends what is still owed.
    pub(crate) fn resume_debts(&self) {
        let owed: Vec<DirId> = self.txn.debts.borrow().live.keys().copied().collect();
        self.pay_later(owed);
    }
}
