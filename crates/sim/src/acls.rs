//! Access control lists that a client might set: for the users and groups that there are, so that they
//! matter.

use crate::knowledge::Seen;
use pando_env::rng::Rng;
use pando_types::{Acl, AclKind, FileKind, Named};
use pando_wire::Op;

/// Sets a list, or removes one; now and then of an object that was another.
pub(crate) fn draw(rng: &mut Rng, mut f: Seen) -> Op {
    if rng.percent(4) {
        f.generation.0 ^= 1;
    }
    let default = if f.kind == FileKind::Directory { 50 } else { 8 };
    Op::SetAcl {
        object: f.meant(),
        kind: if rng.percent(default) {
            AclKind::Default
        } else {
            AclKind::Access
        },
        list: (!rng.percent(15)).then(|| list(rng)),
    }
}

/// A well-formed list: others are no message. Mostly one that leaves much to do, or little would be done.
fn list(rng: &mut Rng) -> Acl {
    let bits = |rng: &mut Rng| match rng.below(4) {
        0 => rng.below(8) as u8,
        1 => 5,
        _ => 7,
    };
    let named = |rng: &mut Rng, ids: &[u32]| {
        let some = ids
            .iter()
            .filter(|_| rng.percent(50))
            .copied()
            .collect::<Vec<u32>>();
        let with = |id| Named { id, may: bits(rng) };
        some.into_iter().map(with).collect::<Vec<Named>>()
    };
    let (mut users, mut groups) = (named(rng, &[0, 1000, 1001]), named(rng, &[100, 101, 200]));
    if rng.percent(20) {
        (users, groups) = Default::default();
    }
    // A mask may stand alone, and takes something away more often than not: else nobody would see it
    // forgotten.
    let masked = !users.is_empty() || !groups.is_empty() || rng.percent(30);
    let mask = [7, 7, 5, 5, 4, 1, 0][rng.index(7)];
    Acl {
        owner: bits(rng),
        users,
        group: bits(rng),
        groups,
        mask: masked.then_some(mask),
        other: bits(rng),
    }
}
