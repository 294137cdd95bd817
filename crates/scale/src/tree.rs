//! The directory tree that all clients share, as in InfiniFS §5.2: files are at a depth of 10. Each client
//! has some directories above those that it makes itself; their IDs are hashes, so that what is next to each
//! other in the tree is anywhere in the cluster.

use crate::cluster::Cluster;
use crate::worker::{Files, SHARED};
use pando_types::{Cred, Perm};

/// Components of a file's path.
pub const DEPTH: usize = 10;
/// Levels that are there before anything is measured. Below them are the directories that clients make, and
/// the files.
const LEVELS: usize = DEPTH - 2;
/// Directories of the lowest of them, for each client.
pub const PARENTS: usize = 16;
/// Directories in one directory of the two lowest levels; above them two.
const BRANCH: usize = 16;

pub(crate) const DIRS: fn() -> Perm = || Perm::new(0o755);

/// How many directories each level has, from the top.
fn widths(clients: usize) -> [usize; LEVELS] {
    let mut widths = [1; LEVELS];
    let mut width = (clients * PARENTS).max(1);
    for (up, level) in widths.iter_mut().rev().enumerate() {
        *level = width;
        width = width.div_ceil(if up < 2 { BRANCH } else { 2 });
    }
    widths
}

/// The path of a directory of a level.
fn path(widths: &[usize; LEVELS], level: usize, number: usize) -> Vec<u8> {
    let mut names = Vec::new();
    let mut number = number;
    for level in (0..=level).rev() {
        names.push(format!("/l{level}-{number}"));
        if level > 0 {
            number = number * widths[level - 1] / widths[level];
        }
    }
    names.into_iter().rev().flat_map(String::into_bytes).collect()
}

/// The directories in which a client makes its own.
pub(crate) fn parents_of(client: usize, clients: usize) -> Vec<Vec<u8>> {
    let widths = widths(clients);
    (0..PARENTS)
        .map(|n| path(&widths, LEVELS - 1, client * PARENTS + n))
        .collect()
}

/// Makes what there is before anything is measured.
pub(crate) fn make(cluster: &Cluster, files: Files) -> Result<(), String> {
    match files {
        Files::Own => make_all(cluster),
        Files::Shared => cluster.all_do(|number, program| {
            let client = program.client.borrow().clone();
            Box::pin(async move {
                if number > 0 {
                    return Ok(());
                }
                let made = client.mkdir(&Cred::root(), SHARED, DIRS()).await;
                made.map(|_| ()).map_err(|e| format!("mkdir: {e}"))
            })
        }),
    }
}

/// Makes the directories of all levels, the clients together.
fn make_all(cluster: &Cluster) -> Result<(), String> {
    let clients = cluster.programs.len();
    let widths = widths(clients);
    for level in 0..LEVELS {
        cluster.all_do(|number, program| {
            let client = program.client.borrow().clone();
            let mine = widths[level] * number / clients..widths[level] * (number + 1) / clients;
            Box::pin(async move {
                for n in mine {
                    let path = path(&widths, level, n);
                    let made = client.mkdir(&Cred::root(), &path, DIRS()).await;
                    made.map_err(|e| format!("mkdir {}: {e}", String::from_utf8_lossy(&path)))?;
                }
                Ok(())
            })
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_parent_is_there_once() {
        let widths = widths(64);
        assert_eq!(widths, [1, 1, 1, 1, 2, 4, 64, 1024]);
        let above: BTreeSet<Vec<u8>> = (0..64).map(|n| path(&widths, LEVELS - 2, n)).collect();
        let mut all = BTreeSet::new();
        for client in 0..64 {
            for parent in parents_of(client, 64) {
                let cut = parent.iter().rposition(|b| *b == b'/').expect("a path");
                assert!(above.contains(&parent[..cut]));
                assert_eq!(parent.iter().filter(|b| **b == b'/').count(), LEVELS);
                assert!(all.insert(parent));
            }
        }
        assert_eq!(all.len(), 1024);
    }
}
