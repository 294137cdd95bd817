//! What third_party/fuser/PATCHES.md says of threads and interrupts: an interrupt comes while all threads are
//! busy, and for what waits for a thread; a thread that ends is replaced.

#![allow(clippy::unwrap_used)]

use fuser::{
    Config, Errno, FileHandle, Filesystem, INodeNo, InitFlags, KernelConfig, Next, ReplyAttr, ReplyEntry,
    Request, RequestId, Requests, Session, SessionACL,
};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

fn directory(ino: INodeNo) -> fuser::FileAttr {
    fuser::FileAttr {
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
    }
}

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
        reply.attr(&Duration::ZERO, &directory(ino));
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
    if !crate::support::can_mount() {
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

/// What becomes of the next request, and of the thread that has read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Dropped,
    Ends,
    Panics,
}

const FAULTS: [Fault; 6] = [
    Fault::Dropped,
    Fault::Ends,
    Fault::Panics,
    Fault::Dropped,
    Fault::Ends,
    Fault::Panics,
];

/// Serves by itself, and has faults.
#[derive(Clone, Default)]
struct Careless {
    fault: Arc<Mutex<Option<Fault>>>,
    /// Who looks for `stuck-*` waits for this.
    released: Arc<AtomicBool>,
}

impl Filesystem for Careless {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }

    fn serve(&self, mut requests: Requests<Careless>) -> io::Result<()> {
        while requests.wait(false)? {
            match requests.next()? {
                Next::Nothing => std::thread::sleep(Duration::from_millis(1)),
                Next::End => break,
                Next::Request(_) => {
                    let fault = self.fault.lock().unwrap().take();
                    if fault.is_none() {
                        if requests.step_aside() {
                            requests.serve_here();
                        } else {
                            assert!(requests.hand_over());
                        }
                        continue;
                    }
                    let _taken = requests.take();
                    match fault {
                        Some(Fault::Ends) => return Err(io::Error::other("it ends")),
                        Some(Fault::Panics) => panic!("it panics"),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &directory(ino));
    }

    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let stuck = name.as_encoded_bytes().starts_with(b"stuck");
        while stuck && !self.released.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        reply.error(Errno::ENOENT);
    }
}

#[test]
fn whatever_becomes_of_a_thread_its_requests_are_answered_and_another_reads() {
    if !crate::support::can_mount() {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let careless = Careless::default();
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.max_threads = 3;
    config.clone_fd = true;
    let session = Session::new(careless.clone(), tmp.path(), &config)
        .unwrap()
        .spawn()
        .unwrap();
    let look = |name: &str| {
        let found = std::fs::metadata(tmp.path().join(name));
        found.map(drop).unwrap_err().raw_os_error()
    };
    std::thread::scope(|scope| {
        for (n, fault) in FAULTS.iter().enumerate() {
            if n == FAULTS.len() / 2 {
                // From now on all threads but the one that reads have something to do.
                scope.spawn(|| look("stuck-1"));
                scope.spawn(|| look("stuck-2"));
                std::thread::sleep(Duration::from_millis(100));
            }
            *careless.fault.lock().unwrap() = Some(*fault);
            assert_eq!(look("none"), Some(nix::libc::EIO), "{n}: {fault:?}");
            if n < FAULTS.len() / 2 {
                assert_eq!(look("none"), Some(nix::libc::ENOENT), "{n}: {fault:?}");
            }
        }
        careless.released.store(true, SeqCst);
    });
    assert_eq!(look("none"), Some(nix::libc::ENOENT));
    // That is told in the end.
    session.umount_and_join().unwrap_err();
}
