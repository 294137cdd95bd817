//! A small filesystem on two servers, whose operations are the production functions: records, transactions that are
//! locked, decided, delivered late or aborted, and nothing else.

use pando_format::codec::Codec;
use pando_format::{AccessRecord, Entry, HashWidths, Head, Key, KeyRange, Mutation, Record, Target, Touch};
use pando_namespace::{Fresh, Inputs, Snapshot, Step, born, run};
use pando_types::{Birth, Cred, DirId, DirStat, Generation, Ino, Name, Perm, Realm, Timestamp, plant};
use pando_wire::{LockMode, LockWant, Op, RenameMode, Statement};
use std::collections::{BTreeMap, BTreeSet};

/// All directories have it: where names fall does not matter here.
const SALT: u64 = 7;
/// Rounds in which an operation must come to its end.
const ROUNDS: usize = 12;

/// What is stored, encoded, so that it can be hashed.
type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// A lock: a key or bucket, encoded, on a server.
pub type Unit = (usize, Vec<u8>);

/// A transaction under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Txn {
    /// What it has locked, and whether for itself.
    pub locks: BTreeMap<Unit, LockMode2>,
    /// What it changes, by server.
    pub parts: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Whether it is decided: then all of it counts, and what is left in `parts` is on its way.
    pub decided: bool,
}

/// [`LockMode`], hashable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockMode2 {
    /// With others of its kind.
    Shared,
    /// With others of its kind.
    Increment,
    /// Alone.
    Exclusive,
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

/// A place: a name in the root, or in the directory that is the root's first name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// In the directory of that name rather than in the root.
    pub below: bool,
    /// Which name.
    pub name: usize,
}

/// An operation.
#[derive(Clone, PartialEq, Debug)]
pub enum What {
    /// mkdir
    Mkdir(Spot),
    /// rmdir
    Rmdir(Spot),
    /// rename of a directory
    Rename(Spot, Spot, RenameMode),
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

fn server_of(key: &Key) -> usize {
    usize::from(key.slot().0 % 2)
}

fn decode(records: &Records, key: &Key) -> Option<Record> {
    let bytes = records.get(&key.encode())?;
    Some(Record::from_bytes(bytes).expect("a record that was stored"))
}

fn unit(want: &LockWant) -> Option<(Unit, LockMode)> {
    match want {
        LockWant::Key(key, mode) => Some(((server_of(key), key.encode()), *mode)),
        LockWant::Bucket(dir, hash, mode) => {
            let start = KeyRange::bucket(*dir, *hash).start;
            Some(((usize::from(dir.slot().0 % 2), start), *mode))
        }
        LockWant::Attachments(_) => None,
    }
}

fn hashable(mode: LockMode) -> LockMode2 {
    match mode {
        LockMode::Shared => LockMode2::Shared,
        LockMode::Increment => LockMode2::Increment,
        LockMode::Exclusive => LockMode2::Exclusive,
    }
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
            (Key::Head(DirId::ROOT), Record::Head(head)),
            (Key::Touch(DirId::ROOT), Record::Touch(touch)),
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
                if let Key::Head(dir) = key {
                    // What the servers do with these rules taken out.
                    if plant!(H3) {
                        let lists = KeyRange::rename_lists(dir);
                        self.records.retain(|k, _| !lists.contains(k));
                    }
                    if plant!(H4) {
                        self.late.insert(Key::Head(dir).encode());
                    }
                }
            }
            Mutation::Touch { dir, delta } => match decode(&self.records, &Key::Touch(dir)) {
                Some(Record::Touch(mut touch)) => {
                    touch.apply(&delta);
                    let bytes = Record::Touch(touch).to_bytes();
                    self.records.insert(Key::Touch(dir).encode(), bytes);
                }
                _ => self.broken = Some(format!("a touch of {dir:?}, which has none")),
            },
        }
    }

    fn locked(&self, unit: &Unit, mode: LockMode) -> bool {
        let free = |held: &LockMode2| *held == hashable(mode) && mode != LockMode::Exclusive;
        self.txns
            .iter()
            .filter_map(|t| t.locks.get(unit))
            .any(|held| !free(held))
    }

    /// The directory whose entry a spot is, as a request names it.
    fn statement(&self, setup: &Setup, spot: Spot) -> Option<Statement> {
        let root = Statement {
            parent: DirId::ABOVE_ROOT,
            parent_generation: Generation::ABOVE_ROOT,
            name: Name::root(),
            id: DirId::ROOT,
            generation: Generation::ROOT,
            ino: Ino::ROOT,
            salt: SALT,
            perm: Perm::new(0o755),
            ..Statement::above_root()
        };
        if !spot.below {
            return Some(root);
        }
        let name = setup.names[0].clone();
        let hash = setup.widths.name(SALT, &name);
        let dir = DirId::ROOT;
        let Some(Record::Entry(entry)) = decode(
            &self.records,
            &Key::Entry {
                dir,
                hash,
                name: name.clone(),
            },
        ) else {
            return None;
        };
        let Target::Dir(AccessRecord {
            id, generation, ino, ..
        }) = entry.target
        else {
            return None;
        };
        Some(Statement {
            parent: DirId::ROOT,
            parent_generation: Generation::ROOT,
            name,
            id,
            generation,
            ino,
            ..root
        })
    }

    fn op(&self, setup: &Setup, what: &What) -> Option<Op> {
        let name = |spot: &Spot| setup.names[spot.name].clone();
        // Births of births of births would have no end.
        let bounded = |s: &Statement| match decode(&self.records, &Key::Head(s.id)) {
            Some(Record::Head(head)) => s.id == DirId::ROOT || head.birth.parent == DirId::ROOT,
            _ => false,
        };
        Some(match what {
            What::Mkdir(spot) => Op::Mkdir {
                dir: self.statement(setup, *spot).filter(bounded)?,
                name: name(spot),
                perm: Perm::new(0o755),
            },
            What::Rmdir(spot) => Op::Rmdir {
                dir: self.statement(setup, *spot)?,
                name: name(spot),
            },
            What::Rename(src, dst, mode) => Op::Rename {
                src: self.statement(setup, *src)?,
                src_name: name(src),
                dst: self.statement(setup, *dst)?,
                dst_name: name(dst),
                mode: *mode,
                held: false,
            },
        })
    }

    /// The smallest number that no directory has, living or under way: histories that differ in numbers only are one.
    fn number(&self) -> u64 {
        let mut taken = BTreeSet::new();
        let mut see = |record: &Record| {
            if let Record::Head(head) = record {
                taken.insert(head.ino.0);
            }
        };
        for bytes in self.records.values() {
            see(&Record::from_bytes(bytes).expect("a record that was stored"));
        }
        for m in self.txns.iter().flat_map(|t| t.parts.values().flatten()) {
            if let Ok(Mutation::Insert { record, .. }) = Mutation::from_bytes(m) {
                see(&record);
            }
        }
        (2..).find(|n| !taken.contains(n)).unwrap_or(u64::MAX)
    }

    /// Directories beside the root, living or under way.
    pub fn directories(&self) -> usize {
        let of = |records: &Records| {
            let heads = |k: &&Vec<u8>| matches!(Key::decode(k), Ok(Key::Head(_)));
            records.keys().filter(heads).count() - 1
        };
        of(&self.view()) + self.txns.iter().filter(|t| !t.decided).count()
    }

    /// Locks, reads and decides an operation, as a server does. `None`: it must wait, or it fails, or changes nothing.
    pub fn begin(&self, setup: &Setup, what: &What) -> Option<World> {
        let op = self.op(setup, what)?;
        let cred = Cred::root();
        let mut floor = 0;
        for _ in 0..ROUNDS {
            let mut locks: BTreeMap<Unit, LockMode2> = BTreeMap::new();
            let mut take = |unit: Unit, mode: LockMode| {
                if self.locked(&unit, mode) {
                    return None;
                }
                locks.insert(unit, hashable(mode));
                Some(())
            };
            // One rename between directories at a time: the walk stays true.
            if let Op::Rename { src, dst, .. } = &op
                && src.id != dst.id
            {
                take((0, b"renames".to_vec()), LockMode::Exclusive)?;
            }
            let mut snapshot = Snapshot::default();
            let mut walked = BTreeMap::new();
            let number = self.number();
            let fresh = Fresh {
                ino: Ino(number),
                generation: Generation(number),
                salt: SALT,
                floor,
            };
            let mut decision = None;
            for _ in 0..ROUNDS {
                let inputs = Inputs {
                    cred: &cred,
                    session: None,
                    now: Timestamp::default(),
                    widths: setup.widths,
                    inline_limit: 0,
                    fresh: Some(fresh),
                    walked: Some(&walked),
                    private: &|_, _| false,
                };
                match run(&op, &inputs, &snapshot) {
                    Step::Need(wants) => {
                        for want in wants {
                            if let Some((unit, mode)) = unit(&want) {
                                take(unit, mode)?;
                            }
                            let records = self.read(&want);
                            snapshot.add(want, records);
                        }
                    }
                    Step::Walk { moved, into } => {
                        let loops = self.walk(moved, into)?;
                        walked.insert((moved, into), loops);
                    }
                    Step::UseRenameServer => return self.stuck(what),
                    Step::Done(d) => {
                        decision = Some(d);
                        break;
                    }
                }
            }
            let Some(decision) = decision else {
                return self.stuck(what);
            };
            if decision.outcome == Err(pando_types::Errno::Io) {
                return Some(World {
                    broken: Some(format!("{what:?} fails with EIO")),
                    ..self.clone()
                });
            }
            if decision.mutations.is_empty() {
                return None;
            }
            let mut parts: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
            let mut collides = false;
            for m in &decision.mutations {
                let key = m.key();
                if let Mutation::Insert {
                    record: Record::Head(head),
                    ..
                } = m
                {
                    // As a participant does before it votes: waits for the content's lock, then looks.
                    take((server_of(&key), key.encode()), LockMode::Exclusive)?;
                    if let Some(Record::Head(there)) = decode(&self.records, &key) {
                        collides |= !(plant!(H2) && there.birth == head.birth);
                    }
                }
                parts.entry(server_of(&key)).or_default().push(m.to_bytes());
            }
            if !collides {
                let mut next = self.clone();
                next.txns.push(Txn {
                    locks,
                    parts,
                    decided: false,
                });
                if setup.at_once == 1 {
                    // Nobody is there who could see the steps in between.
                    next = next.decide(0);
                    next = if next.txns.is_empty() {
                        next
                    } else {
                        next.deliver(0)
                    };
                }
                return Some(next);
            }
            floor = born(&decision.mutations)?.version + 1;
        }
        self.stuck(what)
    }

    fn stuck(&self, what: &What) -> Option<World> {
        Some(World {
            broken: Some(format!("{what:?} does not come to an end")),
            ..self.clone()
        })
    }

    fn read(&self, want: &LockWant) -> Vec<(Key, Record)> {
        match want {
            LockWant::Key(key, _) => decode(&self.records, key)
                .map(|r| (key.clone(), r))
                .into_iter()
                .collect(),
            LockWant::Bucket(dir, hash, _) => {
                let range = KeyRange::bucket(*dir, *hash);
                let keys = self.records.keys().filter(|k| range.contains(k));
                keys.filter_map(|k| {
                    let key = Key::decode(k).ok()?;
                    let record = decode(&self.records, &key)?;
                    Some((key, record))
                })
                .collect()
            }
            LockWant::Attachments(_) => Vec::new(),
        }
    }

    /// Whether `moved` is `into` or above it. `None`: a head on the way is locked.
    fn walk(&self, moved: DirId, into: DirId) -> Option<bool> {
        let mut at = into;
        while at != DirId::ROOT {
            if at == moved {
                return Some(true);
            }
            let key = Key::Head(at);
            if self.locked(&(server_of(&key), key.encode()), LockMode::Shared) {
                return None;
            }
            match decode(&self.records, &key) {
                Some(Record::Head(head)) => at = head.parent,
                _ => return None,
            }
        }
        Some(false)
    }

    /// The coordinator decides: its own part takes effect and its locks go; the other part is on its way.
    pub fn decide(&self, which: usize) -> World {
        let mut next = self.clone();
        let mut txn = next.txns.remove(which);
        txn.decided = true;
        if let Some((server, mutations)) = txn.parts.pop_first() {
            mutations.iter().for_each(|m| next.change(m));
            txn.locks
                .retain(|(s, unit), _| *s != server && unit != b"renames");
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
