//! What clients say of the files they keep open, and servers of who does (H97).

use crate::Handle;
use pando_format::{codec_enum, codec_struct};
use pando_types::{Generation, Ino, MapEpoch, SessionId, Slot};

/// Files in one message.
pub const HOLDING_MAX: usize = 16_384;
/// Files whose last use is over, said with an operation.
pub const CLOSED_MAX: usize = 64;

/// A file, and the slot its record is in: while somebody has it open it stays there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileAt {
    /// Where.
    pub slot: Slot,
    /// Which.
    pub ino: Ino,
    /// Its incarnation.
    pub generation: Generation,
}

/// A file that is, or was, open, and the turn of the last open that is meant: what is said of turns before it
/// is late.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Turned {
    /// Which.
    pub file: FileAt,
    /// Counts the opens of a session.
    pub turn: u64,
}

/// A file that is open, said to a server that may not know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Which.
    pub open: Turned,
    /// Shows that it was opened.
    pub proof: Handle,
}

/// What an operation says of the session under which its sender keeps files open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keep {
    /// Which session.
    pub session: SessionId,
    /// Of an operation that opens: its turn. 0: it opens nothing that is kept.
    pub turn: u64,
    /// Files that are not open any more.
    pub closed: Vec<Turned>,
}

/// A sign of life of a session that keeps files open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holding {
    /// Which session.
    pub session: SessionId,
    /// Epoch of the map by which it is known what is at this server.
    pub map: MapEpoch,
    /// Files that are open.
    pub held: Vec<Held>,
    /// Files that are not open any more.
    pub closed: Vec<Turned>,
    /// With this all that is open at this server was said to its present boot.
    pub whole: bool,
}

/// Who has a file open, as far as one server knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Holders {
    /// Nobody.
    #[default]
    Nobody,
    /// This session, or it may.
    One(SessionId),
    /// Several, or they may.
    Several,
}

impl Holders {
    /// These and one more.
    pub fn and(self, session: SessionId) -> Holders {
        match self {
            Holders::Nobody => Holders::One(session),
            Holders::One(known) if known == session => self,
            Holders::One(_) | Holders::Several => Holders::Several,
        }
    }

    /// Whether any other than this has.
    pub fn other_than(self, session: Option<SessionId>) -> bool {
        match self {
            Holders::Nobody => false,
            Holders::One(known) => Some(known) != session,
            Holders::Several => true,
        }
    }
}

codec_struct!(FileAt {
    slot,
    ino,
    generation
});
codec_struct!(Turned { file, turn });
codec_struct!(Held { open, proof });
codec_struct!(Keep {
    session,
    turn,
    closed
});
codec_struct!(Holding {
    session,
    map,
    held,
    closed,
    whole
});
codec_enum!(Holders { 0 => Nobody, 1 => One(s), 2 => Several });
