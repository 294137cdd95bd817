//! Open files: what is between `read`/`write` and the two places where bytes are, the inline attachment and
//! blocks.
//!
//! One [`OpenFile`] is shared by all handles of one inode on a mount. It is plain data, so that a front end
//! may keep it behind whatever lock it likes; every function that talks to servers takes them as arguments.
//!
//! Four rules hold everywhere here:
//! - **Metadata after data.** Blocks are stored (and in [`DataSync::BeforePublish`] synced) before the size
//!   or layout that makes them visible is published.
//! - **Nothing stale past the end.** Blocks may hold anything past the published size: a truncate whose cut
//!   failed, a writer that crashed before it published. So whoever extends a file first clears what comes
//!   into view between the old end and the first new byte; nobody relies on an earlier cut. Cuts after a
//!   truncate only give space back.
//! - **What was appended has no place before it is published** (`append`).
//! - **A publish takes nothing back that others have published.** Between mounts the promise is
//!   close-to-open: a file opened after another mount closed it shows what that wrote; of two that write at
//!   once each byte is that of the last publish that wrote it (`merge`).

mod append;
mod background;
mod count;
mod gather;
mod give_back;
mod holes;
mod io;
mod merge;
mod open;
mod publish;
mod room;
#[cfg(test)]
mod tests;
mod waiting;

pub use append::{Turn, Turns};
pub use background::{Published, Underway};
pub use open::{Opened, create, create_unnamed, open, open_kept};
pub use room::{Allocation, Fill};

use crate::keep::Kept;
use pando_data::{BlockError, FileKey};
use pando_format::Layout;
use pando_format::codec::Blob;
use pando_types::{Attr, AttrChange, Cred, Errno, FileKind, Perm, Slot, TimeChange, Timestamp};
use pando_wire::{EntryView, Handle, Op, Outcome, Statement};
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use pando_types::Name;

/// Largest file size, as the servers have it.
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// What open files need of a client.
pub trait Ops {
    /// Runs one operation to a definite outcome.
    fn op(&self, cred: &Cred, op: Op) -> impl Future<Output = Outcome>;
    /// Opens or creates a file that is to stay there while it is open here.
    fn op_open(&self, cred: &Cred, op: Op) -> impl Future<Output = (Outcome, Option<Kept>)> {
        async { (self.op(cred, op).await, None) }
    }
    /// Where a file is that is open here and was renamed or removed by others.
    fn find_home(&self, cred: &Cred, kept: &Kept) -> impl Future<Output = Result<EntryView, Errno>> {
        let _ = (cred, kept);
        std::future::ready(Err(Errno::Stale))
    }
    /// Makes everything acknowledged for the entry of a name survive a power failure.
    fn sync_entry(&self, dir: &Statement, name: &Name) -> impl Future<Output = Result<(), Errno>>;
    /// The same of everything in a directory.
    fn sync_dir(&self, dir: &Statement) -> impl Future<Output = Result<(), Errno>>;
    /// The slot that has the entry of a name, after an operation on it.
    fn slot_of(&self, dir: &Statement, name: &Name) -> Slot;
    /// Largest file kept inline, in bytes.
    fn inline_limit(&self) -> u32;
    /// Block size of new large files, in bytes.
    fn block_size(&self) -> u32;
    /// For whom it acts when what is asked for is not any one user's: the superuser, or whoever the identity
    /// may act for.
    fn own(&self) -> Cred {
        Cred::root()
    }
}

impl Ops for crate::Client {
    fn op(&self, cred: &Cred, op: Op) -> impl Future<Output = Outcome> {
        crate::Client::op(self, cred, op)
    }
    fn op_open(&self, cred: &Cred, op: Op) -> impl Future<Output = (Outcome, Option<Kept>)> {
        crate::Client::op_open(self, cred, op)
    }
    async fn find_home(&self, cred: &Cred, kept: &Kept) -> Result<EntryView, Errno> {
        crate::Client::find_home(self, cred, kept).await
    }
    async fn sync_entry(&self, dir: &Statement, name: &Name) -> Result<(), Errno> {
        crate::Client::sync_entry(self, dir, name).await
    }
    async fn sync_dir(&self, dir: &Statement) -> Result<(), Errno> {
        crate::Client::sync_dir(self, dir).await
    }
    fn slot_of(&self, dir: &Statement, name: &Name) -> Slot {
        self.part_with(dir, name).slot()
    }
    fn inline_limit(&self) -> u32 {
        self.map().inline_limit
    }
    fn block_size(&self) -> u32 {
        self.map().block_size
    }
    fn own(&self) -> Cred {
        self.own_cred()
    }
}

/// When blocks are made safe against a power failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataSync {
    /// Before metadata speaks of them (durability `sync`).
    BeforePublish,
    /// When a program asks for it (durability `async`).
    OnFsync,
}

/// Where a file's name is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The directory.
    pub dir: Statement,
    /// The name in it.
    pub name: Name,
}

impl Place {
    /// Where what `view` shows is: at home, if it has one, which no other mount can take from it; else here.
    pub fn of(view: &EntryView, here: Place) -> Place {
        match &view.home {
            Some(home) => Place {
                name: home.name.clone(),
                dir: home.clone(),
            },
            None => here,
        }
    }
}

/// A file's place, which a rename on this mount changes while the file is open. Clones share it.
#[derive(Clone, Debug)]
pub struct Location(Arc<Mutex<Place>>);

impl Location {
    fn new(place: Place) -> Location {
        Location(Arc::new(Mutex::new(place)))
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it is now.
    pub fn get(&self) -> Place {
        self.lock().clone()
    }

    /// It has several names by now.
    fn learn(&self, view: &EntryView) {
        if view.home.is_some() {
            let here = self.get();
            self.set(Place::of(view, here));
        }
    }

    /// It was renamed, or its directory's statement was learnt anew.
    pub fn set(&self, place: Place) {
        *self.lock() = place;
    }
}

/// Where the bytes are, as far as this mount knows.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Body {
    /// Here; past the buffer, up to the size, they are zeros. Invariant: not longer than the size.
    Memory(Vec<u8>),
    /// In blocks of this many bytes. Invariant: whatever is stored in `0..size` is the file's content.
    Blocks(u32),
    /// With the servers, who do not show them to who may only write: they can be replaced whole, or emptied.
    Unread,
}

/// An open file.
#[derive(Clone, Debug)]
pub struct OpenFile {
    key: FileKey,
    /// Shows that some handle of this mount was opened for writing.
    handle: Option<Handle>,
    /// Shows that it was opened.
    proof: Handle,
    location: Location,
    /// Keeps it there whatever others do with its names.
    hold: Option<Arc<Kept>>,
    data_sync: DataSync,
    /// As the servers last showed them, but for what is below.
    attr: Attr,
    version: u64,
    size: u64,
    /// Without the tail.
    body: Body,
    /// Appended bytes that have no place yet: the last of the file.
    tail: Vec<u8>,
    /// Gives turns to append to files in blocks; `None`: what is appended gets its place at once.
    turns: Option<Arc<dyn append::Turns>>,
    /// Which part of it is stored, if it is in blocks.
    count: count::Count,
    /// The servers know of its blocks: they delete them, and keep them as long as a backup needs them.
    stored: bool,
    /// Time of the last change that is not published.
    dirty: Option<Timestamp>,
    /// Written since the publish that is under way began.
    touched: bool,
    /// Who made it, if that was just now.
    maker: Option<Cred>,
    /// Changes of attributes that are told with the next publish.
    waiting: Option<waiting::Waiting>,
    /// Who made the last unpublished write of those whose writes clear the set-id bits: whoever publishes it,
    /// it is theirs.
    writer: Option<Cred>,
    /// What that is.
    changes: merge::Changes,
    /// Blocks changed since they were last synced.
    unsynced: BTreeSet<u64>,
    /// Blocks that an earlier handle or another mount wrote may not be synced either.
    unsynced_before: bool,
    /// All names are gone: nothing is published any more.
    removed: bool,
    /// The slot of the last one, where the servers keep it for who has it open.
    kept: Option<Slot>,
    /// A sync failed. What it lost is unknown, so no later one may claim success (H103).
    failed: Option<Errno>,
    /// Whether writes are gathered.
    gathers: bool,
    gathered: Option<gather::Gathered>,
    /// Memory for what is gathered next.
    spare: Vec<u8>,
    /// What both may take.
    room: Option<Arc<gather::Room>>,
    /// The version of the content that what a front end caches of this file stands for; `None` if another
    /// mount's changes may be mixed in.
    cached: Option<u64>,
}

impl OpenFile {
    /// The state of a file that was just opened.
    pub fn new(place: Place, opened: Opened, data_sync: DataSync) -> Result<OpenFile, Errno> {
        let Opened {
            entry,
            data,
            created,
            handle,
            hold,
            proof,
        } = opened;
        check_regular(entry.attr.kind)?;
        Ok(OpenFile {
            key: FileKey {
                ino: entry.attr.ino,
                generation: entry.attr.generation,
            },
            handle,
            proof,
            location: Location::new(Place::of(&entry, place)),
            hold,
            data_sync,
            version: entry.version,
            size: entry.attr.size,
            stored: in_blocks(&entry),
            body: body(&entry, data)?,
            tail: Vec::new(),
            turns: None,
            count: count::Count::of(&entry.layout),
            attr: entry.attr,
            dirty: None,
            touched: false,
            maker: None,
            waiting: None,
            writer: None,
            changes: merge::Changes::default(),
            unsynced: BTreeSet::new(),
            unsynced_before: !created && data_sync == DataSync::OnFsync,
            removed: false,
            kept: None,
            failed: None,
            cached: Some(entry.version),
            gathers: false,
            gathered: None,
            spare: Vec::new(),
            room: None,
        })
    }

    /// Takes over what another open of the same file on this mount has just learnt. Returns whether the
    /// content is another than this state had. Unpublished changes stay, and will overwrite what the other
    /// mount published.
    pub fn refresh(&mut self, opened: Opened) -> Result<bool, Errno> {
        let Opened {
            entry,
            data,
            handle,
            hold,
            created: _,
            proof,
        } = opened;
        if entry.attr.ino != self.key.ino || entry.attr.generation != self.key.generation {
            return Err(Errno::Stale);
        }
        self.handle = handle.or(self.handle);
        self.hold = hold.or(self.hold.take());
        // With a newer key, perhaps.
        self.proof = proof;
        self.location.learn(&entry);
        self.stored |= in_blocks(&entry);
        // An answer may have been overtaken by a publish of ours: versions only rise (H49).
        if entry.version < self.version || self.removed {
            return Ok(false);
        }
        let changed = entry.version > self.version;
        self.attr = entry.attr;
        if changed && self.dirty.is_none() {
            self.body = body(&entry, data)?;
            self.count = count::Count::of(&entry.layout);
            self.size = entry.attr.size;
            self.version = entry.version;
            self.cached = None;
            self.gathered = None;
            self.unsynced_before = self.data_sync == DataSync::OnFsync;
        } else if changed {
            self.cached = None;
        }
        Ok(changed)
    }

    /// The file's identity.
    pub fn key(&self) -> FileKey {
        self.key
    }

    /// What shows the servers that it was opened.
    pub fn proof(&self) -> Handle {
        self.proof
    }

    /// Where it is; shared with the file, so a rename can be told while the file is in use.
    pub fn location(&self) -> Location {
        self.location.clone()
    }

    /// What keeps it open at the servers.
    pub fn hold(&self) -> Option<Arc<Kept>> {
        self.hold.clone()
    }

    /// It is not found where it was: others may have renamed or removed it, and then it is at home. Whether
    /// it is.
    pub(super) async fn go_home(&self, ops: &impl Ops) -> bool {
        let Some(hold) = self.hold.clone() else {
            return false;
        };
        match ops.find_home(&ops.own(), &hold).await {
            Ok(view) => {
                self.location.learn(&view);
                true
            }
            Err(_) => false,
        }
    }

    /// Bytes, unpublished writes included.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether reading, publishing and freeing it have nothing to do with blocks.
    pub fn is_in_memory(&self, inline_limit: u32) -> bool {
        let in_memory = matches!(self.body, Body::Memory(_)) && !self.needs_turn(inline_limit);
        in_memory && self.gathered.is_none() && self.unsynced.is_empty()
    }

    /// Whether there is something to publish.
    pub fn is_dirty(&self) -> bool {
        self.dirty.is_some() || self.waiting.is_some()
    }

    /// It was changed, and is to be published.
    fn touch(&mut self, now: Timestamp) {
        self.outdate_mtime();
        self.dirty = Some(now);
        self.touched = true;
    }

    /// Whether its name is gone.
    pub fn is_removed(&self) -> bool {
        self.removed
    }

    /// Counts changes of content, as the servers do.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The front end has dropped what it cached: what it caches from now on stands for the content as it is
    /// here.
    pub fn cache_dropped(&mut self) {
        if self.dirty.is_none() {
            self.cached = Some(self.version);
        }
    }

    /// The front end keeps what it cached, which stands for this version of the content.
    pub fn cache_stays(&mut self, version: Option<u64>) {
        self.cached = version.filter(|_| self.dirty.is_none());
    }

    /// The content version that a front end's cache of this file stands for, if it stands for one.
    pub fn cached_version(&self) -> Option<u64> {
        self.cached
    }

    /// Attributes, unpublished changes included.
    pub fn attr(&self) -> Attr {
        self.overlay(self.attr)
    }

    /// What to show of an entry that a server has just answered: with this mount's unpublished changes, and
    /// without being set back by an answer that a publish of this mount has overtaken (H49).
    pub fn merge(&self, view: &EntryView) -> Attr {
        if self.removed || view.version < self.version {
            self.attr()
        } else {
            self.overlay(view.attr)
        }
    }

    /// Whether another mount has changed the content since this one looked, and nothing here is in the way of
    /// taking that over by [`OpenFile::refresh`].
    pub fn outdated_by(&self, view: &EntryView) -> bool {
        view.version > self.version && self.dirty.is_none() && !self.removed
    }

    fn overlay(&self, mut attr: Attr) -> Attr {
        if let Some(time) = self.dirty {
            attr.size = self.size;
            attr.allocated = self.allocated();
            attr.mtime = time;
            attr.ctime = attr.ctime.max(time);
        }
        attr = self.with_waiting(attr);
        if self.writer.is_some() {
            attr.perm = without_set_ids(attr.perm);
        }
        if self.removed {
            attr.nlink = 0;
            attr.size = self.size;
            attr.allocated = self.allocated();
        }
        attr
    }

    /// A setattr or rename of this file was answered with `view`: the content is what it was.
    pub fn learn(&mut self, view: &EntryView) {
        if view.attr.ino == self.key.ino && view.attr.generation == self.key.generation && !self.removed {
            self.location.learn(view);
            self.stored |= in_blocks(view);
            // A size that another mount has set is not taken over without the content.
            self.attr = Attr {
                size: self.size,
                allocated: self.attr.allocated,
                ..view.attr
            };
        }
    }

    /// Its last name, in a directory of this slot, was removed, on this mount and with `held`: handles go on
    /// working, nothing is published.
    pub fn removed(&mut self, slot: Slot, now: Timestamp) {
        self.kept = Some(slot);
        self.attr = self.attr();
        self.attr.nlink = 0;
        self.attr.ctime = self.attr.ctime.max(now);
        self.removed = true;
        self.dirty = None;
        self.waiting = None;
    }

    /// fchmod, fchown and futimens of a file without a name: nobody else can see it, so its attributes change
    /// here.
    pub fn change_removed(&mut self, cred: &Cred, change: &AttrChange, now: Timestamp) -> Result<(), Errno> {
        change_attr(&mut self.attr, cred, change, now)
    }
}

/// Changes attributes that no server has any more. `EPERM`: they are not this user's to change.
pub fn change_attr(attr: &mut Attr, cred: &Cred, change: &AttrChange, now: Timestamp) -> Result<(), Errno> {
    if !cred.is_root() && cred.uid != attr.uid {
        return Err(Errno::Perm);
    }
    if !cred.is_root() && change.uid.is_some_and(|u| u != attr.uid) {
        return Err(Errno::Perm);
    }
    if !cred.is_root() && change.gid.is_some_and(|g| g != attr.gid && !cred.in_group(g)) {
        return Err(Errno::Perm);
    }
    if change.uid.is_some() || change.gid.is_some() {
        attr.uid = change.uid.unwrap_or(attr.uid);
        attr.gid = change.gid.unwrap_or(attr.gid);
        attr.perm = without_set_ids(attr.perm);
    }
    attr.perm = change.perm.unwrap_or(attr.perm);
    let time = |t: TimeChange| match t {
        TimeChange::Now => now,
        TimeChange::To(t) => t,
    };
    attr.atime = change.atime.map_or(attr.atime, time);
    attr.mtime = change.mtime.map_or(attr.mtime, time);
    attr.ctime = now;
    Ok(())
}

fn in_blocks(view: &EntryView) -> bool {
    view.layout.block_size().is_some()
}

/// Content of an entry that was opened with `data`.
fn body(entry: &EntryView, data: Option<Blob>) -> Result<Body, Errno> {
    match &entry.layout {
        Layout::None => Ok(Body::Memory(Vec::new())),
        Layout::Inline | Layout::SparseInline(_) => {
            let Some(Blob(mut bytes)) = data else {
                return Ok(Body::Unread);
            };
            bytes.truncate(usize::try_from(entry.attr.size).unwrap_or(usize::MAX));
            Ok(Body::Memory(bytes))
        }
        Layout::Blocks(0) | Layout::Sparse { block_size: 0, .. } => Err(Errno::Io),
        Layout::Blocks(size) | Layout::Sparse { block_size: size, .. } => Ok(Body::Blocks(*size)),
        Layout::Target(_) | Layout::LongTarget => Err(Errno::Loop),
    }
}

fn check_regular(kind: FileKind) -> Result<(), Errno> {
    match kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Errno::IsDir),
        FileKind::Symlink => Err(Errno::Loop),
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
            Err(Errno::Unsupported)
        }
    }
}

/// What a write by anybody but the superuser leaves of permission bits; the servers do the same at publish.
fn without_set_ids(perm: Perm) -> Perm {
    let setgid = if perm.has(Perm::SETGID | 0o010) {
        Perm::SETGID
    } else {
        0
    };
    Perm::new(perm.bits() & !(Perm::SETUID | setgid))
}

pub(crate) fn block_errno(e: BlockError) -> Errno {
    match e {
        BlockError::NoSpace => Errno::NoSpace,
        BlockError::Device(_)
        | BlockError::Damaged(_)
        | BlockError::Denied(_)
        | BlockError::Missing(_)
        | BlockError::Unreachable(_)
        | BlockError::Later => Errno::Io,
    }
}
