//! A function fits on a screen. Those that do not yet are named, and neither grow nor get more.

use super::error;
use crate::repo::is_test_file;
use crate::source::{Source, Token};
use crate::{Finding, Repo};
use std::collections::BTreeMap;

/// Lines of a function, from `fn` to its last brace.
const MOST: usize = 80;
/// `file function lines` of those that are longer, one a line.
const LIST: &str = "crates/tidy/long-functions.txt";

/// A function, the line it begins on, and how many it has.
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

fn functions(source: &Source) -> Vec<Function> {
    let tokens = &source.tokens;
    let mut found = Vec::new();
    for (i, pair) in tokens.windows(2).enumerate() {
        let [keyword, name] = pair else { continue };
        if keyword.text != "fn" || !name.ident || source.is_test(keyword.line) {
            continue;
        }
        if let Some(end) = end_of_body(&tokens[i..]) {
            found.push(Function {
                name: name.text.clone(),
                line: keyword.line,
                lines: end - keyword.line + 1,
            });
        }
    }
    found
}

/// The line of the brace that closes the first body; none if there is only a declaration.
fn end_of_body(tokens: &[Token]) -> Option<usize> {
    let (mut signature, mut braces) = (0usize, 0usize);
    for token in tokens {
        match token.text.as_str() {
            "(" | "[" if braces == 0 => signature += 1,
            ")" | "]" if braces == 0 => signature = signature.checked_sub(1)?,
            ";" if braces == 0 && signature == 0 => return None,
            "{" => braces += 1,
            "}" => {
                braces = braces.checked_sub(1)?;
                if braces == 0 {
                    return Some(token.line);
                }
            }
            _ => {}
        }
    }
    None
}

/// The list: by file and name, lines.
fn listed(text: &str) -> BTreeMap<(String, String), usize> {
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (file, name) = (words.next()?.to_owned(), words.next()?.to_owned());
            Some(((file, name), words.next()?.parse().ok()?))
        })
        .collect()
}

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut known = listed(repo.file(LIST).unwrap_or_default());
    for (path, source) in repo.parsed().filter(|(path, _)| !is_test_file(path)) {
        for function in functions(source).into_iter().filter(|f| f.lines > MOST) {
            let may = known
                .remove(&(path.to_owned(), function.name.clone()))
                .unwrap_or(MOST);
            if function.lines > may {
                let (name, lines) = (&function.name, function.lines);
                let what = format!("`{name}` has {lines} lines, and may have {may}");
                findings.push(error(rule, path, function.line, what, "name its phases"));
            }
        }
    }
    for ((file, name), lines) in known {
        let what = format!("{file} {name} {lines}: it is not longer than {MOST} lines, or not there");
        findings.push(error(rule, LIST, 0, what, "take it off the list"));
    }
    findings
}
