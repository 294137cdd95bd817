//! Nothing outside `sim` asks whether it is being simulated: what is judged must be what runs.

use super::error;
use crate::repo::crate_of;
use crate::{Finding, Repo};

/// The simulator itself, the commands that start it, and this check, which must name what it looks for.
const MAY: [&str; 3] = ["sim", "cli", "tidy"];

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in repo.parsed() {
        if crate_of(path).is_none_or(|c| MAY.contains(&c)) {
            continue;
        }
        for token in source.tokens.iter().filter(|t| t.ident) {
            let name = token.text.to_lowercase();
            if name.contains("simulat") || name.starts_with("is_sim") || name.starts_with("in_sim") {
                let what = format!("`{}` outside the simulator", token.text);
                let instead = "let Env, Store or Blocks behave differently instead of asking where one is";
                findings.push(error(rule, path, token.line, what, instead));
            }
        }
    }
    findings
}
