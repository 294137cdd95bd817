//! What is to be done about each finding: a pure function of the records there are. Nothing is guessed: what
//! is not known goes to `/lost+found`, or is said.

use super::edit::{Edit, Records, Source};
use crate::fsck::collect::Unread;
use crate::fsck::finding::{Finding, Kind, Subject};
use crate::fsck::parts::part_at;
use crate::text::quoted;
use pando_format::{AccessRecord, AttachmentKind, Entry, Head, Key, Marks, Position, Record, Target, Touch};
use pando_types::{Birth, DirId, DirStat, FileKind, Ids, Ino, Name, Part, Perm, Slot, Tile, Timestamp};
use pando_wire::RepairRequest;
use std::collections::{BTreeMap, BTreeSet};

/// Entries of a lost directory that are taken care of in one go.
const SOME: usize = 64;
/// Versions of a birth that are tried.
const VERSIONS: u32 = 256;
/// Names tried in `/lost+found`.
pub const NAMES: u32 = 100;

/// What is to be done about a finding.
#[derive(Debug)]
pub enum Plan {
    /// These, each by itself.
    Repair(Vec<Repair>),
    /// Nothing now: what else was found comes first, or it is well by now.
    Later(&'static str),
    /// It is needed and not there.
    NeedsLostFound,
    /// An empty file of this kind is needed in it, under this name.
    NeedsFile(Name, FileKind),
    /// Nobody but people can say what is right.
    Not(&'static str),
}

/// One repair.
#[derive(Debug)]
pub struct Repair {
    /// What to ask for.
    pub request: RepairRequest,
    /// How many more entries and subdirectories parts of directories have then. When a plan is made, they are
    /// in what is asked for.
    pub counts: BTreeMap<Part, (i32, i32)>,
    /// What it does.
    pub does: String,
    /// Of whose slot, if it is for the owner and not for the coordinator.
    pub slot: Option<Slot>,
}

/// Makes plans.
pub struct Planner<S> {
    pub records: Records<S>,
    pub lost: Lost,
    pub now: Timestamp,
}

/// What `/lost+found` is.
#[derive(Clone, Copy)]
pub enum Lost {
    Missing,
    /// This directory of root's.
    At(DirId),
    /// Something that others get at, or no directory.
    Another,
}

/// Why a plan ends early.
pub enum Stop {
    Plan(Plan),
    Unread(Unread),
}

impl From<Unread> for Stop {
    fn from(e: Unread) -> Stop {
        Stop::Unread(e)
    }
}

impl From<Plan> for Stop {
    fn from(p: Plan) -> Stop {
        Stop::Plan(p)
    }
}

pub type Planned = Result<Plan, Stop>;

pub const WELL: Plan = Plan::Later("it is well by now");

pub fn repair(edit: Edit, does: impl Into<String>) -> Repair {
    Repair {
        request: edit.request,
        counts: edit.counts,
        does: does.into(),
        slot: None,
    }
}

pub fn one(edit: Edit, does: impl Into<String>) -> Planned {
    Ok(Plan::Repair(vec![repair(edit, does)]))
}

impl<S: Source> Planner<S> {
    /// What is to be done.
    pub async fn plan(&self, finding: &Finding) -> Result<Plan, Unread> {
        let planned = match (&finding.subject, finding.kind) {
            (Subject::Dir(id), kind) => self.dir(*id, kind, finding).await,
            (Subject::Part(part), kind) => self.part(*part, kind).await,
            (Subject::Bucket(place), kind) => self.bucket(place.part, place.hash, kind).await,
            (Subject::Ino(ino), Kind::Links) => self.links(*ino, finding).await,
            (Subject::Ino(_), _) => Ok(Plan::Not(
                "two files have one number; which of them others mean is not known: copy both, and remove them",
            )),
            (Subject::Counter(slot, largest), _) => self.counter(*slot, *largest).await,
            (Subject::Slot(..), Kind::Foreign) => Ok(Plan::Not(
                "whether its owner has newer ones is not known; if it has, they can be deleted with that server stopped",
            )),
            (Subject::Slot(..), Kind::Superblock) => {
                Ok(Plan::Not("it is another server's store: put the right one there"))
            }
            (Subject::Slot(..), _) => Ok(Plan::Not("what it was is not known: restore it from a backup")),
            (Subject::Range(..), _) => Ok(Plan::Not(
                "say `pando fsck --repair` where that server runs: its store is made anew of what is whole",
            )),
            (Subject::Record(..), Kind::Lost | Kind::Older) => Ok(Plan::Not(
                "it is in a damaged table: say `pando fsck --repair` where that server runs",
            )),
            (Subject::Record(..), _) => Ok(Plan::Not(
                "its servers end it by themselves; one of them is away, or has damaged records",
            )),
        };
        match planned {
            Ok(Plan::Repair(repairs)) | Err(Stop::Plan(Plan::Repair(repairs))) => {
                self.settled(finding.kind, repairs).await
            }
            Ok(plan) | Err(Stop::Plan(plan)) => Ok(plan),
            Err(Stop::Unread(e)) => Err(e),
        }
    }

    pub(super) fn edit(&self) -> Edit {
        Edit::new()
    }

    /// Where goes what nobody has a name for.
    pub(super) fn lost(&self) -> Result<DirId, Plan> {
        match self.lost {
            Lost::At(lost) => Ok(lost),
            Lost::Missing => Err(Plan::NeedsLostFound),
            Lost::Another => Err(Plan::Not(
                "/lost+found is not root's alone (a directory of mode 0700 without lists): move it away",
            )),
        }
    }

    async fn dir(&self, id: DirId, kind: Kind, finding: &Finding) -> Planned {
        match kind {
            Kind::Counts | Kind::NoTouch => self.counts(id.into()).await,
            Kind::PartList => self.part_list(id, finding).await,
            Kind::List => self.list(id).await,
            Kind::Part => self.part_heads(id, finding).await,
            Kind::NoName => self.nameless(id).await,
            Kind::NoContent => self.contentless(id, finding).await,
            Kind::NoHead => self.headless(id, finding).await,
            Kind::TwoNames => self.two_names(id, finding).await,
            Kind::Halves => self.halves(id, finding).await,
            Kind::Unlisted => self.unlisted(id).await,
            Kind::Listed => self.listed(finding).await,
            Kind::Loop => self.looped(id).await,
            Kind::NoParent => Ok(Plan::Later("what is left of its parent is moved first")),
            Kind::Moving => Ok(Plan::Later("it is changing")),
            _ => Ok(Plan::Not(
                "its ID is not known to be right: what is in it can be copied, and it removed",
            )),
        }
    }

    pub(super) async fn counts(&self, part: Part) -> Planned {
        let key = Key::Touch(part);
        let tile = match self.records.tile(part).await? {
            Some(tile) => tile,
            None if part.start() == 0 => Tile::WHOLE,
            None => return Ok(Plan::Later("its head comes first")),
        };
        let before = self.records.touch(part).await?;
        let entries = self.records.live(part, tile).await?;
        if before != self.records.touch(part).await? {
            return Ok(Plan::Later("it is changing"));
        }
        let subdirs = entries.iter().filter(|(_, e)| matches!(e.target, Target::Dir(_)));
        let subdirs = subdirs.count() as u64;
        let was = before.map_or(DirStat::born(self.now), |t| t.stat);
        let touch = Touch {
            stat: DirStat {
                entries: entries.len() as u64,
                subdirs,
                ..was
            },
            explicit: before.is_some_and(|t| t.explicit),
        };
        if before == Some(touch) {
            return Ok(WELL);
        }
        let mut edit = self.edit();
        edit.set(key, before.map(Record::Touch), Some(Record::Touch(touch)));
        one(edit, format!("counted {} entries", entries.len()))
    }

    /// A free name in `/lost+found` for what has this number.
    pub(super) async fn lose(
        &self,
        edit: &mut Edit,
        ino: Ino,
        target: Target,
        attached: Vec<(AttachmentKind, Record)>,
    ) -> Result<(DirId, Head, Name), Stop> {
        let lost = self.lost()?;
        let head = self.records.head(lost).await?.ok_or(Plan::NeedsLostFound)?;
        for n in 0..NAMES {
            let text = match n {
                0 => format!("#{ino}"),
                n => format!("#{ino}.{n}"),
            };
            let Ok(name) = Name::new(text.as_bytes()) else {
                break;
            };
            let hash = self.records.map.widths().name(head.salt, &name);
            let place = (lost, hash, name.clone());
            if edit
                .put(&self.records, place, target.clone(), attached.clone())
                .await?
                .is_some()
            {
                return Ok((lost, head, name));
            }
        }
        Err(Plan::Not("there is no free name in /lost+found").into())
    }

    /// A directory goes to `/lost+found`.
    async fn lose_dir(&self, edit: &mut Edit, access: AccessRecord, head: &Head) -> Result<Name, Stop> {
        let (id, ino) = (access.id, access.ino);
        let (lost, there, name) = self.lose(edit, ino, Target::Dir(access), Vec::new()).await?;
        let place = (lost, there.generation, name.clone());
        edit.place(&self.records, id, head, place).await?;
        Ok(name)
    }

    async fn nameless(&self, id: DirId) -> Planned {
        let Some(head) = self.records.head(id).await? else {
            return Ok(WELL);
        };
        let mut edit = self.edit();
        // Where it should be there is something else, or nothing.
        if let Some(parent) = self.records.head(head.parent).await? {
            let hash = self.records.map.widths().name(parent.salt, &head.name);
            let key = self.records.key(head.parent, hash, head.name.clone()).await?;
            let there = self.records.get(&key).await?;
            if let Some(Record::Entry(Entry {
                target: Target::Dir(d),
                ..
            })) = &there
                && d.id == id
            {
                return Ok(WELL);
            }
            edit.expect(key, there);
        }
        let access = AccessRecord {
            id,
            generation: head.generation,
            ino: head.ino,
            perm: Perm::new(0o700),
            uid: 0,
            gid: 0,
            ctime: self.now,
            realm: head.realm,
            salt: head.salt,
            version: 1,
            marks: Marks::NONE,
            acls: Default::default(),
            seal: head.seal,
        };
        let name = self.lose_dir(&mut edit, access, &head).await?;
        one(edit, format!("moved to /lost+found/{name}, root's, mode 0700"))
    }

    /// The access records of a directory among the places that a finding names.
    async fn named(&self, id: DirId, finding: &Finding) -> Result<Vec<(Key, Entry, AccessRecord)>, Stop> {
        let mut named = Vec::new();
        let places: BTreeSet<_> = finding.places.iter().copied().collect();
        for place in places {
            for (key, entry) in self.records.bucket(place.part, place.hash).await? {
                match entry.target.clone() {
                    Target::Dir(access) if access.id == id => named.push((key, entry, access)),
                    _ => {}
                }
            }
        }
        Ok(named)
    }

    async fn contentless(&self, id: DirId, finding: &Finding) -> Planned {
        if self.records.head(id).await?.is_some() {
            return Ok(WELL);
        }
        let named = self.named(id, finding).await?;
        let [(key, entry, access)] = &named[..] else {
            return Ok(Plan::Not("it has no name, or several: what it was is not known"));
        };
        let Key::Entry { part, name, .. } = key else {
            return Ok(WELL);
        };
        let mut edit = self.edit();
        edit.expect(Key::Head(id.into()), None);
        let birth = |version| Birth {
            parent: part.dir,
            name: name.clone(),
            version,
        };
        let born = (0..VERSIONS)
            .map(birth)
            .find(|b| id == DirId::ROOT || self.records.map.is_born(id, b, access.generation));
        let (Some(birth), Some(parent_generation)) = (born, self.records.generation(part.dir).await?) else {
            // Where it was born would have to be guessed.
            edit.take_away(&self.records, key, entry).await?;
            edit.moved(id, access.generation);
            return one(
                edit,
                format!(
                    "removed the name {}: where it was born is not known; what is left in it goes to /lost+found",
                    quoted(name)
                ),
            );
        };
        let list = Key::RenameList {
            parent: birth.parent,
            name: birth.name.clone(),
        };
        let listed = self
            .records
            .list(&list)
            .await?
            .is_some_and(|l| l.contains(birth.version));
        let depth = self.records.parts(id).await?.first().map_or(0, |tile| tile.depth);
        let head = Head {
            generation: access.generation,
            ino: access.ino,
            birth,
            parent: part.dir,
            parent_generation,
            name: name.clone(),
            realm: access.realm,
            salt: access.salt,
            split: depth,
            seal: access.seal,
            listed,
        };
        edit.expect(key.clone(), Some(Record::Entry(entry.clone())));
        edit.set(Key::Head(id.into()), None, Some(Record::Head(head)));
        one(edit, "its content is there again, with what was left in it")
    }

    async fn headless(&self, id: DirId, finding: &Finding) -> Planned {
        if self.records.head(id).await?.is_some() {
            return Ok(WELL);
        }
        let mut entries = Vec::new();
        let tiles = self.tiles(id, finding).await?;
        for tile in &tiles {
            entries.extend(self.records.live(part_at(id, *tile), *tile).await?);
        }
        if entries.is_empty() {
            return self.drop_content(id, &tiles).await;
        }
        let mut all = Vec::new();
        let mut names = BTreeSet::new();
        for (key, entry) in entries {
            let ino = entry.target.identity().0;
            // Of several that would get one name, one now and the others later.
            if all.len() >= SOME || !names.insert(ino) {
                continue;
            }
            let mut edit = self.edit();
            edit.expect(Key::Head(id.into()), None);
            let attached = edit.take_away(&self.records, &key, &entry).await?;
            edit.counts.clear();
            let Key::Entry { name: was, .. } = &key else {
                continue;
            };
            let name = match &entry.target {
                Target::Dir(access) => match self.records.head(access.id).await? {
                    Some(head) => {
                        let (lost, there, name) =
                            self.lose(&mut edit, ino, entry.target.clone(), attached).await?;
                        let place = (lost, there.generation, name.clone());
                        edit.place(&self.records, access.id, &head, place).await?;
                        name
                    }
                    // It has no content either: that is mended first.
                    None => continue,
                },
                target => self.lose(&mut edit, ino, target.clone(), attached).await?.2,
            };
            all.push(repair(
                edit,
                format!("moved {} to /lost+found/{name}", quoted(was)),
            ));
        }
        match all.is_empty() {
            true => Ok(Plan::Later("what is in it is mended first")),
            false => Ok(Plan::Repair(all)),
        }
    }

    async fn two_names(&self, id: DirId, finding: &Finding) -> Planned {
        let Some(head) = self.records.head(id).await? else {
            return Ok(Plan::Later("its content comes first"));
        };
        let named = self.named(id, finding).await?;
        let right = |(key, _, access): &&(Key, Entry, AccessRecord)| {
            matches!(key, Key::Entry { part, name, .. } if (part.dir, name) == (head.parent, &head.name))
                && access.generation == head.generation
        };
        let Some((kept, entry, _)) = named.iter().find(right) else {
            return Ok(Plan::Not("none of its names is the one that its content knows"));
        };
        let mut all = Vec::new();
        for (key, other, access) in named.iter().filter(|(key, ..)| key != kept) {
            let mut edit = self.edit();
            edit.expect(Key::Head(id.into()), Some(Record::Head(head.clone())));
            edit.expect(kept.clone(), Some(Record::Entry(entry.clone())));
            edit.take_away(&self.records, key, other).await?;
            edit.moved(id, access.generation);
            if let Key::Entry { part, name, .. } = key {
                all.push(repair(
                    edit,
                    format!("removed its other name {} in {part}", quoted(name)),
                ));
            }
        }
        match all.is_empty() {
            true => Ok(WELL),
            false => Ok(Plan::Repair(all)),
        }
    }

    async fn halves(&self, id: DirId, finding: &Finding) -> Planned {
        let Some(head) = self.records.head(id).await? else {
            return Ok(WELL);
        };
        let named = self.named(id, finding).await?;
        let [(key, entry, access)] = &named[..] else {
            return Ok(Plan::Later("its names come first"));
        };
        let Key::Entry { part, name, .. } = key else {
            return Ok(WELL);
        };
        if (access.generation, access.ino, access.salt) != (head.generation, head.ino, head.salt) {
            return Ok(Plan::Not(
                "name and content are of two directories: which of them is meant is not known",
            ));
        }
        let Some(generation) = self.records.generation(part.dir).await? else {
            return Ok(Plan::Later("its parent comes first"));
        };
        let mut edit = self.edit();
        edit.expect(key.clone(), Some(Record::Entry(entry.clone())));
        edit.place(&self.records, id, &head, (part.dir, generation, name.clone()))
            .await?;
        for (key, now) in &mut edit.request.changes {
            if let (Key::Head(_), Some(Record::Head(head))) = (key, now) {
                head.realm = access.realm;
            }
        }
        one(edit, "its content knows its name and its parent again")
    }

    async fn unlisted(&self, id: DirId) -> Planned {
        let Some(head) = self.records.head(id).await? else {
            return Ok(WELL);
        };
        let predicted = self.records.map.ids == Ids::Predicted;
        let now = Head {
            listed: predicted,
            ..head.clone()
        };
        let mut edit = self.edit();
        if predicted {
            edit.enlist(&self.records, &now).await?;
        }
        let (was, now) = (Some(Record::Head(head)), Some(Record::Head(now)));
        edit.set(Key::Head(id.into()), was, now);
        one(
            edit,
            match predicted {
                true => "it is on the rename list of its birth again",
                false => "it does not say any more that it is on a rename list",
            },
        )
    }

    async fn listed(&self, finding: &Finding) -> Planned {
        let Some(key @ Key::RenameList { parent, name }) = finding.keys.first() else {
            return Ok(WELL);
        };
        let Some(was) = self.records.list(key).await? else {
            return Ok(WELL);
        };
        let (mut edit, mut list) = (self.edit(), was.clone());
        if self.records.map.ids == Ids::Placed {
            edit.set(key.clone(), Some(Record::RenameList(was)), None);
            return one(edit, "removed a rename list, of which there are none here");
        }
        for version in was.versions().take(1 << 16) {
            let birth = Birth {
                parent: *parent,
                name: name.clone(),
                version,
            };
            let id = self.records.map.widths().dir_id(&birth);
            let head = self.records.head(id).await?;
            let its = head.as_ref().filter(|h| h.birth == birth);
            match its {
                Some(head) if head.listed => continue,
                Some(head) if (head.parent, &head.name) != (*parent, name) => {
                    return Ok(Plan::Later("the directory comes first"));
                }
                _ => {}
            }
            list.remove(version);
            edit.expect(Key::Head(id.into()), head.map(Record::Head));
        }
        if list == was {
            return Ok(WELL);
        }
        let now = (!list.is_empty()).then_some(Record::RenameList(list));
        edit.set(key.clone(), Some(Record::RenameList(was)), now);
        one(edit, "taken off the rename list: its ID may be given again")
    }

    /// One directory of a loop goes to `/lost+found`, and the others with it.
    async fn looped(&self, id: DirId) -> Planned {
        let (mut at, mut first) = (id, id);
        loop {
            let Some(head) = self.records.head(at).await? else {
                return Ok(WELL);
            };
            if head.parent == id {
                break;
            }
            at = head.parent;
            first = first.min(at);
            if at == DirId::ROOT || at == DirId::ABOVE_ROOT {
                return Ok(WELL);
            }
        }
        if first != id {
            return Ok(Plan::Later("another directory of the loop is moved"));
        }
        let Some(head) = self.records.head(id).await? else {
            return Ok(WELL);
        };
        let Some(parent) = self.records.head(head.parent).await? else {
            return Ok(WELL);
        };
        let hash = self.records.map.widths().name(parent.salt, &head.name);
        let key = self.records.key(head.parent, hash, head.name.clone()).await?;
        let Some(Record::Entry(entry)) = self.records.get(&key).await? else {
            return Ok(Plan::Later("its name comes first"));
        };
        let mut edit = self.edit();
        let attached = edit.take_away(&self.records, &key, &entry).await?;
        let (lost, there, name) = self
            .lose(&mut edit, head.ino, entry.target.clone(), attached)
            .await?;
        let place = (lost, there.generation, name.clone());
        edit.place(&self.records, id, &head, place).await?;
        one(
            edit,
            format!("moved to /lost+found/{name}, with what is below it"),
        )
    }

    async fn bucket(&self, part: Part, hash: pando_format::NameHash, kind: Kind) -> Planned {
        let (dir, entries) = (part.dir, self.records.bucket(part, hash).await?);
        match kind {
            Kind::Attachment => super::stray::plan(self, part, hash, entries).await,
            Kind::Position => {
                let (mut taken, mut edit) = (BTreeSet::new(), self.edit());
                let all: BTreeSet<u8> = entries.iter().map(|(_, e)| e.ordinal).collect();
                for (key, entry) in &entries {
                    edit.expect(key.clone(), Some(Record::Entry(entry.clone())));
                    let is_entry = Position::new(hash, entry.ordinal).is_entry();
                    if is_entry && taken.insert(entry.ordinal) {
                        continue;
                    }
                    let free =
                        |n: &u8| !all.contains(n) && !taken.contains(n) && Position::new(hash, *n).is_entry();
                    let Some(ordinal) = (0..=u8::MAX).find(free) else {
                        return Ok(Plan::Not("its bucket is full"));
                    };
                    taken.insert(ordinal);
                    let target = entry.target.clone();
                    let now = Record::Entry(Entry { ordinal, target });
                    edit.set(key.clone(), Some(Record::Entry(entry.clone())), Some(now));
                }
                match edit.request.changes.is_empty() {
                    true => Ok(WELL),
                    false => one(edit, "listed at a position of its own"),
                }
            }
            Kind::Hash => self.misplaced(dir, hash, entries).await,
            Kind::Links => self.one_name(dir, entries).await,
            Kind::Layout => super::layout::plan(self, entries).await,
            Kind::NoData => Ok(Plan::Later("it is legal")),
            _ => Ok(Plan::Not("what is right is not known")),
        }
    }

    async fn misplaced(
        &self,
        dir: DirId,
        hash: pando_format::NameHash,
        entries: Vec<(Key, Entry)>,
    ) -> Planned {
        let fixed = dir == DirId::ABOVE_ROOT || dir.is_homes();
        let salt = match self.records.head(dir).await? {
            Some(head) => head.salt,
            None if fixed => 0,
            None => return Ok(Plan::Later("its directory comes first")),
        };
        let mut all = Vec::new();
        for (key, entry) in entries {
            let Key::Entry { name, .. } = &key else { continue };
            let right = self.records.map.widths().name(salt, name);
            if right == hash {
                continue;
            }
            let mut edit = self.edit();
            let attached = edit.take_away(&self.records, &key, &entry).await?;
            let place = (dir, right, name.clone());
            let target = entry.target.clone();
            let put = edit.put(&self.records, place, target, attached).await?;
            if put.is_none() {
                return Ok(Plan::Not(
                    "there is something else under this name: rename that, and say it again",
                ));
            }
            edit.stays(dir);
            all.push(repair(
                edit,
                format!("{} is where it is looked for", quoted(name)),
            ));
        }
        match all.is_empty() {
            true => Ok(WELL),
            false => Ok(Plan::Repair(all)),
        }
    }

    /// Entries that count several names and are under one, and what does not belong at home.
    async fn one_name(&self, dir: DirId, entries: Vec<(Key, Entry)>) -> Planned {
        let mut edit = self.edit();
        let mut does = "it counts one name";
        for (key, entry) in entries {
            match &entry.target {
                Target::Inode(inode) if !dir.is_homes() && inode.nlink != 1 => {
                    let mut right = inode.clone();
                    right.nlink = 1;
                    let target = Target::Inode(right);
                    let now = Record::Entry(Entry {
                        target,
                        ..entry.clone()
                    });
                    edit.set(key, Some(Record::Entry(entry)), Some(now));
                }
                Target::Link(_) if dir.is_homes() => {
                    edit.set(key, Some(Record::Entry(entry)), None);
                    does = "removed what is at home and a name of something else";
                }
                Target::Inode(inode) if dir.is_homes() => {
                    let right = Name::home(inode.ino, inode.generation);
                    let Key::Entry { name, .. } = &key else { continue };
                    if *name == right {
                        continue;
                    }
                    let hash = self.records.map.widths().name(0, &right);
                    let attached = edit.take_away(&self.records, &key, &entry).await?;
                    let place = (dir, hash, right);
                    let target = entry.target.clone();
                    if edit.put(&self.records, place, target, attached).await?.is_none() {
                        return Ok(Plan::Not("there is another file at its home"));
                    }
                    edit.counts.clear();
                    does = "it is at home under its own name";
                }
                _ => {}
            }
        }
        match edit.request.changes.is_empty() {
            true => Ok(WELL),
            false => one(edit, does),
        }
    }
}
