//! `pando backup` and `pando restore`: a filesystem at one instant, and another one from it; damage is found
//! before anything is made.

use crate::cluster::Cluster;
use crate::hammering::{Hammer, verify};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Three blocks, no two of their parts alike.
const LARGE: usize = 9_000_000;

fn large() -> Vec<u8> {
    (0..LARGE).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

/// Files of all sizes, links, attributes, holes; in many directories, so that all servers have some.
fn fill(cluster: &Cluster) {
    let local = cluster.path("local");
    for n in 0..40 {
        let dir = local.join(format!("d{n}/e/f"));
        std::fs::create_dir_all(&dir).expect("works");
        std::fs::write(dir.join("small"), format!("{n}").repeat(n * 50)).expect("works");
    }
    std::fs::write(local.join("large"), large()).expect("works");
    std::os::unix::fs::symlink("d1/e", local.join("link")).expect("works");
    cluster.run(&["put", "-r", local.to_str().expect("utf-8"), "/tree"]);
    for n in 0..20 {
        cluster.run(&[
            "ln",
            &format!("/tree/d{n}/e/f/small"),
            &format!("/tree/d{}/linked", n + 1),
        ]);
    }
    cluster.run(&["xattr", "set", "/tree/d3", "user.colour", "green"]);
    cluster.run(&["truncate", "-s", "5000000000", "/tree/d7/e/f/small"]);
    cluster.run(&["mv", "/tree/d9", "/tree/d8/moved"]);
}

/// Everything a dump says, as one stream of bytes; times and names included, the filesystem's own numbers
/// not.
fn contents(cluster: &Cluster) -> Vec<(String, String)> {
    let file = cluster.file("contents.pando");
    cluster.run(&["dump", "/tree", "-o", &file]);
    let mut reader = pando_dump::Reader::new(std::fs::File::open(&file).expect("opens")).expect("a dump");
    let mut all = Vec::new();
    while let pando_dump::Next::Entry(entry) = reader.next().expect("whole") {
        let mut data = vec![0; entry.stored() as usize];
        let mut n = 0;
        while n < data.len() {
            n += reader.data(&mut data[n..]).expect("whole");
        }
        let what = format!(
            "{:?} {:o} {} {} {} {:?} {:?} {:?} {}",
            entry.kind,
            entry.perm,
            entry.uid,
            entry.gid,
            entry.size,
            entry.mtime,
            entry.target,
            entry.ino,
            data.iter()
                .fold(5381u64, |h, b| h.wrapping_mul(33) ^ u64::from(*b))
        );
        all.push((String::from_utf8_lossy(&entry.path).into_owned(), what));
    }
    std::fs::remove_file(file).expect("works");
    all
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn process_a_backup_is_restored_with_other_servers() {
    let old = Cluster::start(4, "sync");
    fill(&old);
    let folder = old.file("backup");
    let said = json(&old.run(&["backup", &folder, "--json"]));
    assert_eq!(said["blocks"], 3, "{said}");
    assert_eq!(said["newer_files"], 0, "{said}");
    assert!(said["held_ms"].as_f64().is_some_and(|ms| ms < 1000.0), "{said}");
    let mode = |p: &Path| std::fs::metadata(p).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(Path::new(&folder)), 0o700);
    let was = contents(&old);
    assert_eq!(was.len(), 40 * 4 + 4 + 20 - 1, "{}", was.len());
    // What comes later is not in it.
    old.run(&["mkdir", "/later"]);
    old.run(&["rm", "-r", "/tree/d1"]);
    assert!(old.run(&["restore", "--check", &folder]).contains("is whole"));

    for servers in [1, 3] {
        let new = Cluster::prepare(servers);
        let said = json(&new.run(&["restore", &folder, "--servers", &servers.to_string(), "--json"]));
        assert_ne!(said["filesystem"], said["of"], "{said}");
        assert_eq!(said["transactions_dropped"], 0, "{said}");
        new.up();
        assert_eq!(contents(&new), was);
        assert_eq!(
            new.run(&["xattr", "get", "/tree/d3", "user.colour"]).trim(),
            "green"
        );
        assert!(!new.run(&["ls", "/"]).contains("later"));
        new.run(&["fsck", "--data"]);
        // It is a filesystem like any other.
        new.run(&["mkdir", "/tree/d1/new"]);
        new.run(&["mv", "/tree/d2", "/tree/d1/new/d2"]);
        new.run(&["rm", "-r", "/tree/d3"]);
        new.run(&["fsck", "--data"]);

        // Who knows the old filesystem, and finds this one under its addresses, is not let in.
        let stale = new.path("stale");
        std::fs::create_dir_all(&stale).expect("works");
        let read = |c: &Cluster| json(&std::fs::read_to_string(c.path("cluster.json")).expect("there"));
        let (mut file, new_file) = (read(&old), read(&new));
        for field in ["servers", "slots", "coordinator", "keeper", "epoch", "term"] {
            file[field] = new_file[field].clone();
        }
        assert_ne!(file["fs"], new_file["fs"]);
        assert!(new_file["epoch"].as_u64() > read(&old)["epoch"].as_u64());
        std::fs::write(stale.join("cluster.json"), file.to_string()).expect("works");
        std::fs::copy(old.path("secret"), stale.join("secret")).expect("works");
        std::fs::create_dir_all(stale.join("blocks")).expect("works");
        let refused = std::process::Command::new(env!("CARGO_BIN_EXE_pando"))
            .args(["--wait", "2", "--dir"])
            .arg(&stale)
            .args(["mkdir", "/by-a-stranger"])
            .output()
            .expect("runs");
        assert!(!refused.status.success(), "{refused:?}");
        assert!(!new.run(&["ls", "/"]).contains("stranger"));

        // Nothing is put over it.
        assert!(
            new.fail(&["restore", &folder])
                .contains("holds a filesystem already")
        );
    }
    old.run(&["fsck", "--data"]);
}

#[test]
fn process_a_backup_under_load_has_what_was_acknowledged_before() {
    let old = Cluster::start(3, "async");
    fill(&old);
    let was = contents(&old);
    let before = Hammer::start(&old, "before");
    before.wait_for_load(3_000);
    let acknowledged = before.finish();
    let busy = Hammer::start(&old, "busy");
    let mut backups: Vec<String> = Vec::new();
    for n in 0..3 {
        busy.wait_for_load(busy.acknowledged() + 300);
        let folder = old.file(&format!("backup-{n}"));
        let said = json(&old.run(&["backup", &folder, "--json"]));
        eprintln!(
            "changes waited for {} ms, it took {} s",
            said["held_ms"], said["took_s"]
        );
        backups.push(folder);
    }
    // With a server that dies meanwhile there is none, or a whole one; and the others go on.
    let folder = old.file("killed");
    let mut child = old
        .pando(&["--wait", "2", "backup", &folder])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    std::thread::sleep(Duration::from_millis(60));
    old.kill(1);
    let made = child.wait().expect("ends").success();
    assert_eq!(made, Path::new(&folder).join("manifest.json").exists());
    old.up();
    busy.wait_for_load(busy.acknowledged() + 300);
    busy.finish();
    old.run(&["fsck"]);
    if made {
        backups.push(folder);
    }
    for (n, folder) in backups.iter().enumerate() {
        let new = Cluster::prepare(2);
        let said = json(&new.run(&["restore", folder, "--servers", "2", "--json"]));
        eprintln!("{said}");
        new.up();
        new.run(&["fsck", "--data"]);
        if n == 0 {
            assert_eq!(contents(&new), was);
        }
        let said = verify(&new, &acknowledged);
        assert!(!said.contains("missing: 1"), "{said}");
    }
}

#[test]
fn process_a_damaged_backup_is_refused() {
    let old = Cluster::start(2, "async");
    fill(&old);
    let folder = old.path("backup");
    let folder_name = folder.display().to_string();
    old.run(&["backup", &folder_name]);
    // A folder that is not empty is nobody's to write to.
    assert!(old.fail(&["backup", &folder_name]).contains("is not empty"));
    let new = Cluster::prepare(2);
    let refuse = |what: &[&str]| {
        for how in [&["restore"][..], &["restore", "--check"][..]] {
            let why = new.fail(&[how, &[&folder_name]].concat());
            for word in what {
                assert!(why.contains(word), "{why} does not say {word:?}");
            }
        }
        assert!(!new.path("cluster.json").exists());
        assert!(!new.path("server-0").exists(), "something was made");
    };
    let damage = |name: &str, change: &dyn Fn(&mut Vec<u8>), what: &[&str]| {
        let path: PathBuf = folder.join(name);
        let whole = std::fs::read(&path).expect("there");
        let mut changed = whole.clone();
        change(&mut changed);
        std::fs::write(&path, &changed).expect("works");
        refuse(what);
        std::fs::write(&path, &whole).expect("works");
    };
    damage(
        "records-0001",
        &|b| b[700] ^= 4,
        &["records-0001", "damaged at byte"],
    );
    damage(
        "records-0001",
        &|b| b.truncate(900),
        &["records-0001", "900 bytes"],
    );
    damage(
        "data-0001",
        &|b| b[4_500_000] ^= 1,
        &["data-0001", "damaged at byte"],
    );
    damage("data-0001", &|b| b.push(0), &["data-0001"]);
    damage(
        "manifest.json",
        &|b| b.truncate(300),
        &["manifest.json", "damaged"],
    );
    damage(
        "manifest.json",
        &|b| {
            let text = String::from_utf8(b.clone()).expect("text");
            *b = text.replacen("\"records\": ", "\"records\": 1", 1).into_bytes();
        },
        &["manifest.json", "damaged"],
    );
    damage(
        "manifest.json",
        &|b| {
            *b = String::from_utf8(b.clone())
                .expect("text")
                .replacen("\"backup\": 1", "\"backup\": 9", 1)
                .into_bytes()
        },
        &["form 9"],
    );
    std::fs::rename(folder.join("data-0001"), folder.join("away")).expect("works");
    refuse(&["data-0001"]);
    std::fs::rename(folder.join("away"), folder.join("data-0001")).expect("works");
    std::fs::rename(folder.join("manifest.json"), folder.join("away")).expect("works");
    refuse(&["broken off"]);
    std::fs::rename(folder.join("away"), folder.join("manifest.json")).expect("works");

    // Stores of another filesystem are not touched.
    let other = Cluster::start(2, "async");
    other.run(&["mkdir", "/mine"]);
    other.run(&["down"]);
    std::fs::rename(other.path("cluster.json"), other.path("saved")).expect("works");
    assert!(
        other
            .fail(&["restore", &folder_name])
            .contains("Nothing was changed")
    );
    std::fs::rename(other.path("saved"), other.path("cluster.json")).expect("works");
    other.up();
    assert!(other.run(&["ls", "/"]).contains("mine"));

    // Whole again, it is restored; without a server there is no backup, and everything goes on after it.
    new.run(&["restore", &folder_name]);
    new.up();
    new.run(&["fsck", "--data"]);
    old.kill(1);
    let again = old.file("again");
    let why = old.fail(&["--wait", "2", "backup", &again]);
    assert!(why.contains("server 1 does not answer"), "{why}");
    assert!(!Path::new(&again).join("manifest.json").exists());
    old.up();
    old.run(&["mkdir", "/goes-on"]);
    old.run(&["backup", &again]);
}
