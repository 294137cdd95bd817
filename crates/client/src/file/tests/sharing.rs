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
    // Writes of both: the last publish wins, and a's cache is not trusted any more.
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
