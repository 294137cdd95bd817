//! Tests that cannot run on a machine say so: `cargo test` knows no such outcome, and a test that returns counts as passed.

use std::fmt::Display;
use std::io::Write;

/// Says that the test which calls it does not run here. The stages of `make test` count such lines (`scripts/test.d/lib.sh`).
///
/// The line goes past the capture of `cargo test`, which shows nothing of tests that pass.
#[track_caller]
pub fn skip(why: impl Display) {
    let place = std::panic::Location::caller();
    let thread = std::thread::current();
    // With one thread for all tests that is the program's own.
    let name = match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => format!("{}:{}", place.file(), place.line()),
    };
    let _ = writeln!(std::io::stderr(), "\nSKIPPED {name}: {why}");
}

/// Whether this user can mount here; skips if not.
#[track_caller]
pub fn can_mount() -> bool {
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    if let Err(why) = &opened {
        skip(format_args!("/dev/fuse cannot be opened: {why}"));
    }
    opened.is_ok()
}
