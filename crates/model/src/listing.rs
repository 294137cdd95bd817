//! Judging listings that are read page by page while the directory changes.

use crate::Model;
use crate::node::NodeId;
use pando_types::{FileKind, Ino, Name};
use std::collections::BTreeMap;

/// One line of a listing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Listed {
    /// Name.
    pub name: Name,
    /// Inode number.
    pub ino: Ino,
    /// Kind.
    pub kind: FileKind,
}

/// A listing under observation, from its first page to its last. End it with [`Model::finish_listing`], or
/// with [`Model::drop_listing`] if it failed.
#[derive(PartialEq, Eq, Debug)]
pub struct ListingWatch(u64);

/// What the model has seen of one entry (one name for one object) since the listing began.
#[derive(Clone, Debug)]
struct Seen {
    kind: FileKind,
    /// How often it appeared, its presence at the start included.
    lives: u32,
    /// It was there at the start and never vanished.
    throughout: bool,
}

#[derive(Clone, Debug)]
struct Watch {
    dir: NodeId,
    seen: BTreeMap<(Name, Ino), Seen>,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct Watches {
    next: u64,
    open: BTreeMap<u64, Watch>,
    /// Which watches look at a directory.
    by_dir: BTreeMap<(NodeId, u64), ()>,
}

impl Watches {
    fn each(&mut self, dir: NodeId, mut f: impl FnMut(&mut Watch)) {
        if self.open.is_empty() {
            return;
        }
        for ((_, number), ()) in self.by_dir.range((dir, 0)..=(dir, u64::MAX)) {
            if let Some(watch) = self.open.get_mut(number) {
                f(watch);
            }
        }
    }

    pub fn appeared(&mut self, dir: NodeId, name: &Name, ino: Ino, kind: FileKind) {
        self.each(dir, |w| {
            let seen = Seen {
                kind,
                lives: 0,
                throughout: false,
            };
            w.seen.entry((name.clone(), ino)).or_insert(seen).lives += 1;
        });
    }

    pub fn vanished(&mut self, dir: NodeId, name: &Name, ino: Ino) {
        self.each(dir, |w| {
            if let Some(seen) = w.seen.get_mut(&(name.clone(), ino)) {
                seen.throughout = false;
            }
        });
    }

    fn close(&mut self, watch: &ListingWatch) -> Option<Watch> {
        let closed = self.open.remove(&watch.0)?;
        self.by_dir.remove(&(closed.dir, watch.0));
        Some(closed)
    }
}

impl Model {
    /// Begins to observe a directory: call it when the first page is asked for, or before. `None` if the
    /// directory is not alive.
    pub fn watch_listing(&mut self, dir: NodeId) -> Option<ListingWatch> {
        self.nodes.get(&dir)?.as_dir()?;
        let seen = self
            .list(dir)
            .into_iter()
            .map(|l| {
                (
                    (l.name, l.ino),
                    Seen {
                        kind: l.kind,
                        lives: 1,
                        throughout: true,
                    },
                )
            })
            .collect();
        let number = self.watches.next;
        self.watches.next += 1;
        self.watches.open.insert(number, Watch { dir, seen });
        self.watches.by_dir.insert((dir, number), ());
        Some(ListingWatch(number))
    }

    /// Ends the observation when the last page was answered, or later, and judges all pages together.
    ///
    /// RULE (listing). Each entry that was there throughout is listed exactly once. One that came or went may
    /// be listed, at most once for each time it came. Nothing else is listed. (An entry is a name for one
    /// object: if a name is removed and made again for another object, or a file is renamed, those are two
    /// entries.)
    pub fn finish_listing(&mut self, watch: ListingWatch, listed: &[Listed]) -> Result<(), String> {
        let watch = self
            .watches
            .close(&watch)
            .ok_or("no such listing is under observation")?;
        let mut times: BTreeMap<(&Name, Ino), u32> = BTreeMap::new();
        for l in listed {
            let Some(seen) = watch.seen.get(&(l.name.clone(), l.ino)) else {
                return Err(format!("{} (inode {}) was listed but never there", l.name, l.ino));
            };
            if seen.kind != l.kind {
                return Err(format!(
                    "{} was listed as {:?} but is {:?}",
                    l.name, l.kind, seen.kind
                ));
            }
            let n = times.entry((&l.name, l.ino)).or_default();
            *n += 1;
            if *n > seen.lives {
                return Err(format!("{} (inode {}) was listed {n} times", l.name, l.ino));
            }
        }
        match watch
            .seen
            .iter()
            .find(|((name, ino), seen)| seen.throughout && !times.contains_key(&(name, *ino)))
        {
            Some(((name, ino), _)) => Err(format!(
                "{name} (inode {ino}) was there throughout but not listed"
            )),
            None => Ok(()),
        }
    }

    /// Ends the observation of a listing that failed.
    pub fn drop_listing(&mut self, watch: ListingWatch) {
        self.watches.close(&watch);
    }
}
