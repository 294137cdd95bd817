//! Every foreign crate is argued for in docs/dependencies.md.

use super::error;
use crate::repo::line_of;
use crate::{Finding, Repo};

const PAGE: &str = "docs/dependencies.md";

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let Some(text) = repo.file("Cargo.toml") else {
        return Vec::new();
    };
    let Ok(manifest) = text.parse::<toml::Table>() else {
        return vec![error(rule, "Cargo.toml", 0, "is not TOML", "make it parse")];
    };
    let page = repo.file(PAGE).unwrap_or_default();
    let listed = manifest
        .get("workspace")
        .and_then(|w| w.get("dependencies"))
        .and_then(toml::Value::as_table);
    let mut findings = Vec::new();
    for (name, value) in listed.into_iter().flatten() {
        if value.get("path").is_some() {
            continue;
        }
        // The row's first cell names the crate: a mention elsewhere is no argument.
        let argued = page
            .lines()
            .any(|l| l.starts_with('|') && l.contains(&format!("| `{name}` |")));
        if !argued {
            let line = line_of(text, &format!("{name} ="));
            let what = format!("`{name}` has no row in {PAGE}");
            let instead = format!("add `| `{name}` | why | instead of what |` to {PAGE}, or drop the crate");
            findings.push(error(rule, "Cargo.toml", line, what, instead));
        }
    }
    findings
}
