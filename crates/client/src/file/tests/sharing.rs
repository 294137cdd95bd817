//! A file shared with other handles, other mounts and other names.

use super::*;

#[test]
fn removed_files_go_on_and_are_released() {
    let (ops, blocks, mut h) = new(32);
    h.write(0, b"abc").unwrap();
    h.file.removed(pando_types::Slot(0), time(9));
    let calls = ops.calls.get();
    h.write(3, &[1; 100]).unwrap();
    h.truncate(50, true).unwrap();
    h.flush().unwrap();
    h.fsync().unwrap();
    assert_eq!((h.file.attr().nlink, h.file.attr().size), (0, 50));
    assert_eq!(&h.all()[..4], b"abc\x01");
    assert_eq!(ops.calls.get(), calls, "nothing is published");
    h.close().unwrap();
    assert!(ops.server.borrow().released);
    assert_eq!(blocks.count(KEY), 0);
}

/// A backup may still read what was published: the servers know when it goes.
#[test]
fn published_blocks_are_the_servers_to_delete() {
    let (ops, blocks, mut h) = new(32);
    h.write(0, &[1; 100]).unwrap();
    h.flush().unwrap();
    let there = blocks.count(KEY);
    h.file.removed(pando_types::Slot(0), time(9));
    h.close().unwrap();
    assert!(ops.server.borrow().released && there > 0);
    assert_eq!(blocks.count(KEY), there);
}

#[test]
fn renamed_here_is_found_renamed_elsewhere_is_stale() {
    let (ops, _, mut h) = new(32);
    h.write(0, b"x").unwrap();
    h.file.location().set(place(b"g"));
    assert_eq!(h.flush(), Err(Errno::Stale));
    assert!(h.file.is_dirty());
    h.file.location().set(place(b"f"));
    h.flush().unwrap();
    assert_eq!(ops.server.borrow().view.attr.size, 1);
}

#[test]
fn a_failed_publish_can_be_repeated() {
    let (ops, _, mut h) = new(32);
    h.write(0, b"x").unwrap();
    ops.fail.set(1);
    assert_eq!(h.flush(), Err(Errno::Unreachable));
    h.flush().unwrap();
    let calls = ops.calls.get();
    h.flush().unwrap();
    assert_eq!(ops.calls.get(), calls, "clean");
}

#[test]
fn attributes_show_what_is_not_published() {
    let (ops, _, mut h) = new(32);
    h.write(0, b"abc").unwrap();
    let attr = h.file.attr();
    assert_eq!(
        (attr.size, attr.mtime, attr.ctime, attr.perm.bits()),
        (3, time(2), time(2), 0o755)
    );
    h.flush().unwrap();
    assert_eq!(h.file.attr(), ops.server.borrow().view.attr);
}

#[test]
fn close_to_open_and_what_a_cache_stands_for() {
    let (ops, blocks, mut a) = new(32);
    a.write(0, b"from a").unwrap();
    a.flush().unwrap();
    assert_eq!(a.file.cached_version(), Some(2), "only our own change");
    let mut b = Handle::open(&ops, &blocks, DataSync::BeforePublish);
    b.write(5, b"b").unwrap();
    b.close().unwrap();
    let again = run(open(&ops, &user(), &place(b"f"), Access::READ)).unwrap();
    let stale = Opened {
        entry: EntryView {
            version: 1,
            ..again.entry.clone()
        },
        ..again.clone()
    };
    assert_eq!(
        a.file.refresh(stale),
        Ok(false),
        "an overtaken answer is not taken over"
    );
    assert_eq!(a.all(), b"from a");
    assert_eq!(a.file.refresh(again), Ok(true));
    assert_eq!(a.all(), b"from b");
    assert_eq!(a.file.cached_version(), None, "what was cached before is old");
    a.file.cache_dropped();
    assert_eq!(a.file.cached_version(), Some(3));
    // Writes of both: of the same byte the last to publish is there, and a's cache is not trusted any more.
    a.write(0, b"F").unwrap();
    let mut c = Handle::open(&ops, &blocks, DataSync::BeforePublish);
    c.write(0, b"C").unwrap();
    c.close().unwrap();
    a.flush().unwrap();
    assert_eq!(a.file.cached_version(), None);
    assert_eq!(
        Handle::open(&ops, &blocks, DataSync::BeforePublish).all(),
        b"From b"
    );
    // A truncate is not a replacement: what another mount wrote is seen.
    c = Handle::open(&ops, &blocks, DataSync::BeforePublish);
    a.write(0, b"new").unwrap();
    a.flush().unwrap();
    c.truncate(4, true).unwrap();
    assert_eq!(c.all(), b"newm");
}

/// Bytes, and where they are written.
type Write<'a> = (u64, &'a [u8]);

/// Two mounts change the file at once, each its own bytes: all are there.
fn both(block_size: u32, before: &[u8], a: Write<'_>, b: Write<'_>) -> Vec<u8> {
    let (ops, blocks, mut first) = new(block_size);
    first.write(0, before).unwrap();
    first.flush().unwrap();
    let mut second = Handle::open(&ops, &blocks, DataSync::BeforePublish);
    first.write(a.0, a.1).unwrap();
    second.write(b.0, b.1).unwrap();
    first.flush().unwrap();
    second.flush().unwrap();
    let all = second.all();
    assert_eq!(all, Handle::open(&ops, &blocks, DataSync::BeforePublish).all());
    all
}

fn expected(before: &[u8], writes: [Write<'_>; 2]) -> Vec<u8> {
    let mut all = before.to_vec();
    for (at, bytes) in writes {
        let (from, to) = (at as usize, at as usize + bytes.len());
        all.resize(all.len().max(to), 0);
        all[from..to].copy_from_slice(bytes);
    }
    all
}

#[test]
fn who_writes_other_bytes_takes_none_back() {
    let long = [7; 3 * LIMIT as usize];
    let cases: [(&[u8], Write<'_>, Write<'_>); 8] = [
        (b"0123456789", (2, b"aa"), (7, b"b")),
        (b"0123456789", (10, b"longer"), (0, b"b")),
        (b"0123456789", (0, b"a"), (20, b"past a hole")),
        // One comes to blocks meanwhile.
        (b"0123456789", (100, b"a"), (3, b"b")),
        (b"0123456789", (3, b"a"), (100, b"b")),
        (b"0123456789", (0, b"aaa"), (5, &long)),
        (&long, (1, b"a"), (180, b"b")),
        (&long, (192, b"a"), (0, b"b")),
    ];
    for block_size in [16, 64] {
        for (before, a, b) in cases {
            assert_eq!(
                both(block_size, before, a, b),
                expected(before, [a, b]),
                "{a:?} {b:?}"
            );
        }
    }
}

#[test]
fn a_size_that_was_set_is_not_taken_back() {
    let (ops, blocks, mut a) = new(32);
    a.write(0, b"0123456789").unwrap();
    a.flush().unwrap();
    let mut b = Handle::open(&ops, &blocks, DataSync::BeforePublish);
    b.write(8, b"bbbb").unwrap();
    b.flush().unwrap();
    a.write(0, b"a").unwrap();
    a.truncate(5, true).unwrap();
    assert_eq!(a.all(), b"a1234");
    // Who only knows the longer one has not written what was cut.
    b.write(1, b"b").unwrap();
    b.flush().unwrap();
    assert_eq!(b.all(), b"ab234");
}

#[test]
fn what_must_not_be_published_is_forgotten() {
    for len in [3_usize, 100] {
        let (ops, blocks, mut h) = new(32);
        h.write(0, b"before").unwrap();
        h.flush().unwrap();
        h.write(0, &vec![7; len]).unwrap();
        let mut other = Handle::open(&ops, &blocks, DataSync::BeforePublish);
        other.write(0, b"next!!!").unwrap();
        other.flush().unwrap();
        run(h.file.forget_changes(&ops, &user()));
        assert!(!h.file.is_dirty());
        assert_eq!(h.file.cached_version(), None);
        let calls = ops.calls.get();
        h.close().unwrap();
        assert_eq!(ops.calls.get(), calls, "nothing is published");
        assert_eq!(h.all(), b"next!!!");
        // It goes on from there.
        h.write(7, b"x").unwrap();
        h.flush().unwrap();
        let last = Handle::open(&ops, &blocks, DataSync::BeforePublish);
        assert_eq!(last.all(), b"next!!!x");
    }
}
