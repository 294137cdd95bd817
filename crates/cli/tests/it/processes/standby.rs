//! A process that stands by takes the place of a server that was killed, never of one that is only paused,
//! and of two that stand by for the same server one does.

use crate::cluster::Cluster;
use crate::hammering::{Hammer, verify};
use crate::zoo::Zoo;
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// By when what is waited for has happened; the machine may be busy.
const SOON: Duration = Duration::from_secs(60);

/// A process that stands by, killed at the end whatever it is by then.
struct Standby(Child);

impl Standby {
    /// One of this cluster; it stands by when this returns.
    fn start(cluster: &Cluster, options: &[&str]) -> Standby {
        let before = standbys(cluster).len();
        let all = [&["server", "--standby"], options].concat();
        let child = cluster.pando(&all).stdout(Stdio::null()).spawn();
        let standby = Standby(child.expect("a standby starts"));
        until("it does not stand by", || standbys(cluster).len() > before);
        standby
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn status(cluster: &Cluster) -> Value {
    let out = cluster.pando(&["status", "--json"]).output().expect("pando runs");
    serde_json::from_slice(&out.stdout).expect("JSON")
}

fn standbys(cluster: &Cluster) -> Vec<Value> {
    status(cluster)["standbys"].as_array().expect("a list").clone()
}

/// What is known of a server.
fn server(cluster: &Cluster, id: usize) -> Value {
    status(cluster)["servers"][id].clone()
}

fn address(cluster: &Cluster, id: usize) -> String {
    server(cluster, id)["address"].as_str().expect("text").to_owned()
}

fn boot(cluster: &Cluster, id: usize) -> u64 {
    server(cluster, id)["boot"].as_u64().expect("a number")
}

/// Kills a server and waits until another process is it. How long that took.
fn kill_and_wait(cluster: &Cluster, id: usize) -> Duration {
    let (was, boots) = (address(cluster, id), boot(cluster, id));
    let began = Instant::now();
    cluster.kill(id);
    until("nobody took its place", || {
        let now = server(cluster, id);
        now["up"] == true && now["address"] != was.as_str()
    });
    let took = began.elapsed();
    assert_eq!(boot(cluster, id), boots + 1, "it was started once more");
    took
}

fn takes_over_under_load(durability: &str, options: &[&str]) {
    let all = [options, &["--standbys", "1"]].concat();
    let cluster = Cluster::start_with(3, durability, &all);
    assert_eq!(standbys(&cluster).len(), 1);
    let hammer = Hammer::start(&cluster, "standby");
    hammer.wait_for_load(100);
    // One that coordinates, too: server 0 does at first.
    for id in [1, 0] {
        let took = kill_and_wait(&cluster, id);
        println!("server {id} ({durability}, {options:?}): served again after {took:?}");
        // A lease of 2 s, and 3 s; and what the machine does beside.
        assert!(took < Duration::from_secs(15), "{took:?}");
        hammer.wait_for_load(hammer.acknowledged() + 100);
        assert!(standbys(&cluster).is_empty());
        // `up` starts as many standbys as it was told once.
        assert!(cluster.run(&["up"]).contains("started 1 standby"));
    }
    // It is a server like any other.
    cluster.run(&["restart", "--server", "1"]);
    let said: Value = serde_json::from_str(&cluster.run(&["restart", "--json"])).expect("JSON");
    assert_eq!(said["standbys"], 1, "{said}");
    hammer.wait_for_load(hammer.acknowledged() + 100);
    let text = hammer.finish();
    verify(&cluster, &text);
    cluster.run(&["fsck"]);
    let stopped = cluster.run(&["down"]);
    assert!(
        stopped.contains("standby 0") && stopped.contains("server 1"),
        "{stopped}"
    );
    let again = cluster.run(&["up", "--standbys", "0"]);
    assert!(!again.contains("standby"), "{again}");
    cluster.run(&["fsck"]);
}

#[test]
fn process_standby_takes_over_under_load() {
    takes_over_under_load("sync", &[]);
}

#[test]
fn process_standby_takes_over_in_indexfs() {
    takes_over_under_load("async", &["--profile", "indexfs"]);
}

#[test]
fn process_standby_takes_over_with_zookeeper() {
    let zoo = Zoo::start(1);
    let cluster = Cluster::start_with(3, "sync", &["--coord", &zoo.url(), "--standbys", "1"]);
    let hammer = Hammer::start(&cluster, "standby-zk");
    hammer.wait_for_load(100);
    let took = kill_and_wait(&cluster, 1);
    println!("server 1 (ZooKeeper): served again after {took:?}");
    hammer.wait_for_load(hammer.acknowledged() + 100);
    let text = hammer.finish();
    verify(&cluster, &text);
    cluster.run(&["fsck"]);
    // What servers of this machine have of the map is the one that has the standby.
    let copy = std::fs::read_to_string(cluster.path("cluster.json")).expect("a map");
    assert!(copy.contains(&address(&cluster, 1)), "{copy}");
}

#[test]
fn process_standby_of_the_only_server_is_found() {
    let cluster = Cluster::start_with(1, "sync", &["--profile", "infinifs", "--standbys", "1"]);
    let hammer = Hammer::start(&cluster, "alone");
    hammer.wait_for_load(100);
    kill_and_wait(&cluster, 0);
    // Nobody else could have told it.
    hammer.wait_for_load(hammer.acknowledged() + 100);
    let text = hammer.finish();
    verify(&cluster, &text);
    cluster.run(&["fsck"]);
}

#[test]
fn process_a_paused_server_keeps_its_place() {
    let cluster = Cluster::start(3, "sync");
    let (was, boots) = (address(&cluster, 1), boot(&cluster, 1));
    let _standby = Standby::start(&cluster, &["--for", "1,2"]);
    assert_eq!(standbys(&cluster)[0]["for"], serde_json::json!([1, 2]));
    let state = || {
        let found = standbys(&cluster);
        found[0]["state"].as_str().expect("text").to_owned()
    };
    until("it does not watch", || state() == "watches");
    cluster.signal(1, "STOP");
    until("it does not say what it waits for", || {
        state().contains("waits for the store of server 1")
    });
    std::thread::sleep(Duration::from_secs(4));
    assert!(state().contains("waits for the store of server 1"));
    let shown = cluster.pando(&["status"]).output().expect("pando runs");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("for servers 1, 2: waits for the store"), "{shown}");
    assert_eq!(address(&cluster, 1), was);
    cluster.signal(1, "CONT");
    until("it does not watch again", || state() == "watches");
    assert_eq!((address(&cluster, 1), boot(&cluster, 1)), (was, boots));
    cluster.run(&["--wait", "60", "mkdir", "/a", "/a/b", "/a/c"]);
    cluster.run(&["fsck"]);
}

#[test]
fn process_whoever_has_the_store_is_the_server() {
    let cluster = Cluster::start(2, "sync");
    // Another folder, where nobody is seen to be there: the lock on the store alone decides.
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["cluster.json", "secret"] {
        std::fs::copy(cluster.path(name), folder.path().join(name)).expect("copied");
    }
    std::os::unix::fs::symlink(cluster.path("server-1"), folder.path().join("server-1")).expect("a link");
    let mut standby = Command::new(env!("CARGO_BIN_EXE_pando"));
    standby
        .arg("--dir")
        .arg(folder.path())
        .args(["server", "--standby"]);
    let _standby = Standby(standby.stdout(Stdio::null()).spawn().expect("it starts"));
    let page = folder.path().join("run/standby-0.json");
    until("it does not wait", || {
        let text = std::fs::read_to_string(&page).unwrap_or_default();
        text.contains("waits for the store of server 1")
    });
    let map = |dir: &std::path::Path| std::fs::read_to_string(dir.join("cluster.json")).expect("a map");
    let before = map(folder.path());
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(map(folder.path()), before);
    assert_eq!(boot(&cluster, 1), 1);
}

#[test]
fn process_of_two_standbys_one_takes_over() {
    let cluster = Cluster::start(2, "sync");
    let _standbys = [
        Standby::start(&cluster, &["--for", "1"]),
        Standby::start(&cluster, &["--for", "1"]),
    ];
    kill_and_wait(&cluster, 1);
    until("the other does not go on watching", || {
        let left = standbys(&cluster);
        left.len() == 1 && left[0]["state"] == "watches"
    });
    cluster.run(&["--wait", "60", "mkdir", "/a", "/a/b", "/a/c"]);
    kill_and_wait(&cluster, 1);
    assert!(standbys(&cluster).is_empty());
    cluster.run(&["--wait", "60", "mv", "/a/b", "/a/d"]);
    cluster.run(&["fsck"]);
}

#[test]
fn process_standby_refuses_what_it_could_not_be() {
    let cluster = Cluster::start(2, "async");
    let fails = |options: &[&str], what: &str| {
        let complaint = cluster.fail(&[&["server", "--standby"], options].concat());
        assert!(complaint.contains(what), "{options:?}: {complaint}");
    };
    fails(&["--for", "7"], "no server 7 to stand by for; it has 0,1");
    fails(&["--for", "one"], "is no number of a server");
    fails(&["--store", "x"], "say with --for ID whose that is");
    fails(
        &["--for", "1", "--store", "/nowhere"],
        "there is no store in /nowhere",
    );
    fails(&["--for", "1", "--address", "nonsense"], "not HOST:PORT");
    fails(
        &["--for", "1", "--address", &address(&cluster, 0)],
        "server 0 is at that address",
    );
    let elsewhere = ["--for", "1", "--address", "192.0.2.1:7400"];
    fails(&elsewhere, "could be reached from other machines");
    fails(&["--id", "1"], "cannot be used with");
    let complaint = cluster.fail(&["server", "--id", "0", "--for", "1"]);
    assert!(complaint.contains("cannot be used with"), "{complaint}");

    // The store of another filesystem.
    let other = Cluster::start(2, "async");
    other.run(&["down"]);
    cluster.kill(1);
    let store = other.file("server-1");
    fails(
        &["--for", "1", "--store", &store],
        "is the store of server 1 of filesystem",
    );
    let store = other.file("server-0");
    fails(
        &["--for", "1", "--store", &store],
        "is the store of server 0 of filesystem",
    );
    cluster.up();

    // A server whose store is not in this folder.
    cluster.kill(1);
    std::fs::rename(cluster.path("server-1"), cluster.path("elsewhere")).expect("moved");
    fails(&["--for", "1"], "the store of server 1 is not in this folder");
    std::fs::rename(cluster.path("elsewhere"), cluster.path("server-1")).expect("moved");
    cluster.up();
    cluster.run(&["fsck"]);
}
