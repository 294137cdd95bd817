//! The moment of a split: locks, the last changes, and one transaction.
//!
//! The list of the directory's parts is locked first, on whichever server it is, and the part itself last and
//! for as short as can be: an operation that holds the part may wait for the list, so the part is not waited
//! for long (H31).

use super::buckets;
use super::source::{Copy, Stopped, tiling_in};
use crate::MetaServer;
use crate::account::Notes;
use crate::txn::Decided;
use crate::txn::attempt::{Got, Txn};
use crate::txn::locks::Unit;
use pando_env::sync::join_all;
use pando_format::{
    Batch, DecisionRecord, Entry, Head, Key, Mutation, PartNote, PartRecord, PartsRecord, Record, Scan,
    Target, Touch,
};
use pando_namespace::{Snapshot, home_bucket, stay_home};
use pando_store::Level;
use pando_types::{Generation, ServerId, Tiling, plant};
use pando_wire::{Holders, LockMode, LockWant, SplitAnswer, SplitRequest, Vote};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// So long the part is waited for, while its directory's list is locked.
const PATIENCE: Duration = Duration::from_millis(20);
/// Open files of a half that may be given homes in one transaction.
const HOMES: usize = 4096;

/// What a split gives to the new part.
struct Counted {
    entries: u64,
    subdirs: u64,
}

impl MetaServer {
    /// One attempt. `Later`: nothing has happened, and it may be tried again.
    pub(super) async fn decide_split(&self, copy: &mut Copy) -> Result<(), Stopped> {
        let notes = Notes::default();
        let mut txn = Txn::new(self, false, &notes);
        let tiling = self.lock_list(&mut txn, copy).await?;
        let (head, touch) = self.lock_part(&txn, copy).await?;
        let began = self.world.mono();
        self.send_noted(copy).await?;
        let settle = SplitRequest::Settle {
            copy: copy.id,
            part: copy.half.part,
        };
        copy.settle();
        let SplitAnswer::Counted { entries, subdirs } = self.tell_half(copy.to, settle).await? else {
            return Err(Stopped::Later);
        };
        let counted = Counted { entries, subdirs };
        let mut mutations = self.homes_of_open(&txn, copy).await?;
        let split = split_of(copy, (head, touch), tiling, counted).ok_or(Stopped::Later)?;
        let debris = Key::PartNote(copy.from);
        mutations.extend(split.into_iter().filter(|m| m.key() != debris || !plant!(H302)));
        self.commit_split(txn, mutations).await?;
        let pause = self.world.mono().since(began).as_micros() as u64;
        let mut splits = self.slots.splits.borrow_mut();
        splits.stats.longest_pause = splits.stats.longest_pause.max(pause);
        Ok(())
    }

    /// Locks the list of parts, and the note of the copy, which must stand.
    async fn lock_list(&self, txn: &mut Txn<'_>, copy: &Copy) -> Result<Tiling, Stopped> {
        let (list, note) = (Key::Parts(copy.from.dir), Key::PartNote(copy.half.part));
        let mode = match plant!(H304) {
            true => LockMode::Increment,
            false => LockMode::Exclusive,
        };
        let wants = vec![
            LockWant::Key(list.clone(), mode),
            LockWant::Key(note.clone(), LockMode::Exclusive),
        ];
        let mut snapshot = Snapshot::default();
        let got = txn.read(&mut snapshot, wants).await?;
        if got == Got::Taken {
            return Err(Stopped::Later);
        }
        let coming = Record::PartNote(PartNote::Coming(copy.id));
        let tiling = tiling_in(&snapshot, copy.from).ok_or(Stopped::Later)?;
        let stands =
            snapshot.get(&note) == Some(&coming) && tiling.tile(copy.from.start()) == Some(copy.tile);
        if stands { Ok(tiling) } else { Err(Stopped::Later) }
    }

    /// Locks the part: from here on nothing of the half changes.
    async fn lock_part(&self, txn: &Txn<'_>, copy: &Copy) -> Result<(Record, Touch), Stopped> {
        let from = copy.from;
        let exclusive = |key| (Unit::Key(key), LockMode::Exclusive);
        let units = vec![exclusive(Key::Head(from)), exclusive(Key::Touch(from))];
        let locks = &self.txn.locks;
        locks
            .acquire(txn.holder(), units, || self.world.sleep(PATIENCE))
            .await
            .map_err(|_| Stopped::Later)?;
        let head = self
            .part_head(from)
            .await?
            .filter(|head| head.tile() == copy.tile && !head.is_localised());
        let touch = self.store.get(&Key::Touch(from)).wait().await?;
        let (Some(head), Some(Record::Touch(touch))) = (head, touch) else {
            return Err(Stopped::Later);
        };
        // A prepared transaction has the locks of its names alone after a restart; so has what is owed
        // (H301).
        let held = !plant!(H301) && locks.any_in(from, buckets(copy.half.tile()), txn.holder());
        let known = {
            let holds = self.mounts.holds.borrow();
            !holds.awaits() && holds.heard() == copy.heard
        };
        match held || !known {
            true => Err(Stopped::Later),
            false => Ok((head.record, touch)),
        }
    }

    /// Files of the half that are open stay in their slot, at home, and the new part gets links to them
    /// (H303).
    async fn homes_of_open(&self, txn: &Txn<'_>, copy: &Copy) -> Result<Vec<Mutation>, Stopped> {
        let (widths, slot) = (self.map().widths(), copy.from.slot());
        let mut mutations = Vec::new();
        let mut homes: BTreeMap<_, BTreeSet<u8>> = BTreeMap::new();
        for key in copy.open.iter().filter(|_| !plant!(H303)) {
            let Key::Entry { part, hash, name } = key else {
                continue;
            };
            let Some(record) = self.store.get(key).wait().await? else {
                continue;
            };
            if self.held_at(*part, &record) == Holders::Nobody {
                continue;
            }
            let Record::Entry(Entry {
                ordinal,
                target: Target::Inode(inode),
            }) = record
            else {
                continue;
            };
            let (home, bucket) = home_bucket(widths, slot, inode.ino, inode.generation);
            let unit = (Unit::Bucket(home, bucket), LockMode::Exclusive);
            if self.txn.locks.try_all(txn.holder(), &[unit]).is_err() {
                return Err(Stopped::Later);
            }
            let at = Scan::Attachments(*part, *hash, name.clone());
            let attached = self.store.list(&at, 16).wait().await?;
            let there = self.store.list(&Scan::Bucket(home, bucket), 257).wait().await?;
            let taken = homes.entry((home, bucket)).or_default();
            taken.extend(there.iter().filter_map(|(_, record)| match record {
                Record::Entry(entry) => Some(entry.ordinal),
                _ => None,
            }));
            let mut kinds = Vec::new();
            for (key, record) in attached {
                let under = copy.under(key.clone()).ok_or(Stopped::Later)?;
                mutations.push(Mutation::Delete { key: under });
                if let Key::Attachment { kind, .. } = key {
                    kinds.push((kind, record));
                }
            }
            let stays = stay_home(widths, slot, &inode, kinds, taken).ok_or(Stopped::Later)?;
            taken.extend(stays.home.iter().filter_map(|m| match m {
                Mutation::Insert {
                    record: Record::Entry(entry),
                    ..
                } => Some(entry.ordinal),
                _ => None,
            }));
            mutations.extend(stays.home);
            let target = stays.link;
            mutations.push(Mutation::Update {
                key: copy.under(key.clone()).ok_or(Stopped::Later)?,
                record: Record::Entry(Entry { ordinal, target }),
            });
            if mutations.len() > HOMES {
                return Err(Stopped::Later);
            }
        }
        Ok(mutations)
    }

    /// Two-phase commit, with this server as coordinator (H37–H40).
    async fn commit_split(&self, mut txn: Txn<'_>, mutations: Vec<Mutation>) -> Result<(), Stopped> {
        let mut elsewhere: BTreeMap<ServerId, Vec<Mutation>> = BTreeMap::new();
        for m in mutations {
            elsewhere.entry(self.home_of_change(&m)).or_default().push(m);
        }
        let mut batch = Batch::of(elsewhere.remove(&self.id).unwrap_or_default());
        let locked = txn.remote.clone();
        if !locked.iter().all(|server| elsewhere.contains_key(server)) {
            // A slot has moved since its records were locked.
            return Err(Stopped::Later);
        }
        let mut votes = Vec::new();
        for (server, mutations) in &elsewhere {
            let mutations = mutations.clone();
            votes.push(self.ask_vote(&mut txn, *server, locked.contains(server), mutations, None)?);
        }
        if join_all(votes).await.iter().any(|vote| *vote != Vote::Yes) {
            return Err(Stopped::Later);
        }
        self.flow().await;
        let tx = txn.id();
        let participants: Vec<ServerId> = elsewhere.into_keys().collect();
        if !participants.is_empty() {
            batch.mutations.push(Mutation::Insert {
                key: Key::Decision(tx),
                record: Record::Decision(DecisionRecord {
                    participants: participants.clone(),
                }),
            });
        }
        let lsn = self.apply(&batch)?;
        self.facts.leases.borrow_mut().unmark();
        if !participants.is_empty() {
            let waiting = participants.iter().copied().collect();
            let mut c = self.txn.coordinated.borrow_mut();
            c.active.remove(&tx.number);
            c.decided.insert(tx, Decided { lsn, waiting });
            drop(c);
            self.count(|s| s.commits += 1);
            txn.settle();
        }
        self.safe(lsn, Level::Synced).await?;
        self.tell(tx, true, participants);
        Ok(())
    }
}

/// What a split changes. `None`: what is known of the part contradicts itself.
fn split_of(
    copy: &Copy,
    (head, touch): (Record, Touch),
    mut tiling: Tiling,
    counted: Counted,
) -> Option<Vec<Mutation>> {
    let (from, new, depth) = (copy.from, copy.half.part, copy.half.depth);
    let (salt, generation): (u64, Generation) = match &head {
        Record::Head(head) => (head.salt, head.generation),
        Record::Part(head) => (head.salt, head.generation),
        _ => return None,
    };
    if generation != copy.half.generation || tiling.split(from.start())?.start != new.start() {
        return None;
    }
    let kept = match head {
        Record::Head(head) => Record::Head(Head {
            split: head.with_depth(depth),
            ..head
        }),
        Record::Part(head) => Record::Part(PartRecord { depth, ..head }),
        _ => return None,
    };
    let (mut stays, mut goes) = (touch, touch);
    (goes.stat.entries, goes.stat.subdirs) = (counted.entries, counted.subdirs);
    stays.stat.entries = touch.stat.entries.checked_sub(counted.entries)?;
    stays.stat.subdirs = touch.stat.subdirs.checked_sub(counted.subdirs)?;
    let given = PartRecord {
        generation,
        salt,
        depth,
    };
    let parts = PartsRecord {
        starts: tiling.starts().collect(),
    };
    // All of them updates: no store takes the new part for that of a new directory (H309).
    let update = |key, record| Mutation::Update { key, record };
    Some(vec![
        update(Key::Head(from), kept),
        update(Key::Touch(from), Record::Touch(stays)),
        update(Key::PartNote(from), Record::PartNote(PartNote::Debris)),
        update(Key::Head(new), Record::Part(given)),
        update(Key::Touch(new), Record::Touch(goes)),
        Mutation::Delete {
            key: Key::PartNote(new),
        },
        update(Key::Parts(from.dir), Record::Parts(parts)),
    ])
}
