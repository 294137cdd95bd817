//! Directories that are split.

use super::*;
use crate::fsck::finding::Subject;
use crate::fsck::tests::parts::{copy, part, split};
use pando_format::{PartNote, PartsRecord};

/// Damages a tree with a split directory, mends it, and finds nothing any more.
fn mended(damage: impl FnOnce(&mut Tree)) -> Mended {
    let mut tree = split();
    damage(&mut tree);
    assert_ne!(tree.found(), [], "nothing was damaged");
    let mended = mend(tree);
    assert_eq!(mended.tree.found(), [], "after {:?}", mended.did);
    assert!(!mended.did.is_empty() && mended.left.is_empty());
    mended
}

/// The same, and all is as it was before.
fn restored(damage: impl FnOnce(&mut Tree)) {
    let before = split().records;
    let after = mended(damage).tree.records;
    for (key, record) in &before {
        assert_eq!(after.get(key), Some(record));
    }
    assert_eq!(after.len(), before.len());
}

fn set_list(t: &mut Tree, starts: &[u16]) {
    let starts = starts.to_vec();
    t.put(Key::Parts(t.d()), Record::Parts(PartsRecord { starts }));
}

#[test]
fn lists_are_made_anew_from_heads() {
    restored(|t| drop(t.remove(&Key::Parts(t.d()))));
    restored(|t| set_list(t, &[2048]));
    restored(|t| set_list(t, &[512, 1024, 2048, 3072]));
}

#[test]
fn heads_of_parts_are_made_right() {
    for start in [1024, 2048, 3072] {
        restored(|t| drop(t.remove(&Key::Head(part(t, start)))));
        let changes: [fn(&mut pando_format::PartRecord); 3] = [
            |p| p.generation = Generation(7),
            |p| p.salt ^= 1,
            |p| p.depth += 1,
        ];
        for change in changes {
            restored(|t| {
                let key = Key::Head(part(t, start));
                t.change(&key, |r| match r {
                    Record::Part(p) => change(p),
                    _ => panic!("no part"),
                });
            });
        }
    }
    restored(|t| t.change_head(t.d(), |h| h.split = h.with_depth(1)));
    restored(|t| t.change_head(t.d(), |h| h.split = h.with_depth(3)));
    // The list and a head are gone: by the depths of the others it must have been there.
    restored(|t| {
        t.remove(&Key::Head(part(t, 3072)));
        t.remove(&Key::Parts(t.d()));
    });
    // Counts go with a head: they are counted.
    mended(|t| {
        t.remove(&Key::Head(part(t, 2048)));
        t.remove(&Key::Touch(part(t, 2048)));
    });
    // A directory that is whole, and says it is not.
    let m = mended(|t| {
        let e = e(t);
        t.change_head(e, |h| h.split = h.with_depth(2));
    });
    assert_eq!(m.did, ["made 1 heads of its parts right"]);
}

#[test]
fn what_cannot_be_known_of_parts_is_left() {
    let mut tree = split();
    tree.remove(&Key::Parts(tree.d()));
    tree.change_head(tree.d(), |h| h.split = h.with_depth(1));
    let before = tree.records.clone();
    let d = tree.d();
    let m = mend(tree);
    assert!(m.left.contains(&Kind::Part), "{:?} {:?}", m.left, m.did);
    assert_eq!(m.tree.records, before, "{:?}", m.did);
    assert!(m.tree.found().contains(&(Kind::Part, Subject::Dir(d))));
}

#[test]
fn counts_of_parts_are_counted() {
    for start in [0, 1024, 3072] {
        restored(|t| {
            let key = Key::Touch(part(t, start));
            t.change(&key, |r| match r {
                Record::Touch(touch) => (touch.stat.entries, touch.stat.subdirs) = (99, 9),
                _ => panic!("no touch"),
            });
        });
    }
    mended(|t| drop(t.remove(&Key::Touch(part(t, 2048)))));
    // What is left behind does not count.
    mended(|t| {
        let entry = t.some_entry(3072);
        t.copy_to(&entry, part(t, 2048));
        t.note(part(t, 2048), PartNote::Debris);
        t.remove(&Key::Touch(part(t, 2048)));
    });
}

#[test]
fn what_is_left_behind_goes_or_is_kept() {
    // Where it belongs it is too.
    restored(|t| {
        for (from, to) in [(3072, 2048), (1024, 0), (0, 512)] {
            let entry = t.some_entry(from);
            t.copy_to(&entry, part(t, to));
        }
    });
    // It was removed from where it belongs, and is nowhere else.
    let m = mended(|t| {
        let entry = t.some_entry(3072);
        t.copy_to(&entry, part(t, 2048));
        let Key::Entry { part, hash, name } = entry.clone() else {
            panic!("no entry");
        };
        t.remove(&entry);
        t.remove(&Key::Attachment {
            part,
            hash,
            name,
            kind: AttachmentKind::Data,
        });
        t.change(&Key::Touch(part), |r| match r {
            Record::Touch(touch) => touch.stat.entries -= 1,
            _ => panic!("no touch"),
        });
    });
    let lost = m.dir(DirId::ROOT, "lost+found").expect("made");
    assert_eq!(m.names_in(lost), 1);
    // Counts and notes of parts that are not there.
    restored(|t| {
        let touch = Record::Touch(Default::default());
        t.put(Key::Touch(part(t, 512)), touch);
        t.note(part(t, 512), PartNote::Debris);
        t.note(part(t, 1024), copy());
    });
    // Bytes without an entry.
    let m = mended(|t| {
        let entry = t.some_entry(3072);
        t.copy_to(&entry, part(t, 2048));
        t.remove(&crate::fsck::tests::parts::under(&entry, part(t, 2048)));
    });
    assert_eq!(m.did.len(), 1, "{:?}", m.did);
}

#[test]
fn the_content_of_a_split_directory_comes_back() {
    restored(|t| drop(t.remove(&Key::Head(t.d().into()))));
    // Without its name, what is in all its parts goes to /lost+found.
    let m = mended(|t| {
        t.remove(&Key::Head(t.d().into()));
        lose(t, DirId::ROOT, "d", 1);
    });
    let lost = m.dir(DirId::ROOT, "lost+found").expect("made");
    assert_eq!(m.names_in(lost), 44);
    let left = m.tree.records.values().map(|(_, key, _)| key);
    let left: Vec<_> = left
        .filter(|key| {
            matches!(key, Key::Parts(_) | Key::PartNote(_)) || matches!(key, Key::Head(p) if p.start() != 0)
        })
        .collect();
    assert_eq!(left, Vec::<&Key>::new());
}

#[test]
fn names_in_parts() {
    // A directory whose name is gone is found where its part is.
    let m = mended(|t| {
        let d = t.d();
        let sub = t.id_of("sub", d);
        t.change_head(sub, |h| h.parent_generation = Generation(3));
    });
    assert_eq!(m.did, ["its content knows its name and its parent again"]);
    // An entry in the bucket of another name goes to its own part, and both are counted.
    mended(|t| {
        let (from, near) = (t.some_entry(3072), t.some_entry(1024));
        let (Key::Entry { name, .. }, Key::Entry { part, hash, .. }) = (&from, &near) else {
            panic!("no entries");
        };
        let (_, _, record) = t.remove(&from);
        let name = name.clone();
        t.put(
            Key::Entry {
                part: *part,
                hash: *hash,
                name: name.clone(),
            },
            record,
        );
        let Key::Entry {
            part: was, hash: old, ..
        } = from
        else {
            panic!("no entry");
        };
        let data = |part, hash| Key::Attachment {
            part,
            hash,
            name: name.clone(),
            kind: AttachmentKind::Data,
        };
        let (_, _, bytes) = t.remove(&data(was, old));
        t.put(data(*part, *hash), bytes);
        for (part, more) in [(was, -1), (*part, 1)] {
            t.change(&Key::Touch(part), |r| match r {
                Record::Touch(touch) => {
                    touch.stat.entries = touch.stat.entries.checked_add_signed(more).expect("some");
                }
                _ => panic!("no touch"),
            });
        }
    });
}
