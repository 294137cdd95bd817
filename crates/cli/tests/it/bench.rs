//! `pando bench`, small, on three real servers: what it counts is asserted, and not how long it takes,
//! because nobody knows who else uses this machine.

use crate::cluster::Cluster;
use serde_json::Value;
use std::process::Command;

fn json(args: &[&str], text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"))
}

#[test]
fn with_servers() {
    let c = Cluster::start(3, "sync");
    let ask = |args: &[&str]| json(args, &c.run(args));
    let bench = ask(&[
        "--json",
        "bench",
        "mdtest",
        "-n",
        "20",
        "--clients",
        "2",
        "--depth",
        "2",
        "-w",
        "10",
    ]);
    assert_eq!(bench["results"].as_array().map(Vec::len), Some(9), "{bench}");
    for result in bench["results"].as_array().into_iter().flatten() {
        let renames = result["op"].as_str().is_some_and(|op| op.ends_with("rename"));
        assert_eq!(
            (&result["ops"], &result["errors"]),
            (&if renames { 80 } else { 40 }.into(), &serde_json::Value::Null)
        );
        assert!(
            result["record_hit_rate"]
                .as_f64()
                .is_some_and(|r| (0.0..=1.0).contains(&r))
        );
        assert!(
            result["ops_per_sync"].is_number()
                || result["op"].as_str().is_none_or(|op| !op.ends_with("create"))
        );
    }
    assert_eq!(bench["params"]["record_mib"], pando_store_rocks::RECORD_MIB);
    // A path of any depth in one round trip, and one more for each directory that is not where it was born.
    for (renamed, trips) in [("0", 1.0), ("3", 3.0)] {
        let bench = ask(&[
            "--json",
            "bench",
            "resolve",
            "--depth",
            "24",
            "--seconds",
            "0.05",
            "--renamed",
            renamed,
        ]);
        assert_eq!(bench["results"][0]["round_trips"], 26.0, "{bench}");
        assert_eq!(bench["results"][1]["round_trips"], trips, "{bench}");
        assert_eq!(bench["results"][2]["round_trips"], 1.0, "{bench}");
    }
    // When an answer to a guess comes says nothing (H99): never before its time, whether anything exists or
    // not. (Whether the times differ is for a machine with nothing else to do.)
    let bench = ask(&["--json", "bench", "oracle", "--pairs", "500"]);
    let lines = bench["results"].as_array().unwrap();
    assert_eq!(lines.len(), 3, "{bench}");
    for (n, line) in lines.iter().enumerate() {
        assert!(line["p50_us"].as_f64().is_some_and(|t| t > 110.0), "{bench}");
        for test in ["U_test_p", "KS_test_p"] {
            let p = line[test].as_f64();
            assert_eq!(p.is_some(), n < 2, "{bench}");
            assert!(p.is_none_or(|p| (0.0..=1.0).contains(&p)), "{bench}");
        }
    }
    for (options, op) in [(&[][..], "null"), (&["--sync"][..], "null-sync")] {
        let line = [&["--json", "bench", "null", "--seconds", "0.05"], options].concat();
        let bench = ask(&line);
        let results = bench["results"].as_array().unwrap();
        assert_eq!(
            (results.len(), &results[0]["op"], &results[0]["round_trips"]),
            (1, &op.into(), &1.0.into())
        );
        // What a server counts, and the processor time of both sides.
        assert!(
            results[0]["cpu_us_per_op"]["servers"].as_f64() > Some(0.0),
            "{bench}"
        );
        // One at a time is never synced with another.
        let per_sync = results[0]["ops_per_sync"].as_f64();
        assert!(op == "null" || per_sync.is_some_and(|n| n <= 1.01), "{bench}");
    }
    let mixed = [
        "--json",
        "bench",
        "mix",
        "-n",
        "60",
        "--per-directory",
        "20",
        "--depth",
        "3",
        "--seconds",
        "0.2",
    ];
    let bench = ask(&mixed);
    let all: Vec<&Value> = bench["results"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|r| r["kind"] == "all")
        .collect();
    assert_eq!(all.len(), 3, "{bench}");
    for workload in all {
        assert!(
            workload["ops"].as_u64() > Some(0) && workload["errors"].is_null(),
            "{bench}"
        );
        let kinds = bench["results"].as_array().into_iter().flatten();
        let kinds = kinds.filter(|r| r["workload"] == workload["workload"] && r["kind"] != "all");
        let sum: u64 = kinds.filter_map(|r| r["ops"].as_u64()).sum();
        assert_eq!(workload["ops"], sum, "{bench}");
    }
    // The second finds what the first has left.
    for keep in [&["--keep"][..], &[]] {
        let line = [
            &["--json", "bench", "list", "--entries", "2500", "--rounds", "1"],
            keep,
        ]
        .concat();
        let bench = ask(&line);
        for (n, op) in ["readdir 1", "readdirplus 1"].into_iter().enumerate() {
            let line = &bench["results"][n];
            assert_eq!((&line["op"], &line["ops"]), (&op.into(), &2500.into()), "{bench}");
            assert!(
                line["pages"].as_u64() > Some(2) && line["client_growth_kib"].is_u64(),
                "{bench}"
            );
        }
    }
    let line = [
        "--json",
        "bench",
        "list",
        "--entries",
        "50",
        "--rounds",
        "1",
        "--kinds",
        "attributes",
    ];
    let bench = ask(&line);
    assert_eq!(bench["results"].as_array().map(Vec::len), Some(1), "{bench}");
    assert_eq!(bench["results"][0]["op"], "readdirplus 1", "{bench}");
    // More items than there are, beside those that stay; and looks at random.
    let mdtest = |line: &[&str]| {
        ask(&[
            &["--json", "bench", "mdtest", "-F", "-n", "40", "--clients", "1"],
            line,
        ]
        .concat())
    };
    for line in [
        &["-C"][..],
        &["-C", "--from", "40"],
        &["-r", "--from", "40"],
        &["-T", "-R", "--accesses", "30"],
        &["-T", "-R", "--accesses", "30", "--seed", "7"],
        &["-r"],
    ] {
        let bench = mdtest(line);
        assert!(
            bench["results"][0]["errors"].is_null() && bench["results"][0]["ops"].as_u64() > Some(0),
            "{line:?}: {bench}"
        );
    }
    let bench = ask(&["--json", "bench", "list", "--create-cost=10,50"]);
    assert_eq!(bench["results"][1]["entries"], 50, "{bench}");
    // Nothing is left of all that.
    assert_eq!(c.run(&["ls"]), "");
}

/// What needs no cluster. How fast it is nobody asks here.
#[test]
fn ceilings() {
    let bench = |line: &[&str]| -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        let out = command.args(["--json", "bench"]).args(line).output();
        json(line, &String::from_utf8_lossy(&out.expect("pando runs").stdout))
    };
    let echo = bench(&[
        "echo",
        "--servers",
        "3",
        "--clients",
        "2",
        "--depth",
        "2",
        "--waiting",
        "blocking",
        "--seconds",
        "0.1",
    ]);
    let ops: Vec<&Value> = echo["results"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|r| &r["op"])
        .collect();
    assert_eq!(ops, ["bare-blocking", "reactor-blocking"], "{echo}");
    assert!(echo["results"][0]["ops"].as_u64() > Some(0), "{echo}");

    let store = bench(&[
        "store",
        "-n",
        "300",
        "--files",
        "2000",
        "--per-directory",
        "100",
        "--record-mib",
        "1",
    ]);
    let results = store["results"].as_array().expect("lines");
    let ops = [
        "create",
        "create-with-reads",
        "stat",
        "stat-rocksdb",
        "remove",
        "mkdir",
    ];
    assert_eq!(results.len(), ops.len(), "{store}");
    for (result, op) in results.iter().zip(ops) {
        let told = (&result["op"], &result["store"], &result["ops"], &result["errors"]);
        assert_eq!(told, (&op.into(), &"rocksdb".into(), &300.into(), &Value::Null));
        assert!(result["ops_per_s"].as_f64() > Some(0.0), "{store}");
    }
    // Only one of them has a cache of records.
    assert_eq!(results[3]["record_hit_rate"], 0.0, "{store}");
    assert!(results[2]["record_hit_rate"].as_f64() > Some(0.5), "{store}");
}

#[test]
fn stores_with_and_without_columns() {
    let folder = tempfile::tempdir().expect("temporary directory");
    let at = folder.path().to_str().expect("a path");
    for (figure, lines) in [("indexfs-10", 8), ("indexfs-t3", 4)] {
        let arguments = [
            "bench",
            "figure",
            figure,
            "--entries",
            "1200",
            "--at",
            at,
            "--json",
        ];
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_pando"))
            .args(arguments)
            .output()
            .expect("pando runs");
        let why = String::from_utf8_lossy(&out.stderr);
        if why.contains("past the kernel's cache") {
            return println!("SKIPPED: {why}");
        }
        assert!(out.status.success(), "{why}");
        let drawn: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        let results = drawn["results"].as_array().expect("lines");
        assert_eq!(results.len(), lines, "{drawn}");
        for line in results {
            assert!(
                line["rocksdb_s"].as_f64() > Some(0.0) && line["column_s"].as_f64() > Some(0.0),
                "{line}"
            );
        }
    }
    assert_eq!(std::fs::read_dir(at).expect("listed").count(), 0, "it cleans up");
}
