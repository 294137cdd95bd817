//! All servers are restarted one after the other under load: no operation fails, nothing is lost.

use crate::cluster::Cluster;
use crate::hammering::{Hammer, verify};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// How often each server was started.
fn boots(cluster: &Cluster) -> Vec<u64> {
    let status = json(&cluster.run(&["status", "--json"]));
    let servers = status["servers"].as_array().expect("a list");
    servers
        .iter()
        .map(|s| s["boot"].as_u64().expect("a number"))
        .collect()
}

#[test]
fn process_rolling_restart_under_load_fails_nothing() {
    let cluster = Cluster::start(4, "sync");
    let before = boots(&cluster);
    let hammer = Hammer::start(&cluster, "restart");
    hammer.wait_for_load(100);
    for round in 1..=2 {
        let said = json(&cluster.run(&["restart", "--json"]));
        assert_eq!(said["restarted"].as_array().map(Vec::len), Some(4), "{said}");
        let after: Vec<u64> = before.iter().map(|b| b + round).collect();
        assert_eq!(boots(&cluster), after);
        // The load goes on after it.
        hammer.wait_for_load(hammer.acknowledged() + 100);
    }
    let said = cluster.run(&["restart", "--server", "2"]);
    assert!(said.contains("server 2") && !said.contains("server 1"), "{said}");
    let text = hammer.finish();
    verify(&cluster, &text);
    cluster.run(&["fsck"]);
}

#[test]
fn process_restart_refuses_what_would_take_two_away() {
    let cluster = Cluster::start(3, "async");
    let before = boots(&cluster);
    assert!(
        cluster
            .fail(&["restart", "--server", "9"])
            .contains("no server 9")
    );
    cluster.kill(1);
    assert!(
        cluster
            .fail(&["restart", "--server", "1"])
            .contains("does not run from this folder")
    );
    let why = cluster.fail(&["--wait", "1", "restart", "--server", "2"]);
    assert!(why.contains("server 1 does not answer"), "{why}");
    cluster.up();
    assert_eq!(boots(&cluster), [before[0], before[1] + 1, before[2]]);
    cluster.run(&["down"]);
    assert!(cluster.fail(&["restart"]).contains("no server runs"));
}
