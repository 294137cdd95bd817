//! The tree that a server leaves on its disk.

use pando_cluster::ClusterMap;
use pando_format::{Head, Key, NameHash, Record, Target};
use pando_store::Disk;
use pando_types::{DirId, Name};
use std::collections::{BTreeMap, BTreeSet};

/// Every directory has one access record, head and touch, and as many entries as it says; every attachment
/// has an entry. No two objects have one number, each name is where its hash leads, and from each directory
/// a way leads to the root.
pub(crate) fn sound(disk: &Disk, map: &ClusterMap) {
    let shape = Shape::of(disk);
    shape.names_are_found(map);
    shape.ways_end();
    counted(disk);
}

/// How directories hang together.
#[derive(Default)]
struct Shape {
    heads: BTreeMap<DirId, Head>,
    names: Vec<(DirId, NameHash, Name)>,
}

impl Shape {
    fn of(disk: &Disk) -> Shape {
        let mut shape = Shape::default();
        let mut numbers = BTreeSet::new();
        for (key, record) in disk.dump() {
            match (key, record) {
                (Key::Head(part), Record::Head(head)) if part.start() == 0 => {
                    assert!(numbers.insert(head.ino), "{:?} twice", head.ino);
                    shape.heads.insert(part.dir, head);
                }
                (Key::Entry { part, hash, name }, Record::Entry(entry)) => {
                    if let Target::Inode(inode) = entry.target {
                        assert!(numbers.insert(inode.ino), "{:?} twice", inode.ino);
                    }
                    shape.names.push((part.dir, hash, name));
                }
                _ => {}
            }
        }
        shape
    }

    fn names_are_found(&self, map: &ClusterMap) {
        for (dir, hash, name) in &self.names {
            if let Some(head) = self.heads.get(dir) {
                assert_eq!(map.widths().name(head.salt, name), *hash, "{name:?}");
            }
        }
    }

    fn ways_end(&self) {
        for start in self.heads.keys() {
            let (mut at, mut steps) = (*start, 0);
            while let Some(head) = self.heads.get(&at).filter(|_| at != DirId::ROOT) {
                at = head.parent;
                steps += 1;
                assert!(steps <= self.heads.len(), "no way from {start} to the root");
            }
            assert_eq!(at, DirId::ROOT, "{start} is in no directory that is there");
        }
    }
}

fn counted(disk: &Disk) {
    let mut dirs: BTreeMap<DirId, [u64; 5]> = BTreeMap::new();
    let mut count = |dir: DirId, what: usize, n: u64| {
        let sum = &mut dirs.entry(dir).or_default()[what];
        *sum = sum.wrapping_add(n);
    };
    let (mut entries, mut attached) = (Vec::new(), Vec::new());
    for (key, record) in disk.dump() {
        match (key, record) {
            (Key::Entry { part, name, .. }, Record::Entry(entry)) => {
                count(part.dir, 0, 1);
                if let Target::Dir(access) = entry.target {
                    count(part.dir, 1, 1);
                    count(access.id, 2, 1);
                }
                entries.push((part, name));
            }
            (Key::Head(part), Record::Head(_)) => count(part.dir, 3, 1),
            (Key::Touch(part), Record::Touch(t)) => {
                count(part.dir, 4, 1);
                // Taken away again below, so that what is left is what differs.
                count(part.dir, 0, t.stat.entries.wrapping_neg());
                count(part.dir, 1, t.stat.subdirs.wrapping_neg());
            }
            (Key::Attachment { part, name, .. }, Record::Attachment(_)) => attached.push((part, name)),
            (key, record) => assert!(record.fits(&key), "{key:?}"),
        }
    }
    for (dir, counts) in dirs {
        // The homes of files are in no directory that counts them.
        if dir.is_homes() {
            continue;
        }
        // The place above the root has an entry and nothing else.
        let want = if dir == DirId::ABOVE_ROOT {
            [1, 1, 0, 0, 0]
        } else {
            [0, 0, 1, 1, 1]
        };
        assert_eq!(counts, want, "directory {:032x}", dir.0);
    }
    for place in attached {
        assert!(entries.contains(&place), "attached to nothing: {place:?}");
    }
}
