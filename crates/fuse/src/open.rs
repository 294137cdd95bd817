//! Open files and directories of a mount, and the handles on them.

use crate::fiber;
use async_lock::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use foldhash::HashMap;
use pando_client::file::OpenFile;
use pando_format::Position;
use pando_types::{Cred, Ino, LockFamily};
use pando_wire::DirEntry;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};
use std::sync::{Mutex as Lock, MutexGuard as Locked};
use std::time::Instant;

/// A file's open state, shared by all its handles.
///
/// [`FileSlot::write`] is held over everything that opens, closes, publishes, removes or renames the file on
/// this mount: so a file that is being removed knows whether it is open, and a publish knows the file's name.
/// A publish in the background holds the first of its two locks alone while it waits for the server, so that
/// bytes can be written and read beside it. The locks are taken in this order.
#[derive(Default)]
pub(crate) struct FileSlot {
    publishing: Mutex<()>,
    state: RwLock<FileState>,
}

#[derive(Default)]
pub(crate) struct FileState {
    /// The file, while it has handles.
    pub open: Option<OpenFile>,
    pub handles: u32,
    /// Content version that the kernel's page cache stands for.
    pub cached: Option<u64>,
    /// Content version when it was last closed here: older answers are overtaken.
    pub version: u64,
    /// The [publisher](crate::publisher) has it on its list.
    pub listed: bool,
}

/// A file's state, for everything.
pub(crate) struct Whole<'a> {
    state: RwLockWriteGuard<'a, FileState>,
    _publishing: MutexGuard<'a, ()>,
}

impl Deref for Whole<'_> {
    type Target = FileState;
    fn deref(&self) -> &FileState {
        &self.state
    }
}

impl DerefMut for Whole<'_> {
    fn deref_mut(&mut self) -> &mut FileState {
        &mut self.state
    }
}

impl FileSlot {
    pub fn read(&self) -> RwLockReadGuard<'_, FileState> {
        fiber::locked(self.state.read(), || self.state.read_blocking())
    }

    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, FileState>> {
        self.state.try_read()
    }

    /// For everything. Waits for a publish that is under way.
    pub fn write(&self) -> Whole<'_> {
        let publishing = fiber::locked(self.publishing.lock(), || self.publishing.lock_blocking());
        Whole {
            state: self.write_beside(),
            _publishing: publishing,
        }
    }

    /// For writing bytes alone, beside a publish that is under way.
    pub fn write_beside(&self) -> RwLockWriteGuard<'_, FileState> {
        fiber::locked(self.state.write(), || self.state.write_blocking())
    }

    /// Held over a publish in the background.
    pub async fn publishing(&self) -> MutexGuard<'_, ()> {
        self.publishing.lock().await
    }

    /// What [`FileSlot::write_beside`] is, for a publish in the background.
    pub async fn beside(&self) -> RwLockWriteGuard<'_, FileState> {
        self.state.write().await
    }
}

/// A handle on a regular file.
pub(crate) struct FileHandle {
    pub ino: Ino,
    pub slot: Arc<FileSlot>,
    /// Who opened it: what it publishes, it publishes as them.
    pub cred: Cred,
    pub readable: bool,
    pub writable: bool,
    pub opened: Instant,
    /// Who has locked the file through it, and has not closed it since.
    pub lockers: Lock<BTreeSet<(LockFamily, u64)>>,
}

/// A handle on a directory.
pub(crate) struct DirHandle {
    pub cred: Cred,
    /// Entries fetched ahead: a server's page is larger than the kernel's.
    page: Mutex<Page>,
}

impl DirHandle {
    pub fn new(cred: &Cred) -> DirHandle {
        DirHandle {
            cred: cred.clone(),
            page: Mutex::default(),
        }
    }

    /// Locked while it is listed.
    pub fn page(&self) -> MutexGuard<'_, Page> {
        fiber::locked(self.page.lock(), || self.page.lock_blocking())
    }
}

pub(crate) struct Page {
    /// Cookie it begins after.
    pub after: Position,
    pub entries: Vec<DirEntry>,
    /// Nothing follows.
    pub end: bool,
    /// With whole entries.
    pub plus: bool,
    pub fetched: Option<Instant>,
    /// The directory's [changes](crate::node::Nodes::changes) when it was asked for.
    pub changes: u64,
}

impl Default for Page {
    fn default() -> Page {
        Page {
            after: Position::START,
            entries: Vec::new(),
            end: false,
            plus: false,
            fetched: None,
            changes: 0,
        }
    }
}

/// Handles by number.
pub(crate) struct Handles<T>(Lock<Table<T>>);

struct Table<T> {
    next: u64,
    handles: HashMap<u64, Arc<T>>,
}

impl<T> Default for Handles<T> {
    fn default() -> Handles<T> {
        Handles(Lock::new(Table {
            next: 1,
            handles: HashMap::default(),
        }))
    }
}

impl<T> Handles<T> {
    fn lock(&self) -> Locked<'_, Table<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn insert(&self, handle: T) -> u64 {
        let mut t = self.lock();
        let number = t.next;
        t.next += 1;
        t.handles.insert(number, Arc::new(handle));
        number
    }

    pub fn get(&self, number: u64) -> Option<Arc<T>> {
        self.lock().handles.get(&number).cloned()
    }

    pub fn remove(&self, number: u64) -> Option<Arc<T>> {
        self.lock().handles.remove(&number)
    }

    pub fn all(&self) -> Vec<Arc<T>> {
        self.lock().handles.values().cloned().collect()
    }
}
