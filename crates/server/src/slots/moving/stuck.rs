//! Slots that should have moved and could not: why, since when, and when they are tried again.

use pando_cluster::ClusterMap;
use pando_types::{Mono, ServerId, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

/// How long a slot with a damaged record is left alone, at first and at most: what is damaged stays so until
/// it is repaired.
const DAMAGED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Of what usually passes by itself nothing is logged before so many tries.
const PASSES: u32 = 8;
/// Slots of one cause that are told by number.
const SOME: usize = 16;

/// Why a slot stays for now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// Records of it cannot be read here.
    Damaged(String),
    /// The receiver does not answer.
    Silent,
    /// The receiver does not take it now: it has no room, or has not heard of the plan, or cannot read what
    /// it has.
    Refused,
    /// The receiver does not know the copy any more.
    Lost,
    /// A transaction in it is in doubt, or somebody has a lock there.
    Busy,
}

impl Cause {
    /// The word for it in the status of a server.
    fn word(&self) -> &'static str {
        match self {
            Cause::Damaged(_) => "damaged",
            Cause::Silent => "silent",
            Cause::Refused => "refused",
            Cause::Lost => "lost",
            Cause::Busy => "busy",
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cause::Damaged(why) => write!(f, "it cannot be read: {why}"),
            Cause::Silent => f.write_str("the receiver does not answer"),
            Cause::Refused => f.write_str("the receiver does not take it now"),
            Cause::Lost => f.write_str("the receiver does not know the copy any more"),
            Cause::Busy => f.write_str("a lock is held there, or a transaction is in doubt"),
        }
    }
}

struct Waiting {
    to: ServerId,
    cause: Cause,
    tries: u32,
    since: Mono,
}

/// All of a server.
#[derive(Default)]
pub(super) struct Stuck(BTreeMap<Slot, Waiting>);

/// Slots that wait for the same.
struct Group<'a> {
    slots: Vec<Slot>,
    first: &'a Waiting,
}

impl Stuck {
    /// These slots could not be moved, once more. How many tries that makes of the one that was tried most,
    /// if it is to be logged: the first time, and then ever more rarely.
    pub fn note(&mut self, slots: &BTreeSet<Slot>, to: ServerId, cause: &Cause, now: Mono) -> Option<u32> {
        let mut most = 0;
        for slot in slots {
            let waiting = self.0.entry(*slot).or_insert_with(|| Waiting {
                to,
                cause: cause.clone(),
                tries: 0,
                since: now,
            });
            if waiting.to != to || waiting.cause.word() != cause.word() {
                (waiting.tries, waiting.since) = (0, now);
            }
            (waiting.to, waiting.cause) = (to, cause.clone());
            waiting.tries = waiting.tries.saturating_add(1);
            most = most.max(waiting.tries);
        }
        let least = match cause {
            Cause::Damaged(_) => 1,
            Cause::Silent | Cause::Refused | Cause::Lost | Cause::Busy => PASSES,
        };
        (most >= least && most.is_power_of_two()).then_some(most)
    }

    /// How long a damaged slot is left alone: longer each time.
    pub fn pause(&self, slot: Slot) -> Duration {
        let tries = self.0.get(&slot).map_or(1, |w| w.tries).clamp(1, 8);
        (DAMAGED.0 * (1 << (tries - 1))).min(DAMAGED.1)
    }

    /// What has moved, or is not to move any more, waits for nothing.
    pub fn prune(&mut self, map: &ClusterMap, me: ServerId) {
        self.0
            .retain(|slot, w| map.owner(*slot) == me && map.destination(*slot) == Some(w.to));
    }

    fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for (slot, waiting) in &self.0 {
            let same =
                |g: &&mut Group<'_>| g.first.to == waiting.to && g.first.cause.word() == waiting.cause.word();
            match groups.iter_mut().find(same) {
                Some(group) => group.slots.push(*slot),
                None => groups.push(Group {
                    slots: vec![*slot],
                    first: waiting,
                }),
            }
        }
        groups
    }

    /// All of it as a list in JSON: by cause and receiver, how many slots and which, since when.
    pub fn json(&self, now: Mono) -> String {
        let mut all = String::from("[");
        for (n, group) in self.groups().iter().enumerate() {
            let w = group.first;
            let some: Vec<String> = group.slots.iter().take(SOME).map(Slot::to_string).collect();
            let _ = write!(
                all,
                "{}{{\"why\":\"{}\",\"to\":{},\"slots\":{},\"some\":[{}],\"tries\":{},\"for_s\":{}",
                if n > 0 { "," } else { "" },
                w.cause.word(),
                w.to,
                group.slots.len(),
                some.join(","),
                w.tries,
                now.since(w.since).as_secs(),
            );
            if let Cause::Damaged(error) = &w.cause {
                let _ = write!(all, ",\"error\":{}", quoted(error));
            }
            all.push('}');
        }
        all.push(']');
        all
    }
}

/// A text in JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(numbers: &[u16]) -> BTreeSet<Slot> {
        numbers.iter().copied().map(Slot).collect()
    }

    fn at(secs: u64) -> Mono {
        Mono::default().after(Duration::from_secs(secs))
    }

    #[test]
    fn the_same_is_logged_ever_more_rarely() {
        let mut stuck = Stuck::default();
        let damaged = Cause::Damaged("the checksum".into());
        let logged: Vec<u32> = (0..100)
            .filter_map(|n| stuck.note(&slots(&[7]), ServerId(2), &damaged, at(n)))
            .collect();
        assert_eq!(logged, [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(stuck.pause(Slot(7)), DAMAGED.1);
        // Another cause begins anew, and what passes by itself is not logged at once.
        let logged: Vec<u32> = (0..20)
            .filter_map(|n| stuck.note(&slots(&[7]), ServerId(2), &Cause::Silent, at(n)))
            .collect();
        assert_eq!(logged, [8, 16]);
    }

    #[test]
    fn pauses_grow() {
        let mut stuck = Stuck::default();
        let mut pauses = Vec::new();
        for n in 0..7 {
            stuck.note(&slots(&[1]), ServerId(2), &Cause::Damaged(String::new()), at(n));
            pauses.push(stuck.pause(Slot(1)).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn what_waits_is_told_by_cause() {
        let mut stuck = Stuck::default();
        let error = "a \"quoted\"\nline with \\";
        stuck.note(&slots(&[441]), ServerId(1), &Cause::Damaged(error.into()), at(3));
        stuck.note(&slots(&[5, 6, 7]), ServerId(2), &Cause::Refused, at(4));
        assert_eq!(
            stuck.json(at(9)),
            concat!(
                "[{\"why\":\"refused\",\"to\":2,\"slots\":3,\"some\":[5,6,7],\"tries\":1,\"for_s\":5},",
                "{\"why\":\"damaged\",\"to\":1,\"slots\":1,\"some\":[441],\"tries\":1,\"for_s\":6,",
                "\"error\":\"a \\\"quoted\\\"\\u000aline with \\\\\"}]"
            )
        );
        assert_eq!(Stuck::default().json(at(0)), "[]");
    }
}
