//! The sync thread: one fsync of the WAL for all who wait for one.

use crate::RocksOptions;
use pando_store::{Durability, Lsn, StoreError};
use rocksdb::{DB, Error, ErrorKind};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// After a sync that so many waited for, those are waited for before the next one: half as long as it took.
const CROWD: u64 = 4;
/// And at most so long.
const GATHER_MOST: Duration = Duration::from_millis(1);

/// Positions, and who waits for them.
pub(crate) struct Syncer {
    applied: AtomicU64,
    synced: AtomicU64,
    syncs: AtomicU64,
    /// Bytes written since the last sync began.
    unsynced_bytes: AtomicU64,
    /// Why nothing is written any more. Never unset (H103): the pages of a failed fsync are marked clean, so
    /// that the next fsync succeeds without having written them.
    poisoned: OnceLock<StoreError>,
    state: Mutex<State>,
    due: Condvar,
    /// `async` mode: when to sync although nobody waits.
    background: Option<(Duration, u64)>,
    /// How many the last sync was enough for. In `sync` every batch is waited for, and one may wait for many.
    told: AtomicU64,
    /// H102 is planted: say that it was synced, and do not.
    lie: bool,
}

#[derive(Default)]
struct State {
    /// Somebody waits for this position.
    requested: u64,
    /// By what they wait for: a sync wakes those it is enough for.
    waiters: BTreeMap<u64, Vec<Waker>>,
    stop: bool,
}

impl Syncer {
    pub(crate) fn new(options: &RocksOptions) -> Syncer {
        let background =
            (options.durability == Durability::Async).then_some((options.sync_interval, options.sync_bytes));
        Syncer {
            applied: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            unsynced_bytes: AtomicU64::new(0),
            poisoned: OnceLock::new(),
            state: Mutex::new(State::default()),
            due: Condvar::new(),
            background,
            told: AtomicU64::new(0),
            lie: pando_types::plant!(H102),
        }
    }

    /// Errs after a failed write or sync.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.poisoned.get() {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }

    /// A write or sync failed: nothing more is written, and whoever waits is told.
    pub(crate) fn poison(&self, e: &Error) -> StoreError {
        // What a compaction met is said of every write after it.
        self.stop_for(match e.kind() {
            ErrorKind::Corruption => StoreError::DamagedTable(e.to_string()),
            _ => StoreError::Poisoned(e.to_string()),
        })
    }

    /// The same, for a reason that is known.
    pub(crate) fn stop_for(&self, why: StoreError) -> StoreError {
        let why = self.poisoned.get_or_init(|| why).clone();
        self.wake();
        why
    }

    pub(crate) fn synced(&self) -> Lsn {
        Lsn(self.synced.load(Ordering::Acquire))
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// A batch of `bytes` was applied as `lsn`.
    pub(crate) fn applied(&self, lsn: Lsn, bytes: u64) {
        let before = self.unsynced_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.applied.store(lsn.0, Ordering::Release);
        if let Some((_, limit)) = self.background
            && before < limit
            && before + bytes >= limit
        {
            // After a turn with the lock, or the thread could miss it between its check and its sleep.
            drop(self.lock());
            self.due.notify_one();
        }
    }

    /// One sync, on this thread.
    pub(crate) fn sync_now(&self, db: &DB) -> Result<(), StoreError> {
        self.check()?;
        // Read before the sync begins: only what was applied by then is covered (H102).
        let target = self.applied.load(Ordering::Acquire);
        self.unsynced_bytes.store(0, Ordering::Relaxed);
        if !self.lie {
            db.flush_wal(true).map_err(|e| self.poison(&e))?;
        }
        self.syncs.fetch_add(1, Ordering::Relaxed);
        let before = self.synced.fetch_max(target, Ordering::AcqRel);
        let woken = self.wake_synced();
        let told = match self.background {
            None => target.saturating_sub(before),
            Some(_) => woken,
        };
        self.told.store(told, Ordering::Relaxed);
        Ok(())
    }

    /// What the sync thread runs, until [`Syncer::stop`].
    pub(crate) fn serve(&self, db: &DB) {
        let (mut last, mut took) = (Instant::now(), Duration::ZERO);
        loop {
            let mut state = self.lock();
            while !state.stop && !self.is_due(&state, last) {
                state = match self.background {
                    None => self.due.wait(state).unwrap_or_else(PoisonError::into_inner),
                    Some((interval, _)) => {
                        let left = interval
                            .saturating_sub(last.elapsed())
                            .max(Duration::from_millis(1));
                        self.due
                            .wait_timeout(state, left)
                            .unwrap_or_else(PoisonError::into_inner)
                            .0
                    }
                };
            }
            if state.stop {
                return;
            }
            drop(state);
            // Those whom the last sync told ask for the next one soon. Without them now there would be two
            // groups, which take turns.
            if self.told.load(Ordering::Relaxed) >= CROWD {
                std::thread::sleep((took / 2).min(GATHER_MOST));
            }
            last = Instant::now();
            if self.synced().0 >= self.applied.load(Ordering::Acquire) {
                self.unsynced_bytes.store(0, Ordering::Relaxed);
            } else if self.sync_now(db).is_err() {
                return; // poisoned, and everybody knows
            } else {
                took = last.elapsed();
            }
        }
    }

    fn is_due(&self, state: &State, last: Instant) -> bool {
        let requested = state.requested > self.synced().0;
        let background = self.background.is_some_and(|(interval, limit)| {
            last.elapsed() >= interval || self.unsynced_bytes.load(Ordering::Relaxed) >= limit
        });
        requested || background
    }

    /// Ends the thread, and with an error all who wait for it.
    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.due.notify_all();
        self.wake();
    }

    /// Wakes whoever a position that is synced now is enough for, and says how many that are.
    fn wake_synced(&self) -> u64 {
        let synced = self.synced().0;
        let woken = {
            let mut state = self.lock();
            let rest = state.waiters.split_off(&(synced + 1));
            std::mem::replace(&mut state.waiters, rest)
        };
        let many = woken.values().map(Vec::len).sum::<usize>();
        woken.into_values().flatten().for_each(Waker::wake);
        many as u64
    }

    /// Wakes everybody.
    fn wake(&self) {
        let waiters = std::mem::take(&mut self.lock().waiters);
        waiters.into_values().flatten().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until a position is synced.
pub(crate) struct Wait {
    syncer: Arc<Syncer>,
    lsn: Lsn,
}

impl Wait {
    pub(crate) fn new(syncer: Arc<Syncer>, lsn: Lsn) -> Wait {
        Wait { syncer, lsn }
    }
}

impl Future for Wait {
    type Output = Result<(), StoreError>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let s = &*self.syncer;
        // Checked under the lock, which the sync thread takes after it has moved the position: no wake-up is
        // missed.
        let mut state = s.lock();
        if let Err(e) = s.check() {
            return Poll::Ready(Err(e));
        }
        if state.stop {
            return Poll::Ready(Err(StoreError::Device("the store was closed".into())));
        }
        if s.synced() >= self.lsn {
            return Poll::Ready(Ok(()));
        }
        let waiters = state.waiters.entry(self.lsn.0).or_default();
        if !waiters.iter().any(|w| w.will_wake(cx.waker())) {
            waiters.push(cx.waker().clone());
        }
        if state.requested < self.lsn.0 {
            state.requested = self.lsn.0;
            // Only now: who wakes up takes it first of all.
            drop(state);
            s.due.notify_one();
        }
        Poll::Pending
    }
}
