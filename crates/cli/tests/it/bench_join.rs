//! `pando bench join` and `pando bench mkdir`, small: what they count is asserted, and not how long it takes,
//! because nobody knows what else the machine does.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::{Command, Output};

fn bench(arguments: &[&str], options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pando"))
        .env_remove("PANDO_DIR")
        .arg("bench")
        .args(arguments)
        .args(options)
        .output()
        .unwrap()
}

fn result(arguments: &[&str]) -> Value {
    let out = bench(arguments, &["--json"]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success(),
        "{arguments:?}: {text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    serde_json::from_str(&text).unwrap()
}

fn complaint(arguments: &[&str]) -> String {
    let out = bench(arguments, &[]);
    assert!(!out.status.success(), "{arguments:?} succeeded");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn a_join_is_measured_idle_and_under_load() {
    let small = ["join", "--files", "4001", "--per-directory", "4"];
    let load = ["--load", "--seconds", "0.5", "--depth", "2"];
    let all = result(&[&small[..], &load].concat());
    let joins = [&all["idle"], &all["loaded"]["join"]];
    for join in joins {
        // A fifth of the slots, and of 1,001 directories about so many.
        assert_eq!(join["slots"], 4096 / 5, "{all}");
        let entries = join["entries"].as_u64().unwrap();
        assert!((4001 / 10..4001 / 3).contains(&entries), "{all}");
        // With each directory go its head and its touch.
        assert!(join["records"].as_u64().unwrap() > entries, "{all}");
        assert!(join["entries_per_s"].as_f64().unwrap() > 0.0, "{all}");
        assert!(
            join["seconds"].as_f64().unwrap() <= join["seconds_in_all"].as_f64().unwrap(),
            "{all}"
        );
    }
    for phase in ["before", "during"] {
        let foreground = &all["loaded"][phase];
        assert_eq!(foreground["errors"], 0, "{all}");
        assert!(foreground["ops"].as_u64().unwrap() > 0, "{all}");
    }
    assert_eq!(all["aims"].as_array().unwrap().len(), 3, "{all}");
}

#[test]
fn a_mkdir_is_measured_on_one_server_and_on_two() {
    let all = result(&["mkdir", "--rounds", "20", "--servers", "2"]);
    assert_eq!(all["results"].as_array().unwrap().len(), 10, "{all}");
    for line in all["results"].as_array().unwrap() {
        assert!(line["p50_us"].as_f64().unwrap() > 0.0, "{line}");
        assert!(line["mean_us"].as_f64().unwrap() > 0.0, "{line}");
    }
    // The content, to the other server, in `async` of several directories together; others may say a little
    // meanwhile.
    let messages: Vec<f64> = ["sync", "async"]
        .map(|durability| all["server_messages"][durability].as_f64().unwrap())
        .into();
    assert!((0.5..3.0).contains(&messages[0]), "{all}");
    assert!(messages[1] > 0.0 && messages[1] < messages[0], "{all}");
    assert_eq!(all["aims"].as_array().unwrap().len(), 4, "{all}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (arguments, named) in [
        (&["join", "--files", "0"][..], "--files"),
        (&["join", "--files", "many"], "--files"),
        (&["join", "--per-directory", "0"], "--per-directory"),
        (&["join", "--servers", "64"], "--servers"),
        (&["join", "--clients", "0", "--load"], "--clients"),
        (&["join", "--seconds=-1", "--load"], "--seconds"),
        (&["join", "--seconds=nan", "--load"], "--seconds"),
        (&["join", "--at", "/nowhere/at/all"], "/nowhere/at/all"),
        (&["join", "--dir", "/tmp"], "--at"),
        (&["mkdir", "--rounds", "0"], "--rounds"),
        (&["mkdir", "--servers", "1"], "--servers"),
        (&["mkdir", "--dir", "/tmp"], "--at"),
    ] {
        let said = complaint(arguments);
        assert!(said.contains(named), "{arguments:?}: {said}");
    }
}
