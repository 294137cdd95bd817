//! What a stranger says first and second, to whom it connects to and to who connects to it.

use super::canonical;
use super::frames::FS;
use crate::memory::bounded;
use pando_auth::{
    Acceptor, FrameKeys, Gate, Greeting, Here, Initiator, Introduction, Key, Rejected, Step, payload,
};
use pando_types::{AuthMode, BootEpoch, IdentityId, PeerId, ServerId};
use pando_wire::{Denial, Hello, HelloReply, NONCE, Proof, Role, Way};

/// What the accepting side says it is.
pub(crate) const HERE: Here = Here {
    fs: FS,
    server: ServerId(3),
    boot: BootEpoch(7),
};
/// What everybody proves everything with.
pub(crate) const KEY: [u8; 32] = [0x5c; 32];
const CLIENT: Role = Role::Client(Way::Key(IdentityId(1)));
const ACCEPTING: [u8; NONCE] = [1; NONCE];
const CONNECTING: [u8; NONCE] = [2; NONCE];

/// One that has the key of everybody.
struct AnyGate(AuthMode);

impl Gate for AnyGate {
    fn mode(&self) -> AuthMode {
        self.0
    }

    fn key(&self, role: Role, key_name: u64) -> Result<Key, Denial> {
        let client = matches!(role, Role::Client(Way::Nobody | Way::Certificate));
        assert!(!client, "asked for the key of who has none");
        let key = Key::new(KEY);
        let known = key.name() == key_name;
        known.then_some(key).ok_or(Denial::UnknownKey)
    }
}

/// Length of the first payload; it, and the second.
pub(crate) fn hello(input: &[u8]) {
    let Some((len, rest)) = input.split_first() else {
        return;
    };
    let (first, second) = rest.split_at(usize::from(*len).min(rest.len()));
    let certified = Some(Ok(IdentityId(5)));
    for (mode, certified) in [
        (AuthMode::None, None),
        (AuthMode::Key, None),
        (AuthMode::Tls, None),
        (AuthMode::Tls, certified),
        (AuthMode::Tls, Some(Err(Denial::UnknownKey))),
    ] {
        accepting(first, second, mode, certified);
    }
    for key in [None, Some(Key::new(KEY))] {
        connecting(first, second, key);
    }
    for bytes in [first, second] {
        if let Some(body) = bytes.strip_prefix(b"PNDO") {
            parse(body);
        }
        parse(bytes);
    }
    damaged(*len, second);
}

fn parse(bytes: &[u8]) {
    let _ = canonical::<Hello>(bytes);
    let _ = canonical::<HelloReply>(bytes);
    let _ = canonical::<Proof>(bytes);
}

/// A stranger connects.
fn accepting(first: &[u8], second: &[u8], mode: AuthMode, certified: Option<Result<IdentityId, Denial>>) {
    let greeting = bounded(first.len(), || {
        Acceptor::greet(first, HERE, &AnyGate(mode), certified, ACCEPTING)
    });
    let said = first.strip_prefix(b"PNDO").map(canonical::<Hello>);
    match greeting {
        Greeting::Noise => assert!(!matches!(said, Some(Ok(_)))),
        // Nobody but one of us is answered.
        Greeting::Refuse(reply) => {
            assert!(first.starts_with(b"PNDO"));
            parse(&payload(&reply));
        }
        Greeting::Welcome(_, peer) => {
            let Some(Ok(hello)) = said else {
                panic!("welcomed what cannot be read");
            };
            let (way, who) = match mode {
                AuthMode::None => (Way::Nobody, Some(IdentityId::ANYONE)),
                _ => (Way::Certificate, certified.and_then(Result::ok)),
            };
            assert!(hello.fs == FS && hello.role == Role::Client(way) && mode != AuthMode::Key);
            assert_eq!(Some(peer), who.map(PeerId::Client));
        }
        Greeting::Challenge(_, acceptor) => {
            let right = matches!(said, Some(Ok(h)) if h.fs == FS && h.key_name == Key::new(KEY).name());
            assert!(right, "challenged a stranger");
            let Err(answer) = bounded(second.len(), || acceptor.accept(second, &AnyGate(mode))) else {
                panic!("let in who does not know the key");
            };
            let wrong = HelloReply::Denied(Denial::WrongProof);
            assert!(answer.is_none_or(|a| a == wrong && second.starts_with(b"PNDO")));
        }
    }
}

fn introduction(key: Option<Key>) -> Introduction {
    let role = if key.is_some() {
        CLIENT
    } else {
        Role::Client(Way::Nobody)
    };
    Introduction { fs: FS, role, key }
}

/// We connect to a stranger.
fn connecting(first: &[u8], second: &[u8], key: Option<Key>) {
    let known = key.is_some();
    let (mut initiator, _) = Initiator::new(&introduction(key), CONNECTING);
    for said in [first, second] {
        let step = bounded(said.len(), || initiator.take(said));
        match step {
            Ok(Step::Up { keys, .. }) => assert!(!known && keys.is_none(), "believed a stranger"),
            Ok(Step::Say(_)) => panic!("proved something to a stranger"),
            Err(Rejected::Foreign) => {}
            Err(_) => assert!(said.starts_with(b"PNDO")),
        }
    }
}

/// A whole handshake; `spoil` gets each message on its way. The keys of both sides, if it comes to that.
fn shake(mut spoil: impl FnMut(usize, &mut Vec<u8>)) -> Option<(FrameKeys, FrameKeys)> {
    let (mut initiator, mut hello) = Initiator::new(&introduction(Some(Key::new(KEY))), CONNECTING);
    spoil(0, &mut hello);
    let gate = AnyGate(AuthMode::Key);
    let Greeting::Challenge(reply, acceptor) = Acceptor::greet(&hello, HERE, &gate, None, ACCEPTING) else {
        return None;
    };
    let mut challenge = payload(&reply);
    spoil(1, &mut challenge);
    let Ok(Step::Say(mut proof)) = initiator.take(&challenge) else {
        return None;
    };
    spoil(2, &mut proof);
    let accepted = acceptor.accept(&proof, &gate).ok()?;
    let mut welcome = payload(&accepted.welcome);
    spoil(3, &mut welcome);
    match initiator.take(&welcome) {
        Ok(Step::Up { server, keys }) if server == HERE.server => Some((keys?, accepted.keys)),
        _ => None,
    }
}

/// The keys of a connection, at the connecting and at the accepting side.
pub(super) fn shaken() -> (FrameKeys, FrameKeys) {
    shake(|_, _| {}).expect("who know one key find together")
}

/// No message of a handshake can be changed, cut or replaced on its way.
fn damaged(which: u8, how: &[u8]) {
    let step = usize::from(which % 4);
    let kept = shake(|n, said| {
        if n != step {
            return;
        }
        match how {
            [] => said.truncate(said.len() - 1),
            [at, bit] => {
                let at = usize::from(*at) % said.len();
                said[at] ^= 1 << (bit % 8);
            }
            other => *said = other.to_vec(),
        }
    });
    // A hello or a challenge that says what the right one says is the right one.
    let replaced = how.len() > 2 && how.starts_with(b"PNDO");
    assert!(
        kept.is_none() || replaced,
        "a handshake goes on after damage to message {step}"
    );
}
