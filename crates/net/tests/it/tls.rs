//! Connections in mode `tls`: who comes together, who does not and what both are told, and what somebody in
//! between sees.
#![allow(clippy::unwrap_used)]

use crate::common::{Client, FS, SERVER, Server, cluster_key};
use pando_auth::{Fingerprint, Gate, Introduction, Key};
use pando_net::{Options, PeerError, Pems, Purpose, Tls, TlsFault, fingerprint};
use pando_types::{AuthMode, IdentityId, ServerId};
use pando_wire::{Denial, Role, Way};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, date_time_ymd,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ME: IdentityId = IdentityId(5);
const CERTIFIED: Role = Role::Client(Way::Certificate);

/// Signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Authority {
        issuer: Issuer::new(params, key),
        pem,
    }
}

/// What is asked of a certificate.
#[derive(Clone, Copy)]
struct Wish {
    host: &'static str,
    server: bool,
    years: (i32, i32),
}

const SERVERS: Wish = Wish {
    host: "127.0.0.1",
    server: true,
    years: (2000, 2100),
};
const CLIENTS: Wish = Wish {
    host: "someone",
    server: false,
    ..SERVERS
};

impl Authority {
    /// Certificate and key in one text.
    fn issue(&self, wish: Wish) -> Vec<u8> {
        let mut params = CertificateParams::new([wish.host.to_owned()]).unwrap();
        params.extended_key_usages = vec![if wish.server {
            ExtendedKeyUsagePurpose::ServerAuth
        } else {
            ExtendedKeyUsagePurpose::ClientAuth
        }];
        params.not_before = date_time_ymd(wish.years.0, 1, 1);
        params.not_after = date_time_ymd(wish.years.1, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem() + &key.serialize_pem()).into_bytes()
    }

    fn trusted(&self) -> Vec<u8> {
        self.pem.clone().into_bytes()
    }
}

/// Lets in whoever's public key is listed, as identity 5.
struct Listed(Arc<Mutex<Vec<Fingerprint>>>);

impl Gate for Listed {
    fn mode(&self) -> AuthMode {
        AuthMode::Tls
    }
    fn key(&self, role: Role, key_name: u64) -> Result<Key, Denial> {
        let cluster = !matches!(role, Role::Client(_));
        Some(cluster_key())
            .filter(|k| cluster && k.name() == key_name)
            .ok_or(Denial::UnknownKey)
    }
    fn certified(&self, public_key: &Fingerprint) -> Result<IdentityId, Denial> {
        let known = self.0.lock().unwrap().contains(public_key);
        known.then_some(ME).ok_or(Denial::UnknownKey)
    }
}

fn tls(purpose: Purpose, own: Option<&[u8]>, authorities: &[u8]) -> Arc<Tls> {
    let pems = Pems {
        own: own.map(|own| (own.to_vec(), own.to_vec())),
        authorities: authorities.to_vec(),
    };
    Tls::new(purpose, move || Ok(pems.clone())).unwrap()
}

fn hasty() -> Options {
    Options {
        hello_timeout: Duration::from_millis(500),
        ..Options::default()
    }
}

/// A server that lets these certificates in.
fn serve(own: &[u8], authorities: &[u8], listed: &[&[u8]]) -> Server {
    let listed = listed.iter().map(|pem| fingerprint(pem).unwrap()).collect();
    let listed = Arc::new(Mutex::new(listed));
    let tls = tls(Purpose::Accept, Some(own), authorities);
    Server::start_with("127.0.0.1:0", hasty(), Some(tls), || Rc::new(Listed(listed)))
}

fn who(role: Role) -> Introduction {
    Introduction {
        fs: FS,
        role,
        key: (role != CERTIFIED).then(cluster_key),
    }
}

fn client(address: &str, role: Role, tls: Arc<Tls>) -> Client {
    let client = Client::with(address, Options::default(), who(role));
    client.reactor.set_tls(tls);
    client
}

/// What a client is told that is not let in, soon.
fn complaint(address: &str, own: Option<&[u8]>, authorities: &[u8]) -> PeerError {
    let client = client(address, CERTIFIED, tls(Purpose::Connect, own, authorities));
    let begin = Instant::now();
    assert!(client.call(b"let me in").is_err());
    assert!(begin.elapsed() < Duration::from_secs(5));
    client.reactor.peer_failure(SERVER).unwrap()
}

#[track_caller]
fn fault(complaint: &PeerError) -> &TlsFault {
    match complaint {
        PeerError::Tls { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_has_a_certificate_is_let_in_as_itself() {
    let ca = authority("ca");
    let mine = ca.issue(CLIENTS);
    let server = serve(&ca.issue(SERVERS), &ca.trusted(), &[&mine]);
    let address = server.address.to_string();
    let me = client(
        &address,
        CERTIFIED,
        tls(Purpose::Connect, Some(&mine), &ca.trusted()),
    );
    assert_eq!(me.call(b"WHO"), Ok(b"Some(Client(IdentityId(5)))".to_vec()));
    let large = vec![7; 3 << 20];
    assert_eq!(me.call(&large), Ok(large));
    assert_eq!(me.call(b"BIG").map(|reply| reply.len()), Ok((1 << 20) - 8));
    // Servers and operators need no certificate: they prove inside that they have the secret.
    for (role, name) in [
        (Role::Server(ServerId(9)), "Some(Server(ServerId(9)))"),
        (Role::Operator, "Some(Operator)"),
    ] {
        let other = client(&address, role, tls(Purpose::Connect, None, &ca.trusted()));
        assert_eq!(other.call(b"WHO"), Ok(name.into()));
    }
    // With a certificate, but without the secret, nobody is an operator.
    let false_one = Client::with(
        &address,
        Options::default(),
        Introduction {
            key: Some(Key::new([7; 32])),
            ..who(Role::Operator)
        },
    );
    false_one
        .reactor
        .set_tls(tls(Purpose::Connect, Some(&mine), &ca.trusted()));
    assert!(false_one.call(b"WHO").is_err());
}

#[test]
fn other_certificates_are_refused_and_told_why() {
    let (ca, other) = (authority("ca"), authority("other"));
    let lost = ca.issue(Wish {
        years: (2000, 2001),
        ..CLIENTS
    });
    let early = ca.issue(Wish {
        years: (2090, 2100),
        ..CLIENTS
    });
    let foreign = other.issue(CLIENTS);
    let of_a_server = ca.issue(SERVERS);
    let listed = [&*lost, &*early, &*foreign, &*of_a_server];
    let server = serve(&ca.issue(SERVERS), &ca.trusted(), &listed);
    let address = server.address.to_string();
    let told = |own| complaint(&address, own, &ca.trusted());
    for own in [&lost, &early] {
        let told = told(Some(own));
        assert_eq!(fault(&told), &TlsFault::OursNotNow, "{told}");
    }
    let told_foreign = told(Some(&foreign));
    assert_eq!(fault(&told_foreign), &TlsFault::OursUnknown, "{told_foreign}");
    let told_purpose = told(Some(&of_a_server));
    assert!(
        matches!(fault(&told_purpose), TlsFault::OursBad(_)),
        "{told_purpose}"
    );
    for (own, expected) in [
        (None, Denial::WrongWay(AuthMode::Tls)),
        (Some(&ca.issue(CLIENTS)), Denial::UnknownKey),
    ] {
        let told = told(own.map(|own| &**own));
        assert!(
            matches!(told, PeerError::Denied { why, .. } if why == expected),
            "{told}"
        );
        assert!(told.is_final());
    }
}

#[test]
fn other_servers_are_not_believed() {
    let (ca, other) = (authority("ca"), authority("other"));
    let mine = ca.issue(CLIENTS);
    let told = |server: Vec<u8>| {
        let server = serve(&server, &ca.trusted(), &[&mine]);
        complaint(&server.address.to_string(), Some(&mine), &ca.trusted())
    };
    let late = ca.issue(Wish {
        years: (2000, 2001),
        ..SERVERS
    });
    assert!(matches!(fault(&told(late)), TlsFault::TheirsNotNow(_)));
    assert_eq!(fault(&told(other.issue(SERVERS))), &TlsFault::TheirsUnknown);
    let elsewhere = ca.issue(Wish {
        host: "127.0.0.2",
        ..SERVERS
    });
    assert!(matches!(fault(&told(elsewhere)), TlsFault::TheirsOther(_)));
    // A client's certificate does not make a server, not even one for the right host.
    let of_a_client = ca.issue(Wish {
        server: false,
        ..SERVERS
    });
    assert!(matches!(fault(&told(of_a_client)), TlsFault::TheirsBad(_)));
    // Another authority of the same name.
    let namesake = authority("ca");
    assert_eq!(fault(&told(namesake.issue(SERVERS))), &TlsFault::TheirsUnknown);
}

#[test]
fn who_speaks_plainly_and_who_does_not() {
    let ca = authority("ca");
    let mine = ca.issue(CLIENTS);
    let server = serve(&ca.issue(SERVERS), &ca.trusted(), &[&mine]);
    for role in [crate::common::CLIENT, Role::Operator] {
        let plain = Client::with(
            &server.address.to_string(),
            Options::default(),
            crate::common::identity(role),
        );
        assert!(plain.call(b"?").is_err());
        let told = plain.reactor.peer_failure(SERVER).unwrap();
        let expected = Denial::WrongWay(AuthMode::Tls);
        assert!(
            matches!(told, PeerError::Denied { why, .. } if why == expected),
            "{told}"
        );
    }
    // The other way round: a server that speaks plainly says so.
    let plain = Server::start("127.0.0.1:0", hasty());
    let told = complaint(&plain.address.to_string(), Some(&mine), &ca.trusted());
    let expected = Denial::WrongWay(AuthMode::None);
    assert!(
        matches!(told, PeerError::Denied { why, .. } if why == expected),
        "{told}"
    );
    // A certificate is never shown to who speaks plainly.
    let naked = Client::with(&server.address.to_string(), Options::default(), who(CERTIFIED));
    assert!(naked.call(b"?").is_err());
    let told = naked.reactor.peer_failure(SERVER).unwrap().to_string();
    assert!(told.contains("inside TLS only"), "{told}");
    // Somebody else answers there, or says "welcome" in plain.
    let answers = [
        b"220 mail.example.org ESMTP\r\n".to_vec(),
        welcome_in_plain(),
        vec![0x16, 3, 3, 0, 4, 1, 2, 3, 4],
    ];
    for answer in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            while let Ok((mut s, _)) = listener.accept() {
                let _ = s.write_all(&answer);
                let _ = s.read_to_end(&mut Vec::new());
            }
        });
        let told = complaint(&address, Some(&mine), &ca.trusted());
        fault(&told);
    }
}

fn welcome_in_plain() -> Vec<u8> {
    let welcome = pando_wire::HelloReply::Welcome {
        server: SERVER,
        boot: pando_types::BootEpoch(1),
        proof: None,
    };
    let mut frame = Vec::new();
    pando_wire::encode_frame(&mut frame, &pando_auth::payload(&welcome));
    frame
}

/// Reads until the other side closes; how long that took.
fn closes(mut s: TcpStream) -> Duration {
    let begin = Instant::now();
    s.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut buffer = [0; 4096];
    while matches!(s.read(&mut buffer), Ok(n) if n > 0) {}
    begin.elapsed()
}

#[test]
fn a_handshake_ends_in_time_and_stays_small() {
    let ca = authority("ca");
    let mine = ca.issue(CLIENTS);
    let server = serve(&ca.issue(SERVERS), &ca.trusted(), &[&mine]);
    let soon = Duration::from_secs(4);
    // One that says nothing, one that stops in the middle, garbage that looks like TLS, and one that never
    // ends.
    let silent = TcpStream::connect(server.address).unwrap();
    assert!(closes(silent) < soon);
    let mut half = TcpStream::connect(server.address).unwrap();
    half.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).unwrap();
    assert!(closes(half) < soon);
    let mut garbage = TcpStream::connect(server.address).unwrap();
    garbage
        .write_all(&[0x16, 3, 1, 0, 9, 7, 7, 7, 7, 7, 7, 7, 7, 7])
        .unwrap();
    assert!(closes(garbage) < soon);
    let mut endless = TcpStream::connect(server.address).unwrap();
    // A hello of 16 MiB, in records of 16 KiB, so said at its beginning.
    let mut record = vec![0x16, 3, 1, 0x40, 0];
    record.resize(5 + 0x4000, 0);
    record[5] = 1;
    record[6] = 0xff;
    let mut sent = 0;
    while sent < 64 && endless.write_all(&record).is_ok() {
        sent += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(sent < 64, "a megabyte of handshake was taken");
    let me = client(
        &server.address.to_string(),
        CERTIFIED,
        tls(Purpose::Connect, Some(&mine), &ca.trusted()),
    );
    assert_eq!(me.call(b"still there"), Ok(b"still there".to_vec()));
}

/// What passed, there and back.
type Seen = Arc<Mutex<[Vec<u8>; 2]>>;

/// A way to the server past somebody who writes down what passes, and flips a bit of what is sent after so
/// many bytes.
fn between(server: &Server, flip: usize) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (behind, seen) = (server.address, Seen::default());
    let noted = seen.clone();
    std::thread::spawn(move || {
        while let Ok((near, _)) = listener.accept() {
            let far = TcpStream::connect(behind).unwrap();
            let ways = [
                (near.try_clone().unwrap(), far.try_clone().unwrap(), flip),
                (far, near, usize::MAX),
            ];
            for (way, (mut from, mut to, flip)) in ways.into_iter().enumerate() {
                let noted = noted.clone();
                std::thread::spawn(move || {
                    let (mut at, mut buffer) = (0, [0; 4096]);
                    while let Ok(n @ 1..) = from.read(&mut buffer) {
                        if (at..at + n).contains(&flip) {
                            buffer[flip - at] ^= 1;
                        }
                        at += n;
                        noted.lock().unwrap()[way].extend_from_slice(&buffer[..n]);
                        if to.write_all(&buffer[..n]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    (address, seen)
}

#[test]
fn somebody_in_between_reads_nothing_and_changes_nothing() {
    let ca = authority("ca");
    let mine = ca.issue(CLIENTS);
    let server = serve(&ca.issue(SERVERS), &ca.trusted(), &[&mine]);
    let word = b"a name that is nobody's business";
    let ask = |flip| {
        let (address, seen) = between(&server, flip);
        let me = client(
            &address,
            CERTIFIED,
            tls(Purpose::Connect, Some(&mine), &ca.trusted()),
        );
        let calls = me
            .node
            .calls
            .call(crate::common::PEER, Duration::from_millis(700), |id| {
                [&id.to_le_bytes()[..], word].concat()
            });
        let answer = me.reactor.block_on(calls);
        let seen = seen.lock().unwrap().clone();
        (answer, seen)
    };
    let (answer, seen) = ask(usize::MAX);
    assert_eq!(answer, Ok(word.to_vec()));
    for seen in &seen {
        assert!(seen.len() > 400 && !seen.windows(8).any(|w| word.starts_with(w)));
        assert!(!seen.windows(4).any(|w| w == b"PNDO"), "not even the hello");
    }
    // First its hello, last the request; between, its certificate and its proof that it has the key.
    for tenth in 1..10 {
        let flip = seen[0].len() * tenth / 10;
        let (answer, _) = ask(flip);
        assert_ne!(answer, Ok(word.to_vec()), "a bit of byte {flip}");
    }
}

#[test]
fn certificates_are_read_again() {
    let (old, new) = (authority("old"), authority("new"));
    let (early, late) = (old.issue(CLIENTS), new.issue(CLIENTS));
    let pems = |ca: &Authority| {
        let own = ca.issue(SERVERS);
        Pems {
            own: Some((own.clone(), own)),
            authorities: ca.trusted(),
        }
    };
    let files = Arc::new(Mutex::new(Ok(pems(&old))));
    let source = files.clone();
    let watched = Tls::new(Purpose::Accept, move || source.lock().unwrap().clone()).unwrap();
    let listed = [&early, &late].map(|pem| fingerprint(pem).unwrap()).to_vec();
    let listed = Arc::new(Mutex::new(listed));
    let server = Server::start_with("127.0.0.1:0", hasty(), Some(watched), || Rc::new(Listed(listed)));
    let address = server.address.to_string();
    let connect = |own: &[u8], ca: &Authority| {
        client(
            &address,
            CERTIFIED,
            tls(Purpose::Connect, Some(own), &ca.trusted()),
        )
    };
    let before = connect(&early, &old);
    assert_eq!(before.call(b"1"), Ok(b"1".to_vec()));
    // What cannot be used changes nothing.
    let look = || std::thread::sleep(Duration::from_millis(600));
    *files.lock().unwrap() = Err("the disk is away".into());
    look();
    assert_eq!(connect(&early, &old).call(b"2"), Ok(b"2".to_vec()));
    *files.lock().unwrap() = Ok(Pems::default());
    look();
    assert_eq!(connect(&early, &old).call(b"3"), Ok(b"3".to_vec()));
    *files.lock().unwrap() = Ok(pems(&new));
    look();
    assert_eq!(connect(&late, &new).call(b"4"), Ok(b"4".to_vec()));
    assert!(connect(&early, &old).call(b"5").is_err());
    assert_eq!(
        before.call(b"6"),
        Ok(b"6".to_vec()),
        "connections that stand stay"
    );
}
