//! The records an operation may look at.

use crate::context::{Incarnation, Which};
use pando_format::{AttachmentKind, Entry, Head, Key, NameHash, PartHead, Record, RenameList, Target, Touch};
use pando_types::{DirId, Errno, Generation, Name, Part, Tile};
use pando_wire::{FileAt, Holders, LockWant};
use std::collections::{BTreeMap, BTreeSet};

/// Why an operation cannot go on with what it has.
#[derive(Debug)]
pub enum Stop {
    /// It needs these.
    Need(Vec<LockWant>),
    /// It fails.
    Fail(Errno),
    /// It must be asked of the rename server.
    UseCoordinator,
    /// A client has localised a directory that it concerns.
    Localised,
    /// The rename server must first find out whether `moved` is `into` or an ancestor of it.
    Walk {
        /// The directory that changes its parent.
        moved: Incarnation,
        /// The new parent.
        into: Incarnation,
    },
    /// Something must be over first; whoever asks again later is answered.
    Busy,
    /// A name is in another part than the asker takes it to be in (H64).
    Elsewhere {
        /// Of which name.
        which: Which,
        /// The hashes of the part that was asked. `None`: there is no such part.
        tile: Option<Tile>,
    },
}

impl From<Errno> for Stop {
    fn from(e: Errno) -> Stop {
        Stop::Fail(e)
    }
}

/// Records read under locks. What was wanted and is not in here does not exist.
///
/// Mostly two or three: lists cost a fraction of what trees do.
#[derive(Default)]
pub struct Snapshot {
    /// Sorted, each once.
    wanted: Vec<LockWant>,
    /// Sorted by their keys, each once.
    records: Vec<(Key, Record)>,
    held: BTreeMap<FileAt, Holders>,
}

impl Snapshot {
    /// Notes that `want` was read and gave `records`.
    pub fn add(&mut self, want: LockWant, records: impl IntoIterator<Item = (Key, Record)>) {
        self.add_all([want], records);
    }

    /// Notes that all of `wants` were read and together gave `records`.
    pub fn add_all(
        &mut self,
        wants: impl IntoIterator<Item = LockWant>,
        records: impl IntoIterator<Item = (Key, Record)>,
    ) {
        // The first ones are taken as they are.
        if self.wanted.is_empty() {
            self.wanted = wants.into_iter().collect();
        } else {
            self.wanted.extend(wants);
        }
        self.wanted.sort_unstable();
        self.wanted.dedup();
        if self.records.is_empty() {
            self.records = records.into_iter().collect();
        } else {
            self.records.extend(records);
        }
        // What is locked reads the same each time.
        self.records.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        self.records.dedup_by(|(a, _), (b, _)| a == b);
    }

    /// All that was read.
    pub fn wanted(&self) -> &[LockWant] {
        &self.wanted
    }

    /// Notes who has files open that were read.
    pub fn add_held(&mut self, held: impl IntoIterator<Item = (FileAt, Holders)>) {
        self.held.extend(held);
    }

    /// Who has a file open that was read.
    pub fn holders(&self, file: FileAt) -> Holders {
        self.held.get(&file).copied().unwrap_or_default()
    }

    /// Errs with those of `wants` that were not read.
    pub fn require(&self, wants: Vec<LockWant>) -> Result<(), Stop> {
        let read = |want: &LockWant| self.wanted.binary_search(want).is_ok();
        let missing: Vec<LockWant> = wants.into_iter().filter(|want| !read(want)).collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(Stop::Need(missing))
        }
    }

    /// Whether a record was read, whatever came of it.
    pub fn has_read(&self, key: &Key) -> bool {
        let is = |want: &LockWant| matches!(want, LockWant::Key(read, _) if read == key);
        self.wanted.iter().any(is)
    }

    /// A record that was required before.
    pub fn get(&self, key: &Key) -> Option<&Record> {
        let at = self.records.binary_search_by(|(k, _)| k.cmp(key)).ok()?;
        self.records.get(at).map(|(_, record)| record)
    }

    /// The head of a directory's part.
    pub fn head(&self, part: Part) -> Option<&Head> {
        match self.get(&Key::Head(part)) {
            Some(Record::Head(h)) => Some(h),
            _ => None,
        }
    }

    /// What operations inside a part must know of it: by its head, or by the directory's.
    pub fn part(&self, part: Part) -> Option<PartHead> {
        self.get(&Key::Head(part))?.part_head(part)
    }

    /// The touch of a directory's part.
    pub fn touch(&self, part: Part) -> Option<&Touch> {
        match self.get(&Key::Touch(part)) {
            Some(Record::Touch(t)) => Some(t),
            _ => None,
        }
    }

    /// A rename list.
    pub fn rename_list(&self, key: &Key) -> Option<&RenameList> {
        match self.get(key) {
            Some(Record::RenameList(l)) => Some(l),
            _ => None,
        }
    }

    /// An entry.
    pub fn entry(&self, part: Part, hash: NameHash, name: &Name) -> Option<&Entry> {
        match self.get(&Key::Entry {
            part,
            hash,
            name: name.clone(),
        }) {
            Some(Record::Entry(e)) => Some(e),
            _ => None,
        }
    }

    /// The key of a directory's entry, if that was read.
    pub fn entry_of(&self, id: DirId, generation: Generation) -> Option<&Key> {
        let is_entry = |record: &Record| match record {
            Record::Entry(Entry {
                target: Target::Dir(d),
                ..
            }) => (d.id, d.generation) == (id, generation),
            _ => false,
        };
        let found = self.records.iter().find(|(_, record)| is_entry(record));
        found.map(|(key, _)| key)
    }

    /// The ordinals taken in a bucket.
    pub fn ordinals(&self, part: Part, bucket: NameHash) -> BTreeSet<u8> {
        self.records
            .iter()
            .filter_map(|record| match record {
                (Key::Entry { part: of, hash, .. }, Record::Entry(e)) if *of == part && *hash == bucket => {
                    Some(e.ordinal)
                }
                _ => None,
            })
            .collect()
    }

    /// An attachment.
    pub fn attachment(&self, part: Part, hash: NameHash, name: &Name, kind: AttachmentKind) -> Option<&[u8]> {
        match self.get(&Key::Attachment {
            part,
            hash,
            name: name.clone(),
            kind,
        }) {
            Some(Record::Attachment(b)) => Some(&b.0),
            _ => None,
        }
    }
}
