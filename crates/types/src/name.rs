//! Names of directory entries.

use crate::{Errno, Generation, Ino};
use std::fmt;

/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest path, in bytes, its terminating NUL included.
pub const PATH_MAX: usize = 4096;
/// Longest symlink target, in bytes.
pub const SYMLINK_MAX: usize = 4095;

/// One component of a path: 1–255 bytes, any but `/` and NUL, neither `.` nor `..`. Need not be UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

impl Name {
    /// Checks and takes a name. `ENAMETOOLONG` above 255 bytes; `EINVAL` for what no entry can be called.
    pub fn new(bytes: &[u8]) -> Result<Name, Errno> {
        if bytes.len() > NAME_MAX {
            return Err(Errno::NameTooLong);
        }
        if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.iter().any(|b| *b == b'/' || *b == 0)
        {
            return Err(Errno::Invalid);
        }
        Ok(Name(bytes.into()))
    }

    /// The name under which the root's access record is stored in [`crate::DirId::ABOVE_ROOT`].
    pub fn root() -> Name {
        Name(b"root".as_slice().into())
    }

    /// What a file is called in the [`crate::DirId::homes`] of a slot.
    pub fn home(ino: Ino, generation: Generation) -> Name {
        Name(
            format!("{:016x}.{:016x}", ino.0, generation.0)
                .into_bytes()
                .into(),
        )
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_at_every_border() {
        assert!(Name::new(b"a").is_ok());
        assert!(Name::new(&[0xFF; NAME_MAX]).is_ok());
        assert_eq!(Name::new(&[b'a'; NAME_MAX + 1]), Err(Errno::NameTooLong));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(Name::new(bad), Err(Errno::Invalid));
        }
        assert!(Name::new(b"...").is_ok());
    }
}
