//! Plans that do not come to their end: they are put back, under load and while servers die, and what stops
//! them is said.

use crate::cluster::Cluster;
use crate::hammering::{Hammer, verify};
use serde_json::Value;
use std::time::{Duration, Instant};

fn json(cluster: &Cluster, arguments: &[&str]) -> Value {
    serde_json::from_str(&cluster.run(arguments)).expect("JSON")
}

/// How many slots a server has; none if it is not there.
fn slots(cluster: &Cluster, server: u64) -> Option<u64> {
    let map = json(cluster, &["map", "--json"]);
    let servers = map["servers"].as_array().expect("servers").clone();
    let found = servers.iter().find(|s| s["server"] == server)?;
    found["slot_count"].as_u64()
}

/// Waits until something holds.
fn until(what: &str, cluster: &Cluster, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: {}", cluster.run(&["map"]));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A drain of server 1 is under way and cannot end: one of those that are to get its slots does not answer.
fn drain_that_stays(cluster: &Cluster, stopped: usize) {
    cluster.signal(stopped, "STOP");
    cluster.run(&["drain", "1", "--no-wait"]);
    until("some slots move", cluster, || {
        slots(cluster, 1).is_some_and(|n| n < 1024)
    });
}

#[test]
fn process_a_drain_is_cancelled_under_load() {
    let cluster = Cluster::start(4, "sync");
    let hammer = Hammer::start(&cluster, "cancel");
    hammer.wait_for_load(200);
    drain_that_stays(&cluster, 3);
    let said = cluster.run(&["drain", "1", "--cancel"]);
    assert!(said.contains("Server 1 stays, with"), "{said}");
    cluster.signal(3, "CONT");
    let left = slots(&cluster, 1).expect("it is there");
    assert!(left > 0 && left < 1024, "{left}");
    hammer.wait_for_load(hammer.acknowledged() + 300);
    assert_eq!(slots(&cluster, 1), Some(left), "nothing moves any more");
    let again = cluster.fail(&["drain", "1", "--cancel"]);
    assert!(again.contains("not being drained"), "{again}");
    assert!(cluster.fail(&["drain", "9", "--cancel"]).contains("no server 9"));
    assert!(
        cluster
            .fail(&["rebalance", "--cancel"])
            .contains("nothing to cancel")
    );
    assert!(
        cluster
            .fail(&["join", "--cancel"])
            .contains("no server is joining")
    );
    // What waited for the drain works.
    cluster.run(&["rebalance"]);
    assert_eq!(slots(&cluster, 1), Some(1024));
    cluster.run(&["join"]);
    cluster.run(&["drain", "1"]);
    let gone = cluster.fail(&["drain", "1", "--cancel"]);
    assert!(gone.contains("server 1 has left"), "{gone}");
    let text = hammer.finish();
    println!("{}", verify(&cluster, &text));
    cluster.run(&["fsck"]);
}

#[test]
fn process_a_drain_is_cancelled_at_any_time() {
    let cluster = Cluster::start(3, "async");
    let hammer = Hammer::start(&cluster, "any-time");
    hammer.wait_for_load(200);
    let mut cancelled = 0;
    for pause in [0, 5, 20, 40, 80, 120] {
        cluster.run(&["drain", "2", "--no-wait"]);
        std::thread::sleep(Duration::from_millis(pause));
        let out = cluster.pando(&["drain", "2", "--cancel"]).output().expect("runs");
        if !out.status.success() {
            let why = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(why.contains("server 2 has left"), "{why}");
            break;
        }
        cancelled += 1;
        cluster.run(&["rebalance"]);
        hammer.wait_for_load(hammer.acknowledged() + 50);
    }
    let text = hammer.finish();
    println!("{cancelled} cancelled; {}", verify(&cluster, &text));
    cluster.run(&["fsck"]);
}

#[test]
fn process_the_coordinator_dies_while_a_drain_is_cancelled() {
    let cluster = Cluster::start(4, "sync");
    let hammer = Hammer::start(&cluster, "cancel-kills");
    hammer.wait_for_load(200);
    for pause in [0, 10, 30] {
        drain_that_stays(&cluster, 3);
        let mut cancel = cluster.pando(&["drain", "1", "--cancel"]);
        let mut cancel = cancel
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("pando runs");
        std::thread::sleep(Duration::from_millis(pause));
        let coordinator = json(&cluster, &["map", "--json"])["coordinator"]
            .as_u64()
            .expect("a number");
        cluster.kill(coordinator as usize);
        cluster.signal(3, "CONT");
        cluster.up();
        assert!(cancel.wait().expect("it ends").success());
        let map = json(&cluster, &["map", "--json"]);
        assert_eq!(map["plan"]["leaving"], serde_json::json!([]), "{map}");
        cluster.run(&["rebalance"]);
        assert_eq!(slots(&cluster, 1), Some(1024));
        hammer.wait_for_load(hammer.acknowledged() + 50);
    }
    let text = hammer.finish();
    println!("{}", verify(&cluster, &text));
    cluster.run(&["fsck"]);
}

#[test]
fn process_a_join_is_cancelled_under_load() {
    let cluster = Cluster::start(3, "sync");
    let hammer = Hammer::start(&cluster, "cancel-join");
    hammer.wait_for_load(200);
    // An owner that does not answer keeps its slots.
    cluster.signal(2, "STOP");
    cluster.run(&["join", "--no-wait"]);
    until("some slots move", &cluster, || slots(&cluster, 3) > Some(0));
    let moving = cluster.run(&["rebalance", "--cancel"]);
    assert!(moving.contains("stay where they are"), "{moving}");
    cluster.signal(2, "CONT");
    let got = slots(&cluster, 3);
    hammer.wait_for_load(hammer.acknowledged() + 100);
    assert_eq!(slots(&cluster, 3), got, "nothing moves any more");
    cluster.signal(2, "STOP");
    cluster.run(&["rebalance", "--no-wait"]);
    let cancel = cluster.pando(&["join", "--cancel"]).spawn();
    std::thread::sleep(Duration::from_millis(300));
    cluster.signal(2, "CONT");
    let out = cancel.expect("pando runs").wait().expect("it ends");
    assert!(out.success());
    assert_eq!(slots(&cluster, 3), None);
    let text = hammer.finish();
    println!("{}", verify(&cluster, &text));
    cluster.run(&["fsck"]);
}

/// One byte in the middle of a data block of the largest table of a server that does not run.
fn flip_a_byte(cluster: &Cluster, server: u16) {
    let tables = std::fs::read_dir(cluster.path(&format!("server-{server}/db"))).expect("a store");
    let tables = tables.map(|t| t.expect("listed").path());
    let tables = tables.filter(|t| t.extension().is_some_and(|e| e == "sst"));
    let size = |t: &std::path::PathBuf| std::fs::metadata(t).expect("there").len();
    let table = tables.max_by_key(size).expect("a table");
    let mut bytes = std::fs::read(&table).expect("readable");
    let at = bytes.len() / 3;
    bytes[at] ^= 0x40;
    std::fs::write(&table, bytes).expect("writable");
}

#[test]
fn process_a_drain_says_what_damage_stops_it() {
    let cluster = Cluster::start(3, "async");
    let dirs: Vec<String> = (0..1500).map(|n| format!("/tree/d{n}")).collect();
    let mut mkdir = vec!["mkdir", "-p"];
    mkdir.extend(dirs.iter().map(String::as_str));
    cluster.run(&mkdir);
    // What was in the log only is in a table after the second start.
    cluster.run(&["down"]);
    cluster.up();
    cluster.run(&["down"]);
    flip_a_byte(&cluster, 0);
    cluster.up();
    let began = Instant::now();
    let why = cluster.fail(&["drain", "0"]);
    println!("{why}");
    assert!(began.elapsed() < Duration::from_secs(90), "{why}");
    for said in [
        "of server 0",
        "cannot be read",
        "`pando drain 0 --cancel`",
        "`pando fsck --repair`",
        "`pando dump`",
        "`pando load`",
    ] {
        assert!(why.contains(said), "{said}: {why}");
    }
    // All others have moved.
    let left = slots(&cluster, 0).expect("it is there");
    assert!(left > 0 && left < 1366 / 4, "{left}: {why}");
    let status = cluster.run(&["status"]);
    assert!(
        status.contains("server 0 is drained") && status.contains("cannot be read"),
        "{status}"
    );
    let status = json(&cluster, &["status", "--json"]);
    assert_eq!(status["plan"]["to_move"], left, "{status}");
    assert_eq!(status["plan"]["leaving"], serde_json::json!([0]), "{status}");
    let waits = &status["plan"]["waits_for"];
    assert_eq!(
        (&waits[0]["why"], &waits[0]["slots"]),
        (&"damaged".into(), &left.into()),
        "{waits}"
    );
    let failed = cluster.pando(&["drain", "0", "--json"]).output().expect("runs");
    assert!(!failed.status.success());
    let told: Value = serde_json::from_slice(&failed.stdout).expect("JSON");
    assert_eq!(told["waits_for"][0]["why"], "damaged", "{told}");
    // The log does not say the same again and again.
    let log = std::fs::read_to_string(cluster.path("run/server-0.log")).expect("a log");
    let lines = log.lines().filter(|l| l.contains("damaged record")).count();
    let most = 6 * left as usize;
    assert!(lines > 0 && lines <= most, "{lines} lines of {left} slots: {log}");
    assert!(cluster.fail(&["fsck"]).contains("on the move"));

    cluster.run(&["drain", "0", "--cancel"]);
    assert_eq!(slots(&cluster, 0), Some(left));
    let checked = cluster.pando(&["fsck"]).output().expect("runs");
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert_eq!(checked.status.code(), Some(1), "{text}");
    let status = cluster.run(&["status"]);
    assert!(!status.contains("Under way"), "{status}");
    cluster.run(&["join"]);
    assert_eq!(slots(&cluster, 3), Some(1024));
}

#[test]
fn process_a_drain_says_which_server_is_down() {
    let cluster = Cluster::start(3, "async");
    cluster.kill(2);
    let why = cluster.fail(&["drain", "1", "--patience", "5"]);
    assert!(why.contains("wait for server 2, which does not answer"), "{why}");
    let status = cluster.pando(&["status"]).output().expect("runs");
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        status.contains("server 1 is drained") && status.contains("wait for server 2"),
        "{status}"
    );
    // It goes on without anybody who watches.
    cluster.up();
    cluster.run(&["drain", "1"]);
    assert_eq!(slots(&cluster, 1), None);
    // Who has nothing left and is not there is waited for, not for ever.
    cluster.run(&["rebalance"]);
    cluster.run(&["fsck"]);
}
