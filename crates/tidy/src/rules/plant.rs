//! Planted bugs: the feature `plant` is in no default build, and every planted hazard is documented.

use super::error;
use crate::repo::line_of;
use crate::{Finding, Repo};
use std::collections::BTreeSet;

const FEATURE: &str = "plant";
const PAGE: &str = "docs/hazards.md";
/// What each section of the page says, in this order.
const LABELS: [&str; 4] = ["Harm", "Rule", "Where", "Shown by"];

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
    let hazards = hazards(repo.file(PAGE).unwrap_or_default());
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
            if !hazards.iter().any(|h| h.name == text(3)) {
                let what = format!("`plant!({})` is not documented", text(3));
                let instead = format!("add its section to {PAGE}");
                findings.push(error(rule, path, token.line, what, instead));
            }
        }
    }
    for hazard in &hazards {
        let at = |what: String, instead: &str| error(rule, PAGE, hazard.line, what, instead);
        let name = hazard.name;
        if hazard.labels != LABELS {
            let what = format!("{name} has not the lines {}", LABELS.join(", "));
            findings.push(at(what, "write `- Harm: ...` and so on, in this order"));
        }
        if hazard.planted && !planted.contains(name) {
            let what = format!("{name} is said to be planted, and `plant!({name})` is nowhere");
            findings.push(at(what, "plant it, or write `no plant`"));
        }
    }
    findings
}

/// A section of the page: `### H44 A few words`.
struct Hazard<'a> {
    /// Of its heading.
    line: usize,
    name: &'a str,
    /// The labels of its lines, in order.
    labels: Vec<&'a str>,
    planted: bool,
}

/// Every section whose heading begins with a number of H or G.
fn hazards(page: &str) -> Vec<Hazard<'_>> {
    let mut hazards: Vec<Hazard<'_>> = Vec::new();
    let mut inside = false;
    for (n, line) in page.lines().enumerate() {
        if let Some(heading) = line.strip_prefix('#') {
            let name = number(heading.trim_start_matches('#').trim_start());
            inside = name.is_some();
            hazards.extend(name.map(|name| Hazard {
                line: n + 1,
                name,
                labels: Vec::new(),
                planted: false,
            }));
        }
        let Some(hazard) = hazards.last_mut().filter(|_| inside) else {
            continue;
        };
        if let Some((label, text)) = line.strip_prefix("- ").and_then(|l| l.split_once(": ")) {
            hazard.labels.push(label);
            hazard.planted |= label == LABELS[3] && text == "plant";
        }
    }
    hazards
}

/// The number with which a heading begins.
fn number(heading: &str) -> Option<&str> {
    let name = heading.split(' ').next()?;
    let digits = name.strip_prefix(['H', 'G'])?;
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(name)
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
