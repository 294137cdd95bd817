//! Waiting until a plan is carried out, and what is said when it is not.

use super::waits::{self, Wait};
use super::{LOOK, Operator};
use crate::progress::{Progress, Unit};
use anyhow::Result;
use pando_cluster::ClusterMap;
use pando_types::ServerId;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// So long without any slot moving, and it is found out what may be the matter.
const ASK: Duration = Duration::from_secs(3);
/// Between two such questions.
const AGAIN: Duration = Duration::from_secs(1);
/// So long without any slot moving, and people are told.
const STILL: Duration = Duration::from_secs(10);
/// So long with a drained server that has nothing and stays, and people are told what it waits for.
const STAYING: Duration = Duration::from_secs(4);
/// So long without any slot moving when all that is left is damaged.
const IN_VAIN: Duration = Duration::from_secs(5);

/// How long somebody waits for a plan.
#[derive(clap::Args, Debug, Clone, Copy)]
pub struct Patience {
    /// Return once it has begun.
    #[arg(long)]
    pub no_wait: bool,
    /// Give up watching, with an error that says what stops it, when nothing has moved for so many seconds.
    /// The servers go on.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub patience: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            no_wait: false,
            patience: 60,
        }
    }
}

/// Nothing moves any more, and nobody waits for it here.
#[derive(Debug)]
pub struct Stopped {
    /// What for.
    waits: Vec<Wait>,
    text: String,
    /// How far it is, for scripts.
    outcome: Value,
}

/// For scripts: how far a plan is that is not waited for any more, if an error says that.
pub fn how_far(e: &anyhow::Error) -> Option<Value> {
    e.downcast_ref::<Stopped>().map(|stopped| stopped.outcome.clone())
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Stopped {}

/// How far it is, as somebody sees it who watches.
struct Watch {
    what: &'static str,
    id: Option<ServerId>,
    left: u64,
    /// When something moved last.
    moved: Instant,
    /// When it was asked last what is the matter.
    asked: Instant,
    told: BTreeSet<String>,
}

impl Operator {
    /// Waits until it is done, and tells what came of it.
    pub(super) fn follow(
        &self,
        what: &'static str,
        id: Option<ServerId>,
        before: &ClusterMap,
        patience: &Patience,
    ) -> Result<()> {
        let began = Instant::now();
        let waited = self.wait(what, id, patience);
        let outcome = self.outcome(what, id, before, began);
        self.tell_unless_stopped(outcome, waited)
    }

    /// Tells what came of it, or fails with what stops it.
    pub(super) fn tell_unless_stopped(&self, outcome: Value, waited: Result<(), Stopped>) -> Result<()> {
        let Err(mut why) = waited else {
            return self.tell(&outcome);
        };
        why.outcome = outcome;
        why.outcome["waits_for"] = why.waits.iter().map(Wait::json).collect();
        Err(why.into())
    }

    /// Shows how far it is until it is done: nothing is left to move, and `id` is there or has left. Fails
    /// when nothing has moved for long.
    pub(super) fn wait(
        &self,
        what: &'static str,
        id: Option<ServerId>,
        patience: &Patience,
    ) -> Result<(), Stopped> {
        let left = self.newest().to_move();
        let label = match what {
            "join" => "moving slots",
            "drain" => "draining",
            _ => "rebalancing",
        };
        let progress = Progress::new(label, Unit::Items, left.max(1));
        let now = Instant::now();
        let mut watch = Watch {
            what,
            id,
            left,
            moved: now,
            asked: now,
            told: BTreeSet::new(),
        };
        loop {
            let map = self.newest();
            let left = map.to_move();
            let there = id.filter(|id| what == "drain" && map.server(*id).is_some());
            if patience.no_wait || left == 0 && there.is_none() {
                break;
            }
            if left != watch.left {
                progress.add(watch.left.saturating_sub(left));
                (watch.left, watch.moved) = (left, Instant::now());
                watch.told.clear();
            }
            if watch.moved.elapsed() > ASK && watch.asked.elapsed() > AGAIN {
                self.look_closer(&map, &mut watch, patience, &progress)?;
            }
            std::thread::sleep(LOOK);
        }
        progress.finish();
        Ok(())
    }

    /// Nothing has moved for a while: asks why, says it, and gives up when that has lasted.
    fn look_closer(
        &self,
        map: &ClusterMap,
        watch: &mut Watch,
        patience: &Patience,
        progress: &Progress,
    ) -> Result<(), Stopped> {
        let found = waits::waits(map, &self.statuses(map));
        watch.asked = Instant::now();
        let still = watch.moved.elapsed();
        let over =
            still > Duration::from_secs(patience.patience) || still > IN_VAIN && waits::in_vain(map, &found);
        if over {
            progress.finish();
            let text = self.stopped(map, watch, &found);
            return Err(Stopped {
                waits: found,
                text,
                outcome: Value::Null,
            });
        }
        let soon = if watch.left == 0 { STAYING } else { STILL };
        if still > soon {
            for wait in found {
                let text = wait.text();
                if watch.told.insert(wait.kind()) {
                    progress.complain(&text);
                }
            }
        }
        Ok(())
    }

    /// Why it does not go on, and what to do.
    fn stopped(&self, map: &ClusterMap, watch: &Watch, found: &[Wait]) -> String {
        let seconds = watch.moved.elapsed().as_secs();
        let mut text = match (watch.left, watch.id) {
            (0, Some(id)) => format!("server {id} has no slots left, and has not left for {seconds} s:"),
            (1, _) => format!("1 slot is still to move, and nothing has moved for {seconds} s:"),
            (n, _) => format!("{n} slots are still to move, and nothing has moved for {seconds} s:"),
        };
        if found.is_empty() {
            text.push_str("\n  servers do not say why; their logs may");
        }
        for wait in found {
            text.push_str(&format!("\n  {}", wait.text()));
            if let Some((server, slots)) = wait.damaged() {
                let slots: Vec<u16> = slots.iter().filter_map(|s| u16::try_from(*s).ok()).collect();
                text.push_str(&self.damaged_paths(map, server, &slots));
            }
        }
        text.push_str("\nThe plan stays, and the servers go on with what can move. ");
        text.push_str(&match (watch.what, watch.id) {
            ("drain", Some(id)) => format!("`pando drain {id} --cancel` puts it back."),
            ("join", _) => "`pando join --cancel` puts it back.".into(),
            _ => "`pando rebalance --cancel` puts it back.".into(),
        });
        if found.iter().any(|w| w.damaged().is_some()) {
            text.push_str(
                " Then `pando fsck` says what is damaged, and `pando fsck --repair` puts right what needs no guess. What can be read \
                 is taken out by `pando dump`, and put into a new filesystem by `pando load`.",
            );
        }
        text
    }

    /// How it is now. What has moved is told by the map from before it was asked for: some may have by the
    /// time anybody looks.
    pub(super) fn outcome(
        &self,
        what: &str,
        id: Option<ServerId>,
        before: &ClusterMap,
        began: Instant,
    ) -> Value {
        let map = self.newest();
        let moved = before
            .slots
            .iter()
            .zip(&map.slots)
            .filter(|(a, b)| a != b)
            .count();
        let slots = |s: ServerId| map.slots.iter().filter(|o| **o == s).count();
        let servers: Vec<_> = map
            .servers
            .iter()
            .map(|s| json!({ "server": s.id.0, "slots": slots(s.id) }))
            .collect();
        json!({
            "did": what, "server": id.map(|id| id.0), "epoch": map.epoch.0, "moved": moved,
            "to_move": map.to_move(), "leaving": map.plan.leaving.iter().map(|s| s.0).collect::<Vec<_>>(),
            "seconds": began.elapsed().as_secs_f64(), "servers": servers,
        })
    }

    pub(super) fn tell(&self, outcome: &Value) -> Result<()> {
        if self.json {
            println!("{}", serde_json::to_string_pretty(outcome)?);
            return Ok(());
        }
        match outcome["to_move"].as_u64() {
            Some(0) => println!(
                "{} slots have moved in {:.1} s.",
                outcome["moved"],
                outcome["seconds"].as_f64().unwrap_or_default()
            ),
            _ => println!(
                "{} slots are to move; `pando map` shows which, `pando status` how far it is.",
                outcome["to_move"]
            ),
        }
        Ok(())
    }
}
