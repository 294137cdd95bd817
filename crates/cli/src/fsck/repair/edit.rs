//! A repair in the making: what was found, what is to stand there, and where records are read from.

use crate::fsck::collect::Unread;
use crate::fsck::parts::{self, part_at};
use pando_cluster::ClusterMap;
use pando_env::LocalFuture;
use pando_format::{
    AttachmentKind, Entry, FactChange, Head, Invalidation, Key, KeyRange, Line, NameHash, Position, Record,
    RenameList, Scan, Target, Touch,
};
use pando_types::{DirId, Generation, Ids, Name, Part, SLOTS, ServerId, Tile};
use pando_wire::RepairRequest;
use std::collections::{BTreeMap, BTreeSet};
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

    pub async fn touch(&self, part: Part) -> Result<Option<Touch>, Unread> {
        Ok(match self.get(&Key::Touch(part)).await? {
            Some(Record::Touch(touch)) => Some(touch),
            _ => None,
        })
    }

    /// Whether a directory may be split.
    pub fn may_split(&self, dir: DirId) -> bool {
        self.map.placement.splits() && !dir.is_homes() && dir != DirId::ABOVE_ROOT
    }

    /// The hashes that a part has, if it is there.
    pub async fn tile(&self, part: Part) -> Result<Option<Tile>, Unread> {
        let head = self.get(&Key::Head(part)).await?;
        Ok(head.and_then(|head| parts::tile(part, &head)))
    }

    async fn is_there(&self, part: Part) -> Result<bool, Unread> {
        Ok(self.get(&Key::Head(part)).await?.is_some())
    }

    /// The part of a directory that has a hash.
    pub async fn part_with(&self, dir: DirId, hash: NameHash) -> Result<Part, Unread> {
        if !self.may_split(dir) {
            return Ok(self.map.placement.division().part(dir, hash.upper()));
        }
        let there = async |part| self.is_there(part).await;
        Ok(part_at(dir, parts::find(dir, hash.upper(), there).await?))
    }

    /// The parts of a directory, with the hashes that each has by the heads of all.
    pub async fn parts(&self, dir: DirId) -> Result<Vec<Tile>, Unread> {
        if !self.may_split(dir) {
            return Ok(vec![Tile::WHOLE]);
        }
        parts::all(dir, async |part| self.is_there(part).await).await
    }

    /// Where a name is, or would be.
    pub async fn key(&self, dir: DirId, hash: NameHash, name: Name) -> Result<Key, Unread> {
        let part = self.part_with(dir, hash).await?;
        Ok(Key::Entry { part, hash, name })
    }

    /// The starts of a directory's parts but 0, as its list has them.
    pub async fn part_list(&self, dir: DirId) -> Result<Option<Vec<u16>>, Unread> {
        Ok(match self.get(&Key::Parts(dir)).await? {
            Some(Record::Parts(parts)) => Some(parts.starts),
            _ => None,
        })
    }

    /// Whether a directory's entries are placed one by one, and its list says what there is.
    pub fn has_list(&self, dir: DirId) -> bool {
        self.map.placement.division().has_list(dir)
    }

    /// The lines of a directory's list.
    pub async fn lines(&self, dir: DirId) -> Result<BTreeMap<Key, Line>, Unread> {
        let all = Scan::LinesFrom(dir, NameHash(0)).range();
        let line = |(key, record)| match record {
            Record::Line(line) => Some((key, line)),
            _ => None,
        };
        let found = self.source.read(all).await?;
        Ok(found.into_iter().filter_map(line).collect())
    }

    /// The entries of a part that are the tree's, if it has these hashes; of a directory with a list all.
    pub async fn live(&self, part: Part, tile: Tile) -> Result<Vec<(Key, Entry)>, Unread> {
        if self.has_list(part.dir) {
            let mut all = Vec::new();
            for start in 0..SLOTS {
                let one = Part::new(part.dir, start).unwrap_or(part);
                let found = self.entries(Scan::Entries(one).range()).await?;
                let its = |key: &Key| parts::bucket_of(key).is_some_and(|(_, h)| h.upper() == start);
                all.extend(found.into_iter().filter(|(key, _)| its(key)));
            }
            return Ok(all);
        }
        let mut all = self.entries(Scan::Entries(part).range()).await?;
        if self.may_split(part.dir) {
            all.retain(|(key, _)| parts::bucket_of(key).is_some_and(|(_, hash)| tile.has(hash.upper())));
        }
        Ok(all)
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

    /// The entries of a bucket, if its part has it.
    pub async fn bucket(&self, part: Part, hash: NameHash) -> Result<Vec<(Key, Entry)>, Unread> {
        if self.may_split(part.dir) {
            let its = match self.tile(part).await? {
                Some(tile) => tile.has(hash.upper()),
                None => part.start() == 0,
            };
            if !its {
                return Ok(Vec::new());
            }
        }
        self.entries(Scan::Bucket(part, hash).range()).await
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
    pub async fn ordinal(&self, part: Part, hash: NameHash) -> Result<Option<u8>, Unread> {
        let taken: BTreeSet<u8> = self
            .bucket(part, hash)
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
    /// How many more entries and subdirectories parts of directories have.
    pub counts: BTreeMap<Part, (i32, i32)>,
}

impl Edit {
    pub fn new() -> Edit {
        Edit {
            request: RepairRequest {
                expected: Vec::new(),
                changes: Vec::new(),
                touches: Vec::new(),
                invalidates: Vec::new(),
            },
            counts: BTreeMap::new(),
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

    /// A part of a directory has so many more entries.
    pub fn count(&mut self, part: Part, entries: i32, subdirs: i32) {
        let count = self.counts.entry(part).or_default();
        *count = (count.0 + entries, count.1 + subdirs);
    }

    /// An entry went from one place of a directory to another: that is counted only if its part is another.
    pub fn stays(&mut self, dir: DirId) {
        let of_it = self.counts.keys().filter(|part| part.dir == dir).count();
        if of_it == 1 {
            self.counts.retain(|part, _| part.dir != dir);
        }
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
            && let Some(touch) = records.touch(*part).await?
        {
            let subdirs = u64::from(matches!(entry.target, Target::Dir(_)));
            // A count that is too low already is put right by itself.
            if touch.stat.entries >= 1 && touch.stat.subdirs >= subdirs {
                self.count(*part, -1, -(subdirs as i32));
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
        let part = records.part_with(dir, hash).await?;
        let key = Key::Entry {
            part,
            hash,
            name: name.clone(),
        };
        if records.get(&key).await?.is_some() {
            return Ok(None);
        }
        let Some(ordinal) = records.ordinal(part, hash).await? else {
            return Ok(None);
        };
        let subdirs = i32::from(matches!(target, Target::Dir(_)));
        self.set(key, None, Some(Record::Entry(Entry { ordinal, target })));
        for (kind, record) in attached {
            let name = name.clone();
            let at = Key::Attachment {
                part,
                hash,
                name,
                kind,
            };
            self.set(at, None, Some(record));
        }
        if records.touch(part).await?.is_some() {
            self.count(part, 1, subdirs);
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
