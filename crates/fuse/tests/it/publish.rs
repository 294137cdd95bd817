//! Files that stay open, as other mounts see them.

#![allow(clippy::unwrap_used)]

use crate::support::{Sizes, TestCluster, can_mount};
use pando_fuse::{MountOptions, Mounted, mount};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PUBLISH: Duration = Duration::from_millis(400);

struct Two {
    a: Mounted,
    b: Mounted,
    _cluster: TestCluster,
    _tmp: tempfile::TempDir,
}

impl Two {
    fn new(publish: Duration) -> Option<Two> {
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
        let one = |name: &str| {
            let at = tmp.path().join(name);
            fs::create_dir(&at).unwrap();
            let options = MountOptions {
                timeout: Duration::ZERO,
                publish,
                ..MountOptions::new(at)
            };
            mount(&options, cluster.cluster()).unwrap()
        };
        let (a, b) = (one("a"), one("b"));
        Some(Two {
            a,
            b,
            _cluster: cluster,
            _tmp: tmp,
        })
    }

    fn a(&self, name: &str) -> PathBuf {
        self.a.mountpoint().join(name)
    }

    fn b(&self, name: &str) -> PathBuf {
        self.b.mountpoint().join(name)
    }
}

/// Waits until it holds, for long enough on a busy machine.
fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_is_written_and_stays_open_is_seen() {
    let Some(two) = Two::new(PUBLISH) else { return };
    let mut log = File::create(two.a("log")).unwrap();
    let mut reader = None;
    let mut want = Vec::new();
    // Inline, and then in blocks.
    for line in 0..40_u8 {
        let bytes = vec![line; 500];
        log.write_all(&bytes).unwrap();
        want.extend(bytes);
        if line % 8 == 0 {
            soon("by who opens", || fs::read(two.b("log")).unwrap() == want);
            let reader = reader.get_or_insert_with(|| File::open(two.b("log")).unwrap());
            soon("by who has it open", || {
                reader.metadata().unwrap().len() == want.len() as u64
            });
            let mut tail = vec![0; 500];
            reader.read_exact_at(&mut tail, want.len() as u64 - 500).unwrap();
            assert_eq!(tail, [line; 500]);
        }
    }
    drop(log);
    assert_eq!(fs::read(two.b("log")).unwrap(), want);
}

#[test]
fn bytes_of_the_same_size_are_seen_by_who_has_it_open() {
    let Some(two) = Two::new(PUBLISH) else { return };
    for size in [100, 20_000] {
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(two.a("f"))
            .unwrap();
        file.write_all_at(&vec![1; size], 0).unwrap();
        file.sync_all().unwrap();
        let mut reader = File::open(two.b("f")).unwrap();
        let mut seen = Vec::new();
        reader.read_to_end(&mut seen).unwrap();
        assert_eq!(seen, vec![1; size]);
        file.write_all_at(&[2; 50], 50).unwrap();
        let mut at = [0; 50];
        soon("without an open or a stat", || {
            reader.read_exact_at(&mut at, 50).unwrap();
            at == [2; 50]
        });
    }
}

#[test]
fn a_direct_write_is_seen_when_it_returns() {
    let Some(two) = Two::new(Duration::ZERO) else {
        return;
    };
    let flags = [nix::libc::O_DIRECT, nix::libc::O_SYNC, nix::libc::O_DSYNC];
    for (n, flag) in flags.into_iter().enumerate() {
        let name = format!("f{n}");
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .custom_flags(flag)
            .open(two.a(&name))
            .unwrap();
        for times in 1..4 {
            file.write_all(&[7; 4096]).unwrap();
            assert_eq!(
                fs::read(two.b(&name)).unwrap(),
                vec![7; 4096 * times],
                "{flag:#o}"
            );
        }
    }
}

#[test]
fn a_mount_that_does_not_publish_publishes_at_close_and_fsync() {
    let Some(two) = Two::new(Duration::ZERO) else {
        return;
    };
    let mut file = File::create(two.a("f")).unwrap();
    file.write_all(b"one").unwrap();
    std::thread::sleep(2 * PUBLISH);
    assert_eq!(fs::read(two.b("f")).unwrap(), b"");
    file.sync_data().unwrap();
    assert_eq!(fs::read(two.b("f")).unwrap(), b"one");
    file.write_all(b"two").unwrap();
    drop(file);
    assert_eq!(fs::read(two.b("f")).unwrap(), b"onetwo");
}

#[test]
fn a_writer_that_goes_on_is_published_and_loses_nothing() {
    let Some(two) = Two::new(PUBLISH / 4) else { return };
    let mut want = Vec::new();
    let mut file = File::create(two.a("f")).unwrap();
    let until = Instant::now() + 4 * PUBLISH;
    let mut seen = 0;
    while Instant::now() < until {
        for _ in 0..50 {
            let bytes = [want.len() as u8; 77];
            file.write_all(&bytes).unwrap();
            want.extend(bytes);
        }
        let there = fs::read(two.b("f")).unwrap();
        assert!(want.starts_with(&there));
        assert!(there.len() >= seen);
        seen = there.len();
    }
    assert!(seen > 0);
    drop(file);
    assert_eq!(fs::read(two.b("f")).unwrap(), want);
}

#[test]
fn unlinked_and_renamed_files_are_published_or_not() {
    let Some(two) = Two::new(PUBLISH) else { return };
    let mut file = File::create(two.a("f")).unwrap();
    file.write_all(b"one").unwrap();
    fs::rename(two.a("f"), two.a("g")).unwrap();
    soon("under its new name", || fs::read(two.b("g")).unwrap() == b"one");
    file.write_all(b"two").unwrap();
    fs::rename(two.b("g"), two.b("h")).unwrap();
    soon("under the name it got elsewhere", || {
        fs::read(two.b("h")).unwrap() == b"onetwo"
    });
    file.write_all(b"three").unwrap();
    fs::remove_file(two.a("h")).unwrap();
    std::thread::sleep(2 * PUBLISH);
    assert_eq!(file.metadata().unwrap().len(), 11);
    assert!(fs::read(two.b("h")).is_err());
}
