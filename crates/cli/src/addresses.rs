//! Where servers are: what people say, what is free, and what others can reach.

use crate::format::random_key;
use anyhow::{Context, Result, bail};
use pando_cluster::{ClusterMap, Server};
use pando_types::AuthMode;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};

/// Where a server's metrics are, from its address.
const METRICS_OFFSET: u16 = 1000;
/// The first port on an address of one's own.
const FIRST_PORT: u16 = 7400;

/// Servers of this machine, `first` the number of the first of them.
///
/// They are at a loopback address of their own, drawn at random: on 127.0.0.1 any program's outgoing
/// connection, or another filesystem, can have the port of a server that is down when it comes back.
/// Certificates of one's own are made for a host, so with `tls` it is 127.0.0.1, and ports that the kernel
/// gives to nobody by itself.
pub fn on_loopback(first: u16, servers: u16, auth: AuthMode) -> Result<Vec<Server>> {
    let random = random_key()?;
    let (host, port) = match auth {
        AuthMode::Tls => (
            "127.0.0.1".to_owned(),
            10_000 + u16::from_le_bytes([random[0], random[1]]) % 16_384,
        ),
        AuthMode::None | AuthMode::Key => {
            let [a, b, c] = [random[0], random[1], random[2]].map(|part| part.clamp(1, 254));
            (format!("127.{a}.{b}.{c}"), FIRST_PORT)
        }
    };
    let free = |address: &str| TcpListener::bind(address).is_ok();
    let found: Vec<Server> = (port..=u16::MAX - METRICS_OFFSET)
        .map(|port| server_at(first, &format!("{host}:{port}")))
        .filter(|s| s.as_ref().map_or(true, |s| free(&s.address) && free(&s.metrics)))
        .take(usize::from(servers))
        .zip(first..)
        .map(|(server, id)| server.map(|s| Server { id, ..s }))
        .collect::<Result<_>>()?;
    if found.len() < usize::from(servers) {
        bail!("cannot find free ports on {host}; is its interface, lo, up?");
    }
    Ok(found)
}

/// A server at `HOST:PORT`.
pub fn server_at(id: u16, address: &str) -> Result<Server> {
    let port = address
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    let (host, port) = port.with_context(|| format!("\"{address}\" is not HOST:PORT"))?;
    if port == 0 {
        bail!("\"{address}\" has port 0, which is any; say which");
    }
    let metrics = port
        .checked_add(METRICS_OFFSET)
        .context("no port left for metrics")?;
    Ok(Server {
        id,
        address: address.to_owned(),
        metrics: format!("{host}:{metrics}"),
    })
}

/// Whoever asks nobody who they are must not be reached from other machines.
pub fn stays_here(mode: AuthMode, address: &str) -> Result<()> {
    if mode != AuthMode::None {
        return Ok(());
    }
    for at in find(address)? {
        if !at.ip().is_loopback() {
            bail!(
                "a server at {address} could be reached from other machines, and this filesystem asks nobody who they \
                 are; make it with --auth key or --auth tls, or with addresses of 127.0.0.1"
            );
        }
    }
    Ok(())
}

/// What an address stands for.
fn find(address: &str) -> Result<Vec<SocketAddr>> {
    let found = address.to_socket_addrs();
    Ok(found
        .with_context(|| format!("cannot find the address {address}"))?
        .collect())
}

/// Whether an address is of this machine, all that it stands for.
pub fn is_here(address: &str) -> Result<bool> {
    Ok(find(address)?.iter().all(is_mine))
}

fn is_mine(at: &SocketAddr) -> bool {
    UdpSocket::bind((at.ip(), 0)).is_ok()
}

/// Fails if a new server cannot be reached by the others of a cluster whose servers are on several machines.
/// It may be that nobody said where it is to be.
pub fn reaches(said: Option<&str>, map: &ClusterMap) -> Result<()> {
    let loopback =
        |address: &str| Ok::<_, anyhow::Error>(find(address)?.iter().all(|at| at.ip().is_loopback()));
    // Who cannot be found from here is elsewhere.
    let Some(other) = map
        .servers
        .iter()
        .find(|s| !loopback(&s.address).unwrap_or(false))
    else {
        return Ok(());
    };
    let wrong = match said {
        Some(address) if loopback(address).unwrap_or(false) => format!("{address} is for this machine alone"),
        Some(_) => return Ok(()),
        None => "free addresses are looked for on this machine alone".into(),
    };
    bail!(
        "{wrong}, and server {} is at {}; say --address HOST:PORT, where the others reach the new one",
        other.id,
        other.address
    )
}

/// Fails if a new server cannot have its addresses: they are another server's of the map, though perhaps it
/// does not run now, or in use here.
pub fn is_free(new: &Server, map: &ClusterMap) -> Result<()> {
    let wanted = [&new.address, &new.metrics];
    let ours = [find(wanted[0])?, find(wanted[1])?].concat();
    for other in &map.servers {
        for theirs in [&other.address, &other.metrics] {
            // What cannot be found from here may still be written in the same way.
            let found = find(theirs).unwrap_or_default();
            if wanted.contains(&theirs) || found.iter().any(|at| ours.contains(at)) {
                bail!(
                    "server {} is at that address ({theirs}), or has its metrics there; say another --address (metrics are \
                     at PORT+{METRICS_OFFSET})",
                    other.id
                );
            }
        }
    }
    for at in ours.iter().filter(|at| is_mine(at)) {
        TcpListener::bind(at).with_context(|| {
            format!(
                "another program has {at}, or it cannot be had; say another --address (metrics are at PORT+{METRICS_OFFSET})"
            )
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::server_at;

    #[test]
    fn what_is_no_address_is_said() {
        for (said, complaint) in [
            ("nonsense", "HOST:PORT"),
            ("a:0", "port 0"),
            ("a:65000", "no port left"),
        ] {
            let e = server_at(1, said).expect_err(said);
            assert!(e.to_string().contains(complaint), "{e}");
        }
    }
}
