//! Profile `asyncfs` without deferral: entries one by one, each change of a directory's list at once.

use crate::cluster::Cluster;
use crate::hammering::{Hammer, verify};
use serde_json::Value;
use std::time::Duration;

const CHOICES: [&str; 4] = ["--profile", "asyncfs", "--without", "deferral"];

fn entries(c: &Cluster, path: &str) -> Vec<u64> {
    let text = c.run(&["map", "--json", path]);
    let map: Value = serde_json::from_str(&text).expect("JSON");
    let servers = map["paths"][0]["servers"].as_array().expect("servers");
    servers.iter().filter_map(|s| s["entries"].as_u64()).collect()
}

#[test]
fn process_entries_of_one_directory_are_on_all_servers() {
    let c = Cluster::start_with(4, "async", &CHOICES);
    let made = ["bench", "mdtest", "-C", "-F", "-b", "1", "-z", "1", "-I", "500"];
    c.run(&[&made[..], &["--clients", "2", "--depth", "8", "-d", "/t"]].concat());
    let dir = c.run(&["find", "/t", "-type", "f"]);
    let first = dir.lines().next().expect("a file");
    let parent = first.rsplit_once('/').expect("a path").0;
    let shares = entries(&c, parent);
    assert!(shares.len() == 4 && shares.iter().all(|n| *n > 0), "{shares:?}");
    assert_eq!(
        c.run(&["ls", parent]).lines().count() as u64,
        shares.iter().sum::<u64>()
    );

    // Names, links and directories from one server to another.
    c.run(&["mkdir", "/a", "/a/b"]);
    c.run(&["touch", "/a/b/file"]);
    c.run(&["mv", "/a", "/t/moved"]);
    c.run(&["ln", "/t/moved/b/file", "/t/second"]);
    c.run(&["mv", "/t/moved/b/file", "/t/moved/b/renamed"]);
    assert_eq!(c.run(&["ls", "/t/moved/b"]).trim(), "renamed");
    assert!(c.fail(&["rmdir", "/t/moved/b"]).contains("not empty"));
    c.run(&["rm", "/t/moved/b/renamed", "/t/second"]);
    c.run(&["rmdir", "/t/moved/b", "/t/moved"]);

    c.kill(2);
    c.up();
    c.run(&["fsck"]);
    c.run(&["join"]);
    c.run(&["drain", "3"]);
    assert_eq!(
        entries(&c, parent).iter().sum::<u64>(),
        shares.iter().sum::<u64>()
    );
    c.run(&["fsck"]);
}

#[test]
fn process_what_asyncfs_cannot_be_made_with_is_said() {
    let c = Cluster::start_with(1, "async", &[]);
    let dir = c.path("another");
    let fails = |choices: &[&str]| {
        let at = dir.to_str().expect("a path");
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_pando"))
            .args(["--dir", at, "format", "--profile", "asyncfs"])
            .args(choices)
            .output()
            .expect("pando runs");
        assert!(!out.status.success());
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    assert!(fails(&[]).contains("--without deferral"));
    assert!(fails(&["--without", "decoupling"]).contains("--profile infinifs"));
    assert!(fails(&["--without", "deferral", "--coherence", "lease"]).contains("leases"));
    assert!(fails(&["--without", "deferral", "--split-entries", "9"]).contains("indexfs"));
    assert!(!dir.join("cluster.json").exists());
}

#[test]
fn process_kill_9_of_servers_with_entries_one_by_one_loses_nothing() {
    let cluster = Cluster::start_with(4, "sync", &CHOICES);
    let hammer = Hammer::start(&cluster, "one-by-one");
    for n in 0..12 {
        hammer.wait_for_load(hammer.acknowledged() + 20);
        cluster.kill((n * 7) % 4);
        std::thread::sleep(Duration::from_millis((n as u64 * 37) % 150));
        cluster.up();
    }
    let report = verify(&cluster, &hammer.finish());
    cluster.run(&["fsck"]);
    println!("{report}");
}
