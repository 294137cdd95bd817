//! Below the shells there is no ambient time, randomness, thread, socket, file, process or default-hashed
//! map: the same code must run in the simulator, where a seed replays exactly.

use super::{PURE, error};
use crate::repo::{crate_of, is_test_file};
use crate::source::PathUse;
use crate::{Finding, Repo};

/// What may not be named, and what to use.
const FORBIDDEN: [(&str, &str); 17] = [
    (
        "std::time::Instant",
        "take `now: Mono` as an argument, or ask Env::mono",
    ),
    (
        "std::time::SystemTime",
        "take `now: Timestamp` as an argument, or ask Env::now",
    ),
    ("std::time::UNIX_EPOCH", "use pando_types::Timestamp"),
    ("std::thread", "use Env::spawn; threads belong to the shells"),
    ("std::net", "use Env::send; sockets belong to the shells"),
    (
        "std::os",
        "what is peculiar to an operating system belongs to the shells",
    ),
    (
        "std::fs",
        "files belong to the stores and shells; go through Store or Blocks",
    ),
    ("std::process", "processes belong to the shells"),
    ("std::env", "settings are passed in by the shells"),
    (
        "std::hash::RandomState",
        "use a BTreeMap, or a hasher with a fixed key",
    ),
    (
        "std::collections::hash_map::RandomState",
        "use a BTreeMap, or a hasher with a fixed key",
    ),
    ("tokio", "the runtime is Env; others belong to the shells"),
    ("rand", "use Env::random"),
    ("getrandom", "use Env::random"),
    ("fastrand", "use Env::random"),
    ("mio", "use Env::send; sockets belong to the shells"),
    (
        "libc",
        "what is peculiar to an operating system belongs to the shells",
    ),
];

/// Globs would hide the names above.
const GLOBS: [&str; 5] = [
    "std",
    "std::time",
    "std::collections",
    "std::hash",
    "std::collections::hash_map",
];

/// The executor of `env` serves the shells too, and knows that other threads exist. The simulator's driver
/// runs whole seeds on threads and tells people about them; nothing inside a seed is in these files.
const EXEMPT: [&str; 4] = [
    "crates/env/src/exec.rs",
    "crates/sim/src/cli.rs",
    "crates/sim/src/many.rs",
    "crates/sim/src/plant.rs",
];

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in repo.sources() {
        let source = match source {
            Ok(source) => source,
            Err(why) => {
                findings.push(error(
                    rule,
                    path,
                    0,
                    format!("is not Rust: {why}"),
                    "make it parse",
                ));
                continue;
            }
        };
        let pure = crate_of(path).is_some_and(|c| PURE.contains(&c));
        // A program is a shell, whatever crate it is in.
        let program = path.contains("/src/bin/");
        if !pure || program || is_test_file(path) || EXEMPT.contains(&path) {
            continue;
        }
        for used in source.paths.iter().filter(|p| !source.is_test(p.line)) {
            if let Some((what, instead)) = complaint(used) {
                let what = format!("{what} below the shells");
                findings.push(error(rule, path, used.line, what, instead));
            }
        }
    }
    findings
}

fn complaint(used: &PathUse) -> Option<(String, String)> {
    let names: Vec<&str> = used.segments.iter().map(|(n, _)| n.as_str()).collect();
    if names.last() == Some(&"*") {
        let base = names[..names.len() - 1].join("::");
        return GLOBS.contains(&base.as_str()).then(|| {
            (
                format!("`use {base}::*`"),
                "import the names that are used".into(),
            )
        });
    }
    for (forbidden, instead) in FORBIDDEN {
        let want: Vec<&str> = forbidden.split("::").collect();
        // A lone `rand` or `mio` is a variable, not the crate.
        if names.len() >= want.len().max(2) && names[..want.len()] == want[..] {
            return Some((format!("`{}`", names.join("::")), instead.into()));
        }
    }
    default_hashed(used)
}

/// `HashMap<K, V>`, `HashMap::new()` and the like, whose order of iteration differs from run to run. With a
/// hasher named they are fine.
fn default_hashed(used: &PathUse) -> Option<(String, String)> {
    let names: Vec<&str> = used.segments.iter().map(|(n, _)| n.as_str()).collect();
    let (at, own_hasher) = match names.as_slice() {
        ["std", "collections", "HashMap", ..] => (2, 3),
        ["std", "collections", "HashSet", ..] => (2, 2),
        ["std", "collections", "hash_map", "HashMap", ..] => (3, 3),
        ["std", "collections", "hash_set", "HashSet", ..] => (3, 2),
        _ => return None,
    };
    let args = used.segments[at].1;
    let random_constructor = matches!(names.get(at + 1), Some(&("new" | "with_capacity" | "from")));
    ((args > 0 && args < own_hasher) || random_constructor).then(|| {
        (
            format!("`{}` with the default hasher", names[at..].join("::")),
            format!(
                "use BTree{}, or name a hasher with a fixed key",
                names[at].trim_start_matches("Hash")
            ),
        )
    })
}
