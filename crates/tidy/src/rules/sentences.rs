//! Sentences on a page are short in the mean. Pages that had longer ones are named.

use super::known::{Count, Known};
use crate::{Finding, Repo};

const KNOWN: Known = Known {
    list: "crates/tidy/long-sentences.txt",
    most: 20,
    of: "words in the mean of its sentences",
    instead: "make two sentences of the longest, or a table",
};

pub(crate) fn check(repo: &Repo, rule: &'static str) -> Vec<Finding> {
    let pages = repo.files().filter(|(file, _)| is_page(file));
    let counts = pages.map(|(file, text)| {
        let sentences = sentences(text);
        let words: usize = sentences.iter().map(|s| s.words).sum();
        let longest = sentences.iter().max_by_key(|s| s.words);
        Count {
            file,
            // Rounded up: what has a little more than it may has too much.
            count: words.div_ceil(sentences.len().max(1)),
            line: longest.map_or(0, |s| s.line),
        }
    });
    KNOWN.check(repo, rule, counts)
}

/// Pages that are kept up to date: not the notes of single experiments.
fn is_page(file: &str) -> bool {
    let name = file.strip_prefix("docs/").unwrap_or(file);
    name.ends_with(".md") && !name.contains('/')
}

/// A sentence, or what stands for one in a list.
struct Sentence {
    /// On which it begins.
    line: usize,
    words: usize,
}

/// The sentences of paragraphs and lists. Headings, tables and code have none.
fn sentences(page: &str) -> Vec<Sentence> {
    let mut found: Vec<Sentence> = Vec::new();
    let (mut open, mut code) = (false, false);
    for (n, line) in page.lines().enumerate() {
        let mut text = line.trim_start();
        if text.starts_with("```") {
            (open, code) = (false, !code);
        } else if text.is_empty() || text.starts_with(['|', '#']) || (line.starts_with("    ") && !open) {
            open = false;
        } else if !code {
            if let Some(rest) = after_bullet(text) {
                (open, text) = (false, rest);
            }
            for word in text
                .split_whitespace()
                .filter(|w| w.contains(char::is_alphanumeric))
            {
                match found.last_mut().filter(|_| open) {
                    Some(sentence) => sentence.words += 1,
                    None => found.push(Sentence {
                        line: n + 1,
                        words: 1,
                    }),
                }
                open = !ends_sentence(word);
            }
        }
    }
    found
}

/// What follows `- ` or `1. `.
fn after_bullet(text: &str) -> Option<&str> {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    match digits.len() == text.len() {
        true => text.strip_prefix("- "),
        false => digits.strip_prefix(". "),
    }
}

fn ends_sentence(word: &str) -> bool {
    let bare = word.trim_end_matches(['"', '\'', ')', '*', '`']);
    bare.len() > 2 && bare.ends_with(['.', '!', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_where_people_end_them() {
        let count = |text: &str| sentences(text).iter().map(|s| s.words).collect::<Vec<_>>();
        assert_eq!(count("One two three. Four\nfive (six.) Seven"), [3, 3, 1]);
        assert_eq!(
            count("# Head\n\n- one two\n- three\n  four\n\n1. five"),
            [2, 2, 1]
        );
        assert_eq!(
            count("| a | b |\n\n    code code\n\n```\nmore code.\n```\nwords"),
            [1]
        );
        // What is indented within an item belongs to it; `a.` is no end.
        assert_eq!(count("- one\n    two a. b — three"), [5]);
    }
}
