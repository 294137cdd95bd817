//! kill -9 under load: real servers, many operations in flight, an outside process (this one) that keeps the
//! log of what was acknowledged. Nothing acknowledged may be missing, nothing may have happened twice, in
//! either durability.

use crate::cluster::Cluster;
use crate::hammering::{Hammer, verify};
use std::time::Duration;

/// Times that servers are killed, per durability.
const KILLS: usize = 30;

fn kill_under_load(durability: &str) {
    let cluster = Cluster::start(4, durability);
    let hammer = Hammer::start(&cluster, "kills");
    let mut in_flight = Vec::new();
    for n in 0..KILLS {
        in_flight.push(hammer.wait_for_load(hammer.acknowledged() + 20));
        // Every fourth time two at once.
        let victims: Vec<usize> = if n % 4 == 3 {
            vec![n % 4, (n + 1) % 4]
        } else {
            vec![(n * 7) % 4]
        };
        for v in &victims {
            cluster.kill(*v);
        }
        std::thread::sleep(Duration::from_millis((n as u64 * 37) % 150));
        cluster.up();
    }
    let text = hammer.finish();
    let report = verify(&cluster, &text);
    cluster.run(&["fsck"]);
    println!(
        "{durability}: {KILLS} kills, at least {:?} in flight; {report}",
        in_flight.iter().min()
    );
}

#[test]
fn process_kill_9_in_sync_loses_nothing() {
    kill_under_load("sync");
}

#[test]
fn process_kill_9_in_async_loses_nothing() {
    kill_under_load("async");
}

/// Directories split all the time, and what clients know of them runs out.
#[test]
fn process_kill_9_of_servers_with_split_and_leased_directories_loses_nothing() {
    let choices = [
        "--profile",
        "indexfs",
        "--split-entries",
        "8",
        "--coherence",
        "lease=rate:0.3",
    ];
    let cluster = Cluster::start_with(4, "sync", &choices);
    // A server that is killed forgets its counts.
    let total = |field: &str| -> u64 {
        let text = cluster.run(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let servers = status["servers"].as_array().expect("servers");
        servers.iter().filter_map(|s| s.pointer(field)?.as_u64()).sum()
    };
    let (mut leases, mut splits) = (0, 0);
    let hammer = Hammer::start(&cluster, "split");
    for n in 0..12 {
        hammer.wait_for_load(hammer.acknowledged() + 20);
        (leases, splits) = (leases + total("/leases/granted"), splits + total("/splits/given"));
        cluster.kill((n * 7) % 4);
        std::thread::sleep(Duration::from_millis((n as u64 * 37) % 150));
        cluster.up();
    }
    let report = verify(&cluster, &hammer.finish());
    cluster.run(&["fsck"]);
    println!("{report}; {leases} leases, {splits} splits");
    assert!(leases > 0 && splits > 0, "{leases} leases, {splits} splits");
}
