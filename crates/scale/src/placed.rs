//! Where new directories go: how evenly they, and all records, are spread over the servers.

use crate::cluster::{Cluster, Setup};
use crate::tree::DIRS;
use pando_env::Env;
use pando_types::{Cred, Part};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Directories in one directory.
const BRANCH: u64 = 10;
/// Content that is owed has arrived by then.
const SETTLED: Duration = Duration::from_secs(1);

/// How much each server has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shares {
    /// Contents of the directories that were made.
    pub directories: Vec<u64>,
    /// Records of all kinds.
    pub records: Vec<u64>,
}

/// The largest share, as a multiple of the mean. 1 is even; 0 if there is nothing.
pub fn largest(shares: &[u64]) -> f64 {
    let (most, all) = (
        shares.iter().max().copied().unwrap_or(0),
        shares.iter().sum::<u64>(),
    );
    most as f64 * shares.len() as f64 / all.max(1) as f64
}

/// Of the directories that a client makes, the path of one. The first is below the root, and each has up to
/// ten below it.
fn path(seed: u64, client: u64, number: u64) -> Vec<u8> {
    let mut names = Vec::new();
    let mut at = number;
    while at > 0 {
        names.push(format!("/{at}"));
        at = (at - 1) / BRANCH;
    }
    // What is predicted follows from names.
    names.push(format!("/{seed}-{client}"));
    names.into_iter().rev().flat_map(String::into_bytes).collect()
}

/// Makes so many directories, all clients together, each a tree of its own.
pub fn place(setup: &Setup, directories: u64) -> Result<Shares, String> {
    let cluster = Cluster::start(setup)?;
    let clients = u64::from(setup.clients).max(1);
    let seed = setup.seed;
    let owners = Rc::new(RefCell::new(BTreeMap::<_, u64>::new()));
    cluster.all_do(|client, program| {
        let (owners, process) = (owners.clone(), program.process.clone());
        let (asker, client) = (program.client.borrow().clone(), client as u64);
        let mine = directories * (client + 1) / clients - directories * client / clients;
        Box::pin(async move {
            for number in 0..mine {
                let path = path(seed, client, number);
                let shown = || String::from_utf8_lossy(&path).into_owned();
                let made = asker.mkdir(&Cred::root(), &path, DIRS()).await;
                made.map_err(|e| format!("mkdir {}: {e}", shown()))?;
                let dir = asker.dir(&Cred::root(), &path).await;
                let dir = dir.map_err(|e| format!("look up {}: {e}", shown()))?;
                let owner = asker.map().owner(Part::whole(dir.id).slot());
                *owners.borrow_mut().entry(owner).or_default() += 1;
            }
            process.sleep(SETTLED).await;
            Ok(())
        })
    })?;
    let owners = owners.borrow();
    let ids = (1..=setup.servers).map(pando_types::ServerId);
    Ok(Shares {
        directories: ids.map(|id| owners.get(&id).copied().unwrap_or(0)).collect(),
        records: cluster.records(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_compared_with_the_mean() {
        assert_eq!(largest(&[5, 5]), 1.0);
        assert_eq!(largest(&[1, 3]), 1.5);
        assert_eq!(largest(&[]), 0.0);
    }

    #[test]
    fn a_client_makes_a_tree_of_its_own() {
        let shown = |n| String::from_utf8(path(7, 3, n)).unwrap_or_default();
        assert_eq!(shown(0), "/7-3");
        assert_eq!(shown(1), "/7-3/1");
        assert_eq!(shown(10), "/7-3/10");
        assert_eq!(shown(11), "/7-3/1/11");
        assert_eq!(shown(111), "/7-3/1/11/111");
    }
}
