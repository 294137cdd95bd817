//! `pando bench posix` on a folder of this machine: what it counts, and that it leaves nothing behind.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn command(dir: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
    command.env_remove("PANDO_DIR").args(["bench", "posix"]).arg(dir);
    command.args(options).stdin(Stdio::null());
    command
}

fn bench(dir: &Path, options: &[&str]) -> Output {
    command(dir, options).output().unwrap()
}

fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

#[test]
fn all_phases_in_directories_of_their_own_and_in_one() {
    let folder = tempfile::tempdir().unwrap();
    let phases = ["create", "stat", "restat", "open", "rename", "remove"];
    for how in [&["--json"][..], &["--json", "--shared", "--paths"]] {
        // Whatever order they are asked for in.
        let asked = [
            "-n",
            "30",
            "--processes",
            "3",
            "--phases",
            "remove,rename,open,restat,stat,create",
        ];
        let out = bench(folder.path(), &[&asked[..], how].concat());
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(
            out.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&out.stderr)
        );
        let figures: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(figures["bench"], "posix");
        assert_eq!(figures["params"]["processes"], 3);
        let lines = figures["results"].as_array().unwrap();
        let ops: Vec<&str> = lines.iter().filter_map(|l| l["op"].as_str()).collect();
        assert_eq!(ops, phases);
        for line in lines {
            assert_eq!(line["errors"], Value::Null, "{line}");
            // What the kernel remembers is looked at again and again.
            let ops = line["ops"].as_u64().unwrap();
            assert!(
                ops == 90 || line["op"] == "restat" && ops > 90 && ops.is_multiple_of(30),
                "{line}"
            );
            let times = ["p50_us", "p99_us", "p999_us"].map(|p| line[p].as_f64().unwrap());
            assert!(
                0.0 < times[0] && times[0] <= times[1] && times[1] <= times[2],
                "{line}"
            );
            assert!(line["ops_per_s"].as_f64().is_some_and(|r| r > 0.0), "{line}");
        }
        assert_eq!(entries(folder.path()), 0);
    }
}

#[test]
fn what_is_not_asked_for_happens_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let out = bench(folder.path(), &["-n", "5", "--phases", "stat", "--json"]);
    let figures: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(figures["results"].as_array().map(Vec::len), Some(1), "{figures}");
    assert_eq!(figures["results"][0]["ops"], 5);
    assert_eq!(entries(folder.path()), 0);
}

#[test]
fn what_is_no_directory_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let cases = [
        (folder.path().join("none"), "give a directory that exists"),
        (file, "is not a directory"),
    ];
    for (dir, words) in cases {
        let out = bench(&dir, &[]);
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && err.contains(words), "{err}");
    }
    assert_eq!(bench(folder.path(), &["-n", "0"]).status.code(), Some(2));
    assert_eq!(bench(folder.path(), &["--phases", "walk"]).status.code(), Some(2));
}

#[test]
fn interrupted_it_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = command(folder.path(), &["-n", "500000", "--processes", "2"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Until a process has begun.
    let began = Instant::now();
    let working = || {
        let made = std::fs::read_dir(folder.path()).unwrap().next();
        made.is_some_and(|d| d.unwrap().path().join("process.1").exists())
    };
    while !working() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    let interrupt = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(interrupt.unwrap().success());
    assert!(!child.wait().unwrap().success());
    assert_eq!(entries(folder.path()), 0);
}
