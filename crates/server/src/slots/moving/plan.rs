//! The coordinator's side: it alone changes the map, one change after the other, and operators ask it to.

use crate::txn::attempt::Held;
use crate::txn::locks::Unit;
use crate::{Failure, MetaServer};
use pando_cluster::{ClusterMap, PlanError, ServerInfo};
use pando_format::Codec;
use pando_format::codec::Blob;
use pando_types::{AuthMode, MapEpoch, ServerId, Slot, Term};
use pando_wire::{
    ClusterError, ClusterRequest, LockMode, MoveAnswer, MoveRequest, PeerAnswer, PeerRequest, Refusal,
    Response,
};
use std::collections::BTreeSet;
use std::rc::Rc;

/// How often a change is tried anew because the map has changed meanwhile.
const CHANGES: u32 = 8;

/// Slots that have been copied and wait for a map.
pub(super) struct Asked {
    from: ServerId,
    to: ServerId,
    made: MapEpoch,
    slots: Vec<Slot>,
}

impl MetaServer {
    /// What other servers say about slots that move.
    pub(crate) async fn about_moving(&self, request: MoveRequest) -> Result<MoveAnswer, Failure> {
        match request {
            MoveRequest::Begin { copy, slots } => self.copy_begins(copy, slots.into_iter().collect()).await,
            MoveRequest::Records {
                copy,
                number,
                bundle,
                gone,
            } => self.copied(copy, number, &pando_store::Bundle(bundle.0), gone),
            MoveRequest::Settle {
                copy,
                made,
                ended,
                holds,
                lockers,
            } => self.copy_settles(copy, made, (ended, lockers), holds).await,
            MoveRequest::HandOver {
                from,
                to,
                made,
                slots,
            } => self.put_into_map(from, to, made, &slots).await,
            MoveRequest::Left => Ok(MoveAnswer::Left(self.left())),
        }
    }

    /// Changes of the map are made one after the other; what was asked for while one was made is made with
    /// the next.
    async fn map_turn(&self) -> Result<Held<'_>, Failure> {
        if !self.coordinates() {
            return Err(Failure::Refused(Refusal::UseCoordinator));
        }
        let held = self.hold();
        let turn = vec![(Unit::Map, LockMode::Exclusive)];
        self.txn
            .locks
            .acquire(held.holder, turn, || self.peer_wait())
            .await?;
        Ok(held)
    }

    /// Slots of `from` have settled at `to`. Answers with the map in force; what it does not say of them it
    /// will not say because of this request, unless that is asked again.
    pub(super) async fn put_into_map(
        &self,
        from: ServerId,
        to: ServerId,
        made: MapEpoch,
        slots: &[Slot],
    ) -> Result<MoveAnswer, Failure> {
        if !self.coordinates() {
            return Err(Failure::Refused(Refusal::UseCoordinator));
        }
        let slots = slots.to_vec();
        self.slots.moving.borrow_mut().asked.push_back(Asked {
            from,
            to,
            made,
            slots,
        });
        let turn = self.map_turn().await?;
        let asked = std::mem::take(&mut self.slots.moving.borrow_mut().asked);
        self.propose_map(&|map| {
            let mut changed = None;
            for a in &asked {
                let latest = changed.as_ref().unwrap_or(map);
                changed = latest.with_moved(a.from, a.to, a.made, &a.slots).or(changed);
            }
            changed
        })
        .await?;
        drop(turn);
        // Nobody serves the slots until those that got them know it.
        let got: BTreeSet<ServerId> = asked.iter().map(|a| a.to).collect();
        got.into_iter().for_each(|server| self.tell_map_to(server));
        Ok(MoveAnswer::Map(Blob(self.map().to_bytes())))
    }

    /// What an operator asks.
    pub(crate) async fn cluster(&self, request: ClusterRequest) -> Result<Response, Failure> {
        let _turn = self.map_turn().await?;
        let refused = std::cell::RefCell::new(None);
        for _ in 0..CHANGES {
            let from = self.map().epoch;
            refused.replace(None);
            self.propose_map(&|map| {
                let changed = planned(map, &request);
                *refused.borrow_mut() = changed.as_ref().err().cloned();
                changed.ok().filter(|to| to != map)
            })
            .await?;
            // That it cannot be done, or needs not, is said of the map in force only: another one may be
            // coordinator, and this one not have heard of it.
            if refused.borrow().is_some() || self.map().epoch == from {
                self.attend_once()
                    .await
                    .map_err(|_| Failure::Refused(Refusal::NotReady))?;
                if self.map().epoch != from {
                    continue;
                }
            }
            // Slots that were about to be handed over are served again as soon as their owner knows.
            match request {
                ClusterRequest::KeepServer(_) | ClusterRequest::EndMoves => self.tell_map(),
                ClusterRequest::Join { .. } | ClusterRequest::Drain(_) | ClusterRequest::Rebalance => {}
            }
            return Ok(Response::Cluster(match refused.into_inner() {
                Some(why) => Err(why),
                None => Ok(Blob(self.map().to_bytes())),
            }));
        }
        Err(Failure::Refused(Refusal::Busy))
    }

    /// Whether others may still have to ask this server for anything but its slots.
    fn left(&self) -> u64 {
        let parts = self.txn.parts.borrow().live.len();
        let coordinated = self.txn.coordinated.borrow();
        (parts + coordinated.decided.len() + coordinated.active.len()) as u64
    }

    /// Looks after servers that leave. Runs as long as the server.
    pub(crate) async fn retire_servers(self: Rc<Self>) {
        while !self.stopped.get() {
            self.pause(self.limits.tick).await;
            if let Err(Failure::Store(e)) = self.retire().await
                && !self.report(&e)
            {
                return;
            }
        }
    }

    /// Takes servers off the map that have given up everything.
    async fn retire(&self) -> Result<(), Failure> {
        if !self.coordinates() {
            return Ok(());
        }
        let map = self.map();
        for id in map.plan.leaving.iter().copied() {
            let idle = !map.slots.contains(&id);
            if !idle {
                continue;
            }
            let heir = self.heir(&map);
            if map.keeper == id && map.auth == AuthMode::None {
                let _turn = self.map_turn().await?;
                self.propose_map(&|map| {
                    let keeper = heir.filter(|_| map.keeper == id)?;
                    Some(ClusterMap {
                        keeper,
                        ..map.clone()
                    })
                })
                .await?;
            } else if id == self.id {
                self.hand_on_office().await?;
            } else if let Ok(Ok(PeerAnswer::Moving(MoveAnswer::Left(0)))) =
                self.ask(id, PeerRequest::Moving(MoveRequest::Left)).await
            {
                let _turn = self.map_turn().await?;
                self.propose_map(&|map| map.without(id)).await?;
                // It will not hear of it in any other way.
                self.tell_map_to(id);
            }
        }
        Ok(())
    }

    /// A server that stays, one that is there if possible.
    fn heir(&self, map: &ClusterMap) -> Option<ServerId> {
        let members = self.office.members.borrow();
        let there = map.staying().find(|id| members.contains(id));
        there.or_else(|| map.staying().next())
    }

    /// The coordinator itself leaves: another one takes its place.
    async fn hand_on_office(&self) -> Result<(), Failure> {
        let _turn = self.map_turn().await?;
        self.propose_map(&|map| {
            let heir = self.heir(map).filter(|_| map.coordinator == self.id)?;
            Some(ClusterMap {
                coordinator: heir,
                term: Term(map.term.0 + 1),
                ..map.clone()
            })
        })
        .await
    }
}

impl MetaServer {
    /// Puts another map in the place of the one in force, if `change` still wants to once that is known.
    async fn propose_map(&self, change: &dyn Fn(&ClusterMap) -> Option<ClusterMap>) -> Result<(), Failure> {
        for _ in 0..CHANGES {
            let from = self.map();
            if from.coordinator != self.id {
                return Err(Failure::Refused(Refusal::UseCoordinator));
            }
            let Some(mut to) = change(&from) else {
                return Ok(());
            };
            to.epoch = MapEpoch(from.epoch.0 + 1);
            match self.office.coord.replace(from.epoch, to.clone()).await {
                Ok(()) => {
                    self.adopt_map(to, None);
                    return Ok(());
                }
                Err(e) => {
                    tracing::warn!(server = self.id.0, epoch = to.epoch.0, error = %e, "the cluster map could not be replaced");
                    // What is in force now, this map or another, is found out before anything else is said of
                    // it.
                    self.attend_once()
                        .await
                        .map_err(|_| Failure::Refused(Refusal::NotReady))?;
                }
            }
        }
        Err(Failure::Refused(Refusal::Busy))
    }

    /// Tells one server the map.
    fn tell_map_to(&self, server: ServerId) {
        let request = PeerRequest::NewMap(Blob(self.map().to_bytes()));
        self.spawn(|me| Box::pin(async move { drop(me.ask(server, request).await) }));
    }
}

/// The map an operator wants.
fn planned(map: &ClusterMap, request: &ClusterRequest) -> Result<ClusterMap, ClusterError> {
    let changed = match request {
        ClusterRequest::Join {
            id,
            fs,
            address,
            metrics,
        } => {
            if *fs != map.fs {
                return Err(ClusterError::Foreign(*fs));
            }
            let port = address
                .rsplit_once(':')
                .and_then(|(_, port)| port.parse::<u16>().ok());
            if port.is_none_or(|p| p == 0) || address.len() > 300 || metrics.len() > 300 {
                return Err(ClusterError::BadAddress);
            }
            map.with_joined(ServerInfo {
                id: *id,
                address: address.clone(),
                metrics: metrics.clone(),
            })
        }
        ClusterRequest::Drain(id) if *id == map.keeper && map.auth != AuthMode::None => {
            return Err(ClusterError::KeepsIdentities(*id));
        }
        ClusterRequest::Drain(id) => map.with_drained(*id),
        ClusterRequest::Rebalance => map.rebalanced(),
        ClusterRequest::KeepServer(id) => map.with_kept(*id),
        ClusterRequest::EndMoves => map.with_moves_ended(),
    };
    changed.map_err(|e| match e {
        PlanError::AlreadyIn(id) => ClusterError::AlreadyIn(id),
        PlanError::NumberUsed(_, next) => ClusterError::NumberUsed(next),
        PlanError::AddressTaken(_, by) => ClusterError::AddressTaken(by),
        PlanError::TooMany => ClusterError::TooMany,
        PlanError::Unknown(id) => ClusterError::Unknown(id),
        PlanError::Last(id) => ClusterError::Last(id),
        PlanError::Coupled => ClusterError::Coupled,
        PlanError::NotLeaving(id) => ClusterError::NotLeaving(id),
        PlanError::NothingMoves => ClusterError::NothingMoves,
    })
}
