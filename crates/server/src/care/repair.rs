//! Records that an operator puts right (`pando fsck --repair`), while everything goes on: a transaction under
//! locks, which first finds out whether everything is still as it was found.

use crate::account::Notes;
use crate::facts::coherence::Announcing;
use crate::facts::leases::ByServer;
use crate::facts::statements::Dirs;
use crate::pipeline::{Announced, Asked, Basis, Committed, Plan};
use crate::txn::attempt::Txn;
use crate::{Failure, MetaServer};
use pando_format::{Invalidation, Key, Mutation, Record};
use pando_namespace::{Decision, Snapshot, Walked};
use pando_store::Level;
use pando_types::{Bearer, Cred, DirId, IdentityId, Instance, Watermark};
use pando_wire::{Answer, LockMode, LockWant, Op, Refusal, RepairRequest, Repaired, Response};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Records in one repair.
const MOST: usize = 1024;

/// Whether a record is the tree's, and so may be put right. What transactions, sessions and servers remember
/// is not.
fn is_of_the_tree(key: &Key) -> bool {
    matches!(
        key,
        Key::Entry { .. }
            | Key::Attachment { .. }
            | Key::Head(_)
            | Key::Touch(_)
            | Key::Parts(_)
            | Key::PartNote(_)
            | Key::RenameList { .. }
            | Key::Counter(_)
    )
}

/// What must be locked and read to know a record.
fn wants_of(key: &Key) -> Vec<LockWant> {
    let exclusive = LockMode::Exclusive;
    match key {
        Key::Entry { part, hash, .. } => vec![LockWant::Bucket(*part, *hash, exclusive)],
        Key::Attachment { part, hash, name, .. } => {
            let entry = Key::Entry {
                part: *part,
                hash: *hash,
                name: name.clone(),
            };
            vec![
                LockWant::Bucket(*part, *hash, exclusive),
                LockWant::Attachments(entry),
            ]
        }
        key => vec![LockWant::Key(key.clone(), exclusive)],
    }
}

impl RepairPlan {
    /// Checks what can be checked without looking.
    fn of(request: RepairRequest) -> Result<RepairPlan, Repaired> {
        let expected: BTreeSet<&Key> = request.expected.iter().map(|(key, _)| key).collect();
        let keys = request.expected.iter().chain(&request.changes);
        let fits = keys
            .clone()
            .all(|(key, record)| is_of_the_tree(key) && record.as_ref().is_none_or(|r| r.fits(key)));
        let blind = request.changes.iter().any(|(key, _)| !expected.contains(key));
        let touched = |(dir, _): &(DirId, _)| expected.contains(&Key::Touch((*dir).into()));
        let twice = request.touches.iter().any(touched);
        let too_many = request.expected.len() + request.touches.len() > MOST;
        if !fits || blind || twice || too_many || request.changes.is_empty() && request.touches.is_empty() {
            return Err(Repaired::Wrong);
        }
        let coordinated = !request.invalidates.is_empty()
            || request
                .changes
                .iter()
                .any(|(key, _)| !matches!(key, Key::Counter(_)));
        Ok(RepairPlan { request, coordinated })
    }

    fn wants(&self) -> BTreeSet<LockWant> {
        let touches = self
            .request
            .touches
            .iter()
            .map(|(dir, _)| Key::Touch((*dir).into()));
        let keys = self
            .request
            .expected
            .iter()
            .map(|(key, _)| key.clone())
            .chain(touches);
        keys.flat_map(|key| wants_of(&key)).collect()
    }
}

/// What a repair changes, if all is as it was found.
pub fn changes_of(
    request: &RepairRequest,
    found: impl Fn(&Key) -> Option<Record>,
) -> Result<Vec<Mutation>, Repaired> {
    let same = |(key, record): &(Key, Option<Record>)| found(key) == *record;
    if !request.expected.iter().all(same) {
        return Err(Repaired::Changed);
    }
    let change = |(key, record): &(Key, Option<Record>)| match record.clone() {
        Some(record) => Mutation::Update {
            key: key.clone(),
            record,
        },
        None => Mutation::Delete { key: key.clone() },
    };
    let mut all: Vec<Mutation> = request.changes.iter().map(change).collect();
    let mut touches = BTreeMap::new();
    for (dir, delta) in &request.touches {
        let mut touch = match (touches.get(dir), found(&Key::Touch((*dir).into()))) {
            (Some(touch), _) => *touch,
            (None, Some(Record::Touch(touch))) => touch,
            _ => return Err(Repaired::Changed),
        };
        let (entries, subdirs) = (i64::from(delta.entries), i64::from(delta.subdirs));
        let fits = touch.stat.entries.checked_add_signed(entries).is_some()
            && touch.stat.subdirs.checked_add_signed(subdirs).is_some();
        // Counts that are wrong are put right first.
        if !fits {
            return Err(Repaired::Changed);
        }
        touch.apply(delta);
        touches.insert(*dir, touch);
    }
    all.extend(touches.into_iter().map(|(dir, touch)| Mutation::Update {
        key: Key::Touch(dir.into()),
        record: Record::Touch(touch),
    }));
    Ok(all)
}

/// A repair that makes sense.
struct RepairPlan {
    request: RepairRequest,
    /// Whether it may change what the coordinator decides.
    coordinated: bool,
}

impl MetaServer {
    pub(crate) async fn repair(&self, message: u64, request: RepairRequest) -> Result<Response, Failure> {
        let plan = match RepairPlan::of(request) {
            Ok(plan) => plan,
            Err(e) => return Ok(Response::Repair(e)),
        };
        let term = self.map().term;
        if plan.coordinated && !self.coordinates() {
            return Err(Failure::Refused(Refusal::UseCoordinator));
        }
        if plan.coordinated && !self.may_coordinate(term) {
            return Err(Failure::Refused(Refusal::NotReady));
        }
        let (op, notes, cred) = (Op::Sync, Notes::default(), Cred::root());
        let asked = Asked {
            parts: [0, 0],
            keep: None,
            message,
            holder: Bearer {
                identity: IdentityId::ANYONE,
                instance: Instance(0),
            },
            term,
            slot_changes: self.slot_changes(),
            request: None,
            cred: &cred,
            told: &cred,
            basis: Basis::Shown,
            op: &op,
            dirs: Dirs::of(&op),
            notes: &notes,
            change: Cell::default(),
            leases: Default::default(),
        };
        let mut txn = Txn::new(self, true, &notes);
        let mut snapshot = Snapshot::default();
        txn.read(&mut snapshot, plan.wants().into_iter().collect())
            .await?;
        let found = |key: &Key| snapshot.get(key).cloned();
        let mutations = match changes_of(&plan.request, found) {
            Ok(mutations) => mutations,
            Err(e) => return Ok(Response::Repair(e)),
        };
        let mut announced = Announced::default();
        if !plan.request.invalidates.is_empty() {
            let what = plan.request.invalidates.clone();
            let upto = self.announce_repair(&what, &notes).await?;
            announced = Announced::of(what, upto);
        }
        let counters = mutations.iter().filter_map(|m| match m.key() {
            Key::Counter(slot) => Some(slot),
            _ => None,
        });
        let counters: Vec<_> = counters.collect();
        let decision = Decision {
            outcome: Ok(Answer::Done),
            mutations,
            invalidates: Vec::new(),
        };
        let walked = Walked::new();
        let mut effect = self.prepare(&asked, decision, announced, self.world.now())?;
        self.begin_effect(&asked, &mut effect);
        let mut decided = Plan {
            effect,
            moving: None,
            walked: &walked,
        };
        match self.commit(txn, &asked, &mut decided).await? {
            Committed::Done(done) => {
                counters
                    .into_iter()
                    .for_each(|slot| self.slots.numbers.forget(slot));
                // Heads may have other parents than was known.
                self.office.graph.borrow_mut().forget_all();
                self.leases_changed(self.anywhere(&plan.request.invalidates));
                self.safe(done.lsn, Level::Synced).await?;
                Ok(Response::Repair(Repaired::Done))
            }
            Committed::Taken | Committed::Overtaken => Ok(Response::Repair(Repaired::Changed)),
        }
    }

    /// Under leases: an entry that is to be repaired may not say where others were told of it.
    fn anywhere(&self, what: &[Invalidation]) -> ByServer {
        let mut dirs: Vec<_> = what.iter().map(|i| (i.id, i.generation)).collect();
        dirs.sort();
        dirs.dedup();
        match self.has_leases() && !dirs.is_empty() {
            true => self.map().servers.iter().map(|s| (s.id, dirs.clone())).collect(),
            false => ByServer::new(),
        }
    }

    /// All servers hear what becomes untrue. Leases are waited for with the records locked: what is to be
    /// done was decided by whoever asked, from them.
    async fn announce_repair(&self, what: &[Invalidation], notes: &Notes) -> Result<Watermark, Failure> {
        let entries = self.anywhere(what);
        loop {
            match self.announce(what, &entries, notes).await? {
                Announcing::Done(upto) => return Ok(upto),
                Announcing::Now => return Ok(self.changes_now(what)),
                Announcing::Wait(time) => self.pause(time + Duration::from_millis(1)).await,
            }
        }
    }
}
