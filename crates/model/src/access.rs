//! Who may do what: the rules that several operations share.

use crate::Model;
use crate::node::{Node, NodeId};
use crate::op::DirRef;
use pando_types::{Access, Acl, Cred, Errno, Perm};

/// A directory an operation entered, with the permissions that count for this operation.
#[derive(Clone)]
pub(crate) struct Entered {
    pub id: NodeId,
    pub perm: Perm,
    pub uid: u32,
    pub gid: u32,
    pub list: Option<Acl>,
    /// What new objects begin with.
    pub default: Option<Acl>,
}

impl Model {
    /// RULE (entering). Every operation inside a directory names the incarnation it means; if that is not
    /// alive, the answer is ESTALE, whatever else is wrong. Permissions are those the request carries, else
    /// the current ones.
    pub(crate) fn enter(&self, dir: &DirRef) -> Result<Entered, Errno> {
        if dir.home {
            return Ok(Entered {
                id: dir.id,
                perm: Perm::new(0o777),
                uid: 0,
                gid: 0,
                list: None,
                default: None,
            });
        }
        let node = self
            .nodes
            .get(&dir.id)
            .filter(|n| n.is_dir())
            .ok_or(Errno::Stale)?;
        let (perm, uid, gid) = dir.dir_perm.unwrap_or((node.perm, node.uid, node.gid));
        let mut said = self.said.iter().filter(|(id, _)| *id == dir.id);
        let said = if dir.second { said.next_back() } else { said.next() };
        let (list, default) = match said {
            Some((_, said)) => (said.access.as_ref().map(|l| l.whole(perm)), said.default.clone()),
            None => (node.list.clone(), node.default.clone()),
        };
        Ok(Entered {
            id: dir.id,
            perm,
            uid,
            gid,
            list,
            default,
        })
    }

    /// RULE (searching). Whoever uses a name in a directory needs search permission on it, checked before the
    /// name is looked at. DirStat, Publish and SetAttr through a handle use no name and need nothing.
    pub(crate) fn search(&self, cred: &Cred, dir: &DirRef) -> Result<Entered, Errno> {
        let entered = self.enter(dir)?;
        entered.allow(cred, Access::EXEC)?;
        Ok(entered)
    }
}

impl Entered {
    /// EACCES unless the permissions of this directory allow `want`.
    pub fn allow(&self, cred: &Cred, want: Access) -> Result<(), Errno> {
        if permits(
            cred,
            want,
            (self.perm, self.uid, self.gid),
            true,
            self.list.as_ref(),
        ) {
            Ok(())
        } else {
            Err(Errno::Access)
        }
    }

    /// RULE (changing entries). Creating, removing and renaming entries needs write permission too. As on
    /// Linux it is checked *after* the existence of the name: mkdir of a name that exists is EEXIST and
    /// unlink of one that does not is ENOENT even where the caller may not write, and open(O_CREAT) of a file
    /// that exists needs no write permission on its directory (`echo > /dev/null` depends on that).
    ///
    /// Nothing changes above the root: for those whom the bits allow it, EBUSY, as for rmdir("/").
    pub fn change(&self, cred: &Cred) -> Result<(), Errno> {
        self.allow(cred, Access::WRITE.and(Access::EXEC))?;
        if self.id == NodeId::ABOVE_ROOT {
            Err(Errno::Busy)
        } else {
            Ok(())
        }
    }

    /// RULE (sticky). In a sticky directory an entry is removed, renamed or replaced only by the owner of the
    /// object, the owner of the directory, or root; else EPERM. Checked right after the permission to change
    /// entries, before the kinds of the objects (Linux, `may_delete`).
    pub fn unstick(&self, cred: &Cred, node: &Node) -> Result<(), Errno> {
        let held =
            self.perm.has(Perm::STICKY) && !cred.is_root() && cred.uid != node.uid && cred.uid != self.uid;
        if held { Err(Errno::Perm) } else { Ok(()) }
    }

    /// Whether new objects inherit this directory's group.
    pub fn is_setgid(&self) -> bool {
        self.perm.has(Perm::SETGID)
    }

    /// RULE (set-gid of what is new and no directory). It is lost if the object inherits a group that the
    /// caller (not root) is not in, and that group may execute it.
    pub fn perm_of_new(&self, cred: &Cred, perm: Perm) -> Perm {
        let mut bits = perm.bits();
        if self.is_setgid() && perm.has(Perm::SETGID | 0o010) && !(cred.is_root() || cred.in_group(self.gid))
        {
            bits &= !Perm::SETGID;
        }
        Perm::new(bits)
    }

    /// RULE (inherited group). A new object has the creator's group, or the directory's if that is set-gid.
    pub fn group_of_new(&self, cred: &Cred) -> u32 {
        if self.is_setgid() { self.gid } else { cred.gid }
    }
}

/// RULE (permission; Linux, `acl_permission_check` and `posix_acl_permission`). Root may do everything but
/// execute a file that nobody may. The owner's bits decide for the owner. If there is a list, and the group's
/// bits (its mask) are not all gone, it decides: the entry of the user, masked; else, if any of the user's
/// groups has an entry, whether one of these, masked, allows all that is wanted; else the others' entry.
/// Without a list the group's bits decide for the group, and the others' for the others.
fn permits(
    cred: &Cred,
    want: Access,
    (perm, uid, gid): (Perm, u32, u32),
    is_dir: bool,
    list: Option<&Acl>,
) -> bool {
    let bits = perm.bits();
    let wanted = u16::from(want.0);
    if cred.is_root() {
        return wanted & 1 == 0 || is_dir || bits & 0o111 != 0;
    }
    let within = |allowed: u16| wanted & !allowed == 0;
    if cred.uid == uid {
        return within(bits / 64 % 8);
    }
    if let Some(list) = list
        && bits & 0o070 != 0
    {
        let mask = u16::from(list.mask.unwrap_or(7));
        for user in &list.users {
            if user.id == cred.uid {
                return within(u16::from(user.may) & mask);
            }
        }
        let mut groups = vec![(gid, list.group)];
        groups.extend(list.groups.iter().map(|g| (g.id, g.may)));
        groups.retain(|(id, _)| cred.in_group(*id));
        if groups.is_empty() {
            return within(u16::from(list.other));
        }
        return groups.iter().any(|(_, may)| within(u16::from(*may) & mask));
    }
    let shift = if cred.in_group(gid) { 3 } else { 0 };
    within(bits >> shift & 7)
}

/// EACCES unless the permissions of this object allow `want`.
pub(crate) fn allow(cred: &Cred, node: &Node, want: Access) -> Result<(), Errno> {
    let bits = (node.perm, node.uid, node.gid);
    if permits(cred, want, bits, node.is_dir(), node.list.as_ref()) {
        Ok(())
    } else {
        Err(Errno::Access)
    }
}

/// RULE (lost set-id bits). Whoever changes content (not root) or owner (root too) of something that is not a
/// directory takes its set-uid bit, and its set-gid bit if the group may execute it or the caller is neither
/// root nor in its group (Linux, `setattr_should_drop_suidgid`).
pub(crate) fn without_set_ids(cred: &Cred, perm: Perm, gid: u32) -> Perm {
    let mut bits = perm.bits() & !Perm::SETUID;
    if bits & 0o010 != 0 || !(cred.is_root() || cred.in_group(gid)) {
        bits &= !Perm::SETGID;
    }
    Perm::new(bits)
}
