//! Making changes visible and safe: flush, fsync, truncate, close.

use super::append::Turn;
use super::merge::Changes;
use super::open::with_bytes;
use super::{Body, DataSync, OpenFile, Ops, Place, SIZE_MAX, block_errno};
use pando_data::{Blocks, FileKey};
use pando_format::codec::Blob;
use pando_types::{Access, AttrChange, Cred, Errno, Part, Timestamp};
use pando_wire::{Answer, Content, EntryView, Object, Op};

/// How often a publish is made anew because others publish all the time.
const MERGES: usize = 100;
/// Blocks named in one sync call.
pub(super) const SYNC_BATCH: u64 = 1024;

impl OpenFile {
    /// Publishes what is not published. Does nothing for a file without a name.
    ///
    /// `ESTALE`: another mount has renamed, replaced or removed the file. If the name was changed on this
    /// mount meanwhile, or the directory's statement was, it is tried again with what is known now.
    pub async fn flush(&mut self, ops: &impl Ops, blocks: &dyn Blocks, cred: &Cred) -> Result<(), Errno> {
        self.flush_in(None, ops, blocks, cred).await
    }

    /// The same with a turn to append, if the caller has one.
    pub async fn flush_in(
        &mut self,
        mut turn: Option<Box<dyn Turn>>,
        ops: &impl Ops,
        blocks: &dyn Blocks,
        cred: &Cred,
    ) -> Result<(), Errno> {
        if self.removed {
            self.dirty = None;
            self.waiting = None;
        }
        if self.dirty.is_none() {
            return self.tell(ops).await;
        }
        let writer = self.writer.clone();
        let cred = writer.as_ref().unwrap_or(cred);
        // Who may not see what is there can only replace it whole.
        let mut sees = true;
        for _ in 0..MERGES {
            self.drain(blocks).await?;
            if self.needs_turn(ops.inline_limit()) {
                sees = self.take_turn(&mut turn, ops, blocks, cred).await?;
                self.store_tail(ops, blocks).await?;
            }
            self.count_told(blocks).await;
            if self.data_sync == DataSync::BeforePublish {
                self.sync_blocks(blocks).await?;
            }
            let base = Some(self.version).filter(|_| sees);
            match self.publish_all(ops, cred, base).await {
                Err(Errno::Busy) if sees => sees = self.take_over(ops, blocks, cred).await?,
                done => {
                    self.settle(&done?);
                    self.tail_published(self.size);
                    self.dirty = None;
                    self.writer = None;
                    self.changes = Changes::default();
                    self.leave_room();
                    // If it was not heard with the bytes.
                    return self.tell(ops).await;
                }
            }
        }
        Err(Errno::Busy)
    }

    /// Makes sure that it is this mount's turn to append, and learns how long the file is. False: what is
    /// there is not shown to us.
    async fn take_turn(
        &mut self,
        turn: &mut Option<Box<dyn Turn>>,
        ops: &impl Ops,
        blocks: &dyn Blocks,
        cred: &Cred,
    ) -> Result<bool, Errno> {
        if !turn.as_ref().is_some_and(|turn| turn.holds()) {
            // One at a time.
            *turn = None;
            *turn = Some(self.turn().await?);
        }
        self.take_over(ops, blocks, cred).await
    }

    /// Says once what the content is now. EBUSY: it is not that of version `base` any more.
    pub(super) async fn publish(
        &mut self,
        ops: &impl Ops,
        cred: &Cred,
        base: Option<u64>,
    ) -> Result<EntryView, Errno> {
        // Nobody writes who has not opened it for writing.
        let handle = self.handle.ok_or(Errno::BadHandle)?;
        let content = match &self.body {
            Body::Memory(bytes) if bytes.is_empty() && self.tail.is_empty() => Content::None,
            Body::Memory(bytes) => Content::Inline(Blob(self.with_tail(bytes))),
            Body::Blocks(size) => self.content_in_blocks(*size),
            Body::Unread => return Err(Errno::Access),
        };
        let mut place = self.location.get();
        let (mut retried, mut sought) = (false, false);
        let answer = loop {
            let op = Op::Publish {
                object: self.meant_at(place.clone()),
                handle,
                content: content.clone(),
                size: self.size,
                mtime: self.mtime(),
                base,
            };
            match ops.op(cred, op).await {
                Err(Errno::Stale | Errno::NotFound) if !retried && self.location.get() != place => {
                    retried = true;
                    place = self.location.get();
                }
                Err(Errno::Stale | Errno::NotFound) if !sought && self.go_home(ops).await => {
                    sought = true;
                    place = self.location.get();
                }
                Err(Errno::NotFound) => return Err(Errno::Stale),
                other => break other?,
            }
        };
        match answer {
            Answer::Entry(view) => Ok(view),
            _ => Err(Errno::Io),
        }
    }

    /// Drops what is not published, which nobody is to see any more, and takes over what the servers have.
    /// What was stored in blocks is there.
    pub async fn forget_changes(&mut self, ops: &impl Ops, cred: &Cred) {
        if self.dirty.take().is_none() || self.removed {
            return;
        }
        self.writer = None;
        self.changes = Changes::default();
        self.gathered = None;
        self.tail = Vec::new();
        self.leave_room();
        if matches!(self.body, Body::Memory(_)) {
            self.body = Body::Unread;
        }
        self.size = self.attr.size;
        // Whatever is answered is newer.
        self.version = 0;
        self.cached = None;
        self.reload(ops, cred).await;
    }

    /// Publishes and makes content and metadata survive a power failure.
    pub async fn fsync(&mut self, ops: &impl Ops, blocks: &dyn Blocks, cred: &Cred) -> Result<(), Errno> {
        self.sync_blocks(blocks).await?;
        self.flush(ops, blocks, cred).await?;
        if self.removed {
            Ok(())
        } else {
            let at = self.location.get();
            ops.sync_entry(&at.dir, &at.name).await
        }
    }

    /// Changes the size, at once for everybody. `through_handle`: permission was checked when the handle was
    /// opened; otherwise the server checks it.
    #[allow(clippy::too_many_arguments)]
    pub async fn truncate(
        &mut self,
        ops: &impl Ops,
        blocks: &dyn Blocks,
        cred: &Cred,
        size: u64,
        now: Timestamp,
        through_handle: bool,
    ) -> Result<(), Errno> {
        if size > SIZE_MAX {
            return Err(Errno::TooBig);
        }
        if size > 0 {
            self.place_tail(ops, blocks, now).await?;
        }
        let given_up = match self.drain(blocks).await {
            // What cannot be stored need not be, if all of it goes.
            Err(_) if size == 0 && through_handle => self.gathered.take(),
            done => {
                done?;
                None
            }
        };
        let done = self
            .resize_stored(ops, blocks, cred, size, now, through_handle)
            .await;
        if done.is_err() && self.gathered.is_none() {
            self.gathered = given_up;
        }
        done
    }

    #[allow(clippy::too_many_arguments)]
    async fn resize_stored(
        &mut self,
        ops: &impl Ops,
        blocks: &dyn Blocks,
        cred: &Cred,
        size: u64,
        now: Timestamp,
        through_handle: bool,
    ) -> Result<(), Errno> {
        let old = self.size;
        if !through_handle {
            self.flush(ops, blocks, cred).await?;
        }
        // What comes into view is cleared first, what goes out of view is cut last.
        if let Body::Blocks(block_size) = self.body
            && size > old
        {
            self.clear(blocks, block_size, old, size).await?;
            self.count_for_hole(blocks, size).await;
        }
        if size > 0 {
            self.count_told(blocks).await;
        }
        if self.removed {
            self.resize(size);
            self.attr.mtime = now;
            self.attr.ctime = now;
        } else if self.dirty.is_some() || (through_handle && self.is_counted()) {
            let before = (self.body.clone(), self.size, self.dirty, self.changes.clone());
            let tail = self.tail.clone();
            let count = self.count.clone();
            self.resize(size);
            self.changes.resized(size);
            self.touch(now);
            if let Err(e) = self.flush(ops, blocks, cred).await {
                // It was not cut: what was written is still to be published.
                (self.body, self.size, self.dirty, self.changes) = before;
                self.tail = tail;
                self.count = count;
                return Err(e);
            }
        } else {
            if self.data_sync == DataSync::BeforePublish {
                self.sync_blocks(blocks).await?;
            }
            let view = self.set_size(ops, cred, size, through_handle).await?;
            self.resize(size);
            if view.version != self.version + 1 {
                self.reload(ops, cred).await;
            }
            self.settle(&view);
            self.tell_count(ops, blocks, cred).await;
        }
        // The size hides what is left if this fails.
        let _ = self.cut(blocks, old).await;
        Ok(())
    }

    /// Another mount has changed the content since this one looked, and so did this one without replacing it
    /// whole: what is known here is neither. Failure leaves the old knowledge, as if this mount had looked a
    /// little earlier.
    async fn reload(&mut self, ops: &impl Ops, cred: &Cred) {
        let place = self.location.get();
        if let Ok(opened) = super::open(ops, cred, &place, Access(0)).await {
            let opened = with_bytes(ops, &ops.own(), &place, opened).await;
            let _ = self.refresh(opened);
        }
    }

    /// Ends the use of a file by its last handle: publishes, or gives up a file that has no name any more.
    pub async fn close(&mut self, ops: &impl Ops, blocks: &dyn Blocks, cred: &Cred) -> Result<(), Errno> {
        if !self.removed {
            return self.flush(ops, blocks, cred).await;
        }
        let freed = self.free(blocks).await;
        ops.op(cred, self.release()).await?;
        freed
    }

    /// Removes the blocks of a file without a name. The server frees those it knows of; only this mount knows
    /// of those that were never published.
    pub async fn free(&self, blocks: &dyn Blocks) -> Result<(), Errno> {
        match self.body {
            Body::Blocks(_) if !self.stored => {
                blocks.remove(self.key, 0, u64::MAX).await.map_err(block_errno)
            }
            Body::Blocks(_) | Body::Memory(_) | Body::Unread => Ok(()),
        }
    }

    /// What tells the servers that a file without a name is not open any more. The session that removed the
    /// name with `held` must send it.
    pub fn release(&self) -> Op {
        let slot = self
            .kept
            .unwrap_or_else(|| Part::whole(self.location.get().dir.id).slot());
        Op::Release {
            slot,
            ino: self.key.ino,
            generation: self.key.generation,
        }
    }

    /// The file, by a name that it has.
    pub(super) fn meant_at(&self, Place { dir, name }: Place) -> Object {
        let FileKey { ino, generation } = self.key;
        Object {
            dir,
            name,
            ino,
            generation,
        }
    }

    async fn set_size(
        &mut self,
        ops: &impl Ops,
        cred: &Cred,
        size: u64,
        through_handle: bool,
    ) -> Result<EntryView, Errno> {
        let handle = match through_handle {
            true => Some(self.handle.ok_or(Errno::BadHandle)?),
            false => None,
        };
        let op = |place: Place| Op::SetAttr {
            object: self.meant_at(place),
            change: AttrChange {
                size: Some(size),
                ..AttrChange::default()
            },
            handle,
        };
        let answer = match ops.op(cred, op(self.location.get())).await {
            Err(Errno::Stale | Errno::NotFound) if through_handle && self.go_home(ops).await => {
                ops.op(cred, op(self.location.get())).await
            }
            other => other,
        };
        match answer? {
            Answer::Entry(view) => Ok(view),
            _ => Err(Errno::Io),
        }
    }

    fn resize(&mut self, size: u64) {
        // Nothing is in it, or all of it goes.
        self.tail = Vec::new();
        if let Body::Memory(bytes) = &mut self.body {
            bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        } else if self.body == Body::Unread && size == 0 {
            self.body = Body::Memory(Vec::new());
        } else if let Body::Blocks(block_size) = self.body {
            self.count.cut(size, block_size);
        }
        self.size = size;
    }

    /// A change of ours was published, and the entry is now `view`.
    pub(super) fn settle(&mut self, view: &EntryView) {
        self.location.learn(view);
        self.stored |= super::in_blocks(view);
        // If the version rose by more than our change, another mount has written since we looked. Its blocks,
        // and what a front end has cached, may be mixed with ours.
        let alone = view.version == self.version + 1;
        self.cached = if alone && self.cached == Some(self.version) {
            Some(view.version)
        } else {
            None
        };
        if !alone {
            self.unsynced_before |= self.data_sync == DataSync::OnFsync;
        }
        // A reload may have seen a later one.
        if view.version >= self.version {
            self.version = view.version;
            self.attr = view.attr;
        }
    }

    async fn sync_blocks(&mut self, blocks: &dyn Blocks) -> Result<(), Errno> {
        if let Some(e) = self.failed {
            return Err(e);
        }
        self.drain(blocks).await?;
        if self.unsynced_before
            && let Body::Blocks(size) = self.body
        {
            let end = self.size.div_ceil(u64::from(size));
            let mut from = 0;
            while from < end {
                let to = (from + SYNC_BATCH).min(end);
                self.sync_some(blocks, (from..to).collect()).await?;
                from = to;
            }
        }
        self.unsynced_before = false;
        if !self.unsynced.is_empty() {
            self.sync_some(blocks, self.unsynced.iter().copied().collect())
                .await?;
            self.unsynced.clear();
        }
        Ok(())
    }

    pub(super) async fn sync_some(&mut self, blocks: &dyn Blocks, which: Vec<u64>) -> Result<(), Errno> {
        if let Err(e) = blocks.sync(self.key, which).await {
            // After a failed sync the device may have dropped the pages and call the next one a success
            // (H103).
            self.failed = Some(Errno::Io);
            return Err(block_errno(e));
        }
        Ok(())
    }
}
