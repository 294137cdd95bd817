//! Opening connections, and the frames on them. The accepting side is the servers' own (`pando-auth`, and a
//! running server as the gate); the attacker's side is written here, but for what any client with a key of
//! its own computes.

use super::arena::{ALICE, MALLORY, alice};
use super::{Arena, Cell, cell};
use pando_auth::{Acceptor, FrameKeys, Gate, Greeting, Here, Initiator, Introduction, Key, Step, payload};
use pando_env::{Env, Peer};
use pando_format::Codec;
use pando_server::MetaServer;
use pando_types::{FsId, MapEpoch, PeerId, Perm, ServerId};
use pando_wire::{
    AuthChange, AuthRequest, Hello, HelloReply, Message, Op, OpRequest, PROTOCOL_VERSION, Proof, Request,
    Role, Way,
};
use std::rc::Rc;

/// A connection to the first server, that is being opened.
struct Door {
    server: Rc<MetaServer>,
    here: Here,
    fs: FsId,
}

impl Door {
    fn of(a: &Arena) -> Option<Door> {
        let server = a.cluster.running(0)?;
        let fs = a.cluster.map().fs;
        let here = Here {
            fs,
            server: server.id(),
            boot: server.boot(),
        };
        Some(Door { server, here, fs })
    }

    /// Says hello. The challenge, and the accepting side that waits for a proof.
    fn knock(&self, hello: &[u8], nonce: u8) -> Result<(Vec<u8>, Acceptor), Option<PeerId>> {
        let gate: &dyn Gate = &*self.server;
        match Acceptor::greet(hello, self.here, gate, None, [nonce; 32]) {
            Greeting::Challenge(reply, acceptor) => Ok((payload(&reply), acceptor)),
            Greeting::Welcome(_, peer) => Err(Some(peer)),
            Greeting::Refuse(_) | Greeting::Noise => Err(None),
        }
    }

    /// A hello that says this.
    fn hello(&self, role: Role, key_name: u64) -> Vec<u8> {
        let (version, fs, nonce) = (PROTOCOL_VERSION, self.fs, [3; 32]);
        payload(&Hello {
            version,
            fs,
            role,
            key_name,
            nonce,
        })
    }

    /// Opens a connection as somebody honest does: what was said, and the keys at both ends.
    fn open(&self, role: Role, key: Key, nonce: u8) -> Option<Opened> {
        let me = Introduction {
            fs: self.fs,
            role,
            key: Some(key),
        };
        let (mut initiator, hello) = Initiator::new(&me, [nonce; 32]);
        let (challenge, acceptor) = self.knock(&hello, nonce.wrapping_add(100)).ok()?;
        let Step::Say(proof) = initiator.take(&challenge).ok()? else {
            return None;
        };
        let accepted = acceptor.accept(&proof, &*self.server).ok()?;
        let Step::Up { keys, .. } = initiator.take(&payload(&accepted.welcome)).ok()? else {
            return None;
        };
        Some(Opened {
            hello,
            proof,
            peer: accepted.peer,
            client: keys?,
            server: accepted.keys,
        })
    }
}

/// A connection, with all there was to overhear.
struct Opened {
    hello: Vec<u8>,
    proof: Vec<u8>,
    peer: PeerId,
    client: FrameKeys,
    server: FrameKeys,
}

fn alices() -> (Role, Key) {
    (Role::Client(Way::Key(ALICE)), Arena::key("alice"))
}

/// Whoever was let in as this reads what is Alice's.
async fn profits(a: &Arena, peer: PeerId) -> Option<()> {
    let somebody = a.speaker(peer);
    let open = somebody.find(&alice(), "/open").await?;
    somebody.reads(&alice(), &open, "hers").await
}

/// Says hello without anything that proves it.
async fn unproved(a: &Arena, way: Way) -> Option<()> {
    let door = Door::of(a)?;
    a.mark().await;
    let peer = door.knock(&door.hello(Role::Client(way), 0), 1).err()??;
    profits(a, peer).await
}

/// Says hello with a key that is not of that role.
async fn disguised(a: &Arena, role: Role) -> Option<()> {
    let door = Door::of(a)?;
    a.mark().await;
    let opened = door.open(role, Arena::key("mallory"), 1)?;
    let somebody = a.speaker(opened.peer);
    match role {
        Role::Server(_) | Role::Operator => {
            let all = match role {
                Role::Operator => Request::Auth(AuthRequest::List),
                _ => Request::Peer(pando_wire::PeerRequest::Identities(0)),
            };
            somebody.ask(a.keeper(), &all).await.map(|_| ())
        }
        Role::Client(_) => profits(a, opened.peer).await,
    }
}

/// A message of Alice's that makes a file with this name.
async fn request(a: &Arena, name: &str) -> Option<(ServerId, Vec<u8>)> {
    let dir = a.alice.find(&alice(), "/open").await?;
    let server = a.alice.home(dir.id);
    a.alice.open_session(server).await?;
    let (name, perm) = (super::speaker::named(name)?, Perm::new(0o755));
    let request = OpRequest {
        parts: [0, 0],
        keep: None,
        request: Some(a.alice.request(6)),
        again: false,
        map: MapEpoch(1),
        instance: a.alice.instance.get(),
        cred: alice(),
        op: Op::Mkdir {
            dir,
            name,
            mode: perm.into(),
        },
        ways: Vec::new(),
    }
    .into();
    let boot = a.alice.boot(server);
    Some((
        server,
        Message::Request {
            id: 1 << 60,
            boot,
            request,
            explain: false,
        }
        .to_bytes(),
    ))
}

/// What the server's end of the connection takes out of these bytes is Alice's word.
async fn heard(a: &Arena, server: ServerId, keys: &mut FrameKeys, bytes: &[u8]) -> Option<()> {
    let (message, _) = keys.receive.cut(bytes).ok()??;
    // Whatever it says: a message is what decodes.
    Message::from_bytes(message).ok()?;
    let wire = a.speaker(PeerId::Client(ALICE));
    wire.life.send(Peer::Server(server), message.to_vec());
    a.root.sleep(1_000).await;
    Some(())
}

pub(super) const CELLS: &[Cell] = &[
    cell!(
        "hello",
        "without any proof",
        ["G37", "G38"],
        "comes in as somebody",
        async |a: Rc<Arena>| unproved(&a, Way::Nobody).await
    ),
    cell!(
        "hello",
        "with a certificate that is not there",
        ["G37", "G38"],
        "comes in as somebody",
        async |a: Rc<Arena>| unproved(&a, Way::Certificate).await
    ),
    cell!(
        "hello",
        "another's name, a forged proof",
        ["G36"],
        "comes in as another",
        async |a: Rc<Arena>| {
            let door = Door::of(&a)?;
            let (role, key) = alices();
            a.mark().await;
            let (_, acceptor) = door.knock(&door.hello(role, key.name()), 1).ok()?;
            let proof = payload(&Proof { proof: [5; 32] });
            profits(&a, acceptor.accept(&proof, &*door.server).ok()?.peer).await
        }
    ),
    cell!(
        "hello",
        "another's name, the server's own proof sent back",
        ["G40"],
        "comes in as another",
        async |a: Rc<Arena>| {
            let door = Door::of(&a)?;
            let (role, key) = alices();
            a.mark().await;
            let (challenge, acceptor) = door.knock(&door.hello(role, key.name()), 1).ok()?;
            let HelloReply::Challenge { proof, .. } = HelloReply::from_bytes(challenge.get(4..)?).ok()?
            else {
                return None;
            };
            profits(
                &a,
                acceptor
                    .accept(&payload(&Proof { proof }), &*door.server)
                    .ok()?
                    .peer,
            )
            .await
        }
    ),
    cell!(
        "hello",
        "overheard, with the proof, and said again",
        ["G39"],
        "comes in as another",
        async |a: Rc<Arena>| {
            let door = Door::of(&a)?;
            let (role, key) = alices();
            let overheard = door.open(role, key, 1)?;
            a.mark().await;
            let (_, acceptor) = door.knock(&overheard.hello, 2).ok()?;
            profits(&a, acceptor.accept(&overheard.proof, &*door.server).ok()?.peer).await
        }
    ),
    cell!(
        "hello",
        "another's name, with her own key",
        ["G41"],
        "comes in as another",
        async |a: Rc<Arena>| disguised(&a, Role::Client(Way::Key(ALICE))).await
    ),
    cell!(
        "hello",
        "a server's number, with a client's key",
        ["G41"],
        "comes in as a server",
        async |a: Rc<Arena>| disguised(&a, Role::Server(ServerId(2))).await
    ),
    cell!(
        "hello",
        "an operator, with a client's key",
        ["G41"],
        "comes in as an operator",
        async |a: Rc<Arena>| disguised(&a, Role::Operator).await
    ),
    cell!(
        "hello",
        "meant for another filesystem, passed on",
        ["G42"],
        "is let in where it was not meant",
        async |a: Rc<Arena>| {
            let elsewhere = Door {
                fs: FsId(77),
                ..Door::of(&a)?
            };
            let (role, key) = alices();
            a.mark().await;
            elsewhere.open(role, key, 1).map(|_| ())
        }
    ),
    cell!(
        "hello",
        "cut short",
        ["G36"],
        "comes in as another",
        async |a: Rc<Arena>| {
            let door = Door::of(&a)?;
            let (role, key) = alices();
            let opened = door.open(role, key.clone(), 1)?;
            a.mark().await;
            // No beginning of a hello, and no half of a proof, is one.
            let whole = &opened.hello;
            let half = (0..whole.len()).any(|n| door.knock(&whole[..n], 1).is_ok());
            let (_, acceptor) = door.knock(whole, 2).ok()?;
            let mut cut = opened.proof.clone();
            cut[4..].fill(0);
            (half || acceptor.accept(&cut, &*door.server).is_ok()).then_some(())
        }
    ),
    cell!(
        "hello",
        "with the key of a revoked identity",
        ["G47"],
        "comes in after its revocation",
        async |a: Rc<Arena>| {
            a.revoke().await?;
            a.mark().await;
            let door = Door::of(&a)?;
            let role = Role::Client(Way::Key(MALLORY));
            door.open(role, Arena::key("mallory"), 1).map(|_| ())
        }
    ),
    cell!(
        "hello",
        "with a key whose time is over",
        ["G46"],
        "comes in with a key that was replaced",
        async |a: Rc<Arena>| {
            let (name, key) = ("mallory".to_string(), [8; 32]);
            a.auth(AuthChange::Rotate { name, key, grace: 1 }).await?;
            a.root.sleep(2_000).await;
            a.mark().await;
            let role = Role::Client(Way::Key(MALLORY));
            Door::of(&a)?.open(role, Arena::key("mallory"), 1).map(|_| ())
        }
    ),
    cell!(
        "hello",
        "with a key that was replaced between the challenge and the proof",
        ["G56"],
        "comes in with a key that was replaced",
        async |a: Rc<Arena>| {
            let door = Door::of(&a)?;
            let me = Introduction {
                fs: door.fs,
                role: Role::Client(Way::Key(MALLORY)),
                key: Some(Arena::key("mallory")),
            };
            let (mut initiator, hello) = Initiator::new(&me, [3; 32]);
            let (challenge, acceptor) = door.knock(&hello, 1).ok()?;
            let (name, key) = ("mallory".to_string(), [8; 32]);
            a.auth(AuthChange::Rotate { name, key, grace: 1 }).await?;
            a.root.sleep(2_000).await;
            a.mark().await;
            let Step::Say(proof) = initiator.take(&challenge).ok()? else {
                return None;
            };
            acceptor.accept(&proof, &*door.server).ok().map(|_| ())
        }
    ),
    cell!(
        "hello",
        "a false server, to a client",
        ["G48"],
        "is believed to be a server",
        async |a: Rc<Arena>| {
            a.mark().await;
            let (role, key) = alices();
            let me = Introduction {
                fs: a.cluster.map().fs,
                role,
                key: Some(key),
            };
            let (mut initiator, _) = Initiator::new(&me, [1; 32]);
            let (server, boot) = (ServerId(1), pando_types::BootEpoch(1));
            let challenge = HelloReply::Challenge {
                server,
                boot,
                nonce: [2; 32],
                proof: [3; 32],
            };
            initiator.take(&payload(&challenge)).ok()?;
            let welcome = HelloReply::Welcome {
                server,
                boot,
                proof: Some([4; 32]),
            };
            matches!(initiator.take(&payload(&welcome)).ok()?, Step::Up { .. }).then_some(())
        }
    ),
    cell!(
        "frame",
        "a flipped bit",
        ["G43"],
        "another's request says something else",
        async |a: Rc<Arena>| {
            let (role, key) = alices();
            let mut opened = Door::of(&a)?.open(role, key, 1)?;
            let (server, message) = request(&a, "good").await?;
            let mut bytes = Vec::new();
            opened.client.send.encode(&mut bytes, &message);
            let at = bytes.windows(4).position(|w| w == b"good")?;
            bytes[at] ^= 1;
            a.mark().await;
            heard(&a, server, &mut opened.server, &bytes).await?;
            a.exists("/open", "food").await?.then_some(())
        }
    ),
    cell!(
        "frame",
        "forged",
        ["G43"],
        "makes a request in another's name",
        async |a: Rc<Arena>| {
            let (role, key) = alices();
            let mut opened = Door::of(&a)?.open(role, key, 1)?;
            let (server, message) = request(&a, "forged").await?;
            let bytes = [&(message.len() as u32).to_le_bytes()[..], &[6; 16], &message].concat();
            a.mark().await;
            heard(&a, server, &mut opened.server, &bytes).await?;
            a.exists("/open", "forged").await?.then_some(())
        }
    ),
    cell!(
        "frame",
        "of her own connection, put into another's",
        ["G43"],
        "makes a request in another's name",
        async |a: Rc<Arena>| {
            let door = Door::of(&a)?;
            let (role, key) = alices();
            let mut opened = door.open(role, key, 1)?;
            let mut mine = door.open(Role::Client(Way::Key(MALLORY)), Arena::key("mallory"), 2)?;
            let (server, message) = request(&a, "forged").await?;
            let mut bytes = Vec::new();
            mine.client.send.encode(&mut bytes, &message);
            a.mark().await;
            heard(&a, server, &mut opened.server, &bytes).await?;
            a.exists("/open", "forged").await?.then_some(())
        }
    ),
    cell!(
        "frame",
        "repeated",
        ["G44"],
        "another's message is heard twice",
        async |a: Rc<Arena>| {
            let (role, key) = alices();
            let mut opened = Door::of(&a)?.open(role, key, 1)?;
            let (server, message) = request(&a, "twice").await?;
            let mut bytes = Vec::new();
            opened.client.send.encode(&mut bytes, &message);
            heard(&a, server, &mut opened.server, &bytes).await?;
            a.mark().await;
            heard(&a, server, &mut opened.server, &bytes).await
        }
    ),
    cell!(
        "frame",
        "left out",
        ["G44"],
        "another's message is heard without the one before",
        async |a: Rc<Arena>| {
            let (role, key) = alices();
            let mut opened = Door::of(&a)?.open(role, key, 1)?;
            let (server, message) = request(&a, "second").await?;
            let (mut first, mut second) = (Vec::new(), Vec::new());
            opened.client.send.encode(&mut first, &message);
            opened.client.send.encode(&mut second, &message);
            a.mark().await;
            heard(&a, server, &mut opened.server, &second).await?;
            a.exists("/open", "second").await?.then_some(())
        }
    ),
    cell!(
        "frame",
        "sent back to who sent it",
        ["G45"],
        "a server's answer is heard as a request",
        async |a: Rc<Arena>| {
            let (role, key) = alices();
            let mut opened = Door::of(&a)?.open(role, key, 1)?;
            let (server, message) = request(&a, "reflected").await?;
            let mut bytes = Vec::new();
            // As if the server had said it.
            opened.server.send.encode(&mut bytes, &message);
            a.mark().await;
            heard(&a, server, &mut opened.server, &bytes).await?;
            a.exists("/open", "reflected").await?.then_some(())
        }
    ),
    cell!(
        "answer",
        "forged, to a client",
        ["G43"],
        "a client believes what no server said",
        async |a: Rc<Arena>| {
            let (role, key) = alices();
            let mut opened = Door::of(&a)?.open(role, key, 1)?;
            let said = Message::Reply {
                id: 1,
                result: Ok(pando_wire::Response::Ok),
                account: None,
            }
            .to_bytes();
            let bytes = [&(said.len() as u32).to_le_bytes()[..], &[6; 16], &said].concat();
            a.mark().await;
            opened.client.receive.cut(&bytes).ok()?.map(|_| ())
        }
    ),
];
