//! `pando dump` and `pando load`: trees come back as they were, whatever the cluster; damage is found before
//! it is used.

use crate::cluster::Cluster;
use crate::hammering::{Hammer, verify};
use pando_dump::{Entry, Next, Reader};
use pando_types::FileKind;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

/// Larger than what is fetched ahead, in three blocks, no two of its parts alike.
const LARGE: usize = 9_000_000;

fn large() -> Vec<u8> {
    (0..LARGE).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A tree with everything in it that can be awkward.
fn fill(cluster: &Cluster) {
    let local = cluster.path("local");
    let at = |path: &[u8]| local.join(OsStr::from_bytes(path));
    std::fs::create_dir_all(at(b"a/b/c/empty")).expect("works");
    for n in 0..300 {
        std::fs::write(at(format!("a/file-{n}").as_bytes()), format!("{n}").repeat(n)).expect("works");
    }
    std::fs::write(at(b"large"), large()).expect("works");
    std::fs::write(at(b"\xff\xfe \n="), b"odd").expect("works");
    std::fs::write(at(&[b'x'; 255]), b"long").expect("works");
    std::fs::write(at(b"secret"), b"").expect("works");
    symlink(OsStr::from_bytes(b"../\xff/nowhere"), at(b"a/link")).expect("works");
    symlink("t".repeat(4000), at(b"a/long-link")).expect("works");
    let old = SystemTime::UNIX_EPOCH - Duration::new(5, 750_000_001);
    let file = std::fs::File::options()
        .write(true)
        .open(at(b"secret"))
        .expect("works");
    file.set_modified(old).expect("works");
    for (path, bits) in [(&b"secret"[..], 0o4711), (b"a/b", 0o1777), (b"a/b/c", 0o500)] {
        std::fs::set_permissions(at(path), std::fs::Permissions::from_mode(bits)).expect("works");
    }
    cluster.run(&["put", "-r", local.to_str().expect("works"), "/tree"]);
    cluster.run(&["truncate", "-s", "989560464998400", "/tree/a/file-3"]);
    cluster.run(&["truncate", "-s", "20000000", "/tree/large"]);
    if is_root() {
        cluster.run(&["chown", "12:99999999", "/tree/a/b"]);
        cluster.run(&["chown", "--no-dereference", "3000000000:7", "/tree/a/link"]);
    }
}

type Tree = BTreeMap<Vec<u8>, (Entry, Vec<u8>)>;

/// All that a dump says, but for what is of its filesystem only.
fn tree(dump: &Path) -> Tree {
    let mut reader = Reader::new(std::fs::File::open(dump).expect("works")).expect("works");
    let mut all = Tree::new();
    while let Next::Entry(mut entry) = reader.next().expect("works") {
        let mut data = vec![0; entry.stored() as usize];
        let mut n = 0;
        while n < data.len() {
            n += reader.data(&mut data[n..]).expect("works");
        }
        assert!(entry.ino > 0);
        entry.ino = 0;
        let before = all.insert(entry.path.clone(), (entry, data));
        assert_eq!(before, None, "twice");
    }
    all
}

/// Dumps a directory and reads it.
fn dump(cluster: &Cluster, path: &str, options: &[&str]) -> Tree {
    let file = cluster.file("again.pando");
    cluster.run(&[&["dump", path, "-o", &file], options].concat());
    tree(Path::new(&file))
}

#[test]
fn process_a_dump_loads_in_another_cluster() {
    let first = Cluster::start(4, "sync");
    fill(&first);
    let file = first.file("all.pando");
    let said = first.run(&["dump", "/tree", "-o", &file, "--json"]);
    let was = tree(Path::new(&file));
    assert_eq!(was.len(), 311);
    assert!(said.contains("\"entries\":311"), "{said}");
    let (entry, data) = &was[&b"large"[..]];
    assert_eq!(
        (entry.size, data.len() >= LARGE, data[..LARGE] == large()),
        (20_000_000, true, true)
    );
    assert_eq!(was[&b"a/file-3"[..]].0.size, 989_560_464_998_400);
    assert_eq!(was[&b"secret"[..]].0.mtime.as_nanos(), -5_750_000_001);
    assert_eq!(was[&b"a/link"[..]].0.target, b"../\xff/nowhere");

    let second = Cluster::start(2, "async");
    assert!(
        second
            .fail(&["load", "--into", "/none", &file])
            .contains("must be a directory")
    );
    second.run(&["mkdir", "/here"]);
    second.run(&["load", "--into", "/here", &file]);
    assert_eq!(dump(&second, "/here", &[]), was);
    second.run(&["fsck", "--data"]);

    // Not over what is there; but what is missing, or is otherwise, is brought back.
    assert!(
        second
            .fail(&["load", "--into", "/here", &file])
            .contains("is not empty")
    );
    second.run(&["rm", "-r", "/here/a/b", "/here/a/file-7"]);
    second.run(&["truncate", "-s", "3", "/here/large"]);
    second.run(&["chmod", "777", "/here/a/file-8"]);
    let number = || {
        let said = second.run(&["stat", "--json", "/here/large"]);
        serde_json::from_str::<serde_json::Value>(&said).unwrap()["files"][0]["ino"].clone()
    };
    let half = number();
    assert!(half.as_u64() > Some(1), "{half}");
    let said = second.run(&["load", "--into", "/here", "--continue", "--json", &file]);
    assert_eq!(dump(&second, "/here", &[]), was);
    // Made whole beside what was there, which nobody saw half changed.
    assert_ne!(number(), half);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(said["kept"].as_u64() > Some(290) && said["ok"] == true, "{said}");

    // By a pipe, and without data: the sizes stay. Then the data come.
    let mut out = first
        .pando(&["dump", "--metadata-only", "/tree"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    second.run(&["mkdir", "/bare"]);
    let load = second
        .pando(&["load", "--into", "/bare"])
        .stdin(out.stdout.take().unwrap())
        .status()
        .unwrap();
    assert!(load.success() && out.wait().unwrap().success());
    let bare = dump(&second, "/bare", &["--metadata-only"]);
    let sizes = |t: &Tree| -> Vec<(Vec<u8>, u64, i128)> {
        t.iter()
            .map(|(p, (e, _))| (p.clone(), e.size, e.mtime.as_nanos()))
            .collect()
    };
    assert_eq!(sizes(&bare), sizes(&was));
    second.run(&["load", "--into", "/bare", "--continue", &file]);
    assert_eq!(dump(&second, "/bare", &[]), was);
}

#[test]
fn process_a_damaged_dump_is_not_loaded() {
    let cluster = Cluster::start(2, "async");
    fill(&cluster);
    let whole = cluster.file("whole.pando");
    cluster.run(&["dump", "/tree", "-o", &whole]);
    let bytes = std::fs::read(&whole).unwrap();
    let damaged = cluster.file("damaged.pando");
    cluster.run(&["mkdir", "/bad"]);
    let try_it = |bytes: &[u8], options: &[&str]| {
        std::fs::write(&damaged, bytes).unwrap();
        cluster.fail(&[&["load", "--into", "/bad", &damaged], options].concat())
    };
    assert!(try_it(b"", &[]).contains("no dump of Pando"));
    assert!(try_it(&[0; 5000], &[]).contains("no dump of Pando"));
    assert!(try_it(&bytes[..300], &[]).contains("cut off at byte 300"));
    assert_eq!(dump(&cluster, "/bad", &[]).len(), 1);

    // In the middle of the data of the large file: it is not there afterwards.
    let part = &large()[4_000_000..4_000_064];
    let middle = bytes.windows(64).position(|w| w == part).unwrap();
    let mut flipped = bytes.clone();
    flipped[middle] ^= 1;
    let why = try_it(&flipped, &[]);
    assert!(why.contains("damaged") && why.contains("/large"), "{why}");
    let there = dump(&cluster, "/bad", &[]);
    assert!(!there.contains_key(&b"large"[..]));
    assert!(
        there
            .values()
            .all(|(e, _)| e.kind != FileKind::Regular || e.perm != 0o600)
    );
    let why = try_it(&bytes[..middle], &["--continue"]);
    assert!(
        why.contains(&format!("cut off at byte {middle}, after /large")),
        "{why}"
    );
    assert!(!dump(&cluster, "/bad", &[]).contains_key(&b"large"[..]));
    cluster.run(&["load", "--into", "/bad", "--continue", &whole]);
    assert_eq!(dump(&cluster, "/bad", &[]), tree(Path::new(&whole)));

    // What cannot work is said.
    assert!(
        cluster
            .fail(&["dump", "/tree/large", "-o", &damaged])
            .contains("not a directory")
    );
    assert!(
        cluster
            .fail(&["dump", "/none", "-o", &damaged])
            .contains("cannot dump")
    );
    assert!(
        cluster
            .fail(&["dump", "/", "-o", "/no/such/folder/x"])
            .contains("cannot write")
    );
    let json = cluster.pando(&["dump", "/", "--json"]).output().unwrap();
    assert!(!json.status.success() && json.stdout.len() < 1000);
    assert!(cluster.fail(&["load", "/no/such/file"]).contains("cannot read"));
    cluster.run(&["fsck", "--data"]);
}

#[test]
fn process_a_dump_under_load_has_what_was_there_throughout() {
    let cluster = Cluster::start(3, "async");
    fill(&cluster);
    let was = dump(&cluster, "/tree", &[]);
    let hammer = Hammer::start(&cluster, "busy");
    for n in 0..3 {
        hammer.wait_for_load(hammer.acknowledged() + 100);
        if n == 1 {
            cluster.kill(1);
            let up = cluster.pando(&["up"]).stdout(Stdio::null()).spawn();
            let all = dump(&cluster, "/", &[]);
            assert!(up.unwrap().wait().unwrap().success());
            assert!(all.len() > was.len());
            continue;
        }
        let all = dump(&cluster, "/", &[]);
        for (path, (entry, data)) in &was {
            let mut inside = b"tree".to_vec();
            if !path.is_empty() {
                inside.push(b'/');
                inside.extend_from_slice(path);
            }
            let (found, bytes) = &all[&inside];
            assert_eq!(
                (found.size, found.perm, found.mtime),
                (entry.size, entry.perm, entry.mtime)
            );
            assert_eq!(bytes, data);
        }
    }
    let text = hammer.finish();
    verify(&cluster, &text);
    cluster.run(&["fsck"]);
}

#[test]
fn process_names_of_one_file_and_special_files_are_loaded_as_that() {
    let cluster = Cluster::start(2, "async");
    let mut writer = pando_dump::Writer::new(Vec::new(), &pando_dump::Begin::default()).unwrap();
    let mut root = Entry::new("", FileKind::Directory);
    root.perm = 0o755;
    let mut file = Entry::new("file", FileKind::Regular);
    (file.perm, file.nlink) = (0o440, 2);
    file.xattrs = vec![(b"user.note".to_vec(), b"kept".to_vec())];
    let another = |path: &str, first: &str| {
        let mut entry = Entry::new(path, FileKind::Regular);
        (entry.link, entry.target) = (true, first.as_bytes().to_vec());
        entry
    };
    let mut device = Entry::new("null", FileKind::CharDevice);
    device.device = (1, 3);
    let entries = [
        root,
        file,
        Entry::new("fifo", FileKind::Fifo),
        device,
        another("second", "file"),
        another("third", "nothing"),
    ];
    for entry in &entries {
        writer.entry(entry).unwrap();
    }
    let bytes = writer.end().unwrap().0;
    let load = |args: &[&str]| {
        let mut load = cluster
            .pando(args)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        load.stdin.take().unwrap().write_all(&bytes).unwrap();
        let out = load.wait_with_output().unwrap();
        // The one that is a name of nothing is said, and nothing else.
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success());
        assert_eq!(said.matches("is another name of").count(), 1, "{said}");
        assert!(said.contains("/third: is another name of nothing"), "{said}");
    };
    load(&["load"]);
    // Once more changes nothing.
    load(&["load", "--continue"]);
    let stat = cluster.run(&["--json", "stat", "/file", "/second", "/fifo", "/null"]);
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    let files = &stat["files"];
    assert_eq!(
        (&files[0]["nlink"], &files[1]["nlink"]),
        (&2.into(), &2.into()),
        "{stat}"
    );
    assert_eq!(files[0]["ino"], files[1]["ino"]);
    assert_eq!(
        (&files[2]["kind"], &files[3]["kind"]),
        (&"fifo".into(), &"char-device".into())
    );
    assert_eq!(
        cluster.run(&["xattr", "get", "/second", "user.note"]).trim(),
        "kept"
    );
    cluster.run(&["fsck"]);
}
