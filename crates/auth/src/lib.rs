//! Keys, and what is signed with them. Pure: no files, no randomness, no sockets.

pub mod seal;
mod secret;
mod statement;

pub use secret::{Secret, SecretError};
pub use statement::StatementKeys;
