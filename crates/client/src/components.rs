//! Paths as programs write them.

use pando_types::{Errno, NAME_MAX, Name, PATH_MAX};
use std::collections::VecDeque;

/// A step of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Component {
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// Anything else.
    Name(Name),
}

/// Splits a path. The last component of a path that ends in `/` must be a directory: then the second result
/// is true.
pub fn components(path: &[u8]) -> Result<(VecDeque<Component>, bool), Errno> {
    if path.is_empty() {
        return Err(Errno::NotFound);
    }
    if path.len() >= PATH_MAX {
        return Err(Errno::NameTooLong);
    }
    let parts = path
        .split(|b| *b == b'/')
        .filter(|p| !p.is_empty())
        .map(|part| match part {
            b"." => Ok(Component::Dot),
            b".." => Ok(Component::DotDot),
            p if p.len() > NAME_MAX => Err(Errno::NameTooLong),
            p => Name::new(p).map(Component::Name),
        });
    Ok((parts.collect::<Result<_, _>>()?, path.ends_with(b"/")))
}
