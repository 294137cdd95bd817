//! Many connections that do nothing. Alone in its process, because it measures memory.
#![allow(clippy::unwrap_used)]

#[path = "it/common/mod.rs"]
mod common;

use common::{Client, Server, greet, resident_mib};
use pando_net::{Options, raise_file_limit};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn ten_thousand_idle_connections() {
    let limit = raise_file_limit();
    // Both ends are in this process.
    let wanted = 10_000.min((limit.saturating_sub(300) / 2) as usize);
    let server = Server::start("127.0.0.1:0", Options::default());
    let before = resident_mib();
    let held: Vec<TcpStream> = (0..wanted).map(|_| greet(&server)).collect();
    let grown = resident_mib().saturating_sub(before);
    println!("{wanted} idle connections, {grown} MiB");
    assert!(grown < 40, "{grown} MiB for {wanted} idle connections");
    let client = Client::new(&server.address.to_string(), Options::default());
    let begin = Instant::now();
    for n in 0..200u32 {
        assert_eq!(client.call(&n.to_le_bytes()), Ok(n.to_le_bytes().to_vec()));
    }
    println!("{:?} per call beside them", begin.elapsed() / 200);
    drop(held);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.call(b"after"), Ok(b"after".to_vec()));
}
