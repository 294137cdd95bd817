//! The kernel's side: a directory of the local filesystem, and calls as other users.

use super::steps::{Call, Path, list_name, masked, value};
use pando_model::RenameMode;
use pando_types::{Access, Acl, AclKind, Cred, Errno, FileKind, TimeChange, XattrMode};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// What can be compared of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub kind: FileKind,
    pub perm: u16,
    pub uid: u32,
    pub gid: u32,
    /// Of directories: the number of links. Of others: the size.
    pub count: u64,
    /// Content, or target.
    pub bytes: Vec<u8>,
    /// Extended attributes, by name.
    pub xattrs: Vec<(String, Vec<u8>)>,
}

/// Identity and times of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    pub id: u64,
    pub mtime: (i64, i64),
    pub ctime: (i64, i64),
}

pub struct Kernel {
    root: OwnedFd,
    // Removed when dropped.
    _dir: tempfile::TempDir,
}

type Done = Result<(), rustix::io::Errno>;

impl Kernel {
    pub fn new() -> Kernel {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = rustix::fs::open(dir.path(), OFlags::DIRECTORY, Mode::empty()).expect("open");
        rustix::fs::fchmod(&root, Mode::from_raw_mode(0o777)).expect("chmod");
        rustix::process::fchdir(&root).expect("chdir");
        Kernel { root, _dir: dir }
    }

    pub fn root_owner(&self) -> (u32, u32) {
        let s = rustix::fs::fstat(&self.root).expect("stat");
        (s.st_uid, s.st_gid)
    }

    /// Whether each change of the root that follows a look at it gets a new ctime. (On tmpfs some do and some
    /// do not.)
    pub fn has_fine_times(&self) -> bool {
        let time = || {
            let s = rustix::fs::fstat(&self.root).expect("stat");
            (s.st_ctime, s.st_ctime_nsec)
        };
        let (at, mode) = (&self.root, Mode::from_raw_mode(0o777));
        let changes: [&dyn Fn() -> Done; 6] = [
            &|| rustix::fs::fchmod(at, mode),
            &|| rustix::fs::mkdirat(at, "x", mode),
            &|| rustix::fs::renameat(at, "x", at, "y"),
            &|| rustix::fs::unlinkat(at, "y", AtFlags::REMOVEDIR),
            &|| rustix::fs::openat(at, "z", OFlags::CREATE, mode).map(drop),
            &|| rustix::fs::unlinkat(at, "z", AtFlags::empty()),
        ];
        (0..50).all(|_| {
            // All are run, so that nothing is left behind.
            changes.iter().fold(true, |fine, change| {
                let before = time();
                change().expect("a probe of times");
                before != time() && fine
            })
        })
    }

    /// Calls as another user. Only the calling thread changes its identity.
    pub fn call(&self, cred: &Cred, call: &Call) -> Result<(), Errno> {
        let handle = match call {
            Call::TruncateHandle(p, _) | Call::Write(p, _, _) => Some(
                rustix::fs::openat(&self.root, p.text(), OFlags::WRONLY, Mode::empty()).expect("root opens"),
            ),
            _ => None,
        };
        let switch = rustix::process::getuid().is_root();
        if switch {
            let groups: Vec<Gid> = cred.groups.iter().map(|g| Gid::from_raw(*g)).collect();
            set_thread_groups(&groups).expect("setgroups");
            set_thread_res_gid(None, Gid::from_raw(cred.gid), None).expect("setresgid");
            set_thread_res_uid(None, Uid::from_raw(cred.uid), None).expect("setresuid");
        }
        let umask = match call {
            Call::Create(_, perm, _, _) | Call::Mkdir(_, perm) | Call::Mknod(_, _, perm) => {
                masked(*perm).umask
            }
            _ => pando_types::Perm::new(0),
        };
        rustix::process::umask(Mode::from_raw_mode(umask.bits().into()));
        let done = self.run(call, handle.as_ref());
        rustix::process::umask(Mode::empty());
        if switch {
            set_thread_res_uid(None, Uid::ROOT, None).expect("back to root");
            set_thread_res_gid(None, Gid::ROOT, None).expect("back to root");
            set_thread_groups(&[]).expect("back to root");
        }
        done.map_err(errno)
    }

    fn run(&self, call: &Call, handle: Option<&OwnedFd>) -> Done {
        let at = &self.root;
        let mode = |p: &pando_types::Perm| Mode::from_raw_mode(u32::from(p.bits()));
        let open = |p: &Path, flags, mode| rustix::fs::openat(at, p.text(), flags | OFlags::NOFOLLOW, mode);
        match call {
            Call::Stat(p) => rustix::fs::statat(at, p.text(), AtFlags::SYMLINK_NOFOLLOW).map(drop),
            Call::List(p) => open(p, OFlags::DIRECTORY, Mode::empty()).map(drop),
            Call::ReadLink(p) => rustix::fs::readlinkat(at, p.text(), Vec::new()).map(drop),
            Call::Open(p, want) => open(p, flags(*want), Mode::empty()).map(drop),
            Call::Create(p, perm, exclusive, want) => {
                let excl = if *exclusive { OFlags::EXCL } else { OFlags::empty() };
                open(p, flags(*want) | OFlags::CREATE | excl, mode(perm)).map(drop)
            }
            Call::Symlink(p, target) => rustix::fs::symlinkat(*target, at, p.text()),
            Call::Mkdir(p, perm) => rustix::fs::mkdirat(at, p.text(), mode(perm)),
            Call::Rmdir(p) => rustix::fs::unlinkat(at, p.text(), AtFlags::REMOVEDIR),
            Call::Unlink(p) => rustix::fs::unlinkat(at, p.text(), AtFlags::empty()),
            Call::Chmod(p, perm) => rustix::fs::chmodat(at, p.text(), mode(perm), AtFlags::empty()),
            Call::Chown(p, uid, gid) => {
                let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                rustix::fs::chownat(at, p.text(), uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
            Call::Truncate(p, size) => {
                let file = open(p, OFlags::WRONLY, Mode::empty())?;
                rustix::fs::ftruncate(file, *size)
            }
            Call::TruncateHandle(_, size) => rustix::fs::ftruncate(handle.expect("opened"), *size),
            Call::Write(_, bytes, size) => {
                let file = handle.expect("opened");
                rustix::fs::ftruncate(file, 0)?;
                rustix::io::pwrite(file, bytes.as_bytes(), 0)?;
                rustix::fs::ftruncate(file, *size)
            }
            Call::Utimens(p, atime, mtime) => {
                let times = Timestamps {
                    last_access: timespec(*atime),
                    last_modification: timespec(*mtime),
                };
                rustix::fs::utimensat(at, p.text(), &times, AtFlags::SYMLINK_NOFOLLOW)
            }
            Call::Mknod(p, kind, perm) => {
                let (kind, device) = match kind {
                    FileKind::Fifo => (FileType::Fifo, 0),
                    FileKind::Socket => (FileType::Socket, 0),
                    _ => (FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
                };
                rustix::fs::mknodat(at, p.text(), kind, mode(perm), device)
            }
            // There is no such call that begins at a descriptor: it is where this test works.
            Call::GetXattr(p, attr) => rustix::fs::lgetxattr(p.text(), *attr, &mut [0_u8; 100][..]).map(drop),
            Call::SetXattr(p, attr, mode) => {
                let flags = match mode {
                    XattrMode::Any => XattrFlags::empty(),
                    XattrMode::Create => XattrFlags::CREATE,
                    XattrMode::Replace => XattrFlags::REPLACE,
                };
                rustix::fs::lsetxattr(p.text(), *attr, &value(attr, *mode), flags)
            }
            Call::RemoveXattr(p, attr) => rustix::fs::lremovexattr(p.text(), *attr),
            Call::SetAcl(p, kind, Some(list)) => {
                let value = Acl::parse(list).expect("a list").to_xattr();
                rustix::fs::lsetxattr(p.text(), list_name(*kind), &value, XattrFlags::empty())
            }
            Call::SetAcl(p, kind, None) => rustix::fs::lremovexattr(p.text(), list_name(*kind)),
            Call::Rename(from, to, mode) => {
                let flags = match mode {
                    RenameMode::Replace => RenameFlags::empty(),
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                };
                rustix::fs::renameat_with(at, from.text(), at, to.text(), flags)
            }
            Call::Link(from, to) => rustix::fs::linkat(at, from.text(), at, to.text(), AtFlags::empty()),
        }
    }

    /// Whether all namespaces of extended attributes are to be had here.
    pub fn has_xattrs(&self) -> bool {
        let set = |attr| rustix::fs::lsetxattr(".", attr, &value(attr, XattrMode::Any), XattrFlags::empty());
        let all = ["user.a", "trusted.t", "security.s", "security.capability"];
        let list = list_name(AclKind::Access);
        let minimal = Acl::parse("u::7,g::7,o::7").expect("a list").to_xattr();
        let lists = rustix::fs::lsetxattr(".", list, &minimal, XattrFlags::empty()).is_ok();
        let some = lists && all.iter().all(|attr| set(attr).is_ok());
        for attr in all {
            let _ = rustix::fs::lremovexattr(".", attr);
        }
        some
    }

    fn xattrs(&self, path: &str) -> Vec<(String, Vec<u8>)> {
        let mut names = [0_u8; 4096];
        // Where there are none to be had, that is what there are.
        let n = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
        let names = names[..n].split(|b| *b == 0).filter(|name| !name.is_empty());
        let mut all: Vec<(String, Vec<u8>)> = names
            .map(|name| {
                let name = String::from_utf8(name.to_vec()).expect("ASCII");
                let mut value = [0_u8; 100];
                let n = rustix::fs::lgetxattr(path, &name, &mut value[..]).expect("listed");
                (name, value[..n].to_vec())
            })
            .collect();
        all.sort();
        all
    }

    /// The whole tree, by path.
    pub fn walk(&self) -> BTreeMap<String, (Seen, Times)> {
        let mut out = BTreeMap::new();
        let mut todo = vec![String::new()];
        while let Some(path) = todo.pop() {
            let at = if path.is_empty() { "." } else { path.as_str() };
            let s = rustix::fs::statat(&self.root, at, AtFlags::SYMLINK_NOFOLLOW).expect("stat");
            let (kind, count, bytes) = match FileType::from_raw_mode(s.st_mode) {
                FileType::Directory => {
                    let fd =
                        rustix::fs::openat(&self.root, at, OFlags::DIRECTORY, Mode::empty()).expect("open");
                    for entry in rustix::fs::Dir::new(fd).expect("list") {
                        let name = entry
                            .expect("entry")
                            .file_name()
                            .to_str()
                            .expect("ASCII")
                            .to_owned();
                        if name != "." && name != ".." {
                            todo.push(if path.is_empty() {
                                name
                            } else {
                                format!("{path}/{name}")
                            });
                        }
                    }
                    (FileKind::Directory, s.st_nlink, Vec::new())
                }
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(&self.root, at, Vec::new()).expect("readlink");
                    (FileKind::Symlink, s.st_size as u64, target.into_bytes())
                }
                FileType::Fifo => (FileKind::Fifo, 0, Vec::new()),
                FileType::Socket => (FileKind::Socket, 0, Vec::new()),
                FileType::CharacterDevice => (FileKind::CharDevice, s.st_rdev, Vec::new()),
                _ => {
                    let fd = rustix::fs::openat(&self.root, at, OFlags::RDONLY, Mode::empty()).expect("open");
                    let mut bytes = vec![0; s.st_size as usize];
                    let n = rustix::io::pread(&fd, &mut bytes, 0).expect("read");
                    assert_eq!(n, bytes.len());
                    (FileKind::Regular, s.st_size as u64, bytes)
                }
            };
            let perm = (s.st_mode & 0o7777) as u16;
            let seen = Seen {
                kind,
                perm,
                uid: s.st_uid,
                gid: s.st_gid,
                count,
                bytes,
                xattrs: self.xattrs(at),
            };
            let times = Times {
                id: s.st_ino,
                mtime: (s.st_mtime, s.st_mtime_nsec as i64),
                ctime: (s.st_ctime, s.st_ctime_nsec as i64),
            };
            out.insert(path, (seen, times));
        }
        out
    }
}

fn flags(want: Access) -> OFlags {
    match want.0 & 6 {
        4 => OFlags::RDONLY,
        2 => OFlags::WRONLY,
        _ => OFlags::RDWR,
    }
}

fn timespec(t: Option<TimeChange>) -> Timespec {
    match t {
        None => Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT as _,
        },
        Some(TimeChange::Now) => Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_NOW as _,
        },
        Some(TimeChange::To(t)) => Timespec {
            tv_sec: t.secs,
            tv_nsec: t.nanos.into(),
        },
    }
}

fn errno(e: rustix::io::Errno) -> Errno {
    use rustix::io::Errno as E;
    match e {
        E::NOENT => Errno::NotFound,
        E::EXIST => Errno::Exists,
        E::NOTDIR => Errno::NotDir,
        E::ISDIR => Errno::IsDir,
        E::NOTEMPTY => Errno::NotEmpty,
        E::ACCESS => Errno::Access,
        E::PERM => Errno::Perm,
        E::INVAL => Errno::Invalid,
        E::LOOP => Errno::Loop,
        E::NODATA => Errno::NoData,
        E::OPNOTSUPP => Errno::Unsupported,
        other => panic!("unexpected {other:?}"),
    }
}
