//! POSIX access control lists: what they say beyond permission bits, what they bequeath, and how they are
//! written.
//!
//! Owner, mask and others of an access list *are* permission bits (the mask stands where the group's bits
//! are): they are kept there only, so chmod, stat and the list can never disagree.

use crate::{Errno, Perm};

/// Most entries of one list, the three of the permission bits included.
pub const ACL_ENTRIES_MAX: usize = 32;

/// What a list allows one user or group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Named {
    /// Who.
    pub id: u32,
    /// rwx.
    pub may: u8,
}

/// A whole list. Invariant where it was checked: [`Acl::check`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Acl {
    /// rwx of the owner.
    pub owner: u8,
    /// Named users, by number.
    pub users: Vec<Named>,
    /// rwx of the group.
    pub group: u8,
    /// Named groups, by number.
    pub groups: Vec<Named>,
    /// Bounds what named users, the group and named groups may. Needed where anything is named.
    pub mask: Option<u8>,
    /// rwx of everybody else.
    pub other: u8,
}

/// What an access list says beyond permission bits. Invariant where it was checked: [`Extended::check`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Extended {
    /// Named users, by number.
    pub users: Vec<Named>,
    /// rwx of the group: its permission bits are the mask.
    pub group: u8,
    /// Named groups, by number.
    pub groups: Vec<Named>,
}

/// The lists of an object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Acls {
    /// Who may do what.
    pub access: Option<Extended>,
    /// Of a directory: what new objects in it begin with.
    pub default: Option<Acl>,
}

/// Which of the lists of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclKind {
    /// `system.posix_acl_access`
    Access,
    /// `system.posix_acl_default`
    Default,
}

/// Permissions as a creator gives them: the umask counts only where no default list stands in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    /// Permission bits, as the program said.
    pub perm: Perm,
    /// Bits of rwx that are taken away where there is no default list.
    pub umask: Perm,
}

impl Mode {
    /// With the umask applied.
    pub fn masked(self) -> Perm {
        Perm::new(self.perm.bits() & !(self.umask.bits() & 0o777))
    }
}

impl From<Perm> for Mode {
    fn from(perm: Perm) -> Mode {
        let umask = Perm::new(0);
        Mode { perm, umask }
    }
}

/// rwx, each user and each group once, by number; nobody is the number that stands for none.
fn sound(named: &[Named]) -> bool {
    named.iter().all(|n| n.may <= 7 && n.id != u32::MAX) && named.windows(2).all(|w| w[0].id < w[1].id)
}

impl Extended {
    /// Whether it is well-formed and no longer than lists may be. (A list of nothing but a mask names
    /// nobody.)
    pub fn check(&self) -> Result<(), Errno> {
        if !sound(&self.users) || !sound(&self.groups) || self.group > 7 {
            return Err(Errno::Invalid);
        }
        // Owner, group, mask and others.
        if self.users.len() + self.groups.len() + 4 > ACL_ENTRIES_MAX {
            return Err(Errno::ValueTooBig);
        }
        Ok(())
    }

    /// The whole list of an object with these permission bits.
    pub fn whole(&self, perm: Perm) -> Acl {
        let [owner, mask, other] = perm.classes();
        Acl {
            owner,
            users: self.users.clone(),
            group: self.group,
            groups: self.groups.clone(),
            mask: Some(mask),
            other,
        }
    }
}

impl Acl {
    /// Whether it is well-formed (`EINVAL`) and no longer than lists may be (`E2BIG`).
    pub fn check(&self) -> Result<(), Errno> {
        let named = self.users.len() + self.groups.len();
        let bits = [self.owner, self.group, self.mask.unwrap_or(0), self.other];
        let unmasked = named > 0 && self.mask.is_none();
        if !sound(&self.users) || !sound(&self.groups) || unmasked || bits.iter().any(|b| *b > 7) {
            return Err(Errno::Invalid);
        }
        if named + 3 + usize::from(self.mask.is_some()) > ACL_ENTRIES_MAX {
            return Err(Errno::ValueTooBig);
        }
        Ok(())
    }

    /// rwx bits of an object that has this as its access list, and what it says beyond them.
    pub fn split(&self) -> (Perm, Option<Extended>) {
        let middle = self.mask.unwrap_or(self.group);
        let rwx = u16::from(self.owner) << 6 | u16::from(middle) << 3 | u16::from(self.other);
        let extended = self.mask.map(|_| Extended {
            users: self.users.clone(),
            group: self.group,
            groups: self.groups.clone(),
        });
        (Perm::new(rwx), extended)
    }

    /// The access list of an object with these bits: of one without a list, what its bits say.
    pub fn of(perm: Perm, extended: Option<&Extended>) -> Acl {
        let [owner, group, other] = perm.classes();
        extended.map_or(
            Acl {
                owner,
                group,
                other,
                ..Acl::default()
            },
            |e| e.whole(perm),
        )
    }

    /// As the default list of a directory: the bits and the list of something new in it (Linux,
    /// `posix_acl_create`). What the creator did not ask for nobody gets.
    pub fn bequeath(&self, perm: Perm) -> (Perm, Option<Extended>) {
        let (rwx, extended) = self.split();
        let bits = perm.bits() & !0o777 | perm.bits() & rwx.bits();
        (Perm::new(bits), extended)
    }
}

impl Acls {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.access.is_none() && self.default.is_none()
    }
}

/// What goes into a list's extended attribute: the kernel's form, version 2.
mod kernel {
    pub const VERSION: u32 = 2;
    pub const OWNER: u16 = 1;
    pub const USER: u16 = 2;
    pub const GROUP_OBJ: u16 = 4;
    pub const GROUP: u16 = 8;
    pub const MASK: u16 = 0x10;
    pub const OTHER: u16 = 0x20;
}

impl Acl {
    /// From the value of an extended attribute: entries in the kernel's order.
    pub fn from_xattr(bytes: &[u8]) -> Result<Acl, Errno> {
        let (version, entries) = bytes.split_at_checked(4).ok_or(Errno::Invalid)?;
        let (entries, rest) = entries.as_chunks::<8>();
        if version != kernel::VERSION.to_le_bytes() || !rest.is_empty() {
            return Err(Errno::Invalid);
        }
        let mut acl = Acl::default();
        let mut last = 0;
        for [t0, t1, p0, p1, i0, i1, i2, i3] in entries {
            let (tag, may) = (u16::from_le_bytes([*t0, *t1]), u16::from_le_bytes([*p0, *p1]));
            let id = u32::from_le_bytes([*i0, *i1, *i2, *i3]);
            let may = u8::try_from(may).ok().filter(|m| *m <= 7).ok_or(Errno::Invalid)?;
            let again = tag == last && tag != kernel::USER && tag != kernel::GROUP;
            if tag < last || again {
                return Err(Errno::Invalid);
            }
            last = tag;
            match tag {
                kernel::OWNER => acl.owner = may,
                kernel::USER => acl.users.push(Named { id, may }),
                kernel::GROUP_OBJ => acl.group = may,
                kernel::GROUP => acl.groups.push(Named { id, may }),
                kernel::MASK => acl.mask = Some(may),
                kernel::OTHER => acl.other = may,
                _ => return Err(Errno::Invalid),
            }
        }
        let tagged = |tag: u16| entries.iter().any(|e| e[..2] == tag.to_le_bytes());
        if ![kernel::OWNER, kernel::GROUP_OBJ, kernel::OTHER]
            .into_iter()
            .all(tagged)
        {
            return Err(Errno::Invalid);
        }
        acl.sorted()
    }

    /// The value of its extended attribute.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut out = kernel::VERSION.to_le_bytes().to_vec();
        let mut put = |tag: u16, may: u8, id: u32| {
            out.extend(tag.to_le_bytes());
            out.extend(u16::from(may).to_le_bytes());
            out.extend(id.to_le_bytes());
        };
        put(kernel::OWNER, self.owner, u32::MAX);
        self.users.iter().for_each(|n| put(kernel::USER, n.may, n.id));
        put(kernel::GROUP_OBJ, self.group, u32::MAX);
        self.groups.iter().for_each(|n| put(kernel::GROUP, n.may, n.id));
        if let Some(mask) = self.mask {
            put(kernel::MASK, mask, u32::MAX);
        }
        put(kernel::OTHER, self.other, u32::MAX);
        out
    }

    /// Its entries as text, with numbers: `user::rwx`, `user:1000:r--`, ...
    pub fn lines(&self) -> Vec<String> {
        let rwx = |may: u8| {
            let bit = |b: u8, c: char| if may & b != 0 { c } else { '-' };
            String::from_iter([bit(4, 'r'), bit(2, 'w'), bit(1, 'x')])
        };
        let named = |kind: &'static str, n: &Named| format!("{kind}:{}:{}", n.id, rwx(n.may));
        let mut lines = vec![format!("user::{}", rwx(self.owner))];
        lines.extend(self.users.iter().map(|n| named("user", n)));
        lines.push(format!("group::{}", rwx(self.group)));
        lines.extend(self.groups.iter().map(|n| named("group", n)));
        lines.extend(self.mask.map(|mask| format!("mask::{}", rwx(mask))));
        lines.push(format!("other::{}", rwx(self.other)));
        lines
    }

    /// From entries as text: in any order, separated by commas, blanks or lines, `u`, `g`, `m` and `o` for
    /// short, permissions as letters or one digit. Without a mask where one is needed it is all that anything
    /// it bounds allows, as `setfacl` has it.
    pub fn parse(text: &str) -> Result<Acl, Errno> {
        let mut acl = Acl::default();
        let (mut owner, mut group, mut other) = (None, None, None);
        let split = |c: char| c == ',' || c.is_whitespace();
        for entry in text.split(split).filter(|e| !e.is_empty()) {
            let mut parts = entry.split(':');
            let (Some(kind), Some(who), Some(may), None) =
                (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                return Err(Errno::Invalid);
            };
            let may = rwx(may)?;
            let named = || {
                let id = who.parse().map_err(|_| Errno::Invalid)?;
                Ok(Named { id, may })
            };
            let whose = match (kind, who.is_empty()) {
                ("user" | "u", true) => &mut owner,
                ("user" | "u", false) => {
                    acl.users.push(named()?);
                    continue;
                }
                ("group" | "g", true) => &mut group,
                ("group" | "g", false) => {
                    acl.groups.push(named()?);
                    continue;
                }
                ("mask" | "m", true) => &mut acl.mask,
                ("other" | "o", true) => &mut other,
                _ => return Err(Errno::Invalid),
            };
            if whose.replace(may).is_some() {
                return Err(Errno::Invalid);
            }
        }
        let (Some(owner), Some(group), Some(other)) = (owner, group, other) else {
            return Err(Errno::Invalid);
        };
        (acl.owner, acl.group, acl.other) = (owner, group, other);
        let named = acl.users.iter().chain(&acl.groups);
        let all = named.fold(None, |all, n| Some(all.unwrap_or(group) | n.may));
        acl.mask = acl.mask.or(all);
        acl.sorted()
    }

    fn sorted(mut self) -> Result<Acl, Errno> {
        self.users.sort_unstable();
        self.groups.sort_unstable();
        self.check()?;
        Ok(self)
    }
}

/// `r-x`, or `5`.
fn rwx(text: &str) -> Result<u8, Errno> {
    if let [digit @ b'0'..=b'7'] = text.as_bytes() {
        return Ok(digit - b'0');
    }
    if text.len() != 3 {
        return Err(Errno::Invalid);
    }
    let bits = text.bytes().zip([(b'r', 4), (b'w', 2), (b'x', 1)]);
    bits.map(|(b, (letter, bit))| match b {
        b'-' => Ok(0),
        b if b == letter => Ok(bit),
        _ => Err(Errno::Invalid),
    })
    .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(text: &str) -> Acl {
        Acl::parse(text).unwrap()
    }

    #[test]
    fn text_both_ways() {
        let text = "user::rwx,user:5:r--,user:1000:-w-,group::r-x,group:7:--x,mask::rw-,other::---";
        assert_eq!(acl(text).lines().join(","), text);
        assert_eq!(acl("o::0 g::5\nu:1000:2,u::7,m::6,g:7:1,u:5:4"), acl(text));
        assert_eq!(acl("u::7,g::4,u:1:3,o::0").mask, Some(7), "what it bounds");
        assert_eq!(acl("u::7,g::4,o::0").mask, None);
        for bad in [
            "",
            "u::7,g::4",
            "u::7,g::4,o::0,o::0",
            "u::8,g::4,o::0",
            "u::rwxx,g::4,o::0",
            "u::7,g::4,o:5:0",
            "u::7,g::4,o::0,u:x:4",
            "u::7,g::4,o::0,u:5:4,u:5:4",
            "u::7,g::4,o::0,u:4294967295:4",
            "u::wr-,g::4,o::0",
            "u::7:,g::4,o::0",
        ] {
            assert_eq!(Acl::parse(bad), Err(Errno::Invalid), "{bad}");
        }
        let many: Vec<String> = (0..29).map(|n| format!("u:{n}:7")).collect();
        assert!(Acl::parse(&format!("u::7,g::7,o::7,{}", many[1..].join(","))).is_ok());
        let longest = Acl::parse(&format!("u::7,g::7,o::7,{}", many.join(",")));
        assert_eq!(longest, Err(Errno::ValueTooBig));
    }

    #[test]
    fn the_kernels_bytes_both_ways() {
        let list = acl("u::7,u:5:4,g::5,g:7:1,m::6,o::0");
        let bytes = list.to_xattr();
        assert_eq!(bytes.len(), 4 + 6 * 8);
        assert_eq!(Acl::from_xattr(&bytes), Ok(list));
        let minimal = acl("u::7,g::5,o::0").to_xattr();
        assert_eq!(Acl::from_xattr(&minimal), Ok(acl("u::7,g::5,o::0")));
        // No version, half an entry, another version, what is missing, what is out of order, twice, or
        // nobody's.
        let (head, entries) = bytes.split_at(4);
        let pick = |order: &[usize]| {
            let chosen = order.iter().flat_map(|i| &entries[i * 8..][..8]);
            head.iter().chain(chosen).copied().collect::<Vec<u8>>()
        };
        for bad in [
            vec![],
            bytes[..3].to_vec(),
            bytes[..bytes.len() - 1].to_vec(),
            [&[1, 0, 0, 0], entries].concat(),
            head.to_vec(),
            pick(&[0, 2]),
            pick(&[0, 2, 2, 5]),
            pick(&[2, 0, 5]),
            pick(&[0, 1, 2, 5]),
            pick(&[0, 1, 1, 2, 4, 5]),
        ] {
            assert_eq!(Acl::from_xattr(&bad), Err(Errno::Invalid), "{bad:?}");
        }
        for at in [4, 5, 6, 7] {
            let mut bad = bytes.clone();
            bad[at] |= 0x40;
            assert_eq!(Acl::from_xattr(&bad), Err(Errno::Invalid));
        }
    }

    #[test]
    fn bits_and_lists() {
        let list = acl("u::7,u:5:4,g::5,m::6,o::1");
        let (perm, extended) = list.split();
        assert_eq!(perm.bits(), 0o761, "the mask, not the group");
        assert_eq!(extended.as_ref().unwrap().whole(perm), list);
        assert_eq!(acl("u::7,g::5,o::1").split(), (Perm::new(0o751), None));
        assert_eq!(Acl::of(Perm::new(0o751), None), acl("u::7,g::5,o::1"));
        assert_eq!(Acl::of(perm, extended.as_ref()), list);
    }

    #[test]
    fn what_is_new_gets_what_its_creator_asked_for_and_the_list_allows() {
        let (perm, extended) = acl("u::7,u:5:7,g::5,m::7,o::5").bequeath(Perm::new(0o4640));
        assert_eq!(perm.bits(), 0o4640);
        assert_eq!(extended.unwrap().whole(perm), acl("u::6,u:5:7,g::5,m::4,o::0"));
        assert_eq!(
            acl("u::7,g::5,o::0").bequeath(Perm::new(0o666)),
            (Perm::new(0o640), None)
        );
    }

    #[test]
    fn a_umask_takes_rwx_only() {
        let (perm, umask) = (Perm::new(0o6777), Perm::new(0o7022));
        assert_eq!(Mode { perm, umask }.masked().bits(), 0o6755);
        assert_eq!(Mode::from(perm).masked(), perm);
    }
}
