//! A new operation is forgotten nowhere: what tells operations apart names each of them.

use super::error;
use crate::repo::is_test_file;
use crate::{Finding, Repo};

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in repo.parsed().filter(|(path, _)| !is_test_file(path)) {
        for line in source.others.iter().filter(|l| !source.is_test(**l)) {
            let what = "an arm for all other operations";
            let instead = "name them, or ask `Op::traits`";
            findings.push(error(rule, path, *line, what, instead));
        }
    }
    findings
}
