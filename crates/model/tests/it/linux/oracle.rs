//! The model's side: paths are resolved by lookups, then one operation.

use super::kernel::{Seen, Times};
use super::steps::{Call, Path, list_name, masked, value};
use pando_model::{Body, Content, DirRef, Fresh, Model, ModelAnswer, ModelOp, NodeId};
use pando_types::{
    Acl, AclKind, AttrChange, Cred, DirId, Errno, FileKind, Generation, Ino, Name, Perm, Timestamp,
    XattrMode, XattrName,
};
use std::collections::BTreeMap;

pub struct Oracle {
    model: Model,
    clock: i64,
    /// Whether the kernel's side has extended attributes.
    xattrs: bool,
}

/// Why a call has no result here.
pub enum Stop {
    Errno(Errno),
    /// The test leaves it out: the kernel would follow a symlink, or nothing is there to be opened.
    Skip,
}

impl From<Errno> for Stop {
    fn from(e: Errno) -> Stop {
        Stop::Errno(e)
    }
}

impl Oracle {
    pub fn new((uid, gid): (u32, u32), xattrs: bool) -> Oracle {
        Oracle {
            xattrs,
            model: Model::new(Perm::new(0o777), uid, gid, Timestamp::default()),
            clock: 1,
        }
    }

    fn apply(&mut self, cred: &Cred, op: ModelOp) -> Result<ModelAnswer, Stop> {
        self.clock += 1;
        let number = self.clock as u64;
        let fresh = Fresh {
            ino: Ino(number),
            generation: Generation(number),
            dir_id: Some(DirId(u128::from(number))),
        };
        let now = Timestamp {
            secs: 2_000_000_000,
            nanos: self.clock as u32,
        };
        let before = self.model.walk();
        let answer = self.model.apply(cred, &op, now, Some(fresh));
        assert!(!matches!(answer, Ok(ModelAnswer::Identity(_))), "{answer:?}");
        self.model.check().expect("a tree");
        if answer.is_err() {
            assert_eq!(before, self.model.walk(), "a failed {op:?} changed something");
        }
        Ok(answer?)
    }

    /// The directory of the last name. The kernel checks search permission on it before it looks at anything
    /// else.
    fn resolve(&mut self, cred: &Cred, path: &Path) -> Result<(DirRef, Name), Stop> {
        let mut names = path.names();
        let last = names.pop().expect("at least one name");
        let mut dir = DirRef::new(NodeId::ROOT);
        for name in names {
            match self.apply(cred, ModelOp::Lookup { dir, name })? {
                ModelAnswer::Entry(v) if v.kind() == FileKind::Directory => dir = DirRef::new(v.id()),
                ModelAnswer::Entry(v) if v.kind() == FileKind::Symlink => return Err(Stop::Skip),
                _ => return Err(Errno::NotDir.into()),
            }
        }
        match self.apply(
            cred,
            ModelOp::Lookup {
                dir,
                name: last.clone(),
            },
        ) {
            Err(Stop::Errno(Errno::Access)) => Err(Errno::Access.into()),
            _ => Ok((dir, last)),
        }
    }

    /// Root opens the handle; what it cannot open is left out.
    fn resolve_for_root(&mut self, path: &Path) -> Result<(DirRef, Name), Stop> {
        self.resolve(&Cred::root(), path).map_err(|_| Stop::Skip)
    }

    fn object(&self, (dir, name): &(DirRef, Name)) -> Option<(NodeId, FileKind)> {
        let id = self.model.child(dir.id, name)?;
        Some((id, self.model.attr(id).expect("alive").kind))
    }

    fn set_attr(
        &mut self,
        cred: &Cred,
        path: &Path,
        change: AttrChange,
        follows: bool,
        through_handle: bool,
    ) -> Result<ModelAnswer, Stop> {
        let place = if through_handle {
            self.resolve_for_root(path)?
        } else {
            self.resolve(cred, path)?
        };
        let found = self.object(&place);
        let id = match found {
            Some((_, FileKind::Symlink)) if follows => return Err(Stop::Skip),
            Some((_, kind)) if through_handle && kind != FileKind::Regular => return Err(Stop::Skip),
            None if through_handle => return Err(Stop::Skip),
            Some((id, _)) => id,
            None => NodeId::ROOT,
        };
        let (dir, name) = place;
        self.apply(
            cred,
            ModelOp::SetAttr {
                dir,
                name,
                id,
                change,
                through_handle,
            },
        )
    }

    /// The object a call about attributes means, if attributes can be compared.
    fn marked(&mut self, cred: &Cred, path: &Path) -> Result<(DirRef, Name, NodeId), Stop> {
        if !self.xattrs {
            return Err(Stop::Skip);
        }
        let place = self.resolve(cred, path)?;
        let id = self.object(&place).map_or(NodeId::ROOT, |(id, _)| id);
        Ok((place.0, place.1, id))
    }

    /// The kernel would open what is no file, and perhaps wait for somebody at the other end.
    fn not_special(&self, place: &(DirRef, Name)) -> Result<(), Stop> {
        match self.object(place) {
            Some((_, FileKind::Fifo | FileKind::Socket | FileKind::CharDevice)) => Err(Stop::Skip),
            _ => Ok(()),
        }
    }

    pub fn call(&mut self, cred: &Cred, call: &Call) -> Result<ModelAnswer, Stop> {
        let op = match call {
            Call::Stat(p) => {
                let (dir, name) = self.resolve(cred, p)?;
                ModelOp::Lookup { dir, name }
            }
            Call::List(p) => {
                let (dir, name) = self.resolve(cred, p)?;
                match self.apply(cred, ModelOp::Lookup { dir, name })? {
                    ModelAnswer::Entry(v) if v.kind() == FileKind::Directory => ModelOp::ReadDir {
                        dir: DirRef::new(v.id()),
                    },
                    _ => return Err(Errno::NotDir.into()),
                }
            }
            Call::ReadLink(p) => {
                let (dir, name) = self.resolve(cred, p)?;
                ModelOp::ReadLink { dir, name }
            }
            Call::Open(p, want) => {
                let (dir, name) = self.resolve(cred, p)?;
                self.not_special(&(dir, name.clone()))?;
                ModelOp::Open {
                    dir,
                    name,
                    want: *want,
                }
            }
            Call::Create(p, perm, exclusive, want) => {
                let (dir, name) = self.resolve(cred, p)?;
                if !*exclusive {
                    self.not_special(&(dir, name.clone()))?;
                }
                ModelOp::Create {
                    dir,
                    name,
                    mode: masked(*perm),
                    exclusive: *exclusive,
                    want: *want,
                }
            }
            Call::Symlink(p, target) => {
                let (dir, name) = self.resolve(cred, p)?;
                ModelOp::Symlink {
                    dir,
                    name,
                    target: target.as_bytes().to_vec(),
                }
            }
            Call::Mkdir(p, perm) => {
                let (dir, name) = self.resolve(cred, p)?;
                ModelOp::Mkdir {
                    dir,
                    name,
                    mode: masked(*perm),
                }
            }
            Call::Rmdir(p) => {
                let (dir, name) = self.resolve(cred, p)?;
                ModelOp::Rmdir { dir, name }
            }
            Call::Unlink(p) => {
                let (dir, name) = self.resolve(cred, p)?;
                ModelOp::Unlink { dir, name }
            }
            Call::Chmod(p, perm) => {
                let change = AttrChange {
                    perm: Some(*perm),
                    ..Default::default()
                };
                return self.set_attr(cred, p, change, true, false);
            }
            Call::Chown(p, uid, gid) => {
                // The kernel takes set-id bits and sets ctime even if nothing is named; the protocol cannot
                // say that.
                if uid.is_none() && gid.is_none() {
                    return Err(Stop::Skip);
                }
                let change = AttrChange {
                    uid: *uid,
                    gid: *gid,
                    ..Default::default()
                };
                return self.set_attr(cred, p, change, false, false);
            }
            Call::Truncate(p, size) => {
                let place = self.resolve(cred, p)?;
                self.not_special(&place)?;
                let change = AttrChange {
                    size: Some(*size),
                    ..Default::default()
                };
                return self.set_attr(cred, p, change, true, false);
            }
            Call::TruncateHandle(p, size) => {
                let change = AttrChange {
                    size: Some(*size),
                    ..Default::default()
                };
                return self.set_attr(cred, p, change, true, true);
            }
            Call::Write(p, bytes, size) => {
                let place = self.resolve_for_root(p)?;
                let Some((id, FileKind::Regular)) = self.object(&place) else {
                    return Err(Stop::Skip);
                };
                let (dir, name) = place;
                let kept = bytes.len().min(*size as usize);
                let content = Content::inline(&bytes.as_bytes()[..kept]);
                ModelOp::Publish {
                    dir,
                    name,
                    id,
                    content,
                    size: *size,
                    mtime: None,
                    base: None,
                }
            }
            // Not even looked up.
            Call::Utimens(_, None, None) => return Err(Stop::Skip),
            Call::Utimens(p, atime, mtime) => {
                let change = AttrChange {
                    atime: *atime,
                    mtime: *mtime,
                    ..Default::default()
                };
                return self.set_attr(cred, p, change, false, false);
            }
            Call::Mknod(p, kind, perm) => {
                let (dir, name) = self.resolve(cred, p)?;
                ModelOp::Mknod {
                    dir,
                    name,
                    kind: *kind,
                    mode: masked(*perm),
                    rdev: 0x103,
                }
            }
            Call::GetXattr(p, attr) => {
                let (dir, name, id) = self.marked(cred, p)?;
                let attr = named(attr);
                ModelOp::GetXattr { dir, name, id, attr }
            }
            Call::SetXattr(p, attr, mode) => {
                let (dir, name, id) = self.marked(cred, p)?;
                let (attr, value) = (named(attr), value(attr, *mode));
                // Some of the kernel's filesystems set ctime then, and some do not.
                let same = |(name, old): (&XattrName, &[u8])| *name == attr && *old == value;
                if *mode != XattrMode::Create && self.model.xattrs(id).any(same) {
                    return Err(Stop::Skip);
                }
                ModelOp::SetXattr {
                    dir,
                    name,
                    id,
                    attr,
                    value: Some(value),
                    mode: *mode,
                }
            }
            Call::RemoveXattr(p, attr) => {
                let (dir, name, id) = self.marked(cred, p)?;
                ModelOp::SetXattr {
                    dir,
                    name,
                    id,
                    attr: named(attr),
                    value: None,
                    mode: XattrMode::Replace,
                }
            }
            Call::SetAcl(p, kind, list) => {
                let (dir, name, id) = self.marked(cred, p)?;
                ModelOp::SetAcl {
                    dir,
                    name,
                    id,
                    kind: *kind,
                    list: list.map(|text| Acl::parse(text).expect("a list")),
                }
            }
            Call::Rename(from, to, mode) => {
                let (src, src_name) = self.resolve(cred, from)?;
                let (dst, dst_name) = self.resolve(cred, to)?;
                ModelOp::Rename {
                    src,
                    src_name,
                    dst,
                    dst_name,
                    mode: *mode,
                }
            }
            Call::Link(from, to) => {
                let place = self.resolve(cred, from)?;
                let Some((id, _)) = self.object(&place) else {
                    return Err(Errno::NotFound.into());
                };
                // What a system protects others' files from by a switch of its own (protected_hardlinks).
                if !cred.is_root() && self.model.attr(id).is_some_and(|a| a.uid != cred.uid) {
                    return Err(Stop::Skip);
                }
                let (dst, dst_name) = self.resolve(cred, to)?;
                let (src, src_name) = place;
                ModelOp::Link {
                    src,
                    src_name,
                    id,
                    dst,
                    dst_name,
                }
            }
        };
        self.apply(cred, op)
    }

    /// The whole tree, by path, as far as the kernel's can be compared.
    pub fn walk(&self) -> BTreeMap<String, (Seen, Times)> {
        let entry = |w: pando_model::Walked| {
            let a = w.view.attr;
            let (count, bytes) = match &w.view.body {
                Body::Dir(_) => (u64::from(a.nlink), Vec::new()),
                Body::File(content) => (a.size, content.read(a.size).expect("inline")),
                Body::Symlink(target) => (a.size, target.to_vec()),
                Body::Special => (a.rdev, Vec::new()),
            };
            let named = self.model.xattrs(w.view.id());
            let mut xattrs: Vec<(String, Vec<u8>)> = named
                .map(|(name, value)| (name.to_string(), value.to_vec()))
                .collect();
            let access = w.view.acls.access.map(|list| list.whole(a.perm));
            for (kind, list) in [(AclKind::Access, access), (AclKind::Default, w.view.acls.default)] {
                xattrs.extend(list.map(|list| (list_name(kind).to_owned(), list.to_xattr())));
            }
            xattrs.sort();
            let seen = Seen {
                kind: a.kind,
                perm: a.perm.bits(),
                uid: a.uid,
                gid: a.gid,
                count,
                bytes,
                xattrs,
            };
            let flat = |t: Timestamp| (t.secs, i64::from(t.nanos));
            let times = Times {
                id: a.ino.0,
                mtime: flat(a.mtime),
                ctime: flat(a.ctime),
            };
            let path = String::from_utf8(w.path).expect("ASCII");
            (path.trim_start_matches('/').to_owned(), (seen, times))
        };
        self.model.walk().into_iter().map(entry).collect()
    }
}

fn named(attr: &str) -> XattrName {
    XattrName::new(attr.as_bytes()).expect("a name")
}
