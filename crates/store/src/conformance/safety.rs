//! Waiting, surviving, moving, and what damage does.

use super::*;

pub(super) fn waiting(h: &mut dyn Harness) {
    let s = h.open();
    ok(block_on(s.wait(Lsn(0), Level::Synced)));
    let lsn = apply(&s, vec![insert(counter(1), count(1))]);
    if h.durability() == Durability::Async {
        assert_eq!(s.safe(Level::Durable), lsn);
    }
    ok(block_on(s.wait(lsn, Level::Durable)));
    assert_eq!(s.safe(Level::Durable), lsn);
    ok(block_on(s.wait(lsn, Level::Synced)));
    assert_eq!(s.safe(Level::Synced), lsn);

    let lsn = apply(&s, vec![insert(counter(2), count(1))]);
    ok(block_on(s.wait(lsn, Level::Synced)));
    apply(&s, vec![insert(counter(3), count(1))]);
    drop(s);
    if h.power_cut() {
        let s = h.open();
        assert_eq!(get(&s, &counter(1)), Some(count(1)));
        assert_eq!(get(&s, &counter(2)), Some(count(1)));
    }
}

pub(super) fn grouping(h: &mut dyn Harness) {
    let s = h.open();
    let mut waits = Vec::new();
    for n in 1..=100 {
        let lsn = apply(&s, vec![insert(counter(n), count(1))]);
        waits.push(Some(s.wait(lsn, Level::Synced)));
    }
    let before = h.syncs(&s);
    block_on(std::future::poll_fn(|cx| {
        for w in &mut waits {
            if let Some(future) = w
                && let Poll::Ready(r) = future.as_mut().poll(cx)
            {
                ok(r);
                *w = None;
            }
        }
        if waits.iter().all(Option::is_none) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }));
    assert_eq!(s.safe(Level::Synced), Lsn(100));
    assert!(
        h.syncs(&s) - before <= 3,
        "{} syncs for 100 waiters",
        h.syncs(&s) - before
    );
}

pub(super) fn abandoned_waits(h: &mut dyn Harness) {
    let s = h.open();
    for n in 1..=20 {
        let lsn = apply(&s, vec![insert(counter(n), count(1))]);
        let mut left = s.wait(lsn, Level::Synced);
        let mut unpolled = s.wait(lsn, Level::Durable);
        let _ = left.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let mut other = s.wait(lsn, Level::Synced);
        let mut first = true;
        ok(block_on(std::future::poll_fn(|cx| {
            let polled = other.as_mut().poll(cx);
            if std::mem::take(&mut first) {
                // Whoever drove the sync goes away while another waits for it.
                left = Box::pin(std::future::ready(Ok(())));
                unpolled = Box::pin(std::future::ready(Ok(())));
            }
            polled
        })));
    }
}

pub(super) fn reopening(h: &mut dyn Harness) {
    for round in 0..4u16 {
        let s = h.open();
        assert_eq!(
            (s.applied(), s.safe(Level::Synced)),
            (Lsn(0), Lsn(0)),
            "positions start again"
        );
        assert_eq!(list(&s, &everything(), 100).len(), 10 * usize::from(round));
        for n in 0..10 {
            apply(&s, vec![insert(counter(round * 10 + n), count(1))]);
        }
        drop(s);
        h.kill();
    }
    // What was found at opening is synced: it may have been served, so a power cut must not take it.
    let s = h.open();
    assert_eq!(list(&s, &everything(), 100).len(), 40);
    drop(s);
    if h.power_cut() {
        assert_eq!(list(&h.open(), &everything(), 100).len(), 40);
    }
}

pub(super) fn export_and_ingest(h: &mut dyn Harness) {
    let s = h.open();
    let session = Key::Session(SessionId(4));
    let opened = Record::Session(SessionRecord {
        opened: Timestamp { secs: 1, nanos: 2 },
        ended: None,
    });
    apply(
        &s,
        vec![
            insert(counter(1), count(1)),
            insert(counter(3), count(3)),
            insert(session.clone(), opened.clone()),
        ],
    );
    let answered = Batch {
        mutations: vec![
            insert(counter(2), count(2)),
            insert(Key::Touch(dir_in(2).into()), touch(5)),
        ],
        reply: Some(ReplyWrite {
            key: reply_key(2, 8, 0),
            record: reply(1),
        }),
    };
    ok(s.apply(&answered));
    let before = list(&s, &everything(), 100);
    let slot = Scan::Slot(Slot(2));
    let (bundle, rest) = ok(block_on(s.export(&slot, usize::MAX).wait()));
    assert_eq!(rest, None);
    // In pieces it is the same.
    let (mut pieces, mut rest) = (Vec::new(), Some(slot.clone()));
    while let Some(scan) = rest {
        let (piece, left) = ok(block_on(s.export(&scan, 1).wait()));
        pieces.extend(ok(piece.records()));
        rest = left;
    }
    assert_eq!(pieces, ok(bundle.records()));
    ok(s.delete_range(&Scan::Slot(Slot(2))));
    assert_eq!(list(&s, &Scan::Slot(Slot(2)), 9), []);
    assert_eq!(list(&s, &everything(), 100).len(), 2);
    let lsn = ok(s.ingest(&bundle));
    assert_eq!(lsn, s.applied());
    assert_eq!(list(&s, &everything(), 100), before);
    assert_eq!(
        get(&s, &reply_key(2, 8, 0)),
        Some(Record::Reply(reply(1))),
        "H47: a retry finds it at the new owner"
    );
    assert_eq!(get(&s, &session), Some(opened), "the store's own records stay");
    apply(&s, vec![touch_by(2, 1)]);
    assert_eq!(entries(&s, 2), 6);

    // An empty slot travels too; damaged bundles do not.
    let empty = ok(block_on(s.export(&Scan::Slot(Slot(9)), 1).wait()));
    assert_eq!(empty, (Bundle::of(Vec::new()), None));
    // What is there already is replaced, and counted on from there.
    ok(s.ingest(&bundle));
    assert_eq!(list(&s, &everything(), 100).len(), before.len());
    assert_eq!(entries(&s, 2), 5);
    apply(&s, vec![touch_by(2, 2)]);
    assert_eq!(entries(&s, 2), 7);
    ok(s.delete_range(&Scan::Slot(Slot(2))));
    for i in [0, bundle.0.len() / 2, bundle.0.len() - 1] {
        let mut bad = bundle.clone();
        bad.0[i] ^= 1;
        assert!(
            matches!(s.ingest(&bad), Err(StoreError::Corrupt { .. })),
            "bit {i}"
        );
        assert!(
            matches!(
                s.ingest(&Bundle(bundle.0[..i].to_vec())),
                Err(StoreError::Corrupt { .. })
            ),
            "cut at {i}"
        );
    }
    assert_eq!(list(&s, &Scan::Slot(Slot(2)), 9), []);
}

pub(super) fn damage(h: &mut dyn Harness) {
    let s = h.open();
    apply(&s, (1..=3).map(|n| insert(counter(n), count(1))).collect());
    apply(&s, vec![insert(Key::Touch(dir_in(4).into()), touch(1))]);
    drop(s);
    if !h.corrupt(&counter(2)) || !h.corrupt(&Key::Touch(dir_in(4).into())) {
        return;
    }
    let s = h.open();
    let all = block_on(s.list(&everything(), 9).wait());
    assert!(matches!(all, Err(StoreError::Corrupt { .. })), "{all:?}");
    let one = block_on(s.get(&counter(2)).wait());
    assert!(matches!(one, Err(StoreError::Corrupt { .. })), "{one:?}");
    let slot = block_on(s.export(&Scan::Slot(Slot(2)), usize::MAX).wait());
    assert!(matches!(slot, Err(StoreError::Corrupt { .. })), "{slot:?}");
    // A batch that would build on it is refused whole, the rest of the store lives on.
    let built = s.apply(&Batch::of(vec![insert(counter(7), count(1)), touch_by(4, 1)]));
    assert!(matches!(built, Err(StoreError::Corrupt { .. })), "{built:?}");
    assert_eq!(get(&s, &counter(7)), None);
    assert_eq!(get(&s, &counter(3)), Some(count(1)));
    apply(&s, vec![insert(counter(7), count(1))]);
}

pub(super) fn pictures(h: &mut dyn Harness) {
    let s = h.open();
    apply(&s, (1..=80).map(|n| insert(counter(n), count(1))).collect());
    apply(&s, vec![insert(Key::Touch(dir_in(4).into()), touch(1))]);
    let (before, _) = ok(block_on(s.export(&everything(), usize::MAX).wait()));
    let picture = ok(block_on(s.picture()));
    // Whatever becomes of the store, it stays as it was.
    let changed = (1..=40).map(|n| Mutation::Update {
        key: counter(n),
        record: count(2),
    });
    apply(&s, changed.collect());
    apply(&s, vec![insert(counter(900), count(1)), touch_by(4, 3)]);
    ok(s.delete_range(&Scan::Slot(Slot(50))));
    let (mut pieces, mut rest) = (Vec::new(), Some(everything()));
    while let Some(scan) = rest {
        let (piece, left) = ok(block_on(picture.export(&scan, 100)));
        pieces.extend(ok(piece.records()));
        rest = left;
    }
    assert_eq!(pieces, ok(before.records()));
    let empty = ok(block_on(picture.export(&Scan::Slot(Slot(900)), 1)));
    assert_eq!(empty, (Bundle::of(Vec::new()), None));
    // Another one is of another time.
    let later = ok(block_on(s.picture()));
    let (now, _) = ok(block_on(later.export(&everything(), usize::MAX)));
    let (there, _) = ok(block_on(s.export(&everything(), usize::MAX).wait()));
    assert_eq!(now, there);
    assert_ne!(now, before);
    drop((picture, later));
    drop(s);
    assert!(!list(&h.open(), &everything(), 1000).is_empty());
}
