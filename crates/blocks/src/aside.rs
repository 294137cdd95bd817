//! Removal beside everything else, for a server, whose one thread must not wait for it.

use crate::Store;
use pando_data::{BlockError, Blocks, FileKey, LocalFuture, StoredBlock};
use std::collections::BTreeMap;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};

/// Most removals that are under way or that nobody has asked about since they were done. Whoever asks for
/// more asks again.
const MOST: usize = 10_000;

type Range = (FileKey, u64, u64);
type Done = Result<(), BlockError>;

/// A store whose removals answer [`BlockError::Later`] until they are done. Whoever asks asks again: what is
/// to be removed is written down elsewhere, and is removed after a crash too.
#[derive(Clone, Debug)]
pub struct Aside {
    store: Store,
    jobs: Sender<Range>,
    known: Arc<Mutex<BTreeMap<Range, Option<Done>>>>,
}

impl Aside {
    /// Starts the thread. It ends with the last clone.
    pub fn new(store: Store) -> std::io::Result<Aside> {
        let (jobs, asked) = mpsc::channel::<Range>();
        let known: Arc<Mutex<BTreeMap<Range, Option<Done>>>> = Arc::default();
        let (worker, results) = (store.clone(), known.clone());
        std::thread::Builder::new()
            .name("pando-remove".into())
            .spawn(move || {
                for range in asked {
                    let (file, from, to) = range;
                    let done = pando_data::wait(worker.remove(file, from, to));
                    let mut known = results.lock().unwrap_or_else(PoisonError::into_inner);
                    known.insert(range, Some(done));
                }
            })?;
        Ok(Aside { store, jobs, known })
    }

    fn removed(&self, range: Range) -> Done {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.remove(&range) {
            Some(Some(done)) => return done,
            Some(None) => {}
            None if known.len() >= MOST => {
                // If all are done and nobody comes for them (a slot that moved to another server) they are
                // forgotten.
                if known.values().all(Option::is_some) {
                    known.clear();
                }
                return Err(BlockError::Later);
            }
            None if self.jobs.send(range).is_err() => {
                return Err(BlockError::Device(
                    "the thread that removes blocks has ended".into(),
                ));
            }
            None => {}
        }
        known.insert(range, None);
        Err(BlockError::Later)
    }
}

impl Blocks for Aside {
    fn read(
        &self,
        file: FileKey,
        block: u64,
        offset: u32,
        len: u32,
    ) -> LocalFuture<Result<Vec<u8>, BlockError>> {
        self.store.read(file, block, offset, len)
    }

    fn write(
        &self,
        file: FileKey,
        block: u64,
        offset: u32,
        data: Vec<u8>,
    ) -> LocalFuture<Result<(), BlockError>> {
        self.store.write(file, block, offset, data)
    }

    fn truncate(&self, file: FileKey, block: u64, len: u32) -> LocalFuture<Result<(), BlockError>> {
        self.store.truncate(file, block, len)
    }

    fn sync(&self, file: FileKey, blocks: Vec<u64>) -> LocalFuture<Result<(), BlockError>> {
        self.store.sync(file, blocks)
    }

    fn present(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<Vec<u64>, BlockError>> {
        self.store.present(file, from, to)
    }

    fn stored(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<Vec<StoredBlock>, BlockError>> {
        self.store.stored(file, from, to)
    }

    fn remove(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<(), BlockError>> {
        Box::pin(std::future::ready(self.removed((file, from, to))))
    }

    fn room(&self) -> LocalFuture<Result<Option<u64>, BlockError>> {
        self.store.room()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Opened;
    use pando_data::{DirBlocks, wait};
    use pando_types::{Generation, Ino};

    #[test]
    fn a_removal_is_done_when_it_says_so() {
        let tmp = tempfile::tempdir().unwrap();
        let aside = Aside::new(Store::Open(Opened::Dir(DirBlocks::open(tmp.path()).unwrap()))).unwrap();
        let file = FileKey {
            ino: Ino(3),
            generation: Generation(1),
        };
        wait(aside.write(file, 0, 0, vec![1])).unwrap();
        assert!(wait(aside.room()).unwrap().is_some_and(|free| free > 0));
        assert_eq!(wait(aside.remove(file, 0, u64::MAX)), Err(BlockError::Later));
        while wait(aside.remove(file, 0, u64::MAX)) == Err(BlockError::Later) {
            std::thread::yield_now();
        }
        assert_eq!(wait(aside.read(file, 0, 0, 1)), Ok(vec![]));
        // Asked for anew it is done anew.
        assert_eq!(wait(aside.remove(file, 0, u64::MAX)), Err(BlockError::Later));
    }
}
