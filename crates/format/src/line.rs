//! Lists of directories whose entries are placed one by one (AsyncFS §3.3).

use crate::record::Entry;
use crate::{Key, codec_struct};
use pando_types::{FileKind, Generation, Ino};

/// A name in a directory's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Position among the names of one hash, as the entry has it.
    pub ordinal: u8,
    /// What the name stands for.
    pub kind: FileKind,
    /// Its inode number.
    pub ino: Ino,
    /// Its incarnation.
    pub generation: Generation,
}

codec_struct!(Line {
    ordinal,
    kind,
    ino,
    generation
});

impl Line {
    /// The line that an entry has.
    pub fn of(entry: &Entry) -> Line {
        let (ino, generation) = entry.target.identity();
        Line {
            ordinal: entry.ordinal,
            kind: entry.target.kind(),
            ino,
            generation,
        }
    }
}

impl Key {
    /// The key of an entry's line. `None`: this is no entry's.
    pub fn line(&self) -> Option<Key> {
        match self {
            Key::Entry { part, hash, name } => Some(Key::Line {
                dir: part.dir,
                hash: *hash,
                name: name.clone(),
            }),
            _ => None,
        }
    }
}
