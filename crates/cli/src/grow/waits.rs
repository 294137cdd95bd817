//! What a plan that is under way waits for: which slots, of which server, why, and what to do about it.

use pando_cluster::ClusterMap;
use pando_types::ServerId;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// So many tries of all slots that are left have found damage, and trying goes on for nothing.
const TRIES: u64 = 2;

/// One thing that is waited for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// Which server has the slots, or is to say something.
    server: ServerId,
    /// How many slots wait for it; 0: the server itself does.
    slots: u64,
    /// Some of them.
    some: Vec<u64>,
    why: Why,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Why {
    /// The server does not answer.
    Down,
    /// It does, and acts on nothing.
    NotReady,
    /// So many mounts and programs have yet to say there what they have open.
    Keepers(u64),
    /// It has so many transactions in doubt, or not confirmed by all.
    InDoubt(u64),
    /// What it is to give cannot be read.
    Damaged { error: String, tries: u64 },
    /// Where the slots are to go nobody answers.
    ReceiverDown(u64),
    /// The receiver has no room.
    ReceiverFull { to: u64, available: u64 },
    /// The receiver takes nothing.
    ReceiverRefuses(u64),
    /// A lock is held there, or a transaction is in doubt.
    Busy,
    /// The coordinator has yet to put it into the map.
    Map(ServerId),
}

/// What the plan of a map waits for, by what servers say of themselves.
pub fn waits(map: &ClusterMap, statuses: &[Value]) -> Vec<Wait> {
    let of = |id: u64| statuses.iter().find(|s| s["server"].as_u64() == Some(id));
    let mut all = Vec::new();
    for server in map.servers.iter().map(|s| s.id) {
        let slots = map.moves_from(server).count() as u64;
        let stays = map.is_leaving(server) && !map.slots.contains(&server);
        if slots == 0 && !stays {
            continue;
        }
        let wait = |slots: u64, why: Why| Wait {
            server,
            slots,
            some: Vec::new(),
            why,
        };
        let said = of(u64::from(server.0)).filter(|s| answers(s));
        let Some(said) = said else {
            all.push(wait(slots, Why::Down));
            continue;
        };
        let count = |field: &str| said[field].as_u64().unwrap_or(0);
        if said["ready"] == false {
            all.push(wait(slots, Why::NotReady));
        } else if slots > 0 && count("keepers_awaited") > 0 {
            all.push(wait(slots, Why::Keepers(count("keepers_awaited"))));
        } else if slots == 0 && count("prepared") + count("deciding") > 0 {
            all.push(wait(0, Why::InDoubt(count("prepared") + count("deciding"))));
        }
        if count("handing_over") > 0 {
            all.push(wait(count("handing_over"), Why::Map(map.coordinator)));
        }
        for group in said["stuck"].as_array().into_iter().flatten() {
            let to = group["to"].as_u64().unwrap_or(0);
            let some = group["some"].as_array().into_iter().flatten();
            all.push(Wait {
                server,
                slots: group["slots"].as_u64().unwrap_or(0),
                some: some.filter_map(Value::as_u64).collect(),
                why: why(group, to, of(to)),
            });
        }
    }
    all
}

/// Whether a server said anything.
fn answers(said: &Value) -> bool {
    said.get("boot").is_some()
}

/// Why slots are stuck, by the word of their owner and of whom they are to go to.
fn why(group: &Value, to: u64, receiver: Option<&Value>) -> Why {
    let there = receiver.filter(|s| answers(s));
    match (group["why"].as_str(), there) {
        (Some("damaged"), _) => Why::Damaged {
            error: group["error"].as_str().unwrap_or("damaged").into(),
            tries: group["tries"].as_u64().unwrap_or(0),
        },
        (Some("busy"), _) => Why::Busy,
        (_, None) => Why::ReceiverDown(to),
        (_, Some(said)) if said["low_on_space"] == true => Why::ReceiverFull {
            to,
            available: said["space_available"].as_u64().unwrap_or(0),
        },
        (_, Some(_)) => Why::ReceiverRefuses(to),
    }
}

/// Whether nothing that is left to move can, by anything that passes by itself.
pub fn in_vain(map: &ClusterMap, waits: &[Wait]) -> bool {
    let damaged = |w: &&Wait| matches!(&w.why, Why::Damaged { tries, .. } if *tries >= TRIES);
    let lost: u64 = waits.iter().filter(damaged).map(|w| w.slots).sum();
    lost > 0 && lost >= map.to_move()
}

impl Wait {
    /// Slots that are damaged, with the server that has them.
    pub fn damaged(&self) -> Option<(ServerId, &[u64])> {
        matches!(self.why, Why::Damaged { .. }).then_some((self.server, &self.some))
    }

    /// Two of the same kind say the same but for numbers.
    pub fn kind(&self) -> String {
        let said = self.json();
        format!("{} {} {}", said["server"], said["why"], said["for_server"])
    }

    /// In words, what to do about it included.
    pub fn text(&self) -> String {
        let server = self.server;
        let which = match (self.slots, &self.some[..]) {
            (1, [slot]) => format!("slot {slot} of server {server}"),
            (1, _) => format!("1 slot of server {server}"),
            (n, []) => format!("{n} slots of server {server}"),
            (n, some) => {
                let shown: Vec<String> = some.iter().take(8).map(u64::to_string).collect();
                let more = if n > shown.len() as u64 { ", ..." } else { "" };
                format!("{n} slots of server {server} ({}{more})", shown.join(", "))
            }
        };
        let verb = if self.slots == 1 { "waits" } else { "wait" };
        match &self.why {
            Why::Down if self.slots == 0 => format!(
                "server {server} has no slots left and does not answer: start it (`pando up`), also if it never ran; it must say \
                 itself that nobody needs it any more"
            ),
            Why::Down => {
                format!("{which} {verb} for server {server}, which does not answer: start it (`pando up`)")
            }
            Why::NotReady => {
                format!(
                    "server {server} runs and acts on nothing: it waits for the coordinator (`pando status`)"
                )
            }
            Why::Keepers(n) => format!(
                "{which} {verb} for {n} programs or mounts to say what they have open there; it waits a minute for them at most"
            ),
            Why::InDoubt(n) => format!(
                "server {server} has no slots left and waits for {n} transactions in which others may need it: see that all servers run"
            ),
            Why::Damaged { error, .. } => format!("{which} cannot be read: {error}"),
            Why::ReceiverDown(to) => {
                format!("{which} {verb} for server {to}, which does not answer: start it (`pando up`)")
            }
            Why::ReceiverFull { to, available } => format!(
                "{which} {verb} for space on server {to}, which is low on it ({} left): make room there, or add servers by `pando \
                 join --another`",
                crate::text::human(*available)
            ),
            Why::ReceiverRefuses(to) => {
                format!("{which} {verb} for server {to}, which does not take them now; its log says why")
            }
            Why::Busy => {
                format!("{which} {verb} for transactions there that are in doubt: see that all servers run")
            }
            Why::Map(coordinator) => {
                format!("{which} {verb} for the coordinator (server {coordinator}) to change the map")
            }
        }
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        let (word, to) = match &self.why {
            Why::Down => ("down", None),
            Why::NotReady => ("not-ready", None),
            Why::Keepers(_) => ("keepers", None),
            Why::InDoubt(_) => ("in-doubt", None),
            Why::Damaged { .. } => ("damaged", None),
            Why::ReceiverDown(to) => ("receiver-down", Some(*to)),
            Why::ReceiverFull { to, .. } => ("receiver-full", Some(*to)),
            Why::ReceiverRefuses(to) => ("receiver-refuses", Some(*to)),
            Why::Busy => ("busy", None),
            Why::Map(coordinator) => ("map", Some(u64::from(coordinator.0))),
        };
        json!({
            "server": self.server.0, "slots": self.slots, "some": self.some, "why": word, "for_server": to, "text": self.text(),
        })
    }
}

/// What is under way, in one line; none if nothing is.
pub fn under_way(map: &ClusterMap) -> Option<String> {
    let mut what: Vec<String> = Vec::new();
    for id in &map.plan.leaving {
        what.push(format!("server {id} is drained"));
    }
    let owners = map.staying().flat_map(|owner| map.moves_from(owner));
    let gets: BTreeSet<ServerId> = owners.map(|(_, to)| to).collect();
    if !gets.is_empty() {
        let to: Vec<String> = gets.iter().map(ServerId::to_string).collect();
        what.push(format!(
            "a join or rebalance gives slots to server {}",
            to.join(", ")
        ));
    }
    let left = map.to_move();
    (!what.is_empty()).then(|| format!("Under way: {}; {left} slots are to move.", what.join("; ")))
}

/// All of it as a field of a status.
pub fn to_json(map: &ClusterMap, waits: &[Wait]) -> Value {
    let leaving: Vec<u16> = map.plan.leaving.iter().map(|s| s.0).collect();
    let all: Vec<Value> = waits.iter().map(Wait::json).collect();
    json!({ "to_move": map.to_move(), "leaving": leaving, "waits_for": all })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draining(server: u16) -> ClusterMap {
        let map = crate::grow::tests::map(3);
        map.with_drained(ServerId(server)).expect("there are others")
    }

    fn well(server: u16, more: Value) -> Value {
        let mut said =
            json!({ "server": server, "boot": 1, "ready": true, "keepers_awaited": 0, "stuck": [] });
        for (field, value) in more.as_object().expect("fields") {
            said[field] = value.clone();
        }
        said
    }

    #[test]
    fn nothing_under_way_waits_for_nothing() {
        let map = crate::grow::tests::map(3);
        assert_eq!(waits(&map, &[]), []);
        assert_eq!(under_way(&map), None);
        let all = [well(0, json!({})), well(1, json!({})), well(2, json!({}))];
        assert_eq!(waits(&draining(0), &all), [], "it moves");
        assert!(under_way(&draining(0)).is_some_and(|t| t.contains("server 0 is drained; 1366 slots")));
    }

    #[test]
    fn damage_is_named_and_in_vain() {
        let mut map = draining(0);
        let stuck = |tries| json!({ "stuck": [{ "why": "damaged", "to": 1, "slots": 1, "some": [441], "tries": tries, "for_s": 9, "error": "a checksum" }] });
        let said = [well(0, stuck(2)), well(1, json!({})), well(2, json!({}))];
        let found = waits(&map, &said);
        assert_eq!(found[0].text(), "slot 441 of server 0 cannot be read: a checksum");
        assert_eq!(found[0].damaged(), Some((ServerId(0), &[441][..])));
        assert!(!in_vain(&map, &found), "others can move");
        let left = map.plan.moves.last().copied().expect("moves");
        map.plan.moves = vec![pando_cluster::SlotMove {
            first: pando_types::Slot(left.after.0 - 1),
            ..left
        }];
        assert!(in_vain(&map, &found));
        assert!(!in_vain(&map, &waits(&map, &[well(0, stuck(1))])));
    }

    #[test]
    fn a_receiver_is_said_by_name() {
        let map = draining(0);
        let stuck = |why: &str| json!({ "stuck": [{ "why": why, "to": 2, "slots": 3, "some": [1, 2, 3], "tries": 9, "for_s": 9 }] });
        let text = |why: &str, receiver: Value| {
            let said = [well(0, stuck(why)), receiver];
            waits(&map, &said)[0].text()
        };
        assert!(text("silent", json!({ "server": 2 })).contains("wait for server 2, which does not answer"));
        let full = well(2, json!({ "low_on_space": true, "space_available": 1024 }));
        assert!(text("refused", full).contains("space on server 2"));
        assert!(text("refused", well(2, json!({}))).contains("server 2, which does not take them"));
        assert!(text("busy", well(2, json!({}))).contains("in doubt"));
        let down = waits(&map, &[json!({ "server": 0 })]);
        assert!(
            down[0]
                .text()
                .contains("1366 slots of server 0 wait for server 0")
        );
    }
}
