//! Random batches against a map.

use super::*;

/// A small generator (SplitMix64): the same batches in every run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

type Reference = BTreeMap<Vec<u8>, (Key, Record)>;

/// One random mutation that is legal after `now`.
fn random_mutation(rng: &mut Rng, now: &Reference) -> Mutation {
    let slot = 1 + rng.below(6) as u16;
    let key = match rng.below(3) {
        0 => counter(slot),
        1 => reply_key(slot, u128::from(rng.below(4)), rng.below(3) as u16),
        _ => Key::Touch(dir_in(slot).into()),
    };
    let record = match &key {
        Key::Counter(_) => count(rng.below(1 << 40)),
        Key::Reply(..) => Record::Reply(reply(rng.below(100))),
        _ => touch(rng.below(50)),
    };
    let present = now.get(&key.encode());
    match (rng.below(6), present) {
        (0, Some(_)) => Mutation::Delete { key },
        (1, _) => Mutation::Update { key, record },
        (_, None) => Mutation::Insert { key, record },
        (_, Some((_, Record::Touch(t)))) => {
            let entries = rng.below(8) as i32 - t.stat.entries.min(3) as i32;
            Mutation::Touch {
                part: dir_in(slot).into(),
                delta: delta(entries, rng.below(99) as i64),
            }
        }
        (_, Some(_)) => Mutation::Update { key, record },
    }
}

fn model(now: &mut Reference, m: &Mutation) {
    let bytes = m.key().encode();
    match m {
        Mutation::Insert { key, record } | Mutation::Update { key, record } => {
            now.insert(bytes, (key.clone(), record.clone()));
        }
        Mutation::Delete { .. } => drop(now.remove(&bytes)),
        Mutation::Touch { delta, .. } => {
            if let Some((_, Record::Touch(t))) = now.get_mut(&bytes) {
                t.apply(delta);
            }
        }
    }
}

pub(super) fn random_batches(h: &mut dyn Harness) {
    let mut rng = Rng(42);
    let mut now = Reference::new();
    for round in 0..30 {
        let s = h.open();
        let mut history = vec![now.clone()];
        let mut safe = Lsn(0);
        for _ in 0..rng.below(40) {
            let mut batch = Batch::default();
            for _ in 0..rng.below(6) {
                let m = random_mutation(&mut rng, &now);
                model(&mut now, &m);
                batch.mutations.push(m);
            }
            if rng.below(2) == 0 {
                let (key, record) = (reply_key(1 + rng.below(6) as u16, 9, 9), reply(rng.below(1000)));
                now.insert(key.encode(), (key.clone(), Record::Reply(record.clone())));
                batch.reply = Some(ReplyWrite { key, record });
            }
            let lsn = ok(s.apply(&batch));
            history.push(now.clone());
            let key = random_mutation(&mut rng, &now).key();
            assert_eq!(get(&s, &key), now.get(&key.encode()).map(|(_, r)| r.clone()));
            if rng.below(8) == 0 {
                ok(block_on(s.wait(lsn, Level::Synced)));
                safe = lsn;
            }
        }
        let slot = Scan::Slot(Slot(1 + rng.below(6) as u16));
        let range = slot.range();
        match rng.below(4) {
            0 => {
                ok(s.delete_range(&slot));
                now.retain(|k, _| !range.contains(k));
                history.push(now.clone());
            }
            1 => {
                let (bundle, rest) = ok(block_on(s.export(&slot, usize::MAX).wait()));
                assert_eq!(rest, None);
                ok(s.delete_range(&slot));
                let mut without = now.clone();
                without.retain(|k, _| !range.contains(k));
                history.push(without);
                ok(s.ingest(&bundle));
                history.push(now.clone());
            }
            _ => {}
        }
        let limit = rng.below(40) as usize;
        let expected: Vec<_> = now.values().take(limit).cloned().collect();
        assert_eq!(list(&s, &everything(), limit), expected, "round {round}");
        drop(s);
        if round % 3 == 2 && h.power_cut() {
            // A prefix of the batches survived, at least as long as what was synced; each batch whole or not
            // at all.
            let found: Vec<_> = list(&h.open(), &everything(), usize::MAX);
            let survived = history
                .iter()
                .rposition(|then| then.values().cloned().collect::<Vec<_>>() == found);
            let Some(survived) = survived else {
                panic!("round {round}: no prefix of the batches")
            };
            assert!(
                survived >= safe.0 as usize,
                "round {round}: synced {safe:?}, survived {survived}"
            );
            now = history.swap_remove(survived);
        } else {
            h.kill();
            let found = list(&h.open(), &everything(), usize::MAX);
            assert_eq!(
                found,
                now.values().cloned().collect::<Vec<_>>(),
                "round {round}: kill -9 lost something"
            );
        }
    }
}
