//! Directories that are split.

use super::*;
use pando_format::{NameHash, PartNote, PartRecord, PartsRecord};
use pando_types::Tile;

/// `/d` has forty more files and a directory `sub`, and is split so often that the parts 1024, 2048 and 3072
/// are there besides part 0.
pub(in crate::fsck) fn split() -> Tree {
    let mut t = Tree::with(Ids::Placed);
    t.map = Rc::new(ClusterMap {
        placement: Placement::Split(10),
        ..ClusterMap::clone(&t.map)
    });
    let d = t.d();
    for n in 0..40 {
        t.file(d, &format!("n{n}"), Layout::Inline, 2);
        t.attach(d, &format!("n{n}"), AttachmentKind::Data, 2);
    }
    t.directory(d, "sub");
    for (start, depth) in [(0, 0), (0, 1), (2048, 1)] {
        t.cut(d, Tile { start, depth });
    }
    t
}

pub(in crate::fsck) fn part(t: &Tree, start: u16) -> Part {
    Part::new(t.d(), start).expect("a part")
}

/// A key of `/d` as it is in another part.
pub(in crate::fsck) fn under(key: &Key, part: Part) -> Key {
    match key.clone() {
        Key::Entry { hash, name, .. } => Key::Entry { part, hash, name },
        Key::Attachment { hash, name, kind, .. } => Key::Attachment {
            part,
            hash,
            name,
            kind,
        },
        other => panic!("{other:?}"),
    }
}

impl Tree {
    /// Splits a part, as servers do, and sweeps what it left behind.
    fn cut(&mut self, dir: DirId, tile: Tile) {
        let (half, kept) = (tile.half().expect("a half"), tile.kept().expect("the rest"));
        let (from, to) = (
            Part::new(dir, tile.start).expect("a part"),
            Part::new(dir, half.start).expect("a part"),
        );
        let (mut stays, mut goes) = (DirStat::default(), DirStat::default());
        let its = |key: &Key| match key {
            Key::Entry { part, hash, .. } | Key::Attachment { part, hash, .. } if *part == from => {
                Some(*hash)
            }
            _ => None,
        };
        let all: Vec<(Key, Record)> = self
            .records
            .values()
            .filter(|(_, key, _)| its(key).is_some())
            .map(|(_, key, record)| (key.clone(), record.clone()))
            .collect();
        for (key, record) in all {
            let moves = its(&key).is_some_and(|hash: NameHash| half.has(hash.upper()));
            if let Record::Entry(entry) = &record {
                let stat = if moves { &mut goes } else { &mut stays };
                stat.entries += 1;
                stat.subdirs += u64::from(matches!(entry.target, Target::Dir(_)));
            }
            if moves {
                self.remove(&key);
                self.put(under(&key, to), record);
            }
        }
        let touch = |stat| {
            Record::Touch(Touch {
                stat,
                ..Touch::default()
            })
        };
        self.put(Key::Touch(from), touch(stays));
        self.put(Key::Touch(to), touch(goes));
        let (generation, salt) = (self.generation(dir), self.salt(dir));
        let head = |depth| {
            Record::Part(PartRecord {
                generation,
                salt,
                depth,
            })
        };
        match tile.start {
            0 => self.change_head(dir, |h| h.split = h.with_depth(kept.depth)),
            _ => self.put(Key::Head(from), head(kept.depth)),
        }
        self.put(Key::Head(to), head(half.depth));
        let mut starts = match self.records.get(&Key::Parts(dir).encode()) {
            Some((_, _, Record::Parts(parts))) => parts.starts.clone(),
            _ => Vec::new(),
        };
        starts.push(half.start);
        starts.sort_unstable();
        self.put(Key::Parts(dir), Record::Parts(PartsRecord { starts }));
    }

    /// The part of a directory that has a hash.
    pub(in crate::fsck) fn part_with(&self, dir: DirId, hash: NameHash) -> Part {
        if self.map.placement == Placement::Entry {
            return self.map.placement.division().part(dir, hash.upper());
        }
        let mut at = Tile::WHOLE;
        while let (Some(half), Some(kept)) = (at.half(), at.kept()) {
            let part = Part::new(dir, half.start).expect("a part");
            if !self.records.contains_key(&Key::Head(part).encode()) {
                break;
            }
            at = if half.has(hash.upper()) { half } else { kept };
        }
        Part::new(dir, at.start).expect("a part")
    }

    /// An entry of a part of `/d`.
    pub(in crate::fsck) fn some_entry(&self, start: u16) -> Key {
        let part = part(self, start);
        let mut all = self.records.values().map(|(_, key, _)| key);
        let of_it = |key: &&Key| match key {
            Key::Entry { part: its, name, .. } => *its == part && name.as_bytes()[0] == b'n',
            _ => false,
        };
        all.find(of_it).expect("an entry").clone()
    }

    /// What stands under an entry stands in another part too, as after a split.
    pub(in crate::fsck) fn copy_to(&mut self, entry: &Key, to: Part) {
        let Key::Entry { part, hash, name } = entry else {
            panic!("no entry");
        };
        let data = Key::Attachment {
            part: *part,
            hash: *hash,
            name: name.clone(),
            kind: AttachmentKind::Data,
        };
        for key in [entry, &data] {
            let (_, _, record) = self.records.get(&key.encode()).expect("there").clone();
            self.put(under(key, to), record);
        }
    }

    pub(in crate::fsck) fn note(&mut self, part: Part, note: PartNote) {
        self.put(Key::PartNote(part), Record::PartNote(note));
    }
}

pub(in crate::fsck) fn copy() -> PartNote {
    PartNote::Coming(TxId {
        coordinator: ServerId(0),
        boot: BootEpoch(1),
        number: 4,
    })
}

#[test]
fn a_split_directory_is_the_union_of_its_parts() {
    let t = split();
    assert_eq!(t.found(), []);
    let mut checker = t.checker();
    checker.finish();
    assert_eq!((checker.counts().directories, checker.counts().files), (4, 44));
    for start in [0, 1024, 2048, 3072] {
        t.some_entry(start);
    }
}

#[test]
fn counts_are_those_of_parts() {
    let change = |start: u16, f: fn(&mut DirStat)| {
        let mut t = split();
        let key = Key::Touch(part(&t, start));
        t.change(&key, |r| match r {
            Record::Touch(touch) => f(&mut touch.stat),
            _ => panic!("no touch"),
        });
        (t.found(), t.d(), part(&t, start))
    };
    let (found, d, _) = change(0, |s| s.entries += 1);
    assert_eq!(found, [(Kind::Counts, Subject::Dir(d))]);
    let (found, _, part_of) = change(2048, |s| s.entries -= 1);
    assert_eq!(found, [(Kind::Counts, Subject::Part(part_of))]);
    let (found, _, part_of) = change(1024, |s| s.subdirs += 1);
    assert_eq!(found, [(Kind::Counts, Subject::Part(part_of))]);
    let mut t = split();
    t.remove(&Key::Touch(part(&t, 3072)));
    assert_eq!(t.found(), [(Kind::NoTouch, Subject::Part(part(&t, 3072)))]);
    // A part that changes while it is counted, and a list that does.
    let t = split();
    let mut checker = t.checker();
    checker.feed(
        t.map.owner(part(&t, 1024).slot()),
        &Key::Touch(part(&t, 1024)),
        &Record::Touch(Touch::default()),
    );
    let parts = Record::Parts(PartsRecord { starts: vec![2048] });
    let list = Key::Parts(t.d());
    checker.feed(t.map.owner(list.slot()), &list, &parts);
    let found: Vec<_> = checker.finish().iter().map(|f| f.identity()).collect();
    assert_eq!(
        found,
        [
            (Kind::Moving, Subject::Part(part(&t, 1024))),
            (Kind::Moving, Subject::Dir(t.d()))
        ]
    );
}

#[test]
fn lists_and_heads() {
    // The list.
    let lists: [Option<&[u16]>; 3] = [None, Some(&[2048]), Some(&[1024, 2048, 2560, 3072])];
    for starts in lists {
        let mut t = split();
        let key = Key::Parts(t.d());
        match starts {
            None => drop(t.remove(&key)),
            Some(starts) => t.put(
                key,
                Record::Parts(PartsRecord {
                    starts: starts.to_vec(),
                }),
            ),
        }
        assert_eq!(t.found(), [(Kind::PartList, Subject::Dir(t.d()))], "{starts:?}");
    }
    // Heads.
    let changes: [fn(&mut PartRecord); 2] = [|p| p.generation = Generation(7), |p| p.depth = 1];
    for change in changes {
        let mut t = split();
        let key = Key::Head(part(&t, 3072));
        t.change(&key, |r| match r {
            Record::Part(p) => change(p),
            _ => panic!("no part"),
        });
        assert_eq!(t.found(), [(Kind::Part, Subject::Dir(t.d()))]);
    }
    let mut t = split();
    t.change_head(t.d(), |h| h.split = h.with_depth(0));
    // What part 1024 has is no part 0's, whatever that one says.
    assert_eq!(t.found(), [(Kind::Part, Subject::Dir(t.d()))]);
    let mut t = split();
    t.remove(&Key::Head(part(&t, 1024)));
    let found = t.found();
    for wrong in [
        (Kind::Part, Subject::Dir(t.d())),
        (Kind::PartList, Subject::Dir(t.d())),
        (Kind::LeftBehind, Subject::Part(part(&t, 1024))),
    ] {
        assert!(found.contains(&wrong), "{found:?}");
    }
}

#[test]
fn what_is_left_behind_is_noted() {
    // Of what was given away: it is no entry, and its note says so.
    for (start, from) in [(0, 3072), (0, 1024), (2048, 3072)] {
        let mut t = split();
        let entry = t.some_entry(from);
        let left = part(&t, start);
        t.copy_to(&entry, left);
        assert_eq!(t.found(), [(Kind::LeftBehind, Subject::Part(left))]);
        t.note(left, PartNote::Debris);
        assert_eq!(t.found(), []);
        t.note(left, copy());
        assert_eq!(t.found(), [(Kind::LeftBehind, Subject::Part(left))]);
    }
    // Of a copy: its part is not there yet.
    let mut t = split();
    let (entry, coming) = (t.some_entry(0), part(&t, 512));
    t.copy_to(&entry, coming);
    assert_eq!(t.found(), [(Kind::LeftBehind, Subject::Part(coming))]);
    t.note(coming, copy());
    assert_eq!(t.found(), []);
    t.note(coming, PartNote::Debris);
    assert_eq!(t.found(), [(Kind::LeftBehind, Subject::Part(coming))]);
    // Notes without anything.
    let mut t = split();
    t.note(part(&t, 0), PartNote::Debris);
    t.note(part(&t, 2048), PartNote::Debris);
    t.note(part(&t, 512), copy());
    assert_eq!(t.found(), []);
    t.note(part(&t, 2048), copy());
    t.note(part(&t, 512), PartNote::Debris);
    assert_eq!(
        t.found(),
        [
            (Kind::PartNote, Subject::Part(part(&t, 512))),
            (Kind::PartNote, Subject::Part(part(&t, 2048)))
        ]
    );
}

#[test]
fn a_directory_without_its_first_head() {
    let mut t = split();
    let d = t.d();
    t.remove(&Key::Head(d.into()));
    assert!(
        t.found().contains(&(Kind::NoContent, Subject::Dir(d))),
        "{:?}",
        t.found()
    );
    // And its name is gone.
    let key = t.key(DirId::ROOT, "d");
    t.remove(&key);
    t.touch(DirId::ROOT, |s| {
        s.entries -= 1;
        s.subdirs -= 1;
    });
    let all = t.checker().finish();
    let finding = all
        .iter()
        .find(|f| f.identity() == (Kind::NoHead, Subject::Dir(d)));
    assert_eq!(finding.map(|f| f.keys.len()), Some(3), "{all:?}");
}
