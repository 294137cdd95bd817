//! Records: what stands under the keys.

use crate::codec::{Blob, Codec, DecodeError, Reader};
use crate::hash::{NameHash, Position};
use crate::identity::IdentityRecord;
use crate::key::Key;
use crate::line::Line;
use crate::local::LocalRecord;
use crate::mutation::Mutation;
use crate::part::{PartNote, PartRecord, PartsRecord};
use crate::renames::RenameList;
use crate::xattrs::Marks;
use crate::{codec_enum, codec_newtype, codec_struct};
use pando_types::{
    Acls, Attr, Birth, BootEpoch, DirId, DirStat, Extended, FileKind, FsId, Generation, Guard, Ino, MapEpoch,
    Name, Perm, Realm, Sequence, ServerId, SessionId, Slot, Timestamp, plant,
};

/// The tag of a reply record.
const REPLY: u8 = 6;

/// Any record, with the tag it carries on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// An entry of a directory.
    Entry(Entry),
    /// Content head of a directory.
    Head(Head),
    /// Content touch of a directory.
    Touch(Touch),
    /// Bytes attached to an entry.
    Attachment(Blob),
    /// A slot's counter.
    Counter(CounterRecord),
    /// A reply record.
    Reply(ReplyRecord),
    /// A decision.
    Decision(DecisionRecord),
    /// The content of a new directory, owed.
    Owed(OwedRecord),
    /// A prepared part.
    Prepared(PreparedRecord),
    /// File data to delete.
    Garbage(GarbageRecord),
    /// A file without a name: the key says which.
    Orphan,
    /// A session.
    Session(SessionRecord),
    /// The superblock.
    Superblock(Superblock),
    /// A rename list.
    RenameList(RenameList),
    /// An entry of the invalidation log.
    Invalidation(Invalidation),
    /// An identity.
    Identity(IdentityRecord),
    /// What must not be forgotten of slots that were given or got.
    HandOver(HandOverRecord),
    /// Content head of another part than 0 of a split directory.
    Part(PartRecord),
    /// All live parts of a split directory.
    Parts(PartsRecord),
    /// What is to be done about a part.
    PartNote(PartNote),
    /// The lease of a localised directory.
    Local(LocalRecord),
    /// A line of a directory's list.
    Line(Line),
}

/// What a name in a directory stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Tells apart entries of one bucket; with the bucket it is the entry's [`crate::Position`]. Fixed for
    /// its life.
    pub ordinal: u8,
    /// The object.
    pub target: Target,
}

/// An entry's object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A subdirectory: its access half.
    Dir(AccessRecord),
    /// Anything else, whole.
    Inode(InodeRecord),
    /// One of several names, or what is left of them, of something that is at home (H96). Never itself at
    /// home: one hop.
    Link(LinkRecord),
}

/// Where what has several names is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkRecord {
    /// The slot whose [`DirId::homes`] it is in.
    pub slot: Slot,
    /// Its inode number.
    pub ino: Ino,
    /// Its incarnation.
    pub generation: Generation,
    /// What it is, which never changes: listings need not look.
    pub kind: FileKind,
}

/// The access half of a directory: what path resolution needs (InfiniFS §3.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessRecord {
    /// The directory's ID.
    pub id: DirId,
    /// Its incarnation.
    pub generation: Generation,
    /// Its inode number.
    pub ino: Ino,
    /// Permission bits.
    pub perm: Perm,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of this half; the directory's ctime is the larger of both halves'.
    pub ctime: Timestamp,
    /// Inherited at mkdir.
    pub realm: Realm,
    /// Salt of the name hash inside the directory.
    pub salt: u64,
    /// Counts the changes of this record (statements carry it).
    pub version: u64,
    /// What it has besides this record.
    pub marks: Marks,
    /// Counts the changes of who may search it that others were told of: what is sealed about it opens under
    /// a key of this number (H99). The head has the same.
    pub seal: u64,
    /// Its access control lists.
    pub acls: Acls,
}

/// A file, symlink, device, FIFO or socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InodeRecord {
    /// Inode number.
    pub ino: Ino,
    /// Incarnation.
    pub generation: Generation,
    /// What it is; never a directory.
    pub kind: FileKind,
    /// Permission bits.
    pub perm: Perm,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub nlink: u32,
    /// Bytes.
    pub size: u64,
    /// Device number of a special file.
    pub rdev: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Where the bytes are.
    pub layout: Layout,
    /// What it has besides this record.
    pub marks: Marks,
    /// Counts the changes of content (compare-and-set of writers).
    pub version: u64,
    /// What its access control list says beyond the permission bits.
    pub acl: Option<Extended>,
}

/// Where a file's bytes, or a symlink's target, are. Extensible: further tags are further layouts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Nowhere: all `size` bytes read as zero.
    None,
    /// In the attachment [`AttachmentKind::Data`]; what is past its end up to `size` reads as zero.
    Inline,
    /// In blocks of this many bytes, keyed (inode, generation, block number); absent blocks read as zero.
    Blocks(u32),
    /// A short symlink target, here.
    Target(Blob),
    /// A long symlink target, in the attachment [`AttachmentKind::Target`].
    LongTarget,
    /// As [`Layout::Inline`], of so many bytes at most: most of what reads as zero is nowhere.
    SparseInline(u32),
    /// As [`Layout::Blocks`], of a file with holes.
    Sparse {
        /// Bytes in a block.
        block_size: u32,
        /// Bytes that are stored in blocks.
        allocated: u64,
    },
}

/// Which attachment of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum AttachmentKind {
    /// Inline data of a small file (IndexFS §II-C).
    Data = 1,
    /// Target of a long symlink.
    Target = 2,
    /// Extended attributes, of anything: an encoded [`crate::XattrSet`], never an empty one.
    Xattrs = 3,
}

/// Content head of a directory: rarely written, read by every operation inside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// Incarnation; requests name the one they mean (H1).
    pub generation: Generation,
    /// Inode number.
    pub ino: Ino,
    /// What the ID is the hash of.
    pub birth: Birth,
    /// Current parent, for the ancestor walk (H22).
    pub parent: DirId,
    /// Incarnation of the current parent.
    pub parent_generation: Generation,
    /// Current name in the parent.
    pub name: Name,
    /// Inherited at mkdir.
    pub realm: Realm,
    /// Salt of the name hash.
    pub salt: u64,
    /// Depth of splitting; 0: whole. Bit 7 ([`Head::LOCALISED`]) is apart from it.
    pub split: u8,
    /// As in the access record.
    pub seal: u64,
    /// The back-pointer, with `birth`: the directory was renamed, and its birth's rename list has its
    /// version. Set by its first rename and never taken back, wherever it goes (H5); its end takes the
    /// version off the list (H4).
    pub listed: bool,
}

/// An entry of the coordinator's log: what everybody was told about a directory's access record is not true
/// any more (InfiniFS §3.4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Invalidation {
    /// The directory.
    pub id: DirId,
    /// Its incarnation.
    pub generation: Generation,
    /// What became of it.
    pub change: FactChange,
}

/// What became of a directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FactChange {
    /// It has another name or parent: ways through it are not true any more. Whoever holds it open still may.
    Moved,
    /// Other permissions or owners: nothing known of it is true any more.
    Access,
}

/// Content touch of a directory: changed by every create and remove inside it, by commutative deltas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Touch {
    /// Counts and times.
    pub stat: DirStat,
    /// `mtime` was set by utimens and nothing changed since: the next delta replaces it, whatever it was.
    pub explicit: bool,
}

/// A change of a directory's touch. Deltas commute: any order of the same deltas gives the same touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TouchDelta {
    /// Change of the number of entries.
    pub entries: i32,
    /// Change of the number of subdirectories.
    pub subdirs: i32,
    /// When.
    pub time: Timestamp,
}

/// Next free number of a slot; all below are spent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterRecord {
    /// First number not reserved.
    pub reserved: u64,
    /// Ownership epoch of the slot, the prefix of its generations.
    pub epoch: u16,
}

/// The answer to a mutating request, written with its effect (rule 3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplyRecord {
    /// Of the request.
    pub sequence: Sequence,
    /// Directory of the first name.
    pub dir: DirId,
    /// Bucket of the first name.
    pub hash: NameHash,
    /// The answer, in wire encoding.
    pub answer: Blob,
}

/// A transaction that is committed, kept until every participant confirmed (H38).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecisionRecord {
    /// Participants other than the coordinator that have not confirmed.
    pub participants: Vec<ServerId>,
}

/// The content of a directory that was born with an entry here and belongs on another server. Written with
/// the entry, kept until the content is synced there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwedRecord {
    /// The directory.
    pub dir: DirId,
    /// Its head. What it says of its parent and its name is where it was born, and where it is as long as
    /// this is owed.
    pub head: Head,
    /// Its counts and times.
    pub touch: Touch,
}

/// One slot's part of a transaction that this server voted for and whose outcome it must ask for (H37).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreparedRecord {
    /// What will be applied.
    pub mutations: Vec<Mutation>,
    /// A reply record that belongs to this slot.
    pub reply: Option<crate::ReplyWrite>,
}

/// Blocks of a removed file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GarbageRecord {
    /// Bytes of the file when it was removed.
    pub size: u64,
    /// Size of its blocks.
    pub block_size: u32,
    /// Session that still has the file open; its end, or its release, frees the data.
    pub holder: Option<SessionId>,
}

/// A registered session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionRecord {
    /// When it was opened (for operators; expiry counts signs of life).
    pub opened: Timestamp,
    /// When it expired, if it did. Its reply records are gone, so it must never come back to life: neither by
    /// its client's registering again, nor with records from another server (H46, H47).
    pub ended: Option<Timestamp>,
}

/// The first record of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// [`crate::FORMAT_VERSION`] of the writer.
    pub format: u32,
    /// The filesystem this store is part of.
    pub fs: FsId,
    /// The server this store belongs to.
    pub server: ServerId,
    /// Starts of the server so far.
    pub boot: BootEpoch,
    /// Width of name hashes in bits.
    pub name_bits: u8,
    /// Width of directory IDs in bits.
    pub id_bits: u8,
    /// Whether the last stop was orderly.
    pub clean: bool,
}

/// What a server must not forget of slots that it gave or got.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HandOverRecord {
    /// No map older than this is to be believed.
    pub epoch: MapEpoch,
    /// Slots that were copied to another server, and of which this one does and says nothing any more until
    /// the map says whose they are. Written before the coordinator is asked. Where to:
    pub to: ServerId,
    /// Epoch of the plan by which they move.
    pub made: MapEpoch,
    /// Which; none: nothing waits for a map.
    pub slots: Vec<Slot>,
}

codec_enum!(Record {
    1 => Entry(e), 2 => Head(h), 3 => Touch(t), 4 => Attachment(b), 5 => Counter(c), 6 => Reply(r), 7 => Decision(d),
    8 => Prepared(p), 9 => Garbage(g), 10 => Session(s), 11 => Superblock(s), 12 => RenameList(l),
    13 => Invalidation(i), 14 => Identity(i), 15 => HandOver(h), 16 => Owed(o), 17 => Orphan, 18 => Part(p), 19 => Parts(p),
    20 => PartNote(n), 21 => Local(l), 22 => Line(l)
});
codec_struct!(Entry { ordinal, target });
codec_enum!(Target { 1 => Dir(d), 2 => Inode(i), 3 => Link(l) });
codec_struct!(LinkRecord {
    slot,
    ino,
    generation,
    kind
});
codec_enum!(Layout {
    0 => None, 1 => Inline, 2 => Blocks(size), 3 => Target(t), 4 => LongTarget, 5 => SparseInline(len), 6 => Sparse { block_size, allocated }
});
codec_struct!(Head {
    generation,
    ino,
    birth,
    parent,
    parent_generation,
    name,
    realm,
    salt,
    split,
    seal,
    listed
});
codec_struct!(Invalidation {
    id,
    generation,
    change
});
codec_struct!(HandOverRecord {
    epoch,
    to,
    made,
    slots
});
codec_enum!(FactChange { 1 => Moved, 2 => Access });
codec_struct!(Touch { stat, explicit });
codec_struct!(TouchDelta {
    entries,
    subdirs,
    time
});
codec_struct!(CounterRecord { reserved, epoch });
codec_struct!(ReplyRecord {
    sequence,
    dir,
    hash,
    answer
});
codec_struct!(DecisionRecord { participants });
codec_struct!(OwedRecord { dir, head, touch });
codec_struct!(GarbageRecord {
    size,
    block_size,
    holder
});
codec_struct!(SessionRecord { opened, ended });
codec_struct!(Superblock {
    format,
    fs,
    server,
    boot,
    name_bits,
    id_bits,
    clean
});
codec_newtype!(NameHash, Position);

/// Lists stand at the end, marked: a record without any is as it was before there were lists.
impl Codec for AccessRecord {
    fn put(&self, out: &mut Vec<u8>) {
        self.id.put(out);
        self.generation.put(out);
        self.ino.put(out);
        self.perm.put(out);
        self.uid.put(out);
        self.gid.put(out);
        self.ctime.put(out);
        self.realm.put(out);
        self.salt.put(out);
        self.version.put(out);
        self.marks.put(!self.acls.is_empty(), out);
        self.seal.put(out);
        if !self.acls.is_empty() {
            self.acls.put(out);
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let listed;
        let mut record = AccessRecord {
            id: Codec::take(r)?,
            generation: Codec::take(r)?,
            ino: Codec::take(r)?,
            perm: Codec::take(r)?,
            uid: Codec::take(r)?,
            gid: Codec::take(r)?,
            ctime: Codec::take(r)?,
            realm: Codec::take(r)?,
            salt: Codec::take(r)?,
            version: Codec::take(r)?,
            marks: {
                let (marks, acls) = Marks::take(r)?;
                listed = acls;
                marks
            },
            seal: Codec::take(r)?,
            acls: Acls::default(),
        };
        if listed {
            record.acls = Codec::take(r)?;
            if record.acls.is_empty() {
                return Err(DecodeError::Invalid("marks"));
            }
        }
        Ok(record)
    }
}

impl Codec for InodeRecord {
    fn put(&self, out: &mut Vec<u8>) {
        self.ino.put(out);
        self.generation.put(out);
        self.kind.put(out);
        self.perm.put(out);
        self.uid.put(out);
        self.gid.put(out);
        self.nlink.put(out);
        self.size.put(out);
        self.rdev.put(out);
        self.atime.put(out);
        self.mtime.put(out);
        self.ctime.put(out);
        self.layout.put(out);
        self.marks.put(self.acl.is_some(), out);
        self.version.put(out);
        if let Some(list) = &self.acl {
            list.put(out);
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let listed;
        let mut record = InodeRecord {
            ino: Codec::take(r)?,
            generation: Codec::take(r)?,
            kind: Codec::take(r)?,
            perm: Codec::take(r)?,
            uid: Codec::take(r)?,
            gid: Codec::take(r)?,
            nlink: Codec::take(r)?,
            size: Codec::take(r)?,
            rdev: Codec::take(r)?,
            atime: Codec::take(r)?,
            mtime: Codec::take(r)?,
            ctime: Codec::take(r)?,
            layout: Codec::take(r)?,
            marks: {
                let (marks, acls) = Marks::take(r)?;
                listed = acls;
                marks
            },
            version: Codec::take(r)?,
            acl: None,
        };
        if listed {
            record.acl = Some(Codec::take(r)?);
        }
        Ok(record)
    }
}

impl AttachmentKind {
    /// The kind with this tag.
    pub fn from_tag(tag: u8) -> Result<AttachmentKind, DecodeError> {
        match tag {
            1 => Ok(AttachmentKind::Data),
            2 => Ok(AttachmentKind::Target),
            3 => Ok(AttachmentKind::Xattrs),
            tag => Err(DecodeError::Tag {
                of: "AttachmentKind",
                tag,
            }),
        }
    }
}

impl Codec for AttachmentKind {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        AttachmentKind::from_tag(u8::take(r)?)
    }
}

impl Codec for PreparedRecord {
    fn put(&self, out: &mut Vec<u8>) {
        self.mutations.put(out);
        self.reply.put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        // Its mutations are records again, but what is prepared is never a prepared part.
        r.unnested("prepared part inside a prepared part", |r| {
            Ok(PreparedRecord {
                mutations: Codec::take(r)?,
                reply: Codec::take(r)?,
            })
        })
    }
}

impl Record {
    /// The bytes stored under `key`: version, value, and a checksum over key and value, so that a flipped
    /// bit, or a record under a wrong key, is reported and never served.
    pub fn encode(&self, key: &[u8]) -> Vec<u8> {
        let more = match self {
            Record::Reply(reply) => reply.answer.0.len(),
            _ => 80,
        };
        let mut out = Vec::with_capacity(80 + more);
        out.push(1);
        self.put(&mut out);
        let sum = crc32c::crc32c_append(crc32c::crc32c(key), &out);
        sum.put(&mut out);
        out
    }

    /// The record these bytes hold under `key`.
    pub fn decode(key: &[u8], bytes: &[u8]) -> Result<Record, DecodeError> {
        let body = bytes.len().checked_sub(4).ok_or(DecodeError::Truncated)?;
        let (body, sum) = bytes.split_at(body);
        if u32::from_bytes(sum)? != crc32c::crc32c_append(crc32c::crc32c(key), body) {
            return Err(DecodeError::Checksum);
        }
        match body.split_first() {
            Some((1, value)) => Record::from_bytes(value),
            Some((v, _)) => Err(DecodeError::Tag {
                of: "record version",
                tag: *v,
            }),
            None => Err(DecodeError::Truncated),
        }
    }

    /// The sequence of a reply record that was encoded by this program: nothing else of it is looked at.
    pub fn sequence_of_reply(bytes: &[u8]) -> Option<Sequence> {
        let (&[1, REPLY], rest) = bytes.split_first_chunk()? else {
            return None;
        };
        Sequence::take(&mut Reader::new(rest)).ok()
    }

    /// Whether this kind of record may stand under `key`.
    pub fn fits(&self, key: &Key) -> bool {
        if let Key::Head(part) = key {
            return match self {
                Record::Head(_) => part.start() == 0,
                Record::Part(_) => part.start() != 0,
                _ => false,
            };
        }
        matches!(
            (key, self),
            (Key::Attachment { .. }, Record::Attachment(_))
                | (Key::Counter(_), Record::Counter(_))
                | (Key::Decision(..), Record::Decision(_))
                | (Key::Entry { .. }, Record::Entry(_))
                | (Key::Garbage(..), Record::Garbage(_))
                | (Key::Orphan(..), Record::Orphan)
                | (Key::Parts(_), Record::Parts(_))
                | (Key::PartNote(_), Record::PartNote(_))
                | (Key::Owed(..), Record::Owed(_))
                | (Key::Prepared(..), Record::Prepared(_))
                | (Key::RenameList { .. }, Record::RenameList(_))
                | (Key::Reply(..), Record::Reply(_))
                | (Key::Touch(_), Record::Touch(_))
                | (Key::Superblock, Record::Superblock(_))
                | (Key::Session(_), Record::Session(_))
                | (Key::Invalidation(_), Record::Invalidation(_))
                | (Key::Identity(_), Record::Identity(_))
                | (Key::HandOver, Record::HandOver(_))
                | (Key::Local(_), Record::Local(_))
                | (Key::Line { .. }, Record::Line(_))
        )
    }
}

impl Head {
    /// How often part 0 was halved: the lower half of the byte.
    pub fn depth(&self) -> u8 {
        self.split & 0x0f
    }

    /// What `split` is if part 0 was halved so often.
    pub fn with_depth(&self, depth: u8) -> u8 {
        self.split & 0xf0 | depth & 0x0f
    }
}

impl Touch {
    /// Applies a delta. Counts below zero are a broken invariant and stop the server.
    pub fn apply(&mut self, d: &TouchDelta) {
        let entries = self.stat.entries.checked_add_signed(i64::from(d.entries));
        let subdirs = self.stat.subdirs.checked_add_signed(i64::from(d.subdirs));
        assert!(
            entries.is_some() && subdirs.is_some(),
            "directory counts below zero: {self:?} {d:?}"
        );
        self.stat.entries = entries.unwrap_or(0);
        self.stat.subdirs = subdirs.unwrap_or(0);
        // The largest time wins, so that order does not matter and a clock that steps back moves nothing back
        // (H88).
        self.stat.ctime = self.stat.ctime.max(d.time);
        self.stat.mtime = if self.explicit || plant!(H88) {
            d.time
        } else {
            self.stat.mtime.max(d.time)
        };
        self.explicit = false;
    }
}

impl Target {
    /// The object: its inode number, and which incarnation.
    pub fn identity(&self) -> (Ino, Generation) {
        match self {
            Target::Dir(d) => (d.ino, d.generation),
            Target::Inode(i) => (i.ino, i.generation),
            Target::Link(l) => (l.ino, l.generation),
        }
    }

    /// What it is.
    pub fn kind(&self) -> FileKind {
        match self {
            Target::Dir(_) => FileKind::Directory,
            Target::Inode(i) => i.kind,
            Target::Link(l) => l.kind,
        }
    }
}

impl InodeRecord {
    /// Who may do what with it.
    pub fn guard(&self) -> Guard<'_> {
        Guard {
            perm: self.perm,
            uid: self.uid,
            gid: self.gid,
            acl: self.acl.as_ref(),
            is_dir: false,
        }
    }

    /// As `stat` shows it.
    pub fn attr(&self) -> Attr {
        Attr {
            ino: self.ino,
            generation: self.generation,
            kind: self.kind,
            perm: self.perm,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            size: self.size,
            allocated: self.layout.allocated(self.size),
            rdev: self.rdev,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
        }
    }
}

impl AccessRecord {
    /// Who may do what with it.
    pub fn guard(&self) -> Guard<'_> {
        Guard {
            perm: self.perm,
            uid: self.uid,
            gid: self.gid,
            acl: self.acls.access.as_ref(),
            is_dir: true,
        }
    }

    /// `stat` of the directory: this half joined with its content half.
    pub fn attr(&self, content: &DirStat) -> Attr {
        Attr {
            ino: self.ino,
            generation: self.generation,
            kind: FileKind::Directory,
            perm: self.perm,
            uid: self.uid,
            gid: self.gid,
            nlink: u32::try_from(content.subdirs.saturating_add(2)).unwrap_or(u32::MAX),
            size: content.entries,
            allocated: 0,
            rdev: 0,
            atime: content.atime,
            mtime: content.mtime,
            ctime: self.ctime.max(content.ctime),
        }
    }
}
