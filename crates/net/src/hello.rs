//! Why a server does not let us in.

use crate::TlsFault;
use pando_auth::Rejected;
use pando_types::{FsId, ServerId};
use pando_wire::{Denial, HelloReply, PROTOCOL_VERSION};
use thiserror::Error;

/// Why a server could not be reached, for whoever has to explain it to a person.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PeerError {
    /// It has no address.
    #[error("the cluster map does not name this server")]
    NotInMap,
    /// Its address cannot be used.
    #[error("address {address}: {why}")]
    Address {
        /// As the map has it.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// No connection.
    #[error("cannot connect to {address}: {why}")]
    Connect {
        /// As the map has it.
        address: String,
        /// What the system said.
        why: String,
    },
    /// The connection ended.
    #[error("connection to {address} lost: {why}")]
    Lost {
        /// As the map has it.
        address: String,
        /// How.
        why: String,
    },
    /// Something else answers there.
    #[error("{0} does not answer like a pando server")]
    Foreign(String),
    /// Another server of the filesystem answers there: the map is wrong.
    #[error("{address} is server {theirs}, not the one the cluster map says")]
    WrongServer {
        /// As the map has it.
        address: String,
        /// Who answers.
        theirs: ServerId,
    },
    /// Another release answers there.
    #[error("{address} speaks protocol version {theirs}, this program speaks {PROTOCOL_VERSION}")]
    WrongVersion {
        /// As the map has it.
        address: String,
        /// What it speaks.
        theirs: u16,
    },
    /// Another cluster answers there.
    #[error("{address} belongs to another filesystem ({:032x})", theirs.0)]
    WrongFilesystem {
        /// As the map has it.
        address: String,
        /// Which.
        theirs: FsId,
    },
    /// It is full.
    #[error("{0} has as many connections as it allows")]
    TooMany(String),
    /// It does not let us in.
    #[error("{address} does not let us in: {}", advice(*.why))]
    Denied {
        /// As the map has it.
        address: String,
        /// What it says.
        why: Denial,
    },
    /// It cannot prove what we ask it to prove.
    #[error(
        "{0} does not know our key: it is no server of this filesystem, or the key (or secret) we have is another's"
    )]
    NotGenuine(String),
    /// TLS fails.
    #[error("{address}: {why}")]
    Tls {
        /// As the map has it.
        address: String,
        /// What is wrong.
        why: TlsFault,
    },
}

impl PeerError {
    /// Why a handshake failed.
    pub(crate) fn of(rejected: Rejected, address: String) -> PeerError {
        match rejected {
            Rejected::Foreign => PeerError::Foreign(address),
            Rejected::WrongVersion(theirs) => PeerError::WrongVersion { address, theirs },
            Rejected::WrongFilesystem(theirs) => PeerError::WrongFilesystem { address, theirs },
            Rejected::TooMany => PeerError::TooMany(address),
            Rejected::Denied(why) => PeerError::Denied { address, why },
            Rejected::NotGenuine => PeerError::NotGenuine(address),
        }
    }

    /// Whether trying again is pointless until somebody does something: who we are, not how things are, is
    /// wrong.
    pub fn is_final(&self) -> bool {
        match self {
            PeerError::Denied { why, .. } => match why {
                Denial::UnknownKey | Denial::WrongProof | Denial::WrongWay(_) => true,
                Denial::NotReady | Denial::TooManyOfYours => false,
            },
            PeerError::Tls { why, .. } => why.is_final(),
            _ => false,
        }
    }
}

/// Why somebody is refused, as the log of who refuses says it.
pub(crate) fn refused(reply: &HelloReply) -> String {
    match reply {
        HelloReply::Welcome { .. } | HelloReply::Challenge { .. } => "it is not refused".into(),
        HelloReply::WrongVersion(ours) => {
            format!("it speaks another protocol version than ours, {ours}")
        }
        HelloReply::WrongFilesystem(_) => "it belongs to another filesystem".into(),
        HelloReply::TooMany => "there are as many connections as are allowed".into(),
        HelloReply::Denied(Denial::UnknownKey) => {
            "its key or certificate is not known, or was revoked".into()
        }
        HelloReply::Denied(Denial::WrongProof) => "the proof of its key is wrong".into(),
        HelloReply::Denied(Denial::WrongWay(mode)) => {
            format!(
                "clients of this filesystem identify themselves by `{}`",
                mode.word()
            )
        }
        HelloReply::Denied(Denial::NotReady) => "it is not known yet who may connect".into(),
        HelloReply::Denied(Denial::TooManyOfYours) => {
            "its identity has as many connections as it may have".into()
        }
    }
}

/// What to do about it.
fn advice(why: Denial) -> String {
    match why {
        Denial::UnknownKey => {
            "the key or certificate is not known there, or was revoked or replaced; get a new one with `pando auth add` or `pando auth \
             rotate` (servers and operators: compare the `secret` files)"
                .into()
        }
        Denial::WrongProof => "the proof of our key is wrong; the key file may be damaged".into(),
        Denial::WrongWay(mode) => format!(
            "clients of this filesystem identify themselves by `{}`; see `pando auth add`",
            mode.word()
        ),
        Denial::NotReady => "it does not know yet who may connect; it is asking another server".into(),
        Denial::TooManyOfYours => "this identity has as many connections as it may have".into(),
    }
}
