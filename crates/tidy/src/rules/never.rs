//! The "never" lines of ARCHITECTURE.md and the rules here are the same list.

use super::{ALL, error};
use crate::{Finding, Repo};
use std::collections::BTreeSet;

const PAGE: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Never";

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let Some(page) = repo.file(PAGE) else {
        return vec![error(
            rule,
            PAGE,
            0,
            "is missing",
            "write it, with a section `## Never`",
        )];
    };
    let mut findings = Vec::new();
    let mut named = BTreeSet::new();
    let mut inside = false;
    let mut heading = 0;
    for (n, line) in page.lines().enumerate() {
        if line.starts_with("## ") {
            inside = line.starts_with(HEADING);
            heading = if inside { n + 1 } else { heading };
        }
        if !inside || !line.starts_with("- ") {
            continue;
        }
        // "- **ambient**: no ..."
        let name = line
            .strip_prefix("- **")
            .and_then(|l| l.split("**").next())
            .unwrap_or_default();
        if ALL.iter().any(|(rule, _)| *rule == name) {
            named.insert(name.to_string());
        } else {
            let what = format!("a line that no rule enforces: {line}");
            let instead = "begin it with the name of a rule of crates/tidy in **bold**, or add the rule";
            findings.push(error(rule, PAGE, n + 1, what, instead));
        }
    }
    for (missing, _) in ALL.iter().filter(|(name, _)| !named.contains(*name)) {
        let what = format!("the rule `{missing}` is enforced but not listed under `{HEADING}`");
        findings.push(error(rule, PAGE, heading, what, "add a line for it"));
    }
    findings
}
