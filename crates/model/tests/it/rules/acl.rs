//! Access control lists. The kernel's own filesystem judges the rules at large (`tests/it/linux`); here are
//! those that it cannot be asked for, and those whose reason one should be able to read.

use super::{READ, WRITE, World, name, view};
use pando_model::{DirRef, ModelOp, NodeId};
use pando_types::{Acl, AclKind, Acls, Errno, Mode, Perm};

fn acl(text: &str) -> Acl {
    Acl::parse(text).expect("a list")
}

fn set(w: &mut World, id: NodeId, n: &str, kind: AclKind, list: Option<&str>) -> super::Answer {
    let dir = w.root;
    w.apply(ModelOp::SetAcl {
        dir,
        name: name(n),
        id,
        kind,
        list: list.map(acl),
    })
}

#[test]
fn chmod_changes_the_mask_and_not_the_group() {
    let mut w = World::new();
    let f = w.file(w.root, "f", 0o640);
    view(set(
        &mut w,
        f,
        "f",
        AclKind::Access,
        Some("u::6,u:1000:6,g::0,m::6,o::0"),
    ));
    w.become_user(1000);
    w.open(w.root, "f", WRITE).expect("named");
    w.become_root();
    let shown = view(w.chmod(w.root, "f", 0o640));
    let list = shown.acls.access.expect("still a list").whole(shown.attr.perm);
    assert_eq!(list, acl("u::6,u:1000:6,g::0,m::4,o::0"));
    w.become_user(1000);
    assert_eq!(w.open(w.root, "f", WRITE), Err(Errno::Access));
    w.open(w.root, "f", READ).expect("what the mask leaves");
}

#[test]
fn lists_are_their_owners_and_bits_are_no_lists() {
    let mut w = World::new();
    let f = w.file(w.root, "f", 0o600);
    w.become_user(1000);
    assert_eq!(
        set(&mut w, f, "f", AclKind::Access, Some("u::7,g::7,o::7")),
        Err(Errno::Perm)
    );
    assert_eq!(
        set(&mut w, f, "f", AclKind::Default, Some("u::7,g::7,o::7")),
        Err(Errno::Access)
    );
    w.become_root();
    let shown = view(set(&mut w, f, "f", AclKind::Access, Some("u::7,g::5,o::1")));
    assert_eq!((shown.attr.perm.bits(), shown.acls), (0o751, Acls::default()));
    // Removing what is not there, and what cannot be, changes nothing.
    let before = w.now();
    for kind in [AclKind::Access, AclKind::Default] {
        assert_eq!(view(set(&mut w, f, "f", kind, None)).attr.ctime, before);
    }
}

#[test]
fn the_lists_of_the_request_count_where_given() {
    let mut w = World::new();
    let d = w.dir(w.root, "d", 0o700);
    w.become_user(1000);
    let op = ModelOp::Mkdir {
        dir: DirRef {
            dir_perm: Some((Perm::new(0o770), 0, 0)),
            ..d
        },
        name: name("sub"),
        mode: Mode {
            perm: Perm::new(0o777),
            umask: Perm::new(0o077),
        },
    };
    assert_eq!(w.apply(op.clone()), Err(Errno::Access));
    let said = Acls {
        access: acl("u::7,u:1000:7,g::0,o::0").split().1,
        default: Some(acl("u::7,u:1001:7,g::0,m::5,o::0")),
    };
    let shown = view(w.apply_by(vec![(d.id, said.clone())], op));
    // The default list stands where the umask would.
    assert_eq!(shown.attr.perm.bits(), 0o750);
    assert_eq!(shown.acls.default, said.default);
    assert_eq!(shown.acls.access, acl("u::7,u:1001:7,g::0,m::5,o::0").split().1);
}
