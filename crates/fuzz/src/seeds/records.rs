//! Every kind of key, record and mutation.

use pando_format::codec::Blob;
use pando_format::{
    AccessRecord, AttachmentKind, Batch, Codec, CounterRecord, DecisionRecord, Entry, FactChange,
    GarbageRecord, HandOverRecord, Head, IdentityKey, IdentityRecord, InodeRecord, Invalidation, Key, Layout,
    Line, LocalRecord, Marks, Mutation, NameHash, NumberRun, OwedRecord, PartNote, PartRecord, PartsRecord,
    PreparedRecord, Record, ReplyRecord, ReplyWrite, Scan, SessionRecord, Superblock, Target, Touch,
    TouchDelta, XattrSet,
};
use pando_store::Bundle;
use pando_types::{
    Birth, BootEpoch, Claims, DirId, DirStat, FileKind, Generation, IdentityId, Ino, MapEpoch, Name, Part,
    Perm, Realm, RequestSlot, Sequence, ServerId, SessionId, Slot, Timestamp, TxId, Users, Watermark,
    XattrMode, XattrName,
};

pub(super) const DIR: DirId = DirId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
/// A session of whoever connects, where nobody is asked who it is.
pub(super) const SESSION: SessionId = SessionId(0xb0a0_9080_7060_5040_3020_1000);
pub(super) const TX: TxId = TxId {
    coordinator: ServerId(3),
    boot: BootEpoch(7),
    number: 9,
};
const HASH: NameHash = NameHash(0x12_3456_789a_bcde);
pub(super) const TIME: Timestamp = Timestamp {
    secs: 1_700_000_000,
    nanos: 123_456_789,
};

pub(super) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a seed has valid names")
}

pub(super) fn keys() -> Vec<Key> {
    let attachment = |kind| Key::Attachment {
        part: DIR.into(),
        hash: HASH,
        name: name("hello.txt"),
        kind,
    };
    vec![
        attachment(AttachmentKind::Data),
        attachment(AttachmentKind::Target),
        Key::Counter(Slot(0x0abc)),
        Key::Decision(TX),
        entry_key(),
        Key::Garbage(Slot(0x0abc), Ino(0x0abc_0000_0000_0002), Generation(3)),
        Key::Head(DIR.into()),
        Key::Prepared(Slot(0x0abc), TX),
        reply_key(),
        Key::Touch(DIR.into()),
        Key::Superblock,
        Key::Session(SESSION),
        Key::RenameList {
            parent: DIR,
            name: name("hello.txt"),
        },
        Key::Invalidation(Watermark(12)),
        Key::Identity(IdentityId(4)),
        Key::HandOver,
        Key::Owed(TX),
        attachment(AttachmentKind::Xattrs),
        Key::Orphan(Slot(0x0abc), Ino(0x0abc_0000_0000_0002), Generation(3)),
        Key::Head(super::splitting::upper()),
        Key::Parts(DIR),
        Key::PartNote(super::splitting::upper()),
        Key::Local(DIR.into()),
        Key::Line {
            dir: DIR,
            hash: NameHash(0x12_3456_789a_bcde),
            name: name("hello.txt"),
        },
    ]
}

/// Two extended attributes.
pub(super) fn xattrs() -> XattrSet {
    let mut set = XattrSet::default();
    for attr in [b"user.author".as_slice(), b"security.capability"] {
        let name = XattrName::new(attr).expect("a seed has valid names");
        set.set(&name, b"value", XattrMode::Any)
            .expect("a seed has small values");
    }
    set
}

pub(super) fn entry_key() -> Key {
    Key::Entry {
        part: DIR.into(),
        hash: HASH,
        name: name("hello.txt"),
    }
}

pub(super) fn reply_key() -> Key {
    Key::Reply(Slot(0x0abc), SESSION, RequestSlot(0x0102))
}

pub(super) fn ranges() -> Vec<Vec<u8>> {
    let slot = Part::whole(DIR).slot();
    let ranges = [
        Scan::Slot(slot).range(),
        Scan::Entries(DIR.into()).range(),
        Scan::EntriesFrom(DIR.into(), HASH).range(),
        Scan::Bucket(DIR.into(), HASH).range(),
        Scan::Attachments(DIR.into(), HASH, name("hello.txt")).range(),
        Scan::Decisions.range(),
        Scan::AllPrepared.range(),
        Scan::Prepared(slot).range(),
        Scan::Garbage(slot).range(),
        Scan::Replies(slot, SESSION).range(),
        Scan::Sessions.range(),
        Scan::RenameLists(DIR).range(),
        Scan::Invalidations.range(),
        Scan::Identities.range(),
    ];
    let keys = keys();
    let mut all: Vec<Vec<u8>> = ranges.iter().map(Codec::to_bytes).collect();
    all.extend(
        ranges
            .into_iter()
            .zip(keys.into_iter().cycle())
            .map(|pair| pair.to_bytes()),
    );
    all
}

fn stat() -> DirStat {
    DirStat {
        entries: 3,
        subdirs: 1,
        atime: TIME,
        mtime: TIME,
        ctime: TIME,
    }
}

pub(super) fn head() -> Head {
    Head {
        generation: Generation(6),
        ino: Ino(8),
        birth: Birth {
            parent: DirId::ROOT,
            name: name("hello.txt"),
            version: 1,
        },
        parent: DirId::ROOT,
        parent_generation: Generation::ROOT,
        name: name("renamed"),
        realm: Realm(2),
        salt: 0x5a17,
        split: 0,
        seal: 2,
        listed: true,
    }
}

fn entry(target: Target) -> Record {
    Record::Entry(Entry { ordinal: 3, target })
}

fn inode(kind: FileKind, layout: Layout) -> Record {
    entry(Target::Inode(inode_record(kind, layout)))
}

/// With an access control list.
fn listed_file() -> Record {
    entry(Target::Inode(InodeRecord {
        acl: super::messages::lists().access,
        ..inode_record(FileKind::Regular, Layout::None)
    }))
}

fn inode_record(kind: FileKind, layout: Layout) -> InodeRecord {
    InodeRecord {
        ino: Ino(0x0abc_0000_0000_0002),
        generation: Generation(3),
        kind,
        perm: Perm::new(0o4644),
        uid: 1000,
        gid: 100,
        nlink: 1,
        size: 5,
        rdev: 0,
        atime: TIME,
        mtime: TIME,
        ctime: TIME,
        layout,
        marks: Marks::NONE,
        version: 4,
        acl: None,
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

pub(super) fn reply_write() -> ReplyWrite {
    ReplyWrite {
        key: reply_key(),
        record: reply(),
    }
}

fn touched(part: Part) -> Mutation {
    let delta = TouchDelta {
        entries: -1,
        subdirs: 0,
        time: TIME,
    };
    Mutation::Touch { part, delta }
}

pub(super) fn changes() -> Vec<Mutation> {
    vec![
        Mutation::Insert {
            key: Key::Counter(Slot(1)),
            record: Record::Counter(CounterRecord {
                reserved: 2,
                epoch: 1,
            }),
        },
        Mutation::Update {
            key: entry_key(),
            record: inode(FileKind::Regular, Layout::None),
        },
        Mutation::Delete {
            key: Key::Head(DIR.into()),
        },
        touched(DIR.into()),
        touched(super::splitting::upper()),
    ]
}

pub(super) fn invalidations() -> [Invalidation; 2] {
    [FactChange::Moved, FactChange::Access].map(|change| Invalidation {
        id: DIR,
        generation: Generation(6),
        change,
    })
}

pub(super) fn claims() -> [Claims; 2] {
    let some = Claims {
        users: Users::Only {
            uids: vec![0, 1000],
            gids: vec![100],
        },
        subtree: Some((DIR, Generation(6))),
        read_only: true,
    };
    [Claims::all(), some]
}

pub(super) fn identities() -> [IdentityRecord; 2] {
    let key = |until| IdentityKey {
        key: [0x5c; 32],
        until,
    };
    claims().map(|claims| IdentityRecord {
        name: "laptop".into(),
        keys: vec![key(None), key(Some(TIME))],
        created: TIME,
        revoked: claims.read_only.then_some(TIME),
        claims,
        change: 3,
    })
}

pub(super) fn records() -> Vec<(Key, Record)> {
    let access = AccessRecord {
        id: DIR,
        generation: Generation(6),
        ino: Ino(8),
        perm: Perm::new(0o1777),
        uid: 0,
        gid: 0,
        ctime: TIME,
        realm: Realm(2),
        salt: 0x5a17,
        version: 1,
        marks: Marks::NONE,
        seal: 2,
        acls: Default::default(),
    };
    let listed = AccessRecord {
        acls: super::messages::lists(),
        ..access.clone()
    };
    let touch = Touch {
        stat: stat(),
        explicit: true,
    };
    let garbage = |holder| GarbageRecord {
        size: 1 << 23,
        block_size: 1 << 22,
        holder,
    };
    let superblock = Superblock {
        format: pando_format::FORMAT_VERSION,
        fs: crate::targets::FS,
        server: ServerId(3),
        boot: BootEpoch(7),
        name_bits: 55,
        id_bits: 128,
        clean: true,
    };
    let prepared = PreparedRecord {
        mutations: changes(),
        reply: Some(reply_write()),
    };
    let session = |ended| SessionRecord { opened: TIME, ended };
    let keys = keys();
    let mut all = vec![
        (keys[0].clone(), Record::Attachment(Blob(b"hello".to_vec()))),
        (
            keys[2].clone(),
            Record::Counter(CounterRecord {
                reserved: 4096,
                epoch: 1,
            }),
        ),
        (
            keys[3].clone(),
            Record::Decision(DecisionRecord {
                participants: vec![ServerId(1), ServerId(2)],
            }),
        ),
        (keys[4].clone(), entry(Target::Dir(listed))),
        (keys[4].clone(), entry(Target::Dir(access))),
        (keys[4].clone(), listed_file()),
        (keys[5].clone(), Record::Garbage(garbage(Some(SESSION)))),
        (keys[5].clone(), Record::Garbage(garbage(None))),
        (keys[6].clone(), Record::Head(head())),
        (keys[7].clone(), Record::Prepared(prepared)),
        (keys[8].clone(), Record::Reply(reply())),
        (keys[9].clone(), Record::Touch(touch)),
        (keys[10].clone(), Record::Superblock(superblock)),
        (keys[11].clone(), Record::Session(session(None))),
        (keys[11].clone(), Record::Session(session(Some(TIME)))),
        (
            keys[12].clone(),
            Record::RenameList([0, 1, 2, 7, u32::MAX].into_iter().collect()),
        ),
    ];
    all.extend(invalidations().map(|i| (keys[13].clone(), Record::Invalidation(i))));
    all.extend(identities().map(|i| (keys[14].clone(), Record::Identity(i))));
    let handed_over = HandOverRecord {
        epoch: MapEpoch(9),
        to: ServerId(3),
        made: MapEpoch(7),
        slots: vec![Slot(1), Slot(0x0abc)],
    };
    all.push((keys[15].clone(), Record::HandOver(handed_over)));
    all.push((keys[16].clone(), Record::Owed(owed())));
    let attributes = Blob(xattrs().to_bytes());
    all.push((keys[17].clone(), Record::Attachment(attributes)));
    all.push((keys[18].clone(), Record::Orphan));
    let lease = LocalRecord {
        lease: Generation(0x1_0000_0000_3abc),
        table: Ino(0x0abc_0000_0000_0003),
        session: SESSION,
        batch: 2,
        numbers: NumberRun {
            epoch: 1,
            next: 4,
            end: 4096,
        },
    };
    all.push((keys[22].clone(), Record::Local(lease)));
    let line = Line {
        ordinal: 2,
        kind: FileKind::Symlink,
        ino: Ino(0x0abc_0000_0000_0005),
        generation: Generation(0x1_0abc_0000_0005),
    };
    all.push((keys[23].clone(), Record::Line(line)));
    let part = PartRecord {
        generation: Generation(6),
        salt: 0x5a17,
        depth: 1,
    };
    let starts = vec![0x400, 0x800];
    all.push((keys[19].clone(), Record::Part(part)));
    all.push((keys[20].clone(), Record::Parts(PartsRecord { starts })));
    let notes = [PartNote::Coming(TX), PartNote::Debris];
    all.extend(notes.map(|note| (keys[21].clone(), Record::PartNote(note))));
    let layouts = [
        (FileKind::Regular, Layout::None),
        (FileKind::Regular, Layout::Inline),
        (FileKind::Regular, Layout::Blocks(1 << 22)),
        (FileKind::Regular, Layout::SparseInline(5)),
        (
            FileKind::Regular,
            Layout::Sparse {
                block_size: 1 << 22,
                allocated: 1 << 20,
            },
        ),
        (FileKind::Symlink, Layout::Target(Blob(b"../there".to_vec()))),
        (FileKind::Symlink, Layout::LongTarget),
        (FileKind::Fifo, Layout::None),
        (FileKind::Socket, Layout::None),
        (FileKind::CharDevice, Layout::None),
        (FileKind::BlockDevice, Layout::None),
    ];
    all.extend(layouts.map(|(kind, layout)| (entry_key(), inode(kind, layout))));
    all
}

pub(super) fn owed() -> OwedRecord {
    let stat = DirStat::born(TIME);
    OwedRecord {
        dir: DIR,
        head: head(),
        touch: Touch {
            stat,
            explicit: false,
        },
    }
}

/// Inputs of the target `record`: length of the key, key, value without its checksum.
pub(super) fn values() -> Vec<Vec<u8>> {
    let one = |(key, record): (Key, Record)| {
        let (key, value) = (key.encode(), record.to_bytes());
        [&[key.len() as u8], key.as_slice(), &[1], &value].concat()
    };
    let mut all: Vec<Vec<u8>> = records().into_iter().map(one).collect();
    // One as it stands in a store, with its own checksum; and values alone.
    let (key, record) = records().swap_remove(0);
    let (key, value) = (key.encode(), record.encode(&key.encode()));
    all.push([&[key.len() as u8], key.as_slice(), &value].concat());
    all.extend(
        records()
            .iter()
            .map(|(_, record)| [&[0], record.to_bytes().as_slice()].concat()),
    );
    all
}

pub(super) fn mutations() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = changes().iter().map(Codec::to_bytes).collect();
    all.push(reply_write().to_bytes());
    all.push(Batch::of(changes()).to_bytes());
    all.push(Batch::default().to_bytes());
    let whole = Batch {
        mutations: changes(),
        reply: Some(reply_write()),
    };
    all.push(whole.to_bytes());
    let inserts = records()
        .into_iter()
        .map(|(key, record)| Mutation::Insert { key, record });
    all.extend(inserts.map(|m| Batch::of(vec![m]).to_bytes()));
    all
}

pub(super) fn bundles() -> Vec<Vec<u8>> {
    let raw: Vec<_> = records()
        .into_iter()
        .map(|(key, record)| (key.encode(), record.encode(&key.encode())))
        .collect();
    let mut all: Vec<Vec<u8>> = raw.iter().map(|r| Bundle::of(vec![r.clone()]).0).collect();
    all.push(Bundle::of(raw).0);
    all
}

/// A run of numbers of a localised directory.
pub(super) fn numbers() -> NumberRun {
    NumberRun {
        epoch: 1,
        next: 4,
        end: 4096,
    }
}
