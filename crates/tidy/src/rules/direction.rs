//! Which crate may need which: shells → {server, client} → {namespace, cluster} → {store, format, wire} →
//! types.

use super::error;
use crate::repo::line_of;
use crate::{Finding, Repo};
use std::collections::BTreeMap;

/// What each crate may depend on within this repository. A crate that is not listed is a finding: whoever
/// adds one decides where it stands, here and in ARCHITECTURE.md.
const MAY: [(&str, &[&str]); 25] = [
    ("types", &[]),
    ("format", &["types"]),
    ("wire", &["types", "format"]),
    ("store", &["types", "format"]),
    ("store-rocks", &["types", "format", "store"]),
    ("env", &["types"]),
    ("data", &["types", "env"]),
    ("model", &["types"]),
    ("dump", &["types"]),
    ("namespace", &["types", "format", "wire", "store"]),
    ("cluster", &["types", "format", "wire", "store", "env"]),
    ("auth", &["types", "format", "wire"]),
    (
        "server",
        &[
            "types",
            "format",
            "wire",
            "auth",
            "store",
            "namespace",
            "cluster",
            "env",
            "data",
        ],
    ),
    (
        "client",
        &[
            "types",
            "format",
            "wire",
            "auth",
            "store",
            "namespace",
            "cluster",
            "env",
            "data",
        ],
    ),
    (
        "sim",
        &[
            "types",
            "format",
            "wire",
            "auth",
            "store",
            "namespace",
            "cluster",
            "env",
            "data",
            "model",
            "server",
            "client",
        ],
    ),
    (
        "scale",
        &[
            "types", "format", "wire", "auth", "store", "cluster", "env", "data", "server", "client",
        ],
    ),
    (
        "net",
        &[
            "types", "format", "wire", "auth", "store", "cluster", "env", "data", "server", "client",
        ],
    ),
    (
        "fuse",
        &[
            "types", "format", "wire", "auth", "cluster", "env", "data", "blocks", "client", "net",
        ],
    ),
    ("coord", &["types", "cluster", "env"]),
    ("blocks", &["types", "env", "data"]),
    (
        "cli",
        &[
            "coord",
            "dump",
            "types",
            "format",
            "wire",
            "auth",
            "store",
            "store-rocks",
            "namespace",
            "cluster",
            "env",
            "data",
            "blocks",
            "model",
            "scale",
            "server",
            "client",
            "net",
            "fuse",
        ],
    ),
    (
        "fuzz",
        &[
            "dump", "types", "format", "wire", "auth", "store", "cluster", "env", "data", "server", "client",
        ],
    ),
    ("testing", &[]),
    ("s3-test", &[]),
    ("tidy", &[]),
];

/// Tests of these may not reach past the crates they may need either: what they judge must run without them.
const STRICT_IN_TESTS: [&str; 2] = ["sim", "model"];

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let table: BTreeMap<&str, &[&str]> = MAY.into_iter().collect();
    for (name, path, text) in repo.manifests() {
        let Some(may) = table.get(name) else {
            let what = format!("crate `{name}` has no place in the direction of dependencies");
            findings.push(error(
                rule,
                path,
                0,
                what,
                "add it to MAY in crates/tidy/src/rules/direction.rs",
            ));
            continue;
        };
        let manifest: toml::Table = match text.parse() {
            Ok(manifest) => manifest,
            Err(why) => {
                findings.push(error(
                    rule,
                    path,
                    0,
                    format!("is not TOML: {why}"),
                    "make it parse",
                ));
                continue;
            }
        };
        for (section, needed) in needs(&manifest) {
            if section == "dev-dependencies" && !STRICT_IN_TESTS.contains(&name) {
                continue;
            }
            if let Some(other) = needed.strip_prefix("pando-")
                && !may.contains(&other)
            {
                let what = format!("`{name}` may not need `{other}`");
                let list = if may.is_empty() {
                    "nothing of this repository".into()
                } else {
                    may.join(", ")
                };
                let instead =
                    format!("it may need: {list}. Turn the need around, or move what is shared down");
                findings.push(error(rule, path, line_of(text, &needed), what, instead));
            }
        }
    }
    findings
}

/// Every dependency of a manifest, target-specific ones too: the kind of section and the package name.
fn needs(manifest: &toml::Table) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut tables = vec![manifest];
    if let Some(toml::Value::Table(targets)) = manifest.get("target") {
        tables.extend(targets.values().filter_map(toml::Value::as_table));
    }
    for table in tables {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(toml::Value::Table(list)) = table.get(section) else {
                continue;
            };
            for (key, value) in list {
                let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(key);
                found.push((section, package.to_string()));
            }
        }
    }
    found
}
