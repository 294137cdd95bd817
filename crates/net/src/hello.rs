//! Why a connection to a server fails.

use pando_types::{FsId, ServerId};
use pando_wire::PROTOCOL_VERSION;
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
