//! What all threads of a mount share, and how they talk to the cluster.

use crate::accessed::Accesses;
use crate::again::Again;
use crate::attr::{file_attr, joined, now};
use crate::calls::Calls;
use crate::cred::Creds;
use crate::driver::{self, Cluster, Driver, MountId};
use crate::foreseen::Foreseen;
use crate::holder::Holder;
use crate::join::both;
use crate::locks::Locks;
use crate::looked::Looked;
use crate::node::{Known, Nodes};
use crate::open::{DirHandle, FileHandle, FileSlot, Handles};
use crate::publisher::Publisher;
use crate::watch::Watch;
use fuser::FileAttr;
use pando_client::file::{self, DataSync, OpenFile, Ops, Place, Turns};
use pando_client::{Contents, Kept};
use pando_types::{Access, Attr, Cred, DirStat, Errno, FileKind, Generation, Ino, Name};
use pando_wire::{Answer, EntryView, Op, Outcome, Statement};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// So old may a directory's ctime be that another mount has moved by an extended attribute or a rename,
/// whatever the timeout.
const CTIME: Duration = Duration::from_secs(1);

/// How often a directory is looked up that others replace between two requests.
const TRIES: usize = 20;

/// How a mount behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How long the kernel may believe what it was told.
    pub timeout: Duration,
    pub data_sync: DataSync,
    /// So long after a write what was written is published, at the latest; zero: when the file is closed or
    /// synced.
    pub publish: Duration,
    /// The kernel keeps the locks of programs.
    pub local_locks: bool,
    /// Reads move atimes.
    pub atimes: bool,
    /// The kernel refuses what permissions forbid, for which it asks before each name. Else the servers do.
    pub kernel_checks: bool,
}

pub(crate) struct Core<C: Cluster> {
    pub id: MountId,
    pub cluster: Arc<C>,
    pub settings: Settings,
    pub creds: Creds,
    pub calls: Arc<Calls>,
    pub holder: Holder,
    pub locks: Locks,
    pub accesses: Arc<Accesses>,
    pub publisher: Arc<Publisher>,
    /// Gives turns to append.
    pub turns: OnceLock<Arc<dyn Turns>>,
    pub watch: Arc<Watch>,
    /// Set when the mount ends by force: what is written from then on would be lost.
    pub ended: AtomicBool,
    /// Writes that came so far.
    pub written: Arc<AtomicU64>,
    pub again: Again,
    pub foreseen: Foreseen,
    /// If the kernel is to believe nothing.
    pub looked: Option<Looked>,
    pub files: Handles<FileHandle>,
    pub dirs: Handles<DirHandle>,
    nodes: Mutex<Nodes>,
    /// What is known of directories without asking.
    contents: Option<Contents>,
    /// Tells the kernel what it must not believe any more.
    pub notifier: OnceLock<fuser::Notifier>,
}

/// What an entry or attribute reply says.
#[derive(Clone)]
pub(crate) struct Shown {
    pub attr: FileAttr,
    pub generation: Generation,
    /// How old what it says is.
    pub age: Duration,
    /// Its name is to be looked up by each call anew.
    pub anew: bool,
}

impl Shown {
    pub fn new(attr: &Attr) -> Shown {
        Shown {
            attr: file_attr(attr),
            generation: attr.generation,
            age: Duration::ZERO,
            anew: false,
        }
    }
}

/// Where a node was last seen.
pub(crate) struct At {
    pub parent: Ino,
    pub name: Name,
    pub generation: Generation,
    /// If it has several names.
    pub home: Option<Statement>,
    /// If it is open here.
    pub kept: Option<Arc<Kept>>,
}

pub(crate) fn entry(answer: Answer) -> Result<EntryView, Errno> {
    match answer {
        Answer::Entry(view) => Ok(view),
        _ => Err(Errno::Io),
    }
}

pub(crate) fn content(answer: Outcome) -> Result<DirStat, Errno> {
    match answer? {
        Answer::DirStat(s) => Ok(s),
        _ => Err(Errno::Io),
    }
}

impl<C: Cluster> Core<C> {
    pub fn new(cluster: Arc<C>, settings: Settings, root: &EntryView) -> std::io::Result<Core<C>> {
        let users = cluster.users();
        Ok(Core {
            id: MountId::new(),
            holder: Holder::start(cluster.clone())?,
            locks: Locks::default(),
            accesses: Arc::new(Accesses::new(settings.atimes)),
            publisher: Arc::new(Publisher::new(settings.publish)),
            turns: OnceLock::new(),
            watch: Arc::default(),
            ended: AtomicBool::new(false),
            written: Arc::default(),
            contents: cluster.contents(),
            again: Again::default(),
            foreseen: Foreseen::default(),
            looked: settings.timeout.is_zero().then(Looked::default),
            cluster,
            settings,
            creds: Creds::new(users),
            calls: Arc::default(),
            files: Handles::default(),
            dirs: Handles::default(),
            nodes: Mutex::new(Nodes::with_root(root, Instant::now())),
            notifier: OnceLock::new(),
        })
    }

    /// Ends the mount's own threads.
    pub fn stop(&self) {
        self.accesses.stop();
        self.publisher.stop();
        self.watch.stop();
        self.locks.stop();
        self.holder.stop();
        self.calls.stop();
    }

    /// Changes made on this mount until now.
    pub fn changes(&self) -> u64 {
        self.contents.as_ref().map_or(0, Contents::changes)
    }

    /// What to show of a file.
    pub fn shown(&self, attr: Attr) -> Shown {
        Shown::new(&self.accesses.show(attr))
    }

    pub fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` with this thread's driver.
    pub fn with<R>(&self, f: impl FnOnce(&C::Driver) -> Result<R, Errno>) -> Result<R, Errno> {
        f(&*driver::of(self.id, &*self.cluster)?)
    }

    /// Runs one operation.
    pub fn op(&self, d: &C::Driver, cred: &Cred, op: Op) -> Outcome {
        d.run(d.ops().op(cred, op))
    }

    pub fn at(&self, ino: Ino) -> Result<At, Errno> {
        let nodes = self.nodes();
        let node = nodes.get(ino).ok_or(Errno::Stale)?;
        Ok(At {
            parent: node.parent,
            name: node.name.clone(),
            generation: node.generation,
            home: node.home.clone(),
            kept: node.kept.clone(),
        })
    }

    /// A directory's statement, as it is known: a server that finds it outdated says so.
    pub fn statement(&self, ino: Ino) -> Result<Statement, Errno> {
        Ok(self.known(ino)?.0)
    }

    fn known(&self, ino: Ino) -> Result<(Statement, Instant), Errno> {
        let nodes = self.nodes();
        let node = nodes.get(ino).ok_or(Errno::Stale)?;
        let known = node.known.as_ref().ok_or(Errno::NotDir)?;
        Ok((known.statement.clone(), known.learnt))
    }

    /// Asks for a directory's permissions again, as the superuser: the kernel has checked the way here, and a
    /// directory in use stays usable when its parent is closed to the user, and when another mount has moved
    /// it.
    pub fn relearn(&self, d: &C::Driver, ino: Ino) -> Result<Statement, Errno> {
        let dir = self.statement(ino)?;
        let view = d.run(d.ops().op(&d.ops().own(), Op::Reopen { dir }));
        self.relearnt(ino, view).map(|(s, _)| s)
    }

    /// The answer to [`Op::Reopen`]: the statement and the access half.
    fn relearnt(&self, ino: Ino, answer: Outcome) -> Result<(Statement, Attr), Errno> {
        let view = answer.and_then(entry)?;
        self.nodes().learn(ino, &view, Instant::now());
        Ok((view.dir.ok_or(Errno::NotDir)?, view.attr))
    }

    /// Does something inside a directory; if the statement turns out stale, once more with a new one.
    pub fn in_dir<R>(
        &self,
        d: &C::Driver,
        ino: Ino,
        mut f: impl FnMut(Statement) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let statement = self.statement(ino)?;
        match f(statement.clone()) {
            Err(Errno::Stale) => {
                let again = self.relearn(d, ino)?;
                if again == statement {
                    Err(Errno::Stale)
                } else {
                    f(again)
                }
            }
            other => other,
        }
    }

    /// Does something with what has attributes: where its name is, or by itself if it is the root. Where a
    /// subtree has its name is not for those to know whose root it is.
    pub fn at_name<R>(
        &self,
        d: &C::Driver,
        ino: Ino,
        mut f: impl FnMut(Place) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        if ino != Ino::ROOT {
            return self.in_place(d, ino, f);
        }
        self.in_dir(d, ino, |dir| {
            f(Place {
                name: dir.name.clone(),
                dir,
            })
        })
    }

    /// Does something with a file where it is: at home, if it has one, else under its name, with the
    /// statement of its directory. REQUIRES: of another file that has the name now `f` says that it is stale.
    pub fn in_place<R>(
        &self,
        d: &C::Driver,
        ino: Ino,
        mut f: impl FnMut(Place) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let at = self.at(ino)?;
        if let Some(dir) = at.home {
            let name = dir.name.clone();
            match f(Place { dir, name }) {
                // It has no name any more, as far as is known there; or what shows that it is there is too
                // old.
                Err(Errno::Stale | Errno::NotFound) => {}
                other => return other,
            }
        }
        let named = self.in_dir(d, at.parent, |dir| {
            f(Place {
                dir,
                name: at.name.clone(),
            })
        });
        // While it is open here others may have renamed or removed it: then it is at home (H97).
        if let (Err(Errno::Stale | Errno::NotFound), Some(kept)) = (&named, &at.kept)
            && let Ok(view) = d.run(d.ops().find_home(&d.ops().own(), kept))
            && let Some(dir) = view.home.clone()
        {
            self.nodes().learn(ino, &view, Instant::now());
            let name = dir.name.clone();
            return f(Place { dir, name });
        }
        named
    }

    /// An entry was answered under `name`: its node gets one more reference of the kernel. `attr` are its
    /// whole attributes. Returns what to show.
    pub fn admit(&self, parent: Ino, name: &Name, view: &EntryView, attr: &Attr) -> Result<Shown, Errno> {
        let slot = {
            let mut nodes = self.nodes();
            nodes.see(parent, name, view, Instant::now());
            nodes.count(view.attr.ino);
            nodes.file(view.attr.ino)
        };
        let (mut version, mut shown) = (view.version, *attr);
        if let Some(slot) = slot
            && let Some(f) = &slot.read().open
        {
            (version, shown) = (version.max(f.version()), f.merge(view));
        }
        self.nodes().shown(view.attr.ino, Some(version));
        Ok(self.shown(shown))
    }

    /// Close-to-open: if what was just opened is not what the kernel was last told of, it must not believe
    /// the size it knows until its timeout. (On a read within that size it would not ask, and show a longer
    /// file cut.)
    pub fn attributes_changed(&self, ino: Ino, version: u64) {
        if self.nodes().get(ino).is_some_and(|n| n.shown == Some(version)) {
            return;
        }
        if let Some(notifier) = self.notifier.get()
            && let Err(e) = notifier.inval_inode(fuser::INodeNo(ino.0), -1, 0)
        {
            tracing::warn!(ino = ino.0, "the kernel keeps old attributes: {e}");
        }
    }

    /// The kernel drops references.
    pub fn forget(&self, ino: Ino, n: u64) {
        self.nodes().forget(ino, n);
    }

    /// Whole attributes of an entry just answered.
    pub fn whole(&self, d: &C::Driver, view: &EntryView) -> Result<Attr, Errno> {
        match &view.dir {
            None => Ok(view.attr),
            Some(dir) => self
                .dir_stat(d, dir.clone())
                .map(|content| joined(view.attr, &content)),
        }
    }

    pub fn dir_stat(&self, d: &C::Driver, dir: Statement) -> Result<DirStat, Errno> {
        content(self.op(d, &d.ops().own(), Op::DirStat { dir }))
    }

    /// Whether it is known without asking that there is no such name. Where files are locked, names tell
    /// programs on other mounts something.
    pub fn lacks(&self, d: &C::Driver, parent: Ino, name: &Name) -> bool {
        match (&self.contents, self.statement(parent)) {
            (Some(contents), Ok(dir)) if self.locks.may_believe(parent) => {
                contents.lacks(&dir, name, d.now(), self.settings.timeout)
            }
            _ => false,
        }
    }

    pub fn lookup(&self, d: &C::Driver, cred: &Cred, parent: Ino, name: &Name) -> Result<Shown, Errno> {
        // What the kernel is about to create it asks for first.
        if self.lacks(d, parent, name) {
            return Err(Errno::NotFound);
        }
        let mut tries = 0;
        loop {
            tries += 1;
            match self.look(d, cred, parent, name, tries < 3) {
                // A removed directory that somebody works in has no entries.
                Err(Errno::Stale) if self.nodes().get(parent).is_some_and(|n| n.gone) => {
                    return Err(Errno::NotFound);
                }
                // The directory was removed between the two requests, or the answer was overtaken: what is
                // there now?
                Err(Errno::Stale) if tries < TRIES && !self.is_nowhere(d, parent) => {}
                other => return other,
            }
        }
    }

    fn look(
        &self,
        d: &C::Driver,
        cred: &Cred,
        parent: Ino,
        name: &Name,
        again: bool,
    ) -> Result<Shown, Errno> {
        // If a directory is expected there, both halves are asked for at once.
        let guess = {
            let nodes = self.nodes();
            nodes
                .by_name(parent, name)
                .and_then(|i| nodes.get(i))
                .and_then(|n| n.known.clone())
                .map(|k| k.statement)
        };
        let (view, half) = self.in_dir(d, parent, |dir| {
            let lookup = d.ops().op(
                cred,
                Op::Lookup {
                    dir,
                    name: name.clone(),
                },
            );
            match &guess {
                None => Ok((entry(d.run(lookup)?)?, None)),
                Some(guess) => {
                    let own = d.ops().own();
                    let stat = d.ops().op(&own, Op::DirStat { dir: guess.clone() });
                    let (view, half) = d.run(both(lookup, stat));
                    Ok((entry(view?)?, content(half).ok()))
                }
            }
        })?;
        let right = |g: &Statement| {
            view.dir
                .as_ref()
                .is_some_and(|s| s.id == g.id && s.generation == g.generation)
        };
        let attr = match (half.filter(|_| guess.as_ref().is_some_and(right)), &view.dir) {
            (Some(half), _) => joined(view.attr, &half),
            (None, Some(dir)) => joined(view.attr, &self.dir_stat(d, dir.clone())?),
            (None, None) => view.attr,
        };
        let slot = self.nodes().file(view.attr.ino);
        if let Some(slot) = slot {
            // An answer that a publish on this mount has overtaken, by a handle closed since, would set the
            // size back.
            if again && view.version < slot.read().version {
                return Err(Errno::Stale);
            }
            self.take_over(d, &slot, &view);
        }
        self.admit(parent, name, &view, &attr)
    }

    pub fn getattr(&self, d: &C::Driver, ino: Ino) -> Result<Shown, Errno> {
        let (kind, gone, last, version, known, slot) = {
            let nodes = self.nodes();
            let node = nodes.get(ino).ok_or(Errno::Stale)?;
            // The attributes and the statement of one answer.
            (
                node.kind,
                node.gone,
                node.attr,
                node.version,
                node.known.clone(),
                node.file.clone(),
            )
        };
        if kind == FileKind::Directory {
            if gone {
                // Removed while somebody works in it.
                return Ok(Shown::new(&Attr {
                    nlink: 0,
                    size: 0,
                    ..last
                }));
            }
            let Known {
                statement: old,
                learnt,
            } = known.ok_or(Errno::NotDir)?;
            let age = learnt.elapsed();
            // After each change in a directory the kernel asks again. The change was of the content half, and
            // is known here if it was made here; the access half is what the kernel was told and may believe.
            if age < self.settings.timeout {
                let known =
                    (self.contents.as_ref()).and_then(|c| c.stat(&old, d.now(), self.settings.timeout));
                let content = match known {
                    Some(known) => Some(known),
                    None => self
                        .dir_stat(d, old.clone())
                        .ok()
                        .map(|now| (now, Duration::ZERO)),
                };
                if let Some((content, content_age)) = content {
                    return Ok(Shown {
                        age: age.max(content_age),
                        ..Shown::new(&joined(last, &content))
                    });
                }
            }
            // A server that takes the statement proves that the permissions are still what was shown. Of the
            // rest a ctime changes unheard: other mounts move it by extended attributes and renames.
            if (self.settings.timeout..CTIME).contains(&age)
                && let Ok(content) = self.dir_stat(d, old.clone())
                // What was shown meanwhile may be of a newer statement, which was taken in this one's place.
                && self.nodes().get(ino).is_some_and(|n| n.version == version)
            {
                return Ok(Shown::new(&joined(last, &content)));
            }
            let (own, stat) = (d.ops().own(), Op::DirStat { dir: old.clone() });
            let again = Op::Reopen { dir: old };
            let (view, half) = d.run(both(d.ops().op(&own, again), d.ops().op(&own, stat)));
            let (relearnt, access) = self.relearnt(ino, view)?;
            // The old statement may have been outdated.
            let half = match half {
                Err(Errno::Stale) => self.dir_stat(d, relearnt).map(Answer::DirStat),
                half => half,
            };
            return Ok(Shown::new(&joined(access, &content(half)?)));
        }
        if let Some(slot) = &slot {
            let state = slot.read();
            if let Some(f) = state.open.as_ref().filter(|f| f.is_removed()) {
                return Ok(Shown::new(&f.attr()));
            }
        }
        let at = self.at(ino)?;
        let found = self.in_place(d, ino, |Place { dir, name }| {
            let view = entry(self.op(d, &d.ops().own(), Op::Lookup { dir, name })?)?;
            let right = view.attr.ino == ino && view.attr.generation == at.generation;
            right.then_some(view).ok_or(Errno::Stale)
        });
        let found = match found {
            Ok(view) => Ok(view),
            // Another mount has renamed or removed it.
            Err(Errno::NotFound | Errno::Stale) => Err(Errno::Stale),
            Err(e) => Err(e),
        };
        match (found, slot) {
            (Ok(view), None) => {
                self.nodes().learn(ino, &view, Instant::now());
                self.nodes().shown(ino, Some(view.version));
                Ok(self.shown(view.attr))
            }
            (Ok(view), Some(slot)) => {
                self.nodes().learn(ino, &view, Instant::now());
                let (attr, version) = self.file_attr(d, &slot, view);
                self.nodes().shown(ino, Some(version));
                Ok(self.shown(attr))
            }
            // Whoever has it open may still look at it.
            (Err(Errno::Stale), Some(slot)) => {
                let state = slot.read();
                state
                    .open
                    .as_ref()
                    .map(|f| self.shown(f.attr()))
                    .ok_or(Errno::Stale)
            }
            (Err(e), _) => Err(e),
        }
    }

    /// Attributes of a regular file for which `view` was answered, and the content version they are of.
    fn file_attr(&self, d: &C::Driver, slot: &FileSlot, view: EntryView) -> (Attr, u64) {
        self.take_over(d, slot, &view);
        let state = slot.read();
        match &state.open {
            Some(f) if f.outdated_by(&view) => (f.attr(), f.version()),
            Some(f) => (f.merge(&view), f.version().max(view.version)),
            None => (view.attr, view.version),
        }
    }

    /// If another mount has changed the content of a file that is open here, that is taken over before its
    /// size is shown: a size without its bytes would read as zeros. Failure leaves the file as it was when it
    /// was opened.
    pub(crate) fn take_over(&self, d: &C::Driver, slot: &FileSlot, view: &EntryView) {
        let outdated = |f: &OpenFile| f.outdated_by(view);
        if !slot.read().open.as_ref().is_some_and(outdated) {
            return;
        }
        if let Some(f) = slot.write().open.as_mut().filter(|f| outdated(f)) {
            let opened = self.in_place(d, view.attr.ino, |place| {
                let opened = d.run(file::open(d.ops(), &d.ops().own(), &place, Access(0)))?;
                let right = opened.entry.attr.ino == view.attr.ino;
                right.then_some((place, opened)).ok_or(Errno::Stale)
            });
            if let Ok((place, opened)) = opened {
                f.location().set(place);
                if f.refresh(opened) == Ok(true) {
                    self.watch.drop_pages(view.attr.ino);
                }
            }
        }
    }

    pub fn fsyncdir(&self, d: &C::Driver, ino: Ino) -> Result<(), Errno> {
        let (dir, _) = self.known(ino)?;
        d.run(d.ops().sync_dir(&dir))
    }

    /// This machine's time, for changes that are not yet published.
    pub fn now(&self) -> pando_types::Timestamp {
        now()
    }
}
