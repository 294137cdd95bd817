//! A line of a comment fits into a window beside another one. Files that had longer ones are named.

use super::known::{Count, Known};
use crate::{Finding, Repo};

/// Characters of a line of a comment, with what stands before it.
const LONGEST: usize = 110;

const KNOWN: Known = Known {
    list: "crates/tidy/long-comments.txt",
    most: 0,
    of: "lines of comments of more than 110 characters",
    instead: "break them earlier",
};

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let counts = repo.files().filter_map(|(file, text)| {
        let mark = mark(file)?;
        let long = |l: &&str| l.trim_start().starts_with(mark) && l.chars().count() > LONGEST;
        let count = text.lines().filter(long).count();
        let line = text.lines().position(|l| long(&l)).map_or(0, |n| n + 1);
        Some(Count { file, count, line })
    });
    KNOWN.check(repo, rule, counts)
}

/// With what a line of a comment begins in such a file. `None`: no source.
fn mark(file: &str) -> Option<&'static str> {
    match file.rsplit(['.', '/']).next()? {
        "rs" => Some("//"),
        "sh" | "py" | "toml" | "Makefile" => Some("#"),
        _ => None,
    }
}
