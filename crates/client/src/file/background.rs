//! A publish beside the writer: what is there now is taken down, is sent without the file's lock, and what
//! became of it is noted.
//!
//! Writes may come between [`OpenFile::begin_publish`] and [`OpenFile::end_publish`], and nothing else may:
//! whoever truncates, renames, removes, flushes or takes over waits for the end. What was written meanwhile
//! is published next time.

use super::merge::Changes;
use super::publish::SYNC_BATCH;
use super::{DataSync, OpenFile, Ops};
use pando_data::Blocks;
use pando_types::{Cred, Errno};
use pando_wire::EntryView;
use std::collections::BTreeSet;

/// A publish that is under way.
#[derive(Debug)]
pub struct Underway {
    /// The file as it was when the publish began.
    file: OpenFile,
    /// Blocks that are to be safe before the publish.
    unsynced: BTreeSet<u64>,
    cred: Cred,
}

/// How a publish ended.
#[derive(Debug)]
pub struct Published {
    underway: Underway,
    outcome: Result<EntryView, Errno>,
}

impl OpenFile {
    /// Takes down what is to be published: `None` if there is nothing. Stores what was gathered, if nothing
    /// went wrong with it; that is all that a writer waits for. REQUIRES: [`OpenFile::needs_turn`] is false;
    /// if it is true, [`OpenFile::flush_in`] publishes.
    pub async fn begin_publish(
        &mut self,
        blocks: &dyn Blocks,
        cred: &Cred,
    ) -> Result<Option<Underway>, Errno> {
        if self.removed || self.dirty.is_none() {
            return Ok(None);
        }
        if let Some(e) = self.failed {
            return Err(e);
        }
        self.drain(blocks).await?;
        self.count_told(blocks).await;
        let spare = std::mem::take(&mut self.spare);
        let mut file = self.clone();
        file.room = None;
        self.spare = spare;
        self.leave_room();
        self.changes = Changes::default();
        self.touched = false;
        let unsynced = match self.data_sync {
            DataSync::BeforePublish => std::mem::take(&mut self.unsynced),
            DataSync::OnFsync => BTreeSet::new(),
        };
        let cred = self.writer.clone().unwrap_or_else(|| cred.clone());
        Ok(Some(Underway { file, unsynced, cred }))
    }

    /// Notes what became of a publish.
    ///
    /// EBUSY: another mount has published meanwhile, and [`OpenFile::flush`] puts both together. After any
    /// error everything is still to be published.
    pub fn end_publish(&mut self, published: Published) -> Result<(), Errno> {
        let Published { underway, outcome } = published;
        let Underway { file, unsynced, .. } = underway;
        match outcome {
            Ok(view) => {
                self.settle(&view);
                self.tail_published(file.size);
                if !self.touched {
                    self.dirty = None;
                    self.writer = None;
                    self.leave_room();
                }
                Ok(())
            }
            Err(e) => {
                self.changes = file.changes.then(&self.changes);
                self.unsynced.extend(unsynced);
                self.failed = self.failed.or(file.failed);
                Err(e)
            }
        }
    }
}

impl Underway {
    /// Makes what was taken down safe, if that comes first, and publishes it.
    pub async fn send(mut self, ops: &impl Ops, blocks: &dyn Blocks) -> Published {
        let outcome = self.try_send(ops, blocks).await;
        Published {
            underway: self,
            outcome,
        }
    }

    async fn try_send(&mut self, ops: &impl Ops, blocks: &dyn Blocks) -> Result<EntryView, Errno> {
        let which: Vec<u64> = self.unsynced.iter().copied().collect();
        for some in which.chunks(SYNC_BATCH as usize) {
            self.file.sync_some(blocks, some.to_vec()).await?;
        }
        let base = Some(self.file.version);
        self.file.publish(ops, &self.cred, base).await
    }
}
