//! Keys, and what is proved, signed and sealed with them. Pure: no files, no randomness, no sockets.

mod frame;
mod handshake;
mod key;
pub mod seal;
mod secret;
mod statement;

pub use frame::{FrameKey, FrameKeys, MAC};
pub use handshake::{
    Accepted, Acceptor, Gate, Greeting, HELLO_MAX, Here, Initiator, Introduction, OpenGate, Rejected, Step,
    payload,
};
pub use key::{Fingerprint, Key};
pub use secret::{Secret, SecretError, Secrets};
pub use statement::StatementKeys;
