//! What a page names is there: files and folders of this repository, in backquotes or as a link.

use super::error;
use crate::{Finding, Repo};

/// What a path in backquotes begins with.
const TOPS: [&str; 4] = ["crates/", "scripts/", "docs/", "third_party/"];

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (page, text) in repo.files().filter(|(path, _)| path.ends_with(".md")) {
        for (n, line) in text.lines().enumerate() {
            let named = quoted(line)
                .map(str::to_owned)
                .chain(links(line).filter_map(|l| from_page(page, l)));
            for path in named.filter(|path| !repo.has(path)) {
                let what = format!("`{path}` does not exist");
                findings.push(error(rule, page, n + 1, what, "name what is there now"));
            }
        }
    }
    findings
}

/// Paths between backquotes; what follows a path is its arguments. `*` and `{` make a pattern of it.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.split('`').skip(1).step_by(2);
    parts
        .filter_map(|part| part.split(' ').next())
        .filter(|path| TOPS.iter().any(|top| path.starts_with(top)) && !path.contains(['*', '{']))
}

/// Targets of `[words](target)` that are no addresses.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', '#']).next())
        .filter(|target| !target.is_empty() && !target.contains(':'))
}

/// Where a link of a page leads to, from the root. `None`: out of the repository.
fn from_page(page: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}
