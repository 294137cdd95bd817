//! Rename.

use super::{Answer, World, name, view};
use RenameMode::{Exchange, NoReplace, Replace};
use pando_model::{DirRef, ModelAnswer, NodeId, RenameMode};
use pando_types::{Errno, Generation, Perm};

fn renamed(answer: Answer) -> (NodeId, Option<NodeId>) {
    match answer {
        Ok(ModelAnswer::Renamed { moved, other }) => (moved.id(), other.map(|o| o.id())),
        other => panic!("{other:?}"),
    }
}

fn with_perm(dir: DirRef, perm: u16, uid: u32) -> DirRef {
    DirRef {
        dir_perm: Some((Perm::new(perm), uid, 0)),
        ..dir
    }
}

#[test]
fn moves_a_file_and_touches_both_directories() {
    let mut w = World::new();
    let (a, b) = (w.dir(w.root, "a", 0o755), w.dir(w.root, "b", 0o755));
    let f = w.file(a, "f", 0o644);
    assert_eq!(renamed(w.rename((a, "f"), (b, "g"), NoReplace)), (f, None));
    assert_eq!(w.model.place(f), Some((b.id, &name("g"))));
    for d in [a, b] {
        let s = w.model.dir_stat(d.id).expect("alive");
        assert_eq!((s.mtime, s.ctime), (w.now(), w.now()));
    }
    let moved = w.model.attr(f).expect("alive");
    assert_eq!((moved.mtime, moved.ctime), (super::at(3), w.now()));
}

#[test]
fn replaces_and_forgets() {
    let mut w = World::new();
    let (f, g) = (w.file(w.root, "f", 0o644), w.file(w.root, "g", 0o644));
    assert_eq!(
        renamed(w.rename((w.root, "f"), (w.root, "g"), Replace)),
        (f, Some(g))
    );
    assert!(!w.model.contains(g));
    let (d, e) = (w.dir(w.root, "d", 0o755), w.dir(w.root, "e", 0o755));
    assert_eq!(
        renamed(w.rename((w.root, "d"), (w.root, "e"), Replace)),
        (d.id, Some(e.id))
    );
    assert_eq!(
        w.model.attr(NodeId::ROOT).map(|a| (a.nlink, a.size)),
        Some((3, 2))
    );
}

#[test]
fn moves_a_directory_and_its_link() {
    let mut w = World::new();
    let (a, b) = (w.dir(w.root, "a", 0o755), w.dir(w.root, "b", 0o755));
    let d = w.dir(a, "d", 0o755);
    let inner = w.file(d, "f", 0o644);
    assert_eq!(renamed(w.rename((a, "d"), (b, "d"), Replace)), (d.id, None));
    assert_eq!(w.model.dir_stat(a.id).map(|s| s.subdirs), Some(0));
    assert_eq!(w.model.dir_stat(b.id).map(|s| s.subdirs), Some(1));
    assert_eq!(w.model.child(d.id, &name("f")), Some(inner));
    // The ctime is that of the access half; the content half is untouched.
    assert_eq!(w.model.view(d.id).map(|v| v.attr.ctime), Some(w.now()));
    assert_eq!(w.model.dir_stat(d.id).map(|s| s.ctime), Some(super::at(4)));
}

#[test]
fn exchange_swaps_kinds_and_counts() {
    let mut w = World::new();
    let a = w.dir(w.root, "a", 0o755);
    let f = w.file(a, "f", 0o644);
    let d = w.dir(w.root, "d", 0o755);
    w.file(d, "inside", 0o644);
    assert_eq!(
        renamed(w.rename((a, "f"), (w.root, "d"), Exchange)),
        (f, Some(d.id))
    );
    assert_eq!(w.model.place(d.id), Some((a.id, &name("f"))));
    assert_eq!(
        w.model.dir_stat(a.id).map(|s| (s.entries, s.subdirs)),
        Some((1, 1))
    );
    assert_eq!(
        w.model.dir_stat(NodeId::ROOT).map(|s| (s.entries, s.subdirs)),
        Some((2, 1))
    );
    for id in [f, d.id] {
        assert_eq!(w.model.view(id).map(|v| v.attr.ctime), Some(w.now()));
    }
}

#[test]
fn one_name_twice_changes_nothing() {
    let mut w = World::new();
    let d = w.dir(w.root, "d", 0o555);
    let f = w.file(d, "f", 0o644);
    let before = w.model.walk();
    // Not even permission to write is asked for.
    w.become_user(5);
    for mode in [Replace, Exchange] {
        assert_eq!(renamed(w.rename((d, "f"), (d, "f"), mode)), (f, None));
    }
    assert_eq!(w.rename((d, "f"), (d, "f"), NoReplace), Err(Errno::Exists));
    assert_eq!(w.model.walk(), before);
}

#[test]
fn a_tree_stays_a_tree() {
    let mut w = World::new();
    let a = w.dir(w.root, "a", 0o755);
    let b = w.dir(a, "b", 0o755);
    let c = w.dir(b, "c", 0o755);
    let f = w.file(b, "f", 0o644);
    for mode in [Replace, NoReplace] {
        assert_eq!(w.rename((w.root, "a"), (a, "x"), mode), Err(Errno::Invalid));
        assert_eq!(w.rename((w.root, "a"), (c, "x"), mode), Err(Errno::Invalid));
    }
    assert_eq!(w.rename((w.root, "a"), (b, "c"), Exchange), Err(Errno::Invalid));
    assert_eq!(w.rename((b, "c"), (w.root, "a"), Exchange), Err(Errno::Invalid));
    assert_eq!(w.rename((b, "f"), (w.root, "a"), Exchange), Err(Errno::Invalid));
    assert_eq!(w.rename((b, "c"), (w.root, "a"), Replace), Err(Errno::NotEmpty));
    // Whatever the source is.
    assert_eq!(w.rename((b, "f"), (a, "b"), Replace), Err(Errno::NotEmpty));
    assert_eq!(w.rename((b, "f"), (w.root, "a"), Replace), Err(Errno::NotEmpty));
    assert_eq!(w.model.place(f), Some((b.id, &name("f"))));
}

#[test]
fn kinds_must_fit() {
    let mut w = World::new();
    let d = w.dir(w.root, "d", 0o755);
    w.file(d, "x", 0o644);
    w.dir(w.root, "e", 0o755);
    w.file(w.root, "f", 0o644);
    let root = w.root;
    assert_eq!(w.rename((root, "d"), (root, "f"), Replace), Err(Errno::NotDir));
    assert_eq!(w.rename((root, "f"), (root, "e"), Replace), Err(Errno::IsDir));
    assert_eq!(w.rename((root, "e"), (root, "d"), Replace), Err(Errno::NotEmpty));
    w.rename((root, "d"), (root, "e"), Replace)
        .expect("over an empty one");
}

#[test]
fn existence() {
    let mut w = World::new();
    w.file(w.root, "f", 0o644);
    w.file(w.root, "g", 0o644);
    let root = w.root;
    assert_eq!(
        w.rename((root, "x"), (root, "f"), NoReplace),
        Err(Errno::NotFound)
    );
    assert_eq!(w.rename((root, "f"), (root, "g"), NoReplace), Err(Errno::Exists));
    assert_eq!(w.rename((root, "f"), (root, "x"), Exchange), Err(Errno::NotFound));
    let gone = DirRef::new(NodeId::new(root.id.ino, Generation(99)));
    w.become_user(5);
    assert_eq!(
        w.rename((with_perm(root, 0, 0), "f"), (gone, "x"), Replace),
        Err(Errno::Stale)
    );
    assert_eq!(w.rename((gone, "f"), (root, "x"), Replace), Err(Errno::Stale));
}

#[test]
fn permissions_of_both_directories() {
    let mut w = World::new();
    let (a, b) = (w.dir(w.root, "a", 0o777), w.dir(w.root, "b", 0o777));
    w.file(a, "f", 0o644);
    w.file(b, "g", 0o644);
    w.become_user(5);
    for (src, dst) in [(0o776, 0o777), (0o777, 0o776), (0o775, 0o777), (0o777, 0o775)] {
        let (src, dst) = (with_perm(a, src, 0), with_perm(b, dst, 0));
        assert_eq!(w.rename((src, "f"), (dst, "g"), Replace), Err(Errno::Access));
    }
    // Searching is needed to see that something is missing, writing is not.
    assert_eq!(
        w.rename((with_perm(a, 0o776, 0), "x"), (b, "g"), Replace),
        Err(Errno::Access)
    );
    assert_eq!(
        w.rename((with_perm(a, 0o775, 0), "x"), (b, "g"), Replace),
        Err(Errno::NotFound)
    );
}

#[test]
fn sticky_on_either_side() {
    let mut w = World::new();
    let (a, b) = (w.dir(w.root, "a", 0o777), w.dir(w.root, "b", 0o777));
    w.file(a, "f", 0o644);
    w.dir(b, "g", 0o777);
    w.become_user(5);
    w.file(a, "mine", 0o644);
    let (sticky_a, sticky_b) = (with_perm(a, 0o1777, 0), with_perm(b, 0o1777, 0));
    assert_eq!(w.rename((sticky_a, "f"), (b, "new"), Replace), Err(Errno::Perm));
    // All of the source before the destination's permissions.
    let fixed_b = with_perm(b, 0o775, 0);
    assert_eq!(
        w.rename((sticky_a, "f"), (fixed_b, "new"), Replace),
        Err(Errno::Perm)
    );
    // Before the kinds are compared.
    assert_eq!(
        w.rename((sticky_a, "mine"), (sticky_b, "g"), Replace),
        Err(Errno::Perm)
    );
    assert_eq!(w.rename((sticky_a, "mine"), (b, "g"), Replace), Err(Errno::IsDir));
    w.rename((sticky_a, "mine"), (sticky_b, "new"), Replace)
        .expect("nothing of others is touched");
    w.rename((with_perm(a, 0o1777, 5), "f"), (b, "f"), Replace)
        .expect("the directory's owner");
}

#[test]
fn a_new_parent_needs_write_permission_on_the_directory() {
    let mut w = World::new();
    let (a, b) = (w.dir(w.root, "a", 0o777), w.dir(w.root, "b", 0o777));
    w.dir(a, "d", 0o755);
    let e = w.dir(b, "e", 0o777);
    w.file(e, "x", 0o644);
    w.become_user(5);
    w.rename((a, "d"), (a, "d2"), Replace).expect("the parent stays");
    assert_eq!(w.rename((a, "d2"), (b, "d"), Replace), Err(Errno::Access));
    // Before the emptiness of what is replaced.
    assert_eq!(w.rename((a, "d2"), (b, "e"), Replace), Err(Errno::Access));
    assert_eq!(w.rename((b, "e"), (a, "d2"), Exchange), Err(Errno::Access));
    w.become_root();
    w.chmod(a, "d2", 0o757).expect("chmod");
    w.become_user(5);
    w.rename((b, "e"), (a, "d2"), Exchange).expect("may write both");
    assert_eq!(view(w.lookup(a, "d2")).id(), e.id);
}
