//! Files and directories that one mount walks to while another removes or replaces them.

#![allow(clippy::unwrap_used)]

use crate::support::{Sizes, TestCluster, can_mount};
use nix::libc;
use pando_fuse::{MountOptions, Mounted, mount};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime};

/// Two mounts of one cluster, each of which believes names for so long.
struct Two {
    mounts: Vec<Mounted>,
    _cluster: TestCluster,
    _tmp: tempfile::TempDir,
}

impl Two {
    fn new(timeout: Duration) -> Option<Two> {
        if !can_mount() {
            return None;
        }
        let tmp = tempfile::tempdir().unwrap();
        let cluster = TestCluster::start(&tmp.path().join("data"), Sizes::default());
        let mounts = ["a", "b"].map(|name| {
            let at = tmp.path().join(name);
            fs::create_dir(&at).unwrap();
            let options = MountOptions {
                timeout,
                ..MountOptions::new(at)
            };
            mount(&options, cluster.cluster()).unwrap()
        });
        Some(Two {
            mounts: mounts.into(),
            _cluster: cluster,
            _tmp: tmp,
        })
    }

    fn at(&self, mount: usize, path: &str) -> PathBuf {
        self.mounts[mount].mountpoint().join(path)
    }
}

fn errno<T>(r: std::io::Result<T>) -> i32 {
    r.err().and_then(|e| e.raw_os_error()).unwrap_or(0)
}

const TIMEOUTS: [Duration; 2] = [Duration::ZERO, Duration::from_secs(1)];

#[test]
fn what_another_mount_has_replaced_is_walked_to_again() {
    for timeout in TIMEOUTS {
        let Some(two) = Two::new(timeout) else { return };
        let (here, there) = (|p: &str| two.at(0, p), |p: &str| two.at(1, p));
        let long = |i: u32| format!("{i:0500}");
        fs::write(here("new"), b"0").unwrap();
        for i in 1..20 {
            fs::rename(here("new"), here("file")).unwrap();
            symlink(long(i), here("new")).unwrap();
            fs::rename(here("new"), here("link")).unwrap();
            fs::create_dir(here("new")).unwrap();
            fs::rename(here("new"), here("dir")).unwrap();
            if i == 1 {
                // The kernel knows all three from now on.
                for name in ["file", "link", "dir"] {
                    while fs::symlink_metadata(there(name)).is_err() {}
                }
            }
            assert_eq!(fs::read(there("file")).unwrap(), (i - 1).to_string().as_bytes());
            fs::metadata(there("file")).unwrap();
            fs::read_link(there("link")).unwrap();
            assert_eq!(fs::read_dir(there("dir")).unwrap().count(), 0);
            fs::write(here("new"), i.to_string()).unwrap();
        }
    }
}

#[test]
fn what_another_mount_has_removed_is_created_anew() {
    for timeout in TIMEOUTS {
        let Some(two) = Two::new(timeout) else { return };
        for i in 0..20 {
            let mut f = OpenOptions::new();
            let f = f.create(true).append(true).open(two.at(0, "file"));
            assert_eq!(f.unwrap().metadata().unwrap().len(), 0, "{i}");
            while fs::remove_file(two.at(1, "file")).is_err() {}
        }
    }
}

#[test]
fn creating_and_removing_race() {
    for timeout in TIMEOUTS {
        let Some(two) = Two::new(timeout) else { return };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(SeqCst) {
                    assert!(matches!(
                        errno(fs::remove_file(two.at(1, "file"))),
                        0 | libc::ENOENT
                    ));
                }
            });
            let until = Instant::now() + Duration::from_secs(1);
            let mut failed = Vec::new();
            while Instant::now() < until {
                let mut f = OpenOptions::new();
                failed.extend(f.create(true).append(true).open(two.at(0, "file")).err());
            }
            done.store(true, SeqCst);
            assert!(failed.is_empty(), "{failed:?}");
        });
    }
}

/// As a local filesystem has it, as long as it is open.
fn removed_directory(two: &Two, remover: usize) {
    let path = format!("dir-{remover}");
    fs::create_dir(two.at(remover, &path)).unwrap();
    while fs::metadata(two.at(0, &path)).is_err() {}
    let dir = File::open(two.at(0, &path)).unwrap();
    let before = dir.metadata().unwrap();
    fs::remove_dir(two.at(remover, &path)).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let after = dir.metadata().unwrap();
    assert_eq!((after.nlink(), after.ino()), (0, before.ino()));
    dir.set_permissions(fs::Permissions::from_mode(0o710)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(99);
    dir.set_times(FileTimes::new().set_modified(time)).unwrap();
    let after = dir.metadata().unwrap();
    assert_eq!(
        (after.mode() & 0o7777, after.mtime(), after.nlink()),
        (0o710, 99, 0)
    );
    let within = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    assert_eq!(errno(fs::create_dir(within.join("x"))), libc::ENOENT);
    assert_eq!(errno(fs::write(within.join("x"), b"")), libc::ENOENT);
    assert_eq!(errno(symlink("x", within.join("x"))), libc::ENOENT);
    assert_eq!(errno(fs::metadata(within.join("x"))), libc::ENOENT);
    assert_eq!(errno(fs::remove_dir(within.join("x"))), libc::ENOENT);
    assert_eq!(errno(fs::metadata(two.at(0, &path))), libc::ENOENT);
}

#[test]
fn removed_directories_are_there_while_they_are_open() {
    for timeout in TIMEOUTS {
        let Some(two) = Two::new(timeout) else { return };
        for remover in [0, 1] {
            removed_directory(&two, remover);
        }
    }
}
