//! Paths: sequential resolution, one lookup per component, and the whole-path operations of tools and libraries.

use crate::Client;
use crate::ahead::Ahead;
use pando_format::codec::Blob;
use pando_format::{Layout, Position};
use pando_types::{Attr, AttrChange, Cred, DirStat, Errno, FileKind, NAME_MAX, Name, PATH_MAX, Perm};
use pando_wire::{Answer, DirEntry, EntryView, Op, RenameMode, Statement};
use std::collections::VecDeque;

/// Symlinks followed in one path, as Linux allows.
const SYMLOOP_MAX: u32 = 40;
/// Fresh starts of a path whose directories change while it is walked.
const RESTARTS: u32 = 16;

/// What a path leads to.
#[derive(Clone, Debug)]
pub struct Found {
    /// The directory it is in.
    pub parent: Statement,
    /// Its name there.
    pub name: Name,
    /// The entry.
    pub entry: EntryView,
}

/// A directory being listed, page by page.
pub struct Listing<'a> {
    client: &'a Client,
    cred: &'a Cred,
    dir: Statement,
    after: Position,
    plus: bool,
    end: bool,
}

enum Component {
    Dot,
    DotDot,
    Name(Name),
}

/// Splits a path. The last component of a path that ends in `/` must be a directory.
fn components(path: &[u8]) -> Result<(VecDeque<Component>, bool), Errno> {
    if path.is_empty() {
        return Err(Errno::NotFound);
    }
    if path.len() >= PATH_MAX {
        return Err(Errno::NameTooLong);
    }
    let parts = path
        .split(|b| *b == b'/')
        .filter(|p| !p.is_empty())
        .map(|part| match part {
            b"." => Ok(Component::Dot),
            b".." => Ok(Component::DotDot),
            p if p.len() > NAME_MAX => Err(Errno::NameTooLong),
            p => Name::new(p).map(Component::Name),
        });
    Ok((parts.collect::<Result<_, _>>()?, path.ends_with(b"/")))
}

/// The names up to the next `.` or `..`.
fn names(todo: &VecDeque<Component>) -> impl Iterator<Item = &Name> {
    todo.iter().map_while(|c| match c {
        Component::Name(name) => Some(name),
        Component::Dot | Component::DotDot => None,
    })
}

impl Client {
    /// What a path leads to, from the root; `..` of the root is the root. A symlink at the end is followed if `follow`.
    pub async fn resolve(&self, cred: &Cred, path: &[u8], follow: bool) -> Result<Found, Errno> {
        for _ in 0..RESTARTS {
            match self.walk(cred, path, follow).await {
                // A directory on the way was removed or replaced while we walked: what is there now?
                Err(Errno::Stale) => {}
                other => return other,
            }
        }
        Err(Errno::Stale)
    }

    async fn walk(&self, cred: &Cred, path: &[u8], follow: bool) -> Result<Found, Errno> {
        let (mut todo, slash) = components(path)?;
        let mut ahead = Ahead::new(self.config.resolution);
        let above = Statement::above_root();
        let root = Found {
            entry: self
                .next(cred, &above, &Name::root(), names(&todo), &mut ahead)
                .await?,
            parent: above,
            name: Name::root(),
        };
        // The directories from the root to where we are; `..` goes back along it.
        let mut chain = vec![root.clone()];
        let mut links = 0;
        let mut must_be_dir = slash;
        while let Some(component) = todo.pop_front() {
            let here = chain.last().unwrap_or(&root);
            let Some(dir) = here.entry.dir.clone() else {
                return Err(Errno::NotDir);
            };
            let name = match component {
                Component::Dot => continue,
                Component::DotDot => {
                    if chain.len() > 1 {
                        chain.pop();
                    }
                    continue;
                }
                Component::Name(name) => name,
            };
            let entry = self.next(cred, &dir, &name, names(&todo), &mut ahead).await?;
            let last = todo.is_empty();
            if entry.attr.kind == FileKind::Symlink && (!last || follow || must_be_dir) {
                links += 1;
                if links > SYMLOOP_MAX {
                    return Err(Errno::Loop);
                }
                let target = self.target(cred, &dir, &name, &entry).await?;
                let (more, ends_in_slash) = components(&target)?;
                must_be_dir |= last && ends_in_slash;
                if target.first() == Some(&b'/') {
                    chain.truncate(1);
                }
                for component in more.into_iter().rev() {
                    todo.push_front(component);
                }
                continue;
            }
            chain.push(Found {
                parent: dir,
                name,
                entry,
            });
            if last && must_be_dir && chain.last().is_some_and(|f| f.entry.dir.is_none()) {
                return Err(Errno::NotDir);
            }
        }
        Ok(chain.pop().unwrap_or(root))
    }

    async fn target(
        &self,
        cred: &Cred,
        dir: &Statement,
        name: &Name,
        link: &EntryView,
    ) -> Result<Vec<u8>, Errno> {
        if let Layout::Target(t) = &link.layout {
            return Ok(t.0.clone());
        }
        match self
            .op(
                cred,
                Op::ReadLink {
                    dir: dir.clone(),
                    name: name.clone(),
                },
            )
            .await?
        {
            Answer::Target(t) => Ok(t.0),
            _ => Err(Errno::Io),
        }
    }

    /// The directory and last name of a path, for operations that make, remove or rename it.
    pub async fn parent_of(&self, cred: &Cred, path: &[u8]) -> Result<(Statement, Name), Errno> {
        let trimmed = path
            .iter()
            .rposition(|b| *b != b'/')
            .map_or(&path[..0], |end| &path[..=end]);
        let cut = trimmed.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
        let (dir, last) = trimmed.split_at(cut);
        // `/`, `.` and `..` are nobody's last name.
        if last.is_empty() || last == b"." || last == b".." {
            return Err(if path.is_empty() {
                Errno::NotFound
            } else {
                Errno::Busy
            });
        }
        let name = Name::new(last)?;
        let found = self
            .resolve(cred, if dir.is_empty() { b"/" } else { dir }, true)
            .await?;
        Ok((found.entry.dir.ok_or(Errno::NotDir)?, name))
    }

    /// One component.
    pub async fn lookup(&self, cred: &Cred, dir: &Statement, name: &Name) -> Result<EntryView, Errno> {
        entry(
            self.op(
                cred,
                Op::Lookup {
                    dir: dir.clone(),
                    name: name.clone(),
                },
            )
            .await?,
        )
    }

    /// The content half of a directory's attributes.
    pub async fn dir_stat(&self, cred: &Cred, dir: &Statement) -> Result<DirStat, Errno> {
        match self.op(cred, Op::DirStat { dir: dir.clone() }).await? {
            Answer::DirStat(s) => Ok(s),
            _ => Err(Errno::Io),
        }
    }

    /// Whole attributes of an entry: for a directory both halves, joined.
    pub async fn attr(&self, cred: &Cred, entry: &EntryView) -> Result<Attr, Errno> {
        let Some(dir) = &entry.dir else {
            return Ok(entry.attr);
        };
        let content = self.dir_stat(cred, dir).await?;
        Ok(Attr {
            nlink: u32::try_from(content.subdirs.saturating_add(2)).unwrap_or(u32::MAX),
            size: content.entries,
            atime: content.atime,
            mtime: content.mtime,
            ctime: entry.attr.ctime.max(content.ctime),
            ..entry.attr
        })
    }

    /// `stat` or `lstat`.
    pub async fn stat(&self, cred: &Cred, path: &[u8], follow: bool) -> Result<Attr, Errno> {
        for _ in 0..RESTARTS {
            let found = self.resolve(cred, path, follow).await?;
            match self.attr(cred, &found.entry).await {
                Err(Errno::Stale) => {}
                other => return other,
            }
        }
        Err(Errno::Stale)
    }

    /// Creates a directory.
    pub async fn mkdir(&self, cred: &Cred, path: &[u8], perm: Perm) -> Result<EntryView, Errno> {
        let (dir, name) = self.parent_of(cred, path).await.map_err(exists_if_busy)?;
        entry(self.op(cred, Op::Mkdir { dir, name, perm }).await?)
    }

    /// Creates a directory and those above it that are missing.
    pub async fn mkdir_all(&self, cred: &Cred, path: &[u8], perm: Perm) -> Result<(), Errno> {
        let ends = path
            .iter()
            .enumerate()
            .filter(|(i, b)| **b == b'/' && *i > 0)
            .map(|(i, _)| i);
        for end in ends.chain([path.len()]) {
            match self.mkdir(cred, &path[..end], perm).await {
                Ok(_) | Err(Errno::Exists) => {}
                Err(e) => return Err(e),
            }
        }
        if self.resolve(cred, path, true).await?.entry.dir.is_some() {
            Ok(())
        } else {
            Err(Errno::Exists)
        }
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, cred: &Cred, path: &[u8]) -> Result<(), Errno> {
        let (dir, name) = self.parent_of(cred, path).await?;
        self.op(cred, Op::Rmdir { dir, name }).await.map(|_| ())
    }

    /// Removes any other name.
    pub async fn unlink(&self, cred: &Cred, path: &[u8]) -> Result<(), Errno> {
        let (dir, name) = self.parent_of(cred, path).await?;
        self.op(
            cred,
            Op::Unlink {
                dir,
                name,
                held: false,
            },
        )
        .await
        .map(|_| ())
    }

    /// Creates a symbolic link.
    pub async fn symlink(&self, cred: &Cred, target: &[u8], path: &[u8]) -> Result<EntryView, Errno> {
        let (dir, name) = self.parent_of(cred, path).await.map_err(exists_if_busy)?;
        entry(
            self.op(
                cred,
                Op::Symlink {
                    dir,
                    name,
                    target: Blob(target.to_vec()),
                },
            )
            .await?,
        )
    }

    /// Where a symbolic link leads.
    pub async fn readlink(&self, cred: &Cred, path: &[u8]) -> Result<Vec<u8>, Errno> {
        let found = self.resolve(cred, path, false).await?;
        if found.entry.attr.kind != FileKind::Symlink {
            return Err(Errno::Invalid);
        }
        self.target(cred, &found.parent, &found.name, &found.entry).await
    }

    /// Renames.
    pub async fn rename(&self, cred: &Cred, from: &[u8], to: &[u8], mode: RenameMode) -> Result<(), Errno> {
        let (src, src_name) = self.parent_of(cred, from).await?;
        let (dst, dst_name) = self.parent_of(cred, to).await?;
        self.op(
            cred,
            Op::Rename {
                src,
                src_name,
                dst,
                dst_name,
                mode,
                held: false,
            },
        )
        .await
        .map(|_| ())
    }

    /// Changes attributes of what a path leads to.
    pub async fn set_attr(
        &self,
        cred: &Cred,
        path: &[u8],
        follow: bool,
        change: AttrChange,
    ) -> Result<EntryView, Errno> {
        let found = self.resolve(cred, path, follow).await?;
        let attr = found.entry.attr;
        let op = Op::SetAttr {
            dir: found.parent,
            name: found.name,
            ino: attr.ino,
            generation: attr.generation,
            change,
            handle: None,
        };
        entry(self.op(cred, op).await?)
    }

    /// Begins to list a directory; `plus` with whole entries.
    pub fn list<'a>(&'a self, cred: &'a Cred, dir: Statement, plus: bool) -> Listing<'a> {
        Listing {
            client: self,
            cred,
            dir,
            after: Position::START,
            plus,
            end: false,
        }
    }
}

impl Listing<'_> {
    /// The next page; empty at the end.
    pub async fn next_page(&mut self) -> Result<Vec<DirEntry>, Errno> {
        while !self.end {
            let op = Op::ReadDir {
                dir: self.dir.clone(),
                after: self.after,
                limit: 1024,
                plus: self.plus,
            };
            let Answer::Entries { entries, end } = self.client.op(self.cred, op).await? else {
                return Err(Errno::Io);
            };
            self.end = end;
            if let Some(last) = entries.last() {
                self.after = last.position;
                return Ok(entries);
            }
        }
        Ok(Vec::new())
    }
}

/// What exists already has no last name to create: `mkdir /` is EEXIST.
fn exists_if_busy(e: Errno) -> Errno {
    if e == Errno::Busy { Errno::Exists } else { e }
}

fn entry(answer: Answer) -> Result<EntryView, Errno> {
    match answer {
        Answer::Entry(entry) => Ok(entry),
        _ => Err(Errno::Io),
    }
}
