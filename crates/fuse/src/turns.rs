//! A mount's turns to append to files in blocks: locks of a family of their own, which no program sees.

use crate::core::Core;
use crate::driver::{self, Cluster, Driver};
use crate::later::later;
use pando_client::file::{Turn, Turns};
use pando_client::locks::{LockError, Lockable};
use pando_env::LocalFuture;
use pando_env::sync::{Either, first};
use pando_types::{Errno, Hold};
use std::fmt::{self, Debug, Formatter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Servers give a mount's turns to others after 60 seconds of silence. Nothing is stored after so much of
/// that, or so long after the turn was granted.
const GOOD: Duration = Duration::from_secs(30);
/// So long a call waits for its turn: longer than a mount that was killed keeps it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Gives turns.
pub(crate) struct MountTurns<C: Cluster> {
    core: Weak<Core<C>>,
    /// Turns that were asked for.
    count: AtomicU64,
}

impl<C: Cluster> MountTurns<C> {
    pub fn new(core: &Arc<Core<C>>) -> Arc<MountTurns<C>> {
        Arc::new(MountTurns {
            core: Arc::downgrade(core),
            count: AtomicU64::new(0),
        })
    }
}

impl<C: Cluster> Debug for MountTurns<C> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("MountTurns")
    }
}

/// A turn, until it is dropped.
struct Held<C: Cluster> {
    core: Arc<Core<C>>,
    file: Lockable,
    number: u64,
    /// When it was granted.
    since: Option<Instant>,
}

impl<C: Cluster> Turn for Held<C> {
    fn holds(&self) -> bool {
        let silence = self.core.locks.silence(self.file.ino, self.file.generation);
        self.since.is_some_and(|since| since.elapsed() < GOOD) && silence.is_none_or(|s| s < GOOD)
    }
}

impl<C: Cluster> Drop for Held<C> {
    fn drop(&mut self) {
        self.core.set_turn(self.file, self.number, None, |_| {});
    }
}

/// Where there are no locks nobody else appends.
struct Alone;

impl Turn for Alone {
    fn holds(&self) -> bool {
        true
    }
}

impl<C: Cluster> Turns for MountTurns<C> {
    fn take(&self, file: Lockable) -> LocalFuture<Result<Box<dyn Turn>, Errno>> {
        let core = self.core.upgrade();
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let core = core.ok_or(Errno::Io)?;
            let driver = driver::of(core.id, &*core.cluster)?;
            let taken = Box::pin(take(&core, file, number));
            let Either::Left(taken) = first(taken, driver.world().sleep(PATIENCE)).await else {
                return Err(Errno::Unreachable);
            };
            match taken {
                Ok(turn) => Ok(Box::new(turn) as Box<dyn Turn>),
                Err(LockError::Failed(Errno::Unsupported)) => Ok(Box::new(Alone)),
                Err(LockError::Failed(e)) => Err(e),
                Err(LockError::Interrupted) => Err(Errno::Interrupted),
                Err(LockError::Taken | LockError::Deadlock | LockError::NoLocks) => Err(Errno::Io),
            }
        })
    }
}

async fn take<C: Cluster>(core: &Arc<Core<C>>, file: Lockable, number: u64) -> Result<Held<C>, LockError> {
    let mut held = Held {
        core: core.clone(),
        file,
        number,
        since: None,
    };
    let (told, heard) = later();
    // If nobody waits for it any more it is given up as soon as it is had.
    core.set_turn(file, number, Some(Hold::Exclusive), move |taken| {
        held.since = Some(Instant::now());
        told.put(taken.map(|()| held));
    });
    heard.await.unwrap_or(Err(LockError::Failed(Errno::Io)))
}
