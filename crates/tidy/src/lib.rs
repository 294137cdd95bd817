//! The rules of the repository that the compiler does not know, checked on its text.
//!
//! Each rule is one file in `rules/` and one function `(&Repo) -> findings`. What the rules are, and why,
//! stands in `ARCHITECTURE.md`; the list there and the list here are kept equal by the rule `never`.

mod repo;
mod rules;
mod source;

pub use repo::Repo;

use std::fmt;

/// Whether a finding fails the check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// It does.
    Error,
    /// It does not.
    Warning,
}

/// A place where a rule is broken.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// Path from the root of the repository.
    pub file: String,
    /// Line, from 1; 0 means the whole file.
    pub line: usize,
    /// The rule's name.
    pub rule: &'static str,
    /// Whether it fails the check.
    pub severity: Severity,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub instead: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(
            f,
            "{}:{}: {severity} [{}] {}\n    {}",
            self.file, self.line, self.rule, self.what, self.instead
        )
    }
}

/// Checks every rule.
pub fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings: Vec<Finding> = rules::ALL
        .iter()
        .flat_map(|(rule, run)| run(repo, rule))
        .collect();
    findings.sort();
    findings.dedup();
    findings
}

/// The names of all rules.
pub fn rules() -> impl Iterator<Item = &'static str> {
    rules::ALL.iter().map(|(name, _)| *name)
}
