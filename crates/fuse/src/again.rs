//! Files and directories that the kernel has walked to, and that another mount has removed or replaced
//! meanwhile.
//!
//! - **By a path**: the call is answered ESTALE, after which the kernel walks once more ([`Trail`]). What it
//!   finds then is held open at once, if it is a regular file; so it is there for the call, however often its
//!   name is replaced.
//! - **By a descriptor**: an open directory is shown as it was last, without links; its attributes can be
//!   changed here, it is empty, and nothing is found or made in it. (Open files are kept by the servers.)
//!
//! The kernel does not say which of the two it is. A directory that has a handle here, or that the same
//! thread asks for once more, counts as the second.

use crate::core::{Core, Shown, entry};
use crate::driver::{Cluster, Driver};
use crate::open::DirHandle;
use crate::trail::{Call, Trail};
use fuser::INodeNo;
use nix::libc;
use pando_client::file::Ops;
use pando_types::{Access, Attr, AttrChange, Cred, Errno, FileKind, Ino, Name, XattrMode};
use pando_wire::{EntryView, Op, RenameMode};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often it is looked for pins that were not used.
const SWEEP: Duration = Duration::from_secs(1);

/// So often what is open is sought again where others move it all the time, after a pause that grows by this.
const MOVES: u32 = 8;
const MOVING: Duration = Duration::from_millis(2);

/// Work for which no call waits.
enum Chore {
    /// A name stands for something else than the kernel believes. It takes a lock of the kernel that another
    /// call may have, which a thread that serves calls must not wait for.
    Forget(Ino, Name),
    /// A thread walks again, or has opened a file that it looks up.
    Sweep,
}

/// Threads that walk again, and the thread that cleans up behind them.
#[derive(Default)]
pub(crate) struct Again {
    trail: Trail,
    chores: Mutex<Option<Sender<Chore>>>,
}

impl Again {
    fn send(&self, chore: Chore) {
        if let Some(chores) = &*self.chores.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = chores.send(chore);
        }
    }
}

/// Starts the thread that does chores, as long as the mount is there.
pub(crate) fn start<C: Cluster>(core: &Arc<Core<C>>) -> std::io::Result<()> {
    let (sender, chores) = mpsc::channel();
    *core.again.chores.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    let core = Arc::downgrade(core);
    let serve = move || {
        let (mut idle, mut kept) = (true, false);
        loop {
            let chore = if idle {
                chores.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                chores.recv_timeout(SWEEP)
            };
            let Some(core) = core.upgrade() else { return };
            match chore {
                Ok(Chore::Forget(parent, name)) => {
                    if let Some(notifier) = core.notifier.get() {
                        // It may not know the name at all.
                        let _ = notifier.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name.as_bytes()));
                    }
                }
                Ok(Chore::Sweep) => kept = true,
                Err(RecvTimeoutError::Timeout) => {
                    core.close_pins(core.again.trail.expire());
                    kept = core.foreseen.sweep();
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            idle = core.again.trail.is_empty() && !kept;
        }
    };
    std::thread::Builder::new()
        .name("pando-again".into())
        .spawn(serve)
        .map(drop)
}

impl<C: Cluster> Core<C> {
    fn close_pins(&self, pins: impl IntoIterator<Item = u64>) {
        for pin in pins {
            let Some(handle) = self.files.get(pin) else {
                continue;
            };
            let _ = self.with(|d| {
                self.release(d, pin);
                Ok(())
            });
            self.forget(handle.ino, 1);
        }
    }

    /// A thread's call ends in ESTALE: the kernel will walk again to what has these names.
    fn astray(&self, pid: u32, call: Call, names: Vec<Name>) {
        let first = self.again.trail.is_empty();
        self.close_pins(self.again.trail.ended(pid, call, names));
        if first {
            self.again.send(Chore::Sweep);
        }
    }

    /// Something is open that is closed unless it is used soon.
    pub fn send_to_sweep(&self) {
        self.again.send(Chore::Sweep);
    }

    /// A thread's call ends otherwise. `on`: if it was by node.
    fn settle(&self, pid: u32, call: Call, on: Option<Ino>) {
        self.close_pins(self.again.trail.settled(pid, call, on));
    }

    /// Whether a directory is not there any more, as far as its server knows.
    pub fn is_nowhere(&self, d: &C::Driver, dir: Ino) -> bool {
        if dir == Ino::ROOT {
            return false;
        }
        let removed = self.nodes().get(dir).is_none_or(|n| n.gone);
        removed || matches!(self.relearn(d, dir), Err(Errno::Stale | Errno::NotFound))
    }

    /// Whether a removed directory is asked for by a descriptor, or as somebody's working directory. `twice`:
    /// by the same thread as just now.
    fn is_left(&self, d: &C::Driver, pid: u32, ino: Ino) -> bool {
        let (gone, open) = {
            let nodes = self.nodes();
            let Some(node) = nodes.get(ino).filter(|n| n.kind == FileKind::Directory) else {
                return false;
            };
            (node.gone, node.handles > 0)
        };
        gone || (open || self.again.trail.again(pid)) && self.is_nowhere(d, ino)
    }

    /// A name that the kernel may believe stands for something that has no name any more.
    fn outlived(&self, ino: Ino) {
        let name = self.nodes().outlived(ino);
        if let Some((parent, name)) = name {
            self.again.send(Chore::Forget(parent, name));
        }
    }

    /// The answer to a call on a node, as the kernel is told it.
    pub fn by_node<R>(&self, pid: u32, ino: Ino, result: Result<R, Errno>) -> Result<R, Errno> {
        match result {
            Err(Errno::NotFound | Errno::Stale) => {
                let names = self.nodes().names_of(ino);
                self.astray(pid, Call::Other, names);
                Err(Errno::Stale)
            }
            other => {
                self.settle(pid, Call::Other, Some(ino));
                other
            }
        }
    }

    /// The answer to a call in a directory, as the kernel is told it.
    pub fn in_parent<R>(
        &self,
        d: &C::Driver,
        pid: u32,
        parent: Ino,
        name: &Name,
        result: Result<R, Errno>,
    ) -> Result<R, Errno> {
        match result {
            Err(Errno::Stale) if self.again.trail.again(pid) && self.is_nowhere(d, parent) => {
                self.settle(pid, Call::Other, None);
                Err(Errno::NotFound)
            }
            Err(Errno::Stale) => {
                self.astray(pid, Call::Other, vec![name.clone()]);
                Err(Errno::Stale)
            }
            other => {
                self.settle(pid, Call::Other, None);
                other
            }
        }
    }

    /// `link`. A file that was not found may be another by now, to which the kernel is to walk again.
    pub fn link_again(
        &self,
        d: &C::Driver,
        cred: &Cred,
        pid: u32,
        ino: Ino,
        parent: Ino,
        name: &Name,
    ) -> Result<Shown, Errno> {
        match self.link(d, cred, ino, parent, name) {
            Err(Errno::NotFound | Errno::Stale) if self.again.trail.again(pid) => {
                self.settle(pid, Call::Other, None);
                Err(Errno::NotFound)
            }
            Err(Errno::NotFound | Errno::Stale) => {
                let names = self.nodes().names_of(ino);
                self.astray(pid, Call::Other, names);
                Err(Errno::Stale)
            }
            linked => {
                self.settle(pid, Call::Other, None);
                linked
            }
        }
    }

    /// `rename`. The directory that is gone may be either.
    pub fn rename_again(
        &self,
        d: &C::Driver,
        cred: &Cred,
        pid: u32,
        from: (Ino, &Name),
        to: (Ino, &Name),
        mode: RenameMode,
    ) -> Result<(), Errno> {
        match self.rename(d, cred, from, to, mode) {
            Err(Errno::Stale) if self.again.trail.again(pid) && self.is_nowhere(d, from.0) => {
                Err(Errno::NotFound)
            }
            renamed => renamed,
        }
    }

    /// Looks a name up for a thread. What its last call did not find any more it is not to lose again.
    pub fn look_up(
        &self,
        d: &C::Driver,
        cred: &Cred,
        pid: u32,
        parent: Ino,
        name: &Name,
    ) -> Result<Shown, Errno> {
        if !self.again.trail.seeks(pid, name) {
            return self.look_ahead(d, cred, pid, parent, name);
        }
        let (shown, pin) = self.pinned(d, cred, pid, parent, name)?;
        self.close_pins(self.again.trail.found(pid, &shown, pin));
        Ok(shown)
    }

    pub fn step(
        &self,
        d: &C::Driver,
        cred: &Cred,
        pid: u32,
        parent: Ino,
        name: &Name,
    ) -> Result<Shown, Errno> {
        match self.lookup(d, cred, parent, name) {
            Err(Errno::Stale) => Err(self.not_in(d, cred, pid, parent, name)),
            other => other,
        }
    }

    /// Attributes of the file that has this name, and the handle that keeps it there.
    fn pinned(
        &self,
        d: &C::Driver,
        cred: &Cred,
        pid: u32,
        parent: Ino,
        name: &Name,
    ) -> Result<(Shown, Option<u64>), Errno> {
        if !self.settings.kernel_checks {
            let looked = self.in_dir(d, parent, |dir| {
                let name = name.clone();
                entry(self.op(d, cred, Op::Lookup { dir, name })?)
            });
            if !matches!(looked, Ok(_) | Err(Errno::Stale)) {
                looked?;
            }
        }
        match self.hold(d, parent, name) {
            Ok((shown, pin)) => Ok((shown, Some(pin))),
            Err(Errno::NotFound) => Err(Errno::NotFound),
            // It is no regular file, or its directory is gone, too.
            Err(_) => Ok((self.step(d, cred, pid, parent, name)?, None)),
        }
    }

    /// The error for a name in a directory that could not be asked. Who is about to make something there is
    /// not told ESTALE if that can be helped: the kernel does not walk again for it, but does when the thing
    /// cannot be made.
    fn not_in(&self, d: &C::Driver, cred: &Cred, pid: u32, parent: Ino, name: &Name) -> Errno {
        if self.is_nowhere(d, parent) {
            if self.again.trail.again(pid) {
                return Errno::NotFound;
            }
            self.outlived(parent);
            match self.successor(d, parent) {
                Ok(Some(view)) => {
                    let name = name.clone();
                    let dir = view.dir.ok_or(Errno::NotDir);
                    let there = dir.and_then(|dir| self.op(d, cred, Op::Lookup { dir, name }));
                    if matches!(there, Err(Errno::NotFound)) {
                        return Errno::NotFound;
                    }
                }
                Ok(None) => return Errno::NotFound,
                Err(Errno::Stale) => {}
                Err(e) => return e,
            }
        }
        self.astray(pid, Call::Other, vec![name.clone()]);
        Errno::Stale
    }

    /// The directory that has the name of one that is gone.
    fn successor(&self, d: &C::Driver, gone: Ino) -> Result<Option<EntryView>, Errno> {
        let at = self.at(gone)?;
        let found = self.in_dir(d, at.parent, |dir| {
            let name = at.name.clone();
            entry(self.op(d, &d.ops().own(), Op::Lookup { dir, name })?)
        });
        match found {
            Ok(view) => Ok(Some(view).filter(|v| v.dir.is_some() && v.attr.ino != gone)),
            Err(Errno::NotFound) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Attributes, by a path or a descriptor.
    pub fn look_at(&self, d: &C::Driver, pid: u32, ino: Ino) -> Result<Shown, Errno> {
        match self.getattr(d, ino) {
            Ok(shown) => {
                if shown.attr.nlink == 0 {
                    self.outlived(ino);
                }
                self.settle(pid, Call::Attributes, Some(ino));
                Ok(shown)
            }
            Err(Errno::NotFound | Errno::Stale) => {
                if let Some(shown) = self.again.trail.just_found(pid, ino) {
                    self.settle(pid, Call::Attributes, Some(ino));
                    return Ok(shown);
                }
                if self.is_left(d, pid, ino) {
                    let attr = self.nodes().get(ino).map(|n| n.attr);
                    self.outlived(ino);
                    return attr.map(left).ok_or(Errno::Stale);
                }
                let names = self.nodes().names_of(ino);
                self.astray(pid, Call::Attributes, names);
                Err(Errno::Stale)
            }
            Err(e) => Err(e),
        }
    }

    fn is_file_open(&self, ino: Ino) -> bool {
        let slot = self.nodes().file(ino);
        slot.is_some_and(|slot| slot.read().open.is_some())
    }

    /// Changes attributes, by a path or a descriptor.
    pub fn change(
        &self,
        d: &C::Driver,
        cred: &Cred,
        pid: u32,
        ino: Ino,
        change: AttrChange,
        fh: Option<u64>,
    ) -> Result<Shown, Errno> {
        let mut result = self.setattr(d, cred, ino, change, fh);
        for tries in 1..=MOVES {
            if !matches!(result, Err(Errno::NotFound | Errno::Stale)) || !self.is_file_open(ino) {
                break;
            }
            // It is open, so it is somewhere: others have just moved it there. (The kernel names no handle
            // with O_TRUNC.)
            d.run(d.world().sleep(MOVING * (1 << tries)));
            result = self.setattr(d, cred, ino, change, fh);
        }
        let result = match result {
            Err(Errno::NotFound | Errno::Stale) if self.is_left(d, pid, ino) => {
                let mut nodes = self.nodes();
                let attr = nodes.attr_mut(ino).ok_or(Errno::Stale)?;
                let mut changed = *attr;
                pando_client::file::change_attr(&mut changed, cred, &change, self.now())?;
                // A directory keeps its bits when it is given away.
                changed.perm = change.perm.unwrap_or(attr.perm);
                *attr = changed;
                Ok(left(changed))
            }
            result => result,
        };
        self.by_node(pid, ino, result)
    }

    /// Opens a directory. What was walked to without asking is looked at: whether it is there.
    pub fn open_dir(&self, d: &C::Driver, cred: &Cred, pid: u32, ino: Ino) -> Result<u64, Errno> {
        let asked = self.nodes().learnt_within(ino, self.settings.timeout);
        let there = if self.settings.kernel_checks && !asked && ino != Ino::ROOT {
            self.getattr(d, ino).map(drop)
        } else {
            Ok(())
        };
        let opened = match there.and_then(|()| self.opendir(d, cred, ino)) {
            // It was there when it was looked up.
            Err(Errno::NotFound | Errno::Stale) if self.again.trail.again(pid) => self.open_left(cred, ino),
            opened => opened,
        };
        let fh = self.by_node(pid, ino, opened)?;
        self.nodes().opened_dir(ino);
        Ok(fh)
    }

    /// Opens a directory that was removed since it was looked up, or that somebody works in.
    fn open_left(&self, cred: &Cred, ino: Ino) -> Result<u64, Errno> {
        let attr = self.nodes().get(ino).map(|n| n.attr).ok_or(Errno::Stale)?;
        if !self.settings.kernel_checks {
            self.check_removed(cred, &attr, Access(libc::R_OK as u8))?;
        }
        Ok(self.dirs.insert(DirHandle::new(cred)))
    }

    /// A handle of a directory is closed.
    pub fn close_dir(&self, ino: Ino, fh: u64) {
        if self.dirs.remove(fh).is_some() {
            self.nodes().closed_dir(ino);
        }
    }

    /// A removed directory has no extended attributes.
    pub fn xattr(
        &self,
        d: &C::Driver,
        cred: &Cred,
        pid: u32,
        ino: Ino,
        attr: &[u8],
    ) -> Result<Vec<u8>, Errno> {
        let value = self.get_xattr(d, cred, ino, attr);
        // Lists of permissions the kernel asks for by itself, on its way to the call.
        let on_the_way = attr.starts_with(b"system.");
        match self.left_or(d, pid, ino, value, Err(Errno::NoData)) {
            Err(e @ (Errno::NotFound | Errno::Stale)) if on_the_way => {
                if self.again.trail.again(pid) {
                    Err(Errno::NoData)
                } else {
                    self.by_node(pid, ino, Err(e))
                }
            }
            value if on_the_way => value,
            value => self.by_node(pid, ino, value),
        }
    }

    /// Nor any names of such.
    pub fn xattrs(&self, d: &C::Driver, cred: &Cred, pid: u32, ino: Ino) -> Result<Vec<u8>, Errno> {
        let names = self.list_xattrs(d, cred, ino);
        let names = self.left_or(d, pid, ino, names, Ok(Vec::new()));
        self.by_node(pid, ino, names)
    }

    /// And gets none.
    pub fn put_xattr(
        &self,
        d: &C::Driver,
        cred: &Cred,
        pid: u32,
        ino: Ino,
        (attr, value): (&[u8], &[u8]),
        mode: XattrMode,
    ) -> Result<(), Errno> {
        let set = self.set_xattr(d, cred, ino, (attr, value), mode);
        let set = self.left_or(d, pid, ino, set, Err(Errno::Unsupported));
        self.by_node(pid, ino, set)
    }

    /// Nor can any be taken from it.
    pub fn take_xattr(
        &self,
        d: &C::Driver,
        cred: &Cred,
        pid: u32,
        ino: Ino,
        attr: &[u8],
    ) -> Result<(), Errno> {
        let removed = self.remove_xattr(d, cred, ino, attr);
        let removed = self.left_or(d, pid, ino, removed, Err(Errno::NoData));
        self.by_node(pid, ino, removed)
    }

    fn left_or<R>(
        &self,
        d: &C::Driver,
        pid: u32,
        ino: Ino,
        result: Result<R, Errno>,
        left: Result<R, Errno>,
    ) -> Result<R, Errno> {
        match result {
            Err(Errno::NotFound | Errno::Stale) if self.is_left(d, pid, ino) => left,
            result => result,
        }
    }
}

/// As a removed directory is shown.
fn left(attr: Attr) -> Shown {
    Shown::new(&Attr {
        nlink: 0,
        size: 0,
        ..attr
    })
}
