//! File data in a bucket and in a folder: kill -9, damage, and blocks that belong to no file.

use crate::cluster::Cluster;
use pando_data::{FileKey, names};
use pando_s3_test::TestServer;
use pando_types::{Generation, Ino};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Bytes that no other offset has.
fn content(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|n| (n.wrapping_add(salt).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
        .collect()
}

fn gc(cluster: &Cluster, options: &[&str]) -> serde_json::Value {
    let text = cluster.run(&[&["--json", "gc"], options].concat());
    serde_json::from_str(&text).expect("JSON")
}

/// Waits until so many files have blocks.
fn until_stored(cluster: &Cluster, files: u64) {
    let began = Instant::now();
    loop {
        let stored = gc(cluster, &["--dry-run"])["files_with_blocks"].clone();
        if stored == files {
            return;
        }
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "{stored} files have blocks, not {files}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until `status` says that so many removed files, of so many bytes, wait for the deletion of their
/// data.
fn until_removed(cluster: &Cluster, files: u64, bytes: u64) {
    let began = Instant::now();
    loop {
        let said = status(cluster);
        if said["removed_files"] == files && said["removed_bytes"] == bytes {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{said:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn status(cluster: &Cluster) -> serde_json::Value {
    serde_json::from_str(&cluster.run(&["--json", "status"])).expect("JSON")
}

/// Bytes in files of a mount.
fn written(at: &Path, files: &[(&str, Vec<u8>)]) {
    for (name, data) in files {
        let mut file = std::fs::File::create(at.join(name)).expect("a file");
        std::io::Write::write_all(&mut file, data).expect("written");
        file.sync_all().expect("synced");
    }
}

fn same_on(at: &Path, files: &[(&str, Vec<u8>)]) {
    for (name, data) in files {
        let found = std::fs::read(at.join(name)).expect("a file");
        assert!(found == *data, "{name} is another");
    }
}

#[test]
fn process_a_mount_over_a_bucket_and_kills() {
    if !pando_testing::can_mount() {
        return;
    }
    let root = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(root.path().join("bucket")).expect("a bucket");
    let server = TestServer::start(root.path());
    let cluster = Cluster::with_blocks(2, "s3://bucket/fs", server.environment());
    let at = root.path().join("mnt");
    let place = at.display().to_string();
    cluster.run(&["mount", &place]);
    let files = [
        ("a", content(9_000_000, 1)),
        ("b", content(70_000, 2)),
        ("c", content(4 << 20, 3)),
        ("small", content(100, 4)),
    ];
    written(&at, &files);
    // Servers, then the mount's process: nothing that was synced is lost.
    cluster.kill_all();
    cluster.up();
    same_on(&at, &files);
    let lock = std::fs::read_dir(cluster.path("run"))
        .expect("a folder")
        .map(|e| e.expect("an entry").path())
        .find(|p| {
            let name = p.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with("mount") && name.ends_with(".lock")
        })
        .expect("the mount's lock");
    let pid = std::fs::read_to_string(lock).expect("a number");
    let killed = Command::new("kill").args(["-9", pid.trim()]).status();
    assert!(killed.expect("kill runs").success());
    // What is dead is taken away, and mounted anew.
    let began = Instant::now();
    while !cluster
        .pando(&["mount", &place])
        .output()
        .expect("pando runs")
        .status
        .success()
    {
        assert!(began.elapsed() < Duration::from_secs(30), "not mounted again");
        std::thread::sleep(Duration::from_millis(100));
    }
    same_on(&at, &files);
    let again = [("b", content(5_000_000, 7)), ("c", content(1000, 8))];
    written(&at, &again);
    std::fs::remove_file(at.join("a")).expect("removed");
    until_stored(&cluster, 1);
    same_on(&at, &again);
    cluster.run(&["umount", &place]);
    cluster.run(&["fsck", "--data"]);
    let left = gc(&cluster, &["--grace", "0s"]);
    assert_eq!(left["blocks"], 0, "{left}");
}

/// A mount is killed that has stored blocks and published nothing, and its file is removed: nobody says `gc`,
/// and they go.
#[test]
fn process_blocks_of_a_killed_mount_go_by_themselves() {
    if std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_err()
    {
        eprintln!("skipped: /dev/fuse cannot be opened here");
        return;
    }
    let root = tempfile::tempdir().expect("a folder");
    let blocks = root.path().join("data");
    let cluster = Cluster::with_blocks(2, &blocks.display().to_string(), Vec::new());
    let never = cluster.fail(&["up", "--gc-every", "daily"]);
    assert!(never.contains("is not a time such as"), "{never}");
    cluster.run(&["up", "--gc-every", "2s", "--gc-grace", "1s"]);
    cluster.kill_all();
    cluster.up();
    let at = root.path().join("mnt");
    let place = at.display().to_string();
    std::fs::create_dir(&at).expect("a folder");
    let mut mount = cluster
        .pando(&["mount", "--foreground", "--publish", "0", &place])
        .spawn()
        .expect("pando runs");
    let began = Instant::now();
    while !std::fs::read_to_string("/proc/mounts")
        .expect("mounts")
        .contains(&place)
    {
        assert!(began.elapsed() < Duration::from_secs(30), "not mounted");
        std::thread::sleep(Duration::from_millis(50));
    }
    written(&at, &[("kept", content(5_000_000, 1))]);
    let mut file = std::fs::File::create(at.join("lost")).expect("a file");
    std::io::Write::write_all(&mut file, &content(12 << 20, 2)).expect("written");
    // Whole blocks are stored at once.
    until_stored(&cluster, 2);
    mount.kill().expect("killed");
    mount.wait().expect("gone");
    drop(file);
    let _ = Command::new("umount").args(["-l", &place]).status();
    // As long as it has a record its blocks stay, whatever that says.
    std::thread::sleep(Duration::from_secs(3));
    until_stored(&cluster, 2);
    cluster.run(&["rm", "/lost"]);
    // The dead mount has it open until its session ends, after a minute.
    until_stored(&cluster, 1);
    compare(&cluster, &[("kept", content(5_000_000, 1))]);
    cluster.run(&["fsck", "--data"]);
    // It is said what became of them, and the time is not begun anew by a start.
    let gc_of = |said: &serde_json::Value| {
        let servers = said["servers"].as_array().expect("servers").clone();
        let all: Vec<_> = servers
            .iter()
            .map(|s| s["gc"].clone())
            .filter(|gc| gc.is_object())
            .collect();
        assert_eq!(all.len(), 1, "one server does it: {said:#}");
        all[0].clone()
    };
    let kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(cluster.path("gc.json")).expect("a file")).expect("JSON");
    assert!(kept["done"].is_u64(), "{kept}");
    let said = gc_of(&status(&cluster));
    assert_eq!(
        (&said["every_s"], &said["error"]),
        (&2.into(), &serde_json::Value::Null),
        "{said}"
    );
    cluster.run(&["up", "--gc-every", "24h"]);
    cluster.kill_all();
    cluster.up();
    let said = gc_of(&status(&cluster));
    let (last, next) = (
        said["last"].as_u64().expect("done"),
        said["next"].as_u64().expect("a time"),
    );
    assert!(next >= last + 24 * 3600, "{said}");
    let text = cluster.run(&["status"]);
    assert!(
        text.contains("removes blocks that belong to no file every 1d00h: last 2"),
        "{text}"
    );
}

/// What a crash could have left: a block that no record speaks of.
fn orphan(root: &Path) -> PathBuf {
    let file = FileKey {
        ino: Ino(u64::MAX - 5),
        generation: Generation(77),
    };
    let folder = root
        .join(names::part_name(names::part(file)))
        .join(names::file_name(file));
    std::fs::create_dir_all(&folder).expect("a folder");
    let block = folder.join("0");
    std::fs::write(&block, b"left of a crash").expect("a block");
    block
}

/// The orphan goes, what belongs to files stays, and what is young is not looked at.
fn collects(cluster: &Cluster, root: &Path) {
    let orphan = orphan(root);
    let found = gc(cluster, &[]);
    assert_eq!(
        (&found["blocks"], &found["looked"]),
        (&0.into(), &true.into()),
        "{found}"
    );
    assert_eq!(found["too_young"], found["files_with_blocks"], "{found}");
    let found = gc(cluster, &["--dry-run", "--grace", "0s"]);
    assert_eq!(found["unreferenced"][0]["ino"], u64::MAX - 5, "{found}");
    assert!(orphan.exists(), "a dry run removes nothing");
    let found = gc(cluster, &["--grace", "0s"]);
    assert_eq!(
        (&found["blocks"], &found["too_young"]),
        (&1.into(), &0.into()),
        "{found}"
    );
    assert!(!orphan.exists());
    assert_eq!(gc(cluster, &["--grace", "0s"])["blocks"], 0);
}

fn put_and_get(cluster: &Cluster, files: &[(&str, Vec<u8>)]) {
    for (name, data) in files {
        std::fs::write(cluster.path("source"), data).expect("a file");
        cluster.run(&["put", &cluster.file("source"), &format!("/{name}")]);
    }
}

fn compare(cluster: &Cluster, files: &[(&str, Vec<u8>)]) {
    for (name, data) in files {
        let to = cluster.path("back");
        let _ = std::fs::remove_file(&to);
        cluster.run(&["get", &format!("/{name}"), &cluster.file("back")]);
        assert!(std::fs::read(&to).expect("a file") == *data, "{name} is another");
    }
}

#[test]
fn process_blocks_in_a_bucket() {
    let root = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(root.path().join("bucket")).expect("a bucket");
    let server = TestServer::start(root.path());
    let address = server.address();
    let cluster = Cluster::with_blocks(2, "s3://bucket/fs", server.environment());
    let files = [
        ("a", content(9_000_000, 1)),
        ("b", content(4 << 20, 2)),
        ("c", content(100_000, 3)),
        ("inline", content(1000, 4)),
    ];
    put_and_get(&cluster, &files);
    cluster.kill_all();
    cluster.up();
    compare(&cluster, &files);
    cluster.run(&["fsck", "--data"]);
    // Removed in the background, also by servers that were killed right after they answered.
    cluster.run(&["rm", "/b"]);
    cluster.kill_all();
    cluster.up();
    until_stored(&cluster, 2);
    collects(&cluster, &root.path().join("bucket/fs"));
    compare(&cluster, &[files[0].clone(), files[2].clone()]);

    // Who restarts the servers need not know the keys of the bucket: they keep those that they have.
    let mut restart = cluster.pando(&["restart"]);
    for (name, _) in server.environment() {
        restart.env_remove(name);
    }
    let out = restart.output().expect("pando runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let more = ("d", content(5_000_000, 5));
    put_and_get(&cluster, std::slice::from_ref(&more));
    until_stored(&cluster, 3);
    cluster.run(&["rm", "/d"]);
    until_stored(&cluster, 2);

    // A second filesystem cannot be made over this one.
    let second = Command::new(env!("CARGO_BIN_EXE_pando"))
        .args([
            "--dir",
            &cluster.file("other"),
            "format",
            "--blocks",
            "s3://bucket/fs",
        ])
        .envs(server.environment())
        .output()
        .expect("pando runs");
    let why = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(why.contains("is not empty"), "{why}");
    // The service goes away and comes back.
    drop(server);
    let to = cluster.file("back");
    let down = cluster.pando(&["get", "/a", &to]).output().expect("pando runs");
    assert!(!down.status.success());
    let why = String::from_utf8_lossy(&down.stderr).into_owned();
    assert!(why.contains("cannot be reached"), "{why}");
    cluster.run(&["stat", "/a"]);
    // What is removed meanwhile waits, and is counted.
    cluster.run(&["rm", "/c"]);
    until_removed(&cluster, 1, 100_000);
    assert!(
        cluster
            .run(&["status"])
            .contains("1 removed files (98K bytes) wait")
    );
    let _server = TestServer::start_at(root.path(), address);
    until_removed(&cluster, 0, 0);
    compare(&cluster, &files[..1]);
}

#[test]
fn process_blocks_in_a_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let blocks = folder.path().join("data");
    let cluster = Cluster::with_blocks(1, &blocks.display().to_string(), Vec::new());
    let files = [("a", content(5_000_000, 1)), ("b", content(70_000, 2))];
    put_and_get(&cluster, &files);
    collects(&cluster, &blocks);
    compare(&cluster, &files);
    // Damage is said, and nothing is handed out.
    let block = smallest(&blocks);
    let mut bytes = std::fs::read(&block).expect("a block");
    bytes[4096 + 60_000] ^= 1;
    std::fs::write(&block, bytes).expect("a block");
    let why = cluster.fail(&["get", "/b", &cluster.file("back")]);
    assert!(why.contains("is damaged"), "{why}");
    compare(&cluster, &files[..1]);
    // With a server away it is not known which files there are.
    cluster.kill(0);
    let out = cluster
        .pando(&["--wait", "1", "gc", "--grace", "0s"])
        .output()
        .expect("pando runs");
    assert_eq!(out.status.code(), Some(2));
    cluster.up();
    compare(&cluster, &files[..1]);
}

/// The smallest of all blocks.
fn smallest(dir: &Path) -> PathBuf {
    let entries = |dir: &Path| -> Vec<PathBuf> {
        let read = std::fs::read_dir(dir).expect("a folder");
        read.map(|e| e.expect("an entry").path()).collect()
    };
    // Beside the folders there is the mark.
    let parts = entries(dir).into_iter().filter(|p| p.is_dir());
    let files = parts.flat_map(|part| entries(&part));
    let blocks = files.flat_map(|file| entries(&file));
    let size = |p: &PathBuf| p.metadata().expect("a block").len();
    blocks.min_by_key(size).expect("blocks")
}

/// Data that could not be looked at is not clean.
#[test]
fn fsck_says_when_the_data_cannot_be_looked_for() {
    let c = Cluster::start(1, "sync");
    let big = c.file("big");
    std::fs::write(&big, vec![7; 300_000]).expect("a file");
    c.run(&["put", &big, "/big"]);
    let fsck = |arguments: &[&str]| {
        let out = c
            .pando(&[&["fsck", "--looks", "1", "--pause-ms", "10"], arguments].concat())
            .output()
            .expect("pando runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    assert_eq!(fsck(&["--data"]).0, Some(0));
    let (here, away) = (c.path("blocks"), c.path("blocks-away"));
    std::fs::rename(&here, &away).expect("renamed");
    let (code, out, err) = fsck(&["--data"]);
    assert_eq!(code, Some(2), "{out}{err}");
    assert!(!out.contains("Clean."), "{out}");
    let (code, out, _) = fsck(&["--data", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, json["checked"].as_bool()), (Some(2), Some(false)), "{out}");
    std::fs::rename(&away, &here).expect("renamed");
    assert_eq!(fsck(&["--data"]).0, Some(0));
}

/// The same of a bucket that does not answer: whatever needs it fails, nothing says that all is well, and
/// names are there.
#[test]
fn what_needs_a_bucket_that_is_away_says_so() {
    let root = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(root.path().join("bucket")).expect("a bucket");
    let server = TestServer::start(root.path());
    let c = Cluster::with_blocks(1, "s3://bucket/fs", server.environment());
    let big = c.file("big");
    std::fs::write(&big, vec![7; 300_000]).expect("a file");
    c.run(&["put", &big, "/big"]);
    c.run(&["fsck", "--data", "--looks", "1", "--pause-ms", "10"]);
    drop(server);
    let (backup, mount, got) = (c.file("backup"), c.file("mnt"), c.file("got"));
    std::fs::create_dir(&mount).expect("a folder");
    let commands: [(&[&str], &[i32]); 7] = [
        (&["fsck", "--data", "--looks", "1", "--pause-ms", "10"], &[2]),
        (&["gc", "--grace", "0s"], &[2]),
        (&["backup", &backup], &[1]),
        (&["get", "/big", &got], &[1]),
        (&["put", &big, "/other"], &[1]),
        (&["dump", "/", "-o", "/dev/null"], &[1]),
        (&["mount", &mount], &[1, 32]),
    ];
    // Each asks for half a minute.
    let running = commands.map(|(command, codes)| {
        let mut said = c.pando(command);
        said.stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        (command, codes, said.spawn().expect("pando runs"))
    });
    for (command, codes, child) in running {
        let out = child.wait_with_output().expect("pando ends");
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        assert!(
            out.status.code().is_some_and(|code| codes.contains(&code)),
            "{command:?}: {:?} {text}",
            out.status
        );
        assert!(
            !text.contains("Clean.") && text.contains("s3://bucket/fs"),
            "{command:?}: {text}"
        );
    }
    // A dump is written to a device, and does not replace it.
    use std::os::unix::fs::FileTypeExt;
    let null = std::fs::metadata("/dev/null").expect("a device").file_type();
    assert!(null.is_char_device(), "/dev/null was replaced");
    let whole = c
        .pando(&["restore", "--check", &backup])
        .output()
        .expect("pando runs");
    assert!(!whole.status.success(), "a backup without its data is whole");
    c.run(&["ls", "/big"]);
    c.run(&["fsck", "--looks", "1", "--pause-ms", "10"]);
}
