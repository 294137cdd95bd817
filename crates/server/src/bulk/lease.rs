//! The lease of a localised directory: given, renewed, returned, ended.

use super::insert::Table;
use super::{Known, NUMBERS};
use crate::account::Notes;
use crate::pipeline::{Announced, Asked, Committed, Done, Plan, reply_key};
use crate::txn::attempt::{Got, Txn};
use crate::{Failure, MetaServer};
use pando_format::{Batch, GarbageRecord, Head, Key, LocalRecord, Mutation, NumberRun, Record};
use pando_namespace::{Decision, Snapshot, Walked};
use pando_store::Level;
use pando_types::{Access, DirId, Division, Errno, Ids, Mono, Part, Timestamp, plant};
use pando_wire::{Answer, Bulk, Bulked, LockMode, LockWant, Refusal, Statement};
use std::collections::BTreeSet;

/// So often it is begun again.
const ROUNDS: u32 = 64;

/// What a step of a bulk insertion changes and answers.
pub(super) struct Decided {
    pub bulked: Bulked,
    pub mutations: Vec<Mutation>,
}

/// What a round has.
pub(super) struct Round<'a> {
    pub asked: &'a Asked<'a>,
    pub dir: &'a Statement,
    pub step: &'a Bulk,
    pub snapshot: &'a Snapshot,
    /// The lease there is.
    pub lease: Option<LocalRecord>,
    /// Numbers that were taken for it.
    pub numbers: Option<NumberRun>,
    /// The calendar time it is decided with.
    pub now: Timestamp,
}

/// Why a round decides nothing.
pub(super) enum Not {
    /// It fails.
    Errno(Errno),
    Failure(Failure),
}

impl From<Errno> for Not {
    fn from(e: Errno) -> Not {
        Not::Errno(e)
    }
}

impl From<Failure> for Not {
    fn from(e: Failure) -> Not {
        Not::Failure(e)
    }
}

impl From<pando_store::StoreError> for Not {
    fn from(e: pando_store::StoreError) -> Not {
        Not::Failure(e.into())
    }
}

/// What a step has before anything is locked.
struct Begun<'a> {
    /// Numbers that were taken for it.
    numbers: Option<NumberRun>,
    table: Option<Table<'a>>,
    /// Why it has no table that can be inserted.
    wrong: Option<Errno>,
}

impl MetaServer {
    /// A step of a bulk insertion.
    pub(crate) async fn bulk(
        &self,
        asked: &Asked<'_>,
        (dir, step): (&Statement, &Bulk),
        unknown: bool,
    ) -> Result<Done, Failure> {
        let mut begun = match Box::pin(self.begin(dir, step)).await? {
            Ok(begun) => begun,
            Err(errno) => return self.read_only(asked, self.world.now(), Err(errno)),
        };
        let mut missed = BTreeSet::new();
        for round in 0..ROUNDS {
            let mut txn = Txn::new(self, round > 0, asked.notes);
            let mut snapshot = Snapshot::default();
            let mut wants = content_wants(dir);
            wants.extend(begun.table.iter().flat_map(Table::wants));
            if let (Some(key), true) = (reply_key(asked), unknown) {
                wants.push(LockWant::Key(key, LockMode::Exclusive));
            }
            if Box::pin(txn.read(&mut snapshot, wants)).await? == Got::Taken {
                continue;
            }
            if let Some(done) = self.remembered(asked, unknown, &snapshot)? {
                return Ok(done);
            }
            if asked.op.grows() && self.low_on_space() {
                return self.read_only(asked, self.world.now(), Err(Errno::NoSpace));
            }
            if let Some((parent, content)) = asked.without_content(&snapshot, &missed) {
                drop(txn);
                Box::pin(self.is_not_owed(parent, content.0, content.1)).await?;
                missed.insert(content);
                continue;
            }
            let done = Box::pin(self.bulk_round(asked, (dir, step), (txn, &snapshot), &mut begun)).await?;
            if let Some(done) = done {
                return Ok(done);
            }
        }
        Err(Failure::Refused(Refusal::Busy))
    }

    /// What is waited for while nothing is locked.
    async fn begin(&self, dir: &Statement, step: &Bulk) -> Result<Result<Begun<'_>, Errno>, Failure> {
        let slot = Part::whole(dir.id).slot();
        let mut begun = Begun {
            numbers: None,
            table: None,
            wrong: None,
        };
        match step {
            Bulk::Localize if !self.suits(dir) => return Ok(Err(Errno::Unsupported)),
            Bulk::Localize => begun.numbers = Some(self.number_run(slot, NUMBERS.0).await?),
            Bulk::Renew { more: true, .. } => begun.numbers = Some(self.number_run(slot, NUMBERS.1).await?),
            Bulk::Renew { .. } | Bulk::Return { .. } => {}
            Bulk::Insert { .. } => match Box::pin(self.table(dir, step)).await? {
                Ok(table) => begun.table = table,
                // If it was inserted before, that is the answer.
                Err(errno) => begun.wrong = Some(errno),
            },
        }
        Ok(Ok(begun))
    }

    /// Decides and brings it about. Nothing: it is to be begun again. REQUIRES: what it concerns is locked.
    async fn bulk_round(
        &self,
        asked: &Asked<'_>,
        (dir, step): (&Statement, &Bulk),
        (txn, snapshot): (Txn<'_>, &Snapshot),
        begun: &mut Begun<'_>,
    ) -> Result<Option<Done>, Failure> {
        let now = self.world.now();
        if let Some(errno) = begun.wrong {
            return self.read_only(asked, now, Err(errno)).map(Some);
        }
        let lease = match self.store.get(&Key::Local(dir.id.into())).wait().await? {
            Some(Record::Local(lease)) => Some(lease),
            _ => None,
        };
        let at = Round {
            asked,
            dir,
            step,
            snapshot,
            lease,
            numbers: begun.numbers,
            now,
        };
        let decided = match Box::pin(self.step(&at, begun.table.as_mut())).await {
            Ok(decided) => decided,
            Err(Not::Errno(errno)) => return self.read_only(asked, now, Err(errno)).map(Some),
            Err(Not::Failure(failure)) => return Err(failure),
        };
        let outcome = Ok(Answer::Bulk(decided.bulked));
        if decided.mutations.is_empty() {
            return self.read_only(asked, now, outcome).map(Some);
        }
        let decision = Decision {
            outcome,
            mutations: decided.mutations,
            invalidates: Vec::new(),
        };
        let mut effect = self.prepare(asked, decision, Announced::default(), now)?;
        // What is told of it rests on this: a lease is there after a power failure, and so is a batch.
        effect.until = Level::Synced;
        self.begin_effect(asked, &mut effect);
        let walked = Walked::new();
        let mut plan = Plan {
            effect,
            moving: None,
            walked: &walked,
        };
        match Box::pin(self.commit(txn, asked, &mut plan)).await? {
            Committed::Done(done) => {
                self.stepped(dir.id, step, &done);
                Ok(Some(done))
            }
            Committed::Overtaken => Ok(None),
            // A number is never given twice: the table says what is not true.
            Committed::Taken => self.read_only(asked, now, Err(Errno::Invalid)).map(Some),
        }
    }

    /// Whether a directory can be localised: all that comes below it must find its place beside it.
    fn suits(&self, dir: &Statement) -> bool {
        let map = self.map();
        // A table is for one slot.
        let one_slot = map.placement.division() != Division::OneByOne;
        let placed = match map.ids {
            Ids::Placed => map.id_bits == 128 && one_slot,
            Ids::Predicted => false,
        };
        let together = map.home(&Key::Touch(dir.id.into())) == map.owner(Part::whole(dir.id).slot());
        placed && together && dir.acls.default.is_none() && dir.id != DirId::ABOVE_ROOT && !dir.id.is_homes()
    }

    /// What a step does, by what is locked.
    async fn step(&self, at: &Round<'_>, table: Option<&mut Table<'_>>) -> Result<Decided, Not> {
        let dir = at.dir;
        let head = at.snapshot.head(dir.id.into()).ok_or(Errno::Stale)?;
        if head.generation != dir.generation || head.salt != dir.salt {
            return Err(Errno::Stale.into());
        }
        let want = Access::WRITE.and(Access::EXEC);
        if !at.asked.cred.may(want, &dir.guard()) && !plant!(G77) {
            return Err(Errno::Access.into());
        }
        if let Bulk::Localize = at.step {
            return self.localize(at, head);
        }
        let session = at.asked.request.map(|id| id.session);
        let mine = |l: &LocalRecord| {
            let named = Some(l.lease) == at.step.lease() || plant!(H55);
            named && (Some(l.session) == session || plant!(G78))
        };
        let lease = at.lease.filter(mine).ok_or(Errno::Stale)?;
        match (at.step.clone(), table) {
            (Bulk::Renew { more, .. }, _) => self.renew(at, (lease, more)),
            (Bulk::Return { .. }, _) => Ok(Decided {
                bulked: Bulked::Returned,
                mutations: self.ended(dir.id.into(), head, &lease).await?,
            }),
            (Bulk::Insert { batch, .. }, Some(table)) => self.insert(at, (lease, batch), table).await,
            (Bulk::Insert { batch, .. }, None) if batch < lease.batch => Ok(Decided {
                bulked: Bulked::Inserted { entries: 0 },
                mutations: Vec::new(),
            }),
            (Bulk::Insert { .. } | Bulk::Localize, _) => Err(Errno::Invalid.into()),
        }
    }

    fn localize(&self, at: &Round<'_>, head: &Head) -> Result<Decided, Not> {
        let part = Part::whole(at.dir.id);
        let session = at.asked.request.ok_or(Errno::Invalid)?.session;
        if at.lease.is_some() {
            self.came_into(part);
            return Err(Failure::Refused(Refusal::Busy).into());
        }
        let touch = at.snapshot.touch(part).ok_or(Errno::Stale)?;
        if touch.stat.entries > 0 {
            return Err(Errno::NotEmpty.into());
        }
        // A table is for one part (H319).
        if head.split & !Head::LOCALISED != 0 && !plant!(H319) {
            return Err(Errno::Unsupported.into());
        }
        let run = at.numbers.ok_or(Errno::Invalid)?;
        let (table, lease) = run.number(part.slot(), run.next);
        let numbers = NumberRun {
            next: run.next + 1,
            ..run
        };
        let record = LocalRecord {
            lease,
            table,
            session,
            batch: 0,
            numbers,
        };
        Ok(Decided {
            bulked: Bulked::Localized {
                lease,
                table,
                millis: self.millis(),
                now: self.world.now(),
                numbers,
            },
            mutations: vec![
                put(Key::Head(part), Record::Head(head.localised(true))),
                put(Key::Local(part), Record::Local(record)),
                self.keep_table(part, &record, 0),
            ],
        })
    }

    fn renew(&self, at: &Round<'_>, (lease, more): (LocalRecord, bool)) -> Result<Decided, Not> {
        let part = Part::whole(at.dir.id);
        let goes_on = self.extend(at.dir.id);
        let numbers = at.numbers.filter(|_| more && goes_on);
        let record = numbers.map(|numbers| LocalRecord { numbers, ..lease });
        Ok(Decided {
            bulked: Bulked::Renewed {
                millis: if goes_on { self.millis() } else { 0 },
                now: self.world.now(),
                numbers,
            },
            mutations: record
                .map(|record| put(Key::Local(part), Record::Local(record)))
                .into_iter()
                .collect(),
        })
    }

    fn millis(&self) -> u32 {
        self.limits.localised.as_millis() as u32
    }

    /// The note by which the data of the table are collected when nobody holds it any more (H60).
    pub(super) fn keep_table(&self, part: Part, lease: &LocalRecord, bytes: u32) -> Mutation {
        let record = GarbageRecord {
            size: bytes.into(),
            block_size: self.map().block_size,
            holder: Some(lease.session),
        };
        put(
            Key::Garbage(part.slot(), lease.table, lease.lease),
            Record::Garbage(record),
        )
    }

    /// What the end of a lease changes.
    async fn ended(&self, part: Part, head: &Head, lease: &LocalRecord) -> Result<Vec<Mutation>, Failure> {
        let mut all = vec![
            put(Key::Head(part), Record::Head(head.localised(false))),
            Mutation::Delete {
                key: Key::Local(part),
            },
        ];
        let note = Key::Garbage(part.slot(), lease.table, lease.lease);
        if let Some(Record::Garbage(held)) = self.store.get(&note).wait().await? {
            let free = GarbageRecord { holder: None, ..held };
            all.push(put(note, Record::Garbage(free)));
        }
        Ok(all)
    }

    /// Notes what a step that took effect says of the lease.
    fn stepped(&self, dir: DirId, step: &Bulk, done: &Done) {
        let state = &self.bulk;
        match (step, &done.outcome) {
            (Bulk::Localize, Ok(_)) => {
                state.count(|c| c.leases += 1);
                state.leases.borrow_mut().insert(dir, self.known_anew());
            }
            (Bulk::Insert { .. }, Ok(Answer::Bulk(Bulked::Inserted { entries }))) => {
                state.count(|c| {
                    c.batches += 1;
                    c.entries += entries;
                });
            }
            (Bulk::Return { .. }, Ok(_)) => {
                state.leases.borrow_mut().remove(&dir);
                self.slots.splits.borrow_mut().look_at(dir.into());
            }
            _ => {}
        }
    }

    /// A lease of which nothing is known, after a start or when its slot came: it lasts its whole time from
    /// now.
    fn known_anew(&self) -> Known {
        Known {
            until: self.world.mono().after(self.limits.localised),
            wanted: false,
            ending: false,
        }
    }

    /// Whether a lease goes on, from now: not if somebody waits for the directory.
    fn extend(&self, dir: DirId) -> bool {
        let anew = self.known_anew();
        let mut leases = self.bulk.leases.borrow_mut();
        let known = leases.entry(dir).or_insert(anew);
        let goes_on = !known.wanted && !known.ending;
        if goes_on {
            known.until = self.world.mono().after(self.limits.localised);
        }
        goes_on
    }

    /// Somebody looks whether a directory is localised: they want to come into it. If it is, and its time is
    /// over, it ends.
    pub(crate) fn came_into(&self, part: Part) {
        let anew = self.known_anew();
        let over = {
            let now: Mono = self.world.mono();
            let mut leases = self.bulk.leases.borrow_mut();
            let known = leases.entry(part.dir).or_insert(anew);
            known.wanted = true;
            let over = known.until <= now && !known.ending;
            known.ending |= over;
            over
        };
        if over {
            self.spawn(|me| {
                Box::pin(async move {
                    if let Err(Failure::Store(e)) = me.end_lease(part).await {
                        me.report(&e);
                    }
                    me.bulk.leases.borrow_mut().remove(&part.dir);
                })
            });
        }
    }

    /// Ends a lease whose time is over: who has it can insert nothing more.
    async fn end_lease(&self, part: Part) -> Result<(), Failure> {
        let notes = Notes::default();
        let mut txn = Txn::new(self, true, &notes);
        let mut snapshot = Snapshot::default();
        let want = LockWant::Key(Key::Head(part), LockMode::Exclusive);
        if txn.read(&mut snapshot, vec![want]).await? == Got::Taken {
            return Ok(());
        }
        let Some(head) = snapshot.head(part) else {
            return Ok(());
        };
        let ended = match self.store.get(&Key::Local(part)).wait().await? {
            Some(Record::Local(lease)) => self.ended(part, head, &lease).await?,
            // A filesystem was restored: leases are not kept in backups.
            _ if head.is_localised() => vec![put(Key::Head(part), Record::Head(head.localised(false)))],
            _ => return Ok(()),
        };
        self.flow().await;
        tracing::info!(server = self.id.0, directory = %part, "the lease of a localised directory is over");
        self.change(&Batch::of(ended))?;
        self.slots.splits.borrow_mut().look_at(part);
        Ok(())
    }
}

/// Wants to change a directory's content.
fn content_wants(dir: &Statement) -> Vec<LockWant> {
    let part = Part::whole(dir.id);
    [Key::Head(part), Key::Touch(part)]
        .map(|key| LockWant::Key(key, LockMode::Exclusive))
        .into()
}

/// Writes a record, whether there is one or not.
pub(super) fn put(key: Key, record: Record) -> Mutation {
    Mutation::Update { key, record }
}
