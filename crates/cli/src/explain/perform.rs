//! Doing what is explained.

use super::{ExplainArgs, Operation, Step};
use crate::connect::Connection;
use crate::fs::{absolute, data_sync, octal, usual};
use anyhow::{Context, Result, bail};
use pando_client::Client;
use pando_client::file::{self, OpenFile, Place};
use pando_env::Env;
use pando_types::{Access, Attr, AttrChange, Cred, Errno, Mode, Perm, TimeChange};
use pando_wire::RenameMode;
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// An operation with all it needs to know.
pub(super) struct Plan {
    cred: Cred,
    op: Operation,
    warm: bool,
    /// The second path, or where a link leads.
    to: Vec<u8>,
    /// What attributes are set to; what is there already, if nobody says.
    change: RefCell<AttrChange>,
}

/// `1000`, `1000:100`, `:100`.
fn owners(text: &str) -> Result<AttrChange> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let number = |text: &str| match text {
        "" => Ok(None),
        text => text
            .parse()
            .map(Some)
            .context("owners are numbers here, UID[:GID]"),
    };
    Ok(AttrChange {
        uid: number(user)?,
        gid: number(group)?,
        ..AttrChange::default()
    })
}

impl Plan {
    pub fn new(args: &ExplainArgs, cred: Cred) -> Result<Plan> {
        use Operation::*;
        let text = args.to.as_deref().map(OsStr::to_string_lossy);
        let change = match (args.op, text) {
            (Chmod, Some(bits)) => AttrChange {
                perm: Some(Perm::new(octal(&bits).map_err(anyhow::Error::msg)?)),
                ..AttrChange::default()
            },
            (Chown, Some(text)) => owners(&text)?,
            (Truncate, Some(text)) => AttrChange {
                size: Some(text.parse().context("a size is a number of bytes")?),
                ..AttrChange::default()
            },
            (Touch, None) => AttrChange {
                atime: Some(TimeChange::Now),
                mtime: Some(TimeChange::Now),
                ..AttrChange::default()
            },
            (Rename, None) => bail!("rename needs a second path: where to"),
            (Symlink, None) => bail!("symlink needs to be told where it leads"),
            (Rename | Symlink | Chmod | Chown | Truncate, _) | (_, None) => AttrChange::default(),
            (_, Some(text)) => bail!("{} takes one path; what is \"{text}\" for?", args.op.name()),
        };
        let mut plan = Plan {
            cred,
            op: args.op,
            warm: args.warm,
            to: Vec::new(),
            change: RefCell::new(change),
        };
        plan.to = args.to.as_ref().map(|to| plan.shown(to)).unwrap_or_default();
        Ok(plan)
    }

    /// The second argument, as it is shown and used.
    pub fn shown(&self, to: &OsString) -> Vec<u8> {
        match self.op {
            Operation::Rename => absolute(to),
            _ => to.as_bytes().to_vec(),
        }
    }

    /// Looks at what is to be left as it is, and at the way if that is to be known.
    pub async fn prepare(&self, conn: &Connection, path: &[u8]) -> Result<(), Errno> {
        use Operation::*;
        let (client, cred) = (&conn.client, &self.cred);
        let nothing = *self.change.borrow() == AttrChange::default();
        if matches!(self.op, Chmod | Chown | Truncate) && nothing {
            let attr = client.stat(cred, path, true).await?;
            let mut change = self.change.borrow_mut();
            match self.op {
                Chmod => change.perm = Some(attr.perm),
                Chown => (change.uid, change.gid) = (Some(attr.uid), Some(attr.gid)),
                _ => change.size = Some(attr.size),
            }
        }
        client.forget_all();
        if !self.warm {
            return Ok(());
        }
        match self.op {
            Readdir => client.dir(cred, path).await.map(|_| ()),
            Rename => {
                client.parent_of(cred, path).await?;
                client.parent_of(cred, &self.to).await.map(|_| ())
            }
            _ if path.iter().all(|b| *b == b'/') => client.dir(cred, path).await.map(|_| ()),
            _ => client.parent_of(cred, path).await.map(|_| ()),
        }
    }

    /// Does it, each step apart.
    pub async fn perform(&self, conn: &Connection, path: &[u8]) -> (Vec<Step>, Result<(), Errno>) {
        let mut steps = Vec::new();
        let outcome = self.steps(conn, path, &mut steps).await;
        (steps, outcome)
    }

    async fn steps(&self, conn: &Connection, path: &[u8], steps: &mut Vec<Step>) -> Result<(), Errno> {
        let (client, cred) = (&*conn.client, &self.cred);
        match self.op {
            Operation::Close => return self.close(conn, path, steps).await,
            Operation::Truncate => return self.truncate(conn, path, steps).await,
            _ => {}
        }
        let done = async {
            match self.op {
                Operation::Stat => drop(client.stat(cred, path, true).await?),
                Operation::Statdir => drop(self.stat_dir(client, path).await?),
                Operation::Readdir => self.list(client, path).await?,
                Operation::Readlink => drop(client.readlink(cred, path).await?),
                Operation::Open => drop(self.open(conn, path, Access::READ).await?),
                Operation::Chmod | Operation::Chown | Operation::Touch => {
                    let change = *self.change.borrow();
                    drop(client.set_attr(cred, path, true, change).await?);
                }
                Operation::Create => self.create(client, path).await?,
                Operation::Mkdir => drop(client.mkdir(cred, path, made(0o777)).await?),
                Operation::Symlink => drop(client.symlink(cred, &self.to, path).await?),
                Operation::Rename => client.rename(cred, path, &self.to, RenameMode::Replace).await?,
                Operation::Unlink => client.unlink(cred, path).await?,
                Operation::Rmdir => client.rmdir(cred, path).await?,
                // Above: they have steps.
                Operation::Close | Operation::Truncate => {}
            }
            Ok(())
        };
        step(client, steps, self.op.name(), done).await
    }

    async fn stat_dir(&self, client: &Client, path: &[u8]) -> Result<Attr, Errno> {
        client
            .persist(async || {
                let found = client.resolve(&self.cred, path, true).await?;
                if found.entry.dir.is_none() {
                    return Err(Errno::NotDir);
                }
                client.attr(&self.cred, &found.entry).await
            })
            .await
    }

    async fn list(&self, client: &Client, path: &[u8]) -> Result<(), Errno> {
        let first = async || {
            let dir = client.dir(&self.cred, path).await?;
            let mut listing = client.list(&self.cred, dir, true);
            let page = listing.next_page().await?;
            Ok((listing, page))
        };
        let (mut listing, mut page) = client.persist(first).await?;
        while !page.is_empty() {
            page = listing.next_page().await?;
        }
        Ok(())
    }

    async fn create(&self, client: &Client, path: &[u8]) -> Result<(), Errno> {
        let create = async || {
            let (dir, name) = client.parent_of(&self.cred, path).await?;
            let place = Place { dir, name };
            file::create(client, &self.cred, &place, made(0o666), true, Access::WRITE).await
        };
        client.persist(create).await.map(|_| ())
    }

    async fn open(&self, conn: &Connection, path: &[u8], want: Access) -> Result<OpenFile, Errno> {
        let client = &*conn.client;
        let open = async || {
            let (dir, name) = client.parent_of(&self.cred, path).await?;
            let place = Place { dir, name };
            let opened = file::open(client, &self.cred, &place, want).await?;
            Ok((place, opened))
        };
        let (place, opened) = client.persist(open).await?;
        OpenFile::new(place, opened, data_sync(&conn.file))
    }

    async fn close(&self, conn: &Connection, path: &[u8], steps: &mut Vec<Step>) -> Result<(), Errno> {
        let (client, blocks, cred) = (&*conn.client, &*conn.blocks, &self.cred);
        let want = Access(Access::READ.0 | Access::WRITE.0);
        let mut file = step(client, steps, "open", self.open(conn, path, want)).await?;
        let first = file.read(blocks, 0, 1).await?;
        let now = conn.reactor.now();
        let write = file.write(client, blocks, cred, 0, &first, now);
        step(client, steps, "write", write).await?;
        step(client, steps, "close", file.close(client, blocks, cred)).await
    }

    async fn truncate(&self, conn: &Connection, path: &[u8], steps: &mut Vec<Step>) -> Result<(), Errno> {
        let (client, blocks, cred) = (&*conn.client, &*conn.blocks, &self.cred);
        let size = self.change.borrow().size.unwrap_or(0);
        let mut file = step(client, steps, "open", self.open(conn, path, Access::WRITE)).await?;
        let now = conn.reactor.now();
        let truncate = file.truncate(client, blocks, cred, size, now, true);
        step(client, steps, "truncate", truncate).await?;
        step(client, steps, "close", file.close(client, blocks, cred)).await
    }
}

fn made(bits: u16) -> Mode {
    usual(bits)
}

/// Does a part of it, and notes what that took.
async fn step<T>(
    client: &Client,
    steps: &mut Vec<Step>,
    name: impl Into<String>,
    part: impl Future<Output = Result<T, Errno>>,
) -> Result<T, Errno> {
    let (done, explained) = client.explain(part).await;
    steps.push(Step {
        name: name.into(),
        explained: explained.unwrap_or_default(),
    });
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_numbers() {
        let of = |text| owners(text).map(|c| (c.uid, c.gid)).ok();
        assert_eq!(of("7"), Some((Some(7), None)));
        assert_eq!(of("7:8"), Some((Some(7), Some(8))));
        assert_eq!(of(":8"), Some((None, Some(8))));
        assert_eq!(of("me"), None);
    }
}
