//! Extended attributes, as the kernel asks for them.

use crate::core::{Core, entry};
use crate::driver::{Cluster, Driver};
use pando_client::file::{Ops, Place};
use pando_format::codec::Blob;
use pando_types::{Acl, AclKind, AttrChange, Cred, Errno, FileKind, Ino, XattrMode, XattrName};
use pando_wire::{Answer, EntryView, Object, Op, Outcome};
use std::time::{Duration, Instant};

const LISTS: [(AclKind, &[u8]); 2] = [
    (AclKind::Access, b"system.posix_acl_access"),
    (AclKind::Default, b"system.posix_acl_default"),
];

/// The access control list that an attribute stands for.
fn list_of(attr: &[u8]) -> Option<AclKind> {
    LISTS
        .iter()
        .find(|(_, name)| *name == attr)
        .map(|(kind, _)| *kind)
}

impl<C: Cluster> Core<C> {
    pub fn get_xattr(&self, d: &C::Driver, cred: &Cred, ino: Ino, attr: &[u8]) -> Result<Vec<u8>, Errno> {
        if let Some(kind) = list_of(attr) {
            let list = self.list(d, ino, kind)?.ok_or(Errno::NoData)?;
            return Ok(list.to_xattr());
        }
        let attr = XattrName::new(attr)?;
        // The kernel asks for this one before every write. Who changes a file's bytes takes it away at the
        // server, whatever is believed here.
        let capability = attr == XattrName::capability();
        if capability && self.nodes().incapable(ino, self.settings.timeout) || self.is_removed(ino) {
            return Err(Errno::NoData);
        }
        let asked = Instant::now();
        let answer = self.at_object(d, cred, ino, |object| Op::GetXattr {
            object,
            attr: attr.clone(),
        });
        match answer {
            Ok(Answer::Value(value)) => Ok(value.0),
            Ok(_) => Err(Errno::Io),
            Err(Errno::NoData) if capability => {
                self.nodes().has_no_capability(ino, asked);
                Err(Errno::NoData)
            }
            Err(e) => Err(e),
        }
    }

    pub fn list_xattrs(&self, d: &C::Driver, cred: &Cred, ino: Ino) -> Result<Vec<u8>, Errno> {
        if self.is_removed(ino) {
            return Ok(Vec::new());
        }
        let answer = self.at_object(d, cred, ino, |object| Op::ListXattr { object })?;
        let Answer::Names(names) = answer else {
            return Err(Errno::Io);
        };
        let mut all: Vec<u8> = names
            .iter()
            .flat_map(|n| n.as_bytes().iter().chain(&[0]))
            .copied()
            .collect();
        for (kind, name) in LISTS {
            if self.list(d, ino, kind).is_ok_and(|list| list.is_some()) {
                all.extend(name.iter().chain(&[0]));
            }
        }
        Ok(all)
    }

    pub fn set_xattr(
        &self,
        d: &C::Driver,
        cred: &Cred,
        ino: Ino,
        (attr, value): (&[u8], &[u8]),
        mode: XattrMode,
    ) -> Result<(), Errno> {
        if let Some(kind) = list_of(attr) {
            let list = Acl::from_xattr(value)?;
            return self.set_list(d, cred, ino, kind, Some(list));
        }
        let attr = XattrName::new(attr)?;
        self.change_xattr(d, cred, ino, |object| Op::SetXattr {
            object,
            attr: attr.clone(),
            value: Blob(value.to_vec()),
            mode,
        })
    }

    pub fn remove_xattr(&self, d: &C::Driver, cred: &Cred, ino: Ino, attr: &[u8]) -> Result<(), Errno> {
        if let Some(kind) = list_of(attr) {
            return self.set_list(d, cred, ino, kind, None);
        }
        let attr = XattrName::new(attr)?;
        self.change_xattr(d, cred, ino, |object| Op::RemoveXattr {
            object,
            attr: attr.clone(),
        })
    }

    /// An access control list, as the kernel may believe it. It asks whenever it checks somebody else's
    /// permission, so what was shown with the attributes is good as long as these are.
    fn list(&self, d: &C::Driver, ino: Ino, kind: AclKind) -> Result<Option<Acl>, Errno> {
        if self.nodes().get(ino).is_some_and(|n| n.kind == FileKind::Symlink) {
            return Err(Errno::Unsupported);
        }
        let known = self.nodes().acls(ino, self.settings.timeout);
        let (perm, acls) = match known {
            Some(known) => known,
            None => {
                self.getattr(d, ino)?;
                self.nodes().acls(ino, Duration::MAX).ok_or(Errno::Stale)?
            }
        };
        Ok(match kind {
            AclKind::Access => acls.access.map(|list| list.whole(perm)),
            AclKind::Default => acls.default,
        })
    }

    fn set_list(
        &self,
        d: &C::Driver,
        cred: &Cred,
        ino: Ino,
        kind: AclKind,
        list: Option<Acl>,
    ) -> Result<(), Errno> {
        // A list without anybody in it is permission bits, which may wait for the bytes of a new file.
        // Not in one with what follows: that takes the lock of the nodes again.
        let slot = self.nodes().file(ino);
        if let (AclKind::Access, Some(list)) = (kind, &list)
            && let (perm, None) = list.split()
            && let Some(slot) = slot
        {
            let change = AttrChange {
                perm: Some(perm),
                ..AttrChange::default()
            };
            if self
                .put_off(
                    d.ops().inline_limit(),
                    cred,
                    ino,
                    &slot,
                    &mut slot.write(),
                    &change,
                )
                .is_some()
            {
                return Ok(());
            }
        }
        self.change_xattr(d, cred, ino, |object| Op::SetAcl {
            object,
            kind,
            list: list.clone(),
        })
    }

    fn change_xattr(
        &self,
        d: &C::Driver,
        cred: &Cred,
        ino: Ino,
        op: impl Fn(Object) -> Op,
    ) -> Result<(), Errno> {
        let slot = self.nodes().file(ino);
        let mut state = slot.as_ref().map(|s| s.write());
        let mut open = state.as_mut().and_then(|s| s.open.as_mut());
        if let Some(f) = &mut open {
            if f.is_removed() {
                // Nobody can come to it but by the descriptor.
                return Err(Errno::Unsupported);
            }
            // A later publish would take a capability that is set now.
            d.run(f.flush(d.ops(), d.blocks(), cred))?;
        }
        let view: EntryView = entry(self.at_object(d, cred, ino, op)?)?;
        if let Some(f) = open {
            f.learn(&view);
        }
        drop(state);
        self.nodes().learn(ino, &view, Instant::now());
        Ok(())
    }

    /// Does something with an object where it is.
    fn at_object(&self, d: &C::Driver, cred: &Cred, ino: Ino, op: impl Fn(Object) -> Op) -> Outcome {
        let (number, generation) = {
            let nodes = self.nodes();
            let node = nodes.get(ino).ok_or(Errno::Stale)?;
            (node.attr.ino, node.generation)
        };
        self.at_name(d, ino, |Place { dir, name }| {
            let object = Object {
                dir,
                name,
                ino: number,
                generation,
            };
            self.op(d, cred, op(object))
        })
    }

    /// Whether it is a file that lives on as long as it is open.
    fn is_removed(&self, ino: Ino) -> bool {
        let slot = self.nodes().file(ino);
        slot.is_some_and(|s| s.read().open.as_ref().is_some_and(|f| f.is_removed()))
    }
}
