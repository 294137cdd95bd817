//! A cluster grows and shrinks under load, and whoever takes part in it is killed: nothing acknowledged may
//! be missing, nothing may have happened twice, and no program may hear an error.

use crate::cluster::Cluster;
use crate::hammering::{Hammer, verify};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The number after a field of the whole output of a command in JSON.
fn number(text: &str, field: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
    value[field]
        .as_u64()
        .unwrap_or_else(|| panic!("no {field} in {text}"))
}

fn slots(cluster: &Cluster) -> Vec<(u64, u64)> {
    let map: serde_json::Value = serde_json::from_str(&cluster.run(&["map", "--json"])).expect("JSON");
    let servers = map["servers"].as_array().expect("servers");
    let one = |s: &serde_json::Value| Some((s["server"].as_u64()?, s["slot_count"].as_u64()?));
    servers.iter().filter_map(one).collect()
}

#[test]
fn process_a_fifth_server_joins_and_one_leaves_under_load() {
    let cluster = Cluster::start(4, "sync");
    let hammer = Hammer::start(&cluster, "grow");
    hammer.wait_for_load(200);
    let joined = cluster.run(&["join", "--json"]);
    assert_eq!(number(&joined, "to_move"), 0, "{joined}");
    // One share, no more, all of it to the new one.
    assert_eq!(number(&joined, "moved"), 4096 / 5);
    assert_eq!(slots(&cluster).last(), Some(&(4, 4096 / 5)));
    hammer.wait_for_load(hammer.acknowledged() + 500);
    cluster.run(&["drain", "1", "--json"]);
    assert!(slots(&cluster).iter().all(|(server, _)| *server != 1));
    assert_eq!(slots(&cluster).iter().map(|(_, n)| n).sum::<u64>(), 4096);
    hammer.wait_for_load(hammer.acknowledged() + 500);
    cluster.run(&["rebalance"]);
    let text = hammer.finish();
    println!("{}", verify(&cluster, &text));
    cluster.run(&["fsck"]);
    // All of it is still so after a restart of everybody.
    cluster.run(&["down"]);
    cluster.up();
    let even = slots(&cluster);
    assert!(even.iter().all(|(_, n)| *n == 1024), "{even:?}");
    cluster.run(&["fsck"]);
}

#[test]
fn process_kill_9_of_either_side_of_a_join() {
    let cluster = Cluster::start(4, "sync");
    let hammer = Hammer::start(&cluster, "grow-kills");
    hammer.wait_for_load(500);
    cluster.run(&["join", "--no-wait"]);
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut kills = 0;
    while number(&cluster.run(&["rebalance", "--no-wait", "--json"]), "to_move") > 0 || kills < 8 {
        assert!(Instant::now() < deadline, "{}", cluster.run(&["map"]));
        // The receiver, an owner, the coordinator.
        cluster.kill([4, 1, 0, 4, 2][kills % 5]);
        kills += 1;
        std::thread::sleep(Duration::from_millis(20 * (kills as u64 % 7)));
        cluster.up();
        hammer.wait_for_load(hammer.acknowledged() + 20);
    }
    let text = hammer.finish();
    println!("{kills} kills; {}", verify(&cluster, &text));
    cluster.run(&["fsck"]);
}

#[test]
fn process_what_makes_no_sense_is_refused() {
    let cluster = Cluster::start(2, "async");
    assert!(cluster.fail(&["drain", "7"]).contains("no server 7"));
    let taken = cluster.run(&["map", "--json"]);
    let map: serde_json::Value = serde_json::from_str(&taken).expect("JSON");
    let address = map["servers"][0]["address"].as_str().expect("address").to_owned();
    assert!(
        cluster
            .fail(&["join", "--address", &address])
            .contains("at that address")
    );
    assert!(
        cluster
            .fail(&["join", "--address", "nonsense"])
            .contains("HOST:PORT")
    );
    let metrics = map["servers"][0]["metrics"].as_str().expect("metrics");
    for taken in [metrics, &metrics.replace(":8", ":7")] {
        assert!(
            cluster
                .fail(&["join", "--address", taken])
                .contains("at that address")
        );
    }
    assert!(
        cluster
            .fail(&["join", "--address", "127.0.0.1:0"])
            .contains("port 0")
    );
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = busy.local_addr().expect("an address").port();
    let complaint = cluster.fail(&["join", "--address", &format!("127.0.0.1:{port}")]);
    assert!(
        complaint.contains("another program") || complaint.contains("no port left"),
        "{complaint}"
    );
    // Nothing was made for any of them.
    assert!(!cluster.path("server-2").exists());
    cluster.run(&["drain", "0"]);
    assert!(cluster.fail(&["drain", "1"]).contains("last"));
    cluster.run(&["fsck"]);
}

#[test]
fn process_two_join_at_once() {
    let cluster = Cluster::start(2, "async");
    for pause in [0, 12] {
        let mut joins = Vec::new();
        for _ in 0..2 {
            let mut join = cluster.pando(&["join", "--another"]);
            joins.push(
                join.stderr(Stdio::piped())
                    .stdout(Stdio::null())
                    .spawn()
                    .expect("pando runs"),
            );
            std::thread::sleep(Duration::from_millis(pause));
        }
        for join in joins {
            let out = join.wait_with_output().expect("it ends");
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        }
    }
    let servers: Vec<u64> = slots(&cluster).iter().map(|(server, _)| *server).collect();
    assert_eq!(servers, [0, 1, 2, 3, 4, 5]);
    cluster.run(&["fsck"]);
}

#[test]
fn process_nobody_is_there_to_be_asked() {
    let cluster = Cluster::start(2, "async");
    cluster.run(&["down"]);
    assert!(cluster.fail(&["--wait", "1", "join"]).contains("does not answer"));
    assert!(!cluster.path("server-2").exists());
}

#[test]
fn process_a_store_that_was_used_is_never_replaced() {
    let cluster = Cluster::start(2, "async");
    // A store of another server's number, as one that a copy of the folder brought along.
    cluster.run(&["down"]);
    let copied = Command::new("cp")
        .arg("-r")
        .arg(cluster.path("server-1"))
        .arg(cluster.path("server-2"))
        .status();
    assert!(copied.expect("cp runs").success());
    cluster.up();
    assert!(cluster.fail(&["join"]).contains("which was started"));
    assert!(cluster.path("server-2/db/CURRENT").exists());
}

#[test]
fn process_what_has_left_is_stopped() {
    let cluster = Cluster::start(3, "async");
    for server in [1, 2] {
        cluster.run(&["drain", &server.to_string(), "--no-wait"]);
        let deadline = Instant::now() + Duration::from_secs(60);
        while slots(&cluster).iter().any(|(s, _)| *s == server) {
            assert!(Instant::now() < deadline, "{}", cluster.run(&["map"]));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let done: serde_json::Value =
        serde_json::from_str(&cluster.run(&["drain", "1", "--json"])).expect("one JSON");
    assert_eq!(done["stopped"], true);
    assert!(cluster.run(&["down"]).contains("Stopped server 0, server 2."));
}
