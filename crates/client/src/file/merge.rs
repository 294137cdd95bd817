//! Changes of two mounts in one file, put together.
//!
//! A publish says which version of the content it was made of. If another mount has published since, the
//! server refuses it (EBUSY), and what was changed here is made once more in what is there now: so who writes
//! other bytes, under a lock of theirs perhaps, loses none, and of the same bytes the last to publish are
//! there.

use super::open::with_bytes;
use super::{Body, DataSync, OpenFile, Ops, body};
use pando_data::Blocks;
use pando_format::Layout;
use pando_types::{Access, Cred, Errno};
use pando_wire::INLINE_LIMIT_MAX;
use std::collections::BTreeMap;

/// What was changed of a file's content here, and not published yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// Stretches that were written, by where they begin: of the part of the file that may be inline, because
    /// blocks are written where they are. Invariant: they do not touch each other.
    written: BTreeMap<u64, u64>,
    /// Where the last byte was written.
    end: u64,
    /// The size was set: the smallest that it was set to.
    cut: Option<u64>,
}

impl Changes {
    /// These bytes were written.
    pub fn wrote(&mut self, from: u64, to: u64) {
        self.end = self.end.max(to);
        let (mut from, mut to) = (from, to.min(u64::from(INLINE_LIMIT_MAX)));
        if from >= to {
            return;
        }
        while let Some((first, last)) = self.written.range(..=to).next_back().map(|(f, l)| (*f, *l)) {
            if last < from {
                break;
            }
            self.written.remove(&first);
            (from, to) = (from.min(first), to.max(last));
        }
        self.written.insert(from, to);
    }

    /// The size was set.
    pub fn resized(&mut self, size: u64) {
        self.cut = Some(self.cut.map_or(size, |cut| cut.min(size)));
        self.shrunk(size);
    }

    /// Gives up writes past `size`.
    pub fn shrunk(&mut self, size: u64) {
        self.end = self.end.min(size);
        self.written.split_off(&size);
        if let Some(mut last) = self.written.last_entry() {
            let to = last.get_mut();
            *to = size.min(*to);
        }
    }

    /// These changes, and then `later` writes.
    pub fn then(mut self, later: &Changes) -> Changes {
        for (from, to) in &later.written {
            self.wrote(*from, *to);
        }
        self.end = self.end.max(later.end);
        self
    }

    fn kept_of(&self, size: u64) -> u64 {
        self.cut.map_or(size, |cut| cut.min(size))
    }

    /// What was not written, of the bytes before `end`.
    fn gaps(&self, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for (from, to) in &self.written {
            gaps.push((at, (*from).min(end)));
            at = *to;
        }
        gaps.push((at, end));
        gaps.retain(|(from, to)| from < to);
        gaps
    }
}

/// These bytes of what is in memory; zeros past its end.
fn part(bytes: &[u8], from: u64, to: u64) -> Vec<u8> {
    let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(bytes.len());
    let mut out = bytes[at(from)..at(to)].to_vec();
    out.resize((to - from) as usize, 0);
    out
}

impl OpenFile {
    /// Another mount has published since this one looked: takes over what is there, with the changes of this
    /// one. False: it is not shown to us, so it can only be replaced whole. On an error nothing is taken
    /// over.
    pub(super) async fn take_over(
        &mut self,
        ops: &impl Ops,
        blocks: &dyn Blocks,
        cred: &Cred,
    ) -> Result<bool, Errno> {
        let place = self.location.get();
        let opened = super::open(ops, cred, &place, Access(0)).await?;
        let opened = with_bytes(ops, &ops.own(), &place, opened).await;
        let entry = opened.entry;
        if (entry.attr.ino, entry.attr.generation) != (self.key.ino, self.key.generation) {
            return Err(Errno::Stale);
        }
        let theirs = body(&entry, opened.data)?;
        if theirs == Body::Unread {
            return Ok(false);
        }
        self.drain(blocks).await?;
        if entry.version != self.version {
            let before = (self.body.clone(), self.size);
            // It goes behind what is there.
            let tail = std::mem::take(&mut self.tail);
            self.size = self.size.saturating_sub(tail.len() as u64);
            let taken = self.take_in(ops, blocks, theirs, entry.attr.size).await;
            if taken.is_err() {
                (self.body, self.size) = before;
            } else {
                self.size += tail.len() as u64;
                self.cached = None;
            }
            self.tail = tail;
            taken?;
            // Nobody has made a hole.
            let dense = matches!(entry.layout, Layout::Blocks(_)) && self.changes.end <= entry.attr.size;
            if !(dense && self.count.is_whole()) {
                self.count_anew();
            }
        }
        self.location.learn(&entry);
        self.version = entry.version;
        self.attr = entry.attr;
        self.unsynced_before |= self.data_sync == DataSync::OnFsync;
        Ok(true)
    }

    async fn take_in(
        &mut self,
        ops: &impl Ops,
        blocks: &dyn Blocks,
        theirs: Body,
        their_size: u64,
    ) -> Result<(), Errno> {
        let changes = self.changes.clone();
        let kept = changes.kept_of(their_size);
        let size = match changes.cut {
            Some(_) => self.size,
            None => their_size.max(changes.end),
        };
        match (self.body.clone(), theirs) {
            (Body::Memory(mine), Body::Memory(mut bytes)) => {
                bytes.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
                for (from, to) in &changes.written {
                    let end = *to as usize;
                    if bytes.len() < end {
                        bytes.resize(end, 0);
                    }
                    bytes[*from as usize..end].copy_from_slice(&part(&mine, *from, *to));
                }
                self.body = Body::Memory(bytes);
            }
            (Body::Memory(mine), Body::Blocks(block_size)) => {
                (self.body, self.size) = (Body::Blocks(block_size), kept);
                if kept < their_size {
                    self.clear(blocks, block_size, kept, their_size).await?;
                }
                for (from, to) in &changes.written {
                    if *from > self.size {
                        self.clear(blocks, block_size, self.size, *from).await?;
                    }
                    self.store(blocks, block_size, *from, &part(&mine, *from, *to))
                        .await?;
                    self.size = self.size.max(*to);
                }
                if self.size < size {
                    self.clear(blocks, block_size, self.size, size).await?;
                }
                self.drain(blocks).await?;
            }
            // It came to blocks here: what is theirs of the beginning goes there, too.
            (Body::Blocks(block_size), Body::Memory(bytes)) => {
                if self.size < size {
                    self.clear(blocks, block_size, self.size, size).await?;
                }
                let inline = kept.min(ops.inline_limit().into());
                for (from, to) in changes.gaps(inline) {
                    self.store(blocks, block_size, from, &part(&bytes, from, to))
                        .await?;
                }
                self.drain(blocks).await?;
            }
            // Both have written where it is.
            (Body::Blocks(mine), Body::Blocks(theirs)) if mine == theirs => {}
            _ => return Err(Errno::Io),
        }
        self.size = size;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_touch_are_one() {
        let mut changes = Changes::default();
        for (from, to) in [(10, 20), (30, 40), (20, 25), (50, 60), (5, 10), (39, 50)] {
            changes.wrote(from, to);
        }
        let all: Vec<_> = changes.written.clone().into_iter().collect();
        assert_eq!(all, [(5, 25), (30, 60)]);
        assert_eq!(changes.gaps(100), [(0, 5), (25, 30), (60, 100)]);
        assert_eq!(changes.gaps(28), [(0, 5), (25, 28)]);
        changes.resized(40);
        changes.resized(45);
        assert_eq!(
            (changes.end, changes.cut, changes.kept_of(99)),
            (40, Some(40), 40)
        );
        changes.resized(30);
        let all: Vec<_> = changes.written.clone().into_iter().collect();
        assert_eq!(all, [(5, 25)]);
    }
}
