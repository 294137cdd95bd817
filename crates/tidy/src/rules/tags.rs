//! The bytes that tell kinds of keys apart are written in `format` alone: others name `Tag`.
//!
//! Found are bytes of capital letters in code of files that work with ranges of keys, which are those that
//! name `KeyRange`. Tests may make keys that are wrong.

use super::error;
use crate::repo::{crate_of, is_test_file};
use crate::{Finding, Repo};

/// The crate of the keys, and this check.
const MAY: [&str; 2] = ["format", "tidy"];

/// Whether a line has `b'X'` outside of a comment.
fn has_letter(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices("b'").any(|(at, _)| {
        let mut after = code[at + 2..].chars();
        after.next().is_some_and(|c| c.is_ascii_uppercase()) && after.next() == Some('\'')
    })
}

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in repo.parsed().filter(|(path, _)| !is_test_file(path)) {
        let works_with_keys = source.tokens.iter().any(|t| t.ident && t.text == "KeyRange");
        if !works_with_keys || crate_of(path).is_none_or(|c| MAY.contains(&c)) {
            continue;
        }
        let lines = repo.file(path).unwrap_or_default().lines().zip(1..);
        for (_, n) in lines.filter(|(line, n)| has_letter(line) && !source.is_test(*n)) {
            let instead = "name it: `Tag` of the format";
            findings.push(error(rule, path, n, "the byte of a kind of keys", instead));
        }
    }
    findings
}
