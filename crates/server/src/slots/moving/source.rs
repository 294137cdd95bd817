//! The owner's side: copy, catch up, give up.

use super::stuck::Cause;
use crate::slots::recovery::all;
use crate::{Failure, MetaServer};
use pando_env::LocalFuture;
use pando_env::sync::join_all;
use pando_format::codec::Blob;
use pando_format::{Key, Scan};
use pando_store::{Bundle, RawRecord, StoreError};
use pando_types::{MapEpoch, ServerId, Slot, plant};
use pando_wire::{CopyId, Holds, MoveAnswer, MoveRequest, PeerAnswer, PeerRequest, Refusal};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// Bytes of records in one message.
const PIECE: usize = 128 << 10;
/// Messages of one copy that are on their way at one time.
const WINDOW: usize = 4;
/// Changed records that are left to be sent while nobody may change them.
const FEW: usize = 64;
/// Rounds of sending what has changed meanwhile; with more the slot changes faster than it can be sent.
const ROUNDS: usize = 12;
/// How often one message is sent before the copy is broken off, and when nobody may use the slots.
const TRIES: u32 = 8;
const TRIES_AT_REST: u32 = 3;
/// Sessions that have ended in one message, and open files.
const SESSIONS: usize = 50_000;
const HOLDS: usize = 32_768;
/// Between two looks at what a slot waits for.
const LOOK: Duration = Duration::from_millis(1);
/// After a copy that was broken off.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a slot is left alone that could not be given up.
const PUT_OFF: Duration = Duration::from_secs(1);

/// Why slots stay where they are for now.
pub(super) enum Stopped {
    /// The receiver does not answer, or has lost the copy, or has no room.
    Receiver(Cause),
    /// This server stops.
    Over,
    /// This server cannot go on.
    Store(Failure),
}

impl From<Failure> for Stopped {
    fn from(e: Failure) -> Stopped {
        Stopped::Store(e)
    }
}

impl From<StoreError> for Stopped {
    fn from(e: StoreError) -> Stopped {
        Stopped::Store(e.into())
    }
}

/// A copy as its source sees it.
struct Copy {
    id: CopyId,
    to: ServerId,
    slots: BTreeSet<Slot>,
    /// Messages sent.
    sent: u32,
}

impl MetaServer {
    /// Moves what the plan says. Runs as long as the server.
    pub(crate) async fn move_slots(self: Rc<Self>) {
        while !self.stopped.get() {
            if let Err(Failure::Store(e)) = self.finish_handing_over().await
                && !self.report(&e)
            {
                return;
            }
            let Some((to, slots)) = self.due() else {
                self.pause(self.limits.tick).await;
                continue;
            };
            match self.move_some(to, slots).await {
                Ok(()) => {}
                Err(Stopped::Receiver(_) | Stopped::Over) => self.pause(PAUSE).await,
                // It was logged with the slots.
                Err(Stopped::Store(Failure::Store(StoreError::Corrupt { .. }) | Failure::Refused(_))) => {
                    self.pause(PUT_OFF).await;
                }
                Err(Stopped::Store(Failure::Store(e))) => {
                    if !self.report(&e) {
                        return;
                    }
                    self.pause(PUT_OFF).await;
                }
            }
        }
    }

    /// Some slots that are to move to one server, if any are.
    fn due(&self) -> Option<(ServerId, BTreeSet<Slot>)> {
        // What is open in them is not known yet: it could not go along. Who does not say it in time is ended.
        if self.mounts.holds.borrow().awaits() {
            return None;
        }
        let (map, now) = (self.map(), self.world.mono());
        let mut moving = self.slots.moving.borrow_mut();
        // By a map from before they were given up they would still be ours (H121).
        if !moving.believes(&map) && !plant!(H121) {
            return None;
        }
        moving.stuck.prune(&map, self.id);
        moving.put_off.retain(|_, until| *until > now);
        let mut due = map
            .moves_from(self.id)
            .filter(|(slot, _)| !moving.put_off.contains_key(slot));
        let (first, to) = due.next()?;
        let more = due.filter(|(_, where_to)| *where_to == to).map(|(slot, _)| slot);
        let slots = std::iter::once(first).chain(more).take(self.limits.slots_at_once);
        Some((to, slots.collect()))
    }

    async fn move_some(&self, to: ServerId, slots: BTreeSet<Slot>) -> Result<(), Stopped> {
        let mut copy = {
            let mut moving = self.slots.moving.borrow_mut();
            for slot in &slots {
                moving.noted.insert(*slot, BTreeSet::new());
            }
            let id = moving.next_copy(self);
            Copy {
                id,
                to,
                slots,
                sent: 0,
            }
        };
        let result = self.copy_and_give_up(&mut copy).await;
        // What was not given up is ours as before.
        let mut moving = self.slots.moving.borrow_mut();
        moving.noted.clear();
        if result.is_err() {
            moving.stats.broken_off += 1;
            let until = self.world.mono().after(PAUSE);
            copy.slots
                .iter()
                .for_each(|s| _ = moving.put_off.insert(*s, until));
        }
        drop(moving);
        match &result {
            Err(Stopped::Receiver(cause)) => self.is_stuck(&copy.slots, to, cause),
            Err(Stopped::Store(Failure::Store(e @ StoreError::Corrupt { .. }))) => {
                self.is_stuck(&copy.slots, to, &Cause::Damaged(e.to_string()));
            }
            Ok(()) | Err(Stopped::Store(_) | Stopped::Over) => {}
        }
        result
    }

    /// Slots stay for now. It is logged the first time, and then ever more rarely.
    fn is_stuck(&self, slots: &BTreeSet<Slot>, to: ServerId, cause: &Cause) {
        let Some(first) = slots.first() else { return };
        let noted = self
            .slots
            .moving
            .borrow_mut()
            .stuck
            .note(slots, to, cause, self.world.mono());
        if let Some(tries) = noted {
            tracing::warn!(
                server = self.id.0,
                slot = first.0,
                slots = slots.len(),
                to = to.0,
                tries,
                cause = %cause,
                "slots that are to move stay for now"
            );
        }
    }

    /// A slot that is being copied cannot be read: the others go without it. Any other failure ends the copy.
    async fn without_damaged(&self, copy: &mut Copy, slot: Slot, e: StoreError) -> Result<(), Stopped> {
        if !matches!(e, StoreError::Corrupt { .. }) {
            return Err(e.into());
        }
        copy.slots.remove(&slot);
        let slots = BTreeSet::from([slot]);
        self.is_stuck(&slots, copy.to, &Cause::Damaged(e.to_string()));
        let given_up = {
            let mut moving = self.slots.moving.borrow_mut();
            moving.noted.remove(&slot);
            let until = self.world.mono().after(moving.stuck.pause(slot));
            moving.put_off.insert(slot, until);
            moving.stats.broken_off += 1;
            moving.sealed.contains(&slot)
        };
        if given_up {
            self.take_back(&slots);
            // What can be read of it may be damaged too; then it is the same damage.
            match self.note_replies(&slots).await {
                Ok(()) | Err(Failure::Store(StoreError::Corrupt { .. })) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    async fn copy_and_give_up(&self, copy: &mut Copy) -> Result<(), Stopped> {
        let made = self.map().plan.made;
        let begin = MoveRequest::Begin {
            copy: copy.id,
            slots: copy.slots.iter().copied().collect(),
        };
        self.tell_receiver(copy.to, begin, TRIES).await?;
        self.send_all(copy).await?;
        for _ in 0..ROUNDS {
            if self.send_changed(copy).await? <= FEW {
                break;
            }
        }
        let began = self.world.mono();
        self.give_up(copy).await;
        let settled = self.settle(copy, made).await;
        match settled {
            Ok(()) if !copy.slots.is_empty() => self.hand_over(copy.to, made, &copy.slots).await?,
            _ => {
                self.take_back(&copy.slots);
                self.note_replies(&copy.slots).await?;
            }
        }
        let pause = self.world.mono().since(began).as_micros() as u64;
        let mut moving = self.slots.moving.borrow_mut();
        moving.stats.longest_pause = moving.stats.longest_pause.max(pause);
        drop(moving);
        settled
    }

    /// One message to the receiver, until it is taken.
    async fn tell_receiver(&self, to: ServerId, request: MoveRequest, tries: u32) -> Result<(), Stopped> {
        let mut cause = Cause::Silent;
        for _ in 0..tries {
            let answer = self.ask(to, PeerRequest::Moving(request.clone())).await;
            match answer {
                Ok(Ok(PeerAnswer::Moving(MoveAnswer::Taken))) => return Ok(()),
                Ok(Err(Refusal::Busy | Refusal::NotReady)) => {
                    cause = Cause::Refused;
                    self.pause(Duration::from_millis(20)).await;
                }
                Ok(Err(_)) => return Err(Stopped::Receiver(Cause::Refused)),
                Ok(Ok(_)) => return Err(Stopped::Receiver(Cause::Lost)),
                Err(_) => {
                    cause = Cause::Silent;
                    self.pause(Duration::from_millis(5)).await;
                }
            }
        }
        Err(Stopped::Receiver(cause))
    }

    /// Everything there is of the slots.
    async fn send_all(&self, copy: &mut Copy) -> Result<(), Stopped> {
        let (mut window, mut records, mut bytes) = (Vec::new(), Vec::new(), 0);
        for slot in copy.slots.clone() {
            let mut rest = Some(Scan::Slot(slot));
            while let Some(scan) = rest {
                let (bundle, left) = match self.store.export(&scan, PIECE).wait().await {
                    Ok(exported) => exported,
                    Err(e) => {
                        self.without_damaged(copy, slot, e).await?;
                        break;
                    }
                };
                rest = left;
                bytes += bundle.0.len();
                records.extend(bundle.raw()?);
                if bytes >= PIECE {
                    bytes = 0;
                    window.push((std::mem::take(&mut records), Vec::new()));
                }
                if window.len() >= WINDOW {
                    self.send_pieces(copy, std::mem::take(&mut window)).await?;
                }
            }
        }
        window.push((records, Vec::new()));
        self.send_pieces(copy, window).await
    }

    /// What has changed since it was sent, or since this was asked last. Returns how much that was.
    async fn send_changed(&self, copy: &mut Copy) -> Result<usize, Stopped> {
        let mut changed: Vec<Key> = Vec::new();
        for noted in self.slots.moving.borrow_mut().noted.values_mut() {
            changed.extend(std::mem::take(noted));
        }
        let n = changed.len();
        let (mut window, mut records, mut gone, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for key in changed {
            let encoded = key.encode();
            if !copy.slots.contains(&key.slot()) {
                continue;
            }
            let found = match self.store.get(&key).wait().await {
                Ok(found) => found,
                Err(e) => {
                    self.without_damaged(copy, key.slot(), e).await?;
                    continue;
                }
            };
            match found {
                Some(record) => {
                    let value = record.encode(&encoded);
                    bytes += encoded.len() + value.len();
                    records.push((encoded, value));
                }
                None => {
                    bytes += encoded.len();
                    gone.push(key);
                }
            }
            if bytes >= PIECE {
                bytes = 0;
                window.push((std::mem::take(&mut records), std::mem::take(&mut gone)));
            }
        }
        if !records.is_empty() || !gone.is_empty() {
            window.push((records, gone));
        }
        self.send_pieces(copy, window).await?;
        Ok(n)
    }

    /// Sends pieces beside each other: none has a key of another. When this returns all have been taken.
    async fn send_pieces(
        &self,
        copy: &mut Copy,
        pieces: Vec<(Vec<RawRecord>, Vec<Key>)>,
    ) -> Result<(), Stopped> {
        let mut sending: Vec<LocalFuture<Result<(), Stopped>>> = Vec::new();
        let (to, id) = (copy.to, copy.id);
        for (records, gone) in pieces {
            copy.sent += 1;
            let number = copy.sent;
            let n = records.len() as u64;
            let bundle = Blob(Bundle::of(records).0);
            {
                let mut moving = self.slots.moving.borrow_mut();
                moving.stats.sent += n;
                moving.stats.sent_bytes += bundle.0.len() as u64;
            }
            let request = MoveRequest::Records {
                copy: id,
                number,
                bundle,
                gone,
            };
            let Some(me) = self.me.upgrade() else {
                return Err(Stopped::Over);
            };
            sending.push(Box::pin(
                async move { me.tell_receiver(to, request, TRIES).await },
            ));
        }
        join_all(sending).await.into_iter().collect()
    }

    /// Stops serving the slots: nobody gets a lock there any more, and whoever has one is waited for. A slot
    /// that does not come to rest, because somebody's transaction is in doubt there, stays (H41).
    async fn give_up(&self, copy: &mut Copy) {
        copy.slots
            .iter()
            .for_each(|slot| self.txn.locks.set_open(*slot, false));
        let deadline = self.world.mono().after(self.limits.rest_wait);
        loop {
            self.end_what_is_not_prepared(&copy.slots);
            let busy = self.busy(&copy.slots);
            if busy.is_empty() || self.world.mono() >= deadline {
                let until = self.world.mono().after(PUT_OFF);
                self.is_stuck(&busy, copy.to, &Cause::Busy);
                for slot in busy {
                    copy.slots.remove(&slot);
                    self.txn.locks.set_open(slot, true);
                    let mut moving = self.slots.moving.borrow_mut();
                    moving.noted.remove(&slot);
                    moving.put_off.insert(slot, until);
                }
                break;
            }
            self.pause(LOOK).await;
        }
        // From here on no batch can touch them.
        self.slots.moving.borrow_mut().sealed.extend(&copy.slots);
        copy.slots
            .iter()
            .for_each(|slot| self.slots.numbers.forget(*slot));
    }

    /// Locks that were lent to transactions which have not voted here are volatile: their votes will be no.
    fn end_what_is_not_prepared(&self, slots: &BTreeSet<Slot>) {
        let mut parts = self.txn.parts.borrow_mut();
        let lent = parts.live.iter().filter(|(_, part)| part.prepared.is_empty());
        let lent: Vec<_> = lent
            .filter(|(_, part)| self.txn.locks.holds_in(part.holder, slots))
            .map(|(tx, _)| *tx)
            .collect();
        for tx in lent {
            if let Some(part) = parts.finish(tx) {
                self.txn.locks.release(part.holder);
            }
        }
    }

    /// Slots in which somebody has a lock, or something prepared.
    fn busy(&self, slots: &BTreeSet<Slot>) -> BTreeSet<Slot> {
        let mut busy = self.txn.locks.busy(slots);
        for part in self.txn.parts.borrow().live.values() {
            busy.extend(part.prepared.intersection(slots));
        }
        busy
    }

    /// The last changes, and what goes with them. When this returns the receiver has all of it for certain,
    /// and this server too: nobody has seen anything of these slots that could still be lost.
    async fn settle(&self, copy: &mut Copy, made: MapEpoch) -> Result<(), Stopped> {
        if copy.slots.is_empty() {
            return Ok(());
        }
        self.send_changed(copy).await?;
        let ended = self.admission.sessions.borrow().ended_in(&copy.slots);
        // Nothing is opened here any more, and all have said what they have: this is what is open.
        let mut held = self.mounts.holds.borrow().of(&copy.slots).held;
        // No lock is given here any more: these are all.
        let mut lockers = self.mounts.file_locks.borrow().lockers(&copy.slots);
        // There may be more than one message holds.
        let mut rest = &ended[..];
        loop {
            let (some, more) = rest.split_at(rest.len().min(SESSIONS));
            let settle = MoveRequest::Settle {
                copy: copy.id,
                made,
                ended: some.to_vec(),
                holds: Holds {
                    held: held.drain(..held.len().min(HOLDS)).collect(),
                },
                lockers: lockers.drain(..lockers.len().min(SESSIONS)).collect(),
            };
            self.tell_receiver(copy.to, settle, TRIES_AT_REST).await?;
            if more.is_empty() && lockers.is_empty() && held.is_empty() {
                return Ok(());
            }
            rest = more;
        }
    }

    /// Sessions that ended while slots were not served have left reply records there.
    pub(super) async fn note_replies(&self, slots: &BTreeSet<Slot>) -> Result<(), Failure> {
        for slot in slots {
            let replies = all(&*self.store, Scan::AllReplies(*slot)).await?;
            let mut sessions = self.admission.sessions.borrow_mut();
            for (key, _) in replies {
                if let Key::Reply(_, session, _) = key {
                    sessions.wrote(session, *slot);
                }
            }
        }
        Ok(())
    }

    /// The slots are served again. REQUIRES: the coordinator was not asked to hand them over, or cannot do it
    /// any more.
    pub(super) fn take_back(&self, slots: &BTreeSet<Slot>) {
        for slot in slots {
            self.slots.moving.borrow_mut().sealed.remove(slot);
            if self.owner(*slot) == self.id {
                self.txn.locks.set_open(*slot, true);
            }
        }
    }
}
