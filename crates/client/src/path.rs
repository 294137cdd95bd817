//! Paths: from the root, or the last directory that is known, to what they lead to; and the whole-path
//! operations of tools and libraries.

use crate::Client;
use crate::ahead::Ahead;
use crate::components::{Component, components};
use crate::whole::whole;
use pando_format::codec::Blob;
use pando_format::{Layout, Position};
use pando_types::{Attr, AttrChange, Cred, DirId, DirStat, Errno, FileKind, Mode, Name};
use pando_wire::{Answer, DirEntry, EntryView, Fate, Object, Op, RenameMode, Scope, Statement, UNLINK_MAX};
use std::collections::{BTreeMap, VecDeque};

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

/// What a walk is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// The entry as it is now.
    Entry,
    /// A directory to do something in.
    Dir,
}

/// The names up to the next `.` or `..`.
fn names(todo: &VecDeque<Component>) -> impl Iterator<Item = &Name> {
    todo.iter().map_while(|c| match c {
        Component::Name(name) => Some(name),
        Component::Dot | Component::DotDot => None,
    })
}

impl Client {
    /// What a path leads to, from the root; `..` of the root is the root. A symlink at the end is followed if
    /// `follow`.
    pub async fn resolve(&self, cred: &Cred, path: &[u8], follow: bool) -> Result<Found, Errno> {
        self.persist(async || self.walk(cred, path, follow, Want::Entry).await)
            .await
    }

    /// The directory a path leads to: not looked at again if it is known. Whoever does something in it hears
    /// from its server if what is known is not true any more ([`Errno::Stale`]).
    pub async fn dir(&self, cred: &Cred, path: &[u8]) -> Result<Statement, Errno> {
        let found = self.walk(cred, path, true, Want::Dir).await?;
        found.entry.dir.ok_or(Errno::NotDir)
    }

    /// Does something by path, again and again while directories on the way are removed or replaced
    /// meanwhile, or turn out to have been: what is there now?
    pub async fn persist<T>(&self, mut f: impl AsyncFnMut() -> Result<T, Errno>) -> Result<T, Errno> {
        for _ in 0..RESTARTS {
            match f().await {
                Err(Errno::Stale) => {}
                other => return other,
            }
        }
        Err(Errno::Stale)
    }

    pub(crate) async fn walk(
        &self,
        cred: &Cred,
        path: &[u8],
        follow: bool,
        want: Want,
    ) -> Result<Found, Errno> {
        let (mut todo, slash) = components(path)?;
        let mut ahead = Ahead::new(self.config.resolution);
        let above = Statement::above_root();
        let known = |last: bool| !last || want == Want::Dir;
        let root = Found {
            entry: self
                .next(
                    cred,
                    (&above, &Name::root()),
                    names(&todo),
                    &mut ahead,
                    known(todo.is_empty()),
                )
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
            let last = todo.is_empty();
            let entry = self
                .next(cred, (&dir, &name), names(&todo), &mut ahead, known(last))
                .await?;
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

    /// The directory and last name of a path, for operations that make, remove or rename it. The directory
    /// may be one that was known, and not be true any more: then whatever is done in it is [`Errno::Stale`].
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
        let dir = self.dir(cred, if dir.is_empty() { b"/" } else { dir }).await?;
        Ok((dir, name))
    }

    /// The directory as a handle: for who works in it for long, whatever becomes of the way to it.
    pub async fn hold(&self, dir: &Statement) -> Result<Statement, Errno> {
        if dir.id == DirId::ABOVE_ROOT || dir.scope == Scope::Handle {
            return Ok(dir.clone());
        }
        self.reopen(dir).await?.dir.ok_or(Errno::NotDir)
    }

    /// What a path leads to, from where its directory is held.
    pub async fn hold_path(&self, cred: &Cred, path: &[u8], follow: bool) -> Result<Found, Errno> {
        self.persist(async || {
            let mut found = self.walk(cred, path, follow, Want::Entry).await?;
            found.parent = self.hold(&found.parent).await?;
            if let Some(dir) = &mut found.entry.dir {
                *dir = self.hold(dir).await?;
            }
            Ok(found)
        })
        .await
    }

    /// The directory and last name of a path, the directory held.
    pub async fn hold_parent(&self, cred: &Cred, path: &[u8]) -> Result<(Statement, Name), Errno> {
        self.persist(async || {
            let (dir, name) = self.parent_of(cred, path).await?;
            Ok((self.hold(&dir).await?, name))
        })
        .await
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
        self.persist(async || {
            let found = self.walk(cred, path, follow, Want::Entry).await?;
            self.attr(cred, &found.entry).await
        })
        .await
    }

    /// Creates a directory.
    pub async fn mkdir(&self, cred: &Cred, path: &[u8], mode: impl Into<Mode>) -> Result<EntryView, Errno> {
        let mode = mode.into();
        self.persist(async || {
            let (dir, name) = self.parent_of(cred, path).await.map_err(exists_if_busy)?;
            entry(self.op(cred, Op::Mkdir { dir, name, mode }).await?)
        })
        .await
    }

    /// Creates a directory and those above it that are missing.
    pub async fn mkdir_all(&self, cred: &Cred, path: &[u8], mode: impl Into<Mode>) -> Result<(), Errno> {
        let mode = mode.into();
        let ends = path
            .iter()
            .enumerate()
            .filter(|(i, b)| **b == b'/' && *i > 0)
            .map(|(i, _)| i);
        for end in ends.chain([path.len()]) {
            match self.mkdir(cred, &path[..end], mode).await {
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
        self.persist(async || {
            let (dir, name) = self.parent_of(cred, path).await?;
            self.op(cred, Op::Rmdir { dir, name }).await.map(|_| ())
        })
        .await
    }

    /// Removes any other name.
    pub async fn unlink(&self, cred: &Cred, path: &[u8]) -> Result<(), Errno> {
        self.persist(async || {
            let (dir, name) = self.parent_of(cred, path).await?;
            let held = false;
            self.op(cred, Op::Unlink { dir, name, held }).await.map(|_| ())
        })
        .await
    }

    /// Removes names of one directory that are not directories', many in one request. What became of each, in
    /// the order given.
    pub async fn unlink_many(&self, cred: &Cred, dir: &Statement, names: &[Name]) -> Vec<Result<(), Errno>> {
        let mut together: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (at, name) in names.iter().enumerate() {
            together.entry(self.group_of(dir, name)).or_default().push(at);
        }
        let mut all = vec![Err(Errno::Io); names.len()];
        for places in together.values().flat_map(|places| places.chunks(UNLINK_MAX)) {
            let some: Vec<Name> = places.iter().filter_map(|at| names.get(*at).cloned()).collect();
            let op = Op::UnlinkMany {
                dir: dir.clone(),
                names: some.clone(),
            };
            let fates = match self.op(cred, op).await {
                Ok(Answer::Fates(fates)) if fates.len() == some.len() => fates,
                Ok(_) => vec![Fate::Not(Errno::Io); some.len()],
                Err(errno) => vec![Fate::Not(errno); some.len()],
            };
            for ((at, name), fate) in places.iter().zip(&some).zip(fates) {
                all[*at] = match fate {
                    Fate::Gone => Ok(()),
                    Fate::Not(errno) => Err(errno),
                    Fate::Alone => {
                        let op = Op::Unlink {
                            dir: dir.clone(),
                            name: name.clone(),
                            held: false,
                        };
                        self.op(cred, op).await.map(|_| ())
                    }
                };
            }
        }
        all
    }

    /// Creates a symbolic link.
    pub async fn symlink(&self, cred: &Cred, target: &[u8], path: &[u8]) -> Result<EntryView, Errno> {
        self.persist(async || {
            let (dir, name) = self.parent_of(cred, path).await.map_err(exists_if_busy)?;
            let target = Blob(target.to_vec());
            entry(self.op(cred, Op::Symlink { dir, name, target }).await?)
        })
        .await
    }

    /// Gives what is at `from` another name, `to`. A symlink at `from` is not followed (as `link(2)`), a
    /// directory is EPERM.
    pub async fn link(&self, cred: &Cred, from: &[u8], to: &[u8]) -> Result<EntryView, Errno> {
        self.persist(async || {
            let found = self.walk(cred, from, false, Want::Entry).await?;
            let (dst, dst_name) = self.parent_of(cred, to).await.map_err(exists_if_busy)?;
            let link = Op::Link {
                object: Object::shown(found.parent, found.name, &found.entry.attr),
                dst,
                dst_name,
            };
            entry(self.op(cred, link).await?)
        })
        .await
    }

    /// Where a symbolic link leads.
    pub async fn readlink(&self, cred: &Cred, path: &[u8]) -> Result<Vec<u8>, Errno> {
        self.persist(async || {
            let found = self.walk(cred, path, false, Want::Entry).await?;
            if found.entry.attr.kind != FileKind::Symlink {
                return Err(Errno::Invalid);
            }
            self.target(cred, &found.parent, &found.name, &found.entry).await
        })
        .await
    }

    /// Renames.
    pub async fn rename(&self, cred: &Cred, from: &[u8], to: &[u8], mode: RenameMode) -> Result<(), Errno> {
        self.persist(async || {
            let (src, src_name) = self.parent_of(cred, from).await?;
            let (dst, dst_name) = self.parent_of(cred, to).await?;
            let rename = Op::Rename {
                src,
                src_name,
                dst,
                dst_name,
                mode,
                held: false,
            };
            self.op(cred, rename).await.map(|_| ())
        })
        .await
    }

    /// Where changes of what a path has led to are asked for. Who has a subtree as root does not know its
    /// name: of that it is said by itself.
    pub async fn place_of(&self, found: &Found) -> Result<(Statement, Name), Errno> {
        let dir = match &found.entry.dir {
            Some(root) if found.parent.id == DirId::ABOVE_ROOT && root.id != DirId::ROOT => {
                self.hold(root).await?
            }
            _ => found.parent.clone(),
        };
        Ok((dir, found.name.clone()))
    }

    /// Changes attributes of what a path leads to.
    pub async fn set_attr(
        &self,
        cred: &Cred,
        path: &[u8],
        follow: bool,
        change: AttrChange,
    ) -> Result<EntryView, Errno> {
        self.persist(async || {
            let found = self.walk(cred, path, follow, Want::Entry).await?;
            let attr = found.entry.attr;
            let (dir, name) = self.place_of(&found).await?;
            let op = Op::SetAttr {
                object: Object::shown(dir, name, &attr),
                change,
                handle: None,
            };
            entry(self.op(cred, op).await?)
        })
        .await
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
            // A directory that is being listed is open: pages to come do not depend on the way here.
            if self.after != Position::START && self.dir.scope != Scope::Handle {
                self.dir = self.client.reopen(&self.dir).await?.dir.ok_or(Errno::Io)?;
            }
            let op = Op::ReadDir {
                dir: self.dir.clone(),
                after: self.after,
                limit: 1024,
                plus: self.plus,
            };
            let answer = match self.client.op(self.cred, op).await {
                // Its permissions have changed: whoever has it open may read on.
                Err(Errno::Stale) if self.dir.scope == Scope::Handle => {
                    let again = self.client.reopen(&self.dir).await?.dir.ok_or(Errno::Io)?;
                    if again.at == self.dir.at {
                        return Err(Errno::Stale);
                    }
                    self.dir = again;
                    continue;
                }
                other => other?,
            };
            let Answer::Entries { entries, end } = answer else {
                return Err(Errno::Io);
            };
            self.end = end;
            if let Some(last) = entries.last() {
                self.after = last.position;
            }
            let entries = if self.plus && entries.iter().any(|e| e.view.is_none()) {
                match whole(self.client, self.cred, &self.dir, entries.clone()).await {
                    // Its permissions have changed since the page was made.
                    Err(Errno::Stale) => {
                        self.dir = self.client.reopen(&self.dir).await?.dir.ok_or(Errno::Io)?;
                        whole(self.client, self.cred, &self.dir, entries).await?
                    }
                    whole => whole?,
                }
            } else {
                entries
            };
            if !entries.is_empty() {
                return Ok(entries);
            }
        }
        Ok(Vec::new())
    }
}

/// What exists already has no last name to create: `mkdir /` is EEXIST.
pub(crate) fn exists_if_busy(e: Errno) -> Errno {
    if e == Errno::Busy { Errno::Exists } else { e }
}

pub(crate) fn entry(answer: Answer) -> Result<EntryView, Errno> {
    match answer {
        Answer::Entry(entry) => Ok(entry),
        _ => Err(Errno::Io),
    }
}
