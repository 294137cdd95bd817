//! Regular files: open, create, read, write, flush, fsync, release.

use crate::core::{Core, Shown};
use crate::driver::{Cluster, Driver};
use crate::foreseen::Ahead;
use crate::open::{FileHandle, FileSlot, FileState};
use fuser::FopenFlags;
use nix::libc;
use pando_client::file::{self, Allocation, Fill, OpenFile, Opened, Ops, Place};
use pando_types::{Access, Attr, Cred, Errno, FileKind, Guard, Ino, Mode, Name};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// An open for execution, as the kernel marks it in the flags.
const FMODE_EXEC: i32 = 0x20;

/// How often a file is created or opened again, whose name others replace meanwhile, by a call that tries ten
/// times itself.
const TRIES: usize = 10;

/// What open flags ask for.
pub(crate) struct Want {
    access: Access,
    writable: bool,
    truncate: bool,
    /// The kernel keeps no page of what is written.
    unpaged: bool,
}

impl Want {
    /// That it stays there, and nothing else.
    const PIN: Want = Want {
        access: Access(0),
        writable: false,
        truncate: false,
        unpaged: false,
    };

    /// Whether the file is read and nothing else.
    pub fn only_reads(&self) -> bool {
        self.access == Access::READ
    }

    pub fn new(flags: i32) -> Want {
        let truncate = flags & libc::O_TRUNC != 0;
        let (access, writable) = match flags & libc::O_ACCMODE {
            libc::O_WRONLY => (Access::WRITE, true),
            libc::O_RDWR => (Access::READ.and(Access::WRITE), true),
            // A program without read permission can be run.
            _ if flags & FMODE_EXEC != 0 => (Access::EXEC, false),
            _ => (Access::READ, false),
        };
        let access = if truncate {
            access.and(Access::WRITE)
        } else {
            access
        };
        Want {
            access,
            writable,
            truncate,
            // The place that the kernel takes for the end may be another. (What can be read too may be
            // mapped, which needs pages.)
            unpaged: flags & (libc::O_ACCMODE | libc::O_APPEND) == libc::O_WRONLY | libc::O_APPEND,
        }
    }
}

/// Where bytes are written, and how.
pub(crate) struct To {
    /// Where the kernel takes it to be.
    pub offset: u64,
    /// At the end, wherever that is then.
    pub append: bool,
    /// `O_DIRECT`: it is published when it returns.
    pub direct: bool,
}

impl To {
    /// A write of the kernel. `cached`: of a page of a mapping, which goes where it came from, whatever the
    /// handle was opened with.
    pub fn new(offset: u64, flags: i32, cached: bool) -> To {
        To {
            offset,
            append: !cached && flags & libc::O_APPEND != 0,
            direct: !cached && flags & libc::O_DIRECT != 0,
        }
    }
}

impl<C: Cluster> Core<C> {
    /// `ahead`: what the look right before has opened.
    pub fn open(
        &self,
        d: &C::Driver,
        cred: &Cred,
        ino: Ino,
        want: &Want,
        ahead: Option<Ahead>,
    ) -> Result<(u64, FopenFlags), Errno> {
        let slot = self.nodes().file(ino).ok_or(Errno::Unsupported)?;
        // Held over the request: see `FileSlot`.
        let mut state = slot.write();
        let removed = state.open.as_ref().filter(|f| f.is_removed()).map(OpenFile::attr);
        if let Some(attr) = removed {
            // By way of /proc/PID/fd.
            self.check_removed(cred, &attr, want.access)?;
            return self.opened(d, cred, ino, &slot, &mut state, want, None, true);
        }
        self.end_waiting(d, &mut state)?;
        let (place, opened) = match ahead.filter(|ahead| self.is_still(ahead, ino, &state)) {
            Some(ahead) => (ahead.place, ahead.opened),
            None => self.open_in_place(d, cred, ino, want)?,
        };
        let before = state.open.as_ref().map_or(state.cached, OpenFile::cached_version);
        let version = opened.entry.version;
        let keep = before == Some(version);
        self.attributes_changed(ino, version);
        self.opened(d, cred, ino, &slot, &mut state, want, Some((place, opened)), keep)
    }

    /// Asks a server to open a file. REQUIRES: the file's lock is held.
    fn open_in_place(
        &self,
        d: &C::Driver,
        cred: &Cred,
        ino: Ino,
        want: &Want,
    ) -> Result<(Place, Opened), Errno> {
        let generation = self.at(ino)?.generation;
        self.in_place(d, ino, |place| {
            let opened = match d.run(file::open_kept(d.ops(), cred, &place, want.access)) {
                // Something else has the name now.
                Err(Errno::IsDir | Errno::Loop | Errno::Unsupported) => return Err(Errno::Stale),
                opened => opened?,
            };
            let right = opened.entry.attr.ino == ino && opened.entry.attr.generation == generation;
            right.then_some((place, opened)).ok_or(Errno::Stale)
        })
    }

    /// Fails unless a user may open something that has no name any more, of which no server can be asked.
    pub fn check_removed(&self, cred: &Cred, attr: &Attr, want: Access) -> Result<(), Errno> {
        let acls = self.nodes().acls(attr.ino, Duration::MAX);
        let guard = Guard {
            perm: attr.perm,
            uid: attr.uid,
            gid: attr.gid,
            acl: acls.as_ref().and_then(|(_, acls)| acls.access.as_ref()),
            is_dir: attr.kind == FileKind::Directory,
        };
        cred.may(want, &guard).then_some(()).ok_or(Errno::Access)
    }

    /// Adds a handle. `learnt`: what a server has just answered. `keep`: the kernel's pages are still good.
    #[allow(clippy::too_many_arguments)]
    fn opened(
        &self,
        d: &C::Driver,
        cred: &Cred,
        ino: Ino,
        slot: &Arc<crate::open::FileSlot>,
        state: &mut FileState,
        want: &Want,
        learnt: Option<(Place, Opened)>,
        keep: bool,
    ) -> Result<(u64, FopenFlags), Errno> {
        let mut clean = false;
        if let Some((place, opened)) = learnt {
            clean = opened.created;
            let maker = clean.then(|| cred.clone());
            match &mut state.open {
                Some(f) => {
                    f.location().set(place);
                    f.refresh(opened)?;
                    if !keep {
                        f.cache_dropped();
                    }
                }
                None => {
                    let f = self.open_file(place, opened)?;
                    state.open = Some(match &maker {
                        Some(maker) => f.made_by(maker),
                        None => f,
                    });
                }
            }
        }
        let f = state.open.as_mut().ok_or(Errno::Stale)?;
        self.nodes().keep(ino, f.hold());
        // What the kernel has of it it reads without us.
        if keep && !clean && want.access.0 & Access::READ.0 != 0 && f.size() > 0 {
            self.accesses.read(f, self.now());
        }
        if want.truncate && !clean {
            let done = d.run(f.truncate(d.ops(), d.blocks(), cred, 0, self.now(), true));
            if let Err(e) = done {
                self.drop_unused(ino, state);
                return Err(e);
            }
        }
        state.handles += 1;
        let handle = FileHandle {
            ino,
            slot: slot.clone(),
            cred: cred.clone(),
            readable: want.access.0 & Access::READ.0 != 0,
            writable: want.writable,
            opened: Instant::now(),
            lockers: Mutex::default(),
        };
        let mut flags = FopenFlags::empty();
        if keep {
            flags |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        if want.unpaged {
            flags |= FopenFlags::FOPEN_DIRECT_IO;
        }
        Ok((self.files.insert(handle), flags))
    }

    fn open_file(&self, place: Place, opened: Opened) -> Result<OpenFile, Errno> {
        let file = OpenFile::new(place, opened, self.settings.data_sync)?.gathering();
        Ok(match self.turns.get() {
            Some(turns) => file.appending(turns.clone()),
            None => file,
        })
    }

    fn drop_unused(&self, ino: Ino, state: &mut FileState) {
        if state.handles == 0
            && let Some(f) = state.open.take()
        {
            // The kernel's pages may hold what could not be published.
            state.cached = f.cached_version().filter(|_| !f.is_dirty());
            state.version = f.version();
            self.nodes().keep(ino, None);
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub fn create(
        &self,
        d: &C::Driver,
        cred: &Cred,
        parent: Ino,
        name: &Name,
        mode: Mode,
        flags: i32,
    ) -> Result<(Shown, u64, FopenFlags), Errno> {
        let want = Want::new(flags);
        let exclusive = flags & libc::O_EXCL != 0;
        let waits = |slot: &FileSlot| slot.read().open.as_ref().is_some_and(OpenFile::waits);
        if let Some(slot) = self.file_at(parent, name).1.filter(|slot| waits(slot)) {
            self.end_waiting(d, &mut slot.write())?;
        }
        let mut tries = 0;
        let (place, opened) = loop {
            tries += 1;
            let created = self.in_dir(d, parent, |dir| {
                let place = Place {
                    dir,
                    name: name.clone(),
                };
                let opened = d.run(file::create(d.ops(), cred, &place, mode, exclusive, want.access))?;
                Ok((place, opened))
            });
            match created {
                // Others replace it all the time.
                Err(Errno::Stale) if tries < TRIES && !self.is_nowhere(d, parent) => {}
                // Something else than a file has the name by now: the kernel is to look at it.
                Err(Errno::Loop | Errno::Unsupported) => return Err(Errno::Stale),
                created => break created?,
            }
        };
        self.admit(parent, name, &opened.entry, &opened.entry.attr)?;
        self.made(d, cred, &want, place, opened)
    }

    /// Opens what has this name, so that it stays there.
    pub fn open_named(
        &self,
        d: &C::Driver,
        cred: &Cred,
        parent: Ino,
        name: &Name,
        want: Access,
    ) -> Result<(Place, Opened), Errno> {
        self.in_dir(d, parent, |dir| {
            let name = name.clone();
            let place = Place { dir, name };
            let opened = d.run(file::open_kept(d.ops(), cred, &place, want))?;
            Ok((place, opened))
        })
    }

    /// Opens a regular file, as whoever may see its name, so that it stays there: for a LOOKUP, of which the
    /// kernel gets a reference.
    pub fn hold(&self, d: &C::Driver, parent: Ino, name: &Name) -> Result<(Shown, u64), Errno> {
        let own = d.ops().own();
        let (place, opened) = self.open_named(d, &own, parent, name, Want::PIN.access)?;
        if opened.entry.attr.kind != FileKind::Regular {
            return Err(Errno::Unsupported);
        }
        let ino = opened.entry.attr.ino;
        self.admit(parent, name, &opened.entry, &opened.entry.attr)?;
        // Another for as long as it is held: the kernel may give back the one that it gets before it asks
        // again.
        self.nodes().count(ino);
        match self.made(d, &own, &Want::PIN, place, opened) {
            Ok((shown, fh, _)) => Ok((shown, fh)),
            Err(e) => {
                self.forget(ino, 1);
                Err(e)
            }
        }
    }

    /// `O_TMPFILE`: a file without a name, which may get one by link(2) unless it was opened with `O_EXCL`.
    pub fn create_unnamed(
        &self,
        d: &C::Driver,
        cred: &Cred,
        parent: Ino,
        mode: Mode,
        flags: i32,
    ) -> Result<(Shown, u64, FopenFlags), Errno> {
        let linkable = flags & libc::O_EXCL == 0;
        let opened = self.in_dir(d, parent, |dir| {
            d.run(file::create_unnamed(d.ops(), cred, dir, mode, linkable))
        })?;
        let home = opened.entry.home.clone().ok_or(Errno::Io)?;
        let name = home.name.clone();
        {
            let mut nodes = self.nodes();
            nodes.see_unnamed(&opened.entry, Instant::now());
            nodes.count(opened.entry.attr.ino);
            nodes.shown(opened.entry.attr.ino, Some(opened.entry.version));
        }
        self.made(d, cred, &Want::new(flags), Place { dir: home, name }, opened)
    }

    /// Opens what was created, of which the kernel gets a reference.
    fn made(
        &self,
        d: &C::Driver,
        cred: &Cred,
        want: &Want,
        place: Place,
        opened: Opened,
    ) -> Result<(Shown, u64, FopenFlags), Errno> {
        let view = opened.entry.clone();
        let ino = view.attr.ino;
        // Not in one with what follows: that takes the lock of the nodes again.
        let slot = self.nodes().file(ino);
        let done = slot.ok_or(Errno::Unsupported).and_then(|slot| {
            let mut state = slot.write();
            let before = state.open.as_ref().map_or(state.cached, OpenFile::cached_version);
            let keep = before == Some(view.version);
            let (fh, flags) =
                self.opened(d, cred, ino, &slot, &mut state, want, Some((place, opened)), keep)?;
            // The kernel is not told of a pin, and keeps the pages that it has.
            if want.access == Want::PIN.access
                && let Some(f) = &mut state.open
            {
                f.cache_stays(before);
            }
            let attr = state.open.as_ref().map_or(view.attr, OpenFile::attr);
            Ok((self.shown(attr), fh, flags))
        });
        if done.is_err() {
            self.forget(ino, 1);
        }
        done
    }

    pub fn read(&self, d: &C::Driver, fh: u64, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        self.check_locks(fh)?;
        let handle = self.files.get(fh).ok_or(Errno::BadHandle)?;
        let state = handle.slot.read();
        let f = state.open.as_ref().ok_or(Errno::BadHandle)?;
        let bytes = d.run(f.read(d.blocks(), offset, size))?;
        if size > 0 {
            self.accesses.read(f, self.now());
        }
        Ok(bytes)
    }

    /// Writes. Waits for no publish of what was written before, but for its own with `O_DIRECT`. (Of `O_SYNC`
    /// the kernel asks an fsync.)
    pub fn write(&self, d: &C::Driver, fh: u64, data: &[u8], to: To) -> Result<(), Errno> {
        self.written.fetch_add(1, Ordering::Relaxed);
        self.check_locks(fh)?;
        let handle = self.files.get(fh).ok_or(Errno::BadHandle)?;
        let full = |f: &OpenFile| to.append && f.is_full_for(data.len());
        if handle.slot.read().open.as_ref().is_some_and(full) {
            self.publish(d, &handle)?;
        }
        {
            let mut state = handle.slot.write_beside();
            self.check_not_ended()?;
            let f = state.open.as_mut().ok_or(Errno::BadHandle)?;
            if to.append {
                // The kernel has put it into other pages.
                if to.offset != f.size() {
                    self.watch.drop_pages(handle.ino);
                }
                d.run(f.append(d.ops(), d.blocks(), &handle.cred, data, self.now()))?;
            } else {
                d.run(f.write(d.ops(), d.blocks(), &handle.cred, to.offset, data, self.now()))?;
            }
            self.publisher.wrote(&handle, &mut state);
        }
        match to.direct {
            true => self.publish(d, &handle),
            false => Ok(()),
        }
    }

    /// Nobody would publish what is written now. REQUIRES: the file's lock is held.
    pub fn check_not_ended(&self) -> Result<(), Errno> {
        match self.ended.load(Ordering::SeqCst) {
            true => Err(Errno::Io),
            false => Ok(()),
        }
    }

    /// `fallocate`: space is not set aside, but there must be some, the size grows, and holes are made.
    pub fn allocate(&self, d: &C::Driver, fh: u64, offset: u64, len: u64, mode: i32) -> Result<(), Errno> {
        const HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        if mode & !(libc::FALLOC_FL_KEEP_SIZE | HOLE) != 0 {
            return Err(Errno::Unsupported);
        }
        self.check_locks(fh)?;
        let handle = self
            .files
            .get(fh)
            .filter(|h| h.writable)
            .ok_or(Errno::BadHandle)?;
        let what = Allocation {
            offset,
            len,
            fill: match mode & HOLE {
                0 => Fill::AsItIs,
                libc::FALLOC_FL_ZERO_RANGE => Fill::Zeros,
                _ => Fill::Hole,
            },
            keeps_size: mode & libc::FALLOC_FL_KEEP_SIZE != 0,
        };
        let mut state = handle.slot.write();
        self.check_not_ended()?;
        let f = state.open.as_mut().ok_or(Errno::BadHandle)?;
        let done = d.run(f.allocate(d.ops(), d.blocks(), &handle.cred, what, self.now()));
        self.publisher.wrote(&handle, &mut state);
        done
    }

    /// Whether reading or writing a file, up to `end`, waits for no block.
    pub fn has_bytes(&self, d: &C::Driver, fh: u64, end: u64) -> bool {
        let Some(handle) = self.files.get(fh) else {
            return true;
        };
        let state = handle.slot.try_read();
        let limit = d.ops().inline_limit();
        state.is_some_and(|state| match &state.open {
            Some(f) => f.is_in_memory(limit) && end <= u64::from(limit) && !self.locks.are_used(),
            None => true,
        })
    }

    /// Whether attributes of something, but for its size, change without waiting for a block.
    pub fn changes_at_once(&self, d: &C::Driver, ino: u64) -> bool {
        let slot = self.nodes().file(Ino(ino));
        slot.is_none_or(|slot| {
            let state = slot.try_read();
            let at_hand = |f: &OpenFile| f.is_in_memory(d.ops().inline_limit());
            state.is_some_and(|state| state.open.as_ref().is_none_or(at_hand))
        })
    }

    /// Whether a descriptor is closed without waiting for a lock or a block.
    pub fn closes_at_once(&self, d: &C::Driver, fh: u64) -> bool {
        let Some(handle) = self.files.get(fh) else {
            return true;
        };
        let Some(state) = handle.slot.try_read() else {
            return false;
        };
        let limit = d.ops().inline_limit();
        let quiet = |f: &OpenFile| f.is_in_memory(limit) || !f.is_dirty() && !f.is_removed();
        !self.locks.are_used() && state.open.as_ref().is_none_or(quiet)
    }

    pub fn flush(&self, d: &C::Driver, fh: u64) -> Result<(), Errno> {
        let handle = self.files.get(fh).ok_or(Errno::BadHandle)?;
        self.publish(d, &handle)
    }

    fn publish(&self, d: &C::Driver, handle: &FileHandle) -> Result<(), Errno> {
        if !handle.slot.read().open.as_ref().is_some_and(OpenFile::is_dirty) {
            return Ok(());
        }
        let locked = self.still_locked(handle);
        let mut state = handle.slot.write();
        if let Err(e) = locked {
            self.forget_changes(d, handle, &mut state);
            return Err(e);
        }
        let Some(f) = &mut state.open else {
            return Ok(());
        };
        let flushed = match d.run(f.flush(d.ops(), d.blocks(), &handle.cred)) {
            // Removed just now, while what another mount had written was fetched.
            Err(Errno::NotFound | Errno::Stale) if self.goes_home(d, f) => {
                d.run(f.flush(d.ops(), d.blocks(), &handle.cred))
            }
            flushed => flushed,
        };
        self.merged(f);
        flushed
    }

    /// After a publish: what another mount had published may have been put together with what was written
    /// here.
    pub fn merged(&self, f: &OpenFile) {
        if f.cached_version().is_none() {
            self.watch.drop_pages(f.key().ino);
        }
    }

    /// Whether a file is at home that is not where it was.
    fn goes_home(&self, d: &C::Driver, f: &OpenFile) -> bool {
        let view = f
            .hold()
            .map(|hold| d.run(d.ops().find_home(&d.ops().own(), &hold)));
        let Some(Ok(view)) = view else {
            return false;
        };
        let Some(dir) = view.home.clone() else {
            return false;
        };
        self.nodes().learn(view.attr.ino, &view, Instant::now());
        let name = dir.name.clone();
        f.location().set(Place { dir, name });
        true
    }

    /// What was written under a lock that was lost is not published: it would overwrite what its next holder
    /// wrote.
    pub fn forget_changes(&self, d: &C::Driver, handle: &FileHandle, state: &mut FileState) {
        let Some(f) = state.open.as_mut().filter(|f| f.is_dirty()) else {
            return;
        };
        tracing::error!(
            ino = handle.ino.0,
            "writes under a lock that was lost were dropped, for others may have had the lock since"
        );
        d.run(f.forget_changes(d.ops(), &handle.cred));
    }

    pub fn fsync(&self, d: &C::Driver, fh: u64) -> Result<(), Errno> {
        self.check_locks(fh)?;
        let handle = self.files.get(fh).ok_or(Errno::BadHandle)?;
        let mut state = handle.slot.write();
        let f = state.open.as_mut().ok_or(Errno::BadHandle)?;
        let synced = d.run(f.fsync(d.ops(), d.blocks(), &handle.cred));
        self.merged(f);
        synced
    }

    /// A handle is closed for good. Pages of a mapping may have come after the last flush; the kernel does
    /// not wait for this, so an error can only be logged.
    pub fn release(&self, d: &C::Driver, fh: u64) {
        let Some(handle) = self.files.remove(fh) else {
            return;
        };
        let locked = self.still_locked(&handle);
        let mut state = handle.slot.write();
        if locked.is_err() {
            self.forget_changes(d, &handle, &mut state);
        }
        state.handles = state.handles.saturating_sub(1);
        let last = state.handles == 0;
        let Some(f) = &mut state.open else { return };
        if f.is_removed() {
            if last {
                if let Err(e) = d.run(f.free(d.blocks())) {
                    tracing::warn!(ino = handle.ino.0, "blocks of a removed file were not freed: {e}");
                }
                self.holder.send_off(f.release());
            }
        } else if (handle.writable || last)
            && f.is_dirty()
            && let Err(e) = d.run(f.flush(d.ops(), d.blocks(), &handle.cred))
        {
            tracing::error!(
                ino = handle.ino.0,
                lost = last,
                "writes to a closed file were not published: {e}"
            );
            if last
                && e == Errno::NoSpace
                && let Err(e) = d.run(f.give_back(d.ops(), d.blocks(), &handle.cred))
            {
                tracing::error!(ino = handle.ino.0, "and what they had stored is still there: {e}");
            }
        }
        if last {
            self.drop_unused(handle.ino, &mut state);
        }
    }

    /// The mount ends by force: publishes all open files, and lets nobody write any more.
    pub fn end_writes(&self, d: &C::Driver) {
        self.ended.store(true, Ordering::SeqCst);
        self.publish_all(d);
    }

    /// Publishes all open files.
    pub fn publish_all(&self, d: &C::Driver) {
        for handle in self.files.all() {
            if let Err(e) = self.publish(d, &handle) {
                tracing::error!(ino = handle.ino.0, "writes were not published: {e}");
            }
        }
    }
}
