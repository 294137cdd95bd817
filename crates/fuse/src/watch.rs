//! Files that are open for reading, and what other mounts publish of them.
//!
//! The kernel asks nothing of a file whose pages it has: programs that read an open file again and again
//! would see what was there once. So a thread asks the servers of each file that has been open for reading
//! for a while, once in each timeout. Of a file whose content is another now it has the kernel drop pages. It
//! does so too for content that was taken over when a program looked at the file: the kernel drops pages by
//! itself only if the size is another.

use crate::core::{Core, entry};
use crate::driver::{Cluster, Driver};
use crate::join::all;
use crate::open::{FileHandle, FileSlot};
use foldhash::HashSet;
use pando_client::file::{OpenFile, Ops};
use pando_types::{Errno, Ino};
use pando_wire::{EntryView, Op};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often files are looked at, if names are believed for less.
const LEAST: Duration = Duration::from_secs(1);
/// Files that are asked for at the same time.
const AT_ONCE: usize = 64;

#[derive(Default)]
struct State {
    /// Files whose pages are old.
    old: Vec<Ino>,
    over: bool,
}

/// Tells a mount's watching thread.
#[derive(Default)]
pub(crate) struct Watch {
    state: Mutex<State>,
    wake: Condvar,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel's pages of a file are of older content. (Dropping them waits for reads that are under way,
    /// so no thread that serves reads may do it.)
    pub fn drop_pages(&self, ino: Ino) {
        self.lock().old.push(ino);
        self.wake.notify_one();
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.lock().over = true;
        self.wake.notify_all();
    }

    /// Waits until then, or until there are pages to drop: of which files. `None`: it is over.
    fn wait(&self, until: Instant) -> Option<Vec<Ino>> {
        let mut state = self.lock();
        loop {
            if state.over {
                return None;
            }
            let left = until.saturating_duration_since(Instant::now());
            if !state.old.is_empty() || left.is_zero() {
                return Some(std::mem::take(&mut state.old));
            }
            let waited = self.wake.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Starts the thread, as long as the mount is there.
pub(crate) fn start<C: Cluster>(core: &Arc<Core<C>>) -> std::io::Result<()> {
    let every = core.settings.timeout.max(LEAST);
    let (watch, core) = (core.watch.clone(), Arc::downgrade(core));
    let look = move || {
        let mut next = Instant::now() + every;
        while let Some(old) = watch.wait(next) {
            let Some(core) = core.upgrade() else { return };
            for ino in old {
                core.drop_pages(ino);
            }
            if Instant::now() >= next {
                let _ = core.with(|d| {
                    core.look_at_readers(d, every);
                    Ok(())
                });
                next = Instant::now() + every;
            }
        }
    };
    std::thread::Builder::new()
        .name("pando-watch".into())
        .spawn(look)
        .map(drop)
}

/// A server's answer about a file.
type Looked = Result<EntryView, Errno>;

/// A file that is looked at.
struct Reader {
    ino: Ino,
    slot: Arc<FileSlot>,
    op: Op,
}

impl<C: Cluster> Core<C> {
    /// Has the kernel drop pages of a file, and notes that those it reads from now on are of today's content.
    fn drop_pages(&self, ino: Ino) {
        let Some(slot) = self.nodes().file(ino) else {
            return;
        };
        // A lock that was granted has dropped them. Now the kernel would throw away a size that it has just
        // been told, and who has the lock would read with the one before.
        if self.is_locked(ino) {
            return;
        }
        let version = |f: &OpenFile| f.version();
        let before = slot.read().open.as_ref().map(version);
        if let Some(notifier) = self.notifier.get()
            && let Err(e) = notifier.inval_inode(fuser::INodeNo(ino.0), 0, 0)
        {
            if e.kind() != std::io::ErrorKind::NotFound {
                tracing::warn!(ino = ino.0, "the kernel keeps old pages: {e}");
            }
            return;
        }
        if let Some(f) = slot.write().open.as_mut().filter(|f| Some(f.version()) == before) {
            f.cache_dropped();
        }
    }

    /// Whether somebody locks this file.
    fn is_locked(&self, ino: Ino) -> bool {
        let locks = |handle: &FileHandle| {
            let lockers = handle.lockers.lock().unwrap_or_else(PoisonError::into_inner);
            handle.ino == ino && !lockers.is_empty()
        };
        self.locks.are_used() && self.files.all().iter().any(|handle| locks(handle))
    }

    /// Looks at what has been open for reading for so long, and longer.
    fn look_at_readers(&self, d: &C::Driver, every: Duration) {
        let readers = self.readers(every);
        let own = d.ops().own();
        for some in readers.chunks(AT_ONCE) {
            let asked: Vec<Pin<Box<dyn Future<Output = Looked> + '_>>> = some
                .iter()
                .map(|reader| {
                    let asked = d.ops().op(&own, reader.op.clone());
                    Box::pin(async { asked.await.and_then(entry) }) as _
                })
                .collect();
            for (reader, view) in some.iter().zip(d.run(all(asked))) {
                match view {
                    Ok(view) if view.attr.ino == reader.ino => self.take_over(d, &reader.slot, &view),
                    // It is called otherwise by now, or is away.
                    Ok(_) | Err(_) => drop(self.getattr(d, reader.ino)),
                }
            }
        }
    }

    fn readers(&self, every: Duration) -> Vec<Reader> {
        let mut seen = HashSet::default();
        let mut readers = Vec::new();
        for handle in self.files.all() {
            if !handle.readable || handle.opened.elapsed() < every || !seen.insert(handle.ino) {
                continue;
            }
            let state = handle.slot.read();
            let quiet = |f: &&OpenFile| !f.is_dirty() && !f.is_removed();
            if let Some(f) = state.open.as_ref().filter(quiet) {
                let place = f.location().get();
                readers.push(Reader {
                    ino: handle.ino,
                    slot: handle.slot.clone(),
                    op: Op::Lookup {
                        dir: place.dir,
                        name: place.name,
                    },
                });
            }
        }
        readers
    }
}
