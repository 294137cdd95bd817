//! Who asks, and what the permission bits allow them.

use crate::Perm;

/// The identity an operation runs under.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cred {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// What is wanted of an object: any union of these bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(pub u8);

impl Access {
    /// Read a file, list a directory.
    pub const READ: Access = Access(4);
    /// Write a file, change a directory's entries.
    pub const WRITE: Access = Access(2);
    /// Execute a file, search a directory.
    pub const EXEC: Access = Access(1);

    /// Both.
    pub fn and(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

impl Cred {
    /// The superuser.
    pub fn root() -> Cred {
        Cred {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        }
    }

    /// Whether this identity belongs to `gid`.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether this identity is the superuser.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// POSIX access check by permission bits. `is_dir` matters for the superuser, who may search any directory but
    /// execute only files with an x bit.
    pub fn may(&self, want: Access, perm: Perm, uid: u32, gid: u32, is_dir: bool) -> bool {
        if self.is_root() {
            return want.0 & Access::EXEC.0 == 0 || is_dir || perm.bits() & 0o111 != 0;
        }
        let shift = if self.uid == uid {
            6
        } else if self.in_group(gid) {
            3
        } else {
            0
        };
        (perm.bits() >> shift) as u8 & 7 & want.0 == want.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_class_decides() {
        let owner = Cred {
            uid: 5,
            gid: 9,
            groups: vec![],
        };
        // The owner's class denies although others' would allow.
        assert!(!owner.may(Access::READ, Perm::new(0o077), 5, 9, false));
        let member = Cred {
            uid: 6,
            gid: 1,
            groups: vec![9],
        };
        assert!(member.may(Access::READ, Perm::new(0o040), 5, 9, false));
        assert!(!member.may(Access::WRITE, Perm::new(0o042), 5, 9, false));
        assert!(!Cred::root().may(Access::EXEC, Perm::new(0o644), 5, 9, false));
        assert!(Cred::root().may(Access::EXEC, Perm::new(0o000), 5, 9, true));
    }
}
