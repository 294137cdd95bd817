//! What clients asked for and were told, operation by operation, and whether some order explains it.
//!
//! The judge follows the order in which servers commit. This is the check of the checker: it sees nothing but
//! beginnings, ends and outcomes as programs have them, takes each name of each directory by itself, and two
//! names together where a rename joined them, and has [`crate::linear`] look for an order in which each
//! operation takes effect between its beginning and its end. Listings count as reads of all names in their
//! stretch.

use crate::linear::{Act, Event, KEYS, Maybe, Saw, State, Verdict, check};
use crate::nature::Nature;
use pando_format::{HashWidths, Position};
use pando_types::{Attr, DirId, Errno, Name};
use pando_wire::{Answer, EntryView, Fate, Op, Outcome, RenameMode, Statement};
use std::collections::{BTreeMap, BTreeSet};

/// How a finding of this checker begins.
pub const WORD: &str = "history: ";
/// Steps of the search for all of a seed. Most need a hundredth of it.
const BUDGET: u64 = 400_000;
/// Of them, for one history.
const EACH: u64 = 5_000;

/// One operation.
struct Call {
    op: Op,
    from: u64,
    to: u64,
    /// `None`: not answered, or it is not known what the answer is worth.
    outcome: Option<Outcome>,
    /// Of how many parts, under numbers that follow this one, the operation is made: one for each name that
    /// is removed.
    parts: usize,
}

/// What was found so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    /// Histories for which an order was found.
    pub explained: u64,
    /// Of them, those of two names together.
    pub joined: u64,
    /// Operations in them.
    pub operations: u64,
    /// Histories that were given up.
    pub too_wide: u64,
}

/// A name of a directory, in one incarnation.
type Place = (u64, u64, Name);

/// The history of a seed.
pub struct History {
    /// Where names stand in listings.
    widths: HashWidths,
    /// Whether directories are split: then a name may be left to another request because it is in another
    /// part.
    splits: bool,
    clock: u64,
    next: u64,
    /// Since the last cut.
    calls: BTreeMap<u64, Call>,
    /// Names that others change whose operations are not recorded.
    ignored: BTreeSet<Name>,
    /// Steps that may still be made.
    left: u64,
    tally: Tally,
}

impl History {
    /// Of a filesystem with hashes of these widths.
    pub fn new(widths: HashWidths) -> History {
        History {
            widths,
            splits: false,
            clock: 0,
            next: 0,
            calls: BTreeMap::new(),
            ignored: BTreeSet::new(),
            left: BUDGET,
            tally: Tally::default(),
        }
    }

    /// Directories are split.
    pub fn in_parts(self, splits: bool) -> History {
        History { splits, ..self }
    }

    /// Nothing is said of these names.
    pub fn ignore(&mut self, names: &[&[u8]]) {
        self.ignored
            .extend(names.iter().filter_map(|n| Name::new(n).ok()));
    }

    /// A program asks for something.
    pub fn begin(&mut self, op: &Op) -> u64 {
        let first = self.next + 1;
        let parts = parts(op);
        for op in &parts {
            self.clock += 1;
            self.next += 1;
            let call = Call {
                op: op.clone(),
                from: self.clock,
                to: u64::MAX,
                outcome: None,
                parts: parts.len(),
            };
            self.calls.insert(self.next, call);
        }
        first
    }

    /// It is told what came of it. Of what nobody ever hears of, nothing is to be said.
    pub fn end(&mut self, call: u64, outcome: &Outcome) {
        self.clock += 1;
        if *outcome == Err(Errno::Unreachable) {
            return;
        }
        let parts = self.calls.get(&call).map_or(0, |c| c.parts);
        for (n, number) in (call..).take(parts).enumerate() {
            let outcome = match outcome {
                Ok(Answer::Fates(fates)) => {
                    let fate = fates.get(n).copied();
                    let says = |fate: &Fate| *fate != Fate::Alone || !self.splits;
                    Ok(Answer::Fates(fate.filter(says).into_iter().collect()))
                }
                whole => whole.clone(),
            };
            if let Some(c) = self.calls.get_mut(&number) {
                c.to = self.clock;
                c.outcome = Some(outcome);
            }
        }
    }

    /// Something was lost that was acknowledged (`async` may): what came before must be explained by itself.
    /// What was under way may have happened before or after, or have been lost.
    pub fn cut(&mut self) -> Result<(), String> {
        let result = self.judge();
        let open = |c: &Call| c.outcome.is_none() && c.op.mutates();
        let going_on = std::mem::take(&mut self.calls)
            .into_iter()
            .filter(|(_, c)| open(c));
        // Under other numbers: an answer that comes now may be of what was lost.
        for (_, call) in going_on.collect::<Vec<_>>() {
            self.next += 1;
            self.calls.insert(self.next, call);
        }
        result
    }

    /// What was found so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Looks for an order, name by name. `Err` if there is none.
    pub fn judge(&mut self) -> Result<(), String> {
        let sorted = Sorted {
            splits: self.splits,
            ..Sorted::of(&self.calls, &self.ignored, self.widths)
        };
        let mut windows: Vec<Vec<&Place>> = sorted.by_place.keys().map(|p| vec![p]).collect();
        windows.extend(sorted.joined.iter().map(|(a, b)| vec![a, b]));
        for places in windows {
            let mut attrs = Vec::new();
            let (calls, events) = sorted.events(&places, &mut attrs);
            let most = self.left.min(EACH);
            let mut budget = most;
            let verdict = check(&events, &mut budget);
            self.left -= most - budget;
            match verdict {
                Verdict::Explained => {
                    self.tally.explained += 1;
                    self.tally.joined += u64::from(places.len() > 1);
                    self.tally.operations += events.len() as u64;
                }
                Verdict::TooWide => self.tally.too_wide += 1,
                Verdict::Impossible(after) => return Err(complaint(&places, &calls, after)),
            }
        }
        Ok(())
    }
}

/// Which operations have no place, with those before and after them.
fn complaint(places: &[&Place], calls: &[&Call], after: u64) -> String {
    let names: Vec<String> = places
        .iter()
        .map(|(ino, _, name)| format!("{name} in directory {ino}"))
        .collect();
    let unplaced = calls.iter().position(|c| c.from >= after).unwrap_or(0);
    let shown = &calls[unplaced.saturating_sub(8)..(unplaced + 8).min(calls.len())];
    let lines: Vec<String> = shown
        .iter()
        .map(|c| {
            let to = match c.to {
                u64::MAX => "…".to_string(),
                to => to.to_string(),
            };
            let outcome: String = match &c.outcome {
                Some(o) => format!("{o:?}").chars().take(140).collect(),
                None => "no answer".into(),
            };
            format!(
                "[{}–{to}] {} = {outcome}",
                c.from,
                crate::words::describe_op(&c.op)
            )
        })
        .collect();
    format!(
        "{WORD}no order explains what clients saw of {} from {after} on: {}",
        names.join(" and "),
        lines.join("; ")
    )
}

/// Calls by the names they speak of.
struct Sorted<'a> {
    by_place: BTreeMap<Place, Vec<&'a Call>>,
    /// Pages of each directory.
    pages: BTreeMap<(u64, u64), Vec<&'a Call>>,
    /// Pairs of names that a rename joined.
    joined: BTreeSet<(Place, Place)>,
    widths: HashWidths,
    splits: bool,
}

impl<'a> Sorted<'a> {
    fn of(calls: &'a BTreeMap<u64, Call>, ignored: &BTreeSet<Name>, widths: HashWidths) -> Sorted<'a> {
        let mut sorted = Sorted {
            by_place: BTreeMap::new(),
            pages: BTreeMap::new(),
            joined: BTreeSet::new(),
            widths,
            splits: false,
        };
        for call in calls.values() {
            if let (Op::ReadDir { dir, .. }, Some(Ok(_))) = (&call.op, &call.outcome) {
                sorted.pages.entry(directory(dir)).or_default().push(call);
            }
            let places: Vec<Place> = places(&call.op)
                .into_iter()
                .flatten()
                .filter(|(_, _, name)| !ignored.contains(name))
                .collect();
            if let [a, b] = &places[..]
                && a != b
                && !matches!(call.outcome, Some(Err(_)))
            {
                sorted.joined.insert((a.clone(), b.clone()));
            }
            let both_one = places.len() == 2 && places[0] == places[1];
            for place in places.into_iter().skip(usize::from(both_one)) {
                sorted.by_place.entry(place).or_default().push(call);
            }
        }
        sorted
    }

    /// What is known of these names, in the order in which it was asked for.
    fn events(&self, places: &[&Place], attrs: &mut Vec<Attr>) -> (Vec<&'a Call>, Vec<Event>) {
        let mut calls: BTreeMap<u64, &Call> = BTreeMap::new();
        for place in places {
            let (ino, generation, _) = place;
            let direct = self.by_place.get(*place).into_iter().flatten();
            let pages = self.pages.get(&(*ino, *generation)).into_iter().flatten();
            calls.extend(direct.chain(pages).map(|c| (c.from, *c)));
        }
        let mut all: Vec<(&Call, Act)> = Vec::new();
        for call in calls.values() {
            let act = act(call, places, self.widths, attrs);
            let acts = act.into_iter().flat_map(|act| self.moments(call, act));
            all.extend(acts.map(|act| (*call, act)));
        }
        let events = all.iter().map(|(c, act)| Event {
            from: c.from,
            to: c.to,
            act: *act,
        });
        (all.iter().map(|(c, _)| *c).collect(), events.collect())
    }

    /// What happened at one moment each: two names of one page may be of two parts, which were listed one
    /// after the other.
    fn moments(&self, call: &Call, act: Act) -> Vec<Act> {
        let (Act::Did(saw, left), Nature::Lists, true) = (act, Nature::of(&call.op), self.splits) else {
            return vec![act];
        };
        let alone = |n: usize| {
            let mut one = [Saw::Nothing; KEYS];
            one[n] = saw[n];
            Act::Did(one, left)
        };
        (0..KEYS).filter(|n| saw[*n] != Saw::Nothing).map(alone).collect()
    }
}

/// What is said of each name apart: that many go at one moment is the judge's to check.
fn parts(op: &Op) -> Vec<Op> {
    if let Op::UnlinkMany { dir, names } = op {
        let each = names.iter().map(|name| Op::UnlinkMany {
            dir: dir.clone(),
            names: vec![name.clone()],
        });
        return each.collect();
    }
    vec![op.clone()]
}

fn directory(dir: &Statement) -> (u64, u64) {
    (dir.ino.0, dir.generation.0)
}

/// The names an operation speaks of, but for the root's.
fn places(op: &Op) -> [Option<Place>; 2] {
    let place = |dir: &Statement, name: &Name| {
        let (ino, generation) = directory(dir);
        // The home of a file is not a name of it.
        let named = dir.id != DirId::ABOVE_ROOT && !dir.id.is_homes();
        named.then(|| (ino, generation, name.clone()))
    };
    op.subjects().map(|s| {
        let subject = s?;
        place(subject.dir(), subject.first_name()?)
    })
}

/// What a call says of these names, if anything.
fn act(call: &Call, places: &[&Place], widths: HashWidths, attrs: &mut Vec<Attr>) -> Option<Act> {
    let at = |place: Option<Place>| places.iter().position(|p| place.as_ref() == Some(*p));
    let [first, second] = self::places(&call.op).map(at);
    let mut saw = [Saw::Nothing; KEYS];
    let mut left = [None; KEYS];
    let mut whole = |e: &EntryView| {
        // What has several names is changed under any of them.
        if e.home.is_some() {
            return (Some(e.attr.ino.0), None);
        }
        let known = attrs.iter().position(|a| *a == e.attr);
        let number = known.unwrap_or_else(|| {
            attrs.push(e.attr);
            attrs.len() - 1
        });
        (Some(e.attr.ino.0), Some(number as u32))
    };
    let outcome = match &call.outcome {
        None => return Some(Act::Perhaps(perhaps(&call.op, first, second)?)),
        Some(outcome) => outcome,
    };
    match Nature::of(&call.op) {
        Nature::Lists => {
            for (n, place) in places.iter().enumerate() {
                saw[n] = listed(&call.op, outcome, place, widths, &mut whole).unwrap_or(Saw::Nothing);
            }
        }
        Nature::Links => match outcome {
            Ok(Answer::Entry(e)) => {
                let (object, _) = whole(e);
                if let Some(n) = first {
                    (saw[n], left[n]) = (Saw::There(object, None), Some(State::There(object, None)));
                }
                if let Some(n) = second {
                    (saw[n], left[n]) = (Saw::Absent, Some(State::There(object, None)));
                }
            }
            Err(Errno::NotFound) => saw[first?] = Saw::Absent,
            Err(Errno::Exists) => saw[second?] = Saw::There(None, None),
            _ => return None,
        },
        Nature::Moves => {
            let Op::Rename { mode, .. } = &call.op else {
                return None;
            };
            match (outcome, mode) {
                // If both were names of it, nothing happened; else it moved.
                (Ok(Answer::Renamed { moved, other: None }), _) if moved.home.is_some() => {
                    return Some(Act::Perhaps(perhaps(&call.op, first, second)?));
                }
                (Ok(Answer::Renamed { moved, other }), _) => {
                    let (object, attr) = whole(moved);
                    match (first, second) {
                        // Both are one name: nothing happens.
                        (Some(a), Some(b)) if a == b => saw[a] = Saw::There(object, None),
                        (first, second) => {
                            let exchanged = other.as_ref().filter(|_| *mode == RenameMode::Exchange);
                            if let Some(n) = first {
                                saw[n] = Saw::There(object, None);
                                left[n] = Some(match exchanged {
                                    Some(e) => {
                                        let (object, attr) = whole(e);
                                        State::There(object, attr)
                                    }
                                    None => State::Absent,
                                });
                            }
                            if let Some(n) = second {
                                saw[n] = match other {
                                    Some(e) => Saw::There(Some(e.attr.ino.0), None),
                                    None => Saw::Absent,
                                };
                                left[n] = Some(State::There(object, attr));
                            }
                        }
                    }
                }
                (Err(Errno::NotFound), RenameMode::Replace | RenameMode::NoReplace) => {
                    saw[first?] = Saw::Absent;
                }
                (Err(Errno::Exists), _) => saw[second?] = Saw::There(None, None),
                _ => return None,
            }
        }
        Nature::Looks
        | Nature::LooksInto
        | Nature::Reads
        | Nature::Makes
        | Nature::Removes
        | Nature::Changes
        | Nature::Other => {
            let n = first?;
            (saw[n], left[n]) = single(&call.op, outcome, &mut whole)?;
        }
    }
    (saw != [Saw::Nothing; KEYS]).then_some(Act::Did(saw, left))
}

/// What a page of a listing shows of a name.
fn listed(
    op: &Op,
    outcome: &Outcome,
    (ino, generation, name): &Place,
    widths: HashWidths,
    whole: &mut impl FnMut(&EntryView) -> (Option<u64>, Option<u32>),
) -> Option<Saw> {
    let Op::ReadDir { dir, after, .. } = op else {
        return None;
    };
    let (entries, upto) = match outcome {
        Ok(Answer::Entries { entries, end: true }) => (entries, Some(Position::END)),
        Ok(Answer::Entries { entries, end: false }) => (entries, None),
        Ok(Answer::Part { entries, upto }) => (entries, Some(*upto)),
        _ => return None,
    };
    if (*ino, *generation) != directory(dir) {
        return None;
    }
    if let Some(e) = entries.iter().find(|e| e.name == *name) {
        let shown = e.view.as_deref().map(whole);
        let (object, attr) = shown.unwrap_or((Some(e.ino.0), None));
        return Some(Saw::There(object, attr));
    }
    // Names of one bucket are on one page.
    let bucket = widths.name(dir.salt, name);
    let begun = *after == Position::START || bucket > after.bucket();
    let told = upto.is_some_and(|upto| bucket <= upto.bucket());
    let absent = begun && (told || entries.last().is_some_and(|e| bucket <= e.position.bucket()));
    absent.then_some(Saw::Absent)
}

/// What an operation on one name saw there, and left.
fn single(
    op: &Op,
    outcome: &Outcome,
    whole: &mut impl FnMut(&EntryView) -> (Option<u64>, Option<u32>),
) -> Option<(Saw, Option<State>)> {
    let nature = Nature::of(op);
    let answer = match outcome {
        // An empty target of a symlink is ENOENT too.
        Err(Errno::NotFound) if nature == Nature::Makes => return None,
        Err(Errno::NotFound) => return Some((Saw::Absent, None)),
        Err(Errno::Exists | Errno::NotEmpty) => return Some((Saw::There(None, None), None)),
        Err(_) => return None,
        Ok(answer) => answer,
    };
    Some(match (nature, answer) {
        (Nature::Looks, Answer::Entry(e) | Answer::Opened { entry: e, .. })
        | (
            Nature::Makes,
            Answer::Opened {
                entry: e,
                created: false,
                ..
            },
        ) => {
            let (object, attr) = whole(e);
            (Saw::There(object, attr), None)
        }
        (Nature::Makes, Answer::Entry(e) | Answer::Opened { entry: e, .. }) => {
            let (object, attr) = whole(e);
            (Saw::Absent, Some(State::There(object, attr)))
        }
        (Nature::Removes, Answer::Removed(e)) => (Saw::There(Some(e.attr.ino.0), None), Some(State::Absent)),
        (Nature::Removes, Answer::Fates(fates)) => match fates[..] {
            [Fate::Gone] => (Saw::There(None, None), Some(State::Absent)),
            [Fate::Alone] => (Saw::There(None, None), None),
            [Fate::Not(Errno::NotFound)] => (Saw::Absent, None),
            _ => return None,
        },
        (Nature::Changes, Answer::Entry(e)) => {
            let (object, attr) = whole(e);
            (Saw::There(object, None), Some(State::There(object, attr)))
        }
        (Nature::LooksInto, _) => (Saw::There(Some(op.object()?.ino.0), None), None),
        (Nature::Reads, _) => (Saw::There(None, None), None),
        _ => return None,
    })
}

/// What an operation would do of which nobody knows whether it happened.
fn perhaps(op: &Op, first: Option<usize>, second: Option<usize>) -> Option<Maybe> {
    Some(match Nature::of(op) {
        Nature::Makes => Maybe::Make(first?),
        Nature::Links => Maybe::Make(second?),
        Nature::Removes => Maybe::Remove(first?),
        Nature::Changes => Maybe::Change(first?),
        Nature::Moves => {
            let exchanges = matches!(
                op,
                Op::Rename {
                    mode: RenameMode::Exchange,
                    ..
                }
            );
            match (first, second, exchanges) {
                (Some(a), Some(b), _) if a == b => return None,
                (Some(a), Some(b), true) => Maybe::Swap(a, b),
                (Some(a), Some(b), false) => Maybe::Move(a, b),
                (Some(a), None, false) => Maybe::Remove(a),
                (Some(a), None, true) => Maybe::Put(a),
                (None, Some(b), _) => Maybe::Put(b),
                (None, None, _) => return None,
            }
        }
        Nature::Looks | Nature::LooksInto | Nature::Reads | Nature::Lists | Nature::Other => return None,
    })
}
