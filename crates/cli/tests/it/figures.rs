//! Figures of the papers, and paths over an emulated round trip. Round trips are asserted; times only from
//! below, because nobody knows what else the machine does.
#![allow(clippy::unwrap_used)]

use crate::cluster::Cluster;
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

/// A figure, on servers of its own.
fn figure(arguments: &[&str]) -> Value {
    let out = Command::new(env!("CARGO_BIN_EXE_pando"))
        .args(["--json", "bench", "figure"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success(),
        "{arguments:?}: {text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    serde_json::from_str(&text).unwrap()
}

fn lines(figure: &Value) -> impl Iterator<Item = &Value> {
    figure["results"].as_array().into_iter().flatten()
}

#[test]
fn mispredictions_cost_round_trips_and_only_where_ids_are_guessed() {
    let drawn = figure(&["infinifs-15", "--rounds", "1", "--servers", "3"]);
    assert_eq!(lines(&drawn).count(), 39, "{drawn}");
    for line in lines(&drawn) {
        let trips = line["round_trips"].as_f64().unwrap();
        let renamed = line["renamed"].as_f64().unwrap();
        let right = match line["approach"].as_str().unwrap() {
            "naive" => trips == 25.0,
            "speculative" => trips >= 1.0 && trips <= renamed.max(1.0) + 3.0,
            _ => trips == 1.0,
        };
        assert!(right, "{line}");
    }
}

#[test]
fn each_idea_saves_what_it_is_for() {
    let fast = [
        "--rounds",
        "3",
        "--servers",
        "2",
        "--clients",
        "2",
        "--seconds",
        "0.05",
    ];
    let drawn = figure(&[&["infinifs-11"], &fast[..]].concat());
    let of = |operation: &str, bar: &str, column: &str| {
        let line = lines(&drawn)
            .find(|l| l["operation"] == operation && l["bar"] == bar)
            .unwrap();
        line[column].as_f64().unwrap()
    };
    for operation in ["create", "mkdir"] {
        // The root and nine directories; a cold path at once; nothing.
        assert_eq!(of(operation, "Baseline", "resolve_trips"), 10.0, "{drawn}");
        assert_eq!(of(operation, "+Speculating", "resolve_trips"), 1.0, "{drawn}");
        assert_eq!(of(operation, "+Cache", "resolve_trips"), 0.0, "{drawn}");
        assert_eq!(of(operation, "+Decoupling", "resolve_trips"), 0.0, "{drawn}");
        // Counts and times elsewhere: locks, prepares and the decision.
        assert!(of(operation, "+Cache", "server_messages") >= 3.0, "{drawn}");
    }
    assert_eq!(of("create", "+Decoupling", "server_messages"), 0.0, "{drawn}");
}

#[test]
fn figures_of_indexfs_on_servers_have_all_their_lines() {
    let fast = ["--servers", "2", "--clients", "2", "--seconds", "0.05"];
    let drawn = figure(&[&["indexfs-11"], &fast[..]].concat());
    let bars: Vec<&str> = lines(&drawn).filter_map(|l| l["bar"].as_str()).collect();
    assert_eq!(
        bars,
        ["sync", "+async", "+bulk", "+column", "+larger tables"],
        "{drawn}"
    );
    assert!(
        lines(&drawn).all(|l| l["files_s"].as_f64() > Some(0.0)),
        "{drawn}"
    );
    let drawn = figure(&[&["indexfs-8"], &fast[..]].concat());
    let operations = lines(&drawn).filter_map(|l| l["operation"].as_str());
    let all: Vec<&str> = operations.collect();
    assert!(
        [3, 6].contains(&all.len()) && all[..3] == ["create", "stat", "remove"],
        "{drawn}"
    );
    for column in ["direct_s", "pando_async_s", "direct_synced_s", "pando_sync_s"] {
        let found = |l: &Value| l[column].as_f64() > Some(0.0);
        assert!(lines(&drawn).all(found), "{column}: {drawn}");
    }
}

/// What the design promises of a cold path of depth 24: at most two round trips.
#[test]
fn a_cold_path_takes_two_round_trips_at_most() {
    let c = Cluster::start(3, "async");
    let text = c.run(&["--json", "bench", "resolve", "--rtt", "1ms", "--seconds", "0.2"]);
    let bench: Value = serde_json::from_str(&text).unwrap();
    let (naive, speculative) = (&bench["results"][0], &bench["results"][1]);
    assert!(speculative["round_trips"].as_f64().unwrap() <= 2.0, "{bench}");
    // The way is really emulated: each round trip takes that long at least.
    for line in [naive, speculative] {
        let least = line["round_trips"].as_f64().unwrap() * 1000.0;
        assert!(line["p50_us"].as_f64().unwrap() >= least, "{bench}");
    }
}

#[test]
fn with_leases_changes_wait_until_what_was_told_has_run_out() {
    let c = Cluster::start_with(3, "async", &["--coherence", "lease=1"]);
    let waits = || -> u64 {
        let status: Value = serde_json::from_str(&c.run(&["status", "--json"])).unwrap();
        let servers = status["servers"].as_array().unwrap();
        servers.iter().filter_map(|s| s["leases"]["waits"].as_u64()).sum()
    };
    c.run(&["mkdir", "-p", "/a/b"]);
    c.run(&["ls", "/a"]);
    let before = waits();
    let begin = Instant::now();
    c.run(&["mv", "/a", "/c"]);
    assert!(begin.elapsed() >= Duration::from_millis(500));
    assert!(waits() > before, "{}", c.run(&["status"]));
    assert_eq!(c.run(&["ls", "/"]), "c\n");
    // Files and new names change nothing that anybody was told.
    let begin = Instant::now();
    c.run(&["mkdir", "/c/b/d"]);
    let quick = begin.elapsed();
    let begin = Instant::now();
    c.run(&["chmod", "700", "/c/b"]);
    assert!(
        begin.elapsed() >= Duration::from_millis(500),
        "mkdir took {quick:?}"
    );
    assert!(begin.elapsed() < Duration::from_secs(5), "it waits for ever");
    assert_eq!(c.run(&["ls", "/c/b"]), "d\n");
    assert!(c.fail(&["ls", "/a"]).contains("/a"));
}

#[test]
fn without_decoupling_everything_works_and_nothing_is_checked() {
    let experiment = ["--profile", "infinifs", "--without", "decoupling"];
    let c = Cluster::start_with(3, "async", &experiment);
    c.run(&["mkdir", "-p", "/a/b"]);
    for name in ["/a/one", "/a/two", "/a/b/three"] {
        c.run(&["mkdir", name]);
    }
    c.run(&["mv", "/a/one", "/a/b/one"]);
    c.run(&["rmdir", "/a/two"]);
    assert_eq!(c.run(&["ls", "/a"]), "b\n");
    assert_eq!(c.run(&["ls", "/a/b"]), "one\nthree\n");
    // Its counts come from another server than its entries.
    let stat: Value = serde_json::from_str(&c.run(&["--json", "stat", "/a"])).unwrap();
    assert!(stat.to_string().contains("\"nlink\":3"), "{stat}");
    c.kill_all();
    c.up();
    assert_eq!(c.run(&["ls", "/a/b"]), "one\nthree\n");
    assert!(c.fail(&["fsck"]).contains("decoupling"));
}

#[test]
fn an_experiment_is_no_filesystem_to_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_pando"))
        .arg("--dir")
        .arg(folder.path().join("c"))
        .args(["format", "--without", "decoupling"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        !out.status.success() && said.contains("--profile infinifs"),
        "{said}"
    );
    assert!(!folder.path().join("c/cluster.json").exists());
}

/// What a program says on stdout.
fn said(arguments: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_pando"))
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let trouble = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{arguments:?}: {text}{trouble}");
    text
}

/// Costs are measured once; what is drawn with them is the same every time.
#[test]
fn virtual_time_adds_up_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("costs.json");
    let costs = file.to_str().unwrap();
    let text = said(&[
        "--json",
        "bench",
        "calibrate",
        "--operations",
        "50",
        "--rounds",
        "1",
        "--out",
        costs,
    ]);
    let measured: Value = serde_json::from_str(&text).unwrap();
    for kind in [
        "null",
        "lookup",
        "create",
        "mkdir",
        "mkdir on one server",
        "peer prepare",
        "answer vote",
        "rename as coordinator",
        "peer invalidate",
    ] {
        let us = measured["service_us"][kind].as_f64();
        assert!(us.is_some_and(|us| us > 0.0), "{kind}: {measured}");
    }
    let scale = || {
        let sizes = ["--servers", "1,2", "--clients", "16", "--ops", "200"];
        let what = ["--json", "sim", "scale", "--calibration", costs];
        let mut drawn: Value = serde_json::from_str(&said(&[&what[..], &sizes[..]].concat())).unwrap();
        drawn["wall_s"].take();
        drawn
    };
    let drawn = scale();
    // One server has no mkdir that concerns two.
    assert_eq!(lines(&drawn).count(), 11, "{drawn}");
    for line in lines(&drawn) {
        assert!(line["ops_per_s"].as_f64().unwrap() > 0.0, "{line}");
        assert!(line["uncalibrated"].as_f64().unwrap() < 0.05, "{line}");
        let busy = line["busy"].as_array().unwrap();
        assert_eq!(busy.len() as u64, line["servers"].as_u64().unwrap());
    }
    assert_eq!(drawn, scale());
    for (figure, count) in [("9", 8), ("10", 12), ("13", 16), ("14", 4)] {
        let which = format!("infinifs-{figure}");
        let sizes = ["--servers", "2", "--clients", "16", "--ops", "200"];
        let what = ["--json", "bench", "figure", &which, "--calibration", costs];
        let drawn: Value = serde_json::from_str(&said(&[&what[..], &sizes[..]].concat())).unwrap();
        assert_eq!(lines(&drawn).count(), count, "{drawn}");
        assert!(!drawn["claims"].as_array().unwrap().is_empty(), "{drawn}");
    }
}

/// Scripts that count instructions are told what there is to count.
#[test]
fn each_kind_of_operation_can_be_counted() {
    let text = said(&["--json", "bench", "counted", "-n", "100"]);
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let ops: Vec<(String, u64)> = lines
        .map(|line: Value| {
            let op = line["op"].as_str().unwrap().to_owned();
            (op, line["ops"].as_u64().unwrap())
        })
        .collect();
    let names: Vec<&str> = ops.iter().map(|(op, _)| op.as_str()).collect();
    assert_eq!(names, ["null", "create", "stat", "readdir", "mkdir"]);
    assert!(ops.iter().all(|(_, n)| *n >= 100), "{ops:?}");
}

#[test]
fn without_a_calibration_that_can_be_read_nothing_is_drawn() {
    let out = Command::new(env!("CARGO_BIN_EXE_pando"))
        .args(["sim", "scale", "--calibration", "/nonexistent/costs.json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        !out.status.success() && said.contains("/nonexistent/costs.json"),
        "{said}"
    );
}
