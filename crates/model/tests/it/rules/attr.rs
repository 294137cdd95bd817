//! SetAttr and Publish.

use super::{World, at, name, view};
use pando_model::{Body, Content, DirRef, ModelOp, NodeId, SIZE_MAX};
use pando_types::{AttrChange, Errno, Generation, Perm, TimeChange};

fn size(n: u64) -> AttrChange {
    AttrChange {
        size: Some(n),
        ..Default::default()
    }
}

fn owner(uid: Option<u32>, gid: Option<u32>) -> AttrChange {
    AttrChange {
        uid,
        gid,
        ..Default::default()
    }
}

fn times(atime: Option<TimeChange>, mtime: Option<TimeChange>) -> AttrChange {
    AttrChange {
        atime,
        mtime,
        ..Default::default()
    }
}

fn publish(dir: DirRef, n: &str, id: NodeId, content: Content, size: u64) -> ModelOp {
    ModelOp::Publish {
        dir,
        name: name(n),
        id,
        content,
        size,
        mtime: None,
        base: None,
    }
}

/// User 5 owns `f`.
fn with_file(perm: u16) -> (World, NodeId) {
    let mut w = World::new();
    w.become_user(5);
    let f = w.file(w.root, "f", perm);
    (w, f)
}

#[test]
fn the_object_meant_must_be_there() {
    let (mut w, f) = with_file(0o644);
    let mut set = |n: &str, id, change| {
        let dir = w.root;
        w.apply(ModelOp::SetAttr {
            dir,
            name: name(n),
            id,
            change,
            through_handle: false,
        })
    };
    assert_eq!(set("x", f, size(1)), Err(Errno::NotFound));
    let old = NodeId::new(f.ino, Generation(1));
    assert_eq!(set("f", old, size(1)), Err(Errno::Stale));
    assert_eq!(set("f", old, AttrChange::default()), Err(Errno::Stale));
    // No change is no change.
    assert_eq!(view(set("f", f, AttrChange::default())).attr.ctime, at(1));
    assert_eq!(
        w.apply(publish(w.root, "x", f, Content::Sparse, 0)),
        Err(Errno::Stale)
    );
    assert_eq!(
        w.apply(publish(w.root, "f", old, Content::Sparse, 0)),
        Err(Errno::Stale)
    );
}

#[test]
fn chmod_is_the_owners() {
    let (mut w, f) = with_file(0o644);
    assert_eq!(view(w.chmod(w.root, "f", 0o7711)).attr.perm.bits(), 0o7711);
    assert_eq!(
        w.model.attr(f).map(|a| (a.mtime, a.ctime)),
        Some((at(1), w.now()))
    );
    w.become_user(6);
    assert_eq!(w.chmod(w.root, "f", 0o777), Err(Errno::Perm));
    // The set-gid bit is for members of the group, on directories too.
    w.become_user(5);
    w.dir(w.root, "d", 0o755);
    w.cred.gid = 9;
    assert_eq!(view(w.chmod(w.root, "f", 0o6755)).attr.perm.bits(), 0o4755);
    assert_eq!(view(w.chmod(w.root, "d", 0o2755)).attr.perm.bits(), 0o755);
    w.become_root();
    assert_eq!(view(w.chmod(w.root, "f", 0o6755)).attr.perm.bits(), 0o6755);
}

#[test]
fn a_symlink_has_no_bits_to_change() {
    let mut w = World::new();
    w.apply(ModelOp::Symlink {
        dir: w.root,
        name: name("s"),
        target: b"f".to_vec(),
    })
    .expect("symlink");
    assert_eq!(w.chmod(w.root, "s", 0o700), Err(Errno::Unsupported));
    w.set_attr(w.root, "s", owner(Some(5), None))
        .expect("but an owner");
}

#[test]
fn chown_is_roots_and_chgrp_is_the_members() {
    let (mut w, f) = with_file(0o644);
    assert_eq!(w.set_attr(w.root, "f", owner(Some(6), None)), Err(Errno::Perm));
    w.set_attr(w.root, "f", owner(Some(5), None))
        .expect("the owner it has");
    assert_eq!(w.set_attr(w.root, "f", owner(None, Some(77))), Err(Errno::Perm));
    w.cred.groups = vec![77];
    w.set_attr(w.root, "f", owner(None, Some(77))).expect("a member");
    w.cred.groups = vec![];
    w.set_attr(w.root, "f", owner(None, Some(77)))
        .expect("the group it has");
    w.become_user(6);
    w.cred.groups = vec![77];
    assert_eq!(w.set_attr(w.root, "f", owner(None, Some(77))), Err(Errno::Perm));
    assert_eq!(w.set_attr(w.root, "f", owner(Some(5), None)), Err(Errno::Perm));
    w.become_root();
    w.set_attr(w.root, "f", owner(Some(6), Some(66))).expect("root");
    assert_eq!(w.model.attr(f).map(|a| (a.uid, a.gid)), Some((6, 66)));
}

#[test]
fn chown_takes_set_id_bits_even_from_root() {
    let (mut w, f) = with_file(0o644);
    let d = w.dir(w.root, "d", 0o755);
    w.become_root();
    for (before, after) in [(0o6755, 0o755), (0o6745, 0o2745), (0o4700, 0o700)] {
        w.chmod(w.root, "f", before).expect("chmod");
        w.set_attr(w.root, "f", owner(Some(5), None)).expect("chown");
        assert_eq!(w.perm(f), after);
    }
    w.chmod(w.root, "d", 0o6755).expect("chmod");
    w.set_attr(w.root, "d", owner(Some(6), Some(6))).expect("chown");
    assert_eq!(w.perm(d.id), 0o6755);
    // Whoever is not in the group takes the set-gid bit in any case.
    w.chmod(w.root, "f", 0o2644).expect("chmod");
    w.become_user(5);
    w.cred.gid = 9;
    w.set_attr(w.root, "f", owner(None, Some(9))).expect("chgrp");
    assert_eq!(w.perm(f), 0o644);
    // Bits given in the same change stay.
    w.become_root();
    let both = AttrChange {
        perm: Some(Perm::new(0o4711)),
        uid: Some(8),
        ..Default::default()
    };
    assert_eq!(view(w.set_attr(w.root, "f", both)).attr.perm.bits(), 0o4711);
}

#[test]
fn truncate() {
    let (mut w, f) = with_file(0o6755);
    let dir = w.root;
    w.dir(dir, "d", 0o777);
    w.apply(ModelOp::Symlink {
        dir,
        name: name("s"),
        target: b"f".to_vec(),
    })
    .expect("symlink");
    assert_eq!(w.set_attr(dir, "d", size(0)), Err(Errno::IsDir));
    assert_eq!(w.set_attr(dir, "s", size(0)), Err(Errno::Invalid));
    assert_eq!(w.set_attr(dir, "f", size(SIZE_MAX + 1)), Err(Errno::TooBig));
    w.set_attr(dir, "f", size(SIZE_MAX)).expect("the largest");
    assert_eq!(w.perm(f), 0o755);
    w.apply(publish(dir, "f", f, Content::inline(b"abcd"), 4))
        .expect("written");
    w.set_attr(dir, "f", size(2)).expect("cut");
    let v = view(w.set_attr(dir, "f", size(4)));
    let Body::File(content) = v.body else {
        panic!("a file")
    };
    assert_eq!(content.read(4), Some(b"ab\0\0".to_vec()));
    // Also where the size stays.
    let v = view(w.set_attr(dir, "f", size(4)));
    assert_eq!((v.attr.mtime, v.attr.ctime), (w.now(), w.now()));
    w.become_user(6);
    assert_eq!(w.set_attr(dir, "f", size(0)), Err(Errno::Access));
    let through = ModelOp::SetAttr {
        dir,
        name: name("f"),
        id: f,
        change: size(0),
        through_handle: true,
    };
    w.apply(through).expect("checked at open");
}

#[test]
fn a_handle_needs_nothing_of_the_directory() {
    let (mut w, f) = with_file(0o644);
    let shut = DirRef {
        dir_perm: Some((Perm::new(0), 0, 0)),
        ..w.root
    };
    assert_eq!(w.set_attr(shut, "f", size(1)), Err(Errno::Access));
    let op = ModelOp::SetAttr {
        dir: shut,
        name: name("f"),
        id: f,
        change: size(1),
        through_handle: true,
    };
    w.apply(op).expect("through a handle");
    w.apply(publish(shut, "f", f, Content::Sparse, 9))
        .expect("through a handle");
}

#[test]
fn utimens() {
    let (mut w, f) = with_file(0o622);
    let (now, given) = (Some(TimeChange::Now), Some(TimeChange::To(at(-7))));
    let v = view(w.set_attr(w.root, "f", times(given, None)));
    assert_eq!(
        (v.attr.atime, v.attr.mtime, v.attr.ctime),
        (at(-7), at(1), w.now())
    );
    w.become_user(6);
    w.set_attr(w.root, "f", times(now, now)).expect("who may write");
    assert_eq!(
        w.model.attr(f).map(|a| (a.atime, a.mtime)),
        Some((w.now(), w.now()))
    );
    for (a, m) in [
        (given, given),
        (now, given),
        (given, now),
        (now, None),
        (None, now),
    ] {
        assert_eq!(w.set_attr(w.root, "f", times(a, m)), Err(Errno::Perm));
    }
    w.become_root();
    w.chmod(w.root, "f", 0o644).expect("chmod");
    w.become_user(6);
    assert_eq!(w.set_attr(w.root, "f", times(now, now)), Err(Errno::Access));
}

#[test]
fn a_directory_has_two_halves() {
    let mut w = World::new();
    let d = w.dir(w.root, "d", 0o755);
    let stat = |w: &World| w.model.dir_stat(d.id).expect("alive");
    w.chmod(w.root, "d", 0o700).expect("chmod");
    assert_eq!(
        (stat(&w).ctime, view(w.lookup(w.root, "d")).attr.ctime),
        (at(1), at(2))
    );
    let to = Some(TimeChange::To(at(1000)));
    w.set_attr(w.root, "d", times(to, to)).expect("utimens");
    let s = stat(&w);
    assert_eq!((s.atime, s.mtime, s.ctime), (at(1000), at(1000), w.now()));
    assert_eq!(view(w.lookup(w.root, "d")).attr.ctime, at(2));
    // A time that was set gives way to the next change.
    w.file(d, "f", 0o644);
    assert_eq!((stat(&w).mtime, stat(&w).ctime), (w.now(), w.now()));
    // A clock that steps back moves no time of a directory back.
    let latest = w.now();
    w.clock = -100;
    w.unlink(d, "f").expect("unlink");
    assert_eq!((stat(&w).mtime, stat(&w).ctime), (latest, latest));
    w.clock = 50;
    w.set_attr(w.root, "d", times(None, to)).expect("utimens");
    w.clock = 60;
    w.file(d, "g", 0o644);
    assert_eq!(stat(&w).mtime, at(61));
}

#[test]
fn publishing() {
    let (mut w, f) = with_file(0o6755);
    let dir = w.root;
    let d = w.dir(dir, "d", 0o777);
    assert_eq!(
        w.apply(publish(dir, "d", d.id, Content::Sparse, 0)),
        Err(Errno::Invalid)
    );
    assert_eq!(
        w.apply(publish(dir, "f", f, Content::Sparse, SIZE_MAX + 1)),
        Err(Errno::TooBig)
    );
    assert_eq!(
        w.apply(publish(dir, "f", f, Content::inline(b"abc"), 2)),
        Err(Errno::Invalid)
    );
    let written = Content::Bytes(b"ab\0".as_slice().into());
    let v = view(w.apply(publish(dir, "f", f, written, 5)));
    assert_eq!(v.body, Body::File(Content::inline(b"ab")));
    assert_eq!(
        (v.attr.size, v.attr.mtime, v.attr.ctime, v.attr.perm.bits()),
        (5, w.now(), w.now(), 0o755)
    );
    let mtime = Some(at(77));
    let op = ModelOp::Publish {
        dir,
        name: name("f"),
        id: f,
        content: Content::Blocks(4096),
        size: 9,
        mtime,
        base: None,
    };
    let v = view(w.apply(op));
    assert_eq!(
        (v.body, v.attr.mtime, v.attr.ctime),
        (Body::File(Content::Blocks(4096)), at(77), w.now())
    );
    w.become_root();
    w.chmod(dir, "f", 0o6755).expect("chmod");
    w.apply(publish(dir, "f", f, Content::Sparse, 0))
        .expect("written");
    assert_eq!(w.perm(f), 0o6755);
}
