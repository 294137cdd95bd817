//! Peers that are broken, foreign or hostile.
#![allow(clippy::unwrap_used)]

use crate::common::{CLIENT, Client, FS, SERVER, Server, greet, hello, identity, resident_mib};
use pando_auth::Introduction;
use pando_env::{CallError, Peer};
use pando_net::{Options, PeerError};
use pando_types::{FsId, ServerId};
use pando_wire::{FRAME_MAX, PROTOCOL_VERSION, encode_frame};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Waits until the other side closes; what it sent before.
fn drain(mut s: &TcpStream, limit: Duration) -> Vec<u8> {
    s.set_read_timeout(Some(limit)).unwrap();
    let (mut all, mut buf) = (Vec::new(), [0; 4096]);
    loop {
        match s.read(&mut buf) {
            Ok(0) => return all,
            Ok(n) => all.extend_from_slice(&buf[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return all,
            Err(e) => panic!("not closed: {e}"),
        }
    }
}

const SOON: Duration = Duration::from_secs(3);

fn hasty() -> Options {
    Options {
        hello_timeout: Duration::from_millis(300),
        stall_timeout: Duration::from_millis(600),
        ..Options::default()
    }
}

fn alive(server: &Server) {
    let client = Client::new(&server.address.to_string(), Options::default());
    assert_eq!(client.call(b"still there?"), Ok(b"still there?".to_vec()));
}

#[test]
fn garbage_is_cut_off() {
    let server = Server::start("127.0.0.1:0", Options::default());
    let mut oversized = hello(FS, PROTOCOL_VERSION);
    oversized.extend_from_slice(&(FRAME_MAX as u32 + 1).to_le_bytes());
    oversized.extend_from_slice(&[0; 64]);
    let mut damaged = hello(FS, PROTOCOL_VERSION);
    encode_frame(&mut damaged, b"12345678 something");
    *damaged.last_mut().unwrap() ^= 1;
    let mut large_hello = Vec::new();
    encode_frame(&mut large_hello, &[b'x'; 1000]);
    let mut no_hello = Vec::new();
    encode_frame(&mut no_hello, b"PNDX this is not it");
    for (what, bytes) in [
        ("http", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("oversized", oversized),
        ("damaged", damaged),
        ("large hello", large_hello),
        ("no hello", no_hello),
        ("zeros", vec![0; 64]),
    ] {
        let mut s = TcpStream::connect(server.address).unwrap();
        s.write_all(&bytes).unwrap();
        let begin = Instant::now();
        drain(&s, SOON);
        assert!(begin.elapsed() < Duration::from_secs(4), "{what}");
    }
    // A few hundred strangers with random bytes.
    let mut random = 1u64;
    for _ in 0..300 {
        let mut s = TcpStream::connect(server.address).unwrap();
        let bytes: Vec<u8> = (0..200)
            .map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 56) as u8
            })
            .collect();
        let _ = s.write_all(&bytes);
    }
    alive(&server);
}

#[test]
fn other_filesystems_and_versions_are_told_so() {
    let server = Server::start("127.0.0.1:0", Options::default());
    let address = server.address.to_string();
    let foreign = Introduction {
        fs: FsId(43),
        ..identity(CLIENT)
    };
    let client = Client::with(&address, Options::default(), foreign);
    let begin = Instant::now();
    assert_eq!(client.call(b"?"), Err(CallError::Disconnected));
    assert!(begin.elapsed() < Duration::from_secs(4));
    let error = client.reactor.peer_error(SERVER).unwrap();
    assert!(error.contains("another filesystem"), "{error}");

    let mut s = TcpStream::connect(server.address).unwrap();
    s.write_all(&hello(FS, PROTOCOL_VERSION + 1)).unwrap();
    let answer = drain(&s, SOON);
    assert_eq!(
        answer[8..],
        [b"PNDO".as_slice(), &[1], &PROTOCOL_VERSION.to_le_bytes()].concat()
    );
    alive(&server);
}

#[test]
fn another_server_than_the_map_says() {
    let server = Server::start("127.0.0.1:0", Options::default());
    let client = Client::new("127.0.0.1:1", Options::default());
    client
        .reactor
        .set_addresses([(ServerId(5), server.address.to_string())].into());
    let answer = client.reactor.block_on(client.node.calls.call(
        Peer::Server(ServerId(5)),
        Duration::from_secs(5),
        |id| id.to_le_bytes().to_vec(),
    ));
    assert_eq!(answer, Err(CallError::Disconnected));
    let failure = client.reactor.peer_failure(ServerId(5));
    assert!(
        matches!(failure, Some(PeerError::WrongServer { theirs: SERVER, .. })),
        "{failure:?}"
    );
}

#[test]
fn a_server_that_is_none() {
    // Speaks first, and not our language.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        let (mut s, _) = listener.accept().unwrap();
        s.write_all(b"220 mail.example ESMTP ready\r\n").unwrap();
        drain(&s, SOON);
        // The second never answers.
        let (s, _) = listener.accept().unwrap();
        drain(&s, SOON);
    });
    let client = Client::new(&address, hasty());
    assert_eq!(client.call(b"?"), Err(CallError::Disconnected));
    let error = client.reactor.peer_error(SERVER).unwrap();
    assert!(error.contains("does not answer like"), "{error}");
    let begin = Instant::now();
    assert_eq!(client.call(b"?"), Err(CallError::Disconnected));
    assert!(begin.elapsed() > Duration::from_millis(250) && begin.elapsed() < SOON);
    thread.join().unwrap();
}

#[test]
fn silence_ends() {
    let server = Server::start("127.0.0.1:0", hasty());
    let silent = TcpStream::connect(server.address).unwrap();
    let mut trickle = TcpStream::connect(server.address).unwrap();
    let mut unfinished = greet(&server);
    unfinished.write_all(&[200, 0, 0, 0, 1]).unwrap();
    let idle = greet(&server);
    let frame = hello(FS, PROTOCOL_VERSION);
    for byte in &frame[..5] {
        // One byte at a time does not extend the deadline.
        trickle.write_all(&[*byte]).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    drain(&silent, SOON);
    drain(&trickle, SOON);
    drain(&unfinished, SOON);
    // Welcomed and silent is fine.
    idle.set_read_timeout(Some(Duration::from_millis(1200))).unwrap();
    let waited = (&idle).read(&mut [0; 8]).unwrap_err();
    assert_eq!(waited.kind(), std::io::ErrorKind::WouldBlock);
    alive(&server);
}

#[test]
fn a_reader_that_does_not_read() {
    let server = Server::start("127.0.0.1:0", hasty());
    let mut greedy = greet(&server);
    greedy
        .set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut ask = Vec::new();
    let padding = [0; 4096];
    encode_frame(&mut ask, &[b"\0\0\0\0\0\0\0\0BIG", padding.as_slice()].concat());
    let before = resident_mib();
    // Asks for 1 MiB again and again, 40 GiB in all, and reads nothing: sooner or later the server stops
    // reading.
    let mut asked = 0u64;
    while asked < 40_000 && greedy.write_all(&ask).is_ok() {
        asked += 1;
        if asked.is_multiple_of(16) {
            alive(&server); // others are served meanwhile
        }
    }
    assert!(asked < 40_000, "the server read everything");
    let grown = resident_mib().saturating_sub(before);
    assert!(grown < 200, "{grown} MiB held for one connection");
    greedy.shutdown(Shutdown::Write).unwrap_or(());
    std::thread::sleep(Duration::from_millis(1500));
    alive(&server);
    // Closed by now: what the kernel held arrives, then the end.
    drain(&greedy, SOON);
}

#[test]
fn a_slow_reader_gets_everything() {
    let server = Server::start("127.0.0.1:0", Options::default());
    let mut slow = greet(&server);
    let mut asks = Vec::new();
    for _ in 0..24 {
        encode_frame(&mut asks, b"\0\0\0\0\0\0\0\0BIG");
    }
    slow.write_all(&asks).unwrap();
    let mut buf = vec![0; 64 * 1024];
    let mut total = 0;
    while total < 24 * ((1 << 20) + 8) {
        total += slow.read(&mut buf).unwrap();
        std::thread::sleep(Duration::from_micros(300));
    }
    assert_eq!(total, 24 * ((1 << 20) + 8));
    slow.write_all(&asks[..19]).unwrap();
    slow.read_exact(&mut buf[..1000]).unwrap();
}

#[test]
fn more_than_allowed() {
    let server = Server::start(
        "127.0.0.1:0",
        Options {
            max_connections: 3,
            ..Options::default()
        },
    );
    let held: Vec<TcpStream> = (0..3).map(|_| greet(&server)).collect();
    let client = Client::new(&server.address.to_string(), Options::default());
    assert_eq!(client.call(b"?"), Err(CallError::Disconnected));
    let error = client.reactor.peer_error(SERVER).unwrap();
    assert!(error.contains("as many connections"), "{error}");
    drop(held);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(client.call(b"now"), Ok(b"now".to_vec()));
}

#[test]
fn who_says_nothing_keeps_nobody_out() {
    let server = Server::start(
        "127.0.0.1:0",
        Options {
            max_connections: 4,
            max_strangers: 2,
            ..Options::default()
        },
    );
    let silent: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(server.address).unwrap())
        .collect();
    let client = Client::new(&server.address.to_string(), Options::default());
    assert_eq!(client.call(b"?"), Ok(b"?".to_vec()));
    // The oldest went first, long before its time to say hello was over.
    assert!(drain(&silent[0], SOON).is_empty());
    alive(&server);
}
