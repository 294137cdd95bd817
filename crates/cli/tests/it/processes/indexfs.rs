//! Profile `indexfs`: directories are placed when they are made.

use crate::cluster::Cluster;
use serde_json::Value;
use std::collections::BTreeMap;

/// How many directories' contents each server has, and how many directories there are.
fn shares(c: &Cluster) -> (BTreeMap<u64, usize>, usize) {
    let found = c.run(&["find", "/", "-mindepth", "1", "-type", "d"]);
    let paths: Vec<&str> = found.lines().collect();
    let text = c.run(&[&["map", "slot", "--json"], &paths[..]].concat());
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let mut shares = BTreeMap::new();
    for path in all["paths"].as_array().expect("a list") {
        let server = path["content_server"].as_u64().expect("a number");
        *shares.entry(server).or_default() += 1;
    }
    (shares, paths.len())
}

#[test]
fn process_directories_are_placed_and_stay_what_they_are() {
    let c = Cluster::start_with(4, "async", &["--profile", "indexfs"]);
    let made = ["bench", "mdtest", "-C", "-D", "-b", "10", "-z", "1", "-I", "20"];
    c.run(&[&made[..], &["--clients", "2", "--depth", "8", "-d", "/t"]].concat());
    let (before, count) = shares(&c);
    assert_eq!(before.values().sum::<usize>(), count);
    assert!(before.len() == 4 && count > 200, "{before:?}");

    // A name that is used again is another directory; what was renamed keeps its place.
    c.run(&["mkdir", "/a", "/a/b"]);
    c.run(&["touch", "/a/b/file"]);
    c.run(&["mv", "/a", "/t/moved"]);
    c.run(&["mkdir", "/a"]);
    c.run(&["mv", "/t/moved/b", "/a/b"]);
    assert_eq!(c.run(&["ls", "/a/b"]).trim(), "file");
    assert_eq!(c.run(&["ls", "/t/moved"]).trim(), "");
    c.run(&["rmdir", "/t/moved"]);
    assert!(c.fail(&["rmdir", "/a/b"]).contains("not empty"));

    c.kill(2);
    c.up();
    c.run(&["fsck"]);
    c.run(&["drain", "3"]);
    let (after, count) = shares(&c);
    assert_eq!((after.values().sum::<usize>(), after.get(&3)), (count, None));
    c.run(&["mkdir", "/a/c", "/a/d", "/a/e"]);
    c.run(&["fsck"]);
    assert!(c.fail(&["up", "--profile", "infinifs"]).contains("made before"));
}
