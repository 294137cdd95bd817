//! Records that are put right by an operator (`pando fsck --repair`).

use pando_format::{Invalidation, Key, Record, TouchDelta, codec_enum, codec_struct};
use pando_types::DirId;

/// A change of records, on any servers, all of it or nothing, if everything is as it was found. For the
/// coordinator; one of a slot's counter alone for its owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RepairRequest {
    /// What was found, and what was not.
    pub expected: Vec<(Key, Option<Record>)>,
    /// What is to stand there. Only where something was expected.
    pub changes: Vec<(Key, Option<Record>)>,
    /// How counts of directories are to change.
    pub touches: Vec<(DirId, TouchDelta)>,
    /// What clients may know and will not be true any more.
    pub invalidates: Vec<Invalidation>,
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repaired {
    /// It is done, and synced.
    Done,
    /// Nothing: something is not as it was found.
    Changed,
    /// Nothing: these records are not an operator's to change, or changes and expectations do not fit.
    Wrong,
}

codec_struct!(RepairRequest {
    expected,
    changes,
    touches,
    invalidates
});
codec_enum!(Repaired { 1 => Done, 2 => Changed, 3 => Wrong });
