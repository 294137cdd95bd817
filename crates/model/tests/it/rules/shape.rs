//! The whole tree.

use super::{World, name};
use pando_model::{Body, NodeId};

#[test]
fn a_walk_is_in_order_and_shows_both_halves() {
    let mut w = World::new();
    let b = w.dir(w.root, "b", 0o755);
    w.file(b, "z", 0o644);
    let c = w.dir(b, "c", 0o700);
    w.file(c, "f", 0o644);
    w.file(w.root, "a", 0o644);
    let walk = w.model.walk();
    let paths: Vec<_> = walk
        .iter()
        .map(|x| String::from_utf8_lossy(&x.path).into_owned())
        .collect();
    assert_eq!(paths, ["", "/a", "/b", "/b/c", "/b/c/f", "/b/z"]);
    assert_eq!((walk[2].view.attr.nlink, walk[2].view.attr.size), (3, 2));
    let Body::Dir(identity) = &walk[3].view.body else {
        panic!("a directory")
    };
    assert_eq!(identity.parent, b.id);
    assert_eq!(w.model.dir_by_id(identity.parent_id), Some(b.id));
    assert_eq!(w.model.len(), 6);
}

#[test]
fn a_clone_goes_its_own_way() {
    let mut w = World::new();
    w.file(w.root, "f", 0o644);
    let before = w.model.clone();
    w.unlink(w.root, "f").expect("unlink");
    assert!(before.child(NodeId::ROOT, &name("f")).is_some());
    before.check().expect("a tree");
    assert_ne!(before.walk(), w.model.walk());
}

#[test]
fn depth_is_no_limit() {
    let mut w = World::new();
    let mut dir = w.root;
    // The model is checked at each step by World::apply, so this stays small.
    for _ in 0..200 {
        dir = w.dir(dir, "d", 0o755);
    }
    assert_eq!(w.model.walk().len(), 201);
}
