//! Access control lists in dumps: the extended attributes that Linux shows them as.

use crate::fs::{Fs, Why};
use pando_client::file::Place;
use pando_dump::Entry;
use pando_types::{Acl, AclKind, Errno, FileKind};
use pando_wire::{EntryView, Object, Op};

const LISTS: [(AclKind, &[u8]); 2] = [
    (AclKind::Access, b"system.posix_acl_access"),
    (AclKind::Default, b"system.posix_acl_default"),
];

/// Whether this attribute is a list.
pub fn is_list(name: &[u8]) -> bool {
    LISTS.iter().any(|(_, list)| *list == name)
}

fn list(view: &EntryView, kind: AclKind) -> Option<Acl> {
    let acls = view.acls();
    match kind {
        AclKind::Access => acls.access.map(|list| list.whole(view.attr.perm)),
        AclKind::Default => acls.default,
    }
}

/// The lists of an object as attributes.
pub fn attributes(view: &EntryView) -> Vec<(Vec<u8>, Vec<u8>)> {
    let some = LISTS.iter().filter_map(|(kind, name)| {
        let list = list(view, *kind)?;
        Some((name.to_vec(), list.to_xattr()))
    });
    some.collect()
}

/// Gives an object the lists that its entry has, and takes those away that it has inherited.
pub async fn bring(fs: &Fs, place: &Place, entry: &Entry) -> Result<(), Why> {
    let has = entry.xattrs.iter().any(|(name, _)| is_list(name));
    if entry.kind == FileKind::Symlink || !has && place.dir.acls.default.is_none() {
        return Ok(());
    }
    let view = fs.client().lookup(&fs.cred, &place.dir, &place.name).await?;
    for (kind, name) in LISTS {
        let wanted = entry.xattrs.iter().find(|(n, _)| n == name);
        let wanted = wanted.map(|(_, value)| Acl::from_xattr(value)).transpose();
        let wanted = wanted.map_err(|e| Why::Text(format!("its access control list is none: {e}")))?;
        if wanted == list(&view, kind) {
            continue;
        }
        let op = Op::SetAcl {
            object: Object::shown(place.dir.clone(), place.name.clone(), &view.attr),
            kind,
            list: wanted,
        };
        let set = fs.client().op(&fs.cred, op).await;
        set.map_err(|e: Errno| Why::Text(format!("its access control list is not kept: {e}")))?;
    }
    Ok(())
}
