//! Looks that are over before anything else happens: what they need is here, free and in memory. They need no task and no locks, and
//! nearly every look is one. All others go the long way (`operate`, `execute`), from the beginning.
//!
//! It is the same operation: decided by the same function, from records that nobody is changing, and it takes effect at the
//! instant they were read (H29). What it tells waits until that cannot be lost, as there (rule 8).

use crate::account::Notes;
use crate::claims::Entitled;
use crate::execute::{Asked, Done};
use crate::operate::Tried;
use crate::sessions::Asker;
use crate::txn::{Records, Unread};
use crate::{Failure, MetaServer};
use pando_env::LocalFuture;
use pando_namespace::{Decision, Snapshot, Step, run};
use pando_store::{Level, Lsn, StoreError};
use pando_types::{Bearer, Errno, plant};
use pando_wire::{Op, OpRequest, Response};
use std::collections::BTreeSet;

/// So often more records are asked for.
const ROUNDS: usize = 4;

/// What came of it.
pub(crate) enum Look {
    /// It is answered.
    Answered,
    /// It is seen, and told once that cannot be lost.
    Seen(Seen),
    /// It goes the long way,
    TheLongWay,
    /// once this has been read, from when on it is in memory.
    After(LocalFuture<Result<Records, StoreError>>),
}

/// What is to be told.
pub(crate) struct Seen {
    response: Response,
    lsn: Lsn,
    level: Level,
}

/// Whether an operation may be over at once. Listings are made of more than records under keys, and what is opened for longer is
/// noted.
fn may_be_quick(asked: &OpRequest) -> bool {
    let looks = matches!(
        asked.op,
        Op::Lookup { .. }
            | Op::Reopen { .. }
            | Op::DirStat { .. }
            | Op::ReadLink { .. }
            | Op::Open { .. }
            | Op::GetXattr { .. }
            | Op::ListXattr { .. }
    );
    looks && asked.keep.is_none()
}

impl MetaServer {
    /// Answers what can be answered at once.
    pub(crate) fn look_at_once(&self, asker: Asker, entitled: &Entitled, asked: &OpRequest) -> Look {
        if !may_be_quick(asked) || entitled.subtree.is_some() && asked.op.is_root_lookup() {
            return Look::TheLongWay;
        }
        let holder = Bearer {
            identity: entitled.holder,
            instance: asked.instance,
        };
        let notes = Notes::default();
        let tried = Tried {
            request: None,
            again: asked.again,
            map: asked.map,
            keep: None,
        };
        let (cred, op, ways, map) = (&asked.cred, &asked.op, &asked.ways, asked.map);
        let Some((asked, _)) = self.take_on(asker, tried, (holder, cred), op, ways, &notes) else {
            return Look::Answered;
        };
        let done = match self.seen_at_once(&asked) {
            Ok(Some(done)) => done,
            // Whoever reads it again will hear why it failed.
            Ok(None) | Err(Unread::Failed(_)) => return Look::TheLongWay,
            Err(Unread::Coming(reading)) => return Look::After(reading),
        };
        self.count(|s| s.operations += 1);
        let Done { outcome, lsn, level } = match done {
            Ok(done) => done,
            Err(failure) => {
                self.conclude(asker, &asked, map, Err(failure));
                return Look::Answered;
            }
        };
        if plant!(H102) || self.store.safe(level) >= lsn {
            self.conclude(asker, &asked, map, Ok(outcome));
            return Look::Answered;
        }
        Look::Seen(Seen {
            response: self.response(&asked, outcome),
            lsn,
            level,
        })
    }

    /// Tells what was seen.
    pub(crate) async fn tell_seen(&self, asker: Asker, seen: Seen) {
        match self.safe(seen.lsn, seen.level).await {
            Ok(()) => self.answer(vec![asker], Ok(seen.response)),
            Err(Failure::Store(e)) => self.fatal(&e),
            Err(Failure::Refused(why)) => self.answer(vec![asker], Err(why)),
        }
    }

    /// Executes it between two turns of all others. `None`: something stands in its way.
    fn seen_at_once(&self, asked: &Asked<'_>) -> Result<Option<Result<Done, Failure>>, Unread> {
        let looked = self.count_before_look(asked);
        let private = self.private_to(asked.holder);
        let inputs = self.inputs(asked, &private);
        let mut snapshot = Snapshot::default();
        let mut decided = None;
        for _ in 0..ROUNDS {
            match run(asked.op, &inputs, &snapshot) {
                Step::Need(wants) => {
                    if wants.iter().any(|want| self.home_of(want) != self.id) || !self.locks.are_free(&wants)
                    {
                        return Ok(None);
                    }
                    let mut records = Vec::with_capacity(wants.len());
                    for want in &wants {
                        self.read_one(want, &mut records)?;
                    }
                    snapshot.add_held(self.held_among(&records));
                    snapshot.add_all(wants, records);
                }
                Step::Done(decision) => {
                    decided = Some(decision);
                    break;
                }
                Step::UseCoordinator | Step::Walk { .. } => return Ok(None),
            }
        }
        let Some(Decision {
            mut outcome,
            mutations,
            invalidates,
        }) = decided
        else {
            return Ok(None);
        };
        let on_its_way =
            outcome == Err(Errno::Stale) && asked.without_content(&snapshot, &BTreeSet::new()).is_some();
        if on_its_way || !mutations.is_empty() || !invalidates.is_empty() {
            return Ok(None);
        }
        self.sign(&mut outcome, asked);
        self.give_handle(asked.op, &mut outcome, asked.holder.identity);
        self.tell_look(asked, looked, &outcome, inputs.now);
        Ok(Some(self.read_only(asked, inputs.now, outcome)))
    }
}
