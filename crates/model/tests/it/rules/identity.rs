//! Identities of new objects.

use super::{Answer, World, name};
use pando_model::{Fresh, IdentityFault, ModelAnswer, ModelOp, NodeId};
use pando_types::{DirId, Errno, Generation, Ino, Perm};

fn mkdir(w: &mut World, n: &str, fresh: Option<(u64, u64, u128)>) -> Answer {
    let fresh = fresh.map(|(ino, generation, id)| Fresh {
        ino: Ino(ino),
        generation: Generation(generation),
        dir_id: Some(DirId(id)),
    });
    let dir = w.root;
    w.apply_as(
        ModelOp::Mkdir {
            dir,
            name: name(n),
            mode: Perm::new(0o755).into(),
        },
        fresh,
    )
}

fn fault(answer: Answer) -> IdentityFault {
    match answer {
        Ok(ModelAnswer::Identity(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_lives_is_not_born_again() {
    let mut w = World::new();
    mkdir(&mut w, "d", Some((10, 10, 10))).expect("new");
    assert_eq!(
        fault(mkdir(&mut w, "e", Some((10, 11, 11)))),
        IdentityFault::InoLive(Ino(10))
    );
    assert_eq!(
        fault(mkdir(&mut w, "e", Some((11, 11, 10)))),
        IdentityFault::DirIdLive(DirId(10))
    );
    assert_eq!(
        fault(mkdir(&mut w, "e", Some((11, 11, 1)))),
        IdentityFault::DirIdLive(DirId::ROOT)
    );
    mkdir(&mut w, "e", Some((11, 10, 11))).expect("a generation may repeat for another object");
}

#[test]
fn nor_what_is_gone() {
    let mut w = World::new();
    mkdir(&mut w, "d", Some((10, 10, 10))).expect("new");
    w.rmdir(w.root, "d").expect("removed");
    let old = NodeId::new(Ino(10), Generation(10));
    assert_eq!(
        fault(mkdir(&mut w, "d", Some((10, 10, 11)))),
        IdentityFault::Reused(old)
    );
    let reused = IdentityFault::DirReused(DirId(10), Generation(10));
    assert_eq!(fault(mkdir(&mut w, "d", Some((12, 10, 10)))), reused);
    // A directory born again under its name has its ID again, in another generation.
    mkdir(&mut w, "d", Some((12, 11, 10))).expect("another incarnation");
}

#[test]
fn something_must_be_named_where_something_is_made() {
    let mut w = World::new();
    assert_eq!(fault(mkdir(&mut w, "d", None)), IdentityFault::Missing);
    let dir = w.root;
    let op = ModelOp::Mkdir {
        dir,
        name: name("d"),
        mode: Perm::new(0o755).into(),
    };
    let fresh = Fresh {
        ino: Ino(10),
        generation: Generation(1),
        dir_id: None,
    };
    assert_eq!(fault(w.apply_as(op, Some(fresh))), IdentityFault::NoDirId);
    let create = |exclusive| ModelOp::Create {
        dir,
        name: name("f"),
        mode: Perm::new(0o644).into(),
        exclusive,
        want: super::READ,
    };
    assert_eq!(fault(w.apply_as(create(true), None)), IdentityFault::Missing);
    w.apply_as(create(true), Some(fresh))
        .expect("a file needs no directory ID");
    // Where nothing is made, nothing is asked for.
    assert_eq!(w.apply_as(create(true), None), Err(Errno::Exists));
    assert!(matches!(
        w.apply_as(create(false), None),
        Ok(ModelAnswer::Opened { created: false, .. })
    ));
}
