//! Text for users is made for them: words and numbers, not how the program has things in memory.
//!
//! Found are format strings with `:?` in the macros that make text (`format!`, `bail!`, `println!`, `warn!`,
//! ...), in `#[error]`, and fields of logs with `?`. It may stay where no user reads: tests, panics and
//! assertions, `debug!` and `trace!`, implementations of `Debug`, the crates that only test, and lines that
//! say `// debug: why` on them or on the line before.

use super::error;
use crate::repo::{crate_of, is_test_file};
use crate::{Finding, Repo};

/// Crates whose messages only those who change the program read.
const FOR_DEVELOPERS: [&str; 4] = ["fuzz", "model", "sim", "tidy"];
const MARK: &str = "// debug: ";

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in repo.parsed().filter(|(path, _)| !is_test_file(path)) {
        if crate_of(path).is_none_or(|c| FOR_DEVELOPERS.contains(&c)) {
            continue;
        }
        let lines: Vec<&str> = repo.file(path).unwrap_or_default().lines().collect();
        let marked = |line: usize| {
            let has = |n: usize| lines.get(n).is_some_and(|l| l.contains(MARK));
            // Lines count from 1.
            has(line - 1) || line >= 2 && has(line - 2)
        };
        for line in &source.debugged {
            if !source.is_test(*line) && !marked(*line) {
                let instead = "format it with Display, or say `// debug: why` where no user reads it";
                findings.push(error(
                    rule,
                    path,
                    *line,
                    "Debug formatting in what users read",
                    instead,
                ));
            }
        }
    }
    findings
}
