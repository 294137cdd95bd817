//! The messages that open a connection (`docs/protocol.md`, "Hello").

use pando_format::{codec_enum, codec_struct};
use pando_types::{AuthMode, BootEpoch, FsId, IdentityId, ServerId};

/// Length of a nonce and of a proof.
pub const NONCE: usize = 32;

/// The first message of whoever connects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// [`crate::PROTOCOL_VERSION`] of the sender.
    pub version: u16,
    /// The filesystem meant.
    pub fs: FsId,
    /// Who connects, as they say.
    pub role: Role,
    /// Which of the keys that prove it is meant, while one replaces another; says nothing about the key.
    pub key_name: u64,
    /// Random: makes every handshake another.
    pub nonce: [u8; NONCE],
}

/// Who a connection belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A client, and how it proves who it is.
    Client(Way),
    /// Another server of the cluster; proved by the cluster's secret.
    Server(ServerId),
    /// Somebody with the cluster's secret who is not a server: `pando status`, `fsck`, `auth`.
    Operator,
}

/// How a client proves who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Not at all.
    Nobody,
    /// By the key of this identity.
    Key(IdentityId),
    /// By the certificate that the connection was opened with.
    Certificate,
}

/// Answers to whoever connects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HelloReply {
    /// Go on. With a proof, unless nothing was to be proved, that the accepting side has the keys of this
    /// connection.
    Welcome {
        /// Who answers.
        server: ServerId,
        /// Its boot.
        boot: BootEpoch,
        /// That it is what it says, about this connection.
        proof: Option<[u8; NONCE]>,
    },
    /// The server speaks another version.
    WrongVersion(u16),
    /// The server belongs to another filesystem.
    WrongFilesystem(FsId),
    /// The server has as many connections as it allows.
    TooMany,
    /// Prove it. The accepting side proves itself first.
    Challenge {
        /// Who answers.
        server: ServerId,
        /// Its boot.
        boot: BootEpoch,
        /// Random, as in the hello.
        nonce: [u8; NONCE],
        /// That the accepting side knows the key.
        proof: [u8; NONCE],
    },
    /// No.
    Denied(Denial),
}

/// Why somebody is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// There is no such identity or key here, or not any more.
    UnknownKey,
    /// The proof was wrong.
    WrongProof,
    /// Clients of this filesystem identify themselves in this way.
    WrongWay(AuthMode),
    /// The server does not know yet who may connect. Try again.
    NotReady,
    /// This identity has as many connections as it may have.
    TooManyOfYours,
}

/// What whoever connects answers to a challenge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proof {
    /// That it knows the key.
    pub proof: [u8; NONCE],
}

codec_struct!(Hello {
    version,
    fs,
    role,
    key_name,
    nonce
});
codec_enum!(Role { 0 => Client(way), 1 => Server(id), 2 => Operator });
codec_enum!(Way { 0 => Nobody, 1 => Key(id), 2 => Certificate });
codec_enum!(HelloReply {
    0 => Welcome { server, boot, proof }, 1 => WrongVersion(v), 2 => WrongFilesystem(f), 3 => TooMany,
    4 => Challenge { server, boot, nonce, proof }, 5 => Denied(why)
});
codec_enum!(Denial { 1 => UnknownKey, 2 => WrongProof, 3 => WrongWay(mode), 4 => NotReady, 5 => TooManyOfYours });
codec_struct!(Proof { proof });
