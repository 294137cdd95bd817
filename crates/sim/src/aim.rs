//! Which step of which protocol a message is, and what is to happen at one.
//!
//! Faults at random times rarely fall between a decision and the first word of it, or between the last record
//! of a slot and the map that gives it away. So some wait for a message of one kind and strike when it is
//! sent.

use crate::world::{MS, NodeId, Time};
use pando_cluster::ClusterMap;
use pando_env::rng::Rng;
use pando_types::{ServerId, Slot};
use pando_wire::{Message, MoveRequest, PeerAnswer, PeerRequest, Request, Response, SplitRequest};
use std::collections::BTreeSet;
use std::rc::Rc;

/// What a message is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Step {
    /// A client's operation that changes something.
    Change,
    /// An answer to an operation.
    Outcome,
    /// Transactions.
    Lock,
    Locked,
    Prepare,
    Content,
    Stored,
    Vote,
    Decide,
    /// Outcomes once more.
    Confirm,
    Decided,
    Inquire,
    State,
    /// Heads for the renaming graph.
    Head,
    HeadRead,
    /// The log of invalidations and the leases of servers.
    Follow,
    Lead,
    Invalidate,
    Heard,
    /// Slots that move.
    Copy,
    Settle,
    HandOver,
    Moved,
    /// A half of a directory's part.
    Half,
    HalfSettles,
    HalfTaken,
    /// A map, or the identities.
    News,
}

/// Which step it is, if it is one of a protocol.
pub fn step_of(message: &Message) -> Option<Step> {
    Some(match message {
        Message::Request { request, .. } => match request {
            Request::Op(asked) if asked.op.mutates() => Step::Change,
            Request::Peer(asked) => match asked {
                PeerRequest::Lock { .. } => Step::Lock,
                PeerRequest::Prepare { .. } => Step::Prepare,
                PeerRequest::Decide { commit: true, .. } => Step::Decide,
                PeerRequest::Decide { .. } => return None,
                PeerRequest::Settle { .. } => Step::Confirm,
                PeerRequest::Content { .. } => Step::Content,
                PeerRequest::Inquire(_) | PeerRequest::Owes { .. } | PeerRequest::Load => Step::Inquire,
                PeerRequest::Head(_) => Step::Head,
                PeerRequest::Follow { .. } => Step::Follow,
                PeerRequest::Invalidate { .. } | PeerRequest::Lease(_) => Step::Invalidate,
                PeerRequest::Moving(MoveRequest::Settle { .. }) => Step::Settle,
                PeerRequest::Moving(MoveRequest::HandOver { .. }) => Step::HandOver,
                PeerRequest::Moving(_) => Step::Copy,
                PeerRequest::Split(SplitRequest::Settle { .. }) => Step::HalfSettles,
                PeerRequest::Split(_) => Step::Half,
                PeerRequest::NewMap(_) | PeerRequest::Adopt(_) | PeerRequest::Identities(_) => Step::News,
            },
            _ => return None,
        },
        Message::Reply { result, .. } => match result {
            Ok(Response::Op(_) | Response::Refreshed(_)) => Step::Outcome,
            Ok(Response::Peer(answer)) => match answer {
                PeerAnswer::Locked { .. } => Step::Locked,
                PeerAnswer::Vote(_) => Step::Vote,
                PeerAnswer::Decided => Step::Decided,
                PeerAnswer::Content(_) | PeerAnswer::Stored { .. } => Step::Stored,
                PeerAnswer::State(_) | PeerAnswer::NotOwed | PeerAnswer::Load(_) => Step::State,
                PeerAnswer::Head(_) => Step::HeadRead,
                PeerAnswer::Lead { .. } => Step::Lead,
                PeerAnswer::Heard { .. } | PeerAnswer::Leased(_) => Step::Heard,
                PeerAnswer::Moving(_) => Step::Moved,
                PeerAnswer::Split(_) => Step::HalfTaken,
                PeerAnswer::Identities(_) | PeerAnswer::Adopted => Step::News,
            },
            _ => return None,
        },
    })
}

/// A message that was waited for.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    /// Who sends it.
    pub from: NodeId,
    /// To whom.
    pub to: NodeId,
}

/// What happens when a message is sent that is waited for: for how long it is held up.
pub type OnHit = Box<dyn FnOnce(Hit) -> Time>;

struct Aim {
    step: Step,
    /// Which of these.
    wanted: fn(&Message) -> bool,
    /// Only what this machine sends.
    of: Option<NodeId>,
    /// Messages that are let pass before.
    skip: u64,
    then: OnHit,
}

/// All messages of one kind are late.
struct Late {
    step: Step,
    percent: u64,
    most: Time,
}

/// Who hears whose request is kept.
type HearKept = Rc<dyn Fn(NodeId)>;

/// What is waited for.
pub struct Aims {
    rng: Rng,
    /// Slots in which something was changed: most are empty, and what becomes of those shows nothing.
    used: BTreeSet<Slot>,
    seen: BTreeSet<(Step, NodeId)>,
    aim: Option<Aim>,
    late: Option<Late>,
    /// Messages that were held up.
    pub held: u64,
    /// Requests for slots that are on the move are kept, so many in a hundred.
    keep: Option<(u64, HearKept)>,
    kept: Vec<Kept>,
    /// Messages that are kept until a machine has started again.
    of_earlier_boots: Vec<(u64, NodeId)>,
    /// Messages that were kept so far.
    pub keeps: u64,
}

/// A request that is kept until its receiver has got the slot back that it was for.
struct Kept {
    number: u64,
    slot: Slot,
    server: ServerId,
    /// The slot has been elsewhere since.
    away: bool,
}

/// A message is held up until it is let go.
pub const KEPT: Time = Time::MAX;

/// What becomes of a message besides what the network does.
#[derive(Default)]
pub struct Struck {
    /// For how long it is held up.
    pub hold: Time,
    /// It was waited for.
    pub hit: Option<(Hit, OnHit)>,
}

impl Aims {
    /// Waits for nothing yet.
    pub fn new(rng: Rng) -> Aims {
        Aims {
            rng,
            used: BTreeSet::new(),
            seen: BTreeSet::new(),
            aim: None,
            late: None,
            held: 0,
            keep: None,
            kept: Vec::new(),
            of_earlier_boots: Vec::new(),
            keeps: 0,
        }
    }

    /// A kind of message that was seen already, each as likely as the others, from whoever is `preferred` if
    /// that has sent such messages.
    pub fn draw(
        &mut self,
        wanted: impl Fn(Step) -> bool,
        preferred: Option<NodeId>,
    ) -> Option<(Step, Option<NodeId>)> {
        let all: BTreeSet<Step> = self.seen.iter().map(|(s, _)| *s).filter(|s| wanted(*s)).collect();
        let all: Vec<Step> = all.into_iter().collect();
        if all.is_empty() {
            return None;
        }
        let step = *self.rng.pick(&all);
        Some((step, preferred.filter(|node| self.seen.contains(&(step, *node)))))
    }

    /// From here on requests for slots that are on the move are kept, so many in a hundred, and somebody
    /// hears whose.
    pub fn keep(&mut self, keep: Option<(u64, HearKept)>) {
        self.keep = keep;
    }

    /// Whether a client's first try is to be kept, and who hears of it.
    fn keeps(&mut self, message: &Message, to: ServerId, map: &ClusterMap) -> Option<HearKept> {
        let Message::Request {
            request: Request::Op(asked),
            ..
        } = message
        else {
            return None;
        };
        let op = Some(&asked.op).filter(|_| !asked.again)?;
        let slot = op
            .home_in(asked.parts)
            .filter(|s| op.mutates() && map.owner(*s) == to)?;
        map.destination(slot)?;
        let (percent, hear) = self.keep.clone()?;
        if !self.rng.percent(percent) {
            return None;
        }
        self.keeps += 1;
        self.kept.push(Kept {
            number: self.keeps,
            slot,
            server: to,
            away: false,
        });
        Some(hear)
    }

    /// The message that is being sent is kept until a machine, who sends or gets it, has started again:
    /// answer with [`KEPT`].
    pub fn outlives(&mut self, machine: NodeId) {
        self.keeps += 1;
        self.of_earlier_boots.push((self.keeps, machine));
    }

    /// A machine has started again: which of the messages that are kept are to arrive now, and in how much
    /// time.
    pub fn started(&mut self, machine: NodeId) -> Vec<(u64, Time)> {
        let (mut now, rng) = (Vec::new(), &mut self.rng);
        self.of_earlier_boots.retain(|(number, whose)| {
            let goes = *whose == machine;
            if goes {
                now.push((*number, rng.skewed(40 * MS)));
            }
            !goes
        });
        now
    }

    /// A map is in force: which of the messages that are kept are to arrive now, and in how much time.
    pub fn map_changed(&mut self, map: &ClusterMap) -> Vec<(u64, Time)> {
        let mut back = Vec::new();
        let rng = &mut self.rng;
        self.kept.retain_mut(|k| {
            let here = map.owner(k.slot) == k.server;
            k.away |= !here;
            let goes = k.away && here;
            if goes {
                back.push((k.number, rng.skewed(30 * MS)));
            }
            !goes
        });
        back
    }

    /// Waits for a message from here on, and for no other.
    pub fn aim(
        &mut self,
        (step, wanted): (Step, fn(&Message) -> bool),
        of: Option<NodeId>,
        skip: u64,
        then: OnHit,
    ) {
        self.aim = Some(Aim {
            step,
            wanted,
            of,
            skip,
            then,
        });
    }

    /// Of all messages of a kind so many in a hundred come late, by so much at most; `None`: none any more.
    pub fn late(&mut self, late: Option<(Step, u64, Time)>) {
        self.late = late.map(|(step, percent, most)| Late { step, percent, most });
    }

    /// Does not wait any more. Whether it did.
    pub fn give_up(&mut self) -> bool {
        self.aim.take().is_some()
    }

    /// Whether the slots that a message is about are in use.
    fn concerns_something(&mut self, message: &Message) -> bool {
        let Message::Request { request, .. } = message else {
            return true;
        };
        match request {
            Request::Op(asked) if asked.op.mutates() => self.used.extend(asked.op.home_in(asked.parts)),
            Request::Peer(PeerRequest::Moving(
                MoveRequest::HandOver { slots, .. } | MoveRequest::Begin { slots, .. },
            )) => return slots.iter().any(|s| self.used.contains(s)),
            _ => {}
        }
        true
    }

    /// A message is sent, `to` this server if it is one.
    pub fn sent(
        &mut self,
        (from, to): (NodeId, NodeId),
        server: Option<ServerId>,
        message: &Message,
        map: impl Fn() -> Rc<ClusterMap>,
    ) -> Struck {
        let mut struck = Struck::default();
        let Some(step) = step_of(message) else {
            return struck;
        };
        if !self.concerns_something(message) {
            return struck;
        }
        self.seen.insert((step, from));
        if step == Step::Change
            && self.keep.is_some()
            && let Some(server) = server
            && let Some(hear) = self.keeps(message, server, &map())
        {
            let hear: OnHit = Box::new(move |at| {
                hear(at.from);
                KEPT
            });
            struck.hit = Some((Hit { from, to }, hear));
            return struck;
        }
        if let Some(late) = self.late.as_ref().filter(|l| l.step == step)
            && self.rng.percent(late.percent)
        {
            struck.hold = self.rng.below(late.most);
            self.held += 1;
        }
        let meant = |a: &&mut Aim| a.step == step && a.of.is_none_or(|of| of == from) && (a.wanted)(message);
        match self.aim.as_mut().filter(meant) {
            Some(aim) if aim.skip > 0 => aim.skip -= 1,
            Some(_) => struck.hit = self.aim.take().map(|a| (Hit { from, to }, a.then)),
            None => {}
        }
        struck
    }
}
