//! The folder of a cluster as people leave it: what a server has written is never replaced, and what runs can
//! be stopped.

use crate::cluster::Cluster;
use std::process::Command;

fn read(cluster: &Cluster, name: &str) -> Vec<u8> {
    std::fs::read(cluster.path(name)).expect("a file")
}

#[test]
fn process_a_lost_map_costs_no_store() {
    let cluster = Cluster::start(2, "sync");
    cluster.run(&["mkdir", "/kept"]);
    let (map, secret) = (read(&cluster, "cluster.json"), read(&cluster, "secret"));
    std::fs::remove_file(cluster.path("cluster.json")).expect("removed");
    for arguments in [
        vec!["up"],
        vec!["format"],
        vec!["status"],
        vec!["up", "--servers", "1"],
    ] {
        let complaint = cluster.fail(&arguments);
        assert!(
            complaint.contains("cluster.json is missing"),
            "{arguments:?}: {complaint}"
        );
    }
    // With the servers stopped too; that they are stopped needs no map.
    assert!(cluster.run(&["down"]).contains("Stopped server 0, server 1."));
    assert!(cluster.fail(&["up"]).contains("which was started 1 times"));
    assert!(cluster.fail(&["down"]).contains("cluster.json is missing"));
    assert_eq!(read(&cluster, "secret"), secret);
    std::fs::write(cluster.path("cluster.json"), map).expect("restored");
    cluster.up();
    assert!(cluster.run(&["ls", "/"]).contains("kept"));
}

#[test]
fn process_an_unused_store_is_kept_unless_a_format_was_interrupted() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("c");
    let format = || {
        Command::new(env!("CARGO_BIN_EXE_pando"))
            .arg("--dir")
            .arg(&dir)
            .args(["format", "--servers", "2"])
            .output()
            .expect("pando runs")
    };
    assert!(format().status.success());
    std::fs::remove_file(dir.join("cluster.json")).expect("removed");
    let out = format();
    assert!(!out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("cluster.json is missing"));
    // As an interrupted one leaves it.
    std::fs::write(dir.join("run/format.lock"), "1\n").expect("written");
    assert!(format().status.success());
    assert!(!dir.join("run/format.lock").exists());
}

#[test]
fn process_what_a_filesystem_was_made_with_stays() {
    let cluster = Cluster::start(2, "async");
    for (option, value) in [
        ("durability", "sync"),
        ("auth", "key"),
        ("coord", "zk://127.0.0.1:1"),
        ("coherence", "lease=2"),
        ("inline-limit", "17"),
        ("without", "decoupling"),
    ] {
        let complaint = cluster.fail(&["up", &format!("--{option}"), value]);
        assert!(
            complaint.contains(&format!("leave out --{option}")),
            "{complaint}"
        );
    }
    // The same again is no contradiction.
    cluster.run(&[
        "up",
        "--servers",
        "2",
        "--durability",
        "async",
        "--auth",
        "none",
        "--coherence",
        "lazy",
    ]);
    let out = cluster
        .pando(&["up", "--servers", "5"])
        .output()
        .expect("pando runs");
    assert!(out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("this one has 2"));
}

#[test]
fn process_up_starts_what_is_of_this_folder() {
    let cluster = Cluster::start(2, "async");
    let store = cluster.path("elsewhere/store");
    std::fs::create_dir_all(&store).expect("a folder");
    let link = cluster.path("link");
    std::os::unix::fs::symlink(&store, &link).expect("a link");
    cluster.run(&["join", "--store", &cluster.file("link"), "--no-wait"]);
    assert!(link.is_symlink() && store.join("LOCK").exists());
    // Its store is another folder's, and is known here.
    assert!(cluster.run(&["up"]).contains("started server 2"));
    assert!(!cluster.run(&["up"]).contains("started"));
    cluster.run(&["down"]);
    std::fs::remove_file(cluster.path("server-2")).expect("removed");
    let out = cluster.pando(&["up", "--json"]).output().expect("pando runs");
    assert!(out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("server 2 is not of this folder"));
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(said["elsewhere"], serde_json::json!([2]));
    assert_eq!(said["done"], serde_json::json!(["started server 0, 1"]));
}
