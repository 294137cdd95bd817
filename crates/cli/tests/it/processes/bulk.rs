//! Bulk insertion by real programs: `pando put -r` into a directory that it makes.

use crate::cluster::Cluster;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn indexfs(servers: usize) -> Cluster {
    Cluster::start_with(servers, "async", &["--profile", "indexfs"])
}

/// A tree on this machine: `dirs` directories with `files` files of `bytes` bytes each, and what is special.
fn tree(c: &Cluster, name: &str, dirs: usize, files: usize, bytes: usize) -> PathBuf {
    let root = c.path(name);
    for d in 0..dirs {
        let dir = root.join(format!("d{d}/deep/er"));
        std::fs::create_dir_all(&dir).expect("a folder");
        for f in 0..files {
            let at = [dir.as_path(), dir.parent().expect("deep")][f % 2];
            std::fs::write(at.join(format!("file {f}")), vec![b'a' + (f % 26) as u8; bytes]).expect("a file");
        }
    }
    root
}

/// The sum of a field over all servers.
fn sum(c: &Cluster, field: &str) -> u64 {
    let all: Value = serde_json::from_str(&c.run(&["status", "--json"])).expect("JSON");
    let servers = all["servers"].as_array().expect("a list");
    servers.iter().filter_map(|s| s[field].as_u64()).sum()
}

/// Fetches a tree and compares it with the one it was made of.
fn same(c: &Cluster, path: &str, with: &Path) {
    let out = c.path("fetched");
    let _ = std::fs::remove_dir_all(&out);
    c.run(&["get", "-r", path, &out.display().to_string()]);
    let diff = Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([with, &out])
        .output()
        .expect("diff runs");
    assert!(diff.status.success(), "{diff:?}");
}

fn begin(c: &Cluster, arguments: &[&str]) -> Child {
    let mut command = c.pando(arguments);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("pando runs")
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .status();
    assert!(sent.expect("kill runs").success());
}

/// Begins a copy, and stops it while it has the directory for itself.
fn stopped(c: &Cluster, from: &Path) -> Child {
    let before = sum(c, "localised");
    let mut child = begin(
        c,
        &["put", "-r", "--bulk", "always", &from.display().to_string(), "/"],
    );
    for _ in 0..2000 {
        if sum(c, "localised") > before {
            signal(&child, "STOP");
            return child;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("kill -9");
    panic!("nothing was localised: {:?}", child.wait());
}

#[test]
fn process_trees_are_inserted_in_bulk() {
    use std::os::unix::fs::PermissionsExt;
    let c = indexfs(3);
    // More than one batch, and later ones add to directories of earlier ones.
    let from = tree(&c, "tree", 3, 60, 50_000);
    std::fs::write(from.join("d1/large"), vec![7; 300_000]).expect("a file");
    std::os::unix::fs::symlink("d1/large", from.join("link")).expect("a link");
    std::os::unix::fs::symlink("x".repeat(1000), from.join("d1/long link")).expect("a link");
    std::fs::set_permissions(from.join("d2/deep"), PermissionsExt::from_mode(0o1550)).expect("bits");
    let local = from.display().to_string();
    for path in ["d0/deep", "d1", "link"] {
        let set = Command::new("touch")
            .args(["-h", "-d", "2020-02-02T02:02:02Z"])
            .arg(from.join(path))
            .status();
        assert!(set.expect("touch runs").success());
    }
    c.run(&["put", "-r", &local, "/"]);
    assert!(sum(&c, "batches") > 1 && sum(&c, "tables_refused") == 0);
    same(&c, "/tree", &from);
    let modes = c.run(&["ls", "-l", "/tree", "/tree/d0", "/tree/d2"]);
    assert!(modes.contains("dr-xr-x--T"), "{modes}");
    assert_eq!(modes.matches("2020-02-02 02:02:02").count(), 3, "{modes}");
    // What others do in it afterwards is as anywhere.
    c.run(&["touch", "/tree/d0/deep/new"]);
    assert!(c.fail(&["mkdir", "/tree/d0/deep"]).contains("exists"));
    c.run(&["mv", "/tree/d1", "/tree/d0/moved"]);
    c.run(&["fsck"]);

    // File by file it is the same tree. Once more over what is there, nothing is localised.
    let (leases, batches) = (sum(&c, "localised"), sum(&c, "batches"));
    c.run(&["mkdir", "/one"]);
    c.run(&["put", "-r", "--bulk", "never", &local, "/one/"]);
    same(&c, "/one/tree", &from);
    c.run(&["put", "-r", &local, "/one/"]);
    assert_eq!((sum(&c, "localised"), sum(&c, "batches")), (leases, batches));
    c.run(&["rm", "-r", "/tree", "/one"]);
    c.run(&["fsck"]);
}

#[test]
fn process_a_filesystem_without_placed_ids_has_no_bulk_insertion() {
    let c = Cluster::start(1, "async");
    let from = tree(&c, "tree", 2, 10, 10);
    let local = from.display().to_string();
    let told = c.fail(&["put", "-r", "--bulk", "always", &local, "/"]);
    assert!(told.contains("--profile indexfs"), "{told}");
    c.run(&["put", "-r", &local, "/"]);
    same(&c, "/tree", &from);
    assert_eq!(sum(&c, "localised"), 0);
}

#[test]
fn process_who_dies_or_comes_late_loses_only_what_was_not_inserted() {
    let c = indexfs(2);
    let from = tree(&c, "late", 8, 800, 2000);
    // It is stopped. Somebody else comes in, and waits until the lease is over.
    let child = stopped(&c, &from);
    c.run(&["touch", "/late/others"]);
    assert!(c.run(&["ls", "/late"]).contains("others"));
    c.run(&["fsck"]);
    // It goes on, and finds that the directory is not its own any more: file by file.
    signal(&child, "CONT");
    let out = child.wait_with_output().expect("it ends");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    c.run(&["rm", "/late/others"]);
    same(&c, "/late", &from);
    c.run(&["fsck"]);

    // It is killed. What it had not inserted is not there, and the directory is free.
    let dead = tree(&c, "dead", 8, 800, 2000);
    let mut child = stopped(&c, &dead);
    child.kill().expect("kill -9");
    child.wait().expect("it is dead");
    c.run(&["put", "-r", &dead.display().to_string(), "/"]);
    same(&c, "/dead", &dead);
    c.run(&["fsck"]);

    // A server is killed meanwhile; it knows the lease when it is back.
    let again = tree(&c, "again", 8, 800, 2000);
    let child = stopped(&c, &again);
    c.kill_all();
    c.up();
    signal(&child, "CONT");
    let out = child.wait_with_output().expect("it ends");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    same(&c, "/again", &again);
    c.run(&["fsck"]);
}

#[test]
fn process_others_who_come_in_end_the_lease() {
    let c = indexfs(2);
    let from = tree(&c, "busy", 8, 800, 2000);
    let child = stopped(&c, &from);
    let waiting = begin(&c, &["ls", "/busy"]);
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, "CONT");
    let (listed, copied) = (waiting.wait_with_output(), child.wait_with_output());
    assert!(listed.expect("it ends").status.success());
    assert!(copied.expect("it ends").status.success());
    same(&c, "/busy", &from);
    // Removal waits, too: either it comes first, and nothing is left to fill, or it comes too late.
    let gone = tree(&c, "gone", 8, 800, 100);
    let child = stopped(&c, &gone);
    let removed = c.pando(&["rmdir", "/gone"]).output().expect("pando runs");
    signal(&child, "CONT");
    let copied = child.wait_with_output().expect("it ends");
    assert_ne!(removed.status.success(), copied.status.success());
    c.run(&["fsck"]);
}
