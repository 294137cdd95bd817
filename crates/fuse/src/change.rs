//! Changes of attributes and names.

use crate::core::{Core, Shown, entry};
use crate::driver::{Cluster, Driver};
use crate::open::{FileSlot, FileState, Whole};
use pando_client::file::{self, OpenFile, Ops, Place};
use pando_format::codec::Blob;
use pando_types::{
    Access, AttrChange, Cred, DirStat, Errno, FileKind, Guard, Ino, Mode, Name, Perm, Slot, TimeChange,
};
use pando_wire::{Answer, EntryView, Object, Op, Outcome, RenameMode};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// `f`, of which `view` was shown before, has lost a name in a directory of `slot`.
fn lost_one(f: &mut OpenFile, view: &EntryView, slot: Slot, now: pando_types::Timestamp) {
    // Others have it open, too, or this mount by a name it did not know of: it is at home, and goes on as any
    // other.
    if view.attr.nlink == 0 {
        f.learn(view);
        return;
    }
    if view.attr.nlink == 1 {
        // Others may have published blocks of it.
        f.learn(view);
        f.removed(slot, now);
        return;
    }
    let mut left = view.clone();
    left.attr.nlink -= 1;
    left.attr.ctime = left.attr.ctime.max(now);
    f.learn(&left);
}

impl<C: Cluster> Core<C> {
    /// `fh`: the handle a truncate came through.
    pub fn setattr(
        &self,
        d: &C::Driver,
        cred: &Cred,
        ino: Ino,
        mut change: AttrChange,
        fh: Option<u64>,
    ) -> Result<Shown, Errno> {
        let Some(slot) = self.nodes().file(ino) else {
            if change.size.is_some() {
                let dir = self
                    .nodes()
                    .get(ino)
                    .is_some_and(|n| n.kind == FileKind::Directory);
                return Err(if dir { Errno::IsDir } else { Errno::Invalid });
            }
            let view = self.set(d, cred, ino, change)?;
            let attr = self.whole(d, &view)?;
            return Ok(Shown::new(&attr));
        };
        if change.atime.is_some() {
            self.accesses.forget(ino);
        }
        if let (Some(fh), Some(_)) = (fh, change.size) {
            self.check_locks(fh)?;
        }
        let mut state = slot.write();
        let state = &mut *state;
        if let Some(shown) = self.put_off(d.ops().inline_limit(), cred, ino, &slot, state, &change) {
            return Ok(shown);
        }
        self.end_waiting(d, state)?;
        let mut version = None;
        if let Some(size) = change.size.take() {
            // The kernel asks for a new mtime with each truncate by path; the size changes it anyway, and
            // asked for by itself it would need ownership.
            if change.mtime == Some(TimeChange::Now) {
                change.mtime = None;
            }
            self.truncate(d, cred, ino, state, size, fh)?;
            version = Some(state.version);
        }
        if change != AttrChange::default() {
            match &mut state.open {
                Some(f) if f.is_removed() => f.change_removed(cred, &change, self.now())?,
                open => {
                    // A later publish would set times back and clear set-id bits.
                    if let Some(f) = open {
                        d.run(f.flush(d.ops(), d.blocks(), cred))?;
                    }
                    let view = self.set(d, cred, ino, change)?;
                    version = Some(view.version);
                    if let Some(f) = open {
                        f.learn(&view);
                    }
                }
            }
        }
        let attr = match &state.open {
            Some(f) => f.attr(),
            None => self.nodes().get(ino).map(|n| n.attr).ok_or(Errno::Stale)?,
        };
        let version = state.open.as_ref().map(OpenFile::version).or(version);
        self.nodes().shown(ino, version);
        Ok(self.shown(attr))
    }

    fn set(&self, d: &C::Driver, cred: &Cred, ino: Ino, change: AttrChange) -> Result<EntryView, Errno> {
        let at = self.at(ino)?;
        let number = self.nodes().number(ino);
        let view = self.at_name(d, ino, |place| {
            self.set_in(d, cred, number, at.generation, place, change)
        })?;
        self.nodes().learn(ino, &view, Instant::now());
        Ok(view)
    }

    fn set_in(
        &self,
        d: &C::Driver,
        cred: &Cred,
        ino: Ino,
        generation: pando_types::Generation,
        place: Place,
        change: AttrChange,
    ) -> Result<EntryView, Errno> {
        let Place { dir, name } = place;
        let op = Op::SetAttr {
            object: Object {
                dir,
                name,
                ino,
                generation,
            },
            change,
            handle: None,
        };
        entry(self.op(d, cred, op)?)
    }

    fn truncate(
        &self,
        d: &C::Driver,
        cred: &Cred,
        ino: Ino,
        state: &mut FileState,
        size: u64,
        fh: Option<u64>,
    ) -> Result<(), Errno> {
        let through_handle = match fh {
            Some(fh) => self.files.get(fh).is_some_and(|h| h.writable),
            None => false,
        };
        let now = self.now();
        if let Some(f) = &mut state.open {
            if through_handle {
                return d.run(f.truncate(d.ops(), d.blocks(), cred, size, now, true));
            }
            // By path: what is known of the directory may be newer than what it was opened with.
            return self.in_place(d, ino, |place| {
                f.location().set(place);
                d.run(f.truncate(d.ops(), d.blocks(), cred, size, now, false))
            });
        }
        // By path, of a file that nobody here has open: permission is checked by opening it.
        let (place, opened) = self.in_place(d, ino, |place| {
            let opened = d.run(file::open(d.ops(), cred, &place, Access::WRITE))?;
            let right = opened.entry.attr.ino == ino;
            right.then_some((place, opened)).ok_or(Errno::Stale)
        })?;
        let mut f = OpenFile::new(place, opened, self.settings.data_sync)?;
        // If the kernel's pages were good before, they are good after: it cuts them itself.
        let pages = state.cached == f.cached_version();
        d.run(f.truncate(d.ops(), d.blocks(), cred, size, now, true))?;
        let view = EntryView {
            attr: f.attr(),
            dir: None,
            seal: None,
            layout: pando_format::Layout::None,
            version: f.version(),
            home: self.at(ino)?.home,
            // Whoever changes a file's size takes its capabilities; others matter to nobody here.
            xattrs: false,
            acl: self
                .nodes()
                .acls(ino, Duration::MAX)
                .and_then(|(_, acls)| acls.access),
            lease: 0,
        };
        self.nodes().learn(ino, &view, Instant::now());
        state.cached = f.cached_version().filter(|_| pages);
        state.version = f.version();
        Ok(())
    }

    pub fn mkdir(
        &self,
        d: &C::Driver,
        cred: &Cred,
        parent: Ino,
        name: &Name,
        mode: Mode,
    ) -> Result<Shown, Errno> {
        let view = self.in_dir(d, parent, |dir| {
            entry(self.op(
                d,
                cred,
                Op::Mkdir {
                    dir,
                    name: name.clone(),
                    mode,
                },
            )?)
        })?;
        // Its content half is known without asking.
        let born = view.attr.ctime;
        let content = DirStat::born(born);
        self.admit(parent, name, &view, &crate::attr::joined(view.attr, &content))
    }

    /// A special file.
    pub fn make_special(
        &self,
        d: &C::Driver,
        cred: &Cred,
        parent: Ino,
        name: &Name,
        (kind, mode, rdev): (FileKind, Mode, u32),
    ) -> Result<Shown, Errno> {
        let view = self.in_dir(d, parent, |dir| {
            let op = Op::Mknod {
                dir,
                name: name.clone(),
                kind,
                mode,
                rdev: rdev.into(),
            };
            entry(self.op(d, cred, op)?)
        })?;
        self.admit(parent, name, &view, &view.attr)
    }

    /// A regular file without opening it.
    pub fn mknod(
        &self,
        d: &C::Driver,
        cred: &Cred,
        parent: Ino,
        name: &Name,
        mode: Mode,
    ) -> Result<Shown, Errno> {
        let view = self.in_dir(d, parent, |dir| {
            let want = 0;
            let op = Op::Create {
                dir,
                name: name.clone(),
                mode,
                exclusive: true,
                want,
            };
            match self.op(d, cred, op)? {
                Answer::Opened { entry, .. } => Ok(entry),
                _ => Err(Errno::Io),
            }
        })?;
        self.admit(parent, name, &view, &view.attr)
    }

    pub fn symlink(
        &self,
        d: &C::Driver,
        cred: &Cred,
        parent: Ino,
        name: &Name,
        target: &[u8],
    ) -> Result<Shown, Errno> {
        let view = self.in_dir(d, parent, |dir| {
            let op = Op::Symlink {
                dir,
                name: name.clone(),
                target: Blob(target.to_vec()),
            };
            entry(self.op(d, cred, op)?)
        })?;
        self.admit(parent, name, &view, &view.attr)
    }

    pub fn readlink(&self, d: &C::Driver, cred: &Cred, ino: Ino) -> Result<Vec<u8>, Errno> {
        let target = {
            let nodes = self.nodes();
            let node = nodes.get(ino).ok_or(Errno::Stale)?;
            if node.kind != FileKind::Symlink {
                return Err(Errno::Invalid);
            }
            node.target.clone()
        };
        // The target of a symlink never changes.
        if let Some(target) = target {
            return Ok(target.0);
        }
        self.in_place(d, ino, |Place { dir, name }| {
            match self.op(d, cred, Op::ReadLink { dir, name })? {
                Answer::Target(t) => Ok(t.0),
                _ => Err(Errno::Io),
            }
        })
    }

    pub fn rmdir(&self, d: &C::Driver, cred: &Cred, parent: Ino, name: &Name) -> Result<(), Errno> {
        self.nodes().changing(parent);
        let answer = self.in_dir(d, parent, |dir| {
            self.op(
                d,
                cred,
                Op::Rmdir {
                    dir,
                    name: name.clone(),
                },
            )
        })?;
        if let Answer::Removed(view) = answer {
            self.nodes().gone(view.attr.ino);
        }
        Ok(())
    }

    /// Runs what may begin a hold under the session that keeps it.
    fn holding(&self, d: &C::Driver, cred: &Cred, op: Op, held: bool) -> Outcome {
        if held {
            self.holder.op(d, cred, op)
        } else {
            self.op(d, cred, op)
        }
    }

    pub fn unlink(&self, d: &C::Driver, cred: &Cred, parent: Ino, name: &Name) -> Result<(), Errno> {
        self.nodes().changing(parent);
        let (ino, slot) = self.file_at(parent, name);
        let mut state = slot.as_ref().map(|s| s.write());
        if let Some(state) = &mut state {
            self.end_waiting(d, state)?;
        }
        let held = state.as_ref().is_some_and(|s| s.open.is_some());
        let mut last_dir = None;
        let answer = self.in_dir(d, parent, |dir| {
            last_dir = Some(dir.clone());
            self.holding(
                d,
                cred,
                Op::Unlink {
                    dir,
                    name: name.clone(),
                    held,
                },
                held,
            )
        })?;
        if let Answer::Removed(view) = answer {
            let mine = state
                .as_mut()
                .filter(|_| ino == Some(view.attr.ino))
                .and_then(|s| s.open.as_mut());
            let slot = d.ops().slot_of(&last_dir.ok_or(Errno::Io)?, name);
            let told = mine.map(|f| lost_one(f, &view, slot, self.now())).is_some();
            drop(state);
            self.lost_name((parent, name), &view, held, told, slot);
        }
        Ok(())
    }

    /// After a name of `view`, in a directory of `slot`, is gone. `told`: its open state knows.
    fn lost_name(&self, (parent, name): (Ino, &Name), view: &EntryView, held: bool, told: bool, slot: Slot) {
        let ino = view.attr.ino;
        let file = self.nodes().file(ino);
        let others = self.nodes().lost(parent, name, view);
        if told {
            return;
        }
        // The name stood for another file than this mount believed.
        let mut open = false;
        if let Some(file) = file
            && let Some(f) = &mut file.write().open
            && f.key().generation == view.attr.generation
        {
            lost_one(f, view, slot, self.now());
            open = true;
        }
        if held && !open && !others {
            let op = Op::Release {
                slot,
                ino,
                generation: view.attr.generation,
            };
            self.holder.send_off(op);
        }
    }

    /// Lets a change of attributes wait for the bytes of a file that was made here, and that one program has
    /// open: so long as names are believed at most, and only where somebody comes by then. Returns what to
    /// show; `None`: it is to be told now.
    #[allow(clippy::too_many_arguments)]
    pub fn put_off(
        &self,
        inline_limit: u32,
        cred: &Cred,
        ino: Ino,
        slot: &Arc<FileSlot>,
        state: &mut FileState,
        change: &AttrChange,
    ) -> Option<Shown> {
        let plain = self
            .nodes()
            .acls(ino, Duration::MAX)
            .is_some_and(|(_, acls)| acls.access.is_none());
        if !plain
            || state.handles != 1
            || self.locks.are_used()
            || !self.publisher.comes_within(self.settings.timeout)
        {
            return None;
        }
        let f = state.open.as_mut().filter(|f| f.is_in_memory(inline_limit))?;
        let waited = f.waits();
        if !f.put_off(cred, change, self.now()) {
            return None;
        }
        let (attr, version) = (f.attr(), f.version());
        if !waited {
            self.publisher.put_off(slot, self.settings.timeout);
        }
        self.nodes().shown(ino, Some(version));
        Some(self.shown(attr))
    }

    /// The kernel writes back what programs changed in mappings, and sets the time of that: who waits for
    /// that relies on it being told.
    pub fn writes_back(&self, d: &C::Driver, ino: Ino) -> Result<(), Errno> {
        let Some(slot) = self.nodes().file(ino) else {
            return Ok(());
        };
        let mut state = slot.write();
        self.end_waiting(d, &mut state)?;
        if let Some(f) = &mut state.open {
            f.is_settled();
        }
        Ok(())
    }

    /// Tells waiting attributes before somebody else has to do with a file.
    pub fn end_waiting(&self, d: &C::Driver, state: &mut FileState) -> Result<(), Errno> {
        match &mut state.open {
            Some(f) if f.waits() => d.run(f.end_waiting(d.ops(), d.blocks())),
            _ => Ok(()),
        }
    }

    pub fn file_at(&self, parent: Ino, name: &Name) -> (Option<Ino>, Option<Arc<FileSlot>>) {
        let nodes = self.nodes();
        let ino = nodes.by_name(parent, name);
        (ino, ino.and_then(|i| nodes.file(i)))
    }

    pub fn rename(
        &self,
        d: &C::Driver,
        cred: &Cred,
        (from, from_name): (Ino, &Name),
        (to, to_name): (Ino, &Name),
        mode: RenameMode,
    ) -> Result<(), Errno> {
        for dir in [from, to] {
            self.nodes().changing(dir);
        }
        let (a, a_slot) = self.file_at(from, from_name);
        let (b, b_slot) = self.file_at(to, to_name);
        // Both locks in the order of inode numbers, so that two renames cannot wait for each other.
        let mut slots: Vec<(Ino, Arc<FileSlot>)> =
            [a.zip(a_slot), b.zip(b_slot)].into_iter().flatten().collect();
        slots.sort_by_key(|(ino, _)| *ino);
        slots.dedup_by_key(|(ino, _)| *ino);
        let mut states: Vec<(Ino, Whole<'_>)> = slots.iter().map(|(ino, s)| (*ino, s.write())).collect();
        for (_, state) in &mut states {
            self.end_waiting(d, state)?;
        }
        let held = mode == RenameMode::Replace
            && a != b
            && states.iter().any(|(ino, s)| Some(*ino) == b && s.open.is_some());
        let mut dst_dir = None;
        let mut src_dir = None;
        let answer = self.in_dir(d, to, |dst| {
            self.in_dir(d, from, |src| {
                src_dir = Some(src.clone());
                dst_dir = Some(dst.clone());
                let op = Op::Rename {
                    src,
                    src_name: from_name.clone(),
                    dst: dst.clone(),
                    dst_name: to_name.clone(),
                    mode,
                    held,
                };
                self.holding(d, cred, op, held)
            })
        })?;
        let (Answer::Renamed { moved, other }, Some(src), Some(dst)) = (answer, src_dir, dst_dir) else {
            return Err(Errno::Io);
        };
        let slot = d.ops().slot_of(&dst, to_name);
        let mut told = false;
        if let Some(other) = &other
            && mode == RenameMode::Replace
            && let Some((_, state)) = states.iter_mut().find(|(ino, _)| *ino == other.attr.ino)
            && let Some(f) = &mut state.open
        {
            lost_one(f, other, slot, self.now());
            told = true;
        }
        let mut news = vec![(
            &moved,
            to,
            to_name,
            Place {
                dir: dst,
                name: to_name.clone(),
            },
        )];
        if let Some(other) = other.as_ref().filter(|_| mode == RenameMode::Exchange) {
            news.push((
                other,
                from,
                from_name,
                Place {
                    dir: src,
                    name: from_name.clone(),
                },
            ));
        }
        for (view, _, _, place) in &news {
            if let Some((_, state)) = states.iter_mut().find(|(ino, _)| *ino == view.attr.ino)
                && let Some(f) = &mut state.open
            {
                f.location().set(Place::of(view, place.clone()));
                f.learn(view);
            }
        }
        drop(states);
        if let Some(other) = other.as_ref().filter(|_| mode == RenameMode::Replace) {
            self.lost_name((to, to_name), other, held, told, slot);
        }
        for (view, parent, name, place) in news {
            self.renamed(view, parent, name, place);
        }
        if mode != RenameMode::Exchange && (from, from_name) != (to, to_name) {
            self.nodes().dropped(moved.attr.ino, from, from_name);
        }
        Ok(())
    }

    pub fn link(
        &self,
        d: &C::Driver,
        cred: &Cred,
        ino: Ino,
        parent: Ino,
        name: &Name,
    ) -> Result<Shown, Errno> {
        let at = self.at(ino)?;
        let generation = at.generation;
        // Pages that were fetched ahead show it with as many names as it had.
        for dir in [at.parent, parent] {
            self.nodes().changing(dir);
        }
        let slot = self.nodes().file(ino);
        // Nothing is published under the one name while it gets the other.
        let mut state = slot.as_ref().map(|s| s.write());
        if let Some(state) = &mut state {
            self.end_waiting(d, state)?;
        }
        let view = self.in_dir(d, parent, |dst| {
            self.in_place(d, ino, |src| {
                let op = Op::Link {
                    object: Object {
                        dir: src.dir,
                        name: src.name,
                        ino,
                        generation,
                    },
                    dst: dst.clone(),
                    dst_name: name.clone(),
                };
                entry(self.op(d, cred, op)?)
            })
        })?;
        if let Some(f) = state.as_mut().and_then(|s| s.open.as_mut()) {
            f.learn(&view);
        }
        drop(state);
        self.admit(parent, name, &view, &view.attr)
    }

    /// A node has a new name. Of a file that this mount believed elsewhere the location is set here.
    fn renamed(&self, view: &EntryView, parent: Ino, name: &Name, place: Place) {
        let file = {
            let mut nodes = self.nodes();
            if nodes.get(view.attr.ino).is_none() {
                return;
            }
            nodes.see(parent, name, view, Instant::now());
            nodes.file(view.attr.ino)
        };
        if let Some(file) = file
            && let Some(f) = &file.read().open
        {
            f.location().set(Place::of(view, place));
        }
    }

    /// `access(2)`, and `chdir`, which the kernel answers itself where it checks permissions.
    pub fn access(&self, d: &C::Driver, cred: &Cred, ino: Ino, mask: i32) -> Result<(), Errno> {
        let Shown { attr, .. } = self.getattr(d, ino)?;
        let want = Access(mask as u8 & 7);
        let acls = self.nodes().acls(ino, Duration::MAX);
        let guard = Guard {
            perm: Perm::new(attr.perm),
            uid: attr.uid,
            gid: attr.gid,
            acl: acls.as_ref().and_then(|(_, acls)| acls.access.as_ref()),
            is_dir: attr.kind == fuser::FileType::Directory,
        };
        if cred.may(want, &guard) {
            Ok(())
        } else {
            Err(Errno::Access)
        }
    }
}
