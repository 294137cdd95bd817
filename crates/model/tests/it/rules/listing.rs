//! Listings that run while the directory changes.

use super::{World, name};
use pando_model::{Listed, NodeId, RenameMode};
use pando_types::{FileKind, Ino};
use proptest::prelude::*;

fn line(w: &World, n: &str) -> Listed {
    let id = w.model.child(NodeId::ROOT, &name(n)).expect("exists");
    Listed {
        name: name(n),
        ino: id.ino,
        kind: FileKind::Regular,
    }
}

fn world() -> (World, Listed, Listed) {
    let mut w = World::new();
    for n in ["a", "b"] {
        w.file(w.root, n, 0o644);
    }
    let (a, b) = (line(&w, "a"), line(&w, "b"));
    (w, a, b)
}

#[test]
fn what_was_there_throughout_is_listed_once() {
    let (mut w, a, b) = world();
    let judge = |w: &mut World, lines: &[Listed]| {
        let watch = w.model.watch_listing(NodeId::ROOT).expect("alive");
        w.model.finish_listing(watch, lines)
    };
    assert_eq!(judge(&mut w, &[b.clone(), a.clone()]), Ok(()));
    assert!(judge(&mut w, std::slice::from_ref(&a)).is_err());
    assert!(judge(&mut w, &[a.clone(), b.clone(), a.clone()]).is_err());
    let wrong_ino = Listed {
        ino: Ino(7777),
        ..b.clone()
    };
    assert!(judge(&mut w, &[a.clone(), wrong_ino]).is_err());
    let wrong_kind = Listed {
        kind: FileKind::Directory,
        ..b.clone()
    };
    assert!(judge(&mut w, &[a.clone(), wrong_kind]).is_err());
    let never_there = Listed {
        name: name("c"),
        ..b.clone()
    };
    assert!(judge(&mut w, &[a, b, never_there]).is_err());
}

#[test]
fn what_comes_or_goes_may_be_listed() {
    for listed in [false, true] {
        let (mut w, a, b) = world();
        let watch = w.model.watch_listing(NodeId::ROOT).expect("alive");
        w.file(w.root, "new", 0o644);
        let new = line(&w, "new");
        w.unlink(w.root, "b").expect("unlink");
        let lines = if listed { vec![a, b, new] } else { vec![a] };
        assert_eq!(w.model.finish_listing(watch, &lines), Ok(()));
    }
}

#[test]
fn a_renamed_file_is_two_entries_and_one_that_comes_back_lives_twice() {
    let (mut w, a, b) = world();
    let watch = w.model.watch_listing(NodeId::ROOT).expect("alive");
    w.rename((w.root, "b"), (w.root, "c"), RenameMode::Replace)
        .expect("rename");
    let c = line(&w, "c");
    let other = w.model.watch_listing(NodeId::ROOT).expect("alive");
    assert_eq!(
        w.model.finish_listing(watch, &[a.clone(), b.clone(), c.clone()]),
        Ok(())
    );
    w.rename((w.root, "c"), (w.root, "b"), RenameMode::Replace)
        .expect("rename");
    w.rename((w.root, "b"), (w.root, "c"), RenameMode::Replace)
        .expect("rename");
    let twice = [a.clone(), c.clone(), b, c.clone()];
    assert_eq!(w.model.finish_listing(other, &twice), Ok(()));
    let watch = w.model.watch_listing(NodeId::ROOT).expect("alive");
    assert!(w.model.finish_listing(watch, &[a, c.clone(), c]).is_err());
}

#[test]
fn only_living_directories_are_watched_and_each_for_itself() {
    let (mut w, a, b) = world();
    assert_eq!(
        w.model
            .watch_listing(NodeId::new(a.ino, pando_types::Generation(0))),
        None
    );
    let d = w.dir(w.root, "d", 0o755);
    let in_d = w.model.watch_listing(d.id).expect("alive");
    let in_root = w.model.watch_listing(NodeId::ROOT).expect("alive");
    let dropped = w.model.watch_listing(NodeId::ROOT).expect("alive");
    w.model.drop_listing(dropped);
    w.rmdir(w.root, "d").expect("rmdir");
    assert_eq!(w.model.finish_listing(in_d, &[]), Ok(()));
    assert_eq!(w.model.finish_listing(in_root, &[a, b]), Ok(()));
}

proptest! {
    /// A listing by ascending names is right whatever happens meanwhile; with one stable entry left out it is
    /// not.
    #[test]
    fn a_sound_listing_is_never_blamed(changes in proptest::collection::vec((0..6u8, 0..6u8, any::<bool>()), 0..40)) {
        let mut w = World::new();
        w.file(w.root, "stable", 0o644);
        let stable = line(&w, "stable");
        let watch = w.model.watch_listing(NodeId::ROOT).expect("alive");
        let lame = w.model.watch_listing(NodeId::ROOT).expect("alive");
        let mut lines: Vec<Listed> = Vec::new();
        let page = |w: &World, lines: &mut Vec<Listed>| {
            let next = w.model.list(NodeId::ROOT).into_iter().find(|l| lines.last().is_none_or(|o| o.name < l.name));
            next.is_some_and(|l| { lines.push(l); true })
        };
        for (a, b, read) in changes {
            let (a, b) = (a.to_string(), b.to_string());
            // Whether it succeeds does not matter.
            let _ = w.create_in(w.root, &a, 0o644);
            let _ = w.rename((w.root, &a), (w.root, &b), RenameMode::Replace);
            if read {
                page(&w, &mut lines);
            }
        }
        while page(&w, &mut lines) {}
        prop_assert_eq!(w.model.finish_listing(watch, &lines), Ok(()));
        lines.retain(|l| *l != stable);
        prop_assert!(w.model.finish_listing(lame, &lines).is_err());
    }
}
