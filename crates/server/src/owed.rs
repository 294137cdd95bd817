//! The content of new directories, which their parent's server owes to the server that is to have it
//! (`DirectoryUpdates::ParentFirst`).
//!
//! mkdir is one batch at the parent's server: the entry, the reply record, and a record of what is owed. When that is
//! synced, in either durability, the content is sent, again and again until it is synced where it belongs; then the record goes.
//! As long as it is owed nobody changes the entry, which is locked for readers only: the directory is not renamed, not
//! removed, does not get other permissions, and the slot of its name stays here. So whatever comes of the directory later
//! comes after its content, and content that is sent twice finds itself there, or that it is known (H118). Who comes to
//! the content before it does, with a statement of its parent's server, asks that one before it says that there is none (H117).
//!
//! An ID can only be taken if IDs are too short to be unlike each other. Then mkdir is a two-phase commit, in which the
//! other server can say so.

use crate::locks::{Holder, Locks, Unit};
use crate::outcomes::PAUSE;
use crate::recovery::all;
use crate::{Decided, Failure, MetaServer};
use pando_cluster::DirectoryUpdates;
use pando_env::sync::{Sender, first, oneshot};
use pando_format::{Batch, Entry, HashWidths, Key, KeyRange, Mutation, OwedRecord, Record, Target};
use pando_store::{Level, Lsn, Store, StoreError};
use pando_types::{BootEpoch, DirId, Generation, MapEpoch, ServerId, Slot, TxId, plant};
use pando_wire::{LockMode, Op, PeerAnswer, PeerRequest, Refusal, Stored};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// All that is owed here.
#[derive(Default)]
pub(crate) struct Debts {
    /// By directory: while one is owed none of the same ID can be born.
    live: BTreeMap<DirId, Debt>,
    /// Servers that are short of room, or did not answer: they are asked for their vote and not told, so that no more is
    /// owed to them than was under way.
    ask_first: BTreeSet<ServerId>,
}

/// One directory's content.
struct Debt {
    tx: TxId,
    content: OwedRecord,
    /// Has the entry locked.
    holder: Holder,
    /// Those that are woken, by being dropped, when it is there.
    waiting: Vec<Sender<()>>,
}

/// The content of a new directory, if these are all that is to be changed on one other server.
fn content_of(mutations: &[Mutation]) -> Option<OwedRecord> {
    match mutations {
        [
            Mutation::Insert {
                key: Key::Head(dir),
                record: Record::Head(head),
            },
            Mutation::Insert {
                key: Key::Touch(touched),
                record: Record::Touch(touch),
            },
        ] if dir == touched => Some(OwedRecord {
            dir: *dir,
            head: head.clone(),
            touch: *touch,
        }),
        _ => None,
    }
}

/// What locks the entry of a directory.
fn entry_unit(local: &[Mutation], content: &OwedRecord) -> Option<Unit> {
    local.iter().find_map(|m| match m {
        Mutation::Insert {
            key: Key::Entry { dir, hash, name },
            ..
        } if (dir, name) == (&content.head.parent, &content.head.name) => Some(Unit::Bucket(*dir, *hash)),
        _ => None,
    })
}

impl MetaServer {
    /// What this server may decide alone and owe: of a mkdir, if all else is here.
    pub(crate) fn may_owe(
        &self,
        op: &Op,
        elsewhere: &BTreeMap<ServerId, Vec<Mutation>>,
        local: &[Mutation],
    ) -> Option<(OwedRecord, Unit)> {
        let map = self.map();
        let mut others = elsewhere.iter();
        let (Some((server, mutations)), None) = (others.next(), others.next()) else {
            return None;
        };
        let alone = map.updates == DirectoryUpdates::ParentFirst
            && map.id_bits == 128
            && matches!(op, Op::Mkdir { .. })
            && !self.debts.borrow().ask_first.contains(server);
        let content = content_of(mutations).filter(|_| alone)?;
        let unit = entry_unit(local, &content)?;
        Some((content, unit))
    }

    /// Notes what was written with the entry: locked by `before`, it stays so for all who would change it.
    pub(crate) fn owe(&self, tx: TxId, lsn: Lsn, content: OwedRecord, (before, unit): (Holder, Unit)) {
        let holder = self.locks.holder();
        self.locks.hand_down(before, holder, &unit);
        {
            let mut c = self.coordinated.borrow_mut();
            c.active.remove(&tx.number);
            let waiting = BTreeSet::new();
            c.decided.insert(tx, Decided { lsn, waiting });
        }
        let dir = content.dir;
        let debt = Debt {
            tx,
            content,
            holder,
            waiting: Vec::new(),
        };
        let before = self.debts.borrow_mut().live.insert(dir, debt);
        assert!(before.is_none(), "{dir:?} is born twice at once");
        self.pay_later(dir);
    }

    fn pay_later(&self, dir: DirId) {
        self.spawn(|me| Box::pin(me.pay(dir)));
    }

    /// Sends content until it is synced where it belongs.
    async fn pay(self: Rc<Self>, dir: DirId) {
        let Some((tx, content)) = self
            .debts
            .borrow()
            .live
            .get(&dir)
            .map(|d| (d.tx, d.content.clone()))
        else {
            return;
        };
        let lsn = self.coordinated.borrow().decided.get(&tx).map(|d| d.lsn);
        // What could still be lost here is not told (H119). A failure has stopped the server.
        if let Some(lsn) = lsn
            && !plant!(H119)
            && self.safe(lsn, Level::Synced).await.is_err()
        {
            return;
        }
        let mut wait = PAUSE.0;
        while !self.stopped.get() && self.debts.borrow().live.get(&dir).is_some_and(|d| d.tx == tx) {
            // After a start it may have to be learnt first whether this is still ours to say.
            if !self.serves_slot(content.head.parent.slot()) {
                self.pause(PAUSE.0).await;
                continue;
            }
            // Slots move: whose it is now.
            let to = self.owner(dir.slot());
            let stored = if to == self.id {
                let here = (tx, self.low_watermark());
                match self.store_content(here, self.map().epoch, content.clone()).await {
                    Ok(stored) => Some(stored),
                    Err(Failure::Store(e)) if !self.report(&e) => return,
                    Err(_) => None,
                }
            } else {
                let request = PeerRequest::Content {
                    tx,
                    low: self.low_watermark(),
                    map: self.map().epoch,
                    content: Box::new(content.clone()),
                };
                match self.ask(to, request).await {
                    Ok(Ok(PeerAnswer::Content(stored))) => Some(stored),
                    Ok(Err(Refusal::NotOwner(epoch))) if epoch > self.map().epoch => {
                        self.follow_once(&mut 0).await;
                        None
                    }
                    Ok(_) => None,
                    Err(_) => {
                        self.debts.borrow_mut().ask_first.insert(to);
                        None
                    }
                }
            };
            if let Some(stored) = stored {
                return self.paid((tx, dir), to, stored);
            }
            self.pause(wait).await;
            wait = (wait * 2).clamp(PAUSE.0, PAUSE.1);
        }
    }

    fn paid(&self, (tx, dir): (TxId, DirId), to: ServerId, stored: Stored) {
        let debt = {
            let mut debts = self.debts.borrow_mut();
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
                "the new directory {name} of {parent:?} cannot be used: server {to} has content of another one under its ID; run `pando fsck`"
            );
        }
        self.locks.release(debt.holder);
        self.forget_with_others(to, debt.tx);
    }

    /// They have room, and answer.
    pub(crate) fn need_not_ask<'a>(&self, servers: impl IntoIterator<Item = &'a ServerId>) {
        let mut debts = self.debts.borrow_mut();
        for server in servers {
            debts.ask_first.remove(server);
        }
    }

    /// A slot whose names are not here (any more) has no debts: their records were left over.
    pub(crate) fn drop_debts(&self, gone: impl Fn(Slot) -> bool) {
        let elsewhere = |d: &Debt| gone(d.content.head.parent.slot());
        let gone: Vec<Debt> = {
            let mut debts = self.debts.borrow_mut();
            let dirs: Vec<DirId> = debts
                .live
                .iter()
                .filter(|(_, d)| elsewhere(d))
                .map(|(dir, _)| *dir)
                .collect();
            dirs.iter().filter_map(|dir| debts.live.remove(dir)).collect()
        };
        for debt in gone {
            self.locks.release(debt.holder);
            self.forget_with_others(self.id, debt.tx);
        }
    }

    /// Waits until the content of a directory is not owed here any more.
    pub(crate) async fn owes(
        &self,
        parent: DirId,
        dir: DirId,
        generation: Generation,
    ) -> Result<PeerAnswer, Failure> {
        // Whose the slot is knows it, and nobody else.
        if !self.serves_slot(parent.slot()) {
            return Err(Failure::Refused(self.not_served(parent.slot())));
        }
        let woken = {
            let mut debts = self.debts.borrow_mut();
            let debt = debts.live.get_mut(&dir);
            debt.filter(|d| d.content.head.generation == generation).map(|d| {
                let (wake, woken) = oneshot();
                d.waiting.push(wake);
                woken
            })
        };
        if let Some(woken) = woken {
            first(woken, self.peer_wait()).await;
            let debts = self.debts.borrow();
            let still = debts
                .live
                .get(&dir)
                .is_some_and(|d| d.content.head.generation == generation);
            if still {
                return Err(Failure::Refused(Refusal::Busy));
            }
        }
        Ok(PeerAnswer::NotOwed)
    }

    /// Whether content that is not there is not on its way either: asks whoever would owe it. Busy as long as it is.
    pub(crate) async fn is_not_owed(
        &self,
        parent: DirId,
        dir: DirId,
        generation: Generation,
    ) -> Result<(), Failure> {
        let to = self.owner(parent.slot());
        if to == self.id {
            return self.owes(parent, dir, generation).await.map(|_| ());
        }
        let request = PeerRequest::Owes {
            parent,
            dir,
            generation,
        };
        match self.ask(to, request).await {
            Ok(Ok(PeerAnswer::NotOwed)) => Ok(()),
            _ => Err(Failure::Refused(Refusal::Busy)),
        }
    }

    /// Takes content of a directory that was born elsewhere. It is synced when this returns.
    pub(crate) async fn store_content(
        &self,
        (tx, low): (TxId, u64),
        map: MapEpoch,
        content: OwedRecord,
    ) -> Result<Stored, Failure> {
        let OwedRecord { dir, head, touch } = content;
        // Who had the slot before may have had the directory and lost it again (H118).
        if map < self.gained.get() && !plant!(H118) {
            return Err(Failure::Refused(Refusal::NotOwner(self.map().epoch)));
        }
        if !self.serves_slot(dir.slot()) {
            return Err(Failure::Refused(self.not_served(dir.slot())));
        }
        let held = self.hold();
        let unit = (Unit::Key(Key::Head(dir)), LockMode::Exclusive);
        self.locks
            .acquire(held.holder, vec![unit], || self.peer_wait())
            .await?;
        let there = self.store.get(&Key::Head(dir)).wait().await?;
        // Another copy may have come before, long enough for the directory to be removed again. Nothing is waited for
        // from here to the batch.
        if self.parts.borrow_mut().current(tx, low) {
            match there {
                None => {
                    let insert = |key, record| Mutation::Insert { key, record };
                    self.change(&Batch::of(vec![
                        insert(Key::Head(dir), Record::Head(head)),
                        insert(Key::Touch(dir), Record::Touch(touch)),
                    ]))?;
                }
                Some(Record::Head(there)) if there.generation == head.generation => {}
                Some(_) => return Ok(Stored::Taken),
            }
            if !plant!(H118) {
                self.parts.borrow_mut().finish(tx);
            }
        }
        drop(held);
        self.safe(self.store.applied(), Level::Synced).await?;
        Ok(if self.low_on_space() {
            Stored::YesButFull
        } else {
            Stored::Yes
        })
    }

    /// After a start: sends what is still owed.
    pub(crate) fn resume_debts(&self) {
        let owed: Vec<DirId> = self.debts.borrow().live.keys().copied().collect();
        owed.into_iter().for_each(|dir| self.pay_later(dir));
    }
}

impl Debts {
    /// What a store owes, locked again, under names of this boot: what an earlier one sent, and is late, comes to nothing.
    /// A record may be left of what was paid; then the directory may have been moved or removed since, and its entry or
    /// the slot is not here, or its entry about to be changed. If it is still here the content is found to be there.
    pub(crate) async fn load(
        store: &dyn Store,
        widths: HashWidths,
        (me, boot): (ServerId, BootEpoch),
        locks: &Locks,
        ours: impl Fn(Slot) -> bool,
    ) -> Result<(Debts, BTreeMap<TxId, Decided>), StoreError> {
        let (mut debts, mut txs, mut batch) = (Debts::default(), Vec::new(), Batch::default());
        for (key, record) in all(store, KeyRange::all_owed()).await? {
            let Record::Owed(content) = record else { continue };
            batch.mutations.push(Mutation::Delete { key });
            let holder = locks.holder();
            let entry = match ours(content.head.parent.slot()) {
                true => entry_of(store, widths, &content).await?,
                false => None,
            };
            let locked = |unit| locks.try_all(holder, &[(unit, LockMode::Shared)]).is_ok();
            if !entry.is_some_and(locked) {
                locks.release(holder);
                continue;
            }
            let tx = TxId {
                coordinator: me,
                boot,
                number: txs.len() as u64 + 1,
            };
            txs.push(tx);
            batch.mutations.push(Mutation::Insert {
                key: Key::Owed(tx),
                record: Record::Owed(content.clone()),
            });
            let debt = Debt {
                tx,
                content,
                holder,
                waiting: Vec::new(),
            };
            debts.live.insert(debt.content.dir, debt);
        }
        let lsn = match batch.mutations.is_empty() {
            true => store.applied(),
            false => store.apply(&batch)?,
        };
        let decided = |tx| {
            let waiting = BTreeSet::new();
            (tx, Decided { lsn, waiting })
        };
        Ok((debts, txs.into_iter().map(decided).collect()))
    }
}

/// What locks the entry of a directory whose content is owed, if it still stands where it was born.
async fn entry_of(
    store: &dyn Store,
    widths: HashWidths,
    content: &OwedRecord,
) -> Result<Option<Unit>, StoreError> {
    let (dir, name) = (content.head.parent, &content.head.name);
    let Some(Record::Head(parent)) = store.get(&Key::Head(dir)).wait().await? else {
        return Ok(None);
    };
    let hash = widths.name(parent.salt, name);
    let name = name.clone();
    let there = store.get(&Key::Entry { dir, hash, name }).wait().await?;
    let stands = matches!(
        there,
        Some(Record::Entry(Entry { target: Target::Dir(d), .. }))
            if (d.id, d.generation) == (content.dir, content.head.generation)
    );
    Ok(stands.then_some(Unit::Bucket(dir, hash)))
}
