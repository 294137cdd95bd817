//! Every member inherits the workspace's lints, edition and versions.

use super::error;
use crate::repo::line_of;
use crate::{Finding, Repo};

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, path, text) in repo.manifests() {
        let Ok(manifest) = text.parse::<toml::Table>() else {
            continue;
        };
        let inherits = |table: &str, key: &str| {
            let value = manifest.get(table).and_then(|t| t.get(key));
            value.is_some_and(|v| v.as_bool() == Some(true) || v.get("workspace").is_some())
        };
        if !inherits("lints", "workspace") {
            let what = "does not inherit the workspace's lints";
            findings.push(error(
                rule,
                path,
                0,
                what,
                "add `[lints]` with `workspace = true`",
            ));
        }
        for key in ["version", "edition", "rust-version", "license"] {
            if !inherits("package", key) {
                let instead = format!("write `{key}.workspace = true`");
                findings.push(error(rule, path, 0, format!("has a `{key}` of its own"), instead));
            }
        }
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(list) = manifest.get(section).and_then(toml::Value::as_table) else {
                continue;
            };
            for (name, value) in list {
                if value.get("workspace").is_none() {
                    let what = format!("`{name}` has a version of its own");
                    let instead = "list it in [workspace.dependencies] and write `workspace = true` here";
                    findings.push(error(rule, path, line_of(text, name), what, instead));
                }
            }
        }
    }
    findings
}
