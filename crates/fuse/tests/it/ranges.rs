//! Holes, copies of parts of files, and times at the ends of what there is, on a mount over real servers.

#![allow(clippy::unwrap_used)]

use crate::support::{Sizes, TestCluster, can_mount};
use nix::libc;
use pando_fuse::{MountOptions, Mounted, mount};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

const BLOCK: u64 = 8192;

struct Here {
    mounted: Mounted,
    _cluster: TestCluster,
    tmp: tempfile::TempDir,
}

impl Here {
    fn new() -> Option<Here> {
        if !can_mount() {
            return None;
        }
        let tmp = tempfile::tempdir().unwrap();
        let sizes = Sizes {
            inline_limit: 4096,
            block_size: BLOCK as u32,
            servers: 2,
        };
        let cluster = TestCluster::start(&tmp.path().join("data"), sizes);
        let at = tmp.path().join("mnt");
        fs::create_dir(&at).unwrap();
        let mounted = mount(&MountOptions::new(at), cluster.cluster()).unwrap();
        Some(Here {
            mounted,
            _cluster: cluster,
            tmp,
        })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.mounted.mountpoint().join(name)
    }

    fn open(&self, name: &str) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(self.at(name)).unwrap()
    }

    /// Files of blocks that there are.
    fn blocks(&self) -> usize {
        fn count(dir: &std::path::Path) -> usize {
            let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
            let part = |p: PathBuf| {
                if p.is_dir() {
                    count(&p)
                } else {
                    usize::from(p.extension().is_some())
                }
            };
            entries.map(part).sum()
        }
        count(&self.tmp.path().join("data"))
    }
}

fn seek(f: &File, offset: i64, whence: i32) -> Result<i64, nix::Error> {
    let whence = match whence {
        libc::SEEK_DATA => nix::unistd::Whence::SeekData,
        _ => nix::unistd::Whence::SeekHole,
    };
    nix::unistd::lseek(f, offset, whence)
}

fn data(f: &File, offset: u64) -> Result<u64, nix::Error> {
    seek(f, offset as i64, libc::SEEK_DATA).map(|n| n as u64)
}

fn hole(f: &File, offset: u64) -> Result<u64, nix::Error> {
    seek(f, offset as i64, libc::SEEK_HOLE).map(|n| n as u64)
}

fn copy(from: &File, at: u64, to: &File, out: u64, len: usize) -> Result<usize, nix::Error> {
    let (mut at, mut out) = (at, out);
    let copied = rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut out), len);
    copied.map_err(|e| nix::Error::from_raw(e.raw_os_error()))
}

#[test]
fn holes_are_found() {
    let Some(here) = Here::new() else { return };
    let f = here.open("sparse");
    // Far behind what is looked for one by one.
    let far = 1000 * BLOCK;
    f.write_all_at(b"a", 2 * BLOCK + 5).unwrap();
    f.write_all_at(&vec![b'b'; 3 * BLOCK as usize], far).unwrap();
    f.set_len(far + 10 * BLOCK).unwrap();
    for step in ["open", "synced"] {
        assert_eq!(data(&f, 0), Ok(2 * BLOCK), "{step}");
        assert_eq!(data(&f, 2 * BLOCK + 2), Ok(2 * BLOCK + 2));
        // Behind what was written last in a block nothing is.
        assert_eq!(hole(&f, 2 * BLOCK + 2), Ok(2 * BLOCK + 6));
        assert_eq!(hole(&f, 2 * BLOCK + 9), Ok(2 * BLOCK + 9));
        assert_eq!(data(&f, 2 * BLOCK + 9), Ok(far));
        assert_eq!(hole(&f, 0), Ok(0));
        assert_eq!(data(&f, 3 * BLOCK), Ok(far));
        assert_eq!(hole(&f, far + 1), Ok(far + 3 * BLOCK));
        assert_eq!(data(&f, far + 3 * BLOCK), Err(nix::Error::ENXIO));
        assert_eq!(hole(&f, far + 10 * BLOCK - 1), Ok(far + 10 * BLOCK - 1));
        assert_eq!(hole(&f, far + 10 * BLOCK), Err(nix::Error::ENXIO));
        f.sync_all().unwrap();
    }
    let small = here.open("small");
    small.write_all_at(b"xyz", 0).unwrap();
    assert_eq!((data(&small, 1), hole(&small, 1)), (Ok(1), Ok(3)));
    assert_eq!(data(&small, 3), Err(nix::Error::ENXIO));
    // The largest file there is, with nothing in it.
    let largest = here.open("largest");
    largest.set_len(i64::MAX as u64).unwrap();
    assert_eq!(data(&largest, 0), Err(nix::Error::ENXIO));
    assert_eq!(hole(&largest, 1 << 60), Ok(1 << 60));
}

#[test]
fn copies_keep_holes() {
    let Some(here) = Here::new() else { return };
    let (a, b) = (here.open("a"), here.open("b"));
    let bytes: Vec<u8> = (0..5 * BLOCK).map(|n| (n % 251) as u8).collect();
    a.write_all_at(&bytes, BLOCK).unwrap();
    a.set_len(100 * BLOCK).unwrap();
    a.sync_all().unwrap();
    // Also over what is there, which goes where the source has a hole.
    b.write_all_at(&vec![9; 20 * BLOCK as usize], 0).unwrap();
    b.sync_all().unwrap();
    let mut done = 0;
    while done < 100 * BLOCK {
        let n = copy(&a, done, &b, done, (100 * BLOCK - done) as usize).unwrap();
        assert!(n > 0);
        done += n as u64;
    }
    b.sync_all().unwrap();
    assert!(fs::read(here.at("a")).unwrap() == fs::read(here.at("b")).unwrap());
    assert_eq!((data(&b, 0), hole(&b, BLOCK)), (Ok(BLOCK), Ok(6 * BLOCK)));
    assert_eq!(here.blocks(), 10);
    // Unaligned, past the end of the target, and no further than the end of the source.
    let c = here.open("c");
    assert_eq!(
        copy(&a, 3 * BLOCK + 7, &c, 11, 1 << 20),
        Ok((97 * BLOCK - 7) as usize)
    );
    drop(c);
    let c = fs::read(here.at("c")).unwrap();
    assert_eq!(c.len() as u64, 97 * BLOCK - 7 + 11);
    let from = 2 * BLOCK as usize + 7;
    assert!(c[..11] == [0; 11] && c[11..11 + bytes.len() - from] == bytes[from..]);
    assert!(c[11 + bytes.len() - from..].iter().all(|b| *b == 0));
    // Within one file; small ones; nothing.
    let d = here.open("d");
    d.write_all_at(b"0123456789", 0).unwrap();
    assert_eq!(copy(&d, 2, &d, 20, 4), Ok(4));
    assert_eq!(copy(&d, 100, &d, 0, 4), Ok(0));
    assert_eq!(copy(&d, 0, &d, 2, 4), Err(nix::Error::EINVAL));
    assert_eq!(
        fs::read(here.at("d")).unwrap(),
        b"0123456789\0\0\0\0\0\0\0\0\0\x002345"
    );
}

#[test]
fn times_at_the_ends() {
    let Some(here) = Here::new() else { return };
    let f = here.open("times");
    for (secs, nanos) in [
        (i64::MIN, 1),
        (i64::MIN, 0),
        (i64::MAX, 999_999_999),
        (-1, 999_999_999),
        (-2, 1),
    ] {
        let time = libc::timespec {
            tv_sec: secs,
            tv_nsec: nanos,
        };
        let time = nix::sys::time::TimeSpec::from_timespec(time);
        nix::sys::stat::futimens(&f, &time, &time).unwrap();
        let m = fs::metadata(here.at("times")).unwrap();
        // The kernel has no nanoseconds in the first and the last second.
        let nanos = if secs.unsigned_abs() >= i64::MAX as u64 {
            0
        } else {
            nanos
        };
        assert_eq!((m.mtime(), m.mtime_nsec()), (secs, nanos));
        assert_eq!((m.atime(), m.atime_nsec()), (secs, nanos));
    }
}
