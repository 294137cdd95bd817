//! Calls between reactors that behave.
#![allow(clippy::unwrap_used)]

use crate::common::{Client, PEER, SERVER, Server, identity};
use pando_env::{CallError, Env, Peer, sync};
use pando_net::{Options, Waiting};
use pando_types::{PeerId, ServerId};
use pando_wire::Role;
use std::pin::Pin;
use std::time::{Duration, Instant};

const MODES: [Waiting; 3] = [
    Waiting::Blocking,
    Waiting::Adaptive {
        limit: Duration::from_micros(200),
    },
    Waiting::Polling,
];

fn options(waiting: Waiting) -> Options {
    Options {
        waiting,
        ..Options::default()
    }
}

#[test]
fn echo_in_every_mode() {
    for waiting in MODES {
        let server = Server::start("127.0.0.1:0", options(waiting));
        let client = Client::new(&server.address.to_string(), options(waiting));
        for n in 0..200usize {
            let body = vec![n as u8; n * 37];
            assert_eq!(client.call(&body), Ok(body));
        }
        assert!(client.reactor.is_connected(SERVER));
        assert_eq!(client.reactor.peer_error(SERVER), None);
    }
}

#[test]
fn an_emulated_way_delays_and_keeps_the_order() {
    let delayed = |ms| Options {
        delay: Duration::from_millis(ms),
        ..Options::default()
    };
    let server = Server::start("127.0.0.1:0", delayed(20));
    let client = Client::new(&server.address.to_string(), delayed(10));
    let begin = Instant::now();
    assert_eq!(client.call(b"one"), Ok(b"one".to_vec()));
    assert!(begin.elapsed() >= Duration::from_millis(30));
    // Beside each other they are under way at the same time.
    let begin = Instant::now();
    let mut calls: Vec<Pin<Box<dyn Future<Output = _> + '_>>> = Vec::new();
    for n in 0..50u8 {
        let client = &client;
        calls.push(Box::pin(async move { client.ask(&[n]).await }));
    }
    let answers = client.reactor.block_on(sync::join_all(calls));
    assert!(begin.elapsed() >= Duration::from_millis(30));
    assert!(begin.elapsed() < Duration::from_millis(1000));
    assert_eq!(answers, (0..50u8).map(|n| Ok(vec![n])).collect::<Vec<_>>());
}

#[test]
fn roles_are_known() {
    let server = Server::start("127.0.0.1:0", Options::default());
    let address = server.address.to_string();
    let client = Client::new(&address, Options::default());
    assert_eq!(client.call(b"WHO"), Ok(b"Some(Client(IdentityId(0)))".to_vec()));
    assert_eq!(client.reactor.who(PEER), Some(PeerId::Server(SERVER)));
    assert_eq!(client.reactor.who(Peer::Connection(0)), None);
    let other = Client::with(&address, Options::default(), identity(Role::Server(ServerId(9))));
    assert_eq!(other.call(b"WHO"), Ok(b"Some(Server(ServerId(9)))".to_vec()));
}

#[test]
fn names_are_looked_up() {
    let server = Server::start("127.0.0.1:0", Options::default());
    let client = Client::new(
        &format!("localhost:{}", server.address.port()),
        Options::default(),
    );
    assert_eq!(client.call(b"hello"), Ok(b"hello".to_vec()));
}

#[test]
fn many_at_once_and_large_ones() {
    let server = Server::start("127.0.0.1:0", Options::default());
    let client = Client::new(&server.address.to_string(), Options::default());
    let answers = client.reactor.block_on(async {
        let mut calls: Vec<_> = Vec::new();
        for n in 0..64usize {
            let client = &client;
            calls.push(Box::pin(async move {
                client.ask(&vec![3; n * 60_000]).await.unwrap().len()
            }));
        }
        let mut sum = 0;
        for call in calls {
            sum += call.await;
        }
        sum
    });
    assert_eq!(answers, (0..64).map(|n| n * 60_000).sum::<usize>());
    // Together they are more than may wait on one connection before reading stops, and all arrive.
    let bodies = client.reactor.block_on(async {
        let (a, b, c) = (client.ask(b"BIG"), client.ask(b"BIG"), client.ask(b"BIG"));
        let (a, b) = (Box::pin(a), Box::pin(b));
        let first = sync::first(a, b).await;
        drop(first);
        c.await
    });
    assert_eq!(bodies.unwrap().len(), (1 << 20) - 8);
}

#[test]
fn threads_with_reactors_of_their_own() {
    let server = Server::start("127.0.0.1:0", Options::default());
    let address = server.address.to_string();
    std::thread::scope(|s| {
        for t in 0..6u8 {
            let address = &address;
            s.spawn(move || {
                let client = Client::new(address, Options::default());
                for n in 0..300u32 {
                    let body = [&[t], n.to_le_bytes().as_slice()].concat();
                    assert_eq!(client.call(&body), Ok(body));
                }
            });
        }
    });
}

#[test]
fn a_server_that_restarts_is_found_again() {
    // An address of its own: a port that is given up there is not taken by another test's server.
    let server = Server::start("127.0.77.1:0", Options::default());
    let address = server.address.to_string();
    let client = Client::new(&address, Options::default());
    assert_eq!(client.call(b"one"), Ok(b"one".to_vec()));
    server.stop();
    // The first call may meet the old connection, later ones a closed port; each says so soon.
    let begin = Instant::now();
    for _ in 0..8 {
        let called = Instant::now();
        assert_eq!(client.call(b"two"), Err(CallError::Disconnected));
        assert!(called.elapsed() < Duration::from_secs(4));
    }
    // 10, 20, 40, ... ms with a quarter of spread: neither hot nor cold.
    assert!(
        begin.elapsed() > Duration::from_millis(200),
        "{:?}",
        begin.elapsed()
    );
    assert!(client.reactor.peer_error(SERVER).unwrap().contains("refused"));
    let server = Server::start(&address, Options::default());
    assert_eq!(client.call(b"three"), Ok(b"three".to_vec()));
    assert_eq!(client.reactor.peer_error(SERVER), None);
    drop(server);
}

#[test]
fn an_idle_caller_notices_a_restart_before_it_sends() {
    let server = Server::start("127.0.0.1:0", Options::default());
    let address = server.address.to_string();
    let client = Client::new(&address, Options::default());
    assert_eq!(client.call(b"one"), Ok(b"one".to_vec()));
    server.stop();
    let _server = Server::start(&address, Options::default());
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(client.call(b"two"), Ok(b"two".to_vec()));
    assert_eq!(*client.node.gone.borrow(), [PEER]);
}

#[test]
fn nobody_listens_or_nobody_is_known() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let client = Client::new(&free.to_string(), Options::default());
    let closed = client.call(b"?");
    // The port was bound a moment ago; now it is not.
    assert_eq!(closed, Err(CallError::Disconnected));
    client.reactor.set_addresses(Default::default());
    assert_eq!(client.call(b"?"), Err(CallError::Disconnected));
    assert!(client.reactor.peer_error(SERVER).unwrap().contains("cluster map"));
    client
        .reactor
        .set_addresses([(SERVER, "no.such.host.invalid:1".to_string())].into());
    assert_eq!(client.call(b"?"), Err(CallError::Disconnected));
    assert!(
        client
            .reactor
            .peer_error(SERVER)
            .unwrap()
            .contains("no.such.host")
    );
}

#[test]
fn a_closed_connection_ends_its_calls_and_a_moved_server_is_followed() {
    let server = Server::start("127.0.0.1:0", Options::default());
    let client = Client::new(&server.address.to_string(), Options::default());
    assert_eq!(client.call(b"CLOSE"), Err(CallError::Disconnected));
    assert_eq!(client.call(b"again"), Ok(b"again".to_vec()));
    let second = Server::start("127.0.0.1:0", Options::default());
    client
        .reactor
        .set_addresses([(SERVER, second.address.to_string())].into());
    drop(server);
    assert_eq!(client.call(b"moved"), Ok(b"moved".to_vec()));
}
