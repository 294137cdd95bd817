//! Parts of directories that are split, between the server that gives a half away and the one that gets it.

use pando_format::codec::{Codec, DecodeError, Reader};
use pando_format::{Mutation, codec_enum};
use pando_types::{DirId, Generation, Part, Tile, TxId};

/// A half of a part that becomes a part of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Half {
    /// The new part.
    pub part: Part,
    /// Incarnation of its directory.
    pub generation: Generation,
    /// How often it was halved.
    pub depth: u8,
}

impl Half {
    /// The hashes that it has.
    pub fn tile(&self) -> Tile {
        Tile {
            start: self.part.start(),
            depth: self.depth,
        }
    }
}

/// Whether records are sent for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pass {
    /// None of them was sent before.
    First,
    /// They have changed since they were sent, or since the copy began.
    Again,
}

/// From the server that has a part to the one that is to have a half of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SplitRequest {
    /// A copy begins. What is there of the half goes, unless it is a part that lives (H305).
    Begin {
        /// The copy: a transaction that its source knows as long as it goes on.
        copy: TxId,
        /// Of what.
        half: Half,
    },
    /// Records of the half as they are now, under their new keys. Repeated it makes no difference.
    Records {
        /// Of which copy.
        copy: TxId,
        /// Of which part.
        part: Part,
        /// Counts its messages.
        number: u32,
        /// Whether they are sent for the first time.
        pass: Pass,
        /// Updates and deletions.
        changes: Vec<Mutation>,
    },
    /// All was sent, and nothing of it changes any more until the split is decided.
    Settle {
        /// Which copy.
        copy: TxId,
        /// Of which part.
        part: Part,
    },
}

/// Answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SplitAnswer {
    /// Done.
    Taken,
    /// This copy is not known, or the part is there already.
    Lost,
    /// All of it is there.
    Counted {
        /// Entries.
        entries: u64,
        /// Subdirectories among them.
        subdirs: u64,
    },
}

impl Codec for Half {
    fn put(&self, out: &mut Vec<u8>) {
        self.part.dir.put(out);
        self.part.start().put(out);
        self.generation.put(out);
        self.depth.put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let part = take_part(r)?;
        let (generation, depth) = (Codec::take(r)?, u8::take(r)?);
        let half = Half {
            part,
            generation,
            depth,
        };
        // Part 0 is never given away, and each half begins where halves of its depth do.
        match part.start() != 0 && half.tile().is_aligned() {
            true => Ok(half),
            false => Err(DecodeError::Invalid("half of a part")),
        }
    }
}

fn take_part(r: &mut Reader<'_>) -> Result<Part, DecodeError> {
    let (dir, start) = (DirId::take(r)?, u16::take(r)?);
    Part::new(dir, start).ok_or(DecodeError::Invalid("start of a part"))
}

/// A part of a message.
struct PartOf(Part);

impl Codec for PartOf {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.dir.put(out);
        self.0.start().put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        take_part(r).map(PartOf)
    }
}

impl Codec for SplitRequest {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            SplitRequest::Begin { copy, half } => {
                out.push(1);
                copy.put(out);
                half.put(out);
            }
            SplitRequest::Records {
                copy,
                part,
                number,
                pass,
                changes,
            } => {
                out.push(2);
                copy.put(out);
                PartOf(*part).put(out);
                number.put(out);
                pass.put(out);
                changes.put(out);
            }
            SplitRequest::Settle { copy, part } => {
                out.push(3);
                copy.put(out);
                PartOf(*part).put(out);
            }
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::take(r)? {
            1 => SplitRequest::Begin {
                copy: Codec::take(r)?,
                half: Codec::take(r)?,
            },
            2 => SplitRequest::Records {
                copy: Codec::take(r)?,
                part: PartOf::take(r)?.0,
                number: Codec::take(r)?,
                pass: Codec::take(r)?,
                changes: Codec::take(r)?,
            },
            3 => SplitRequest::Settle {
                copy: Codec::take(r)?,
                part: PartOf::take(r)?.0,
            },
            tag => {
                return Err(DecodeError::Tag {
                    of: "SplitRequest",
                    tag,
                });
            }
        })
    }
}

codec_enum!(Pass { 1 => First, 2 => Again });
codec_enum!(SplitAnswer { 1 => Taken, 2 => Lost, 3 => Counted { entries, subdirs } });
