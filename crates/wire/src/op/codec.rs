//! Operations and answers as bytes.

use super::{
    Answer, Content, DirEntry, EntryView, Fate, FsStat, Handle, Object, Op, Probe, RenameMode, SealKey,
};
use pando_format::{Codec, DecodeError, Reader, codec_enum, codec_newtype, codec_struct};

codec_newtype!(SealKey, Handle);
codec_struct!(Probe { dir, name });
codec_struct!(Object {
    dir,
    name,
    ino,
    generation
});
impl Codec for EntryView {
    fn put(&self, out: &mut Vec<u8>) {
        self.attr.put(out);
        self.dir.put(out);
        self.seal.put(out);
        self.layout.put(out);
        self.version.put(out);
        // One byte says both whether there are extended attributes and whether there is a lease.
        out.push(u8::from(self.xattrs) | u8::from(self.lease > 0) << 1);
        self.home.put(out);
        self.acl.put(out);
        if self.lease > 0 {
            self.lease.put(out);
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (attr, dir, seal) = (Codec::take(r)?, Codec::take(r)?, Codec::take(r)?);
        let (layout, version) = (Codec::take(r)?, Codec::take(r)?);
        let says = u8::take(r)?;
        if says > 3 {
            return Err(DecodeError::Invalid("entry"));
        }
        let mut view = EntryView {
            attr,
            dir,
            seal,
            layout,
            version,
            xattrs: says & 1 != 0,
            home: Codec::take(r)?,
            acl: Codec::take(r)?,
            lease: 0,
        };
        if says & 2 != 0 {
            view.lease = Codec::take(r)?;
            if view.lease == 0 {
                return Err(DecodeError::Invalid("lease"));
            }
        }
        view.attr.allocated = view.layout.allocated(view.attr.size);
        Ok(view)
    }
}
codec_struct!(DirEntry {
    position,
    name,
    ino,
    kind,
    view
});
codec_struct!(FsStat {
    total,
    available,
    device
});
codec_enum!(Content { 0 => None, 1 => Inline(b), 2 => Blocks(s), 3 => Sparse { block_size, allocated } });
codec_enum!(RenameMode { 0 => Replace, 1 => NoReplace, 2 => Exchange });
codec_enum!(Op {
    1 => Lookup { dir, name },
    2 => DirStat { dir },
    3 => ReadLink { dir, name },
    4 => Open { dir, name, want },
    5 => ReadDir { dir, after, limit, plus },
    6 => StatFs,
    7 => Sync,
    8 => Reopen { dir },
    9 => GetXattr { object, attr },
    10 => ListXattr { object },
    11 => Home { slot, ino, generation, proof },
    16 => Create { dir, name, mode, exclusive, want },
    17 => Symlink { dir, name, target },
    18 => Mkdir { dir, name, mode },
    19 => Rmdir { dir, name },
    20 => Unlink { dir, name, held },
    21 => SetAttr { object, change, handle },
    22 => Publish { object, handle, content, size, mtime, base },
    23 => Rename { src, src_name, dst, dst_name, mode, held },
    24 => Release { slot, ino, generation },
    25 => SetXattr { object, attr, value, mode },
    26 => RemoveXattr { object, attr },
    27 => Mknod { dir, name, kind, mode, rdev },
    28 => Link { object, dst, dst_name },
    29 => Tmpfile { dir, mode, linkable },
    30 => Accessed { object, proof, ago },
    31 => UnlinkMany { dir, names },
    32 => SetAcl { object, kind, list },
    33 => Bulk { dir, step },
});
codec_enum!(Answer {
    1 => Done,
    2 => Entry(e),
    3 => Opened { entry, data, created, handle, proof, kept },
    4 => Removed(e),
    5 => Renamed { moved, other },
    6 => DirStat(s),
    7 => Target(t),
    8 => Entries { entries, end },
    9 => FsStat(s),
    10 => Value(b),
    11 => Names(n),
    12 => Fates(f),
    13 => Part { entries, upto },
    14 => Bulk(b),
});
codec_enum!(Fate { 0 => Gone, 1 => Not(e), 2 => Alone });
