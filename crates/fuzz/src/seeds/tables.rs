//! Tables for the directory that the target `table` localises. Its numbers and salt are the same each time.

use crate::targets::{AS_IS, HASHED, Localised, PUT_RIGHT};
use pando_format::codec::Blob;
use pando_format::{
    AccessRecord, AttachmentKind, Entry, Head, InodeRecord, Key, Layout, Marks, Record, Target, Touch,
};
use pando_store::{Bundle, Disk};
use pando_types::{
    Acls, Birth, Cred, DirId, DirStat, FileKind, Generation, Ino, Name, Part, Perm, Realm, Timestamp,
};

const BORN: Timestamp = Timestamp {
    secs: 1_600_000_000,
    nanos: 0,
};
/// Of directories that a table makes.
const SALT: u64 = 9;

/// A directory that names are in.
#[derive(Clone, Copy)]
struct Inside {
    id: DirId,
    generation: Generation,
    realm: Realm,
}

/// Rows to be put right: their hashes are zero.
struct Rows<'a> {
    local: &'a Localised,
    rows: Vec<(Key, Record)>,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

impl Rows<'_> {
    fn id(&self, n: u64) -> (Ino, Generation) {
        let slot = Part::whole(self.local.dir.id).slot();
        self.local.numbers.number(slot, self.local.numbers.next + n)
    }

    fn made(&self, n: u64) -> Inside {
        let generation = self.id(n).1;
        Inside {
            id: DirId::placed(generation, Part::whole(self.local.dir.id).slot()),
            generation,
            realm: self.local.dir.realm,
        }
    }

    fn entry(&mut self, dir: Inside, text: &str, target: Target) {
        let key = Key::Entry {
            part: dir.id.into(),
            hash: pando_format::NameHash(0),
            name: name(text),
        };
        self.rows.push((key, Record::Entry(Entry { ordinal: 0, target })));
    }

    fn object(&mut self, n: u64, (dir, text): (Inside, &str), (kind, layout): (FileKind, Layout), size: u64) {
        let (ino, generation) = self.id(n);
        let bits = if kind == FileKind::Symlink { 0o777 } else { 0o640 };
        let (uid, gid) = (Cred::root().uid, Cred::root().gid);
        let attached = match layout {
            Layout::Inline => Some(AttachmentKind::Data),
            Layout::LongTarget => Some(AttachmentKind::Target),
            _ => None,
        };
        let inode = InodeRecord {
            ino,
            generation,
            kind,
            perm: Perm::new(bits),
            uid,
            gid,
            nlink: 1,
            size,
            rdev: 0,
            atime: BORN,
            mtime: BORN,
            ctime: BORN,
            layout,
            marks: Marks::NONE,
            version: 1,
            acl: None,
        };
        self.entry(dir, text, Target::Inode(inode));
        if let Some(kind) = attached {
            let key = Key::Attachment {
                part: dir.id.into(),
                hash: pando_format::NameHash(0),
                name: name(text),
                kind,
            };
            let bytes = Blob(vec![b'x'; size as usize]);
            self.rows.push((key, Record::Attachment(bytes)));
        }
    }

    fn dir(&mut self, n: u64, (parent, text): (Inside, &str), entries: u64) -> Inside {
        let (ino, generation) = self.id(n);
        let made = self.made(n);
        let access = AccessRecord {
            id: made.id,
            generation,
            ino,
            perm: Perm::new(0o755),
            uid: Cred::root().uid,
            gid: Cred::root().gid,
            ctime: BORN,
            realm: made.realm,
            salt: SALT,
            version: 0,
            marks: Marks::NONE,
            seal: 0,
            acls: Acls::default(),
        };
        self.entry(parent, text, Target::Dir(access));
        let head = Head {
            generation,
            ino,
            birth: Birth {
                parent: parent.id,
                name: name(text),
                version: 0,
            },
            parent: parent.id,
            parent_generation: parent.generation,
            name: name(text),
            realm: made.realm,
            salt: SALT,
            split: 0,
            seal: 0,
            listed: false,
        };
        self.rows.push((Key::Head(made.id.into()), Record::Head(head)));
        let stat = DirStat {
            entries,
            ..DirStat::born(BORN)
        };
        self.rows.push((
            Key::Touch(made.id.into()),
            Record::Touch(Touch { stat, explicit: true }),
        ));
        made
    }

    fn packed(&self, flags: u8) -> Vec<u8> {
        let encoded = self.rows.iter().map(|(key, record)| {
            let key = key.encode();
            let value = record.encode(&key);
            (key, value)
        });
        [vec![flags], Bundle::of(encoded.collect()).0].concat()
    }
}

/// Nothing; a file; everything that a table may bring.
pub fn all() -> Vec<Vec<u8>> {
    let disk = Disk::new();
    let local = Localised::new(&disk);
    let rows = || Rows {
        local: &local,
        rows: Vec::new(),
    };
    let dir = Inside {
        id: local.dir.id,
        generation: local.dir.generation,
        realm: local.dir.realm,
    };
    let mut one = rows();
    one.object(0, (dir, "file"), (FileKind::Regular, Layout::None), 0);
    let mut all = rows();
    let sub = all.dir(0, (dir, "sub"), 2);
    all.object(1, (sub, "empty"), (FileKind::Regular, Layout::None), 0);
    all.object(2, (sub, "full"), (FileKind::Regular, Layout::Inline), 3);
    let short = Layout::Target(Blob(b"there".to_vec()));
    all.object(3, (dir, "short"), (FileKind::Symlink, short), 5);
    all.object(4, (dir, "long"), (FileKind::Symlink, Layout::LongTarget), 300);
    all.object(5, (dir, "fifo"), (FileKind::Fifo, Layout::None), 0);
    vec![rows().packed(AS_IS), one.packed(HASHED), all.packed(PUT_RIGHT)]
}
