//! What tests tell the stages of `make test` beside their outcome: that they do not run on this machine, for
//! which `cargo test` has no word, and what they killed.

use std::fmt::Display;
use std::io::Write;

/// Says that the test which calls it does not run here. The stages of `make test` count such lines
/// (`scripts/test.d/lib.sh`).
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

/// Says that the calling test has ended a process by kill -9. The end of `make test` has how many there were.
pub fn killed(what: impl Display) {
    let _ = writeln!(std::io::stderr(), "\nkilled: {what}");
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
