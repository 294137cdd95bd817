//! The change attribute of directories, as in NFS (RFC 8881, `change_info4`).
//!
//! Whoever makes all changes in a directory itself knows what is in it without asking, as long as nobody else
//! changes anything. The server says so: it counts what changes the names or the content half of a directory,
//! and tells each change from what to what it took the count. If it began where the last one that is known
//! ended, nothing came between.
//!
//! A count says something about one boot of one server for as long as that has the slot: it is held in memory
//! only, and two that are equal are never of different states of a directory. Whoever sees a count that it
//! does not know asks, as it would have without.

use crate::Op;
use crate::op::traits::Counts;
use pando_format::codec_struct;
use pando_types::{DirId, Timestamp};

/// The change attribute of a directory of which nothing has changed since it was made.
pub const UNCHANGED: u64 = 0;

/// What an operation did to its directory's change attribute. Both equal: nothing; it looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangeInfo {
    /// What it was right before.
    pub before: u64,
    /// And right after.
    pub after: u64,
    /// The server's calendar time of it, which the directory's mtime and ctime have become unless they were
    /// later.
    pub time: Timestamp,
}

codec_struct!(ChangeInfo { before, after, time });

impl Op {
    /// The one directory whose names it changes, if it does and there is one: the answer can say what became
    /// of its change attribute.
    pub fn changes_names_in(&self) -> Option<DirId> {
        self.statements()[0]
            .filter(|_| self.traits().counts == Counts::Names)
            .map(|dir| dir.id)
    }

    /// The directory of whose state the answer says something, with the change attribute it is of.
    pub fn looks_at(&self) -> Option<DirId> {
        let looks = matches!(self.traits().counts, Counts::Name | Counts::Content);
        self.statements()[0].filter(|_| looks).map(|dir| dir.id)
    }
}
