//! How much of a file is stored: what a publish may say of it, and what a new size leaves.

use pando_format::codec::Blob;
use pando_format::{
    AttachmentKind, Entry, HashWidths, Head, InodeRecord, Key, KeyRange, Layout, Marks, Mutation, Record,
    Scan, Target,
};
use pando_namespace::{Inputs, Snapshot, Step, run};
use pando_types::{
    AttrChange, Birth, Cred, DirId, Errno, FileKind, Generation, Ino, Name, Perm, Realm, Timestamp,
};
use pando_wire::{Answer, Content, EntryView, Handle, LockWant, Object, Op, Said, Statement};
use std::collections::BTreeMap;

const BLOCK: u32 = 1 << 22;
const INO: Ino = Ino(9);
const GENERATION: Generation = Generation(4);
const WIDTHS: HashWidths = HashWidths {
    name_bits: 55,
    id_bits: 128,
};

/// The root, and one file in it.
struct World(BTreeMap<Key, Record>);

fn name() -> Name {
    Name::new(b"f").expect("a name")
}

fn key() -> Key {
    Key::Entry {
        part: DirId::ROOT.into(),
        hash: WIDTHS.name(0, &name()),
        name: name(),
    }
}

fn root() -> Statement {
    Statement::from(Said {
        parent: DirId::ABOVE_ROOT,
        parent_generation: Generation::ABOVE_ROOT,
        name: Name::root(),
        id: DirId::ROOT,
        generation: Generation::ROOT,
        ino: Ino::ROOT,
        salt: 0,
        perm: Perm::new(0o755),
        ..Said::above_root()
    })
}

impl World {
    fn new() -> World {
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
            salt: 0,
            split: 0,
            seal: 0,
            listed: false,
        };
        let time = Timestamp::default();
        let inode = InodeRecord {
            ino: INO,
            generation: GENERATION,
            kind: FileKind::Regular,
            perm: Perm::new(0o644),
            uid: 0,
            gid: 0,
            nlink: 1,
            size: 0,
            rdev: 0,
            atime: time,
            mtime: time,
            ctime: time,
            layout: Layout::None,
            marks: Marks::default(),
            version: 0,
            acl: None,
        };
        let entry = Entry {
            ordinal: 0,
            target: Target::Inode(inode),
        };
        World(BTreeMap::from([
            (Key::Head(DirId::ROOT.into()), Record::Head(head)),
            (key(), Record::Entry(entry)),
        ]))
    }

    fn read(&self, want: &LockWant) -> Vec<(Key, Record)> {
        let range = |range: KeyRange| {
            let all = self.0.iter().filter(|(k, _)| range.contains(&k.encode()));
            all.map(|(k, r)| (k.clone(), r.clone())).collect()
        };
        match want {
            LockWant::Key(key, _) => self
                .0
                .get(key)
                .map(|r| (key.clone(), r.clone()))
                .into_iter()
                .collect(),
            LockWant::Bucket(dir, hash, _) => range(Scan::Bucket(*dir, *hash).range()),
            LockWant::Attachments(_) => {
                let all = self.0.iter().filter(|(k, _)| matches!(k, Key::Attachment { .. }));
                all.map(|(k, r)| (k.clone(), r.clone())).collect()
            }
        }
    }

    fn run(&mut self, op: &Op) -> Result<EntryView, Errno> {
        let cred = Cred::root();
        let inputs = Inputs {
            keeper: None,
            cred: &cred,
            session: None,
            now: Timestamp::default(),
            widths: WIDTHS,
            ids: pando_types::Ids::Predicted,
            division: pando_types::Division::Whole,
            parts: [0, 0],
            inline_limit: 65_536,
            block_size: BLOCK,
            fresh: None,
            walked: None,
            private: &|_, _| false,
        };
        let mut snapshot = Snapshot::default();
        for _ in 0..10 {
            match run(op, &inputs, &snapshot) {
                Step::Need(wants) => {
                    for want in wants {
                        let records = self.read(&want);
                        snapshot.add(want, records);
                    }
                }
                Step::Done(decision) => {
                    for mutation in decision.mutations {
                        match mutation {
                            Mutation::Insert { key, record } | Mutation::Update { key, record } => {
                                self.0.insert(key, record);
                            }
                            Mutation::Delete { key } => {
                                assert!(self.0.remove(&key).is_some(), "{key:?} is not there");
                            }
                            Mutation::Touch { .. } => {}
                        }
                    }
                    return match decision.outcome? {
                        Answer::Entry(view) => Ok(view),
                        other => panic!("{other:?}"),
                    };
                }
                Step::UseCoordinator
                | Step::Walk { .. }
                | Step::Localised
                | Step::Elsewhere { .. }
                | Step::Busy => {
                    panic!("a step of a directory")
                }
            }
        }
        panic!("no end")
    }

    fn publish(&mut self, content: Content, size: u64) -> Result<Layout, Errno> {
        let view = self.run(&Op::Publish {
            object: Object {
                dir: root(),
                name: name(),
                ino: INO,
                generation: GENERATION,
            },
            handle: Handle(1),
            content,
            size,
            mtime: None,
            base: None,
        })?;
        assert_eq!(view.attr.allocated, view.layout.allocated(size));
        Ok(view.layout)
    }

    fn resize(&mut self, size: u64) -> Layout {
        let change = AttrChange {
            size: Some(size),
            ..AttrChange::default()
        };
        let view = self.run(&Op::SetAttr {
            object: Object {
                dir: root(),
                name: name(),
                ino: INO,
                generation: GENERATION,
            },
            change,
            handle: None,
        });
        view.expect("a size").layout
    }

    fn has_data(&self) -> bool {
        let data = |k: &Key| {
            matches!(
                k,
                Key::Attachment {
                    kind: AttachmentKind::Data,
                    ..
                }
            )
        };
        self.0.keys().any(data)
    }
}

fn sparse(allocated: u64) -> Content {
    Content::Sparse {
        block_size: BLOCK,
        allocated,
    }
}

fn holes(allocated: u64) -> Layout {
    Layout::Sparse {
        block_size: BLOCK,
        allocated,
    }
}

#[test]
fn a_publish_says_what_is_stored() {
    let mut w = World::new();
    let size = 200 << 20;
    assert_eq!(w.publish(sparse(4096), size), Ok(holes(4096)));
    assert_eq!(w.publish(sparse(0), size), Ok(holes(0)));
    assert_eq!(w.publish(sparse(size), size), Ok(Layout::Blocks(BLOCK)));
    assert_eq!(
        w.publish(sparse(1), 100),
        Ok(Layout::Blocks(BLOCK)),
        "too small for holes"
    );
    // More than there is, and blocks of another size.
    let before = w.0.clone();
    assert_eq!(w.publish(sparse(size + 1), size), Err(Errno::Invalid));
    assert_eq!(w.publish(sparse(u64::MAX), size), Err(Errno::Invalid));
    for block_size in [0, 1, BLOCK / 2, u32::MAX] {
        let content = Content::Sparse {
            block_size,
            allocated: 0,
        };
        assert_eq!(w.publish(content, size), Err(Errno::Invalid), "{block_size}");
    }
    assert_eq!(w.publish(sparse(0), u64::MAX), Err(Errno::TooBig));
    assert!(w.0 == before);
}

#[test]
fn a_new_size_keeps_what_is_stored() {
    let mut w = World::new();
    w.publish(Content::Blocks(BLOCK), 10 << 20).expect("published");
    assert_eq!(w.resize(100 << 20), holes(10 << 20));
    assert_eq!(w.resize(200 << 20), holes(10 << 20));
    assert_eq!(w.resize(20 << 20), holes(10 << 20));
    // All of it may be in what is left.
    assert_eq!(w.resize(6 << 20), Layout::Blocks(BLOCK));
    assert_eq!(w.publish(sparse(0), 6 << 20), Ok(holes(0)));
    assert_eq!(w.resize(5 << 20), holes(0));
}

#[test]
fn bytes_beside_the_record() {
    let mut w = World::new();
    assert_eq!(w.resize(1 << 30), Layout::None, "nothing is stored");
    let five = || Content::Inline(Blob(b"five.".to_vec()));
    assert_eq!(w.publish(five(), 5), Ok(Layout::Inline));
    assert_eq!(w.resize(4096), Layout::Inline);
    assert_eq!(w.publish(five(), 1 << 30), Ok(Layout::SparseInline(5)));
    assert_eq!(w.publish(five(), 1 << 20), Ok(Layout::SparseInline(5)), "again");
    assert_eq!(w.resize(1 << 40), Layout::SparseInline(5));
    assert_eq!(w.resize(3), Layout::Inline);
    assert_eq!(w.resize(1 << 40), Layout::SparseInline(3));
    assert!(w.has_data());
    assert_eq!(w.publish(sparse(4096), 1 << 40), Ok(holes(4096)));
    assert!(!w.has_data());
    w.publish(five(), 1 << 20).expect("published");
    assert_eq!(w.resize(0), Layout::None);
    assert!(!w.has_data());
}
