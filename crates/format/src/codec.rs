//! Little-endian, length-checked encoding of values. Hand-written so that every byte is ours to pin and
//! version.
//!
//! Decoding never panics, nests to a fixed depth, and takes memory in proportion to the input: an announced
//! length takes none (fuzzed: `crates/fuzz`).

use pando_types::{
    Attr, AttrChange, AuthMode, Bearer, Birth, BootEpoch, Claims, Cred, DirId, DirStat, Errno, FileKind,
    FsId, Generation, Hold, IdentityId, Ino, Instance, LockFamily, MapEpoch, Mono, Name, Part, Perm, Realm,
    RequestId, RequestSlot, Sequence, ServerId, SessionId, Slot, Span, Term, TimeChange, Timestamp, TxId,
    Users, Watermark, XattrMode, XattrName,
};
use std::sync::Arc;
use thiserror::Error;

/// Why bytes are not a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DecodeError {
    /// The input ends inside a value.
    #[error("truncated")]
    Truncated,
    /// An enum's tag is unknown to this version.
    #[error("unknown tag {tag} of {of}")]
    Tag {
        /// The enum.
        of: &'static str,
        /// What stood there.
        tag: u8,
    },
    /// A value is outside its domain.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// Bytes follow the value.
    #[error("trailing bytes")]
    Trailing,
    /// The checksum does not match: the bytes were damaged.
    #[error("checksum mismatch")]
    Checksum,
}

/// Reads values off the front of a byte slice.
pub struct Reader<'a> {
    rest: &'a [u8],
    /// Inside a value that may not stand inside itself.
    within: bool,
}

impl<'a> Reader<'a> {
    /// Over all of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader {
            rest: bytes,
            within: false,
        }
    }

    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        if n > self.rest.len() {
            return Err(DecodeError::Truncated);
        }
        let (head, rest) = self.rest.split_at(n);
        self.rest = rest;
        Ok(head)
    }

    /// Reads a value whose type can contain itself, by way of others, and whose values never do: a few bytes
    /// for each level would else lead a decoder as deep as the input is long, past the end of its stack.
    pub fn unnested<T>(
        &mut self,
        what: &'static str,
        take: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        if std::mem::replace(&mut self.within, true) {
            return Err(DecodeError::Invalid(what));
        }
        let value = take(self)?;
        self.within = false;
        Ok(value)
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Errs unless everything was read.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Trailing)
        }
    }
}

/// A value with one byte layout.
pub trait Codec: Sized {
    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);
    /// Takes a value off the front.
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// The value alone.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        self.put(&mut out);
        out
    }

    /// A value that is all of `bytes`.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let value = Self::take(&mut r)?;
        r.finish()?;
        Ok(value)
    }
}

macro_rules! codec_int {
    ($($t:ty),*) => {$(
        impl Codec for $t {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let mut b = [0; size_of::<$t>()];
                b.copy_from_slice(r.bytes(size_of::<$t>())?);
                Ok(<$t>::from_le_bytes(b))
            }
        }
    )*};
}
codec_int!(u8, u16, u32, u64, u128, i32, i64);

/// Implements [`Codec`] for a newtype over a codec.
#[macro_export]
macro_rules! codec_newtype {
    ($($t:ident),* $(,)?) => {$(
        impl $crate::codec::Codec for $t {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn take(r: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::DecodeError> {
                Ok($t($crate::codec::Codec::take(r)?))
            }
        }
    )*};
}

/// Implements [`Codec`] for a struct, field by field in the order given.
#[macro_export]
macro_rules! codec_struct {
    ($t:ident { $($f:ident),* $(,)? }) => {
        impl $crate::codec::Codec for $t {
            fn put(&self, out: &mut Vec<u8>) {
                $( $crate::codec::Codec::put(&self.$f, out); )*
                let _ = out;
            }
            fn take(r: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::DecodeError> {
                let _ = &r;
                Ok($t { $( $f: $crate::codec::Codec::take(r)? ),* })
            }
        }
    };
}

/// Implements [`Codec`] for an enum: `tag => Variant`, `tag => Variant(a, b)` or `tag => Variant { a, b }`.
#[macro_export]
macro_rules! codec_enum {
    ($t:ident { $( $tag:literal => $v:ident $( ( $($p:ident),* ) )? $( { $($f:ident),* $(,)? } )? ),* $(,)? }) => {
        impl $crate::codec::Codec for $t {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $( $t::$v $( ( $($p),* ) )? $( { $($f),* } )? => {
                        out.push($tag);
                        $( $( $crate::codec::Codec::put($p, out); )* )?
                        $( $( $crate::codec::Codec::put($f, out); )* )?
                    } )*
                }
            }
            fn take(r: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::DecodeError> {
                match <u8 as $crate::codec::Codec>::take(r)? {
                    $( $tag => Ok($t::$v
                        $( ( $( { let $p = $crate::codec::Codec::take(r)?; $p } ),* ) )?
                        $( { $( $f: $crate::codec::Codec::take(r)? ),* } )?
                    ), )*
                    tag => Err($crate::codec::DecodeError::Tag { of: stringify!($t), tag }),
                }
            }
        }
    };
}

impl Codec for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::take(r)? {
            0 => Ok(false),
            1 => Ok(true),
            tag => Err(DecodeError::Tag { of: "bool", tag }),
        }
    }
}

impl<T: Codec> Codec for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(v) = self {
            v.put(out);
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::take(r)? { Some(T::take(r)?) } else { None })
    }
}

impl<T: Codec> Codec for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Box::new(T::take(r)?))
    }
}

impl<T: Codec> Codec for Arc<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Arc::new(T::take(r)?))
    }
}

impl<T: Codec> Codec for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        for v in self {
            v.put(out);
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let n = u32::take(r)? as usize;
        // Every element takes at least a byte.
        if n > r.remaining() {
            return Err(DecodeError::Truncated);
        }
        // Elements are larger in memory than in bytes: a hostile count gets no more room than what was sent
        // takes up.
        let mut v = Vec::with_capacity(n.min(r.remaining() / size_of::<T>().max(1)));
        for _ in 0..n {
            v.push(T::take(r)?);
        }
        Ok(v)
    }
}

impl<const N: usize> Codec for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(r.bytes(N)?);
        Ok(bytes)
    }
}

impl<A: Codec, B: Codec> Codec for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok((A::take(r)?, B::take(r)?))
    }
}

impl<T: Codec, E: Codec> Codec for Result<T, E> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Ok(v) => {
                out.push(0);
                v.put(out);
            }
            Err(e) => {
                out.push(1);
                e.put(out);
            }
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::take(r)? {
            0 => Ok(Ok(T::take(r)?)),
            1 => Ok(Err(E::take(r)?)),
            tag => Err(DecodeError::Tag { of: "Result", tag }),
        }
    }
}

impl Codec for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let n = u32::take(r)? as usize;
        String::from_utf8(r.bytes(n)?.to_vec()).map_err(|_| DecodeError::Invalid("text"))
    }
}

/// A byte string; unlike `Vec<u8>` it is copied in one piece.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Blob(pub Vec<u8>);

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blob({} bytes)", self.0.len())
    }
}

impl Codec for Blob {
    fn put(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).put(out);
        out.extend_from_slice(&self.0);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let n = u32::take(r)? as usize;
        Ok(Blob(r.bytes(n)?.to_vec()))
    }
}

impl Codec for Name {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.as_bytes().len() as u8);
        out.extend_from_slice(self.as_bytes());
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let n = u8::take(r)? as usize;
        Name::new(r.bytes(n)?).map_err(|_| DecodeError::Invalid("name"))
    }
}

impl Codec for XattrName {
    fn put(&self, out: &mut Vec<u8>) {
        // No name has more than 255 bytes.
        out.push(self.as_bytes().len() as u8);
        out.extend_from_slice(self.as_bytes());
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let n = u8::take(r)? as usize;
        XattrName::new(r.bytes(n)?).map_err(|_| DecodeError::Invalid("name of an attribute"))
    }
}

impl Codec for Perm {
    fn put(&self, out: &mut Vec<u8>) {
        self.bits().put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bits = u16::take(r)?;
        if bits > 0o7777 {
            return Err(DecodeError::Invalid("permission bits"));
        }
        Ok(Perm::new(bits))
    }
}

impl Codec for Timestamp {
    fn put(&self, out: &mut Vec<u8>) {
        self.secs.put(out);
        self.nanos.put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (secs, nanos) = (i64::take(r)?, u32::take(r)?);
        if nanos >= 1_000_000_000 {
            return Err(DecodeError::Invalid("nanoseconds"));
        }
        Ok(Timestamp { secs, nanos })
    }
}

codec_newtype!(
    DirId,
    Generation,
    Ino,
    Instance,
    Watermark,
    Slot,
    ServerId,
    MapEpoch,
    Mono,
    Term,
    BootEpoch,
    Realm,
    RequestSlot,
    Sequence,
    SessionId,
    FsId,
    IdentityId
);
codec_struct!(Bearer { identity, instance });
codec_struct!(Birth {
    parent,
    name,
    version
});
codec_struct!(TxId {
    coordinator,
    boot,
    number
});
codec_struct!(RequestId {
    session,
    slot,
    sequence
});
codec_struct!(Cred { uid, gid, groups });
codec_struct!(Claims {
    users,
    subtree,
    read_only
});
codec_enum!(Users { 0 => Any, 1 => Only { uids, gids } });
codec_enum!(AuthMode { 0 => None, 1 => Key, 2 => Tls });
/// A part: of part 0 its directory alone, of another also its start. What contains one says which by its own
/// tag.
pub fn put_part(part: Part, out: &mut Vec<u8>) {
    part.dir.put(out);
    if part.start() != 0 {
        part.start().put(out);
    }
}

/// A part, of which is known whether it is another than 0.
pub fn take_part(another: bool, r: &mut Reader<'_>) -> Result<Part, DecodeError> {
    let dir = DirId::take(r)?;
    if !another {
        return Ok(Part::whole(dir));
    }
    let start = Some(u16::take(r)?).filter(|start| *start != 0);
    let part = start.and_then(|start| Part::new(dir, start));
    part.ok_or(DecodeError::Invalid("start of a part"))
}
/// How much is stored is not among them: it follows from the layout, which stands beside them.
impl Codec for Attr {
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
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Attr {
            ino: Codec::take(r)?,
            generation: Codec::take(r)?,
            kind: Codec::take(r)?,
            perm: Codec::take(r)?,
            uid: Codec::take(r)?,
            gid: Codec::take(r)?,
            nlink: Codec::take(r)?,
            size: Codec::take(r)?,
            allocated: 0,
            rdev: Codec::take(r)?,
            atime: Codec::take(r)?,
            mtime: Codec::take(r)?,
            ctime: Codec::take(r)?,
        })
    }
}
codec_struct!(DirStat {
    entries,
    subdirs,
    atime,
    mtime,
    ctime
});
codec_struct!(AttrChange {
    perm,
    uid,
    gid,
    size,
    atime,
    mtime
});
codec_enum!(TimeChange { 0 => Now, 1 => To(t) });
codec_enum!(LockFamily { 1 => Posix, 2 => Flock, 3 => Append });
codec_enum!(Hold { 1 => Shared, 2 => Exclusive });

impl Codec for Span {
    fn put(&self, out: &mut Vec<u8>) {
        self.first.put(out);
        self.last.put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (first, last) = (u64::take(r)?, u64::take(r)?);
        Span::new(first, last).ok_or(DecodeError::Invalid("Span"))
    }
}

codec_enum!(FileKind {
    1 => Regular, 2 => Directory, 3 => Symlink, 4 => Fifo, 5 => Socket, 6 => CharDevice, 7 => BlockDevice
});
codec_enum!(XattrMode { 0 => Any, 1 => Create, 2 => Replace });
codec_enum!(Errno {
    1 => NotFound, 2 => Exists, 3 => NotDir, 4 => IsDir, 5 => NotEmpty, 6 => Access, 7 => Perm, 8 => Invalid,
    9 => NameTooLong, 10 => NoSpace, 11 => Stale, 12 => Loop, 13 => TooBig, 14 => Busy, 15 => BadHandle,
    16 => Unsupported, 17 => Interrupted, 18 => TooManyLinks, 19 => Unreachable, 20 => Io, 21 => ReadOnly,
    22 => NoData, 23 => Range, 24 => ValueTooBig
});
