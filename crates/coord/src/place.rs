//! Where coordination is: what `--coord` takes and `cluster.json` has.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// ZooKeeper's usual port.
const PORT: u16 = 2181;
/// Under which node filesystems are, unless another is named.
const USUAL: &str = "/pando";

/// Where coordination is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the cluster's folder, which all servers share: they run on one machine.
    Dir,
    /// In ZooKeeper.
    ZooKeeper(ZkUrl),
}

/// `zk://HOST:PORT,HOST:PORT/NODE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZkUrl {
    hosts: Vec<(String, u16)>,
    /// Begins with a slash and does not end with one.
    node: String,
}

/// Why a text does not say where coordination is.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PlaceError {
    /// Neither of the two.
    #[error("\"{0}\" is neither `dir` nor `zk://HOST:PORT,HOST:PORT/NODE`")]
    Neither(String),
    /// Everybody who may connect reads `cluster.json`.
    #[error(
        "a password does not belong into the address: write USER:PASSWORD into the file `coord.auth` of the cluster's folder"
    )]
    Password,
    /// No host between the commas.
    #[error("zk://...: \"{0}\" is not HOST:PORT")]
    Host(String),
    /// Not a path of nodes.
    #[error("zk://...: \"{0}\" is not the path of a node, like /pando")]
    Node(String),
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Place, PlaceError> {
        if text == "dir" {
            return Ok(Place::Dir);
        }
        let rest = text
            .strip_prefix("zk://")
            .ok_or_else(|| PlaceError::Neither(text.into()))?;
        if rest.contains('@') {
            return Err(PlaceError::Password);
        }
        let (hosts, node) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let hosts = hosts.split(',').map(host).collect::<Result<Vec<_>, _>>()?;
        Ok(Place::ZooKeeper(ZkUrl {
            hosts,
            node: node_of(node)?,
        }))
    }
}

fn host(text: &str) -> Result<(String, u16), PlaceError> {
    let wrong = || PlaceError::Host(text.into());
    // An IPv6 address is in brackets.
    let (host, port) = match text.strip_prefix('[').and_then(|t| t.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        None => PORT,
        Some(port) => port.parse().ok().filter(|p| *p > 0).ok_or_else(wrong)?,
    };
    let odd = |c: char| c.is_whitespace() || c.is_control() || "/[]?#".contains(c);
    if host.is_empty() || host.contains(odd) {
        return Err(wrong());
    }
    Ok((host.into(), port))
}

fn node_of(text: &str) -> Result<String, PlaceError> {
    let node = text.strip_suffix('/').unwrap_or(text);
    if node.is_empty() {
        return Ok(USUAL.into());
    }
    let wrong =
        |part: &str| part.is_empty() || part == "." || part == ".." || part.contains(char::is_control);
    if node.split('/').skip(1).any(wrong) || node.starts_with("/zookeeper") {
        return Err(PlaceError::Node(text.into()));
    }
    Ok(node.into())
}

impl ZkUrl {
    /// What the client library wants to hear.
    pub(crate) fn hosts(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(shown).collect();
        hosts.join(",")
    }

    /// Under which node filesystems are.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }
}

fn shown((host, port): &(String, u16)) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Dir => f.write_str("dir"),
            Place::ZooKeeper(url) => write!(f, "zk://{}{}", url.hosts(), url.node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, PlaceError> {
        text.parse::<Place>().map(|p| p.to_string())
    }

    #[test]
    fn addresses_are_made_whole() {
        assert_eq!(parsed("dir"), Ok("dir".into()));
        assert_eq!(parsed("zk://a"), Ok("zk://a:2181/pando".into()));
        assert_eq!(parsed("zk://a:1,b:2/x/y/"), Ok("zk://a:1,b:2/x/y".into()));
        assert_eq!(
            parsed("zk://[::1]:7,[fe80::2]"),
            Ok("zk://[::1]:7,[fe80::2]:2181/pando".into())
        );
    }

    #[test]
    fn what_people_mistype_is_said() {
        assert!(matches!(parsed("zookeeper://a"), Err(PlaceError::Neither(_))));
        assert!(matches!(parsed("zk://u:p@a"), Err(PlaceError::Password)));
        for hosts in [
            "zk://",
            "zk://a,,b",
            "zk://a:0",
            "zk://a:70000",
            "zk://a:b",
            "zk://[::1",
            "zk://[::1]7",
            "zk://a b",
        ] {
            assert!(matches!(parsed(hosts), Err(PlaceError::Host(_))), "{hosts}");
        }
        for node in ["zk://a//x", "zk://a/x/../y", "zk://a/.", "zk://a/zookeeper"] {
            assert!(matches!(parsed(node), Err(PlaceError::Node(_))), "{node}");
        }
    }
}
