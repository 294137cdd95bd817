//! Every message forged, replayed, reflected, truncated and flipped.

use super::*;

const FS: FsId = FsId(7);
const HERE: Here = Here {
    fs: FS,
    server: ServerId(3),
    boot: BootEpoch(5),
};

struct Door {
    mode: AuthMode,
    cluster: Key,
    client: Key,
}

fn key(n: u8) -> Key {
    Key::new([n; 32])
}

fn door(mode: AuthMode) -> Door {
    Door {
        mode,
        cluster: key(1),
        client: key(2),
    }
}

impl Gate for Door {
    fn mode(&self) -> AuthMode {
        self.mode
    }
    fn key(&self, role: Role, name: u64) -> Result<Key, Denial> {
        let key = match role {
            Role::Client(Way::Key(IdentityId(9))) => &self.client,
            Role::Server(_) | Role::Operator => &self.cluster,
            Role::Client(_) => return Err(Denial::UnknownKey),
        };
        if key.name() == name {
            Ok(key.clone())
        } else {
            Err(Denial::UnknownKey)
        }
    }
}

fn who(role: Role, n: Option<u8>) -> Introduction {
    Introduction {
        fs: FS,
        role,
        key: n.map(key),
    }
}

fn client() -> Introduction {
    who(Role::Client(Way::Key(IdentityId(9))), Some(2))
}

/// Everything both sides say, and what came of it.
struct Talk {
    hello: Vec<u8>,
    challenge: Vec<u8>,
    proof: Vec<u8>,
    welcome: Vec<u8>,
    connecting: FrameKeys,
    accepting: FrameKeys,
    peer: PeerId,
}

fn challenge(said: &[u8], mode: AuthMode, nonce: u8) -> Option<(Vec<u8>, Acceptor)> {
    match Acceptor::greet(said, HERE, &door(mode), None, [nonce; NONCE]) {
        Greeting::Challenge(reply, acceptor) => Some((payload(&reply), acceptor)),
        _ => None,
    }
}

fn refusal(said: &[u8], mode: AuthMode) -> Option<HelloReply> {
    match Acceptor::greet(said, HERE, &door(mode), None, [1; NONCE]) {
        Greeting::Refuse(reply) => Some(reply),
        _ => None,
    }
}

fn talk(me: &Introduction, nonces: (u8, u8)) -> Talk {
    let (mut initiator, hello) = Initiator::new(me, [nonces.0; NONCE]);
    let (challenge, acceptor) = challenge(&hello, AuthMode::Key, nonces.1).unwrap();
    let Ok(Step::Say(proof)) = initiator.take(&challenge) else {
        panic!("no proof")
    };
    let accepted = acceptor.accept(&proof, &door(AuthMode::Key)).ok().unwrap();
    let welcome = payload(&accepted.welcome);
    let Ok(Step::Up {
        server,
        keys: Some(keys),
    }) = initiator.take(&welcome)
    else {
        panic!("not up")
    };
    assert_eq!(server, HERE.server);
    Talk {
        hello,
        challenge,
        proof,
        welcome,
        connecting: keys,
        accepting: accepted.keys,
        peer: accepted.peer,
    }
}

fn passes(from: &mut FrameKey, to: &mut FrameKey) -> bool {
    let mut frame = Vec::new();
    from.encode(&mut frame, b"message");
    matches!(to.cut(&frame), Ok(Some((b"message", _))))
}

#[test]
fn both_sides_agree_on_who_is_there_and_on_the_keys() {
    let roles = [
        (client(), PeerId::Client(IdentityId(9))),
        (
            who(Role::Server(ServerId(4)), Some(1)),
            PeerId::Server(ServerId(4)),
        ),
        (who(Role::Operator, Some(1)), PeerId::Operator),
    ];
    for (me, peer) in roles {
        let mut t = talk(&me, (10, 20));
        assert_eq!(t.peer, peer);
        for said in [&t.hello, &t.challenge, &t.proof, &t.welcome] {
            assert!(said.len() <= HELLO_MAX);
        }
        assert!(passes(&mut t.connecting.send, &mut t.accepting.receive));
        assert!(passes(&mut t.accepting.send, &mut t.connecting.receive));
        // What one side says is worth nothing when it is sent back to it.
        assert!(!passes(&mut t.connecting.send, &mut t.connecting.receive));
        // And nothing on another connection of the same two.
        let mut other = talk(&me, (10, 21));
        assert!(!passes(
            &mut talk(&me, (10, 20)).connecting.send,
            &mut other.accepting.receive
        ));
        assert!(!passes(
            &mut talk(&me, (11, 20)).connecting.send,
            &mut talk(&me, (10, 20)).accepting.receive
        ));
    }
}

#[test]
fn a_key_proves_its_own_role_only() {
    let cases = [
        who(Role::Server(ServerId(4)), Some(2)),
        who(Role::Operator, Some(2)),
        who(Role::Operator, Some(3)),
        who(Role::Client(Way::Key(IdentityId(9))), Some(1)),
        who(Role::Client(Way::Key(IdentityId(8))), Some(2)),
    ];
    for me in cases {
        let (_, hello) = Initiator::new(&me, [1; NONCE]);
        let denied = Some(HelloReply::Denied(Denial::UnknownKey));
        assert_eq!(refusal(&hello, AuthMode::Key), denied, "{me:?}");
        // Who knows the name of the right key, and not the key, fails at the proof.
        let mut forged = Hello::from_bytes(&hello[4..]).unwrap();
        for right in [key(1).name(), key(2).name()] {
            forged.key_name = right;
            let said = payload(&forged);
            let Some((_, acceptor)) = challenge(&said, AuthMode::Key, 1) else {
                continue;
            };
            let guess = payload(&Proof { proof: [0; NONCE] });
            let denied = Some(HelloReply::Denied(Denial::WrongProof));
            assert_eq!(acceptor.accept(&guess, &door(AuthMode::Key)).err(), Some(denied));
        }
    }
}

#[test]
fn modes_are_kept_apart() {
    let nobody = Initiator::new(&who(Role::Client(Way::Nobody), None), [1; NONCE]).1;
    let keyed = Initiator::new(&client(), [1; NONCE]).1;
    let certified = Initiator::new(&who(Role::Client(Way::Certificate), None), [1; NONCE]).1;
    for (said, mode) in [
        (&nobody, AuthMode::Key),
        (&nobody, AuthMode::Tls),
        (&keyed, AuthMode::None),
        (&keyed, AuthMode::Tls),
        (&certified, AuthMode::None),
        (&certified, AuthMode::Key),
        (&certified, AuthMode::Tls),
    ] {
        let denied = Some(HelloReply::Denied(Denial::WrongWay(mode)));
        assert_eq!(refusal(said, mode), denied);
    }
    let welcomed = |said: &[u8], mode, certified| match Acceptor::greet(
        said,
        HERE,
        &door(mode),
        certified,
        [1; NONCE],
    ) {
        Greeting::Welcome(reply, peer) => Some((payload(&reply), peer)),
        _ => None,
    };
    let (welcome, peer) = welcomed(&nobody, AuthMode::None, None).unwrap();
    assert_eq!(peer, PeerId::Client(IdentityId::ANYONE));
    let (mut initiator, _) = Initiator::new(&who(Role::Client(Way::Nobody), None), [1; NONCE]);
    assert!(matches!(
        initiator.take(&welcome),
        Ok(Step::Up { keys: None, .. })
    ));
    let by_name = welcomed(&certified, AuthMode::Tls, Some(Ok(IdentityId(4)))).map(|(_, p)| p);
    assert_eq!(by_name, Some(PeerId::Client(IdentityId(4))));
    let unknown = Acceptor::greet(
        &certified,
        HERE,
        &door(AuthMode::Tls),
        Some(Err(Denial::UnknownKey)),
        [1; NONCE],
    );
    assert!(
        matches!(unknown, Greeting::Refuse(HelloReply::Denied(Denial::UnknownKey))),
        "a certificate of nobody"
    );
    // Who has a key is not talked out of using it.
    let (mut initiator, _) = Initiator::new(&client(), [1; NONCE]);
    assert_eq!(initiator.take(&welcome).err(), Some(Rejected::NotGenuine));
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let me = client();
    let t = talk(&me, (10, 20));
    let spoiled = |bytes: &[u8]| -> Vec<Vec<u8>> {
        let flips = (0..bytes.len() * 8).map(|bit| {
            let mut b = bytes.to_vec();
            b[bit / 8] ^= 1 << (bit % 8);
            b
        });
        let cuts = (0..bytes.len()).map(|n| bytes[..n].to_vec());
        let longer = std::iter::once([bytes, &[0]].concat());
        flips.chain(cuts).chain(longer).collect()
    };
    for hello in spoiled(&t.hello) {
        // The challenge to a changed hello proves something else to whoever sent the true one.
        if let Some((challenge, _)) = challenge(&hello, AuthMode::Key, 20) {
            let (mut initiator, _) = Initiator::new(&me, [10; NONCE]);
            assert!(initiator.take(&challenge).is_err());
        }
    }
    for challenge in spoiled(&t.challenge) {
        let (mut initiator, _) = Initiator::new(&me, [10; NONCE]);
        assert!(initiator.take(&challenge).is_err());
    }
    for proof in spoiled(&t.proof) {
        let (_, acceptor) = challenge(&t.hello, AuthMode::Key, 20).unwrap();
        assert!(acceptor.accept(&proof, &door(AuthMode::Key)).is_err());
    }
    for welcome in spoiled(&t.welcome) {
        let (mut initiator, _) = Initiator::new(&me, [10; NONCE]);
        assert!(initiator.take(&t.challenge).is_ok());
        assert!(initiator.take(&welcome).is_err());
    }
}

#[test]
fn nothing_can_be_replayed_or_reflected() {
    let me = client();
    let old = talk(&me, (10, 20));
    // To the accepting side, which chooses another nonce.
    let (_, acceptor) = challenge(&old.hello, AuthMode::Key, 21).unwrap();
    assert!(acceptor.accept(&old.proof, &door(AuthMode::Key)).is_err());
    // To the connecting side, which chooses another nonce.
    let (mut initiator, _) = Initiator::new(&me, [11; NONCE]);
    assert_eq!(initiator.take(&old.challenge).err(), Some(Rejected::NotGenuine));
    let (mut initiator, _) = Initiator::new(&me, [11; NONCE]);
    assert_eq!(initiator.take(&old.welcome).err(), Some(Rejected::NotGenuine));
    // A proof of one side is none of the other.
    let HelloReply::Challenge { proof, .. } = HelloReply::from_bytes(&old.challenge[4..]).unwrap() else {
        panic!("no challenge")
    };
    let (_, acceptor) = challenge(&old.hello, AuthMode::Key, 20).unwrap();
    assert!(
        acceptor
            .accept(&payload(&Proof { proof }), &door(AuthMode::Key))
            .is_err()
    );
    // A challenge twice.
    let (mut initiator, _) = Initiator::new(&me, [10; NONCE]);
    assert!(initiator.take(&old.challenge).is_ok());
    assert!(initiator.take(&old.challenge).is_err());
}

#[test]
fn strangers_are_told_what_they_need_to_know_and_noise_nothing() {
    let (_, hello) = Initiator::new(&client(), [1; NONCE]);
    let noise = |said: &[u8]| {
        let greeting = Acceptor::greet(said, HERE, &door(AuthMode::Key), None, [1; NONCE]);
        matches!(greeting, Greeting::Noise)
    };
    for said in [
        b"GET / HTTP/1.1".as_slice(),
        b"",
        b"PNDO",
        &hello[..hello.len() - 1],
    ] {
        assert!(noise(said));
    }
    // A later version may have any form after the version.
    let newer = (PROTOCOL_VERSION + 1).to_le_bytes();
    let later = [b"PNDO".as_slice(), &newer, b"whatever"].concat();
    let answer = HelloReply::WrongVersion(PROTOCOL_VERSION);
    assert_eq!(refusal(&later, AuthMode::Key), Some(answer));
    let foreign = Introduction {
        fs: FsId(8),
        ..client()
    };
    let (_, hello) = Initiator::new(&foreign, [1; NONCE]);
    assert_eq!(
        refusal(&hello, AuthMode::Key),
        Some(HelloReply::WrongFilesystem(FS))
    );
    // And what they are told, they hear.
    for (said, heard) in [
        (HelloReply::TooMany, Rejected::TooMany),
        (HelloReply::WrongVersion(9), Rejected::WrongVersion(9)),
        (HelloReply::WrongFilesystem(FS), Rejected::WrongFilesystem(FS)),
        (
            HelloReply::Denied(Denial::NotReady),
            Rejected::Denied(Denial::NotReady),
        ),
    ] {
        let (mut initiator, _) = Initiator::new(&client(), [1; NONCE]);
        assert_eq!(initiator.take(&payload(&said)).err(), Some(heard));
    }
    let (mut initiator, _) = Initiator::new(&client(), [1; NONCE]);
    assert_eq!(initiator.take(b"220 mail").err(), Some(Rejected::Foreign));
}
