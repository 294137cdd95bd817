//! What can be told of records where a store is damaged.

use crate::{Key, KeyRange, Record, codec_enum, codec_struct};

/// What is left of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// All of it: its own checksum says so.
    Whole(Record),
    /// A whole record, but a newer one, or a deletion, may have stood in the damaged place.
    Older(Record),
    /// Its key.
    Nothing,
}

/// A record in a damaged place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remnant {
    /// Its key. Of what is lost it may be damaged too.
    pub key: Key,
    /// What is left of it.
    pub left: Left,
}

/// What is left of a range of which a part cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remains {
    /// Which files are damaged.
    pub tables: Vec<String>,
    /// What can be told, in order of keys.
    pub found: Vec<Remnant>,
    /// There may have been records of which not even the key is left.
    pub more: bool,
    /// What of the range was not looked at.
    pub rest: Option<KeyRange>,
}

impl Left {
    /// The record, if there is one.
    pub fn record(&self) -> Option<&Record> {
        match self {
            Left::Whole(record) | Left::Older(record) => Some(record),
            Left::Nothing => None,
        }
    }
}

codec_enum!(Left { 1 => Whole(record), 2 => Older(record), 3 => Nothing });
codec_struct!(Remnant { key, left });
codec_struct!(Remains {
    tables,
    found,
    more,
    rest
});
