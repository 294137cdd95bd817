//! Growing and shrinking: which slots are to move where when a server joins, leaves or has too much.
//!
//! A plan stands in the map and changes nothing by itself: the owner of each slot moves it when it can, and
//! only a newer map says that it has. Plans are minimal: a join moves slots to the new server only, a drain
//! those of the drained one only, a rebalance as few as make it even.

use crate::{ClusterMap, MapError, ServerInfo};
use pando_format::codec_struct;
use pando_types::{MapEpoch, SLOTS, ServerId, Slot};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Most servers.
pub const SERVERS: usize = 1024;

/// A run of slots that are to move to one server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotMove {
    /// The first.
    pub first: Slot,
    /// The one after the last.
    pub after: Slot,
    /// Where to.
    pub to: ServerId,
}

/// What is to become of the map.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Epoch of the map in which it was made. What was asked under another plan is void.
    pub made: MapEpoch,
    /// No server ever had this number or a higher one: late messages of one that left must not be taken for
    /// another's.
    pub next: ServerId,
    /// Servers that get no slots any more, and leave when they have none.
    pub leaving: Vec<ServerId>,
    /// What is still to move, in order. Invariant: no slot is in it that is where it should be.
    pub moves: Vec<SlotMove>,
}

/// Why the map is not changed as an operator wants.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PlanError {
    /// It is there.
    #[error("server {0} is in the cluster already")]
    AlreadyIn(ServerId),
    /// Numbers are never given twice.
    #[error("servers' numbers are never used again, and {0} was; the next free one is {1}")]
    NumberUsed(ServerId, ServerId),
    /// Another server is reached there.
    #[error("{0} is the address of server {1}")]
    AddressTaken(String, ServerId),
    /// There are as many as there can be.
    #[error("the cluster has {SERVERS} servers, and cannot have more")]
    TooMany,
    /// There is no such server.
    #[error("the cluster has no server {0}")]
    Unknown(ServerId),
    /// Somebody must have the slots.
    #[error("server {0} is the last one: its slots have nowhere to go")]
    Last(ServerId),
    /// Its records are not all where their slots are.
    #[error("slots of a filesystem made --without decoupling do not move")]
    Coupled,
    /// It is not on its way out.
    #[error("server {0} is not being drained")]
    NotLeaving(ServerId),
    /// There is nothing to be cancelled.
    #[error("no slots are on the move between servers that stay")]
    NothingMoves,
}

impl Plan {
    /// Checks it against the rest of its map.
    pub(crate) fn check(&self, servers: &BTreeSet<ServerId>) -> Result<(), MapError> {
        let mut last = 0;
        for m in &self.moves {
            if m.first.0 < last || m.first >= m.after || m.after.0 > SLOTS {
                return Err(MapError::Moves(m.first, m.after));
            }
            last = m.after.0;
            if !servers.contains(&m.to) {
                return Err(MapError::UnknownOwner(m.first, m.to));
            }
        }
        match self.leaving.iter().find(|id| !servers.contains(id)) {
            Some(id) => Err(MapError::UnknownLeaving(*id)),
            None => Ok(()),
        }
    }
}

impl ClusterMap {
    /// Where a slot is to move, if it is.
    pub fn destination(&self, slot: Slot) -> Option<ServerId> {
        let at = self.plan.moves.partition_point(|m| m.after <= slot);
        let m = self.plan.moves.get(at)?;
        (m.first <= slot).then_some(m.to)
    }

    /// How many slots are still to move.
    pub fn to_move(&self) -> u64 {
        let moves = self.plan.moves.iter();
        moves.map(|m| u64::from(m.after.0 - m.first.0)).sum()
    }

    /// What is to move from a server, in order.
    pub fn moves_from(&self, server: ServerId) -> impl Iterator<Item = (Slot, ServerId)> + '_ {
        let all = self
            .plan
            .moves
            .iter()
            .flat_map(|m| (m.first.0..m.after.0).map(|s| (Slot(s), m.to)));
        all.filter(move |(slot, _)| self.owner(*slot) == server)
    }

    /// Whether a server is on its way out.
    pub fn is_leaving(&self, id: ServerId) -> bool {
        self.plan.leaving.contains(&id)
    }

    /// The number of the next server that joins.
    pub fn next_server(&self) -> ServerId {
        let highest = self.servers.iter().map(|s| s.id.0).max();
        ServerId(highest.map_or(0, |n| n.saturating_add(1)).max(self.plan.next.0))
    }

    /// The map with one server more, to which slots of the others are to move until it has its share.
    pub fn with_joined(&self, new: ServerInfo) -> Result<ClusterMap, PlanError> {
        self.may_move()?;
        if self.server(new.id).is_some() {
            return Err(PlanError::AlreadyIn(new.id));
        }
        let next = self.next_server();
        if new.id < next {
            return Err(PlanError::NumberUsed(new.id, next));
        }
        if let Some(other) = self.servers.iter().find(|s| s.address == new.address) {
            return Err(PlanError::AddressTaken(new.address, other.id));
        }
        if self.servers.len() >= SERVERS || new.id.0 == u16::MAX {
            return Err(PlanError::TooMany);
        }
        let mut map = self.clone();
        map.plan.next = ServerId(new.id.0 + 1);
        let id = new.id;
        map.servers.push(new);
        let mut future = map.future();
        let mut load = map.load(&future);
        let share = usize::from(SLOTS) / load.len();
        let mut taken = BTreeSet::new();
        while taken.len() < share {
            // From whoever has most; of equals from the last.
            let most = load.iter().filter(|(s, _)| **s != id).max_by_key(|(_, n)| **n);
            let Some((from, n)) = most.map(|(s, n)| (*s, *n)).filter(|(_, n)| *n > 0) else {
                break;
            };
            load.insert(from, n - 1);
            // Its last slot that is not on its way to it already, or else its last.
            let slots = || {
                future
                    .iter()
                    .enumerate()
                    .rev()
                    .filter(|(_, owner)| **owner == from)
            };
            let settled = slots().find(|(slot, _)| self.slots[*slot] == from);
            let Some((slot, _)) = settled.or_else(|| slots().next()) else {
                break;
            };
            taken.insert(slot);
            future[slot] = id;
        }
        map.replan(&future);
        Ok(map)
    }

    /// The map in which a server is on its way out. Repeated, it is the same map.
    pub fn with_drained(&self, id: ServerId) -> Result<ClusterMap, PlanError> {
        self.may_move()?;
        if self.server(id).is_none() {
            return Err(PlanError::Unknown(id));
        }
        if self.staying().all(|s| s == id) {
            return Err(PlanError::Last(id));
        }
        let mut map = self.clone();
        if !self.is_leaving(id) {
            map.plan.leaving.push(id);
        }
        let mut future = map.future();
        for (slot, owner) in future.iter_mut().enumerate() {
            // What was to come to it stays where it is.
            if *owner == id && !map.is_leaving(self.slots[slot]) {
                *owner = self.slots[slot];
            }
        }
        let mut load = map.load(&future);
        let homeless: Vec<usize> = (0..future.len()).filter(|s| map.is_leaving(future[*s])).collect();
        if homeless.is_empty() && self.is_leaving(id) {
            return Ok(map);
        }
        let mut gets: BTreeMap<ServerId, usize> = BTreeMap::new();
        for _ in &homeless {
            let Some((least, n)) = load.iter().min_by_key(|(_, n)| **n).map(|(s, n)| (*s, *n)) else {
                break;
            };
            load.insert(least, n + 1);
            *gets.entry(least).or_default() += 1;
        }
        // In runs, so that the map stays short.
        let in_order = gets.into_iter().flat_map(|(to, n)| std::iter::repeat_n(to, n));
        for (slot, to) in homeless.into_iter().zip(in_order) {
            future[slot] = to;
        }
        map.replan(&future);
        Ok(map)
    }

    /// The map in which a server stays after all that was on its way out. It keeps what it still has; what
    /// has moved is where it is.
    pub fn with_kept(&self, id: ServerId) -> Result<ClusterMap, PlanError> {
        if self.server(id).is_none() {
            return Err(PlanError::Unknown(id));
        }
        if !self.is_leaving(id) {
            return Err(PlanError::NotLeaving(id));
        }
        let mut map = self.clone();
        map.plan.leaving.retain(|s| *s != id);
        map.stay_where(|owner| owner == id);
        Ok(map)
    }

    /// The map in which slots of servers that stay are not on the move any more: a join or a rebalance ends
    /// as far as it is.
    pub fn with_moves_ended(&self) -> Result<ClusterMap, PlanError> {
        let mut map = self.clone();
        map.stay_where(|owner| !self.is_leaving(owner));
        if map.plan.moves == self.plan.moves {
            return Err(PlanError::NothingMoves);
        }
        Ok(map)
    }

    /// A new plan in which slots of these owners do not move.
    fn stay_where(&mut self, stays: impl Fn(ServerId) -> bool) {
        let mut future = self.future();
        for (to, owner) in future.iter_mut().zip(&self.slots) {
            if stays(*owner) {
                *to = *owner;
            }
        }
        self.replan(&future);
    }

    /// The map in which as few slots as needed are to move so that no server has two more than another.
    pub fn rebalanced(&self) -> Result<ClusterMap, PlanError> {
        self.may_move()?;
        let mut map = self.clone();
        let mut future = map.future();
        let load = map.load(&future);
        let total: usize = load.values().sum();
        let (share, more) = (total / load.len().max(1), total % load.len().max(1));
        // Who has most keeps one more than the others.
        let mut by_load: Vec<(ServerId, usize)> = load.into_iter().collect();
        by_load.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        let quota: BTreeMap<ServerId, usize> = by_load
            .iter()
            .enumerate()
            .map(|(at, (id, _))| (*id, share + usize::from(at < more)))
            .collect();
        let mut kept: BTreeMap<ServerId, usize> = BTreeMap::new();
        let mut over = Vec::new();
        for (slot, owner) in future.iter().enumerate() {
            let Some(quota) = quota.get(owner) else { continue };
            let kept = kept.entry(*owner).or_default();
            if *kept < *quota {
                *kept += 1;
            } else {
                over.push(slot);
            }
        }
        let lacking = quota
            .iter()
            .flat_map(|(id, quota)| std::iter::repeat_n(*id, quota - kept.get(id).unwrap_or(&0)));
        for (slot, to) in over.into_iter().zip(lacking) {
            future[slot] = to;
        }
        map.replan(&future);
        Ok(map)
    }

    /// The map in which these slots of `from` are where they were to move. `None`: under another plan, or
    /// they are not `from`'s to move there; then they will not be moved because of this request either,
    /// whenever it is looked at again.
    pub fn with_moved(
        &self,
        from: ServerId,
        to: ServerId,
        made: MapEpoch,
        slots: &[Slot],
    ) -> Option<ClusterMap> {
        let due = |slot: &Slot| self.owner(*slot) == from && self.destination(*slot) == Some(to);
        if made != self.plan.made || !slots.iter().all(due) {
            return None;
        }
        let mut map = self.clone();
        let mut future = map.future();
        for slot in slots {
            let owner = map.slots.get_mut(usize::from(slot.0))?;
            *owner = to;
            future[usize::from(slot.0)] = to;
        }
        map.set_moves(&future);
        Some(map)
    }

    /// The map without a server that is on its way out, if nothing needs it any more.
    pub fn without(&self, id: ServerId) -> Option<ClusterMap> {
        let idle = self.is_leaving(id)
            && self.coordinator != id
            && self.keeper != id
            && !self.slots.contains(&id)
            && self.plan.moves.iter().all(|m| m.to != id);
        idle.then(|| {
            let mut map = self.clone();
            map.servers.retain(|s| s.id != id);
            map.plan.leaving.retain(|s| *s != id);
            map.plan.next = self.next_server();
            map
        })
    }

    /// Servers that stay.
    pub fn staying(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.servers
            .iter()
            .map(|s| s.id)
            .filter(|id| !self.is_leaving(*id))
    }

    fn may_move(&self) -> Result<(), PlanError> {
        if self.placement.by_key() {
            Ok(())
        } else {
            Err(PlanError::Coupled)
        }
    }

    /// Who has each slot once all has moved.
    fn future(&self) -> Vec<ServerId> {
        let mut future = self.slots.clone();
        for m in &self.plan.moves {
            if let Some(run) = future.get_mut(usize::from(m.first.0)..usize::from(m.after.0)) {
                run.fill(m.to);
            }
        }
        future
    }

    /// How many slots each server that stays has then.
    fn load(&self, future: &[ServerId]) -> BTreeMap<ServerId, usize> {
        let mut load: BTreeMap<ServerId, usize> = self.staying().map(|id| (id, 0)).collect();
        for owner in future {
            if let Some(n) = load.get_mut(owner) {
                *n += 1;
            }
        }
        load
    }

    /// A new plan; the epoch is the next one's.
    fn replan(&mut self, future: &[ServerId]) {
        self.plan.made = MapEpoch(self.epoch.0 + 1);
        self.set_moves(future);
    }

    fn set_moves(&mut self, future: &[ServerId]) {
        let mut moves: Vec<SlotMove> = Vec::new();
        for (slot, (to, owner)) in (0..SLOTS).zip(future.iter().zip(&self.slots)) {
            if to == owner {
                continue;
            }
            match moves.last_mut() {
                Some(run) if run.to == *to && run.after.0 == slot => run.after = Slot(slot + 1),
                _ => moves.push(SlotMove {
                    first: Slot(slot),
                    after: Slot(slot + 1),
                    to: *to,
                }),
            }
        }
        self.plan.moves = moves;
    }
}

codec_struct!(SlotMove { first, after, to });
codec_struct!(Plan {
    made,
    next,
    leaving,
    moves
});

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Coherence, Placement};
    use pando_types::{AuthMode, FsId, Term};

    fn info(id: u16) -> ServerInfo {
        ServerInfo {
            id: ServerId(id),
            address: format!("host{id}:1"),
            metrics: String::new(),
        }
    }

    pub(crate) fn map(servers: u16) -> ClusterMap {
        let servers: Vec<ServerInfo> = (0..servers).map(info).collect();
        ClusterMap {
            fs: FsId(1),
            epoch: MapEpoch(1),
            slots: ClusterMap::spread(&servers),
            coordinator: ServerId(0),
            term: Term(1),
            keeper: ServerId(0),
            servers,
            inline_limit: 65536,
            block_size: 4096,
            blocks: "file:b".into(),
            name_bits: 55,
            id_bits: 128,
            auth: AuthMode::None,
            coherence: Coherence::Lazy,
            placement: Placement::Directory,
            ids: pando_types::Ids::Predicted,
            updates: crate::DirectoryUpdates::ParentFirst,
            plan: Plan::default(),
        }
    }

    /// Everything the plan says, done in pieces of seven slots.
    fn carried_out(mut map: ClusterMap) -> ClusterMap {
        while let Some(m) = map.plan.moves.first().copied() {
            let from = map.owner(m.first);
            let run = (m.first.0..m.after.0).map(Slot);
            let slots: Vec<Slot> = run.filter(|s| map.owner(*s) == from).take(7).collect();
            let left = map.to_move();
            map = map.with_moved(from, m.to, map.plan.made, &slots).unwrap();
            map.epoch.0 += 1;
            assert_eq!(map.to_move(), left - slots.len() as u64);
            map.check().unwrap();
        }
        map
    }

    fn counts(map: &ClusterMap) -> Vec<usize> {
        let count = |s: &ServerInfo| map.slots.iter().filter(|o| **o == s.id).count();
        map.servers.iter().map(count).collect()
    }

    fn changed(a: &ClusterMap, b: &ClusterMap) -> Vec<(ServerId, ServerId)> {
        let pairs = a.slots.iter().copied().zip(b.slots.iter().copied());
        pairs.filter(|(x, y)| x != y).collect()
    }

    #[test]
    fn a_join_moves_one_share_all_to_the_new_server() {
        for n in 1..20 {
            let before = map(n);
            let planned = before.with_joined(info(n)).unwrap();
            planned.check().unwrap();
            assert_eq!(planned.slots, before.slots, "a plan moves nothing by itself");
            assert_eq!(planned.to_move(), u64::from(SLOTS / (n + 1)));
            assert!(planned.plan.moves.len() <= usize::from(n) + 1, "in runs");
            let after = carried_out(planned);
            assert!(changed(&before, &after).iter().all(|(_, to)| *to == ServerId(n)));
            let counts = counts(&after);
            assert!(
                counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1,
                "{counts:?}"
            );
        }
    }

    #[test]
    fn a_drain_moves_what_the_server_has_and_it_leaves_then() {
        for n in 2..20 {
            let before = map(n);
            let planned = before.with_drained(ServerId(1)).unwrap();
            assert_eq!(planned.to_move(), counts(&before)[1] as u64);
            assert_eq!(planned.with_drained(ServerId(1)).unwrap(), planned);
            assert_eq!(planned.without(ServerId(1)), None);
            let done = carried_out(planned);
            assert!(
                changed(&before, &done)
                    .iter()
                    .all(|(from, _)| *from == ServerId(1))
            );
            let after = done.without(ServerId(1)).unwrap();
            after.check().unwrap();
            let counts = counts(&after);
            assert!(
                counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 2,
                "{counts:?}"
            );
            assert_eq!(after.next_server(), ServerId(n.max(2)), "its number is spent");
            let again = after.with_joined(info(1));
            assert_eq!(again, Err(PlanError::NumberUsed(ServerId(1), ServerId(n.max(2)))));
        }
    }

    #[test]
    fn the_number_of_the_last_server_is_spent_too() {
        let gone = carried_out(map(3).with_drained(ServerId(2)).unwrap())
            .without(ServerId(2))
            .unwrap();
        assert_eq!(gone.next_server(), ServerId(3));
        assert!(gone.with_joined(info(2)).is_err());
    }

    #[test]
    fn a_rebalance_moves_the_least_that_makes_it_even() {
        let mut uneven = map(4);
        uneven.slots[..3000].fill(ServerId(0));
        let before = counts(&uneven);
        let planned = uneven.rebalanced().unwrap();
        let least: usize = before.iter().map(|n| n.saturating_sub(1024)).sum();
        assert_eq!(planned.to_move(), least as u64);
        let after = carried_out(planned);
        assert_eq!(counts(&after), vec![1024; 4]);
        assert_eq!(after.rebalanced().unwrap().to_move(), 0);
    }

    #[test]
    fn what_is_on_its_way_to_a_drained_server_stays_where_it_is() {
        let joined = map(3).with_joined(info(3)).unwrap();
        let back = joined.with_drained(ServerId(3)).unwrap();
        assert_eq!(back.to_move(), 0);
        assert_eq!(back.without(ServerId(3)).unwrap().servers.len(), 3);
        // What was asked under the earlier plan is void.
        let (slot, to) = joined.moves_from(ServerId(0)).next().unwrap();
        assert!(
            joined
                .with_moved(ServerId(0), to, joined.plan.made, &[slot])
                .is_some()
        );
        assert_eq!(back.with_moved(ServerId(0), to, joined.plan.made, &[slot]), None);
    }

    /// The first `n` slots of a plan have moved.
    fn partly(map: ClusterMap, n: usize) -> ClusterMap {
        let mut map = map;
        for _ in 0..n {
            let m = map.plan.moves[0];
            let moved = map.with_moved(map.owner(m.first), m.to, map.plan.made, &[m.first]);
            map = moved.unwrap();
            map.epoch.0 += 1;
        }
        map
    }

    #[test]
    fn a_drain_that_is_cancelled_leaves_slots_where_they_are() {
        let mut planned = map(4).with_drained(ServerId(1)).unwrap();
        planned.epoch.0 += 1;
        for moved in [0, 1, 500, 1024] {
            let partly = partly(planned.clone(), moved);
            let kept = partly.with_kept(ServerId(1)).unwrap();
            kept.check().unwrap();
            assert_eq!((kept.to_move(), kept.plan.leaving.len()), (0, 0));
            assert_eq!((&kept.slots, counts(&kept)[1]), (&partly.slots, 1024 - moved));
            assert_eq!(kept.without(ServerId(1)), None, "it does not leave any more");
            assert_eq!(
                kept.with_kept(ServerId(1)),
                Err(PlanError::NotLeaving(ServerId(1)))
            );
            // What was asked under the plan of the drain is void.
            if let Some((slot, to)) = partly.moves_from(ServerId(1)).next() {
                let made = partly.plan.made;
                assert!(partly.with_moved(ServerId(1), to, made, &[slot]).is_some());
                assert_eq!(kept.with_moved(ServerId(1), to, made, &[slot]), None);
            }
            assert_eq!(counts(&carried_out(kept.rebalanced().unwrap())), vec![1024; 4]);
        }
    }

    #[test]
    fn only_one_of_two_drains_is_cancelled() {
        let two = map(4).with_drained(ServerId(1)).unwrap();
        let two = two.with_drained(ServerId(2)).unwrap();
        let one = two.with_kept(ServerId(1)).unwrap();
        assert_eq!(one.plan.leaving, vec![ServerId(2)]);
        assert_eq!(one.to_move(), 1024);
        assert!(one.moves_from(ServerId(2)).all(|(_, to)| to != ServerId(2)));
        assert_eq!(
            two.with_moves_ended(),
            Err(PlanError::NothingMoves),
            "who leaves gives up its slots all the same"
        );
    }

    #[test]
    fn a_join_that_is_cancelled_ends_as_far_as_it_is() {
        let mut joined = map(4).with_joined(info(4)).unwrap();
        joined.epoch.0 += 1;
        let partly = partly(joined, 100);
        let ended = partly.with_moves_ended().unwrap();
        assert_eq!((ended.to_move(), counts(&ended)[4]), (0, 100));
        assert_eq!(ended.with_moves_ended(), Err(PlanError::NothingMoves));
        // Or all of it is put back.
        let back = carried_out(partly.with_drained(ServerId(4)).unwrap());
        assert_eq!(back.without(ServerId(4)).unwrap().servers.len(), 4);
        assert_eq!(counts(&back)[..4], [1024; 4]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let four = map(4);
        assert_eq!(four.with_kept(ServerId(9)), Err(PlanError::Unknown(ServerId(9))));
        assert_eq!(four.with_joined(info(2)), Err(PlanError::AlreadyIn(ServerId(2))));
        let mut there = info(4);
        there.address = "host2:1".into();
        assert_eq!(
            four.with_joined(there),
            Err(PlanError::AddressTaken("host2:1".into(), ServerId(2)))
        );
        assert_eq!(
            four.with_drained(ServerId(9)),
            Err(PlanError::Unknown(ServerId(9)))
        );
        assert_eq!(
            map(1).with_drained(ServerId(0)),
            Err(PlanError::Last(ServerId(0)))
        );
        let two = map(2).with_drained(ServerId(0)).unwrap();
        assert_eq!(two.with_drained(ServerId(1)), Err(PlanError::Last(ServerId(1))));
        let mut coupled = map(4);
        coupled.placement = Placement::Coupled;
        assert_eq!(coupled.rebalanced(), Err(PlanError::Coupled));
        let mut full = map(2);
        full.servers = (0..SERVERS as u16).map(info).collect();
        assert_eq!(full.with_joined(info(5000)), Err(PlanError::TooMany));
        // Only its owner moves a slot, and only where it is to go.
        let joined = four.with_joined(info(4)).unwrap();
        let (slot, to) = joined.moves_from(ServerId(1)).next().unwrap();
        assert_eq!(
            joined.with_moved(ServerId(2), to, joined.plan.made, &[slot]),
            None
        );
        assert_eq!(
            joined.with_moved(ServerId(1), ServerId(3), joined.plan.made, &[slot]),
            None
        );
        assert_eq!(
            joined.with_moved(ServerId(1), to, joined.plan.made, &[Slot(0)]),
            None
        );
    }

    #[test]
    fn plans_from_elsewhere_are_checked() {
        let wrong = |first, after, to| {
            let mut m = map(2);
            let run = SlotMove {
                first: Slot(first),
                after: Slot(after),
                to: ServerId(to),
            };
            m.plan.moves = vec![run];
            m.check().is_err()
        };
        assert!(!wrong(1, 2, 1));
        assert!(wrong(2, 2, 1) && wrong(0, SLOTS + 1, 1) && wrong(1, 2, 7));
        let mut m = map(2);
        m.plan.leaving = vec![ServerId(5)];
        assert!(m.check().is_err());
    }
}
