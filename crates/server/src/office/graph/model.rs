//! Moves of a few directories, exhaustively: the production graph, and around it what it rests on (heads in
//! stores, their locks, answers on their way, decisions that participants have not heard of, aborts, another
//! coordinator), in every order.

use super::{Above, Graph, Number};
use pando_namespace::{Incarnation, Walked};
use pando_types::{DirId, Generation, Term};
use stateright::{Checker, Model, Property};
use std::collections::BTreeMap;

/// A directory by number; 0 is the root.
type Dir = usize;

fn name(dir: Dir) -> Incarnation {
    match dir {
        0 => (DirId::ROOT, Generation::ROOT),
        n => (DirId(1_000 + n as u128), Generation(n as u64)),
    }
}

/// A move: directories from where they are, to where they go. An exchange has two.
type What = &'static [(Dir, Dir, Dir)];

/// How far a move is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    /// It has not begun, or begins again.
    Start,
    /// It looks what is above its new parent, and holds nothing.
    Climbing,
    /// A head was read for it; the answer is on its way.
    Answer(Dir, Dir),
    /// It has locked the heads of what moves.
    Locked,
    /// It is decided; whoever has the heads has not heard of it.
    Decided,
    /// It moved what it was to move.
    Done,
    /// A loop would have come of it.
    Refused,
    /// It was given up, or what it was to move is elsewhere.
    GivenUp,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    graph: Graph,
    term: Term,
    moves: Vec<(At, Option<Number>)>,
    /// Parents as decided.
    decided: Vec<Dir>,
    /// Parents as stored.
    stored: Vec<Dir>,
    /// A refusal that was not true.
    lied: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Begin(usize),
    Climb(usize),
    Hear(usize),
    Decide(usize),
    Abort(usize),
    Apply(usize),
    /// Another coordinator, or this one once more.
    NewTerm,
}

/// Rules that are not in the graph itself, taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Without {
    Nothing,
    /// H24
    EnteringDecisions,
    /// H26
    LockedHeads,
    /// One that is in the graph.
    #[cfg(feature = "plant")]
    Planted(&'static str),
}

#[derive(Clone)]
struct Moves {
    parents: Vec<Dir>,
    moves: Vec<What>,
    /// Directories whose parents are kept in mind.
    most: usize,
    terms: u64,
    aborts: bool,
    /// Whether no two of the moves make a loop together.
    free: bool,
    without: Without,
}

impl Moves {
    fn locked(&self, s: &State, dir: Dir) -> bool {
        let holds = |(n, (at, _)): (usize, &(At, _))| {
            matches!(at, At::Locked | At::Decided) && self.moves[n].iter().any(|(d, ..)| *d == dir)
        };
        s.moves.iter().enumerate().any(holds)
    }

    /// What it is checked for.
    fn pairs(&self, n: usize) -> impl Iterator<Item = (Incarnation, Incarnation)> {
        self.moves[n].iter().map(|(dir, _, to)| (name(*dir), name(*to)))
    }

    fn above(parents: &[Dir], dir: Dir, mut at: Dir) -> bool {
        for _ in 0..=parents.len() {
            match at {
                _ if at == dir => return true,
                0 => return false,
                _ => at = parents[at],
            }
        }
        true
    }

    /// One look at what is known; what is not known is asked for.
    fn climb(&self, s: &mut State, n: usize) -> Option<()> {
        let number = s.moves[n].1?;
        for (moved, into) in self.pairs(n) {
            match s.graph.climb(moved, into) {
                Above::Others => {}
                Above::It => {
                    let walked = Walked::from([((moved, into), true)]);
                    if s.graph.holds(number, s.term, &walked) {
                        let true_now =
                            (self.moves[n].iter()).any(|(d, _, to)| Moves::above(&s.decided, *d, *to));
                        s.lied |= !true_now;
                        self.end(s, n, At::Refused);
                    } else {
                        self.end(s, n, At::Start);
                    }
                    return Some(());
                }
                Above::Unknown(dir) => {
                    let dir = (1..self.parents.len()).find(|d| name(*d) == dir)?;
                    if self.locked(s, dir) && self.without != Without::LockedHeads {
                        return None;
                    }
                    s.moves[n].0 = At::Answer(dir, s.stored[dir]);
                    return Some(());
                }
            }
        }
        // Nothing is in the way: it may lock.
        let free = self.moves[n].iter().all(|(dir, ..)| !self.locked(s, *dir));
        if !free {
            return None;
        }
        let there = self.moves[n].iter().all(|(dir, from, _)| s.stored[*dir] == *from);
        if there {
            s.moves[n].0 = At::Locked;
        } else {
            self.end(s, n, At::GivenUp);
        }
        Some(())
    }

    fn end(&self, s: &mut State, n: usize, at: At) {
        if let Some(number) = s.moves[n].1.take() {
            s.graph.end(number);
        }
        s.moves[n].0 = at;
    }

    fn enter(&self, s: &mut State, n: usize) {
        for (dir, _, to) in self.moves[n] {
            s.graph.moved(name(*dir), name(*to), self.most);
        }
    }

    fn decide(&self, s: &mut State, n: usize) -> Option<()> {
        let number = s.moves[n].1?;
        let walked: Walked = self.pairs(n).map(|pair| (pair, false)).collect();
        if !s.graph.holds(number, s.term, &walked) {
            self.end(s, n, At::Start);
            return Some(());
        }
        for (dir, _, to) in self.moves[n] {
            s.decided[*dir] = *to;
        }
        if self.without != Without::EnteringDecisions {
            self.enter(s, n);
        }
        self.end(s, n, At::Decided);
        Some(())
    }
}

impl Model for Moves {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            graph: Graph::default(),
            term: Term(1),
            moves: vec![(At::Start, None); self.moves.len()],
            decided: self.parents.clone(),
            stored: self.parents.clone(),
            lied: false,
        }]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        for (n, (at, _)) in s.moves.iter().enumerate() {
            match at {
                At::Start => actions.push(Action::Begin(n)),
                At::Climbing => actions.push(Action::Climb(n)),
                At::Answer(..) => actions.push(Action::Hear(n)),
                At::Locked => {
                    actions.push(Action::Decide(n));
                    if self.aborts {
                        actions.push(Action::Abort(n));
                    }
                }
                At::Decided => actions.push(Action::Apply(n)),
                At::Done | At::Refused | At::GivenUp => {}
            }
        }
        let under_way = |(at, _): &(At, _)| !matches!(at, At::Done | At::Refused | At::GivenUp);
        if s.term.0 < self.terms && s.moves.iter().any(under_way) {
            actions.push(Action::NewTerm);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        #[cfg(feature = "plant")]
        pando_types::plant::set(match &self.without {
            Without::Planted(plant) => std::slice::from_ref(plant),
            _ => &[],
        });
        let mut s = last.clone();
        match action {
            Action::Begin(n) => {
                s.moves[n] = (At::Climbing, Some(s.graph.begin(s.term)));
            }
            Action::Climb(n) => self.climb(&mut s, n)?,
            Action::Hear(n) => {
                let (At::Answer(dir, parent), Some(number)) = s.moves[n] else {
                    return None;
                };
                s.moves[n].0 = At::Climbing;
                if !s
                    .graph
                    .learn((number, s.term), name(dir), name(parent), self.most)
                {
                    self.end(&mut s, n, At::Start);
                }
            }
            Action::Decide(n) => self.decide(&mut s, n)?,
            Action::Abort(n) => self.end(&mut s, n, At::GivenUp),
            Action::Apply(n) => {
                for (dir, _, to) in self.moves[n] {
                    s.stored[*dir] = *to;
                }
                if self.without == Without::EnteringDecisions {
                    self.enter(&mut s, n);
                }
                s.moves[n].0 = At::Done;
            }
            // Who was the coordinator decides nothing any more; its moves end, in whatever order.
            Action::NewTerm => s.term = Term(s.term.0 + 1),
        }
        s.graph
            .renumber(s.moves.iter_mut().filter_map(|(_, n)| n.as_mut()));
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Moves>> {
        vec![
            Property::always("every directory is below the root", |_, s: &State| {
                (1..s.decided.len()).all(|dir| !Moves::above(&s.decided, dir, s.decided[dir]))
            }),
            Property::always("what is refused would have made a loop", |_, s: &State| !s.lied),
            Property::always(
                "what is known in this term is what was decided",
                |m: &Moves, s: &State| {
                    s.graph.term != s.term
                        || (1..m.parents.len()).all(|dir| {
                            let known = s.graph.known.get(&name(dir));
                            known.is_none_or(|k| k.parent == name(s.decided[dir]))
                        })
                },
            ),
            Property::eventually("every move ends", |_, s: &State| {
                let over = |(at, _): &(At, _)| matches!(at, At::Done | At::Refused | At::GivenUp);
                s.moves.iter().all(over)
            }),
            Property::always(
                "nobody who is in no other's way is refused",
                |m: &Moves, s: &State| {
                    !m.free
                        || s.moves
                            .iter()
                            .all(|(at, _)| !matches!(at, At::Refused | At::GivenUp))
                },
            ),
            Property::sometimes("one is decided while another is under way", |_, s: &State| {
                let locked = s.moves.iter().any(|(at, _)| *at == At::Locked);
                locked && s.moves.iter().any(|(at, _)| *at == At::Decided)
            }),
        ]
    }
}

impl Graph {
    /// The same with the smallest numbers: histories of different lengths that lead to one state are one.
    fn renumber<'a>(&mut self, numbers: impl Iterator<Item = &'a mut Number>) {
        let mut numbers: Vec<&mut Number> = numbers.collect();
        let all = self.by_use.keys().chain(&self.under_way).copied();
        let mut all: Vec<u64> = all.chain(numbers.iter().map(|n| n.at)).collect();
        all.sort_unstable();
        all.dedup();
        let new: BTreeMap<u64, u64> = all.into_iter().zip(1..).collect();
        self.by_use = std::mem::take(&mut self.by_use)
            .into_iter()
            .map(|(used, dir)| (new[&used], dir))
            .collect();
        self.known.values_mut().for_each(|k| k.used = new[&k.used]);
        self.under_way = self.under_way.iter().map(|at| new[at]).collect();
        numbers.iter_mut().for_each(|n| n.at = new[&n.at]);
        self.clock = new.len() as u64;
    }
}

/// `/1/4`, `/2/5`, `/3/6`.
const THREE: &[Dir] = &[0, 0, 0, 0, 1, 2, 3];

fn check(parents: &[Dir], moves: &[What], most: usize, terms: u64) -> Moves {
    Moves {
        parents: parents.to_vec(),
        moves: moves.to_vec(),
        most,
        terms,
        aborts: true,
        free: false,
        without: Without::Nothing,
    }
}

fn run(model: Moves) {
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

/// 1 into 2's, 2 into 3's, 3 into 1's: two of them, but never all.
#[test]
fn three_that_make_a_loop_together() {
    run(check(THREE, &[&[(1, 0, 5)], &[(2, 0, 6)], &[(3, 0, 4)]], 2, 1));
}

#[test]
fn two_opposed_with_another_coordinator_between() {
    run(check(THREE, &[&[(1, 0, 5)], &[(2, 0, 4)]], 1, 2));
}

/// Both directories of an exchange move.
#[test]
fn an_exchange_and_moves() {
    // 4 and 5 change places, while 2 goes into 4 and 1 into 5.
    run(check(
        THREE,
        &[&[(4, 1, 2), (5, 2, 1)], &[(2, 0, 4)], &[(1, 0, 5)]],
        2,
        1,
    ));
}

/// A directory leaves while another goes below it, and where it goes to is on its way too.
#[test]
fn those_in_the_way_move_themselves() {
    // 5 leaves 2 for 6, 3 goes into 4, 1 into 5.
    run(check(THREE, &[&[(5, 2, 6)], &[(3, 0, 4)], &[(1, 0, 5)]], 1, 1));
}

/// All go on at once, one of them out of the way of another.
#[test]
fn those_that_make_no_loop_all_succeed() {
    run(Moves {
        aborts: false,
        free: true,
        ..check(THREE, &[&[(4, 1, 2)], &[(5, 2, 3)], &[(6, 3, 5)]], 2, 2)
    });
}

#[test]
fn a_counterexample_for_each_rule_taken_out() {
    let without = [
        Without::EnteringDecisions,
        Without::LockedHeads,
        #[cfg(feature = "plant")]
        Without::Planted("H20"),
        #[cfg(feature = "plant")]
        Without::Planted("H21"),
    ];
    for without in without {
        let model = Moves {
            without,
            ..check(THREE, &[&[(1, 0, 5)], &[(2, 0, 4)]], 1, 2)
        };
        let checker = model.checker().threads(2);
        let checker = checker
            .finish_when(stateright::HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let found = checker.discoveries();
        let path = found.get("every directory is below the root");
        let path = path.or(found.get("what is known in this term is what was decided"));
        let path = path.unwrap_or_else(|| panic!("nothing is found without {without:?}"));
        println!("{without:?}: {:?}", path.clone().into_actions());
    }
}
