//! One directory that grows over all servers while it is filled, with everything an operator does to it.

use crate::cluster::Cluster;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const WRITERS: usize = 8;
const FILES: usize = 2500;
/// Links to some of the files.
const LINKS: usize = 40;

/// Entries of `/d`, and the servers that have parts of it.
fn shares(c: &Cluster) -> (u64, BTreeSet<u64>) {
    let text = c.run(&["map", "--json", "/d"]);
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let dir = &all["paths"][0];
    let parts = dir["parts"].as_array().expect("parts");
    let servers = parts
        .iter()
        .map(|part| part["server"].as_u64().expect("a number"));
    (dir["entries"].as_u64().expect("a number"), servers.collect())
}

fn writer(c: &Cluster, number: usize) -> Child {
    let paths: Vec<String> = (0..FILES).map(|n| format!("/d/w{number}-{n}")).collect();
    let mut command = c.pando(&["--wait", "60", "touch"]);
    command.args(paths).stdout(Stdio::null());
    command.spawn().expect("runs")
}

fn names(c: &Cluster) -> usize {
    c.run(&["ls", "/d"]).lines().collect::<BTreeSet<_>>().len()
}

#[test]
fn process_a_directory_is_split_while_it_is_filled() {
    let c = Cluster::start_with(4, "async", &["--profile", "indexfs", "--split-entries", "200"]);
    c.run(&["mkdir", "/d", "/d/sub"]);
    let mut writers: Vec<Child> = (0..WRITERS).map(|n| writer(&c, n)).collect();
    let deadline = Instant::now() + Duration::from_secs(120);
    while shares(&c).1.len() < 3 {
        assert!(
            Instant::now() < deadline,
            "it is not split: {}",
            c.run(&["map", "/d"])
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    // What changes is no damage.
    c.run(&["fsck"]);
    c.kill(2);
    c.up();
    for writer in &mut writers {
        assert!(writer.wait().expect("ends").success());
    }
    for n in 0..LINKS {
        c.run(&["ln", &format!("/d/w{}-{n}", n % WRITERS), &format!("/d/link{n}")]);
    }
    let all = WRITERS * FILES + LINKS + 1;
    let (entries, servers) = shares(&c);
    assert_eq!(
        (entries, servers.len()),
        (all as u64, 4),
        "{}",
        c.run(&["map", "/d"])
    );
    assert_eq!(names(&c), all);
    let given = |c: &Cluster| -> u64 {
        let text = c.run(&["status", "--json"]);
        let all: Value = serde_json::from_str(&text).expect("JSON");
        let servers = all["servers"].as_array().expect("servers");
        servers.iter().filter_map(|s| s["splits"]["given"].as_u64()).sum()
    };
    assert!(given(&c) > 0, "{}", c.run(&["status"]));
    c.run(&["fsck"]);

    let folder = c.file("backup");
    c.run(&["backup", &folder]);
    let new = Cluster::prepare(3);
    new.run(&["restore", &folder, "--servers", "3"]);
    new.up();
    assert_eq!((shares(&new).0, names(&new)), (all as u64, all));
    new.run(&["fsck"]);
    new.run(&["touch", "/d/new"]);
    new.run(&["rm", "-r", "/d"]);
    new.run(&["fsck"]);
    drop(new);

    c.run(&["join"]);
    c.run(&["drain", "1"]);
    let (entries, servers) = shares(&c);
    assert!(entries == all as u64 && !servers.contains(&1), "{servers:?}");
    c.run(&["fsck"]);
    c.run(&["rm", "-r", "/d"]);
    c.run(&["fsck"]);
}
