//! Parts that the kernel's requests and answers have in common: credentials, names, references it gets,
//! errors.

use crate::calls;
use crate::core::Shown;
use crate::driver::Cluster;
use crate::errno::reply as errno;
use crate::fs::Mounted;
use crate::locks::Asked;
use fuser::*;
use nix::libc;
use pando_client::locks::LockError;
use pando_types::{Cred, Errno as Error, Hold, Ino, LockFamily, Mode, Name, Perm, Span};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

pub(crate) fn ino(n: INodeNo) -> Ino {
    Ino(n.0)
}

pub(crate) fn name(n: &OsStr) -> Result<Name, Error> {
    Name::new(n.as_bytes())
}

impl<C: Cluster> Mounted<C> {
    pub(crate) fn cred(&self, req: &Request) -> Cred {
        self.0.creds.of(req)
    }

    /// Does something to a name in a directory.
    pub(crate) fn changing<R>(
        &self,
        req: &Request,
        parent: INodeNo,
        n: &OsStr,
        f: impl FnOnce(&C::Driver, Ino, &Name) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let (parent, n) = (ino(parent), name(n)?);
        self.0.with(|d| {
            let result = f(d, parent, &n);
            self.0.in_parent(d, req.pid(), parent, &n, result)
        })
    }

    /// How long the kernel may believe what it is told of a name in a directory.
    pub(crate) fn ttl(&self, parent: INodeNo) -> Duration {
        if self.0.locks.may_believe(ino(parent)) {
            self.0.settings.timeout
        } else {
            Duration::ZERO
        }
    }

    pub(crate) fn entry(&self, parent: INodeNo, reply: ReplyEntry, result: Result<Shown, Error>) {
        match result {
            Ok(s) => {
                let ttl = self.ttl(parent);
                let believed = if s.anew { Duration::ZERO } else { ttl };
                reply.entry_with_ttls(&ttl, &believed, &s.attr, Generation(s.generation.0));
                if calls::cut_off() {
                    self.forget_again(s.attr.ino);
                }
            }
            Err(e) => reply.error(errno(e)),
        }
    }

    /// A created file is open.
    pub(crate) fn created(
        &self,
        parent: INodeNo,
        reply: ReplyCreate,
        result: Result<(Shown, u64, FopenFlags), Error>,
    ) {
        match result {
            Ok((s, fh, flags)) => {
                let ttl = self.ttl(parent);
                reply.created(&ttl, &s.attr, Generation(s.generation.0), FileHandle(fh), flags);
                if calls::cut_off() {
                    self.release_again(fh);
                    self.forget_again(s.attr.ino);
                }
            }
            Err(e) => reply.error(errno(e)),
        }
    }

    /// The kernel was not given a reference after all.
    pub(crate) fn forget_again(&self, n: INodeNo) {
        self.0.forget(ino(n), 1);
    }

    /// Nor this handle.
    pub(crate) fn release_again(&self, fh: u64) {
        let _ = self.0.with(|d| {
            self.0.release(d, fh);
            Ok(())
        });
    }

    pub(crate) fn attr(&self, reply: ReplyAttr, result: Result<Shown, Error>) {
        match result {
            Ok(s) => reply.attr(&self.0.settings.timeout.saturating_sub(s.age), &s.attr),
            Err(e) => reply.error(errno(e)),
        }
    }
}

/// Permissions as a program asks for them: whether the umask counts depends on the directory's default list.
pub(crate) fn asked(mode: u32, umask: u32) -> Mode {
    Mode {
        perm: Perm::new(mode as u16),
        umask: Perm::new(umask as u16),
    }
}

pub(crate) fn empty(reply: ReplyEmpty, result: Result<(), Error>) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(e)),
    }
}

/// The last byte that a file can have, for the kernel.
pub(crate) const LAST: u64 = i64::MAX as u64;

/// A lock as the kernel describes it; `None`: there is none like that.
pub(crate) fn asked_lock(
    (fh, token): (u64, u64),
    (start, end): (u64, u64),
    typ: i32,
    pid: u32,
    flock: bool,
) -> Option<Asked> {
    let hold = match typ {
        libc::F_RDLCK => Some(Hold::Shared),
        libc::F_WRLCK => Some(Hold::Exclusive),
        libc::F_UNLCK => None,
        _ => return None,
    };
    let family = if flock {
        LockFamily::Flock
    } else {
        LockFamily::Posix
    };
    let span = if flock {
        Span::ALL
    } else {
        Span::new(start, if end >= LAST { u64::MAX } else { end })?
    };
    Some(Asked {
        fh,
        family,
        token,
        span,
        hold,
        pid,
    })
}

pub(crate) fn lock_errno(e: LockError) -> fuser::Errno {
    match e {
        LockError::Taken => fuser::Errno::EAGAIN,
        LockError::Deadlock => fuser::Errno::from_i32(libc::EDEADLK),
        LockError::Interrupted => fuser::Errno::EINTR,
        LockError::NoLocks => fuser::Errno::from_i32(libc::ENOLCK),
        LockError::Failed(e) => errno(e),
    }
}

/// Of what has room in a buffer of this size; how large it is, if the size is 0.
pub(crate) fn sized(reply: ReplyXattr, result: Result<Vec<u8>, Error>, size: u32) {
    match result {
        Ok(data) if size == 0 => reply.size(data.len() as u32),
        Ok(data) if data.len() > size as usize => reply.error(errno(Error::Range)),
        Ok(data) => reply.data(&data),
        Err(e) => reply.error(errno(e)),
    }
}
