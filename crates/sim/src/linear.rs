//! A checker of linearizability that knows nothing of servers, locks or commit order: is there any order of
//! these operations, each between its beginning and its end, in which one or two names show what clients saw
//! of them?
//!
//! The search is Wing and Gong's, with the states remembered in which nothing was found (Lowe). What stands
//! under a name at the beginning is not known: the first operation that shows it settles it. An operation
//! without an answer may have taken effect at any time since it was asked for, or never.

use std::collections::BTreeSet;

/// Names looked at together.
pub const KEYS: usize = 2;
/// Operations that may overlap at one instant, counted from the oldest that has no place yet.
const WIDE: usize = 64;
/// Operations without an answer that one history may have.
const MAYBES: usize = 24;

/// What stands under a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// Nobody has looked yet.
    Unknown,
    /// Nothing.
    Absent,
    /// An object, and its attributes, as far as they are known.
    There(Option<u64>, Option<u32>),
}

/// What an operation saw of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saw {
    /// Not said.
    Nothing,
    /// That it does not exist.
    Absent,
    /// An object, and its attributes, as far as it was told.
    There(Option<u64>, Option<u32>),
}

/// What an operation without an answer would do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maybe {
    /// Make something under a name that is free.
    Make(usize),
    /// Put something under a name, whatever is there.
    Put(usize),
    /// Remove it.
    Remove(usize),
    /// Change its attributes.
    Change(usize),
    /// Move the first over the second.
    Move(usize, usize),
    /// Exchange them.
    Swap(usize, usize),
}

/// What is known of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// It was answered: what it saw, and what it left.
    Did([Saw; KEYS], [Option<State>; KEYS]),
    /// It was not.
    Perhaps(Maybe),
}

/// An operation, as its client saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// When it was asked for.
    pub from: u64,
    /// When it was answered.
    pub to: u64,
    /// What it did.
    pub act: Act,
}

/// What came of looking for an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// There is one.
    Explained,
    /// There is none. Everything that began before this could be given its place, in one way or another.
    Impossible(u64),
    /// Given up: too many overlap.
    TooWide,
}

/// A place in the search: which operations have their place in the order, and what that leaves.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    /// All before this one have theirs.
    low: usize,
    /// And these, counted from it.
    mask: u64,
    /// Of those without an answer.
    maybes: u32,
    states: [State; KEYS],
}

/// Looks for an order, in at most `budget` steps, which are taken off it.
pub fn check(events: &[Event], budget: &mut u64) -> Verdict {
    let (mut done, mut maybes) = (Vec::new(), Vec::new());
    for e in events {
        match e.act {
            Act::Did(saw, left) => done.push((e.from, e.to, saw, left)),
            Act::Perhaps(what) => maybes.push((e.from, what)),
        }
    }
    if maybes.len() > MAYBES {
        return Verdict::TooWide;
    }
    done.sort_by_key(|(from, ..)| *from);
    let mut seen = BTreeSet::new();
    let mut furthest = 0;
    let mut todo = vec![Node {
        low: 0,
        mask: 0,
        maybes: 0,
        states: [State::Unknown; KEYS],
    }];
    while let Some(mut node) = todo.pop() {
        if *budget == 0 {
            return Verdict::TooWide;
        }
        *budget -= 1;
        let mut next = Vec::new();
        let settled = loop {
            while node.mask & 1 == 1 {
                node.mask >>= 1;
                node.low += 1;
            }
            if node.low >= done.len() {
                return Verdict::Explained;
            }
            furthest = furthest.max(node.low);
            // Whatever ends first must have its place before anything that begins later.
            let mut first_end = u64::MAX;
            let mut free = None;
            next.clear();
            for (at, (from, to, saw, left)) in done[node.low..].iter().enumerate() {
                if *from > first_end {
                    break;
                }
                if at >= WIDE {
                    return Verdict::TooWide;
                }
                if node.mask >> at & 1 == 1 {
                    continue;
                }
                first_end = first_end.min(*to);
                if let Some(states) = apply(node.states, saw, left) {
                    if states == node.states {
                        free = Some(at);
                        break;
                    }
                    next.push((at, states));
                }
            }
            match free {
                // What changes nothing and is right now may as well stand here.
                Some(at) => node.mask |= 1 << at,
                None => break first_end,
            }
        };
        for (n, (from, what)) in maybes.iter().enumerate() {
            if node.maybes >> n & 1 == 0
                && *from < settled
                && let Some(states) = perhaps(node.states, *what)
            {
                let child = Node {
                    maybes: node.maybes | 1 << n,
                    states,
                    ..node.clone()
                };
                if seen.insert(child.clone()) {
                    todo.push(child);
                }
            }
        }
        for (at, states) in next.iter().rev() {
            let child = Node {
                mask: node.mask | 1 << at,
                states: *states,
                ..node.clone()
            };
            if seen.insert(child.clone()) {
                todo.push(child);
            }
        }
    }
    Verdict::Impossible(done[furthest].0)
}

/// What an operation leaves, if what it saw is what is there.
fn apply(
    mut states: [State; KEYS],
    saw: &[Saw; KEYS],
    left: &[Option<State>; KEYS],
) -> Option<[State; KEYS]> {
    for key in 0..KEYS {
        let state = &mut states[key];
        *state = match (saw[key], *state) {
            (Saw::Nothing, any) => any,
            (Saw::Absent, State::Unknown | State::Absent) => State::Absent,
            (Saw::There(object, attr), State::Unknown) => State::There(object, attr),
            (Saw::There(a, b), State::There(object, attr)) => {
                State::There(agreed(object, a)?, agreed(attr, b)?)
            }
            (Saw::Absent, State::There(..)) | (Saw::There(..), State::Absent) => return None,
        };
    }
    for key in 0..KEYS {
        if let Some(left) = left[key] {
            states[key] = left;
        }
    }
    Some(states)
}

fn agreed<T: PartialEq>(known: Option<T>, shown: Option<T>) -> Option<Option<T>> {
    match (known, shown) {
        (Some(a), Some(b)) if a != b => None,
        (Some(a), _) => Some(Some(a)),
        (None, b) => Some(b),
    }
}

/// What an operation leaves of which nobody knows whether it happened; `None`: it would not change anything.
fn perhaps(mut states: [State; KEYS], what: Maybe) -> Option<[State; KEYS]> {
    let some = State::There(None, None);
    let moved = |from: State| match from {
        State::Absent => None,
        State::There(object, _) => Some(State::There(object, None)),
        State::Unknown => Some(some),
    };
    match what {
        Maybe::Make(key) => {
            if matches!(states[key], State::There(..)) {
                return None;
            }
            states[key] = some;
        }
        Maybe::Put(key) => states[key] = some,
        Maybe::Remove(key) => {
            moved(states[key])?;
            states[key] = State::Absent;
        }
        Maybe::Change(key) => states[key] = moved(states[key])?,
        Maybe::Move(from, to) => {
            states[to] = moved(states[from])?;
            states[from] = State::Absent;
        }
        Maybe::Swap(a, b) => {
            let (one, two) = (moved(states[a])?, moved(states[b])?);
            states[a] = two;
            states[b] = one;
        }
    }
    Some(states)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Saw = Saw::There(Some(1), None);
    const B: Saw = Saw::There(Some(2), None);

    fn did(from: u64, to: u64, saw: Saw, left: Option<State>) -> Event {
        let act = Act::Did([saw, Saw::Nothing], [left, None]);
        Event { from, to, act }
    }

    fn made(from: u64, to: u64, object: u64) -> Event {
        did(from, to, Saw::Absent, Some(State::There(Some(object), None)))
    }

    fn removed(from: u64, to: u64, saw: Saw) -> Event {
        did(from, to, saw, Some(State::Absent))
    }

    fn perhaps(from: u64, what: Maybe) -> Event {
        let act = Act::Perhaps(what);
        Event {
            from,
            to: u64::MAX,
            act,
        }
    }

    const IMPOSSIBLE: Verdict = Verdict::Impossible(0);

    fn verdict(events: &[Event]) -> Verdict {
        match check(events, &mut 10_000) {
            Verdict::Impossible(_) => IMPOSSIBLE,
            other => other,
        }
    }

    #[test]
    fn what_follows_must_be_seen() {
        let create = made(1, 4, 1);
        // While it is under way, both; after it, only that it is there.
        assert_eq!(
            verdict(&[create, did(2, 3, Saw::Absent, None)]),
            Verdict::Explained
        );
        assert_eq!(verdict(&[create, did(2, 3, A, None)]), Verdict::Explained);
        assert_eq!(verdict(&[create, did(5, 6, A, None)]), Verdict::Explained);
        assert_eq!(verdict(&[create, did(5, 6, Saw::Absent, None)]), IMPOSSIBLE);
        assert_eq!(verdict(&[create, did(5, 6, B, None)]), IMPOSSIBLE);
        // Who has seen it has settled it for everybody later.
        let (seen, gone) = (did(2, 3, A, None), did(5, 6, Saw::Absent, None));
        assert_eq!(verdict(&[made(1, 9, 1), seen, gone]), IMPOSSIBLE);
    }

    #[test]
    fn two_cannot_both_have_been_first() {
        assert_eq!(verdict(&[made(1, 5, 1), made(2, 6, 2)]), IMPOSSIBLE);
        let between = removed(3, 4, A);
        assert_eq!(
            verdict(&[made(1, 5, 1), made(2, 6, 2), between]),
            Verdict::Explained
        );
        assert_eq!(verdict(&[removed(1, 5, A), removed(2, 6, A)]), IMPOSSIBLE);
    }

    #[test]
    fn a_retry_that_was_executed_twice() {
        // create, told; remove, told; and there it is again.
        let again = [made(1, 2, 1), removed(3, 4, A), did(5, 6, A, None)];
        assert_eq!(verdict(&again), IMPOSSIBLE);
    }

    #[test]
    fn what_was_not_answered_may_have_happened_once() {
        let lost = perhaps(3, Maybe::Remove(0));
        let before = [made(1, 2, 1), lost, did(5, 6, A, None)];
        let after = [made(1, 2, 1), lost, did(5, 6, Saw::Absent, None)];
        assert_eq!(verdict(&before), Verdict::Explained);
        assert_eq!(verdict(&after), Verdict::Explained);
        let back = did(7, 8, A, None);
        assert_eq!(verdict(&[after[0], after[1], after[2], back]), IMPOSSIBLE);
        let too_early = [did(1, 2, Saw::Absent, None), perhaps(3, Maybe::Make(0))];
        assert_eq!(verdict(&too_early), Verdict::Explained);
        let seen_early = [removed(1, 2, A), did(3, 4, A, None), perhaps(5, Maybe::Make(0))];
        assert_eq!(verdict(&seen_early), IMPOSSIBLE);
    }

    #[test]
    fn a_rename_is_one_moment() {
        let rename = |from, to| Event {
            from,
            to,
            act: Act::Did(
                [A, Saw::Absent],
                [Some(State::Absent), Some(State::There(Some(1), None))],
            ),
        };
        let both = |from, to, saw: [Saw; 2]| Event {
            from,
            to,
            act: Act::Did(saw, [None, None]),
        };
        let old = both(2, 3, [A, Saw::Absent]);
        let new = both(4, 5, [Saw::Absent, A]);
        assert_eq!(verdict(&[rename(1, 6), old, new]), Verdict::Explained);
        // Never under both names or neither, and not back again.
        assert_eq!(verdict(&[rename(1, 6), both(2, 3, [A, A])]), IMPOSSIBLE);
        let neither = [Saw::Absent, Saw::Absent];
        assert_eq!(verdict(&[rename(1, 6), both(2, 3, neither)]), IMPOSSIBLE);
        let back = both(6, 7, [A, Saw::Absent]);
        assert_eq!(verdict(&[rename(1, 8), old, new, back]), IMPOSSIBLE);
    }

    #[test]
    fn attributes_are_those_of_the_last_change() {
        let set = |from, to, attr| {
            did(
                from,
                to,
                Saw::There(Some(1), None),
                Some(State::There(Some(1), Some(attr))),
            )
        };
        let get = |from, to, attr| did(from, to, Saw::There(Some(1), Some(attr)), None);
        let twice = [set(1, 6, 7), set(2, 5, 8)];
        assert_eq!(verdict(&[twice[0], twice[1], get(7, 8, 7)]), Verdict::Explained);
        assert_eq!(verdict(&[twice[0], twice[1], get(7, 8, 8)]), Verdict::Explained);
        let flips = [twice[0], twice[1], get(7, 8, 8), get(9, 10, 7)];
        assert_eq!(verdict(&flips), IMPOSSIBLE);
    }

    #[test]
    fn a_search_ends() {
        let all: Vec<Event> = (0..40).map(|n| made(n, 100 + n, n)).collect();
        assert_eq!(check(&all, &mut 1_000), Verdict::Impossible(1));
        let wide: Vec<Event> = (0..100)
            .map(|n| did(n, 1_000, Saw::There(Some(n), None), Some(State::Absent)))
            .collect();
        assert_eq!(check(&wide, &mut 100_000), Verdict::TooWide);
    }
}
