//! The comparing half.

use super::log::{History, Log, State, Thing};
use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use anyhow::{Context, Result, bail};
use pando_net::Waiting;
use pando_types::{Cred, FileKind};
use pando_wire::{Answer, Op, Statement};
use std::path::Path;
use std::time::Duration;

pub fn run(args: &Args, log: &Path, allow_lost_tail: bool) -> Result<()> {
    let text = std::fs::read_to_string(log).with_context(|| format!("cannot read {}", log.display()))?;
    let log = Log::parse(&text)?;
    let dir = ClusterDir::of(args)?;
    let connection = Connection::open(&dir, Party::Client, Waiting::Blocking, Duration::from_secs(60))?;
    let mut wrong = log.wrong.clone();
    let mut lost = 0;
    for (task, history) in &log.tasks {
        let actual = connection
            .run(read(&connection, &log.name, *task))
            .with_context(|| format!("cannot read the directories of task {task}"))?;
        match judge(history, &actual, allow_lost_tail) {
            Ok(n) => lost += n,
            Err(why) => wrong.push(format!("task {task}: {why}")),
        }
    }
    let operations = log.acknowledged();
    if args.json {
        let report = serde_json::json!({
            "tasks": log.tasks.len(), "acknowledged": operations, "lost": lost, "wrong": wrong,
        });
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!(
            "{operations} acknowledged operations of {} tasks checked, {lost} lost",
            log.tasks.len()
        );
        wrong.iter().for_each(|w| println!("WRONG: {w}"));
    }
    if !wrong.is_empty() {
        bail!("{} tasks are not as acknowledged", wrong.len());
    }
    Ok(())
}

/// Is this what the history leads to? The operations after the last acknowledged one may or may not have
/// happened. Returns how many acknowledged ones are missing.
fn judge(history: &History, actual: &State, allow_lost_tail: bool) -> Result<usize, String> {
    let acked = history
        .steps
        .iter()
        .rposition(|(_, acked)| *acked)
        .map_or(0, |i| i + 1);
    let mut state = State::new();
    let mut seen = Vec::new();
    seen.push(state.clone());
    for (step, _) in &history.steps {
        step.apply(&mut state);
        seen.push(state.clone());
    }
    let first = if allow_lost_tail { 0 } else { acked };
    match seen
        .iter()
        .enumerate()
        .skip(first)
        .rev()
        .find(|(_, s)| *s == actual)
    {
        Some((n, _)) => Ok(acked.saturating_sub(n)),
        None => {
            let expected = &seen[acked];
            let missing: Vec<_> = expected
                .iter()
                .filter(|(k, t)| actual.get(*k) != Some(*t))
                .collect();
            let extra: Vec<_> = actual
                .iter()
                .filter(|(k, t)| expected.get(*k) != Some(*t))
                .collect();
            let last = history
                .steps
                .iter()
                .rev()
                .take(2)
                .map(|(s, a)| format!("{s} acked={a}"));
            // debug: for those who look into what was lost.
            let things = format!("expected but not there: {missing:?}; there but not expected: {extra:?}");
            Err(format!(
                "{things}; last steps: {}",
                last.collect::<Vec<_>>().join(", ")
            ))
        }
    }
}

async fn read(connection: &Connection, name: &str, task: u32) -> Result<State> {
    let (client, cred) = (&connection.client, Cred::root());
    let mut state = State::new();
    for side in 0..2u8 {
        let path = format!("/{name}/t{task}/{side}");
        let found = client.hold_path(&cred, path.as_bytes(), true).await?;
        let dir: Statement = found.entry.dir.context("not a directory")?;
        let mut listing = client.list(&cred, dir.clone(), true);
        loop {
            let page = listing.next_page().await?;
            if page.is_empty() {
                break;
            }
            for entry in page {
                let view = entry.view.context("a listing without entries")?;
                let is_dir = view.attr.kind == FileKind::Directory;
                let mut content = String::new();
                if !is_dir {
                    let op = Op::Open {
                        dir: dir.clone(),
                        name: entry.name.clone(),
                        want: 4,
                    };
                    if let Answer::Opened { data: Some(data), .. } = client.op(&cred, op).await? {
                        content = String::from_utf8_lossy(&data.0).into_owned();
                    }
                }
                let thing = Thing {
                    dir: is_dir,
                    perm: view.attr.perm.bits(),
                    content,
                };
                state.insert((side, entry.name.to_string()), thing);
            }
        }
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hammer::log::Step;

    #[test]
    fn what_was_acknowledged_must_be_there() {
        let create = |n: &str| Step::Create(0, n.to_owned());
        let history = History {
            steps: vec![(create("a"), true), (create("b"), true), (create("c"), false)],
        };
        let with = |names: &[&str]| {
            let mut s = State::new();
            names.iter().for_each(|n| create(n).apply(&mut s));
            s
        };
        assert_eq!(judge(&history, &with(&["a", "b"]), false), Ok(0));
        assert_eq!(judge(&history, &with(&["a", "b", "c"]), false), Ok(0));
        assert!(judge(&history, &with(&["a"]), false).is_err());
        assert_eq!(judge(&history, &with(&["a"]), true), Ok(1));
        assert!(judge(&history, &with(&["b"]), true).is_err());
    }
}
