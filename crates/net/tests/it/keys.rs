//! Connections that are authenticated by keys, with somebody in between who changes what passes.
#![allow(clippy::unwrap_used)]

use crate::common::{Client, FS, SERVER, Server, cluster_key};
use pando_auth::{Gate, Introduction, Key};
use pando_env::{CallError, Env};
use pando_net::{Options, PeerError};
use pando_types::{AuthMode, IdentityId, ServerId};
use pando_wire::{Denial, Role, Way};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

fn server(key: Key) -> Introduction {
    Introduction {
        fs: FS,
        role: Role::Server(ServerId(9)),
        key: Some(key),
    }
}

/// What the one in between does to the bytes of a direction.
#[derive(Clone, Copy)]
enum Tamper {
    Nothing,
    /// Flips a bit of the byte at this place.
    Flip(usize),
    /// Sends everything from this place on twice.
    Twice(usize),
    /// Leaves out so many bytes from this place on.
    Without(usize, usize),
}

fn pass(mut from: TcpStream, mut to: TcpStream, tamper: Tamper) {
    let mut at = 0;
    let mut buffer = [0; 4096];
    while let Ok(n) = from.read(&mut buffer) {
        if n == 0 {
            break;
        }
        let mut bytes = buffer[..n].to_vec();
        match tamper {
            Tamper::Flip(place) if (at..at + n).contains(&place) => bytes[place - at] ^= 4,
            Tamper::Twice(place) if at + n > place => {
                let again = bytes[place.saturating_sub(at)..].to_vec();
                bytes.extend(again);
            }
            Tamper::Without(place, len) => {
                let gap = place..place + len;
                bytes = (at..)
                    .zip(bytes)
                    .filter(|(i, _)| !gap.contains(i))
                    .map(|(_, b)| b)
                    .collect();
            }
            _ => {}
        }
        at += n;
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}

/// A way to the server past somebody who does this to what the client sends, and to what it is answered.
fn between(server: &Server, there: Tamper, back: Tamper) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let behind = server.address;
    std::thread::spawn(move || {
        while let Ok((near, _)) = listener.accept() {
            let Ok(far) = TcpStream::connect(behind) else {
                return;
            };
            let (near2, far2) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || pass(near, far, there));
            std::thread::spawn(move || pass(far2, near2, back));
        }
    });
    address
}

/// One call, not repeated.
fn ask(address: &str) -> (Result<Vec<u8>, CallError>, Option<PeerError>) {
    let options = Options {
        hello_timeout: Duration::from_millis(400),
        stall_timeout: Duration::from_millis(400),
        ..Options::default()
    };
    let client = Client::with(address, options, server(cluster_key()));
    let asked = client
        .node
        .calls
        .call(crate::common::PEER, Duration::from_secs(1), |id| {
            [&id.to_le_bytes()[..], b"a question of some length"].concat()
        });
    let answer = client.reactor.block_on(asked);
    (answer, client.reactor.peer_failure(SERVER))
}

#[test]
fn whoever_has_the_key_is_let_in_and_knows_whom_it_talks_to() {
    let server_ = Server::start("127.0.0.1:0", Options::default());
    let address = between(&server_, Tamper::Nothing, Tamper::Nothing);
    let client = Client::with(&address, Options::default(), server(cluster_key()));
    let large = vec![7; 3 << 20];
    assert_eq!(client.call(&large), Ok(large));
    assert_eq!(client.call(b"WHO"), Ok(b"Some(Server(ServerId(9)))".to_vec()));
}

#[test]
fn another_key_is_told_so_at_once() {
    let server_ = Server::start("127.0.0.1:0", Options::default());
    let address = server_.address.to_string();
    for role in [Role::Server(ServerId(9)), Role::Operator] {
        let introduction = Introduction {
            role,
            ..server(Key::new([7; 32]))
        };
        let client = Client::with(&address, Options::default(), introduction);
        let begin = Instant::now();
        assert!(client.call(b"?").is_err());
        assert!(begin.elapsed() < Duration::from_secs(4));
        let failure = client.reactor.peer_failure(SERVER).unwrap();
        let why = Denial::UnknownKey;
        assert!(
            matches!(failure, PeerError::Denied { why: w, .. } if w == why),
            "{failure}"
        );
        assert!(
            failure.is_final() && failure.to_string().contains("pando auth"),
            "{failure}"
        );
    }
}

/// Lets in whoever has the key of identity 5.
struct Five;

impl Gate for Five {
    fn mode(&self) -> AuthMode {
        AuthMode::Key
    }
    fn key(&self, role: Role, key_name: u64) -> Result<Key, Denial> {
        let five = role == Role::Client(Way::Key(IdentityId(5)));
        Some(cluster_key())
            .filter(|k| five && k.name() == key_name)
            .ok_or(Denial::UnknownKey)
    }
}

#[test]
fn one_identity_cannot_take_all_places() {
    let options = Options {
        max_per_identity: 2,
        ..Options::default()
    };
    let server = Server::start_behind("127.0.0.1:0", options, || Rc::new(Five));
    let address = server.address.to_string();
    let five = Introduction {
        fs: FS,
        role: Role::Client(Way::Key(IdentityId(5))),
        key: Some(cluster_key()),
    };
    let client = || Client::with(&address, Options::default(), five.clone());
    let (a, b, c) = (client(), client(), client());
    assert_eq!(a.call(b"WHO"), Ok(b"Some(Client(IdentityId(5)))".to_vec()));
    assert_eq!(b.call(b"b"), Ok(b"b".to_vec()));
    assert!(c.call(b"c").is_err());
    let failure = c.reactor.peer_failure(SERVER).unwrap();
    let expected = Denial::TooManyOfYours;
    assert!(
        matches!(failure, PeerError::Denied { why, .. } if why == expected),
        "{failure}"
    );
    drop(a);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(c.call(b"c"), Ok(b"c".to_vec()));
}

#[test]
fn one_identity_cannot_fill_all_buffers() {
    let options = Options {
        max_buffered_per_identity: 32 << 20,
        ..Options::default()
    };
    let server = Server::start_behind("127.0.0.1:0", options, || Rc::new(Five));
    let address = server.address.to_string();
    let five = Introduction {
        fs: FS,
        role: Role::Client(Way::Key(IdentityId(5))),
        key: Some(cluster_key()),
    };
    // Each asks for more than the kernel holds for it, and reads nothing; alone it could. Together they are
    // too many.
    let greedy: Vec<Client> = (0..24)
        .map(|_| {
            let client = Client::with(&address, Options::default(), five.clone());
            assert_eq!(client.call(b"there?"), Ok(b"there?".to_vec()));
            for id in 0..16u64 {
                client
                    .reactor
                    .send(crate::common::PEER, [&id.to_le_bytes()[..], b"BIG"].concat());
            }
            client.reactor.turn(Some(Duration::ZERO));
            client
        })
        .collect();
    let other = Client::with(&address, Options::default(), self::server(cluster_key()));
    let failed = other.call(b"?");
    assert!(failed.is_err(), "this gate knows identity 5 only");
    std::thread::sleep(Duration::from_millis(500));
    // Those that were one too many are closed; what they asked for is theirs to ask again.
    let closed = greedy.iter().filter(|client| {
        for _ in 0..100 {
            client.reactor.turn(Some(Duration::from_millis(2)));
        }
        !client.node.gone.borrow().is_empty()
    });
    let closed = closed.count();
    assert!((1..24).contains(&closed), "{closed} of 24 were closed");
    let again = Client::with(&address, Options::default(), five);
    assert_eq!(again.call(b"again"), Ok(b"again".to_vec()), "it can go on");
}

#[test]
fn nothing_that_was_tampered_with_is_answered() {
    let server = Server::start("127.0.0.1:0", Options::default());
    // Lengths of what the client sends: hello, proof, then one request; of what it is sent: challenge,
    // welcome, answer.
    let (hello, proof) = (8 + 4 + 2 + 16 + 3 + 8 + 32, 8 + 4 + 32);
    let (challenge, welcome) = (8 + 4 + 1 + 2 + 8 + 32 + 32, 8 + 4 + 1 + 2 + 8 + 1 + 32);
    let request = 4 + 16 + 8 + 25;
    let none = Tamper::Nothing;
    for place in (0..hello + proof + request).step_by(5) {
        let (answer, _) = ask(&between(&server, Tamper::Flip(place), none));
        assert!(answer.is_err(), "a bit of byte {place} sent");
    }
    for place in (0..challenge + welcome + request).step_by(5) {
        let (answer, _) = ask(&between(&server, none, Tamper::Flip(place)));
        assert!(answer.is_err(), "a bit of byte {place} received");
    }
    let (answer, _) = ask(&between(&server, Tamper::Without(hello + proof, request), none));
    assert!(answer.is_err(), "left out");
    // A frame that comes twice is noticed after the first was answered: the connection ends.
    let address = between(&server, Tamper::Twice(hello + proof), none);
    let client = Client::with(&address, Options::default(), self::server(cluster_key()));
    let _ = client.call(b"first");
    client.reactor.turn(Some(Duration::from_millis(300)));
    assert!(!client.reactor.is_connected(SERVER), "replayed");
}

#[test]
fn a_server_without_the_secret_is_not_believed() {
    // It relays the hello of the client and makes up the rest.
    use pando_auth::payload;
    use pando_types::BootEpoch;
    use pando_wire::{HelloReply, encode_frame};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let replies = [
        HelloReply::Welcome {
            server: SERVER,
            boot: BootEpoch(1),
            proof: None,
        },
        HelloReply::Challenge {
            server: SERVER,
            boot: BootEpoch(1),
            nonce: [1; 32],
            proof: [2; 32],
        },
        HelloReply::Welcome {
            server: SERVER,
            boot: BootEpoch(1),
            proof: Some([3; 32]),
        },
    ];
    let n = replies.len();
    std::thread::spawn(move || {
        for reply in replies {
            let (mut s, _) = listener.accept().unwrap();
            let mut frame = Vec::new();
            encode_frame(&mut frame, &payload(&reply));
            s.write_all(&frame).unwrap();
            let _ = s.read_to_end(&mut Vec::new());
        }
    });
    for _ in 0..n {
        let (answer, failure) = ask(&address);
        assert!(answer.is_err());
        assert!(matches!(failure, Some(PeerError::NotGenuine(_))), "{failure:?}");
    }
}
