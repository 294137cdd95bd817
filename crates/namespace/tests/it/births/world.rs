//! A small filesystem on two servers, whose operations are the production functions: records, transactions
//! that are locked, decided, delivered late or aborted, and nothing else.

use pando_format::codec::Codec;
use pando_format::{AccessRecord, Entry, HashWidths, Head, Key, Mutation, Record, Scan, Target, Touch};
use pando_types::{Birth, DirId, DirStat, Generation, Ino, Name, Realm, plant};
use pando_wire::LockMode;
use std::collections::{BTreeMap, BTreeSet};

/// All directories have it: where names fall does not matter here.
pub const SALT: u64 = 7;
/// What is stored, encoded, so that it can be hashed.
pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// A lock: a key or bucket, encoded, on a server.
pub type Unit = (usize, Vec<u8>);

/// A transaction under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Txn {
    /// What it has locked, and whether for itself.
    pub locks: BTreeMap<Unit, LockMode>,
    /// What it changes, by server.
    pub parts: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Whether it is decided: then all of it counts, and what is left in `parts` is on its way.
    pub decided: bool,
}

/// Everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct World {
    /// What is stored.
    pub records: Records,
    /// At most as many as the model lets in.
    pub txns: Vec<Txn>,
    /// Deletes that were split off their transactions (H4): encoded keys.
    pub late: BTreeSet<Vec<u8>>,
    /// What went wrong beyond repair.
    pub broken: Option<String>,
}

/// What does not change.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Widths of hashes.
    pub widths: HashWidths,
    /// The names.
    pub names: Vec<Name>,
    /// How many of them are used below the root's first name.
    pub below: usize,
    /// Directories beside the root.
    pub most: usize,
    /// Transactions at once.
    pub at_once: usize,
}

/// Which of the two servers a key is on.
pub fn server_of(key: &Key) -> usize {
    usize::from(key.slot().0 % 2)
}

/// A record.
pub fn decode(records: &Records, key: &Key) -> Option<Record> {
    let bytes = records.get(&key.encode())?;
    Some(Record::from_bytes(bytes).expect("a record that was stored"))
}

impl World {
    /// A root and nothing in it.
    pub fn new() -> World {
        let mut world = World::default();
        let head = Head {
            generation: Generation::ROOT,
            ino: Ino::ROOT,
            birth: Birth {
                parent: DirId::ABOVE_ROOT,
                name: Name::root(),
                version: 0,
            },
            parent: DirId::ABOVE_ROOT,
            parent_generation: Generation::ABOVE_ROOT,
            name: Name::root(),
            realm: Realm(0),
            salt: SALT,
            split: 0,
            seal: 0,
            listed: false,
        };
        let touch = Touch {
            stat: DirStat::default(),
            explicit: false,
        };
        for (key, record) in [
            (Key::Head(DirId::ROOT.into()), Record::Head(head)),
            (Key::Touch(DirId::ROOT.into()), Record::Touch(touch)),
        ] {
            world.records.insert(key.encode(), record.to_bytes());
        }
        world
    }

    /// The records with everything that is decided: the only tree anybody may rely on.
    pub fn view(&self) -> Records {
        let mut whole = self.clone();
        for txn in self.txns.iter().filter(|t| t.decided) {
            for m in txn.parts.values().flatten() {
                whole.change(m);
            }
        }
        whole.records
    }

    /// Applies one mutation, encoded.
    fn change(&mut self, mutation: &[u8]) {
        match Mutation::from_bytes(mutation).expect("a mutation that was decided") {
            Mutation::Insert { key, record } => {
                if self
                    .records
                    .insert(key.encode(), canonical(record).to_bytes())
                    .is_some()
                {
                    self.broken = Some(format!("{key:?} is inserted over another"));
                }
            }
            Mutation::Update { key, record } => {
                self.records.insert(key.encode(), canonical(record).to_bytes());
            }
            Mutation::Delete { key } => {
                self.records.remove(&key.encode());
                if let Key::Head(part) = key {
                    // What the servers do with these rules taken out.
                    if plant!(H3) {
                        let lists = Scan::RenameLists(part.dir).range();
                        self.records.retain(|k, _| !lists.contains(k));
                    }
                    if plant!(H4) {
                        self.late.insert(Key::Head(part).encode());
                    }
                }
            }
            Mutation::Touch { part, delta } => match decode(&self.records, &Key::Touch(part)) {
                Some(Record::Touch(mut touch)) => {
                    touch.apply(&delta);
                    let bytes = Record::Touch(touch).to_bytes();
                    self.records.insert(Key::Touch(part).encode(), bytes);
                }
                _ => self.broken = Some(format!("a touch of {part:?}, which has none")),
            },
        }
    }

    /// Whether somebody else's lock is in the way.
    pub fn locked(&self, unit: &Unit, mode: LockMode) -> bool {
        let free = |held: &LockMode| *held == mode && mode != LockMode::Exclusive;
        self.txns
            .iter()
            .filter_map(|t| t.locks.get(unit))
            .any(|held| !free(held))
    }

    /// Directories beside the root, living or under way.
    pub fn directories(&self) -> usize {
        let of = |records: &Records| {
            let heads = |k: &&Vec<u8>| matches!(Key::decode(k), Ok(Key::Head(_)));
            records.keys().filter(heads).count() - 1
        };
        of(&self.view()) + self.txns.iter().filter(|t| !t.decided).count()
    }

    /// The coordinator decides: its own part takes effect and its locks go; the other part is on its way.
    pub fn decide(&self, which: usize) -> World {
        let mut next = self.clone();
        let mut txn = next.txns.remove(which);
        txn.decided = true;
        if let Some((server, mutations)) = txn.parts.pop_first() {
            mutations.iter().for_each(|m| next.change(m));
            txn.locks.retain(|(s, _), _| *s != server);
        }
        if !txn.parts.is_empty() {
            next.txns.push(txn);
        }
        next
    }

    /// The participant applies what it prepared.
    pub fn deliver(&self, which: usize) -> World {
        let mut next = self.clone();
        let txn = next.txns.remove(which);
        txn.parts.values().flatten().for_each(|m| next.change(m));
        next
    }

    /// A coordinator died before it decided, or somebody voted no.
    pub fn abort(&self, which: usize) -> World {
        let mut next = self.clone();
        next.txns.remove(which);
        next
    }

    /// A delete that had left its transaction arrives (H4).
    pub fn delete_late(&self, key: &[u8]) -> World {
        let mut next = self.clone();
        next.late.remove(key);
        next.records.remove(key);
        next
    }
}

/// Without what only counts changes: histories of different lengths that lead to one tree are one.
fn canonical(record: Record) -> Record {
    match record {
        Record::Entry(Entry {
            ordinal,
            target: Target::Dir(access),
        }) => Record::Entry(Entry {
            ordinal,
            target: Target::Dir(AccessRecord { version: 0, ..access }),
        }),
        record => record,
    }
}
