//! Extended attributes: names, who may see and set them, and how large they may be.

use crate::{Access, Cred, Errno, FileKind, Perm};
use std::fmt;

/// Longest name of an attribute, in bytes, its namespace included.
pub const XATTR_NAME_MAX: usize = 255;
/// Longest value of an attribute, in bytes.
pub const XATTR_VALUE_MAX: usize = 64 * 1024;
/// All names and values of one object together, in bytes.
pub const XATTRS_MAX: usize = 128 * 1024;

/// Who an attribute is for, by the first part of its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrSpace {
    /// `user.`: as the permissions of the file have it.
    User,
    /// `trusted.`: for the superuser, and seen by nobody else.
    Trusted,
    /// `security.`: set by the superuser, seen by everybody.
    Security,
}

/// The name of an extended attribute in a namespace that is kept: `user.`, `trusted.` or `security.` and at
/// least one byte more.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct XattrName(Box<[u8]>);

/// What setting an attribute does if there is one, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrMode {
    /// Makes or replaces it.
    Any,
    /// EEXIST if there is one.
    Create,
    /// ENODATA if there is none.
    Replace,
}

const SPACES: [(&[u8], XattrSpace); 3] = [
    (b"user.", XattrSpace::User),
    (b"trusted.", XattrSpace::Trusted),
    (b"security.", XattrSpace::Security),
];

impl XattrName {
    /// Checks and takes a name, with the errors of Linux: `ERANGE` for none and above 255 bytes, `EOPNOTSUPP`
    /// for a namespace that is not kept, `EINVAL` for a namespace alone. No name contains NUL.
    pub fn new(bytes: &[u8]) -> Result<XattrName, Errno> {
        if bytes.is_empty() || bytes.len() > XATTR_NAME_MAX {
            return Err(Errno::Range);
        }
        let prefix = SPACES.iter().map(|(p, _)| *p).find(|p| bytes.starts_with(p));
        let prefix = prefix.ok_or(Errno::Unsupported)?;
        if bytes.len() == prefix.len() || bytes.contains(&0) {
            return Err(Errno::Invalid);
        }
        Ok(XattrName(bytes.into()))
    }

    /// Capabilities of a program, which the kernel honours when it is run: they go when its bytes or its
    /// owner change.
    pub fn capability() -> XattrName {
        XattrName(b"security.capability".as_slice().into())
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Who it is for.
    pub fn space(&self) -> XattrSpace {
        let found = SPACES.iter().find(|(p, _)| self.0.starts_with(p));
        found.map_or(XattrSpace::Trusted, |(_, space)| *space)
    }

    /// Whether a listing shows it to this caller.
    pub fn listed_for(&self, cred: &Cred) -> bool {
        self.space() != XattrSpace::Trusted || cred.is_root()
    }
}

/// Whether a caller may see, or with `write` set or remove, an attribute in this namespace of an object of
/// this kind whose permissions allow it what `may` says: as on Linux, `xattr_permission` and the capabilities
/// that `security.` needs.
pub fn may_xattr(
    cred: &Cred,
    space: XattrSpace,
    write: bool,
    (kind, perm, owner): (FileKind, Perm, u32),
    may: impl Fn(Access) -> bool,
) -> Result<(), Errno> {
    let hidden = if write { Errno::Perm } else { Errno::NoData };
    match space {
        XattrSpace::Security if write && !cred.is_root() => Err(Errno::Perm),
        XattrSpace::Security => Ok(()),
        XattrSpace::Trusted if !cred.is_root() => Err(hidden),
        XattrSpace::Trusted => Ok(()),
        XattrSpace::User => {
            if !matches!(kind, FileKind::Regular | FileKind::Directory) {
                return Err(hidden);
            }
            // Where everybody may write, and keeps what is theirs: the directory itself is its owner's.
            let sticky = kind == FileKind::Directory && perm.has(Perm::STICKY);
            if write && sticky && !cred.is_root() && cred.uid != owner {
                return Err(Errno::Perm);
            }
            let want = if write { Access::WRITE } else { Access::READ };
            if may(want) { Ok(()) } else { Err(Errno::Access) }
        }
    }
}

impl fmt::Display for XattrName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for XattrName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_at_every_border() {
        assert_eq!(XattrName::new(b""), Err(Errno::Range));
        assert_eq!(XattrName::new(b"user."), Err(Errno::Invalid));
        assert_eq!(XattrName::new(b"user"), Err(Errno::Unsupported));
        assert_eq!(XattrName::new(b"system.x"), Err(Errno::Unsupported));
        assert_eq!(XattrName::new(b"user.a\0"), Err(Errno::Invalid));
        let longest = [b"user.".as_slice(), &[b'x'; XATTR_NAME_MAX - 5]].concat();
        assert!(XattrName::new(&longest).is_ok());
        assert_eq!(XattrName::new(&[&longest[..], b"x"].concat()), Err(Errno::Range));
        assert_eq!(XattrName::new(b"user.a").unwrap().space(), XattrSpace::User);
        assert_eq!(XattrName::capability().space(), XattrSpace::Security);
        assert_eq!(
            XattrName::new(XattrName::capability().as_bytes()),
            Ok(XattrName::capability())
        );
    }

    #[test]
    fn who_may() {
        let user = Cred {
            uid: 5,
            gid: 5,
            groups: vec![],
        };
        let file = (FileKind::Regular, Perm::new(0o666), 7);
        let check = |cred: &Cred, space, write, what| may_xattr(cred, space, write, what, |_| true);
        assert_eq!(check(&user, XattrSpace::User, true, file), Ok(()));
        assert_eq!(
            may_xattr(&user, XattrSpace::User, false, file, |_| false),
            Err(Errno::Access)
        );
        assert_eq!(check(&user, XattrSpace::Trusted, false, file), Err(Errno::NoData));
        assert_eq!(check(&user, XattrSpace::Trusted, true, file), Err(Errno::Perm));
        assert_eq!(check(&user, XattrSpace::Security, true, file), Err(Errno::Perm));
        assert_eq!(check(&user, XattrSpace::Security, false, file), Ok(()));
        let link = (FileKind::Symlink, Perm::new(0o777), 5);
        assert_eq!(check(&user, XattrSpace::User, true, link), Err(Errno::Perm));
        assert_eq!(
            check(&Cred::root(), XattrSpace::User, false, link),
            Err(Errno::NoData)
        );
        let sticky = (FileKind::Directory, Perm::new(0o1777), 7);
        assert_eq!(check(&user, XattrSpace::User, true, sticky), Err(Errno::Perm));
        assert_eq!(check(&user, XattrSpace::User, false, sticky), Ok(()));
    }
}
