//! Nothing half done is committed, and nothing stops the program without saying why.

use super::error;
use crate::repo::is_test_file;
use crate::{Finding, Repo};

pub(crate) fn unfinished(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in repo.parsed() {
        for (name, instead) in [
            (
                "todo",
                "build it, or leave out what leads here and say so in docs/limits.md",
            ),
            ("unimplemented", "return an error that says what is not supported"),
            ("dbg", "remove it"),
        ] {
            for open in ["(", "[", "{"] {
                for line in source.find(&format!("{name} ! {open}")) {
                    findings.push(error(rule, path, line, format!("`{name}!`"), instead));
                }
            }
        }
        for after in ["]", "="] {
            for line in source.find(&format!("# [ ignore {after}")) {
                let instead = "make the test run, or make it a stage of its own (docs/testing.md)";
                findings.push(error(rule, path, line, "`#[ignore]`", instead));
            }
        }
    }
    findings
}

pub(crate) fn unwrap(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in repo.parsed().filter(|(path, _)| !is_test_file(path)) {
        let calls = source.find(". unwrap (").into_iter();
        let names = ["Option : : unwrap", "Result : : unwrap"]
            .into_iter()
            .flat_map(|p| source.find(p));
        for line in calls.chain(names).filter(|l| !source.is_test(*l)) {
            let instead = "return an error, or `expect` with the reason why it cannot fail";
            findings.push(error(rule, path, line, "`unwrap` outside tests", instead));
        }
    }
    findings
}
