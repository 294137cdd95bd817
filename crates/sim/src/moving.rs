//! A change of the map while the servers are stopped: slots go from one server to another with all their
//! records.

use crate::cluster::Cluster;
use pando_env::rng::Rng;
use pando_format::{Batch, Key, Mutation, Record, Scan};
use pando_store::{MemStore, NoFaults, Read, Store, StoreError};
use pando_types::{MapEpoch, SLOTS, Slot, plant};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Moves some of `a`'s slots to `b` (about `share` in a hundred) and makes the new map. Slots that hold
/// prepared parts of transactions, or names of directories whose content is owed, stay: their coordinators
/// know where they are (H41). Returns the slots with records that moved. REQUIRES: no server runs.
pub fn move_slots(cluster: &Cluster, a: usize, b: usize, share: u64, rng: &mut Rng) -> u64 {
    let mut map = (*cluster.map()).clone();
    let (from, to) = (&cluster.servers[a], &cluster.servers[b]);
    if a == b {
        return 0;
    }
    let open = |i: usize| {
        MemStore::open(
            &cluster.servers[i].device.disk,
            cluster.settings.durability,
            Rc::new(NoFaults),
        )
    };
    let (source, target) = (open(a), open(b));
    let slots: Vec<Slot> = (0..SLOTS)
        .map(Slot)
        .filter(|s| map.owner(*s) == from.id && rng.percent(share))
        .collect();
    let result = (|| {
        let mut moved = 0;
        let owed = ready(source.list(&Scan::AllOwed, usize::MAX))?;
        let owing: BTreeSet<Slot> = owed
            .iter()
            .filter_map(|(_, record)| match record {
                Record::Owed(o) => Some(o.head.generation.slot()),
                _ => None,
            })
            .collect();
        for slot in slots {
            if !ready(source.list(&Scan::Prepared(slot), 1))?.is_empty() || owing.contains(&slot) {
                continue;
            }
            let full = !ready(source.list(&Scan::Slot(slot), 1))?.is_empty();
            if full {
                // What an earlier owner left is not of this slot any more.
                target.delete_range(&Scan::Slot(slot))?;
                let (bundle, _) = ready(source.export(&Scan::Slot(slot), usize::MAX))?;
                target.ingest(&bundle)?;
                if plant!(H47) {
                    target.delete_range(&Scan::AllReplies(slot))?;
                }
                source.delete_range(&Scan::Slot(slot))?;
                moved += 1;
            }
            map.slots[usize::from(slot.0)] = to.id;
        }
        move_sessions(&source, &target)?;
        Ok::<u64, StoreError>(moved)
    })();
    map.epoch = MapEpoch(map.epoch.0 + 1);
    match result {
        Ok(moved) => {
            // Opened once more, so that what was moved is on the devices for certain.
            drop((open(a), open(b)));
            cluster.set_map(map);
            moved
        }
        Err(e) => {
            cluster
                .sim
                .fail(crate::violation::Kind::WrongResult, format!("moving slots: {e}"));
            0
        }
    }
}

/// Reply records are worth nothing without the sessions they belong to, and a session nothing without its
/// reply records (H47): one that has ended on either side has ended for the receiver.
fn move_sessions(source: &MemStore, target: &MemStore) -> Result<(), StoreError> {
    let mut batch = Batch::default();
    for (key, record) in ready(source.list(&Scan::Sessions, usize::MAX))? {
        let (Key::Session(id), Record::Session(there)) = (&key, &record) else {
            continue;
        };
        let here = match ready(target.get(&key))? {
            Some(Record::Session(here)) => Some(here),
            _ => None,
        };
        if here.is_some_and(|s| s.ended.is_some()) || (here.is_some() && there.ended.is_none()) {
            continue;
        }
        if there.ended.is_some() {
            for slot in (0..SLOTS).map(Slot) {
                let replies = ready(target.list(&Scan::Replies(slot, *id), usize::MAX))?;
                let gone = replies.into_iter().map(|(key, _)| Mutation::Delete { key });
                batch.mutations.extend(gone);
            }
        }
        batch.mutations.push(Mutation::Update { key, record });
    }
    target.apply(&batch)?;
    Ok(())
}

fn ready<T>(read: Read<T>) -> Result<T, StoreError> {
    match read {
        Read::Ready(r) => r,
        Read::Pending(_) => Err(StoreError::Device("a sound disk made us wait".into())),
    }
}
