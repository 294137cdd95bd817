//! What third_party/fuser/PATCHES.md says of threads and interrupts: an interrupt comes while all threads are busy,
//! and for what waits for a thread.

#![allow(clippy::unwrap_used)]

mod support;

use fuser::{
    Config, Errno, FileHandle, Filesystem, INodeNo, InitFlags, KernelConfig, ReplyAttr, ReplyEntry, Request,
    RequestId, Session, SessionACL,
};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

#[derive(Default)]
struct Seen {
    served: usize,
    interrupted: BTreeSet<u64>,
}

#[derive(Clone, Default)]
struct Stuck(Arc<(Mutex<Seen>, Condvar)>);

impl Filesystem for Stuck {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }

    fn interrupt(&self, unique: RequestId) {
        self.0.0.lock().unwrap().interrupted.insert(unique.0);
        self.0.1.notify_all();
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let attr = fuser::FileAttr {
            ino,
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: fuser::FileType::Directory,
            perm: 0o777,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 512,
            flags: 0,
        };
        reply.attr(&Duration::ZERO, &attr);
    }

    fn lookup(&self, req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "none" {
            return reply.error(Errno::ENOENT);
        }
        let (seen, changed) = &*self.0;
        let mut seen = seen.lock().unwrap();
        seen.served += 1;
        while !seen.interrupted.contains(&req.unique().0) {
            seen = changed.wait(seen).unwrap();
        }
        reply.error(Errno::EINTR);
    }
}

fn start(program: &str, path: &std::path::Path) -> Child {
    Command::new(program)
        .arg(path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The signal that ended each, all within some seconds.
fn ends(children: &mut [Child]) -> Vec<Option<i32>> {
    let until = Instant::now() + Duration::from_secs(20);
    let end = |child: &mut Child| loop {
        if let Some(status) = child.try_wait().unwrap() {
            return std::os::unix::process::ExitStatusExt::signal(&status);
        }
        assert!(Instant::now() < until, "a call was not interrupted");
        std::thread::sleep(Duration::from_millis(5));
    };
    children.iter_mut().map(end).collect()
}

#[test]
fn interrupts_come_while_all_threads_are_busy() {
    if !support::can_mount() {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let stuck = Stuck::default();
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.n_threads = Some(1);
    config.max_threads = 3;
    config.clone_fd = true;
    let session = Session::new(stuck.clone(), tmp.path(), &config)
        .unwrap()
        .spawn()
        .unwrap();
    let mut children: Vec<Child> = (0..6)
        .map(|n| start("stat", &tmp.path().join(format!("stuck-{n}"))))
        .collect();
    let served = || stuck.0.0.lock().unwrap().served;
    let until = Instant::now() + Duration::from_secs(20);
    while served() < 2 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    // The others are read by now, or soon, and wait for a thread; the third thread only reads.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(served(), 2);
    for child in &children {
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    }
    assert_eq!(ends(&mut children), [Some(2); 6]);
    // All threads are free again.
    let mut last = [start("cat", &tmp.path().join("none"))];
    assert_eq!(ends(&mut last), [None]);
    session.umount_and_join().unwrap();
}
