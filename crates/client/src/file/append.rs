//! Appended bytes, which have no place before they are published.
//!
//! Two mounts that append to one file begin at the same byte, as far as each knows. So what was appended here
//! is the file's *tail*: it is kept in memory, and goes behind what is there when it is published. Inline it
//! goes with the content; a publish that finds another version puts it behind that ([`OpenFile::take_over`]).
//! Blocks are written where they are, before a publish: of the mounts that append to one file only that may
//! which has the [`Turn`] (H195). With the turn it looks how long the file is, stores its tail there, and
//! publishes.

use super::{Body, OpenFile, Ops, SIZE_MAX};
use crate::locks::Lockable;
use pando_data::Blocks;
use pando_env::LocalFuture;
use pando_types::{Cred, Errno, Timestamp};
use std::fmt::Debug;

/// Bytes of one file that may wait to get their place.
const TAIL_MAX: usize = 4 << 20;

/// The right to store appended bytes in a file's blocks, which one mount has at a time. Dropped, it is given
/// up.
pub trait Turn {
    /// Whether no other mount can have it by now.
    fn holds(&self) -> bool;
}

/// Gives turns.
pub trait Turns: Send + Sync + Debug {
    /// Waits for the turn to append to a file.
    fn take(&self, file: Lockable) -> LocalFuture<Result<Box<dyn Turn>, Errno>>;
}

impl OpenFile {
    /// Writes at the end, wherever that is when it is published. `now` becomes the modification time. On an
    /// error nothing has changed.
    pub async fn append(
        &mut self,
        ops: &impl Ops,
        blocks: &dyn Blocks,
        cred: &Cred,
        data: &[u8],
        now: Timestamp,
    ) -> Result<(), Errno> {
        // Nobody else can take the place, or it is not known what there is.
        if self.removed || self.turns.is_none() || self.body == Body::Unread {
            return self.write(ops, blocks, cred, self.size, data, now).await;
        }
        if data.is_empty() {
            return Ok(());
        }
        let end = self.size.checked_add(data.len() as u64);
        self.size = end.filter(|e| *e <= SIZE_MAX).ok_or(Errno::TooBig)?;
        self.tail.extend_from_slice(data);
        self.touch(now);
        self.wrote(cred);
        Ok(())
    }

    /// Whether what was appended is to be published before so many bytes more are.
    pub fn is_full_for(&self, more: usize) -> bool {
        !self.tail.is_empty() && self.tail.len().saturating_add(more) > TAIL_MAX
    }

    /// Whether the tail needs a turn to be published.
    pub fn needs_turn(&self, inline_limit: u32) -> bool {
        let small = matches!(self.body, Body::Memory(_)) && self.size <= u64::from(inline_limit);
        !self.tail.is_empty() && !small && !self.removed && self.turns.is_some()
    }

    /// The turn to append to this file, when it comes. (A front end waits for it without the file's lock.)
    pub fn turn(&self) -> LocalFuture<Result<Box<dyn Turn>, Errno>> {
        let file = Lockable {
            ino: self.key.ino,
            generation: self.key.generation,
            proof: self.proof,
        };
        match &self.turns {
            Some(turns) => turns.take(file),
            None => Box::pin(std::future::ready(Err(Errno::Unsupported))),
        }
    }

    /// The bytes of a file that is inline, with its tail.
    pub(super) fn with_tail(&self, bytes: &[u8]) -> Vec<u8> {
        let mut all = bytes.to_vec();
        if !self.tail.is_empty() {
            all.resize(usize::try_from(self.placed()).unwrap_or(usize::MAX), 0);
            all.extend_from_slice(&self.tail);
        }
        all
    }

    /// Where the tail begins, which is where the file ends without it.
    pub(super) fn placed(&self) -> u64 {
        self.size.saturating_sub(self.tail.len() as u64)
    }

    /// Stores the tail where the file ends. It stays here until it is published there. REQUIRES: the turn,
    /// and the file's present length.
    pub(super) async fn store_tail(&mut self, ops: &impl Ops, blocks: &dyn Blocks) -> Result<(), Errno> {
        let (size, from) = (self.size, self.placed());
        let now = self.dirty.unwrap_or(self.attr.mtime);
        self.size = from;
        let moved = self.move_to_blocks(ops.block_size(), blocks, now).await;
        self.size = size;
        let block_size = moved?;
        let tail = std::mem::take(&mut self.tail);
        let stored = self.store(blocks, block_size, from, &tail).await;
        self.tail = tail;
        stored?;
        self.drain(blocks).await
    }

    /// Gives the tail the place that it seems to have: what comes next is not an append.
    pub(super) async fn place_tail(
        &mut self,
        ops: &impl Ops,
        blocks: &dyn Blocks,
        now: Timestamp,
    ) -> Result<(), Errno> {
        if self.tail.is_empty() {
            return Ok(());
        }
        let (size, from) = (self.size, self.placed());
        let tail = std::mem::take(&mut self.tail);
        self.size = from;
        let done = self.put(ops, blocks, (from, &tail), size, now).await;
        self.size = size;
        if done.is_err() {
            self.tail = tail;
            return done;
        }
        self.changes.wrote(from, size);
        Ok(())
    }

    /// The file was published as long as this.
    pub(super) fn tail_published(&mut self, size: u64) {
        let from = self.placed();
        let n = usize::try_from(size.saturating_sub(from)).unwrap_or(usize::MAX);
        let rest = self.tail.split_off(n.min(self.tail.len()));
        let published = std::mem::replace(&mut self.tail, rest);
        if let Body::Memory(bytes) = &mut self.body
            && !published.is_empty()
        {
            bytes.resize(usize::try_from(from).unwrap_or(usize::MAX), 0);
            bytes.extend_from_slice(&published);
        }
    }

    /// Shows bytes of the tail in what is read of the file at `offset`.
    pub(super) fn show_tail(&self, offset: u64, data: &mut [u8]) {
        let from = self.placed();
        let end = offset + data.len() as u64;
        if end <= from || self.tail.is_empty() {
            return;
        }
        let begin = offset.max(from);
        let (into, at) = ((begin - offset) as usize, (begin - from) as usize);
        let n = (data.len() - into).min(self.tail.len() - at);
        data[into..into + n].copy_from_slice(&self.tail[at..at + n]);
    }
}
