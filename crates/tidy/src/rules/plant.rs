//! Planted bugs: the feature `plant` is in no default build, and every planted hazard is documented.

use super::error;
use crate::repo::line_of;
use crate::{Finding, Repo};
use std::collections::BTreeSet;

const FEATURE: &str = "plant";
const PAGE: &str = "docs/hazards.md";

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let workspace = repo.file("Cargo.toml").map(|text| ("Cargo.toml", text));
    let members = repo.manifests().map(|(_, path, text)| (path, text));
    for (path, text) in workspace.into_iter().chain(members) {
        let Ok(manifest) = text.parse::<toml::Table>() else {
            continue;
        };
        if reaches_plant(&manifest, "default") {
            let what = "the feature `plant` is on by default";
            let instead = "take it out of `default`: release builds never have it";
            findings.push(error(rule, path, line_of(text, "default"), what, instead));
        }
        for name in always_planted(&manifest) {
            let what = format!("needs `{name}` with the feature `plant` always on");
            let instead = format!("write `[features] plant = [\"{name}/plant\"]` instead");
            findings.push(error(rule, path, line_of(text, &name), what, instead));
        }
    }
    let rows = rows(repo.file(PAGE).unwrap_or_default());
    let mut planted = BTreeSet::new();
    for (path, source) in repo.parsed() {
        for (at, token) in source.tokens.iter().enumerate() {
            let text = |n: usize| source.tokens.get(at + n).map_or("", |t| t.text.as_str());
            let call = token.text == "plant" && text(1) == "!" && text(2) == "(";
            let named = source.tokens.get(at + 3).is_some_and(|t| t.ident);
            if !call || !named {
                continue;
            }
            planted.insert(text(3));
            if !rows.iter().any(|r| r.name == text(3)) {
                let what = format!("`plant!({})` is not documented", text(3));
                let instead = format!("add its row to {PAGE}");
                findings.push(error(rule, path, token.line, what, instead));
            }
        }
    }
    for row in &rows {
        if row.planted && !planted.contains(row.name) {
            let what = format!("{} is said to be planted, and `plant!({0})` is nowhere", row.name);
            findings.push(error(rule, PAGE, row.line, what, "plant it, or write `no`"));
        }
        for file in row.files.iter().filter(|f| repo.file(f).is_none()) {
            let what = format!(
                "{} is said to be prevented in `{file}`, which does not exist",
                row.name
            );
            findings.push(error(
                rule,
                PAGE,
                row.line,
                what,
                "name the file that does it now",
            ));
        }
    }
    findings
}

/// A line of the table of hazards.
struct Row<'a> {
    line: usize,
    name: &'a str,
    files: Vec<&'a str>,
    planted: bool,
}

/// `| H44 | what | rule | where | yes |`.
fn rows(page: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for (n, line) in page.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["", name, .., last, ""] = cells.as_slice() {
            let files = line
                .split('`')
                .filter(|part| part.starts_with("crates/"))
                .collect();
            rows.push(Row {
                line: n + 1,
                name,
                files,
                planted: *last == "yes",
            });
        }
    }
    rows
}

/// Whether switching `feature` on switches `plant` on, here or in a dependency.
fn reaches_plant(manifest: &toml::Table, feature: &str) -> bool {
    let features = manifest.get("features").and_then(toml::Value::as_table);
    let (mut open, mut seen) = (vec![feature.to_string()], BTreeSet::new());
    while let Some(next) = open.pop() {
        let enables = features
            .and_then(|f| f.get(&next))
            .and_then(toml::Value::as_array);
        for item in enables.into_iter().flatten().filter_map(toml::Value::as_str) {
            if item == FEATURE || item.ends_with("/plant") {
                return true;
            }
            if seen.insert(item.to_string()) {
                open.push(item.into());
            }
        }
    }
    false
}

/// Dependencies declared with `features = ["plant"]`, other than for tests.
fn always_planted(manifest: &toml::Table) -> Vec<String> {
    let mut lists: Vec<&toml::Table> = Vec::new();
    for section in ["dependencies", "build-dependencies"] {
        lists.extend(manifest.get(section).and_then(toml::Value::as_table));
    }
    let workspace = manifest.get("workspace").and_then(|w| w.get("dependencies"));
    lists.extend(workspace.and_then(toml::Value::as_table));
    let planted = |value: &toml::Value| {
        let features = value.get("features").and_then(toml::Value::as_array);
        features.is_some_and(|f| f.iter().any(|v| v.as_str() == Some(FEATURE)))
    };
    lists
        .into_iter()
        .flatten()
        .filter(|(name, value)| name.starts_with("pando-") && planted(value))
        .map(|(name, _)| name.clone())
        .collect()
}
