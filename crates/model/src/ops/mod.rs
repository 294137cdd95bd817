//! The operations, apart from rename.

pub(crate) mod acl;
mod attr;
mod create;
mod publish;
mod read;
mod remove;
pub(crate) mod xattr;
