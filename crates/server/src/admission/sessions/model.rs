//! Reply slots, exhaustively: a client that repeats itself on one lane, a network that loses, doubles and
//! reorders without bound, a server that starts again at any step, sessions that end (H44-H49). Admission is
//! the production type; the model stands for the client, for execution and for what is on the disk.
//!
//! What must hold: no operation takes effect twice, and what its program was told is what happened.

mod parts;

use super::{Admission, Doing, Sessions};
use crate::Limits;
use pando_env::Peer;
use pando_types::{Errno, IdentityId, MapEpoch, Mono, RequestId, RequestSlot, Sequence, SessionId};
use pando_wire::{Answer, Outcome, Refusal};
use stateright::{Checker, Model, Property};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

/// Operations of the client.
const OPS: usize = 2;
/// Messages it sends in all.
const MESSAGES: u8 = 3;
const TWICE: &str = "nothing takes effect twice";
const TOLD: &str = "what was told is what happened";
/// The lane.
const LANE: RequestSlot = RequestSlot(0);

fn name(session: u8) -> SessionId {
    SessionId::of(IdentityId::ANYONE, u128::from(session))
}

/// What a server keeps in memory, as a state.
struct Table(Sessions);

impl Table {
    /// The lanes of each session with what they are doing, and the sessions that ended.
    fn key(&self) -> impl PartialEq + Hash + std::fmt::Debug {
        let doing = |d: &Doing| match d {
            Doing::Running(_) => 0,
            Doing::Done(Ok(_), _) => 1,
            Doing::Done(Err(_), _) => 2,
            Doing::Refused => 3,
            Doing::Elsewhere(_) => 4,
        };
        let lanes = |s: &super::Session| -> Vec<_> {
            let lane = |(n, l): (&RequestSlot, &super::Lane)| (*n, l.sequence, doing(&l.doing));
            s.lanes.iter().map(lane).collect()
        };
        let live: Vec<_> = self.0.live.iter().map(|(id, s)| (*id, lanes(s))).collect();
        (live, self.0.ended.keys().copied().collect::<Vec<_>>())
    }
}

impl Clone for Table {
    fn clone(&self) -> Table {
        let mut table = Sessions::default();
        for (id, session) in &self.0.live {
            table.open(*id, Mono(0));
            *table.lanes.entry(id.owner()).or_default() += session.lanes.len();
            let copy = table.live.get_mut(id).expect("just opened");
            for (slot, lane) in &session.lanes {
                let doing = match &lane.doing {
                    Doing::Running(askers) => Doing::Running(askers.clone()),
                    Doing::Done(outcome, by) => Doing::Done(outcome.clone(), *by),
                    Doing::Refused => Doing::Refused,
                    Doing::Elsewhere(why) => Doing::Elsewhere(*why),
                };
                let sequence = lane.sequence;
                copy.lanes.insert(
                    *slot,
                    super::Lane {
                        sequence,
                        doing,
                        wrote: None,
                    },
                );
            }
        }
        for id in self.0.ended.keys() {
            table.stays_ended(*id, Mono(0));
        }
        Table(table)
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Table) -> bool {
        self.key() == other.key()
    }
}

impl Hash for Table {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.key().fmt(f)
    }
}

/// What came of an operation, as its client hears it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Said {
    Done,
    Failed,
    WrongBoot(u8),
    SessionUnknown,
    TooOld,
    Busy,
}

/// A message that asks for an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Request {
    /// Its number: an answer is to one message.
    message: u8,
    session: u8,
    sequence: u64,
    op: usize,
    /// The boot it is meant for.
    boot: u8,
}

impl Request {
    fn id(self) -> RequestId {
        RequestId {
            session: name(self.session),
            slot: LANE,
            sequence: Sequence(self.sequence),
        }
    }
}

/// An execution under way: of which request, and whether the lane was unknown.
type Running = (Request, bool);

#[derive(Clone, PartialEq, Hash, Debug)]
struct World {
    // The server.
    boot: u8,
    table: Table,
    running: Vec<Running>,
    // Its disk.
    sessions: BTreeSet<u8>,
    ended: BTreeSet<u8>,
    /// The lane's reply record of each session.
    replies: BTreeSet<(u8, u64)>,
    effects: [u8; OPS],
    // The client.
    at: usize,
    session: u8,
    /// It is registered with the server, as far as the client knows.
    open: bool,
    known_boot: u8,
    sequence: u64,
    /// The last message, while its answer is awaited.
    awaited: Option<u8>,
    sent: u8,
    /// A message under its identity has reached the server, and so was a sign of life; and the session has
    /// ended since: longer ago than a try is waited for.
    arrived: bool,
    late: bool,
    /// A try of this operation has had no definite answer.
    uncertain: bool,
    clients: u8,
    told: [Option<Said>; OPS],
    // The network: whatever was sent may come at any time, and again.
    requests: BTreeSet<Request>,
    answers: BTreeSet<(Request, Said)>,
    restarts: u8,
    expiries: u8,
}

#[derive(Clone, PartialEq, Debug)]
enum Action {
    /// The client registers its session.
    Open,
    /// It asks, again or for the first time.
    Ask,
    Deliver(Request),
    /// It comes, and is executed before anything else happens.
    AtOnce(Request),
    /// An execution has its effect.
    Execute(usize),
    /// It fails without one.
    Fail(usize),
    /// It is put off.
    PutOff(usize),
    Hear(Request, Said),
    Restart,
    /// The server ends the session.
    Expire,
    /// The client's process starts again, with other operations.
    NewClient,
}

/// A rule that is taken out.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Without {
    /// A reply record is in the same atomic write as the effect (H44).
    Records,
    /// What was answered is not executed again (H45).
    Answers,
    /// A session that ended stays ended (H46).
    Ends,
    /// A new incarnation of a client has a new session (H48).
    NewNames,
    /// An older sequence is refused (H49).
    Order,
    /// A message is for one boot.
    Boots,
    /// That a session is unknown long after the first try says nothing of other copies (H46).
    Patience,
    /// Rules in the production type.
    #[cfg(feature = "plant")]
    Planted(&'static str),
}

#[derive(Clone)]
struct Lanes {
    restarts: u8,
    expiries: u8,
    clients: u8,
    without: Option<Without>,
}

impl Lanes {
    fn lacks(&self, rule: Without) -> bool {
        self.without == Some(rule)
    }

    fn plant(&self) {
        #[cfg(feature = "plant")]
        match self.without {
            Some(Without::Planted(name)) => pando_types::plant::set(&[name]),
            _ => pando_types::plant::set(&[]),
        }
    }

    fn arrive(&self, world: &mut World, request: Request) {
        world.arrived |= (request.session, request.sequence) == (world.session, world.sequence);
        if request.boot != world.boot && !self.lacks(Without::Boots) {
            world.answers.insert((request, Said::WrongBoot(world.boot)));
            return;
        }
        let asker = (Peer::Connection(0), u64::from(request.message));
        let limits = Limits {
            lanes: 4,
            ..Limits::default()
        };
        let said = match world.table.0.admit(request.id(), asker, Mono(0), &limits) {
            Admission::Execute { unknown } => {
                world.running.push((request, unknown));
                return;
            }
            Admission::Refuse(Refusal::TooOld) if self.lacks(Without::Order) => {
                world.running.push((request, false));
                return;
            }
            Admission::Answer(Ok(_)) if self.lacks(Without::Answers) => {
                world.running.push((request, false));
                return;
            }
            // It hears when the lane is done; here it asks again.
            Admission::Wait => return,
            Admission::Answer(Ok(_)) => Said::Done,
            Admission::Answer(Err(_)) => Said::Failed,
            Admission::Refuse(Refusal::TooOld) => Said::TooOld,
            Admission::Refuse(Refusal::SessionUnknown) => Said::SessionUnknown,
            Admission::Refuse(_) => Said::Busy,
        };
        world.answers.insert((request, said));
    }

    fn execute(&self, world: &mut World, n: usize) {
        let (request, unknown) = world.running.remove(n);
        let recorded = world.replies.iter().find(|(s, _)| *s == request.session);
        let recorded = recorded.map(|(_, sequence)| *sequence).filter(|_| unknown);
        if recorded.is_some_and(|q| q > request.sequence) {
            world.table.0.refused(request.id(), Refusal::TooOld);
            world.answers.insert((request, Said::TooOld));
            return;
        }
        if recorded != Some(request.sequence) {
            world.effects[request.op] += 1;
            if !self.lacks(Without::Records) {
                world.replies.retain(|(s, _)| *s != request.session);
                world.replies.insert((request.session, request.sequence));
            }
        }
        world.table.0.done(request.id(), Ok(Answer::Done), MapEpoch(0));
        world.answers.insert((request, Said::Done));
    }

    fn end(&self, world: &mut World, n: usize, said: Said) {
        let (request, unknown) = world.running.remove(n);
        // What was executed before is remembered, whatever would come of it now.
        if unknown && world.replies.contains(&(request.session, request.sequence)) {
            world.running.insert(n, (request, unknown));
            return self.execute(world, n);
        }
        if said == Said::Failed {
            let outcome: Outcome = Err(Errno::Exists);
            world.table.0.done(request.id(), outcome.clone(), MapEpoch(0));
        } else {
            world.table.0.refused(request.id(), Refusal::Busy);
        }
        world.answers.insert((request, said));
    }

    fn hear(&self, world: &mut World, request: Request, said: Said) {
        world.awaited = None;
        let (session, sequence) = (world.session, world.sequence);
        let next = |world: &mut World, told| {
            world.told[request.op] = told;
            world.at += 1;
            world.sequence += 1;
            world.uncertain = false;
        };
        match said {
            Said::Done | Said::Failed => next(world, Some(said)),
            Said::WrongBoot(now) => world.known_boot = now,
            // It may have happened.
            Said::TooOld => next(world, None),
            Said::SessionUnknown => {
                if world.uncertain || world.late && !self.lacks(Without::Patience) {
                    next(world, None);
                } else {
                    world.sequence += 1;
                }
                world.open = false;
            }
            Said::Busy => {}
        }
        if (session, sequence) != (world.session, world.sequence) {
            (world.arrived, world.late) = (false, false);
        }
    }

    fn expire(&self, world: &mut World) -> Option<()> {
        let first = *world.sessions.first()?;
        world.expiries += 1;
        world.late |= world.arrived;
        world.table.0.end(name(first), Mono(0), true)?;
        world.replies.retain(|(s, _)| *s != first);
        if self.lacks(Without::Ends) {
            // Its records are gone, and it lives.
            world.table.0.ended.remove(&name(first));
            world.table.0.open(name(first), Mono(0));
        } else {
            world.sessions.remove(&first);
            world.ended.insert(first);
        }
        Some(())
    }
}

impl Model for Lanes {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            boot: 1,
            table: Table(Sessions::default()),
            running: Vec::new(),
            sessions: BTreeSet::new(),
            ended: BTreeSet::new(),
            replies: BTreeSet::new(),
            effects: [0; OPS],
            at: 0,
            session: 1,
            open: false,
            known_boot: 1,
            sequence: 1,
            awaited: None,
            sent: 0,
            arrived: false,
            late: false,
            uncertain: false,
            clients: 0,
            told: [None; OPS],
            requests: BTreeSet::new(),
            answers: BTreeSet::new(),
            restarts: 0,
            expiries: 0,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.at < OPS {
            if !world.open {
                actions.push(Action::Open);
            } else if world.sent < MESSAGES {
                actions.push(Action::Ask);
            }
            if world.sent > 0 && world.clients < self.clients {
                actions.push(Action::NewClient);
            }
        }
        actions.extend(world.requests.iter().copied().map(Action::Deliver));
        actions.extend(world.requests.iter().copied().map(Action::AtOnce));
        let awaited = world
            .answers
            .iter()
            .filter(|(r, _)| world.awaited == Some(r.message));
        actions.extend(awaited.map(|(r, said)| Action::Hear(*r, *said)));
        for n in 0..world.running.len() {
            actions.extend([Action::Execute(n), Action::Fail(n), Action::PutOff(n)]);
        }
        if world.restarts < self.restarts {
            actions.push(Action::Restart);
        }
        // Not while something of it runs.
        if world.expiries < self.expiries && world.running.is_empty() {
            actions.push(Action::Expire);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        // Bugs are planted on a thread; the checker has several.
        self.plant();
        let mut world = world.clone();
        match action {
            Action::Open => {
                if world.table.0.open(name(world.session), Mono(0)) {
                    world.sessions.insert(world.session);
                    world.open = true;
                } else {
                    // It has ended: from here on another.
                    world.session += 1;
                    world.sequence = 1;
                }
            }
            Action::Ask => {
                world.uncertain |= world.awaited.is_some();
                world.sent += 1;
                world.awaited = Some(world.sent);
                world.requests.insert(Request {
                    message: world.sent,
                    session: world.session,
                    sequence: world.sequence,
                    op: world.at,
                    boot: world.known_boot,
                });
            }
            Action::Deliver(request) => self.arrive(&mut world, request),
            Action::AtOnce(request) => {
                let asker = (Peer::Connection(0), u64::from(request.message));
                let meant = request.boot == world.boot || self.lacks(Without::Boots);
                if !meant || !world.table.0.begin(request.id(), asker, Mono(0)) {
                    return None;
                }
                world.arrived |= (request.session, request.sequence) == (world.session, world.sequence);
                world.running.push((request, false));
                let last = world.running.len() - 1;
                self.execute(&mut world, last);
            }
            Action::Execute(n) => self.execute(&mut world, n),
            Action::Fail(n) => self.end(&mut world, n, Said::Failed),
            Action::PutOff(n) => self.end(&mut world, n, Said::Busy),
            Action::Hear(request, said) => self.hear(&mut world, request, said),
            Action::Restart => {
                world.restarts += 1;
                world.boot += 1;
                world.running.clear();
                world.table = Table(Sessions::default());
                for session in &world.sessions {
                    world.table.0.reopen(name(*session), Mono(0));
                }
                for session in &world.ended {
                    world.table.0.stays_ended(name(*session), Mono(0));
                }
            }
            Action::Expire => self.expire(&mut world)?,
            Action::NewClient => {
                // What it was at may have happened; the new one has something else to do.
                world.clients += 1;
                world.at += 1;
                world.session += u8::from(!self.lacks(Without::NewNames));
                world.sequence = 1;
                (world.open, world.uncertain, world.awaited) = (false, false, None);
                (world.arrived, world.late) = (false, false);
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Lanes>> {
        vec![
            Property::always(TWICE, |_, w: &World| w.effects.iter().all(|n| *n <= 1)),
            Property::always(TOLD, |_, w: &World| {
                let told = w.told.map(|told| told.map(|said| said == Said::Done));
                agree(&told, &w.effects)
            }),
            Property::sometimes("all is done and told", |_, w: &World| {
                w.told.iter().all(|t| *t == Some(Said::Done))
            }),
            Property::sometimes(
                "a retry after a restart is answered with its record",
                |_, w: &World| {
                    let again = |(r, said): &(Request, Said)| r.boot > 1 && r.op == 0 && *said == Said::Done;
                    w.effects[0] == 1 && w.replies.contains(&(1, 1)) && w.answers.iter().any(again)
                },
            ),
        ]
    }
}

fn model(expiries: u8, clients: u8) -> Lanes {
    Lanes {
        restarts: 1,
        expiries,
        clients,
        without: None,
    }
}

#[test]
fn every_request_takes_effect_once_at_most() {
    for (expiries, clients) in [(1, 0), (0, 1)] {
        let checker = model(expiries, clients).checker().threads(2).spawn_bfs().join();
        println!("{} states", checker.unique_state_count());
        checker.assert_properties();
    }
}

/// Of each operation, whether its program was told that it was done, and how often it took effect.
fn agree(told: &[Option<bool>], effects: &[u8]) -> bool {
    let right = |(told, n): (&Option<bool>, &u8)| told.is_none_or(|done| *n == u8::from(done));
    told.iter().zip(effects).all(right)
}

/// A model without one of its rules must come to a state that is wrong.
fn must_find<M>(model: M, without: impl std::fmt::Debug)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + std::fmt::Debug + Hash + Send + Sync + PartialEq,
    M::Action: std::fmt::Debug + Clone + PartialEq,
{
    let checker = model
        .checker()
        .threads(2)
        .finish_when(stateright::HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    let wrong = found.iter().find(|(name, _)| [TWICE, TOLD].contains(name));
    let states = checker.unique_state_count();
    // debug: a test.
    let (rule, path) = wrong.unwrap_or_else(|| panic!("{without:?} is not found in {states} states"));
    println!(
        // debug: a test.
        "{without:?}: not {rule:?} after {:?}",
        path.clone().into_actions()
    );
}

fn counterexample(without: Without) {
    let model = Lanes {
        without: Some(without),
        ..model(1, 1)
    };
    must_find(model, without);
}

#[test]
fn a_counterexample_for_each_rule_taken_out() {
    for rule in [
        Without::Records,
        Without::Answers,
        Without::Ends,
        Without::NewNames,
        Without::Order,
        Without::Boots,
        Without::Patience,
    ] {
        counterexample(rule);
    }
}

#[cfg(feature = "plant")]
#[test]
fn a_counterexample_for_each_planted_rule() {
    counterexample(Without::Planted("H46"));
}
