//! What operations write: the batches that a server commits.

use super::Bench;
use anyhow::Result;
use pando_format::codec::Blob;
use pando_format::{
    AccessRecord, Batch, Entry, Head, InodeRecord, Key, Layout, Marks, Mutation, NameHash, Record,
    ReplyRecord, ReplyWrite, Target, Touch, TouchDelta,
};
use pando_types::{
    Birth, DirId, DirStat, FileKind, Generation, Ino, Name, Part, Perm, Realm, RequestSlot, Sequence,
    SessionId, Timestamp,
};

/// Bytes of an answer in a reply record: with them a batch is as long as a server's (`log_bytes_per_op` of
/// `bench mdtest`).
const CREATED: usize = 135;
const REMOVED: usize = 99;
const DIRECTORY: usize = 274;

const TIME: Timestamp = Timestamp {
    secs: 1_700_000_000,
    nanos: 5,
};

/// A directory's number as an ID that is spread like a hash.
pub(super) fn dir(n: u64) -> DirId {
    DirId(u128::from(n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835) | 2)
}

fn delta(dir: DirId, entries: i32, subdirs: i32) -> Mutation {
    Mutation::Touch {
        part: dir.into(),
        delta: TouchDelta {
            entries,
            subdirs,
            time: TIME,
        },
    }
}

pub(super) fn head(id: DirId, parent: DirId, name: &Name) -> [Mutation; 2] {
    let head = Head {
        generation: Generation(1),
        ino: Ino(1),
        birth: Birth {
            parent,
            name: name.clone(),
            version: 0,
        },
        parent,
        parent_generation: Generation(1),
        name: name.clone(),
        realm: Realm(0),
        salt: 7,
        split: 0,
        seal: 0,
        listed: false,
    };
    let touch = Touch {
        stat: DirStat::default(),
        explicit: false,
    };
    [
        Mutation::Insert {
            key: Key::Head(id.into()),
            record: Record::Head(head),
        },
        Mutation::Insert {
            key: Key::Touch(id.into()),
            record: Record::Touch(touch),
        },
    ]
}

/// Lanes of the session whose requests these are.
pub(super) const LANES: usize = 64;

impl Bench<'_> {
    fn batch(&mut self, in_dir: DirId, hash: NameHash, mutations: Vec<Mutation>, answer: usize) -> Batch {
        self.sequence += 1;
        let reply = |slot, lane| Key::Reply(slot, SessionId(1), RequestSlot(lane as u16));
        let lane = self.sequence as usize % LANES;
        let key = reply(Part::whole(in_dir).slot(), lane);
        // As a server does (`MetaServer::apply_asked`).
        if let Some(before) = self.replied[lane].replace(Part::whole(in_dir).slot())
            && before != Part::whole(in_dir).slot()
        {
            let last = self.sequence - LANES as u64;
            self.store.obsolete(&reply(before, lane), last);
        }
        let record = ReplyRecord {
            sequence: Sequence(self.sequence),
            dir: in_dir,
            hash,
            answer: Blob(vec![1; answer]),
        };
        Batch {
            mutations,
            reply: Some(ReplyWrite { key, record }),
        }
    }

    /// Three records, as a server commits them: the entry, the directory's touch, and the answer.
    pub(super) fn create(&mut self, n: u64) -> Result<Batch> {
        let (dir, hash, name) = self.place("file", n)?;
        let inode = InodeRecord {
            ino: Ino(n + 2),
            generation: Generation(n + 2),
            kind: FileKind::Regular,
            perm: Perm::new(0o644),
            uid: 1000,
            gid: 1000,
            nlink: 1,
            size: 0,
            rdev: 0,
            atime: TIME,
            mtime: TIME,
            ctime: TIME,
            layout: Layout::None,
            marks: Marks::NONE,
            version: 0,
            acl: None,
        };
        let record = Record::Entry(Entry {
            ordinal: 3,
            target: Target::Inode(inode),
        });
        let key = Key::Entry {
            part: dir.into(),
            hash,
            name,
        };
        Ok(self.batch(
            dir,
            hash,
            vec![delta(dir, 1, 0), Mutation::Insert { key, record }],
            CREATED,
        ))
    }

    pub(super) fn remove(&mut self, n: u64) -> Result<Batch> {
        let (dir, hash, name) = self.place("file", n)?;
        let key = Key::Entry {
            part: dir.into(),
            hash,
            name,
        };
        Ok(self.batch(
            dir,
            hash,
            vec![Mutation::Delete { key }, delta(dir, -1, 0)],
            REMOVED,
        ))
    }

    /// Both halves, as when they are on one server.
    pub(super) fn mkdir(&mut self, n: u64) -> Result<Batch> {
        let (parent, hash, name) = self.place("dir", n)?;
        let id = dir(n + (1 << 40));
        let access = AccessRecord {
            id,
            generation: Generation(1),
            ino: Ino(1),
            perm: Perm::new(0o755),
            uid: 1000,
            gid: 1000,
            ctime: TIME,
            realm: Realm(0),
            salt: 7,
            version: 0,
            marks: Marks::NONE,
            seal: 0,
            acls: Default::default(),
        };
        let record = Record::Entry(Entry {
            ordinal: 3,
            target: Target::Dir(access),
        });
        let [head, touch] = head(id, parent, &name);
        let key = Key::Entry {
            part: parent.into(),
            hash,
            name,
        };
        let mutations = vec![delta(parent, 1, 1), Mutation::Insert { key, record }, head, touch];
        Ok(self.batch(parent, hash, mutations, DIRECTORY))
    }
}
