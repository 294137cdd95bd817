//! Who asks, and what permission bits and lists allow them.

use crate::acl::Named;
use crate::{Extended, Perm, plant};

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

    /// POSIX access check, as Linux does it: the superuser, the owner, the list if there is one and it is not
    /// masked out whole, else group and others. (A mask of nothing makes Linux look at the bits alone: who is
    /// named is then one of the others.)
    pub fn may(&self, want: Access, guard: &Guard<'_>) -> bool {
        let [owner, group, other] = guard.perm.classes();
        if self.is_root() {
            return want.0 & Access::EXEC.0 == 0 || guard.is_dir || guard.perm.bits() & 0o111 != 0;
        }
        let allowed = if self.uid == guard.uid {
            owner
        } else if let Some(list) = guard.acl.filter(|_| group != 0) {
            return self
                .may_by(list, want, guard.gid, group)
                .unwrap_or(other & want.0 == want.0);
        } else if self.in_group(guard.gid) {
            group
        } else {
            other
        };
        allowed & want.0 == want.0
    }

    /// What a list says of this identity, which is not the owner; `None`: nothing.
    fn may_by(&self, list: &Extended, want: Access, gid: u32, mask: u8) -> Option<bool> {
        let mask = if plant!(H149) { 7 } else { mask };
        let allows = |may: u8| may & want.0 == want.0;
        if let Some(user) = list.users.iter().find(|n| n.id == self.uid) {
            return Some(allows(user.may & mask));
        }
        // One group must allow all of it; two that allow a half each do not.
        let mine = |n: &&Named| self.in_group(n.id);
        let named = list.groups.iter().filter(mine).map(|n| n.may);
        let group = self.in_group(gid).then_some(list.group);
        let mut groups = group.into_iter().chain(named).peekable();
        groups.peek()?;
        Some(groups.any(|may| allows(may & mask)))
    }
}

/// What of an object decides who may do what with it.
#[derive(Clone, Copy, Debug)]
pub struct Guard<'a> {
    /// Permission bits.
    pub perm: Perm,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// What its access list says beyond the bits.
    pub acl: Option<&'a Extended>,
    /// Whether it is a directory: the superuser may search any, but execute only files with an x bit.
    pub is_dir: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Acl;

    fn guard(perm: u16, is_dir: bool) -> Guard<'static> {
        Guard {
            perm: Perm::new(perm),
            uid: 5,
            gid: 9,
            acl: None,
            is_dir,
        }
    }

    fn cred(uid: u32, gid: u32, groups: &[u32]) -> Cred {
        let groups = groups.to_vec();
        Cred { uid, gid, groups }
    }

    #[test]
    fn the_first_matching_class_decides() {
        // The owner's class denies although others' would allow.
        assert!(!cred(5, 9, &[]).may(Access::READ, &guard(0o077, false)));
        let member = cred(6, 1, &[9]);
        assert!(member.may(Access::READ, &guard(0o040, false)));
        assert!(!member.may(Access::WRITE, &guard(0o042, false)));
        assert!(!Cred::root().may(Access::EXEC, &guard(0o644, false)));
        assert!(Cred::root().may(Access::EXEC, &guard(0, true)));
    }

    #[test]
    fn lists_decide_as_on_linux() {
        let may = |who: &Cred, text: &str, want: u8| {
            let (perm, acl) = Acl::parse(text).unwrap().split();
            let acl = acl.as_ref();
            let plain = guard(perm.bits(), false);
            who.may(Access(want), &Guard { acl, ..plain })
        };
        let named = cred(6, 1, &[]);
        let list = "u::7,u:6:6,g::5,g:8:2,m::5,o::1";
        // Masked.
        assert!(may(&named, list, 4) && !may(&named, list, 2));
        // Who is named as a user is not asked for groups, nor taken for one of the others.
        assert!(!may(&cred(6, 9, &[]), list, 1) && !may(&named, list, 1));
        // The owner is not masked, whoever else is named.
        assert!(may(&cred(5, 1, &[]), "u::7,u:5:0,g::0,m::1,o::0", 7));
        // One group must allow all of it.
        let both = cred(7, 9, &[8]);
        let list = "u::7,g::4,g:8:2,m::7,o::7";
        assert!(may(&both, list, 4) && may(&both, list, 2) && !may(&both, list, 6));
        // A member is none of the others; a stranger is.
        assert!(!may(&both, list, 1) && may(&cred(7, 1, &[]), list, 7));
        // Nothing but a mask.
        assert!(may(&both, "u::7,g::6,m::4,o::0", 4) && !may(&both, "u::7,g::6,m::4,o::0", 2));
        // A mask of nothing: Linux does not look at the list.
        assert!(may(&named, "u::7,u:6:0,g::7,m::0,o::4", 4));
        assert!(!may(&cred(7, 9, &[]), "u::7,u:6:7,g::7,m::0,o::4", 4));
    }
}
