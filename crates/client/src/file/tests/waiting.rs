//! Attributes that wait for the bytes.

use super::*;
use pando_types::{AttrChange, TimeChange};

fn maker() -> Cred {
    Cred {
        uid: 5,
        gid: 5,
        groups: Vec::new(),
    }
}

fn perm(bits: u16) -> AttrChange {
    AttrChange {
        perm: Some(Perm::new(bits)),
        ..AttrChange::default()
    }
}

fn mtime(n: i64) -> AttrChange {
    AttrChange {
        mtime: Some(TimeChange::To(time(n))),
        ..AttrChange::default()
    }
}

/// A file that user 5 has just made, with these bits.
fn made(bits: u16) -> (Fake, Handle) {
    let (ops, _, mut h) = new(32);
    ops.server.borrow_mut().view.attr.perm = Perm::new(bits);
    h.file.attr.perm = Perm::new(bits);
    h.file = h.file.made_by(&maker());
    (ops, h)
}

#[test]
fn what_waits_goes_with_the_bytes() {
    let (ops, mut h) = made(0o600);
    h.write(0, b"abc").unwrap();
    let calls = ops.calls.get();
    assert!(h.file.put_off(&maker(), &perm(0o644), time(50)));
    assert!(h.file.put_off(&maker(), &mtime(40), time(51)));
    let shown = h.file.attr();
    assert_eq!(
        (shown.perm.bits(), shown.mtime, shown.ctime),
        (0o644, time(40), time(51))
    );
    assert_eq!(ops.calls.get(), calls);
    h.flush().unwrap();
    assert_eq!(ops.calls.get(), calls + 2);
    let there = ops.server.borrow().view.attr;
    assert_eq!((there.perm.bits(), there.mtime, there.size), (0o644, time(40), 3));
    assert!(!h.file.waits() && !h.file.is_dirty());
    // What is written later moves the time again.
    assert!(h.file.put_off(&maker(), &mtime(30), time(60)));
    h.write(3, b"d").unwrap();
    h.flush().unwrap();
    assert_ne!(ops.server.borrow().view.attr.mtime, time(30));
    // Without bytes it goes by itself.
    assert!(h.file.put_off(&maker(), &mtime(20), time(61)));
    h.flush().unwrap();
    assert_eq!(ops.server.borrow().view.attr.mtime, time(20));
}

#[test]
fn what_is_not_heard_is_told_again() {
    let (ops, mut h) = made(0o600);
    h.write(0, b"abc").unwrap();
    assert!(h.file.put_off(&maker(), &mtime(40), time(50)));
    // The attributes, then the bytes, are not heard.
    ops.fail.set(1);
    h.flush().unwrap();
    assert_eq!(ops.server.borrow().view.attr.mtime, time(40));
    assert!(h.file.put_off(&maker(), &mtime(41), time(51)));
    h.write(0, b"x").unwrap();
    assert!(h.file.put_off(&maker(), &mtime(42), time(52)));
    ops.fail.set(2);
    h.flush().unwrap_err();
    assert!(h.file.is_dirty() && h.file.attr().mtime == time(42));
    h.flush().unwrap();
    assert_eq!(ops.server.borrow().view.attr.mtime, time(42));
}

#[test]
fn nothing_waits_that_may_fail_or_tightens() {
    let other = Cred { uid: 6, ..maker() };
    let owner = |uid| AttrChange {
        uid: Some(uid),
        ..AttrChange::default()
    };
    let group = |gid| AttrChange {
        gid: Some(gid),
        ..AttrChange::default()
    };
    let waits = |bits, who: &Cred, change| made(bits).1.file.put_off(who, &change, time(50));
    assert!(waits(0o600, &maker(), perm(0o600)));
    for (bits, who, change) in [
        (0o600, &other, perm(0o644)),
        (0o600, &Cred::root(), perm(0o644)),
        (0o644, &maker(), perm(0o600)),
        (0o600, &maker(), perm(0o4755)),
        (0o4755, &maker(), perm(0o755)),
        (0o600, &maker(), owner(5)),
        (0o600, &maker(), group(6)),
        (
            0o600,
            &maker(),
            AttrChange {
                size: Some(1),
                ..perm(0o644)
            },
        ),
    ] {
        assert!(!waits(bits, who, change), "{bits:o} {change:?}");
    }
    // The superuser gives away what nobody else could read.
    for (uid, bits, change, may) in [
        (0, 0o600, owner(7), true),
        (0, 0o600, group(7), true),
        (0, 0o640, group(7), false),
        (5, 0o600, owner(7), false),
    ] {
        let (_, mut h) = made(bits);
        h.file.attr.uid = uid;
        h.file = h.file.made_by(&Cred::root());
        assert_eq!(
            h.file.put_off(&Cred::root(), &change, time(50)),
            may,
            "{change:?}"
        );
    }
}
