//! Opening a connection: who is there, and is it true? Two pure state machines, one for each side.
//!
//! ```text
//! connecting                                   accepting
//!   hello: version, filesystem, role,   ───►     finds the key of this role
//!          name of the key, nonce
//!                                       ◄───   challenge: server, boot, nonce, proof
//!   checks the proof
//!   proof                               ───►     checks the proof
//!                                       ◄───   welcome, proof
//!   checks the proof; frames under the keys of the connection in both directions
//! ```
//!
//! A proof is the keyed hash of a word for its step and of everything that was said before, both nonces among
//! it: one that was overheard fits no other connection, no other step and no other direction. The keys of the
//! frames come from the same. Where nothing is to be proved (mode `none`, or a certificate did it), the hello
//! is answered with a welcome at once; a connecting side that has a key does not accept that.

use crate::{Fingerprint, FrameKey, FrameKeys, Key};
use pando_format::Codec;
use pando_types::{AuthMode, BootEpoch, FsId, IdentityId, PeerId, ServerId, plant};
use pando_wire::{Denial, Hello, HelloReply, NONCE, PROTOCOL_VERSION, Proof, Role, Way};

const MAGIC: &[u8; 4] = b"PNDO";
/// Longest payload of any message of the handshake: strangers are not given more room than that.
pub const HELLO_MAX: usize = 256;

/// How a process introduces itself to servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Introduction {
    /// The filesystem it belongs to. Processes of another are refused.
    pub fs: FsId,
    /// Who it is.
    pub role: Role,
    /// What proves it; only a client of mode `none`, or with a certificate, has nothing.
    pub key: Option<Key>,
}

/// What the accepting side says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Here {
    /// Its filesystem.
    pub fs: FsId,
    /// Its number.
    pub server: ServerId,
    /// Its boot.
    pub boot: BootEpoch,
}

/// What the accepting side knows of those who may come in.
pub trait Gate {
    /// How clients identify themselves.
    fn mode(&self) -> AuthMode;
    /// The key, of this name, that proves a role. Never asked for a client that has none.
    fn key(&self, role: Role, key_name: u64) -> Result<Key, Denial>;
    /// Whose certificate it is that has this public key. Asked in mode `tls`, of certificates that were
    /// checked.
    fn certified(&self, _public_key: &Fingerprint) -> Result<IdentityId, Denial> {
        Err(Denial::UnknownKey)
    }
}

/// A gate for mode `none`: clients prove nothing, servers and operators have one of these keys.
#[derive(Clone, Debug)]
pub struct OpenGate(pub Vec<Key>);

impl Gate for OpenGate {
    fn mode(&self) -> AuthMode {
        AuthMode::None
    }
    fn key(&self, role: Role, key_name: u64) -> Result<Key, Denial> {
        let cluster = !matches!(role, Role::Client(_));
        let found = self.0.iter().find(|k| cluster && k.name() == key_name);
        found.cloned().ok_or(Denial::UnknownKey)
    }
}

/// What comes of a hello.
pub enum Greeting {
    /// Not one of us: close without a word.
    Noise,
    /// Say this, and close.
    Refuse(HelloReply),
    /// Say this; nothing was to be proved.
    Welcome(HelloReply, PeerId),
    /// Say this, and wait for the proof.
    Challenge(HelloReply, Acceptor),
}

/// The accepting side after its challenge. Small: strangers may have many of these.
pub struct Acceptor {
    key: [u8; 32],
    /// As whom, and by which key of those.
    role: Role,
    key_name: u64,
    transcript: blake3::Hash,
    here: Here,
    peer: PeerId,
}

/// The keys of a connection that was accepted, and whose it is.
pub struct Accepted {
    /// To be said first, in a plain frame.
    pub welcome: HelloReply,
    /// Who is at the other end.
    pub peer: PeerId,
    /// For all frames after the welcome.
    pub keys: FrameKeys,
}

/// The connecting side.
pub struct Initiator {
    key: Option<[u8; 32]>,
    hello: Vec<u8>,
    /// After the challenge: what was said, and by whom.
    challenged: Option<(blake3::Hash, ServerId, BootEpoch)>,
}

/// What the connecting side does next.
pub enum Step {
    /// Say this, and wait.
    Say(Vec<u8>),
    /// The connection stands.
    Up {
        /// Who is at the other end.
        server: ServerId,
        /// For all frames from here on; `None`: checksums.
        keys: Option<FrameKeys>,
    },
}

/// Why the connecting side goes away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejected {
    /// It does not answer like a pando server.
    Foreign,
    /// It speaks another version.
    WrongVersion(u16),
    /// It belongs to another filesystem.
    WrongFilesystem(FsId),
    /// It is full.
    TooMany,
    /// It says no.
    Denied(Denial),
    /// It does not know the key: whoever it is, it is not a server of this filesystem.
    NotGenuine,
}

/// A message of the handshake as a frame's payload.
pub fn payload(body: &impl Codec) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    body.put(&mut out);
    out
}

fn prove(key: &[u8; 32], step: &str, transcript: blake3::Hash) -> blake3::Hash {
    let step = if plant!(G40) { "" } else { step };
    let text = [step.as_bytes(), transcript.as_bytes()].concat();
    blake3::keyed_hash(key, &text)
}

/// Compares in constant time, as `blake3::Hash` does.
fn proved(key: &[u8; 32], step: &str, transcript: blake3::Hash, proof: &[u8; NONCE]) -> bool {
    prove(key, step, transcript) == blake3::Hash::from_bytes(*proof)
}

/// Everything the proofs of a connection speak of.
fn transcript(hello: &[u8], (server, boot): (ServerId, BootEpoch), nonce: &[u8; NONCE]) -> blake3::Hash {
    let mut h = blake3::Hasher::new();
    h.update(&(hello.len() as u64).to_le_bytes());
    h.update(hello);
    h.update(&server.0.to_le_bytes());
    h.update(&boot.0.to_le_bytes());
    if !plant!(G39) {
        h.update(nonce);
    }
    h.finalize()
}

/// The keys from the connecting to the accepting side, and back.
fn frame_keys(key: &[u8; 32], transcript: blake3::Hash) -> [FrameKey; 2] {
    let hash = prove(key, "frames", transcript);
    let half = |from: usize| {
        let mut half = [0; 16];
        half.copy_from_slice(&hash.as_bytes()[from..from + 16]);
        FrameKey::new(half)
    };
    [half(0), half(if plant!(G45) { 0 } else { 16 })]
}

impl Acceptor {
    /// Judges what a stranger said first. `certified`: whose certificate the connection came with, or why
    /// that is worth nothing; `None`: it came without one.
    pub fn greet(
        said: &[u8],
        here: Here,
        gate: &dyn Gate,
        certified: Option<Result<IdentityId, Denial>>,
        nonce: [u8; NONCE],
    ) -> Greeting {
        let Some(body) = said.strip_prefix(MAGIC) else {
            return Greeting::Noise;
        };
        // The version stands first, so that a hello of any later version can at least be told apart from
        // noise.
        match body.first_chunk().map(|v| u16::from_le_bytes(*v)) {
            Some(PROTOCOL_VERSION) => {}
            Some(_) => return Greeting::Refuse(HelloReply::WrongVersion(PROTOCOL_VERSION)),
            None => return Greeting::Noise,
        }
        let Ok(hello) = Hello::from_bytes(body) else {
            return Greeting::Noise;
        };
        if hello.fs != here.fs && !plant!(G42) {
            return Greeting::Refuse(HelloReply::WrongFilesystem(here.fs));
        }
        let deny = |why| Greeting::Refuse(HelloReply::Denied(why));
        let welcome = |id| {
            let reply = HelloReply::Welcome {
                server: here.server,
                boot: here.boot,
                proof: None,
            };
            Greeting::Welcome(reply, PeerId::Client(id))
        };
        let mode = gate.mode();
        let peer = match (hello.role, mode) {
            (Role::Client(Way::Nobody), AuthMode::None) => return welcome(IdentityId::ANYONE),
            (Role::Client(Way::Nobody | Way::Certificate), _) if plant!(G37) => {
                return welcome(IdentityId::ANYONE);
            }
            (Role::Client(Way::Certificate), AuthMode::Tls) => {
                return match certified {
                    Some(Ok(id)) => welcome(id),
                    Some(Err(why)) => deny(why),
                    None => deny(Denial::WrongWay(mode)),
                };
            }
            (Role::Client(Way::Key(id)), AuthMode::Key) => PeerId::Client(id),
            (Role::Client(_), _) => return deny(Denial::WrongWay(mode)),
            (Role::Server(id), _) => PeerId::Server(id),
            (Role::Operator, _) => PeerId::Operator,
        };
        let key = match gate.key(hello.role, hello.key_name) {
            Ok(key) => key.handshake(),
            Err(why) => return deny(why),
        };
        let transcript = transcript(said, (here.server, here.boot), &nonce);
        let reply = HelloReply::Challenge {
            server: here.server,
            boot: here.boot,
            nonce,
            proof: *prove(&key, "accepting", transcript).as_bytes(),
        };
        let acceptor = Acceptor {
            key,
            role: hello.role,
            key_name: hello.key_name,
            transcript,
            here,
            peer,
        };
        Greeting::Challenge(reply, acceptor)
    }

    /// Judges the answer to the challenge. `Err`: close; say this first, if anything.
    pub fn accept(self, said: &[u8], gate: &dyn Gate) -> Result<Accepted, Option<HelloReply>> {
        let body = said.strip_prefix(MAGIC).ok_or(None)?;
        let Proof { proof } = Proof::from_bytes(body).map_err(|_| None)?;
        if !proved(&self.key, "connecting", self.transcript, &proof) && !plant!(G36) {
            return Err(Some(HelloReply::Denied(Denial::WrongProof)));
        }
        // It may have been replaced since the challenge, when who had connected with it was sent away (G56).
        if let Err(why) = gate.key(self.role, self.key_name)
            && !plant!(G56)
        {
            return Err(Some(HelloReply::Denied(why)));
        }
        let [receive, send] = frame_keys(&self.key, self.transcript);
        Ok(Accepted {
            welcome: HelloReply::Welcome {
                server: self.here.server,
                boot: self.here.boot,
                proof: Some(*prove(&self.key, "welcome", self.transcript).as_bytes()),
            },
            peer: self.peer,
            keys: FrameKeys { send, receive },
        })
    }
}

impl Initiator {
    /// Begins; the second is to be said first.
    pub fn new(me: &Introduction, nonce: [u8; NONCE]) -> (Initiator, Vec<u8>) {
        let hello = payload(&Hello {
            version: PROTOCOL_VERSION,
            fs: me.fs,
            role: me.role,
            key_name: me.key.as_ref().map_or(0, Key::name),
            nonce,
        });
        let initiator = Initiator {
            key: me.key.as_ref().map(Key::handshake),
            hello: hello.clone(),
            challenged: None,
        };
        (initiator, hello)
    }

    /// Takes what the other side said.
    pub fn take(&mut self, said: &[u8]) -> Result<Step, Rejected> {
        let body = said.strip_prefix(MAGIC).ok_or(Rejected::Foreign)?;
        match HelloReply::from_bytes(body).map_err(|_| Rejected::Foreign)? {
            HelloReply::WrongVersion(v) => Err(Rejected::WrongVersion(v)),
            HelloReply::WrongFilesystem(fs) => Err(Rejected::WrongFilesystem(fs)),
            HelloReply::TooMany => Err(Rejected::TooMany),
            HelloReply::Denied(why) => Err(Rejected::Denied(why)),
            HelloReply::Challenge {
                server,
                boot,
                nonce,
                proof,
            } => {
                let (Some(key), None) = (&self.key, &self.challenged) else {
                    return Err(Rejected::Foreign);
                };
                let transcript = transcript(&self.hello, (server, boot), &nonce);
                if !proved(key, "accepting", transcript, &proof) && !plant!(G48) {
                    return Err(Rejected::NotGenuine);
                }
                self.challenged = Some((transcript, server, boot));
                let proof = *prove(key, "connecting", transcript).as_bytes();
                Ok(Step::Say(payload(&Proof { proof })))
            }
            HelloReply::Welcome { server, boot, proof } => match (&self.key, self.challenged, proof) {
                (None, _, None) => Ok(Step::Up { server, keys: None }),
                (Some(key), Some((transcript, s, b)), Some(proof))
                    if (s, b) == (server, boot)
                        && (proved(key, "welcome", transcript, &proof) || plant!(G48)) =>
                {
                    let [send, receive] = frame_keys(key, transcript);
                    let keys = Some(FrameKeys { send, receive });
                    Ok(Step::Up { server, keys })
                }
                _ => Err(Rejected::NotGenuine),
            },
        }
    }
}

#[cfg(test)]
mod tests;
