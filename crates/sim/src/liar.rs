//! Programs that speak the protocol themselves and say about directories, and about what they opened, what no server said
//! (H98). They know every
//! name and ID; all they lack is the servers' secret.

use crate::rng::Rng;
use crate::violation::Kind;
use crate::workload::Workload;
use pando_client::Client;
use pando_types::{Cred, DirId, Errno, Generation, Perm};
use pando_wire::{Op, Scope, Statement};

/// The operation, saying something else in one of its statements. `None` if it makes none.
pub fn forged(rng: &mut Rng, cred: &Cred, op: &Op) -> Option<Op> {
    let second = rng.percent(50);
    let mut lie = op.clone();
    // "I opened it for writing."
    if let Op::Publish { handle, .. } = &mut lie
        && second
    {
        handle.0 ^= 1 << rng.below(128);
        return Some(lie);
    }
    let statement = match lie.statements_mut() {
        [Some(_), Some(dst)] if second => dst,
        [Some(first), _] => first,
        _ => return None,
    };
    change(rng, cred, statement);
    (lie != *op).then_some(lie)
}

fn change(rng: &mut Rng, cred: &Cred, s: &mut Statement) {
    match rng.below(10) {
        // "I may do anything here."
        0 => s.perm = Perm::new(0o777),
        1 => (s.uid, s.perm) = (cred.uid, Perm::new(0o700)),
        2 => s.gid = cred.gid,
        // "It is the directory of that name I mean", guessed.
        3 => s.id = DirId(s.id.0 ^ 1 << rng.below(8)),
        4 => s.generation = Generation(s.generation.0.wrapping_add(rng.range(1, 4))),
        5 => s.seal += 1,
        // "This is still so", "and does not depend on that".
        6 => s.at.0 += rng.range(1, 1 << 33),
        7 => s.way.truncate(1),
        8 => {
            s.scope = if s.scope == Scope::Handle {
                Scope::Way
            } else {
                Scope::Handle
            }
        }
        _ => s.mac = (u128::from(rng.next()) << 64) | u128::from(rng.next()),
    }
}

impl Workload {
    /// One lie. Whatever comes of it, it must not be what was asked for.
    pub async fn lie(&self, client: &Client, cred: &Cred, op: Op) {
        let outcome = client.op(cred, op.clone()).await;
        self.lied();
        if !matches!(outcome, Err(Errno::Stale | Errno::BadHandle | Errno::Unreachable)) {
            let text = format!(
                "a forged {} was answered with {outcome:?}",
                crate::net::describe_op(&op)
            );
            self.cluster().sim.fail(Kind::WrongResult, text);
        }
    }
}
