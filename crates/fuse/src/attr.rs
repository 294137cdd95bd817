//! Attributes and times as the kernel knows them.

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use pando_types::{Attr, DirStat, FileKind, TimeChange, Timestamp};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What programs should read and write at once. Without a write-back cache each `write` is a call into this
/// process, and stdio writes in units of this.
const IO_SIZE: u32 = 64 * 1024;

pub(crate) fn kind(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

pub(crate) fn file_attr(a: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(a.ino.0),
        size: a.size,
        blocks: if a.kind == FileKind::Directory {
            0
        } else {
            a.allocated.div_ceil(512)
        },
        atime: system_time(a.atime),
        mtime: system_time(a.mtime),
        ctime: system_time(a.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(a.kind),
        perm: a.perm.bits(),
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: u32::try_from(a.rdev).unwrap_or(0),
        blksize: IO_SIZE,
        flags: 0,
    }
}

/// A directory's two halves, joined (InfiniFS §3.2).
pub(crate) fn joined(access: Attr, content: &DirStat) -> Attr {
    Attr {
        nlink: u32::try_from(content.subdirs.saturating_add(2)).unwrap_or(u32::MAX),
        size: content.entries,
        atime: content.atime,
        mtime: content.mtime,
        ctime: access.ctime.max(content.ctime),
        ..access
    }
}

fn system_time(t: Timestamp) -> SystemTime {
    let (secs, nanos) = (t.secs.unsigned_abs(), Duration::from_nanos(u64::from(t.nanos)));
    let whole = if t.secs >= 0 {
        UNIX_EPOCH.checked_add(Duration::from_secs(secs))
    } else {
        UNIX_EPOCH.checked_sub(Duration::from_secs(secs))
    };
    whole.and_then(|w| w.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// A time of the kernel's. Nanoseconds count forward, also before 1970.
fn timestamp(t: SystemTime) -> Timestamp {
    match t.duration_since(UNIX_EPOCH) {
        Ok(d) => Timestamp {
            secs: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            nanos: d.subsec_nanos(),
        },
        Err(e) => {
            let before = e.duration();
            let nanos = before.subsec_nanos();
            let secs = 0i64.saturating_sub_unsigned(before.as_secs());
            match nanos {
                0 => Timestamp { secs, nanos },
                _ => Timestamp {
                    secs: secs.saturating_sub(1),
                    nanos: 1_000_000_000 - nanos,
                },
            }
        }
    }
}

pub(crate) fn time_change(t: TimeOrNow) -> TimeChange {
    match t {
        TimeOrNow::Now => TimeChange::Now,
        TimeOrNow::SpecificTime(t) => TimeChange::To(timestamp(t)),
    }
}

/// This machine's calendar time.
pub(crate) fn now() -> Timestamp {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(d) => Timestamp {
            secs: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            nanos: d.subsec_nanos(),
        },
        Err(_) => Timestamp::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970() {
        let t = Timestamp {
            secs: -2,
            nanos: 250_000_000,
        };
        assert_eq!(system_time(t), UNIX_EPOCH - Duration::from_millis(1750));
        let ends = [
            (i64::MIN, 0),
            (i64::MIN, 1),
            (i64::MIN, 999_999_999),
            (i64::MIN + 1, 5),
            (-1, 999_999_999),
            (-1, 0),
            (0, 0),
            (i64::MAX, 999_999_999),
        ];
        for (secs, nanos) in ends.into_iter().chain([(t.secs, t.nanos)]) {
            let t = Timestamp { secs, nanos };
            assert_eq!(timestamp(system_time(t)), t);
        }
    }
}
