//! Files stay short enough to be read in one go.

use super::error;
use crate::{Finding, Repo, Severity};

const WARN: usize = 400;
const FAIL: usize = 800;

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in repo.files() {
        let source = [".rs", ".sh", ".py", ".c", "Makefile"]
            .iter()
            .any(|end| path.ends_with(end));
        let lines = text.lines().count();
        if source && lines > WARN {
            let what = format!("{lines} lines ({WARN} is much, {FAIL} too much)");
            let mut finding = error(rule, path, 0, what, "split it along what it does");
            if lines <= FAIL {
                finding.severity = Severity::Warning;
            }
            findings.push(finding);
        }
    }
    findings
}
