//! The checks find what they are there for.

use super::*;
use pando_format::{AccessRecord, DecisionRecord, Head, Marks, PreparedRecord, Touch, TouchDelta};
use pando_types::{Birth, BootEpoch, DirStat, Part, Perm, Realm, Timestamp};

const HERE: ServerId = ServerId(1);
const THERE: ServerId = ServerId(2);

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn insert(key: Key, record: Record) -> Mutation {
    Mutation::Insert { key, record }
}

fn head(id: DirId, parent: DirId, generation: u64, called: &str) -> Mutation {
    let head = Head {
        generation: Generation(generation),
        ino: Ino(generation),
        birth: Birth {
            parent,
            name: name(called),
            version: 0,
        },
        parent,
        parent_generation: if parent == DirId::ABOVE_ROOT {
            Generation(0)
        } else {
            Generation(1)
        },
        name: name(called),
        realm: Realm(0),
        salt: 0,
        split: 0,
        seal: 0,
        listed: false,
    };
    insert(Key::Head(id.into()), Record::Head(head))
}

fn touch(id: DirId) -> Mutation {
    insert(
        Key::Touch(id.into()),
        Record::Touch(Touch {
            stat: DirStat::default(),
            explicit: false,
        }),
    )
}

fn entry(dir: DirId, called: &str, id: DirId, generation: u64) -> Mutation {
    let access = AccessRecord {
        id,
        generation: Generation(generation),
        ino: Ino(generation),
        perm: Perm::new(0o755),
        uid: 0,
        gid: 0,
        ctime: Timestamp::default(),
        realm: Realm(0),
        salt: 0,
        version: 0,
        marks: Marks::NONE,
        seal: 0,
        acls: Default::default(),
    };
    let key = Key::Entry {
        part: dir.into(),
        hash: NameHash(8),
        name: name(called),
    };
    insert(
        key,
        Record::Entry(Entry {
            ordinal: 3,
            target: Target::Dir(access),
        }),
    )
}

fn counted(dir: DirId, entries: i32) -> Mutation {
    Mutation::Touch {
        part: dir.into(),
        delta: TouchDelta {
            entries,
            subdirs: entries,
            time: Timestamp::default(),
        },
    }
}

fn root() -> Tree {
    let mut tree = Tree::default();
    let batch = vec![
        entry(DirId::ABOVE_ROOT, "root", DirId::ROOT, 1),
        head(DirId::ROOT, DirId::ABOVE_ROOT, 1, "root"),
        touch(DirId::ROOT),
    ];
    tree.apply(HERE, &Batch::of(batch)).expect("a root");
    tree
}

#[test]
fn counts_orphans_and_loops_are_seen() {
    let d = DirId(77);
    let whole = vec![
        entry(DirId::ROOT, "d", d, 5),
        counted(DirId::ROOT, 1),
        head(d, DirId::ROOT, 5, "d"),
        touch(d),
    ];
    assert_eq!(root().apply(HERE, &Batch::of(whole.clone())), Ok(()));
    for missing in 0..whole.len() {
        let mut part = whole.clone();
        part.remove(missing);
        assert!(
            root().apply(HERE, &Batch::of(part)).is_err(),
            "without {:?}",
            whole[missing]
        );
    }
    let mut tree = root();
    tree.apply(HERE, &Batch::of(whole)).expect("a directory");
    let lost = Batch::of(vec![head(DirId(78), DirId(78), 6, "x"), touch(DirId(78))]);
    assert!(tree.apply(HERE, &lost).is_err());
}

/// A transaction counts as a whole from its decision on, and not before.
#[test]
fn transactions_are_whole() {
    let tx = TxId {
        coordinator: HERE,
        boot: BootEpoch(1),
        number: 1,
    };
    let d = DirId(77);
    let there = vec![head(d, DirId::ROOT, 5, "d"), touch(d)];
    let prepared = PreparedRecord {
        mutations: there.clone(),
        reply: None,
    };
    let slot = Part::whole(d).slot();
    let prepare = Batch::of(vec![insert(Key::Prepared(slot, tx), Record::Prepared(prepared))]);
    let decision = DecisionRecord {
        participants: vec![THERE],
    };
    let decide = Batch::of(vec![
        entry(DirId::ROOT, "d", d, 5),
        counted(DirId::ROOT, 1),
        insert(Key::Decision(tx), Record::Decision(decision)),
    ]);
    let mut done = vec![Mutation::Delete {
        key: Key::Prepared(slot, tx),
    }];
    done.extend(there);
    let forget = Batch::of(vec![Mutation::Delete {
        key: Key::Decision(tx),
    }]);

    let mut tree = root();
    assert_eq!(tree.apply(THERE, &prepare), Ok(()));
    assert!(tree.head(d).is_none());
    assert_eq!(tree.apply(HERE, &decide), Ok(()));
    assert!(tree.head(d).is_some());
    assert!(
        tree.clone().apply(HERE, &forget).is_err(),
        "forgotten before it was applied (H38)"
    );
    assert!(
        tree.clone()
            .apply(THERE, &Batch::of(vec![done[0].clone()]))
            .is_err(),
        "dropped instead of applied (H37)"
    );
    assert_eq!(tree.apply(THERE, &Batch::of(done)), Ok(()));
    assert_eq!(tree.apply(HERE, &forget), Ok(()));
    assert!(tree.apply(THERE, &prepare).is_err(), "a zombie (H39)");
    assert!(
        root().apply(HERE, &decide).is_err(),
        "decided without a vote (H40)"
    );
}
