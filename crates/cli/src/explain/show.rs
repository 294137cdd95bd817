//! How it is told: for people, and for scripts.

use super::{Step, Told, words};
use crate::connect::Connection;
use crate::text::{printable, put_bytes, table};
use pando_client::explain::{Exchange, Explained, How, Passed};
use pando_cluster::ClusterMap;
use pando_types::{Part, ServerId};
use pando_wire::{Account, Errand};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

/// What all steps together took.
struct Sum {
    round_trips: u32,
    /// Servers the client asked.
    asked: BTreeSet<ServerId>,
    /// Servers those asked.
    in_turn: BTreeSet<ServerId>,
    /// Messages between servers.
    between: u64,
    took: Duration,
    /// Waiting for locks and for syncs, on all servers, in microseconds.
    locks: u64,
    syncs: u64,
}

fn accounts(explained: &Explained) -> impl Iterator<Item = &Account> {
    explained.messages.iter().filter_map(|m| m.account.as_ref())
}

fn errands(explained: &Explained) -> impl Iterator<Item = &Errand> {
    accounts(explained).flat_map(|a| &a.errands)
}

impl Sum {
    fn of<'a>(steps: impl Iterator<Item = &'a Explained> + Clone) -> Sum {
        let messages = || steps.clone().flat_map(|e| &e.messages);
        let (all, sent) = (
            || steps.clone().flat_map(accounts),
            || steps.clone().flat_map(errands),
        );
        Sum {
            round_trips: steps.clone().map(Explained::rounds).sum(),
            asked: messages().map(|m| m.to).collect(),
            in_turn: sent().map(|e| e.to).collect(),
            between: all()
                .map(|a| a.errands.len() as u64 + u64::from(a.unlisted))
                .sum(),
            took: steps.clone().map(|e| e.took).sum(),
            locks: all().map(|a| a.locks).sum::<u64>() + sent().map(|e| e.locks).sum::<u64>(),
            syncs: all().map(|a| a.syncs).sum::<u64>() + sent().map(|e| e.syncs).sum::<u64>(),
        }
    }

    fn servers(&self) -> BTreeSet<ServerId> {
        self.asked.union(&self.in_turn).copied().collect()
    }
}

/// Components that were not known.
fn asked(explained: &Explained) -> usize {
    let components = explained.components.iter();
    components.filter(|c| c.how != How::Cached).count()
}

/// The part of its directory that a component is in, as far as the client was told. It knows that of what it
/// asked for.
fn part_of(explained: &Explained, component: &Passed) -> Part {
    let asked = explained
        .messages
        .iter()
        .rev()
        .flat_map(|m| words::places(&m.request));
    let of_it =
        |(part, name): &(Part, Option<&_>)| part.dir == component.dir && *name == Some(&component.name);
    asked
        .into_iter()
        .find(of_it)
        .map_or(component.dir.into(), |(part, _)| part)
}

fn refusals(explained: &Explained) -> Vec<&'static str> {
    let refused = |m: &Exchange| match &m.answer {
        Some(Ok(Err(why))) => Some(words::refusal(why)),
        _ => None,
    };
    explained.messages.iter().filter_map(refused).collect()
}

fn numbers(servers: &BTreeSet<ServerId>) -> String {
    let numbers: Vec<String> = servers.iter().map(|s| s.0.to_string()).collect();
    match numbers.len() {
        0 => "nobody".into(),
        1 => format!("server {}", numbers[0]),
        _ => format!("servers {}", numbers.join(", ")),
    }
}

fn many(n: u64, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}

fn ms(micros: u64) -> String {
    format!("{:.2}", micros as f64 / 1000.0)
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}

/// For people.
pub fn text(conn: &Connection, told: &Told) -> String {
    let map = conn.client.map();
    let sum = Sum::of(told.steps.iter().map(|s| &s.explained));
    let to = told
        .to
        .as_ref()
        .map_or(String::new(), |to| format!(" {}", printable(to)));
    let outcome = match told.outcome {
        Ok(()) => "done".into(),
        Err(e) => e.to_string(),
    };
    let mut out = format!(
        "{} {}{to}: {outcome}, {} in {} ms\nThe client asked {}; they asked {}.\n",
        told.op.name(),
        printable(&told.path),
        many(sum.round_trips.into(), "round trip"),
        ms(micros(sum.took)),
        numbers(&sum.asked),
        match sum.between {
            0 => "nobody".into(),
            n => format!("{} ({})", numbers(&sum.in_turn), many(n, "message")),
        },
    );
    for step in &told.steps {
        if told.steps.len() > 1 {
            let _ = writeln!(
                out,
                "\n{}: {} in {} ms",
                step.name,
                many(step.explained.rounds().into(), "round trip"),
                ms(micros(step.explained.took))
            );
        }
        write_step(&mut out, &map, step);
    }
    let untold = told.steps.iter().all(|s| accounts(&s.explained).next().is_none());
    let _ = match untold {
        true => writeln!(out, "\nServers told nothing of their part."),
        false => writeln!(
            out,
            "\nServers waited {} ms for locks, and {} ms until something was durable.",
            ms(sum.locks),
            ms(sum.syncs)
        ),
    };
    out
}

/// A component in the table of them.
fn component(map: &ClusterMap, explained: &Explained, passed: &Passed) -> Vec<String> {
    let slot = part_of(explained, passed).slot();
    vec![
        words::name(passed.dir, &passed.name),
        map.owner(slot).0.to_string(),
        slot.0.to_string(),
        words::how(passed.how).into(),
    ]
}

fn write_step(out: &mut String, map: &ClusterMap, step: &Step) {
    let explained = &step.explained;
    if !explained.components.is_empty() {
        let rows = explained.components.iter().map(|c| component(map, explained, c));
        let head = ["component", "on server", "slot", "known"];
        let _ = write!(out, "\n{}", table(&head, &rows.collect::<Vec<_>>()));
    }
    if explained.messages.is_empty() {
        out.push_str("\nNo messages.\n");
        return;
    }
    let mut rows = Vec::new();
    for m in &explained.messages {
        let account = m.account.as_ref();
        let of = |f: fn(&Account) -> u64| account.map_or("-".into(), |a| ms(f(a)));
        rows.push(vec![
            m.round.to_string(),
            "client".into(),
            m.to.0.to_string(),
            words::message(&m.request),
            words::basis(&m.request),
            words::answer(m),
            ms(micros(m.took)),
            of(|a| a.locks),
            of(|a| a.syncs),
        ]);
        for e in account.iter().flat_map(|a| &a.errands) {
            let waited = e.end != pando_wire::ErrandEnd::Later;
            let of = |micros| if waited { ms(micros) } else { "-".into() };
            rows.push(vec![
                String::new(),
                format!("server {}", m.to.0),
                e.to.0.to_string(),
                words::task(e.what).into(),
                "-".into(),
                words::end(&e.end),
                of(e.took),
                of(e.locks),
                of(e.syncs),
            ]);
        }
        if let Some(a) = account.filter(|a| a.unlisted > 0) {
            let more = many(a.unlisted.into(), "further message");
            rows.push(
                [&["", "", "", &more][..], &[""; 5]]
                    .concat()
                    .into_iter()
                    .map(String::from)
                    .collect(),
            );
        }
    }
    let head = [
        "trip", "from", "to", "what", "rests on", "answer", "ms", "locks", "syncs",
    ];
    let _ = write!(out, "\n{}", table(&head, &rows));
    let stats = &explained.stats;
    let _ = write!(
        out,
        "\nComponents known: {}, asked for: {}. Guesses: {}, right: {}. Tries that were repeated: {}",
        stats.cached,
        asked(explained),
        stats.guesses,
        stats.guessed,
        stats.retries
    );
    let refused = refusals(explained);
    if !refused.is_empty() {
        let _ = write!(out, ", refused: {}", refused.join(", "));
    }
    let again: u32 = accounts(explained).map(|a| a.again).sum();
    if again > 0 {
        let _ = write!(out, ", by servers: {again}");
    }
    if !explained.paused.is_zero() {
        let _ = write!(out, ", after pauses of {} ms", ms(micros(explained.paused)));
    }
    out.push_str(".\n");
}

/// For scripts.
pub fn json(conn: &Connection, told: &Told) -> Value {
    let map = conn.client.map();
    let sum = Sum::of(told.steps.iter().map(|s| &s.explained));
    let mut object = Map::new();
    object.insert("op".into(), told.op.name().into());
    put_bytes(&mut object, "path", &told.path);
    if let Some(to) = &told.to {
        put_bytes(&mut object, "to", to);
    }
    object.insert("ok".into(), told.outcome.is_ok().into());
    if let Err(e) = told.outcome {
        object.insert("error".into(), e.to_string().into());
    }
    put_sum(&mut object, &sum);
    let steps = told.steps.iter().map(|s| step_json(&map, s));
    object.insert("steps".into(), steps.collect());
    Value::Object(object)
}

fn put_sum(object: &mut Map<String, Value>, sum: &Sum) {
    let list = |servers: &BTreeSet<ServerId>| servers.iter().map(|s| Value::from(s.0)).collect::<Value>();
    object.insert("round_trips".into(), sum.round_trips.into());
    object.insert("us".into(), micros(sum.took).into());
    object.insert("servers".into(), list(&sum.servers()));
    object.insert("servers_asked".into(), list(&sum.asked));
    object.insert("servers_in_turn".into(), list(&sum.in_turn));
    object.insert("messages_between_servers".into(), sum.between.into());
    object.insert("lock_wait_us".into(), sum.locks.into());
    object.insert("sync_wait_us".into(), sum.syncs.into());
}

fn step_json(map: &ClusterMap, step: &Step) -> Value {
    let (explained, stats) = (&step.explained, &step.explained.stats);
    let mut object = Map::new();
    object.insert("step".into(), step.name.clone().into());
    put_sum(&mut object, &Sum::of(std::iter::once(explained)));
    let components = explained.components.iter().map(|c| {
        let mut object = Map::new();
        put_bytes(&mut object, "name", c.name.as_bytes());
        let part = part_of(explained, c);
        let slot = part.slot();
        object.insert("in".into(), c.dir.to_string().into());
        put_part(&mut object, part);
        object.insert("slot".into(), slot.0.into());
        object.insert("server".into(), map.owner(slot).0.into());
        object.insert("known".into(), words::how(c.how).into());
        if let Some(found) = c.found {
            object.insert("directory_id".into(), found.to_string().into());
        }
        Value::Object(object)
    });
    object.insert("components".into(), components.collect());
    let messages = explained.messages.iter().map(|m| message_json(map, m));
    object.insert("messages".into(), messages.collect());
    object.insert("cached".into(), stats.cached.into());
    object.insert("asked".into(), asked(explained).into());
    object.insert("guesses".into(), stats.guesses.into());
    object.insert("guessed_right".into(), stats.guessed.into());
    object.insert("retries".into(), stats.retries.into());
    object.insert("refusals".into(), refusals(explained).into());
    object.insert("paused_us".into(), micros(explained.paused).into());
    Value::Object(object)
}

/// Which part of a directory, if it is split.
fn put_part(object: &mut Map<String, Value>, part: Part) {
    if part.start() != 0 {
        object.insert("part".into(), part.start().into());
    }
}

fn message_json(map: &ClusterMap, m: &Exchange) -> Value {
    let places = words::places(&m.request).into_iter().map(|(part, name)| {
        let mut object = Map::new();
        object.insert("in".into(), part.dir.to_string().into());
        put_part(&mut object, part);
        object.insert("slot".into(), part.slot().0.into());
        object.insert("server".into(), map.owner(part.slot()).0.into());
        if let Some(name) = name {
            put_bytes(&mut object, "name", name.as_bytes());
        }
        Value::Object(object)
    });
    let statements = words::statements(&m.request).map(|s| {
        json!({
            "directory_id": s.id.to_string(), "scope": words::scope(s.scope), "rests_on": s.way.len(), "at": s.at.0,
        })
    });
    json!({
        "round_trip": m.round, "server": m.to.0, "what": words::kind(&m.request), "about": places.collect::<Vec<_>>(),
        "statements": statements.collect::<Vec<_>>(), "answer": words::answer(m), "at_us": micros(m.at), "us": micros(m.took),
        "account": m.account.as_ref().map(account_json),
    })
}

fn account_json(account: &Account) -> Value {
    let errands = account.errands.iter().map(|e| {
        json!({
            "server": e.to.0, "what": words::task(e.what), "answer": words::end(&e.end), "at_us": e.at, "us": e.took,
            "lock_wait_us": e.locks, "sync_wait_us": e.syncs,
        })
    });
    json!({
        "us": account.took, "lock_wait_us": account.locks, "sync_wait_us": account.syncs, "begun_again": account.again,
        "rounds": account.rounds(), "errands": errands.collect::<Vec<_>>(), "unlisted": account.unlisted,
    })
}
