//! Files with several names, on two mounts.

#![allow(clippy::unwrap_used)]

use crate::support::{Sizes, TestCluster, can_mount};
use pando_fuse::{MountOptions, Mounted, mount};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

/// Two mounts of one cluster, and directories `a` to `d` in it: on several servers.
struct Two {
    mounts: Vec<Mounted>,
    _cluster: TestCluster,
    _tmp: tempfile::TempDir,
}

impl Two {
    fn new() -> Option<Two> {
        if !can_mount() {
            return None;
        }
        let tmp = tempfile::tempdir().unwrap();
        let sizes = Sizes {
            inline_limit: 4096,
            block_size: 8192,
            ..Sizes::default()
        };
        let cluster = TestCluster::start(&tmp.path().join("data"), sizes);
        let mounts = (0..2)
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
        let two = Two {
            mounts,
            _cluster: cluster,
            _tmp: tmp,
        };
        for dir in ["a", "b", "c", "d"] {
            fs::create_dir(two.at(0, dir)).unwrap();
        }
        Some(two)
    }

    fn at(&self, mount: usize, path: &str) -> PathBuf {
        self.mounts[mount].mountpoint().join(path)
    }
}

#[test]
fn names_are_equal_and_the_last_takes_the_file_along() {
    let Some(two) = Two::new() else { return };
    for (n, size) in [0_usize, 5, 4096, 4097, 100_000].into_iter().enumerate() {
        let names: Vec<String> = ["a", "b", "c", "d"]
            .iter()
            .map(|dir| format!("{dir}/f{n}"))
            .collect();
        let data = vec![n as u8 + 1; size];
        fs::write(two.at(0, &names[0]), &data).unwrap();
        let ino = fs::metadata(two.at(0, &names[0])).unwrap().ino();
        for (i, name) in names.iter().enumerate().skip(1) {
            fs::hard_link(two.at(i % 2, &names[i - 1]), two.at(i % 2, name)).unwrap();
        }
        // Each mount sees one file under all of them.
        for name in &names {
            for mount in 0..2 {
                let seen = fs::metadata(two.at(mount, name)).unwrap();
                assert_eq!((seen.ino(), seen.nlink(), seen.len()), (ino, 4, size as u64));
                assert_eq!(fs::read(two.at(mount, name)).unwrap(), data);
            }
        }
        // What one writes under one name the other reads under another.
        OpenOptions::new()
            .append(true)
            .open(two.at(1, &names[3]))
            .unwrap()
            .write_all(b"more")
            .unwrap();
        let more = [&data[..], b"more"].concat();
        assert_eq!(fs::read(two.at(0, &names[1])).unwrap(), more);
        fs::set_permissions(two.at(0, &names[2]), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::metadata(two.at(1, &names[0])).unwrap().mode() & 0o777, 0o640);
        // They go one by one.
        for (left, name) in names.iter().enumerate().rev() {
            fs::remove_file(two.at(left % 2, name)).unwrap();
            assert_eq!(
                fs::metadata(two.at(1, name)).unwrap_err().kind(),
                ErrorKind::NotFound
            );
            if let Some(other) = names[..left].first() {
                let seen = fs::metadata(two.at(0, other)).unwrap();
                assert_eq!(seen.nlink(), left as u64);
                assert_eq!(fs::read(two.at(1, other)).unwrap(), more);
            }
        }
    }
}

#[test]
fn an_open_file_goes_on_whatever_becomes_of_its_names() {
    let Some(two) = Two::new() else { return };
    let open = |path| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(two.at(0, path))
            .unwrap()
    };
    fs::write(two.at(0, "a/f"), b"one").unwrap();
    fs::hard_link(two.at(0, "a/f"), two.at(0, "b/g")).unwrap();
    let file = open("a/f");
    // The other mount takes the name away under which it is open, puts something else there, and renames the
    // other name.
    fs::remove_file(two.at(1, "a/f")).unwrap();
    fs::write(two.at(1, "a/f"), b"another file").unwrap();
    fs::rename(two.at(1, "b/g"), two.at(1, "c/h")).unwrap();
    file.write_all_at(b"two", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    file.set_len(2).unwrap();
    drop(file);
    assert_eq!(fs::read(two.at(1, "c/h")).unwrap(), b"tw");
    assert_eq!(fs::read(two.at(1, "a/f")).unwrap(), b"another file");

    // All names go on the mount that has it open: it stays until it is closed.
    fs::hard_link(two.at(0, "c/h"), two.at(0, "d/i")).unwrap();
    let file = open("d/i");
    fs::remove_file(two.at(0, "c/h")).unwrap();
    fs::remove_file(two.at(0, "d/i")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all_at(b"on and on", 0).unwrap();
    let mut bytes = [0; 9];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"on and on");
}

#[test]
fn renames_among_names() {
    let Some(two) = Two::new() else { return };
    fs::write(two.at(0, "a/x"), b"x").unwrap();
    fs::write(two.at(0, "b/y"), b"y").unwrap();
    fs::hard_link(two.at(0, "a/x"), two.at(0, "c/x2")).unwrap();
    fs::hard_link(two.at(0, "b/y"), two.at(0, "c/y2")).unwrap();
    // Two names of one file: nothing happens.
    fs::rename(two.at(0, "a/x"), two.at(0, "c/x2")).unwrap();
    fs::rename(two.at(1, "c/x2"), two.at(1, "a/x")).unwrap();
    for name in ["a/x", "c/x2"] {
        assert_eq!(fs::metadata(two.at(1, name)).unwrap().nlink(), 2);
    }
    // One is replaced by another's: each loses one and keeps the other.
    fs::rename(two.at(1, "a/x"), two.at(1, "b/y")).unwrap();
    assert_eq!(fs::read(two.at(0, "b/y")).unwrap(), b"x");
    assert_eq!(fs::read(two.at(0, "c/y2")).unwrap(), b"y");
    let links = |name| fs::metadata(two.at(0, name)).unwrap().nlink();
    assert_eq!([links("b/y"), links("c/x2"), links("c/y2")], [2, 2, 1]);
    // Listings with attributes show them whole.
    let mut listed: Vec<(String, u64)> = fs::read_dir(two.at(1, "c"))
        .unwrap()
        .map(|e| e.unwrap())
        .map(|e| {
            (
                e.file_name().into_string().unwrap(),
                e.metadata().unwrap().nlink(),
            )
        })
        .collect();
    listed.sort();
    assert_eq!(listed, [("x2".into(), 2), ("y2".into(), 1)]);
}

#[test]
fn what_cannot_be_linked() {
    let Some(two) = Two::new() else { return };
    fs::write(two.at(0, "a/f"), b"f").unwrap();
    let code = |r: std::io::Result<()>| r.unwrap_err().raw_os_error();
    let link = |from, to| fs::hard_link(two.at(0, from), two.at(1 - 1, to));
    assert_eq!(code(link("a", "b/dir")), Some(nix::libc::EPERM));
    assert_eq!(code(link("a/f", "b")), Some(nix::libc::EEXIST));
    assert_eq!(code(link("a/none", "b/f")), Some(nix::libc::ENOENT));
    assert_eq!(code(link("a/f", "a/f")), Some(nix::libc::EEXIST));
    // A symlink is linked itself, not what it leads to.
    symlink("a/f", two.at(0, "l")).unwrap();
    link("l", "l2").unwrap();
    assert_eq!(fs::read_link(two.at(1, "l2")).unwrap(), PathBuf::from("a/f"));
    assert_eq!(fs::symlink_metadata(two.at(1, "l2")).unwrap().nlink(), 2);
    let long = "x/".repeat(400);
    symlink(&long, two.at(0, "m")).unwrap();
    link("m", "c/m2").unwrap();
    fs::remove_file(two.at(0, "m")).unwrap();
    assert_eq!(fs::read_link(two.at(1, "c/m2")).unwrap(), PathBuf::from(long));
    // A file without a name gets none.
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(two.at(0, "gone"))
        .unwrap();
    fs::remove_file(two.at(0, "gone")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
}
