//! The judge: every execution is applied to the reference model at the instant it happens, in the order in
//! which the servers' locks let them happen, and must have come to the model's outcome.
//!
//! **Loss.** What a server applied and did not sync can be lost with its power. Executions are therefore kept
//! until they are synced. When some are lost, the model goes back to where all was safe and the survivors are
//! applied again: each change must come to the same outcome as before, so nothing that survived may rest on
//! something lost. In `sync` the same holds for every read that was answered (rule 8: nothing that could
//! still be lost is ever shown); in `async` an acknowledged change of the last seconds may vanish, and a read
//! of it with it, by contract.
//!
//! **Replies** are looked at when a server sends them: at that moment the execution they speak of must be
//! durable there (H102), and a request identity must have taken effect once at most (H44, H45), also after it
//! was answered.

use crate::adopted;
use crate::changes::Told;
use crate::compare;
use crate::facts::Facts;
use crate::history::History;
use crate::replies::Replies;
use crate::tree::{Tree, in_tree};
use crate::violation::Kind;
use crate::world::{Life, Sim};
use pando_auth::StatementKeys;
use pando_cluster::ClusterMap;
use pando_format::{Batch, Key, LOCAL_SLOT, Mutation, PartNote, Record, Scan};
use pando_model::Model;
use pando_server::Executed;
use pando_store::{Disk, Durability, Lsn};
use pando_types::{Claims, Cred, Errno, IdentityId, RequestId, ServerId, Slot, Timestamp};
use pando_wire::{Op, Outcome};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// An execution that was observed.
pub struct Execution {
    /// Where.
    pub server: ServerId,
    /// In which incarnation of it.
    pub life: u64,
    /// The message that asked.
    pub message: u64,
    /// Identity of a mutating request.
    pub request: Option<RequestId>,
    /// On whose behalf.
    pub cred: Cred,
    /// What.
    pub op: Op,
    /// The server's clock.
    pub now: Timestamp,
    /// What came of it.
    pub outcome: Outcome,
    /// Position of its effect in the server's log.
    pub lsn: Lsn,
    /// Whether it changed anything.
    pub changed: bool,
    /// Whether anybody was told.
    pub told: Cell<bool>,
    /// Changed nothing, and was right when it was decided, some time before it counted.
    pub weighed: Cell<bool>,
    /// Whether a power failure undid it.
    pub lost: Cell<bool>,
    /// What it brought into the tree, if it inserted a table.
    brought: Option<Vec<pando_model::Adopted>>,
}

/// What the judge knows of a server's store.
#[derive(Clone, Copy, Default)]
struct Log {
    life: u64,
    applied: Lsn,
    synced: Lsn,
}

/// Counts for the report.
#[derive(Clone, Default, Debug)]
pub struct Counts {
    /// Executions by operation and outcome.
    pub executions: BTreeMap<(&'static str, &'static str), u64>,
    /// Executions undone by a power failure.
    pub lost: u64,
    /// Times the model went back.
    pub rollbacks: u64,
    /// Replies compared with executions.
    pub replies: u64,
    /// Replies that repeated an earlier execution.
    pub repeated: u64,
    /// Distributed transactions.
    pub distributed: u64,
    /// Full walks compared with the incremental state and the model.
    pub walks: u64,
    /// Listings judged from first to last page.
    pub listings: u64,
    /// Slots that moved while they were in use.
    pub slots_moved: u64,
    /// Halves of directories' parts that became parts of their own.
    pub splits: u64,
    /// Cuts that all servers had pictures of.
    pub cuts: u64,
}

struct State {
    tree: Tree,
    model: Model,
    /// The model at a moment all of which is synced.
    base: Model,
    /// Executions since then, in order.
    since: Vec<Rc<Execution>>,
    logs: BTreeMap<ServerId, Log>,
    map: ClusterMap,
    /// What clients were told.
    facts: Facts,
    /// What servers told of directories' change attributes.
    told: Told,
    /// What tells the servers' statements from those of liars (H98).
    keys: StatementKeys,
    /// Rises when the model goes back: listings under observation end.
    epoch: u64,
    /// Servers whose space is or was low until this time.
    low_space: BTreeMap<ServerId, u64>,
    by_server: BTreeMap<ServerId, u64>,
    /// Outcomes that change nothing and were right when they were decided, by message and process: they may
    /// be told once all who lent locks have confirmed them.
    weighed: BTreeMap<(u64, u64), Outcome>,
    counts: Counts,
    /// Who may do what.
    book: crate::claims::Book,
}

impl State {
    /// Takes over what an execution brought, if it was right, and was not where it should not have been.
    fn adopted(&mut self, right: Result<(), String>, e: &Execution) -> Result<(), String> {
        right?;
        adopt(&mut self.model, e)?;
        adopted::intrudes(&self.tree, &e.op, &e.outcome)
    }
}

/// Takes over what an execution brought.
fn adopt(model: &mut Model, e: &Execution) -> Result<(), String> {
    adopted::adopt(model, &e.cred, e.brought.as_deref(), &e.outcome, e.now)
}

/// The judge.
pub struct Judge {
    sim: Rc<Sim>,
    durability: Durability,
    disks: Vec<(ServerId, Disk)>,
    state: RefCell<State>,
    pub(crate) replies: RefCell<Replies>,
    pub(crate) revocations: RefCell<crate::revoke::Ended>,
    pub(crate) history: RefCell<History>,
    pub(crate) lent: RefCell<crate::lent::Lent>,
}

/// A listing under observation.
pub struct Listing {
    watch: pando_model::ListingWatch,
    epoch: u64,
}

impl Judge {
    /// Of a cluster that was just formatted.
    pub fn new(
        sim: Rc<Sim>,
        durability: Durability,
        map: ClusterMap,
        disks: Vec<(ServerId, Disk)>,
        model: Model,
    ) -> Result<Rc<Judge>, String> {
        let tree = Tree::build(&map, dump(&disks, &map), BTreeSet::new())?;
        tree.check_all()?;
        compare::whole_tree(&model, &tree, &map)?;
        let mut history = History::new(map.widths()).in_parts(map.placement.splits());
        history.ignore(&crate::revoke::NAMES);
        let logs = disks.iter().map(|(id, _)| (*id, Log::default())).collect();
        let replies = Replies::with(map.coherence);
        let state = State {
            tree,
            base: model.clone(),
            model,
            since: Vec::new(),
            logs,
            facts: Facts::default(),
            told: Told::default(),
            keys: crate::cluster::secrets(&map).statement_keys(),
            map,
            epoch: 0,
            low_space: BTreeMap::new(),
            by_server: BTreeMap::new(),
            weighed: BTreeMap::new(),
            counts: Counts::default(),
            book: crate::claims::Book::default(),
        };
        Ok(Rc::new(Judge {
            sim,
            durability,
            disks,
            state: RefCell::new(state),
            replies: RefCell::new(replies),
            revocations: RefCell::default(),
            history: RefCell::new(history),
            lent: RefCell::default(),
        }))
    }

    fn wrong(&self, text: impl Into<String>) {
        self.sim.fail(Kind::WrongResult, text);
    }

    /// What an identity may claim.
    pub fn claims_of(&self, id: IdentityId) -> Claims {
        self.state.borrow().book.claims_of(id)
    }

    /// Whether servers gave a statement, as it is, to somebody; that of the place above the root is
    /// everybody's.
    pub fn told_to(&self, s: &pando_wire::Statement, whom: pando_types::Bearer) -> bool {
        s.id != pando_types::DirId::ABOVE_ROOT && self.state.borrow().keys.made(s, whom)
    }

    /// An identity was made.
    pub fn identity(&self, id: IdentityId, claims: Claims) {
        self.state.borrow_mut().book.made(id, claims);
    }

    /// The map changed while nothing ran; records moved with it.
    pub fn new_map(&self, map: ClusterMap) {
        self.state.borrow_mut().map = map;
        self.rebuild();
    }

    /// From this instant on another map is in force. Whatever it says of who owns what, it is the same tree:
    /// a receiver has all that it becomes the owner of, as it was the instant before.
    pub fn map_in_force(&self, map: ClusterMap) {
        let moved = self.moved(&map);
        self.state.borrow_mut().counts.slots_moved += moved.len() as u64;
        if moved.iter().all(|m| self.is_handed_over(*m)) {
            self.state.borrow_mut().map = map;
            return;
        }
        let finished = self.state.borrow().tree.finished().clone();
        let taken_over = Tree::build(&map, dump(&self.disks, &map), finished);
        let mut state = self.state.borrow_mut();
        state.map = map;
        let same = taken_over.and_then(|found| state.tree.compare(&found));
        drop(state);
        if let Err(why) = same {
            self.wrong(format!("the slots' new owners have another tree: {why}"));
        }
    }

    /// The slots that another map gives to others: from whom, to whom.
    fn moved(&self, map: &ClusterMap) -> Vec<(Slot, ServerId, ServerId)> {
        let state = self.state.borrow();
        let slots = (0..).map(Slot).zip(state.map.slots.iter().zip(&map.slots));
        let moved = slots.filter(|(_, (before, now))| before != now);
        moved.map(|(slot, (before, now))| (slot, *before, *now)).collect()
    }

    /// Whether both have the very same records of a slot. If not, they may still mean the same tree.
    fn is_handed_over(&self, (slot, from, to): (Slot, ServerId, ServerId)) -> bool {
        let disk = |id| self.disks.iter().find(|(of, _)| *of == id).map(|(_, disk)| disk);
        match (disk(from), disk(to)) {
            (Some(from), Some(to)) => from.is_same(to, &Scan::Slot(slot), in_tree),
            _ => false,
        }
    }

    /// A server opened its store: what was there is synced now, and positions start again.
    pub fn opened(&self, server: ServerId, life: u64) {
        self.state.borrow_mut().logs.insert(
            server,
            Log {
                life,
                applied: Lsn(0),
                synced: Lsn(0),
            },
        );
    }

    /// A server applied a batch.
    pub fn applied(&self, server: ServerId, lsn: Lsn, batch: &Batch) {
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        if let Some(log) = s.logs.get_mut(&server) {
            log.applied = lsn;
        }
        let foreign = |slot: Slot| slot != LOCAL_SLOT && s.map.owner(slot) != server;
        let keys = batch
            .mutations
            .iter()
            .map(Mutation::key)
            .chain(batch.reply.iter().map(|r| r.key.clone()));
        let (foreign, own): (Vec<Key>, Vec<Key>) = keys.partition(|k| foreign(k.slot()));
        if own.is_empty() && !foreign.is_empty() {
            // A copy that comes, or what is left of one: it counts when a map says so.
            return;
        }
        let foreign = foreign.into_iter().next();
        let mut rests = Ok(());
        for m in &batch.mutations {
            match m {
                Mutation::Insert {
                    key: Key::Decision(tx),
                    ..
                } => {
                    s.counts.distributed += 1;
                    rests = rests.and(self.lent.borrow_mut().committed(*tx));
                }
                Mutation::Insert {
                    key: Key::Owed(_), ..
                } => s.counts.distributed += 1,
                Mutation::Update {
                    record: Record::PartNote(PartNote::Debris),
                    ..
                } => s.counts.splits += 1,
                _ => {}
            }
        }
        let result = rests.and(s.tree.apply(server, batch));
        drop(state);
        if let Some(key) = foreign {
            self.wrong(format!(
                "server {server} changes {key:?}, whose slot is not its own"
            ));
        }
        if let Err(e) = result {
            self.wrong(format!(
                "after a batch of server {server}: {e}; the batch: {batch:?}"
            ));
        }
    }

    /// A server's store is safe up to here.
    pub fn synced(&self, server: ServerId, lsn: Lsn) {
        if let Some(log) = self.state.borrow_mut().logs.get_mut(&server) {
            log.synced = log.synced.max(lsn);
        }
    }

    /// A server's space is low, until further notice or until a given time.
    pub fn space_low(&self, server: ServerId, until: u64) {
        self.state.borrow_mut().low_space.insert(server, until);
    }

    /// Executions of one server so far.
    pub fn executions_of(&self, server: ServerId) -> u64 {
        self.state.borrow().by_server.get(&server).copied().unwrap_or(0)
    }

    /// Operations refused for want of space so far.
    pub fn refused_for_space(&self) -> u64 {
        let s = self.state.borrow();
        s.counts
            .executions
            .iter()
            .filter(|((_, outcome), _)| *outcome == "ENOSPC")
            .map(|(_, n)| n)
            .sum()
    }

    /// Position of the last batch of a server.
    pub fn last_applied(&self, server: ServerId) -> Lsn {
        self.state
            .borrow()
            .logs
            .get(&server)
            .map_or(Lsn(0), |l| l.applied)
    }

    /// An operation took effect, or was answered without one.
    pub fn executed(&self, server: ServerId, life: u64, e: &Executed<'_>) {
        let execution = Rc::new(self.execution(server, life, e));
        self.sim.note(|| {
            let did = if e.changed { "does" } else { "sees" };
            format!(
                "    S{server} {did} @{} {} = {:?}",
                e.lsn.0,
                crate::words::describe_op(e.op),
                e.outcome
            )
        });
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        *s.counts
            .executions
            .entry((e.op.kind(), outcome_word(e.outcome)))
            .or_default() += 1;
        *s.by_server.entry(server).or_default() += 1;
        let shown = if let Op::Publish { object, handle, .. }
        | Op::SetAttr {
            object,
            handle: Some(handle),
            ..
        } = e.op
        {
            Some((*handle, object.id()))
        } else {
            None
        };
        let forged_handle = shown.is_some_and(|(h, file)| !s.keys.opened(h, file, e.holder.identity));
        let mut believed = e.op.statements().into_iter().flatten();
        let before = changed_dir(e).and_then(|id| s.model.view(id));
        let revoked = self.revocations.borrow().check(e.holder.identity, server, life);
        let claimed = s.book.executed(e).and(revoked);
        let home = e.op.home_in(e.parts).map(|slot| s.map.owner(slot));
        let coordinated = matches!(e.op, Op::Rename { .. } | Op::SetAttr { .. } | Op::SetAcl { .. });
        let now = self.sim.now();
        let low = s.low_space.values().any(|until| *until >= now);
        let result = if e.changed && !coordinated && home.is_some_and(|owner| owner != server) {
            Err(format!("its slot is served by {home:?}"))
        } else if forged_handle {
            Err("it rests on a handle that nobody was given".to_string())
        } else if let Err(why) = claimed {
            Err(why)
        } else if let Some(forged) = believed.find(|b| !e.guess && !s.keys.made(b, e.holder)) {
            Err(format!("it rests on a statement nobody made: {forged:?}"))
        } else if *e.outcome == Err(Errno::NoSpace) && (low || !matches!(e.op, Op::SetXattr { .. })) {
            // (All attributes of an object together may be too many for it: the model says when.)
            if !low {
                Err("ENOSPC while no server is short of space".to_string())
            } else if e.changed || !e.op.grows() {
                Err("ENOSPC of something that does not grow".to_string())
            } else {
                Ok(())
            }
        } else if *e.outcome == Err(Errno::TooManyLinks) {
            // While half of all IDs are free, so many tries do not all fail.
            let ids = 1u128.checked_shl(s.map.id_bits.into()).unwrap_or(u128::MAX);
            if !matches!(e.op, Op::Mkdir { .. }) || e.changed {
                Err("EMLINK of something that makes no directory".to_string())
            } else if ids / 2 > s.tree.directories() as u128 {
                Err(format!("EMLINK with {} directories", s.tree.directories()))
            } else {
                Ok(())
            }
        } else if s.weighed.remove(&(e.message, life)).as_ref() == Some(e.outcome) {
            execution.weighed.set(true);
            Ok(())
        } else {
            let facts = s.facts.check(&s.model, e);
            compare::judge(&mut s.model, &s.tree, &s.map, e.cred, e.op, e.now, e.outcome).and(facts)
        };
        let result = s
            .adopted(result, &execution)
            .and(s.facts.note(&s.keys, e, before));
        let result = result.and(s.told.executed(server, life, e));
        s.since.push(execution.clone());
        drop(state);
        if let Err(why) = result {
            self.wrong(format!(
                "server {server}, {} for uid {}: {why}",
                crate::words::describe_op(e.op),
                e.cred.uid
            ));
        }
        let double = self.replies.borrow_mut().executed(&execution);
        if let Err(why) = double {
            self.wrong(why);
        }
        self.forget();
    }

    fn execution(&self, server: ServerId, life: u64, e: &Executed<'_>) -> Execution {
        let s = self.state.borrow();
        let found = e
            .changed
            .then(|| adopted::brought(&s.tree, &s.model, e.op, e.outcome));
        Execution {
            server,
            life,
            brought: found.flatten(),
            message: e.message,
            request: e.request,
            cred: e.cred.clone(),
            op: e.op.clone(),
            now: e.now,
            outcome: e.outcome.clone(),
            lsn: e.lsn,
            changed: e.changed,
            told: Cell::new(false),
            weighed: Cell::new(false),
            lost: Cell::new(false),
        }
    }

    /// An outcome that changes nothing was decided on locks of other servers.
    pub fn weighed(&self, life: u64, e: &Executed<'_>) {
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        let mut model = s.model.clone();
        if s.facts.check(&s.model, e).is_ok()
            && compare::judge(&mut model, &s.tree, &s.map, e.cred, e.op, e.now, e.outcome).is_ok()
        {
            s.weighed.insert((e.message, life), e.outcome.clone());
        }
    }

    /// Moves the base on over what is synced.
    fn forget(&self) {
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        if s.since.len() < 512 || !s.since.len().is_multiple_of(64) {
            return;
        }
        let safe = s.since.iter().take_while(|e| s.synced(e)).count();
        if safe == s.since.len() {
            s.base = s.model.clone();
            s.since.clear();
        } else if safe >= 2048 {
            for e in s.since.drain(..safe).filter(|e| e.changed) {
                // Judged before, with the same outcome.
                let _ = compare::judge_again(&mut s.base, &s.tree, &s.map, &e.cred, &e.op, e.now, &e.outcome);
                let _ = adopt(&mut s.base, &e);
            }
        }
    }

    /// Whether what this execution did and saw may be told.
    pub(crate) fn is_durable(&self, e: &Execution) -> bool {
        let state = self.state.borrow();
        match self.durability {
            Durability::Sync => state.synced(e),
            Durability::Async => {
                !e.lost.get()
                    && state
                        .logs
                        .get(&e.server)
                        .is_some_and(|l| l.life != e.life || e.lsn <= l.applied)
            }
        }
    }

    /// Whether nothing can undo this execution any more. Of a server that has left, others have all there
    /// was, synced.
    pub(crate) fn is_synced(&self, e: &Execution) -> bool {
        let state = self.state.borrow();
        state.map.has_left(e.server) || state.synced(e)
    }

    /// A server lost power; its disk kept everything up to `survived`.
    pub fn power_lost(&self, server: ServerId, survived: Lsn) {
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        let Some(log) = s.logs.get_mut(&server) else {
            return;
        };
        let (life, applied) = (log.life, log.applied);
        log.applied = survived;
        log.synced = survived;
        let lost: Vec<Rc<Execution>> = s
            .since
            .iter()
            .filter(|e| e.server == server && e.life == life && e.lsn > survived)
            .cloned()
            .collect();
        s.since
            .retain(|e| !(e.server == server && e.life == life && e.lsn > survived));
        s.counts.lost += lost.iter().filter(|e| e.changed).count() as u64;
        drop(state);
        for e in &lost {
            e.lost.set(true);
            if e.told.get() && self.durability == Durability::Sync {
                self.wrong(format!(
                    "server {server} lost {} at {:?} with its power, after it was answered",
                    crate::words::describe_op(&e.op),
                    e.lsn
                ));
            }
        }
        self.replies.borrow_mut().lost(&lost);
        if applied > survived {
            self.rebuild();
            self.roll_back();
            if self.durability == Durability::Async {
                let explained = self.history.borrow_mut().cut();
                self.check(explained);
            }
        }
    }

    /// Whether some order explains what clients saw, whatever the servers say theirs was.
    pub fn judge_history(&self) {
        let explained = self.history.borrow_mut().judge();
        self.check(explained);
    }

    /// Builds the tree anew from the disks.
    fn rebuild(&self) {
        let finished = self.state.borrow().tree.finished().clone();
        let map = self.state.borrow().map.clone();
        match Tree::build(&map, dump(&self.disks, &map), finished).and_then(|t| t.check_all().map(|()| t)) {
            Ok(tree) => self.state.borrow_mut().tree = tree,
            Err(e) => self.wrong(format!("after a power failure or a change of the map: {e}")),
        }
    }

    /// Applies what survived to the model again, from where all was safe.
    fn roll_back(&self) {
        let mut state = self.state.borrow_mut();
        let s = &mut *state;
        s.counts.rollbacks += 1;
        s.epoch += 1;
        let mut model = s.base.clone();
        let mut wrong = None;
        for e in &s.since {
            if matches!(e.op, Op::ReadDir { .. })
                || matches!(e.outcome, Err(Errno::NoSpace | Errno::TooManyLinks))
                // It was right before others that stand before it here.
                || e.weighed.get()
            {
                continue;
            }
            if !e.changed && (self.durability != Durability::Sync || !e.told.get()) {
                continue;
            }
            let result = compare::judge_again(&mut model, &s.tree, &s.map, &e.cred, &e.op, e.now, &e.outcome);
            if let Err(why) = result.and_then(|()| adopt(&mut model, e)) {
                wrong.get_or_insert(format!(
                    "{} on server {} rests on something a power failure undid: {why}",
                    crate::words::describe_op(&e.op),
                    e.server
                ));
            }
        }
        s.model = model;
        let whole = compare::whole_tree(&s.model, &s.tree, &s.map);
        drop(state);
        if let Some(why) = wrong {
            self.wrong(why);
        }
        if let Err(why) = whole {
            self.wrong(format!("after a power failure: {why}"));
        }
    }

    /// Walks all disks and compares with what was kept batch by batch, and with the model.
    pub fn full_walk(&self) {
        let finished = self.state.borrow().tree.finished().clone();
        let map = self.state.borrow().map.clone();
        let walked = Tree::build(&map, dump(&self.disks, &map), finished);
        let walked = walked.and_then(|t| t.check_all().map(|()| t));
        let walked = walked.and_then(|t| t.check_ids(&map).map(|()| t));
        let result = {
            let mut s = self.state.borrow_mut();
            s.counts.walks += 1;
            walked
                .and_then(|t| s.tree.compare(&t))
                .and_then(|()| s.model.check())
                .and_then(|()| compare::whole_tree(&s.model, &s.tree, &s.map))
        };
        if let Err(why) = result {
            self.wrong(format!("full walk: {why}"));
        }
    }

    /// Prepared transactions and decisions on all disks, but for decisions that were confirmed by all and
    /// left behind by a server that has left.
    pub fn in_flight(&self) -> (usize, usize) {
        let state = self.state.borrow();
        state.tree.in_flight(|server| state.map.has_left(server))
    }

    /// Parts of directories that have left something to be swept.
    pub fn part_notes(&self) -> usize {
        self.state.borrow().tree.part_notes()
    }

    /// Rises whenever a power failure took something.
    pub fn epoch(&self) -> u64 {
        self.state.borrow().epoch
    }

    /// Begins to watch a directory for a listing of several pages.
    pub fn watch(&self, dir: pando_model::NodeId) -> Option<Listing> {
        let mut s = self.state.borrow_mut();
        let epoch = s.epoch;
        s.model.watch_listing(dir).map(|watch| Listing { watch, epoch })
    }

    /// A listing was read to its end, or given up (`None`).
    pub fn listed(&self, listing: Listing, lines: Option<&[pando_model::Listed]>) {
        let mut s = self.state.borrow_mut();
        if listing.epoch != s.epoch {
            return;
        }
        let result = match lines {
            Some(lines) => {
                s.counts.listings += 1;
                s.model.finish_listing(listing.watch, lines)
            }
            None => {
                s.model.drop_listing(listing.watch);
                Ok(())
            }
        };
        drop(s);
        if let Err(why) = result {
            self.wrong(format!("listing: {why}"));
        }
    }

    /// The model, to look things up.
    pub fn with_model<T>(&self, f: impl FnOnce(&Model, &Tree) -> T) -> T {
        let s = self.state.borrow();
        f(&s.model, &s.tree)
    }

    /// All servers have pictures of a cut.
    pub fn cut_taken(&self) {
        self.state.borrow_mut().counts.cuts += 1;
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        let mut counts = self.state.borrow().counts.clone();
        let replies = self.replies.borrow();
        counts.replies = replies.checked;
        counts.repeated = replies.repeated;
        counts
    }

    /// Reports what is wrong with a reply, if anything.
    pub(crate) fn check(&self, result: Result<(), String>) {
        if let Err(why) = result {
            self.wrong(why);
        }
    }

    /// Whether an executed event of a process that is dead to the world still counts: its batch was applied.
    pub fn counts_while_dying(&self, life: &Life, server: ServerId, e: &Executed<'_>) -> bool {
        life.dying() && e.changed && e.lsn == self.last_applied(server)
    }
}

impl State {
    fn synced(&self, e: &Execution) -> bool {
        !e.lost.get()
            && self
                .logs
                .get(&e.server)
                .is_some_and(|l| l.life != e.life || e.lsn <= l.synced)
    }
}

/// The object whose attributes an execution changed.
fn changed_dir(e: &Executed<'_>) -> Option<pando_model::NodeId> {
    if let Op::SetAttr { object, .. } | Op::SetAcl { object, .. } = e.op
        && e.changed
    {
        return Some(pando_model::NodeId::new(object.ino, object.generation));
    }
    None
}

/// The records that count: of each slot its owner's.
fn dump(disks: &[(ServerId, Disk)], map: &ClusterMap) -> Vec<(ServerId, Vec<(Key, pando_format::Record)>)> {
    let owned = |id: ServerId, key: &Key| key.slot() == LOCAL_SLOT || map.owner(key.slot()) == id;
    let records = |(id, disk): &(ServerId, Disk)| {
        let all = disk.dump().into_iter();
        (*id, all.filter(|(key, _)| owned(*id, key)).collect())
    };
    disks.iter().map(records).collect()
}

/// An outcome in a word, for counts.
pub fn outcome_word(outcome: &Outcome) -> &'static str {
    match outcome {
        Ok(_) => "ok",
        Err(e) => match e {
            Errno::NotFound => "ENOENT",
            Errno::Exists => "EEXIST",
            Errno::NotDir => "ENOTDIR",
            Errno::IsDir => "EISDIR",
            Errno::NotEmpty => "ENOTEMPTY",
            Errno::Access => "EACCES",
            Errno::Perm => "EPERM",
            Errno::Invalid => "EINVAL",
            Errno::NameTooLong => "ENAMETOOLONG",
            Errno::NoSpace => "ENOSPC",
            Errno::Stale => "ESTALE",
            Errno::Loop => "ELOOP",
            Errno::TooBig => "EFBIG",
            Errno::Busy => "EBUSY",
            Errno::BadHandle => "EBADF",
            Errno::Unsupported => "ENOTSUP",
            Errno::Interrupted => "EINTR",
            Errno::NoData => "ENODATA",
            Errno::Range => "ERANGE",
            Errno::ValueTooBig => "E2BIG",
            Errno::TooManyLinks => "EMLINK",
            Errno::Unreachable => "ETIMEDOUT",
            Errno::Io => "EIO",
            Errno::ReadOnly => "EROFS",
        },
    }
}
