//! Where a new directory goes, if IDs are placed: to a slot of the less loaded of two servers (IndexFS
//! §II-A).
//!
//! A server's load is how many records it has. Servers ask each other for it four times a lease, and hear it
//! with each answer to content that was owed. So mkdir asks nobody, and no two servers send all they make to
//! the same third for long.

use crate::MetaServer;
use pando_cluster::ClusterMap;
use pando_env::LocalFuture;
use pando_env::sync::join_all;
use pando_types::{DirId, Division, Generation, Ids, MapEpoch, Part, ServerId, Slot};
use pando_wire::{PeerAnswer, PeerRequest};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Tries of drawing a slot, or a short ID, that is of a certain server, before any is taken.
const DRAWS: usize = 4096;

/// How many records other servers had when they said so last.
#[derive(Default)]
pub(crate) struct Loads {
    records: BTreeMap<ServerId, u64>,
    /// By the map of this epoch: servers that stay, and have slots.
    candidates: Vec<ServerId>,
    epoch: Option<MapEpoch>,
}

impl Loads {
    /// A server says how many it has.
    pub fn hear(&mut self, server: ServerId, records: u64) {
        self.records.insert(server, records);
    }

    /// A server was sent one more.
    fn sent(&mut self, server: ServerId) {
        if let Some(records) = self.records.get_mut(&server) {
            *records = records.saturating_add(1);
        }
    }

    /// The one with fewer. Of one that has said nothing, less is known than that it has many.
    fn less_loaded(&self, one: ServerId, other: ServerId) -> ServerId {
        let load = |server| self.records.get(&server).copied().unwrap_or(0);
        if load(other) < load(one) { other } else { one }
    }
}

impl MetaServer {
    /// An ID for a new directory of this generation. `None`: IDs are predicted.
    pub(crate) fn place(&self, generation: Generation) -> Option<DirId> {
        let map = self.map();
        match map.ids {
            Ids::Predicted => return None,
            Ids::Placed => {}
        }
        // Where entries are placed one by one, content is where the entry is: one batch makes both.
        if map.placement.division() == Division::OneByOne && map.id_bits == 128 {
            return Some(DirId::placed(generation, generation.slot()));
        }
        let server = self.less_loaded_of_two(&map);
        let id = if map.id_bits == 128 {
            DirId::placed(generation, self.slot_of(&map, server))
        } else {
            self.short_id(&map, server)
        };
        Some(id)
    }

    /// A directory was decided whose content goes to another server: that has one more.
    pub(crate) fn placed(&self, server: ServerId) {
        match self.map.borrow().ids {
            Ids::Predicted => {}
            Ids::Placed => self.slots.loads.borrow_mut().sent(server),
        }
    }

    fn less_loaded_of_two(&self, map: &ClusterMap) -> ServerId {
        // Servers that do not answer are left out, unless there are no others.
        let silent = |s: &ServerId| self.txn.debts.borrow().is_silent(*s);
        let mut staying = self.candidates(map);
        if staying.iter().any(|s| !silent(s)) {
            staying.retain(|s| !silent(s));
        }
        let draw = |among: &[ServerId]| {
            let at = self.world.random() % among.len().max(1) as u64;
            among.get(at as usize).copied().unwrap_or(self.id)
        };
        let one = draw(&staying);
        let others: Vec<ServerId> = staying.into_iter().filter(|s| *s != one).collect();
        if others.is_empty() {
            return one;
        }
        let other = draw(&others);
        let mut loads = self.slots.loads.borrow_mut();
        loads.hear(self.id, self.store.records());
        loads.less_loaded(one, other)
    }

    /// Servers that stay, and have slots.
    fn candidates(&self, map: &ClusterMap) -> Vec<ServerId> {
        let mut loads = self.slots.loads.borrow_mut();
        if loads.epoch != Some(map.epoch) {
            loads.candidates = map.staying().filter(|s| map.slots.contains(s)).collect();
            loads.epoch = Some(map.epoch);
        }
        loads.candidates.clone()
    }

    /// Any slot of a server.
    fn slot_of(&self, map: &ClusterMap, server: ServerId) -> Slot {
        let many = map.slots.len().max(1) as u64;
        let mut slot = Slot(0);
        for _ in 0..DRAWS {
            slot = Slot((self.world.random() % many) as u16);
            if map.owner(slot) == server {
                break;
            }
        }
        slot
    }

    /// With IDs of a few bits, as tests have them: any that is in a slot of the server.
    fn short_id(&self, map: &ClusterMap, server: ServerId) -> DirId {
        let mut id = DirId::ROOT;
        for _ in 0..DRAWS {
            let bits = u128::from(self.world.random()) & ((1 << map.id_bits.min(64)) - 1);
            // 0 and 1 are fixed IDs.
            id = DirId(bits.max(2));
            if map.owner(Part::whole(id).slot()) == server {
                break;
            }
        }
        id
    }

    /// Asks all others how many records they have, again and again.
    pub(crate) async fn ask_loads(self: Rc<Self>) {
        while !self.stopped.get() {
            let asked = self.others().into_iter().map(|server| {
                let me = self.clone();
                let ask: LocalFuture<()> = Box::pin(async move {
                    let records = match me.ask(server, PeerRequest::Load).await {
                        Ok(Ok(PeerAnswer::Load(records))) => records,
                        // It is not to get what it cannot take now.
                        _ => u64::MAX,
                    };
                    me.slots.loads.borrow_mut().hear(server, records);
                });
                ask
            });
            join_all(asked.collect()).await;
            self.pause(self.following_period()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_with_fewer_records_is_taken() {
        let (a, b, c) = (ServerId(1), ServerId(2), ServerId(3));
        let mut loads = Loads::default();
        assert_eq!(loads.less_loaded(a, b), a);
        loads.hear(a, 2);
        loads.hear(b, 1);
        assert_eq!((loads.less_loaded(a, b), loads.less_loaded(b, a)), (b, b));
        loads.sent(b);
        loads.sent(b);
        assert_eq!((loads.less_loaded(a, b), loads.less_loaded(b, a)), (a, a));
        assert_eq!(loads.less_loaded(a, c), c);
    }
}
