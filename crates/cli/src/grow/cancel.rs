//! `--cancel` of `drain`, `join` and `rebalance`: the plan is put back. What has moved by then is where it
//! is.

use super::{JoinArgs, Operator, Refused};
use crate::args::Args;
use anyhow::{Result, bail};
use pando_cluster::ClusterMap;
use pando_types::{MapEpoch, ServerId};
use pando_wire::{ClusterError, ClusterRequest};
use std::time::{Duration, Instant};

/// So long servers may take to hear of the map by which nothing moves; who does not hear it by then hears it
/// later.
const HEARD: Duration = Duration::from_secs(5);

/// A server that is being drained stays, with the slots that it still has.
pub fn drain(args: &Args, id: ServerId) -> Result<()> {
    let operator = Operator::new(args)?;
    let (before, began) = (operator.in_force()?, Instant::now());
    if let Err(e) = operator.ask(ClusterRequest::KeepServer(id)) {
        let gone = matches!(e.downcast_ref(), Some(Refused(ClusterError::Unknown(gone))) if *gone == id);
        if gone && operator.newest().has_left(id) {
            bail!("server {id} has left: there is nothing to cancel. `pando join` adds a new one");
        }
        return Err(e);
    }
    operator.heard(before.epoch);
    let outcome = operator.outcome("drain --cancel", Some(id), &before, began);
    if operator.json {
        return operator.tell(&outcome);
    }
    let map = operator.newest();
    println!(
        "Server {id} stays, with {}; what has moved stays where it is (`pando rebalance` makes it even).",
        slots(owned(&map, id))
    );
    operator.tell_rest(&map);
    Ok(())
}

/// Slots of servers that stay move no further.
pub fn rebalance(args: &Args) -> Result<()> {
    let operator = Operator::new(args)?;
    let (before, began) = (operator.in_force()?, Instant::now());
    operator.ask(ClusterRequest::EndMoves)?;
    operator.heard(before.epoch);
    let outcome = operator.outcome("rebalance --cancel", None, &before, began);
    if operator.json {
        return operator.tell(&outcome);
    }
    let map = operator.newest();
    println!(
        "{} stay where they are; what has moved stays there (`pando rebalance` makes it even).",
        slots(before.to_move() - map.to_move().min(before.to_move()))
    );
    operator.tell_rest(&map);
    Ok(())
}

/// The server that has joined last gives back what it got, and leaves.
pub fn join(args: &Args, options: &JoinArgs) -> Result<()> {
    let operator = Operator::new(args)?;
    let map = operator.in_force()?;
    let Some(id) = joining(&map) else {
        bail!(
            "no server is joining: `pando drain N` takes one away, `pando drain N --cancel` and `pando rebalance --cancel` put \
             other plans back"
        );
    };
    operator.say(&format!(
        "Server {id} has {} so far. It gives them back and leaves.",
        slots(owned(&map, id))
    ));
    operator.take_away(id, &options.patience)
}

/// Who is getting its first share of the slots: of those that slots are to move to the one with the highest
/// number, if no server has a higher one.
fn joining(map: &ClusterMap) -> Option<ServerId> {
    let newest = map.servers.iter().map(|s| s.id).max()?;
    let gets = map.plan.moves.iter().any(|m| m.to == newest);
    (gets && !map.is_leaving(newest)).then_some(newest)
}

fn owned(map: &ClusterMap, id: ServerId) -> u64 {
    map.slots.iter().filter(|owner| **owner == id).count() as u64
}

fn slots(n: u64) -> String {
    match n {
        1 => "1 slot".into(),
        n => format!("{n} slots"),
    }
}

impl Operator {
    /// Waits until all servers that answer know a newer map than this: until then some may do nothing with
    /// slots that they were about to hand over.
    fn heard(&self, before: MapEpoch) {
        let deadline = Instant::now() + HEARD;
        let behind = |said: &serde_json::Value| said["map_epoch"].as_u64().is_some_and(|e| e <= before.0);
        while Instant::now() < deadline && self.statuses(&self.newest()).iter().any(behind) {
            std::thread::sleep(super::LOOK);
        }
    }

    fn tell_rest(&self, map: &ClusterMap) {
        match map.to_move() {
            0 => {}
            n => println!(
                "Of other changes {} are on the move; `pando status` says how far that is.",
                slots(n)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_cluster::SlotMove;
    use pando_types::Slot;

    #[test]
    fn who_joins_is_the_newest_that_gets_slots() {
        let mut map = crate::grow::tests::map(3);
        assert_eq!(joining(&map), None);
        let run = |to| SlotMove {
            first: Slot(0),
            after: Slot(7),
            to: ServerId(to),
        };
        map.plan.moves = vec![run(1)];
        assert_eq!(joining(&map), None, "a rebalance");
        map.plan.moves = vec![run(2)];
        assert_eq!(joining(&map), Some(ServerId(2)));
        map.plan.leaving = vec![ServerId(2)];
        assert_eq!(joining(&map), None);
    }
}
