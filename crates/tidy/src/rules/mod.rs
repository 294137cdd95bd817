//! The rules, one file each.

mod ambient;
mod comments;
mod dependencies;
mod direction;
mod drift;
mod functions;
mod known;
mod length;
mod manifest;
mod never;
mod others;
mod paths;
mod plant;
mod sentences;
mod shown;
mod simulation;
mod tags;
mod text;
mod unfinished;

use crate::{Finding, Repo, Severity};

/// A rule: looks at the repository, under the name it is listed by.
pub(crate) type Rule = fn(&Repo, &'static str) -> Vec<Finding>;

/// All of them.
pub(crate) const ALL: [(&str, Rule); 20] = [
    ("ambient", ambient::check),
    ("comments", comments::check),
    ("dependencies", dependencies::check),
    ("direction", direction::check),
    ("drift", drift::check),
    ("functions", functions::check),
    ("length", length::check),
    ("machine", text::machine),
    ("manifest", manifest::check),
    ("never", never::check),
    ("paths", paths::check),
    ("others", others::check),
    ("plant", plant::check),
    ("sentences", sentences::check),
    ("shown", shown::check),
    ("simulation", simulation::check),
    ("tags", tags::check),
    ("unfinished", unfinished::unfinished),
    ("unwrap", unfinished::unwrap),
    ("wording", text::wording),
];

/// An error finding.
fn error(
    rule: &'static str,
    file: &str,
    line: usize,
    what: impl Into<String>,
    instead: impl Into<String>,
) -> Finding {
    Finding {
        file: file.into(),
        line,
        rule,
        severity: Severity::Error,
        what: what.into(),
        instead: instead.into(),
    }
}

/// The crates below the shells: no ambient world reaches them.
const PURE: [&str; 13] = [
    "types",
    "format",
    "wire",
    "namespace",
    "store",
    "cluster",
    "server",
    "client",
    "env",
    "model",
    "dump",
    "sim",
    "scale",
];
