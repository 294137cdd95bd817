//! The tree below a localised directory, at the client: records in memory, and the product's own operations
//! on them. Nobody else is there, so there are no locks.

use pando_cluster::ClusterMap;
use pando_format::{Entry, Head, Key, Mutation, NameHash, NumberRun, Record, Target, Touch, table_sum};
use pando_namespace::{Decision, Fresh, Inputs, Snapshot, Step, run};
use pando_store::Bundle;
use pando_types::{Birth, Cred, DirId, DirStat, Errno, Generation, Ids, Ino, Name, Part, Slot, Timestamp};
use pando_wire::{LockWant, Op, Outcome, Statement};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// What an operation may depend on besides the tree.
pub(super) struct Here<'a> {
    pub cred: &'a Cred,
    pub map: &'a ClusterMap,
    pub now: Timestamp,
    pub salt: u64,
}

/// What is inserted together.
pub(super) struct Packed {
    pub bytes: Vec<u8>,
    pub sum: [u8; 32],
}

/// Records of what is not inserted yet, and of what must be known of the rest.
pub(super) struct Tree {
    root: DirId,
    slot: Slot,
    numbers: NumberRun,
    /// What the next table brings.
    new: BTreeMap<Key, Record>,
    /// Directories that are inserted: their heads, touches and entries.
    there: BTreeMap<Key, Record>,
    /// Names that are inserted, as buckets.
    names: BTreeSet<(DirId, NameHash)>,
    /// Directories that are inserted and get something with the next table.
    bases: BTreeSet<DirId>,
    /// Bytes of the next table, about.
    bytes: usize,
}

/// Bytes of a record beside what is attached, about.
const RECORD: usize = 200;

impl Tree {
    /// Below this directory, in which there is nothing.
    pub fn new(dir: &Statement, numbers: NumberRun, now: Timestamp) -> Tree {
        let part = Part::whole(dir.id);
        let head = Head {
            generation: dir.generation,
            ino: dir.ino,
            birth: Birth {
                parent: dir.parent,
                name: dir.name.clone(),
                version: 0,
            },
            parent: dir.parent,
            parent_generation: dir.parent_generation,
            name: dir.name.clone(),
            realm: dir.realm,
            salt: dir.salt,
            split: 0,
            seal: 0,
            listed: false,
        };
        let touch = Touch {
            stat: DirStat::born(now),
            explicit: false,
        };
        Tree {
            root: dir.id,
            slot: part.slot(),
            numbers,
            new: BTreeMap::new(),
            there: BTreeMap::from([
                (Key::Head(part), Record::Head(head)),
                (Key::Touch(part), Record::Touch(touch)),
            ]),
            names: BTreeSet::new(),
            bases: BTreeSet::new(),
            bytes: 0,
        }
    }

    /// Numbers that are left.
    pub fn numbers(&self) -> u64 {
        self.numbers.left()
    }

    /// Other numbers, in the place of those that are left.
    pub fn renumber(&mut self, numbers: NumberRun) {
        self.numbers = numbers;
    }

    /// Whether it is time to insert what there is.
    pub fn is_full(&self, bytes: usize, records: usize, bases: usize) -> bool {
        self.bytes >= bytes || self.new.len() >= records || self.bases.len() >= bases
    }

    /// Whether there is nothing to insert.
    pub fn is_empty(&self) -> bool {
        self.new.is_empty()
    }

    /// Carries out an operation. EBUSY: it concerns what is inserted already, which is the server's. ENOTSUP:
    /// it is none that is done here.
    pub fn carry_out(&mut self, op: &Op, here: &Here<'_>) -> Outcome {
        check(op)?;
        self.check_names(op, here)?;
        let number = self.numbers.next;
        let creates = op.creates_in().is_some();
        if creates && self.numbers.left() == 0 {
            return Err(Errno::Busy);
        }
        let (ino, generation) = self.numbers.number(self.slot, number);
        let decision = self.decide(op, here, (ino, generation))?;
        if decision.outcome.is_ok() {
            self.apply(decision.mutations)?;
            self.numbers.next += u64::from(creates);
        }
        decision.outcome
    }

    fn decide(
        &self,
        op: &Op,
        here: &Here<'_>,
        (ino, generation): (Ino, Generation),
    ) -> Result<Decision, Errno> {
        let inputs = Inputs {
            parts: [0, 0],
            division: pando_types::Division::Whole,
            cred: here.cred,
            session: None,
            keeper: None,
            now: here.now,
            widths: here.map.widths(),
            ids: Ids::Placed,
            inline_limit: here.map.inline_limit,
            block_size: here.map.block_size,
            fresh: Some(Fresh {
                ino,
                generation,
                salt: here.salt,
                floor: 0,
                placed: Some(DirId::placed(generation, self.slot)),
            }),
            walked: None,
            private: &|_, _| true,
        };
        let mut snapshot = Snapshot::default();
        loop {
            match run(op, &inputs, &snapshot) {
                Step::Need(wants) => {
                    for want in wants {
                        let found = self.read(&want);
                        snapshot.add(want, found);
                    }
                }
                Step::Done(decision) => return Ok(decision),
                Step::UseCoordinator
                | Step::Walk { .. }
                | Step::Localised
                | Step::Elsewhere { .. }
                | Step::Busy => return Err(Errno::Unsupported),
            }
        }
    }

    fn read(&self, want: &LockWant) -> Vec<(Key, Record)> {
        match want {
            LockWant::Key(key, _) => {
                let found = self.new.get(key).or_else(|| self.there.get(key));
                found
                    .map(|record| (key.clone(), record.clone()))
                    .into_iter()
                    .collect()
            }
            LockWant::Bucket(part, hash, _) => {
                let of =
                    |key: &Key| matches!(key, Key::Entry { part: p, hash: h, .. } if (p, h) == (part, hash));
                let Ok(first) = Name::new(b"\x01") else {
                    return Vec::new();
                };
                let first = Key::Entry {
                    part: *part,
                    hash: *hash,
                    name: first,
                };
                let from = (Bound::Included(first), Bound::Unbounded);
                let both = self.new.range(from.clone()).take_while(|(key, _)| of(key));
                let both = both.chain(self.there.range(from).take_while(|(key, _)| of(key)));
                both.map(|(key, record)| (key.clone(), record.clone())).collect()
            }
            LockWant::Attachments(Key::Entry { part, hash, name }) => {
                use pando_format::AttachmentKind::{Data, Target, Xattrs};
                let key = |kind| Key::Attachment {
                    part: *part,
                    hash: *hash,
                    name: name.clone(),
                    kind,
                };
                let kinds = [Data, Target, Xattrs].map(key).into_iter();
                kinds
                    .filter_map(|key| Some((key.clone(), self.new.get(&key)?.clone())))
                    .collect()
            }
            LockWant::Attachments(_) => Vec::new(),
        }
    }

    /// What is inserted is known as far as there is something of its name.
    fn check_names(&self, op: &Op, here: &Here<'_>) -> Result<(), Errno> {
        for subject in op.subjects().into_iter().flatten() {
            let dir = subject.dir();
            if let Some(name) = subject.name()
                && self
                    .names
                    .contains(&(dir.id, here.map.widths().name(dir.salt, name)))
            {
                return Err(Errno::Busy);
            }
        }
        Ok(())
    }

    fn apply(&mut self, mutations: Vec<Mutation>) -> Result<(), Errno> {
        for m in &mutations {
            let known = match m {
                Mutation::Touch { .. } => continue,
                Mutation::Insert { key, .. } | Mutation::Update { key, .. } | Mutation::Delete { key } => key,
            };
            if self.there.contains_key(known) {
                return Err(Errno::Busy);
            }
            let kind = matches!(
                known,
                Key::Entry { .. } | Key::Attachment { .. } | Key::Head(_) | Key::Touch(_)
            );
            if !kind {
                return Err(Errno::Unsupported);
            }
        }
        for m in mutations {
            match m {
                Mutation::Touch { part, delta } => {
                    let key = Key::Touch(part);
                    if let Some(Record::Touch(touch)) = self.new.get_mut(&key) {
                        touch.apply(&delta);
                    } else if let Some(Record::Touch(touch)) = self.there.get_mut(&key) {
                        touch.apply(&delta);
                        self.bases.insert(part.dir);
                    }
                }
                Mutation::Insert { key, record } | Mutation::Update { key, record } => {
                    self.bytes += RECORD;
                    if let Record::Attachment(bytes) = &record {
                        self.bytes += bytes.0.len();
                    }
                    self.new.insert(key, record);
                }
                Mutation::Delete { key } => {
                    self.new.remove(&key);
                }
            }
        }
        Ok(())
    }

    /// What there is to insert, as a table.
    pub fn pack(&self) -> Packed {
        let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(self.new.len());
        for (key, record) in &self.new {
            let key = key.encode();
            let record = record.encode(&key);
            rows.push((key, record));
        }
        rows.sort_unstable();
        let bytes = Bundle::of(rows).0;
        let sum = table_sum(&bytes);
        Packed { bytes, sum }
    }

    /// It is inserted. Directories are kept in mind, of everything else that there is a name.
    pub fn inserted(&mut self) {
        for (key, record) in std::mem::take(&mut self.new) {
            match (&key, &record) {
                (Key::Head(_) | Key::Touch(_), _)
                | (
                    Key::Entry { .. },
                    Record::Entry(Entry {
                        target: Target::Dir(_),
                        ..
                    }),
                ) => {
                    self.there.insert(key, record);
                }
                (Key::Entry { part, hash, .. }, _) => {
                    self.names.insert((part.dir, *hash));
                }
                _ => {}
            }
        }
        self.bases.clear();
        self.bytes = 0;
    }

    /// A directory in which nothing more will be made need not be kept in mind.
    pub fn is_done(&mut self, dir: DirId) {
        if dir == self.root {
            return;
        }
        let from = (dir, NameHash(0))..=(dir, NameHash::MAX);
        let gone: Vec<_> = self.names.range(from).copied().collect();
        for name in gone {
            self.names.remove(&name);
        }
    }
}

/// Whether an operation is one that is done here: those that look and make, and changes of what is new.
fn check(op: &Op) -> Result<(), Errno> {
    match op {
        Op::Lookup { .. }
        | Op::DirStat { .. }
        | Op::ReadLink { .. }
        | Op::Symlink { .. }
        | Op::Mknod { .. }
        | Op::Mkdir { .. }
        | Op::Rmdir { .. }
        | Op::Unlink { .. }
        | Op::Create { .. }
        | Op::SetAttr { .. } => Ok(()),
        Op::Publish { content, .. } => match content {
            pando_wire::Content::None | pando_wire::Content::Inline(_) => Ok(()),
            pando_wire::Content::Blocks(_) | pando_wire::Content::Sparse { .. } => Err(Errno::Unsupported),
        },
        Op::Reopen { .. }
        | Op::Open { .. }
        | Op::ReadDir { .. }
        | Op::GetXattr { .. }
        | Op::ListXattr { .. }
        | Op::Home { .. }
        | Op::StatFs
        | Op::Sync
        | Op::Tmpfile { .. }
        | Op::UnlinkMany { .. }
        | Op::SetXattr { .. }
        | Op::SetAcl { .. }
        | Op::RemoveXattr { .. }
        | Op::Accessed { .. }
        | Op::Rename { .. }
        | Op::Link { .. }
        | Op::Release { .. }
        | Op::Bulk { .. } => Err(Errno::Unsupported),
    }
}
