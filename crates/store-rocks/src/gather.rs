//! Batches that were applied and are not handed to RocksDB yet: those of one turn of an event loop are
//! written together, as one batch, with one record of the log and one write(2). What several of them wrote to
//! one key (the touch of a directory in which many files are made) is written once.
//!
//! Nobody has been told of them: whoever waits for a position waits for the write first. Reads see them: a
//! single record is answered from here, and before a range is read in which there are any, they are written.

use crate::sync::Syncer;
use pando_format::KeyRange;
use pando_store::{LocalFuture, Lsn, StoreError};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// Bytes that are gathered at most.
const MOST: usize = 1 << 20;

/// Keys and what they have after a batch; nothing if they are deleted.
pub(crate) type Written = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// What waits to be written, and who for.
#[derive(Default)]
pub(crate) struct Gathered {
    rows: RefCell<Written>,
    /// Also a batch of nothing is written: it is how long that takes that is asked for.
    any: Cell<bool>,
    bytes: Cell<usize>,
    /// Position up to which everything was written.
    written: Cell<Lsn>,
    waiters: RefCell<Vec<Waker>>,
}

impl Gathered {
    /// Adds a batch.
    pub(crate) fn add(&self, batch: &mut Written) {
        let bytes: usize = batch
            .iter()
            .map(|(k, v)| k.len() + v.as_ref().map_or(0, Vec::len))
            .sum();
        self.bytes.set(self.bytes.get() + bytes);
        self.any.set(true);
        // Not `append`, which builds the whole tree anew.
        self.rows.borrow_mut().extend(std::mem::take(batch));
    }

    /// Whether there is enough to be written at once.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.get() >= MOST
    }

    /// What a key has, if that waits to be written: a value, or that it is deleted.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        self.rows.borrow().get(key).cloned()
    }

    /// Whether something in a range waits to be written.
    pub(crate) fn touches(&self, range: &KeyRange) -> bool {
        let rows = self.rows.borrow();
        if rows.is_empty() || range.start >= range.end {
            return false;
        }
        let within = (
            std::ops::Bound::Included(range.start.as_slice()),
            std::ops::Bound::Excluded(range.end.as_slice()),
        );
        rows.range::<[u8], _>(within).next().is_some()
    }

    /// All of it, to be written now; nothing if nothing waits.
    pub(crate) fn take(&self) -> Option<Written> {
        self.any.replace(false).then(|| {
            self.bytes.set(0);
            self.rows.take()
        })
    }

    /// Position up to which everything was written.
    pub(crate) fn written(&self) -> Lsn {
        self.written.get()
    }

    /// All up to `lsn` was written, or will never be: who waits is to look.
    pub(crate) fn done(&self, lsn: Option<Lsn>) {
        if let Some(lsn) = lsn {
            self.written.set(lsn);
        }
        let waiters = self.waiters.take();
        waiters.into_iter().for_each(Waker::wake);
    }
}

/// Waits until everything up to `lsn` was written.
pub(crate) fn until_written(
    gathered: Rc<Gathered>,
    syncer: Arc<Syncer>,
    lsn: Lsn,
) -> LocalFuture<Result<(), StoreError>> {
    Box::pin(std::future::poll_fn(move |cx| {
        if let Err(e) = syncer.check() {
            return Poll::Ready(Err(e));
        }
        if gathered.written() >= lsn {
            return Poll::Ready(Ok(()));
        }
        gathered.waiters.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }))
}
