//! Slots that move between servers, and what operators ask about which servers there are.

use crate::holds::Turned;
use pando_format::codec::Blob;
use pando_format::{Key, codec_enum, codec_struct};
use pando_types::{BootEpoch, FsId, MapEpoch, ServerId, SessionId, Slot};

/// One copy of some slots to another server. A copy that was broken off is never continued under its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CopyId {
    /// Who owns the slots, and sends.
    pub source: ServerId,
    /// Its boot.
    pub boot: BootEpoch,
    /// Counts the copies of that boot.
    pub number: u64,
}

/// Between the servers that slots move from and to, and the coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MoveRequest {
    /// To where they move: a copy of these slots begins. What was there of them goes.
    Begin {
        /// Which.
        copy: CopyId,
        /// Of what.
        slots: Vec<Slot>,
    },
    /// Records as they are now. Repeated, or overtaken by others of its copy that were sent with it, it makes
    /// no difference.
    Records {
        /// Of which copy.
        copy: CopyId,
        /// Counts its messages.
        number: u32,
        /// A store's bundle.
        bundle: Blob,
        /// There are no records under these keys any more.
        gone: Vec<Key>,
    },
    /// All was sent, and nothing of it changes any more until the map does. Answered when it cannot be lost
    /// there.
    Settle {
        /// Which copy.
        copy: CopyId,
        /// Epoch of the plan by which they move: no older map is to be believed from here on.
        made: MapEpoch,
        /// Sessions that have ended at the source, and may have had reply records there (H46).
        ended: Vec<SessionId>,
        /// Files of these slots that sessions have open (H97).
        holds: Holds,
        /// Sessions that have locks on files of these slots, or may have.
        lockers: Vec<(Slot, SessionId)>,
    },
    /// To the coordinator: slots have been copied by their owner, and wait for the map to say so.
    HandOver {
        /// Who asks: the owner.
        from: ServerId,
        /// Where to.
        to: ServerId,
        /// Epoch of the plan by which they move: under another one this is void.
        made: MapEpoch,
        /// Which.
        slots: Vec<Slot>,
    },
    /// To a server that leaves: is anything left that others may ask it for?
    Left,
}

/// Who has what open in slots that move.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Holds {
    /// Files, and under which session.
    pub held: Vec<(SessionId, Turned)>,
}

/// Answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MoveAnswer {
    /// Done.
    Taken,
    /// This copy is not known: it was begun before a restart, or another one was begun after it.
    Lost,
    /// The map in force. What it does not say will not come of the request any more.
    Map(Blob),
    /// So many transactions are in doubt or not confirmed by all.
    Left(u64),
}

/// What an operator asks of the coordinator: which servers there should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClusterRequest {
    /// A server joins: it gets its share of the slots.
    Join {
        /// Its number.
        id: ServerId,
        /// The filesystem its store was made for.
        fs: FsId,
        /// `host:port` for clients and servers.
        address: String,
        /// `host:port` of its Prometheus endpoint.
        metrics: String,
    },
    /// A server gives up its slots, and leaves then. May be repeated.
    Drain(ServerId),
    /// As few slots move as make it even.
    Rebalance,
    /// A server that is being drained stays, with the slots that it still has.
    KeepServer(ServerId),
    /// Slots of servers that stay move no further.
    EndMoves,
}

/// Why it was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClusterError {
    /// It is there.
    AlreadyIn(ServerId),
    /// Numbers are never given twice; the next free one is this.
    NumberUsed(ServerId),
    /// This server is reached there.
    AddressTaken(ServerId),
    /// There are as many as there can be.
    TooMany,
    /// There is no such server.
    Unknown(ServerId),
    /// Somebody must have the slots.
    Last(ServerId),
    /// Slots of a filesystem made `--without decoupling` do not move.
    Coupled,
    /// Its store was made for another filesystem.
    Foreign(FsId),
    /// It keeps the identities, which cannot move yet.
    KeepsIdentities(ServerId),
    /// The address is not `host:port`.
    BadAddress,
    /// It is not being drained.
    NotLeaving(ServerId),
    /// No slots are on the move between servers that stay.
    NothingMoves,
}

codec_struct!(Holds { held });
codec_struct!(CopyId { source, boot, number });
codec_enum!(MoveRequest {
    1 => Begin { copy, slots },
    2 => Records { copy, number, bundle, gone },
    3 => Settle { copy, made, ended, holds, lockers },
    4 => HandOver { from, to, made, slots },
    5 => Left,
});
codec_enum!(MoveAnswer { 1 => Taken, 2 => Lost, 3 => Map(map), 4 => Left(n) });
codec_enum!(ClusterRequest {
    1 => Join { id, fs, address, metrics },
    2 => Drain(id),
    3 => Rebalance,
    4 => KeepServer(id),
    5 => EndMoves,
});
codec_enum!(ClusterError {
    1 => AlreadyIn(id), 2 => NumberUsed(next), 3 => AddressTaken(by), 4 => TooMany, 5 => Unknown(id), 6 => Last(id),
    7 => Coupled, 8 => Foreign(fs), 9 => KeepsIdentities(id), 10 => BadAddress,
    11 => NotLeaving(id), 12 => NothingMoves
});
