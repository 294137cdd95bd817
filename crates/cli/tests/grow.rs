//! A cluster grows and shrinks under load, and whoever takes part in it is killed: nothing acknowledged may be missing,
//! nothing may have happened twice, and no program may hear an error.

mod cluster;
mod hammering;

use cluster::Cluster;
use hammering::{Hammer, verify};
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
    cluster.run(&["drain", "0"]);
    assert!(cluster.fail(&["drain", "1"]).contains("last"));
    cluster.run(&["fsck"]);
}
