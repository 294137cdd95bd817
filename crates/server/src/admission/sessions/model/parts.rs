//! Retries while a directory is split, exhaustively (H300): a client that makes a name and removes it on one
//! lane, two servers with a part each, a split at any step, messages that are lost, late and doubled without
//! bound, servers that start again. Admission is the production type; requests that are put off are in
//! the model beside this one.
//!
//! Neither may take effect twice, and the program must be told what happened.

use super::{LANE, TOLD, TWICE, Table, agree, must_find, name};
use crate::Limits;
use crate::admission::sessions::{Admission, Sessions};
use pando_env::Peer;
use pando_types::{Errno, MapEpoch, Mono, RequestId, Sequence};
use pando_wire::{Answer, Refusal};
use stateright::{Checker, Model, Property};
use std::collections::BTreeSet;

/// Makes the name, then removes it.
const OPS: usize = 2;
const MAKE: usize = 0;
const SESSION: u8 = 1;

/// An answer, as a client hears it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Said {
    Done,
    /// It is there, or it is not.
    Failed,
    /// The name is in the other part.
    Elsewhere,
    WrongBoot(u8),
    TooOld,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Request {
    message: u8,
    sequence: u64,
    op: usize,
    part: usize,
    boot: u8,
}

impl Request {
    fn id(self) -> RequestId {
        RequestId {
            session: name(SESSION),
            slot: LANE,
            sequence: Sequence(self.sequence),
        }
    }
}

/// A part and its server.
#[derive(Clone, PartialEq, Hash, Debug)]
struct Server {
    boot: u8,
    table: Table,
    /// Executions under way, and whether the lane was unknown.
    running: Vec<(Request, bool)>,
    // On its disk.
    /// The part has the name in its range.
    has_range: bool,
    there: bool,
    reply: Option<u64>,
}

impl Server {
    fn new(has_range: bool) -> Server {
        let mut table = Table(Sessions::default());
        table.0.open(name(SESSION), Mono(0));
        Server {
            boot: 1,
            table,
            running: Vec::new(),
            has_range,
            there: false,
            reply: None,
        }
    }
}

#[derive(Clone, PartialEq, Hash, Debug)]
struct World {
    servers: [Server; 2],
    effects: [u8; OPS],
    restarts: u8,
    // The client.
    at: usize,
    sequence: u64,
    part: usize,
    /// Where it believes the name to be: a hint, which may be wrong.
    hint: usize,
    known: [u8; 2],
    sent: u8,
    awaited: Option<u8>,
    told: [Option<Said>; OPS],
    // The network: what was sent may come at any time, and again.
    requests: BTreeSet<Request>,
    answers: BTreeSet<(Request, Said)>,
}

#[derive(Clone, PartialEq, Debug)]
enum Action {
    Ask,
    /// Its hint changes, as another answer says.
    Learn,
    Deliver(Request),
    /// It comes, and is executed without locks.
    AtOnce(Request),
    Execute(usize, usize),
    Hear(Request, Said),
    /// The name's half is given to the second server.
    Split,
    Restart(usize),
}

/// A rule that is taken out.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Without {
    /// A retry goes to the part that was asked first.
    KeptPart,
    /// The reply is looked for before the range.
    RepliesFirst,
    /// "Elsewhere" is answered for good.
    Noted,
    /// A message is for one boot.
    Boots,
}

#[derive(Clone)]
struct Parts {
    messages: u8,
    restarts: u8,
    without: Option<Without>,
}

impl Parts {
    fn lacks(&self, rule: Without) -> bool {
        self.without == Some(rule)
    }

    fn arrive(&self, world: &mut World, request: Request) {
        let server = &mut world.servers[request.part];
        if request.boot != server.boot && !self.lacks(Without::Boots) {
            world.answers.insert((request, Said::WrongBoot(server.boot)));
            return;
        }
        let asker = (Peer::Connection(0), u64::from(request.message));
        let limits = Limits {
            lanes: 4,
            ..Limits::default()
        };
        let said = match server.table.0.admit(request.id(), asker, Mono(0), &limits) {
            Admission::Execute { unknown } => {
                server.running.push((request, unknown));
                return;
            }
            Admission::Refuse(Refusal::Elsewhere { .. }) if self.lacks(Without::Noted) => {
                server.table.0.forget_failure(request.id());
                server.running.push((request, true));
                return;
            }
            // It hears when the lane is done; here it asks again.
            Admission::Wait => return,
            Admission::Answer(Ok(_)) => Said::Done,
            Admission::Answer(Err(_)) => Said::Failed,
            Admission::Refuse(Refusal::TooOld) => Said::TooOld,
            Admission::Refuse(Refusal::Elsewhere { .. }) => Said::Elsewhere,
            // The lane is busy: it asks again.
            Admission::Refuse(_) => return,
        };
        world.answers.insert((request, said));
    }

    fn execute(&self, world: &mut World, part: usize, n: usize) {
        let server = &mut world.servers[part];
        let (request, unknown) = server.running.remove(n);
        let remembered = unknown && server.reply == Some(request.sequence);
        let elsewhere = !server.has_range && (!remembered || self.lacks(Without::RepliesFirst));
        let said = if unknown && server.reply.is_some_and(|q| q > request.sequence) {
            server.table.0.refused(request.id(), Refusal::TooOld);
            Said::TooOld
        } else if elsewhere {
            let why = Refusal::Elsewhere {
                second: false,
                start: part as u16,
                depth: None,
            };
            server.table.0.refused(request.id(), why);
            Said::Elsewhere
        } else if remembered {
            server.table.0.done(request.id(), Ok(Answer::Done), MapEpoch(0));
            Said::Done
        } else if server.there == (request.op == MAKE) {
            let failed = Err(Errno::Exists);
            server.table.0.done(request.id(), failed, MapEpoch(0));
            Said::Failed
        } else {
            server.there = request.op == MAKE;
            server.reply = Some(request.sequence);
            world.effects[request.op] += 1;
            server.table.0.done(request.id(), Ok(Answer::Done), MapEpoch(0));
            Said::Done
        };
        world.answers.insert((request, said));
    }

    fn hear(&self, world: &mut World, request: Request, said: Said) {
        world.awaited = None;
        match said {
            Said::Done | Said::Failed | Said::TooOld => {
                // Of what is too old it may have happened.
                world.told[request.op] = Some(said).filter(|said| *said != Said::TooOld);
                world.at += 1;
                world.sequence += 1;
                world.part = world.hint;
            }
            Said::Elsewhere => {
                world.hint = 1 - request.part;
                world.part = world.hint;
                world.sequence += 1;
            }
            Said::WrongBoot(boot) => world.known[request.part] = boot,
        }
    }
}

impl Model for Parts {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let world = |hint| World {
            servers: [Server::new(true), Server::new(false)],
            effects: [0; OPS],
            restarts: 0,
            at: 0,
            sequence: 1,
            part: hint,
            hint,
            known: [1; 2],
            sent: 0,
            awaited: None,
            told: [None; OPS],
            requests: BTreeSet::new(),
            answers: BTreeSet::new(),
        };
        // A hint may be of a directory that had this ID before.
        vec![world(0), world(1)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.at < OPS && world.sent < self.messages {
            actions.push(Action::Ask);
        }
        if !world.servers[world.hint].has_range {
            actions.push(Action::Learn);
        }
        actions.extend(world.requests.iter().copied().map(Action::Deliver));
        actions.extend(world.requests.iter().copied().map(Action::AtOnce));
        let heard = world.answers.iter();
        let heard = heard.filter(|(r, _)| world.awaited == Some(r.message));
        actions.extend(heard.map(|(r, said)| Action::Hear(*r, *said)));
        for (part, server) in world.servers.iter().enumerate() {
            for n in 0..server.running.len() {
                actions.push(Action::Execute(part, n));
            }
            if world.restarts < self.restarts {
                actions.push(Action::Restart(part));
            }
        }
        if world.servers[0].has_range {
            actions.push(Action::Split);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut world = world.clone();
        match action {
            Action::Ask => {
                world.sent += 1;
                world.awaited = Some(world.sent);
                if self.lacks(Without::KeptPart) {
                    world.part = world.hint;
                }
                world.requests.insert(Request {
                    message: world.sent,
                    sequence: world.sequence,
                    op: world.at,
                    part: world.part,
                    boot: world.known[world.part],
                });
            }
            Action::Learn => {
                world.hint = 1 - world.hint;
            }
            Action::Deliver(request) => self.arrive(&mut world, request),
            Action::AtOnce(request) => {
                let asker = (Peer::Connection(0), u64::from(request.message));
                let server = &mut world.servers[request.part];
                // What is not in the range is left to the long way.
                let meant = request.boot == server.boot || self.lacks(Without::Boots);
                if !meant || !server.has_range || !server.table.0.begin(request.id(), asker, Mono(0)) {
                    return None;
                }
                server.running.push((request, false));
                let last = server.running.len() - 1;
                self.execute(&mut world, request.part, last);
            }
            Action::Execute(part, n) => self.execute(&mut world, part, n),
            Action::Hear(request, said) => self.hear(&mut world, request, said),
            Action::Split => {
                let there = std::mem::take(&mut world.servers[0].there);
                world.servers[0].has_range = false;
                world.servers[1].has_range = true;
                world.servers[1].there = there;
            }
            Action::Restart(part) => {
                world.restarts += 1;
                let server = &mut world.servers[part];
                server.boot += 1;
                server.running.clear();
                server.table = Table(Sessions::default());
                server.table.0.reopen(name(SESSION), Mono(0));
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Parts>> {
        vec![
            Property::always(TWICE, |_, w: &World| w.effects.iter().all(|n| *n <= 1)),
            Property::always(TOLD, |_, w: &World| {
                let told = w.told.map(|told| told.map(|said| said == Said::Done));
                agree(&told, &w.effects)
            }),
            Property::sometimes("made in one part, removed in the other", |_, w: &World| {
                let parts = w.servers.iter().all(|s| s.reply.is_some());
                parts && w.told.iter().all(|t| *t == Some(Said::Done))
            }),
            Property::sometimes(
                "a retry where the name has gone finds its reply",
                |_, w: &World| {
                    let again = |(r, said): &(Request, Said)| {
                        (r.part, r.op, *said) == (0, MAKE, Said::Done) && r.message > 1 && r.boot > 1
                    };
                    !w.servers[0].has_range && w.effects[MAKE] == 1 && w.answers.iter().any(again)
                },
            ),
        ]
    }
}

#[test]
fn a_retry_over_a_split_takes_effect_once() {
    let model = Parts {
        messages: 4,
        restarts: 1,
        without: None,
    };
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn a_counterexample_for_each_rule_of_splits_taken_out() {
    for without in [
        Without::KeptPart,
        Without::RepliesFirst,
        Without::Noted,
        Without::Boots,
    ] {
        let model = Parts {
            messages: 4,
            restarts: 1,
            without: Some(without),
        };
        must_find(model, without);
    }
}
