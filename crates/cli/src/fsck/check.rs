//! The checker: records in, findings out. It knows nothing of servers' answers, pauses or output; what is fed
//! to it may be the whole filesystem, or for a second look the few records that findings are about.
//!
//! REQUIRES: of each slot, heads come before entries and attachments, and attachments before entries.

mod judge;
mod lists;
mod parts;

use super::finding::{Finding, Kind, Place, Subject};
use super::numbers::identities;
use crate::text::quoted;
use pando_cluster::ClusterMap;
use pando_data::FileKey;
use pando_format::{
    AccessRecord, AttachmentKind, Codec, Entry, FORMAT_VERSION, Head, InodeRecord, Key, LOCAL_SLOT, Layout,
    Marks, Position, Record, RenameList, Target, XattrSet,
};
use pando_types::{
    DirId, FileKind, Generation, Ino, MapEpoch, Name, Part, Realm, SLOTS, ServerId, Slot, Timestamp, TxId,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// The access half of a directory, as found in its parent.
#[derive(Clone, Copy)]
struct Access {
    place: Place,
    name: u64,
    generation: Generation,
    ino: Ino,
    salt: u64,
    realm: Realm,
}

/// The content half.
#[derive(Clone, Copy)]
struct Content {
    generation: Generation,
    ino: Ino,
    parent: DirId,
    parent_generation: Generation,
    name: u64,
    salt: u64,
    realm: Realm,
    born: bool,
    /// Where it was born, with which version, and whether it was renamed since.
    birth: u64,
    version: u32,
    listed: bool,
    /// Whether it is where it was born.
    home: bool,
    /// How often part 0 was halved.
    depth: u8,
}

/// What is known of a directory. Counts are those of part 0.
#[derive(Clone, Copy, Default)]
struct Dir {
    access: Option<Access>,
    head: Option<Content>,
    /// Entries and subdirectories by the touch.
    touch: Option<(u64, u64)>,
    /// As counted.
    entries: u64,
    subdirs: u64,
    /// The touch changed while the entries were read.
    moving: bool,
    /// Its list, and its entries, where it has a list.
    lines: lists::Sum,
    named: lists::Sum,
}

/// A name of an inode: which number, and where.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Numbered {
    ino: u64,
    dir: u32,
    start: u16,
    hash: u64,
}

/// What is known of a file that is at home.
#[derive(Default)]
struct Linked {
    home: Option<Home>,
    names: Vec<(Place, FileKind)>,
    /// It is noted as one that stays without a name while it is open.
    noted: bool,
}

/// What the record there says.
struct Home {
    names: u32,
    changed: Timestamp,
    kind: FileKind,
}

/// Where the records of one server have got to.
#[derive(Default)]
struct Lane {
    slot: Option<Slot>,
    /// Attachments of this slot that no entry has claimed: where, and how many bytes.
    attachments: HashMap<u64, (Place, u32)>,
    /// The bucket being fed and its ordinals.
    bucket: Option<(Place, Vec<u8>)>,
}

/// Sums for the report.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Records of all kinds.
    pub records: u64,
    /// Directories.
    pub directories: u64,
    /// Other entries.
    pub files: u64,
    /// Bytes of regular files.
    pub bytes: u64,
    /// Files whose bytes are in blocks.
    pub block_files: u64,
    /// Removed files whose data is not deleted yet.
    pub garbage: u64,
    /// Of them, held open by a session.
    pub held: u64,
    /// Files without a name that are there while somebody has them open.
    pub open_without_name: u64,
    /// Bytes of removed files.
    pub garbage_bytes: u64,
    /// Sessions, counted at each server.
    pub sessions: u64,
    /// Reply records.
    pub replies: u64,
}

/// A file whose bytes are in blocks.
#[derive(Clone, Copy, Debug)]
pub struct BlockFile {
    /// Its name's bucket.
    pub place: Place,
    /// Whose blocks.
    pub key: FileKey,
    /// Bytes.
    pub size: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes that are stored, as its record says.
    pub stored: u64,
}

/// See the module.
pub struct Checker {
    map: Rc<ClusterMap>,
    dirs: Vec<Dir>,
    ids: Vec<DirId>,
    index: HashMap<DirId, u32>,
    /// Of directories that are split.
    parts: BTreeMap<Part, parts::Seen>,
    part_lists: HashMap<DirId, parts::Listed>,
    /// Access records of directories that have one already.
    doubles: Vec<(DirId, Access)>,
    numbers: Vec<Numbered>,
    linked: HashMap<(Slot, Ino, Generation), Linked>,
    /// When the first record was read. What changed since then may have been read half before, half after it.
    pub began: Option<Timestamp>,
    largest: Vec<u64>,
    reserved: Vec<u64>,
    lanes: HashMap<ServerId, Lane>,
    seen_foreign: HashSet<(ServerId, Slot)>,
    pending: Vec<(ServerId, Key, TxId)>,
    /// Rename lists, by birth.
    lists: HashMap<u64, (DirId, Name, RenameList)>,
    findings: Vec<Finding>,
    counts: Counts,
    /// Files with blocks, if their data is to be looked at.
    pub block_files: Option<Vec<BlockFile>>,
}

fn fingerprint(value: impl Hash) -> u64 {
    let mut h = DefaultHasher::new();
    value.hash(&mut h);
    h.finish()
}

impl Checker {
    /// Knows nothing yet.
    pub fn new(map: Rc<ClusterMap>) -> Checker {
        Checker {
            map,
            dirs: Vec::new(),
            ids: Vec::new(),
            index: HashMap::new(),
            parts: BTreeMap::new(),
            part_lists: HashMap::new(),
            doubles: Vec::new(),
            numbers: Vec::new(),
            linked: HashMap::new(),
            began: None,
            largest: vec![0; usize::from(SLOTS)],
            reserved: vec![2; usize::from(SLOTS)],
            lanes: HashMap::new(),
            seen_foreign: HashSet::new(),
            pending: Vec::new(),
            lists: HashMap::new(),
            findings: Vec::new(),
            counts: Counts::default(),
            block_files: None,
        }
    }

    /// Sums so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Transactions without an outcome.
    pub fn pending(&self) -> &[(ServerId, Key, TxId)] {
        &self.pending
    }

    fn dir(&mut self, id: DirId) -> (u32, &mut Dir) {
        let next = self.dirs.len() as u32;
        let i = *self.index.entry(id).or_insert(next);
        if i == next {
            self.dirs.push(Dir::default());
            self.ids.push(id);
        }
        (i, &mut self.dirs[i as usize])
    }

    fn get(&self, id: DirId) -> Option<&Dir> {
        self.index.get(&id).map(|i| &self.dirs[*i as usize])
    }

    fn find(&mut self, kind: Kind, subject: Subject, detail: impl Into<String>) {
        self.findings.push(Finding::new(kind, subject, detail));
    }

    /// Takes one record from a server's store.
    pub fn feed(&mut self, server: ServerId, key: &Key, record: &Record) {
        self.counts.records += 1;
        let slot = key.slot();
        if !record.fits(key) {
            // debug: a damaged store is looked into by its keys.
            let detail = format!("key {key:?} holds a record of another kind");
            return self.find(Kind::Misfit, Subject::Slot(server, slot), detail);
        }
        if slot != LOCAL_SLOT && self.map.owner(slot) != server {
            // Once slots have moved: what is left of a copy, or of a slot that was given. The server deletes
            // it.
            let moved = self.map.plan.made > MapEpoch(0);
            if !moved && self.seen_foreign.insert((server, slot)) {
                let owner = self.map.owner(slot);
                let detail =
                    format!("server {server} holds records of slot {slot}, which belongs to server {owner}");
                self.find(Kind::Foreign, Subject::Slot(server, slot), detail);
            }
            return;
        }
        let mut lane = std::mem::take(self.lanes.entry(server).or_default());
        if lane.slot != Some(slot) {
            self.end_slot(&mut lane);
            lane.slot = Some(slot);
        }
        self.take(&mut lane, server, key, record);
        self.lanes.insert(server, lane);
    }

    fn take(&mut self, lane: &mut Lane, server: ServerId, key: &Key, record: &Record) {
        identities(key, Some(record), &mut |ino, _| {
            if let Some(largest) = self.largest.get_mut(usize::from(ino.slot().0)) {
                *largest = (*largest).max(ino.0 & 0xFFFF_FFFF_FFFF);
            }
        });
        match (key, record) {
            (Key::Head(part), head) => self.head(*part, head),
            (Key::Touch(part), Record::Touch(touch)) => {
                self.counted_by_touch(*part, (touch.stat.entries, touch.stat.subdirs));
            }
            (Key::Line { .. }, Record::Line(line)) => self.line(key, line),
            (Key::Parts(dir), Record::Parts(parts)) => self.list(*dir, &parts.starts),
            (Key::PartNote(part), Record::PartNote(note)) => self.note(*part, *note),
            (Key::Attachment { part, hash, .. }, _) if !self.takes(*part, *hash) => {}
            (
                Key::Attachment {
                    part,
                    hash,
                    name,
                    kind,
                },
                Record::Attachment(data),
            ) => {
                let place = Place {
                    part: *part,
                    hash: *hash,
                };
                if *kind == AttachmentKind::Xattrs
                    && !XattrSet::from_bytes(&data.0).is_ok_and(|set| !set.is_empty())
                {
                    let detail = format!("{}: its extended attributes cannot be read", quoted(name));
                    self.find(Kind::Layout, Subject::Bucket(place), detail);
                }
                let mark = fingerprint((&part.dir, hash, name, kind));
                lane.attachments.insert(mark, (place, data.0.len() as u32));
            }
            (Key::Entry { part, hash, name }, Record::Entry(entry)) => {
                self.entry(lane, Place::new(*part, *hash), name, entry);
            }
            (Key::Counter(slot), Record::Counter(c)) => self.reserved[usize::from(slot.0)] = c.reserved,
            (Key::Garbage(..), Record::Garbage(g)) => {
                self.counts.garbage += 1;
                self.counts.held += u64::from(g.holder.is_some());
                self.counts.garbage_bytes += g.size;
            }
            (Key::Orphan(slot, ino, generation), _) => {
                self.counts.open_without_name += 1;
                self.linked.entry((*slot, *ino, *generation)).or_default().noted = true;
            }
            (Key::Prepared(_, tx), _) | (Key::Decision(tx), _) | (Key::Owed(tx), _) => {
                self.pending.push((server, key.clone(), *tx))
            }
            (Key::RenameList { parent, name }, Record::RenameList(list)) => {
                let birth = fingerprint((parent, name));
                self.lists.insert(birth, (*parent, name.clone(), list.clone()));
            }
            (Key::Reply(..), _) => self.counts.replies += 1,
            (Key::Session(_), _) => self.counts.sessions += 1,
            (Key::Superblock, Record::Superblock(s)) => {
                let map = &self.map;
                let right =
                    (s.fs, s.server, s.name_bits, s.id_bits) == (map.fs, server, map.name_bits, map.id_bits);
                if !right || s.format > FORMAT_VERSION {
                    let detail = format!(
                        "server {server} has the superblock of another: server {} of filesystem {:032x}, format {}",
                        s.server, s.fs.0, s.format
                    );
                    self.find(Kind::Superblock, Subject::Slot(server, LOCAL_SLOT), detail);
                }
            }
            _ => {}
        }
    }

    fn content(&mut self, id: DirId, head: &Head) {
        let root = id == DirId::ROOT;
        let born = root || self.map.is_born(id, &head.birth, head.generation);
        let content = Content {
            generation: head.generation,
            ino: head.ino,
            parent: head.parent,
            parent_generation: head.parent_generation,
            name: fingerprint(&head.name),
            salt: head.salt,
            realm: head.realm,
            born,
            birth: fingerprint((&head.birth.parent, &head.birth.name)),
            version: head.birth.version,
            listed: head.listed,
            home: (head.parent, &head.name) == (head.birth.parent, &head.birth.name),
            depth: head.depth(),
        };
        self.dir(id).1.head = Some(content);
    }

    fn entry(&mut self, lane: &mut Lane, place: Place, name: &Name, entry: &Entry) {
        let id = place.part.dir;
        if !self.takes(place.part, place.hash) {
            return;
        }
        self.ordinal(lane, place, entry.ordinal);
        let fixed = id == DirId::ABOVE_ROOT || id.is_homes();
        let salt = self.salt(place.part).or(fixed.then_some(0));
        // Without a head, that is what is reported.
        if salt.is_some_and(|salt| self.map.widths().name(salt, name) != place.hash) {
            let detail = format!(
                "name {} is in a bucket that is not its hash: lookups miss it",
                quoted(name)
            );
            self.find(Kind::Hash, Subject::Bucket(place), detail);
        }
        let dir = self.dir(id).0;
        self.count(place.part, &entry.target);
        self.lined(place, name, entry);
        let ino = match &entry.target {
            Target::Dir(access) => {
                self.xattrs(lane, place, name, access.marks);
                self.access(place, name, access);
                access.ino
            }
            Target::Inode(inode) => {
                self.counts.files += 1;
                self.xattrs(lane, place, name, inode.marks);
                self.inode(lane, place, name, inode);
                if id.is_homes() {
                    let home = (place.part.slot(), inode.ino, inode.generation);
                    if *name != Name::home(inode.ino, inode.generation) {
                        let detail = format!(
                            "inode {} is at home as {}: no name leads there",
                            inode.ino,
                            quoted(name)
                        );
                        self.find(Kind::Links, Subject::Bucket(place), detail);
                    }
                    self.linked.entry(home).or_default().home = Some(Home {
                        names: inode.nlink,
                        changed: inode.ctime,
                        kind: inode.kind,
                    });
                } else if inode.nlink != 1 {
                    let detail = format!(
                        "{} counts {} names, and is under this one",
                        quoted(name),
                        inode.nlink
                    );
                    self.find(Kind::Links, Subject::Bucket(place), detail);
                }
                inode.ino
            }
            Target::Link(link) => {
                let home = (link.slot, link.ino, link.generation);
                if id.is_homes() {
                    let detail = format!("{} is at home, and a name of something else", quoted(name));
                    self.find(Kind::Links, Subject::Bucket(place), detail);
                }
                self.linked
                    .entry(home)
                    .or_default()
                    .names
                    .push((place, link.kind));
                return;
            }
        };
        self.numbers.push(Numbered {
            ino: ino.0,
            dir,
            start: place.part.start(),
            hash: place.hash.0,
        });
    }

    fn ordinal(&mut self, lane: &mut Lane, place: Place, ordinal: u8) {
        match &mut lane.bucket {
            Some((here, taken)) if *here == place => {
                if taken.contains(&ordinal) {
                    let detail = format!(
                        "two entries have position {}",
                        Position::new(place.hash, ordinal).0
                    );
                    self.find(Kind::Position, Subject::Bucket(place), detail);
                } else {
                    taken.push(ordinal);
                }
            }
            _ => lane.bucket = Some((place, vec![ordinal])),
        }
        if !Position::new(place.hash, ordinal).is_entry() {
            let detail = format!("ordinal {ordinal} gives a reserved position: listings skip it");
            self.find(Kind::Position, Subject::Bucket(place), detail);
        }
    }

    fn access(&mut self, place: Place, name: &Name, access: &AccessRecord) {
        let seen = Access {
            place,
            name: fingerprint(name),
            generation: access.generation,
            ino: access.ino,
            salt: access.salt,
            realm: access.realm,
        };
        let dir = self.dir(access.id).1;
        if dir.access.is_some() {
            self.doubles.push((access.id, seen));
        } else {
            dir.access = Some(seen);
        }
    }

    fn xattrs(&mut self, lane: &mut Lane, place: Place, name: &Name, marks: Marks) {
        let mark = fingerprint((&place.part.dir, &place.hash, name, &AttachmentKind::Xattrs));
        let attached = lane.attachments.remove(&mark).is_some();
        let wrong = match (marks.has_xattrs(), attached) {
            (true, false) => "its extended attributes are missing",
            (false, true) => "it has extended attributes that its record does not speak of",
            _ => return,
        };
        self.find(
            Kind::Layout,
            Subject::Bucket(place),
            format!("{}: {wrong}", quoted(name)),
        );
    }

    fn inode(&mut self, lane: &mut Lane, place: Place, name: &Name, inode: &InodeRecord) {
        let mut taken = |kind: AttachmentKind| {
            let mark = fingerprint((&place.part.dir, &place.hash, name, &kind));
            lane.attachments.remove(&mark).map(|(_, len)| u64::from(len))
        };
        let data = taken(AttachmentKind::Data);
        let target = taken(AttachmentKind::Target);
        let wrong = match (&inode.layout, inode.kind) {
            (Layout::Inline | Layout::SparseInline(_), FileKind::Regular) => match data {
                None => Some("its inline data is missing".into()),
                Some(len) if len > inode.size => {
                    Some(format!("{len} bytes inline, but its size is {}", inode.size))
                }
                Some(len) => stored_wrong(inode, Some(len)),
            },
            (Layout::None | Layout::Blocks(_) | Layout::Sparse { .. }, FileKind::Regular)
                if data.is_some() =>
            {
                Some("it has inline data that its layout does not speak of".into())
            }
            (Layout::Blocks(size) | Layout::Sparse { block_size: size, .. }, FileKind::Regular)
                if !size.is_power_of_two() =>
            {
                Some(format!("its blocks have {size} bytes"))
            }
            (Layout::None | Layout::Blocks(_) | Layout::Sparse { .. }, FileKind::Regular) => {
                stored_wrong(inode, None)
            }
            (Layout::LongTarget, FileKind::Symlink) => match target {
                None => Some("its target is missing".into()),
                Some(len) if len != inode.size => {
                    Some(format!("a target of {len} bytes, but its size is {}", inode.size))
                }
                Some(_) => None,
            },
            (Layout::Target(t), FileKind::Symlink) if t.0.len() as u64 != inode.size => Some(format!(
                "a target of {} bytes, but its size is {}",
                t.0.len(),
                inode.size
            )),
            (Layout::Target(_), FileKind::Symlink) if target.is_some() => {
                Some("it has a second target that its layout does not speak of".into())
            }
            (Layout::Target(_), FileKind::Symlink) => None,
            (_, FileKind::Directory) => Some("an inode record of kind directory".into()),
            (Layout::None, _) => None,
            (layout, kind) => Some(format!(
                "a {} whose content is {}",
                crate::text::kind_word(kind),
                layout_word(layout)
            )),
        };
        if let Some(wrong) = wrong {
            self.find(
                Kind::Layout,
                Subject::Bucket(place),
                format!("{}: {wrong}", quoted(name)),
            );
        }
        if inode.kind == FileKind::Regular {
            let stored = inode.layout.allocated(inode.size);
            self.counts.bytes = self.counts.bytes.saturating_add(stored);
        }
        if let Some(size) = inode.layout.block_size() {
            self.counts.block_files += 1;
            if let Some(files) = &mut self.block_files {
                let key = FileKey {
                    ino: inode.ino,
                    generation: inode.generation,
                };
                files.push(BlockFile {
                    place,
                    key,
                    size: inode.size,
                    block_size: size,
                    stored: inode.layout.allocated(inode.size),
                });
            }
        }
    }

    fn end_slot(&mut self, lane: &mut Lane) {
        lane.bucket = None;
        for (place, _) in std::mem::take(&mut lane.attachments).into_values() {
            let detail = "data, a target or extended attributes of a name that is not there";
            self.find(Kind::Attachment, Subject::Bucket(place), detail);
        }
    }
}

/// An error in the number of stored bytes that a record says, if there is one. `inline`: so many are beside
/// the record.
fn stored_wrong(inode: &InodeRecord, inline: Option<u64>) -> Option<String> {
    let (said, size) = (inode.layout.allocated(inode.size), inode.size);
    match inline {
        Some(len) if len > said => Some(format!("{len} bytes inline, but it says that {said} are stored")),
        _ if !inode.layout.is_plausible(size) => Some(format!(
            "its record says how many bytes are stored although it has no holes: {said} of {size}"
        )),
        _ => None,
    }
}

fn layout_word(layout: &Layout) -> &'static str {
    match layout {
        Layout::None => "nowhere",
        Layout::Inline | Layout::SparseInline(_) => "beside its record",
        Layout::Blocks(_) | Layout::Sparse { .. } => "in blocks",
        Layout::Target(_) => "a target in its record",
        Layout::LongTarget => "a target beside its record",
    }
}
