//! Requests of the kernel, one function each: translates, calls, replies.

use crate::attr::time_change;
use crate::calls;
use crate::core::Core;
use crate::data::{To, Want};
use crate::driver::{Cluster, Driver};
use crate::errno::reply as errno;
use crate::kernel::{LAST, asked, asked_lock, empty, ino, lock_errno, name, sized};
use crate::later::later;
use crate::list::Line;
use fuser::*;
use nix::libc;
use pando_client::locks::LockError;
use pando_types::{AttrChange, Errno as Error, FileKind, Hold, LockFamily, Perm, XattrMode};
use pando_wire::RenameMode;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Largest write and read-ahead: what the kernel allows by itself.
const MAX_IO: u32 = 1024 * 1024;
/// Read-ahead and the like in flight.
const BACKGROUND: u16 = 64;

/// The mounted filesystem, as the fuser library calls it.
pub(crate) struct Mounted<C: Cluster>(pub Arc<Core<C>>);

impl<C: Cluster> Filesystem for Mounted<C> {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            // Not FUSE_ATOMIC_O_TRUNC: with it, opening a running program with O_RDONLY | O_TRUNC would empty
            // it before the kernel says ETXTBSY.
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            // Symlinks never change.
            InitFlags::FUSE_CACHE_SYMLINKS,
            // The servers clear set-id bits: the kernel would ask as the writer, who may not change them.
            InitFlags::FUSE_HANDLE_KILLPRIV,
            // Where there is a default list the umask does not count: so the servers apply it.
            InitFlags::FUSE_DONT_MASK,
        ];
        for flag in wanted {
            // An older kernel without one of them works, slower.
            let _ = config.add_capabilities(flag);
        }
        if self.0.settings.kernel_checks {
            // By access control lists, too, which it asks for as extended attributes.
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        if !self.0.settings.local_locks {
            // Programs on all mounts lock each other out.
            for flag in [InitFlags::FUSE_POSIX_LOCKS, InitFlags::FUSE_FLOCK_LOCKS] {
                let _ = config.add_capabilities(flag);
            }
        }
        let _ = config.set_max_write(MAX_IO);
        let _ = config.set_max_readahead(MAX_IO);
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn destroy(&mut self) {
        // The kernel does not wait for the release of what was closed just before the end.
        let _ = self.0.with(|d| {
            self.0.publish_all(d);
            self.0.tell_accesses(d, Duration::ZERO);
            Ok(())
        });
        self.0.stop();
    }

    fn interrupt(&self, unique: RequestId) {
        // One that waits for a lock is parked there; any other is in a thread.
        self.0.locks.interrupt(unique.0);
        self.0.calls.interrupt(unique.0);
    }

    fn around(&self, req: &Request, cut: Cut, serve: &mut dyn FnMut()) {
        let acts = self.0.creds.acts(req);
        let _call = self.0.calls.enter(req.unique().0, req.pid(), acts, cut);
        if let Some(looked) = &self.0.looked {
            looked.asks(req.pid());
        }
        serve();
    }

    fn serve(&self, requests: Requests<Self>) -> io::Result<()> {
        crate::serve::serve(&self.0, requests)
    }

    fn getlk(
        &self,
        req: &Request,
        _n: INodeNo,
        fh: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        flock: bool,
        reply: ReplyLock,
    ) {
        let Some(asked) = asked_lock((fh.0, owner.0), (start, end), typ, pid, flock) else {
            return reply.error(errno(Error::Invalid));
        };
        self.0
            .test_lock(req.unique().0, asked, move |result| match result {
                Ok(None) => reply.locked(start, end, libc::F_UNLCK, 0),
                Ok(Some((by, ours))) => {
                    let typ = match by.hold {
                        Hold::Shared => libc::F_RDLCK,
                        Hold::Exclusive => libc::F_WRLCK,
                    };
                    // Numbers of processes on other machines say nothing here.
                    let pid = if ours { by.pid } else { 0 };
                    let (first, last) = (by.span.first.min(LAST), by.span.last.min(LAST));
                    reply.locked(first, last, typ, pid);
                }
                Err(e) => reply.error(lock_errno(e)),
            });
    }

    fn setlk(
        &self,
        req: &Request,
        _n: INodeNo,
        fh: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        flock: bool,
        reply: ReplyEmpty,
    ) {
        let Some(asked) = asked_lock((fh.0, owner.0), (start, end), typ, pid, flock) else {
            return reply.error(errno(Error::Invalid));
        };
        let told = move |result| match result {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(lock_errno(e)),
        };
        if sleep {
            return self.0.set_lock(req.unique().0, asked, sleep, told);
        }
        // Who does not wait for others does not expect EINTR: only who is killed is answered before it is
        // known.
        if calls::change().is_err() {
            return told(Err(LockError::Interrupted));
        }
        let (finder, found) = later();
        self.0.set_lock(0, asked, sleep, move |result| finder.put(result));
        let known = self.0.with(|d| d.run(found).ok_or(Error::Io));
        told(known.unwrap_or_else(|e| Err(LockError::Failed(e))));
    }

    fn lookup(&self, req: &Request, parent: INodeNo, n: &OsStr, reply: ReplyEntry) {
        let cred = self.cred(req);
        let changes = self.0.changes();
        let result = name(n).and_then(|n| {
            self.0
                .with(|d| self.0.look_up(d, &cred, req.pid(), ino(parent), &n))
        });
        if let (Some(looked), Ok(shown)) = (&self.0.looked, &result) {
            let slot = self.0.nodes().file(ino(shown.attr.ino));
            looked.found(req.pid(), shown, slot, changes);
        }
        self.entry(parent, reply, result);
    }

    fn forget(&self, _req: &Request, n: INodeNo, nlookup: u64) {
        self.0.forget(ino(n), nlookup);
    }

    fn getattr(&self, req: &Request, n: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let just_now = (self.0.looked.as_ref()).and_then(|looked| looked.just_now(ino(n), self.0.changes()));
        let result = match just_now {
            Some(shown) => Ok(shown),
            None => self.0.with(|d| self.0.look_at(d, req.pid(), ino(n))),
        };
        self.attr(reply, result);
    }

    fn setattr(
        &self,
        req: &Request,
        n: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = AttrChange {
            perm: mode.map(|m| Perm::new(m as u16)),
            uid,
            gid,
            size,
            atime: atime.map(time_change),
            mtime: mtime.map(time_change),
        };
        let cred = self.cred(req);
        let result = self.0.with(|d| {
            // No program sets it.
            if ctime.is_some() {
                self.0.writes_back(d, ino(n))?;
            }
            self.0
                .change(d, &cred, req.pid(), ino(n), change, fh.map(|f| f.0))
        });
        self.attr(reply, result);
    }

    fn readlink(&self, req: &Request, n: INodeNo, reply: ReplyData) {
        let cred = self.cred(req);
        let target = self.0.with(|d| self.0.readlink(d, &cred, ino(n)));
        match self.0.by_node(req.pid(), ino(n), target) {
            Ok(target) => reply.data(&target),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        n: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let special = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => None,
            libc::S_IFIFO => Some(FileKind::Fifo),
            libc::S_IFSOCK => Some(FileKind::Socket),
            libc::S_IFCHR => Some(FileKind::CharDevice),
            libc::S_IFBLK => Some(FileKind::BlockDevice),
            _ => return reply.error(errno(Error::Invalid)),
        };
        let (cred, mode) = (self.cred(req), asked(mode, umask));
        let result = self.changing(req, parent, n, |d, parent, n| match special {
            None => self.0.mknod(d, &cred, parent, n, mode),
            Some(kind) => self.0.make_special(d, &cred, parent, n, (kind, mode, rdev)),
        });
        self.entry(parent, reply, result);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, n: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let (cred, mode) = (self.cred(req), asked(mode, umask));
        let result = self.changing(req, parent, n, |d, parent, n| {
            self.0.mkdir(d, &cred, parent, n, mode)
        });
        self.entry(parent, reply, result);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, n: &OsStr, reply: ReplyEmpty) {
        let cred = self.cred(req);
        let removed = self.changing(req, parent, n, |d, parent, n| self.0.unlink(d, &cred, parent, n));
        empty(reply, removed);
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, n: &OsStr, reply: ReplyEmpty) {
        let cred = self.cred(req);
        let removed = self.changing(req, parent, n, |d, parent, n| self.0.rmdir(d, &cred, parent, n));
        empty(reply, removed);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, n: &OsStr, target: &Path, reply: ReplyEntry) {
        let cred = self.cred(req);
        let target = target.as_os_str().as_bytes();
        let result = self.changing(req, parent, n, |d, parent, n| {
            self.0.symlink(d, &cred, parent, n, target)
        });
        self.entry(parent, reply, result);
    }

    fn link(&self, req: &Request, node: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let cred = self.cred(req);
        let result = name(newname).and_then(|n| {
            let (from, to) = (ino(node), ino(newparent));
            self.0
                .with(|d| self.0.link_again(d, &cred, req.pid(), from, to, &n))
        });
        self.entry(newparent, reply, result);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        n: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = if flags.is_empty() {
            RenameMode::Replace
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            RenameMode::NoReplace
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            RenameMode::Exchange
        } else {
            return reply.error(errno(Error::Invalid));
        };
        let cred = self.cred(req);
        let result = name(n).and_then(|from| {
            self.changing(req, newparent, newname, |d, to, new| {
                let from = (ino(parent), &from);
                self.0.rename_again(d, &cred, req.pid(), from, (to, new), mode)
            })
        });
        empty(reply, result);
    }

    fn open(&self, req: &Request, n: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let cred = self.cred(req);
        let want = Want::new(flags.0);
        let reader = want.only_reads().then_some(&cred);
        let ahead = self.0.foreseen.opens(req.pid(), ino(n), reader);
        let opened = self.0.with(|d| self.0.open(d, &cred, ino(n), &want, ahead));
        match self.0.by_node(req.pid(), ino(n), opened) {
            Ok((fh, flags)) => {
                reply.opened(FileHandle(fh), flags);
                if calls::cut_off() {
                    self.release_again(fh);
                }
            }
            Err(e) => reply.error(errno(e)),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        n: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (cred, mode) = (self.cred(req), asked(mode, umask));
        let result = self.changing(req, parent, n, |d, parent, n| {
            self.0.create(d, &cred, parent, n, mode, flags)
        });
        self.created(parent, reply, result);
    }

    fn tmpfile(&self, req: &Request, parent: INodeNo, mode: u32, umask: u32, flags: i32, reply: ReplyCreate) {
        let (cred, mode) = (self.cred(req), asked(mode, umask));
        let result = self
            .0
            .with(|d| self.0.create_unnamed(d, &cred, ino(parent), mode, flags));
        self.created(parent, reply, result);
    }

    fn read(
        &self,
        _req: &Request,
        _n: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.with(|d| self.0.read(d, fh.0, offset, size)) {
            Ok(data) => reply.data(&data),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn write(
        &self,
        _req: &Request,
        _n: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let to = To::new(
            offset,
            flags.0,
            write_flags.contains(WriteFlags::FUSE_WRITE_CACHE),
        );
        // Bytes that may be stored were not "interrupted".
        let written = calls::change().and_then(|()| self.0.with(|d| self.0.write(d, fh.0, data, to)));
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn flush(&self, _req: &Request, _n: INodeNo, fh: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        calls::closes();
        let published = self.0.with(|d| self.0.flush(d, fh.0));
        // A process that closes any descriptor of a file has no locks on it any more.
        self.0.unlock_all(fh.0, LockFamily::Posix, owner.0);
        empty(reply, published);
    }

    fn release(
        &self,
        _req: &Request,
        _n: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let lockers = self.0.lockers_of(fh.0);
        if !lockers.is_empty() {
            let _ = self.0.with(|d| self.0.flush(d, fh.0));
        }
        for (family, token) in lockers {
            self.0.unlock_all(fh.0, family, token);
        }
        let result = self.0.with(|d| {
            self.0.release(d, fh.0);
            Ok(())
        });
        empty(reply, result);
    }

    fn fsync(&self, _req: &Request, _n: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        empty(reply, self.0.with(|d| self.0.fsync(d, fh.0)));
    }

    fn opendir(&self, req: &Request, n: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let cred = self.cred(req);
        match self.0.with(|d| self.0.open_dir(d, &cred, req.pid(), ino(n))) {
            Ok(fh) => {
                reply.opened(FileHandle(fh), FopenFlags::empty());
                if calls::cut_off() {
                    self.0.close_dir(ino(n), fh);
                }
            }
            Err(e) => reply.error(errno(e)),
        }
    }

    fn readdir(&self, _req: &Request, n: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let result = self.0.with(|d| {
            self.0
                .readdir(d, ino(n), fh.0, offset, |ino, cookie, kind, name| {
                    reply.add(INodeNo(ino.0), cookie, kind, OsStr::from_bytes(name))
                })
        });
        match result {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        n: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut given = Vec::new();
        let believed = self.ttl(n);
        let result = self.0.with(|d| {
            self.0.readdirplus(d, ino(n), fh.0, offset, |line| {
                let Line {
                    attr,
                    generation,
                    name,
                    cookie,
                    ttl,
                } = line;
                let ttl = ttl.min(believed);
                let full = reply.add(
                    attr.ino,
                    cookie,
                    OsStr::from_bytes(name),
                    &ttl,
                    &attr,
                    Generation(generation),
                );
                if !full && !matches!(name, b"." | b"..") {
                    given.push(attr.ino);
                }
                full
            })
        });
        let failed = result.is_err();
        match result {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(e)),
        }
        if failed || calls::cut_off() {
            given.into_iter().for_each(|n| self.forget_again(n));
        }
    }

    fn releasedir(&self, _req: &Request, n: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.0.close_dir(ino(n), fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, _req: &Request, n: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        empty(reply, self.0.with(|d| self.0.fsyncdir(d, ino(n))));
    }

    fn statfs(&self, _req: &Request, _n: INodeNo, reply: ReplyStatfs) {
        const UNIT: u32 = 4096;
        match self.0.with(|d| d.statfs()) {
            Ok(s) => {
                let (total, free) = (s.total / u64::from(UNIT), s.available / u64::from(UNIT));
                // No number of files is fixed: 0 of 0, as other filesystems without inode tables show it.
                reply.statfs(total, free, free, 0, 0, UNIT, pando_types::NAME_MAX as u32, UNIT);
            }
            Err(e) => reply.error(errno(e)),
        }
    }

    fn setxattr(
        &self,
        req: &Request,
        n: INodeNo,
        attr: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return reply.error(errno(Error::Invalid)),
        };
        let cred = self.cred(req);
        let set = self.0.with(|d| {
            self.0
                .put_xattr(d, &cred, req.pid(), ino(n), (attr.as_bytes(), value), mode)
        });
        empty(reply, set);
    }

    fn getxattr(&self, req: &Request, n: INodeNo, attr: &OsStr, size: u32, reply: ReplyXattr) {
        let cred = self.cred(req);
        let value = self
            .0
            .with(|d| self.0.xattr(d, &cred, req.pid(), ino(n), attr.as_bytes()));
        sized(reply, value, size);
    }

    fn listxattr(&self, req: &Request, n: INodeNo, size: u32, reply: ReplyXattr) {
        let cred = self.cred(req);
        let names = self.0.with(|d| self.0.xattrs(d, &cred, req.pid(), ino(n)));
        sized(reply, names, size);
    }

    fn removexattr(&self, req: &Request, n: INodeNo, attr: &OsStr, reply: ReplyEmpty) {
        let cred = self.cred(req);
        let removed = self
            .0
            .with(|d| self.0.take_xattr(d, &cred, req.pid(), ino(n), attr.as_bytes()));
        empty(reply, removed);
    }

    fn access(&self, req: &Request, n: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let cred = self.cred(req);
        let may = self.0.with(|d| self.0.access(d, &cred, ino(n), mask.bits()));
        empty(reply, self.0.by_node(req.pid(), ino(n), may));
    }

    fn fallocate(
        &self,
        _req: &Request,
        _n: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        empty(
            reply,
            calls::change().and_then(|()| self.0.with(|d| self.0.allocate(d, fh.0, offset, length, mode))),
        );
    }

    fn lseek(&self, _r: &Request, _i: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let found = match (u64::try_from(offset), whence) {
            (Err(_), libc::SEEK_DATA | libc::SEEK_HOLE) => Ok(None),
            (Ok(from), libc::SEEK_DATA) => self.0.with(|d| self.0.seek(d, fh.0, from, false)),
            (Ok(from), libc::SEEK_HOLE) => self.0.with(|d| self.0.seek(d, fh.0, from, true)),
            _ => Err(Error::Invalid),
        };
        match found.map(|at| at.and_then(|at| i64::try_from(at).ok())) {
            Ok(Some(at)) => reply.offset(at),
            Ok(None) => reply.error(fuser::Errno::from_i32(libc::ENXIO)),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn copy_file_range(
        &self,
        _r: &Request,
        _i: INodeNo,
        from: FileHandle,
        at: u64,
        _o: INodeNo,
        to: FileHandle,
        out: u64,
        len: u64,
        _f: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The answer has 32 bits.
        let len = len.min(1 << 30);
        let copied = calls::change().and_then(|()| {
            self.0
                .with(|d| self.0.copy_range(d, (from.0, at), (to.0, out), len))
        });
        match copied {
            Ok(n) => reply.written(n as u32),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn ioctl(
        &self,
        _r: &Request,
        _i: INodeNo,
        _fh: FileHandle,
        _f: IoctlFlags,
        _c: u32,
        _d: &[u8],
        _o: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(fuser::Errno::from_i32(libc::ENOTTY));
    }
}
