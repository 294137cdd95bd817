//! Operations of the small filesystem: the production functions, with locks, records and a decision around
//! them.

use super::world::{SALT, Setup, Txn, Unit, World, decode, server_of};
use pando_format::codec::Codec;
use pando_format::{AccessRecord, Key, Mutation, Record, Scan, Target};
use pando_namespace::{Fresh, Inputs, Snapshot, Step, born, run};
use pando_types::{Cred, DirId, Errno, Generation, Ino, Name, Perm, Timestamp, plant};
use pando_wire::{LockMode, LockWant, Op, RenameMode, Said, Statement};
use std::collections::{BTreeMap, BTreeSet};

/// Rounds in which an operation must come to its end.
const ROUNDS: usize = 12;

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
fn unit(want: &LockWant) -> Option<(Unit, LockMode)> {
    match want {
        LockWant::Key(key, mode) => Some(((server_of(key), key.encode()), *mode)),
        LockWant::Bucket(dir, hash, mode) => {
            let start = Scan::Bucket(*dir, *hash).range().start;
            Some(((usize::from(dir.slot().0 % 2), start), *mode))
        }
        LockWant::Attachments(_) => None,
    }
}

impl World {
    /// The directory whose entry a spot is, as a request names it.
    fn statement(&self, setup: &Setup, spot: Spot) -> Option<Statement> {
        let root = Statement::from(Said {
            parent: DirId::ABOVE_ROOT,
            parent_generation: Generation::ABOVE_ROOT,
            name: Name::root(),
            id: DirId::ROOT,
            generation: Generation::ROOT,
            ino: Ino::ROOT,
            salt: SALT,
            perm: Perm::new(0o755),
            ..Said::above_root()
        });
        if !spot.below {
            return Some(root);
        }
        let name = setup.names[0].clone();
        let hash = setup.widths.name(SALT, &name);
        let dir = DirId::ROOT;
        let Some(Record::Entry(entry)) = decode(
            &self.records,
            &Key::Entry {
                part: dir.into(),
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
        Some(Statement::from(Said {
            parent: DirId::ROOT,
            parent_generation: Generation::ROOT,
            name,
            id,
            generation,
            ino,
            ..Said::clone(&root)
        }))
    }

    fn op(&self, setup: &Setup, what: &What) -> Option<Op> {
        let name = |spot: &Spot| setup.names[spot.name].clone();
        // Births of births of births would have no end.
        let bounded = |s: &Statement| match decode(&self.records, &Key::Head(s.id.into())) {
            Some(Record::Head(head)) => s.id == DirId::ROOT || head.birth.parent == DirId::ROOT,
            _ => false,
        };
        Some(match what {
            What::Mkdir(spot) => Op::Mkdir {
                dir: self.statement(setup, *spot).filter(bounded)?,
                name: name(spot),
                mode: Perm::new(0o755).into(),
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

    /// The smallest number that no directory has, living or under way: histories that differ in numbers only
    /// are one.
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

    /// Locks, reads and decides an operation, as a server does. `None`: it must wait, or it fails, or changes
    /// nothing.
    pub fn begin(&self, setup: &Setup, what: &What) -> Option<World> {
        let op = self.op(setup, what)?;
        let cred = Cred::root();
        let mut floor = 0;
        for _ in 0..ROUNDS {
            let mut locks: BTreeMap<Unit, LockMode> = BTreeMap::new();
            let mut take = |unit: Unit, mode: LockMode| {
                if self.locked(&unit, mode) {
                    return None;
                }
                locks.insert(unit, mode);
                Some(())
            };
            let mut snapshot = Snapshot::default();
            let mut walked = BTreeMap::new();
            let number = self.number();
            let fresh = Fresh {
                placed: None,
                ino: Ino(number),
                generation: Generation(number),
                salt: SALT,
                floor,
            };
            let mut decision = None;
            for _ in 0..ROUNDS {
                let inputs = Inputs {
                    keeper: None,
                    cred: &cred,
                    session: None,
                    now: Timestamp::default(),
                    widths: setup.widths,
                    ids: pando_types::Ids::Predicted,
                    division: pando_types::Division::Whole,
                    parts: [0, 0],
                    inline_limit: 0,
                    block_size: 4096,
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
                        let loops = self.walk(moved.0, into.0)?;
                        walked.insert((moved, into), loops);
                    }
                    Step::UseCoordinator | Step::Localised | Step::Elsewhere { .. } | Step::Busy => {
                        return self.stuck(what);
                    }
                    Step::Done(d) => {
                        decision = Some(d);
                        break;
                    }
                }
            }
            let Some(decision) = decision else {
                return self.stuck(what);
            };
            if decision.outcome == Err(Errno::Io) {
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
                let range = Scan::Bucket(*dir, *hash).range();
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
            let key = Key::Head(at.into());
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
}
