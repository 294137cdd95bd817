//! Coordination of real servers, in a folder and in real ZooKeeper: what goes on while it is away, and who
//! takes whose place.

use crate::cluster::Cluster;
use crate::zoo::Zoo;
use std::process::Command;
use std::time::{Duration, Instant};

/// By when another coordinator is in office: a session of 4 s, two leases, and the machine may be busy.
const ELECTION: Duration = Duration::from_secs(60);

fn json(cluster: &Cluster, arguments: &[&str]) -> serde_json::Value {
    let all = [arguments, &["--json"]].concat();
    let out = cluster.pando(&all).output().expect("pando runs");
    serde_json::from_slice(&out.stdout).expect("JSON")
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + ELECTION;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn servers(value: &serde_json::Value) -> Vec<u64> {
    let members = value["coordination"]["members"].as_array();
    let servers = members.into_iter().flatten().map(|m| m["server"].as_u64());
    servers.flatten().collect()
}

/// Kills the coordinator under a shell's feet: what needs one must be done by another, and the dead one comes
/// back.
fn coordinator_dies(cluster: &Cluster) {
    cluster.run(&["mkdir", "/a", "/a/b", "/c"]);
    until("not everybody is a member", || {
        servers(&json(cluster, &["map"])) == [0, 1, 2]
    });
    let before = json(cluster, &["map"]);
    let dead = before["coordinator"].as_u64().expect("a coordinator");
    cluster.kill(dead as usize);
    until("nobody took its place", || {
        let now = json(cluster, &["map"]);
        now["coordinator"].as_u64() != Some(dead) && now["term"].as_u64() > before["term"].as_u64()
    });
    assert!(!servers(&json(cluster, &["map"])).contains(&dead));
    cluster.up();
    cluster.run(&["--wait", "60", "mv", "/a/b", "/c/b"]);
    cluster.run(&["--wait", "60", "stat", "/c/b"]);
    until("it did not come back", || {
        servers(&json(cluster, &["map"])) == [0, 1, 2]
    });
    cluster.run(&["fsck"]);
}

/// The folder of another machine does not know who has joined since.
fn an_old_copy_hides_nobody(cluster: &Cluster) {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["cluster.json", "secret"] {
        std::fs::copy(cluster.path(name), folder.path().join(name)).expect("copied");
    }
    std::fs::create_dir(folder.path().join("blocks")).expect("a folder");
    cluster.run(&["--wait", "60", "join"]);
    cluster.kill(3);
    let mut status = Command::new(env!("CARGO_BIN_EXE_pando"));
    let out = status.arg("--dir").arg(folder.path()).args(["status", "--json"]);
    let out = out.output().expect("pando runs");
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert!(!out.status.success() && said["down"] == 1, "{said}");
    cluster.up();
}

#[test]
fn process_one_machine_elects() {
    let cluster = Cluster::start(3, "sync");
    let status = json(&cluster, &["status"]);
    assert_eq!(status["coordination"]["place"], "dir");
    assert_eq!(status["coordination"]["reachable"], true);
    coordinator_dies(&cluster);
}

#[test]
fn process_with_zookeeper_and_without() {
    let mut zoo = Zoo::start(1);
    let cluster = Cluster::start_with(3, "sync", &["--coord", &zoo.url()]);
    coordinator_dies(&cluster);
    // It goes away; they do not need it to go on.
    zoo.kill(0);
    std::thread::sleep(Duration::from_secs(6));
    cluster.run(&["--wait", "60", "mkdir", "/d"]);
    cluster.run(&["--wait", "60", "mv", "/d", "/c/d"]);
    let status = json(&cluster, &["status"]);
    assert_eq!(status["coordination"]["reachable"], false);
    assert_eq!(status["down"], 0);
    assert!(!cluster.pando(&["status"]).status().expect("pando runs").success());
    assert!(cluster.run(&["map"]).contains("which may be old"));
    for change in [["join", "--another"], ["rebalance", "--no-wait"]] {
        let complaint = cluster.fail(&[&["--wait", "1"], &change[..]].concat());
        assert!(
            complaint.contains("coordination cannot be reached"),
            "{complaint}"
        );
    }
    assert!(!cluster.path("server-3").exists());
    // One that starts again knows the map from its copy.
    let coordinator = json(&cluster, &["map"])["coordinator"]
        .as_u64()
        .expect("a coordinator");
    cluster.kill((coordinator as usize + 1) % 3);
    cluster.up();
    cluster.run(&["--wait", "60", "mv", "/c/d", "/e"]);
    zoo.launch(0);
    zoo.await_mode(0);
    until("it is not found again", || {
        json(&cluster, &["status"])["coordination"]["reachable"] == true
    });
    cluster.run(&["fsck"]);
    an_old_copy_hides_nobody(&cluster);
}

#[test]
fn what_makes_no_sense_is_said() {
    let folder = tempfile::tempdir().expect("folder");
    let dir = folder.path().join("c").display().to_string();
    for (arguments, what) in [
        (vec!["--coord", "etcd://a"], "neither `dir` nor `zk://"),
        (vec!["--coord", "zk://me:secret@a"], "coord.auth"),
        (vec!["--coord", "zk://a:b"], "is not HOST:PORT"),
        (
            vec!["--coord", "zk://127.0.0.1:1"],
            "cannot put the cluster map into zk://127.0.0.1:1/pando",
        ),
        (
            vec!["--auth", "key", "--server", "192.0.2.1:7000"],
            "need --coord zk://",
        ),
    ] {
        let out = Command::new(env!("CARGO_BIN_EXE_pando"))
            .args(["--dir", &dir, "format"])
            .args(&arguments)
            .output()
            .expect("pando runs");
        let complaint = String::from_utf8_lossy(&out.stderr);
        assert!(
            !out.status.success() && complaint.contains(what),
            "{arguments:?}: {complaint}"
        );
        // Nothing was made that anybody would take for a filesystem.
        assert!(!folder.path().join("c/cluster.json").exists());
    }
}
