//! Directories that are split: their heads and lists, and what stands in no part. And what every repair rests
//! on where directories are split: that its parts still have the hashes they had.

use super::edit::{Edit, Source};
use super::plan::{Plan, Planned, Planner, Repair, Stop, WELL, one, repair};
use crate::fsck::collect::Unread;
use crate::fsck::finding::{Finding, Kind};
use crate::fsck::numbers::identities;
use crate::fsck::parts::{bucket_of, part_at, tile, truth};
use crate::text::quoted;
use pando_format::{
    Entry, Head, Key, KeyRange, NameHash, PartNote, PartRecord, PartsRecord, Record, Tag, TouchDelta,
};
use pando_types::{DirId, Generation, Ino, Part, ServerId, Tile, Tiling};
use std::collections::{BTreeMap, BTreeSet};

/// Records that are removed in one repair.
const SOME: usize = 300;
/// Names that go to `/lost+found` for one finding.
const LOST: usize = 64;

/// What a part has left behind.
struct Left {
    /// Entries, with where they would be in the part that has their hash, and what stands there.
    entries: Vec<(Key, Entry, Key, Option<Record>)>,
    /// Attachments of no entry that is left behind.
    attachments: Vec<(Key, Record)>,
}

impl<S: Source> Planner<S> {
    /// Repairs as they are asked for: with counts, and resting on the heads of the parts that they change.
    pub(super) async fn settled(&self, kind: Kind, repairs: Vec<Repair>) -> Result<Plan, Unread> {
        let mut touches = BTreeMap::new();
        let mut all = Vec::new();
        for mut repair in repairs {
            for (part, (entries, subdirs)) in std::mem::take(&mut repair.counts) {
                let time = self.now;
                let delta = TouchDelta {
                    entries,
                    subdirs,
                    time,
                };
                match part.start() {
                    _ if (entries, subdirs) == (0, 0) => {}
                    0 => repair.request.touches.push((part.dir, delta)),
                    _ => self.count_in(part, delta, &mut touches, &mut repair).await?,
                }
            }
            if !self.rests_on_heads(kind, &mut repair).await? {
                return Ok(Plan::Later("it is split meanwhile"));
            }
            all.push(repair);
        }
        Ok(Plan::Repair(all))
    }

    /// Counts of another part than 0, after what repairs before this one change.
    async fn count_in(
        &self,
        part: Part,
        delta: TouchDelta,
        touches: &mut BTreeMap<Part, pando_format::Touch>,
        repair: &mut Repair,
    ) -> Result<(), Unread> {
        let before = match touches.get(&part) {
            Some(touch) => Some(*touch),
            None => self.records.touch(part).await?,
        };
        let Some(before) = before else { return Ok(()) };
        let (entries, subdirs) = (i64::from(delta.entries), i64::from(delta.subdirs));
        let fits = before.stat.entries.checked_add_signed(entries).is_some()
            && before.stat.subdirs.checked_add_signed(subdirs).is_some();
        if !fits {
            return Ok(());
        }
        let mut now = before;
        now.apply(&delta);
        touches.insert(part, now);
        let key = Key::Touch(part);
        repair
            .request
            .expected
            .push((key.clone(), Some(Record::Touch(before))));
        repair.request.changes.push((key, Some(Record::Touch(now))));
        Ok(())
    }

    /// Lets a repair rest on the heads of its parts. False: one of them has not what it is about.
    async fn rests_on_heads(&self, kind: Kind, repair: &mut Repair) -> Result<bool, Unread> {
        let mut parts: BTreeMap<Part, BTreeSet<NameHash>> = BTreeMap::new();
        for (key, _) in &repair.request.expected {
            match (bucket_of(key), key) {
                (Some((part, hash)), _) => drop(parts.entry(part).or_default().insert(hash)),
                (None, Key::Touch(part)) => drop(parts.entry(*part).or_default()),
                _ => {}
            }
        }
        for (part, hashes) in parts {
            if !self.records.may_split(part.dir) {
                continue;
            }
            let key = Key::Head(part);
            let head = self.records.get(&key).await?;
            let tile = head.as_ref().and_then(|head| tile(part, head));
            let has = |hash: &NameHash| match tile {
                Some(tile) => tile.has(hash.upper()),
                None => part.start() == 0,
            };
            if kind != Kind::LeftBehind && !hashes.iter().all(has) {
                return Ok(false);
            }
            if !repair.request.expected.iter().any(|(k, _)| *k == key) {
                repair.request.expected.push((key, head));
            }
        }
        Ok(true)
    }

    /// What is to be done about a part by itself.
    pub(super) async fn part(&self, part: Part, kind: Kind) -> Planned {
        match kind {
            Kind::Counts | Kind::NoTouch => self.counts(part).await,
            Kind::LeftBehind => self.left_behind(part).await,
            Kind::PartNote => self.part_note(part).await,
            Kind::Moving => Ok(Plan::Later("it is changing")),
            _ => Ok(Plan::Not("what is right is not known")),
        }
    }

    /// The parts of a directory that is not there, with those that a finding names.
    pub(super) async fn tiles(&self, id: DirId, finding: &Finding) -> Result<Vec<Tile>, Unread> {
        let mut tiles = self.records.parts(id).await?;
        for key in &finding.keys {
            if let Key::Head(part) = key
                && !tiles.iter().any(|tile| tile.start == part.start())
                && let Some(tile) = self.records.tile(*part).await?
            {
                tiles.push(tile);
            }
        }
        Ok(tiles)
    }

    /// What is left of an empty directory that is not there.
    pub(super) async fn drop_content(&self, id: DirId, tiles: &[Tile]) -> Planned {
        let mut edit = self.edit();
        edit.expect(Key::Head(id.into()), None);
        for tile in tiles {
            let part = part_at(id, *tile);
            let mut keys = vec![Key::Touch(part)];
            if part.start() != 0 {
                keys.push(Key::Head(part));
            }
            for key in keys {
                if let Some(was) = self.records.get(&key).await? {
                    edit.set(key, Some(was), None);
                }
            }
        }
        if self.records.may_split(id)
            && let Some(was) = self.records.get(&Key::Parts(id)).await?
        {
            edit.set(Key::Parts(id), Some(was), None);
        }
        match edit.request.changes.is_empty() {
            true => Ok(WELL),
            false => one(edit, "removed the counts of a directory that is not there"),
        }
    }

    /// Heads of a directory's parts, by their starts: those that there are among all that it may have.
    async fn heads(&self, id: DirId, finding: &Finding) -> Result<BTreeMap<u16, Record>, Unread> {
        let mut starts: BTreeSet<u16> = self.records.parts(id).await?.iter().map(|t| t.start).collect();
        starts.extend(self.records.part_list(id).await?.into_iter().flatten());
        starts.extend(finding.keys.iter().filter_map(|key| match key {
            Key::Head(part) => Some(part.start()),
            _ => None,
        }));
        let mut heads = BTreeMap::new();
        for start in starts {
            let Some(part) = Part::new(id, start) else {
                continue;
            };
            if let Some(head) = self.records.get(&Key::Head(part)).await? {
                heads.insert(start, head);
            }
        }
        Ok(heads)
    }

    /// The list of a directory's parts, made anew from their heads.
    pub(super) async fn part_list(&self, id: DirId, finding: &Finding) -> Planned {
        let heads = self.heads(id, finding).await?;
        let tiles = tiles_of(id, &heads);
        let starts: Vec<u16> = heads.keys().copied().filter(|start| *start != 0).collect();
        let tiling = Tiling::of(starts.iter().copied());
        if !tiling.is_some_and(|tiling| tiling.tiles().eq(tiles)) {
            return Ok(Plan::Later("its parts come first"));
        }
        let was = self.records.get(&Key::Parts(id)).await?;
        let count = starts.len();
        let now = (count > 0).then_some(Record::Parts(PartsRecord { starts }));
        if was == now {
            return Ok(WELL);
        }
        let mut edit = self.edit();
        for (start, head) in heads {
            if let Some(part) = Part::new(id, start) {
                edit.expect(Key::Head(part), Some(head));
            }
        }
        edit.set(Key::Parts(id), was, now);
        one(
            edit,
            format!("its list has {count} parts, as there are beside part 0"),
        )
    }

    /// Heads of parts that are missing, of another directory, or not as deep as they must be.
    pub(super) async fn part_heads(&self, id: DirId, finding: &Finding) -> Planned {
        let Some(head) = self.records.head(id).await? else {
            return Ok(Plan::Later("its content comes first"));
        };
        let heads = self.heads(id, finding).await?;
        let list = self.records.part_list(id).await?;
        let tiles: Vec<Tile> = tiles_of(id, &heads).collect();
        let of_heads = || Tiling::of(heads.keys().copied().filter(|start| *start != 0));
        let mut right = truth(&tiles, list.as_deref());
        // A part that no list has, and no counts, has not been: then a depth is wrong.
        let missing: Vec<u16> = right.iter().flat_map(Tiling::starts).collect();
        for start in missing.into_iter().filter(|start| !heads.contains_key(start)) {
            let listed = list.as_ref().is_some_and(|list| list.contains(&start));
            let Some(part) = Part::new(id, start) else {
                continue;
            };
            if !listed && self.records.touch(part).await?.is_none() {
                right = of_heads();
                break;
            }
        }
        let Some(right) = right else {
            return Ok(Plan::Not(
                "which parts it has is not known: what is in those that there are can be copied, and it removed",
            ));
        };
        let mut edit = self.edit();
        for tile in right.tiles() {
            let part = part_at(id, tile);
            let was = heads.get(&tile.start).cloned();
            let now = match tile.start {
                0 => Record::Head(Head {
                    split: head.with_depth(tile.depth),
                    ..head.clone()
                }),
                _ => Record::Part(PartRecord {
                    generation: head.generation,
                    salt: head.salt,
                    depth: tile.depth,
                }),
            };
            match was.as_ref() == Some(&now) {
                true => edit.expect(Key::Head(part), was),
                false => edit.set(Key::Head(part), was, Some(now)),
            }
        }
        match edit.request.changes.len() {
            0 => Ok(WELL),
            n => one(edit, format!("made {n} heads of its parts right")),
        }
    }

    async fn part_note(&self, part: Part) -> Planned {
        let head = self.records.get(&Key::Head(part)).await?;
        let note = self.records.get(&Key::PartNote(part)).await?;
        let is_wrong = matches!(
            (&head, &note),
            (Some(_), Some(Record::PartNote(PartNote::Coming(_))))
                | (None, Some(Record::PartNote(PartNote::Debris)))
        );
        if !is_wrong {
            return Ok(WELL);
        }
        let mut edit = self.edit();
        edit.expect(Key::Head(part), head);
        edit.set(Key::PartNote(part), note, None);
        one(edit, "removed a note that cannot be true")
    }

    /// What a part has left behind.
    async fn left(&self, part: Part, outside: impl Fn(NameHash) -> bool) -> Result<Left, Unread> {
        let read = async |tag| {
            let range = KeyRange::tagged(part.slot(), tag, &part.dir.0.to_be_bytes());
            self.records.source.read(range).await
        };
        let is_out = |key: &Key| bucket_of(key).is_some_and(|(_, hash)| outside(hash));
        let mut entries = Vec::new();
        let mut names = BTreeSet::new();
        for (key, record) in read(Tag::Entry).await? {
            let (Key::Entry { hash, name, .. }, Record::Entry(entry), true) = (&key, record, is_out(&key))
            else {
                continue;
            };
            let right = self.records.key(part.dir, *hash, name.clone()).await?;
            let there = match right == key {
                true => None,
                false => self.records.get(&right).await?,
            };
            names.insert((*hash, name.clone()));
            entries.push((key, entry, right, there));
        }
        let attachments = read(Tag::Attachment).await?.into_iter();
        let attachments = attachments.filter(|(key, _)| match key {
            Key::Attachment { hash, name, .. } => is_out(key) && !names.contains(&(*hash, name.clone())),
            _ => false,
        });
        Ok(Left {
            entries,
            attachments: attachments.collect(),
        })
    }

    /// Records in no part: those of which there is another are removed; the others go to `/lost+found`.
    async fn left_behind(&self, part: Part) -> Planned {
        let head = self.records.get(&Key::Head(part)).await?;
        let note = self.records.get(&Key::PartNote(part)).await?;
        let tile = head.as_ref().and_then(|head| tile(part, head));
        if tile.is_none() && part.start() == 0 {
            return Ok(Plan::Later("its directory comes first"));
        }
        let noted = matches!(
            (&head, &note),
            (Some(_), Some(Record::PartNote(PartNote::Debris)))
                | (None, Some(Record::PartNote(PartNote::Coming(_))))
        );
        if noted {
            return Ok(WELL);
        }
        let listed = self.records.part_list(part.dir).await?;
        if tile.is_none() && listed.is_some_and(|list| list.contains(&part.start())) {
            return Ok(Plan::Later("its head comes first"));
        }
        let left = self
            .left(part, |hash| tile.is_none_or(|tile| !tile.has(hash.upper())))
            .await?;
        let begin = || {
            let mut edit = self.edit();
            edit.expect(Key::Head(part), head.clone());
            edit.expect(Key::PartNote(part), note.clone());
            edit
        };
        let elsewhere = self.elsewhere(&left).await?;
        let (mut all, mut lost, mut gone) = (Vec::new(), Vec::new(), 0);
        let mut edit = begin();
        for (key, entry, right, there) in left.entries {
            let identity = entry.target.identity();
            let twin = match &there {
                Some(Record::Entry(there)) => there.target.identity() == identity,
                _ => false,
            };
            if !twin && !elsewhere.contains(&identity) {
                lost.push((key, entry));
                continue;
            }
            if twin {
                edit.expect(right, there);
            }
            edit.take_away(&self.records, &key, &entry).await?;
            gone += 1;
            if edit.request.expected.len() >= SOME {
                edit.counts.clear();
                all.push(removed(std::mem::replace(&mut edit, begin()), gone));
                gone = 0;
            }
        }
        if gone > 0 {
            edit.counts.clear();
            all.push(removed(edit, gone));
        }
        for (key, entry) in lost.into_iter().take(LOST) {
            all.push(self.lose_left(begin(), &key, &entry).await?);
        }
        if !all.is_empty() {
            return Ok(Plan::Repair(all));
        }
        if let Some((Key::Attachment { hash, .. }, _)) = left.attachments.first() {
            return super::stray::plan(self, part, *hash, Vec::new()).await;
        }
        let touch = self.records.touch(part).await?;
        if let (None, Some(touch)) = (tile, touch) {
            let mut edit = begin();
            edit.set(Key::Touch(part), Some(pando_format::Record::Touch(touch)), None);
            return one(edit, "removed the counts of a part that is not there");
        }
        Ok(WELL)
    }

    /// An entry that was left behind, and of which there is no other.
    async fn lose_left(&self, mut edit: Edit, key: &Key, entry: &Entry) -> Result<Repair, Stop> {
        let Key::Entry { name: was, .. } = key else {
            return Err(WELL.into());
        };
        let (ino, _) = entry.target.identity();
        let attached = edit.take_away(&self.records, key, entry).await?;
        edit.counts.clear();
        let name = self.lose(&mut edit, ino, entry.target.clone(), attached).await?.2;
        Ok(repair(
            edit,
            format!("moved {} to /lost+found/{name}", quoted(was)),
        ))
    }

    /// Of what was left behind: what has a record under another name, or was removed.
    async fn elsewhere(&self, left: &Left) -> Result<BTreeSet<(Ino, Generation)>, Unread> {
        let own: BTreeSet<&Key> = left.entries.iter().map(|(key, ..)| key).collect();
        let asked: BTreeSet<(Ino, Generation)> = left
            .entries
            .iter()
            .map(|(_, entry, ..)| entry.target.identity())
            .collect();
        let mut found = BTreeSet::new();
        if asked.is_empty() {
            return Ok(found);
        }
        let each = &mut |_: ServerId, key: Key, record: Record| {
            if own.contains(&key) {
                return;
            }
            identities(&key, Some(&record), &mut |ino, generation| {
                if asked.contains(&(ino, generation)) {
                    found.insert((ino, generation));
                }
            });
        };
        self.records.source.sweep(each).await?;
        Ok(found)
    }
}

fn tiles_of(id: DirId, heads: &BTreeMap<u16, Record>) -> impl Iterator<Item = Tile> + '_ {
    heads
        .iter()
        .filter_map(move |(start, head)| tile(Part::new(id, *start)?, head))
}

fn removed(edit: Edit, entries: usize) -> Repair {
    repair(edit, format!("removed {entries} entries that stand elsewhere"))
}
