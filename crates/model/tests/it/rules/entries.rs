//! Entering directories, making and removing entries, reading.

use super::{READ, WRITE, World, name, user, view};
use pando_model::{Body, Content, DirRef, ModelAnswer, ModelOp, NodeId};
use pando_types::{Access, Errno, FileKind, Generation, Ino, Perm};

#[test]
fn a_directory_that_is_gone_is_stale_before_anything_else() {
    let mut w = World::new();
    let d = w.dir(w.root, "d", 0);
    let f = w.file(w.root, "f", 0o644);
    w.become_user(5);
    let other = DirRef::new(NodeId::new(d.id.ino, Generation(9999)));
    assert_eq!(w.lookup(other, "x"), Err(Errno::Stale));
    assert_eq!(w.lookup(d, "x"), Err(Errno::Access));
    assert_eq!(w.lookup(DirRef::new(f), "x"), Err(Errno::Stale));
    w.become_root();
    w.rmdir(w.root, "d").expect("removed");
    assert_eq!(w.lookup(d, "x"), Err(Errno::Stale));
    assert_eq!(w.create_in(d, "x", 0o644), Err(Errno::Stale));
    assert_eq!(w.apply(ModelOp::DirStat { dir: d }), Err(Errno::Stale));
    assert_eq!(w.apply(ModelOp::ReadDir { dir: d }), Err(Errno::Stale));
}

#[test]
fn the_permissions_of_the_request_count_where_given() {
    let mut w = World::new();
    let d = w.dir(w.root, "d", 0o700);
    w.file(d, "f", 0o644);
    w.become_user(5);
    assert_eq!(w.lookup(d, "f"), Err(Errno::Access));
    let open = DirRef {
        dir_perm: Some((Perm::new(0o2777), 0, 77)),
        ..d
    };
    w.lookup(open, "f").expect("by the statement's permissions");
    // The new file's group is the statement's, too: the directory's content knows no other.
    assert_eq!(view(w.create_in(open, "g", 0o644)).attr.gid, 77);
    let shut = DirRef {
        dir_perm: Some((Perm::new(0o1777), 0, 0)),
        ..d
    };
    w.become_user(6);
    assert_eq!(w.unlink(shut, "g"), Err(Errno::Perm));
}

#[test]
fn search_comes_before_existence_and_writing_after_it() {
    let mut w = World::new();
    let shut = w.dir(w.root, "shut", 0o766);
    let fixed = w.dir(w.root, "fixed", 0o755);
    w.file(fixed, "f", 0o666);
    w.dir(fixed, "d", 0o777);
    w.become_user(5);
    for answer in [
        w.lookup(shut, "x"),
        w.open(shut, "x", READ),
        w.create_in(shut, "x", 0o644),
        w.mkdir_in(shut, "x", 0o755),
        w.unlink(shut, "x"),
        w.rmdir(shut, "x"),
    ] {
        assert_eq!(answer, Err(Errno::Access));
    }
    assert_eq!(w.mkdir_in(fixed, "f", 0o755), Err(Errno::Exists));
    assert_eq!(w.mkdir_in(fixed, "new", 0o755), Err(Errno::Access));
    assert_eq!(w.unlink(fixed, "none"), Err(Errno::NotFound));
    assert_eq!(w.unlink(fixed, "f"), Err(Errno::Access));
    assert_eq!(w.unlink(fixed, "d"), Err(Errno::Access));
    assert_eq!(w.rmdir(fixed, "f"), Err(Errno::Access));
    assert_eq!(w.create_in(fixed, "new", 0o644), Err(Errno::Access));
    // Opening with O_CREAT what exists changes no entry.
    let op = ModelOp::Create {
        dir: fixed,
        name: name("f"),
        mode: Perm::new(0).into(),
        exclusive: false,
        want: WRITE,
    };
    assert!(matches!(
        w.apply(op),
        Ok(ModelAnswer::Opened { created: false, .. })
    ));
}

#[test]
fn listing_needs_read_and_no_search() {
    let mut w = World::new();
    let d = w.dir(w.root, "d", 0o744);
    w.file(d, "f", 0o644);
    w.dir(d, "e", 0o755);
    w.become_user(5);
    let Ok(ModelAnswer::Entries(list)) = w.apply(ModelOp::ReadDir { dir: d }) else {
        panic!("no listing")
    };
    let names: Vec<_> = list.iter().map(|l| (l.name.to_string(), l.kind)).collect();
    assert_eq!(
        names,
        [("e".into(), FileKind::Directory), ("f".into(), FileKind::Regular)]
    );
    w.become_root();
    w.chmod(w.root, "d", 0o733).expect("chmod");
    w.become_user(5);
    assert_eq!(w.apply(ModelOp::ReadDir { dir: d }), Err(Errno::Access));
    assert!(matches!(w.apply(ModelOp::DirStat { dir: d }), Ok(ModelAnswer::DirStat(s)) if s.entries == 2));
}

#[test]
fn create_makes_a_file_of_the_caller() {
    let mut w = World::new();
    w.become_user(5);
    let Ok(ModelAnswer::Opened { entry, created: true }) = w.create_in(w.root, "f", 0o6640) else {
        panic!("not created")
    };
    let a = entry.attr;
    assert_eq!(
        (a.uid, a.gid, a.perm.bits(), a.size, a.nlink),
        (5, 5, 0o6640, 0, 1)
    );
    assert_eq!((a.atime, a.mtime, a.ctime), (w.now(), w.now(), w.now()));
    assert_eq!(entry.body, Body::File(Content::Sparse));
    let root = w.model.dir_stat(NodeId::ROOT).expect("the root");
    assert_eq!(
        (root.entries, root.subdirs, root.mtime, root.ctime),
        (1, 0, w.now(), w.now())
    );
}

#[test]
fn create_of_what_exists() {
    let mut w = World::new();
    w.file(w.root, "f", 0o600);
    w.dir(w.root, "d", 0o777);
    w.apply(ModelOp::Symlink {
        dir: w.root,
        name: name("s"),
        target: b"f".to_vec(),
    })
    .expect("symlink");
    w.become_user(5);
    let mut create = |n: &str, exclusive, want| {
        w.apply(ModelOp::Create {
            dir: w.root,
            name: name(n),
            mode: Perm::new(0o644).into(),
            exclusive,
            want,
        })
    };
    for n in ["f", "d", "s"] {
        assert_eq!(create(n, true, READ), Err(Errno::Exists));
    }
    assert_eq!(create("f", false, READ), Err(Errno::Access));
    assert_eq!(create("d", false, READ), Err(Errno::IsDir));
    assert_eq!(create("s", false, READ), Err(Errno::Loop));
}

#[test]
fn open_by_kind_and_permission() {
    let mut w = World::new();
    w.file(w.root, "f", 0o604);
    w.dir(w.root, "d", 0o705);
    w.apply(ModelOp::Symlink {
        dir: w.root,
        name: name("s"),
        target: b"f".to_vec(),
    })
    .expect("symlink");
    w.become_user(5);
    assert!(matches!(
        w.open(w.root, "f", READ),
        Ok(ModelAnswer::Opened { created: false, .. })
    ));
    assert_eq!(w.open(w.root, "f", READ.and(WRITE)), Err(Errno::Access));
    assert_eq!(w.open(w.root, "s", READ), Err(Errno::Loop));
    assert_eq!(w.open(w.root, "d", WRITE), Err(Errno::IsDir));
    w.open(w.root, "d", READ).expect("a directory may be read");
    assert_eq!(w.open(w.root, "none", READ), Err(Errno::NotFound));
    w.become_root();
    assert_eq!(w.open(w.root, "f", Access::EXEC), Err(Errno::Access));
}

#[test]
fn groups_and_setgid_are_inherited() {
    let mut w = World::new();
    let d = DirRef {
        dir_perm: Some((Perm::new(0o2777), 0, 77)),
        ..w.root
    };
    w.become_user(5);
    let sub = view(w.mkdir_in(d, "sub", 0o755));
    assert_eq!((sub.attr.gid, sub.attr.perm.bits()), (77, 0o2755));
    // Set-gid for a group one is not in: only where the group cannot execute.
    assert_eq!(view(w.create_in(d, "x", 0o2775)).attr.perm.bits(), 0o775);
    assert_eq!(view(w.create_in(d, "y", 0o2765)).attr.perm.bits(), 0o2765);
    w.cred.groups = vec![77];
    assert_eq!(view(w.create_in(d, "z", 0o2775)).attr.perm.bits(), 0o2775);
    let link = w.apply(ModelOp::Symlink {
        dir: d,
        name: name("s"),
        target: b"z".to_vec(),
    });
    assert_eq!(view(link).attr.gid, 77);
    // Elsewhere mkdir takes no set-id bits from the caller, but the sticky bit.
    assert_eq!(view(w.mkdir_in(w.root, "e", 0o7755)).attr.perm.bits(), 0o1755);
}

#[test]
fn mkdir_counts() {
    let mut w = World::new();
    let d = w.dir(w.root, "d", 0o755);
    w.dir(d, "e", 0o755);
    w.file(d, "f", 0o644);
    let a = w.model.attr(d.id).expect("alive");
    assert_eq!((a.nlink, a.size, a.mtime), (3, 2, w.now()));
    // What an answer shows of a directory is its access half.
    let shown = view(w.lookup(w.root, "d")).attr;
    assert_eq!((shown.nlink, shown.size, shown.ctime), (2, 0, super::at(1)));
}

#[test]
fn symlinks() {
    let mut w = World::new();
    let mut link = |n: &str, target: &[u8]| {
        w.apply(ModelOp::Symlink {
            dir: w.root,
            name: name(n),
            target: target.to_vec(),
        })
    };
    assert_eq!(link("s", b""), Err(Errno::NotFound));
    assert_eq!(link("s", &[b'x'; 4096]), Err(Errno::NameTooLong));
    assert_eq!(link("s", b"a\0b"), Err(Errno::Invalid));
    let v = view(link("s", &[b'x'; 4095]));
    assert_eq!(
        (v.attr.size, v.attr.perm.bits(), v.kind()),
        (4095, 0o777, FileKind::Symlink)
    );
    assert_eq!(link("s", b"y"), Err(Errno::Exists));
    let target = w.apply(ModelOp::ReadLink {
        dir: w.root,
        name: name("s"),
    });
    assert_eq!(target, Ok(ModelAnswer::Target([b'x'; 4095].as_slice().into())));
    w.file(w.root, "f", 0o644);
    assert_eq!(
        w.apply(ModelOp::ReadLink {
            dir: w.root,
            name: name("f")
        }),
        Err(Errno::Invalid)
    );
    assert_eq!(
        w.apply(ModelOp::ReadLink {
            dir: w.root,
            name: name("x")
        }),
        Err(Errno::NotFound)
    );
}

#[test]
fn removing() {
    let mut w = World::new();
    let d = w.dir(w.root, "d", 0o755);
    let f = w.file(d, "f", 0o644);
    assert_eq!(w.unlink(w.root, "d"), Err(Errno::IsDir));
    assert_eq!(w.rmdir(w.root, "d"), Err(Errno::NotEmpty));
    assert_eq!(w.rmdir(d, "f"), Err(Errno::NotDir));
    assert_eq!(w.rmdir(d, "x"), Err(Errno::NotFound));
    let gone = view(w.unlink(d, "f"));
    assert_eq!((gone.id(), gone.attr.nlink), (f, 1));
    assert!(!w.model.contains(f));
    w.rmdir(w.root, "d").expect("empty now");
    assert!(w.model.is_empty());
    assert_eq!(w.model.dir_by_id(pando_types::DirId(d.id.ino.0.into())), None);
}

#[test]
fn the_sticky_bit_keeps_entries() {
    let mut w = World::new();
    let d = w.dir(w.root, "d", 0o1777);
    w.become_user(5);
    w.file(d, "mine", 0o666);
    w.dir(d, "ours", 0o777);
    w.become_user(6);
    assert_eq!(w.unlink(d, "mine"), Err(Errno::Perm));
    // Before the kinds are looked at.
    assert_eq!(w.unlink(d, "ours"), Err(Errno::Perm));
    assert_eq!(w.rmdir(d, "mine"), Err(Errno::Perm));
    w.cred = user(5);
    w.unlink(d, "mine").expect("its owner");
    w.become_root();
    w.rmdir(d, "ours").expect("root");
    let e = w.dir(w.root, "e", 0o1777);
    w.file(e, "x", 0o666);
    let owned = DirRef {
        dir_perm: Some((Perm::new(0o1777), 6, 0)),
        ..e
    };
    w.become_user(6);
    w.unlink(owned, "x").expect("the directory's owner");
}

#[test]
fn above_the_root() {
    let mut w = World::new();
    let above = DirRef::new(NodeId::ABOVE_ROOT);
    w.become_user(5);
    assert_eq!(
        view(w.lookup(above, "root")).id(),
        NodeId::new(Ino::ROOT, Generation::ROOT)
    );
    assert_eq!(w.mkdir_in(above, "x", 0o755), Err(Errno::Access));
    w.become_root();
    assert_eq!(w.mkdir_in(above, "x", 0o755), Err(Errno::Busy));
    assert_eq!(w.rmdir(above, "root"), Err(Errno::Busy));
    w.chmod(above, "root", 0o700)
        .expect("the root's own bits can change");
    assert_eq!(w.perm(NodeId::ROOT), 0o700);
}
