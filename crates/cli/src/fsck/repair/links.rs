//! Files with several names: what they count, names of nothing, and the counters that number them. All of it
//! rests on records anywhere, which are read from everywhere.

use super::edit::{Records, Source};
use super::plan::{Plan, Planned, Planner, Stop, WELL, one, repair};
use crate::fsck::collect::Unread;
use crate::fsck::finding::Finding;
use crate::fsck::numbers::{epoch_of, identities};
use crate::fsck::parts::{bucket_of, tile};
use crate::text::quoted;
use pando_format::{
    AttachmentKind, CounterRecord, Entry, InodeRecord, Key, Layout, LinkRecord, Marks, Record, Target,
};
use pando_types::{DirId, FileKind, Generation, Ino, Name, Part, Perm, ServerId, Slot, Tile};
use std::collections::{BTreeMap, BTreeSet};

/// Names that one repair can hold to.
const MOST_NAMES: usize = 1000;

/// A file at home.
type File = (Slot, Ino, Generation);

/// What is found of a file in all records.
#[derive(Default)]
struct Found {
    names: Vec<(Key, Entry)>,
    /// A transaction that is not decided here changes it, or a name of it.
    in_doubt: bool,
    /// It was removed: its data wait to be deleted.
    removed: bool,
}

/// Where a file is at home.
pub fn home_of<S: Source>(records: &Records<S>, (slot, ino, generation): File) -> Key {
    let name = Name::home(ino, generation);
    let hash = records.map.widths().name(0, &name);
    Key::Entry {
        part: DirId::homes(slot).into(),
        hash,
        name,
    }
}

async fn look<S: Source>(records: &Records<S>, file: File) -> Result<Found, Unread> {
    let home = home_of(records, file);
    let (mut found, mut prepared) = (Found::default(), BTreeSet::new());
    // Of directories that are split.
    let mut parts: BTreeMap<Part, Tile> = BTreeMap::new();
    let each = &mut |server: ServerId, key: Key, record: Record| match &record {
        Record::Entry(entry) => {
            if let Target::Link(l) = &entry.target
                && (l.slot, l.ino, l.generation) == file
                && records.map.owner(key.slot()) == server
            {
                found.names.push((key, entry.clone()));
            }
        }
        Record::Prepared(part) => {
            prepared.extend(part.mutations.iter().map(|m| m.key()));
            identities(&key, Some(&record), &mut |ino, generation| {
                found.in_doubt |= (ino, generation) == (file.1, file.2);
            });
        }
        Record::Head(_) | Record::Part(_) => {
            if let Key::Head(part) = key
                && let Some(tile) = tile(part, &record)
                && tile != Tile::WHOLE
            {
                parts.insert(part, tile);
            }
        }
        Record::Garbage(_) => {
            found.removed |=
                matches!(key, Key::Garbage(_, ino, generation) if (ino, generation) == (file.1, file.2));
        }
        _ => {}
    };
    records.source.sweep(each).await?;
    // What a part left behind, or what is on its way to one, is no name.
    found.names.retain(|(key, _)| {
        bucket_of(key).is_some_and(|(part, hash)| match parts.get(&part) {
            Some(tile) => tile.has(hash.upper()),
            None => part.start() == 0,
        })
    });
    found.in_doubt |= prepared.contains(&home) || found.names.iter().any(|(key, _)| prepared.contains(key));
    found.names.sort_by_cached_key(|(key, _)| key.encode());
    Ok(found)
}

/// All names of a file. A name may come, go, or be renamed past the reading, and a transaction may have taken
/// effect at its home and not at its names: so it is looked twice, and only what is the same both times, with
/// nothing in doubt, is all there is.
async fn names<S: Source>(records: &Records<S>, file: File) -> Result<Found, Stop> {
    let first = look(records, file).await?;
    if first.in_doubt {
        return Err(Plan::Later("a transaction that changes it is in doubt").into());
    }
    let second = look(records, file).await?;
    if second.in_doubt || first.names != second.names {
        return Err(Plan::Later("it is changing").into());
    }
    if second.names.len() > MOST_NAMES {
        return Err(Plan::Not("it has more names than one repair can hold to").into());
    }
    Ok(second)
}

impl<S: Source> Planner<S> {
    pub(super) async fn links(&self, ino: Ino, finding: &Finding) -> Planned {
        let mut home = None;
        let mut some = Vec::new();
        for place in finding.places.iter().collect::<BTreeSet<_>>() {
            for (key, entry) in self.records.bucket(place.part, place.hash).await? {
                match &entry.target {
                    Target::Inode(inode) if place.part.dir.is_homes() && inode.ino == ino => {
                        home = Some((key, entry.clone(), inode.clone()));
                    }
                    Target::Link(link) if link.ino == ino => some.push(*link),
                    _ => {}
                }
            }
        }
        let Some((key, entry, inode)) = home else {
            for link in some {
                let home = home_of(&self.records, (link.slot, link.ino, link.generation));
                if self.records.get(&home).await?.is_none() {
                    return self.homeless(link, home).await;
                }
            }
            return Ok(WELL);
        };
        let Key::Entry { part, .. } = &key else {
            return Ok(WELL);
        };
        let file = (part.slot(), inode.ino, inode.generation);
        let names = names(&self.records, file).await?.names;
        if self.records.get(&key).await? != Some(Record::Entry(entry.clone())) {
            return Ok(Plan::Later("it is changing"));
        }
        let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let mut edit = self.edit();
        let mut does = format!("it counts {count} names");
        for (at, link) in &names {
            edit.expect(at.clone(), Some(Record::Entry(link.clone())));
            if let Target::Link(l) = &link.target
                && l.kind != inode.kind
            {
                let kind = inode.kind;
                let right = Entry {
                    target: Target::Link(LinkRecord { kind, ..*l }),
                    ..link.clone()
                };
                let (was, now) = (Record::Entry(link.clone()), Record::Entry(right));
                edit.set(at.clone(), Some(was), Some(now));
            }
        }
        if count == 0 {
            let link = LinkRecord {
                slot: file.0,
                ino: file.1,
                generation: file.2,
                kind: inode.kind,
            };
            let (_, _, name) = self.lose(&mut edit, ino, Target::Link(link), Vec::new()).await?;
            does = format!("it has a name again: /lost+found/{name}");
        }
        let nlink = count.max(1);
        if nlink == inode.nlink && edit.request.changes.is_empty() {
            return Ok(WELL);
        }
        let mut right = inode.clone();
        right.nlink = nlink;
        let now = Entry {
            target: Target::Inode(right),
            ..entry.clone()
        };
        edit.set(key, Some(Record::Entry(entry)), Some(Record::Entry(now)));
        one(edit, does)
    }

    /// Names of a file that is not at home: it is made again from what is known of it, if that is anything.
    async fn homeless(&self, link: LinkRecord, home: Key) -> Planned {
        let found = names(&self.records, (link.slot, link.ino, link.generation)).await?;
        let attached = self.records.attached(&home).await?;
        let length = |kind| {
            let of = attached.iter().find(|(_, k, _)| *k == kind);
            of.and_then(|(_, _, record)| match record {
                Record::Attachment(b) => Some(b.0.len() as u64),
                _ => None,
            })
        };
        let (data, target) = (length(AttachmentKind::Data), length(AttachmentKind::Target));
        let left = match link.kind {
            FileKind::Regular => Some(data.map_or((Layout::None, 0), |len| (Layout::Inline, len))),
            FileKind::Symlink => target.map(|len| (Layout::LongTarget, len)),
            FileKind::Fifo | FileKind::Socket => Some((Layout::None, 0)),
            // Where it led, or which device it was, is not known: nothing is left of it.
            _ => None,
        };
        let (Some((layout, size)), false) = (left, found.removed) else {
            return self.names_of_nothing(found.names, &home).await;
        };
        let kind = |entry: &Entry| entry.target.kind();
        if found.names.iter().any(|(_, entry)| kind(entry) != link.kind) {
            return Ok(Plan::Not(
                "its names say different kinds: what it was is not known",
            ));
        }
        let Key::Entry { part, hash, name } = home else {
            return Ok(WELL);
        };
        let mut edit = self.edit();
        for (at, entry) in &found.names {
            edit.expect(at.clone(), Some(Record::Entry(entry.clone())));
        }
        let mut marks = Marks::NONE;
        for (at, kind, record) in &attached {
            edit.expect(at.clone(), Some(record.clone()));
            if *kind == AttachmentKind::Xattrs {
                marks = marks.with_xattrs(true);
            }
        }
        let does = match &layout {
            Layout::None if link.kind == FileKind::Regular => {
                "it is at home again, root's, mode 0600, and empty: what it had in blocks is not known"
            }
            _ => "it is at home again, root's, mode 0600",
        };
        let inode = InodeRecord {
            ino: link.ino,
            generation: link.generation,
            kind: link.kind,
            perm: Perm::new(0o600),
            uid: 0,
            gid: 0,
            nlink: u32::try_from(found.names.len()).unwrap_or(u32::MAX),
            size,
            rdev: 0,
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            layout,
            marks,
            version: 1,
            acl: None,
        };
        let (place, target) = ((part.dir, hash, name), Target::Inode(inode));
        let put = edit.put(&self.records, place, target, Vec::new()).await?;
        match put {
            Some(()) if !found.names.is_empty() => one(edit, does),
            _ => Ok(WELL),
        }
    }

    async fn names_of_nothing(&self, names: Vec<(Key, Entry)>, home: &Key) -> Planned {
        let mut all = Vec::new();
        for (key, entry) in names {
            let mut edit = self.edit();
            edit.expect(home.clone(), None);
            edit.take_away(&self.records, &key, &entry).await?;
            if let Key::Entry { part, name, .. } = &key {
                all.push(repair(
                    edit,
                    format!("removed the name {} in {part}, of nothing", quoted(name)),
                ));
            }
        }
        match all.is_empty() {
            true => Ok(WELL),
            false => Ok(Plan::Repair(all)),
        }
    }

    /// A counter that is behind has given more numbers than are known: of some, nothing is left that says so.
    /// So it goes on in an epoch of its own, as a restored one does (H155).
    pub(super) async fn counter(&self, slot: Slot, largest: u64) -> Planned {
        let key = Key::Counter(slot);
        let was = self.records.get(&key).await?;
        let before = match &was {
            Some(Record::Counter(c)) => *c,
            _ => CounterRecord {
                reserved: 2,
                epoch: 1,
            },
        };
        if before.reserved > largest {
            return Ok(WELL);
        }
        let mut highest = before.epoch;
        let each = &mut |_: ServerId, key: Key, record: Record| {
            identities(&key, Some(&record), &mut |_, generation| {
                highest = highest.max(epoch_of(generation, slot).unwrap_or(0));
            });
        };
        self.records.source.sweep(each).await?;
        let Some(epoch) = highest.checked_add(1) else {
            return Ok(Plan::Not(
                "it has used up its epochs: copy the filesystem to a new one",
            ));
        };
        let right = CounterRecord {
            reserved: largest + 1,
            epoch,
        };
        let mut edit = self.edit();
        edit.set(key, was, Some(Record::Counter(right)));
        let mut repair = repair(edit, format!("it goes on at {} in epoch {epoch}", largest + 1));
        repair.slot = Some(slot);
        Ok(Plan::Repair(vec![repair]))
    }
}
