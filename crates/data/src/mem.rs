//! Blocks in memory, for tests and the simulator: they fail and lose power on request.

use crate::{BlockError, Blocks, FileKey, Listing, LocalFuture, StoredBlock, StoredFile, names};
use pando_types::Timestamp;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Which call a fault hook is asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockCall {
    /// [`Blocks::read`]
    Read,
    /// [`Blocks::write`]
    Write,
    /// [`Blocks::truncate`]
    Truncate,
    /// [`Blocks::sync`]
    Sync,
    /// [`Blocks::remove`]
    Remove,
}

type Faults = Box<dyn FnMut(BlockCall, FileKey) -> Option<BlockError>>;

#[derive(Default)]
struct Block {
    data: Vec<u8>,
    /// What a power failure leaves.
    durable: Option<Vec<u8>>,
}

#[derive(Default)]
struct Inner {
    blocks: BTreeMap<(FileKey, u64), Block>,
    faults: Option<Faults>,
    room: Option<u64>,
}

/// Blocks in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemBlocks(Rc<RefCell<Inner>>);

impl MemBlocks {
    /// No blocks.
    pub fn new() -> MemBlocks {
        MemBlocks::default()
    }

    /// From now on each call fails with what `faults` returns, before it does anything.
    pub fn set_faults(&self, faults: impl FnMut(BlockCall, FileKey) -> Option<BlockError> + 'static) {
        self.0.borrow_mut().faults = Some(Box::new(faults));
    }

    /// No more faults.
    pub fn clear_faults(&self) {
        self.0.borrow_mut().faults = None;
    }

    /// Loses what was not synced. Removals are kept: a store may write them out at any time, and a lost block
    /// is the harder case for whoever removes before the metadata is safe.
    pub fn power_failure(&self) {
        self.0.borrow_mut().blocks.retain(|_, b| match &b.durable {
            Some(d) => {
                b.data = d.clone();
                true
            }
            None => false,
        });
    }

    /// Says how many bytes more there is room for. `None`, as at first: for all. Nothing that is written
    /// changes it.
    pub fn set_room(&self, room: Option<u64>) {
        self.0.borrow_mut().room = room;
    }

    /// Blocks there are of a file.
    pub fn count(&self, file: FileKey) -> usize {
        self.0.borrow().blocks.range((file, 0)..=(file, u64::MAX)).count()
    }

    /// All files that have blocks.
    pub fn files(&self) -> Vec<FileKey> {
        let mut files: Vec<FileKey> = self.0.borrow().blocks.keys().map(|(f, _)| *f).collect();
        files.dedup();
        files
    }

    fn act<T: 'static>(
        &self,
        call: BlockCall,
        file: FileKey,
        act: impl FnOnce(&mut Inner) -> T + 'static,
    ) -> LocalFuture<Result<T, BlockError>> {
        let inner = self.0.clone();
        Box::pin(async move {
            let mut inner = inner.borrow_mut();
            if let Some(faults) = &mut inner.faults
                && let Some(e) = faults(call, file)
            {
                return Err(e);
            }
            Ok(act(&mut inner))
        })
    }
}

impl Blocks for MemBlocks {
    fn read(
        &self,
        file: FileKey,
        block: u64,
        offset: u32,
        len: u32,
    ) -> LocalFuture<Result<Vec<u8>, BlockError>> {
        self.act(BlockCall::Read, file, move |inner| {
            match inner.blocks.get(&(file, block)) {
                None => Vec::new(),
                Some(b) => {
                    let from = (offset as usize).min(b.data.len());
                    let to = (offset as usize).saturating_add(len as usize).min(b.data.len());
                    b.data[from..to].to_vec()
                }
            }
        })
    }

    fn write(
        &self,
        file: FileKey,
        block: u64,
        offset: u32,
        data: Vec<u8>,
    ) -> LocalFuture<Result<(), BlockError>> {
        self.act(BlockCall::Write, file, move |inner| {
            let b = inner.blocks.entry((file, block)).or_default();
            let from = offset as usize;
            if b.data.len() < from + data.len() {
                b.data.resize(from + data.len(), 0);
            }
            b.data[from..from + data.len()].copy_from_slice(&data);
        })
    }

    fn truncate(&self, file: FileKey, block: u64, len: u32) -> LocalFuture<Result<(), BlockError>> {
        self.act(BlockCall::Truncate, file, move |inner| {
            if len == 0 {
                inner.blocks.remove(&(file, block));
            } else if let Some(b) = inner.blocks.get_mut(&(file, block)) {
                b.data.truncate(len as usize);
            }
        })
    }

    fn sync(&self, file: FileKey, blocks: Vec<u64>) -> LocalFuture<Result<(), BlockError>> {
        self.act(BlockCall::Sync, file, move |inner| {
            for block in blocks {
                if let Some(b) = inner.blocks.get_mut(&(file, block)) {
                    b.durable = Some(b.data.clone());
                }
            }
        })
    }

    fn present(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<Vec<u64>, BlockError>> {
        self.act(BlockCall::Read, file, move |inner| {
            let all = inner.blocks.range((file, from)..(file, to.max(from)));
            all.map(|((_, n), _)| *n).collect()
        })
    }

    fn stored(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<Vec<StoredBlock>, BlockError>> {
        self.act(BlockCall::Read, file, move |inner| {
            let all = inner.blocks.range((file, from)..(file, to.max(from)));
            all.map(|((_, number), block)| StoredBlock {
                number: *number,
                bytes: block.data.len() as u32,
            })
            .collect()
        })
    }

    fn remove(&self, file: FileKey, from: u64, to: u64) -> LocalFuture<Result<(), BlockError>> {
        self.act(BlockCall::Remove, file, move |inner| {
            inner
                .blocks
                .retain(|(f, b), _| *f != file || *b < from || *b >= to);
        })
    }

    fn room(&self) -> LocalFuture<Result<Option<u64>, BlockError>> {
        Box::pin(std::future::ready(Ok(self.0.borrow().room)))
    }
}

/// When anything was written is not known here.
impl Listing for MemBlocks {
    fn files(&self, part: u8) -> LocalFuture<Result<Vec<StoredFile>, BlockError>> {
        let mut found: Vec<StoredFile> = Vec::new();
        for ((file, _), block) in &self.0.borrow().blocks {
            if names::part(*file) != part {
                continue;
            }
            if found.last().is_none_or(|f| f.file != *file) {
                found.push(StoredFile::new(*file, Timestamp::default()));
            }
            if let Some(last) = found.last_mut() {
                last.add(block.data.len() as u64, Timestamp::default());
            }
        }
        Box::pin(std::future::ready(Ok(found)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, now};
    use pando_types::{Generation, Ino};

    const FILE: FileKey = FileKey {
        ino: Ino(7),
        generation: Generation(1),
    };

    #[test]
    fn conforms() {
        conformance::run(|| Box::new(MemBlocks::new()));
    }

    #[test]
    fn power_failure_takes_what_was_not_synced() {
        let m = MemBlocks::new();
        now(m.write(FILE, 0, 0, b"old".to_vec())).unwrap();
        now(m.write(FILE, 1, 0, b"kept".to_vec())).unwrap();
        now(m.sync(FILE, vec![0, 1])).unwrap();
        now(m.write(FILE, 0, 0, b"new".to_vec())).unwrap();
        now(m.write(FILE, 2, 0, b"gone".to_vec())).unwrap();
        m.power_failure();
        assert_eq!(now(m.read(FILE, 0, 0, 9)).unwrap(), b"old");
        assert_eq!(now(m.read(FILE, 1, 0, 9)).unwrap(), b"kept");
        assert_eq!(m.count(FILE), 2);
    }

    #[test]
    fn a_fault_happens_instead_of_the_call() {
        let m = MemBlocks::new();
        m.set_faults(|call, _| (call == BlockCall::Write).then_some(BlockError::NoSpace));
        assert_eq!(now(m.write(FILE, 0, 0, vec![1])), Err(BlockError::NoSpace));
        m.clear_faults();
        assert_eq!(m.count(FILE), 0);
    }
}
