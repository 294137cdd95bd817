//! Errors that a program sees.

use thiserror::Error;

/// Why an operation was not done, as POSIX names it. What only the protocol reacts to is
/// `pando_wire::Refusal`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Error)]
pub enum Errno {
    /// ENOENT
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST
    #[error("file exists")]
    Exists,
    /// ENOTDIR
    #[error("not a directory")]
    NotDir,
    /// EISDIR
    #[error("is a directory")]
    IsDir,
    /// ENOTEMPTY
    #[error("directory not empty")]
    NotEmpty,
    /// EACCES
    #[error("permission denied")]
    Access,
    /// EPERM
    #[error("operation not permitted")]
    Perm,
    /// EINVAL
    #[error("invalid argument")]
    Invalid,
    /// ENAMETOOLONG
    #[error("file name too long")]
    NameTooLong,
    /// ENOSPC
    #[error("no space left on a metadata server; remove files or add space")]
    NoSpace,
    /// ESTALE: the object was removed or replaced since the caller looked it up.
    #[error("stale file handle")]
    Stale,
    /// ELOOP
    #[error("too many levels of symbolic links")]
    Loop,
    /// EFBIG
    #[error("file too large")]
    TooBig,
    /// EBUSY
    #[error("device or resource busy")]
    Busy,
    /// EBADF
    #[error("bad file descriptor")]
    BadHandle,
    /// ENOTSUP
    #[error("operation not supported")]
    Unsupported,
    /// EINTR
    #[error("interrupted")]
    Interrupted,
    /// EROFS
    #[error("this identity may change nothing (read-only)")]
    ReadOnly,
    /// EMLINK
    #[error("too many links")]
    TooManyLinks,
    /// ENODATA: there is no such extended attribute.
    #[error("no such attribute")]
    NoData,
    /// ERANGE: the name of an extended attribute is none, or longer than any.
    #[error("the name of an attribute has 1 to 255 bytes")]
    Range,
    /// E2BIG: the value of an extended attribute is longer than any.
    #[error("the value of an attribute has at most 65536 bytes")]
    ValueTooBig,
    /// ETIMEDOUT shown as EIO: a server did not answer; whether the operation happened is unknown.
    #[error("a metadata server does not answer; the operation may or may not have happened")]
    Unreachable,
    /// EIO: damaged metadata or a failed device; the server's log says which.
    #[error("input/output error; see the server's log")]
    Io,
}
