//! Tables of bulk insertion made by hand, as truthful or not as a cell wants them.

use super::Arena;
use super::speaker::{Speaker, named};
use pando_data::{Blocks, FileKey};
use pando_format::{
    AccessRecord, Entry, Head, InodeRecord, Key, Layout, Marks, NumberRun, Record, Target, Touch, table_sum,
};
use pando_store::Bundle;
use pando_types::{
    Acls, Birth, Cred, DirId, DirStat, FileKind, Generation, Ino, Part, Perm, Realm, Slot, Timestamp,
};
use pando_wire::{Answer, Bulk, Bulked, Op, Statement};
use std::rc::Rc;

/// Makes and inserts tables: a speaker, acting for one user.
pub struct Maker {
    pub arena: Rc<Arena>,
    pub speaker: Rc<Speaker>,
    pub cred: Cred,
}

/// A lease of a directory.
#[derive(Clone)]
pub struct Lease {
    pub dir: Statement,
    pub lease: Generation,
    pub table: Ino,
    pub numbers: NumberRun,
}

/// A directory that a table adds to.
#[derive(Clone, Copy)]
pub struct Inside {
    pub id: DirId,
    pub generation: Generation,
    pub salt: u64,
    pub realm: Realm,
}

impl Lease {
    /// The localised directory.
    pub fn inside(&self) -> Inside {
        let d = &self.dir;
        Inside {
            id: d.id,
            generation: d.generation,
            salt: d.salt,
            realm: d.realm,
        }
    }

    fn slot(&self) -> Slot {
        Part::whole(self.dir.id).slot()
    }

    /// The number that is `n` after the first.
    pub fn id(&self, n: u64) -> (Ino, Generation) {
        self.numbers.number(self.slot(), self.numbers.next + n)
    }

    /// The directory with that number.
    pub fn made(&self, n: u64, realm: Realm) -> Inside {
        let generation = self.id(n).1;
        Inside {
            id: DirId::placed(generation, self.slot()),
            generation,
            salt: 9,
            realm,
        }
    }
}

const BORN: Timestamp = Timestamp {
    secs: 1_500_000_000,
    nanos: 0,
};

impl Maker {
    /// One step; nothing if it is refused.
    pub async fn step(&self, dir: &Statement, step: Bulk) -> Option<Bulked> {
        let dir = dir.clone();
        match self.speaker.op(&self.cred, Op::Bulk { dir, step }).await? {
            Answer::Bulk(bulked) => Some(bulked),
            _ => None,
        }
    }

    /// The lease of a directory.
    pub async fn localize(&self, dir: &Statement) -> Option<Lease> {
        match self.step(dir, Bulk::Localize).await? {
            Bulked::Localized {
                lease,
                table,
                numbers,
                ..
            } => Some(Lease {
                dir: dir.clone(),
                lease,
                table,
                numbers,
            }),
            _ => None,
        }
    }

    /// Makes a directory in `/open`.
    pub async fn mkdir(&self, name: &str) -> Option<Statement> {
        let open = self.speaker.find(&self.cred, "/open").await?;
        self.speaker.mkdir(&self.cred, &open, name, 0o777).await
    }

    /// Makes a directory in `/open` and localises it.
    pub async fn localized(&self, name: &str) -> Option<Lease> {
        self.localize(&self.mkdir(name).await?).await
    }

    /// Inserts rows by a lease, as its first batch. Success is what it gains.
    pub async fn insert(&self, by: &Lease, rows: &[(Key, Record)]) -> Option<()> {
        let bytes = packed(rows);
        self.insert_said(by, &bytes, table_sum(&bytes)).await
    }

    /// Inserts these bytes and says this of them.
    pub async fn insert_said(&self, by: &Lease, bytes: &[u8], sum: [u8; 32]) -> Option<()> {
        let file = FileKey {
            ino: by.table,
            generation: by.lease,
        };
        let block = self.arena.cluster.map().block_size as usize;
        for (n, some) in bytes.chunks(block).enumerate() {
            let blocks = &self.arena.cluster.blocks;
            blocks.write(file, n as u64, 0, some.to_vec()).await.ok()?;
        }
        let (lease, bytes) = (by.lease, bytes.len() as u32);
        let insert = Bulk::Insert {
            lease,
            batch: 0,
            bytes,
            sum,
        };
        match self.step(&by.dir, insert).await? {
            Bulked::Inserted { .. } => Some(()),
            _ => None,
        }
    }

    /// Gives a directory back.
    pub async fn give_back(&self, by: &Lease) -> Option<()> {
        let lease = by.lease;
        self.step(&by.dir, Bulk::Return { lease }).await.map(|_| ())
    }

    /// Where a name has its place.
    pub fn key(&self, dir: Inside, text: &str) -> Option<Key> {
        let name = named(text)?;
        Some(Key::Entry {
            part: dir.id.into(),
            hash: self.arena.cluster.map().widths().name(dir.salt, &name),
            name,
        })
    }

    /// An empty file of the maker's.
    pub fn file(&self, (ino, generation): (Ino, Generation)) -> InodeRecord {
        InodeRecord {
            ino,
            generation,
            kind: FileKind::Regular,
            perm: Perm::new(0o644),
            uid: self.cred.uid,
            gid: self.cred.gid,
            nlink: 1,
            size: 0,
            rdev: 0,
            atime: BORN,
            mtime: BORN,
            ctime: BORN,
            layout: Layout::None,
            marks: Marks::NONE,
            version: 1,
            acl: None,
        }
    }

    /// A row of a file.
    pub fn row(&self, dir: Inside, text: &str, file: InodeRecord) -> Option<(Key, Record)> {
        Some((self.key(dir, text)?, entry(Target::Inode(file))))
    }

    /// The rows of a directory with that number, which has so many directories in it and nothing else.
    pub fn dir(
        &self,
        by: &Lease,
        n: u64,
        (parent, text): (Inside, &str),
        subdirs: u64,
    ) -> Option<Vec<(Key, Record)>> {
        let (ino, generation) = by.id(n);
        let made = by.made(n, parent.realm);
        let access = AccessRecord {
            id: made.id,
            generation,
            ino,
            perm: Perm::new(0o755),
            uid: self.cred.uid,
            gid: self.cred.gid,
            ctime: BORN,
            realm: made.realm,
            salt: made.salt,
            version: 0,
            marks: Marks::NONE,
            seal: 0,
            acls: Acls::default(),
        };
        let name = named(text)?;
        let head = Head {
            generation,
            ino,
            birth: Birth {
                parent: parent.id,
                name: name.clone(),
                version: 0,
            },
            parent: parent.id,
            parent_generation: parent.generation,
            name,
            realm: made.realm,
            salt: made.salt,
            split: 0,
            seal: 0,
            listed: false,
        };
        let stat = DirStat {
            entries: subdirs,
            subdirs,
            ..DirStat::born(BORN)
        };
        Some(vec![
            (self.key(parent, text)?, entry(Target::Dir(access))),
            (Key::Head(made.id.into()), Record::Head(head)),
            (
                Key::Touch(made.id.into()),
                Record::Touch(Touch { stat, explicit: true }),
            ),
        ])
    }
}

fn entry(target: Target) -> Record {
    Record::Entry(Entry { ordinal: 0, target })
}

/// A table of these rows, in the order of their keys.
pub fn packed(rows: &[(Key, Record)]) -> Vec<u8> {
    let encoded = rows.iter().map(|(key, record)| {
        let key = key.encode();
        let value = record.encode(&key);
        (key, value)
    });
    let mut rows: Vec<_> = encoded.collect();
    rows.sort();
    Bundle::of(rows).0
}
