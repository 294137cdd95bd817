//! A consistent cut through all servers, for backups.
//!
//! An operator asks every server to hold still. When all do, at one instant nothing takes effect anywhere;
//! what each has then it keeps a picture of, and goes on. The pictures are read in peace.

use pando_format::codec::Blob;
use pando_format::{KeyRange, codec_enum, codec_newtype};
use pando_types::MapEpoch;

/// A random name of one cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CutId(pub u128);

/// What an operator asks of each server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CutRequest {
    /// From the answer on nothing takes effect here, until there is a picture or the time is over.
    Hold {
        /// Which cut.
        cut: CutId,
        /// By this map: a server that knows another one refuses.
        map: MapEpoch,
    },
    /// All servers hold: keep a picture, and go on.
    Take(CutId),
    /// Records of the picture. Also a sign of life: without one for a while the picture goes.
    Read {
        /// Which cut.
        cut: CutId,
        /// Of what is left to be read.
        range: KeyRange,
        /// About so many bytes of them.
        bytes: u32,
    },
    /// It is not needed any more, or not taken after all.
    End(CutId),
}

/// Answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CutAnswer {
    /// Nothing takes effect here.
    Held,
    /// There is a picture, and this server goes on: it has held still for so many microseconds.
    Taken(u64),
    /// Records, as a store's bundle, and what of the range is left.
    Records(Blob, Option<KeyRange>),
    /// It is over. Whether it was there until now.
    Ended(bool),
}

/// Why it was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutError {
    /// There is no such cut here (any more): the time was over, another was begun after it, or the server has
    /// started again.
    Over,
    /// Another one is being read. It ends by itself when nobody reads it for so many milliseconds more.
    Another(u32),
    /// The last one held everything up: another may after so many milliseconds.
    Rest(u32),
    /// The map is another, of this epoch.
    OtherMap(MapEpoch),
    /// Slots are on the move.
    Moving,
    /// A record in the range is damaged.
    Damaged,
}

codec_newtype!(CutId);
codec_enum!(CutRequest {
    1 => Hold { cut, map },
    2 => Take(cut),
    3 => Read { cut, range, bytes },
    4 => End(cut),
});
codec_enum!(CutAnswer { 1 => Held, 2 => Taken(micros), 3 => Records(bundle, rest), 4 => Ended(there) });
codec_enum!(CutError {
    1 => Over, 2 => Another(millis), 3 => Rest(millis), 4 => OtherMap(epoch), 5 => Moving, 6 => Damaged
});
