//! Stores of kind `column`: killed under load, beside others, repaired, and carried from and to the other
//! kind.

use crate::cluster::Cluster;
use crate::hammering::{Hammer, verify};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Kinds of stores as `pando status` says.
fn kinds(c: &Cluster) -> Vec<(u64, String)> {
    let all: Value = serde_json::from_str(&c.run(&["status", "--json"])).expect("JSON");
    let servers = all["servers"].as_array().expect("a list").iter();
    let one = |s: &Value| Some((s["server"].as_u64()?, s["store"].as_str()?.to_owned()));
    servers.filter_map(one).collect()
}

/// Small files, which are rows of their own beside their entries.
fn small_files(c: &Cluster, dir: &str) {
    let file = c.path("small");
    std::fs::write(&file, "in the store ".repeat(100)).expect("written");
    let file = file.to_str().expect("a path");
    c.run(&["mkdir", dir]);
    for n in 0..40 {
        c.run(&["put", file, &format!("{dir}/{n}")]);
    }
}

fn are_whole(c: &Cluster, dir: &str) {
    assert_eq!(c.run(&["ls", dir]).lines().count(), 40);
    for n in [0, 7, 39] {
        assert_eq!(
            c.run(&["cat", &format!("{dir}/{n}")]),
            "in the store ".repeat(100)
        );
    }
}

fn blob_files(store: &Path) -> usize {
    let all = std::fs::read_dir(store.join("db")).expect("listed");
    all.filter(|e| {
        let path = e.as_ref().expect("an entry").path();
        path.extension().is_some_and(|e| e == "blob")
    })
    .count()
}

#[test]
fn process_column_stores_are_killed_and_lose_nothing() {
    let c = Cluster::start_with(2, "async", &["--store", "column"]);
    assert_eq!(kinds(&c), [(0, "column".into()), (1, "column".into())]);
    small_files(&c, "/small");
    let hammer = Hammer::start(&c, "columns");
    for n in 0..8 {
        hammer.wait_for_load(hammer.acknowledged() + 50);
        c.kill(n % 2);
        std::thread::sleep(Duration::from_millis((n as u64 * 37) % 150));
        c.up();
    }
    let text = hammer.finish();
    println!("{}", verify(&c, &text));
    c.run(&["fsck"]);
    are_whole(&c, "/small");
    // It stays what it is, whoever asks for something else.
    let refused = c.fail(&["up", "--store", "rocksdb"]);
    assert!(
        refused.contains("of kind column") && refused.contains("pando join"),
        "{refused}"
    );
    c.run(&["up", "--store", "column"]);
    c.run(&["down"]);
    let refused = c.fail(&["server", "--id", "0", "--store-kind", "rocksdb"]);
    assert!(refused.contains("of kind column"), "{refused}");
    let cleaned = c.run(&["server", "--id", "0", "--compact"]);
    assert!(cleaned.contains("bytes in tables before"), "{cleaned}");
    let sound = c.run(&["server", "--id", "1", "--salvage"]);
    assert!(sound.contains("nothing was changed"), "{sound}");
    c.up();
    c.run(&["fsck"]);
    are_whole(&c, "/small");
}

#[test]
fn process_a_filesystem_goes_from_one_kind_of_store_to_the_other_and_back() {
    let c = Cluster::start_with(1, "async", &[]);
    assert_eq!(kinds(&c), [(0, "rocksdb".into())]);
    assert!(c.fail(&["up", "--store", "column"]).contains("of kind rocksdb"));
    small_files(&c, "/small");
    c.run(&["join", "--store-kind", "column"]);
    c.run(&["drain", "0"]);
    assert_eq!(kinds(&c), [(1, "column".into())]);
    c.run(&["fsck"]);
    are_whole(&c, "/small");
    small_files(&c, "/more");
    c.run(&["down"]);
    c.up();
    assert!(blob_files(&c.path("server-1")) > 0);
    c.run(&["join"]);
    c.run(&["drain", "1"]);
    assert_eq!(kinds(&c), [(2, "rocksdb".into())]);
    c.run(&["fsck"]);
    are_whole(&c, "/small");
    are_whole(&c, "/more");
    // A backup is of no kind.
    let backup = c.path("backup");
    let backup = backup.to_str().expect("a path");
    c.run(&["backup", backup]);
    let other = Cluster::prepare(1);
    other.run(&["restore", backup, "--store", "column"]);
    other.up();
    assert_eq!(kinds(&other), [(0, "column".into())]);
    other.run(&["fsck"]);
    are_whole(&other, "/small");
}
