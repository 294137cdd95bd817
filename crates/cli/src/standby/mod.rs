//! Processes that stand by: each watches servers, and becomes the first of them that is gone (IndexFS §II-E).
//!
//! `watch` is how one finds that a server is gone and takes its place. Here is what is known of it from
//! outside: its lock and what it watches, `run/standby-N.lock` and `run/standby-N.json`.

mod post;
mod watch;

pub use post::{all, name, restart, shown, start};
pub use watch::wait;

use crate::addresses;
use pando_cluster::ServerInfo;
use pando_types::{FsId, ServerId};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Which servers a process stands by for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Watched {
    /// All whose stores are in the cluster's folder, also those that join later.
    Any,
    /// These.
    These(Vec<u16>),
}

impl FromStr for Watched {
    type Err = String;

    fn from_str(text: &str) -> Result<Watched, String> {
        if text == "any" {
            return Ok(Watched::Any);
        }
        let number = |word: &str| {
            let wrong = |_| format!("\"{word}\" is no number of a server; say `any`, or numbers like 0,2");
            word.parse::<u16>().map_err(wrong)
        };
        let mut ids = text.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
        ids.sort_unstable();
        ids.dedup();
        Ok(Watched::These(ids))
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Watched::Any => f.write_str("any"),
            Watched::These(ids) => f.write_str(&listed(ids)),
        }
    }
}

/// Numbers as they are typed.
fn listed(ids: &[u16]) -> String {
    let ids: Vec<String> = ids.iter().map(u16::to_string).collect();
    ids.join(",")
}

/// Why a process cannot stand by for a server, or be it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StandbyError {
    /// The map has no such server; it has these.
    Unknown(u16, Vec<u16>),
    /// The server's store is not in the cluster's folder.
    Elsewhere(u16, PathBuf),
    /// There is no store where one was said to be.
    NoStore(u16, PathBuf),
    /// One store was said, and several servers, or any.
    WhoseStore,
    /// No server's store is in this folder.
    NoneHere(PathBuf),
    /// The store is this server's of this filesystem; wanted was that of another.
    Foreign(PathBuf, (ServerId, FsId), ServerId),
    /// Everything that was watched has left the cluster, or could not be taken over.
    NothingLeft(Vec<String>),
    /// Another process is this server, at that address.
    Replaced(ServerId, String),
}

impl std::error::Error for StandbyError {}

impl fmt::Display for StandbyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StandbyError::Unknown(id, known) => {
                write!(
                    f,
                    "this cluster has no server {id} to stand by for; it has {}",
                    listed(known)
                )
            }
            StandbyError::Elsewhere(id, path) => write!(
                f,
                "the store of server {id} is not in this folder: there is no {}. A standby opens the server's own store, so it \
                 runs where that folder can be reached: make a link to it there, or say --store DIR",
                path.display()
            ),
            StandbyError::NoStore(id, path) => write!(
                f,
                "there is no store in {}; say the folder that `pando server --id {id} --store` has",
                path.display()
            ),
            StandbyError::WhoseStore => {
                f.write_str("--store is the store of one server: say with --for ID whose that is")
            }
            StandbyError::NoneHere(dir) => write!(
                f,
                "no server's store is in {}: a standby runs where stores can be reached; say --for ID and --store DIR",
                dir.display()
            ),
            StandbyError::Foreign(path, (server, fs), wanted) => write!(
                f,
                "{} is the store of server {server} of filesystem {:032x}, and not that of server {wanted} of this one; say the \
                 right --store",
                path.display(),
                fs.0
            ),
            StandbyError::NothingLeft(why) if why.is_empty() => f.write_str(
                "all servers that were watched have left the cluster: there is nothing to stand by for",
            ),
            StandbyError::NothingLeft(why) => {
                write!(f, "there is nothing left to stand by for: {}", why.join("; "))
            }
            StandbyError::Replaced(id, address) => write!(
                f,
                "another process is server {id} now, at {address}: this one stops. To have this machine ready for it, say \
                 `pando server --standby --for {id}`"
            ),
        }
    }
}

/// Advice about an address of a server that cannot be had.
pub fn cannot_listen(me: &ServerInfo) -> String {
    let (id, address) = (me.id, &me.address);
    match addresses::is_here(address) {
        Ok(false) => format!(
            "cannot listen on {address}, which is not of this machine: a standby elsewhere was server {id} last. To have \
             server {id} here, say `pando server --standby --for {id}`, which takes it over when it is gone there"
        ),
        _ => format!("cannot listen on {address}; is the port taken by another program?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_number() {
        assert_eq!("any".parse(), Ok(Watched::Any));
        assert_eq!("3,0,3".parse(), Ok(Watched::These(vec![0, 3])));
        assert_eq!(Watched::These(vec![0, 3]).to_string(), "0,3");
        for wrong in ["", "1,", "all", "-1", "70000"] {
            let e = wrong.parse::<Watched>().expect_err(wrong);
            assert!(e.contains("is no number of a server"), "{e}");
        }
    }
}
