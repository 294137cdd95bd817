//! Programs' calls on a mount over real servers.

#![allow(clippy::unwrap_used)]

use crate::support::{Sizes, TestCluster, can_mount};
use nix::libc;
use pando_fuse::{MountError, MountOptions, Mounted, mount};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// One or two mounts of one cluster.
struct Here {
    mounts: Vec<Mounted>,
    _cluster: TestCluster,
    tmp: tempfile::TempDir,
}

impl Here {
    fn new(mounts: usize, sizes: Sizes) -> Option<Here> {
        if !can_mount() {
            return None;
        }
        let tmp = tempfile::tempdir().unwrap();
        let cluster = TestCluster::start(&tmp.path().join("data"), sizes);
        let mounts = (0..mounts)
            .map(|i| {
                let at = tmp.path().join(format!("mnt{i}"));
                fs::create_dir(&at).unwrap();
                let options = MountOptions {
                    timeout: Duration::ZERO,
                    ..MountOptions::new(at)
                };
                mount(&options, cluster.cluster()).unwrap()
            })
            .collect();
        Some(Here {
            mounts,
            _cluster: cluster,
            tmp,
        })
    }

    fn at(&self, mount: usize, path: &str) -> PathBuf {
        self.mounts[mount].mountpoint().join(path)
    }

    fn blocks(&self) -> usize {
        fn count(dir: &Path) -> usize {
            fs::read_dir(dir)
                .unwrap()
                .map(|e| e.unwrap().path())
                .map(|p| {
                    if p.is_dir() {
                        count(&p)
                    } else {
                        usize::from(p.extension().is_some())
                    }
                })
                .sum()
        }
        count(&self.tmp.path().join("data"))
    }
}

fn errno<T>(r: std::io::Result<T>) -> i32 {
    r.err().and_then(|e| e.raw_os_error()).unwrap_or(0)
}

#[test]
fn files_of_every_size_around_the_limits() {
    let sizes = Sizes {
        inline_limit: 4096,
        block_size: 8192,
        ..Sizes::default()
    };
    let Some(here) = Here::new(2, sizes) else { return };
    for size in [0_usize, 1, 4095, 4096, 4097, 8191, 8192, 8193, 20_000, 300_000] {
        let data: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        let name = format!("f{size}");
        fs::write(here.at(0, &name), &data).unwrap();
        assert_eq!(fs::read(here.at(1, &name)).unwrap(), data);
        assert_eq!(fs::metadata(here.at(1, &name)).unwrap().len(), size as u64);
        for cut in [size / 2, size + 5000, 4096, 4097, 0, 10] {
            let f = OpenOptions::new().write(true).open(here.at(0, &name)).unwrap();
            f.set_len(cut as u64).unwrap();
            assert_eq!(f.metadata().unwrap().len(), cut as u64);
            drop(f);
            let now = fs::read(here.at(1, &name)).unwrap();
            assert_eq!(now.len(), cut);
        }
        assert_eq!(fs::read(here.at(0, &name)).unwrap(), [0; 10]);
    }
}

#[test]
fn names() {
    let Some(here) = Here::new(1, Sizes::default()) else {
        return;
    };
    let at = |p: &str| here.at(0, p);
    fs::create_dir(at("d")).unwrap();
    assert_eq!(errno(fs::create_dir(at("d"))), libc::EEXIST);
    fs::write(at("d/f"), b"f").unwrap();
    assert_eq!(errno(fs::remove_dir(at("d"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::remove_file(at("d"))), libc::EISDIR);
    assert_eq!(errno(fs::read(at("d/f/x"))), libc::ENOTDIR);
    assert_eq!(errno(fs::read(at(&"x".repeat(256)))), libc::ENAMETOOLONG);
    fs::write(at(&"x".repeat(255)), b"").unwrap();
    symlink("d/f", at("s")).unwrap();
    assert_eq!(fs::read_link(at("s")).unwrap(), Path::new("d/f"));
    assert_eq!(fs::read(at("s")).unwrap(), b"f");
    let long = "y".repeat(4000);
    symlink(&long, at("long")).unwrap();
    assert_eq!(fs::read_link(at("long")).unwrap(), Path::new(&long));
    let meta = fs::metadata(at("d")).unwrap();
    assert_eq!((meta.nlink(), meta.size()), (2, 1));
    fs::create_dir(at("d/e")).unwrap();
    fs::rename(at("d/f"), at("d/e/g")).unwrap();
    assert_eq!(fs::metadata(at("d")).unwrap().nlink(), 3);
    assert_eq!(fs::read(at("d/e/g")).unwrap(), b"f");
    assert_eq!(errno(fs::rename(at("d"), at("d/e/d"))), libc::EINVAL);
    fs::rename(at("d/e"), at("e")).unwrap();
    assert_eq!(fs::read(at("e/g")).unwrap(), b"f");
    fs::remove_dir(at("d")).unwrap();
    assert_eq!(errno(fs::metadata(at("d"))), libc::ENOENT);
}

#[test]
fn listings() {
    let Some(here) = Here::new(1, Sizes::default()) else {
        return;
    };
    let dir = here.at(0, "many");
    fs::create_dir(&dir).unwrap();
    for i in 0..2000 {
        if i % 50 == 0 {
            fs::create_dir(dir.join(format!("d{i}"))).unwrap();
        } else {
            File::create(dir.join(format!("f{i}"))).unwrap();
        }
    }
    let mut names: Vec<String> = fs::read_dir(&dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!((count, names.len()), (2000, 2000));
    // Removing while listing leaves nothing behind.
    fs::remove_dir_all(&dir).unwrap();
    assert!(!dir.exists());
}

#[test]
fn removed_while_open() {
    let sizes = Sizes {
        inline_limit: 1000,
        block_size: 4096,
        ..Sizes::default()
    };
    let Some(here) = Here::new(1, sizes) else { return };
    for size in [10_usize, 20_000] {
        let path = here.at(0, "f");
        let data = vec![7; size];
        fs::write(&path, &data).unwrap();
        let mut f = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut clean = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(f.metadata().unwrap().nlink(), 0);
        let mut now = Vec::new();
        clean.read_to_end(&mut now).unwrap();
        assert_eq!(now, data);
        f.write_all_at(&[8; 5000], 100).unwrap();
        f.sync_all().unwrap();
        f.seek(SeekFrom::Start(0)).unwrap();
        now.clear();
        f.read_to_end(&mut now).unwrap();
        assert_eq!(
            (now[99], now[100], now.len()),
            if size == 10 { (0, 8, 5100) } else { (7, 8, 20_000) }
        );
        f.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(f.metadata().unwrap().mode() & 0o777, 0o600);
        drop(clean);
        // The name is free for another.
        fs::write(&path, b"another").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"another");
        drop(f);
        assert_eq!(fs::read(&path).unwrap(), b"another");
        fs::remove_file(&path).unwrap();
    }
    // Replaced by a rename.
    fs::write(here.at(0, "a"), vec![1; 9000]).unwrap();
    fs::write(here.at(0, "b"), vec![2; 9000]).unwrap();
    let b = File::open(here.at(0, "b")).unwrap();
    fs::rename(here.at(0, "a"), here.at(0, "b")).unwrap();
    let mut byte = [0];
    b.read_exact_at(&mut byte, 8999).unwrap();
    assert_eq!(byte, [2]);
    assert_eq!(b.metadata().unwrap().nlink(), 0);
    drop(b);
    fs::remove_file(here.at(0, "b")).unwrap();
    // Data goes with the last handle, if not at once.
    for _ in 0..100 {
        if here.blocks() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{} blocks are left", here.blocks());
}

#[test]
fn writes_follow_a_rename() {
    let Some(here) = Here::new(2, Sizes::default()) else {
        return;
    };
    fs::create_dir(here.at(0, "d")).unwrap();
    let mut f = File::create(here.at(0, "d/a")).unwrap();
    f.write_all(b"one").unwrap();
    fs::rename(here.at(0, "d/a"), here.at(0, "b")).unwrap();
    f.write_all(b"two").unwrap();
    fs::rename(here.at(0, "b"), here.at(0, "c")).unwrap();
    f.sync_all().unwrap();
    assert_eq!(fs::read(here.at(1, "c")).unwrap(), b"onetwo");
    // A directory above it.
    fs::rename(here.at(0, "c"), here.at(0, "d/c")).unwrap();
    fs::rename(here.at(0, "d"), here.at(0, "e")).unwrap();
    f.write_all(b"three").unwrap();
    drop(f);
    assert_eq!(fs::read(here.at(1, "e/c")).unwrap(), b"onetwothree");
}

#[test]
fn open_files_stay_whatever_another_mount_does_with_their_names() {
    let sizes = Sizes {
        inline_limit: 1000,
        block_size: 4096,
        ..Sizes::default()
    };
    let Some(here) = Here::new(2, sizes) else { return };
    fs::create_dir(here.at(0, "d")).unwrap();
    type Take = fn(&dyn Fn(&str) -> PathBuf);
    let takes: [(Take, u64, Option<&str>); 5] = [
        (|at| fs::rename(at("f"), at("d/g")).unwrap(), 1, Some("d/g")),
        (|at| fs::rename(at("f"), at("g")).unwrap(), 1, Some("g")),
        (|at| fs::remove_file(at("f")).unwrap(), 0, None),
        (
            |at| {
                fs::write(at("d/new"), b"new").unwrap();
                fs::rename(at("d/new"), at("f")).unwrap();
            },
            0,
            None,
        ),
        (
            |at| {
                fs::hard_link(at("f"), at("d/h")).unwrap();
                fs::remove_file(at("f")).unwrap();
            },
            1,
            Some("d/h"),
        ),
    ];
    for (take, names, left) in takes {
        for size in [10_usize, 10_000] {
            let _ = fs::remove_file(here.at(0, "f"));
            fs::write(here.at(0, "f"), vec![1; size]).unwrap();
            let f = OpenOptions::new()
                .read(true)
                .write(true)
                .open(here.at(0, "f"))
                .unwrap();
            let ino = f.metadata().unwrap().ino();
            take(&|p| here.at(1, p));
            f.write_all_at(b"end", size as u64).unwrap();
            f.sync_all().unwrap();
            let now = f.metadata().unwrap();
            assert_eq!((now.ino(), now.len(), now.nlink()), (ino, size as u64 + 3, names));
            f.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
            let mut all = vec![0; size + 3];
            f.read_exact_at(&mut all, 0).unwrap();
            assert_eq!((&all[..size], &all[size..]), (&vec![1; size][..], &b"end"[..]));
            drop(f);
            if let Some(left) = left {
                assert_eq!(fs::read(here.at(1, left)).unwrap(), all);
                fs::remove_file(here.at(1, left)).unwrap();
            }
        }
    }
}

#[test]
fn close_to_open_between_mounts() {
    let sizes = Sizes {
        inline_limit: 1000,
        block_size: 4096,
        ..Sizes::default()
    };
    let Some(here) = Here::new(2, sizes) else { return };
    for size in [100_usize, 10_000] {
        for round in 0..20_u8 {
            let (a, b) = ((round % 2) as usize, (round % 2 == 0) as usize);
            fs::write(here.at(a, "f"), vec![round; size]).unwrap();
            assert_eq!(
                fs::read(here.at(b, "f")).unwrap(),
                vec![round; size],
                "round {round}"
            );
            // In place, without a change of size.
            let f = OpenOptions::new().write(true).open(here.at(b, "f")).unwrap();
            f.write_all_at(&[round ^ 0x80], (size - 1) as u64).unwrap();
            drop(f);
            let now = fs::read(here.at(a, "f")).unwrap();
            assert_eq!((now[0], now[size - 1], now.len()), (round, round ^ 0x80, size));
        }
    }
    // What another mount appends is seen by who has the file open, once it looks.
    let mut reader = File::open(here.at(0, "f")).unwrap();
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    let mut log = OpenOptions::new().append(true).open(here.at(1, "f")).unwrap();
    log.write_all(b"appended").unwrap();
    drop(log);
    assert_eq!(reader.metadata().unwrap().len(), all.len() as u64 + 8);
    let mut more = Vec::new();
    reader.read_to_end(&mut more).unwrap();
    assert_eq!(more, b"appended");
}

#[test]
fn flags_of_open() {
    let Some(here) = Here::new(1, Sizes::default()) else {
        return;
    };
    let path = here.at(0, "f");
    fs::write(&path, b"0123456789").unwrap();
    assert_eq!(
        errno(OpenOptions::new().write(true).create_new(true).open(&path)),
        libc::EEXIST
    );
    let mut a = OpenOptions::new().append(true).open(&path).unwrap();
    let b = OpenOptions::new().write(true).open(&path).unwrap();
    b.set_len(12).unwrap();
    a.write_all(b"ab").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"0123456789\0\0ab");
    drop((a, b));
    let before = fs::metadata(&path).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    File::create(&path).unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.len(), after.ino()), (0, before.ino()));
    assert!(after.modified().unwrap() > before.modified().unwrap());
    let dir = OpenOptions::new().write(true).open(here.mounts[0].mountpoint());
    assert_eq!(errno(dir), libc::EISDIR);
    symlink("f", here.at(0, "s")).unwrap();
    let nofollow = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(here.at(0, "s"));
    assert_eq!(errno(nofollow), libc::ELOOP);
    assert_eq!(
        File::create_new(here.at(0, "none/f")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn times_and_permissions() {
    let Some(here) = Here::new(1, Sizes::default()) else {
        return;
    };
    let path = here.at(0, "f");
    let mut f = File::create(&path).unwrap();
    f.write_all(b"x").unwrap();
    let then = std::time::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let before_1970 = std::time::UNIX_EPOCH - Duration::from_nanos(1_500_000_001);
    f.set_times(fs::FileTimes::new().set_modified(then).set_accessed(before_1970))
        .unwrap();
    drop(f);
    // The write before is published before, not after.
    let meta = fs::metadata(&path).unwrap();
    assert_eq!(
        (meta.modified().unwrap(), meta.accessed().unwrap()),
        (then, before_1970)
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4750)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4750);
    let dir = here.at(0, "d");
    fs::create_dir(&dir).unwrap();
    File::open(&dir)
        .unwrap()
        .set_times(fs::FileTimes::new().set_modified(then))
        .unwrap();
    assert_eq!(fs::metadata(&dir).unwrap().modified().unwrap(), then);
    fs::write(dir.join("f"), b"").unwrap();
    assert!(fs::metadata(&dir).unwrap().modified().unwrap() > then);
    fs::set_permissions(here.mounts[0].mountpoint(), fs::Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(
        fs::metadata(here.mounts[0].mountpoint()).unwrap().mode() & 0o7777,
        0o1777
    );
}

#[test]
fn mounted_once_and_unmounted() {
    let Some(mut here) = Here::new(1, Sizes::default()) else {
        return;
    };
    let at = here.mounts[0].mountpoint().to_path_buf();
    let again = mount(&MountOptions::new(&at), here._cluster.cluster());
    assert!(matches!(again, Err(MountError::AlreadyMounted(_))));
    let f = File::create(at.join("f")).unwrap();
    assert!(matches!(here.mounts[0].unmount(), Err(MountError::Busy(_))));
    drop(f);
    here.mounts[0].unmount().unwrap();
    assert!(!at.join("f").exists());
    assert!(matches!(
        pando_fuse::unmount(&at, false),
        Err(MountError::NotMounted(_))
    ));
}

/// Threads on two mounts replace, read, remove and truncate a few files all at once. Whoever opens one sees
/// one writer's bytes whole, whatever happens to its name; nothing hangs, nothing but the expected errors.
#[test]
fn replaced_and_removed_under_readers() {
    let sizes = Sizes {
        inline_limit: 1000,
        block_size: 4096,
        ..Sizes::default()
    };
    let Some(here) = Here::new(2, sizes) else { return };
    fs::create_dir(here.at(0, "d")).unwrap();
    let expected = |e: &std::io::Error| {
        assert!(
            e.raw_os_error()
                .is_some_and(|n| n == libc::ENOENT || n == libc::ESTALE),
            "{e}"
        );
    };
    std::thread::scope(|s| {
        for t in 0..6_u8 {
            let (here, expected) = (&here, &expected);
            s.spawn(move || {
                let mount = usize::from(t % 2);
                let mut x = u64::from(t) + 1;
                for round in 0..60_u64 {
                    x = x
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let name = here.at(mount, &format!("d/f{}", (x >> 33) % 3));
                    match (x >> 40) % 4 {
                        0 | 1 => {
                            let own = here.at(mount, &format!("d/own{t}"));
                            let size = [10, 900, 5000, 30_000][(round % 4) as usize];
                            fs::write(&own, vec![t + 1; size]).unwrap();
                            fs::rename(&own, &name).unwrap();
                        }
                        2 => {
                            if let Err(e) = fs::remove_file(&name) {
                                expected(&e);
                            }
                        }
                        _ => match File::open(&name) {
                            Err(e) => expected(&e),
                            Ok(mut f) => {
                                let mut all = Vec::new();
                                match f.read_to_end(&mut all) {
                                    Err(e) => expected(&e),
                                    // Removed by the other mount, which does not know that it is open here:
                                    // zeros.
                                    Ok(_) => assert!(all.windows(2).all(|w| w[0] == w[1] || w.contains(&0))),
                                }
                            }
                        },
                    }
                }
            });
        }
    });
    fs::remove_dir_all(here.at(0, "d")).unwrap();
    assert_eq!(fs::read_dir(here.at(1, "")).unwrap().count(), 0);
}

/// More wait for a lock than a mount has threads and stacks; others get through all the same.
#[test]
fn many_wait_for_a_lock() {
    let Some(here) = Here::new(1, Sizes::default()) else {
        return;
    };
    let path = here.at(0, "locked");
    let holder = File::create(&path).unwrap();
    holder.lock().unwrap();
    let got = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for _ in 0..200 {
            s.spawn(|| {
                File::open(&path).unwrap().lock().unwrap();
                got.fetch_add(1, SeqCst);
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        for n in 0..20 {
            fs::write(here.at(0, &format!("other-{n}")), b"text").unwrap();
        }
        assert_eq!(got.load(SeqCst), 0);
        holder.unlock().unwrap();
    });
    assert_eq!(got.load(SeqCst), 200);
}

/// Many threads in one directory of one mount.
#[test]
fn many_threads_in_one_directory() {
    let Some(here) = Here::new(1, Sizes::default()) else {
        return;
    };
    fs::create_dir(here.at(0, "d")).unwrap();
    std::thread::scope(|s| {
        for t in 0..8 {
            let here = &here;
            s.spawn(move || {
                for i in 0..40 {
                    let path = here.at(0, &format!("d/{t}-{i}"));
                    let mut f = File::create_new(&path).unwrap();
                    f.write_all(format!("{t} {i}").as_bytes()).unwrap();
                    if i % 3 == 0 {
                        fs::rename(&path, here.at(0, &format!("d/r{t}-{i}"))).unwrap();
                        f.write_all(b" renamed").unwrap();
                    }
                    drop(f);
                    if i % 3 == 1 {
                        fs::remove_file(&path).unwrap();
                    }
                }
            });
        }
    });
    let mut seen = 0;
    for entry in fs::read_dir(here.at(0, "d")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let text = fs::read_to_string(entry.path()).unwrap();
        let want = match name.strip_prefix('r') {
            Some(rest) => format!("{} renamed", rest.replace('-', " ")),
            None => name.replace('-', " "),
        };
        assert_eq!(text, want);
        seen += 1;
    }
    assert_eq!(seen, 8 * (14 + 13));
    assert_eq!(fs::metadata(here.at(0, "d")).unwrap().size(), seen);
}
