//! Tells the program which commit it was built from, for the reports of benchmarks.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let out = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    out.status.success().then(|| text.trim().to_owned())
}

fn main() {
    println!("cargo::rerun-if-env-changed=PANDO_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let told = std::env::var("PANDO_COMMIT").ok().filter(|c| !c.is_empty());
    if told.is_none()
        && let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])
        && std::path::Path::new(&log).exists()
    {
        // Every commit and checkout writes there.
        println!("cargo::rerun-if-changed={log}");
    }
    // A source archive without history says nothing, and is shown as unknown.
    if let Some(commit) = told.or_else(|| git(&["rev-parse", "HEAD"])) {
        println!("cargo::rustc-env=PANDO_COMMIT={commit}");
    }
}
