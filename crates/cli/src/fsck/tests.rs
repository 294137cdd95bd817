//! A small filesystem in records, broken in every way the checker knows, one at a time.

use super::check::Checker;
use super::finding::{Kind, Subject};
use pando_cluster::{ClusterMap, Placement, ServerInfo};
use pando_format::codec::Blob;
use pando_format::{
    AccessRecord, AttachmentKind, CounterRecord, Entry, GarbageRecord, Head, InodeRecord, Key, Layout, Line,
    LinkRecord, Marks, PreparedRecord, Record, Superblock, Target, Touch,
};
use pando_types::{
    Birth, BootEpoch, DirId, DirStat, FileKind, FsId, Generation, Ids, Ino, MapEpoch, Name, Part, Perm,
    Realm, ServerId, Slot, Term, Timestamp, TxId,
};
use std::collections::BTreeMap;
use std::rc::Rc;

const TIME: Timestamp = Timestamp { secs: 1, nanos: 0 };

pub(super) mod lines;
mod lists;
pub(super) mod parts;

pub(super) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

pub(crate) fn map() -> ClusterMap {
    let servers: Vec<ServerInfo> = (0..3)
        .map(|id| ServerInfo {
            id: ServerId(id),
            address: format!("s{id}:1"),
            metrics: String::new(),
        })
        .collect();
    ClusterMap {
        fs: FsId(7),
        epoch: MapEpoch(1),
        slots: ClusterMap::spread(&servers),
        servers,
        term: Term(1),
        keeper: ServerId(0),
        coordinator: ServerId(0),
        inline_limit: 65536,
        block_size: 4 << 20,
        blocks: "file:blocks".into(),
        name_bits: 55,
        id_bits: 128,
        auth: pando_types::AuthMode::None,
        coherence: pando_cluster::Coherence::Lazy,
        placement: Placement::Directory,
        ids: pando_types::Ids::Predicted,
        updates: pando_cluster::DirectoryUpdates::ParentFirst,
        plan: pando_cluster::Plan::default(),
    }
}

/// Records in key order, with the server that holds them.
pub(super) struct Tree {
    pub(super) map: Rc<ClusterMap>,
    pub(super) records: BTreeMap<Vec<u8>, (ServerId, Key, Record)>,
    next: u64,
}

impl Tree {
    /// `/`, `/d`, `/d/e`, `/f` with inline data, `/d/g` in blocks, `/l` a long symlink, `/d/s` a short one.
    pub(super) fn new() -> Tree {
        Tree::with(Ids::Predicted)
    }

    /// The same, where directories get their IDs so.
    pub(super) fn with(ids: Ids) -> Tree {
        Tree::on(ClusterMap { ids, ..map() })
    }

    /// The same in a filesystem of this map.
    pub(super) fn on(map: ClusterMap) -> Tree {
        let mut t = Tree {
            map: Rc::new(map),
            records: BTreeMap::new(),
            next: 2,
        };
        for server in 0..3 {
            let superblock = Superblock {
                format: 1,
                fs: FsId(7),
                server: ServerId(server),
                boot: BootEpoch(1),
                name_bits: 55,
                id_bits: 128,
                clean: true,
            };
            // One key, three stores: kept under keys of their own.
            let key = vec![0xFF, 0xFF, server as u8];
            t.records.insert(
                key,
                (ServerId(server), Key::Superblock, Record::Superblock(superblock)),
            );
        }
        t.directory(DirId::ABOVE_ROOT, "root");
        let d = t.directory(DirId::ROOT, "d");
        t.directory(d, "e");
        t.file(DirId::ROOT, "f", Layout::Inline, 5);
        t.attach(DirId::ROOT, "f", AttachmentKind::Data, 5);
        t.file(d, "g", Layout::Blocks(4 << 20), 5 << 20);
        t.link(DirId::ROOT, "l", Layout::LongTarget, 300);
        t.attach(DirId::ROOT, "l", AttachmentKind::Target, 300);
        t.link(d, "s", Layout::Target(Blob(b"../f".to_vec())), 4);
        t
    }

    pub(super) fn put(&mut self, key: Key, record: Record) {
        let server = self.map.owner(key.slot());
        self.records.insert(key.encode(), (server, key, record));
    }

    pub(super) fn salt(&self, dir: DirId) -> u64 {
        match self.records.get(&Key::Head(dir.into()).encode()) {
            Some((_, _, Record::Head(h))) => h.salt,
            _ => 0,
        }
    }

    pub(super) fn key(&self, dir: DirId, text: &str) -> Key {
        let hash = self.map.widths().name(self.salt(dir), &name(text));
        Key::Entry {
            part: self.part_with(dir, hash),
            hash,
            name: name(text),
        }
    }

    pub(super) fn touch(&mut self, dir: DirId, f: impl Fn(&mut DirStat)) {
        if let Some((_, _, Record::Touch(t))) = self.records.get_mut(&Key::Touch(dir.into()).encode()) {
            f(&mut t.stat);
        }
    }

    pub(super) fn number(&mut self, dir: DirId) -> (Ino, Generation) {
        let slot = Part::whole(dir).slot();
        let n = self.next;
        self.next += 1;
        self.put(
            Key::Counter(slot),
            Record::Counter(CounterRecord {
                reserved: 1000,
                epoch: 1,
            }),
        );
        (Ino::new(slot, n), Generation::new(1, slot, n))
    }

    pub(super) fn add(&mut self, dir: DirId, text: &str, target: Target) {
        let subdir = u64::from(matches!(target, Target::Dir(_)));
        let key = self.key(dir, text);
        let entry = Entry { ordinal: 5, target };
        if self.map.placement == Placement::Entry && dir != DirId::ABOVE_ROOT {
            let line = key.line().expect("an entry's key");
            self.put(line, Record::Line(Line::of(&entry)));
        }
        self.put(key, Record::Entry(entry));
        self.touch(dir, |s| {
            s.entries += 1;
            s.subdirs += subdir;
        });
    }

    pub(super) fn generation(&self, dir: DirId) -> Generation {
        match self.records.get(&Key::Head(dir.into()).encode()) {
            Some((_, _, Record::Head(h))) => h.generation,
            _ => Generation::ABOVE_ROOT,
        }
    }

    pub(super) fn directory(&mut self, parent: DirId, text: &str) -> DirId {
        let birth = Birth {
            parent,
            name: name(text),
            version: 0,
        };
        let root = parent == DirId::ABOVE_ROOT;
        let (ino, generation) = if root {
            (Ino::ROOT, Generation::ROOT)
        } else {
            self.number(parent)
        };
        let id = match self.map.ids {
            _ if root => DirId::ROOT,
            Ids::Predicted => self.map.widths().dir_id(&birth),
            Ids::Placed => DirId::placed(generation, Slot((generation.0 % 4096) as u16)),
        };
        let (salt, realm) = (id.0 as u64 ^ 99, Realm(0));
        let access = AccessRecord {
            id,
            generation,
            ino,
            perm: Perm::new(0o755),
            uid: 0,
            gid: 0,
            ctime: TIME,
            realm,
            salt,
            version: 0,
            marks: Marks::NONE,
            seal: 0,
            acls: Default::default(),
        };
        self.add(parent, text, Target::Dir(access));
        let head = Head {
            generation,
            ino,
            birth,
            parent,
            parent_generation: self.generation(parent),
            name: name(text),
            realm,
            salt,
            split: 0,
            seal: 0,
            listed: false,
        };
        self.put(Key::Head(id.into()), Record::Head(head));
        self.put(Key::Touch(id.into()), Record::Touch(Touch::default()));
        id
    }

    pub(super) fn inode(&mut self, dir: DirId, kind: FileKind, layout: Layout, size: u64) -> Target {
        let (ino, generation) = self.number(dir);
        Target::Inode(InodeRecord {
            ino,
            generation,
            kind,
            perm: Perm::new(0o644),
            uid: 0,
            gid: 0,
            nlink: 1,
            size,
            rdev: 0,
            atime: TIME,
            mtime: TIME,
            ctime: TIME,
            layout,
            marks: Marks::NONE,
            version: 0,
            acl: None,
        })
    }

    pub(super) fn file(&mut self, dir: DirId, text: &str, layout: Layout, size: u64) {
        let inode = self.inode(dir, FileKind::Regular, layout, size);
        self.add(dir, text, inode);
    }

    pub(super) fn link(&mut self, dir: DirId, text: &str, layout: Layout, size: u64) {
        let inode = self.inode(dir, FileKind::Symlink, layout, size);
        self.add(dir, text, inode);
    }

    pub(super) fn attach(&mut self, dir: DirId, text: &str, kind: AttachmentKind, len: usize) {
        if let Key::Entry { part, hash, name } = self.key(dir, text) {
            let key = Key::Attachment {
                part,
                hash,
                name,
                kind,
            };
            self.put(key, Record::Attachment(Blob(vec![b'x'; len])));
        }
    }

    pub(super) fn remove(&mut self, key: &Key) -> (ServerId, Key, Record) {
        self.records.remove(&key.encode()).expect("present")
    }

    pub(super) fn change(&mut self, key: &Key, mut f: impl FnMut(&mut Record)) {
        f(&mut self.records.get_mut(&key.encode()).expect("present").2);
    }

    pub(super) fn change_head(&mut self, dir: DirId, f: impl Fn(&mut Head)) {
        self.change(&Key::Head(dir.into()), |r| {
            if let Record::Head(h) = r {
                f(h);
            }
        });
    }

    pub(super) fn change_entry(&mut self, dir: DirId, text: &str, f: impl Fn(&mut Entry)) {
        let key = self.key(dir, text);
        self.change(&key, |r| {
            if let Record::Entry(e) = r {
                f(e);
            }
        });
    }

    pub(super) fn d(&self) -> DirId {
        self.id_of("d", DirId::ROOT)
    }

    pub(super) fn id_of(&self, text: &str, parent: DirId) -> DirId {
        let key = self.key(parent, text);
        if let Some((_, _, Record::Entry(entry))) = self.records.get(&key.encode())
            && let Target::Dir(access) = &entry.target
        {
            return access.id;
        }
        let birth = Birth {
            parent,
            name: name(text),
            version: 0,
        };
        self.map.widths().dir_id(&birth)
    }

    pub(super) fn checker(&self) -> Checker {
        let mut checker = Checker::new(self.map.clone());
        for (_, key, record) in self.records.values() {
            if let Key::Head(part) = key {
                checker.head(*part, record);
            }
        }
        for (server, key, record) in self.records.values() {
            checker.feed(*server, key, record);
        }
        checker
    }

    pub(super) fn found(&self) -> Vec<(Kind, Subject)> {
        let mut found: Vec<_> = self.checker().finish().iter().map(|f| f.identity()).collect();
        found.sort();
        found
    }

    pub(super) fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = self.found().into_iter().map(|(k, _)| k).collect();
        kinds.dedup();
        kinds
    }
}

#[test]
fn a_sound_tree_is_clean() {
    let tree = Tree::new();
    assert_eq!(tree.found(), []);
    let mut checker = tree.checker();
    checker.finish();
    let counts = checker.counts();
    assert_eq!((counts.directories, counts.files, counts.block_files), (3, 4, 1));
    assert_eq!(counts.bytes, (5 << 20) + 5);
}

#[test]
fn halves_of_directories() {
    let mut t = Tree::new();
    let d = t.d();
    let e = t.id_of("e", d);
    t.remove(&Key::Head(e.into()));
    assert_eq!(t.found(), [(Kind::NoContent, Subject::Dir(e))]);

    let mut t = Tree::new();
    t.remove(&Key::Touch(e.into()));
    assert_eq!(t.found(), [(Kind::NoTouch, Subject::Dir(e))]);

    let mut t = Tree::new();
    let key = t.key(d, "e");
    t.remove(&key);
    t.touch(d, |s| {
        s.entries -= 1;
        s.subdirs -= 1;
    });
    assert_eq!(t.found(), [(Kind::NoName, Subject::Dir(e))]);

    // The head of a directory with entries is gone, and its name too.
    let mut t = Tree::new();
    let key = t.key(DirId::ROOT, "d");
    t.remove(&Key::Head(d.into()));
    t.remove(&key);
    t.touch(DirId::ROOT, |s| {
        s.entries -= 1;
        s.subdirs -= 1;
    });
    assert_eq!(
        t.found(),
        [(Kind::NoHead, Subject::Dir(d)), (Kind::NoParent, Subject::Dir(e))]
    );

    let changes: [fn(&mut Head); 5] = [
        |h| h.generation = Generation(77),
        |h| h.ino = Ino::ROOT,
        |h| h.name = name("other"),
        |h| h.realm = Realm(3),
        |h| h.parent_generation = Generation(77),
    ];
    for change in changes {
        let mut t = Tree::new();
        t.change_head(e, change);
        assert_eq!(t.found(), [(Kind::Halves, Subject::Dir(e))]);
    }
    let mut t = Tree::new();
    t.change_head(e, |h| h.parent = DirId::ROOT);
    assert_eq!(t.found(), [(Kind::Halves, Subject::Dir(e))]);
    let mut t = Tree::new();
    t.change_head(e, |h| h.birth.version = 9);
    assert_eq!(t.found(), [(Kind::Birth, Subject::Dir(e))]);
}

#[test]
fn two_names_of_one_directory() {
    let mut t = Tree::new();
    let (d, e) = (t.d(), t.id_of("e", t.d()));
    let key = t.key(d, "e");
    let Some((_, _, Record::Entry(entry))) = t.records.get(&key.encode()).cloned() else {
        panic!("no entry");
    };
    t.add(DirId::ROOT, "again", entry.target);
    let kinds = t.kinds();
    assert!(
        kinds.contains(&Kind::TwoNames) && kinds.contains(&Kind::Number),
        "{kinds:?}"
    );
    assert!(t.found().contains(&(Kind::TwoNames, Subject::Dir(e))));
    // Both places are looked at again.
    let all = t.checker().finish();
    let finding = all.iter().find(|f| f.kind == Kind::TwoNames);
    assert_eq!(finding.map(|f| f.places.len()), Some(2));
}

#[test]
fn counts() {
    for f in [|s: &mut DirStat| s.entries += 1, |s: &mut DirStat| s.subdirs -= 1] {
        let mut t = Tree::new();
        let d = t.d();
        t.touch(d, f);
        assert_eq!(t.found(), [(Kind::Counts, Subject::Dir(d))]);
    }
    // Counts that change while they are compared prove nothing.
    let mut t = Tree::new();
    let d = t.d();
    let mut checker = t.checker();
    t.touch(d, |s| s.entries += 1);
    let (server, key, record) = t.remove(&Key::Touch(d.into()));
    checker.feed(server, &key, &record);
    let kinds: Vec<Kind> = checker.finish().iter().map(|f| f.kind).collect();
    assert_eq!(kinds, [Kind::Moving]);
}

#[test]
fn the_way_up() {
    let mut t = Tree::new();
    let d = t.d();
    let e = t.id_of("e", d);
    // d below its own child: nothing leads into either.
    let (_, _, access) = t.remove(&t.key(DirId::ROOT, "d"));
    t.touch(DirId::ROOT, |s| {
        s.entries -= 1;
        s.subdirs -= 1;
    });
    let Record::Entry(access) = access else {
        panic!("no entry")
    };
    let generation = t.generation(e);
    t.add(e, "d", access.target);
    t.change_head(d, |h| {
        h.parent = e;
        h.parent_generation = generation;
        h.listed = true;
    });
    t.put(
        Key::RenameList {
            parent: DirId::ROOT,
            name: name("d"),
        },
        Record::RenameList([0].into_iter().collect()),
    );
    assert_eq!(t.found(), {
        let mut both = [(Kind::Loop, Subject::Dir(d)), (Kind::Loop, Subject::Dir(e))];
        both.sort();
        both
    });
    let mut t = Tree::new();
    t.remove(&Key::Head(DirId::ROOT.into()));
    let kinds = t.kinds();
    assert!(
        kinds.contains(&Kind::NoContent) && kinds.contains(&Kind::NoParent),
        "{kinds:?}"
    );
}

#[test]
fn buckets_and_positions() {
    let mut t = Tree::new();
    let d = t.d();
    let (server, _, record) = t.remove(&t.key(d, "s"));
    let Key::Entry { hash, .. } = t.key(d, "g") else {
        panic!()
    };
    let key = Key::Entry {
        part: d.into(),
        hash,
        name: name("s"),
    };
    t.records.insert(key.encode(), (server, key, record));
    // In another's bucket, and there with another's ordinal.
    assert_eq!(t.kinds(), [Kind::Hash, Kind::Position]);
}

#[test]
fn layouts() {
    let data = AttachmentKind::Data;
    let attachment = |t: &Tree, text, kind| match t.key(DirId::ROOT, text) {
        Key::Entry { part, hash, name } => Key::Attachment {
            part,
            hash,
            name,
            kind,
        },
        _ => panic!(),
    };
    let mut t = Tree::new();
    t.remove(&attachment(&t, "f", data));
    assert_eq!(t.kinds(), [Kind::Layout]);
    let mut t = Tree::new();
    t.remove(&attachment(&t, "l", AttachmentKind::Target));
    assert_eq!(t.kinds(), [Kind::Layout]);
    let mut t = Tree::new();
    t.attach(DirId::ROOT, "nobody", data, 3);
    assert_eq!(t.kinds(), [Kind::Attachment]);
    let mut t = Tree::new();
    t.attach(t.d(), "g", data, 3);
    assert_eq!(t.kinds(), [Kind::Layout]);
    let mut t = Tree::new();
    t.attach(DirId::ROOT, "f", data, 6);
    assert_eq!(t.kinds(), [Kind::Layout], "more bytes than the size");
    let xattrs = AttachmentKind::Xattrs;
    let mut t = Tree::new();
    t.attach(DirId::ROOT, "f", xattrs, 3);
    assert_eq!(t.kinds(), [Kind::Layout], "unreadable, and not spoken of");
    let mut t = Tree::new();
    t.change_entry(DirId::ROOT, "f", |e| {
        if let Target::Inode(i) = &mut e.target {
            i.marks = Marks::XATTRS;
        }
    });
    assert_eq!(t.kinds(), [Kind::Layout], "spoken of, and missing");
    let layouts = [Layout::LongTarget, Layout::Blocks(3), Layout::None];
    for layout in layouts {
        let mut t = Tree::new();
        t.change_entry(DirId::ROOT, "f", |e| {
            if let Target::Inode(i) = &mut e.target {
                i.layout = layout.clone();
            }
        });
        assert_eq!(t.kinds(), [Kind::Layout], "{layout:?}");
    }
    let mut t = Tree::new();
    t.change_entry(t.d(), "s", |e| {
        if let Target::Inode(i) = &mut e.target {
            i.size = 5;
        }
    });
    assert_eq!(t.kinds(), [Kind::Layout], "a target of another length");
}

#[test]
fn stored_bytes_of_files_with_holes() {
    let sparse = |allocated| Layout::Sparse {
        block_size: 4 << 20,
        allocated,
    };
    let cases = [
        ("g", sparse(1 << 20), 5 << 20, true),
        ("g", sparse(0), 5 << 20, true),
        ("g", sparse(6 << 20), 5 << 20, false),
        ("g", sparse(5 << 20), 5 << 20, false),
        ("g", sparse(0), 4096, false),
        ("f", Layout::SparseInline(5), 1 << 30, true),
        ("f", Layout::SparseInline(3), 1 << 30, false),
        ("f", Layout::SparseInline(5), 5, false),
    ];
    for (name, layout, size, well) in cases {
        let mut t = Tree::new();
        let dir = if name == "f" { DirId::ROOT } else { t.d() };
        t.change_entry(dir, name, |e| {
            if let Target::Inode(i) = &mut e.target {
                (i.layout, i.size) = (layout.clone(), size);
            }
        });
        let found = t.kinds();
        assert_eq!(found.is_empty(), well, "{layout:?} of {size}: {found:?}");
    }
}

#[test]
fn numbers() {
    let mut t = Tree::new();
    t.change_entry(DirId::ROOT, "f", |e| {
        if let Target::Inode(i) = &mut e.target {
            i.ino = Ino::ROOT;
        }
    });
    assert_eq!(t.found(), [(Kind::Number, Subject::Ino(Ino::ROOT))]);

    let mut t = Tree::new();
    let slot = Part::whole(t.d()).slot();
    let used = CounterRecord {
        reserved: 3,
        epoch: 1,
    };
    t.put(Key::Counter(slot), Record::Counter(used));
    assert_eq!(t.kinds(), [Kind::Counter]);
}

/// `/d/g` gets a second name, `/n`, as a server would have it.
pub(super) fn with_two_names() -> (Tree, Key) {
    let mut t = Tree::new();
    let d = t.d();
    let (_, _, record) = t.remove(&t.key(d, "g"));
    let Record::Entry(Entry {
        target: Target::Inode(mut inode),
        ..
    }) = record
    else {
        panic!("a file");
    };
    t.touch(d, |s| s.entries -= 1);
    inode.nlink = 2;
    let link = Target::Link(LinkRecord {
        slot: Part::whole(d).slot(),
        ino: inode.ino,
        generation: inode.generation,
        kind: inode.kind,
    });
    let (homes, text) = (
        DirId::homes(Part::whole(d).slot()),
        Name::home(inode.ino, inode.generation),
    );
    t.add(d, "g", link.clone());
    t.add(DirId::ROOT, "n", link);
    let text = text.to_string();
    t.add(homes, &text, Target::Inode(inode));
    let key = t.key(homes, &text);
    (t, key)
}

#[test]
fn names_of_a_file_at_home() {
    let (t, _) = with_two_names();
    assert_eq!(t.found(), []);
    // It counts another number of names than it has.
    let (mut t, home) = with_two_names();
    t.change(&home, |r| match r {
        Record::Entry(Entry {
            target: Target::Inode(i),
            ..
        }) => i.nlink = 3,
        _ => panic!("a file"),
    });
    assert_eq!(t.kinds(), [Kind::Links]);
    let all = t.checker().finish();
    // Its names and its home are looked at again.
    assert_eq!(all[0].places.len(), 3, "{all:?}");
    // While it may have been changed since the look began, that is no problem yet.
    let mut checker = t.checker();
    checker.began = Some(TIME);
    assert_eq!(
        checker.finish().iter().map(|f| f.kind).collect::<Vec<_>>(),
        [Kind::Moving]
    );
    // One of its names is gone, and nobody told it.
    let (mut t, _) = with_two_names();
    t.remove(&t.key(DirId::ROOT, "n"));
    t.touch(DirId::ROOT, |s| s.entries -= 1);
    assert_eq!(t.kinds(), [Kind::Links]);
    // It is gone, and its names are not.
    let (mut t, home) = with_two_names();
    t.remove(&home);
    assert_eq!(t.kinds(), [Kind::Links]);
    // One that is open without a name is noted.
    let nameless = || {
        let (mut t, home) = with_two_names();
        let mut note = None;
        t.change(&home, |r| match r {
            Record::Entry(Entry {
                target: Target::Inode(i),
                ..
            }) => {
                i.nlink = 0;
                note = Some((i.ino, i.generation));
            }
            _ => panic!("a file"),
        });
        for (dir, name) in [(DirId::ROOT, "n"), (t.d(), "g")] {
            t.remove(&t.key(dir, name));
            t.touch(dir, |s| s.entries -= 1);
        }
        let (ino, generation) = note.expect("a file");
        let note = Key::Orphan(Part::whole(t.d()).slot(), ino, generation);
        t.put(note.clone(), Record::Orphan);
        (t, home, note)
    };
    let (t, ..) = nameless();
    assert_eq!(t.found(), []);
    assert_eq!(t.checker().counts().open_without_name, 1);
    // Nothing says that it goes when it is closed, or it has gone and that is not known.
    let (mut t, _, note) = nameless();
    t.remove(&note);
    assert_eq!(t.kinds(), [Kind::Links]);
    let (mut t, home, _) = nameless();
    t.remove(&home);
    assert_eq!(t.kinds(), [Kind::Links]);
    // A file under its name that counts several.
    let mut t = Tree::new();
    t.change_entry(DirId::ROOT, "f", |e| {
        if let Target::Inode(i) = &mut e.target {
            i.nlink = 2;
        }
    });
    assert_eq!(t.kinds(), [Kind::Links]);
}

#[test]
fn wrong_servers_and_kinds() {
    let mut t = Tree::new();
    let d = t.d();
    let server = t.map.owner(Part::whole(d).slot());
    let other = ServerId((server.0 + 1) % 3);
    let mut stray = t.checker();
    let (_, key, record) = t.remove(&Key::Head(d.into()));
    stray.feed(other, &key, &record);
    let found: Vec<_> = stray.finish().iter().map(|f| f.identity()).collect();
    assert_eq!(
        found,
        [(Kind::Foreign, Subject::Slot(other, Part::whole(d).slot()))]
    );

    let mut misfit = Tree::new().checker();
    misfit.feed(server, &Key::Touch(d.into()), &record);
    assert_eq!(misfit.finish().first().map(|f| f.kind), Some(Kind::Misfit));

    let mut t = Tree::new();
    let (_, _, record) = t.records.get_mut(&vec![0xFF, 0xFF, 2]).expect("present");
    if let Record::Superblock(s) = record {
        s.server = ServerId(1);
    }
    assert_eq!(t.kinds(), [Kind::Superblock]);
}

#[test]
fn transactions_and_garbage_are_counted() {
    let mut t = Tree::new();
    let tx = TxId {
        coordinator: ServerId(1),
        boot: BootEpoch(3),
        number: 9,
    };
    let prepared = PreparedRecord {
        mutations: Vec::new(),
        reply: None,
    };
    t.put(Key::Prepared(Slot(5), tx), Record::Prepared(prepared));
    let garbage = GarbageRecord {
        size: 10,
        block_size: 4096,
        holder: None,
    };
    t.put(
        Key::Garbage(Slot(6), Ino::new(Slot(6), 1), Generation(7)),
        Record::Garbage(garbage),
    );
    let mut checker = t.checker();
    assert_eq!(checker.finish(), []);
    assert_eq!(checker.pending().len(), 1);
    let counts = checker.counts();
    assert_eq!((counts.garbage, counts.garbage_bytes), (1, 10));
}
