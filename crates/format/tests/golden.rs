//! Every key and record as bytes, pinned. If a test here fails, stores written before cannot be read: raise
//! `FORMAT_VERSION`, say in `docs/format.md` what changed and how an old store is opened, and only then pin
//! anew.

use pando_format::codec::Blob;
use pando_format::*;
use pando_types::Part;
use pando_types::*;

#[path = "golden/pinned.rs"]
mod pinned;
#[path = "golden/properties.rs"]
mod properties;

use pinned::*;

const DIR: DirId = DirId(0x0011_2233_4455_6677_8899_AABB_CCDD_EEFF);
const SESSION: SessionId = SessionId(0xF0E0_D0C0_B0A0_9080_7060_5040_3020_1000);
const TX: TxId = TxId {
    coordinator: ServerId(3),
    boot: BootEpoch(7),
    number: 9,
};
const HASH: NameHash = NameHash(0x12_3456_789A_BCDE);
const TIME: Timestamp = Timestamp {
    secs: 1_700_000_000,
    nanos: 123_456_789,
};

/// The third quarter of the hash space begins with it.
fn part() -> Part {
    Part::new(DIR, 2048).expect("a start")
}

fn named(bytes: &[u8]) -> Name {
    Name::new(bytes).expect("a valid name")
}

fn name() -> Name {
    named(b"hello.txt")
}

fn entry_key() -> Key {
    Key::Entry {
        part: DIR.into(),
        hash: HASH,
        name: name(),
    }
}

fn reply() -> ReplyRecord {
    ReplyRecord {
        sequence: Sequence(5),
        dir: DIR,
        hash: HASH,
        answer: Blob(vec![0, 1]),
    }
}

fn inode(layout: Layout) -> InodeRecord {
    InodeRecord {
        ino: Ino::new(Slot(0x0ABC), 2),
        generation: Generation((1 << 48) | 3),
        kind: FileKind::Regular,
        perm: Perm::new(0o4644),
        uid: 1000,
        gid: 100,
        nlink: 1,
        size: 5,
        rdev: 0,
        atime: TIME,
        mtime: Timestamp {
            secs: -1,
            nanos: 999_999_999,
        },
        ctime: TIME,
        layout,
        marks: Marks::NONE,
        version: 4,
        acl: None,
    }
}

fn file(layout: Layout) -> Record {
    Record::Entry(Entry {
        ordinal: 1,
        target: Target::Inode(inode(layout)),
    })
}

fn access() -> AccessRecord {
    AccessRecord {
        id: DIR,
        generation: Generation(6),
        ino: Ino(8),
        perm: Perm::new(0o1777),
        uid: 0,
        gid: 0,
        ctime: TIME,
        realm: Realm(2),
        salt: 0x5A17,
        version: 1,
        marks: Marks::NONE,
        seal: 0,
        acls: Default::default(),
    }
}

/// One of every kind of key.
fn xattrs_key() -> Key {
    Key::Attachment {
        part: DIR.into(),
        hash: HASH,
        name: name(),
        kind: AttachmentKind::Xattrs,
    }
}

fn xattrs() -> XattrSet {
    let mut set = XattrSet::default();
    let attr = XattrName::new(b"user.author").expect("a name");
    set.set(&attr, b"me", XattrMode::Any).expect("it fits");
    set.set(&XattrName::capability(), &[0, 0, 0, 2], XattrMode::Any)
        .expect("it fits");
    set
}

/// A device that has extended attributes.
fn device() -> Record {
    let target = Target::Inode(InodeRecord {
        kind: FileKind::CharDevice,
        rdev: 0x103,
        marks: Marks::XATTRS,
        ..inode(Layout::None)
    });
    Record::Entry(Entry { ordinal: 3, target })
}

/// Both lists, with users and groups named.
fn lists() -> Acls {
    let named = |id, may| Named { id, may };
    let list = Acl {
        owner: 7,
        users: vec![named(1000, 6), named(1001, 4)],
        group: 5,
        groups: vec![named(100, 1)],
        mask: Some(6),
        other: 0,
    };
    Acls {
        access: list.split().1,
        default: Some(list),
    }
}

fn listed_dir() -> Record {
    let target = Target::Dir(AccessRecord {
        acls: lists(),
        ..access()
    });
    Record::Entry(Entry { ordinal: 0, target })
}

fn listed_file() -> Record {
    let target = Target::Inode(InodeRecord {
        acl: lists().access,
        ..inode(Layout::None)
    });
    Record::Entry(Entry { ordinal: 1, target })
}

fn keys() -> Vec<(&'static str, Key)> {
    vec![
        (
            "attachment data",
            Key::Attachment {
                part: DIR.into(),
                hash: HASH,
                name: name(),
                kind: AttachmentKind::Data,
            },
        ),
        (
            "attachment target",
            Key::Attachment {
                part: DIR.into(),
                hash: HASH,
                name: name(),
                kind: AttachmentKind::Target,
            },
        ),
        ("attachment xattrs", xattrs_key()),
        ("counter", Key::Counter(Slot(0x0ABC))),
        ("decision", Key::Decision(TX)),
        ("owed", Key::Owed(TX)),
        ("entry", entry_key()),
        (
            "garbage",
            Key::Garbage(Slot(0x0ABC), Ino(0x0ABC_0000_0000_0002), Generation(3)),
        ),
        (
            "orphan",
            Key::Orphan(Slot(0x0ABC), Ino(0x0ABC_0000_0000_0002), Generation(3)),
        ),
        ("head", Key::Head(DIR.into())),
        ("head of a part", Key::Head(part())),
        ("parts", Key::Parts(DIR)),
        ("note of a part", Key::PartNote(part())),
        ("prepared", Key::Prepared(Slot(0x0ABC), TX)),
        (
            "rename list",
            Key::RenameList {
                parent: DIR,
                name: name(),
            },
        ),
        ("reply", Key::Reply(Slot(0x0ABC), SESSION, RequestSlot(0x0102))),
        ("touch", Key::Touch(DIR.into())),
        ("superblock", Key::Superblock),
        ("session", Key::Session(SESSION)),
        (
            "invalidation",
            Key::Invalidation(Watermark(0x0000_0001_0000_0002)),
        ),
        ("identity", Key::Identity(IdentityId(7))),
        ("hand-over", Key::HandOver),
        ("local", Key::Local(DIR.into())),
        (
            "line",
            Key::Line {
                dir: DIR,
                hash: HASH,
                name: name(),
            },
        ),
    ]
}

/// One of every kind of record, every layout and every mutation among them.
fn records() -> Vec<(&'static str, Key, Record)> {
    let stat = DirStat {
        entries: 3,
        subdirs: 1,
        atime: TIME,
        mtime: TIME,
        ctime: TIME,
    };
    let delta = TouchDelta {
        entries: -1,
        subdirs: 0,
        time: TIME,
    };
    let garbage = GarbageRecord {
        size: 1 << 23,
        block_size: 1 << 22,
        holder: Some(SESSION),
    };
    let mutations = vec![
        Mutation::Insert {
            key: Key::Counter(Slot(1)),
            record: Record::Counter(CounterRecord {
                reserved: 2,
                epoch: 1,
            }),
        },
        Mutation::Update {
            key: entry_key(),
            record: file(Layout::None),
        },
        Mutation::Delete {
            key: Key::Head(DIR.into()),
        },
        Mutation::Touch {
            part: DIR.into(),
            delta,
        },
    ];
    let write = ReplyWrite {
        key: Key::Reply(Part::whole(DIR).slot(), SESSION, RequestSlot(0)),
        record: reply(),
    };
    let head = Head {
        generation: Generation(6),
        ino: Ino(8),
        birth: Birth {
            parent: DirId::ROOT,
            name: name(),
            version: 1,
        },
        parent: DirId::ROOT,
        parent_generation: Generation::ROOT,
        name: named(b"renamed"),
        realm: Realm(2),
        salt: 0x5A17,
        split: 0,
        seal: 0,
        listed: true,
    };
    let superblock = Superblock {
        format: 1,
        fs: FsId(0x0F0E_0D0C_0B0A_0908_0706_0504_0302_0100),
        server: ServerId(3),
        boot: BootEpoch(7),
        name_bits: 55,
        id_bits: 128,
        clean: true,
    };
    let data = Key::Attachment {
        part: DIR.into(),
        hash: HASH,
        name: name(),
        kind: AttachmentKind::Data,
    };
    vec![
        (
            "directory",
            entry_key(),
            Record::Entry(Entry {
                ordinal: 0,
                target: Target::Dir(access()),
            }),
        ),
        ("empty file", entry_key(), file(Layout::None)),
        ("inline file", entry_key(), file(Layout::Inline)),
        ("file in blocks", entry_key(), file(Layout::Blocks(4 << 20))),
        (
            "short symlink",
            entry_key(),
            file(Layout::Target(Blob(b"../x".to_vec()))),
        ),
        ("long symlink", entry_key(), file(Layout::LongTarget)),
        (
            "inline file with a hole",
            entry_key(),
            file(Layout::SparseInline(5)),
        ),
        (
            "file in blocks with holes",
            entry_key(),
            file(Layout::Sparse {
                block_size: 4 << 20,
                allocated: 4096,
            }),
        ),
        (
            "link",
            entry_key(),
            Record::Entry(Entry {
                ordinal: 3,
                target: Target::Link(LinkRecord {
                    slot: Slot(7),
                    ino: Ino(8),
                    generation: Generation(6),
                    kind: FileKind::Regular,
                }),
            }),
        ),
        ("marked device", entry_key(), device()),
        ("listed directory", entry_key(), listed_dir()),
        ("listed file", entry_key(), listed_file()),
        (
            "extended attributes",
            xattrs_key(),
            Record::Attachment(Blob(xattrs().to_bytes())),
        ),
        ("head", Key::Head(DIR.into()), Record::Head(head.clone())),
        (
            "touch",
            Key::Touch(DIR.into()),
            Record::Touch(Touch { stat, explicit: true }),
        ),
        ("attachment", data, Record::Attachment(Blob(b"hello".to_vec()))),
        (
            "counter",
            Key::Counter(Slot(2)),
            Record::Counter(CounterRecord {
                reserved: 4096,
                epoch: 1,
            }),
        ),
        (
            "reply",
            Key::Reply(Part::whole(DIR).slot(), SESSION, RequestSlot(0)),
            Record::Reply(reply()),
        ),
        (
            "decision",
            Key::Decision(TX),
            Record::Decision(DecisionRecord {
                participants: vec![ServerId(1), ServerId(2)],
            }),
        ),
        (
            "owed",
            Key::Owed(TX),
            Record::Owed(OwedRecord {
                dir: DIR,
                head: head.clone(),
                touch: Touch {
                    stat,
                    explicit: false,
                },
            }),
        ),
        (
            "prepared",
            Key::Prepared(Slot(1), TX),
            Record::Prepared(PreparedRecord {
                mutations,
                reply: Some(write),
            }),
        ),
        (
            "garbage",
            Key::Garbage(Slot(1), Ino(2), Generation(3)),
            Record::Garbage(garbage),
        ),
        (
            "orphan",
            Key::Orphan(Slot(1), Ino(2), Generation(3)),
            Record::Orphan,
        ),
        (
            "head of a part",
            Key::Head(part()),
            Record::Part(PartRecord {
                generation: Generation(6),
                salt: 8,
                depth: 2,
            }),
        ),
        (
            "parts",
            Key::Parts(DIR),
            Record::Parts(PartsRecord {
                starts: vec![1024, 2048],
            }),
        ),
        (
            "part that comes",
            Key::PartNote(part()),
            Record::PartNote(PartNote::Coming(TX)),
        ),
        (
            "debris of a part",
            Key::PartNote(part()),
            Record::PartNote(PartNote::Debris),
        ),
        (
            "session",
            Key::Session(SESSION),
            Record::Session(SessionRecord {
                opened: TIME,
                ended: None,
            }),
        ),
        ("superblock", Key::Superblock, Record::Superblock(superblock)),
        (
            "rename list",
            Key::RenameList {
                parent: DIR,
                name: name(),
            },
            Record::RenameList([0, 1, 2, 7].into_iter().collect()),
        ),
        (
            "invalidation",
            Key::Invalidation(Watermark(0x0000_0001_0000_0002)),
            Record::Invalidation(Invalidation {
                id: DIR,
                generation: Generation(5),
                change: FactChange::Access,
            }),
        ),
        (
            "identity",
            Key::Identity(IdentityId(7)),
            Record::Identity(identity()),
        ),
        (
            "hand-over",
            Key::HandOver,
            Record::HandOver(HandOverRecord {
                epoch: MapEpoch(12),
                to: ServerId(4),
                made: MapEpoch(9),
                slots: vec![Slot(0x0ABC), Slot(7)],
            }),
        ),
        (
            "local",
            Key::Local(DIR.into()),
            Record::Local(LocalRecord {
                lease: Generation(0x0001_0000_0000_3ABC),
                table: Ino(0x0ABC_0000_0000_0003),
                session: SESSION,
                batch: 2,
                numbers: NumberRun {
                    epoch: 1,
                    next: 4,
                    end: 4096,
                },
            }),
        ),
        (
            "line",
            Key::Line {
                dir: DIR,
                hash: HASH,
                name: name(),
            },
            Record::Line(Line {
                ordinal: 2,
                kind: FileKind::Symlink,
                ino: Ino(0x0ABC_0000_0000_0005),
                generation: Generation(0x0001_0ABC_0000_0005),
            }),
        ),
    ]
}

fn identity() -> IdentityRecord {
    IdentityRecord {
        name: "lab".into(),
        claims: Claims {
            users: Users::Only {
                uids: vec![1000],
                gids: vec![100],
            },
            subtree: Some((DIR, Generation(6))),
            read_only: true,
        },
        keys: vec![
            IdentityKey {
                key: [0x5a; 32],
                until: None,
            },
            IdentityKey {
                key: [0xa5; 32],
                until: Some(TIME),
            },
        ],
        created: TIME,
        revoked: None,
        change: 9,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Compares all at once, and prints what stands there in the form to pin.
fn compare(found: &[(&str, String)], pinned: &[(&str, &str)]) {
    let found: Vec<(&str, &str)> = found.iter().map(|(n, h)| (*n, h.as_str())).collect();
    let lines: Vec<String> = found
        .iter()
        .map(|(n, h)| format!("    ({n:?}, {h:?}),"))
        .collect();
    assert!(
        found == pinned,
        "the layout changed; it is now\n{}",
        lines.join("\n")
    );
}

#[test]
fn golden_keys() {
    let found: Vec<_> = keys().iter().map(|(n, k)| (*n, hex(&k.encode()))).collect();
    compare(&found, &GOLDEN_KEYS);
    for (name, key) in keys() {
        assert_eq!(Key::decode(&key.encode()).as_ref(), Ok(&key), "{name}");
    }
}

#[test]
fn golden_records() {
    let found: Vec<_> = records()
        .iter()
        .map(|(n, k, r)| (*n, hex(&r.encode(&k.encode()))))
        .collect();
    compare(&found, &GOLDEN_RECORDS);
    for (name, key, record) in records() {
        let at = key.encode();
        assert_eq!(
            Record::decode(&at, &record.encode(&at)).as_ref(),
            Ok(&record),
            "{name}"
        );
        assert!(record.fits(&key), "{name}");
    }
}

#[test]
fn golden_hashes() {
    let full = HashWidths::FULL;
    assert_eq!(
        full.name(0, &name()),
        NameHash(GOLDEN_NAME_HASH),
        "{:x}",
        full.name(0, &name()).0
    );
    let birth = Birth {
        parent: DirId::ROOT,
        name: name(),
        version: 0,
    };
    assert_eq!(
        full.dir_id(&birth),
        DirId(GOLDEN_DIR_ID),
        "{:x}",
        full.dir_id(&birth).0
    );
    assert_eq!(Part::whole(DIR).slot(), Slot(GOLDEN_SLOT));
}

#[test]
fn keys_of_a_directory_sort_by_bucket_then_name() {
    let key = |hash, name: &[u8]| Key::Entry {
        part: DIR.into(),
        hash: NameHash(hash),
        name: named(name),
    };
    let sorted = [
        key(1, b"z"),
        key(2, b"a"),
        key(2, b"aa"),
        key(2, b"b"),
        key(1 << 54, b"a"),
    ];
    assert!(sorted.windows(2).all(|w| w[0].encode() < w[1].encode()));
    let range = Scan::Entries(DIR.into()).range();
    assert!(sorted.iter().all(|k| range.contains(&k.encode())));
    assert!(!range.contains(&Key::Head(DIR.into()).encode()));
    let bucket = Scan::Bucket(DIR.into(), NameHash(2)).range();
    assert_eq!(sorted.iter().filter(|k| bucket.contains(&k.encode())).count(), 3);
}

/// `docs/format.md` shows the keys and these records, so the page and the bytes cannot drift apart.
#[test]
fn the_page_shows_these_bytes() {
    let page: String = include_str!("../../../docs/format.md").replace(' ', "");
    for (name, bytes) in GOLDEN_KEYS
        .iter()
        .filter(|(name, _)| !["attachment target", "attachment xattrs"].contains(name))
    {
        assert!(
            page.contains(&format!("`{bytes}`")),
            "the page lacks the key {name}: {bytes}"
        );
    }
    let shown = [
        "directory",
        "empty file",
        "head",
        "touch",
        "attachment",
        "counter",
        "reply",
        "decision",
        "invalidation",
        "link",
        "orphan",
        "head of a part",
        "parts",
        "part that comes",
        "debris of a part",
        "inline file with a hole",
        "file in blocks with holes",
    ];
    for (name, bytes) in GOLDEN_RECORDS {
        let on_page = page.contains(&format!("`{bytes}`"));
        let must = shown.contains(&name)
            || [
                "garbage",
                "session",
                "superblock",
                "rename list",
                "identity",
                "hand-over",
                "line",
                "local",
                "owed",
                "marked device",
                "extended attributes",
                "listed directory",
                "listed file",
            ]
            .contains(&name);
        assert_eq!(on_page, must, "record {name}: {bytes}");
    }
}
