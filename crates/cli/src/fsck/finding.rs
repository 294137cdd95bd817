//! What fsck finds.

use pando_format::{Key, NameHash};
use pando_types::{DirId, Ino, Part, ServerId, Slot};

/// A name's bucket in a directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The directory, and which part of it.
    pub part: Part,
    /// The bucket.
    pub hash: NameHash,
}

impl Place {
    /// A bucket of a part.
    pub fn new(part: Part, hash: NameHash) -> Place {
        Place { part, hash }
    }
}

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Bytes that do not decode, or fail their checksum.
    Corrupt,
    /// A record that is lost, and nothing but its key is left.
    Lost,
    /// A record that may be older than what stood in a damaged place.
    Older,
    /// A record of one kind under a key of another.
    Misfit,
    /// Records on a server that does not own their slot.
    Foreign,
    /// A store with the identity of another.
    Superblock,
    /// A slot's counter is behind numbers in use.
    Counter,
    /// An access record without a content head.
    NoContent,
    /// Entries or a touch without a content head.
    NoHead,
    /// A content head without an access record.
    NoName,
    /// More than one access record.
    TwoNames,
    /// Access record and content head disagree.
    Halves,
    /// An ID that is not the hash of its birth.
    Birth,
    /// A renamed directory that is not on the rename list of its birth: its ID may be given out again.
    Unlisted,
    /// A rename list with a version that no renamed directory has: it is never given out again.
    Listed,
    /// A content head without a touch.
    NoTouch,
    /// Counts that are not true.
    Counts,
    /// Counts that could not be compared. Not a problem by itself.
    Moving,
    /// The parent's content does not exist.
    NoParent,
    /// Directories that are their own ancestors.
    Loop,
    /// An entry in a bucket that is not its name's hash.
    Hash,
    /// A listing position that is reserved or taken.
    Position,
    /// An entry whose layout is not what is there.
    Layout,
    /// An attachment without entry.
    Attachment,
    /// An inode number with several names.
    Number,
    /// A count of names that is not true, or a name of nothing.
    Links,
    /// A file whose size speaks of blocks, and which has none.
    NoData,
    /// A transaction without an outcome.
    InDoubt,
    /// A list of a directory's parts that is not that of their heads.
    PartList,
    /// A directory's list that is not that of its entries, which are elsewhere.
    List,
    /// Parts that do not tile the hash space, or of which one is of another directory.
    Part,
    /// Records outside of their part's hashes, or in no part, and nothing says why.
    LeftBehind,
    /// A note about a part that cannot be true.
    PartNote,
}

impl Kind {
    /// Records of a directory disagree: while it changes, they may for a moment.
    pub const COMPARED: [Kind; 5] = [Kind::Counts, Kind::List, Kind::PartList, Kind::Part, Kind::Moving];

    /// For scripts.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Corrupt => "corrupt-record",
            Kind::Lost => "lost-record",
            Kind::Older => "older-record",
            Kind::Misfit => "misplaced-record",
            Kind::Foreign => "foreign-slot",
            Kind::Superblock => "wrong-superblock",
            Kind::Counter => "counter-behind",
            Kind::NoContent => "directory-without-content",
            Kind::NoHead => "entries-without-directory",
            Kind::NoName => "directory-without-name",
            Kind::TwoNames => "directory-with-two-names",
            Kind::Halves => "halves-disagree",
            Kind::Birth => "wrong-id",
            Kind::Unlisted => "not-on-rename-list",
            Kind::Listed => "on-rename-list",
            Kind::NoTouch => "directory-without-counts",
            Kind::Counts => "wrong-counts",
            Kind::Moving => "changing",
            Kind::NoParent => "directory-without-parent",
            Kind::Loop => "loop",
            Kind::Hash => "wrong-bucket",
            Kind::Position => "wrong-position",
            Kind::Layout => "wrong-layout",
            Kind::Attachment => "attachment-without-entry",
            Kind::Number => "inode-number-twice",
            Kind::Links => "wrong-links",
            Kind::NoData => "no-data",
            Kind::InDoubt => "in-doubt",
            Kind::PartList => "wrong-part-list",
            Kind::List => "wrong-list",
            Kind::Part => "wrong-part",
            Kind::LeftBehind => "left-behind",
            Kind::PartNote => "wrong-part-note",
        }
    }

    /// Whether it is worth knowing and breaks nothing.
    pub fn is_note(self) -> bool {
        matches!(self, Kind::Moving | Kind::NoData)
    }
}

/// What a finding is about: with the kind, its identity.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Subject {
    /// A directory.
    Dir(DirId),
    /// A part of a directory.
    Part(Part),
    /// A name's bucket.
    Bucket(Place),
    /// An inode number.
    Ino(Ino),
    /// A slot's counter, and the largest number of the slot that is in use.
    Counter(Slot, u64),
    /// A slot at a server.
    Slot(ServerId, Slot),
    /// A range of keys at a server.
    Range(ServerId, Vec<u8>, Vec<u8>),
    /// One record at a server, by its encoded key.
    Record(ServerId, Vec<u8>),
}

/// A finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What is wrong.
    pub kind: Kind,
    /// With what.
    pub subject: Subject,
    /// In words.
    pub detail: String,
    /// Where else to look when it is looked at again.
    pub places: Vec<Place>,
    /// Which other records to read again.
    pub keys: Vec<Key>,
}

impl Finding {
    /// A finding.
    pub fn new(kind: Kind, subject: Subject, detail: impl Into<String>) -> Finding {
        Finding {
            kind,
            subject,
            detail: detail.into(),
            places: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// It concerns this place too.
    pub fn at(self, place: Place) -> Finding {
        self.at_each([place])
    }

    /// It concerns these places too.
    pub fn at_each(mut self, places: impl IntoIterator<Item = Place>) -> Finding {
        self.places.extend(places);
        self
    }

    /// It concerns this record too.
    pub fn with(mut self, key: Key) -> Finding {
        self.keys.push(key);
        self
    }

    /// Who is who when two looks are compared.
    pub fn identity(&self) -> (Kind, Subject) {
        (self.kind, self.subject.clone())
    }
}
