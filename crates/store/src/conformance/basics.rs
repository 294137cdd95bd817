//! Reading what was applied.

use super::*;

pub(super) fn get_and_list(h: &mut dyn Harness) {
    let s = h.open();
    assert_eq!(s.applied(), Lsn(0));
    assert_eq!(get(&s, &counter(1)), None);
    for slot in [5, 1, 256, 3, 255] {
        apply(&s, vec![insert(counter(slot), count(u64::from(slot)))]);
    }
    assert_eq!(s.applied(), Lsn(5));
    assert_eq!(get(&s, &counter(256)), Some(count(256)));
    let keys =
        |scan: &Scan, limit| -> Vec<Key> { list(&s, scan, limit).into_iter().map(|(k, _)| k).collect() };
    let all = [1, 3, 5, 255, 256].map(counter);
    assert_eq!(keys(&everything(), 100), all);
    assert_eq!(keys(&everything(), 2), all[..2]);
    assert_eq!(keys(&everything(), 0), []);
    assert_eq!(keys(&everything().after(all[1].clone()), 2), all[2..4]);
    assert_eq!(keys(&Scan::Slot(Slot(255)), 9), all[3..4]);
    // The end is out, an inverted range is empty.
    let half = KeyRange {
        start: all[1].encode(),
        end: all[3].encode(),
    };
    assert_eq!(keys(&Scan::Keys(half.clone()), 9), all[1..3]);
    assert_eq!(
        keys(
            &Scan::Keys(KeyRange {
                start: half.end,
                end: half.start
            }),
            9
        ),
        []
    );

    // Later mutations of a batch see the earlier ones.
    let m = |n| Mutation::Update {
        key: counter(9),
        record: count(n),
    };
    apply(
        &s,
        vec![
            m(1),
            Mutation::Delete { key: counter(9) },
            insert(counter(9), count(2)),
            m(3),
        ],
    );
    assert_eq!(get(&s, &counter(9)), Some(count(3)));
    apply(
        &s,
        vec![
            Mutation::Delete { key: counter(9) },
            Mutation::Delete { key: counter(10) },
        ],
    );
    assert_eq!(get(&s, &counter(9)), None);
    assert!(s.space().available <= s.space().total && s.space().total > 0);
}

pub(super) fn names(h: &mut dyn Harness) {
    let s = h.open();
    let part = Part::whole(dir_in(3));
    let entry = |n: u8| {
        let name = Name::new(&[b'a' + n]).expect("a name");
        let hash = NameHash(u64::from(n / 2));
        let target = LinkRecord {
            slot: Slot(1),
            kind: FileKind::Regular,
            ino: Ino(u64::from(n)),
            generation: Generation(1),
        };
        let entry = Entry {
            ordinal: n % 2,
            target: Target::Link(target),
        };
        (Key::Entry { part, hash, name }, Record::Entry(entry))
    };
    let all: Vec<(Key, Record)> = (0..9).map(entry).collect();
    let inserts = all
        .iter()
        .map(|(key, record)| insert(key.clone(), record.clone()));
    apply(&s, inserts.collect());
    let told = |records: Vec<(Key, Record)>| -> Vec<_> {
        let told = |(key, record)| match record {
            Record::Entry(e) => (key, e.ordinal, e.target.identity(), e.target.kind()),
            other => panic!("{other:?}"),
        };
        records.into_iter().map(told).collect()
    };
    let last = Scan::Entries(part).after(all[4].0.clone());
    let from = Scan::EntriesFrom(part, NameHash(2));
    for (scan, limit) in [
        (Scan::Entries(part), 100),
        (Scan::Entries(part), 4),
        (from, 3),
        (last, 100),
    ] {
        let names = ok(block_on(s.names(&scan, limit).wait()));
        assert!(!names.is_empty());
        assert_eq!(told(names), told(list(&s, &scan, limit)), "{scan:?}");
    }
    let among = Scan::Buckets {
        part,
        first: NameHash(1),
        last: NameHash(2),
    };
    assert_eq!(list(&s, &among, 100), all[2..6]);
}

pub(super) fn counts(h: &mut dyn Harness) {
    let s = h.open();
    let before = s.records();
    assert!(before <= 1, "nothing but a superblock: {before}");
    let mut last = Lsn(0);
    for slot in 0..200 {
        last = apply(&s, vec![insert(counter(slot), count(1))]);
    }
    ok(block_on(s.wait(last, Level::Synced)));
    let estimated = s.records();
    assert!((100..=400).contains(&estimated), "200 records: {estimated}");
    let stats = s.stats();
    assert!(
        stats == Stats::default() || stats.batches == 200 && stats.syncs > 0,
        "{stats:?}"
    );
    drop(s);
    h.kill();
    let estimated = h.open().records();
    assert!((100..=400).contains(&estimated), "200 records: {estimated}");
}

pub(super) fn delete_range(h: &mut dyn Harness) {
    let s = h.open();
    for slot in 1..=9 {
        apply(
            &s,
            vec![
                insert(counter(slot), count(0)),
                insert(Key::Touch(dir_in(slot).into()), touch(0)),
            ],
        );
    }
    let lsn = ok(s.delete_range(&Scan::Keys(KeyRange {
        start: counter(3).encode(),
        end: counter(5).encode(),
    })));
    assert_eq!(lsn, s.applied());
    // Deleted: counter 3, everything else of slot 3 (tags above C), nothing of 5.
    assert_eq!(list(&s, &Scan::Slot(Slot(3)), 9), []);
    assert_eq!(list(&s, &Scan::Slot(Slot(4)), 9), []);
    assert_eq!(list(&s, &Scan::Slot(Slot(5)), 9).len(), 2);
    // What was deleted can come back.
    apply(
        &s,
        vec![
            insert(Key::Touch(dir_in(3).into()), touch(4)),
            insert(counter(3), count(1)),
        ],
    );
    apply(
        &s,
        vec![Mutation::Touch {
            part: dir_in(3).into(),
            delta: delta(1, 1),
        }],
    );
    assert_eq!(list(&s, &Scan::Slot(Slot(3)), 9).len(), 2);
    ok(s.delete_range(&everything()));
    assert_eq!(list(&s, &everything(), 9), []);
    // A touch is not remembered across a deletion.
    let gone = catch_unwind(AssertUnwindSafe(|| s.apply(&Batch::of(vec![touch_by(3, 1)]))));
    assert!(gone.is_err(), "touch of a deleted directory");
}

pub(super) fn reply_with_effect(h: &mut dyn Harness) {
    let s = h.open();
    let key = reply_key(1, 77, 3);
    for sequence in 1..=2 {
        let batch = Batch {
            mutations: vec![Mutation::Update {
                key: counter(1),
                record: count(sequence),
            }],
            reply: Some(ReplyWrite {
                key: key.clone(),
                record: reply(sequence),
            }),
        };
        ok(s.apply(&batch));
        assert_eq!(get(&s, &key), Some(Record::Reply(reply(sequence))));
    }
    assert_eq!(list(&s, &Scan::Replies(Slot(1), SessionId(77)), 9).len(), 1);
    assert_eq!(list(&s, &Scan::Replies(Slot(1), SessionId(78)), 9).len(), 0);
    drop(s);
    h.kill();
    assert_eq!(
        get(&h.open(), &key),
        Some(Record::Reply(reply(2))),
        "a retry finds its answer after kill -9"
    );
}

pub(super) fn obsolete_replies(h: &mut dyn Harness) {
    let s = h.open();
    let answer = |s: &Rc<dyn Store>, slot, sequence| {
        let reply = Some(ReplyWrite {
            key: reply_key(slot, 8, 0),
            record: reply(sequence),
        });
        let mutations = Vec::new();
        ok(s.apply(&Batch { mutations, reply }));
    };
    let sequence = |s: &Rc<dyn Store>, slot| match get(s, &reply_key(slot, 8, 0)) {
        Some(Record::Reply(r)) => Some(r.sequence.0),
        None => None,
        other => panic!("{other:?}"),
    };
    answer(&s, 1, 5);
    s.obsolete(&reply_key(1, 8, 0), 4);
    s.obsolete(&reply_key(1, 8, 0), 6);
    assert_eq!(sequence(&s, 1), Some(5), "no other");
    s.obsolete(&reply_key(2, 8, 0), 5);
    s.obsolete(&reply_key(1, 8, 0), 5);
    assert!([None, Some(5)].contains(&sequence(&s, 1)));
    answer(&s, 2, 6);
    // Whatever became of it, a newer one is one like any other.
    answer(&s, 1, 7);
    s.obsolete(&reply_key(1, 8, 0), 5);
    assert_eq!(sequence(&s, 1), Some(7));
    // And who deletes it, by its name or having seen it, has it deleted for good.
    s.obsolete(&reply_key(2, 8, 0), 6);
    apply(
        &s,
        vec![Mutation::Delete {
            key: reply_key(2, 8, 0),
        }],
    );
    answer(&s, 3, 8);
    s.obsolete(&reply_key(3, 8, 0), 8);
    let seen = list(&s, &Scan::AllReplies(Slot(3)), 9);
    apply(
        &s,
        seen.into_iter()
            .map(|(key, _)| Mutation::Delete { key })
            .collect(),
    );
    drop(s);
    for _ in 0..3 {
        h.kill();
        let s = h.open();
        let all = [1, 2, 3].map(|slot| sequence(&s, slot));
        assert_eq!(all, [Some(7), None, None]);
        answer(&s, 4, 9);
    }
}

pub(super) fn touches_commute(h: &mut dyn Harness) {
    let s = h.open();
    apply(
        &s,
        vec![
            insert(Key::Touch(dir_in(1).into()), touch(5)),
            insert(Key::Touch(dir_in(2).into()), touch(5)),
        ],
    );
    let deltas = [delta(3, 10), delta(-2, 30), delta(1, 20)];
    let on = |slot, d: &TouchDelta| {
        vec![Mutation::Touch {
            part: dir_in(slot).into(),
            delta: *d,
        }]
    };
    for (one, two) in deltas.iter().zip(deltas.iter().rev()) {
        apply(&s, on(1, one));
        apply(&s, on(2, two));
    }
    assert_eq!(
        get(&s, &Key::Touch(dir_in(1).into())),
        get(&s, &Key::Touch(dir_in(2).into()))
    );
    assert_eq!(entries(&s, 1), 7);
    // In one batch with the record they follow from, twice, and after an update of the whole record.
    apply(
        &s,
        vec![
            insert(Key::Touch(dir_in(3).into()), touch(0)),
            touch_by(3, 2),
            touch_by(3, -1),
        ],
    );
    assert_eq!(entries(&s, 3), 1);
    apply(
        &s,
        vec![Mutation::Update {
            key: Key::Touch(dir_in(3).into()),
            record: touch(40),
        }],
    );
    apply(&s, vec![touch_by(3, 2)]);
    drop(s);
    h.kill();
    let s = h.open();
    apply(&s, vec![touch_by(3, 1), touch_by(1, 1)]);
    assert_eq!((entries(&s, 3), entries(&s, 1)), (43, 8));
}

pub(super) fn broken_invariants(h: &mut dyn Harness) {
    let broken = [
        vec![insert(counter(1), count(2))],
        vec![insert(counter(2), count(2)), insert(counter(2), count(2))],
        vec![touch_by(1, -6)],
        vec![touch_by(2, 1)],
        vec![insert(counter(2), touch(1))],
    ];
    let s = h.open();
    apply(
        &s,
        vec![
            insert(counter(1), count(1)),
            insert(Key::Touch(dir_in(1).into()), touch(5)),
        ],
    );
    for mutations in broken {
        let applied = catch_unwind(AssertUnwindSafe(|| s.apply(&Batch::of(mutations.clone()))));
        assert!(applied.is_err(), "the store took {mutations:?}");
    }
}
