//! Attributes of a file that was made here, and that are told together with its bytes.
//!
//! A program that unpacks a file makes it, writes it, sets its times, owner and bits, and closes it. What it
//! sets waits for the publish, and goes in the same message, where no answer but yes can come, and where
//! nobody sees the bytes under looser permissions than the ones asked for: until it is told the file has the
//! permissions that it was made with, and only what is at least as open waits. Both may be done in any order:
//! the modification time is in both.

use super::{OpenFile, Ops};
use pando_data::Blocks;
use pando_env::sync::join_all;
use pando_types::{Attr, AttrChange, Cred, Errno, TimeChange, Timestamp};
use pando_wire::{Answer, EntryView, Op, Outcome};
use std::future::Future;
use std::pin::Pin;

/// What waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    /// What is asked for, in the order of time: later ones count. Its times are times, not "now".
    change: AttrChange,
    /// When it was last asked for something.
    at: Timestamp,
}

/// Either of what goes together.
enum Told {
    Attributes(Outcome),
    Bytes(Result<EntryView, Errno>),
}

type Telling<'a> = Pin<Box<dyn Future<Output = Told> + 'a>>;

impl OpenFile {
    /// It was made just now, by this user: changes of its attributes may wait.
    pub fn made_by(mut self, cred: &Cred) -> OpenFile {
        self.maker = Some(cred.clone());
        self
    }

    /// Changes of its attributes do not wait any more.
    pub fn is_settled(&mut self) {
        self.maker = self.maker.take().filter(|_| self.waits());
    }

    /// Whether changes of attributes wait for the next publish.
    pub fn waits(&self) -> bool {
        self.waiting.is_some()
    }

    /// Publishes everything now, if changes of attributes wait: somebody else is about to have to do with the
    /// file.
    pub async fn end_waiting(&mut self, ops: &impl Ops, blocks: &dyn Blocks) -> Result<(), Errno> {
        match self.maker.clone().filter(|_| self.waits()) {
            Some(maker) => self.flush(ops, blocks, &maker).await,
            None => Ok(()),
        }
    }

    /// Lets a change wait, if it surely is allowed, and loosens nothing before its time. `false`: it is to be
    /// told now.
    pub fn put_off(&mut self, cred: &Cred, change: &AttrChange, now: Timestamp) -> bool {
        if self.removed || self.maker.as_ref() != Some(cred) || !self.may_wait(cred, change) {
            return false;
        }
        let at = |time: Option<TimeChange>| {
            time.map(|time| match time {
                TimeChange::Now => TimeChange::To(now),
                TimeChange::To(_) => time,
            })
        };
        let before = self.waiting.take().map_or(AttrChange::default(), |w| w.change);
        let change = AttrChange {
            perm: change.perm.or(before.perm),
            uid: change.uid.or(before.uid),
            gid: change.gid.or(before.gid),
            size: None,
            atime: at(change.atime).or(before.atime),
            mtime: at(change.mtime).or(before.mtime),
        };
        self.waiting = Some(Waiting { change, at: now });
        true
    }

    /// `self.attr` is what the servers have: who may come to the bytes until the change is told.
    fn may_wait(&self, cred: &Cred, change: &AttrChange) -> bool {
        let (there, shown) = (&self.attr, self.attr());
        let owner = cred.is_root()
            || there.uid == cred.uid && change.uid.is_none() && change.gid.is_none_or(|gid| gid == there.gid);
        let then = change.perm.unwrap_or(shown.perm).bits();
        let now = there.perm.bits();
        let special = (now | then) & !0o777 != 0;
        let uid = change.uid.unwrap_or(shown.uid);
        let gid = change.gid.unwrap_or(shown.gid);
        owner
            && change.size.is_none()
            && !special
            && now & !then == 0
            && (uid == there.uid || there.uid == 0)
            && (gid == there.gid || now & 0o070 == 0)
    }

    /// It was written: that is its last modification.
    pub(super) fn outdate_mtime(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.change.mtime = None;
        }
    }

    /// The time of modification to publish.
    pub(super) fn mtime(&self) -> Option<Timestamp> {
        match self.waiting.as_ref().and_then(|w| w.change.mtime) {
            Some(TimeChange::To(time)) => Some(time),
            Some(TimeChange::Now) | None => self.dirty,
        }
    }

    /// As attributes are shown here while some wait.
    pub(super) fn with_waiting(&self, mut attr: Attr) -> Attr {
        let Some(Waiting { change, at }) = &self.waiting else {
            return attr;
        };
        let time = |change: Option<TimeChange>, before| match change {
            Some(TimeChange::To(time)) => time,
            Some(TimeChange::Now) | None => before,
        };
        attr.perm = change.perm.unwrap_or(attr.perm);
        attr.uid = change.uid.unwrap_or(attr.uid);
        attr.gid = change.gid.unwrap_or(attr.gid);
        attr.atime = time(change.atime, attr.atime);
        attr.mtime = time(change.mtime, attr.mtime);
        attr.ctime = attr.ctime.max(*at);
        attr
    }

    /// Publishes bytes, and tells with them what waits. What was not heard waits on. Errors are those of
    /// [`OpenFile::publish`].
    pub(super) async fn publish_all(
        &mut self,
        ops: &impl Ops,
        cred: &Cred,
        base: Option<u64>,
    ) -> Result<EntryView, Errno> {
        let Some((maker, op)) = self.telling() else {
            return self.publish(ops, cred, base).await;
        };
        let attributes: Telling<'_> = Box::pin(async { Told::Attributes(ops.op(&maker, op).await) });
        let bytes: Telling<'_> = Box::pin(async { Told::Bytes(self.publish(ops, cred, base).await) });
        // Sent first, it is done first: what is looser is then looser for nothing but what was there.
        let (mut told, mut published) = (Err(Errno::Io), Err(Errno::Io));
        for one in join_all(vec![attributes, bytes]).await {
            match one {
                Told::Attributes(outcome) => told = outcome,
                Told::Bytes(outcome) => published = outcome,
            }
        }
        let published = published?;
        match told {
            Ok(Answer::Entry(view)) => {
                self.waiting = None;
                // The later one says how it is.
                Ok(if view.version >= published.version {
                    view
                } else {
                    published
                })
            }
            // It is told once more, by itself.
            Ok(_) | Err(_) => Ok(published),
        }
    }

    /// Tells what waits by itself: nothing is to be published.
    pub(super) async fn tell(&mut self, ops: &impl Ops) -> Result<(), Errno> {
        let Some((maker, op)) = self.telling() else {
            return Ok(());
        };
        let mut told = ops.op(&maker, op).await;
        if matches!(told, Err(Errno::Stale | Errno::NotFound))
            && self.go_home(ops).await
            && let Some((maker, op)) = self.telling()
        {
            told = ops.op(&maker, op).await;
        }
        match told {
            Ok(Answer::Entry(view)) => {
                self.waiting = None;
                self.learn(&view);
                Ok(())
            }
            // It may have been done, and will be tried again.
            Err(e @ (Errno::Unreachable | Errno::Interrupted)) => Err(e),
            // It has no name any more, or others have changed whose it is.
            Err(e) => {
                self.waiting = None;
                Err(e)
            }
            Ok(_) => Err(Errno::Io),
        }
    }

    fn telling(&self) -> Option<(Cred, Op)> {
        let (maker, waiting) = (self.maker.clone()?, self.waiting.as_ref()?);
        let op = Op::SetAttr {
            object: self.meant_at(self.location.get()),
            change: waiting.change,
            handle: None,
        };
        Some((maker, op))
    }
}
