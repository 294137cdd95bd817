//! Every damage that fsck knows, repaired or said to be beyond repair: afterwards nothing else is found.

use super::edit::{Each, Records, Source, Swept};
use super::plan::{Lost, Plan, Planner};
use super::{in_order, lost_found};
use crate::coordination::block_on;
use crate::fsck::collect::Unread;
use crate::fsck::finding::Kind;
use crate::fsck::tests::{Tree, name, with_two_names};
use pando_env::LocalFuture;
use pando_format::codec::Blob;
use pando_format::{
    AttachmentKind, CounterRecord, Entry, GarbageRecord, Key, KeyRange, Layout, Marks, Mutation,
    PreparedRecord, Record, Scan, Target,
};
use pando_server::changes_of;
use pando_types::{
    BootEpoch, DirId, FileKind, Generation, Ids, Ino, Part, Perm, Realm, ServerId, Slot, Timestamp, TxId,
};
use std::cell::RefCell;
use std::rc::Rc;

mod lines;
mod parts;

const NOW: Timestamp = Timestamp { secs: 9, nanos: 0 };

/// Records as servers would have them.
struct Stored(Rc<RefCell<Tree>>);

impl Source for Stored {
    fn read(&self, range: KeyRange) -> LocalFuture<Result<Vec<(Key, Record)>, Unread>> {
        let tree = self.0.borrow();
        let within = tree.records.range(range.start..range.end);
        let all = within.map(|(_, (_, key, record))| (key.clone(), record.clone()));
        Box::pin(std::future::ready(Ok(all.collect())))
    }

    fn sweep<'a>(&'a self, each: &'a mut Each<'_>) -> Swept<'a> {
        let tree = self.0.borrow();
        for (server, key, record) in tree.records.values() {
            each(*server, key.clone(), record.clone());
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// What came of mending a tree.
struct Mended {
    tree: Tree,
    did: Vec<String>,
    /// Kinds that are beyond repair.
    left: Vec<Kind>,
}

impl Mended {
    fn dir(&self, parent: DirId, text: &str) -> Option<DirId> {
        let key = self.tree.key(parent, text);
        match self.tree.records.get(&key.encode()) {
            Some((
                _,
                _,
                Record::Entry(Entry {
                    target: Target::Dir(d),
                    ..
                }),
            )) => Some(d.id),
            _ => None,
        }
    }

    fn names_in(&self, dir: DirId) -> usize {
        let range = Scan::Entries(dir.into()).range();
        self.tree.records.range(range.start..range.end).count()
    }
}

/// Looks and repairs as the command does.
fn mend(tree: Tree) -> Mended {
    let tree = Rc::new(RefCell::new(tree));
    let (mut did, mut left) = (Vec::new(), Vec::new());
    for _ in 0..super::PASSES {
        let findings = tree.borrow().checker().finish();
        let before = did.len();
        left.clear();
        for finding in in_order(findings.iter().collect()) {
            let map = tree.borrow().map.clone();
            let source = Stored(tree.clone());
            let mut planner = Planner {
                records: Records { source, map },
                lost: Lost::Missing,
                now: NOW,
            };
            planner.lost = block_on(lost_found(&planner.records)).expect("read");
            let mut plan = block_on(planner.plan(finding)).ok();
            if matches!(plan, Some(Plan::NeedsLostFound)) {
                tree.borrow_mut().directory(DirId::ROOT, "lost+found");
                tree.borrow_mut().change_entry(DirId::ROOT, "lost+found", |e| {
                    if let Target::Dir(access) = &mut e.target {
                        access.perm = Perm::new(0o700);
                    }
                });
                planner.lost = block_on(lost_found(&planner.records)).expect("read");
                plan = block_on(planner.plan(finding)).ok();
            }
            if let Some(Plan::NeedsFile(file, kind)) = &plan {
                let lost = tree.borrow().id_of("lost+found", DirId::ROOT);
                let (layout, size) = match kind {
                    FileKind::Symlink => (Layout::Target(Blob(super::stray::NOWHERE.to_vec())), 1),
                    _ => (Layout::None, 0),
                };
                let inode = tree.borrow_mut().inode(lost, *kind, layout, size);
                tree.borrow_mut().add(lost, &file.to_string(), inode);
                plan = block_on(planner.plan(finding)).ok();
            }
            match plan {
                Some(Plan::Repair(repairs)) => {
                    for repair in repairs {
                        let found = |key: &Key| {
                            let tree = tree.borrow();
                            tree.records.get(&key.encode()).map(|(_, _, r)| r.clone())
                        };
                        let changes = changes_of(&repair.request, found).expect("as it was found");
                        for change in changes {
                            match change {
                                Mutation::Update { key, record } => tree.borrow_mut().put(key, record),
                                Mutation::Delete { key } => drop(tree.borrow_mut().remove(&key)),
                                other => panic!("{other:?}"),
                            }
                        }
                        did.push(repair.does);
                    }
                }
                Some(Plan::Not(_)) => left.push(finding.kind),
                Some(Plan::Later(_)) => {}
                other => panic!("{finding:?}: {other:?}"),
            }
        }
        if did.len() == before {
            break;
        }
    }
    let tree = Rc::try_unwrap(tree).ok().expect("nobody else").into_inner();
    Mended { tree, did, left }
}

/// Damages a sound tree, mends it, and finds nothing any more; however directories get their IDs.
fn mended(damage: impl Fn(&mut Tree)) -> Mended {
    mended_with(Ids::Placed, &damage);
    mended_with(Ids::Predicted, damage)
}

fn mended_with(ids: Ids, damage: impl Fn(&mut Tree)) -> Mended {
    let mut tree = Tree::with(ids);
    damage(&mut tree);
    assert_ne!(tree.found(), [], "nothing was damaged");
    let mended = mend(tree);
    assert_eq!(mended.tree.found(), [], "after {:?}", mended.did);
    assert!(!mended.did.is_empty() && mended.left.is_empty());
    mended
}

/// Damages a sound tree beyond repair: that is said, and nothing is changed.
fn beyond(kind: Kind, damage: impl FnOnce(&mut Tree)) {
    let mut tree = Tree::new();
    damage(&mut tree);
    let (found, records) = (tree.found(), tree.records.clone());
    assert!(found.iter().any(|(k, _)| *k == kind), "{found:?}");
    let mended = mend(tree);
    assert!(mended.left.contains(&kind), "{:?}", mended.left);
    assert_eq!(
        mended.tree.records, records,
        "something was changed: {:?}",
        mended.did
    );
}

fn e(t: &Tree) -> DirId {
    t.id_of("e", t.d())
}

/// Takes an entry out, and out of the counts.
fn lose(t: &mut Tree, dir: DirId, text: &str, subdirs: u64) -> Record {
    let key = t.key(dir, text);
    let (_, _, record) = t.remove(&key);
    t.touch(dir, |s| {
        s.entries -= 1;
        s.subdirs -= subdirs;
    });
    record
}

fn change_inode(t: &mut Tree, dir: DirId, text: &str, f: impl Fn(&mut pando_format::InodeRecord)) {
    t.change_entry(dir, text, |e| {
        if let Target::Inode(i) = &mut e.target {
            f(i);
        }
    });
}

#[test]
fn a_sound_tree_stays_as_it_is() {
    let tree = Tree::new();
    let before = tree.records.clone();
    let mended = mend(tree);
    assert_eq!((mended.did.len(), mended.tree.records), (0, before));
}

#[test]
fn counts_are_counted() {
    mended(|t| t.touch(t.d(), |s| s.entries += 7));
    mended(|t| t.touch(t.d(), |s| s.subdirs = 0));
    let m = mended(|t| drop(t.remove(&Key::Touch(t.d().into()))));
    assert_eq!(m.did, ["counted 3 entries"]);
}

#[test]
fn a_directory_without_a_name_goes_to_lost_found() {
    let m = mended(|t| drop(lose(t, t.d(), "e", 1)));
    let lost = m.dir(DirId::ROOT, "lost+found").expect("made");
    assert_eq!(m.names_in(lost), 1);
    let there = m
        .tree
        .records
        .values()
        .find_map(|(_, key, record)| match (key, record) {
            (
                Key::Entry { part, .. },
                Record::Entry(Entry {
                    target: Target::Dir(d),
                    ..
                }),
            ) if *part == lost.into() => Some(d.clone()),
            _ => None,
        })
        .expect("there");
    assert_eq!(
        (there.id, there.perm, there.uid),
        (e(&m.tree), Perm::new(0o700), 0)
    );
    // The same of one with everything in it.
    let m = mended(|t| drop(lose(t, DirId::ROOT, "d", 1)));
    assert_eq!(m.names_in(m.tree.d()), 3);
    // The name is somebody else's by now.
    mended(|t| {
        lose(t, t.d(), "e", 1);
        let inode = t.inode(t.d(), FileKind::Regular, Layout::None, 0);
        t.add(t.d(), "e", inode);
    });
}

#[test]
fn a_lost_found_that_others_get_at_is_not_used() {
    let mut tree = Tree::new();
    tree.directory(DirId::ROOT, "lost+found");
    let d = tree.d();
    lose(&mut tree, d, "e", 1);
    let m = mend(tree);
    assert_eq!((m.did.len(), m.left), (0, vec![Kind::NoName]));
}

#[test]
fn content_comes_back_or_what_is_left_of_it_is_kept() {
    mended(|t| drop(t.remove(&Key::Head(e(t).into()))));
    let m = mended(|t| drop(t.remove(&Key::Head(t.d().into()))));
    assert_eq!(m.names_in(m.tree.d()), 3, "all that was in it");
    mended(|t| drop(t.remove(&Key::Head(DirId::ROOT.into()))));
    // Neither name nor head: what is in it has names again.
    let m = mended(|t| {
        let d = t.d();
        lose(t, DirId::ROOT, "d", 1);
        t.remove(&Key::Head(d.into()));
    });
    let lost = m.dir(DirId::ROOT, "lost+found").expect("made");
    assert_eq!(m.names_in(lost), 3);
    // Where it was born is not known.
    let m = mended(|t| {
        let (d, e) = (t.d(), e(t));
        let record = lose(t, d, "e", 1);
        let Record::Entry(entry) = record else {
            panic!("an entry")
        };
        t.add(DirId::ROOT, "elsewhere", entry.target);
        t.remove(&Key::Head(e.into()));
    });
    assert!(
        m.did.iter().any(|d| d.contains("where it was born")),
        "{:?}",
        m.did
    );
    // Only counts are left.
    mended(|t| {
        let (d, e) = (t.d(), e(t));
        lose(t, d, "e", 1);
        t.remove(&Key::Head(e.into()));
    });
}

#[test]
fn halves_agree_again() {
    mended(|t| t.change_head(e(t), |h| h.name = name("other")));
    mended(|t| t.change_head(e(t), |h| h.realm = Realm(3)));
    mended(|t| t.change_head(e(t), |h| h.parent_generation = Generation(77)));
    mended(|t| t.change_head(e(t), |h| h.parent = DirId::ROOT));
    beyond(Kind::Halves, |t| {
        t.change_head(e(t), |h| h.generation = Generation(77))
    });
    beyond(Kind::Halves, |t| t.change_head(e(t), |h| h.ino = Ino::ROOT));
    beyond(Kind::Birth, |t| t.change_head(e(t), |h| h.birth.version = 9));
}

#[test]
fn two_names_become_one() {
    let m = mended(|t| {
        let key = t.key(t.d(), "e");
        let Some((_, _, Record::Entry(entry))) = t.records.get(&key.encode()).cloned() else {
            panic!("an entry");
        };
        t.add(DirId::ROOT, "again", entry.target);
    });
    assert_eq!(m.dir(DirId::ROOT, "again"), None);
    assert!(m.dir(m.tree.d(), "e").is_some());
}

#[test]
fn rename_lists_are_right_again() {
    let moved = |listed: bool, on_list: &[u32]| {
        let damage = |t: &mut Tree| {
            let (d, e) = (t.d(), e(t));
            let record = lose(t, d, "e", 1);
            let Record::Entry(entry) = record else {
                panic!("an entry")
            };
            t.add(d, "moved", entry.target);
            t.change_head(e, |h| (h.name, h.listed) = (name("moved"), listed));
            if !on_list.is_empty() {
                let key = Key::RenameList {
                    parent: d,
                    name: name("e"),
                };
                t.put(key, Record::RenameList(on_list.iter().copied().collect()));
            }
        };
        match (listed, on_list) {
            // Sound where IDs are placed.
            (false, []) => mended_with(Ids::Predicted, damage),
            _ => mended(damage),
        }
    };
    moved(true, &[]);
    moved(false, &[]);
    moved(false, &[0]);
    let m = moved(true, &[0, 3]);
    assert!(m.dir(m.tree.d(), "moved").is_some());
    // A version of nothing, and of one that was never renamed.
    for version in [0, 5] {
        mended(|t| {
            let key = Key::RenameList {
                parent: t.d(),
                name: name("e"),
            };
            t.put(key, Record::RenameList([version].into_iter().collect()));
        });
    }
}

#[test]
fn loops_are_cut() {
    let m = mended(|t| {
        let (d, e) = (t.d(), e(t));
        let record = lose(t, DirId::ROOT, "d", 1);
        let Record::Entry(access) = record else {
            panic!("an entry")
        };
        let generation = t.generation(e);
        t.add(e, "d", access.target);
        t.change_head(d, |h| {
            h.parent = e;
            h.parent_generation = generation;
            h.listed = true;
        });
        let key = Key::RenameList {
            parent: DirId::ROOT,
            name: name("d"),
        };
        t.put(key, Record::RenameList([0].into_iter().collect()));
    });
    let lost = m.dir(DirId::ROOT, "lost+found").expect("made");
    assert_eq!(m.names_in(lost), 1);
}

#[test]
fn entries_are_where_they_are_looked_for() {
    let m = mended(|t| {
        let d = t.d();
        let (server, _, record) = t.remove(&t.key(d, "s"));
        let Key::Entry { hash, .. } = t.key(d, "g") else {
            panic!()
        };
        let name = name("s");
        let key = Key::Entry {
            part: d.into(),
            hash,
            name,
        };
        t.records.insert(key.encode(), (server, key, record));
    });
    assert_eq!(m.names_in(m.tree.d()), 3);
}

#[test]
fn layouts_fit() {
    let (data, target, xattrs) = (
        AttachmentKind::Data,
        AttachmentKind::Target,
        AttachmentKind::Xattrs,
    );
    let gone = |t: &mut Tree, text: &str, kind| {
        let Key::Entry { part, hash, name } = t.key(DirId::ROOT, text) else {
            panic!()
        };
        let key = Key::Attachment {
            part,
            hash,
            name,
            kind,
        };
        t.remove(&key);
    };
    let m = mended(|t| gone(t, "f", data));
    assert!(m.did[0].contains("zeros"), "{:?}", m.did);
    mended(|t| t.attach(DirId::ROOT, "f", data, 6));
    mended(|t| t.attach(DirId::ROOT, "nobody", data, 3));
    mended(|t| t.attach(t.d(), "g", data, 3));
    mended(|t| t.attach(t.d(), "s", target, 3));
    mended(|t| t.attach(DirId::ROOT, "f", xattrs, 3));
    mended(|t| change_inode(t, DirId::ROOT, "f", |i| i.marks = Marks::XATTRS));
    mended(|t| change_inode(t, t.d(), "s", |i| i.size = 5));
    mended(|t| change_inode(t, DirId::ROOT, "f", |i| i.layout = Layout::None));
    for (layout, size) in [(Layout::SparseInline(3), 1 << 30), (Layout::SparseInline(5), 5)] {
        mended(|t| {
            change_inode(t, DirId::ROOT, "f", |i| {
                (i.layout, i.size) = (layout.clone(), size)
            });
        });
    }
    let (block_size, allocated) = (4 << 20, 6 << 20);
    let layout = Layout::Sparse {
        block_size,
        allocated,
    };
    mended(|t| change_inode(t, t.d(), "g", |i| i.layout = layout.clone()));
    beyond(Kind::Layout, |t| gone(t, "l", target));
    beyond(Kind::Layout, |t| {
        change_inode(t, t.d(), "g", |i| i.layout = Layout::Blocks(3));
    });
    beyond(Kind::Layout, |t| {
        change_inode(t, t.d(), "g", |i| i.layout = Layout::LongTarget);
    });
}

#[test]
fn numbers_are_not_given_again() {
    let back = |t: &mut Tree| {
        let slot = Part::whole(t.d()).slot();
        let used = CounterRecord {
            reserved: 3,
            epoch: 1,
        };
        t.put(Key::Counter(slot), Record::Counter(used));
        slot
    };
    let counter = |m: &Mended| match m
        .tree
        .records
        .get(&Key::Counter(Part::whole(m.tree.d()).slot()).encode())
    {
        Some((_, _, Record::Counter(c))) => *c,
        other => panic!("{other:?}"),
    };
    let m = mended(|t| {
        back(t);
    });
    assert_eq!(counter(&m).epoch, 2);
    // What was removed had a number, too, and perhaps a later epoch.
    let m = mended(|t| {
        let slot = back(t);
        let (ino, generation) = (Ino::new(slot, 500), Generation::new(6, slot, 500));
        let garbage = GarbageRecord {
            size: 1,
            block_size: 4 << 20,
            holder: None,
        };
        t.put(Key::Garbage(slot, ino, generation), Record::Garbage(garbage));
    });
    let right = CounterRecord {
        reserved: 501,
        epoch: 7,
    };
    assert_eq!(counter(&m), right);
    beyond(Kind::Number, |t| {
        change_inode(t, DirId::ROOT, "f", |i| i.ino = Ino::ROOT)
    });
}

#[test]
fn files_count_their_names() {
    let of = |damage: &dyn Fn(&mut Tree, &Key)| {
        let (mut tree, home) = with_two_names();
        damage(&mut tree, &home);
        assert_ne!(tree.found(), []);
        let mended = mend(tree);
        assert_eq!(mended.tree.found(), [], "after {:?}", mended.did);
        mended
    };
    let set = |r: &mut Record, n: u32| match r {
        Record::Entry(Entry {
            target: Target::Inode(i),
            ..
        }) => i.nlink = n,
        _ => panic!("a file"),
    };
    of(&|t, home| t.change(home, |r| set(r, 3)));
    of(&|t, _| drop(lose(t, DirId::ROOT, "n", 0)));
    // No name is left: it gets one.
    let m = of(&|t, _| {
        lose(t, DirId::ROOT, "n", 0);
        lose(t, t.d(), "g", 0);
    });
    let lost = m.dir(DirId::ROOT, "lost+found").expect("made");
    assert_eq!(m.names_in(lost), 1);
    // It is gone: what is known of it comes back.
    let m = of(&|t, home| drop(t.remove(home)));
    assert_eq!((m.names_in(m.tree.d()), m.did.len()), (3, 1));
    assert!(m.did[0].contains("at home again"), "{:?}", m.did);
    let m = of(&|t, home| {
        let Key::Entry { part, name, .. } = home else {
            panic!()
        };
        let (part, text) = (*part, name.to_string());
        t.attach(part.dir, &text, AttachmentKind::Data, 7);
        t.remove(home);
    });
    assert_eq!(m.did.len(), 1, "{:?}", m.did);
    let home = m
        .tree
        .records
        .values()
        .find_map(|(_, key, record)| match (key, record) {
            (
                Key::Entry { part, .. },
                Record::Entry(Entry {
                    target: Target::Inode(i),
                    ..
                }),
            ) if part.dir.is_homes() => Some(i),
            _ => None,
        });
    let home = home.expect("at home");
    assert_eq!((home.size, home.nlink, &home.layout), (7, 2, &Layout::Inline));
    // It was removed: its names go.
    let m = of(&|t, home| {
        let (_, _, record) = t.remove(home);
        let Record::Entry(entry) = record else { panic!() };
        let (ino, generation) = entry.target.identity();
        let garbage = GarbageRecord {
            size: 1,
            block_size: 4 << 20,
            holder: None,
        };
        t.put(
            Key::Garbage(home.slot(), ino, generation),
            Record::Garbage(garbage),
        );
    });
    assert_eq!(m.names_in(m.tree.d()), 2);
    assert!(m.did.iter().all(|d| d.contains("of nothing")), "{:?}", m.did);
    of(&|t, _| {
        let d = t.d();
        t.change_entry(d, "g", |e| {
            if let Target::Link(l) = &mut e.target {
                l.kind = FileKind::Fifo;
            }
        });
    });
    mended(|t| change_inode(t, DirId::ROOT, "f", |i| i.nlink = 2));
}

#[test]
fn names_are_not_counted_while_one_is_prepared() {
    let (mut tree, home) = with_two_names();
    let Some((_, _, Record::Entry(file))) = tree.records.get(&home.encode()).cloned() else {
        panic!("a file");
    };
    // Its second name is prepared, and has not come.
    let key = tree.key(DirId::ROOT, "n");
    let record = lose(&mut tree, DirId::ROOT, "n", 0);
    let tx = TxId {
        coordinator: ServerId(0),
        boot: BootEpoch(1),
        number: 7,
    };
    let part = PreparedRecord {
        mutations: vec![Mutation::Insert { key, record }],
        reply: None,
    };
    tree.put(
        Key::Prepared(Part::whole(DirId::ROOT).slot(), tx),
        Record::Prepared(part),
    );
    assert_eq!(tree.kinds(), [Kind::Links]);
    let m = mend(tree);
    let now = m.tree.records.get(&home.encode()).map(|(_, _, r)| r.clone());
    assert_eq!((m.did.len(), now), (0, Some(Record::Entry(file))));
}

#[test]
fn content_of_nothing_is_kept() {
    let kinds = [AttachmentKind::Data, AttachmentKind::Target];
    for kind in kinds {
        let m = mended(|t| t.attach(DirId::ROOT, "nobody", kind, 300));
        let kept = m.tree.records.values().filter(|(_, key, record)| {
            let lost = m.dir(DirId::ROOT, "lost+found").expect("made");
            matches!((key, record), (Key::Attachment { part: dir, kind: k, .. }, Record::Attachment(b))
                if *dir == lost.into() && *k == kind && b.0.len() == 300)
        });
        assert_eq!(kept.count(), 1);
    }
    let m = mended(|t| t.attach(DirId::ROOT, "nobody", AttachmentKind::Xattrs, 3));
    assert!(m.dir(DirId::ROOT, "lost+found").is_none());
}

#[test]
fn what_nobody_knows_is_said() {
    for kind in [
        Kind::Corrupt,
        Kind::InDoubt,
        Kind::Foreign,
        Kind::Superblock,
        Kind::Misfit,
    ] {
        use crate::fsck::finding::{Finding, Subject};
        let subject = match kind {
            Kind::Corrupt => Subject::Range(ServerId(0), vec![1], vec![2]),
            Kind::InDoubt => Subject::Record(ServerId(0), vec![1]),
            _ => Subject::Slot(ServerId(0), Slot(1)),
        };
        let finding = Finding::new(kind, subject, "");
        let tree = Tree::new();
        let map = tree.map.clone();
        let planner = Planner {
            records: Records {
                source: Stored(Rc::new(RefCell::new(tree))),
                map,
            },
            lost: Lost::Missing,
            now: NOW,
        };
        assert!(
            matches!(block_on(planner.plan(&finding)), Ok(Plan::Not(_))),
            "{kind:?}"
        );
    }
}
