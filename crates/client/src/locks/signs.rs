//! When the servers that keep locks were last heard of, for all threads of a mount.
//!
//! A server ends a session that is silent for too long and gives its locks to others, and who was silent does
//! not know yet: a machine that slept, or was cut off. So whoever acts under a lock asks here first how old
//! the last sign is.

use super::{FileId, Pair};
use pando_types::{Generation, Ino};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Default)]
struct Heard {
    /// When the last request was sent that was answered.
    at: BTreeMap<Pair, Duration>,
    /// By whom the locks of a file are kept.
    files: BTreeMap<FileId, Pair>,
}

/// Clones share it.
#[derive(Clone)]
pub struct Signs {
    /// Must go on while the machine sleeps.
    clock: fn() -> Duration,
    heard: Arc<Mutex<Heard>>,
}

impl Signs {
    /// Of nobody yet.
    pub fn new(clock: fn() -> Duration) -> Signs {
        Signs {
            clock,
            heard: Arc::default(),
        }
    }

    /// How long ago that was sent which was last answered by who keeps the locks of a file; none, if nobody
    /// does.
    pub fn silence(&self, ino: Ino, generation: Generation) -> Option<Duration> {
        let heard = self.lock();
        let at = heard.at.get(heard.files.get(&(ino, generation))?)?;
        Some((self.clock)().saturating_sub(*at))
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Duration {
        (self.clock)()
    }

    pub(super) fn answered(&self, pair: Pair, sent: Duration) {
        let mut heard = self.lock();
        let at = heard.at.entry(pair).or_default();
        *at = sent.max(*at);
    }

    pub(super) fn kept(&self, file: FileId, pair: Pair) {
        self.lock().files.insert(file, pair);
    }

    pub(super) fn forget(&self, file: FileId) {
        self.lock().files.remove(&file);
    }

    /// A session is over. What was held under it was given up, or is lost, and those who held it are told.
    pub(super) fn over(&self, pair: Pair) {
        self.lock().at.remove(&pair);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::{IdentityId, ServerId, SessionId, Slot};
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    static NOW: AtomicU64 = AtomicU64::new(100);

    #[test]
    fn silence_is_counted_from_what_was_sent_and_answered() {
        let signs = Signs::new(|| Duration::from_secs(NOW.load(SeqCst)));
        let file = (Ino::new(Slot(3), 5), Generation(1));
        let pair = (ServerId(1), SessionId::for_locks(IdentityId(1), 7));
        assert_eq!(signs.silence(file.0, file.1), None);
        signs.answered(pair, Duration::from_secs(90));
        signs.kept(file, pair);
        assert_eq!(signs.silence(file.0, file.1), Some(Duration::from_secs(10)));
        // An answer that was overtaken says nothing new.
        signs.answered(pair, Duration::from_secs(80));
        NOW.store(150, SeqCst);
        assert_eq!(signs.silence(file.0, file.1), Some(Duration::from_secs(60)));
        signs.answered(pair, signs.now());
        assert_eq!(signs.silence(file.0, file.1), Some(Duration::ZERO));
        // Another keeps it, of whom nothing is known to be late.
        let next = (ServerId(2), pair.1);
        signs.answered(next, Duration::from_secs(149));
        signs.kept(file, next);
        signs.over(pair);
        assert_eq!(signs.silence(file.0, file.1), Some(Duration::from_secs(1)));
        signs.forget(file);
        assert_eq!(signs.silence(file.0, file.1), None);
    }
}
