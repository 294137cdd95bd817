//! Words that do not belong into a repository that others clone.

use super::error;
use crate::{Finding, Repo};

/// Written in two halves so that this file does not break its own rules.
const MACHINE: [(&str, &str); 8] = [
    ("/wo", "rk/"),
    ("/ro", "ot/"),
    ("/ho", "me/"),
    ("/tmp/ba", "sh_jobs"),
    ("../sha", "red"),
    ("HAZARDS", ".md"),
    ("DESIGN", ".md"),
    ("FACTS", ".md"),
];
const WORDS: [(&str, &str); 3] = [("TO", "DO"), ("FIX", "ME"), ("XX", "X")];

/// Paths of one machine, and pages of another folder.
pub(crate) fn machine(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    each_line(repo, |path, line, text, findings| {
        for (a, b) in MACHINE {
            let pattern = format!("{a}{b}");
            // `$X/root/...` and `a/home/...` are not absolute.
            let absolute = text.match_indices(&pattern).any(|(at, _)| {
                let before = text[..at].chars().next_back();
                let relative = before.is_some_and(|c| c.is_alphanumeric() || "}_-.".contains(c));
                // "me" is whoever reads an example.
                let example = text[at + pattern.len()..].starts_with("me");
                !pattern.starts_with('/') || !(relative || example)
            });
            if absolute {
                let what = format!("`{pattern}` exists on one machine only");
                let instead = "say it without the path, or take the path from a variable";
                findings.push(error(rule, path, line, what, instead));
            }
        }
    })
}

/// Notes to oneself.
pub(crate) fn wording(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    each_line(repo, |path, line, text, findings| {
        for (a, b) in WORDS {
            let word = format!("{a}{b}");
            let letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            let alone = text.match_indices(&word).any(|(at, _)| {
                !letter(text[..at].chars().next_back()) && !letter(text[at + word.len()..].chars().next())
            });
            if alone {
                let instead = "do it now, or write what is missing into docs/limits.md";
                findings.push(error(rule, path, line, format!("`{word}`"), instead));
            }
        }
    })
}

fn each_line(repo: &Repo, look: impl Fn(&str, usize, &str, &mut Vec<Finding>)) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in repo.files().filter(|(path, _)| !path.ends_with("Cargo.lock")) {
        for (n, line) in text.lines().enumerate() {
            look(path, n + 1, line, &mut findings);
        }
    }
    findings
}
