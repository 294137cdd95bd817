//! A table as a client makes it, and every way in which one can lie.

use super::*;
use pando_format::codec::Blob;
use pando_types::{DirStat, SessionId};

const SLOT: Slot = Slot(77);
const WIDTHS: HashWidths = HashWidths::FULL;
const NOW: Timestamp = Timestamp { secs: 1000, nanos: 0 };
const NUMBERS: NumberRun = NumberRun {
    epoch: 1,
    next: 100,
    end: 200,
};

fn root() -> DirId {
    DirId::placed(Generation::new(1, SLOT, 7), SLOT)
}

fn base() -> Base {
    Base {
        generation: Generation::new(1, SLOT, 7),
        salt: 5,
        gid: None,
        realm: Realm(0),
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn id(n: u64) -> (Ino, Generation) {
    NUMBERS.number(SLOT, n)
}

fn dir(n: u64) -> DirId {
    DirId::placed(id(n).1, SLOT)
}

fn place(of: DirId, salt: u64, text: &str) -> Key {
    Key::Entry {
        part: of.into(),
        hash: WIDTHS.name(salt, &name(text)),
        name: name(text),
    }
}

fn inode(n: u64, kind: FileKind, size: u64, layout: Layout) -> InodeRecord {
    let (ino, generation) = id(n);
    let bits = if kind == FileKind::Symlink { 0o777 } else { 0o640 };
    InodeRecord {
        ino,
        generation,
        kind,
        perm: Perm::new(bits),
        uid: 10,
        gid: 20,
        nlink: 1,
        size,
        rdev: 0,
        atime: NOW,
        mtime: NOW,
        ctime: NOW,
        layout,
        marks: Marks::NONE,
        version: 1,
        acl: None,
    }
}

fn entry(target: Target) -> Record {
    Record::Entry(Entry { ordinal: 0, target })
}

fn access(n: u64) -> AccessRecord {
    let (ino, generation) = id(n);
    AccessRecord {
        id: dir(n),
        generation,
        ino,
        perm: Perm::new(0o755),
        uid: 10,
        gid: 20,
        ctime: NOW,
        realm: Realm(0),
        salt: 9,
        version: 0,
        marks: Marks::NONE,
        seal: 0,
        acls: Acls::default(),
    }
}

fn head(n: u64, (parent, parent_generation): (DirId, Generation), text: &str) -> Head {
    let (ino, generation) = id(n);
    Head {
        generation,
        ino,
        birth: Birth {
            parent,
            name: name(text),
            version: 0,
        },
        parent,
        parent_generation,
        name: name(text),
        realm: Realm(0),
        salt: 9,
        split: 0,
        seal: 0,
        listed: false,
    }
}

fn touch(entries: u64, subdirs: u64) -> Record {
    let stat = DirStat {
        entries,
        subdirs,
        ..DirStat::born(NOW)
    };
    Record::Touch(Touch { stat, explicit: true })
}

/// A directory `sub` with a file, and beside it a file with bytes, two symlinks and a FIFO.
fn table() -> BTreeMap<Key, Record> {
    let file = |n, size, layout| entry(Target::Inode(inode(n, FileKind::Regular, size, layout)));
    let attached = |text, kind, bytes: usize| {
        let Key::Entry { part, hash, name } = place(root(), 5, text) else {
            unreachable!("an entry's key");
        };
        let key = Key::Attachment {
            part,
            hash,
            name,
            kind,
        };
        (key, Record::Attachment(Blob(vec![b'x'; bytes])))
    };
    let symlink = |n, size, layout| entry(Target::Inode(inode(n, FileKind::Symlink, size, layout)));
    let short = Layout::Target(Blob(b"there".to_vec()));
    BTreeMap::from([
        (place(root(), 5, "sub"), entry(Target::Dir(access(100)))),
        (
            Key::Head(dir(100).into()),
            Record::Head(head(100, (root(), base().generation), "sub")),
        ),
        (Key::Touch(dir(100).into()), touch(1, 0)),
        (place(dir(100), 9, "empty"), file(101, 0, Layout::None)),
        (place(root(), 5, "full"), file(102, 3, Layout::Inline)),
        attached("full", AttachmentKind::Data, 3),
        (place(root(), 5, "short"), symlink(103, 5, short)),
        (place(root(), 5, "long"), symlink(104, 300, Layout::LongTarget)),
        attached("long", AttachmentKind::Target, 300),
        (
            place(root(), 5, "fifo"),
            entry(Target::Inode(inode(105, FileKind::Fifo, 0, Layout::None))),
        ),
    ])
}

fn judged_by(cred: &Cred, base: Base, table: &BTreeMap<Key, Record>) -> Result<Sound, Bad> {
    let mut raw: Vec<(Vec<u8>, Vec<u8>)> = table
        .iter()
        .map(|(key, record)| (key.encode(), record.encode(&key.encode())))
        .collect();
    raw.sort();
    let mut rows = Vec::new();
    for (n, (key, value)) in raw.iter().enumerate() {
        let before = n.checked_sub(1).map(|n| raw[n].0.as_slice());
        rows.push(row((key, value), before, SLOT)?);
    }
    let bases = BTreeMap::from([(root(), base)]);
    let rules = Rules {
        slot: SLOT,
        cred,
        widths: WIDTHS,
        inline_limit: 1000,
        numbers: NUMBERS,
        now: NOW,
        bases: &bases,
    };
    let mut validation = Validation::new(&rules, &rows)?;
    rows.iter()
        .try_for_each(|(key, record)| validation.row(key, record))?;
    validation.finish(&rows)
}

fn judged(table: &BTreeMap<Key, Record>) -> Result<Sound, Bad> {
    let cred = Cred {
        uid: 10,
        gid: 20,
        groups: Vec::new(),
    };
    judged_by(&cred, base(), table)
}

/// The table, with one record changed.
fn with(key: Key, change: impl FnOnce(&mut Record)) -> BTreeMap<Key, Record> {
    let mut table = table();
    change(table.get_mut(&key).expect("a record of the table"));
    table
}

fn with_inode(text: &str, change: impl FnOnce(&mut InodeRecord)) -> Result<Sound, Bad> {
    judged(&with(place(root(), 5, text), |record| match record {
        Record::Entry(Entry {
            target: Target::Inode(inode),
            ..
        }) => change(inode),
        other => panic!("{other:?}"),
    }))
}

fn with_access(change: impl FnOnce(&mut AccessRecord)) -> BTreeMap<Key, Record> {
    with(place(root(), 5, "sub"), |record| match record {
        Record::Entry(Entry {
            target: Target::Dir(access),
            ..
        }) => change(access),
        other => panic!("{other:?}"),
    })
}

fn with_head(change: impl FnOnce(&mut Head)) -> Result<Sound, Bad> {
    judged(&with(Key::Head(dir(100).into()), |record| match record {
        Record::Head(head) => change(head),
        other => panic!("{other:?}"),
    }))
}

#[test]
fn a_table_as_it_should_be_is_sound() {
    let sound = judged(&table()).expect("sound");
    assert_eq!((sound.entries, sound.next), (6, 106));
    let places = &sound.places[&root()];
    assert_eq!(places.len(), 5);
    assert_eq!(places.iter().filter(|p| p.is_dir).count(), 1);
    let empty = judged(&BTreeMap::new()).expect("nothing is wrong with nothing");
    assert_eq!((empty.entries, empty.next), (0, NUMBERS.next));
}

#[test]
fn what_is_made_belongs_to_its_caller() {
    let rights = Err(Bad::Rights);
    assert_eq!(with_inode("full", |i| i.uid = 0), rights);
    assert_eq!(with_inode("full", |i| i.gid = 0), rights);
    assert_eq!(with_inode("full", |i| i.perm = Perm::new(0o4755)), rights);
    assert_eq!(with_inode("full", |i| i.perm = Perm::new(0o2755)), rights);
    assert_eq!(with_inode("short", |i| i.perm = Perm::new(0o644)), rights);
    assert_eq!(judged(&with_access(|d| d.uid = 0)), rights);
    assert_eq!(judged(&with_access(|d| d.gid = 0)), rights);
    assert_eq!(judged(&with_access(|d| d.perm = Perm::new(0o4755))), rights);
    assert_eq!(judged(&with_access(|d| d.perm = Perm::new(0o2755))), rights);
}

#[test]
fn a_directory_with_the_set_gid_bit_hands_its_group_down() {
    let cred = Cred {
        uid: 10,
        gid: 20,
        groups: Vec::new(),
    };
    let given = Base {
        gid: Some(33),
        ..base()
    };
    assert_eq!(judged_by(&cred, given, &table()), Err(Bad::Rights));
    let mut table = table();
    for (key, record) in &mut table {
        if let (Key::Entry { part, .. }, Record::Entry(entry)) = (key, record) {
            match &mut entry.target {
                // A directory may have lost the bit, and then what is in it has the caller's group.
                Target::Dir(d) => (d.gid, d.perm) = (33, Perm::new(0o755)),
                Target::Inode(i) if part.dir == root() => i.gid = 33,
                Target::Inode(_) | Target::Link(_) => {}
            }
        }
    }
    assert!(judged_by(&cred, given, &table).is_ok());
    for record in table.values_mut() {
        if let Record::Entry(Entry {
            target: Target::Dir(d),
            ..
        }) = record
        {
            d.perm = Perm::new(0o2755);
        }
    }
    assert_eq!(judged_by(&cred, given, &table), Err(Bad::Rights));
}

#[test]
fn objects_are_what_create_makes() {
    let object = Err(Bad::Object);
    assert_eq!(with_inode("full", |i| i.nlink = 2), object);
    assert_eq!(with_inode("full", |i| i.rdev = 5), object);
    assert_eq!(with_inode("full", |i| i.version = u64::MAX), object);
    assert_eq!(with_inode("full", |i| i.layout = Layout::Blocks(4096)), object);
    assert_eq!(with_inode("full", |i| i.kind = FileKind::CharDevice), object);
    assert_eq!(with_inode("fifo", |i| i.kind = FileKind::BlockDevice), object);
    assert_eq!(with_inode("fifo", |i| i.size = 1), object);
    assert_eq!(with_inode("short", |i| i.size = 4), object);
    assert_eq!(with_inode("full", |i| i.size = 1001), object);
    let nul = |i: &mut InodeRecord| i.layout = Layout::Target(Blob(b"th\0re".to_vec()));
    assert_eq!(with_inode("short", nul), object);
    assert_eq!(judged(&with_access(|d| d.seal = 1)), object);
    let listed = pando_types::Acl {
        owner: 7,
        ..pando_types::Acl::default()
    };
    assert_eq!(judged(&with_access(|d| d.acls.default = Some(listed))), object);
    let mut linked = table();
    let link = pando_format::LinkRecord {
        slot: SLOT,
        ino: id(150).0,
        generation: id(150).1,
        kind: FileKind::Regular,
    };
    linked.insert(place(root(), 5, "link"), entry(Target::Link(link)));
    assert_eq!(judged(&linked), object);
}

#[test]
fn numbers_are_those_that_were_given() {
    let number = Err(Bad::Number);
    for n in [99, 200, 101] {
        assert_eq!(
            with_inode("full", |i| (i.ino, i.generation) = id(n)),
            number,
            "{n}"
        );
    }
    assert_eq!(with_inode("full", |i| i.ino = id(110).0), number);
    let other = NumberRun { epoch: 2, ..NUMBERS };
    assert_eq!(
        with_inode("full", |i| i.generation = other.number(SLOT, 102).1),
        number
    );
    assert_eq!(with_head(|h| h.generation = id(111).1), number);
}

#[test]
fn bytes_are_as_many_as_is_said() {
    assert_eq!(with_inode("full", |i| i.size = 4), Err(Bad::Bytes));
    assert_eq!(with_inode("full", |i| i.layout = Layout::None), Err(Bad::Bytes));
    assert_eq!(with_inode("long", |i| i.size = 301), Err(Bad::Bytes));
    let mut without = table();
    without.retain(|key, _| !matches!(key, Key::Attachment { .. }));
    assert_eq!(judged(&without), Err(Bad::Bytes));
    let mut strange = table();
    strange.insert(
        Key::Attachment {
            part: root().into(),
            hash: WIDTHS.name(5, &name("none")),
            name: name("none"),
            kind: AttachmentKind::Xattrs,
        },
        Record::Attachment(Blob(vec![1])),
    );
    assert_eq!(judged(&strange), Err(Bad::Bytes));
}

#[test]
fn times_are_not_in_the_future() {
    let late = Timestamp { secs: 1002, nanos: 0 };
    assert_eq!(with_inode("full", |i| i.ctime = late), Err(Bad::Time));
    assert_eq!(judged(&with_access(|d| d.ctime = late)), Err(Bad::Time));
    let touched = with(Key::Touch(dir(100).into()), |record| match record {
        Record::Touch(touch) => touch.stat.ctime = late,
        other => panic!("{other:?}"),
    });
    assert_eq!(judged(&touched), Err(Bad::Time));
    assert!(
        with_inode("full", |i| i.mtime = late).is_ok(),
        "as utimens may set it"
    );
}

#[test]
fn directories_are_whole_and_below_the_localised_one() {
    assert_eq!(with_head(|h| h.salt = 8), Err(Bad::Halves));
    assert_eq!(with_head(|h| h.split = 1), Err(Bad::Halves));
    assert_eq!(with_head(|h| h.listed = true), Err(Bad::Halves));
    assert_eq!(with_head(|h| h.name = name("other")), Err(Bad::Halves));
    assert_eq!(
        judged(&with_access(|d| d.generation = id(120).1)),
        Err(Bad::Halves)
    );
    assert_eq!(judged(&with_access(|d| d.id = DirId::ROOT)), Err(Bad::Halves));
    let counts = with(Key::Touch(dir(100).into()), |record| *record = touch(2, 0));
    assert_eq!(judged(&counts), Err(Bad::Counts));
    let mut untouched = table();
    untouched.remove(&Key::Touch(dir(100).into()));
    assert_eq!(judged(&untouched), Err(Bad::Halves));
    let mut nameless = table();
    nameless.remove(&place(root(), 5, "sub"));
    assert_eq!(judged(&nameless), Err(Bad::Apart));
    let mut twice = table();
    twice.insert(place(root(), 5, "again"), entry(Target::Dir(access(100))));
    assert_eq!(judged(&twice), Err(Bad::Halves));
    let mut strange = table();
    let file = inode(130, FileKind::Regular, 0, Layout::None);
    strange.insert(place(dir(131), 9, "x"), entry(Target::Inode(file)));
    assert_eq!(judged(&strange), Err(Bad::Unknown));
}

#[test]
fn a_loop_of_directories_is_refused() {
    let mut table = BTreeMap::new();
    for (me, parent) in [(140, 141), (141, 140)] {
        let place_of = place(dir(parent), 9, "loop");
        table.insert(place_of, entry(Target::Dir(access(me))));
        let head = head(me, (dir(parent), id(parent).1), "loop");
        table.insert(Key::Head(dir(me).into()), Record::Head(head));
        table.insert(Key::Touch(dir(me).into()), touch(1, 1));
    }
    assert_eq!(judged(&table), Err(Bad::Apart));
}

#[test]
fn names_stand_where_their_hashes_say_each_once() {
    let mut table = table();
    let file = |n| entry(Target::Inode(inode(n, FileKind::Regular, 0, Layout::None)));
    let key = Key::Entry {
        part: root().into(),
        hash: WIDTHS.name(5, &name("one")),
        name: name("other"),
    };
    table.insert(key, file(150));
    assert_eq!(judged(&table), Err(Bad::Hash));
}

#[test]
fn rows_are_in_order_of_one_slot_and_of_their_kinds() {
    let key = Key::Touch(dir(100).into());
    let (bytes, value) = (key.encode(), touch(0, 0).encode(&key.encode()));
    assert!(row((&bytes, &value), None, SLOT).is_ok());
    assert_eq!(row((&bytes, &value), Some(&bytes), SLOT), Err(Bad::Order));
    assert_eq!(row((&bytes, &value), None, Slot(78)), Err(Bad::Slot));
    assert_eq!(row((&bytes, &value[1..]), None, SLOT), Err(Bad::Records));
    let session = Key::Reply(SLOT, SessionId(1), pando_types::RequestSlot(1));
    let at = session.encode();
    let as_touch = touch(0, 0).encode(&at);
    assert_eq!(row((&at, &as_touch), None, SLOT), Err(Bad::Kind));
    let counter = Key::Counter(SLOT).encode();
    let spent = Record::Counter(pando_format::CounterRecord {
        reserved: 1,
        epoch: 1,
    });
    assert_eq!(
        row((&counter, &spent.encode(&counter)), None, SLOT),
        Err(Bad::Kind)
    );
    assert_eq!(
        outside(&[(key, touch(0, 0))]),
        BTreeSet::from([dir(100)]),
        "who makes it is not here"
    );
}
