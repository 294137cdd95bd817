//! What may be in a table. It was made by a client, so nothing of it is believed (H59): each record must be
//! one that create, symlink, mknod or mkdir would have made for its caller, in a place that is free.

#[cfg(test)]
mod tests;

use pando_format::{
    AccessRecord, AttachmentKind, Entry, HashWidths, Head, InodeRecord, Key, Layout, Marks, NameHash,
    NumberRun, Position, Record, TABLE_RECORDS_MAX, Target, Touch,
};
use pando_types::{
    Acls, Birth, Cred, DirId, FileKind, Generation, Ino, Name, Part, Perm, Realm, SYMLINK_MAX, Slot,
    Timestamp, plant,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Symlink targets up to this long stand in the record itself.
const SHORT_TARGET: usize = 256;
/// By how much a client's clock may be ahead.
const AHEAD: i64 = 1;
/// Changes of one object before it is inserted.
const CHANGES: u64 = 1 << 32;

/// What is wrong with a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bad {
    Sum,
    Records,
    Many,
    Bases,
    Order,
    Slot,
    Kind,
    Unknown,
    Hash,
    Position,
    Number,
    Rights,
    Object,
    Time,
    Bytes,
    Halves,
    Apart,
    Counts,
    Exists,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bad::Sum => "it is not what its length and checksum say",
            Bad::Records => "its records cannot be read",
            Bad::Many => "it has too many records",
            Bad::Bases => "it adds to too many directories",
            Bad::Order => "its keys are not in order",
            Bad::Slot => "a key is of another slot",
            Bad::Kind => "a record is of a kind that no table has",
            Bad::Unknown => "an entry is of a directory that it does not know",
            Bad::Hash => "a name stands in another place than its hash",
            Bad::Position => "two entries have one position",
            Bad::Number => "a number is not among those that were given, or comes twice",
            Bad::Rights => "an owner, group or permission is not what the caller could have made",
            Bad::Object => "an object is of a kind, or has a content, that no table brings",
            Bad::Time => "a time is in the future",
            Bad::Bytes => "bytes and what is said of them are not the same",
            Bad::Halves => "the two halves of a directory do not belong together",
            Bad::Apart => "a directory has no way to the localised one",
            Bad::Counts => "counts are not what was counted",
            Bad::Exists => "a name is there already",
        })
    }
}

/// What bears on the entries of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    pub generation: Generation,
    pub salt: u64,
    /// The group that what is made in it gets, if not the caller's.
    pub gid: Option<u32>,
    pub realm: Realm,
}

/// By what a table is judged.
pub struct Rules<'a> {
    pub slot: Slot,
    pub cred: &'a Cred,
    pub widths: HashWidths,
    pub inline_limit: u32,
    /// Numbers that were given and not used.
    pub numbers: NumberRun,
    pub now: Timestamp,
    /// Directories that are there.
    pub bases: &'a BTreeMap<DirId, Base>,
}

/// An entry that comes into a directory that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    pub hash: NameHash,
    pub ordinal: u8,
    pub name: Name,
    pub is_dir: bool,
}

/// A table that may be inserted, if its places are free.
#[derive(PartialEq, Eq, Debug)]
pub struct Sound {
    /// What comes into each directory that is there.
    pub places: BTreeMap<DirId, Vec<Placed>>,
    /// The first number that is not used.
    pub next: u64,
    /// Entries.
    pub entries: u64,
}

/// A directory that a table makes.
struct Made<'t> {
    head: &'t Head,
    /// Its entry: found, and what it says of groups.
    gid: Option<Option<u32>>,
    entries: u64,
    subdirs: u64,
}

/// One row as it stands in a table, after another one.
pub fn row((key, value): (&[u8], &[u8]), before: Option<&[u8]>, slot: Slot) -> Result<(Key, Record), Bad> {
    if before.is_some_and(|before| before >= key) {
        return Err(Bad::Order);
    }
    let record = Record::decode(key, value).map_err(|_| Bad::Records)?;
    let key = Key::decode(key).map_err(|_| Bad::Records)?;
    if key.slot() != slot {
        return Err(Bad::Slot);
    }
    // A table is of whole directories (H319).
    let known = match &key {
        Key::Attachment { part, .. } | Key::Entry { part, .. } | Key::Head(part) | Key::Touch(part) => {
            part.start() == 0
        }
        _ => false,
    };
    if !known || !record.fits(&key) {
        return Err(Bad::Kind);
    }
    Ok((key, record))
}

fn dir_of(key: &Key) -> Option<DirId> {
    match key {
        Key::Attachment { part, .. } | Key::Entry { part, .. } | Key::Head(part) | Key::Touch(part) => {
            Some(part.dir)
        }
        _ => None,
    }
}

/// The directories that rows are of and that they do not make.
pub fn outside(rows: &[(Key, Record)]) -> BTreeSet<DirId> {
    let made = |(key, _): &(Key, Record)| match key {
        Key::Head(part) => Some(part.dir),
        _ => None,
    };
    let made: BTreeSet<DirId> = rows.iter().filter_map(made).collect();
    let all = rows.iter().filter_map(|(key, _)| dir_of(key));
    all.filter(|dir| !made.contains(dir)).collect()
}

/// A table that is being examined, row by row.
pub struct Validation<'t> {
    rules: &'t Rules<'t>,
    made: BTreeMap<DirId, Made<'t>>,
    numbers: BTreeSet<u64>,
    positions: BTreeSet<(DirId, Position)>,
    /// Lengths that entries say of what is attached to them, and what was attached.
    said: BTreeMap<(DirId, NameHash, Name, AttachmentKind), u64>,
    attached: BTreeMap<(DirId, NameHash, Name, AttachmentKind), u64>,
    touches: BTreeMap<DirId, Touch>,
    places: BTreeMap<DirId, Vec<Placed>>,
    entries: u64,
}

impl<'t> Validation<'t> {
    /// Looks at the heads, by which entries are judged.
    pub fn new(rules: &'t Rules<'t>, rows: &'t [(Key, Record)]) -> Result<Validation<'t>, Bad> {
        if rows.len() > TABLE_RECORDS_MAX {
            return Err(Bad::Many);
        }
        let mut all = Validation {
            rules,
            made: BTreeMap::new(),
            numbers: BTreeSet::new(),
            positions: BTreeSet::new(),
            said: BTreeMap::new(),
            attached: BTreeMap::new(),
            touches: BTreeMap::new(),
            places: BTreeMap::new(),
            entries: 0,
        };
        for (key, record) in rows {
            if let (Key::Head(part), Record::Head(head)) = (key, record) {
                all.head(part.dir, head)?;
            }
        }
        Ok(all)
    }

    fn number(&mut self, ino: Ino, generation: Generation) -> Result<u64, Bad> {
        let rules = self.rules;
        let number = rules
            .numbers
            .find(rules.slot, ino, generation)
            .or(plant!(H311).then_some(rules.numbers.next))
            .ok_or(Bad::Number)?;
        match self.numbers.insert(number) || plant!(H311) {
            true => Ok(number),
            false => Err(Bad::Number),
        }
    }

    fn head(&mut self, dir: DirId, head: &'t Head) -> Result<(), Bad> {
        self.number(head.ino, head.generation)?;
        if dir != DirId::placed(head.generation, self.rules.slot) {
            return Err(Bad::Number);
        }
        let as_made = Head {
            birth: Birth {
                parent: head.parent,
                name: head.name.clone(),
                version: 0,
            },
            split: 0,
            seal: 0,
            listed: false,
            ..head.clone()
        };
        if *head != as_made {
            return Err(Bad::Halves);
        }
        let made = Made {
            head,
            gid: None,
            entries: 0,
            subdirs: 0,
        };
        self.made.insert(dir, made);
        Ok(())
    }

    /// Looks at one row.
    pub fn row(&mut self, key: &Key, record: &Record) -> Result<(), Bad> {
        match (key, record) {
            (Key::Head(_), Record::Head(_)) => Ok(()),
            (Key::Touch(part), Record::Touch(touch)) => {
                if !self.made.contains_key(&part.dir) {
                    return Err(Bad::Unknown);
                }
                self.touches.insert(part.dir, *touch);
                self.time(touch.stat.ctime)
            }
            (
                Key::Attachment {
                    part,
                    hash,
                    name,
                    kind,
                },
                Record::Attachment(bytes),
            ) => {
                let of = (part.dir, *hash, name.clone(), *kind);
                self.attached.insert(of, bytes.0.len() as u64);
                Ok(())
            }
            (Key::Entry { part, hash, name }, Record::Entry(entry)) => {
                self.entry(*part, (*hash, name), entry)
            }
            _ => Err(Bad::Kind),
        }
    }

    fn time(&self, time: Timestamp) -> Result<(), Bad> {
        match time.secs > self.rules.now.secs.saturating_add(AHEAD) {
            true => Err(Bad::Time),
            false => Ok(()),
        }
    }

    fn entry(&mut self, part: Part, (hash, name): (NameHash, &Name), entry: &Entry) -> Result<(), Bad> {
        let base = self.rules.bases.get(&part.dir);
        let (salt, generation, realm) = match (base, self.made.get(&part.dir)) {
            (Some(base), _) => (base.salt, base.generation, base.realm),
            (None, Some(made)) => (made.head.salt, made.head.generation, made.head.realm),
            (None, None) => return Err(Bad::Unknown),
        };
        if self.rules.widths.name(salt, name) != hash && !plant!(G80) {
            return Err(Bad::Hash);
        }
        let position = Position::new(hash, entry.ordinal);
        if !position.is_entry() || !self.positions.insert((part.dir, position)) {
            return Err(Bad::Position);
        }
        let is_dir = match &entry.target {
            Target::Dir(access) => {
                self.dir(access, (part.dir, generation), name, realm)?;
                true
            }
            Target::Inode(inode) => {
                self.number(inode.ino, inode.generation)?;
                self.inode(inode)?;
                self.content((part.dir, hash, name), inode)?;
                false
            }
            // What has several names is at home, which is another place.
            Target::Link(_) => return Err(Bad::Object),
        };
        self.entries += 1;
        match self.made.get_mut(&part.dir) {
            Some(made) if base.is_none() => {
                made.entries += 1;
                made.subdirs += u64::from(is_dir);
            }
            _ => self.places.entry(part.dir).or_default().push(Placed {
                hash,
                ordinal: entry.ordinal,
                name: name.clone(),
                is_dir,
            }),
        }
        Ok(())
    }

    /// The access half of a directory, by its place and its head.
    fn dir(
        &mut self,
        access: &AccessRecord,
        parent: (DirId, Generation),
        name: &Name,
        realm: Realm,
    ) -> Result<(), Bad> {
        self.time(access.ctime)?;
        let made = self.made.get_mut(&access.id).ok_or(Bad::Halves)?;
        let head = made.head;
        let together = (access.generation, access.ino, access.salt) == (head.generation, head.ino, head.salt)
            && (head.parent, head.parent_generation, &head.name) == (parent.0, parent.1, name)
            && (access.realm, head.realm) == (realm, realm);
        // It has one entry.
        if !together || made.gid.is_some() {
            return Err(Bad::Halves);
        }
        made.gid = Some(access.perm.has(Perm::SETGID).then_some(access.gid));
        let plain = access.marks == Marks::NONE && access.seal == 0 && access.acls == Acls::default();
        if !plain || access.version >= CHANGES {
            return Err(Bad::Object);
        }
        let right = !access.perm.has(Perm::SETUID) && access.uid == self.rules.cred.uid;
        match right || plant!(G79) {
            true => Ok(()),
            false => Err(Bad::Rights),
        }
    }

    /// Anything else, without what is attached.
    fn inode(&self, inode: &InodeRecord) -> Result<(), Bad> {
        self.time(inode.ctime)?;
        let plain = inode.nlink == 1
            && inode.rdev == 0
            && inode.marks == Marks::NONE
            && inode.acl.is_none()
            && inode.version < CHANGES;
        if !plain {
            return Err(Bad::Object);
        }
        let symlink = inode.kind == FileKind::Symlink;
        let right = !inode.perm.has(Perm::SETUID)
            && !inode.perm.has(Perm::SETGID)
            && (!symlink || inode.perm == Perm::new(0o777))
            && inode.uid == self.rules.cred.uid;
        match right || plant!(G79) {
            true => Ok(()),
            false => Err(Bad::Rights),
        }
    }

    /// Where the bytes of an entry are.
    fn content(
        &mut self,
        (dir, hash, name): (DirId, NameHash, &Name),
        inode: &InodeRecord,
    ) -> Result<(), Bad> {
        let mut attached = |kind| {
            self.said.insert((dir, hash, name.clone(), kind), inode.size);
        };
        let long = (SHORT_TARGET as u64 + 1..=SYMLINK_MAX as u64).contains(&inode.size);
        let right = match (inode.kind, &inode.layout) {
            (FileKind::Regular, Layout::None) => inode.size <= i64::MAX as u64,
            (FileKind::Regular, Layout::Inline) => {
                attached(AttachmentKind::Data);
                inode.size <= u64::from(self.rules.inline_limit)
            }
            (FileKind::Symlink, Layout::Target(target)) => {
                let len = target.0.len();
                (1..=SHORT_TARGET).contains(&len) && inode.size == len as u64 && !target.0.contains(&0)
            }
            (FileKind::Symlink, Layout::LongTarget) if long => {
                attached(AttachmentKind::Target);
                true
            }
            (FileKind::Fifo | FileKind::Socket, Layout::None) => inode.size == 0,
            _ => false,
        };
        match right {
            true => Ok(()),
            false => Err(Bad::Object),
        }
    }

    /// Looks at what only all rows together say.
    pub fn finish(self, rows: &[(Key, Record)]) -> Result<Sound, Bad> {
        if self.said != self.attached {
            return Err(Bad::Bytes);
        }
        self.groups(rows)?;
        self.connected()?;
        for (dir, made) in &self.made {
            let touch = self.touches.get(dir).ok_or(Bad::Halves)?;
            if (touch.stat.entries, touch.stat.subdirs) != (made.entries, made.subdirs) {
                return Err(Bad::Counts);
            }
        }
        let next = self
            .numbers
            .last()
            .map_or(self.rules.numbers.next, |last| last + 1);
        Ok(Sound {
            places: self.places,
            next,
            entries: self.entries,
        })
    }

    /// Each object has the group of its directory, if that says so, or else the caller's; and a directory
    /// has the set-gid bit only where its parent has it.
    fn groups(&self, rows: &[(Key, Record)]) -> Result<(), Bad> {
        for (key, record) in rows {
            let (Key::Entry { part, .. }, Record::Entry(entry)) = (key, record) else {
                continue;
            };
            let given = match self.rules.bases.get(&part.dir) {
                Some(base) => base.gid,
                None => self.made.get(&part.dir).and_then(|made| made.gid).flatten(),
            };
            let expected = given.unwrap_or(self.rules.cred.gid);
            let right = match &entry.target {
                Target::Dir(d) => d.gid == expected && (given.is_some() || !d.perm.has(Perm::SETGID)),
                Target::Inode(i) => i.gid == expected,
                Target::Link(_) => false,
            };
            if !right && !plant!(G79) {
                return Err(Bad::Rights);
            }
        }
        Ok(())
    }

    /// Each directory has a way up to one that is there.
    fn connected(&self) -> Result<(), Bad> {
        let mut known: BTreeSet<DirId> = self.rules.bases.keys().copied().collect();
        for start in self.made.keys() {
            let (mut way, mut at) = (BTreeSet::new(), *start);
            while !known.contains(&at) {
                let made = self.made.get(&at).ok_or(Bad::Apart)?;
                // It has an entry, and is not its own ancestor.
                if made.gid.is_none() || !way.insert(at) {
                    if plant!(G81) {
                        break;
                    }
                    return Err(Bad::Apart);
                }
                at = made.head.parent;
            }
            known.append(&mut way);
        }
        Ok(())
    }
}
