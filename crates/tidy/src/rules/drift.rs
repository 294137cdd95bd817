//! What a page says of the code is what the code says: versions, and the tags of keys.

use super::error;
use crate::{Finding, Repo};

const TAGS: &str = "crates/format/src/tag.rs";
const FORMAT: &str = "docs/format.md";
const PROTOCOL: &str = "docs/protocol.md";

/// A constant that a page names in a sentence.
struct Named {
    file: &'static str,
    constant: &'static str,
    page: &'static str,
    /// The sentence begins so, and then has the number.
    words: &'static str,
}

const NAMED: [Named; 2] = [
    Named {
        file: "crates/format/src/lib.rs",
        constant: "pub const FORMAT_VERSION: u32 = ",
        page: FORMAT,
        words: "Format version ",
    },
    Named {
        file: "crates/wire/src/lib.rs",
        constant: "pub const PROTOCOL_VERSION: u16 = ",
        page: PROTOCOL,
        words: "The version ",
    },
];

/// The number that follows these words first.
fn number_after(text: &str, words: &str) -> Option<u32> {
    let at = text.find(words)? + words.len();
    let digits: String = text[at..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Tags in `Name = b'X',`.
fn tags(text: &str) -> Vec<char> {
    let bytes = text.lines().filter_map(|l| l.split_once(" = b'"));
    bytes.filter_map(|(_, rest)| rest.chars().next()).collect()
}

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for named in NAMED {
        let (Some(code), Some(page)) = (repo.file(named.file), repo.file(named.page)) else {
            continue;
        };
        let (is, said) = (
            number_after(code, named.constant),
            number_after(page, named.words),
        );
        if is.is_none() || is != said {
            let said = said.map_or("none".to_owned(), |n| n.to_string());
            let what = format!("`{}` says {said}, {} another", named.words.trim_end(), named.file);
            findings.push(error(
                rule,
                named.page,
                0,
                what,
                "write what changed, and the number",
            ));
        }
    }
    if let (Some(list), Some(page)) = (repo.file(TAGS), repo.file(FORMAT)) {
        for tag in tags(list) {
            if !page.contains(&format!("\n| `{tag}` ")) {
                let what = format!("the table of keys lacks the tag `{tag}`");
                findings.push(error(rule, FORMAT, 0, what, "add its row"));
            }
        }
    }
    findings
}
