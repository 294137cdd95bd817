//! Bulk insertion: a client that has localised a directory inserts any bytes as its table. Whatever the
//! server takes in leaves a sound tree, and what it refuses changes nothing.
//!
//! The input is a byte of flags and the bytes of a table. What no fuzzer guesses is put right where a flag
//! says so: the places of names in directories whose salt is known ([`HASHED`]), and the order of rows.

use super::server::{Run, asking};
use super::tree::sound;
use super::world::small_map;
use pando_cluster::ClusterMap;
use pando_data::{Blocks, FileKey};
use pando_format::{Key, Record, table_sum};
use pando_store::{Bundle, Disk};
use pando_types::{DirId, IdentityId, Ids, Name, Perm, RequestId, RequestSlot, Sequence, SessionId};
use pando_wire::{Answer, Bulk, Bulked, Op, Outcome, Request, Statement};
use std::collections::BTreeMap;
use std::time::Duration;

/// The table is inserted as it is.
pub(crate) const AS_IS: u8 = 0;
/// Names are put where their hashes lead.
pub(crate) const HASHED: u8 = 1;
/// And rows are sorted.
pub(crate) const PUT_RIGHT: u8 = 3;

/// Longer than a step takes: each thousand records it lets others have their turn.
const STEP: Duration = Duration::from_millis(100);

pub(crate) fn table(input: &[u8]) {
    let Some((flags, bytes)) = input.split_first() else {
        return;
    };
    let disk = Disk::new();
    let mut local = Localised::new(&disk);
    let bytes = local.put_right(*flags, bytes);
    let before = tree_of(&disk);
    let inserted = local.insert(&bytes);
    let after = tree_of(&disk);
    match inserted {
        Some(entries) => assert!(
            after.len() >= before.len() + entries as usize,
            "{entries} entries"
        ),
        None => assert!(before == after, "refused, and something has changed"),
    }
    local.run.all_answered();
    local.run.serves();
    let map = local.map.clone();
    drop(local);
    sound(&disk, &map);
    let mut again = Run::start(&disk, map.clone());
    again.serves();
    drop(again);
    sound(&disk, &map);
}

/// All records but those of requests and sessions.
fn tree_of(disk: &Disk) -> BTreeMap<Key, Record> {
    let of_asker = |key: &Key| matches!(key, Key::Reply(..) | Key::Session(_));
    disk.dump()
        .into_iter()
        .filter(|(key, _)| !of_asker(key))
        .collect()
}

/// A directory that a client has localised.
pub(crate) struct Localised {
    run: Run,
    map: ClusterMap,
    sequence: u64,
    pub(crate) dir: Statement,
    pub(crate) numbers: pando_format::NumberRun,
    file: FileKey,
}

fn placed_map() -> ClusterMap {
    ClusterMap {
        id_bits: 128,
        name_bits: 55,
        ids: Ids::Placed,
        ..small_map()
    }
}

const SESSION: fn() -> SessionId = || SessionId::of(IdentityId::ANYONE, 77);

impl Localised {
    pub(crate) fn new(disk: &Disk) -> Localised {
        let map = placed_map();
        let mut run = Run::start(disk, map.clone());
        run.ask(Request::OpenSession(SESSION()), STEP);
        let mut local = Localised {
            run,
            map,
            sequence: 0,
            dir: Statement::above_root(),
            numbers: pando_format::NumberRun {
                epoch: 0,
                next: 0,
                end: 0,
            },
            file: FileKey {
                ino: pando_types::Ino::ROOT,
                generation: pando_types::Generation::ROOT,
            },
        };
        let root = local.made(Op::Lookup {
            dir: Statement::above_root(),
            name: Name::root(),
        });
        let dir = local.made(Op::Mkdir {
            dir: root,
            name: Name::new(b"d").expect("a name"),
            mode: Perm::new(0o755).into(),
        });
        local.dir = dir;
        match local.step(Bulk::Localize) {
            Some(Ok(Answer::Bulk(Bulked::Localized {
                lease: generation,
                table: ino,
                numbers,
                ..
            }))) => {
                local.numbers = numbers;
                local.file = FileKey { ino, generation };
            }
            other => panic!("a new directory is localised: {other:?}"),
        }
        local
    }

    fn op(&mut self, op: Op) -> Option<Outcome> {
        let request = op.mutates().then(|| {
            self.sequence += 1;
            RequestId {
                session: SESSION(),
                slot: RequestSlot(0),
                sequence: Sequence(self.sequence),
            }
        });
        self.run.ask(asking(request, op), STEP)?.into_outcome()
    }

    fn made(&mut self, op: Op) -> Statement {
        match self.op(op) {
            Some(Ok(Answer::Entry(view))) => view.dir.expect("a directory"),
            other => panic!("{other:?}"),
        }
    }

    fn step(&mut self, step: Bulk) -> Option<Outcome> {
        let dir = self.dir.clone();
        self.op(Op::Bulk { dir, step })
    }

    /// Puts a table into the block store and inserts it; nothing if it is refused.
    fn insert(&mut self, bytes: &[u8]) -> Option<u64> {
        let blocks = self.run.blocks.clone();
        let (file, all) = (self.file, bytes.to_vec());
        let block = self.map.block_size as usize;
        let writes = async move {
            for (n, some) in all.chunks(block).enumerate() {
                let written = blocks.write(file, n as u64, 0, some.to_vec()).await;
                written.expect("memory takes it");
            }
        };
        pando_env::Env::spawn(&*self.run.bench, Box::pin(writes));
        self.run.bench.run();
        let insert = Bulk::Insert {
            lease: file.generation,
            batch: 0,
            bytes: bytes.len() as u32,
            sum: table_sum(bytes),
        };
        match self.step(insert)? {
            Ok(Answer::Bulk(Bulked::Inserted { entries })) => Some(entries),
            Ok(other) => panic!("an insertion is answered with {other:?}"),
            Err(_) => None,
        }
    }

    /// The table as the flags want it; what is none stays as it is.
    fn put_right(&self, flags: u8, bytes: &[u8]) -> Vec<u8> {
        let Ok(raw) = Bundle(bytes.to_vec()).raw() else {
            return bytes.to_vec();
        };
        if flags & PUT_RIGHT == AS_IS {
            return bytes.to_vec();
        }
        let mut salts = BTreeMap::from([(self.dir.id, self.dir.salt)]);
        for (key, value) in &raw {
            if let (Ok(Key::Head(part)), Ok(Record::Head(head))) =
                (Key::decode(key), Record::decode(key, value))
            {
                salts.insert(part.dir, head.salt);
            }
        }
        let mut rows: Vec<_> = raw.into_iter().map(|row| self.with_hash(row, &salts)).collect();
        if flags & PUT_RIGHT == PUT_RIGHT {
            rows.sort();
        }
        Bundle::of(rows).0
    }

    fn with_hash(
        &self,
        (key, value): (Vec<u8>, Vec<u8>),
        salts: &BTreeMap<DirId, u64>,
    ) -> (Vec<u8>, Vec<u8>) {
        let (Ok(mut there), Ok(record)) = (Key::decode(&key), Record::decode(&key, &value)) else {
            return (key, value);
        };
        if let Key::Entry { part, hash, name } | Key::Attachment { part, hash, name, .. } = &mut there
            && let Some(salt) = salts.get(&part.dir)
        {
            *hash = self.map.widths().name(*salt, name);
        }
        let key = there.encode();
        let value = record.encode(&key);
        (key, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables that fuzzing starts from are taken in.
    #[test]
    fn seeds_are_inserted() {
        for input in crate::seeds::of("table") {
            let (flags, bytes) = input.split_first().expect("flags");
            let mut local = Localised::new(&Disk::new());
            let bytes = local.put_right(*flags, bytes);
            assert!(local.insert(&bytes).is_some());
        }
    }
}
