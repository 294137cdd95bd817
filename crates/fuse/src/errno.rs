//! Errors as the kernel knows them.

use nix::libc;
use pando_types::Errno;

/// The number a program sees. One match, so that a new error cannot be forgotten.
pub(crate) fn number(e: Errno) -> i32 {
    match e {
        Errno::NotFound => libc::ENOENT,
        Errno::Exists => libc::EEXIST,
        Errno::NotDir => libc::ENOTDIR,
        Errno::IsDir => libc::EISDIR,
        Errno::NotEmpty => libc::ENOTEMPTY,
        Errno::Access => libc::EACCES,
        Errno::Perm => libc::EPERM,
        Errno::Invalid => libc::EINVAL,
        Errno::NameTooLong => libc::ENAMETOOLONG,
        Errno::NoSpace => libc::ENOSPC,
        Errno::Stale => libc::ESTALE,
        Errno::Loop => libc::ELOOP,
        Errno::TooBig => libc::EFBIG,
        Errno::Busy => libc::EBUSY,
        Errno::BadHandle => libc::EBADF,
        Errno::Unsupported => libc::EOPNOTSUPP,
        Errno::Interrupted => libc::EINTR,
        Errno::ReadOnly => libc::EROFS,
        Errno::NoData => libc::ENODATA,
        Errno::Range => libc::ERANGE,
        Errno::ValueTooBig => libc::E2BIG,
        Errno::TooManyLinks => libc::EMLINK,
        // A call that gave up after its time, and damage: programs know one error for both.
        Errno::Unreachable | Errno::Io => libc::EIO,
    }
}

/// The same, as replies want it.
pub(crate) fn reply(e: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(number(e))
}
