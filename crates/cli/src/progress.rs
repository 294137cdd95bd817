//! A progress bar on what takes long, for people at a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// What is over sooner needs no bar.
const PATIENCE: Duration = Duration::from_millis(700);

/// The bar; shows itself once the work has taken a while.
pub struct Progress {
    bar: ProgressBar,
    began: Instant,
    shown: Cell<bool>,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Files, records.
    Items,
}

impl Progress {
    /// Not shown yet. `total` 0: unknown.
    pub fn new(label: &'static str, unit: Unit, total: u64) -> Progress {
        let length = if total == 0 { None } else { Some(total) };
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
        let count = match (unit, total) {
            (Unit::Bytes, 0) => "{bytes} ({bytes_per_sec}, {elapsed})",
            (Unit::Bytes, _) => "[{bar:30}] {bytes}/{total_bytes} ({bytes_per_sec}, {eta})",
            (Unit::Items, 0) => "{human_pos} ({per_sec}, {elapsed})",
            (Unit::Items, _) => "[{bar:30}] {human_pos}/{human_len} ({per_sec}, {eta})",
        };
        if let Ok(style) = ProgressStyle::with_template(&format!("{{prefix}} {count} {{msg}}")) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(label);
        Progress {
            bar,
            began: Instant::now(),
            shown: Cell::new(!std::io::stderr().is_terminal()),
        }
    }

    /// So much more is done.
    pub fn add(&self, n: u64) {
        self.bar.inc(n);
        if !self.shown.get() && self.began.elapsed() > PATIENCE {
            self.shown.set(true);
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// What is being done now.
    pub fn say(&self, what: impl Into<std::borrow::Cow<'static, str>>) {
        self.bar.set_message(what);
    }

    /// A line to stderr that the bar does not overwrite.
    pub fn complain(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Over: the bar goes.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
