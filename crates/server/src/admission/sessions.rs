//! Sessions and request lanes (H44–H48).
//!
//! Durable: which sessions exist, and a reply record beside each effect. In memory: for every lane used since
//! boot the last sequence and its outcome, failures included. Both are needed: a failure writes nothing, so
//! after it was answered only memory keeps a late duplicate from being executed; and what is in memory dies
//! with the boot, whose epoch every message carries.

use crate::Limits;
use pando_env::Peer;
use pando_types::{IdentityId, MapEpoch, Mono, RequestId, RequestSlot, Sequence, SessionId, Slot, plant};
use pando_wire::{Outcome, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Whom to answer: a connection and the number of the message there.
pub(crate) type Asker = (Peer, u64);

/// So many wait for one request at most: copies of it, on connections that may be closed already.
const ASKERS: usize = 64;

/// What a lane is doing.
enum Doing {
    /// Executing; these want to know.
    Running(Vec<Asker>),
    /// Answered. By this map, the server's or the asker's.
    Done(Outcome, MapEpoch),
    /// Refused without effect. Asked again, it may be executed.
    Refused,
    /// Refused for good at this server: the operation was sent elsewhere under another sequence.
    Elsewhere(Refusal),
}

struct Lane {
    sequence: Sequence,
    doing: Doing,
    /// Where the last reply record of what ran in it is, and whose it is.
    wrote: Option<(Slot, Sequence)>,
}

impl Lane {
    /// A lane has one request at a time: a newer one says that the older was answered, or given up for good.
    /// False: while that still runs here the lane must not forget it. Or this one is not newer.
    fn goes_on_to(&mut self, sequence: Sequence, asker: Asker) -> bool {
        if sequence <= self.sequence || matches!(self.doing, Doing::Running(_)) {
            return false;
        }
        self.sequence = sequence;
        self.doing = Doing::Running(vec![asker]);
        true
    }
}

struct Session {
    seen: Mono,
    lanes: BTreeMap<RequestSlot, Lane>,
    written: Written,
    /// Of these, where some may be of what did not run in its lanes here.
    foreign: Written,
    /// It came with slots, and its client has not spoken here.
    came: bool,
}

impl Session {
    /// None of its requests is running.
    fn is_idle(&self) -> bool {
        self.lanes.values().all(|l| !matches!(l.doing, Doing::Running(_)))
    }

    /// Without a sign of life for so long, and idle.
    fn is_silent(&self, now: Mono, timeout: Duration) -> bool {
        now.since(self.seen) >= timeout && self.is_idle()
    }
}

/// Slots in which a session may have reply records.
#[derive(Clone)]
pub(crate) enum Written {
    /// In these.
    In(BTreeSet<Slot>),
    /// An earlier boot may have written some anywhere.
    Anywhere,
}

impl Written {
    fn nowhere() -> Written {
        Written::In(BTreeSet::new())
    }

    fn add(&mut self, slot: Slot) {
        if let Written::In(slots) = self {
            slots.insert(slot);
        }
    }

    fn has(&self, slot: Slot) -> bool {
        match self {
            Written::In(slots) => slots.contains(&slot),
            Written::Anywhere => true,
        }
    }

    fn in_any_of(&self, wanted: &BTreeSet<Slot>) -> bool {
        match self {
            Written::In(slots) => !slots.is_disjoint(wanted),
            Written::Anywhere => true,
        }
    }
}

/// A session that is over.
struct Ended {
    at: Mono,
    /// It has a record that says so, for the next boot.
    recorded: bool,
    /// Reply records that came for it afterwards.
    written: Written,
    /// Slots in which it had some while it lived.
    had: Written,
}

/// What to do with a mutating request.
pub(crate) enum Admission {
    /// Execute it. `unknown`: this boot knows nothing of the lane, so a reply record may exist.
    Execute { unknown: bool },
    /// It is being executed; the asker will hear.
    Wait,
    /// It was executed: this came of it.
    Answer(Outcome),
    /// No.
    Refuse(Refusal),
}

/// All sessions of a server.
#[derive(Default)]
pub(crate) struct Sessions {
    live: BTreeMap<SessionId, Session>,
    /// How many lanes the sessions of each identity have.
    lanes: BTreeMap<IdentityId, usize>,
    ended: BTreeMap<SessionId, Ended>,
}

impl Sessions {
    /// Adds a session. False if it has ended before: its name is spent.
    pub fn open(&mut self, id: SessionId, now: Mono) -> bool {
        if self.ended.contains_key(&id) && !plant!(H46) {
            return false;
        }
        let session = self.live.entry(id).or_insert_with(|| Session {
            seen: now,
            lanes: BTreeMap::new(),
            written: Written::nowhere(),
            foreign: Written::nowhere(),
            came: false,
        });
        session.seen = now;
        session.came = false;
        true
    }

    /// Adds a session that comes with slots, as [`Sessions::open`] does.
    pub fn come(&mut self, id: SessionId, now: Mono) -> bool {
        let came = self.live.get(&id).is_none_or(|s| s.came);
        let opened = self.open(id, now);
        if let Some(session) = self.live.get_mut(&id) {
            session.came = came;
        }
        opened
    }

    /// Whether a session is known here only because it came with slots.
    pub fn only_came(&self, id: SessionId) -> bool {
        self.live.get(&id).is_some_and(|s| s.came && s.lanes.is_empty())
    }

    /// Adds a session of an earlier boot.
    pub fn reopen(&mut self, id: SessionId, now: Mono) {
        let session = Session {
            seen: now,
            lanes: BTreeMap::new(),
            written: Written::Anywhere,
            foreign: Written::Anywhere,
            came: false,
        };
        self.live.insert(id, session);
    }

    /// A reply record of this session is written in a slot, or came with it, or may be.
    pub fn wrote(&mut self, id: SessionId, slot: Slot) {
        if let Some(s) = self.live.get_mut(&id) {
            s.written.add(slot);
            s.foreign.add(slot);
        } else if let Some(e) = self.ended.get_mut(&id) {
            e.written.add(slot);
        }
    }

    /// The running request of a lane is about to leave a reply record in a slot. False if it does not run
    /// here. With it comes where the one before it is, and whose, if nobody asks for that any more: a lane
    /// has one request at a time, and every copy of the one before is refused wherever it comes, here as too
    /// old, elsewhere by its map. Where there are, or were, others under its key it stays: late copies of
    /// those are refused because it stands there.
    pub fn replies(&mut self, id: RequestId, slot: Slot) -> (bool, Option<(Slot, Sequence)>) {
        let Some(session) = self.live.get_mut(&id.session) else {
            return (false, None);
        };
        let lane = session.lanes.get_mut(&id.slot);
        let Some(lane) = lane.filter(|lane| lane.sequence == id.sequence) else {
            return (false, None);
        };
        session.written.add(slot);
        let last = lane.wrote.replace((slot, id.sequence));
        let foreign = &session.foreign;
        (
            true,
            last.filter(|(last, _)| *last != slot && !foreign.has(*last)),
        )
    }

    /// A session that has ended had reply records in these slots, at another server.
    pub fn had_in(&mut self, id: SessionId, slots: &BTreeSet<Slot>) {
        if let Some(ended) = self.ended.get_mut(&id) {
            slots.iter().for_each(|slot| ended.had.add(*slot));
        }
    }

    /// Sessions that have ended and may have had reply records in these slots.
    pub fn ended_in(&self, slots: &BTreeSet<Slot>) -> Vec<SessionId> {
        // Planted: nobody is told.
        let ended = self.ended.iter().filter(|_| !plant!(H120));
        let there = ended.filter(|(_, e)| e.had.in_any_of(slots) || e.written.in_any_of(slots));
        there.map(|(id, _)| *id).collect()
    }

    /// Whether the session lives.
    pub fn knows(&self, id: SessionId) -> bool {
        self.live.contains_key(&id)
    }

    /// Whether the session has ended here, its reply records with it.
    pub fn has_ended(&self, id: SessionId) -> bool {
        self.ended.contains_key(&id)
    }

    /// All that live.
    pub fn live(&self) -> impl Iterator<Item = SessionId> {
        self.live.keys().copied()
    }

    /// How many live.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// How many live, or have ended and are remembered.
    pub fn remembered(&self) -> usize {
        self.live.len() + self.ended.len()
    }

    /// How many of this owner live, or have ended and are remembered.
    pub fn remembered_of(&self, owner: IdentityId) -> usize {
        let all = SessionId::all_of(owner);
        self.live.range(all.clone()).count() + self.ended.range(all).count()
    }

    /// A sign of life.
    pub fn seen(&mut self, id: SessionId, now: Mono) {
        if let Some(s) = self.live.get_mut(&id) {
            s.seen = now;
        }
    }

    /// Ends a session in memory; the caller deletes its reply records, and if it is `recorded` writes that
    /// down. `None`: there is no such session.
    pub fn end(&mut self, id: SessionId, now: Mono, recorded: bool) -> Option<Written> {
        let session = self.live.remove(&id)?;
        if let Some(all) = self.lanes.get_mut(&id.owner()) {
            *all -= session.lanes.len();
            if *all == 0 {
                self.lanes.remove(&id.owner());
            }
        }
        let ended = Ended {
            at: now,
            recorded,
            written: Written::nowhere(),
            had: session.written.clone(),
        };
        self.ended.insert(id, ended);
        Some(session.written)
    }

    /// A session that was registered for what did not come, and has done nothing: as if it had never been
    /// heard of.
    pub fn forget_unused(&mut self, id: SessionId) {
        if self.live.get(&id).is_some_and(|s| s.lanes.is_empty()) {
            self.live.remove(&id);
        }
    }

    /// Up to `most` sessions without a sign of life for `timeout`, none of whose requests is running.
    pub fn expired(&self, now: Mono, timeout: Duration, most: usize) -> Vec<SessionId> {
        self.live
            .iter()
            .filter(|(_, s)| s.is_silent(now, timeout))
            .map(|(id, _)| *id)
            .take(most)
            .collect()
    }

    /// Whether a session lives that has given no sign of life for so long, and none of its requests is
    /// running.
    pub fn is_silent(&self, id: SessionId, now: Mono, timeout: Duration) -> bool {
        self.live.get(&id).is_some_and(|s| s.is_silent(now, timeout))
    }

    /// Whether a session lives and none of its requests is running.
    pub fn is_idle(&self, id: SessionId) -> bool {
        self.live.get(&id).is_some_and(Session::is_idle)
    }

    /// Live sessions whose owner is one of these, none of whose requests is running.
    pub fn owned_by(&self, wanted: impl Fn(IdentityId) -> bool) -> Vec<SessionId> {
        self.live
            .iter()
            .filter(|(id, _)| wanted(id.owner()))
            .filter(|(_, s)| s.is_idle())
            .map(|(id, _)| *id)
            .collect()
    }

    /// A session that an earlier boot ended.
    pub fn stays_ended(&mut self, id: SessionId, now: Mono) {
        let ended = Ended {
            at: now,
            recorded: true,
            written: Written::Anywhere,
            had: Written::Anywhere,
        };
        self.ended.insert(id, ended);
    }

    /// Forgets up to `most` sessions that ended longer ago than any message can be late or any client can
    /// still be asking. Returns those that still have records.
    pub fn forget(&mut self, now: Mono, memory: Duration, most: usize) -> Vec<(SessionId, Written)> {
        let old = self.ended.iter().filter(|(_, e)| now.since(e.at) >= memory);
        let old: Vec<SessionId> = old.map(|(id, _)| *id).take(most).collect();
        let forgotten = old
            .into_iter()
            .filter_map(|id| Some((id, self.ended.remove(&id)?)));
        forgotten
            .filter(|(_, e)| e.recorded || !matches!(&e.written, Written::In(slots) if slots.is_empty()))
            .map(|(id, e)| (id, e.written))
            .collect()
    }

    /// A mutating request came in. After [`Admission::Execute`] the lane runs until [`Sessions::done`] or
    /// [`Sessions::refused`].
    pub fn admit(&mut self, id: RequestId, asker: Asker, now: Mono, limits: &Limits) -> Admission {
        let owner = id.session.owner();
        let Some(session) = self.live.get_mut(&id.session) else {
            return Admission::Refuse(Refusal::SessionUnknown);
        };
        session.seen = now;
        let running = Doing::Running(vec![asker]);
        let Some(lane) = session.lanes.get_mut(&id.slot) else {
            if session.lanes.len() >= limits.lanes && !plant!(G51) {
                return Admission::Refuse(Refusal::Invalid);
            }
            let all = self.lanes.entry(owner).or_default();
            if *all >= limits.identity_lanes {
                return Admission::Refuse(Refusal::Busy);
            }
            *all += 1;
            session.lanes.insert(
                id.slot,
                Lane {
                    sequence: id.sequence,
                    doing: running,
                    wrote: None,
                },
            );
            return Admission::Execute { unknown: true };
        };
        if id.sequence < lane.sequence {
            return Admission::Refuse(Refusal::TooOld);
        }
        if id.sequence > lane.sequence {
            return match lane.goes_on_to(id.sequence, asker) {
                true => Admission::Execute { unknown: false },
                false => Admission::Refuse(Refusal::Busy),
            };
        }
        match &mut lane.doing {
            Doing::Running(askers) => {
                if !askers.contains(&asker) {
                    if askers.len() >= ASKERS {
                        return Admission::Refuse(Refusal::Busy);
                    }
                    askers.push(asker);
                }
                Admission::Wait
            }
            Doing::Done(outcome, _) => Admission::Answer(outcome.clone()),
            Doing::Refused => {
                lane.doing = running;
                Admission::Execute { unknown: true }
            }
            Doing::Elsewhere(why) => Admission::Refuse(*why),
        }
    }

    /// A request that was never asked for before begins in a lane that has answered the one before it, as
    /// after [`Admission::Execute`]. False, and nothing is noted: there is something else to be said of it.
    pub fn begin(&mut self, id: RequestId, asker: Asker, now: Mono) -> bool {
        let Some(session) = self.live.get_mut(&id.session) else {
            return false;
        };
        let lane = session.lanes.get_mut(&id.slot);
        let begun = lane.is_some_and(|lane| lane.goes_on_to(id.sequence, asker));
        if begun {
            session.seen = now;
        }
        begun
    }

    /// A request was refused here because another server was the coordinator, and is repeated now that this
    /// one is. A late copy of the first try was sent by an older map, and does not come so far (H115, H127).
    pub fn take_on(&mut self, id: RequestId, asker: Asker) -> Admission {
        let lane = self
            .live
            .get_mut(&id.session)
            .and_then(|s| s.lanes.get_mut(&id.slot));
        match lane {
            Some(lane)
                if lane.sequence == id.sequence
                    && matches!(lane.doing, Doing::Elsewhere(Refusal::UseCoordinator)) =>
            {
                lane.doing = Doing::Running(vec![asker]);
                Admission::Execute { unknown: true }
            }
            _ => Admission::Refuse(Refusal::UseCoordinator),
        }
    }

    /// Whether a lane has gone on to a newer request than this.
    pub fn is_past(&self, id: RequestId) -> bool {
        let lane = self.live.get(&id.session).and_then(|s| s.lanes.get(&id.slot));
        lane.is_some_and(|lane| lane.sequence > id.sequence)
    }

    /// Whether a request is running, was answered, or is over, in this boot.
    pub fn has(&self, id: RequestId) -> bool {
        let lane = self.live.get(&id.session).and_then(|s| s.lanes.get(&id.slot));
        lane.is_some_and(|lane| {
            let same = matches!(lane.doing, Doing::Running(_) | Doing::Done(..));
            lane.sequence > id.sequence || lane.sequence == id.sequence && same
        })
    }

    /// By which map a request failed here, for good. Nothing was written: elsewhere nobody knows.
    pub fn failed_by(&self, id: RequestId) -> Option<MapEpoch> {
        let lane = self.live.get(&id.session).and_then(|s| s.lanes.get(&id.slot));
        match lane.filter(|lane| lane.sequence == id.sequence)?.doing {
            Doing::Done(Err(_), by) => Some(by),
            _ => None,
        }
    }

    /// A request failed here, and may have been executed elsewhere since (H122).
    pub fn forget_failure(&mut self, id: RequestId) {
        self.finish(id, Doing::Refused);
    }

    /// The running request of a lane has an outcome. Returns who wants to know.
    pub fn done(&mut self, id: RequestId, outcome: Outcome, by: MapEpoch) -> Vec<Asker> {
        self.finish(id, Doing::Done(outcome, by))
    }

    /// The running request of a lane was refused without effect.
    pub fn refused(&mut self, id: RequestId, why: Refusal) -> Vec<Asker> {
        let state = match why {
            // The asker gives it up for another, wherever it comes again (H300).
            Refusal::UseCoordinator | Refusal::Elsewhere { .. } => Doing::Elsewhere(why),
            _ => Doing::Refused,
        };
        self.finish(id, state)
    }

    fn finish(&mut self, id: RequestId, state: Doing) -> Vec<Asker> {
        let lane = self
            .live
            .get_mut(&id.session)
            .and_then(|s| s.lanes.get_mut(&id.slot));
        match lane {
            Some(lane) if lane.sequence == id.sequence => match std::mem::replace(&mut lane.doing, state) {
                Doing::Running(askers) => askers,
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::ServerId;

    #[test]
    fn copies_of_a_request_and_lanes_of_an_identity_are_bounded() {
        let limits = Limits {
            identity_lanes: 3,
            ..Limits::default()
        };
        let owner = IdentityId(7);
        let [first, second] = [1, 2].map(|n| SessionId::of(owner, n));
        let mut sessions = Sessions::default();
        let id = |session, slot| RequestId {
            session,
            slot: RequestSlot(slot),
            sequence: Sequence(1),
        };
        let asker = |n| (Peer::Server(ServerId(1)), n);
        for session in [first, second] {
            assert!(sessions.open(session, Mono(0)));
        }
        let admit = |s: &mut Sessions, id, n| s.admit(id, asker(n), Mono(0), &limits);
        let execute = |a| matches!(a, Admission::Execute { .. });
        let busy = |a| matches!(a, Admission::Refuse(Refusal::Busy));
        assert!(execute(admit(&mut sessions, id(first, 1), 0)));
        for n in 1..ASKERS as u64 {
            assert!(matches!(admit(&mut sessions, id(first, 1), n), Admission::Wait));
        }
        assert!(busy(admit(&mut sessions, id(first, 1), ASKERS as u64)));
        assert!(execute(admit(&mut sessions, id(first, 2), 0)));
        assert!(execute(admit(&mut sessions, id(second, 1), 0)));
        assert!(busy(admit(&mut sessions, id(second, 2), 0)));
        // A session that ends leaves room.
        assert!(sessions.end(first, Mono(0), true).is_some());
        assert!(execute(admit(&mut sessions, id(second, 2), 0)));
    }
}
