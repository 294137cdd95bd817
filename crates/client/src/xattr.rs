//! Extended attributes, access control lists and special files by path, for tools and libraries.

use crate::Client;
use crate::path::{Want, entry, exists_if_busy};
use pando_format::codec::Blob;
use pando_types::{Acl, AclKind, Cred, Errno, FileKind, Mode, XattrMode, XattrName};
use pando_wire::{Answer, EntryView, Object, Op};

impl Client {
    /// The value of an extended attribute of what a path leads to.
    pub async fn get_xattr(
        &self,
        cred: &Cred,
        path: &[u8],
        follow: bool,
        attr: &XattrName,
    ) -> Result<Vec<u8>, Errno> {
        self.persist(async || {
            let found = self.walk(cred, path, follow, Want::Entry).await?;
            let (dir, name) = self.place_of(&found).await?;
            let op = Op::GetXattr {
                object: Object::shown(dir, name, &found.entry.attr),
                attr: attr.clone(),
            };
            match self.op(cred, op).await? {
                Answer::Value(value) => Ok(value.0),
                _ => Err(Errno::Io),
            }
        })
        .await
    }

    /// The names of the extended attributes of what a path leads to, as far as the caller may see them.
    pub async fn list_xattrs(&self, cred: &Cred, path: &[u8], follow: bool) -> Result<Vec<XattrName>, Errno> {
        self.persist(async || {
            let found = self.walk(cred, path, follow, Want::Entry).await?;
            let (dir, name) = self.place_of(&found).await?;
            let op = Op::ListXattr {
                object: Object::shown(dir, name, &found.entry.attr),
            };
            match self.op(cred, op).await? {
                Answer::Names(names) => Ok(names),
                _ => Err(Errno::Io),
            }
        })
        .await
    }

    /// Sets an extended attribute of what a path leads to.
    pub async fn set_xattr(
        &self,
        cred: &Cred,
        path: &[u8],
        follow: bool,
        attr: &XattrName,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<EntryView, Errno> {
        self.persist(async || {
            let found = self.walk(cred, path, follow, Want::Entry).await?;
            let (dir, name) = self.place_of(&found).await?;
            let op = Op::SetXattr {
                object: Object::shown(dir, name, &found.entry.attr),
                attr: attr.clone(),
                value: Blob(value.to_vec()),
                mode,
            };
            entry(self.op(cred, op).await?)
        })
        .await
    }

    /// Removes an extended attribute of what a path leads to.
    pub async fn remove_xattr(
        &self,
        cred: &Cred,
        path: &[u8],
        follow: bool,
        attr: &XattrName,
    ) -> Result<EntryView, Errno> {
        self.persist(async || {
            let found = self.walk(cred, path, follow, Want::Entry).await?;
            let (dir, name) = self.place_of(&found).await?;
            let op = Op::RemoveXattr {
                object: Object::shown(dir, name, &found.entry.attr),
                attr: attr.clone(),
            };
            entry(self.op(cred, op).await?)
        })
        .await
    }

    /// Sets an access control list of what a path leads to, or removes it.
    pub async fn set_acl(
        &self,
        cred: &Cred,
        path: &[u8],
        kind: AclKind,
        list: Option<&Acl>,
    ) -> Result<EntryView, Errno> {
        self.persist(async || {
            let found = self.walk(cred, path, true, Want::Entry).await?;
            let (dir, name) = self.place_of(&found).await?;
            let op = Op::SetAcl {
                object: Object::shown(dir, name, &found.entry.attr),
                kind,
                list: list.cloned(),
            };
            entry(self.op(cred, op).await?)
        })
        .await
    }

    /// What a path leads to, with its access control lists.
    pub async fn listed(&self, cred: &Cred, path: &[u8]) -> Result<EntryView, Errno> {
        self.persist(async || Ok(self.walk(cred, path, true, Want::Entry).await?.entry))
            .await
    }

    /// Creates a FIFO, a socket's name or a device.
    pub async fn mknod(
        &self,
        cred: &Cred,
        path: &[u8],
        kind: FileKind,
        mode: impl Into<Mode>,
        rdev: u64,
    ) -> Result<EntryView, Errno> {
        let mode = mode.into();
        self.persist(async || {
            let (dir, name) = self.parent_of(cred, path).await.map_err(exists_if_busy)?;
            let op = Op::Mknod {
                dir,
                name,
                kind,
                mode,
                rdev,
            };
            entry(self.op(cred, op).await?)
        })
        .await
    }
}
