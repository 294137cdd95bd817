//! Leases on one directory, exhaustively: two servers between which its entry moves, that start again and
//! learn the coordinator's time late, a coordinator that is followed by another, and a change that waits.
//! What is granted and waited for is the production type; the model stands for who has the entry.
//!
//! What must hold: nobody goes by what was told when it is not true any more (H53). And a change comes to its
//! turn, however often it is read (H54, H317).

use super::{Ask, Leases};
use pando_cluster::LeaseLength;
use pando_types::{DirId, Generation, Mono, Watermark};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::hash::{Hash, Hasher};

/// Milliseconds of a step of time.
const STEP: u64 = 20;
/// The length of a lease: two steps.
const LENGTH: LeaseLength = LeaseLength::Fixed(40);
/// Steps of time.
const STEPS: u64 = 5;

const TRUE: &str = "nobody goes by what is not true";
const CHANGES: &str = "a change takes place while a lease was out";
const TURN: &str = "a change has waited longer than leases last";

const DIR: (DirId, Generation) = (DirId(7), Generation(1));

/// What a server knows, as a state.
#[derive(Clone)]
struct Server {
    leases: Leases,
    /// The coordinator's time that it was told last.
    told: Option<u64>,
}

impl Server {
    fn starts(now: u64) -> Server {
        Server {
            leases: Leases::new(Mono(now)),
            told: None,
        }
    }

    fn key(&self) -> impl PartialEq + Hash + std::fmt::Debug {
        let l = &self.leases;
        (
            (l.floor, l.since, self.told),
            // How often it is looked at makes no difference to leases that are always as long.
            l.known.values().map(|g| (g.until, g.closed)).collect::<Vec<_>>(),
        )
    }
}

impl PartialEq for Server {
    fn eq(&self, other: &Server) -> bool {
        self.key() == other.key()
    }
}

impl Hash for Server {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.key().fmt(f)
    }
}

#[derive(Clone, PartialEq, Hash, Debug)]
struct World {
    now: u64,
    servers: [Server; 2],
    /// Which of them has the entry.
    owner: usize,
    /// How often the directory has changed.
    truth: u8,
    /// What a client was told last: until when, and what.
    told: Option<(u64, u8)>,
    /// Since when a change waits.
    waits: Option<u64>,
    /// Whether it took place while something had been told.
    waited: bool,
    mishaps: u8,
}

#[derive(Clone, PartialEq, Debug)]
enum Action {
    Tick,
    /// A server hears the coordinator's time.
    Hear(usize),
    /// A client looks the directory up at a server.
    Look(usize),
    /// The directory is to change, or comes again to do so.
    Change,
    Restart(usize),
    /// The entry's slot moves to the other server.
    Move,
    /// Another coordinator: its term begins.
    Term,
}

/// A rule that is taken out.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Without {
    /// Only the entry's server grants.
    Owner,
    /// Of what came with a slot the longest lease is waited for.
    Arrival,
    /// So it is after the beginning of a term.
    Term,
    /// Rules in the production type.
    #[cfg(feature = "plant")]
    Planted(&'static str),
}

#[derive(Clone)]
struct OneDirectory {
    mishaps: u8,
    without: Option<Without>,
}

impl OneDirectory {
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
}

impl Model for OneDirectory {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            now: 0,
            servers: [Server::starts(0), Server::starts(0)],
            owner: 0,
            truth: 0,
            told: None,
            waits: None,
            waited: false,
            mishaps: 0,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.now < STEPS * STEP {
            actions.push(Action::Tick);
        }
        actions.extend([0, 1].map(Action::Hear));
        actions.push(Action::Look(world.owner));
        if self.lacks(Without::Owner) {
            actions.push(Action::Look(1 - world.owner));
        }
        actions.push(Action::Change);
        if world.mishaps < self.mishaps {
            actions.extend([0, 1].map(Action::Restart));
            actions.extend([Action::Move, Action::Term]);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        self.plant();
        let mut world = last.clone();
        let now = world.now;
        match action {
            Action::Tick => world.now += STEP,
            Action::Hear(s) => {
                let server = &mut world.servers[s];
                server.told = Some(now);
                server.leases.hear(Watermark(now), Mono(now), LENGTH.longest());
            }
            Action::Look(s) => {
                let server = &mut world.servers[s];
                let until = server.leases.grant(Ask {
                    dir: DIR,
                    depth: 1,
                    now: Watermark(server.told?),
                    length: LENGTH,
                });
                world.told = Some((until?.0, world.truth));
            }
            Action::Change => {
                let server = &mut world.servers[world.owner];
                let until = server.leases.close(DIR, Watermark(server.told?))?;
                if until.0 > now {
                    world.waits = world.waits.or(Some(now));
                } else {
                    world.truth += 1;
                    world.waited |= world.waits.is_some() && world.told.is_some();
                    world.waits = None;
                    server.leases.changed(DIR);
                }
            }
            Action::Restart(s) => {
                world.mishaps += 1;
                world.servers[s] = Server::starts(now);
                world.waits = None;
            }
            Action::Move => {
                world.mishaps += 1;
                world.owner = 1 - world.owner;
                world.waits = None;
                world.servers.iter_mut().for_each(|s| s.leases.unmark());
                if !self.lacks(Without::Arrival) {
                    world.servers[world.owner].leases.arrived(Mono(now));
                }
            }
            Action::Term => {
                world.mishaps += 1;
                world.waits = None;
                // Whoever was told by the one before goes on by its time; here both show the same.
                for server in &mut world.servers {
                    server.told = None;
                    server.leases.unmark();
                    match self.lacks(Without::Term) {
                        true => server.leases.known.clear(),
                        false => server.leases.arrived(Mono(now)),
                    }
                }
            }
        }
        Some(world)
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.truth <= 2
    }

    fn properties(&self) -> Vec<Property<OneDirectory>> {
        vec![
            Property::always(TRUE, |_, w: &World| {
                w.told
                    .is_none_or(|(until, says)| until <= w.now || says == w.truth)
            }),
            Property::sometimes(CHANGES, |_, w: &World| w.waited),
            // A step of rounding: what was told just before has run out within it.
            Property::always(TURN, |_, w: &World| {
                let longest = LENGTH.longest().as_millis() as u64 + STEP;
                let out = |since: u64| w.told.is_some_and(|(until, _)| until > since + longest);
                w.waits.is_none_or(|since| !out(since))
            }),
        ]
    }
}

#[test]
fn nobody_goes_by_what_has_changed_and_every_change_has_its_turn() {
    for mishaps in 0..=1 {
        let model = OneDirectory {
            mishaps,
            without: None,
        };
        let checker = model.checker().threads(2).spawn_bfs().join();
        println!("{} states", checker.unique_state_count());
        checker.assert_no_discovery(TRUE);
        checker.assert_no_discovery(TURN);
        checker.assert_any_discovery(CHANGES);
    }
}

fn counterexample(without: Without, property: &'static str) {
    let model = OneDirectory {
        mishaps: 1,
        without: Some(without),
    };
    let checker = model
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AllOf([property].into()))
        .spawn_bfs()
        .join();
    let path = checker.discovery(property).unwrap_or_else(|| {
        panic!(
            "{without:?} is not found in {} states",
            checker.unique_state_count()
        )
    });
    // debug: a test.
    println!("{without:?}: {:?}", path.into_actions());
}

#[test]
fn a_counterexample_for_each_rule_taken_out() {
    counterexample(Without::Owner, TRUE);
    counterexample(Without::Arrival, TRUE);
    counterexample(Without::Term, TRUE);
}

#[cfg(feature = "plant")]
#[test]
fn a_counterexample_for_each_planted_rule() {
    counterexample(Without::Planted("H53"), TRUE);
    counterexample(Without::Planted("H54"), TURN);
}
