//! The content of new directories, which their parent's server owes to the server that is to have it
//! (`DirectoryUpdates::ParentFirst`).
//!
//! mkdir is one batch at the parent's server: the entry, the reply record, and a record of what is owed. When
//! that is synced, in either durability, the content is sent, again and again until it is synced where it
//! belongs; then the record goes. As long as it is owed nobody changes the entry, which is locked for readers
//! only: the directory is not renamed, not removed, does not get other permissions, and the slot of its name
//! stays here. So whatever comes of the directory later comes after its content, and content that is sent
//! twice finds itself there, or that it is known (H118). Who comes to the content before it does, with a
//! statement of its parent's server, asks that one before it says that there is none (H117).
//!
//! An ID can only be taken if IDs are too short to be unlike each other. Then mkdir is a two-phase commit, in
//! which the other server can say so.

mod pay;

use crate::slots::recovery::all;
use crate::txn::Decided;
use crate::txn::locks::{Holder, Locks, Unit};
use crate::{Failure, MetaServer};
use pando_cluster::DirectoryUpdates;
use pando_env::sync::{Sender, first, oneshot};
use pando_format::{Batch, Entry, HashWidths, Key, Mutation, OwedRecord, Record, Scan, Target};
use pando_store::{Lsn, Store, StoreError};
use pando_types::{BootEpoch, DirId, Division, Generation, Part, ServerId, Slot, TxId};
use pando_wire::{LockMode, Op, PeerAnswer, Refusal};
use std::collections::{BTreeMap, BTreeSet};

/// All that is owed here.
#[derive(Default)]
pub(crate) struct Debts {
    /// By directory: while one is owed none of the same ID can be born.
    live: BTreeMap<DirId, Debt>,
    /// What is to be sent, for the first time or again.
    due: BTreeSet<DirId>,
    /// Somebody sees to that.
    attended: bool,
    /// Nobody waits for any of it yet: in `async` one sync and one message are for several, and whoever asked
    /// gets the answer first. Woken by being dropped.
    resting: Option<Sender<()>>,
    /// Somebody began to wait while more was gathered: no rest this time.
    hurried: bool,
    /// Servers that are short of room, or did not answer: they are asked for their vote and not told, so that
    /// no more is owed to them than was under way.
    ask_first: BTreeSet<ServerId>,
}

/// One directory's content.
struct Debt {
    tx: TxId,
    content: OwedRecord,
    /// Has the entry locked.
    holder: Holder,
    /// How often it was sent in vain.
    tries: u32,
    /// Those that are woken, by being dropped, when it is there.
    waiting: Vec<Sender<()>>,
}

/// The content of a new directory, if these are all that is to be changed on one other server.
fn content_of(mutations: &[Mutation]) -> Option<OwedRecord> {
    match mutations {
        [
            Mutation::Insert {
                key: Key::Head(part),
                record: Record::Head(head),
            },
            Mutation::Insert {
                key: Key::Touch(touched),
                record: Record::Touch(touch),
            },
        ] if part == touched => Some(OwedRecord {
            dir: part.dir,
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
            key: Key::Entry { part, hash, name },
            ..
        } if (part.dir, name) == (content.head.parent, &content.head.name) => {
            Some(Unit::Bucket(*part, *hash))
        }
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
            && !self.txn.debts.borrow().ask_first.contains(server);
        let content = content_of(mutations).filter(|_| alone)?;
        let unit = entry_unit(local, &content)?;
        Some((content, unit))
    }

    /// Notes what was written with the entry: locked by `before`, it stays so for all who would change it.
    pub(crate) fn owe(&self, tx: TxId, lsn: Lsn, content: OwedRecord, (before, unit): (Holder, Unit)) {
        let holder = self.txn.locks.holder();
        self.txn.locks.hand_down(before, holder, &unit);
        {
            let mut c = self.txn.coordinated.borrow_mut();
            c.active.remove(&tx.number);
            let waiting = BTreeSet::new();
            c.decided.insert(tx, Decided { lsn, waiting });
        }
        let dir = content.dir;
        let debt = Debt {
            tx,
            content,
            holder,
            tries: 0,
            waiting: Vec::new(),
        };
        let before = self.txn.debts.borrow_mut().live.insert(dir, debt);
        assert!(before.is_none(), "{dir:?} is born twice at once");
        self.placed(self.owner(Part::whole(dir).slot()));
        self.pay_later([dir]);
    }

    /// They have room, and answer.
    pub(crate) fn need_not_ask<'a>(&self, servers: impl IntoIterator<Item = &'a ServerId>) {
        let mut debts = self.txn.debts.borrow_mut();
        for server in servers {
            debts.ask_first.remove(server);
        }
    }

    /// A slot whose names are not here (any more) has no debts: their records were left over.
    pub(crate) fn drop_debts(&self, gone: impl Fn(Slot) -> bool) {
        let elsewhere = |d: &Debt| gone(d.content.head.generation.slot());
        let gone: Vec<Debt> = {
            let mut debts = self.txn.debts.borrow_mut();
            let dirs: Vec<DirId> = debts
                .live
                .iter()
                .filter(|(_, d)| elsewhere(d))
                .map(|(dir, _)| *dir)
                .collect();
            dirs.iter().filter_map(|dir| debts.live.remove(dir)).collect()
        };
        for debt in gone {
            self.txn.locks.release(debt.holder);
            self.forget_with_others(self.id, debt.tx);
        }
    }

    /// The slot in which a directory's name was at its birth. A directory that is split has names in many,
    /// and the generation says which.
    pub(crate) fn owing_slot(&self, parent: DirId, generation: Generation) -> Slot {
        match self.map().placement.division() {
            Division::Halves | Division::OneByOne => generation.slot(),
            Division::Whole => Part::whole(parent).slot(),
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
        let slot = self.owing_slot(parent, generation);
        if !self.serves_slot(slot) {
            return Err(Failure::Refused(self.not_served(slot)));
        }
        let woken = {
            let mut debts = self.txn.debts.borrow_mut();
            let debt = debts.live.get_mut(&dir);
            debt.filter(|d| d.content.head.generation == generation).map(|d| {
                let (wake, woken) = oneshot();
                d.waiting.push(wake);
                woken
            })
        };
        if let Some(woken) = woken {
            first(woken, self.peer_wait()).await;
            let debts = self.txn.debts.borrow();
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
}

impl Debts {
    /// Whether a server did not take what was owed to it, or is full: it is asked before anything is decided.
    pub(crate) fn is_silent(&self, server: ServerId) -> bool {
        self.ask_first.contains(&server)
    }

    /// What a store owes, locked again, under names of this boot: what an earlier one sent, and is late,
    /// comes to nothing. A record may be left of what was paid; then the directory may have been moved or
    /// removed since, and its entry or the slot is not here, or its entry about to be changed. If it is still
    /// here the content is found to be there.
    pub(crate) async fn load(
        store: &dyn Store,
        widths: HashWidths,
        (me, boot): (ServerId, BootEpoch),
        locks: &Locks,
        ours: impl Fn(Slot) -> bool,
    ) -> Result<(Debts, BTreeMap<TxId, Decided>), StoreError> {
        let (mut debts, mut txs, mut batch) = (Debts::default(), Vec::new(), Batch::default());
        for (key, record) in all(store, Scan::AllOwed).await? {
            let Record::Owed(content) = record else { continue };
            batch.mutations.push(Mutation::Delete { key });
            let holder = locks.holder();
            let entry = match ours(content.head.generation.slot()) {
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
                tries: 0,
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
    let Some(part) = Part::at(dir, content.head.generation.slot()) else {
        return Ok(None);
    };
    let head = store.get(&Key::Head(part)).wait().await?;
    let Some(head) = head.and_then(|head| head.part_head(part)) else {
        return Ok(None);
    };
    let hash = widths.name(head.salt, name);
    // A half is given away after what is owed in it came: what is left of it here says nothing (H302).
    if !head.tile.has(hash.upper()) {
        return Ok(None);
    }
    let name = name.clone();
    let there = store.get(&Key::Entry { part, hash, name }).wait().await?;
    let stands = matches!(
        there,
        Some(Record::Entry(Entry { target: Target::Dir(d), .. }))
            if (d.id, d.generation) == (content.dir, content.head.generation)
    );
    Ok(stands.then_some(Unit::Bucket(part, hash)))
}
