//! The hello that opens a connection, and why one fails.
//!
//! Payload of the first frame in either direction: the magic `PNDO`, then `Hello` from the side that connected,
//! `HelloReply` from the side that accepted. The version stands first, so that a hello of any later version can at
//! least be told apart from noise.

use crate::Identity;
use pando_format::Codec;
use pando_types::{FsId, ServerId};
use pando_wire::{Hello, HelloReply, PROTOCOL_VERSION, Role};
use thiserror::Error;

const MAGIC: &[u8; 4] = b"PNDO";

pub(crate) fn hello(identity: Identity) -> Vec<u8> {
    payload(&Hello {
        version: PROTOCOL_VERSION,
        fs: identity.fs,
        role: identity.role,
    })
}

pub(crate) fn payload(body: &impl Codec) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    body.put(&mut out);
    out
}

/// Judges what a stranger said first: its role, or what to answer before closing (nothing, if it is not one of us).
pub(crate) fn judge(payload: &[u8], fs: FsId) -> Result<Role, Option<HelloReply>> {
    let body = payload.strip_prefix(MAGIC).ok_or(None)?;
    let version = body.first_chunk().map(|v| u16::from_le_bytes(*v)).ok_or(None)?;
    if version != PROTOCOL_VERSION {
        return Err(Some(HelloReply::WrongVersion(PROTOCOL_VERSION)));
    }
    let hello = Hello::from_bytes(body).map_err(|_| None)?;
    if hello.fs != fs {
        return Err(Some(HelloReply::WrongFilesystem(fs)));
    }
    Ok(hello.role)
}

/// The answer to our hello.
pub(crate) fn reply(payload: &[u8]) -> Option<HelloReply> {
    HelloReply::from_bytes(payload.strip_prefix(MAGIC)?).ok()
}

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
    #[error("{address} belongs to another filesystem ({theirs:?})")]
    WrongFilesystem {
        /// As the map has it.
        address: String,
        /// Which.
        theirs: FsId,
    },
    /// It is full.
    #[error("{0} has as many connections as it allows")]
    TooMany(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hellos_are_judged() {
        let us = Identity {
            fs: FsId(7),
            role: Role::Server(ServerId(3)),
        };
        let ours = hello(us);
        assert_eq!(judge(&ours, FsId(7)), Ok(Role::Server(ServerId(3))));
        assert_eq!(
            judge(&ours, FsId(8)),
            Err(Some(HelloReply::WrongFilesystem(FsId(8))))
        );
        assert_eq!(judge(&ours[..ours.len() - 1], FsId(7)), Err(None));
        assert_eq!(judge(b"GET / HTTP/1.1", FsId(7)), Err(None));
        assert_eq!(judge(b"", FsId(7)), Err(None));
        // A later version may have any form after the version.
        let later = [b"PNDO".as_slice(), &[9, 0], b"whatever"].concat();
        assert_eq!(
            judge(&later, FsId(7)),
            Err(Some(HelloReply::WrongVersion(PROTOCOL_VERSION)))
        );
        assert_eq!(reply(&payload(&HelloReply::TooMany)), Some(HelloReply::TooMany));
        assert_eq!(reply(b"PNDO"), None);
    }
}
