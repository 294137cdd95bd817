//! The operations, apart from rename.

mod attr;
mod create;
mod publish;
mod read;
mod remove;
pub(crate) mod xattr;
