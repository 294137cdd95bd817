//! A repair in the making: what was found, what is to stand there, and where records are read from.

use crate::fsck::collect::Unread;
use pando_cluster::ClusterMap;
use pando_env::LocalFuture;
use pando_format::{
    AttachmentKind, Entry, FactChange, Head, Invalidation, Key, KeyRange, NameHash, Position, Record,
    RenameList, Scan, Target, Touch, TouchDelta,
};
use pando_types::{DirId, Generation, Ids, Name, ServerId, Timestamp};
use pando_wire::RepairRequest;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::rc::Rc;

/// What gets every record, and of which server.
pub type Each<'a> = dyn FnMut(ServerId, Key, Record) + 'a;
/// See [`Source::sweep`].
pub type Swept<'a> = Pin<Box<dyn Future<Output = Result<(), Unread>> + 'a>>;

/// Where records are read from.
pub trait Source {
    /// All records of a range within a slot.
    fn read(&self, range: KeyRange) -> LocalFuture<Result<Vec<(Key, Record)>, Unread>>;
    /// All records of all servers. Errs if one of them is damaged: what stands beside damage is not all there
    /// is.
    fn sweep<'a>(&'a self, each: &'a mut Each<'_>) -> Swept<'a>;
}

/// Records, and what is known of the filesystem.
pub struct Records<S> {
    pub source: S,
    pub map: Rc<ClusterMap>,
}

impl<S: Source> Records<S> {
    pub async fn get(&self, key: &Key) -> Result<Option<Record>, Unread> {
        let start = key.encode();
        let mut end = start.clone();
        end.push(0);
        let found = self.source.read(KeyRange { start, end }).await?;
        Ok(found.into_iter().next().map(|(_, record)| record))
    }

    pub async fn head(&self, dir: DirId) -> Result<Option<Head>, Unread> {
        Ok(match self.get(&Key::Head(dir.into())).await? {
            Some(Record::Head(head)) => Some(head),
            _ => None,
        })
    }

    pub async fn touch(&self, dir: DirId) -> Result<Option<Touch>, Unread> {
        Ok(match self.get(&Key::Touch(dir.into())).await? {
            Some(Record::Touch(touch)) => Some(touch),
            _ => None,
        })
    }

    pub async fn list(&self, key: &Key) -> Result<Option<RenameList>, Unread> {
        Ok(match self.get(key).await? {
            Some(Record::RenameList(list)) => Some(list),
            _ => None,
        })
    }

    /// Entries, of a directory or a bucket.
    pub async fn entries(&self, range: KeyRange) -> Result<Vec<(Key, Entry)>, Unread> {
        let entry = |(key, record)| match record {
            Record::Entry(entry) => Some((key, entry)),
            _ => None,
        };
        let found = self.source.read(range).await?;
        Ok(found.into_iter().filter_map(entry).collect())
    }

    pub async fn bucket(&self, dir: DirId, hash: NameHash) -> Result<Vec<(Key, Entry)>, Unread> {
        self.entries(Scan::Bucket(dir.into(), hash).range()).await
    }

    /// What is attached to an entry.
    pub async fn attached(&self, entry: &Key) -> Result<Vec<(Key, AttachmentKind, Record)>, Unread> {
        let Key::Entry { part, hash, name } = entry else {
            return Ok(Vec::new());
        };
        let found = self
            .source
            .read(Scan::Attachments(*part, *hash, name.clone()).range())
            .await?;
        let attachment = |(key, record)| match &key {
            Key::Attachment { kind, .. } => Some((key.clone(), *kind, record)),
            _ => None,
        };
        Ok(found.into_iter().filter_map(attachment).collect())
    }

    /// A directory's generation, as its children's heads have it.
    pub async fn generation(&self, dir: DirId) -> Result<Option<Generation>, Unread> {
        if dir == DirId::ABOVE_ROOT {
            return Ok(Some(Generation::ABOVE_ROOT));
        }
        Ok(self.head(dir).await?.map(|h| h.generation))
    }

    /// An ordinal that no entry of a bucket has.
    pub async fn ordinal(&self, dir: DirId, hash: NameHash) -> Result<Option<u8>, Unread> {
        let taken: BTreeSet<u8> = self
            .bucket(dir, hash)
            .await?
            .iter()
            .map(|(_, e)| e.ordinal)
            .collect();
        Ok((0..=u8::MAX).find(|n| !taken.contains(n) && Position::new(hash, *n).is_entry()))
    }
}

/// A repair in the making.
pub struct Edit {
    pub request: RepairRequest,
    now: Timestamp,
}

impl Edit {
    pub fn new(now: Timestamp) -> Edit {
        Edit {
            request: RepairRequest {
                expected: Vec::new(),
                changes: Vec::new(),
                touches: Vec::new(),
                invalidates: Vec::new(),
            },
            now,
        }
    }

    /// Only if this is so.
    pub fn expect(&mut self, key: Key, record: Option<Record>) {
        if !self.request.expected.iter().any(|(k, _)| *k == key) {
            self.request.expected.push((key, record));
        }
    }

    /// Something else is to stand there, or nothing.
    pub fn set(&mut self, key: Key, was: Option<Record>, now: Option<Record>) {
        self.expect(key.clone(), was);
        self.request.changes.retain(|(k, _)| *k != key);
        self.request.changes.push((key, now));
    }

    /// A directory has so many more entries.
    pub fn count(&mut self, dir: DirId, entries: i32, subdirs: i32) {
        let time = self.now;
        let delta = TouchDelta {
            entries,
            subdirs,
            time,
        };
        self.request.touches.push((dir, delta));
    }

    /// What clients know of the way to a directory is not true any more.
    pub fn moved(&mut self, id: DirId, generation: Generation) {
        self.request.invalidates.push(Invalidation {
            id,
            generation,
            change: FactChange::Moved,
        });
    }

    /// An entry goes, with what is attached to it. Its directory counts it no more, if it counts.
    pub async fn take_away<S: Source>(
        &mut self,
        records: &Records<S>,
        key: &Key,
        entry: &Entry,
    ) -> Result<Vec<(AttachmentKind, Record)>, Unread> {
        let mut attached = Vec::new();
        for (at, kind, record) in records.attached(key).await? {
            self.set(at, Some(record.clone()), None);
            attached.push((kind, record));
        }
        self.set(key.clone(), Some(Record::Entry(entry.clone())), None);
        if let Key::Entry { part, .. } = key
            && let Some(touch) = records.touch(part.dir).await?
        {
            let subdirs = u64::from(matches!(entry.target, Target::Dir(_)));
            // A count that is too low already is put right by itself.
            if touch.stat.entries >= 1 && touch.stat.subdirs >= subdirs {
                self.count(part.dir, -1, -(subdirs as i32));
            }
        }
        Ok(attached)
    }

    /// An entry comes, under a name that is free. `None`: it cannot be had.
    pub async fn put<S: Source>(
        &mut self,
        records: &Records<S>,
        (dir, hash, name): (DirId, NameHash, Name),
        target: Target,
        attached: Vec<(AttachmentKind, Record)>,
    ) -> Result<Option<()>, Unread> {
        let key = Key::Entry {
            part: dir.into(),
            hash,
            name: name.clone(),
        };
        if records.get(&key).await?.is_some() {
            return Ok(None);
        }
        let Some(ordinal) = records.ordinal(dir, hash).await? else {
            return Ok(None);
        };
        let subdirs = i32::from(matches!(target, Target::Dir(_)));
        self.set(key, None, Some(Record::Entry(Entry { ordinal, target })));
        for (kind, record) in attached {
            let name = name.clone();
            let at = Key::Attachment {
                part: dir.into(),
                hash,
                name,
                kind,
            };
            self.set(at, None, Some(record));
        }
        if records.touch(dir).await?.is_some() {
            self.count(dir, 1, subdirs);
        }
        Ok(Some(()))
    }

    /// A directory is in another place: its head says so, and the rename list of its birth has it.
    pub async fn place<S: Source>(
        &mut self,
        records: &Records<S>,
        id: DirId,
        was: &Head,
        (parent, parent_generation, name): (DirId, Generation, Name),
    ) -> Result<(), Unread> {
        let at_birth = (parent, &name) == (was.birth.parent, &was.birth.name);
        let head = Head {
            parent,
            parent_generation,
            name,
            listed: match records.map.ids {
                Ids::Predicted => was.listed || !at_birth,
                // No name is in such an ID, so none is kept.
                Ids::Placed => false,
            },
            ..was.clone()
        };
        if head.listed {
            self.enlist(records, &head).await?;
        }
        self.set(
            Key::Head(id.into()),
            Some(Record::Head(was.clone())),
            Some(Record::Head(head)),
        );
        self.moved(id, was.generation);
        Ok(())
    }

    /// Puts a directory on the rename list of its birth.
    pub async fn enlist<S: Source>(&mut self, records: &Records<S>, head: &Head) -> Result<(), Unread> {
        let key = Key::RenameList {
            parent: head.birth.parent,
            name: head.birth.name.clone(),
        };
        let was = records.list(&key).await?;
        let mut list = was.clone().unwrap_or_default();
        if list.insert(head.birth.version) {
            self.set(key, was.map(Record::RenameList), Some(Record::RenameList(list)));
        }
        Ok(())
    }
}
