//! Listings: cookies are positions, so an entry that stays is shown exactly once whatever happens around it
//! (H66).

use crate::attr::{file_attr, joined, kind};
use crate::core::{Core, content};
use crate::driver::{Cluster, Driver};
use crate::join::all;
use crate::open::{DirHandle, Page};
use fuser::{FileAttr, FileType};
use nix::libc;
use pando_client::file::Ops;
use pando_client::whole;
use pando_format::Position;
use pando_types::{Attr, Cred, DirStat, Errno, FileKind, Ino};
use pando_wire::{Answer, DirEntry, EntryView, Op, Statement};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// Entries asked for at once.
const PAGE: u32 = 512;
/// How long a page fetched ahead is used.
const PAGE_AGE: Duration = Duration::from_secs(5);
/// Content halves of subdirectories asked for at once.
const STATS: usize = 32;

/// A line of a listing with attributes.
pub(crate) struct Line<'a> {
    pub attr: FileAttr,
    pub generation: u64,
    pub name: &'a [u8],
    pub cookie: u64,
    pub ttl: Duration,
}

impl<C: Cluster> Core<C> {
    pub fn opendir(&self, d: &C::Driver, cred: &Cred, ino: Ino) -> Result<u64, Errno> {
        if self
            .nodes()
            .get(ino)
            .is_none_or(|n| n.kind != FileKind::Directory)
        {
            return Err(Errno::NotDir);
        }
        // A server would refuse it at the first look only.
        if !self.settings.kernel_checks {
            self.access(d, cred, ino, libc::R_OK)?;
        }
        Ok(self.dirs.insert(DirHandle::new(cred)))
    }

    /// Lists from `offset`; `add` takes number, cookie, kind and name, and says when no more fit.
    pub fn readdir(
        &self,
        d: &C::Driver,
        ino: Ino,
        fh: u64,
        offset: u64,
        mut add: impl FnMut(Ino, u64, FileType, &[u8]) -> bool,
    ) -> Result<(), Errno> {
        let handle = self.dirs.get(fh).ok_or(Errno::BadHandle)?;
        let (here, up) = self.here_and_up(ino)?;
        if offset < Position::DOT.0 && add(here, Position::DOT.0, FileType::Directory, b".") {
            return Ok(());
        }
        if offset < Position::DOT_DOT.0 && add(up, Position::DOT_DOT.0, FileType::Directory, b"..") {
            return Ok(());
        }
        self.walk(d, ino, &handle, offset, false, |_, e, _| {
            Ok(add(e.ino, e.position.0, kind(e.kind), e.name.as_bytes()))
        })
    }

    /// The numbers that a directory and the one above it are shown with. Above the root, whichever that is,
    /// is the root.
    fn here_and_up(&self, ino: Ino) -> Result<(Ino, Ino), Errno> {
        let nodes = self.nodes();
        let node = nodes.get(ino).ok_or(Errno::Stale)?;
        let up = if ino == Ino::ROOT { ino } else { node.parent };
        Ok((node.attr.ino, nodes.number(up)))
    }

    /// The same with attributes. Each line gives the kernel a reference, but those of `.` and `..`.
    pub fn readdirplus(
        &self,
        d: &C::Driver,
        ino: Ino,
        fh: u64,
        offset: u64,
        mut add: impl FnMut(Line<'_>) -> bool,
    ) -> Result<(), Errno> {
        let handle = self.dirs.get(fh).ok_or(Errno::BadHandle)?;
        let (here, up) = self.here_and_up(ino)?;
        let attr = self.nodes().get(ino).map(|n| n.attr).ok_or(Errno::Stale)?;
        for (position, dot, number) in [(Position::DOT, &b"."[..], here), (Position::DOT_DOT, b"..", up)] {
            let attr = file_attr(&Attr { ino: number, ..attr });
            let line = Line {
                attr,
                generation: 0,
                name: dot,
                cookie: position.0,
                ttl: Duration::ZERO,
            };
            if offset < position.0 && add(line) {
                return Ok(());
            }
        }
        let mut contents: BTreeMap<Ino, Option<DirStat>> = BTreeMap::new();
        self.walk(d, ino, &handle, offset, true, |rest, e, age| {
            // Damaged: it hides no other.
            let Some(view) = &e.view else { return Ok(false) };
            let mut ttl = self.settings.timeout.saturating_sub(age);
            let mut attr = view.attr;
            if view.dir.is_some() {
                if !contents.contains_key(&e.ino) {
                    contents.extend(self.contents(d, rest));
                }
                match contents.get(&e.ino) {
                    Some(Some(content)) => attr = joined(attr, content),
                    // Just removed, or moved: the kernel will look again.
                    _ => ttl = Duration::ZERO,
                }
            } else if self.overtaken(view) {
                ttl = Duration::ZERO;
            }
            let shown = self.admit(ino, &e.name, view, &attr)?;
            let full = add(Line {
                attr: shown.attr,
                generation: shown.generation.0,
                name: e.name.as_bytes(),
                cookie: e.position.0,
                ttl,
            });
            if full {
                self.nodes().shown(e.ino, None);
                self.forget(e.ino, 1);
            }
            Ok(full)
        })
    }

    /// Whether this answer and what is known of an open or just closed file here do not go together.
    fn overtaken(&self, view: &EntryView) -> bool {
        let Some(slot) = self.nodes().file(view.attr.ino) else {
            return false;
        };
        let state = slot.read();
        view.version < state.version || state.open.as_ref().is_some_and(|f| f.outdated_by(view))
    }

    /// Content halves of the next subdirectories, all asked for at once.
    fn contents(&self, d: &C::Driver, rest: &[DirEntry]) -> Vec<(Ino, Option<DirStat>)> {
        let dirs = rest
            .iter()
            .filter_map(|e| e.view.as_ref()?.dir.clone().map(|s| (e.ino, s)))
            .take(STATS);
        let (numbers, asked): (Vec<Ino>, Vec<_>) = dirs.map(|(n, s)| (n, ask(d.ops(), s))).unzip();
        let answers = d.run(all(asked));
        numbers.into_iter().zip(answers).collect()
    }

    /// Shows entries after `offset` until `show` says that no more fit. It gets the entries from this one on,
    /// this one, and how old the answer is.
    fn walk(
        &self,
        d: &C::Driver,
        ino: Ino,
        handle: &DirHandle,
        offset: u64,
        plus: bool,
        mut show: impl FnMut(&[DirEntry], &DirEntry, Duration) -> Result<bool, Errno>,
    ) -> Result<(), Errno> {
        let mut page = handle.page();
        // The beginning again: rewinddir shows what is there now.
        if offset == 0 {
            page.fetched = None;
        }
        let mut after = Position(offset);
        // The kernel keeps changes of this directory out while it lists.
        let changes = self.nodes().changes(ino);
        loop {
            let age = page.fetched.map_or(Duration::MAX, |t| t.elapsed());
            let from = if age <= PAGE_AGE && page.plus == plus && page.changes == changes {
                page.find(after)
            } else {
                None
            };
            let Some(from) = from else {
                *page = self.fetch(d, ino, handle, after, plus)?;
                if page.entries.is_empty() && !page.end {
                    return Err(Errno::Io);
                }
                continue;
            };
            for (i, entry) in page.entries.iter().enumerate().skip(from) {
                if show(&page.entries[i..], entry, age)? {
                    return Ok(());
                }
            }
            if page.end {
                return Ok(());
            }
            after = page.entries.last().map_or(after, |e| e.position);
            page.fetched = None;
        }
    }

    fn fetch(
        &self,
        d: &C::Driver,
        ino: Ino,
        handle: &DirHandle,
        after: Position,
        plus: bool,
    ) -> Result<Page, Errno> {
        let (fetched, changes) = (Some(Instant::now()), self.nodes().changes(ino));
        let listed = |cred: &Cred| {
            self.in_dir(d, ino, |dir| {
                let limit = PAGE;
                self.op(
                    d,
                    cred,
                    Op::ReadDir {
                        dir,
                        after,
                        limit,
                        plus,
                    },
                )
            })
        };
        let answer = match listed(&handle.cred) {
            // Who may list a directory and not search it is shown names only. The kernel, which asked for
            // what they stand for, keeps it from that user itself.
            Ok(Answer::Entries { entries, .. }) if plus && entries.iter().all(|e| e.view.is_none()) => {
                listed(&d.ops().own())
            }
            answer => answer,
        };
        match answer {
            Ok(Answer::Entries { entries, end }) => Ok(Page {
                after,
                entries: if plus && entries.iter().any(|e| e.view.is_none()) {
                    let own = d.ops().own();
                    self.in_dir(d, ino, |dir| d.run(whole(d.ops(), &own, &dir, entries.clone())))?
                } else {
                    entries
                },
                end,
                plus,
                fetched,
                changes,
            }),
            Ok(_) => Err(Errno::Io),
            // Removed while open: it has no entries.
            Err(Errno::Stale) if self.is_nowhere(d, ino) => Ok(Page {
                after,
                entries: Vec::new(),
                end: true,
                plus,
                fetched,
                changes,
            }),
            Err(e) => Err(e),
        }
    }
}

impl Page {
    /// The index of the first entry after `position`, if this page knows what follows that.
    fn find(&self, position: Position) -> Option<usize> {
        if position == self.after {
            return Some(0);
        }
        self.entries
            .iter()
            .position(|e| e.position == position)
            .map(|i| i + 1)
    }
}

fn ask<O: Ops>(ops: &O, dir: Statement) -> Pin<Box<dyn Future<Output = Option<DirStat>> + '_>> {
    Box::pin(async move { content(ops.op(&ops.own(), Op::DirStat { dir }).await).ok() })
}
